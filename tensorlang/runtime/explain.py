"""What a compiled model does, told to people: its kernels, how fast they could be, how fast they are.

The kernels' code is there without this; what explains it needs the whole compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorlang.artifact import Artifact
from tensorlang.graph.edit import members
from tensorlang.graph.passes.precision.explain import told
from tensorlang.runtime.executable import Executable, timed
from tensorlang.runtime.kernel_time import KernelTime
from tensorlang.runtime.roofline import Bound, bound_of, ceilings_for
from tensorlang.runtime.work import Work, work_of

Array = np.ndarray[Any, Any]


def profiled(executable: Executable, inputs: Sequence[Array]) -> tuple[KernelTime, ...]:
    """Return each kernel's time in a run, in the order they run."""
    values = executable.graph.values
    times = timed(executable, inputs)
    return tuple(
        KernelTime(k.program.name, members(k), values[k.outputs[0]], seconds, work_of(k.program))
        for k, seconds in zip(executable.kernels, times, strict=True)
    )


def _bounds(executable: Executable) -> tuple[tuple[Work, Bound], ...]:
    """Return how much each kernel has to do, and how fast that could be."""
    works = [work_of(k.program) for k in executable.kernels]
    threads = executable.toolchain.threads
    return tuple((w, bound_of(w, ceilings_for(k.program, threads))) for w, k in zip(works, executable.kernels, strict=True))


def explained(executable: Executable, inputs: Sequence[Array] | None) -> str:
    """Return the kernels in the order they run: what each computes, how fast that could be on this machine, where its schedule is from;
    with `inputs` also the times they take."""
    times = timed(executable, inputs) if inputs is not None else None
    bounds = _bounds(executable)
    graph = executable.graph
    lines = [
        f"model `{graph.name}`: {len(executable.kernels)} kernels ({len({a.symbol for a in executable.artifacts})} distinct), "
        f"{_size(executable.constants.nbytes)} of constants, {_size(executable.plan.arena_bytes)} for values in between",
    ]
    precision = executable.toolchain.precision
    if precision.used != precision.asked:
        lines.append(f"      precision {precision.asked}: contractions stay {precision.used}; {precision.reason}")
    for k, kernel in enumerate(executable.kernels):
        result = graph.values[kernel.outputs[0]]
        about = [_roofline(*bounds[k]), *([] if times is None else [_took(*bounds[k], times[k])]), *_schedule(executable.artifacts[k])]
        about += told(kernel.program, precision)
        lines.append(f"{k:4}  {kernel.program.name}: {result.dtype}{list(result.shape)}  =  {' + '.join(members(kernel))}")
        lines += [f"          {line}" for line in about]
    flops, best = sum(w.flops for w, _ in bounds), sum(b.seconds for _, b in bounds)
    lines.append(f"      in all {flops:.3g} operations, at best {_us(best)}")
    if times is not None:
        lines[-1] += f", took {_us(sum(times))}, {_share(best, sum(times))} of the roofline"
    return "\n".join(lines)


def _roofline(work: Work, bound: Bound) -> str:
    """Return what a kernel has to do, and how fast that could be."""
    ratio = f"{work.intensity:.3g} operations a byte"
    return f"{work.flops:.3g} operations, {_size(work.moved_bytes)}, {ratio}, bound by {bound.by}: at best {_us(bound.seconds)}"


def _took(work: Work, bound: Bound, seconds: float) -> str:
    rate = f", {work.flops / seconds * 1e-9:.1f} GFLOP/s" if work.flops and seconds else ""
    return f"took {_us(seconds)}, {_share(bound.seconds, seconds)} of the roofline{rate}"


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def _share(best: float, seconds: float) -> str:
    return f"{best / seconds:.0%}" if seconds else "-"


def _schedule(artifact: Artifact) -> tuple[str, ...]:
    """Return where a kernel's schedule came from, and what was refused before."""
    return (artifact.origin, *(f"not {tried}" for tried in artifact.tried if ": refused: " in tried))


def _size(count: int) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count = count // 1024 if unit == "bytes" else -(-count // 1024)
    return f"{count} GiB"
