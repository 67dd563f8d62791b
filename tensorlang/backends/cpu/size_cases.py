"""Cases of open sizes: loops of their own for sizes far from the samples, where these are predicted to be faster there.

    samples     M = 3000, N = 33          lanes along M
    N >= 128    derived for N = 264       lanes along N, predicted to take 0.3 there
    else        what is derived for the samples

Every case is right for all sizes; the first whose condition holds runs, and the last has none, so each combination of sizes is in just one:
of two that are for the samples of both, the one that is predicted to be faster there stands first.
What is derived for a smaller and a larger sample of each size is looked at, and compared by what its loops are predicted to take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeAlias

from codegen.dtypes import i64
from codegen.loops.nodes import Binary, Compare, Const, Expr, Function, If, IndexValue, Require, Stmt, Var
from codegen.loops.verify import verify
from codegen.loops.walk import binders, fresh_for, map_stmt, rename, walk
from tensorlang.artifact import SizeCase
from tensorlang.backends.cpu.function_cycles import function_cycles
from tensorlang.diagnostics import CompileError
from tensorlang.lower.kernel import Lowered
from tensorlang.planning import Scheduled
from tensorlang.tensor.widths import LARGEST

Cycles: TypeAlias = "Callable[[Planned, Mapping[str, int]], float]"
"""Predicts what loops take at sizes."""
SMALLER, LARGER = 8, 64
"""How many times smaller and larger the other samples of a size are."""
MOST_SIZES = 3
"""How many open sizes of a kernel other samples are looked at for."""
MOST_CASES = 3
"""Cases of a kernel, the one for the samples among them."""
MOST_NODES = 12_000
"""Of the loops of all cases, and of all that are looked at but the last: those of larger kernels take too long to make several times."""
GAIN = 0.7
"""What a case has to take, at its sample, of what the loops for the samples at hand are predicted to take there."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule and the loops of it."""

    scheduled: Scheduled
    lowered: Lowered


@dataclass(frozen=True, slots=True)
class _Limit:
    """That a size is no larger, or (`below` false) no smaller, than some number."""

    size: str
    below: bool
    number: int

    def __str__(self) -> str:
        return f"{self.size} {'<=' if self.below else '>='} {self.number}"

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return sizes[self.size] <= self.number if self.below else sizes[self.size] >= self.number

    def asked(self, named: Mapping[str, str]) -> Expr:
        """Return it as a condition, `named` what sizes are called in loops."""
        return Compare("<=" if self.below else ">=", IndexValue(Var(named[self.size])), Const(self.number, i64))


@dataclass(frozen=True, slots=True)
class _Case:
    """Loops for a box of sizes, scheduled for `sample` of the first that is limited, where they take `share` of what others do."""

    limits: tuple[_Limit, ...]
    sample: int
    share: float
    planned: Planned

    @property
    def told(self) -> SizeCase:
        why = f"for {self.limits[0].size} = {self.sample} it is predicted to take {self.share:.2f} of what the last one takes"
        return SizeCase(", ".join(map(str, self.limits)), why, _text(self.planned))


def with_cases(
    base: Planned,
    at: Mapping[str, int],
    scheduled_at: Callable[[Mapping[str, int]], Scheduled],
    loops: Callable[[Scheduled], Lowered],
    lanes: int,
    threads: int,
) -> tuple[Lowered, tuple[SizeCase, ...], tuple[Scheduled, ...]]:
    """Return the loops of a kernel with those of its cases, the cases, none where one serves all sizes, and the schedules that were added.
    `at`: the samples that `base` was scheduled for; `scheduled_at` schedules for others, `loops` lowers what it returns."""
    made = _nodes(base)
    room = MOST_NODES - made
    named = dict(zip(base.scheduled.plan.program.sizes, base.lowered.function.sizes, strict=True))

    def cycles(planned: Planned, sizes: Mapping[str, int]) -> float:
        return function_cycles(planned.lowered.function, {named[n]: size for n, size in sizes.items() if n in named}, lanes, threads)

    cases: list[_Case] = []
    seen = {base.scheduled.schedule.directives: base}
    for size, sample in _samples(base.scheduled.plan.program.sizes, at):
        if len(cases) == MOST_CASES - 1 or made > MOST_NODES:
            break
        try:
            scheduled = scheduled_at({**at, size: sample})
            found = seen.get(scheduled.schedule.directives) or Planned(scheduled, loops(scheduled))
        except CompileError:
            continue
        made += 0 if scheduled.schedule.directives in seen else _nodes(found)
        seen[scheduled.schedule.directives] = found
        if found is base or any(case.planned is found for case in cases) or not _is_alike(base.lowered, found.lowered):
            continue
        case = _limited(base, found, size, sample, at, cycles) if _nodes(found) <= room else None
        if case is not None:
            room -= _nodes(found)
            cases.insert(_place(case, cases, at, cycles), case)
    if not cases:
        return base.lowered, (), ()
    samples = ", ".join(f"{name} = {at[name]}" for name in named if name in at)
    told = (*(case.told for case in cases), SizeCase("all others", f"scheduled for {samples}", _text(base)))
    return _joined(base.lowered, cases, named), told, tuple(case.planned.scheduled for case in cases)


