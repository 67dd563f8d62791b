"""What a compiled model does, told to people: its kernels, how fast they could be, how fast they are.

The kernels' code is there without this; what explains it needs the whole compiler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from codegen.llvm.target import runs_here
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu.executable import Executable, profiled
from tensorlang.backends.cpu.loading import not_measured
from tensorlang.backends.cpu.roofline import Bound, bound_of, ceilings_for
from tensorlang.diagnostics import plain_text
from tensorlang.graph.edit import members
from tensorlang.graph.externs import trusted_call
from tensorlang.graph.nodes import Extern, Graph, Kernel
from tensorlang.graph.passes.precision.explain import product_precisions
from tensorlang.graph.sizes import PREFIX
from tensorlang.runtime.report import bytes_text, report, us
from tensorlang.runtime.work import Work, work_of

Array = np.ndarray[Any, Any]


def explained(executable: Executable, inputs: Sequence[Array] | None) -> str:
    """Return the kernels in the order they run: what each computes, how fast that could be on this machine, where its schedule is from;
    with `inputs` also the times they take."""
    profile = profiled(executable, inputs) if inputs is not None else None
    times = None if profile is None else [k.seconds for k in profile]
    kernels, toolchain, placed = executable.kernels, executable.toolchain, executable.placed_steps
    works = [work_of(k.program) for k in kernels]
    if not runs_here(toolchain.target):
        return _unmeasured(executable, works)
    bounds = [bound_of(w, ceilings_for(k.program, toolchain.threads, toolchain.target)) for w, k in zip(works, kernels, strict=True)]
    steps = _kernel_numbers(placed)

    def about(step: int) -> Iterator[str]:
        owner, node = placed[step]
        yield from _place(owner, executable)
        if isinstance(node, Extern):
            yield trusted_call(node.call)
            if times is not None:
                yield f"took {us(times[step])}"
            return
        k = steps.index(step)
        yield _roofline(works[k], bounds[k])
        if times is not None:
            yield _took(works[k], bounds[k], times[step])
        yield from _schedule(executable.artifacts[k])
        yield from product_precisions(kernels[k].program, toolchain.precision)

    known = [times[step] for step in steps] if times is not None else [b.seconds for b in bounds]
    limits = _limits(kernels, bounds, known, "took" if times is not None else "at best")
    title = _title(executable)
    best = sum(b.seconds for b in bounds)
    total = f"in all {sum(w.flops for w in works):.3g} operations, at best {us(best)}"
    if times is not None:
        total += f", took {us(sum(times))}, {_share(best, sum(times))} of the roofline"
    text = report(title, placed, map(about, range(len(placed))), toolchain.precision, (total,))
    report_of_kernels = "\n".join((*limits, "", text)) if limits else text
    return report_of_kernels if profile is None else f"{report_of_kernels}\n\n{profile.table()}"


def _unmeasured(executable: Executable, works: Sequence[Work]) -> str:
    """Return the report of a model for a machine that this one is not: what its kernels have to do, and no times."""
    placed, toolchain = executable.placed_steps, executable.toolchain
    steps = _kernel_numbers(placed)

    def about(step: int) -> Iterator[str]:
        owner, node = placed[step]
        yield from _place(owner, executable)
        if isinstance(node, Extern):
            yield trusted_call(node.call)
            return
        k = steps.index(step)
        yield _amount(works[k])
        yield from _schedule(executable.artifacts[k])
        yield from product_precisions(node.program, toolchain.precision)

    total = f"in all {sum(w.flops for w in works):.3g} operations; {not_measured(toolchain.target)}"
    return report(_title(executable), placed, map(about, range(len(placed))), toolchain.precision, (total,))


def _place(owner: Graph, executable: Executable) -> Iterator[str]:
    """Yield where a kernel stands that is in the body of a loop."""
    if owner.name != executable.parts.graph.name:
        yield f"in each turn of loop `{plain_text(owner.name)}`"


def _kernel_numbers(placed: Sequence[tuple[Graph, Kernel | Extern]]) -> list[int]:
    """Return which steps are kernels of the language, in order."""
    return [k for k, (_, node) in enumerate(placed) if isinstance(node, Kernel)]


def _title(executable: Executable) -> str:
    distinct = len({a.symbol for a in executable.artifacts})
    title = f"model `{executable.graph.name}`: {len(executable.kernels)} kernels ({distinct} distinct), "
    memory = f"{bytes_text(executable.weights_bytes)} of constants, {bytes_text(executable.arena_bytes)} for values in between"
    return title + memory


_TOLD = 5
"""How many kernels are told of in the section about limits."""


def _limits(kernels: Sequence[Kernel], bounds: Sequence[Bound], seconds: Sequence[float], verb: str) -> list[str]:
    """Return the kernels that take most of the time, measured or by the roofline, each with its share and what bounds it."""
    total = sum(seconds)
    longest = sorted(range(len(kernels)), key=lambda k: -seconds[k])[:_TOLD] if total else []
    lines = []
    for k in longest:
        reached = f", {_share(bounds[k].seconds, seconds[k])} of the roofline" if verb == "took" else ""
        computed = " + ".join(map(plain_text, members(kernels[k])))
        lines.append(f"{seconds[k] / total:6.1%}  {verb} {us(seconds[k])}, bound by {bounds[k].by}{reached}: {computed}"[:_WIDTH])
    return [f"{'limits' if k == 0 else '':10} {line}" for k, line in enumerate(lines)]


_WIDTH = 120
"""Columns of a line about a kernel, whose nodes may be many."""


def _roofline(work: Work, bound: Bound) -> str:
    """Return what a kernel has to do, and how fast that could be."""
    return f"{_amount(work)}, bound by {bound.by}: at best {us(bound.seconds)}"


def _amount(work: Work) -> str:
    """Return what a kernel has to do."""
    return f"{work.flops:.3g} operations, {bytes_text(work.moved_bytes)}, {work.intensity:.3g} operations a byte"


def _took(work: Work, bound: Bound, seconds: float) -> str:
    rate = f", {work.flops / seconds * 1e-9:.1f} GFLOP/s" if work.flops and seconds else ""
    return f"took {us(seconds)}, {_share(bound.seconds, seconds)} of the roofline{rate}"


def _share(best: float, seconds: float) -> str:
    return f"{best / seconds:.0%}" if seconds else "-"


def _schedule(artifact: Artifact) -> tuple[str, ...]:
    """Return where a kernel's schedule came from, what was refused before, and which ranges of open sizes have loops of their own."""
    refused = (f"not {tried}" for tried in artifact.tried if ": refused: " in tried)
    cases = (f"for {case.range}: {case.why}".replace(PREFIX, "") for case in artifact.cases)
    return (artifact.origin, *refused, *cases)
