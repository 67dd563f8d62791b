"""Where tensors live: one buffer per tensor (per component for the accumulator of a tuple reducer), and how its elements are addressed.

    parameter, result   the caller's block, in its layout
    local at the root   a heap block of the whole tensor, or the block of a result that has room for it as long as it is needed; of two
                        steps that take turns, the last in the block of the result that is a copy of it
    local in loops      the box of elements that one iteration touches; an element is addressed relative to the box's origin

A local of constant extents whose elements are addressed by unrolled and vector loops alone, and that no parallel loop inside its own loops
uses, lives in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice
from math import prod

from codegen.dtypes import DType, bool_, compute_dtype
from codegen.loops import nodes as loops
from codegen.loops.demote import STACK_BYTES
from codegen.loops.notes import AnyOrder, Begins, Kept, Streamed, note_of
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Floor, Max, Min, Mod, Name
from polyhedral.model import BLOCKS, THREADS, Loop, Statement, Within
from polyhedral.region import Footprint, footprint
from polyhedral.schedule import loops_in
from polyhedral.sets import implies
from polyhedral.storage import Cells, validate
from polyhedral.verdict import Proven
from tensorlang.diagnostics import InternalError, error
from tensorlang.lower.index import to_index
from tensorlang.lower.names import Names
from tensorlang.schedule.annotations import origin_of
from tensorlang.schedule.copies import upper_bound
from tensorlang.schedule.layout import is_in_order
from tensorlang.schedule.plan import Plan, Storage
from tensorlang.schedule.shape import OPEN_EXTENT
from tensorlang.tensor.nodes import Definition, Dynamic, Piece, Read, Tensor, TupleOf
from tensorlang.tensor.scop import Accumulator
from tensorlang.tensor.scop import in_order as keeps_order
from tensorlang.tensor.walk import definers, tensor_table

REGISTER_ELEMENTS = 2048
WRITTEN = 2
"""How many times as much as a read a write counts whose lanes lie apart: measured, as a table of 2003 by 57 that lanes cross takes half
the time where they are written as neighbours."""


@dataclass(frozen=True, slots=True)
class TensorMemory:
    """The buffers of one tensor. `dims`, over `axes` and the loops outside, address an element; `chain` are the loops that privatise it.
    `lanes`: extent of an additional last dimension, one slot per vector lane, or 0. `placements`: the placements that use it, where others
    use a memory of their own, which `others` names; empty: all."""

    tensor: str
    buffers: tuple[loops.Buffer, ...]
    axes: tuple[str, ...]
    dims: tuple[Affine, ...]
    chain: tuple[str, ...]
    lanes: int = 0
    placements: frozenset[str] = frozenset()
    others: tuple[TensorMemory, ...] = ()

    def of(self, placement: str) -> TensorMemory:
        """Return the memory that a placement uses."""
        return next((other for other in self.others if placement in other.placements), self)


def is_flagged(acc: Accumulator, lanes: int = 0) -> bool:
    """Tell whether an accumulator needs a flag that says whether it holds a value yet: a last buffer of type bool. In `lanes` each of these
    does, as what the reduction starts from joins it once, when they are combined."""
    reducer = acc.reduce.reducer
    return reducer.identity is None and (acc.reduce.init is None or lanes > 0) and reducer.kind not in ("min", "max")


def tensor_memory(plan: Plan, names: Names) -> dict[str, TensorMemory]:
    """Return the memory of every tensor and accumulator of the plan."""
    table = tensor_table(plan.program)
    axes_of = {t.name: d.axes for d in plan.program.definitions for t in d.tensors}
    out: dict[str, TensorMemory] = {}
    size = lambda n: loops.Var(names.of("size", n))  # noqa: E731
    for tensor in (*plan.program.params, *(table[r] for r in plan.program.results)):
        axes = axes_of.get(tensor.name) or tuple(f"a{k}" for k in range(len(tensor.shape)))
        storage = plan.layouts.get(tensor.name)
        in_order = tuple(affine.to_expr(a) for a in axes)
        dims, shape = (storage.dims, storage.shape) if storage else (in_order, tensor.shape)
        align = tensor.dtype.size_bytes if is_in_order(dims, axes) else 64
        buffer = loops.Buffer(names.of("tensor", tensor.name), tensor.dtype, tuple(to_index(s, size) for s in shape), "param", align)
        out[tensor.name] = TensorMemory(tensor.name, (buffer,), axes, dims, ())
    around: dict[str, str] = {}
    summed: set[str] = set()
    defined = definers(plan.program)
    copied = {r: of for r in plan.program.results if (of := _copied(defined[r])) is not None and of not in out}
    for definition in plan.program.definitions:
        primary = definition.tensors[0].name
        sums = [(k, acc) for k in range(len(definition.pieces)) for acc in plan.stages.accumulators[primary, k]]
        goes = {acc.name: _where_it_goes(plan, definition, k, acc) for k, acc in sums}
        for tensor in definition.tensors:
            if tensor.name not in out:
                # A result that is a copy of a tensor is kept for that one: there is nothing to copy then.
                left = [
                    r for r in plan.program.results if r not in {*around.values(), *summed} and copied.get(r, tensor.name) == tensor.name
                ]
                result = _result_around(plan, definition, left)
                turns = _taking_turns(plan, definition, left) if result is None and not any(goes.values()) else None
                if turns is not None:
                    around[tensor.name] = turns.result
                    out[tensor.name] = _two_steps(names, tensor, definition, turns, out[turns.result].buffers[0])
                    continue
                if result is None:
                    out[tensor.name] = _local(plan, names, tensor.name, primary, definition.axes, (tensor.dtype,))
                    continue
                around[tensor.name] = result
                kept = tuple(affine.to_expr(definition.axes[k]) for k in _kept_axes(plan, definition))
                out[tensor.name] = TensorMemory(tensor.name, out[result].buffers, definition.axes, kept, ())
        for _, acc in sums:
            flag = (bool_,) if is_flagged(acc, _lanes(plan, acc.name, plan.placed.accessing(acc.name))) else ()
            where = goes[acc.name]
            if where is not None and where not in {*around, *around.values()}:
                summed.add(where)
                out[acc.name] = replace(out[where], tensor=acc.name)
                continue
            axes = tuple(e.name if isinstance(e, Name) else f"{primary}.cell{k}" for k, e in enumerate(acc.cell))
            memory = _local(plan, names, acc.name, acc.name, axes, (*acc.reduce.reducer.dtypes, *flag))
            out[acc.name] = memory if keeps_order(acc.reduce.reducer, plan.program.mode) else _in_any_order(memory)
    return out


def _in_any_order(memory: TensorMemory) -> TensorMemory:
    """Return the memory of sums whose terms may be added in any order, and in parts."""
    buffers = tuple(replace(b, notes=(*b.notes, AnyOrder())) if b.space == "registers" else b for b in memory.buffers)
    return replace(memory, buffers=buffers, others=tuple(map(_in_any_order, memory.others)))


def _copied(definition: Definition) -> str | None:
    """Return the tensor that a definition copies elements of, if it does nothing else."""
    match definition.pieces:
        case (Piece(value=Read(tensor)),):
            return tensor
        case _:
            return None


@dataclass(frozen=True, slots=True)
class _Turns:
    """The axis along which two steps of a tensor are kept, and the result that is a copy of the step `last`."""

    result: str
    axis: int
    last: Affine


def _taking_turns(plan: Plan, definition: Definition, results: Sequence[str]) -> _Turns | None:
    """Return which one of some results is a copy of one step of a tensor of which two are kept, and is written where no other is needed any
    more; None where there is none."""
    table, definitions = tensor_table(plan.program), definers(plan.program)
    name, folds = definition.tensors[0].name, plan.folds.get(definition.tensors[0].name, ())
    if [m for _, m in folds] != [2] or not _may_lie_in_results(plan, definition):
        return None
    ((axis, _),) = folds
    for result in results:
        own = definitions[result]
        match own.pieces:
            case (Piece(value=Read(tensor, index)),) if tensor == name and len(index) == len(definition.axes):
                last, *others = index[axis], *index[:axis], *index[axis + 1 :]
            case _:
                continue
        same = table[result].dtype == table[name].dtype and others == [Name(a) for a in own.axes]
        kept = [n for k, n in enumerate(table[name].shape) if k != axis]
        if not same or isinstance(last, Dynamic) or affine.name_set(last) - {*plan.program.sizes} or not _is_plain(plan, own):
            continue
        found = _Turns(result, axis, last)
        cells = {
            name: Cells(_step_and_point(definition, found), (2, *(None for _ in kept)), result),
            result: Cells((affine.ZERO, *map(Name, own.axes)), (None,) * len(definition.axes), result),
        }
        if all(map(affine.same, table[result].shape, kept)) and _is_kept(plan, cells, definition, own):
            return found
    return None


def _step_and_point(definition: Definition, turns: _Turns) -> tuple[Affine, ...]:
    """Return how many steps an element lies after the last, up to a multiple of two, and at which point it lies."""
    known = affine.constant(turns.last)
    after = affine.sub(Name(definition.axes[turns.axis]), turns.last if known is None else affine.to_expr(known % 2))
    return (after, *(Name(a) for k, a in enumerate(definition.axes) if k != turns.axis))


def _two_steps(names: Names, tensor: Tensor, definition: Definition, turns: _Turns, result: loops.Buffer) -> TensorMemory:
    """Return the memory of a tensor of which two steps are kept, the last of them in a result."""
    step, *point = _step_and_point(definition, turns)
    shape = (loops.Int(2), *result.shape)
    buffer = loops.Buffer(names.fresh(tensor.name), tensor.dtype, shape, "heap", 64, notes=(Begins(result.name),))
    return TensorMemory(tensor.name, (buffer,), definition.axes, (affine.mod(step, 2), *point), ())


def _result_around(plan: Plan, definition: Definition, results: Sequence[str]) -> str | None:
    """Return the one of some results whose cells may be those of a local tensor: of its shape, but for axes of which one step is kept, and
    written where nothing of the tensor is needed any more; None where it has memory of its own. Small ones and those of devices have."""
    table, definitions = tensor_table(plan.program), definers(plan.program)
    name, kept = definition.tensors[0].name, _kept_axes(plan, definition)
    if any(m != 1 for _, m in plan.folds.get(name, ())) or not _may_lie_in_results(plan, definition):
        return None
    shape = [table[name].shape[k] for k in kept]
    for result in results:
        made, own = table[result], definitions[result]
        alike = made.dtype == table[name].dtype and len(made.shape) == len(shape) and all(map(affine.same, made.shape, shape))
        if not alike or not _is_plain(plan, own):
            continue
        cells = {
            name: Cells(tuple(Name(definition.axes[k]) for k in kept), (None,) * len(kept), result),
            result: Cells(tuple(map(Name, own.axes)), (None,) * len(kept), result),
        }
        if _is_kept(plan, cells, definition, own):
            return result
    return None


def _may_lie_in_results(plan: Plan, definition: Definition) -> bool:
    """Tell whether a tensor is a large one at the root of loops for a processor, and stored as it is defined."""
    (tensor, *others), on_device = definition.tensors, any(loop.mark in BLOCKS | THREADS for loop, _ in loops_in(plan.placed.tree))
    return not (others or plan.depth.get(tensor.name, 0) or tensor.name in plan.layouts or on_device) and _is_large(plan, tensor)


def _is_plain(plan: Plan, definition: Definition) -> bool:
    """Tell whether a definition is that of one tensor, which is stored as it is defined."""
    return len(definition.tensors) == 1 and definition.tensors[0].name not in plan.layouts


def _is_kept(plan: Plan, cells: Mapping[str, Cells], *definitions: Definition) -> bool:
    """Tell whether nothing that is needed is lost where a local tensor and a result, in this order, share cells."""
    local, result = ({d.tensors[0].name: d.axes} for d in definitions)
    verdict = validate(plan.placed, cells, axes=local | result, outputs={*result}, storage=dict.fromkeys(cells, 0))
    return isinstance(verdict, Proven)


def _kept_axes(plan: Plan, definition: Definition) -> list[int]:
    """Return the positions of the axes along which a tensor keeps more than one step."""
    folded = {k for k, modulus in plan.folds.get(definition.tensors[0].name, ()) if modulus == 1}
    return [k for k in range(len(definition.axes)) if k not in folded]


def _is_large(plan: Plan, tensor: Tensor) -> bool:
    """Tell whether a tensor, of which one step is kept along folded axes, is more than a stack has room for."""
    folds = dict(plan.folds.get(tensor.name, ()))
    extents = [folds.get(k) or affine.constant(n) for k, n in enumerate(tensor.shape)]
    return None in extents or prod(n or 0 for n in extents) * tensor.dtype.size_bytes > STACK_BYTES


def _where_it_goes(plan: Plan, definition: Definition, number: int, acc: Accumulator) -> str | None:
    """Return the tensor whose elements the sums of `acc` are, where they may be added up in its cells: those that data name, which no
    register holds, and where nothing that is still needed lies there."""
    primary = definition.tensors[0].name
    made = _made_of(definition, definition.pieces[number], acc)
    simple = acc.cell == tuple(map(Name, definition.axes)) and not is_flagged(acc) and acc.reduce.filter is not None
    if (
        made is None
        or not simple
        or made.name in plan.layouts
        or acc.name in plan.layouts
        or _lanes(plan, acc.name, plan.placed.accessing(acc.name))
    ):
        return None
    if acc.reduce.reducer.dtypes != (made.dtype,) or compute_dtype(made.dtype) != made.dtype:
        return None
    folds = dict(plan.folds.get(made.name, ()))
    cells = Cells(acc.cell, tuple(folds.get(k) for k in range(len(acc.cell))), primary)
    level = plan.depth.get(primary, 0)
    if plan.depth[acc.name] < level or _is_one_element(plan, acc.name):
        return None
    outputs = {primary} if any(t.name in plan.program.results for t in definition.tensors) else ()
    axes = {primary: definition.axes, acc.name: definition.axes}
    verdict = validate(
        plan.placed, {primary: cells, acc.name: cells}, axes=axes, outputs=outputs, storage={primary: level, acc.name: level}
    )
    return made.name if isinstance(verdict, Proven) else None


def _is_one_element(plan: Plan, array: str) -> bool:
    """Tell whether an iteration of the loops that privatise an array touches one element of it, which a register holds."""
    box = _box(plan, array, plan.placed.accessing(array), plan.depth[array])
    return box is not None and all(affine.constant(affine.to_expr(extent)) == 1 for extent in box.extent)


def _made_of(definition: Definition, piece: Piece, acc: Accumulator) -> Tensor | None:
    """Return the tensor of a definition whose elements are the sums of an accumulator and nothing else."""
    values = piece.value.items if isinstance(piece.value, TupleOf) else (piece.value,)
    found = [t for t, v in zip(definition.tensors, values, strict=False) if v == acc.reduce]
    return found[0] if len(found) == 1 and len(values) == len(definition.tensors) else None


def _local(plan: Plan, names: Names, tensor: str, array: str, axes: tuple[str, ...], dtypes: tuple[DType, ...]) -> TensorMemory:
    depth = plan.depth.get(array, 0)  # of a tensor defined together with a result nothing is private
    groups = _groups(plan, array, depth)
    first, *rest = (_memory(plan, names, tensor, array, axes, dtypes, group, depth) for group in groups)
    if not rest:
        return first
    parted = [replace(memory, placements=frozenset(group)) for memory, group in zip((first, *rest), groups, strict=True)]
    return replace(parted[0], others=tuple(parted[1:]))


def _groups(plan: Plan, array: str, depth: int) -> list[list[str]]:
    """Return the placements that touch `array`, those together that share its buffer: copies of the loops that privatise it share one where
    they are loops of the same names, whose boxes lie constant distances apart."""
    groups: list[list[str]] = []
    for copy in _copies(plan, plan.placed.accessing(array), depth):
        chain, lanes = _chain(plan, copy, depth), _lanes(plan, array, copy)
        like = (g for g in groups if _chain(plan, g, depth) == chain and _lanes(plan, array, g) == lanes)
        fitting = next((g for g in like if _box(plan, array, [*g, *copy], depth) is not None), None)
        if fitting is None:
            groups.append(copy)
        else:
            fitting += copy
    return groups


def _copies(plan: Plan, touching: list[str], depth: int) -> list[list[str]]:
    """Return `touching` by the copies of the first `depth` loops that they run in."""
    left, copies = touching, []
    while left:
        copies.append([p for p in left if plan.placed.shared(left[0], p) >= depth])
        left = [p for p in left if p not in copies[-1]]
    return copies


def _chain(plan: Plan, touching: list[str], depth: int) -> tuple[str, ...]:
    return tuple(loop.name for loop in plan.placed.places[touching[0]].loops[:depth])


def _memory(
    plan: Plan,
    names: Names,
    tensor: str,
    array: str,
    axes: tuple[str, ...],
    dtypes: tuple[DType, ...],
    touching: list[str],
    depth: int,
) -> TensorMemory:
    """Return the memory of an array, or of the copies of the loops around it in which `touching` run."""
    chain = _chain(plan, touching, depth)
    lanes = _lanes(plan, array, touching)
    storage = plan.layouts.get(tensor)
    size = lambda n: loops.Var(names.of("size", n))  # noqa: E731
    if storage is not None:
        dims, shape = _arranged(storage, axes, _one_box(plan, array, touching, depth)) if depth else (storage.dims, storage.shape)
    else:
        box = _one_box(plan, array, touching, depth)
        sides = zip(axes, box.origin, box.extent, strict=True)
        cell = [(affine.sub(axis, origin), affine.to_expr(extent)) for axis, origin, extent in sides]
        for axis, modulus in plan.folds.get(tensor, ()):
            cell[axis] = (affine.mod(affine.to_expr(axes[axis]), modulus), affine.to_expr(modulus))
        last = _vector_axis(plan, array, touching)
        if last is not None:
            cell.append(cell.pop(last))
        dims, shape = tuple(d for d, _ in cell), tuple(s for _, s in cell)
    if storage is not None and storage.pad:
        shape = (*shape[:-1], affine.add(shape[-1], storage.pad))
    swizzle = storage.swizzle if storage is not None else 0
    if swizzle:
        shape = (*shape[:-1], _whole(shape[-1], swizzle // max(d.size_bytes for d in dtypes)))
    if lanes:
        shape = (*shape, affine.to_expr(lanes))
    shape = tuple(_not_negative(plan, extent) for extent in shape)
    space, align = _space(plan, array, touching, depth, dims, shape, dtypes, storage is not None)
    extents, notes = tuple(to_index(s, size) for s in shape), plan.about_tensors.get(tensor, ())
    asked = tuple(note for note in notes if not isinstance(note, Streamed))  # which the stores of `lower` carry out
    called = [names.fresh(tensor if len(dtypes) == 1 else f"{tensor}.{k}") for k in range(len(dtypes))]
    buffers = tuple(loops.Buffer(n, dtype, extents, space, align, swizzle, asked) for n, dtype in zip(called, dtypes, strict=True))
    return TensorMemory(tensor, buffers, axes, dims, chain, lanes)


def _not_negative(plan: Plan, extent: Affine) -> Affine:
    """Return `extent`, or zero where sizes make it less: a footprint says nothing about sizes at which nobody touches anything."""
    factors, constant = affine.terms(extent)
    if constant >= 0 and all(isinstance(atom, Name) and k > 0 for atom, k in factors.items()):
        return extent
    sizes = plan.program.sizes
    given = affine.conj(plan.program.context, *(affine.compare(">=", size, 0) for size in sizes))
    known = isinstance(implies(sizes, (), given, affine.compare(">=", extent, 0)), Proven)
    return extent if known else affine.maximum(extent, affine.ZERO)


def _whole(extent: Affine, of: int) -> Affine:
    """Return a constant extent, filled up to a multiple of `of`; any other as it is."""
    known = affine.constant(extent)
    return extent if known is None else affine.to_expr(-(-known // of) * of)


def _one_box(plan: Plan, array: str, touching: list[str], depth: int) -> Footprint:
    box = _box(plan, array, touching, depth)
    if box is None:
        raise InternalError("lower", f"copies of loops that share `{array}` touch boxes of which nobody knows how far they lie apart")
    return box


def _box(plan: Plan, array: str, touching: list[str], depth: int) -> Footprint | None:
    """Return the box of `array` that an iteration of the loops that privatise it touches, the same for all copies of those loops, or None
    where there is none."""
    boxes = [footprint(plan.placed, array, copy, depth) for copy in _copies(plan, touching, depth)]
    sides = [_side([(b.origin[k], affine.to_expr(b.extent[k])) for b in boxes]) for k in range(len(boxes[0].origin))]
    known = [side for side in sides if side is not None]
    return Footprint(tuple(origin for origin, _ in known), tuple(extent for _, extent in known)) if len(known) == len(sides) else None


def _arranged(storage: Storage, axes: tuple[str, ...], box: Footprint) -> tuple[tuple[Affine, ...], tuple[Affine, ...]]:
    """Return the dimensions and the shape of a layout for the elements of a box alone.

        [c // 16, h, c % 16] of a box from (c = 16*o, h = 4*t)  ->  [(c - 16*o) // 16, h - 4*t, (c - 16*o) % 16]

    An axis whose origin does not divide like the axis itself is kept whole, and so is a layout that may be the larger for it."""
    moved: dict[str, Affine] = {}
    extents: dict[str, Affine] = {}
    for axis, origin, extent in zip(axes, box.origin, box.extent, strict=True):
        if all(_splits(dim, axis, origin) for dim in storage.dims):
            moved[axis], extents[axis] = affine.sub(axis, origin), affine.to_expr(extent)
    dims, shape = [], []
    for dim, whole in zip(storage.dims, storage.shape, strict=True):
        names = set(affine.names(dim))
        bound = upper_bound(dim, extents) if names <= moved.keys() else None
        known = bound is not None and affine.constant(bound), affine.constant(whole)
        if names and names <= moved.keys() and (bound is None or (isinstance(known[1], int) and (known[0] or 0) > known[1])):
            return storage.dims, storage.shape
        if names & moved.keys() and not names <= moved.keys():
            return storage.dims, storage.shape
        dims.append(affine.substitute(dim, moved))
        shape.append(whole if bound is None else bound)
    return tuple(dims), tuple(shape)


def _splits(e: Affine, axis: str, origin: Affine) -> bool:
    """Tell whether each division of `axis` alone in `e` by a number divides `origin` without a rest; there is no other division."""
    match e:
        case Floor(value, divisor) | Mod(value, divisor):
            if axis not in affine.names(value):
                return True
            terms, constant = affine.terms(origin)
            return value == Name(axis) and constant % divisor == 0 and all(k % divisor == 0 for k in terms.values())
        case _:
            terms, _ = affine.terms(e)
            return all(_splits(atom, axis, origin) for atom in terms if not isinstance(atom, Name))


def _side(sides: list[tuple[Affine, Affine]]) -> tuple[Affine, Affine] | None:
    """Return origin and extent that hold all of `sides`, or None where their origins do not lie constant distances apart."""
    first = sides[0][0]
    if all(affine.same(first, origin) for origin, _ in sides):
        return first, reduce(_greater, (extent for _, extent in sides))
    starts = [affine.difference(origin, first) for origin, _ in sides]
    lengths = [affine.constant(extent) for _, extent in sides]
    known = [(s, n) for s, n in zip(starts, lengths, strict=True) if s is not None and n is not None]
    if len(known) < len(sides):
        return None
    low, high = min(s for s, _ in known), max(s + n for s, n in known)
    return affine.add(first, low), affine.to_expr(high - low)


def _greater(a: Affine, b: Affine) -> Affine:
    known = affine.constant(a), affine.constant(b)
    if known[0] is not None and known[1] is not None:
        return a if known[0] >= known[1] else b
    return a if affine.same(a, b) else Max(a, b)


def _vector_axis(plan: Plan, array: str, touching: list[str]) -> int | None:
    """Return the axis of `array` that most elements are touched along by vector loops, so that it can be stored innermost; the first of
    equals. What is written counts more."""
    along = [(axis, placement, weight) for placement in touching for axis, weight in _axes_of_lanes(plan, array, placement)]
    found = list(dict.fromkeys(axis for axis, _, _ in along))
    if len(found) < 2:
        return found[0] if found else None
    points = {placement: _points(plan, placement) for _, placement, _ in along}
    return max(found, key=lambda axis: sum(weight * points[placement] for other, placement, weight in along if other == axis))


def _axes_of_lanes(plan: Plan, array: str, placement: str) -> Iterator[tuple[int, int]]:
    """Yield, for each access of a placement to `array` along a vector loop, the axis that it is along, and what it counts."""
    nest = plan.placed.nests[placement]
    statement = plan.placed.statements[nest.statement]
    vectors = {loop.name: nest.extent(loop.name) or OPEN_EXTENT for loop in plan.placed.places[placement].loops if loop.mark == "vector"}
    if not vectors:
        return
    exprs = nest.iter_exprs()
    for access, weight in ((statement.write, WRITTEN), *((read, 1) for read in dict.fromkeys(statement.reads))):
        if access.tensor == array:
            slots = enumerate(access.index)
            along = (k for k, e in slots if not isinstance(e, Within) and _moves(affine.substitute(e, exprs), vectors))
            yield from ((k, weight) for k in islice(along, 1))


def _moves(e: Affine, vectors: Mapping[str, int]) -> bool:
    """Tell whether the lanes of vector loops of so many iterations differ in `e`: not in a quotient by as many or more."""
    return any(_is_moved(atom, vectors) for atom in affine.terms(e)[0])


def _is_moved(atom: Affine, vectors: Mapping[str, int]) -> bool:
    match atom:
        case Floor(value, divisor):
            return _moves(value, {loop: extent for loop, extent in vectors.items() if extent > divisor})
        case Max(lhs, rhs) | Min(lhs, rhs):
            return _moves(lhs, vectors) or _moves(rhs, vectors)
        case _:
            return not vectors.keys().isdisjoint(affine.names(atom))


def _points(plan: Plan, placement: str) -> int:
    """Return about how many points a placement runs at."""
    nest = plan.placed.nests[placement]
    return prod(extent if (extent := nest.extent(loop)) is not None else OPEN_EXTENT for loop in nest.loops)


def _lanes(plan: Plan, array: str, touching: list[str]) -> int:
    """Return the extent of the vector loop over which updates of accumulator `array` are spread, or 0."""
    lanes = 0
    for placement in touching:
        nest = plan.placed.nests[placement]
        statement = plan.placed.statements[nest.statement]
        if statement.role == "update" and statement.write.tensor == array:
            lane = lane_loop(plan, placement, statement)
            if lane is not None:
                lanes = max(lanes, nest.extent(lane.name) or 0)
    return lanes


def lane_loop(plan: Plan, placement: str, statement: Statement) -> Loop | None:
    """Return the vector loop around an update that its own cell does not depend on: a reduction over lanes. A loop that privatises the
    cell gives each lane a cell of its own."""
    nest = plan.placed.nests[placement]
    exprs = nest.iter_exprs()
    mentioned: set[str] = set()
    for slot in statement.write.index:
        if not isinstance(slot, Within):
            mentioned |= set(affine.names(affine.substitute(slot, exprs)))
    inner = plan.placed.places[placement].loops[plan.depth[statement.write.tensor] :]
    return next((loop for loop in inner if loop.mark == "vector" and loop.name not in mentioned), None)


def _space(
    plan: Plan,
    array: str,
    touching: list[str],
    depth: int,
    dims: tuple[Affine, ...],
    shape: tuple[Affine, ...],
    dtypes: tuple[DType, ...],
    stored: bool,
) -> tuple[loops.Space, int]:
    extents = [affine.constant(s) for s in shape]
    kept = note_of(plan.about_tensors.get(array, ()), Kept)
    if kept is not None and any(e is None for e in extents):
        title = f"`{array}` cannot be kept in {kept.memory}: how much of it there is is only known at run time"
        raise error("S0219", title, origin_of(kept).directive.span)
    if any(e is None for e in extents):
        return "heap", 64
    if kept is not None and kept.place == "shared":
        return "shared", 64
    count = 1
    for extent in extents:
        count *= extent or 0
    shared = any(loop.mark == "parallel" for p in touching for loop in plan.placed.places[p].loops[depth:])
    small = count <= REGISTER_ELEMENTS and not stored
    at_compile_time = count == 1 or (small and _addressed_at_compile_time(plan, array, touching, depth))
    if at_compile_time and not shared:
        return "registers", 64
    return ("stack" if count * max(d.size_bytes for d in dtypes) <= STACK_BYTES else "heap"), 64


def _addressed_at_compile_time(plan: Plan, array: str, touching: list[str], depth: int) -> bool:
    """Tell whether, inside the loops that privatise `array`, only unrolled and vector loops take part in addressing it."""
    for placement in touching:
        nest = plan.placed.nests[placement]
        statement = plan.placed.statements[nest.statement]
        exprs = nest.iter_exprs()
        marks = {loop.name: loop.mark for loop in plan.placed.places[placement].loops[depth:]}
        for access in (statement.write, *statement.reads):
            if access.tensor != array:
                continue
            for slot in access.index:
                if isinstance(slot, Within):
                    return False
                if any(marks.get(n) in ("serial", "parallel") for n in affine.names(affine.substitute(slot, exprs))):
                    return False
    return True
