"""How many elements reads touch, and how much of a cache the lines take that these lie in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate, product
from math import gcd, prod

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from tensorlang.lower.prefetch import LINE_BYTES
from tensorlang.policy.cpu.register_tiles import ROWS_IN_A_SET
from tensorlang.schedule.shape import step_inside
from tensorlang.tensor.nodes import Dynamic, Read
from tensorlang.tensor.walk import index_names


def distinct(read: Read, counts: Mapping[str, int]) -> int:
    """Return how many elements are read for so many values of each of some names, none of which is in two indices: others for each value of
    a name that data are indexed by, and of one along which an index goes in steps of no one length."""
    by_data = frozenset[str]().union(*(index_names(s.value) for s in read.index if isinstance(s, Dynamic)))
    found = prod(count for n, count in counts.items() if n in by_data)
    for slot in (s for s in read.index if not isinstance(s, Dynamic)):
        steps = [(step_inside(slot, n), counts[n]) for n in sorted(affine.name_set(slot) & counts.keys() - by_data)]
        found *= _sums(tuple((step, count) for step, count in steps if step is not None))
        found *= prod(count for step, count in steps if step is None)
    return found


def held(read: Read, counts: Mapping[str, int], terms: Sequence[str]) -> int:
    """Return how many elements are read by some term as well as by one after it, the most at a time, where for each of the `terms`, the
    values of these names in turn, those of the other names are gone through."""
    names = (*terms, *(n for n in counts if n not in terms))
    steps = tuple(tuple(_step_of_slot(s, n) for n in names) for s in read.index)
    return _held_at_once(tuple(counts[n] for n in names), len(terms), steps)


def _step_of_slot(slot: Affine | Dynamic, name: str) -> int | None:
    """Return how far an index goes for each step of a name; None where that is no constant, as where data are indexed by it."""
    return (None if name in index_names(slot.value) else 0) if isinstance(slot, Dynamic) else step_inside(slot, name)


@cache
def _held_at_once(counts: tuple[int, ...], terms: int, steps: tuple[tuple[int | None, ...], ...]) -> int:
    """Return what `held` does of slots that go so far for each step of each name; None where that is no constant."""
    taken: dict[object, list[int]] = {}
    for term, outer in enumerate(product(*map(range, counts[:terms]))):
        for inner in product(*map(range, counts[terms:])):
            slots = [[*zip((*outer, *inner), of, strict=True)] for of in steps]
            place = tuple((sum(n * (k or 0) for n, k in slot), *(n for n, k in slot if k is None)) for slot in slots)
            taken.setdefault(place, []).append(term)
    change = Counter[int]()
    for by in taken.values():
        change[by[0]] += 1
        change[by[-1]] -= 1
    return max(accumulate(change[t] for t in range(prod(counts[:terms]))), default=0)


@cache
def _sums(steps: tuple[tuple[int, int], ...]) -> int:
    """Return how many numbers are sums of multiples of steps, each by less than its count."""
    found = {0}
    for step, count in steps:
        found = {s + step * k for s in found for k in range(count)}
    return len(found)


def bytes_of_lines(rows: float, pitch: int, cache_bytes: int) -> float:
    """Return how much of a cache of so many bytes a line of each of some rows takes: few sets are for rows a power of two apart."""
    return rows * max(LINE_BYTES, gcd(pitch, set_distance(cache_bytes)))


def set_distance(cache_bytes: int) -> int:
    """Return how far apart lines share a set of a cache: there is a power of two of sets, however many lines each of them holds."""
    return 1 << max(1, cache_bytes // ROWS_IN_A_SET).bit_length() - 1
