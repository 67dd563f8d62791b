"""Cases of open sizes: loops of their own for sizes far from the samples, where these are predicted to be faster there.

    samples               M = 64, D = 32, N = 64       a register tile
    N == 1, D >= 128      derived for N = 1            lanes along D, predicted to take 0.27 for N = 1, D = 2048
    M <= 10, D >= 12      derived for M = 3            lanes along D, predicted to take 0.3 for M = 3, D = 2048
    else                  what is derived for the samples

Every case is right for all sizes that it asks for; the first whose condition holds runs, and the last has none, so each combination of
sizes is in just one. What their loops are predicted to take is compared at points of a grid.

Where a size is a small number, axes merge, rows are written out, and lanes are rows: what is derived, proven and lowered then is the
program with that number. One is looked at for each size, a few for lengths of rows, where the loops at hand take long for what there is
to do.

What is derived for few and for many of each size is looked at, too, and for two sizes where each of them alone makes another schedule: a
case is for the box of sizes in which it gains most on what would run there otherwise, and the one that gains most is made first, and asked
last.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from itertools import combinations, islice, product
from math import inf, isqrt, log
from operator import eq, ge, le
from typing import Literal, TypeAlias

from codegen.dtypes import i64
from codegen.errors import Unfit
from codegen.loops.nodes import Binary, Compare, Const, Expr, For, Function, If, IndexValue, Require, Stmt, Var
from codegen.loops.opened import opened
from codegen.loops.verify import verify
from codegen.loops.walk import binders, free_vars, fresh_for, map_stmt, rename, statements, walk
from tensorlang.artifact import SizeCase
from tensorlang.backends.cpu.function_cycles import cycles_at_sizes
from tensorlang.diagnostics import CompileError
from tensorlang.lower.kernel import Lowered
from tensorlang.planning import Scheduled
from tensorlang.policy.cpu.cost import START_CYCLES
from tensorlang.policy.deriver import Exactly
from tensorlang.policy.machine import Machine
from tensorlang.tensor.widths import LARGEST

Cycles: TypeAlias = "Callable[[Planned, Mapping[str, int]], float]"
"""Predicts what loops take at sizes."""
Share: TypeAlias = "Callable[[Planned, Mapping[str, int]], float]"
"""The same, as a share of what the loops take that would run there otherwise."""
ScheduledAt: TypeAlias = "Callable[[Mapping[str, int], Mapping[str, int]], Scheduled]"
"""Schedules for samples, and with sizes that are numbers. Raises CompileError where there is no schedule."""
_Side: TypeAlias = "tuple[int, int]"
"""The first and the last place of a size in a grid."""
FEW, TIMES = (1, 3), 64
"""What a size is in other samples: so few, or so many times as much as in the samples at hand."""
KNOWN = (1, 2, 3, 4)
"""Numbers that a size may be in loops of its own."""
FEW_MORE = 6
"""What a size that has such loops is in a sample of few: more than in any of these."""
DEAR = 1.5
"""How many times as long loops have to take for a unit of a size that is such a number as where they are fastest."""
MOST_SAMPLES = 9
"""Combinations of sizes that schedules are derived for."""
MOST_FOUND = 5
"""Schedules whose loops are looked at."""
MOST_CASES = 4
"""Cases of a kernel for ranges of sizes, the one for the samples among them."""
MOST_LOOKED_AT = 1_000
"""Nodes of all loops that are looked at but the last: those of larger kernels take too long to make several times."""
MOST_SIZES = 3
"""Open sizes of a kernel with more nodes than that for which others are looked at."""
MOST_NODES = 4_000
"""Of the loops that are added to those of a small kernel; to a larger one's are added as many as it has."""
MOST_LEFT = 4
"""Of so many nodes of loops as they are scanned one is left at least: more than four times as many as there is room for will not fit."""
GAIN = 0.7
"""What a case has to take somewhere of what would run there otherwise."""
MARGIN = 0.85
"""What it has to take for a gain to be counted: what is predicted is not what is measured."""
NEAR = 1.5
"""How many times as large one number is as another that is as good for a limit."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule and the loops of it, still to be proven to stay inside their buffers. `known`: the sizes that are numbers there."""

    scheduled: Scheduled
    lowered: Lowered
    known: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Limit:
    """That a size is no larger or no smaller than some number, or is that number."""

    size: str
    relation: Literal["<=", ">=", "=="]
    number: int

    def __str__(self) -> str:
        return f"{self.size} {self.relation} {self.number}"

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return bool(_HOLDS[self.relation](sizes[self.size], self.number))

    def asked(self, named: Mapping[str, str]) -> Expr:
        """Return it as a condition, `named` what sizes are called in loops."""
        return Compare(self.relation, IndexValue(Var(named[self.size])), Const(self.number, i64))


