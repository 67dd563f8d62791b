"""From a loop-IR function to LLVM IR text.

    i32 name(ptr args, ptr workspace)      args: one 8-byte slot per buffer (its address), then one per size
                                           result: 0, or the code of the `Require` that failed

The emitter, not LLVM, vectorizes, unrolls and keeps register buffers in SSA values: the body of a vector loop is evaluated once for all
lanes, the body of an unrolled loop once per copy, and a serial loop carries the register cells that it changes.

The kernel loads its arguments and calls an internal function whose parameters are `noalias`. The body of a parallel loop becomes another
such function, run by the pool (`tl_parallel`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import assert_never

from codegen.intrinsics import Intrinsic
from codegen.llvm import arithmetic, memory, registers, tiles
from codegen.llvm.branches import fork
from codegen.llvm.builder import Builder, Text, quoted
from codegen.llvm.emitted import Emitted
from codegen.llvm.expressions import address, is_heavy, masked, poly, row_major, value
from codegen.llvm.facts import Atom, Poly
from codegen.llvm.fills import checked, filled, in_vectors, range_checked
from codegen.llvm.frame import LINE, LOOP, Emitter, Module, chunk, entry, identifier, letters, pointer_parameter, with_prologue
from codegen.llvm.interleave import Interleaved, interleaved_buffer
from codegen.llvm.masks import first_lanes, positive
from codegen.llvm.register_transpose import MOST_COPIES, Copies, read_across
from codegen.llvm.state import EmitError, Lanes, Memory, Registers, Scope, State, Storage
from codegen.llvm.straight_line import allocate, finish_streams, keep_running, require, store
from codegen.llvm.target import Target
from codegen.llvm.values import Literal, Value
from codegen.llvm.workspace import plan
from codegen.loops.bit_counts import with_bit_counts
from codegen.loops.chain_registers import chains_in_vectors
from codegen.loops.collapse import nested, part
from codegen.loops.conditional_terms import with_conditional_terms
from codegen.loops.late_choices import with_late_choices
from codegen.loops.narrow import narrowed
from codegen.loops.nodes import (
    Alloc,
    Barrier,
    Binary,
    Boxes,
    Commit,
    Compare,
    Const,
    Expr,
    For,
    Function,
    If,
    Index,
    IndexValue,
    Int,
    Let,
    Load,
    LoadMatrix,
    Mma,
    Name,
    Prefetch,
    Producer,
    Reclaim,
    Release,
    Require,
    Stmt,
    Store,
    ValueIndex,
    Var,
    Wait,
    WaitBoxes,
)
from codegen.loops.notes import Begins
from codegen.loops.partial_results import with_partial_results
from codegen.loops.pinned import only_iteration
from codegen.loops.places import with_places
from codegen.loops.running_lanes import with_running_lanes
from codegen.loops.running_results import RunningResult, running_results
from codegen.loops.searches import loop_condition, with_searches
from codegen.loops.tiles import plain, without_tiles
from codegen.loops.value_ranges import value_ranges
from codegen.loops.walk import free_vars, names, noted_buffers, stores, substitute_index, walk
from codegen.polynomials import ONE, ZERO, atom_poly, number

POOL_ENTRY = "tl_parallel"
NOTHING: Mapping[str, RunningResult] = MappingProxyType({})


def emit(function: Function, target: Target, intrinsics: tuple[Intrinsic, ...] = (), record: Emitted | None = None) -> str:
    """Return the LLVM IR of `function` for `target`, which has the `intrinsics` and uses them where they fit; `record` is told about it.

    Raises EmitError for what code generation does not do, and the auditing event `tensorlang.emit` with the target."""
    sys.audit("tensorlang.emit", target)
    function = for_target(_without_own_copies(function if tiles.has_all(function, target.features) else without_tiles(function)), target)
    module = Module(target, plan(function), intrinsics, record=record)
    _kernel(module, function)
    return module.text()


def for_target(function: Function, target: Target) -> Function:
    """Return `function` as it is emitted: integers as narrow, and what loops collect and carry in as many lanes, as is best there."""
    function = with_running_lanes(with_partial_results(narrowed(with_searches(with_places(function))), target.lanes), target.lanes)
    function = with_conditional_terms(function)
    function = with_late_choices(chains_in_vectors(function) if target.has("sse4.1") else function)
    return with_bit_counts(function)


def _without_own_copies(function: Function) -> Function:
    """Return the function without copies of rows to the parameters that these lie in."""
    home = {buffer.name: note.parameter for buffer, note in noted_buffers(Begins, *function.body)}

    def kept(s: Stmt) -> tuple[Stmt, ...]:
        match s:
            case Store(copy, index, Load(buffer, (Int(0), *point))) if home.get(buffer) == copy and point == [*index]:
                return ()
            case For(body=body):
                left = tuple(x for inner in body for x in kept(inner))
                return (replace(s, body=left),) if left else ()
            case If(_, then, orelse):
                parts = [tuple(x for inner in part for x in kept(inner)) for part in (then, orelse)]
                return (replace(s, then=parts[0], orelse=parts[1]),) if any(parts) else ()
            case _:
                return (s,)

    return replace(function, body=tuple(x for s in function.body for x in kept(s))) if home else function


# ---------------------------------------------------------------- functions


def _kernel(module: Module, function: Function) -> None:
    """Write the function. Where it writes past the caches, which takes whole aligned lines, to buffers whose address is not known to be
    aligned, there are two bodies, and the entry looks at the addresses."""
    streamed = {s.buffer for s in stores(*function.body) if s.stream}
    unaligned = [k for k, p in enumerate(function.params) if p.name in streamed and p.align % LINE]
    plain = _body(module, function, "body")
    aligned = plain
    if unaligned:
        params = tuple(replace(p, align=LINE) if k in unaligned else p for k, p in enumerate(function.params))
        aligned = _body(module, replace(function, params=params), "aligned")
    module.functions.append(entry(function, plain, aligned, unaligned))


def _body(module: Module, function: Function, suffix: str) -> str:
    """Write the function's body and return its name."""
    b = Builder(module.target, module.declarations, intrinsics=module.intrinsics)
    written = function.written | {s.buffer for s in stores(*function.body)}
    emitter = Emitter(
        module,
        State(b, module.record),
        function.name,
        shares_work=any(isinstance(n, For) and n.kind == "parallel" for n in walk(*function.body)),
        inputs={p.name: p for p in function.params if p.name not in written},
    )
    sizes = {name: f"%n{i}.{identifier(name)}" for i, name in enumerate(function.sizes)}
    named = {name: b.facts.add(Atom(text, 0, i, lower=(ZERO,))) for i, (name, text) in enumerate(sizes.items())}
    scope = Scope(vars=named, ranges=value_ranges(function))
    pointers = {buffer.name: f"%b{i}.{identifier(buffer.name)}" for i, buffer in enumerate(function.params)}
    b.start("entry")
    buffers: dict[str, Storage] = {}
    for uid, buffer in enumerate(function.params):
        shape = tuple(poly(emitter.state, extent, scope) for extent in buffer.shape)
        buffers[buffer.name] = Memory(uid, buffer, pointers[buffer.name], 0, row_major(shape))
    emitter.state.next_uid = len(buffers)
    _block(emitter, function.body, replace(scope, buffers=buffers))
    finish_streams(emitter, function.body)
    tiles.release(emitter)
    b.write("ret i32 0")
    params = [pointer_parameter(p, pointers[p.name], p.name not in written) for p in function.params]
    params += [f"i64 {text}" for text in sizes.values()] + ["ptr noalias align 64 %workspace"]
    body = quoted(f"{function.name}.{suffix}")
    module.functions.append(f"define internal i32 @{body}({', '.join(params)}) #0 {{\n{with_prologue(b)}\n}}\n")
    return body


