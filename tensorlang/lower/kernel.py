"""From a plan to a loop-IR function: scan the schedule, give tensors buffers, write out each statement at its loop point.

    for jo, io:                         registers y_0_acc[8, 32]
        y.0.acc.init          →         for ii unroll, ji vector: y_0_acc[ii, ji] = 0
        for k: y.0.acc        →         for k: for ii unroll, ji vector: y_0_acc[ii, ji] = fma(x[..], w[..], y_0_acc[ii, ji])
        y.0                   →         for ii unroll, ji vector: y[8*io + ii, 32*jo + ji] = b[..] + y_0_acc[ii, ji]

A reduction over the lanes of a vector loop gets one partial result per lane; whoever reads the accumulator combines them first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from codegen.dtypes import DType, bool_, compute_dtype, extreme, f64, i64, limits
from codegen.loops import nodes as loops
from codegen.loops.notes import Streamed, note_of
from polyhedral import affine
from polyhedral import loops as scanned
from polyhedral.expr import TRUE, Cond
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from polyhedral.model import BLOCKS, THREADS
from polyhedral.nest import Nest
from polyhedral.region import footprint
from polyhedral.rewrites import without_rewrites
from polyhedral.scan import scan
from polyhedral.strides import counted
from tensorlang.artifact import Requirement
from tensorlang.diagnostics import InternalError
from tensorlang.lower.index import to_bool, to_index
from tensorlang.lower.memory import TensorMemory, is_flagged, lane_loop, tensor_memory
from tensorlang.lower.names import Names
from tensorlang.lower.prefetch import to_prefetches
from tensorlang.lower.value import Point, bind, components, value
from tensorlang.schedule.plan import Plan
from tensorlang.tensor import nodes as tensor
from tensorlang.tensor import notation
from tensorlang.tensor.facts import index_in, is_one_of
from tensorlang.tensor.scop import Accumulator, StatementInfo
from tensorlang.tensor.types import Types
from tensorlang.tensor.walk import map_children, tensor_table

_STATIC = THREADS | {"unroll", "vector", "tensor", "tile"}
"""Marks of loops whose number of iterations has a constant bound."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """`params`: tensor names in the order of the function's parameters. Code k of the function means `requirements[k - 1]` failed."""

    function: loops.Function
    params: tuple[str, ...]
    requirements: tuple[Requirement, ...]
    given: Cond = TRUE
    """What is known of the sizes of `function`, by its names for them, before it checks anything itself."""
    idle: tuple[str, ...] = ()
    """A sentence for each directive that the loops show to change nothing."""


@dataclass(slots=True)
class _Kernel:
    plan: Plan
    names: Names
    memory: dict[str, TensorMemory]
    dtypes: Mapping[str, DType]
    requirements: list[Requirement] = field(default_factory=list)

    @property
    def buffers(self) -> Mapping[str, DType]:
        return {b.name: b.dtype for known in self.memory.values() for memory in (known, *known.others) for b in memory.buffers}

    def loop(self, name: str) -> loops.Index:
        kind = "size" if name in self.plan.program.sizes else "loop"
        return loops.Var(self.names.of(kind, name))


def lower(plan: Plan, symbol: str) -> Lowered:
    """Return the function that runs `plan`, called `symbol`."""
    plan = replace(plan, placed=counted(plan.placed))
    names = Names()
    table = tensor_table(plan.program)
    for size in plan.program.sizes:
        names.of("size", size)
    found = tensor_memory(plan, names)
    kernel = _Kernel(plan, names, found, {t.name: t.dtype for t in table.values()})
    body: list[loops.Stmt] = [*_entry_checks(kernel)]
    body += _allocations(kernel, (), tuple(plan.placed.places))
    body += _block(kernel, _scanned(plan), ())
    params = (*(p.name for p in plan.program.params), *plan.program.results)
    buffers = tuple(found[p].buffers[0] for p in params)
    written = frozenset(found[r].buffers[0].name for r in plan.program.results)
    sizes = tuple(names.of("size", s) for s in plan.program.sizes)
    function = loops.Function(symbol, sizes, buffers, tuple(body), written)
    given = affine.substitute_cond(plan.assumed, {size: AffineName(names.of("size", size)) for size in plan.program.sizes})
    return Lowered(function, params, tuple(kernel.requirements), given)


