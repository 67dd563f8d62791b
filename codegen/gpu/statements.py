"""Statements of the loop IR as C text, each with the loops over threads around it in mind.

    for ii in 0 .. 250 thread.x {               {
        y[ii] = x[ii]                               const int ii = thread;
    }                                   →           if (ii < 250) {
                                                        y[ii] = x[ii];
                                                    }
                                                }

What every thread does to memory that others see is done by one of them. Lanes of a vector loop become one access where they are neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import reduce
from math import prod
from typing import assert_never

from codegen.dtypes import DType
from codegen.errors import InternalError, Unfit
from codegen.gpu import matrix
from codegen.gpu.cells import PRIVATE, cell, cell_count, descriptor, element, registers_from
from codegen.gpu.copied_boxes import alignment
from codegen.gpu.expressions import Printer, is_below_a_byte, masked, wrapped, wrapped_arithmetic
from codegen.gpu.geometry import WARP, Digit
from codegen.gpu.reduce import Tree, tree
from codegen.gpu.tensor_maps import start
from codegen.gpu.text import KernelText, Scope
from codegen.gpu.vectors import COPIED, contiguous, moving_names, offset, read_when, source, uniform, width
from codegen.loops.nodes import (
    THREADS,
    Add,
    Alloc,
    Barrier,
    Binary,
    Boxes,
    Buffer,
    Commit,
    Expr,
    FloorDiv,
    For,
    If,
    Index,
    Int,
    Let,
    Load,
    LoadMatrix,
    Mma,
    Mod,
    Prefetch,
    Producer,
    Reclaim,
    Release,
    Require,
    Select,
    Stmt,
    Store,
    Together,
    Var,
    Wait,
    WaitBoxes,
    zero,
)
from codegen.loops.verify import dtype_of
from codegen.loops.walk import children, names, substitute, walk


def write(kernel: KernelText, body: tuple[Stmt, ...], scope: Scope) -> None:
    """Write a block of statements; products of four warps begin after a fence."""
    begun = False
    for stmt in body:
        if not begun and _multiplies(stmt) and any(isinstance(s, Commit) and s.of == "products" for s in body):
            kernel.line("tl_wgmma_fence();")
            begun = True
        scope = _stmt(kernel, stmt, scope)


def _multiplies(stmt: Stmt) -> bool:
    """Tell whether products of four warps are begun in `stmt`."""
    return any(isinstance(n, Mma) and matrix.named(n.name).warps > 1 for n in walk(stmt))


def _stmt(kernel: KernelText, stmt: Stmt, scope: Scope) -> Scope:
    """Write `stmt`; return the scope of what follows it in its block."""
    p = scope.printer
    match stmt:
        case For(kind=kind) if kind in THREADS:
            _over_threads(kernel, stmt, scope)
        case For(kind="vector" | "unroll", extent=int(lanes)) if (n := width(stmt, lanes, p, scope.buffers)) > 1:
            _vector(kernel, stmt, n, scope)
        case For(kind="vector", extent=int(lanes)) if (n := width(whole := replace(stmt, hi=Int(lanes)), lanes, p, scope.buffers)) > 1:
            with kernel.braces(f"if ({p.index(stmt.hi, 8)} >= {lanes})"):
                _vector(kernel, whole, n, scope)
            with kernel.braces("else"):
                _loop(kernel, stmt, scope)
        case For():
            _loop(kernel, stmt, scope)
        case Store():
            _store(kernel, stmt, scope)
        case Let(name, value):
            dtype = dtype_of(value, p.env)
            kernel.line(f"const tl_{dtype} {p.names(name)} = {p.expr(value)};")
            return replace(scope, printer=replace(p, env=p.env.with_value(name, dtype)))
        case If(cond, then, orelse):
            with kernel.braces(f"if ({p.expr(cond)})"):
                write(kernel, then, scope)
            if orelse:
                with kernel.braces("else"):
                    write(kernel, orelse, scope)
        case Alloc(buffer):
            return allocate(kernel, buffer, scope)
        case Require(cond, code):
            with kernel.braces(f"if (!({p.expr(cond)}))"):
                kernel.line(f"tl_fail(status, {code});")
                kernel.line("return;")
        case Barrier(of):
            if kernel.reads_asynchronously:
                kernel.line("tl_async_fence();")
            _meet(kernel, of)
        case Boxes():
            _boxes(kernel, stmt, scope)
        case WaitBoxes(barriers, group):
            kernel.line(f"tl_mbarrier_wait({_phase(scope, barriers, group, 0)});")
        case Reclaim(barriers, group):
            # One number for each stage later, so that none is negative: and the phase before the first is odd.
            later = Add(group, Int(cell_count(scope.buffers[barriers])))
            kernel.line(f"tl_mbarrier_wait({_phase(scope, barriers, later, 1)});")
        case Release(barriers, group, blocks):
            kernel.line("tl_warp_barrier();")
            barrier = _barrier(scope, barriers, group)
            with kernel.braces(f"if (thread % {WARP} == 0)"):
                for block in range(blocks) if blocks > 1 else ():
                    kernel.line(f"tl_mbarrier_arrive_at({barrier}, {block});")
                if blocks == 1:
                    kernel.line(f"tl_mbarrier_arrive({barrier});")
        case Producer():
            raise InternalError("write kernels", "what the producer runs is no part of what the consumers run")
        case Commit(of):
            kernel.line("tl_copy_commit();" if of == "copies" else "tl_wgmma_commit();")
        case Wait(pending, of):
            kernel.line(f"TL_COPY_WAIT({pending});" if of == "copies" else f"TL_WGMMA_WAIT({pending});")
        case LoadMatrix():
            _matrix(kernel, stmt, scope)
        case Mma(name, sums, rows, columns) if matrix.named(name).warps > 1:
            sides = zip((rows, columns), matrix.named(name).across, strict=True)
            operands = ", ".join(descriptor(scope.buffers[o.buffer], o, across, p) for o, across in sides)
            kernel.line(f"tl_wgmma_{name}({registers_from(sums, p)}, {operands}, 1);")
        case Mma(name, sums, rows, columns):
            kernel.line(f"tl_mma_{name}({', '.join(registers_from(o, p) for o in (sums, rows, columns))});")
        case Prefetch():
            pass
        case _:
            assert_never(stmt)
    return scope


def _barrier(scope: Scope, barriers: str, group: Index) -> str:
    """Return the barrier that a group counts at."""
    p, buffer = scope.printer, scope.buffers[barriers]
    return f"{p.names(barriers)} + {p.index(Mod(group, Int(cell_count(buffer))), 11)}"


def _phase(scope: Scope, barriers: str, group: Index, beyond: int) -> str:
    """Return the barrier of a group, and the parity of its phase there, or of the one so many beyond."""
    count = Int(cell_count(scope.buffers[barriers]))
    phase = Mod(Add(FloorDiv(group, count), Int(beyond)), Int(2))
    return f"{_barrier(scope, barriers, group)}, {scope.printer.index(phase)}"


def _boxes(kernel: KernelText, boxes: Boxes, scope: Scope) -> None:
    """Write how one thread has boxes copied, which count at the barrier of their group."""
    p = scope.printer
    barrier = _barrier(scope, boxes.barriers, boxes.group)
    maps = [kernel.map_of(b, scope.buffers) for b in boxes.boxes]
    with nullcontext() if kernel.specialised else kernel.braces("if (thread == 0)"):
        kernel.line(f"tl_mbarrier_expect({barrier}, {sum(b.blocks * m.box_bytes for b, m in zip(boxes.boxes, maps, strict=True))});")
        for box, map_ in zip(boxes.boxes, maps, strict=True):
            target = scope.buffers[box.target.buffer]
            to = f"{p.names(target.name)} + {p.index(offset(target, box.target.index), 11)}"
            at = [p.index(start(box, axis)[0]) for axis in box.axes]
            if box.blocks == 1:
                kernel.line(f"tl_tma_load_{len(at)}d({to}, {map_.name}, {', '.join(reversed(at))}, {barrier});")
                continue
            first = box.axes.index(box.parted)
            to += f" + {kernel.rank} * {prod(map_.box)}"
            at[first] = f"{at[first]} + {kernel.rank} * {map_.box[first]}"
            all_ = (1 << box.blocks) - 1
            kernel.line(f"tl_tma_multicast_{len(at)}d({to}, {map_.name}, {', '.join(reversed(at))}, {barrier}, {all_});")


def _matrix(kernel: KernelText, load: LoadMatrix, scope: Scope) -> None:
    """Write how a warp fills registers with matrices from shared memory."""
    p, source = scope.printer, scope.buffers[load.source.buffer]
    lane = Var(load.lane)
    number = f"thread % {WARP}" if kernel.geometry.threads > WARP else "thread"
    inner = replace(p, algebra=p.algebra.with_loop(load.lane, Int(0), Int(8 * load.count)), env=p.env.with_index(load.lane))
    with kernel.braces(""):
        kernel.line(f"const {p.integer} {p.names(lane.name)} = {number};")
        row = f"{p.names(source.name)} + {cell(source, load.source.index, inner, 11)}"
        turned = "_trans" if load.transposed else ""
        kernel.line(f"tl_ldmatrix_x{load.count}{turned}({registers_from(Load(load.buffer, load.index), p)}, {row});")


def allocate(kernel: KernelText, buffer: Buffer, scope: Scope) -> Scope:
    """Write where a buffer is; return the scope of what follows."""
    name = kernel.names(buffer.name)
    if buffer.space == "shared":
        align = alignment(buffer) if buffer.swizzle or buffer.name in kernel.bulk_copied else 16
        offset = -(-kernel.shared_bytes // align) * align
        kernel.shared.append(f"TL_SHARED_ARRAY(tl_{buffer.dtype}, {name}, shared, {offset}, {cell_count(buffer)});")
        kernel.shared_bytes = offset + cell_count(buffer) * buffer.dtype.size_bytes
        if buffer.name in kernel.barriers and not kernel.specialised:
            ready(kernel, [buffer])
    else:
        sides = "".join(f"[{scope.printer.index(e)}]" for e in buffer.shape)
        kernel.line(f"tl_{buffer.dtype} {name}{sides};")
    env = scope.printer.env.with_buffer(buffer)
    return replace(scope, printer=replace(scope.printer, env=env), buffers={**scope.buffers, buffer.name: buffer})


def ready(kernel: KernelText, barriers: Sequence[Buffer]) -> None:
    """Write how barriers in shared memory are made ready for all threads."""
    with kernel.braces("if (thread == 0)"):
        for buffer in barriers:
            for k in range(cell_count(buffer)):
                kernel.line(f"tl_mbarrier_init({kernel.names(buffer.name)} + {k}, {kernel.barriers[buffer.name]});")
        kernel.line("tl_mbarrier_init_fence();")
    kernel.line("tl_cluster_barrier();" if kernel.rank else "tl_barrier();")


def _meet(kernel: KernelText, of: Together) -> None:
    """Write a barrier of the threads of one side of a block, or of all threads of a cluster."""
    if of == "block":
        kernel.line(f"tl_named_barrier(1, {kernel.geometry.threads});" if kernel.specialised else "tl_barrier();")
        return
    if kernel.specialised:
        raise Unfit("not supported yet: blocks of a cluster that wait for each other in a kernel whose warps are specialised")
    kernel.line("tl_cluster_barrier();")


def _loop(kernel: KernelText, loop: For, scope: Scope) -> None:
    p = scope.printer
    var, inner = p.names(loop.var), scope.with_loop(loop)
    lo, hi = p.index(loop.lo), p.index(loop.hi, 8)
    unrolled = loop.kind in ("unroll", "vector", "tensor")
    if unrolled:
        kernel.line("TL_UNROLL")
    elif kernel.in_producer:
        kernel.line("TL_ROLLED")
    if unrolled and loop.extent is not None and not isinstance(p.algebra.simplify(loop.hi), Int):
        last = f"{p.index(loop.lo, 11)} + {loop.extent}" if lo != "0" else str(loop.extent)
        with kernel.braces(f"for ({p.integer} {var} = {lo}; {var} < {last}; ++{var})"), kernel.braces(f"if ({var} < {hi})"):
            write(kernel, loop.body, inner)
        return
    with kernel.braces(f"for ({p.integer} {var} = {lo}; {var} < {hi}; ++{var})"):
        write(kernel, loop.body, inner)


def _over_threads(kernel: KernelText, loop: For, scope: Scope) -> None:
    """Write a loop over threads: each thread finds out which iteration is its own."""
    p = scope.printer
    reduction = tree(loop, kernel.geometry, p.env.buffers)
    if reduction is not None:
        _tree(kernel, loop, reduction, scope)
        return
    var, inner = p.names(loop.var), scope.with_loop(loop)
    with kernel.braces(""):
        _number(kernel, loop, scope)
        guard = _guard(kernel, loop, p)
        if guard is None:
            write(kernel, loop.body, inner)
        else:
            with kernel.braces(f"if ({var} < {guard})"):
                write(kernel, loop.body, inner)


def _number(kernel: KernelText, loop: For, scope: Scope) -> None:
    p = scope.printer
    number = _digit(kernel.geometry.digit(loop.kind), kernel.geometry.threads)
    low = p.index(loop.lo, 11)
    kernel.line(f"const {p.integer} {p.names(loop.var)} = {number if low == '0' else f'{low} + {number}'};")


def _guard(kernel: KernelText, loop: For, p: Printer) -> str | None:
    """Return the bound that the thread's number has to keep, or None where it does anyway."""
    span = kernel.geometry.span(loop.kind)
    lo, hi = p.algebra.simplify(loop.lo), p.algebra.simplify(loop.hi)
    if lo == Int(0) and isinstance(hi, Int) and hi.value >= span:
        return None
    return p.index(loop.hi, 8)


