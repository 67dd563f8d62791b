"""The one C renderer: launches as kernels over the vocabulary of the prelude (`codegen/gpu/prelude`).

    for io in 0 .. 4 block.x {                      TL_KERNEL(256, 0) double_0(TL_IN(tl_f32) x, TL_OUT(tl_f32) y) {
        for ii in 0 .. 256 thread.x {                   const int thread = tl_thread_x();
            y[256*io + ii] = 2.0_f32 * x[…]      →      const int io = tl_block_x();
        }                                               const int ii = thread;
    }                                                   y[256 * io + ii] = 2.0f * x[256 * io + ii];
                                                    }

Loops over threads become values of the thread's number, with a condition where there are more threads than iterations. Buffers in registers
are arrays with constant subscripts, those that are shared lie in one arena.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import assert_never

from codegen.dtypes import DType
from codegen.errors import Unfit
from codegen.gpu import matrix
from codegen.gpu.boxes import touched_otherwise
from codegen.gpu.expressions import ATOM, Printer, is_half_byte, wrapped
from codegen.gpu.geometry import WARP, Digit, Geometry
from codegen.gpu.launches import BlockCode, Launches
from codegen.gpu.names import Identifiers
from codegen.gpu.program import STATIC_SHARED, Kernel, Launch, Program, Scratch, TensorMap
from codegen.gpu.reduce import Tree, tree
from codegen.gpu.vectors import COPIED, contiguous, moving_names, offset, read_when, source, uniform, width
from codegen.loops.indices import Algebra, Range
from codegen.loops.nodes import (
    THREADS,
    Alloc,
    Barrier,
    Binary,
    Box,
    Boxes,
    Buffer,
    Commit,
    Expr,
    FloorDiv,
    For,
    If,
    Index,
    Int,
    Landed,
    Let,
    Load,
    LoadMatrix,
    LoopKind,
    Mma,
    Mod,
    Mul,
    Prefetch,
    Require,
    Select,
    Stmt,
    Store,
    Var,
    Wait,
    zero,
)
from codegen.loops.simplify import simplify_index
from codegen.loops.swizzle import Swizzle, swizzle
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import children, names, stores, substitute, walk

_PRIVATE = ("registers", "stack")
REGISTERS = 64 * 1024
"""Of a multiprocessor."""
KEPT = 128
"""Registers of a thread."""
MOST = 255
"""That a thread may have."""
BESIDE = 64
"""Registers that a thread has besides those of matrices: addresses, copies on their way."""
ALIGN = 16
"""Bytes that the address of every buffer of the caller is a multiple of."""


def render(found: Launches) -> Program:
    """Return the kernels of `found` as text, with their launches."""
    function = found.function
    kernels = tuple(_kernel(found, block) for block in found.blocks)
    launched = tuple(Launch(block.name, _grid(block)) for block in found.blocks)
    scratch = tuple(Scratch(b.name, b.dtype, _elements(b)) for b in found.scratch)
    return Program(function.name, tuple(p.name for p in function.params), function.sizes, kernels, launched, scratch)


def _grid(block: BlockCode) -> tuple[Index, Index, Index]:
    by = {loop.place: loop.count for loop in block.blocks}
    return by.get("block.x", Int(1)), by.get("block.y", Int(1)), by.get("block.z", Int(1))


def _elements(buffer: Buffer) -> Index:
    total: Index = Int(1)
    for extent in buffer.shape:
        total = Mul(total, extent)
    return total


# ---------------------------------------------------------------- one kernel


@dataclass(slots=True)
class _Kernel:
    """The text of a kernel as it grows."""

    found: Launches
    block: BlockCode
    geometry: Geometry
    names: Identifiers
    wide: bool
    lines: list[str] = field(default_factory=list)
    indent: int = 1
    shared_bytes: int = 0
    shared: list[str] = field(default_factory=list)
    reads_beside: bool = False
    """Whether shared memory is read by what goes on beside the threads."""

    maps: list[TensorMap] = field(default_factory=list)
    barriers: frozenset[str] = frozenset()
    """Shared buffers of barriers."""
    landing: frozenset[str] = frozenset()
    """Shared buffers that boxes of tensors land in."""

    def map_of(self, box: Box, buffers: dict[str, Buffer]) -> TensorMap:
        """Return the tensor map for a box."""
        tensor, swizzle = buffers[box.source.buffer], buffers[box.target.buffer].swizzle
        for found in self.maps:
            if (found.buffer, found.box, found.swizzle) == (tensor.name, box.extents, swizzle):
                return found
        pitches: list[Index] = [Int(1)]
        for extent in reversed(tensor.shape[1:]):
            pitches.append(simplify_index(Mul(pitches[-1], extent), {}))
        strides = tuple(reversed(pitches))[:-1]
        name = self.names.fresh(f"{self.names(tensor.name)}_map")
        self.maps.append(TensorMap(name, tensor.name, tensor.dtype, tensor.shape, strides, box.extents, swizzle))
        return self.maps[-1]

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        self.line(f"{head} {{" if head else "{")
        self.indent += 1
        yield
        self.indent -= 1
        self.line("}")


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where in the kernel we are. `places` are the digits of the thread that loops around have bound."""

    printer: Printer
    buffers: dict[str, Buffer]
    places: frozenset[LoopKind] = frozenset()
    threads: frozenset[str] = frozenset()
    """Variables of the loops over threads around."""

    def with_loop(self, loop: For) -> _Scope:
        algebra = self.printer.algebra.with_loop(loop.var, loop.lo, loop.hi, loop.extent)
        printer = replace(self.printer, algebra=algebra, env=self.printer.env.with_index(loop.var))
        if loop.kind in THREADS:
            return replace(self, printer=printer, places=self.places | {loop.kind}, threads=self.threads | {loop.var})
        return replace(self, printer=printer)


