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

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice

from codegen.errors import Unfit
from codegen.gpu import matrix
from codegen.gpu.boxes import accessed_directly
from codegen.gpu.cells import cell_count, element
from codegen.gpu.expressions import Printer, is_below_a_byte, wrapped
from codegen.gpu.geometry import WARP, WARPGROUP
from codegen.gpu.launches import BlockCode, Launches
from codegen.gpu.names import Identifiers
from codegen.gpu.program import STATIC_SHARED, Kernel, Launch, Program, Scratch
from codegen.gpu.statements import allocate, ready, write
from codegen.gpu.text import KernelText, Scope
from codegen.gpu.warp_specialization import REGISTERS, Roles, arrivals, registers_of, roles_of
from codegen.loops.evaluate import evaluate
from codegen.loops.indices import Algebra, Range
from codegen.loops.nodes import Alloc, Barrier, Boxes, Buffer, For, Index, Int, Load, Mma, Mul, Release, Require, Stmt, ValueIndex
from codegen.loops.verify import Env
from codegen.loops.walk import free_vars, stores, walk

MOST_LAUNCHES = 4096
"""Of a program: what is launched more often is no straight line any more."""
REGISTER_STEP = 8
"""What the registers of a thread are a multiple of."""
KEPT = 128
"""Registers of a thread."""
MOST = 255
"""That a thread may have."""
OTHER_REGISTERS = 64
"""Registers that a thread has besides those of matrices: addresses, copies on their way."""


def render(found: Launches) -> Program:
    """Return the kernels of `found` as text, with their launches."""
    function = found.function
    checked = [_checks(block) for block in found.blocks]
    kernels = tuple(_kernel(found, block, heeds=any(checked[:number])) for number, block in enumerate(found.blocks))
    most = max(MOST_LAUNCHES, len(found.blocks))
    launched = tuple(islice(_launched(found.blocks, {}), most + 1))
    if len(launched) > most:
        loop = next(step.var for block in found.blocks for step in block.steps)
        raise Unfit(f"not supported yet: more than {most} launches, by the steps of `{loop}`", loop)
    scratch = tuple(Scratch(b.name, b.dtype, _elements(b)) for b in found.scratch)
    return Program(function.name, tuple(p.name for p in function.params), function.sizes, kernels, launched, scratch)


def _launched(blocks: Sequence[BlockCode], steps: Mapping[str, int]) -> Iterator[Launch]:
    """Yield the launches of `blocks` in order, of those that share a loop of steps all of one iteration before the next."""
    depth = len(steps)
    for loop, group in groupby(blocks, lambda block: block.steps[depth] if len(block.steps) > depth else None):
        if loop is None:
            yield from (Launch(block.name, _grid(block), tuple((name, steps[name]) for name in block.told)) for block in group)
            continue
        if not free_vars(loop.lo, loop.hi) <= steps.keys():
            raise Unfit(f"how often what `{loop.var}` goes around is launched has to be known when compiling", loop.var)
        inner = [*group]
        for number in range(evaluate(loop.lo, steps), evaluate(loop.hi, steps)):
            yield from _launched(inner, {**steps, loop.var: number})


def _grid(block: BlockCode) -> tuple[Index, Index, Index]:
    by = {loop.place: loop.count for loop in block.blocks}
    return by.get("block.x", Int(1)), by.get("block.y", Int(1)), by.get("block.z", Int(1))


def _elements(buffer: Buffer) -> Index:
    total: Index = Int(1)
    for extent in buffer.shape:
        total = Mul(total, extent)
    return total


def _checks(block: BlockCode) -> bool:
    return any(isinstance(n, Require) for n in walk(*block.body))


def _ends_at_data(block: BlockCode) -> bool:
    """Tell whether data say where a loop begins or ends: they may be further than 32 bits reach."""
    ends = (end for loop in walk(*block.body) if isinstance(loop, For) for end in (loop.lo, loop.hi))
    return any(isinstance(part, ValueIndex) for end in ends for part in walk(end))