def _digit(digit: Digit, threads: int) -> str:
    text = "thread" if digit.stride == 1 else f"thread / {digit.stride}"
    if digit.extent is None or digit.stride * digit.extent >= threads:
        return text
    return f"{text} % {digit.extent}"


def _tree(kernel: KernelText, loop: For, reduction: Tree, scope: Scope) -> None:
    """Write a reduction over neighbouring threads: halves of them exchange what they have until all have all."""
    p = scope.printer
    store = reduction.store
    buffer = scope.buffers[store.buffer]
    dtype = buffer.dtype
    inner = scope.with_loop(loop)
    with kernel.braces(""):
        _number(kernel, loop, scope)
        guard = _guard(kernel, loop, p)
        part = kernel.names.fresh("part")
        value = inner.printer.expr(reduction.value)
        if guard is not None:
            value = f"{p.names(loop.var)} < {guard} ? {inner.printer.expr(reduction.value, 3)} : {p.expr(reduction.identity)}"
        kernel.line(f"tl_{dtype} {part} = {value};")
        step, warp = reduction.width // 2, kernel.geometry.warp
        while step:
            exchanged = f"tl_shuffle_xor_i32({part}, {step}, {warp})"
            other = f"tl_shuffle_xor_{dtype}({part}, {step}, {warp})" if dtype.bits > 16 else f"(tl_{dtype}){exchanged}"
            kernel.line(f"{part} = {_combined(reduction.op, dtype, part, other)};")
            step //= 2
        with _once(kernel, buffer, scope):
            place = element(buffer, store.index, p)
            there = wrapped(dtype, place) if is_below_a_byte(dtype) else place
            kernel.line(f"{place} = {_combined(reduction.op, dtype, there, part)}{masked(dtype)};")


