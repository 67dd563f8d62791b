"""What keeps a kernel for a processor from being faster, told from its loops, what emission made of them, and its machine code.

    reads      a loop marked vector reads an element for each lane, or picks elements out of several vectors
    scalar     a loop runs element by element: a dependence is in the way, or no directive asks for vectors
    spills     an innermost loop keeps values on the stack
    latency    a sum has fewer accumulators than keep the units busy while one addition waits for the other
    threads    most of it runs on one thread

Loops count by how often they run (`codegen.loops.innermost`) and how many operations they have: those with less than a tenth of all
are left out. Nothing is measured here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import ceil, prod
from typing import Literal

from codegen.llvm.emitted import Emitted, LaneReads
from codegen.llvm.fills import filled
from codegen.llvm.inner_loops import InnerLoop
from codegen.llvm.lanes import needs_scalars
from codegen.llvm.spills import spills_of
from codegen.loops.indices import Algebra
from codegen.loops.innermost import Nest, innermost, trips
from codegen.loops.nodes import (
    Alloc,
    Binary,
    Buffer,
    Call,
    FloorDiv,
    Fma,
    For,
    Function,
    Index,
    Int,
    Load,
    Max,
    Min,
    Mod,
    Require,
    Select,
    Store,
    ValueIndex,
    Var,
)
from codegen.loops.pinned import runs_at_most_once
from codegen.loops.walk import free_vars, loads, stores, walk
from polyhedral import affine
from polyhedral.expr import Name as AffineName
from tensorlang.backends.cpu.loop_cycles import estimate
from tensorlang.backends.cpu.roofline import Bound
from tensorlang.policy.cpu.cost import CALL_OPERATIONS, LATENCY_CYCLES, load_cycles, multiply_cycles
from tensorlang.policy.deriver import PARALLEL_WORK, operations_of
from tensorlang.runtime.limits import Limit, LoopCycles
from tensorlang.runtime.report import bytes_text
from tensorlang.runtime.work import Work
from tensorlang.tensor.nodes import Definition, Dynamic, Program, Read
from tensorlang.tensor.walk import reads

MINOR = 0.1
"""Of all operations of innermost loops: what has fewer is not mentioned."""
_OPAQUE = (ValueIndex, Min, Max, FloorDiv, Mod)
"""Indices that are no sums of multiples of loop variables."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel to look into: the equations with sizes that are numbers, as its schedule has rewritten them, the loops that its schedule
    names, its loops as they are emitted, what emission told of them, the innermost loops of its machine code where they are known, how
    many lanes of 32 bits a vector has, and how many threads it may use."""

    program: Program
    named: frozenset[str]
    function: Function
    record: Emitted
    inner: tuple[InnerLoop, ...]
    lanes: int
    threads: int
    sizes: Mapping[str, int]


def limits_of(kernel: Kernel) -> tuple[Limit, ...]:
    """Return what limits a kernel besides the roofline, what is worst first as a rule."""
    nests = innermost(kernel.function, kernel.sizes)
    total = sum(map(operations, nests))
    major = [n for n in nests if operations(n) >= MINOR * total]
    found = (
        *thread_limits(kernel, nests),
        *scalar_limits(kernel, major),
        *read_limits(kernel, major),
        *spill_limits(kernel),
        *latency_limits(kernel, major),
    )
    return tuple(dict.fromkeys(found))


def operations(nest: Nest) -> float:
    """Return about how many operations a nest takes, reads and writes among them."""
    body = list(walk(*nest.path[-1].body))
    slow = sum(isinstance(n, Call) or (isinstance(n, Binary) and n.op == "/") for n in body)
    return nest.iterations * (CALL_OPERATIONS * slow + sum(isinstance(n, (Load, Store, Binary, Fma, Select)) for n in body))


def roofline_limit(bound: Bound, work: Work, seconds: float) -> Limit:
    """Return what the roofline says: the rate that was reached of the one that could be."""
    share = f"{bound.seconds / seconds:.0%} of the roofline" if seconds else "no time at all"
    if bound.seconds > seconds:
        share += ": it leaves out some of what its equations name"
    amount = f"{work.flops:.3g} operations, {bytes_text(work.moved_bytes)} in and out"
    if bound.by == "compute" and bound.compute_seconds:
        rate, most = work.flops / seconds, work.flops / bound.compute_seconds
        return Limit("roofline", f"bound by compute: {rate * 1e-9:.3g} of {most * 1e-9:.3g} GFLOP/s, {share} ({amount})")
    if not bound.memory_seconds:
        return Limit("roofline", f"nothing to do: {amount}")
    rate, most = work.moved_bytes / seconds, work.moved_bytes / bound.memory_seconds
    return Limit("roofline", f"bound by {bound.by}: {rate * 1e-9:.3g} of {most * 1e-9:.3g} GB/s, {share} ({amount})")


# ---------------------------------------------------------------- reads of vectors


def read_limits(kernel: Kernel, nests: Sequence[Nest]) -> Iterator[Limit]:
    """Yield the reads that loops marked vector do not make as whole vectors."""
    for nest in nests:
        loop = next((loop for loop in nest.path if loop.kind == "vector"), None)
        if loop is None:
            continue
        name = loop_name(kernel, loop.var)
        if needs_scalars(loop):
            why = "a loop inside has other bounds for each, or each has memory of its own, or all write one element"
            yield Limit("reads", f"is marked vector, yet its lanes run one after the other: {why}", name)
            continue
        for load in dict.fromkeys(loads(*loop.body)):
            how = kernel.record.reads.get(load)
            if how is not None and loop.var in free_vars(load):
                yield _read_limit(kernel, name, loop, load, how)


def _read_limit(kernel: Kernel, name: str, loop: For, load: Load, how: LaneReads) -> Limit:
    is_data = any(isinstance(n, ValueIndex) for n in walk(*load.index))
    text, place = source_read(kernel.program, load.buffer, is_data)
    distance = lane_distance(kernel.function, load, loop.var)
    read = f"`{text}` is gathered" if how == "gathered" else f"`{text}` is read one lane after the other"
    if is_data:
        return Limit("reads", f"{read}: data say where each element lies", name, place)
    if how == "strided":
        return Limit("reads", f"`{text}` is picked out of {distance} vectors: elements lie {distance} apart", name, place)
    if distance is not None:
        help = f"lanes along which `{load.buffer}` is contiguous, or `pack {load.buffer} as [...]`"
        return Limit("reads", f"{read}: elements lie {distance} apart", name, place, help)
    bent = any(isinstance(n, (Min, Max)) for n in walk(*load.index))
    why = "its index is bent at an edge" if bent else "its index is no multiple of the lane's number"
    help = "an equation of its own for the border" if bent else ""
    return Limit("reads", f"{read}: {why}", name, place, help)


def lane_distance(function: Function, load: Load, var: str) -> int | None:
    """Return how many elements the reads of neighbouring iterations of `var` lie apart in memory, None where that is no one number."""
    shape = next((b.shape for b in _buffers(function) if b.name == load.buffer), ())
    extents = [e.value for e in shape if isinstance(e, Int)]
    if len(extents) != len(shape) or len(shape) != len(load.index):
        return None
    distance = 0
    for k, index in enumerate(load.index):
        step = _step(index, var)
        if step is None:
            return None
        distance += step * prod(extents[k + 1 :])
    return distance


def _buffers(function: Function) -> Iterator[Buffer]:
    yield from function.params
    yield from (n.buffer for n in walk(*function.body) if isinstance(n, Alloc))


def _step(index: Index, var: str) -> int | None:
    """Return by how much `index` grows with `var`, None where that is no one number."""
    if any(isinstance(n, _OPAQUE) and var in free_vars(n) for n in walk(index)):
        return None
    poly = Algebra.of({}).poly(index)
    parts = poly.split(Var(var))
    return None if parts is None else parts[0].constant


# ---------------------------------------------------------------- scalar loops


def scalar_limits(kernel: Kernel, nests: Sequence[Nest]) -> Iterator[Limit]:
    """Yield the loops that run element by element, and why: of what their innermost loops carry, out to the first that is not told."""
    for nest in nests:
        if nest.iterations < 2 * kernel.lanes or any(loop.kind in ("vector", "tile", "tensor") for loop in nest.path):
            continue
        last = nest.path[-1]
        if filled(last) is not None:
            continue
        if _only_checks(nest):
            names = ", ".join(dict.fromkeys(load.buffer for load in loads(*last.body)))
            reason = f"checks the data of `{names}` element by element, before anything is computed"
            yield Limit("scalar", reason, loop_name(kernel, last.var))
            continue
        yield from _scalar_limit(kernel, nest)


def _only_checks(nest: Nest) -> bool:
    return all(isinstance(s, Require) for s in nest.path[-1].body)


def _scalar_limit(kernel: Kernel, nest: Nest) -> Iterator[Limit]:
    once = [loop for loop in nest.path if runs_at_most_once(loop)]
    carried = {loop.var: carried_by(loop) for loop in nest.path if loop not in once}
    inwards = (loop for loop in reversed(nest.path) if loop not in once)
    path = list(takewhile(lambda loop: carried[loop.var] != "unknown", inwards))[::-1]
    if not path:
        return
    name = loop_name(kernel, path[-1].var)
    free = [loop for loop in path if carried[loop.var] == "free"]
    wide = next((loop for loop in reversed(free) if trips(loop, kernel.sizes) >= kernel.lanes), None)
    if wide is not None:
        yield _free_limit(kernel, nest, name, loop_name(kernel, wide.var))
    if free:
        return
    need = carried[path[-1].var]
    assert isinstance(need, Need)
    need = _in_memory(path[-1], need)
    if once:
        yield Limit("scalar", f"adds to the element of `{need.buffer}` that data name, each iteration after the one before", name)
        return
    text, place = needed_read(kernel.program, need)
    if not place:
        if tensor_kept_in(kernel.program, need.buffer) is not None:
            yield Limit("scalar", f"runs element by element: every iteration needs an element of `{text}` that one before it made", name)
            return
        exact = kernel.program.mode == "strict"
        help = "mode `reduce`, in which sums may be regrouped" if exact else _lanes_of(kernel, name)
        yield Limit("scalar", f"adds up in `{need.buffer}`, each iteration after the one before", name, "", help)
        return
    help = f"`skew {loop_name(kernel, path[-2].var)} by {name}` and vectors along {name}" if len(path) > 1 else ""
    yield Limit("scalar", f"runs element by element: every iteration needs `{text}`, of one before it", name, place, help)


def _free_limit(kernel: Kernel, nest: Nest, name: str, along: str) -> Limit:
    """Return why a nest runs element by element though the loop `along` carries nothing."""
    gathered = next((load for load in loads(*nest.path[-1].body) if any(isinstance(n, ValueIndex) for n in walk(*load.index))), None)
    if gathered is not None:
        text, place = source_read(kernel.program, gathered.buffer, True)
        return Limit("scalar", f"runs element by element: data say where `{text}` lies, which vectors gather", name, place)
    reason = f"runs element by element: no directive makes vectors of {along}, which carries no dependence"
    return Limit("scalar", reason, name, "", _lanes_of(kernel, along))


def _lanes_of(kernel: Kernel, loop: str) -> str:
    return f"`split {loop} by {kernel.lanes} -> o, v` and `vectorize` of the inner loop"


@dataclass(frozen=True, slots=True)
class Need:
    """An element that a loop reads of what an earlier iteration has written, at a `distance` from the one that this iteration writes."""

    buffer: str
    distance: tuple[int, ...]


def carried_by(loop: For) -> Need | Literal["free", "unknown"]:
    """Return a read of what an earlier iteration of `loop` has written, "free" where there is none, "unknown" where that is open."""
    own = {n.buffer.name for n in walk(*loop.body) if isinstance(n, Alloc)}
    written = [s for s in stores(*loop.body) if s.buffer not in own]
    inner = {n.var: n for n in walk(*loop.body) if isinstance(n, For)}
    for store in written:
        for load in (load for load in loads(*loop.body) if load.buffer == store.buffer):
            distance = _distance(store.index, load.index)
            found = None if distance is None else _meets(store.index, distance, loop.var, inner)
            if distance is None or found is None:
                return "unknown"
            if found:
                return Need(load.buffer, distance)
        if any(isinstance(n, ValueIndex) for n in walk(*store.index)):
            return "unknown"
    return "free"


def _in_memory(loop: For, need: Need) -> Need:
    """Return what an iteration needs as an element of the tensor that it is stored to, where a register keeps it from one to the next."""
    kept = next((s.value for s in stores(*loop.body) if s.buffer == need.buffer), None)
    other = next((s for s in stores(*loop.body) if s.buffer != need.buffer and s.value == kept), None)
    steps = [] if other is None else [_step(w, loop.var) for w in other.index]
    known = tuple(-step for step in steps if step is not None)
    return Need(other.buffer, known) if other is not None and len(known) == len(steps) else need


def _distance(written: Sequence[Index], read: Sequence[Index]) -> tuple[int, ...] | None:
    """Return where the element read lies, seen from the one written, None where that is not always the same."""
    if any(isinstance(n, _OPAQUE) for n in walk(*written, *read)):
        return None
    poly = Algebra.of({}).poly
    found = tuple((poly(r) - poly(w)).constant for w, r in zip(written, read, strict=True))
    known = tuple(d for d in found if d is not None)
    return known if len(known) == len(found) else None


def _meets(written: Sequence[Index], distances: Sequence[int], var: str, inner: Mapping[str, For]) -> bool | None:
    """Tell whether an iteration of `var` may read what another one has written; None where the bounds inside are not known."""
    for w, distance in zip(written, distances, strict=True):
        step = _step(w, var)
        if step is None:
            return None
        span = 0
        for name in free_vars(w) & inner.keys():
            extent, by = _extent(inner[name]), _step(w, name)
            if extent is None or by is None:
                return None
            span += abs(by) * (extent - 1)
        nearest = (1, -1) if step == 0 else (1, -1, distance // step, -(-distance // step))
        if not any(t and abs(step * t - distance) <= span for t in nearest):
            return False
    return True


def _extent(loop: For) -> int | None:
    match loop:
        case For(_, Int(lo), Int(hi)):
            return max(1, hi - lo)
        case _:
            return loop.extent


# ---------------------------------------------------------------- spills


def spill_limits(kernel: Kernel) -> Iterator[Limit]:
    """Yield the innermost loops of the machine code that keep vectors on the stack."""
    for found in spills_of(kernel.inner):
        name = _labelled(kernel, found.label)
        what = f"each iteration stores {found.stores} and loads {found.loads} vectors that find no register"
        yield Limit("spills", what if name else f"a loop's {what[5:]}", name, "", "fewer points in its unrolled loops")


def cycles_of(kernel: Kernel, cpu: str) -> tuple[LoopCycles, ...]:
    """Return what iterations of the innermost loops of x86's machine code take that do much of the work, the one that does most first; of
    copies of one loop, only of the first. `cpu` is what LLVM calls the processor."""
    nests = innermost(kernel.function, kernel.sizes)
    total = sum(map(operations, nests))
    work: dict[str, float] = {}
    for nest in nests:
        inner = [loop.var for loop in nest.path if loop.kind in ("serial", "parallel") and not runs_at_most_once(loop)]
        if inner:
            work[inner[-1]] = work.get(inner[-1], 0.0) + operations(nest)
    labels = {label: next(iter(names)) for label, names in kernel.record.loops.items() if len(names) == 1}
    known = [(work.get(labels.get(loop.label, ""), 0.0), loop) for loop in kernel.inner]
    major = sorted((k for k in known if k[0] >= MINOR * total), key=lambda k: -k[0])
    named: dict[str, InnerLoop] = {}
    for _, loop in major:
        named.setdefault(_labelled(kernel, loop.label), loop)
    found = (estimate(name, loop, cpu) for name, loop in named.items())
    return tuple(f for f in found if f is not None)


def _labelled(kernel: Kernel, label: str) -> str:
    """Return the name of the loop that emission began at a label, "" where it is not known."""
    names = kernel.record.loops.get(label, set())
    return loop_name(kernel, next(iter(names))) if len(names) == 1 else ""


# ---------------------------------------------------------------- latency of sums


def latency_limits(kernel: Kernel, nests: Sequence[Nest]) -> Iterator[Limit]:
    """Yield the loops over the terms of sums whose additions wait for each other."""
    for nest in nests:
        at = next((k for k in reversed(range(len(nest.path))) if nest.path[k].kind == "serial"), None)
        if at is None:
            continue
        found = accumulators(nest.path[at], kernel.lanes, nest.path[:at])
        if found is None or not any(loop.kind == "vector" for loop in nest.path):
            continue
        chains, cycles = found
        if cycles < LATENCY_CYCLES:
            wanted = ceil(chains * LATENCY_CYCLES / cycles)
            name = loop_name(kernel, nest.path[at].var)
            many = f"{chains} accumulator{'s' * (chains != 1)}"
            reason = f"{many}: each addition waits for the one before; {wanted} keep the units busy"
            yield Limit("latency", reason, name, "", f"`rfactor`, or more points side by side in unrolled loops inside {name}")


def accumulators(loop: For, lanes: int, around: Sequence[For] = ()) -> tuple[int, float] | None:
    """Return how many vectors an iteration of a loop over terms adds to, and the cycles in which loads and arithmetic could be done; None
    for what is no such loop. Of the loops `around` it lanes run it side by side."""
    if any(isinstance(n, For) and (n.kind not in ("unroll", "vector") or n.extent is None) for n in walk(*loop.body)):
        return None
    inside = {n.var: n for n in walk(*loop.body) if isinstance(n, For)}
    beside = {n.var: n for n in around if n.kind == "vector"}
    written = list(stores(*loop.body))
    if not written or not all(_adds_up(s, loop.var) for s in written):
        return None

    def vectors(*place: Index) -> int:
        used = free_vars(*place)
        sizes = [
            ceil((n.extent or 1) / lanes) if n.kind == "vector" else n.extent or 1 for v, n in {**beside, **inside}.items() if v in used
        ]
        return prod(sizes)

    def own(buffer: str) -> list[Var]:
        return [Var(v) for v, n in beside.items() if any(isinstance(a, Alloc) and a.buffer.name == buffer for a in walk(*n.body))]

    chains = sum(vectors(*s.index, *own(s.buffer)) for s in written)
    sums = {s.buffer for s in written}
    read = {load for load in loads(*loop.body) if load.buffer not in sums}
    return chains, max(multiply_cycles(chains), load_cycles(sum(vectors(*load.index) for load in read)))


def _adds_up(store: Store, var: str) -> bool:
    """Tell whether a store adds to the element that it reads, which is the same for all iterations of `var`."""
    own = Load(store.buffer, store.index)
    if var in free_vars(*store.index):
        return False
    match store.value:
        case Binary("+" | "*" | "min" | "max", lhs, rhs):
            return own in (lhs, rhs)
        case value:
            return getattr(value, "c", None) == own


# ---------------------------------------------------------------- threads


def thread_limits(kernel: Kernel, nests: Sequence[Nest]) -> Iterator[Limit]:
    """Yield that one thread does more than half of the work, where there could be more, and why."""
    nests = [n for n in nests if not _only_checks(n)]
    alone = [n for n in nests if not any(loop.kind == "parallel" for loop in n.path)]
    if kernel.threads == 1 or sum(n.iterations for n in alone) <= sum(n.iterations for n in nests) / 2:
        return
    work = sum(map(operations_of, kernel.program.definitions))
    if work < PARALLEL_WORK:
        yield Limit("threads", f"one thread: {work} operations are too few to share, which pays from {PARALLEL_WORK} on")
        return
    hottest = max(alone, key=lambda n: n.iterations)
    carried = {loop.var: carried_by(loop) for loop in hottest.path if loop.kind == "serial" and not runs_at_most_once(loop)}
    free = next((var for var, found in carried.items() if found == "free"), None)
    if free is not None:
        name = loop_name(kernel, free)
        yield Limit("threads", f"one thread: no loop is parallel, though {name} carries no dependence", "", "", f"`parallel {name}`")
    elif carried and all(isinstance(found, Need) for found in carried.values()):
        need = next(found for found in carried.values() if isinstance(found, Need))
        text, place = needed_read(kernel.program, need)
        is_sum = tensor_kept_in(kernel.program, need.buffer) is None and kernel.program.mode != "strict"
        help = "`rfactor BINDER to LENGTH`, whose stretches threads share" if is_sum else ""
        yield Limit("threads", f"one thread: every loop carries a dependence, of `{text}`", "", place, help)
    else:
        yield Limit("threads", "one thread: no loop is parallel")


# ---------------------------------------------------------------- names and places


def source_read(program: Program, tensor: str, is_data: bool) -> tuple[str, str]:
    """Return the read of a tensor as the file writes it, and its place; the tensor's name and "" where there are several. `is_data`: one
    with an index that data give."""
    found = [r for r in _reads_of(program.definitions, tensor) if any(isinstance(s, Dynamic) for s in r.index) == is_data]
    return _written(tensor, found)


def needed_read(program: Program, need: Need) -> tuple[str, str]:
    """Return the read of a recurrence that is meant, as `source_read` does."""
    tensor, found = tensor_kept_in(program, need.buffer), []
    if tensor is None:
        return need.buffer, ""
    for d in program.definitions:
        axes = [AffineName(axis) for axis in d.axes]
        for r in _reads_of([d], tensor) if tensor in {t.name for t in d.tensors} else ():
            slots = [s for s in r.index if not isinstance(s, Dynamic)]
            if len(slots) == len(axes) and tuple(affine.difference(s, a) for s, a in zip(slots, axes, strict=True)) == need.distance:
                found.append(r)
    return _written(tensor, found)


def tensor_kept_in(program: Program, buffer: str) -> str | None:
    """Return the tensor that a buffer holds, None for one that is no tensor of the program, as what a sum adds up in."""
    return next((t.name for d in program.definitions for t in d.tensors if t.name.replace(".", "_") == buffer), None)


def _reads_of(definitions: Sequence[Definition], tensor: str) -> Iterator[Read]:
    return (r for d in definitions for p in d.pieces for r in reads(p.value) if r.tensor == tensor)


def _written(tensor: str, found: Sequence[Read]) -> tuple[str, str]:
    spans = [r.span for r in found if r.span.source.text]
    texts = {" ".join(s.source.text[s.start : s.end].split()): s for s in reversed(spans)}
    if len(texts) != 1 or not next(iter(texts)).startswith(tensor):  # of what a directive has made, a file writes something else
        return tensor, ""
    [(text, span)] = texts.items()
    line, column = span.source.location(span.start)
    return text, f"{span.source.name}:{line}:{column}"


def loop_name(kernel: Kernel, var: str) -> str:
    """Return a loop's name in schedules: y.jv for y_jv_1, which is a copy of it."""
    by_variable = {name.replace(".", "_"): name for name in sorted(kernel.named)}
    while var not in by_variable and re.search(r"_\d+$", var):
        var = var[: var.rindex("_")]
    return by_variable.get(var, var)