# ---------------------------------------------------------------- structure


def _scanned(plan: Plan) -> tuple[scanned.Node, ...]:
    """Return the loops of a plan. Where threads of a graphics processor run them, whole tiles get no loops apart from those at the edges:
    threads that follow each other would part."""
    bound = any(loop.mark in BLOCKS | THREADS for place in plan.placed.places.values() for loop in place.loops)
    placed = without_rewrites(plan.placed, _steps(plan))
    return scan(placed, max_separated=0) if bound else scan(placed)


def _steps(plan: Plan) -> dict[str, tuple[int, int]]:
    """Return tensors that are kept for several steps along one axis, and lie as they are defined otherwise, with that axis and how many."""
    found = {t: folds[0] for t, folds in plan.folds.items() if len(folds) == 1 and folds[0][1] > 1}
    return {t: fold for t, fold in found.items() if t not in plan.layouts and not plan.depth.get(t, 0)}


def _block(kernel: _Kernel, nodes: tuple[scanned.Node, ...], open_loops: tuple[str, ...]) -> list[loops.Stmt]:
    out: list[loops.Stmt] = []
    for node in nodes:
        match node:
            case scanned.Run(placement):
                out += _statement(kernel, placement)
            case scanned.If(cond, body):
                out.append(loops.If(to_bool(cond, kernel.loop), tuple(_block(kernel, body, open_loops))))
            case scanned.For(name, lo, hi, mark, extent, body):
                inner = (*open_loops, name)
                stmts = (*_allocations(kernel, inner, _placements(body)), *_prefetches(kernel, node, inner), *_block(kernel, body, inner))
                var = kernel.names.of("loop", name)
                if mark in _STATIC:
                    extent = _declared_extent(kernel, node) if extent is None else extent
                    if extent is None:
                        raise InternalError("lower", f"the {mark} loop `{name}` has no constant extent")
                bounds = to_index(lo, kernel.loop), to_index(hi, kernel.loop)
                out.append(loops.For(var, *bounds, stmts, mark, extent, kernel.plan.about_loops.get(name, ())))
    return out


def _prefetches(kernel: _Kernel, loop: scanned.For, open_loops: tuple[str, ...]) -> list[loops.Stmt]:
    """Return what `loop`, the innermost of `open_loops`, asks for at the beginning of each iteration."""
    plan, out = kernel.plan, []
    for prefetch in plan.prefetches:
        asks = prefetch.at == loop.name and prefetch.loop in open_loops
        readers = _readers(plan, prefetch.tensor, loop.body) if asks else []
        if readers:
            box = footprint(plan.placed, prefetch.tensor, readers, open_loops.index(prefetch.loop) + 1)
            out += to_prefetches(prefetch, kernel.memory[prefetch.tensor], box, kernel.loop, kernel.names.fresh)
    return out


def _readers(plan: Plan, tensor: str, nodes: tuple[scanned.Node, ...]) -> list[str]:
    """Return the placements in `nodes` that read `tensor`, in order."""
    reading = (
        p for p in _placements(nodes) if any(a.tensor == tensor for a in plan.placed.statements[plan.placed.nests[p].statement].reads)
    )
    return list(dict.fromkeys(reading))


def _declared_extent(kernel: _Kernel, loop: scanned.For) -> int | None:
    """Return how far it is from the first to the last value of `loop` in all that it runs, or None where one has no constant range. Of an
    unrolled loop that begins at a constant, it is as far as from there: no copy of its body is for a value that nothing has."""
    nests = [kernel.plan.placed.nests[placement] for placement in _placements(loop.body)]
    ends = [nest.ends(loop.name) for nest in nests if nest.extent(loop.name) != 0]
    known = [pair for pair in ends if pair is not None]
    if len(known) < len(ends):
        return None
    if not known:
        return 0
    begin = affine.constant(loop.lo) if loop.mark == "unroll" else None
    first = min(first for first, _ in known)
    return max(0, max(last for _, last in known) - (first if begin is None else max(first, begin)) + 1)