def _combined(op: str, dtype: DType, a: str, b: str) -> str:
    if op in ("min", "max"):
        return f"tl_{op}_{dtype}({a}, {b})"
    if dtype.is_float:
        return f"{a} {op} {b}"
    if op in ("+", "*"):
        return wrapped_arithmetic(op, dtype, a, b)
    sign = {"and": "&", "or": "|", "bitand": "&", "bitor": "|", "bitxor": "^"}.get(op, op)
    return wrapped(dtype, f"({a} {sign} {b})")


def _store(kernel: KernelText, store: Store, scope: Scope) -> None:
    p = scope.printer
    buffer = scope.buffers[store.buffer]
    if store.later and _copied(kernel, store, scope):
        return
    with _once(kernel, buffer, scope):
        value = p.expr(store.value, 3 if is_below_a_byte(buffer.dtype) else 0)
        kernel.line(f"{element(buffer, store.index, p)} = {value}{masked(buffer.dtype)};")


def _copied(kernel: KernelText, copy: Store, scope: Scope, lanes: int = 1, var: str = "", start: int = 0) -> bool:
    """Let the device copy by itself what `copy` stores, `lanes` neighbours along `var` at once; tell whether it can."""
    p = scope.printer
    found, buffer = source(copy), scope.buffers[copy.buffer]
    bytes_ = lanes * buffer.dtype.size_bytes
    if found is None or bytes_ not in COPIED:
        return False
    cond, load = found
    if lanes > 1 and cond is not None:
        cond = uniform(cond, var, start, lanes, p.algebra)
        if cond is None:
            return False
    ends = [(buffer, copy.index), (scope.buffers[load.buffer], load.index)]
    if lanes > 1 and not all(contiguous(b, index, var, lanes, p.algebra) for b, index in ends):
        return False
    to, of = (f"{p.names(b.name)} + {cell(b, tuple(substitute(e, {var: Int(start)}) for e in index), p, 11)}" for b, index in ends)
    with _once(kernel, buffer, scope):
        kernel.line(
            f"tl_copy_async_{bytes_}({to}, {of});" if cond is None else f"tl_copy_async_zfill_{bytes_}({to}, {of}, {p.expr(cond)});"
        )
    return True


