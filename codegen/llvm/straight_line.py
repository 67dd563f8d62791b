"""Statements that hold no others: where a buffer lies, what is stored, what is required."""

from __future__ import annotations

from dataclasses import replace

from codegen.dtypes import bool_, f32, f64, i64, limits
from codegen.llvm import arithmetic, convert, memory, registers
from codegen.llvm.addresses import lane_stride
from codegen.llvm.expressions import address, any_lane, poly, read, row_major, value
from codegen.llvm.facts import Atom, Poly
from codegen.llvm.frame import Emitter
from codegen.llvm.lanes import reduction
from codegen.llvm.lanes_of_buffers import touched_by_the_same_lanes
from codegen.llvm.masks import has_mask_registers
from codegen.llvm.reduce import MOST_COUNTED, horizontal, identity, place, running
from codegen.llvm.state import EmitError, Memory, Registers, Scope, Storage, Tiles, splat
from codegen.llvm.values import Literal, Value, literal, memory_type
from codegen.loops.nodes import (
    Alloc,
    Buffer,
    Cast,
    Expr,
    Int,
    Stmt,
    Store,
    ValueIndex,
)
from codegen.loops.notes import Begins
from codegen.loops.places import index_of
from codegen.loops.running_results import RunningResult
from codegen.loops.walk import stores, walk
from codegen.polynomials import ZERO, number


def finish_streams(e: Emitter, block: tuple[Stmt, ...]) -> None:
    """Wait until what this thread wrote past the caches can be seen by others, where the processor does not see to that."""
    if e.module.target.is_x86 and any(s.stream for s in stores(*block)):
        e.b.write(f"call void {e.b.declare('llvm.x86.sse.sfence', 'void @()')}()")


def allocate(e: Emitter, stmt: Alloc, rest: tuple[Stmt, ...], scope: Scope) -> Storage:
    b, buffer = e.b, stmt.buffer
    shape = tuple(poly(e.state, extent, scope) for extent in buffer.shape)
    strides = row_major(shape)
    uid = e.state.new_uid()
    if buffer.space == "heap":
        offset = poly(e.state, e.module.plan.offsets[id(stmt)], replace(scope, vars={**scope.vars, **_plan_vars(e, scope)}))
        pointer = b.address(e.workspace, 0, "i8", offset)
        note = buffer.note(Begins)
        if note is not None:
            return _beginning(e, buffer, scope.buffers[note.parameter], pointer, strides)
        return Memory(uid, replace(buffer, align=64), pointer, b.depth, strides)
    count = 1
    for extent in shape:
        if extent.constant is None:
            raise EmitError(f"`{buffer.name}` is in {buffer.space}, so its extents must be constant")
        count *= extent.constant
    if buffer.space == "registers":
        private = scope.lanes.count if scope.lanes is not None else 0
        row = registers.pitch(stmt, rest) if not private else None
        if row is not None:
            longer = replace(buffer, shape=(*buffer.shape[:-1], Int(row)))
            count = count // max(1, shape[-1].constant or 0) * row
            strides, stmt = row_major((*shape[:-1], number(row))), Alloc(longer)
        cell_starts = tuple(range(count + 1)) if private else registers.cell_starts(stmt, rest, count)
        same = not private and touched_by_the_same_lanes(buffer.name, rest)
        in_bytes = buffer.dtype == bool_ and (private or len(cell_starts) <= count) and not has_mask_registers(b.target)
        storage = Registers(uid, buffer, cell_starts, strides, private, _holds_opposites(e, buffer, rest), same, bool(in_bytes))
        e.state.cells[uid] = ["poison"] * (len(cell_starts) - 1)
        e.state.register_types[uid] = tuple(map(storage.type_of, range(len(cell_starts) - 1)))
        return storage
    pointer = f"%stack{uid}"
    align = max(buffer.align & -buffer.align, 64)
    b.prologue.append(f"  {pointer} = alloca [{max(count, 1)} x {memory_type(buffer.dtype)}], align {align}")
    return Memory(uid, replace(buffer, align=align), pointer, 0, strides)


def _beginning(e: Emitter, buffer: Buffer, first: Storage, second: str, strides: tuple[Poly, ...]) -> Memory:
    """Return the memory of a buffer of two rows, the first that of a parameter, of which it is a part: how far the second lies from it is
    the stride."""
    assert isinstance(first, Memory)
    b = e.b
    ends = [b.op(f"ptrtoint ptr {pointer} to i64") for pointer in (second, first.pointer)]
    apart = b.op(f"sub i64 {', '.join(ends)}")
    stride = b.op(f"sdiv exact i64 {apart}, {buffer.dtype.size_bytes}")
    between = b.facts.add(Atom(stride, b.depth, b.facts.next_rank()))
    return Memory(first.uid, replace(buffer, align=first.buffer.align), first.pointer, first.depth, (between, *strides[1:]))


def _holds_opposites(e: Emitter, buffer: Buffer, rest: tuple[Stmt, ...]) -> bool:
    """Tell whether maxima of floats are collected in `buffer`, on a processor that has them as minima of opposites."""
    if buffer.dtype not in (f32, f64) or not arithmetic.collects_negated(e.module.target):
        return False
    found = (reduction(s) for s in stores(*rest) if s.buffer == buffer.name)
    return any(parts is not None and parts[0] == "max" for parts in found)


