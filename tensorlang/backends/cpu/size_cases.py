"""Cases of open sizes: loops of their own for sizes far from the samples, where these are predicted to be faster there.

    samples               M = 64, D = 32, N = 64       a register tile
    M <= 10, D >= 12      derived for M = 1            lanes along D, predicted to take 0.3 for M = 1, D = 2048
    else                  what is derived for the samples

Every case is right for all sizes; the first whose condition holds runs, and the last has none, so each combination of sizes is in just one.
What is derived for few and for many of each size is looked at, and for two sizes where each of them alone makes another schedule. What
their loops are predicted to take is compared at points of a grid: a case is for the box of sizes in which it gains most on what would run
there otherwise, and the one that gains most is made first, and asked last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from itertools import combinations, islice, product
from math import inf, isqrt, log
from typing import TypeAlias

from codegen.dtypes import i64
from codegen.loops.nodes import Binary, Compare, Const, Expr, Function, If, IndexValue, Require, Stmt, Var
from codegen.loops.verify import verify
from codegen.loops.walk import binders, fresh_for, map_stmt, rename, walk
from tensorlang.artifact import SizeCase
from tensorlang.backends.cpu.function_cycles import cycles_at_sizes
from tensorlang.diagnostics import CompileError
from tensorlang.lower.kernel import Lowered
from tensorlang.planning import Scheduled
from tensorlang.policy.deriver import Exactly
from tensorlang.policy.machine import Machine
from tensorlang.tensor.widths import LARGEST

Cycles: TypeAlias = "Callable[[Planned, Mapping[str, int]], float]"
"""Predicts what loops take at sizes."""
Share: TypeAlias = "Callable[[Mapping[str, int]], float]"
"""The same of loops, as a share of what others take."""
_Side: TypeAlias = "tuple[int, int]"
"""The first and the last place of a size in a grid."""
FEW, TIMES = (1, 3), 64
"""What a size is in other samples: so few, or so many times as much as in the samples at hand."""
MOST_SAMPLES = 9
"""Combinations of sizes that schedules are derived for."""
MOST_FOUND = 5
"""Schedules whose loops are looked at."""
MOST_CASES = 4
"""Cases of a kernel, the one for the samples among them."""
MOST_LOOKED_AT = 1_000
"""Nodes of all loops that are looked at but the last: those of larger kernels take too long to make several times."""
MOST_SIZES = 3
"""Open sizes of a kernel with more nodes than that for which others are looked at."""
MOST_NODES = 4_000
"""Of the loops that are added to those of a small kernel; to a larger one's are added as many as it has."""
GAIN = 0.7
"""What a case has to take somewhere of what would run there otherwise."""
MARGIN = 0.85
"""What it has to take for a gain to be counted: what is predicted is not what is measured."""
NEAR = 1.5
"""How many times as large one number is as another that is as good for a limit."""


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
    """Loops for a box of sizes. At `sizes` they gain most, and take `share` of what others do; `gain` is of the whole box."""

    limits: tuple[_Limit, ...]
    sizes: Mapping[str, int]
    share: float
    gain: float
    planned: Planned

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return all(limit.holds(sizes) for limit in self.limits)

    @property
    def told(self) -> SizeCase:
        limited = dict.fromkeys(limit.size for limit in self.limits)
        at = ", ".join(f"{name} = {self.sizes[name]}" for name in limited)
        why = f"for {at} it is predicted to take {self.share:.2f} of what others take"
        return SizeCase(", ".join(map(str, self.limits)), why, _text(self.planned))


@dataclass(frozen=True, slots=True)
class _Grid:
    """Numbers of each size that loops are compared at: one, that of the samples, many, and one between the first two."""

    steps: Mapping[str, tuple[int, ...]]
    points: tuple[tuple[int, ...], ...]
    """Of each size, the place of its number in `steps`: where at most two are not as in the samples, or each is the least or the most."""
    home: tuple[int, ...]
    """Where all are."""

    def sizes(self, point: Sequence[int]) -> dict[str, int]:
        return {name: steps[k] for (name, steps), k in zip(self.steps.items(), point, strict=True)}