def _kernel(found: Launches, block: BlockCode, *, heeds: bool) -> Kernel:
    """Return one launch as a kernel. It `heeds` what launches before it checked: where they found a requirement unmet it does nothing."""
    otherwise = accessed_directly(block.body)
    buffers = [b for b in found.buffers.values() if b.name in otherwise]
    boxes = [n for n in walk(*block.body) if isinstance(n, Boxes)]
    written = {s.buffer for s in stores(*block.body)}
    sizes = (*found.function.sizes, *block.told)
    names = Identifiers()
    wide = bool(found.function.sizes) or any(cell_count(b) >= 1 << 31 for b in buffers) or _ends_at_data(block)
    kernel = KernelText(block, block.geometry, names, reads_asynchronously=_reads_asynchronously(block.body))
    roles = roles_of(block.body)
    kernel.barriers = {n.barriers: 1 for n in boxes} | {
        n.barriers: n.blocks * arrivals(block.geometry.threads) for n in walk(*block.body) if isinstance(n, Release)
    }
    kernel.bulk_copied = frozenset(b.target.buffer for n in boxes for b in n.boxes)
    ranges: dict[str, Range] = dict.fromkeys(found.function.sizes, (0, None))
    algebra = Algebra.of(ranges)
    env = Env.of(found.function)
    for step in block.steps:
        algebra = algebra.with_loop(step.var, step.lo, step.hi)
        env = env.with_index(step.var)
    for buffer in found.scratch:
        env = env.with_buffer(buffer)
    for loop in block.blocks:
        algebra = algebra.with_loop(loop.var, loop.lo, loop.hi)
        env = env.with_index(loop.var)
    printer = Printer(env, algebra, names, _load, wide)
    scope = Scope(printer, dict(found.buffers))
    checks = _checks(block)
    params = [f"{'TL_OUT' if b.name in written else 'TL_IN'}(tl_{b.dtype}) {names(b.name)}" for b in buffers]
    if checks and (roles is not None or any(isinstance(n, Barrier) for n in walk(*block.body))):
        raise Unfit("not supported yet: a check of values in a block whose threads wait for each other")
    if heeds:
        kernel.line("if (tl_failed(status)) return;")
    _head(kernel, scope)
    if any(b.blocks > 1 for n in boxes for b in n.boxes):
        kernel.rank = names.fresh("rank")
        kernel.line(f"const int {kernel.rank} = tl_cluster_rank();")
    if roles is None:
        write(kernel, tuple(block.body), scope)
    else:
        _write_roles(kernel, roles, scope)
    if any(isinstance(n, Release) and n.blocks > 1 for n in walk(*block.body)):
        kernel.line("tl_cluster_barrier();")  # nobody tells a block that has left
    kernel.line("")
    params += [f"TL_TENSOR_MAP({m.name})" for m in kernel.maps]
    params += [f"tl_i64 {names(s)}" for s in sizes]
    params += ["tl_i32* status"] if checks or heeds else []
    threads = kernel.geometry.threads + (0 if roles is None else WARPGROUP)
    blocks = _blocks(block, threads, () if roles is None else roles.registers)
    cluster = _cluster(block)
    together = "" if cluster == (1, 1, 1) else f"TL_CLUSTER{cluster} "
    head = f"TL_KERNEL({threads}, {blocks}) {together}{block.name}({', '.join(params)}) {{"
    shared = kernel.shared_bytes
    arena = [] if not shared else [f"    TL_SHARED(shared, {shared});" if shared <= STATIC_SHARED else "    TL_SHARED_DYNAMIC(shared);"]
    text = "\n".join([head, *arena, *(f"    {line}" for line in kernel.shared), *kernel.lines[:-1], "}", ""])
    dims = (threads, 1, 1)
    matrices = tuple(sorted({n.name for n in walk(*block.body) if isinstance(n, Mma)}))
    allocated = 0 if roles is None else registers_of(roles.registers, kernel.geometry.threads)
    used = tuple(b.name for b in buffers)
    return Kernel(
        block.name, text, used, sizes, dims, shared, 0, checks or heeds, tuple(kernel.maps), cluster, matrices, allocated, block.warp
    )


