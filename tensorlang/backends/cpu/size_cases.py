"""Cases of open sizes: loops of their own for sizes far from the samples, where these are predicted to be faster there.

    samples               M = 64, D = 32, N = 64       a register tile
    N == 1, D >= 128      derived for N = 1            lanes along D, predicted to take 0.27 for N = 1, D = 2048
    M <= 10, D >= 12      derived for M = 3            lanes along D, predicted to take 0.3 for M = 3, D = 2048
    else                  what is derived for the samples

Every case is right for all sizes that it asks for; the first whose condition holds runs, and the last has none, so each combination of
sizes is in just one. What their loops are predicted to take is compared at points of a grid.

The samples are the sizes of the call that a kernel is made for. Where that has hardly anything to do, they are usual sizes instead: what
suits so few tells nothing of calls that take long.

Where a size is a small number, axes merge, rows are written out, and lanes are rows: what is derived, proven and lowered then is the
program with that number. One is looked at for each size, a few for lengths of rows, where the loops at hand take long for what there is
to do.

Forms of a kernel, other programs that compute the same, have a case where they are faster than its own: by a limit of the product of the
sizes that matter for that.

What is derived for few and for many of each size, and for few of two, is looked at, too: next always where all loops so far are predicted
to take longest for what there is to do. A case is for the box of sizes in which it gains most on what would run there otherwise, and the
one that gains most is made first, and asked last.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from itertools import chain, combinations, product
from math import ceil, inf, isqrt, log, prod
from operator import eq, ge, le, ne
from types import MappingProxyType
from typing import Literal, TypeAlias

from codegen.dtypes import i64
from codegen.errors import Unfit
from codegen.loops.nodes import Binary, Buffer, Compare, Const, Expr, For, Function, If, Index, IndexValue, Mul, Require, Stmt, Var
from codegen.loops.opened import opened
from codegen.loops.verify import verify
from codegen.loops.walk import binders, free_vars, fresh_for, map_stmt, rename, statements, walk
from tensorlang.artifact import SizeCase
from tensorlang.backends.cpu.function_cycles import cycles_at_sizes, memory_cycles, touched
from tensorlang.diagnostics import CompileError
from tensorlang.graph.nodes import Form
from tensorlang.lower.kernel import Lowered
from tensorlang.planning import Scheduled
from tensorlang.policy.cpu.cost import START_CYCLES
from tensorlang.policy.deriver import Exactly
from tensorlang.policy.machine import Machine
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.operation_count import operations
from tensorlang.tensor.widths import LARGEST

Cycles: TypeAlias = "Callable[[Planned, Mapping[str, int]], float]"
"""Predicts what loops take at sizes."""
Share: TypeAlias = "Callable[[Planned, Mapping[str, int]], float]"
"""The same, as a share of what the loops take that would run there otherwise."""
ScheduledAt: TypeAlias = "Callable[[Mapping[str, int], Mapping[str, int]], Scheduled]"
"""Schedules for samples, and with sizes that are numbers. Raises CompileError where there is no schedule."""
Forms: TypeAlias = "Mapping[Form, Callable[[], Planned]]"
"""Forms of a kernel, and what schedules and lowers them. Raises CompileError where there is no schedule."""
NO_FORMS: Forms = MappingProxyType({})
_Side: TypeAlias = "tuple[int, int]"
"""The first and the last place of a size in a grid."""
FEW, TIMES = (1, 3), 64
"""What a size is in other samples: so few, or so many times as much as in the samples at hand."""
FEWEST, USUAL = 64, 256
"""Where one size is few or many, the others are what they are in the samples at hand, if no less than the first, and else the second."""
KNOWN = (1, 2, 3, 4)
"""Numbers that a size may be in loops of its own."""
FEW_MORE = 6
"""What a size that has such loops is in a sample of few: more than in any of these."""
DEAR = 1.5
"""How many times as long loops have to take for what there is to do as where they are fastest, for others to be looked at."""
UNNOTICED = 5_000.0
"""Cycles that a call may take longer without being dear: about a microsecond."""
MOST_SAMPLES = 9
"""Combinations of sizes that schedules are derived for."""
MOST_FOUND = 5
"""Schedules whose loops are looked at."""
MOST_CASES = 4
"""Cases of a kernel for ranges of sizes, the one for the samples among them."""
MOST_LOOKED_AT = 1_000
"""Nodes of the loops in which sizes are known that are looked at, but for the last: larger ones take too long to make several times."""
MOST_FOR_RANGES = 2_500
"""The same of loops for other samples."""
MOST_SIZES = 3
"""Open sizes of a kernel with more nodes than that for which others are looked at."""
MOST_NODES = 4_000
"""Of the loops that are added to those of a small kernel, beside those of forms; to a larger one's are added as many as it has."""
MOST_LEFT = 4
"""Of so many nodes of loops as they are scanned one is left at least: more than four times as many as there is room for will not fit."""
GAIN = 0.7
"""What a case has to take somewhere of what would run there otherwise."""
MARGIN = 0.85
"""What it has to take for a gain to be counted: what is predicted is not what is measured."""
APART = 5
"""How many times as large a number of a size is at most, from a few to the samples, as the one before at which loops are compared."""
DREADED = 3
"""How many times as much a loss counts as a gain."""
NEAR = 1.5
"""How many times as large one number is as another that is as good for a limit."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule and the loops of it, still to be proven to stay inside their buffers. `known`: the sizes that are numbers there; `form`:
    what they are of, where that is another program than that of the kernel."""

    scheduled: Scheduled
    lowered: Lowered
    known: Mapping[str, int] = field(default_factory=dict)
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class _Limit:
    """That a size, or a product of sizes, is no larger or no smaller than some number, or is that number."""

    sizes: tuple[str, ...]
    relation: Literal["<=", ">=", "=="]
    number: int

    def __str__(self) -> str:
        return f"{'*'.join(self.sizes)} {self.relation} {self.number}"

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return bool(_HOLDS[self.relation](prod(sizes[name] for name in self.sizes), self.number))

    def asked(self, named: Mapping[str, str]) -> Expr:
        """Return it as a condition, `named` what sizes are called in loops."""
        factors: Iterable[Index] = (Var(named[name]) for name in self.sizes)
        return Compare(self.relation, IndexValue(reduce(Mul, factors)), Const(self.number, i64))


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
        limited = dict.fromkeys(name for limit in self.limits for name in limit.sizes)
        at = ", ".join(f"{name} = {self.sizes[name]}" for name in limited)
        why = f"for {at} it is predicted to take {self.share:.2f} of what others take"
        return SizeCase(", ".join(map(str, self.limits)), why, _text(self.planned))