def _plan_vars(e: Emitter, scope: Scope) -> dict[str, Poly]:
    return {"$thread": scope.vars["$thread"]} if "$thread" in scope.vars else {"$thread": ZERO}


def require(e: Emitter, cond: Value, code: int, scope: Scope) -> None:
    b = e.b
    if isinstance(cond, Literal) and cond.number:
        return
    text = cond.text
    if cond.lanes:
        failing = arithmetic.negated(b, cond)
        bad = any_lane(b, failing.text if scope.mask is None else b.pure(f"and {failing.typed}, {scope.mask}"), cond.lanes)
        text = b.pure(f"xor i1 {bad}, true")
    elif scope.guard is not None:
        text = b.pure(f"or i1 {text}, {b.pure(f'xor i1 {scope.guard}, true')}")
    b.may_return_here()
    good, bad = b.fresh_label("ok"), b.fresh_label("fail")
    b.write(f"br i1 {text}, label %{good}, label %{bad}")
    b.start(bad)
    b.write(f"ret i32 {code}")
    b.start(good)


def keep_running(e: Emitter, found: RunningResult, scope: Scope) -> Value:
    """Return in each lane what has been collected there, and store what all of them came to."""
    storage = scope.buffers[found.own.buffer]
    old = read(e.state, storage, found.own.index, scope)
    term = _of_active_lanes(e, found.op, value(e.state, found.term, scope), scope)
    begins = None if found.begins is None else _of_active_lanes(e, "or", value(e.state, found.begins, scope), scope)
    here, kept = running(e.b, found.op, old, term, begins)
    _write(e, storage, address(e.state, storage, found.own.index, scope), found.kept, kept, scope)
    return here


def store(e: Emitter, stmt: Store, scope: Scope) -> None:
    storage = scope.buffers[stmt.buffer]
    where = address(e.state, storage, stmt.index, scope)
    private = isinstance(storage, Registers) and storage.private_lanes
    if scope.lanes is not None and not private and lane_stride(where, scope.lanes, e.b) == 0:
        result = _reduced(e, stmt, storage, scope)
    else:
        result = value(e.state, stmt.value, scope)
    _write(e, storage, where, stmt, result, scope)


def _write(e: Emitter, storage: Storage, where: Poly, stmt: Store, result: Value, scope: Scope) -> None:
    if result.dtype != storage.dtype:
        raise EmitError(f"a value of {result.dtype} is stored to `{stmt.buffer}`, which holds {storage.dtype}")
    if isinstance(storage, Registers):
        registers.write(e.state, storage, where, result, scope)
    elif isinstance(storage, Tiles):
        raise EmitError(f"`{stmt.buffer}` is in tiles, which only products of tiles and whole copies touch")
    else:
        memory.store(e.state, storage, tuple(poly(e.state, i, scope) for i in stmt.index), result, scope, stmt.stream)


def _reduced(e: Emitter, stmt: Store, storage: Storage, scope: Scope) -> Value:
    """Return what a store means whose element all lanes share: the element combined with every lane that takes part."""
    parts = reduction(stmt)
    if parts is None:
        return value(e.state, stmt.value, scope)
    op, terms = parts
    lanes = scope.lanes
    assert lanes is not None
    old = read(e.state, storage, stmt.index, scope)
    if (place := _place(e, op, terms[0], scope)) is not None:
        return arithmetic.binary(e.b, op, old, place)  # type: ignore[arg-type]  # `op` is `min` or `max` here
    if len(terms) == 2:
        x, y = (value(e.state, t, scope) for t in terms)
        term = arithmetic.binary(e.b, "*", x, y)
    else:
        term = value(e.state, terms[0], scope)
    total = horizontal(e.b, op, _of_active_lanes(e, op, term, scope))
    return arithmetic.binary(e.b, "+" if op == "fma" else op, old, total)  # type: ignore[arg-type]  # `op` is a BinaryOp here


def _of_active_lanes(e: Emitter, op: str, term: Value, scope: Scope) -> Value:
    """Return a term of each lane, of those that take no part what changes nothing."""
    assert scope.lanes is not None
    term = splat(e.b, term, scope.lanes.count)
    if scope.mask is None:
        return term
    neutral = Value(term.dtype, identity(op, term), scope.lanes.count)
    return arithmetic.select(e.b, Value(bool_, scope.mask, scope.lanes.count), term, neutral)


def _place(e: Emitter, op: str, term: Expr, scope: Scope) -> Value | None:
    """Return the least or greatest of the indices of the lanes that take part, told from the first or the last of these; None for terms
    that are no indices which rise from lane to lane, or that may wrap."""
    index, lanes, b = index_of(term), scope.lanes, e.b
    if op not in ("min", "max") or index is None or lanes is None or lanes.count > MOST_COUNTED:
        return None
    dtype = term.dtype if isinstance(term, Cast) else i64
    at = poly(e.state, index, scope)
    step, parts = lane_stride(at, lanes, b), at.split(lanes.atom)
    if step is None or step <= 0 or parts is None or any(isinstance(n, ValueIndex) for n in walk(index)):
        return None
    least, greatest = limits(dtype)
    if dtype != i64 and not (b.facts.at_least(at, int(least)) and b.facts.at_most(at, int(greatest))):
        return None
    first = parts[1].constant
    begin = literal(first, i64) if first is not None else Value(i64, b.index(parts[1]))
    return place(b, op, convert.cast(b, begin, dtype, saturate=False), step, scope.mask, lanes.count)