# ---------------------------------------------------------------- statements


def _block(e: Emitter, block: tuple[Stmt, ...], scope: Scope, collected: Mapping[str, RunningResult] = NOTHING) -> None:
    """Write statements one after the other; `collected` are the running results of the vector loop whose body they are."""
    for i, stmt in enumerate(block):
        match stmt:
            case Let(name) if name in collected:
                scope = replace(scope, lets={**scope.lets, name: keep_running(e, collected[name], scope)})
            case Store(value=Name(name)) if name in collected and stmt == collected[name].kept:
                pass
            case Let(name, bound):
                scope = replace(scope, lets={**scope.lets, name: value(e.state, bound, scope)})
            case Alloc(buffer):
                own = frozenset(s.buffer.name for s in block[:i] if isinstance(s, Alloc))
                found = tiles.allocate(e, stmt, block[i + 1 :], own, scope) if buffer.space == "tiles" else None
                scope = replace(scope, buffers={**scope.buffers, buffer.name: found or allocate(e, stmt, block[i + 1 :], scope)})
            case For():
                _loop(e, stmt, scope)
                scope = _after_check(e, stmt, scope)
            case Store():
                store(e, stmt, scope)
            case If(cond, then, orelse):
                _if(e, value(e.state, cond, scope), then, orelse, scope, _with_known_sizes(e, cond, scope))
            case Prefetch(name, index, write, locality):
                storage = scope.buffers[name]
                if isinstance(storage, Memory):
                    memory.prefetch(e.state, storage, address(e.state, storage, index, scope), scope, write, locality)
            case Require(cond, code):
                if not scope.ranges.holds(cond):
                    require(e, value(e.state, cond, scope), code, scope)
                scope = _after_check(e, stmt, scope)
            case Barrier() | Commit() | Wait() | LoadMatrix() | Mma() | Boxes() | WaitBoxes() | Release() | Reclaim() | Producer():
                raise EmitError("what threads do together needs a graphics processor")
            case _:
                assert_never(stmt)


