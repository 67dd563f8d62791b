"""What proofs have shown, as sets and maps in isl's notation, for whoever asks: nobody does by default, and then nothing is written down.

    with recording() as shown:
        implies(…)
    shown        [Statement("implies", "", ("{ [i] : 0 <= i <= 7 }", "{ [i] : i >= 0 }"))]

A statement is noted where its proof ends well; a refuted one leaves none. Whoever asked for the proof may say what it was about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeAlias

if TYPE_CHECKING:
    import islpy as isl

P = ParamSpec("P")
Shown: TypeAlias = Literal[
    "implies", "disjoint", "covers", "well founded", "once", "defined", "order", "race", "lane", "alive", "at once", "injective"
]
"""implies     the first set lies in the second
disjoint    the sets have no point in common
covers      the first set lies in the union of the others
well founded  along every pair of the maps the rank that is the subject falls
once        the first set, of instances, is what runs: the second, and nothing runs twice
defined     the first set, of elements that are read, lies in the second, of those that are written
order       no pair of the map, from what writes to what depends on it, runs backwards
race, lane  no pair of the map lies in different iterations of the loop that the subject ends with
alive       the map, from elements to others that are written while they are needed, joins no two of one cell
at once     the map, from elements to others that are written at the same time, joins no two of one cell
injective   the map gives no two points one image"""


@dataclass(frozen=True, slots=True)
class Statement:
    shown: Shown
    subject: str
    about: tuple[str, ...]


_KEPT: ContextVar[list[Statement] | None] = ContextVar("kept", default=None)


@contextmanager
def recording() -> Iterator[list[Statement]]:
    """Keep what is proven inside, in this thread, in the list that is handed out."""
    kept: list[Statement] = []
    token = _KEPT.set(kept)
    try:
        yield kept
    finally:
        _KEPT.reset(token)


def is_recording() -> bool:
    """Tell whether somebody in this thread keeps what is proven."""
    return _KEPT.get() is not None


def note(shown: Shown, subject: str, about: Callable[P, Sequence[isl.Set | isl.Map]], *args: P.args, **kwargs: P.kwargs) -> None:
    """Write a statement about `about(*args)` down if somebody is recording; one about nothing says nothing."""
    kept = _KEPT.get()
    if kept is not None:
        first, *others = about(*args, **kwargs)
        if not first.is_empty():
            kept.append(Statement(shown, subject, (str(first), *map(str, others))))


def each(*about: isl.Set | isl.Map) -> Sequence[isl.Set | isl.Map]:
    return about


def subject(text: str) -> None:
    """Say what the statement that was noted last is about."""
    kept = _KEPT.get()
    if kept:
        kept[-1] = replace(kept[-1], subject=text)


def named(points: isl.Set, names: Sequence[str]) -> isl.Set:
    """Return a set whose dimensions are called as people call them."""
    from polyhedral.space import DT

    for position, name in enumerate(names):
        points = points.set_dim_name(DT.set, position, name)
    return points