@dataclass(frozen=True, slots=True)
class _Grid:
    """Numbers of each size that loops are compared at: one, a few, that of the samples, many, and numbers between these."""

    steps: Mapping[str, tuple[int, ...]]
    points: tuple[tuple[int, ...], ...]
    """Of each size, the place of its number in `steps`: where few are not as in the samples, or each is the least or one of the most."""
    home: tuple[int, ...]
    """Where all are that are not the same at all points."""

    def sizes(self, point: Sequence[int]) -> dict[str, int]:
        return {name: steps[k] for (name, steps), k in zip(self.steps.items(), point, strict=True)}


@dataclass(frozen=True, slots=True)
class _Kernel:
    """What cases are looked for. `at`: the samples of its own sizes that `base` is scheduled for, `met`: what these were at the call it is
    made for; `scheduled_at` schedules for others, and with sizes that are numbers, `loops` lowers that. Both raise CompileError where there
    is no such schedule, `loops` Unfit for loops that are too long. `forms`: the loops of other programs that compute the same."""

    base: Planned
    at: Mapping[str, int]
    met: Mapping[str, int]
    scheduled_at: ScheduledAt
    loops: Callable[[Scheduled], Lowered]
    cycles: Cycles
    machine: Machine
    moved: Sequence[Buffer]
    """What `base` reads and writes of its parameters."""
    forms: Sequence[Planned] = ()

    def fastest(self, sizes: Mapping[str, int]) -> float:
        """Return what the fastest of the loops at hand and of those of forms takes."""
        return min(self.cycles(planned, sizes) for planned in (self.base, *self.forms))

    def takes_long(self, sizes: Mapping[str, int]) -> bool:
        """Tell whether a call is noticed."""
        return self.fastest(sizes) >= UNNOTICED

    @property
    def named(self) -> Mapping[str, str]:
        """What sizes are called in loops."""
        return dict(zip(self.base.scheduled.plan.program.sizes, self.base.lowered.function.sizes, strict=True))

    def memory_cycles(self, sizes: Mapping[str, int]) -> float:
        """Return the cycles in which all that the loops take and return arrives."""
        return memory_cycles(self.moved, {self.named[name]: n for name, n in sizes.items()}, self.machine)

    def opened(self, planned: Planned) -> tuple[Stmt, ...] | None:
        """Return loops in which sizes are known, or of a form, over the parameters of those at hand; None where these are others."""
        base, other, known = self.base.lowered, planned.lowered, {self.named[name]: n for name, n in planned.known.items()}
        return opened(other.function, base.function, known) if _buffers(other).items() <= _buffers(base).items() else None