@contextmanager
def _once(kernel: KernelText, buffer: Buffer, scope: Scope) -> Iterator[None]:
    """Let what is stored where other threads see it be stored by one thread."""
    gaps = kernel.geometry.gaps(scope.places) if buffer.space not in PRIVATE else ()
    if not gaps:
        yield
        return
    tests = " && ".join(f"thread {f'% {m} ' if m else ''}< {n}" if n > 1 else f"thread{f' % {m}' if m else ''} == 0" for m, n in gaps)
    with kernel.braces(f"if ({tests})"):
        yield


def _vector(kernel: KernelText, loop: For, lanes: int, scope: Scope) -> None:
    """Write a loop over lanes with loads and stores of `lanes` neighbours at once, where they are neighbours."""
    assert loop.extent is not None
    buffer = scope.buffers[next(s.buffer for s in loop.body if isinstance(s, Store))]
    moving = moving_names(loop)
    steady = tuple(s for s in loop.body if isinstance(s, Let) and s.name not in moving)
    loop = replace(loop, body=tuple(s for s in loop.body if s not in steady))
    with _once(kernel, buffer, scope), kernel.braces("") if steady else nullcontext():
        alone = replace(scope, places=scope.places | {"thread"}) if buffer.space not in PRIVATE else scope
        for let in steady:
            alone = _stmt(kernel, let, alone)
        for start in range(0, loop.extent or 0, lanes):
            _lanes(kernel, loop, start, lanes, alone, moving)