def _placements(nodes: tuple[scanned.Node, ...]) -> list[str]:
    """Return the placements that `nodes` run."""
    found: list[str] = []
    for node in nodes:
        match node:
            case scanned.Run(placement):
                found.append(placement)
            case scanned.If(body=body) | scanned.For(body=body):
                found += _placements(body)
            case _:
                assert_never(node)
    return found


def _allocations(kernel: _Kernel, open_loops: tuple[str, ...], running: Sequence[str]) -> list[loops.Stmt]:
    """Return the buffers that are private to the innermost of `open_loops`, in which the placements `running` run."""
    every = (memory for known in kernel.memory.values() for memory in (known, *known.others))
    used = (m for m in every if m.chain == open_loops and (not m.placements or not m.placements.isdisjoint(running)))
    here = dict.fromkeys(b for memory in used for b in memory.buffers)
    return [loops.Alloc(buffer) for buffer in here if buffer.space != "param"]


def _entry_checks(kernel: _Kernel) -> list[loops.Stmt]:
    """Return what checks the sizes that the schedule relies on, and loops that check every element of the inputs declared `in lo..hi`."""
    out: list[loops.Stmt] = []
    for requirement in kernel.plan.requirements:
        code = _code(kernel, "", f"its schedule says `{requirement.written}`, and that does not hold")
        out.append(loops.Require(to_bool(requirement.cond, kernel.loop), code))
    for param in kernel.plan.program.params:
        if param.declared_range is None:
            continue
        lo, hi = param.declared_range
        memory = kernel.memory[param.name]
        variables = {axis: kernel.names.fresh(f"{param.name}_{axis}") for axis in memory.axes}
        index = tuple(to_index(affine.substitute(d, {a: AffineName(v) for a, v in variables.items()}), _sized(kernel)) for d in memory.dims)
        # An element is compared as what holds it and its bounds: no float is cut to an integer, and a NaN is in no range.
        wide = f64 if param.dtype.is_float else i64
        load: loops.Expr = loops.Load(memory.buffers[0].name, index)
        computed = compute_dtype(param.dtype)
        element = loops.Cast(wide, load if computed == param.dtype else loops.Cast(computed, load))
        ends = (loops.IndexValue(to_index(e, kernel.loop)) for e in (lo, hi))
        bounds = [loops.Cast(wide, e) if param.dtype.is_float else e for e in ends]
        inside = loops.Binary("and", loops.Compare(">=", element, bounds[0]), loops.Compare("<", element, bounds[1]))
        code = _code(
            kernel, param.name, f"`{param.name}` is declared in {notation.show(lo)}..{notation.show(hi)}, and an element lies outside"
        )
        stmt: loops.Stmt = loops.Require(inside, code)
        for axis, extent in reversed(list(zip(memory.axes, param.shape, strict=True))):
            stmt = loops.For(variables[axis], loops.Int(0), to_index(extent, kernel.loop), (stmt,))
        out.append(stmt)
    return out


def _sized(kernel: _Kernel):  # type: ignore[no-untyped-def]  # the Names callable of lower.index
    return lambda name: kernel.loop(name) if name in kernel.plan.program.sizes else loops.Var(name)


def _code(kernel: _Kernel, name: str, text: str) -> int:
    requirement = Requirement(name, text)
    if requirement not in kernel.requirements:
        kernel.requirements.append(requirement)
    return kernel.requirements.index(requirement) + 1


# ---------------------------------------------------------------- statements