def _kernel(found: Launches, block: BlockCode) -> Kernel:
    otherwise = touched_otherwise(block.body)
    buffers = [b for b in found.buffers.values() if b.name in otherwise]
    boxes = [n for n in walk(*block.body) if isinstance(n, Boxes)]
    written = {s.buffer for s in stores(*block.body)}
    sizes = found.function.sizes
    names = Identifiers()
    wide = bool(sizes) or any(_count(b) >= 1 << 31 for b in buffers)
    kernel = _Kernel(found, block, block.geometry, names, wide, reads_beside=_reads_beside(block.body))
    kernel.barriers = frozenset(n.barriers for n in boxes)
    kernel.landing = frozenset(b.target.buffer for n in boxes for b in n.boxes)
    ranges: dict[str, Range] = dict.fromkeys(sizes, (0, None))
    algebra = Algebra.of(ranges)
    env = Env.of(found.function)
    for buffer in found.scratch:
        env = env.with_buffer(buffer)
    for loop in block.blocks:
        algebra = algebra.with_loop(loop.var, loop.lo, loop.hi)
        env = env.with_index(loop.var)
    printer = Printer(env, algebra, names, lambda load, at: _load(kernel, load, at), wide)
    scope = _Scope(printer, dict(found.buffers))
    checks = any(isinstance(n, Require) for n in walk(*block.body))
    params = [f"{'TL_OUT' if b.name in written else 'TL_IN'}(tl_{b.dtype}) {names(b.name)}" for b in buffers]
    if checks and any(isinstance(n, Barrier) for n in walk(*block.body)):
        raise Unfit("not supported yet: a check of values in a block whose threads wait for each other")
    _head(kernel, scope)
    body = tuple(block.body)
    _block(kernel, body, scope)
    kernel.line("")
    params += [f"TL_TENSOR_MAP({m.name})" for m in kernel.maps]
    params += [f"tl_i64 {names(s)}" for s in sizes]
    params += ["tl_i32* status"] if checks else []
    head = f"TL_KERNEL({kernel.geometry.threads}, {_blocks(block)}) {block.name}({', '.join(params)}) {{"
    shared = kernel.shared_bytes
    arena = [] if not shared else [f"    TL_SHARED(shared, {shared});" if shared <= STATIC_SHARED else "    TL_SHARED_DYNAMIC(shared);"]
    text = "\n".join([head, *arena, *(f"    {line}" for line in kernel.shared), *kernel.lines[:-1], "}", ""])
    dims = (kernel.geometry.threads, 1, 1)
    matrices = tuple(sorted({n.name for n in walk(*block.body) if isinstance(n, Mma)}))
    return Kernel(block.name, text, tuple(b.name for b in buffers), sizes, dims, shared, 0, checks, tuple(kernel.maps), matrices=matrices)


