"""Whether numbered signals come one after the other, and each after the one that it waits for.

    issued, awaited        { [time] -> [number] }     the copy of a box is issued, and waited for, by its number
    released, reclaimed    { [time] -> [number] }     the stage it is in is given back, and waited for

A barrier that is used again by every n-th number tells its phases apart by one bit. That suffices where numbers go up one by one, from 0
on, and nobody is a phase ahead of others: who waits for a number finds it, or the one before. So

    each sequence        is { t -> 0, 1, 2, … } with time, reclaims from a number not above 0 on
    awaited              comes after issued, number by number, and every copy that is issued is waited for
    released             comes after awaited, number by number
    reclaimed            comes after released, number by number, from 0 on

That a copy into a stage is issued after those who use it have released it is for `polyhedral.threads` to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import islpy as isl

from polyhedral.space import DT, smallest_point, val

Numbered: TypeAlias = "isl.Map | None"
"""`{ [time] -> [number] }`; None where there is nothing that counts."""


@dataclass(frozen=True, slots=True)
class SignalFault:
    """Number `number` of the signals called `name` is `why`, with these parameters."""

    name: str
    number: int
    why: str
    params: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Signals:
    """What is counted by one pair of barriers."""

    full: str
    empty: str
    issued: Numbered
    awaited: Numbered
    released: Numbered
    reclaimed: Numbered


def signal_fault(signals: Signals) -> SignalFault | None:
    """Return a number that comes too early, twice or not at all, or None when there is none."""
    return next(_all(signals), None)


def _all(s: Signals) -> Iterator[SignalFault]:
    for name, sequence in ((s.full, s.issued), (s.full, s.awaited), (s.empty, s.released), (s.empty, s.reclaimed)):
        if sequence is not None:
            yield from _out_of_order(name, sequence, starts=sequence is not s.reclaimed)
    yield from _early(s.full, s.awaited, s.issued, "waited for, and not issued before")
    if s.issued is not None:
        left = s.issued.range() if s.awaited is None else s.issued.range().subtract(s.awaited.range())
        yield from _found(s.full, left, "issued, and nobody waits for it")
    yield from _early(s.empty, s.released, s.awaited, "released, and not waited for before")
    yield from _early(s.empty, None if s.reclaimed is None else _from_zero(s.reclaimed), s.released, "reclaimed, and not released before")


def _out_of_order(name: str, sequence: isl.Map, *, starts: bool) -> Iterator[SignalFault]:
    """Yield a number that does not follow the one before, in time."""
    numbers = sequence.range()
    later = isl.Map.lex_lt(sequence.get_space().domain())
    order = sequence.reverse().apply_range(later).apply_range(sequence)
    yield from _found(name, order.subtract(isl.Map.lex_lt(numbers.get_space())).range(), "not above the one before it")
    follow = numbers.lower_bound_val(DT.set, 0, val(1)).subtract(numbers.apply(isl.Map("{ [n] -> [n + 1] }")))
    yield from _found(name, follow, "not one above the one before it")
    if not sequence.is_single_valued():
        yield from _found(name, numbers, "given at one time with others")
    if starts:
        yield from _found(name, numbers.upper_bound_val(DT.set, 0, val(-1)), "below 0")


def _early(name: str, signals: isl.Map | None, causes: isl.Map | None, why: str) -> Iterator[SignalFault]:
    """Yield a number that stands where its cause has not been before."""
    if signals is None:
        return
    if causes is None:
        yield from _found(name, signals.range(), why)
        return
    before = isl.Map.lex_gt(causes.get_space().domain()).apply_range(causes)
    yield from _found(name, signals.subtract(before).range(), why)


def _from_zero(sequence: isl.Map) -> isl.Map:
    return sequence.intersect_range(sequence.range().lower_bound_val(DT.set, 0, val(0)))


def _found(name: str, numbers: isl.Set, why: str) -> Iterator[SignalFault]:
    if not numbers.is_empty():
        params, (number,) = smallest_point(numbers)
        yield SignalFault(name, number, why, tuple(params))
