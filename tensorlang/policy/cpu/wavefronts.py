"""Wavefronts: for recurrences of which every loop carries dependences, points along diagonals that do not need each other.

    y[i, j] = f(y[i - 1, j - 1], y[i - 1, j], y[i, j - 1])        skew j by i: points of one i + j are independent

One element after the other waits for what it is made from: for the latency of operations, and of a store that is loaded again. Two forms
run independent points instead, where that takes fewer cycles:

rows        a few rows at a time in one stream of instructions, each some columns behind the one before it, or none where rows need but
            earlier columns of each other: latencies overlap
diagonal    points of a diagonal in lanes; the tensor is stored by diagonals, so that lanes read and write neighbours. For tensors that
            nobody outside sees and that the last cache holds, or of which only the last diagonals are kept: others read none but those

    split y.i by 8 -> i_o, i_t                       layout y as [i + j, i]
    skew y.j by y.i_t                                skew y.j by y.i
    order y.i_o, y.j, y.i_t                          split y.i by 16 -> i_o, i_v
    unroll y.i_t                                     order y.j, y.i_o, y.i_v;  vectorize y.i_v
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import prod

from polyhedral import affine
from polyhedral.directions import Distances
from polyhedral.expr import Name as AffineName
from polyhedral.storage import Cells, validate
from polyhedral.verdict import Proven
from tensorlang.policy.cpu.cost import (
    CALL_CYCLES,
    DIVISION_CYCLES,
    FAR_LOADS,
    FORWARD_CYCLES,
    INTEGER_CYCLES,
    LATENCY_CYCLES,
    LOAD_CYCLES,
    PARTS_CYCLES,
    load_cycles,
)
from tensorlang.policy.cpu.inner_cost import InnerLoops, cycles_of
from tensorlang.policy.deriver import Deriver, in_order, is_threading_profitable
from tensorlang.schedule.plan import Plan, full
from tensorlang.schedule.shape import OPEN_EXTENT, extents
from tensorlang.syntax import nodes as syntax
from tensorlang.tensor.nodes import Binary, Call, Definition, Dynamic, Expr, Read, Select
from tensorlang.tensor.walk import children, index_names, reads, reduces

ROWS = (2, 4, 8)
"""How many rows may run together; fewer than the most of them also all that there are."""
WORTH_SKEWING = 0.8
"""Share of the cycles at most that a wavefront has to take of those of one element after the other."""
KEPT_STEPS = 2
"""How many steps of the axes outside are kept, as a rule."""
DIAGONALS_PER_THREAD = 4
"""Blocks of rows, and steps, that there are at least for each thread."""
DIAGONALS = (2, 4, 8)
"""How many may be kept."""
MOST_PADDING = 4
"""How many times as large as the tensor its diagonals may be, ends that are never written included."""


@dataclass(frozen=True, slots=True)
class Wavefront:
    """Points of one `skewed + factor * along` do not need each other, inside the axes `outer`; `rows` of them run together, or, where that
    is 0, those of a vector. A `factor` of 0 is for rows alone. `separate`: pieces have loops of their own inside `outer`. `cycles`: of an
    element."""

    outer: tuple[str, ...]
    skewed: str
    along: str
    factor: int
    separate: bool
    rows: int = 0
    cycles: float = 0.0
    passing: bool = False
    """Whether other tensors read so few of its elements that a few diagonals may do; pieces have loops of their own inside a diagonal."""
    shared: int = 0
    """By which multiple of the innermost of `outer` blocks of rows are skewed, so that threads share a diagonal; 0: they do not."""


def best_wavefront(
    d: Deriver,
    definition: Definition,
    outside: Sequence[str],
    order: Sequence[str],
    distances: Distances,
    inner: InnerLoops,
    sums: Sequence[Definition] = (),
    *,
    local: bool,
) -> Wavefront | None:
    """Return the cheapest wavefront over two of the axes, the others outside of them in their `order`; None where elements one after the
    other, or the `inner` loops, are about as fast. `outside`: the loops around all axes; `sums`: what adds up all elements in these loops.
    `local`: nobody outside sees the tensor."""
    if any(True for p in definition.pieces for _ in reduces(p.value)):
        return None
    name = definition.tensors[0].name
    waiting = max(_latency([definition], p.value, order[-1]) for p in definition.pieces)
    passing = local and is_passing(d, definition, [definition, *sums])
    serial = max(cycles_of(d, definition, inner), waiting)
    found: list[Wavefront] = []
    for skewed, along in permutations(order, 2):
        outer = tuple(a for a in order if a not in (skewed, along))
        around = [*outside, *(full(name, a) for a in outer)]
        separable = distances.separable([*around, full(name, skewed), full(name, along)]) if len(definition.pieces) > 1 else 0
        separate = separable is not None and separable <= len(around)
        factor = distances.wavefront(around, full(name, skewed), full(name, along), separate)
        joint = distances.wavefront(around, full(name, skewed), full(name, along), False) if passing else None
        if _are_beside(distances, around, full(name, skewed), full(name, along), separate):
            found += _forms(d, definition, Wavefront(outer, skewed, along, 0, separate), waiting, blocks=True, local=False)
        if joint is not None:
            found += _diagonal(d, definition, Wavefront(outer, skewed, along, joint, False, passing=True), waiting)
        if factor is not None:
            of, blocks = Wavefront(outer, skewed, along, factor, separate), distances.may_run_in_blocks(around, full(name, along), separate)
            found += _forms(d, definition, of, waiting, blocks=blocks, local=local)
    best = min(found, key=lambda w: w.cycles, default=None)
    if best is None or best.cycles >= WORTH_SKEWING * serial:
        return None
    return replace(best, shared=_shared(d, definition, best, distances)) if not outside else best


def _are_beside(distances: Distances, around: Sequence[str], skewed: str, along: str, separate: bool) -> bool:
    """Tell whether points that agree along `skewed` need nothing of each other inside the loops `around`, nor of blocks of `along` that
    come later. `separate`: pieces run one after the other inside `around`."""
    orders = [*around, skewed, along], [*around, along, skewed]
    return all(map(distances.is_legal, orders)) and along in distances.free(orders[0], len(around) if separate else None)


def best_shared_wavefront(
    d: Deriver,
    group: Sequence[Definition],
    order: Sequence[str],
    distances: Distances,
    local: Sequence[Definition],
    sums: Sequence[Definition] = (),
) -> Wavefront | None:
    """Return the cheapest wavefront for tensors that share both their loops; None where one element at a time is about as fast. `order`:
    the axes of the loops, which all of them have by the same names; `local`: those that nobody outside sees; `sums`: what
    adds up all elements in these loops."""
    name = group[0].tensors[0].name
    waiting = sum(max(_latency(group, p.value, order[-1]) for p in x.pieces) for x in group)
    serial = max(sum(cycles_of(d, x, InnerLoops()) for x in group), waiting)
    found: list[Wavefront] = []
    for skewed, along in permutations(order, 2):
        factor = distances.wavefront((), full(name, skewed), full(name, along), False)
        if factor is None:
            continue
        of, forms = Wavefront((), skewed, along, factor, False), list[dict[int, Wavefront]]()
        blocks = distances.may_run_in_blocks((), full(name, along), False)
        for member in group:
            passing = replace(of, passing=is_passing(d, member, [*group, *sums]))
            own = _forms(d, member, passing, waiting, group, blocks=blocks, local=len(local) == len(group))
            forms.append({w.rows: w for w in own})
        for rows in forms[0]:
            if all(rows in known for known in forms):
                cycles = max(sum(known[rows].cycles for known in forms), waiting / rows if rows else 0.0)
                found.append(replace(of, rows=rows, cycles=cycles))
    best = min(found, key=lambda w: w.cycles, default=None)
    return best if best is not None and best.cycles < WORTH_SKEWING * serial else None


def _shared(d: Deriver, definition: Definition, of: Wavefront, distances: Distances) -> int:
    """Return the multiple of a step that, added to blocks of rows, leaves those of one sum independent: a block and a step need nothing
    that lies further on along either. 0 where threads are not worth it, or blocks and steps are too few."""
    if not of.rows or not of.outer or of.separate or not is_threading_profitable(d, (definition,)):
        return 0
    sizes, name = extents(definition), definition.tensors[0].name
    blocks, steps = (sizes[of.along] or OPEN_EXTENT) // of.rows, sizes[of.outer[-1]] or OPEN_EXTENT
    factor = distances.permutable_skew(full(name, of.along), full(name, of.outer[-1]))
    return 0 if factor is None or min(blocks, steps) < DIAGONALS_PER_THREAD * d.machine.threads else factor + 1


def _forms(
    d: Deriver, definition: Definition, of: Wavefront, waiting: float, group: Sequence[Definition] = (), *, blocks: bool, local: bool
) -> Iterator[Wavefront]:
    """Yield the forms of a wavefront. `waiting`: what an element takes that waits for the one before it; `group`: the tensors that run
    along it, where these are more than one; `blocks`: some rows may run before later ones do."""
    sizes = {a: e or OPEN_EXTENT for a, e in extents(definition).items()}
    steps = sizes[of.skewed]
    if blocks and of.skewed == definition.axes[-1]:
        for rows in sorted({min(r, sizes[of.along]) for r in ROWS} - {1}):
            together = cycles_of(d, definition, InnerLoops(rows=((of.along, rows),)), of.skewed)
            longer = (steps + of.factor * (rows - 1)) / steps
            yield replace(of, rows=rows, cycles=max(together, waiting / rows) * longer)
    if local:
        yield from _diagonal(d, definition, of, waiting, group)


def _diagonal(d: Deriver, definition: Definition, of: Wavefront, waiting: float, group: Sequence[Definition] = ()) -> Iterator[Wavefront]:
    """Yield the form of a wavefront whose points are lanes, where the tensor may be stored so, as all of a `group` are."""
    if _fits(d, definition, of):
        lanes, along = d.lanes_of(definition), group or (definition,)
        own = tuple(t.name for member in along for t in member.tensors)
        together = cycles_of(d, definition, InnerLoops((of.along,), packed=own)) + _far_cycles(d, definition, along, of.skewed)
        # A diagonal reads vectors that begin elsewhere than those of the one before it, which has to be there.
        step = max(_latency([definition], p.value, None) for p in definition.pieces) + PARTS_CYCLES
        yield replace(of, cycles=max(together, waiting / lanes, step / (extents(definition)[of.along] or OPEN_EXTENT)))


def is_passing(d: Deriver, definition: Definition, group: Sequence[Definition]) -> bool:
    """Tell whether tensors outside its group read but single elements of its rows and columns."""
    own = {t.name for t in definition.tensors}
    outside = [x for x in d.program.definitions if not any(x is member for member in group)]
    others = [(x, r) for x in outside for p in x.pieces for r in reads(p.value) if r.tensor in own]
    loops = {n: e or OPEN_EXTENT for x, _ in others for n, e in extents(x).items()}
    return all(prod(loops.get(n, 1) for n in index_names(r)) == 1 for _, r in others)


def _fits(d: Deriver, definition: Definition, of: Wavefront) -> bool:
    """Tell whether a tensor may be stored by diagonals: its loops run forwards, and its steps, of which two are kept, stay in the cache."""
    name, sizes = definition.tensors[0].name, extents(definition)
    backwards = {o.name for x in d.schedule.directives if x.name == "reverse" for o in x.operands if isinstance(o, syntax.Id)}
    if len(definition.tensors) > 1 or None in sizes.values() or {full(name, of.skewed), full(name, of.along)} & backwards:
        return False
    skewed, along = sizes[of.skewed] or 1, sizes[of.along] or 1
    kept = KEPT_STEPS if of.outer else 1
    rows = DIAGONALS[-1] if of.passing else skewed
    return (
        of.factor * along + skewed <= MOST_PADDING * skewed
        and kept * rows * along * definition.tensors[0].dtype.size_bytes <= d.machine.cache_bytes
    )


def _far_cycles(d: Deriver, definition: Definition, group: Sequence[Definition], skewed: str) -> float:
    """Return the cycles of an element for what lanes along a diagonal read one by one, and of who reads the diagonals of a `group` in
    another order."""
    own, stored = definition.tensors[0].name, {t.name for member in group for t in member.tensors}
    far = max(len({r for r in reads(p.value) if r.tensor not in stored and skewed in index_names(r)}) for p in definition.pieces)
    count = prod(e or OPEN_EXTENT for e in extents(definition).values())
    outside = [x for x in d.program.definitions if not any(x is member for member in group)]
    readers = [x for x in outside for p in x.pieces for r in reads(p.value) if r.tensor == own]
    again = sum(prod(e or OPEN_EXTENT for e in extents(x).values()) for x in readers)
    return load_cycles(FAR_LOADS * (far + again / count))


def _latency(group: Sequence[Definition], e: Expr, innermost: str | None) -> float:
    """Return the cycles from an element of one of the tensors that lies before along `innermost`, or (None) along any axis, until the one
    made from it can be read, for each step from one to the other."""
    axes = {t.name: x.axes for x in group for t in x.tensors}
    is_float = group[0].tensors[0].dtype.is_float

    def steps_before(r: Read) -> int:
        """Return how many steps before its reader an element lies along the innermost axis, one where that is no number; 0 elsewhere."""
        around = list(zip(axes.get(r.tensor, ()), r.index, strict=False))
        if innermost is None:
            return int(bool(around))
        if not around or not all(slot == AffineName(a) for a, slot in around if a != innermost):
            return 0
        slot = next((s for a, s in around if a == innermost), None)
        far = affine.difference(AffineName(innermost), slot) if slot is not None and not isinstance(slot, Dynamic) else None
        return max(1, abs(far)) if far is not None else 1

    def path(n: Expr) -> float:
        if isinstance(n, Read):
            return FORWARD_CYCLES if steps_before(n) else 0.0
        below = max(map(path, children(n)), default=0.0)
        return below + operation_cycles(n, is_float) if below else 0.0

    return path(e) / min(filter(None, map(steps_before, reads(e))), default=1)


def waiting_cycles(group: Sequence[Definition]) -> float:
    """Return the cycles, at most, from a step of tensors that need each other until the next, where steps are in registers: what a tensor
    reads of others at its own point is computed before it, what it reads of steps before is there, and what these name is loaded."""
    made, is_float = {t.name: x for x in group for t in x.tensors}, group[0].tensors[0].dtype.is_float

    def until(x: Definition) -> float:
        own = tuple(map(AffineName, x.axes))

        def path(n: Expr) -> float | None:
            if isinstance(n, Read) and n.tensor in made:
                return until(made[n.tensor]) if n.index == own and made[n.tensor] is not x else 0.0
            below = [found for c in children(n) if (found := path(c)) is not None]
            return max(below) + (LOAD_CYCLES if isinstance(n, Read) else operation_cycles(n, is_float)) if below else None

        return max(path(p.value) or 0.0 for p in x.pieces)

    return max(map(until, group))


def operation_cycles(e: Expr, is_float: bool) -> float:
    match e:
        case Call():
            return CALL_CYCLES
        case Binary("/" | "//" | "%"):
            return DIVISION_CYCLES
        case Binary():
            return LATENCY_CYCLES if is_float else INTEGER_CYCLES
        case Select():
            return INTEGER_CYCLES
        case _:
            return 0.0


def add_wavefront(d: Deriver, definition: Definition, found: Wavefront, *, nested: bool, apart: bool = False) -> None:
    """Add the directives for the loops of a wavefront. `nested`: loops of other tensors are around them; `apart`: all that runs in the
    loops has loops of its own inside a diagonal."""
    name, lanes = definition.tensors[0].name, d.lanes_of(definition)
    if found.rows:
        block, point = f"{found.along}_o", f"{found.along}_t"
        d.add(d.schedule.split(full(name, found.along), found.rows, (block, point)))
        d.add(d.schedule.skew(full(name, found.skewed), full(name, point), found.factor) if found.factor else d.schedule)
        inner = [block, found.skewed, point]
        if found.shared:
            _add_shared(d, name, found, block, inner)
            return
    else:
        block, point = f"{found.along}_o", f"{found.along}_v"
        d.add(d.schedule.skew(full(name, found.skewed), full(name, found.along), found.factor))
        d.add(d.schedule.split(full(name, found.along), lanes, (block, point)))
        inner = [found.skewed, block, point]
    d.add(in_order(d.schedule, name, [*found.outer, *inner]))
    d.add(d.schedule.unroll(full(name, point)) if found.rows else d.schedule.vectorize(full(name, point)))
    if apart or (len(definition.pieces) > 1 and found.passing):
        d.add(d.schedule.distribute(name, at=full(name, inner[1])))
    elif len(definition.pieces) > 1 and found.separate:
        d.add(d.schedule.distribute(name, at=full(name, inner[0]) if nested or found.outer else None))


def _add_shared(d: Deriver, name: str, found: Wavefront, block: str, inner: Sequence[str]) -> None:
    """Let threads share blocks of rows of several steps: those of one diagonal."""
    step = found.outer[-1]
    d.add(d.schedule.skew(full(name, block), full(name, step), found.shared))
    d.add(in_order(d.schedule, name, [*found.outer[:-1], block, step, *inner[1:]]))
    d.add(d.schedule.unroll(full(name, inner[-1])))
    d.add(d.schedule.parallel(full(name, step)))


def kept_diagonals(plan: Plan, definition: Definition, found: Wavefront, kept: Mapping[str, int]) -> int | None:
    """Return how many diagonals of a tensor do for all that is read of it; None where only all of them do."""
    name, axes = definition.tensors[0].name, definition.axes
    exprs = (*map(AffineName, found.outer), affine.add(affine.scale(found.factor, found.along), found.skewed), AffineName(found.along))
    for count in DIAGONALS if found.passing else ():
        cells = Cells(exprs, (*(kept.get(a) for a in found.outer), count, None))
        if isinstance(validate(plan.placed, {name: cells}, axes={name: axes}, storage=plan.depth), Proven):
            return count
    return None


def add_diagonal_layout(d: Deriver, definition: Definition, found: Wavefront, kept: Mapping[str, int], diagonals: int | None) -> None:
    """Store the tensor by its diagonals, only so many of them (None: all), and of each axis in `kept` only so many steps."""
    along: syntax.Expr = syntax.Id(found.along)
    multiple = along if found.factor == 1 else syntax.Binary("*", _number(found.factor), along)
    diagonal: syntax.Expr = syntax.Binary("+", multiple, syntax.Id(found.skewed))
    diagonal = diagonal if diagonals is None else syntax.Binary("%", diagonal, _number(diagonals))
    steps = [syntax.Binary("%", syntax.Id(a), _number(kept[a])) if a in kept else syntax.Id(a) for a in found.outer]
    d.add(d.schedule.layout(definition.tensors[0].name, [*steps, diagonal, along]))


def _number(value: int) -> syntax.Number:
    return syntax.Number(str(value))
