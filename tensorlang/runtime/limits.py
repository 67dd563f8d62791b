"""What `explain` says: a text for people, and what limits the kernel, each finding by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tensorlang.check.problems import counted

LimitKind = Literal["roofline", "reads", "scalar", "spills", "latency", "threads"]


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
class Explained:
    """`limits` begin with the roofline; there are none for kernels that are not looked into."""

    text: str
    limits: tuple[Limit, ...] = ()


def limit_lines(limits: Sequence[Limit]) -> list[str]:
    """Return the section of a report about limits; with the roofline alone it says that there is nothing else."""
    lines = [str(found) for found in limits]
    if len(lines) == 1:
        lines.append("nothing else was found that limits it")
    return [f"{'limits' if k == 0 else '':10} {line}" for k, line in enumerate(lines)]


def tried_lines(tried: Sequence[str], roles: bool) -> list[str]:
    """Return the lines about schedules that were looked at and not taken; those of roles that do not fit are counted, with `roles`
    named."""
    unfit = [told for told in tried if told.startswith("schedule role ") and ": refused: " not in told]
    shown = [told for told in tried if roles or told not in unfit]
    lines = [f"           not {told}" for told in shown]
    if unfit and not roles:
        lines.append(f"           {counted(len(unfit), 'schedule')} of roles not for this: `tensorlang explain --verbose` lists them")
    return lines