def _after_check(e: Emitter, s: Stmt, scope: Scope) -> Scope:
    """Return the scope of what follows a statement, in which the elements are known that it has checked."""
    found = range_checked(s, e.inputs, scope.elements) if scope.lanes is None and scope.guard is None else None
    return scope if found is None else replace(scope, elements={**scope.elements, found[0]: found[1:]})


# ---------------------------------------------------------------- branches


def _if(e: Emitter, cond: Value, then: tuple[Stmt, ...], orelse: tuple[Stmt, ...], scope: Scope, where_so: Scope) -> None:
    """Write both sides of a condition, the first in the scope `where_so`."""
    if isinstance(cond, Literal):
        _block(e, then if cond.number else orelse, scope)
        return
    if not cond.lanes:
        fork(e, cond.text, lambda: _block(e, then, where_so), (lambda: _block(e, orelse, scope)) if orelse else None)
        return
    for side, holds in ((then, cond), (orelse, arithmetic.negated(e.b, cond))):
        if not side:
            continue
        inner = masked(e.state, holds, scope)
        if inner.guard is None or all(_is_cheap(s, scope) for s in side):
            _block(e, side, inner)
            continue
        # Inside, some lane takes part: what all lanes share may be read.
        fork(e, inner.guard, lambda side=side, inner=inner: _block(e, side, replace(inner, guard=None)), None)  # type: ignore[misc]


def _with_known_sizes(e: Emitter, cond: Expr, scope: Scope) -> Scope:
    """Return the scope where a condition holds: extents of parameters that it says to be numbers are these."""
    params = {name: m for name, m in scope.buffers.items() if isinstance(m, Memory) and m.buffer.space == "param"}
    sizes = frozenset().union(*(free_vars(*m.buffer.shape) for m in params.values()))
    known = {name: n for name, n in _equalities(cond) if name in sizes}
    if not known:
        return scope
    env = {name: Int(n) for name, n in known.items()}
    scope = replace(scope, vars=scope.vars | {name: number(n) for name, n in known.items()})
    for name, found in params.items():
        buffer = replace(found.buffer, shape=tuple(substitute_index(extent, env) for extent in found.buffer.shape))
        params[name] = replace(found, buffer=buffer, strides=row_major(tuple(poly(e.state, extent, scope) for extent in buffer.shape)))
    return replace(scope, buffers=scope.buffers | params)


def _equalities(cond: Expr) -> Iterator[tuple[str, int]]:
    """Yield the variables that equal a number wherever a condition holds, with that."""
    match cond:
        case Binary("and", lhs, rhs):
            yield from _equalities(lhs)
            yield from _equalities(rhs)
        case Compare("==", IndexValue(Var(name)), Const(int(n))):
            yield name, n
        case _:
            pass