def _lanes(kernel: KernelText, loop: For, start: int, lanes: int, scope: Scope, moving: frozenset[str]) -> None:
    p = scope.printer
    first = Int(start)
    lane = kernel.names.fresh("lane")
    inner = scope.with_loop(loop)
    put: dict[Expr, str] = {}
    copies = [s for s in loop.body if isinstance(s, Store) and s.later]
    for load, when in read_when(*(s for s in loop.body if s not in copies)).items():
        buffer = scope.buffers[load.buffer]
        conds = [uniform(cond, loop.var, start, lanes, p.algebra) for cond in when]
        if None in conds or names(*when) & moving:
            continue
        if not names(*load.index) & moving and contiguous(buffer, load.index, loop.var, lanes, p.algebra):
            name = kernel.names.fresh(p.names(load.buffer) + "_v")
            at = cell(buffer, tuple(substitute(e, {loop.var: first}) for e in load.index), p, 11)
            vector, text = f"tl_{buffer.dtype}x{lanes}", f"tl_load_{buffer.dtype}x{lanes}({p.names(load.buffer)} + {at})"
            known = [cond for cond in conds if cond is not None]
            if known:
                text = f"{p.expr(reduce(lambda a, b: Binary('and', a, b), known), 3)} ? {text} : {vector}()"
            kernel.line(f"const {vector} {name} = {text};")
            put[load] = f"{name}.v[{lane}]"
            if len(when) == 1:
                put[Select(when[0], load, zero(buffer.dtype))] = put[load]
    whole = [s for s in copies if _copied(kernel, s, scope, lanes, loop.var, start)]
    rest = tuple(s for s in loop.body if s not in whole)
    if not rest:
        return
    wide = {
        id(s): kernel.names.fresh(p.names(s.buffer) + "_v")
        for s in loop.body
        if isinstance(s, Store)
        and not s.later
        and not names(*s.index) & moving
        and contiguous(scope.buffers[s.buffer], s.index, loop.var, lanes, p.algebra)
    }
    for s in loop.body:
        if id(s) in wide and isinstance(s, Store):
            kernel.line(f"tl_{scope.buffers[s.buffer].dtype}x{lanes} {wide[id(s)]};")
    kernel.line("TL_UNROLL")
    var = p.names(loop.var)
    with kernel.braces(f"for (int {lane} = 0; {lane} < {lanes}; ++{lane})"):
        if _mentions(replace(loop, body=rest), put):
            kernel.line(f"const {p.integer} {var} = {f'{start} + ' if start else ''}{lane};")
        at_lane = replace(inner, printer=replace(inner.printer, put=put))
        for s in rest:
            if id(s) in wide and isinstance(s, Store):
                kernel.line(f"{wide[id(s)]}.v[{lane}] = {at_lane.printer.expr(s.value)};")
            else:
                at_lane = _stmt(kernel, s, at_lane)
    for s in loop.body:
        if id(s) in wide and isinstance(s, Store):
            buffer = scope.buffers[s.buffer]
            at = cell(buffer, tuple(substitute(e, {loop.var: first}) for e in s.index), p, 11)
            with _once(kernel, buffer, scope):
                kernel.line(f"tl_store_{buffer.dtype}x{lanes}({p.names(s.buffer)} + {at}, {wide[id(s)]});")


def _mentions(loop: For, put: dict[Expr, str]) -> bool:
    """Tell whether the lane's number is needed outside of the loads in `put`."""
    pending: list[object] = list(loop.body)
    while pending:
        node = pending.pop()
        if node in put:
            continue
        if node == Var(loop.var):
            return True
        pending.extend(children(node))  # type: ignore[arg-type]
    return False