def _buffers(lowered: Lowered) -> dict[str, str]:
    """Return what parameters are called in loops."""
    return {name: p.name for name, p in zip(lowered.params, lowered.function.params, strict=True)}


def telling(program: Program, met: Mapping[str, int]) -> Mapping[str, int]:
    """Return samples that tell what suits a program: the sizes that were `met`, but usual ones where there is so little to do that nothing
    takes long, at an operation a cycle."""
    own = _own(program, met)
    return {**met, **_usual(own)} if operations(program, own) < UNNOTICED else met


def _own(program: Program, at: Mapping[str, int]) -> dict[str, int]:
    return {name: at[name] for name in program.sizes if name in at}


def with_cases(
    base: Planned,
    at: Mapping[str, int],
    met: Mapping[str, int],
    scheduled_at: ScheduledAt,
    loops: Callable[[Scheduled], Lowered],
    machine: Machine,
    forms: Forms = NO_FORMS,
) -> tuple[Lowered, tuple[SizeCase, ...], tuple[Planned, ...]]:
    """Return the loops of a kernel with those of its cases, the cases, none where one serves all sizes, and what was planned for each.
    `at`: the samples that `base` was scheduled for, which `telling` made of those that were `met`; `scheduled_at` schedules for others, and
    with sizes that are numbers, `loops` lowers what it returns."""
    program = base.scheduled.plan.program
    own, predicted = _own(program, at), _predicted(base, _own(program, at), machine)
    moved = touched(base.lowered.function)
    kernel = _Kernel(base, own, _own(program, met), lambda a, known: scheduled_at({**at, **a}, known), loops, predicted, machine, moved)
    kernel = replace(kernel, forms=[*_of_forms(kernel, forms)])
    found = [*kernel.forms, *_with_known_sizes(kernel)]
    if len(own) <= MOST_SIZES or _nodes(base) <= MOST_LOOKED_AT:
        found += _for_ranges(kernel, found)
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


def _few(size: int, known: int) -> list[int]:
    """Return the samples of few of a size: more than the `known` that there are loops for, and for so many alone, as what is scheduled for
    the samples at hand is for any; and as many as there are at hand, if these are few."""
    few = [Exactly(n) for n in (FEW if known <= 1 else (FEW_MORE,)) if n > known and (n == 1 or n < size)]
    return [*few, *([size] if known < size < FEWEST else [])]


def _many(size: int) -> int:
    """Return what a size is where there are many of it."""
    return min(LARGEST, TIMES * max(1, size))


def _usual(at: Mapping[str, int]) -> dict[str, int]:
    """Return what sizes are beside one of which there are few or many: in samples that are all small nothing takes long."""
    return {name: USUAL if size < FEWEST else size for name, size in at.items()}


def _samples(kernel: _Kernel, known: Mapping[str, int]) -> Iterator[tuple[int, Mapping[str, int]]]:
    """Yield other samples, with the number of sizes of which there are few or many: usual ones, those that were met, few or many of one,
    few of two."""
    at = kernel.at
    usual = _usual(at)
    few = [{name: n} for name, size in at.items() for n in _few(size, known.get(name, 0))]
    many = [{name: _many(size)} for name, size in at.items()]
    yield from [(0, usual)] if usual != at else []
    yield from [(1, kernel.met)] if kernel.met != at else []
    yield from ((1, {**usual, **one}) for one in (*few, *many))
    yield from ((2, {**usual, **a, **b}) for a, b in combinations(few, 2) if a.keys() != b.keys())


def _largest(found: Iterable[Planned]) -> dict[str, int]:
    """Return the largest number of each size that is known in some loops."""
    return dict(sorted((pair for planned in found for pair in planned.known.items()), key=lambda pair: pair[1]))


def _of_forms(kernel: _Kernel, forms: Forms) -> Iterator[Planned]:
    """Yield the loops of other programs that are called as those at hand."""
    for form, planned in forms.items():
        with suppress(CompileError):
            made = replace(planned(), form=form)
            if kernel.opened(made) is not None:
                yield made