_HOLDS = {"<=": le, ">=": ge, "==": eq}


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
    """Where all are that are not the same at all points."""

    def sizes(self, point: Sequence[int]) -> dict[str, int]:
        return {name: steps[k] for (name, steps), k in zip(self.steps.items(), point, strict=True)}


@dataclass(frozen=True, slots=True)
class _Kernel:
    """What cases are looked for. `at`: the samples of its own sizes that `base` is scheduled for; `scheduled_at` schedules for others, and
    with sizes that are numbers, `loops` lowers that. Both raise CompileError where there is no such schedule, `loops` Unfit for loops that
    are too long."""

    base: Planned
    at: Mapping[str, int]
    scheduled_at: ScheduledAt
    loops: Callable[[Scheduled], Lowered]
    cycles: Cycles

    @property
    def named(self) -> Mapping[str, str]:
        """What sizes are called in loops."""
        return dict(zip(self.base.scheduled.plan.program.sizes, self.base.lowered.function.sizes, strict=True))

    def opened(self, planned: Planned) -> tuple[Stmt, ...] | None:
        """Return loops in which sizes are known over the parameters of those at hand; None where these are others."""
        base, known = self.base.lowered, {self.named[name]: n for name, n in planned.known.items()}
        return opened(planned.lowered.function, base.function, known) if base.params == planned.lowered.params else None


def with_cases(
    base: Planned, at: Mapping[str, int], scheduled_at: ScheduledAt, loops: Callable[[Scheduled], Lowered], machine: Machine
) -> tuple[Lowered, tuple[SizeCase, ...], tuple[Planned, ...]]:
    """Return the loops of a kernel with those of its cases, the cases, none where one serves all sizes, and what was planned for each.
    `at`: the samples that `base` was scheduled for; `scheduled_at` schedules for others, and with sizes that are numbers, `loops` lowers
    what it returns."""
    program = base.scheduled.plan.program
    own = {name: at[name] for name in program.sizes if name in at}
    kernel = _Kernel(base, own, lambda sample, known: scheduled_at({**at, **sample}, known), loops, _predicted(base, own, machine))
    found = _with_known_sizes(kernel)
    if len(own) <= MOST_SIZES or _nodes(base) <= MOST_LOOKED_AT:
        found += _for_ranges(kernel, _largest(found))
    cases = _chosen(kernel, found)
    if not cases:
        return base.lowered, (), ()
    samples = ", ".join(f"{name} = {size}" for name, size in own.items())
    told = (*(case.told for case in cases), SizeCase("all others", f"scheduled for {samples}", _text(base)))
    return _joined(kernel, cases), told, tuple(case.planned for case in cases)


def _predicted(base: Planned, at: Mapping[str, int], machine: Machine) -> Cycles:
    """Return a prediction that is worked out once for each loops and sizes."""
    named = dict(zip(base.scheduled.plan.program.sizes, base.lowered.function.sizes, strict=True))
    of_loops: dict[int, Callable[[Mapping[str, int]], float]] = {}

    @cache
    def predicted(planned: int, sizes: tuple[int, ...]) -> float:
        return of_loops[planned]({named[name]: size for name, size in zip(at, sizes, strict=True)})

    def cycles(planned: Planned, sizes: Mapping[str, int]) -> float:
        if id(planned) not in of_loops:
            of_loops[id(planned)] = cycles_at_sizes(planned.lowered.function, machine)
        return predicted(id(planned), tuple(sizes[name] for name in at))

    return cycles