def _statement(kernel: _Kernel, placement: str) -> list[loops.Stmt]:
    plan = kernel.plan
    nest = plan.placed.nests[placement]
    info = plan.stages.statements[nest.statement]
    iters = nest.iter_exprs()
    lane = lane_loop(plan, placement, plan.placed.statements[nest.statement]) if info.phase == "update" else None
    point = Point(
        iters=iters,
        names=kernel.loop,
        types=Types(kernel.dtypes),
        element=lambda name, slots, at: _element(kernel, placement, name, slots, at),
        reductions={},
        fresh=kernel.names.fresh,
    )
    match info.phase:
        case "init":
            return _init(kernel, info, placement, point)
        case "update":
            return _update(kernel, info, placement, point, _lane_number(kernel, nest, lane.name) if lane else None)
        case "define":
            return _define(kernel, info, placement, point)


def _element(kernel: _Kernel, placement: str, name: str, slots: tuple[tensor.Slot, ...], point: Point) -> loops.Load:
    """Return the load of an element, with a run-time check before it for an index that nothing is known about."""
    memory = kernel.memory[name].of(placement)
    extents = dict(zip(memory.axes, tensor_table(kernel.plan.program)[name].shape, strict=True))
    parts: dict[str, loops.Index] = {}
    for axis, slot in zip(memory.axes, slots, strict=True):
        if isinstance(slot, tensor.Dynamic):
            computed = value(slot.value, point)
            index: loops.Index = loops.ValueIndex(computed)
            if slot.lo is None or slot.hi is None:
                at = loops.Cast(i64, computed)
                bound = loops.IndexValue(to_index(extents[axis], kernel.loop))
                inside = loops.Binary("and", loops.Compare(">=", at, loops.Const(0, i64)), loops.Compare("<", at, bound))
                code = _code(kernel, name, f"`{name}` is read at indices from data, and one lies outside 0..{notation.show(extents[axis])}")
                point.before.append(loops.Require(_wherever(point.path, inside), code))
        else:
            index = point.index(slot)
        parts[axis] = index
    names = lambda n: parts[n] if n in parts else kernel.loop(n)  # noqa: E731
    return loops.Load(memory.buffers[0].name, tuple(to_index(d, names) for d in memory.dims))


def _wherever(path: tuple[loops.Expr, ...], cond: loops.Expr) -> loops.Expr:
    """Return `cond`, asked for where all of `path` holds."""
    for outer in reversed(path):
        cond = loops.Binary("or", loops.Unary("not", outer), cond)
    return cond


def _cell(kernel: _Kernel, memory: TensorMemory, cell: tuple[Affine, ...], point: Point) -> tuple[loops.Index, ...]:
    """Return the address of a tensor's element, over the statement's own axes."""
    parts = {h: point.index(e) for h, e in zip(memory.axes, cell, strict=True)}
    names = lambda n: parts[n] if n in parts else kernel.loop(n)  # noqa: E731
    return tuple(to_index(d, names) for d in memory.dims)


def _start(acc: Accumulator) -> tuple[tensor.Expr, ...]:
    """Return what an accumulator holds before its first update. Without identity and initial value that is never seen: `min` and `max`
    start from their limit, others from zeros, with the flag that `is_flagged` speaks of unset."""
    reduce = acc.reduce
    if reduce.init is not None:
        return reduce.init
    return _neutral(reduce.reducer)


def _neutral(reducer: tensor.Reducer) -> tuple[tensor.Expr, ...]:
    if reducer.identity is not None:
        return reducer.identity
    dtypes = [compute_dtype(t) for t in reducer.dtypes]
    if reducer.kind in ("min", "max"):
        return (tensor.Const(extreme(dtypes[0], highest=reducer.kind == "min"), dtypes[0]),)
    return tuple(tensor.Const(t.zero, t) for t in dtypes)


def _init(kernel: _Kernel, info: StatementInfo, placement: str, point: Point) -> list[loops.Stmt]:
    acc = info.accumulator
    assert acc is not None
    memory = kernel.memory[acc.name].of(placement)
    cell = _cell(kernel, memory, acc.cell, point)
    values = [value(e, point) for e in (_neutral(acc.reduce.reducer) if memory.lanes else _start(acc))]
    if is_flagged(acc, memory.lanes):
        values.append(loops.Const(False, bool_))
    if memory.lanes:
        lane = kernel.names.fresh("lane")
        stores = tuple(loops.Store(b.name, (*cell, loops.Var(lane)), v) for b, v in zip(memory.buffers, values, strict=True))
        return [*point.before, loops.For(lane, loops.Int(0), loops.Int(memory.lanes), stores, "vector", memory.lanes)]
    return [*point.before, *(loops.Store(b.name, cell, v) for b, v in zip(memory.buffers, values, strict=True))]