def _for_ranges(kernel: _Kernel, numbers: Sequence[Planned]) -> list[Planned]:
    """Return the schedules with their loops that are derived for other samples, and are called as those at hand: for the usual ones, then
    one after the other for those at which all loops so far, `numbers` among them, take longest for what there is to do, those where one
    size is few or many before those where two are. Large kernels are not scheduled for usual ones where they are fast there. Where extents
    are quotients of sizes there may be nothing to do at some."""
    seen, is_large = {kernel.base.scheduled.schedule.directives}, _nodes(kernel.base) > MOST_NODES
    made, found, most = 0, list[Planned](), max(MOST_FOR_RANGES, _nodes(kernel.base) // 2)
    program, tried = kernel.base.scheduled.plan.program, set[int]()
    samples = [s for s in _samples(kernel, _largest(numbers)) if operations(program, s[1])]
    for _ in range(MOST_SAMPLES):
        dear = _dearnesses(kernel, [kernel.base, *numbers, *found], [sample for _, sample in samples])
        every = enumerate(zip(samples, dear, strict=True))
        asked = [(k, few, dearness) for k, ((few, _), dearness) in every if k not in tried]
        left = [(-few, dearness, -k) for k, few, dearness in asked if dearness >= DEAR or (few == 0 and not is_large)]
        if not left or len(found) == MOST_FOUND or made > most:
            break
        k = -max(left)[2]
        tried.add(k)
        try:
            scheduled = kernel.scheduled_at(samples[k][1], {})
            if scheduled.schedule.directives in seen:
                continue
            seen.add(scheduled.schedule.directives)
            planned = Planned(scheduled, kernel.loops(scheduled))
        except (CompileError, Unfit):
            continue
        made += _nodes(planned)
        found += [planned] if _is_alike(kernel.base.lowered, planned.lowered) else []
    return found


def _dearnesses(kernel: _Kernel, found: Sequence[Planned], samples: Sequence[Mapping[str, int]]) -> list[float]:
    """Return how many times as long the fastest of the loops take at each sample as where they are fastest for each operation, or until all
    that they read has arrived, beside what is hardly noticed."""
    program = kernel.base.scheduled.plan.program
    taken, work = list[float](), list[float]()
    for sizes in samples:
        fitting = (p for p in found if all(sizes[name] == n for name, n in p.known.items()))
        taken.append(min(kernel.cycles(planned, sizes) for planned in fitting) - START_CYCLES)
        work.append(operations(program, sizes))
    fastest = min((t / w for t, w in zip(taken, work, strict=True) if t > START_CYCLES), default=inf)
    return [
        (t + UNNOTICED) / (max(w * fastest, kernel.memory_cycles(sizes)) + UNNOTICED)
        for t, w, sizes in zip(taken, work, samples, strict=True)
    ]


def _with_known_sizes(kernel: _Kernel) -> list[Planned]:
    """Return schedules with their loops in which one size is a small number, where the loops at hand are predicted to take long for what
    there is to do: of each size for one, of lengths of rows for a few, unless the kernel is large."""
    function = kernel.base.lowered.function
    rows = {p.shape[-1] for p in function.params if p.shape}
    bounds = free_vars(*(bound for s in statements(*function.body) if isinstance(s, For) for bound in (s.lo, s.hi)))
    is_row = {name: Var(kernel.named[name]) in rows for name in kernel.at if kernel.named[name] in bounds}
    is_large = _nodes(kernel.base) > MOST_NODES
    if is_large and kernel.forms:  # which are for few
        return []
    numbers = [(n, name) for name in is_row for n in KNOWN if (not is_large if is_row[name] else n == 1)]
    usual = _usual(kernel.at)
    dear = {(n, name): dearness for n, name in numbers if (dearness := _dearness(kernel, name, n)) >= DEAR}
    made, found, most = 0, list[Planned](), max(MOST_LOOKED_AT, _nodes(kernel.base) // 4)
    for n, name in sorted(dear, key=lambda pair: (pair[0], -dear[pair])):
        if made > most:
            break
        try:
            scheduled = kernel.scheduled_at({**usual, name: n}, {name: n})
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
        many = {other: _many(usual) for other, usual in kernel.at.items()}
        return kernel.fastest({**many, name: size}) - START_CYCLES

    if taken(n) < START_CYCLES:
        return 0.0
    fastest = min(taken(size) / size for size in (n, *_steps(kernel.at[name])) if size > 0 and taken(size) > 0)
    return taken(n) / n / fastest


def _steps(size: int, least: int = 1) -> tuple[int, ...]:
    few = max(least, FEW[-1])
    count = max(0, ceil(log(size / few, APART))) if size else 0
    between = (round(few * (size / few) ** (k / count)) for k in range(count))
    return tuple(sorted({least, *between, size, isqrt(TIMES) * size, TIMES * size}))


def _grid(at: Mapping[str, int], known: Mapping[str, int], apart: Container[str] = ()) -> _Grid:
    """Return the points at which loops are compared that are for sizes of which some are known. `apart`: those that run in other
    loops where they are small numbers."""
    steps = {name: _steps(size, FEW_MORE if name in apart else 1) for name, size in at.items()}
    steps |= {name: (n,) for name, n in known.items()}
    home = tuple(steps[name].index(known.get(name, size)) for name, size in at.items())
    many, more = [len(s) - 1 for s in steps.values()], [max(0, len(s) - 2) for s in steps.values()]
    every = product(*(range(len(s)) for s in steps.values()))
    near = (p for p in every if sum(map(ne, p, home)) <= (1 if any(map(eq, p, more)) else 2))
    corners = (product(*({0, k} for k in ends)) for ends in (many, more))
    return _Grid(steps, tuple(dict.fromkeys((*near, *chain(*corners)))), home)


def _chosen(kernel: _Kernel, found: Sequence[Planned]) -> list[_Case]:
    """Return the cases that are predicted to gain most: those in which a size is known first, then others, each on what would run there."""
    room, cycles = _room(kernel.base.lowered), kernel.cycles
    known: list[_Case] = []
    for planned in (p for p in found if p.known):
        case = _case(planned, _grid(kernel.at, planned.known), lambda p, sizes: cycles(p, sizes) / kernel.fastest(sizes), kernel.takes_long)
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
        left = [p for p in found if not p.known and all(case.planned is not p for case in ranges) and (p.form or _nodes(p) <= room)]
        cases = (_form_case(p, grid, share, kernel.met) if p.form else _case(p, grid, share, kernel.takes_long) for p in left)
        made = [case for case in cases if case is not None]
        if not made:
            break
        ranges.insert(0, max(made, key=lambda case: case.gain))
        room -= 0 if ranges[0].planned.form else _nodes(ranges[0].planned)
    return [*known, *ranges]


def _case(planned: Planned, grid: _Grid, share_of: Share, takes_long: Callable[[Mapping[str, int]], bool]) -> _Case | None:
    """Return a case for the box of sizes around those at which loops gain most, in which they gain most together; None where they gain
    little at any. At the samples run the loops at hand; loops in which a size is known are for those of the others, or for more, or for
    any at which calls take long: what there is to do for the samples may wait for memory, whatever loops there are."""
    share = partial(share_of, planned)
    shares = {point: share(grid.sizes(point)) for point in grid.points}

    def counts(point: tuple[int, ...]) -> bool:
        if planned.known:
            return all(map(ge, point, grid.home)) or takes_long(grid.sizes(point))
        return point != grid.home

    best = min(filter(counts, shares), key=shares.__getitem__)
    if shares[best] > GAIN:
        return None
    gains = {point: _gain(found) for point, found in shares.items()}
    if not planned.known:
        gains[grid.home] = -inf
    gain, box = _box([len(steps) for steps in grid.steps.values()], best, gains)
    known = [_Limit((name,), "==", n) for name, n in planned.known.items()]
    limits = [limit for axis in range(len(box)) for limit in _limits(grid, axis, box, best, share)]
    return _Case((*known, *limits), grid.sizes(best), shares[best], gain, planned)


def _gain(share: float) -> float:
    """Return what it counts that loops take a share of what others do."""
    return 0.0 if MARGIN < share <= 1 / MARGIN else -log(share) * (1 if share < 1 else DREADED)


def _form_case(planned: Planned, grid: _Grid, share_of: Share, met: Mapping[str, int]) -> _Case | None:
    """Return a case for the loops of a form: where the product of the sizes that it tells is at most, or at least, some number, so that
    they gain most; None where they gain little at any. Of an image that is how many points it has, for each of which weights are used;
    what is compared are images whose sides have the ratio of those of the samples. At the sizes that were `met` runs the kernel's own
    program, which was chosen for these."""
    assert planned.form is not None
    home, sides = grid.sizes(grid.home), tuple(name for name, _ in planned.form.at)
    relations: tuple[Literal["<=", ">="], ...] = "<=", ">="

    def sizes(count: float) -> dict[str, int]:
        times = (count / max(1, prod(home[name] for name in sides))) ** (1 / len(sides))
        return {**home, **{name: max(1, round(home[name] * times)) for name in sides}}

    def share(count: int) -> float:
        return share_of(planned, sizes(count))

    many = prod(TIMES * max(1, home[name]) for name in sides)
    shares = {count: share(count) for count in (many >> k for k in range(many.bit_length()))}

    def inside(relation: str, number: int) -> list[int]:
        return [count for count in shares if _HOLDS[relation](count, number)]

    def gain(relation: str, number: int) -> float:
        return sum(_gain(shares[count]) for count in inside(relation, number))

    own = prod(met[name] for name in sides)
    apart = [(relation, count) for relation, count in product(relations, shares) if not _HOLDS[relation](own, count)]
    relation, last = max(apart, key=lambda side: (gain(*side), -len(inside(*side))), default=("<=", 0))
    best = min(inside(relation, last), key=shares.__getitem__, default=own)
    if share(best) > GAIN or gain(relation, last) <= 0:
        return None
    first = max(last // 2, own) if relation == ">=" else min(2 * last, own)
    limit = _Limit(sides, relation, _reached(last, first, lambda n: share(n) <= MARGIN))
    return _Case((limit,), sizes(best), shares[best], gain(relation, last), planned)


def _reached(last: int, first: int, gains: Callable[[int], bool]) -> int:
    """Return a number as far from `last`, where loops gain, towards `first`, where they do not, as they gain."""
    while max(last, first) > NEAR * min(last, first) and (middle := isqrt(last * first)) not in (last, first):
        last, first = (middle, first) if gains(middle) else (last, middle)
    return last


def _box(lengths: Sequence[int], best: Sequence[int], gains: Mapping[tuple[int, ...], float]) -> tuple[float, list[_Side]]:
    """Return what is gained in a box around the point `best` of a grid, and its sides: that of most gain of those that grow axis by axis,
    beginning with each of them."""

    def inside(box: Sequence[_Side], but: int | None = None) -> list[tuple[tuple[int, ...], float]]:
        """Return the points between all sides `but` one."""
        sides = [(axis, lo, hi) for axis, (lo, hi) in enumerate(box) if axis != but]
        return [(p, gain) for p, gain in gains.items() if all(lo <= p[axis] <= hi for axis, lo, hi in sides)]

    def side(box: Sequence[_Side], axis: int) -> _Side:
        """Return the side along which most is gained, the longest of these, where the others stay."""
        near = [(p[axis], gain) for p, gain in inside(box, but=axis)]
        sides = product(range(best[axis] + 1), range(best[axis], lengths[axis]))
        return max(sides, key=lambda one: (sum(gain for k, gain in near if one[0] <= k <= one[1]), one[1] - one[0]))

    def grown(first: int) -> list[_Side]:
        box, before = [(k, k) for k in best], list[_Side]()
        while box != before:
            before = [*box]
            for axis in (*range(first, len(lengths)), *range(first)):
                box[axis] = side(box, axis)
        return box

    return max(((sum(gain for _, gain in inside(box)), box) for box in map(grown, range(len(lengths)))), key=lambda found: found[0])


def _limits(
    grid: _Grid, axis: int, box: Sequence[_Side], best: Sequence[int], share: Callable[[Mapping[str, int]], float]
) -> Iterator[_Limit]:
    """Yield the limits of a size that is in a box from one of its numbers to another: as far towards the next one outside as loops gain
    where the other sizes are those at which they gain most, and lose nothing where these are the least or the most in the box."""
    name, steps, side = list(grid.steps)[axis], list(grid.steps.values())[axis], box[axis]
    inside = [{**grid.sizes([*ends[:axis], 0, *ends[axis + 1 :]])} for ends in (best, [lo for lo, _ in box], [hi for _, hi in box])]

    def gains(number: int) -> bool:
        most, *others = (share({**sizes, name: number}) for sizes in inside)
        return most <= GAIN and max(others) <= 1 / MARGIN

    for below, within, outside in ((False, side[0], side[0] - 1), (True, side[1], side[1] + 1)):
        if not 0 <= outside < len(steps):
            continue
        yield _Limit((name,), "<=" if below else ">=", _reached(steps[within], steps[outside], gains))


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