def _is_cheap(s: Stmt, scope: Scope) -> bool:
    """Tell whether to execute `s` for no lane costs less than to ask whether there is any: what it stores stays in registers."""
    if not isinstance(s, Store) or not isinstance(scope.buffers.get(s.buffer), Registers):
        return False
    return not is_heavy(s.value) and not any(isinstance(n, ValueIndex) for n in walk(s))


# ---------------------------------------------------------------- loops


def _loop(e: Emitter, loop: For, scope: Scope) -> None:
    only = only_iteration(loop) if loop.kind == "serial" and scope.lanes is None else None
    if only is not None:
        _once(e, loop, *only, scope)
        return
    lo, hi = poly(e.state, loop.lo, scope), poly(e.state, loop.hi, scope)
    if e.b.facts.at_most(hi - lo, 0):
        return
    match loop.kind:
        case "unroll" | "tensor":
            _unroll(e, loop, lo, hi, scope)
        case "vector":
            _vector(e, loop, lo, hi, scope)
        case "parallel" if not scope.parallel and scope.lanes is None and (hi - lo).constant != 1:
            _parallel(e, loop, lo, hi, scope)
        case "tile":
            if not tiles.nest(e, loop, scope):
                _loop(e, plain(loop), scope)
        case "serial" if (lanes := _lanes_of_rows(e, loop, scope)) > 1:
            for share in in_vectors(loop, lanes):
                _loop(e, share, scope)
        case "serial" | "parallel":
            _serial(e, loop, lo, hi, scope)
        case _:
            raise EmitError(f"`{loop.kind}` loops need a graphics processor")


def _lanes_of_rows(e: Emitter, loop: For, scope: Scope) -> int:
    """Return how many elements a loop that fills memory, or checks it, takes at once, 0 where the loop is no such."""
    name = filled(loop) or checked(loop) if scope.lanes is None else None
    storage = scope.buffers.get(name or "")
    return e.b.target.lanes(storage.dtype) if isinstance(storage, Memory) else 0


def _bind(scope: Scope, name: str, p: Poly) -> Scope:
    return replace(scope, vars={**scope.vars, name: p})


def _unroll(e: Emitter, loop: For, lo: Poly, hi: Poly, scope: Scope) -> None:
    facts = e.b.facts
    trips = (hi - lo).constant
    extent = loop.extent if trips is None else trips
    if extent is None:
        raise EmitError(f"loop `{loop.var}` is unrolled, so it needs an extent")
    row = _row_to_store(loop, lo, scope) if trips == extent else None
    scope = replace(scope, interleaved=row[1]) if row is not None else scope
    loads = e.module.loads_of_copies(loop) if 1 < extent <= MOST_COPIES and scope.lanes is None else frozenset()
    loads, limit = (loads, None) if trips is not None else (read_across(loop, loads), hi - lo)

    def run(copy: int) -> None:
        here = lo + number(copy)
        if copy == extent or facts.at_most(hi - here, 0):
            return
        inner = _bind(scope, loop.var, here)
        inner = replace(inner, copies=(Copies(loop.var, copy, extent, loads, limit), *scope.copies)) if loads else inner

        def body() -> None:
            _block(e, loop.body, inner)
            if loads:
                run(copy + 1)

        if facts.at_least(hi - here, 1):
            body()
        else:
            fork(e, positive(e.b, hi - here), body, None)
        if not loads:
            run(copy + 1)

    run(0)
    if row is not None:
        storage, rows = row
        memory.store_rows(e.b, storage, rows)


def _row_to_store(loop: For, lo: Poly, scope: Scope) -> tuple[Memory, Interleaved] | None:
    """Return what the copies of an unrolled loop store together, and where, if that is rows of as many elements."""
    if scope.lanes is not None or scope.guard is not None or loop.extent is None:
        return None
    storage = scope.buffers.get(interleaved_buffer(loop, lo.constant is not None) or "")
    return (storage, Interleaved(storage.uid, loop.extent)) if isinstance(storage, Memory) else None