def _nodes(planned: Planned) -> int:
    return _nodes_of(planned.lowered)


def _nodes_of(lowered: Lowered) -> int:
    return sum(1 for _ in walk(*lowered.function.body))


def _room(base: Lowered) -> int:
    """Return how many nodes the loops of other cases may have together."""
    return max(MOST_NODES, _nodes_of(base))


def most_scanned(base: Lowered) -> int:
    """Return how many nodes loops may have as they are scanned that are to be a case beside those at hand."""
    return MOST_LEFT * _room(base)


def _text(planned: Planned) -> str:
    return str(planned.scheduled.with_idle(planned.lowered.idle))


def _others(size: int, known: int) -> list[int]:
    """Return the other samples of a size: those of few, more than the `known` that there are loops for, are for so many alone, as what is
    scheduled for the samples at hand is for any."""
    few = (Exactly(n) for n in (FEW if known <= 1 else (FEW_MORE,)) if n > known and (n == 1 or n < size))
    return [*few, *(n for n in (TIMES * max(1, size),) if n <= LARGEST)]


def _samples(
    at: Mapping[str, int], known: Mapping[str, int], base: Planned, planned_for: Callable[[Mapping[str, int]], Planned]
) -> Iterator[Mapping[str, int]]:
    """Yield other samples: of one size, few of each before many, those first that there are loops for several numbers of, which gain most;
    then of two whose loops differ from those at hand and from each other, any two loops once. `planned_for` returns what came of a
    sample."""
    others = {name: _others(size, known.get(name, 0)) for name, size in at.items()}
    every = [(name, n) for name, samples in others.items() for n in samples]
    few_first = sorted(
        every, key=lambda sample: (known.get(sample[0], 0) <= 1, sample[1]) if isinstance(sample[1], Exactly) else (True, inf)
    )
    alone: list[Mapping[str, int]] = [{name: n} for name, n in few_first]
    yield from alone
    seen: set[frozenset[int]] = set()
    for a, b in combinations(alone, 2):
        both = frozenset((id(planned_for(a)), id(planned_for(b))))
        if a.keys() != b.keys() and len(both) == 2 and id(base) not in both and both not in seen:
            seen.add(both)
            yield {**a, **b}


def _largest(found: Iterable[Planned]) -> dict[str, int]:
    """Return the largest number of each size that is known in some loops."""
    return dict(sorted((pair for planned in found for pair in planned.known.items()), key=lambda pair: pair[1]))


def _for_ranges(kernel: _Kernel, known: Mapping[str, int]) -> list[Planned]:
    """Return the schedules with their loops that are derived for other samples, and are called as those at hand. `known`: the largest
    number of each size that there are loops for."""
    seen = {kernel.base.scheduled.schedule.directives: kernel.base}
    came: list[tuple[Mapping[str, int], Planned]] = []
    made, found = 0, list[Planned]()

    def planned_for(sample: Mapping[str, int]) -> Planned:
        return next((planned for of, planned in came if of == sample), kernel.base)

    for sample in islice(_samples(kernel.at, known, kernel.base, planned_for), MOST_SAMPLES):
        if len(found) == MOST_FOUND or made > MOST_LOOKED_AT:
            break
        try:
            scheduled = kernel.scheduled_at(sample, {})
            planned = seen.get(scheduled.schedule.directives) or Planned(scheduled, kernel.loops(scheduled))
        except CompileError:
            continue
        except Unfit:
            break
        came.append((sample, planned))
        if scheduled.schedule.directives not in seen:
            seen[scheduled.schedule.directives] = planned
            made += _nodes(planned)
            found += [planned] if _is_alike(kernel.base.lowered, planned.lowered) else []
    return found


