"""The pipeline of one kernel for a graphics processor.

    plan ─lower→ loops ─simplify→ loops ─prepare, pipelined→ loops ─barriers→ loops ─render→ C text

What is proven is the same as for a processor, and by the same means; barriers are proven on the loops as they are written out.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.gpu.launches import launches
from codegen.gpu.pipeline import pipelined
from codegen.gpu.prepare import prepare
from codegen.gpu.program import Program as Kernels
from codegen.gpu.render import render
from codegen.loops.contract import contract
from codegen.loops.printer import show as show_loops
from codegen.loops.simplify import simplify
from codegen.loops.verify import verify
from tensorlang.driver import Dump
from tensorlang.lower.barriers import with_barriers
from tensorlang.lower.kernel import Lowered, lower
from tensorlang.schedule.plan import Plan


def device_loops(plan: Plan, symbol: str, dump: Dump | None = None) -> Lowered:
    """Return the verified loop-IR function of a plan, with every buffer and every barrier in its place."""
    lowered = lower(plan, symbol)
    function = simplify(lowered.function)
    function = contract(function) if plan.program.mode == "fast" else function
    function = with_barriers(pipelined(prepare(function)))
    verify(function)
    if dump is not None:
        dump("loops", show_loops(function))
    return replace(lowered, function=function)


def device_text(lowered: Lowered, dump: Dump | None = None) -> Kernels:
    """Return the kernels of a function as text."""
    kernels = render(launches(lowered.function))
    if dump is not None:
        dump("cuda", kernels.text)
    return kernels