def _vector(e: Emitter, loop: For, lo: Poly, hi: Poly, scope: Scope) -> None:
    b = e.b
    trips = (hi - lo).constant
    if loop.extent is None and trips is None:
        raise EmitError(f"loop `{loop.var}` is a vector, so it needs an extent")
    count = trips if trips is not None else loop.extent
    assert count is not None
    if count == 1 or scope.lanes is not None or e.module.runs_one_by_one(loop):
        _one_by_one(e, loop, lo, hi, scope)
        return
    lanes = registers.lane_count(count)
    atom = b.fresh()
    b.facts.add(Atom(atom, b.depth, b.facts.next_rank(), lower=(ZERO,), upper=(number(count - 1), hi - lo - ONE)))
    inner = replace(_bind(scope, loop.var, lo + atom_poly(atom)), lanes=Lanes(atom, lanes))
    if not b.facts.at_least(hi - lo, lanes):
        mask = first_lanes(b, hi - lo, lanes)
        inner = replace(inner, mask=mask, lanes=Lanes(atom, lanes, hi - lo, mask))
    if not b.facts.at_least(hi - lo, 1):
        inner = replace(inner, guard=positive(b, hi - lo))
    _block(e, loop.body, inner, running_results(loop))


def _one_by_one(e: Emitter, loop: For, lo: Poly, hi: Poly, scope: Scope) -> None:
    """Run a vector loop whose lanes cannot be evaluated together."""
    touched = {s.buffer for s in stores(*loop.body)} | {n.buffer for n in walk(*loop.body) if isinstance(n, Load)}
    in_registers = any(isinstance(scope.buffers.get(name), Registers) for name in touched)
    if in_registers or (hi - lo).constant == 1 or _addresses_registers(loop.body, frozenset((loop.var,)), frozenset()):
        _unroll(e, loop, lo, hi, scope)
    else:
        _serial(e, loop, lo, hi, scope)


def _addresses_registers(block: tuple[Stmt, ...], known: frozenset[str], own: frozenset[str]) -> bool:
    """Tell whether the address of an access to buffers `own`, or to registers that `block` allocates, depends on the variables `known`."""
    for s in block:
        match s:
            case Alloc(buffer) if buffer.space == "registers":
                own |= {buffer.name}
            case For(var, lo, _, body):
                if _addresses_registers(body, known | {var} if known & free_vars(lo) else known - {var}, own):
                    return True
            case If(_, then, orelse):
                if _addresses_registers((*then, *orelse), known, own):
                    return True
            case _:
                if any(isinstance(n, Load | Store) and n.buffer in own and known & free_vars(*n.index) for n in walk(s)):
                    return True
    return False


def _once(e: Emitter, loop: For, value: Expr, first: Index, last: Index, scope: Scope) -> None:
    """Run the only iteration of a loop, where `value` lies between `first` and `last`, as what data name nearly always does."""
    b = e.b
    at, low, size = poly(e.state, ValueIndex(value), scope), poly(e.state, first, scope), poly(e.state, last, scope) + ONE
    above, below = b.facts.at_least(at - low, 0), b.facts.at_least(size - at, 1)
    if above and below:
        _block(e, loop.body, _bind(scope, loop.var, at))
        return
    if low == ZERO and not above and not below and b.facts.at_least(size, 0):
        inside = b.op(f"icmp ult i64 {b.index(at)}, {b.index(size)}")
    else:
        ends = [] if above else [b.op(f"icmp sge i64 {b.index(at)}, {b.index(low)}")]
        ends += [] if below else [b.op(f"icmp slt i64 {b.index(at)}, {b.index(size)}")]
        inside = ends[0] if len(ends) == 1 else b.op(f"and i1 {', '.join(ends)}")
    fork(e, inside, lambda: _block(e, loop.body, _bind(scope, loop.var, at)), None, likely=True)


