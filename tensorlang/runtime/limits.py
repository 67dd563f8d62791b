"""What `explain` says: a text for people, and what limits the kernel, each finding by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tensorlang.artifact import SizeCase
from tensorlang.diagnostics import counted

LimitKind = Literal["roofline", "reads", "scalar", "spills", "latency", "threads", "occupancy"]


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that keeps a kernel from being faster. `loop`: as schedules name it, "" where it is about the whole operator; `place`:
    of the read that causes it, `my.tl:4:12`, or ""; `help`: what to try, "" where nothing is known to help."""

    kind: LimitKind
    reason: str
    loop: str = ""
    place: str = ""
    help: str = ""

    def __str__(self) -> str:
        loop = f"{self.loop}: " if self.loop else ""
        place = f" ({self.place})" if self.place else ""
        return f"{loop}{self.reason}{place}{f'; try {self.help}' if self.help else ''}"


@dataclass(frozen=True, slots=True)
class LoopCycles:
    """An estimate of what one iteration of an innermost loop of machine code takes. `parts`: what its instructions are, how many, and the
    cycles that those take by themselves, the longest first; `lines`: its assembly, for a `cpu` as LLVM calls it. `loop` is "" where
    schedules have no name for it."""

    loop: str
    parts: tuple[tuple[str, int, float], ...]
    lines: tuple[str, ...] = ()
    cpu: str = ""

    @property
    def cycles(self) -> float:
        """What the longest part takes, by which the loop is bound."""
        return self.parts[0][2]

    def __str__(self) -> str:
        (bound, count, _), *others = self.parts
        rest = ", ".join(f"{_part(what, many)} {taken:.3g}" for what, many, taken in others)
        loop = f"{self.loop}: " if self.loop else ""
        alone = f"; alone, {rest}" if rest else ""
        return f"{loop}about {self.cycles:.3g} cycles an iteration, bound by {_part(bound, count)}{alone}"


def _part(what: str, count: int) -> str:
    return "the chain between iterations" if what == "chain" else f"{what} ({count})"


@dataclass(frozen=True, slots=True)
class Explained:
    """`limits` begin with the roofline; there are none for kernels that are not looked into. `cycles`: of innermost loops that do much of
    the work."""

    text: str
    limits: tuple[Limit, ...] = ()
    cycles: tuple[LoopCycles, ...] = ()
    cases: tuple[SizeCase, ...] = ()
    """The ranges of open sizes that have loops of their own."""


def limit_lines(limits: Sequence[Limit]) -> list[str]:
    """Return the section of a report about limits; with the roofline alone it says that there is nothing else."""
    lines = [str(found) for found in limits]
    if len(lines) == 1:
        lines.append("nothing else was found that limits it")
    return _section("limits", lines)


def cycles_lines(cycles: Sequence[LoopCycles]) -> list[str]:
    """Return the section of a report about what iterations of innermost loops take."""
    return _section("cycles", [str(found) for found in cycles])


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"{title if k == 0 else '':10} {line}" for k, line in enumerate(lines)]


def case_lines(cases: Sequence[SizeCase]) -> list[str]:
    """Return the table of the ranges of open sizes that have loops of their own, and why; nothing where all run the same."""
    widths = max((len(case.range) for case in cases), default=0)
    return _section("sizes", [f"{case.range:{widths}}  {case.why}" for case in cases])


def tried_lines(tried: Sequence[str], roles: bool) -> list[str]:
    """Return the lines about schedules that were looked at and not taken; those of roles that do not fit are counted, with `roles`
    named."""
    unfit = [told for told in tried if told.startswith("schedule role ") and ": refused: " not in told]
    shown = [told for told in tried if roles or told not in unfit]
    lines = [f"           not {told}" for told in shown]
    if unfit and not roles:
        lines.append(f"           {counted(len(unfit), 'schedule')} of roles not for this: `tensorlang explain --verbose` lists them")
    return lines


def proven_lines(order: str, trusted: str) -> list[str]:
    """Return the lines about what is proven of a kernel: of its order `order`, unless that is `trusted` instead."""
    equations = "proven     every read is in bounds, every element is defined once"
    return [f"{equations}, {order}"] if not trusted else [equations, f"trusted    {trusted}"]