def _lane_number(kernel: _Kernel, nest: Nest, lane: str) -> loops.Index:
    """Return the lane at hand, counted from 0."""
    ends = nest.ends(lane)
    if ends is None:
        raise InternalError("lower", f"the vector loop `{lane}` has no constant range")
    return loops.Add(kernel.loop(lane), loops.Int(-ends[0])) if ends[0] else kernel.loop(lane)


def _update(kernel: _Kernel, info: StatementInfo, placement: str, point: Point, lane: loops.Index | None) -> list[loops.Stmt]:
    acc = info.accumulator
    assert acc is not None
    memory = kernel.memory[acc.name].of(placement)
    reducer = acc.reduce.reducer
    cell = _cell(kernel, memory, acc.cell, point)
    if memory.lanes:  # updates outside of vectors add to the first lane
        cell = (*cell, lane or loops.Int(0))
    olds = tuple(loops.Load(b.name, cell) for b in memory.buffers)
    flagged = is_flagged(acc, memory.lanes)
    if flagged:
        reducer = _in_ascending_order(kernel, acc, placement)
    stmts = _combine(kernel, reducer, olds, acc.reduce.body, point, memory, cell, flagged)
    if acc.reduce.filter is not None:
        test = Point(point.iters, point.names, point.types, point.element, {}, point.fresh)
        cond = value(acc.reduce.filter, test)
        return [*test.before, loops.If(cond, (*point.before, *stmts))]
    return [*point.before, *stmts]


def _in_ascending_order(kernel: _Kernel, acc: Accumulator, placement: str) -> tensor.Reducer:
    """Return the reducer of an accumulator with what is known of indices that it keeps, those of terms before the one at hand: where terms
    come in the order of such an index, the one that is kept is less."""
    reducer, plan = acc.reduce.reducer, kernel.plan
    nests = plan.placed.nests
    updates = [p for p in plan.placed.accessing(acc.name) if plan.placed.statements[nests[p].statement].role == "update"]
    if updates != [placement]:
        return reducer
    less: dict[tensor.Expr, bool] = {}
    for e, old, new, combined in zip(acc.reduce.body, reducer.left, reducer.right, reducer.combine, strict=True):
        if is_one_of(combined, old, new) and _grows(e, nests[placement], acc.cell):
            less |= {tensor.Compare(op, tensor.Name(old), tensor.Name(new)): holds for op, holds in _WHERE_LESS.items()}

    def decided(e: tensor.Expr) -> tensor.Expr:
        return tensor.Const(less[e], bool_) if e in less else map_children(decided, e)

    return replace(reducer, combine=tuple(map(decided, reducer.combine))) if less else reducer


def _grows(e: tensor.Expr, nest: Nest, cell: tuple[Affine, ...]) -> bool:
    """Tell whether a value is an index that is known to be greater for each later term of a cell, in its type too."""
    index = index_in(e)
    return index is not None and nest.grows(index, cell) and (not isinstance(e, tensor.Cast) or nest.keeps(index, *limits(e.dtype)))


_WHERE_LESS: dict[loops.CompareOp, bool] = {"<": True, "<=": True, "!=": True, ">": False, ">=": False, "==": False}
"""What comparisons come to where the left side is less than the right."""