def _blocks(block: BlockCode) -> int:
    """Return how many blocks a multiprocessor is to have room for: so many that a thread has KEPT registers, or as many as the matrices of
    its warp take. Where it is told nothing, the assembler aims for more blocks, at the price of registers that it keeps in memory."""
    kept = KEPT
    if any(isinstance(n, Mma) for n in walk(*block.body)):
        held = (n.buffer for n in walk(*block.body) if isinstance(n, Alloc) and n.buffer.space == "registers")
        kept = min(MOST, max(KEPT, sum(-(-_count(b) * b.dtype.size_bytes // 4) for b in held) + BESIDE))
    return max(1, REGISTERS // (kept * block.geometry.threads))


def _count(buffer: Buffer) -> int:
    total = 1
    for extent in buffer.shape:
        total *= extent.value if isinstance(extent, Int) else 1
    return total


def _head(kernel: _Kernel, scope: _Scope) -> None:
    """Write what every thread knows of itself: its number, and its block's place in the grid."""
    p = scope.printer
    kernel.line("const int thread = tl_thread_x();")
    for loop in kernel.block.blocks:
        number = f"tl_{loop.place.replace('.', '_')}()"
        low = p.index(loop.lo, 11)
        kernel.line(f"const {p.integer} {p.names(loop.var)} = {number if low == '0' else f'{low} + {number}'};")
        if not loop.exact:
            kernel.line(f"if ({p.names(loop.var)} >= {p.index(loop.hi, 8)}) return;")


# ---------------------------------------------------------------- statements


def _block(kernel: _Kernel, body: tuple[Stmt, ...], scope: _Scope) -> None:
    begun = False
    for stmt in body:
        if not begun and _multiplies(stmt) and any(isinstance(s, Commit) and s.of == "products" for s in body):
            kernel.line("tl_wgmma_fence();")
            begun = True
        scope = _stmt(kernel, stmt, scope)


def _multiplies(stmt: Stmt) -> bool:
    """Tell whether products of four warps are begun in `stmt`."""
    return any(isinstance(n, Mma) and matrix.named(n.name).warps > 1 for n in walk(stmt))


def _reads_beside(body: tuple[Stmt, ...]) -> bool:
    """Tell whether what threads write to shared memory is read by what goes on beside them."""
    products = (n for n in walk(*body) if isinstance(n, Mma) and matrix.named(n.name).warps > 1)
    return bool({o.buffer for n in products for o in (n.rows, n.columns)} & {s.buffer for s in stores(*body)})


def _stmt(kernel: _Kernel, stmt: Stmt, scope: _Scope) -> _Scope:
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
                _block(kernel, then, scope)
            if orelse:
                with kernel.braces("else"):
                    _block(kernel, orelse, scope)
        case Alloc(buffer):
            _alloc(kernel, buffer, scope)
            env = p.env.with_buffer(buffer)
            return replace(scope, printer=replace(p, env=env), buffers={**scope.buffers, buffer.name: buffer})
        case Require(cond, code):
            with kernel.braces(f"if (!({p.expr(cond)}))"):
                kernel.line(f"tl_fail(status, {code});")
                kernel.line("return;")
        case Barrier():
            if kernel.reads_beside:
                kernel.line("tl_async_fence();")
            kernel.line("tl_barrier();")
        case Boxes():
            _boxes(kernel, stmt, scope)
        case Landed(barriers, group):
            count = _count(scope.buffers[barriers])
            stage, phase = p.index(Mod(group, Int(count)), 11), p.index(Mod(FloorDiv(group, Int(count)), Int(2)))
            kernel.line(f"tl_mbarrier_wait({p.names(barriers)} + {stage}, {phase});")
        case Commit(of):
            kernel.line("tl_copy_commit();" if of == "copies" else "tl_wgmma_commit();")
        case Wait(pending, of):
            kernel.line(f"TL_COPY_WAIT({pending});" if of == "copies" else f"TL_WGMMA_WAIT({pending});")
        case LoadMatrix():
            _matrix(kernel, stmt, scope)
        case Mma(name, sums, rows, columns) if matrix.named(name).warps > 1:
            operands = ", ".join(_descriptor(scope.buffers[o.buffer], o, p) for o in (rows, columns))
            kernel.line(f"tl_wgmma_{name}({_row(sums, p)}, {operands}, 1);")
        case Mma(name, sums, rows, columns):
            kernel.line(f"tl_mma_{name}({', '.join(_row(o, p) for o in (sums, rows, columns))});")
        case Prefetch():
            pass
        case _:
            assert_never(stmt)
    return scope


def _boxes(kernel: _Kernel, boxes: Boxes, scope: _Scope) -> None:
    """Write how one thread has boxes copied, which count at the barrier of their group."""
    p = scope.printer
    barriers = scope.buffers[boxes.barriers]
    barrier = f"{p.names(barriers.name)} + {p.index(Mod(boxes.group, Int(_count(barriers))), 11)}"
    maps = [kernel.map_of(b, scope.buffers) for b in boxes.boxes]
    with kernel.braces("if (thread == 0)"):
        kernel.line(f"tl_mbarrier_expect({barrier}, {sum(m.box_bytes for m in maps)});")
        for box, map_ in zip(boxes.boxes, maps, strict=True):
            target = scope.buffers[box.target.buffer]
            to = f"{p.names(target.name)} + {p.index(offset(target, box.target.index), 11)}"
            at = ", ".join(p.index(e) for e in reversed(box.source.index))
            kernel.line(f"tl_tma_load_{len(box.extents)}d({to}, {map_.name}, {at}, {barrier});")


def _matrix(kernel: _Kernel, load: LoadMatrix, scope: _Scope) -> None:
    """Write how a warp fills registers with matrices from shared memory."""
    p, source = scope.printer, scope.buffers[load.source.buffer]
    lane = Var(load.lane)
    number = f"thread % {WARP}" if kernel.geometry.threads > WARP else "thread"
    inner = replace(p, algebra=p.algebra.with_loop(load.lane, Int(0), Int(8 * load.count)), env=p.env.with_index(load.lane))
    with kernel.braces(""):
        kernel.line(f"const {p.integer} {p.names(lane.name)} = {number};")
        row = f"{p.names(source.name)} + {_cell(source, load.source.index, inner, 11)}"
        turned = "_trans" if load.transposed else ""
        kernel.line(f"tl_ldmatrix_x{load.count}{turned}({_row(Load(load.buffer, load.index), p)}, {row});")


def _descriptor(buffer: Buffer, first: Load, p: Printer) -> str:
    """Return where the hardware finds a matrix whose rows are those of `buffer`, from `first` on."""
    at = p.index(offset(buffer, first.index), 11)
    return f"tl_descriptor({p.names(buffer.name)} + {at}, 16, {8 * buffer.swizzle}, {buffer.swizzle})"


def _row(first: Load, p: Printer) -> str:
    """Return the address of registers that follow each other along the last axis, `first` on."""
    last = p.index(first.index[-1], 11)
    row = p.names(first.buffer) + "".join(f"[{p.index(e)}]" for e in first.index[:-1])
    return row if last == "0" else f"{row} + {last}"


def _alloc(kernel: _Kernel, buffer: Buffer, scope: _Scope) -> None:
    name = kernel.names(buffer.name)
    if buffer.space == "shared":
        align = 8 * buffer.swizzle or (128 if buffer.name in kernel.landing else 16)
        offset = -(-kernel.shared_bytes // align) * align
        kernel.shared.append(f"TL_SHARED_ARRAY(tl_{buffer.dtype}, {name}, shared, {offset}, {_count(buffer)});")
        kernel.shared_bytes = offset + _count(buffer) * buffer.dtype.size_bytes
        if buffer.name in kernel.barriers:
            with kernel.braces("if (thread == 0)"):
                for k in range(_count(buffer)):
                    kernel.line(f"tl_mbarrier_init({name} + {k}, 1);")
                kernel.line("tl_mbarrier_init_fence();")
            kernel.line("tl_barrier();")
    else:
        sides = "".join(f"[{scope.printer.index(e)}]" for e in buffer.shape)
        kernel.line(f"tl_{buffer.dtype} {name}{sides};")


def _loop(kernel: _Kernel, loop: For, scope: _Scope) -> None:
    p = scope.printer
    var, inner = p.names(loop.var), scope.with_loop(loop)
    lo, hi = p.index(loop.lo), p.index(loop.hi, 8)
    unrolled = loop.kind in ("unroll", "vector", "tensor")
    if unrolled:
        kernel.line("TL_UNROLL")
    if unrolled and loop.extent is not None and not isinstance(p.algebra.simplify(loop.hi), Int):
        last = f"{p.index(loop.lo, 11)} + {loop.extent}" if lo != "0" else str(loop.extent)
        with kernel.braces(f"for ({p.integer} {var} = {lo}; {var} < {last}; ++{var})"), kernel.braces(f"if ({var} < {hi})"):
            _block(kernel, loop.body, inner)
        return
    with kernel.braces(f"for ({p.integer} {var} = {lo}; {var} < {hi}; ++{var})"):
        _block(kernel, loop.body, inner)


def _over_threads(kernel: _Kernel, loop: For, scope: _Scope) -> None:
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
            _block(kernel, loop.body, inner)
        else:
            with kernel.braces(f"if ({var} < {guard})"):
                _block(kernel, loop.body, inner)


def _number(kernel: _Kernel, loop: For, scope: _Scope) -> None:
    p = scope.printer
    number = _digit(kernel.geometry.digit(loop.kind), kernel.geometry.threads)
    low = p.index(loop.lo, 11)
    kernel.line(f"const {p.integer} {p.names(loop.var)} = {number if low == '0' else f'{low} + {number}'};")


def _guard(kernel: _Kernel, loop: For, p: Printer) -> str | None:
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


def _store(kernel: _Kernel, store: Store, scope: _Scope) -> None:
    p = scope.printer
    buffer = scope.buffers[store.buffer]
    if store.later and _copied(kernel, store, scope):
        return
    with _once(kernel, buffer, scope):
        value = p.expr(store.value, 3 if is_half_byte(buffer.dtype) else 0)
        kernel.line(f"{_place(buffer, store.index, p)} = {value}{' & 15' if is_half_byte(buffer.dtype) else ''};")


def _copied(kernel: _Kernel, copy: Store, scope: _Scope, lanes: int = 1, var: str = "", start: int = 0) -> bool:
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
    to, of = (f"{p.names(b.name)} + {_cell(b, tuple(substitute(e, {var: Int(start)}) for e in index), p, 11)}" for b, index in ends)
    with _once(kernel, buffer, scope):
        kernel.line(
            f"tl_copy_async_{bytes_}({to}, {of});" if cond is None else f"tl_copy_async_zfill_{bytes_}({to}, {of}, {p.expr(cond)});"
        )
    return True


@contextmanager
def _once(kernel: _Kernel, buffer: Buffer, scope: _Scope) -> Iterator[None]:
    """Let what is stored where other threads see it be stored by one thread."""
    gaps = kernel.geometry.gaps(scope.places) if buffer.space not in _PRIVATE else ()
    if not gaps:
        yield
        return
    tests = " && ".join(f"thread {f'% {m} ' if m else ''}< {n}" if n > 1 else f"thread{f' % {m}' if m else ''} == 0" for m, n in gaps)
    with kernel.braces(f"if ({tests})"):
        yield


def _tree(kernel: _Kernel, loop: For, reduction: Tree, scope: _Scope) -> None:
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
        step = reduction.width // 2
        while step:
            exchanged = f"tl_shuffle_xor_i32({part}, {step}, {WARP})"
            other = f"tl_shuffle_xor_{dtype}({part}, {step}, {WARP})" if dtype.bits > 16 else f"(tl_{dtype}){exchanged}"
            kernel.line(f"{part} = {_combined(p, reduction.op, dtype, part, other)};")
            step //= 2
        with _once(kernel, buffer, scope):
            place = _place(buffer, store.index, p)
            there = wrapped(dtype, place) if is_half_byte(dtype) else place
            kernel.line(f"{place} = {_combined(p, reduction.op, dtype, there, part)}{' & 15' if is_half_byte(dtype) else ''};")


def _combined(p: Printer, op: str, dtype: DType, a: str, b: str) -> str:
    if op in ("min", "max"):
        return f"tl_{op}_{dtype}({a}, {b})"
    if dtype.is_float:
        return f"{a} {op} {b}"
    sign = {"and": "&", "or": "|", "bitand": "&", "bitor": "|", "bitxor": "^"}.get(op, op)
    return wrapped(dtype, f"({a} {sign} {b})")


# ---------------------------------------------------------------- memory


def _place(buffer: Buffer, index: tuple[Index, ...], p: Printer) -> str:
    name = p.names(buffer.name)
    if buffer.space in ("registers", "stack"):
        return name + "".join(f"[{p.index(e)}]" for e in index)
    return f"{name}[{_cell(buffer, index, p)}]"


def _cell(buffer: Buffer, index: tuple[Index, ...], p: Printer, level: int = 0) -> str:
    """Return the number of an element in memory, in parentheses when it binds less tightly than `level`."""
    number = offset(buffer, index)
    exchanged = swizzle(buffer)
    if exchanged is None:
        return p.index(number, level)
    column = p.algebra.simplify(Mul(Mod(_stretch(buffer, index, exchanged), Int(exchanged.columns)), Int(exchanged.column)))
    if column == Int(0):
        return p.index(number, level)
    text = f"{p.index(number, ATOM)} ^ {p.index(column, ATOM)}"
    return f"({text})" if level else text


def _stretch(buffer: Buffer, index: tuple[Index, ...], exchanged: Swizzle) -> Index:
    """Return the number of the stretch that a cell is in: some whole rows of it, where they fill one."""
    rows = replace(buffer, shape=buffer.shape[:-1])
    match buffer.shape[-1]:
        case Int(row) if exchanged.row % row == 0:
            return FloorDiv(offset(rows, index[:-1]), Int(exchanged.row // row))
        case _:
            return FloorDiv(offset(buffer, index), Int(exchanged.row))


def _load(kernel: _Kernel, load: Load, p: Printer) -> str:
    buffer = p.env.buffers[load.buffer]
    place = _place(buffer, load.index, p)
    return wrapped(buffer.dtype, place) if is_half_byte(buffer.dtype) else place


def _vector(kernel: _Kernel, loop: For, lanes: int, scope: _Scope) -> None:
    """Write a loop over lanes with loads and stores of `lanes` neighbours at once, where they are neighbours."""
    assert loop.extent is not None
    buffer = scope.buffers[next(s.buffer for s in loop.body if isinstance(s, Store))]
    moving = moving_names(loop)
    steady = tuple(s for s in loop.body if isinstance(s, Let) and s.name not in moving)
    loop = replace(loop, body=tuple(s for s in loop.body if s not in steady))
    with _once(kernel, buffer, scope), kernel.braces("") if steady else nullcontext():
        alone = replace(scope, places=scope.places | {"thread"}) if buffer.space not in _PRIVATE else scope
        for let in steady:
            alone = _stmt(kernel, let, alone)
        for start in range(0, loop.extent or 0, lanes):
            _lanes(kernel, loop, start, lanes, alone, moving)


def _lanes(kernel: _Kernel, loop: For, start: int, lanes: int, scope: _Scope, moving: frozenset[str]) -> None:
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
            at = _cell(buffer, tuple(substitute(e, {loop.var: first}) for e in load.index), p, 11)
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
            at = _cell(buffer, tuple(substitute(e, {loop.var: first}) for e in s.index), p, 11)
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