def _cluster(block: BlockCode) -> tuple[int, int, int]:
    """Return how many blocks along each axis of the grid are one cluster."""
    along = block.cluster_loop
    if along is None:
        return (1, 1, 1)
    if not all(loop.exact for loop in block.blocks):
        raise Unfit(f"not supported yet: a cluster along `{along.var}` in a grid with blocks that have nothing to do", along.var)
    x, y, z = (along.cluster if along.place == place else 1 for place in ("block.x", "block.y", "block.z"))
    return x, y, z


def _write_roles(kernel: KernelText, roles: Roles, scope: Scope) -> None:
    """Write what the producer of a block runs, and what its consumers do."""
    threads = kernel.geometry.threads
    kernel.specialised = True
    shared = [s.buffer for s in roles.consumers if isinstance(s, Alloc) and s.buffer.space == "shared"]
    for buffer in shared:
        scope = allocate(kernel, buffer, scope)
    ready(kernel, [b for b in shared if b.name in kernel.barriers])
    consumers = tuple(s for s in roles.consumers if not (isinstance(s, Alloc) and s.buffer in shared))
    with kernel.braces(f"if (thread >= {threads})"):
        if roles.registers:
            kernel.line(f"TL_FEWER_REGISTERS({roles.registers[0]});")
        with kernel.braces(f"if (thread < {threads + WARP} && tl_elect())"):
            kernel.in_producer = True
            write(kernel, roles.producer, scope)
            kernel.in_producer = False
    with kernel.braces("else"):
        if roles.registers:
            kernel.line(f"TL_MORE_REGISTERS({roles.registers[1]});")
        write(kernel, consumers, scope)


def _load(load: Load, p: Printer) -> str:
    buffer = p.env.buffers[load.buffer]
    place = element(buffer, load.index, p)
    return wrapped(buffer.dtype, place) if is_below_a_byte(buffer.dtype) else place


def _reads_asynchronously(body: tuple[Stmt, ...]) -> bool:
    """Tell whether asynchronous products read what threads write to shared memory."""
    products = (n for n in walk(*body) if isinstance(n, Mma) and matrix.named(n.name).warps > 1)
    return bool({o.buffer for n in products for o in (n.rows, n.columns)} & {s.buffer for s in stores(*body)})


def _blocks(block: BlockCode, threads: int, registers: tuple[int, ...]) -> int:
    """Return how many blocks a multiprocessor is to have room for: so many that a thread has KEPT registers, or as many as the matrices of
    its warp take. Where it is told nothing, the assembler aims for more blocks, at the price of registers that it keeps in memory."""
    kept = KEPT
    if registers:
        each = -(-registers_of(registers, block.geometry.threads) // (threads * REGISTER_STEP)) * REGISTER_STEP
        return max(1, REGISTERS // (each * threads))
    if any(isinstance(n, Mma) for n in walk(*block.body)):
        held = (n.buffer for n in walk(*block.body) if isinstance(n, Alloc) and n.buffer.space == "registers")
        kept = min(MOST, max(KEPT, sum(-(-cell_count(b) * b.dtype.size_bytes // 4) for b in held) + OTHER_REGISTERS))
    return max(1, REGISTERS // (kept * threads))


def _head(kernel: KernelText, scope: Scope) -> None:
    """Write what every thread knows of itself: its number, and its block's place in the grid."""
    p = scope.printer
    kernel.line("const int thread = tl_thread_x();")
    for loop in kernel.block.blocks:
        number = f"tl_{loop.place.replace('.', '_')}()"
        low = p.index(loop.lo, 11)
        kernel.line(f"const {p.integer} {p.names(loop.var)} = {number if low == '0' else f'{low} + {number}'};")
        if not loop.exact:
            kernel.line(f"if ({p.names(loop.var)} >= {p.index(loop.hi, 8)}) return;")