def _with_known_sizes(kernel: _Kernel) -> list[Planned]:
    """Return schedules with their loops in which one size is a small number, where the loops at hand are predicted to take long for what
    there is to do: of each size for one, of lengths of rows for a few, unless the kernel is large."""
    function = kernel.base.lowered.function
    rows = {p.shape[-1] for p in function.params if p.shape}
    bounds = free_vars(*(bound for s in statements(*function.body) if isinstance(s, For) for bound in (s.lo, s.hi)))
    is_row = {name: Var(kernel.named[name]) in rows for name in kernel.at if kernel.named[name] in bounds}
    is_large = _nodes(kernel.base) > MOST_NODES
    numbers = [(n, name) for name in is_row for n in KNOWN if (not is_large if is_row[name] else n == 1)]
    dear = {(n, name): dearness for n, name in numbers if (dearness := _dearness(kernel, name, n)) >= DEAR}
    made, found, most = 0, list[Planned](), max(MOST_LOOKED_AT, _nodes(kernel.base) // 4)
    for n, name in sorted(dear, key=lambda pair: (pair[0], -dear[pair])):
        if made > most:
            break
        try:
            scheduled = kernel.scheduled_at({name: n}, {name: n})
            planned = Planned(scheduled, kernel.loops(scheduled), {name: n})
        except CompileError:
            continue
        except Unfit:
            break
        made += _nodes(planned)
        found += [planned] if _nodes(planned) <= most and kernel.opened(planned) is not None else []
    return found


def _dearness(kernel: _Kernel, name: str, n: int) -> float:
    """Return how many times as long the loops at hand take for each unit of a size where there are `n` than where they are fastest, and
    there are many of all others; 0 where they take hardly longer than to start."""

    def taken(size: int) -> float:
        many = {other: min(LARGEST, TIMES * usual) for other, usual in kernel.at.items()}
        return kernel.cycles(kernel.base, {**many, name: size}) - START_CYCLES

    if taken(n) < START_CYCLES:
        return 0.0
    fastest = min(taken(size) / size for size in (n, *_steps(kernel.at[name])) if size > 0 and taken(size) > 0)
    return taken(n) / n / fastest


def _steps(size: int, least: int = 1) -> tuple[int, ...]:
    return tuple(sorted({least, isqrt(FEW[-1] * size), size, TIMES * size}))


def _grid(at: Mapping[str, int], known: Mapping[str, int], apart: Container[str] = ()) -> _Grid:
    """Return the points at which loops are compared that are for sizes of which some are known. `apart`: those that run in other
    loops where they are small numbers."""
    steps = {name: _steps(size, FEW_MORE if name in apart else 1) for name, size in at.items()}
    steps |= {name: (n,) for name, n in known.items()}
    home = tuple(steps[name].index(known.get(name, size)) for name, size in at.items())
    every, corners = ([ends(s) for s in steps.values()] for ends in (lambda s: range(len(s)), lambda s: {0, len(s) - 1}))
    near = (p for p in product(*every) if sum(a != b for a, b in zip(p, home, strict=True)) <= 2)
    return _Grid(steps, tuple(dict.fromkeys((*near, *product(*corners)))), home)


def _chosen(kernel: _Kernel, found: Sequence[Planned]) -> list[_Case]:
    """Return the cases that are predicted to gain most: those in which a size is known first, then others, each on what would run there."""
    room, cycles = _room(kernel.base.lowered), kernel.cycles
    known: list[_Case] = []
    for planned in (p for p in found if p.known):
        case = _case(planned, _grid(kernel.at, planned.known), lambda p, sizes: cycles(p, sizes) / cycles(kernel.base, sizes))
        if case is not None and _nodes(planned) <= room:
            known.append(case)
            room -= _nodes(planned)
    grid, ranges = _grid(kernel.at, {}, {name for name, n in _largest(case.planned for case in known).items() if n > 1}), list[_Case]()

    def share(planned: Planned, sizes: Mapping[str, int]) -> float:
        """Return what loops take at sizes of what those take that would run there."""
        if any(case.holds(sizes) for case in known):
            return 1.0
        return cycles(planned, sizes) / cycles(next((case.planned for case in ranges if case.holds(sizes)), kernel.base), sizes)

    while len(ranges) < MOST_CASES - 1:
        left = [p for p in found if not p.known and all(case.planned is not p for case in ranges) and _nodes(p) <= room]
        made = [case for case in (_case(p, grid, share) for p in left) if case is not None]
        if not made:
            break
        ranges.insert(0, max(made, key=lambda case: case.gain))
        room -= _nodes(ranges[0].planned)
    return [*known, *ranges]


def _case(planned: Planned, grid: _Grid, share_of: Share) -> _Case | None:
    """Return a case for the box of sizes around those at which loops gain most, in which they gain most together; None where they gain
    little at any. At the samples run the loops at hand; loops in which a size is known are for those of the others, or for more."""
    share = partial(share_of, planned)
    shares = {point: share(grid.sizes(point)) for point in grid.points}
    around = (p for p in shares if (all(map(ge, p, grid.home)) if planned.known else p != grid.home))
    best = min(around, key=shares.__getitem__)
    if shares[best] > GAIN:
        return None
    gains = {point: 0.0 if MARGIN < found <= 1 else -log(found) for point, found in shares.items()}
    if not planned.known:
        gains[grid.home] = -inf
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
    known = [_Limit(name, "==", n) for name, n in planned.known.items()]
    limits = [limit for name, side in zip(grid.steps, box, strict=True) for limit in _limits(grid, name, side, grid.sizes(best), share)]
    return _Case((*known, *limits), grid.sizes(best), shares[best], gained(0, box[0])[0], planned)


def _limits(grid: _Grid, name: str, side: _Side, sizes: Mapping[str, int], share: Callable[[Mapping[str, int]], float]) -> Iterator[_Limit]:
    """Yield the limits of a size that is in a box from one of its numbers to another: as far towards the next one outside as loops gain,
    where the other sizes are those at which they gain most."""
    steps = grid.steps[name]
    for below, inside, outside in ((False, side[0], side[0] - 1), (True, side[1], side[1] + 1)):
        if not 0 <= outside < len(steps):
            continue
        last, first = steps[inside], steps[outside]
        while max(last, first) > NEAR * min(last, first) and (middle := isqrt(last * first)) not in (last, first):
            last, first = (middle, first) if share({**sizes, name: middle}) <= GAIN else (last, middle)
        yield _Limit(name, "<=" if below else ">=", last)


def _is_alike(a: Lowered, b: Lowered) -> bool:
    """Tell whether two functions are called in the same way."""
    return (a.function.params, a.function.sizes, a.params, a.given) == (b.function.params, b.function.sizes, b.params, b.given)


def _joined(kernel: _Kernel, cases: Sequence[_Case]) -> Lowered:
    """Return loops that ask which case the sizes are in."""
    base, named = kernel.base.lowered, kernel.named
    function, requirements = base.function, base.requirements
    for case in reversed(cases):
        other = case.planned.lowered
        asked = reduce(lambda a, b: Binary("and", a, b), (limit.asked(named) for limit in case.limits))
        block = kernel.opened(case.planned)
        assert block is not None, "cases are called as the loops at hand"
        body = tuple(_shifted(s, len(requirements)) for s in _renamed(block, function))
        requirements = (*requirements, *other.requirements)
        function = replace(function, body=(If(asked, body, function.body),))
    verify(function)
    return replace(base, function=function, requirements=requirements)


def _renamed(block: tuple[Stmt, ...], function: Function) -> tuple[Stmt, ...]:
    """Return a block in which nothing is called as something in `function`."""
    fresh = fresh_for(function)
    return rename(block, {name: fresh(name) for name in dict.fromkeys(binders(*block))})


def _shifted(s: Stmt, codes: int) -> Stmt:
    """Return a statement whose checks have codes behind those of others."""
    if isinstance(s, Require):
        return replace(s, code=s.code + codes)
    return map_stmt(s, lambda index: index, lambda e: e, lambda inner: _shifted(inner, codes))