def _nodes(planned: Planned) -> int:
    return sum(1 for _ in walk(*planned.lowered.function.body))


def _text(planned: Planned) -> str:
    return str(planned.scheduled.with_idle(planned.lowered.idle))


def _samples(names: Sequence[str], at: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield other samples of each size, the smaller ones of all first: there loops outside of others run less than these are made for."""
    known = [name for name in names if name in at]
    if len(known) > MOST_SIZES:
        return
    smaller, larger = ((name, at[name] // SMALLER) for name in known), ((name, at[name] * LARGER) for name in known)
    yield from ((name, sample) for name, sample in (*smaller, *larger) if 2 <= sample <= LARGEST)


def _limited(base: Planned, found: Planned, size: str, sample: int, at: Mapping[str, int], cycles: Cycles) -> _Case | None:
    """Return a case from its sample on towards the samples at hand as far as it is predicted to gain, None where it gains nothing: below
    it, one is the size that comes most often, and a case that gains there is for sizes up to its sample if it loses nothing at that. Other
    sizes are limited to the side of the samples on which it is predicted to be no slower."""

    def share(**sizes: int) -> float:
        there = {**at, **sizes}
        return cycles(found, there) / max(1.0, cycles(base, there))

    below, limit, at_sample = sample < at[size], sample, share(**{size: sample})
    step = 2 * sample if below else sample // 2
    if below and GAIN < at_sample <= 1:
        sample, at_sample = 1, share(**{size: 1})
    if at_sample > GAIN:
        return None
    while (step < at[size] if below else step > at[size]) and share(**{size: step}) <= GAIN:
        limit, step = step, 2 * step if below else step // 2
    limits = [_Limit(size, below, limit)]
    for name in base.scheduled.plan.program.sizes:
        if name != size and name in at:
            smaller, larger = max(1, at[name] // SMALLER), at[name] * LARGER
            limits += [_Limit(name, False, at[name])] if share(**{size: sample, name: smaller}) > 1 else []
            limits += [_Limit(name, True, at[name])] if share(**{size: sample, name: larger}) > 1 else []
    return _Case(tuple(limits), sample, at_sample, found)


def _place(case: _Case, others: Sequence[_Case], at: Mapping[str, int], cycles: Cycles) -> int:
    """Return where a case stands among others: before the first that is slower at the samples of both, if both are for these."""
    for k, other in enumerate(others):
        there = {**at, **{c.limits[0].size: c.sample for c in (other, case)}}
        are_both_for = all(limit.holds(there) for c in (other, case) for limit in c.limits)
        if are_both_for and cycles(case.planned, there) < cycles(other.planned, there):
            return k
    return len(others)


def _is_alike(a: Lowered, b: Lowered) -> bool:
    """Tell whether two functions are called in the same way."""
    return (a.function.params, a.function.sizes, a.params, a.given) == (b.function.params, b.function.sizes, b.params, b.given)


def _joined(base: Lowered, cases: Sequence[_Case], named: Mapping[str, str]) -> Lowered:
    """Return loops that ask which case the sizes are in."""
    function, requirements = base.function, base.requirements
    for case in reversed(cases):
        other = case.planned.lowered
        asked = reduce(lambda a, b: Binary("and", a, b), (limit.asked(named) for limit in case.limits))
        body = tuple(_shifted(s, len(requirements)) for s in _renamed(other.function, function))
        requirements = (*requirements, *other.requirements)
        function = replace(function, body=(If(asked, body, function.body),))
    verify(function)
    return replace(base, function=function, requirements=requirements)


def _renamed(other: Function, function: Function) -> tuple[Stmt, ...]:
    """Return the body of `other` in which nothing is called as something in `function`."""
    fresh = fresh_for(function)
    return rename(other.body, {name: fresh(name) for name in dict.fromkeys(binders(*other.body))})


def _shifted(s: Stmt, codes: int) -> Stmt:
    """Return a statement whose checks have codes behind those of others."""
    if isinstance(s, Require):
        return replace(s, code=s.code + codes)
    return map_stmt(s, lambda index: index, lambda e: e, lambda inner: _shifted(inner, codes))
