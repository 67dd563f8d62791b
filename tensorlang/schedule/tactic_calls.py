"""Calls of tactics: what is said of one that there is not, and what the loops are called that each call makes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from tensorlang.check.problems import did_you_mean
from tensorlang.diagnostics import CompileError, Edit, Span, error
from tensorlang.schedule.directives.table import TABLE
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.directive_forms import directive_called
from tensorlang.syntax.foreign_directives import TENSOR, told, written_here


@dataclass(slots=True)
class LoopNames:
    """The names that a schedule has given to loops, each with the tensor that the loop is of, "" where that is not told."""

    given: set[tuple[str, str]] = field(default_factory=set)

    def note(self, tensor: str, names: Iterable[str]) -> None:
        self.given.update((tensor, name) for name in names)

    def fresh(self, tensor: str, base: str) -> str:
        """Return a name that no loop of the tensor has been given: `ii`, or else `ii1`, `ii2`, …"""
        name, count = base, 0
        while any(name == other and (not tensor or not owner or owner == tensor) for owner, other in self.given):
            count += 1
            name = f"{base}{count}"
        return name


def no_tactic(known: Collection[str], call: sx.Directive) -> CompileError:
    """Return S0502 for a call of what is no tactic: a directive as other tools write it, or a misspelled name."""
    span = Span(call.span.source, call.span.start, call.span.start + len(call.name)) if call.span.end else call.span
    meant = directive_called(call.name, TABLE)
    if meant is not None:
        member = call.name.rsplit(".", 1)[-1]
        title = f"`{call.name}` is no tactic" if member == meant else f"there is no tactic `{call.name}`"
        lines = written_here(call.span.source.text[call.span.start : call.span.end]) if call.span.end else ()
        edits = (Edit(call.span, "\n".join(lines)),) if len(lines) == 1 and TENSOR not in lines[0] else ()
        how = told(lines) if lines else TABLE[meant].shape
        return error("S0502", title, span, help=f"a directive stands on a line of its own, without parentheses: {how}", edits=edits)
    help = did_you_mean(call.name, known, f"the tactics are {', '.join(sorted(known)) or 'none'}")
    return error("S0502", f"there is no tactic `{call.name}`", span, help=help)
