"""What a proof comes back with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Proven:
    """The claim holds; `reason` may say by what argument."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Refuted:
    """The claim fails at `point` for the sizes `params`: the lexicographically smallest case, sizes first. `via` lists the elements
    of a cycle of dependences, each followed by one that it depends on, where a cycle is what was found."""

    point: dict[str, int]
    params: dict[str, int]
    via: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Unknown:
    """Neither proven nor refuted within the limits."""

    reason: str


Verdict: TypeAlias = Proven | Refuted | Unknown