def with_cases(
    base: Planned,
    at: Mapping[str, int],
    scheduled_at: Callable[[Mapping[str, int]], Scheduled],
    loops: Callable[[Scheduled], Lowered],
    machine: Machine,
) -> tuple[Lowered, tuple[SizeCase, ...], tuple[Scheduled, ...]]:
    """Return the loops of a kernel with those of its cases, the cases, none where one serves all sizes, and the schedules that were added.
    `at`: the samples that `base` was scheduled for; `scheduled_at` schedules for others, `loops` lowers what it returns."""
    program = base.scheduled.plan.program
    named = dict(zip(program.sizes, base.lowered.function.sizes, strict=True))
    own = {name: at[name] for name in program.sizes if name in at}
    is_too_large = len(own) > MOST_SIZES and _nodes(base) > MOST_LOOKED_AT
    found = [] if is_too_large else _found(base, own, lambda sizes: scheduled_at({**at, **sizes}), loops)
    if not found:
        return base.lowered, (), ()
    of_planned = {id(p): cycles_at_sizes(p.lowered.function, machine) for p in (base, *found)}

    @cache
    def predicted(planned: int, sizes: tuple[int, ...]) -> float:
        return of_planned[planned]({named[name]: size for name, size in zip(own, sizes, strict=True)})

    def cycles(planned: Planned, sizes: Mapping[str, int]) -> float:
        return predicted(id(planned), tuple(sizes[name] for name in own))

    cases = _chosen(base, found, _grid(own), cycles)
    if not cases:
        return base.lowered, (), ()
    samples = ", ".join(f"{name} = {size}" for name, size in own.items())
    told = (*(case.told for case in cases), SizeCase("all others", f"scheduled for {samples}", _text(base)))
    return _joined(base.lowered, cases, named), told, tuple(case.planned.scheduled for case in cases)


def _nodes(planned: Planned) -> int:
    return sum(1 for _ in walk(*planned.lowered.function.body))


def _room(base: Planned) -> int:
    """Return how many nodes the loops of other cases may have together."""
    return max(MOST_NODES, _nodes(base))


def _text(planned: Planned) -> str:
    return str(planned.scheduled.with_idle(planned.lowered.idle))


def _others(size: int) -> list[int]:
    """Return the other samples of a size: those of few are for so many alone, as what is scheduled for the samples at hand is for any."""
    return [*(Exactly(n) for n in FEW if n == 1 or n < size), *(n for n in (TIMES * max(1, size),) if n <= LARGEST)]


def _samples(at: Mapping[str, int], differs: Callable[[Mapping[str, int]], bool]) -> Iterator[Mapping[str, int]]:
    """Yield other samples: of one size, few of each before many, then of two for both of which loops differ from those at hand."""
    others = {name: _others(size) for name, size in at.items()}
    every: list[Mapping[str, int]] = [{name: n} for name, samples in others.items() for n in samples]
    alone = sorted(every, key=lambda sample: FEW.index(n) if isinstance(n := min(sample.values()), Exactly) else len(FEW))
    yield from alone
    yield from ({**a, **b} for a, b in combinations(filter(differs, alone), 2) if a.keys() != b.keys())


def _found(
    base: Planned, at: Mapping[str, int], scheduled_at: Callable[[Mapping[str, int]], Scheduled], loops: Callable[[Scheduled], Lowered]
) -> list[Planned]:
    """Return the schedules with their loops that are derived for other samples, and are called as those at hand."""
    seen = {base.scheduled.schedule.directives: base}
    changed: list[Mapping[str, int]] = []
    made, found = 0, list[Planned]()
    for sample in islice(_samples(at, changed.__contains__), MOST_SAMPLES):
        if len(found) == MOST_FOUND or made > MOST_LOOKED_AT:
            break
        try:
            scheduled = scheduled_at({**at, **sample})
            planned = seen.get(scheduled.schedule.directives) or Planned(scheduled, loops(scheduled))
        except CompileError:
            continue
        if planned is not base:
            changed.append(sample)
        if scheduled.schedule.directives not in seen:
            seen[scheduled.schedule.directives] = planned
            made += _nodes(planned)
            found += [planned] if _is_alike(base.lowered, planned.lowered) else []
    return found