def _serial(e: Emitter, loop: For, lo: Poly, hi: Poly, scope: Scope) -> None:
    b, state = e.b, e.state
    condition = loop_condition(loop) if scope.lanes is None else None
    if (hi - lo).constant == 1:
        _block(e, loop.body, _bind(scope, loop.var, lo))
        return
    written = [scope.buffers[name] for name in dict.fromkeys(s.buffer for s in stores(*loop.body)) if name in scope.buffers]
    for storage in written:
        state.note_change(storage.uid)
    carried = [s for s in written if isinstance(s, Registers)]
    before = {s.uid: list(state.cells[s.uid]) for s in carried}
    start, stop = b.index(lo), b.index(hi)
    head, end = b.fresh_label("loop"), b.fresh_label("end")
    guarded = condition is not None or not b.facts.at_least(hi - lo, 1)
    enters = positive(b, hi - lo) if guarded else ""
    if condition is not None:
        enters = b.op(f"and i1 {enters}, {value(state, condition.cond, scope).text}")
    b.open_placeholder()
    skipped = b.label
    if guarded:
        first = b.fresh_label("first")
        b.write(f"br i1 {enters}, label %{first}, label %{end}")
        b.start(first)
    origin = b.label
    preheader: Text = []
    b.region.code.append(preheader)
    b.write(f"br label %{head}")
    region = b.enter()
    region.preheader, region.repeats = preheader, True
    region.constant = frozenset(s.uid for s in scope.buffers.values()) - frozenset(s.uid for s in written)
    b.start(head)
    if state.record is not None:
        state.record.note_loop(head, loop.var)
    counter = b.fresh()
    phis: Text = []
    region.code.append(phis)
    outer = list(state.cells)
    names_ = {s.uid: [b.fresh() for _ in before[s.uid]] for s in carried}
    for s in carried:
        state.cells[s.uid] = list(names_[s.uid])
    variable = b.facts.add(Atom(counter, b.depth, b.facts.next_rank(), lower=(lo,), upper=(hi - ONE,)))
    _block(e, loop.body if condition is None else condition.then, _bind(scope, loop.var, variable))
    following = b.op(f"add nsw i64 {counter}, 1")
    again = b.op(f"icmp slt i64 {following}, {stop}")
    if condition is not None:
        again = b.op(f"and i1 {again}, {value(state, condition.cond, scope).text}")
    b.write(f"br i1 {again}, label %{head}, label %{end}{LOOP}")
    latch = b.label
    b.leave()
    phis.append(f"  {counter} = phi i64 [ {start}, %{origin} ], [ {following}, %{latch} ]")
    b.region.placeholder = None
    b.start(end)
    state.cells = {uid: state.cells[uid] for uid in outer}
    for s in carried:
        after = state.cells[s.uid]
        for i, (old, name, new) in enumerate(zip(before[s.uid], names_[s.uid], after, strict=True)):
            old, new = b.resolve(old), b.resolve(new)
            if new in (name, old):
                b.aliases[name] = old
                after[i] = old
                continue
            phis.append(f"  {name} = phi {s.type_of(i)} [ {old}, %{origin} ], [ {new}, %{latch} ]")
            after[i] = b.op(f"phi {s.type_of(i)} [ {old}, %{skipped} ], [ {new}, %{latch} ]") if guarded else new


# ---------------------------------------------------------------- parallel loops


def _parallel(e: Emitter, loop: For, lo: Poly, hi: Poly, scope: Scope) -> None:
    """Hand the iterations to the pool, those of parallel loops that are the whole body of this one together with its own.

    context   { status, workspace, what the body uses }
    chunk     void (context, begin, end, thread)        loads the context and calls the body; a failure goes into the status
    body      i32 (begin, end, thread, captures ...)    the loop itself
    """
    b = e.b
    inner = nested(loop) if lo.constant is not None and hi.constant is not None else ()
    count = prod(inner)
    for s in {s.buffer for s in stores(*loop.body)} & scope.buffers.keys():
        e.state.note_change(scope.buffers[s].uid)
    captures = _captures(e, loop, scope)
    e.module.outlined += 1
    name = f"{e.name}.p{e.module.outlined}"
    _outline(e, name, loop, inner, (lo.scaled(count), hi.scaled(count)), scope, captures)
    slots = ["i64 0", f"ptr {e.workspace}", *captures]
    context = b.fresh()
    b.prologue.append(f"  {context} = alloca [{len(slots)} x i64], align 8")
    for i, slot in enumerate(slots):
        pointer = b.op(f"getelementptr i64, ptr {context}, i64 {i}")
        b.write(f"store {slot}, ptr {pointer}, align 8")
    pool = b.declare(POOL_ENTRY, "void @(ptr, ptr, i64, i64)")
    b.write(f"call void {pool}(ptr @{quoted(name)}, ptr {context}, i64 {b.index(lo.scaled(count))}, i64 {b.index(hi.scaled(count))})")
    b.may_return_here()
    status = b.op(f"load i32, ptr {context}, align 8")
    good, bad = b.fresh_label("ok"), b.fresh_label("fail")
    failed = b.op(f"icmp eq i32 {status}, 0")
    b.write(f"br i1 {failed}, label %{good}, label %{bad}")
    b.start(bad)
    b.write(f"ret i32 {status}")
    b.start(good)