def _combine(
    kernel: _Kernel,
    reducer: tensor.Reducer,
    olds: tuple[loops.Expr, ...],
    body: tuple[tensor.Expr, ...],
    point: Point,
    memory: TensorMemory,
    cell: tuple[loops.Index, ...],
    flagged: bool,
) -> list[loops.Stmt]:
    """Return the stores of the combination of `olds` with the values of `body`; the first value is taken as it is where a flag says so."""
    if reducer.kind is not None and len(olds) == 1:
        return [loops.Store(memory.buffers[0].name, cell, _combined(kernel, reducer, olds[0], body[0], point))]
    new = _named(kernel, "new", [value(e, point) for e in body], point)
    old = _named(kernel, "old", olds, point)
    results = _reduced(kernel, reducer, old, [*new, loops.Const(True, bool_)] if flagged else new, point)
    return [loops.Store(b.name, cell, v) for b, v in zip(memory.buffers, results, strict=True)]


def _named(kernel: _Kernel, prefix: str, values: Sequence[loops.Expr], point: Point) -> list[loops.Expr]:
    """Return names for values, which are computed before what stands at `point`."""
    names = [kernel.names.fresh(f"{prefix}{k}") for k in range(len(values))]
    point.before += map(loops.Let, names, values)
    return [loops.Name(name) for name in names]


def _reduced(
    kernel: _Kernel, reducer: tensor.Reducer, old: Sequence[loops.Expr], new: Sequence[loops.Expr], point: Point
) -> list[loops.Expr]:
    """Return two accumulators combined. Where they have one component more than the reducer, it is the flag that says whether they hold a
    value yet."""
    count = len(reducer.dtypes)
    point.values.update(zip(reducer.left, old[:count], strict=True))
    point.values.update(zip(reducer.right, new[:count], strict=True))
    point.types = point.types.bind((*reducer.left, *reducer.right), (*reducer.dtypes, *reducer.dtypes))
    results = [value(e, point) for e in reducer.combine]
    if len(old) == count:
        return _named(kernel, "both", results, point)
    is_old, is_new = old[count], new[count]
    results = [_chosen(is_old, _chosen(is_new, both, o), n) for both, o, n in zip(results, old, new, strict=False)]
    return [*_named(kernel, "both", results, point), is_new if is_new == _TRUE else loops.Binary("or", is_old, is_new)]


_TRUE = loops.Const(True, bool_)


def _chosen(cond: loops.Expr, then: loops.Expr, orelse: loops.Expr) -> loops.Expr:
    return then if cond == _TRUE else loops.Select(cond, then, orelse)


def _combined(kernel: _Kernel, reducer: tensor.Reducer, old: loops.Expr, body: tensor.Expr, point: Point) -> loops.Expr:
    """Return an accumulator with a term taken into it; a product that is added is rounded together with the sum."""
    assert reducer.kind is not None
    if isinstance(body, tensor.Let):
        bind(body.name, body.value, point)
        return _combined(kernel, reducer, old, body.body, point)
    is_float = compute_dtype(reducer.dtypes[0]).is_float
    if reducer.kind == "sum" and is_float and kernel.plan.program.mode != "strict" and isinstance(body, tensor.Binary) and body.op == "*":
        return loops.Fma(value(body.lhs, point), value(body.rhs, point), old)
    return loops.Binary(tensor.OPERATIONS[reducer.kind], old, value(body, point))


def _define(kernel: _Kernel, info: StatementInfo, placement: str, point: Point) -> list[loops.Stmt]:
    definition = info.definition
    primary = definition.tensors[0].name
    accs = kernel.plan.stages.accumulators[primary, info.piece]
    before: list[loops.Stmt] = []
    reductions: dict[tensor.Reduce, tuple[loops.Expr, ...]] = {}
    for acc in accs:
        memory = kernel.memory[acc.name].of(placement)
        cell = _cell(kernel, memory, acc.cell, point)
        if memory.lanes:
            made, results_of_lanes = _across_lanes(kernel, acc, memory, cell, point)
            before += [*point.before, *made]  # what it starts from may be read at an index that is checked
            point.before.clear()
            reductions[acc.reduce] = results_of_lanes
        else:
            reductions[acc.reduce] = tuple(loops.Load(b.name, cell) for b in memory.buffers[: len(acc.reduce.reducer.dtypes)])
    point.reductions = reductions
    results = components(definition.pieces[info.piece].value, point)
    stores: list[loops.Stmt] = []
    for made_tensor, result in zip(definition.tensors, results, strict=True):
        memory = kernel.memory[made_tensor.name].of(placement)
        stored = _narrowed(kernel, made_tensor.dtype, result)
        stream = note_of(kernel.plan.about_tensors.get(made_tensor.name, ()), Streamed) is not None
        cell = _cell(kernel, memory, tuple(map(AffineName, definition.axes)), point)
        if stored != loops.Load(memory.buffers[0].name, cell):
            stores.append(loops.Store(memory.buffers[0].name, cell, stored, stream))
    if len(stores) > 1:
        stores = _all_before_storing(kernel, stores, point)
    return [*before, *point.before, *stores]


