"""Calls of kernels as an entry point makes them: where their buffers lie, and which calls are made again and again.

`program.py` emits them; a repetition becomes a function of its own (`repetition.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Slot:
    """The buffer at `offset` bytes from base number `base`, and as many more as `shift` says where that is given."""

    base: int
    offset: int = 0
    shift: Number | None = None


@dataclass(frozen=True, slots=True)
class Number:
    """The i64 that stands in the place of base number `base`: a size that the caller tells."""

    base: int


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One call: the kernel's buffers in the order of its parameters, its sizes, and its workspace."""

    symbol: str
    buffers: tuple[Slot, ...]
    sizes: tuple[int | Number, ...] = ()
    workspace: Slot | None = None


@dataclass(frozen=True, slots=True)
class Carried:
    """What one turn of a repetition hands to the next, `size_bytes` of it: the first turn reads `initial`, the last leaves it in `result`.
    Turns read one of two blocks of memory and write the other: `result` and `scratch`."""

    initial: Slot
    result: Slot
    scratch: Slot
    size_bytes: int | Number


@dataclass(frozen=True, slots=True)
class Rows:
    """An array of which each turn of a repetition has a row of `row_bytes` for itself, or writes one: from the first on, or, `backwards`,
    from the last."""

    whole: Slot
    row_bytes: int | Number
    written: bool = False
    backwards: bool = False


@dataclass(frozen=True, slots=True)
class Repetition:
    """Calls that run again and again: at most as often as `limit` (i64) and `most` say, and as long as a truth value holds, which the
    first iteration finds in `condition`, and later ones where the calls leave it, in `next_condition`. None: nothing ends them there.
    `trip_count` (i64) becomes how often they ran, `iteration` (i64) is the number of the one that runs.

    The calls see the bases of those around, and behind them, from number `first_base` on, for each of `carried` what is read and what is
    written, then the row of each of `rows`. Rows that no iteration writes are zeros."""

    calls: tuple[Call, ...]
    first_base: int
    iteration: Slot
    trip_count: Slot
    limit: Slot | None = None
    most: int | Number | None = None
    condition: Slot | None = None
    next_condition: Slot | None = None
    carried: tuple[Carried, ...] = ()
    rows: tuple[Rows, ...] = ()


Call: TypeAlias = KernelCall | Repetition


def kernel_calls(calls: Sequence[Call]) -> Iterator[KernelCall]:
    """Yield the calls of kernels in the order in which they are numbered."""
    for call in calls:
        if isinstance(call, KernelCall):
            yield call
        else:
            yield from kernel_calls(call.calls)


def with_numbers(calls: Sequence[Call], start: int = 0) -> Iterator[tuple[int, Call]]:
    """Yield calls, each with its number; that of a repetition is the number of the first call in it. Calls are numbered from `start` on."""
    for call in calls:
        yield start, call
        start += call_count(call)


def call_count(call: Call) -> int:
    """Return how many calls of kernels a call is made of."""
    return 1 if isinstance(call, KernelCall) else sum(map(call_count, call.calls))


def address(name: str, slot: Slot) -> list[str]:
    """Return the instructions that make `%name` the address of a slot; `%b…` are the bases that it counts from."""
    base, lines = f"%b{slot.base}", list[str]()
    if slot.shift is not None:
        lines = [*loaded_number(f"%{name}.n", slot.shift), f"  %{name}.b = getelementptr i8, ptr {base}, i64 %{name}.n"]
        base = f"%{name}.b"
    return [*lines, f"  %{name} = getelementptr i8, ptr {base}, i64 {slot.offset}"]


def loaded_number(name: str, number: Number) -> list[str]:
    """Return the instructions that load a number."""
    return [f"  {name}.p = getelementptr i64, ptr %bases, i64 {number.base}", f"  {name} = load i64, ptr {name}.p, align 8"]


def loaded_bases(slots: Iterable[Slot]) -> list[str]:
    """Return the instructions that load what slots count from."""
    lines: list[str] = []
    for base in sorted({slot.base for slot in slots}):
        lines += [f"  %bp{base} = getelementptr i64, ptr %bases, i64 {base}", f"  %b{base} = load ptr, ptr %bp{base}, align 8"]
    return lines


def slots_of(call: KernelCall) -> tuple[Slot, ...]:
    """Return the buffers of a call, and its workspace."""
    return call.buffers if call.workspace is None else (*call.buffers, call.workspace)