def _captures(e: Emitter, loop: For, scope: Scope) -> list[str]:
    """Return the typed registers of this function that the body of `loop` may use."""
    used = names(*loop.body) | {n.buffer for n in walk(*loop.body) if isinstance(n, Load | Store | Prefetch)}
    found: dict[str, str] = {}
    plan_names = {v for i in e.module.plan.offsets.values() for v in free_vars(i)}
    extents = free_vars(*(n for name in used if isinstance(s := scope.buffers.get(name), Memory) for n in s.buffer.shape))
    for name, p in scope.vars.items():
        if name in used or name in plan_names or name in extents or any(isinstance(n, Var) and n.name == name for n in walk(*loop.body)):
            found.update(dict.fromkeys(sorted(p.atoms()), "i64"))
    for name in sorted(used):
        if name in scope.lets and scope.lets[name].text.startswith("%"):
            found[scope.lets[name].text] = scope.lets[name].type
        storage = scope.buffers.get(name)
        if isinstance(storage, Memory):
            found[storage.pointer] = "ptr"
            found.update({a: "i64" for p in storage.strides for a in sorted(p.atoms())})
        elif isinstance(storage, Registers):
            raise EmitError(f"`{name}` is in registers and used in the parallel loop `{loop.var}`; only memory is shared by threads")
    return [f"{kind} {text}" for text, kind in found.items()]


def _outline(
    e: Emitter, name: str, loop: For, extents: tuple[int, ...], ends: tuple[Poly, Poly], scope: Scope, captures: list[str]
) -> None:
    module = e.module
    b = Builder(module.target, module.declarations, prefix="v" + letters(module.outlined), intrinsics=module.intrinsics)
    inner = Emitter(module, State(b, module.record), name, "%scratch")
    inner.state.next_uid = e.state.next_uid
    for atom in e.b.facts.atoms.values():
        b.facts.add(replace(atom, depth=0))
    thread = b.facts.add(Atom("%thread", 0, b.facts.next_rank(), lower=(ZERO,)))
    begin = b.facts.add(Atom("%begin", 0, b.facts.next_rank(), lower=(ends[0],)))
    end = b.facts.add(Atom("%end", 0, b.facts.next_rank(), lower=(begin + ONE,), upper=(ends[1],)))
    buffers = {n: replace(s, depth=0) for n, s in scope.buffers.items() if isinstance(s, Memory)}
    body_scope = replace(scope, vars={**scope.vars, "$thread": thread, "$begin": begin, "$end": end}, buffers=dict(buffers), parallel=True)
    b.start("entry")
    mine = part(loop, extents, Var("$begin"), Var("$end"))
    _serial(inner, mine, poly(inner.state, mine.lo, body_scope), poly(inner.state, mine.hi, body_scope), body_scope)
    finish_streams(inner, loop.body)
    tiles.release(inner)
    b.write("ret i32 0")
    params = ["i64 %begin", "i64 %end", "i64 %thread", "ptr noalias align 64 %scratch"]
    params += [c.replace("ptr ", "ptr noalias ", 1) if c.startswith("ptr ") else c for c in captures]
    module.functions.append(f"define internal i32 @{quoted(name + '.body')}({', '.join(params)}) #0 {{\n{with_prologue(b)}\n}}\n")
    module.functions.append(chunk(name, captures))