def _narrowed(kernel: _Kernel, dtype: DType, result: loops.Expr) -> loops.Expr:
    """Return `result` as an element of `dtype`; an element of that type that was only widened is taken as it is."""
    if compute_dtype(dtype) == dtype:
        return result
    match result:
        case loops.Cast(_, loops.Load(buffer) as load) if kernel.buffers[buffer] == dtype:
            return load
        case _:
            return loops.Cast(dtype, result)


def _all_before_storing(kernel: _Kernel, stores: list[loops.Stmt], point: Point) -> list[loops.Stmt]:
    out: list[loops.Stmt] = []
    for store in stores:
        assert isinstance(store, loops.Store)
        name = kernel.names.fresh("result")
        point.before.append(loops.Let(name, store.value))
        out.append(replace(store, value=loops.Name(name)))
    return out


def _across_lanes(
    kernel: _Kernel, acc: Accumulator, memory: TensorMemory, cell: tuple[loops.Index, ...], point: Point
) -> tuple[list[loops.Stmt], tuple[loops.Expr, ...]]:
    """Return statements that combine the partial results of all lanes, and where the results are."""
    reducer, called = acc.reduce.reducer, kernel.names.fresh
    totals = [loops.Buffer(called("total"), b.dtype, (), "registers", b.dtype.size_bytes) for b in memory.buffers]
    start = [value(e, point) for e in _start(acc)]
    if is_flagged(acc, memory.lanes):
        start.append(loops.Const(acc.reduce.init is not None, bool_))
    made: list[loops.Stmt] = [loops.Alloc(t) for t in totals]
    made += (loops.Store(t.name, (), v) for t, v in zip(totals, start, strict=True))
    lane, count = called("lane"), loops.Int(memory.lanes)
    partials = [loops.Load(b.name, (*cell, loops.Var(lane))) for b in memory.buffers]
    results = tuple(loops.Load(t.name, ()) for t in totals)
    if reducer.kind is not None:
        combined = loops.Binary(tensor.OPERATIONS[reducer.kind], results[0], partials[0])
        made.append(loops.For(lane, loops.Int(0), count, (loops.Store(totals[0].name, (), combined),), "vector", memory.lanes))
        return made, results
    # One after the other, from memory: registers are not indexed.
    rows = [loops.Buffer(called("lanes"), b.dtype, (count,), "stack", 64) for b in memory.buffers]
    made += map(loops.Alloc, rows)
    copies = tuple(loops.Store(r.name, (loops.Var(lane),), p) for r, p in zip(rows, partials, strict=True))
    made.append(loops.For(lane, loops.Int(0), count, copies, "vector", memory.lanes))
    inside = Point(point.iters, point.names, point.types, point.element, {}, point.fresh)
    turn = called("lane")
    old = _named(kernel, "old", results, inside)
    new = _named(kernel, "new", [loops.Load(r.name, (loops.Var(turn),)) for r in rows], inside)
    both = _reduced(kernel, reducer, old, new, inside)
    stores = (loops.Store(t.name, (), v) for t, v in zip(totals, both, strict=True))
    made.append(loops.For(turn, loops.Int(0), count, (*inside.before, *stores)))
    return made, results[: len(reducer.dtypes)]
