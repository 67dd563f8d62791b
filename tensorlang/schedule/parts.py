"""A schedule of a program that calls kernels which are not in the language, as schedules of the parts between the calls.

    a[i] = 2 * x[i]        part 0      vectorize a.i  ─► part 0
    s = sort(a)            barrier
    y[i] = s[i] + a[i]     part 1      split y.i …    ─► part 1       order a.i, y.i: refused

A directive belongs to the part whose loops and tensors it names. Its parts run one after the other, so that no loop reaches from one into
the next: what names both is refused, and so is what would move a tensor that a kernel reads into a loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tensorlang.check.walk import descendants
from tensorlang.diagnostics import CompileError, error
from tensorlang.schedule.apply import Outline, outline, unknown_directive
from tensorlang.schedule.directives.table import TABLE
from tensorlang.schedule.plan import last_part
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import tensors


@dataclass(slots=True)
class _Part:
    """A part and the directives that are about it; `seen`: what these have made of it."""

    program: Program
    schedule: Schedule
    knobs: Mapping[str, int]
    seen: Outline

    @property
    def loops(self) -> tuple[str, ...]:
        return tuple(loop for loops in self.seen.loops.values() for loop in loops)

    def called(self, name: str) -> list[str]:
        """Return the loops that are meant by a name: in full, or by its last part."""
        return [loop for loop in self.loops if loop == name] or [loop for loop in self.loops if last_part(loop) == name]

    def has(self, name: str) -> bool:
        """Tell whether a name is a loop of this part, or a tensor that it defines."""
        return bool(self.called(name)) or any(t.name == name for d in self.seen.program.definitions for t in d.tensors)

    def reads(self, name: str) -> bool:
        return any(p.name == name for p in self.program.params)

    def look(self) -> None:
        """Note what the directives so far make of the part."""
        self.seen = outline(self.program, self.schedule, knobs=self.knobs)

    def take(self, directive: syntax.Directive) -> None:
        self.schedule = self.schedule.then(directive)


def directives_of_parts(program: Program, parts: Sequence[Program], schedule: Schedule, knobs: Mapping[str, int]) -> dict[str, Schedule]:
    """Return the schedules of parts of a program by their names; a part that no directive is about has none.

    Raises CompileError S0605 for a directive that reaches across the call of a kernel, S0103 for one that names nothing there, S0104 for
    one that could be about several parts, and S01xx and S02xx for what a part refuses."""
    made: list[_Part] = []
    for program_of_part in parts:
        empty = Schedule(program_of_part.name, schedule.target, (), schedule.instructions)
        made.append(_Part(program_of_part, empty, knobs, outline(program_of_part, empty)))
    for directive in schedule.directives:
        if directive.name not in TABLE:
            raise unknown_directive(directive)
        for part in _owners(program, made, directive):
            part.take(directive)
    for part in made:
        _check(program, part)
    return {part.program.name: part.schedule for part in made if part.schedule.directives}


def _owners(program: Program, parts: Sequence[_Part], directive: syntax.Directive) -> list[_Part]:
    """Return the parts that a directive is about: one, or all where it says nothing of loops and tensors."""
    names = [name for name in _names(directive) if name not in program.sizes]
    if any(not any(part.has(name) or part.reads(name) for part in parts) for name in names):
        for part in parts:
            part.look()
    about = {name: [part for part in parts if part.has(name)] for name in names}
    defined = {name: found for name, found in about.items() if found}
    reads = {name for name in names if any(part.reads(name) for part in parts)} if TABLE[directive.name].about_reads else set[str]()
    if not defined and not reads:
        if names and not _about_sizes(directive):
            raise _nothing(parts, directive, names[0])
        return list(parts)
    owners = [part for part in parts if all(part in found or (name in reads and part.reads(name)) for name, found in defined.items())]
    owners = [part for part in owners if any(part in found for found in defined.values())] if defined else owners
    owners = [part for part in owners if all(part.reads(name) for name in reads if name not in defined)]
    if not owners:
        raise _across(program, directive, defined)
    if len(owners) > 1 and defined:
        raise _several(directive, owners, next(iter(defined)))
    return owners


def _names(directive: syntax.Directive) -> Iterator[str]:
    """Yield the names that a directive says, other than those that it gives."""
    for operand in (*directive.operands, *(operand for phrase in directive.phrases for operand in phrase.operands)):
        for node in descendants(operand):
            match node:
                case syntax.Id(name) | syntax.Apply(str(name)):
                    yield name
                case _:
                    pass


def _about_sizes(directive: syntax.Directive) -> bool:
    return any(isinstance(operand, syntax.Compare) for operand in directive.operands)


def _across(program: Program, directive: syntax.Directive, defined: Mapping[str, Sequence[_Part]]) -> CompileError:
    told = [f"`{name}` belongs to part `{found[0].program.name}`" for name, found in defined.items()]
    called = ", ".join(dict.fromkeys(f"`{call.operator}`" for call in program.externs))
    return error(
        "S0605",
        f"`{show(directive)}` reaches across the call of a kernel",
        directive.span,
        "about what lies before and behind it",
        notes=(*told, f"parts end where {called} is called: all that is before has been computed then, and nothing of what follows"),
        help="write a directive for each part, of its own loops",
    )


def _several(directive: syntax.Directive, parts: Sequence[_Part], name: str) -> CompileError:
    loops = [loop for part in parts for loop in part.called(name)]
    title = f"`{name}` could be {' or '.join(f'`{loop}`' for loop in loops)}"
    return error("S0104", title, directive.span, help="write the full name")


def _nothing(parts: Sequence[_Part], directive: syntax.Directive, name: str) -> CompileError:
    loops = ", ".join(loop for part in parts for loop in part.loops)
    return error("S0103", f"there is no loop `{name}` at this point", directive.span, help=f"the loops are now {loops or 'none'}")


def _check(program: Program, part: _Part) -> None:
    """Raise what the directives of a part are refused for, with what is to be known of tensors that kernels read."""
    try:
        part.look()
    except CompileError as refused:
        given = [t.name for t in tensors(part.program) if t.name in part.program.results and t.name not in program.results]
        text = " ".join(d.title for d in refused.diagnostics)
        note = tuple(
            f"`{name}` is read behind the call of a kernel, or by one: all of it is stored" for name in given if f"`{name}`" in text
        )
        raise CompileError(*(replace(d, notes=(*d.notes, *note)) for d in refused.diagnostics)) from None
