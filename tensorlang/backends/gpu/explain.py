"""What runs on a graphics processor, told to people: kernels, launches, what they take of the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from codegen.gpu.limits import Usage, resident_blocks
from codegen.gpu.program import Launch
from codegen.gpu.program import Program as Launched
from codegen.loops.evaluate import evaluate
from codegen.loops.nodes import Int
from codegen.loops.printer import show_index
from codegen.loops.walk import free_vars
from tensorlang.backends.gpu.model import DeviceModel
from tensorlang.backends.gpu.vendor import Arch, Board
from tensorlang.graph.edit import size_bytes
from tensorlang.graph.externs import trusted_call
from tensorlang.graph.nodes import Extern
from tensorlang.graph.passes.precision.explain import product_precisions
from tensorlang.graph.precisions import F32, Precision
from tensorlang.runtime.passes import passes
from tensorlang.runtime.profile import Profile
from tensorlang.runtime.report import bytes_text, report, us
from tensorlang.runtime.work import Work, work_of


def explained(
    model: DeviceModel,
    usage: Mapping[str, Usage],
    arch: Arch,
    board: Board | None,
    profile: Profile | None = None,
    precision: Precision = F32,
) -> str:
    """Return the kernels in the order they run: what each computes, where its schedule is from, its launches and what they use;
    with a `profile` also how long each took. `board` is the one that bounds are given for."""
    times = None if profile is None else [k.seconds for k in profile]
    graph, nodes = model.graph, [call.node for call in model.calls]
    launches = sum(len(model.kernels[c.kernel].launched.launches) for c in model.calls)
    constants = sum(size_bytes(graph.values[name]) for name in graph.constants)

    def about(k: int) -> Iterator[str]:
        made, node = model.kernels[model.calls[k].kernel], nodes[k]
        if isinstance(node, Extern):
            yield trusted_call(node.call)
            yield from launched(made.launched, usage, arch)
            return
        program = node.program
        yield _work(work_of(program), board)
        yield f"schedule {made.origin}"
        yield from (f"not {t}" for t in made.tried if ": refused: " in t)
        yield from (*passes(program), *product_precisions(program, precision))
        if times is not None:
            yield f"took {us(times[k])}"
        yield from launched(made.launched, usage, arch, model.calls[k].sizes)

    title = f"model `{graph.name}` for {arch.target}: {len(nodes)} kernels ({len(model.kernels)} distinct), {launches} launches, "
    title += f"{bytes_text(constants)} of constants, {bytes_text(model.plan.arena_bytes)} for values in between"
    totals = () if times is None else (f"took {us(sum(times))} in all",)
    text = report(title, [(graph, node) for node in nodes], map(about, range(len(nodes))), precision, totals)
    return text if profile is None else f"{text}\n\n{profile.table()}"


def launched(program: Launched, usage: Mapping[str, Usage], arch: Arch, sizes: Mapping[str, int] | None = None) -> Iterator[str]:
    """Yield a line for each launch: blocks, threads, shared memory, registers, and how full a multiprocessor is. What is launched in every
    step has one, with how often, and between how few and how many blocks."""
    steps: dict[str, list[Launch]] = {}
    for number, launch in enumerate(program.launches):
        steps.setdefault(launch.kernel if launch.steps else f"{number}", []).append(launch)
    for alike in steps.values():
        kernel = program.kernel(alike[0].kernel)
        used = usage.get(kernel.name)
        line = f"{kernel.name}: {_grids(alike, sizes or {})} blocks of {kernel.threads} threads, {kernel.shared_bytes} bytes shared"
        if used is not None:
            there = resident_blocks(kernel, used, arch.limits) * kernel.threads
            spilled = f", {used.spilled_bytes} bytes spilled" if used.spills else ""
            line += f", {used.registers} registers{spilled}, {there} of {arch.limits.threads_per_multiprocessor} threads resident"
        yield line if len(alike) == 1 else f"{line}, {len(alike)} times"


def _grids(launches: Sequence[Launch], sizes: Mapping[str, int]) -> str:
    """Return the least and the largest grid, or what they are expressions over where sizes are open."""
    if any(free_vars(*launch.grid) - launch.told(sizes).keys() for launch in launches):
        return " x ".join(show_index(extent) for extent in launches[0].grid if extent != Int(1)) or "1"
    grids = [tuple(evaluate(extent, launch.told(sizes)) for extent in launch.grid) for launch in launches]
    least, most = (min(grids, key=prod), max(grids, key=prod))
    return _grid(most) if prod(least) == prod(most) else f"{_grid(least)} to {_grid(most)}"


def _grid(extents: Sequence[int]) -> str:
    x, y, z = extents
    return f"{x}" if y == z == 1 else f"{x} x {y}" if z == 1 else f"{x} x {y} x {z}"


def _work(work: Work, board: Board | None) -> str:
    text = f"{work.flops:.3g} operations, {bytes_text(work.moved_bytes)}, {work.intensity:.3g} operations a byte"
    if board is not None:
        text += f", {board.bound(work)}"
    return text