def _grid(at: Mapping[str, int]) -> _Grid:
    """Return the points at which loops are compared."""
    steps = {name: tuple(sorted({1, isqrt(FEW[-1] * size), size, TIMES * size})) for name, size in at.items()}
    home = tuple(steps[name].index(size) for name, size in at.items())
    every, corners = ([ends(s) for s in steps.values()] for ends in (lambda s: range(len(s)), lambda s: {0, len(s) - 1}))
    near = (p for p in product(*every) if sum(a != b for a, b in zip(p, home, strict=True)) <= 2)
    return _Grid(steps, tuple(dict.fromkeys((*near, *product(*corners)))), home)


def _chosen(base: Planned, found: Sequence[Planned], grid: _Grid, cycles: Cycles) -> list[_Case]:
    """Return the cases that are predicted to gain most, one after the other."""
    cases: list[_Case] = []
    room = _room(base)

    def share(planned: Planned, sizes: Mapping[str, int]) -> float:
        """Return what loops take at sizes of what those take that would run there."""
        return cycles(planned, sizes) / cycles(next((case.planned for case in cases if case.holds(sizes)), base), sizes)

    while len(cases) < MOST_CASES - 1:
        rest = [p for p in found if all(case.planned is not p for case in cases) and _nodes(p) <= room]
        made = [case for case in (_case(p, grid, partial(share, p)) for p in rest) if case is not None]
        if not made:
            break
        cases.insert(0, max(made, key=lambda case: case.gain))
        room -= _nodes(cases[0].planned)
    return cases


def _case(planned: Planned, grid: _Grid, share: Share) -> _Case | None:
    """Return a case for the box of sizes around those at which loops gain most, in which they gain most together; None where they gain
    little at any. At the samples run the loops at hand."""
    shares = {point: share(grid.sizes(point)) for point in grid.points}
    best = min((point for point in shares if point != grid.home), key=shares.__getitem__)
    if shares[best] > GAIN:
        return None
    gains = {point: -inf if point == grid.home else 0.0 if MARGIN < found <= 1 else -log(found) for point, found in shares.items()}
    box: list[_Side] = [(k, k) for k in best]

    def gained(axis: int, side: _Side) -> tuple[float, int]:
        """Return what is gained in the box with another side, and how long that is."""
        sides = [*box[:axis], side, *box[axis + 1 :]]
        inside = (gain for p, gain in gains.items() if all(lo <= k <= hi for k, (lo, hi) in zip(p, sides, strict=True)))
        return sum(inside), side[1] - side[0]

    before: list[_Side] = []
    while box != before:
        before = [*box]
        for axis, steps in enumerate(grid.steps.values()):
            box[axis] = max(product(range(best[axis] + 1), range(best[axis], len(steps))), key=partial(gained, axis))
    limits = [limit for name, side in zip(grid.steps, box, strict=True) for limit in _limits(grid, name, side, grid.sizes(best), share)]
    return _Case(tuple(limits), grid.sizes(best), shares[best], gained(0, box[0])[0], planned)


def _limits(grid: _Grid, name: str, side: _Side, sizes: Mapping[str, int], share: Share) -> Iterator[_Limit]:
    """Yield the limits of a size that is in a box from one of its numbers to another: as far towards the next one outside as loops gain,
    where the other sizes are those at which they gain most."""
    steps = grid.steps[name]
    for below, inside, outside in ((False, side[0], side[0] - 1), (True, side[1], side[1] + 1)):
        if not 0 <= outside < len(steps):
            continue
        last, first = steps[inside], steps[outside]
        while max(last, first) > NEAR * min(last, first) and (middle := isqrt(last * first)) not in (last, first):
            last, first = (middle, first) if share({**sizes, name: middle}) <= GAIN else (last, middle)
        yield _Limit(name, below, last)


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
