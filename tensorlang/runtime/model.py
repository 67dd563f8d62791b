"""A compiled model: called with named arrays, it returns named arrays.

A model whose inputs leave dimensions open is compiled for each combination of shapes it meets, once each. What was compiled is kept on
disk, kernel by kernel and as a whole, so that another process finds it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorlang.diagnostics import CompileError, RunError
from tensorlang.driver import Artifact
from tensorlang.graph.edit import members
from tensorlang.graph.nodes import Graph, Value
from tensorlang.graph.pipeline import optimise
from tensorlang.runtime.bundle import Draft, load_bundle
from tensorlang.runtime.executable import Executable, Progress, Toolchain, build, quiet, timed
from tensorlang.runtime.feeds import as_array, check_named, checked
from tensorlang.runtime.roofline import Bound, Roofline, bound_of, ceilings_for, roofline_of
from tensorlang.runtime.work import Work, work_of

Array = np.ndarray[Any, Any]
Shapes = Mapping[str, tuple[int, ...]]

OPEN_SHAPES = "O011"
"""The code of an importer's complaint that a shape is not known."""


@dataclass(frozen=True, slots=True)
class Specialised:
    """The model for one combination of input shapes. `outputs` are the model's names, in order."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    executable: Executable

    @property
    def quick(self) -> Callable[[Mapping[str, object]], Any]:
        """Return `run` as a built-in function, which returns something else than a dictionary for feeds that `run` has to look at."""
        by_name = self.executable.call.by_name
        return by_name if by_name is not None else lambda feeds: NotImplemented

    def run(self, feeds: Mapping[str, object]) -> dict[str, Array]:
        results = self.executable(checked(feeds, self.inputs))
        return dict(zip((value.name for value in self.outputs), results, strict=True))


@dataclass(frozen=True, slots=True)
class KernelTime:
    """What one kernel computes (`members`: names of the model's nodes), how long that took, and how much there is to do at least."""

    name: str
    members: tuple[str, ...]
    result: Value
    seconds: float
    work: Work


class CompiledModel:
    """A model ready to run. `run` may be called from several threads; runs of one model follow one another."""

    def __init__(
        self,
        load: Callable[[Shapes | None], Graph],
        toolchain: Toolchain,
        *,
        shapes: Shapes | None = None,
        progress: Progress = quiet,
        key: Callable[[Shapes | None], str] | None = None,
    ) -> None:
        """`load(shapes)` returns the model's graph for given input shapes, or for its own when they are all known; `key(shapes)` is what
        the compiled model is kept under on disk, if it may be.

        Raises CompileError for what the model does that is not supported."""
        self._load, self._toolchain, self._progress, self._key = load, toolchain, progress, key
        self._made: dict[tuple[tuple[str, tuple[int, ...]], ...], Specialised] = {}
        self._lock = threading.Lock()
        self._static: Specialised | None = None
        self._quick: Callable[[Mapping[str, object]], Any] = lambda feeds: NotImplemented
        try:
            self._static = self._specialise(shapes)
        except CompileError as problem:
            if shapes is not None or not _only_shapes_are_open(problem):
                raise
            self._open = problem

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The inputs: name, dtype, shape. Raises RunError while shapes are open."""
        return self._known().inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The outputs: name, dtype, shape. Raises RunError while shapes are open."""
        return self._known().outputs

    def run(self, feeds: Mapping[str, object]) -> dict[str, Array]:
        """Return the outputs by name, in new arrays. `feeds` has an array for every input; memory that is not row-major is copied.

        Raises RunError: R0301 to R0305 for arrays that do not fit, R0306 when an index or a size in the data is out of range."""
        found: dict[str, Array] = self._quick(feeds)
        return found if type(found) is dict else self._run(feeds)

    def _run(self, feeds: Mapping[str, object]) -> dict[str, Array]:
        made = self._static if self._static is not None else self._for(feeds)
        self._quick = made.quick
        return made.run(feeds)

    def explain(self, feeds: Mapping[str, object] | None = None) -> str:
        """Return the kernels in the order they run: what each computes, how fast that could be on this machine, where its schedule is
        from; with `feeds` also the times they take."""
        found = self._known() if feeds is None or self._static is not None else self._for(feeds)
        return _explain(found, feeds)

    def profile(self, feeds: Mapping[str, object]) -> tuple[KernelTime, ...]:
        """Return each kernel's time in a run, in the order they run. Raises RunError as `run` does."""
        return _profile(self._static if self._static is not None else self._for(feeds), feeds)

    def roofline(self, feeds: Mapping[str, object] | None = None) -> Roofline:
        """Return what the kernels have to do for inputs of such shapes, and how fast this machine could do it."""
        found = self._known() if feeds is None or self._static is not None else self._for(feeds)
        return roofline_of([k.program for k in found.executable.kernels], self._toolchain.threads)

    def _known(self) -> Specialised:
        if self._static is not None:
            return self._static
        if not self._made:
            raise RunError(*self._open.diagnostics)
        return next(reversed(self._made.values()))

    def _for(self, feeds: Mapping[str, object]) -> Specialised:
        check_named(feeds)
        shapes = {name: as_array(value, name).shape for name, value in feeds.items()}
        key = tuple(sorted(shapes.items()))
        with self._lock:
            if key not in self._made:
                self._made[key] = self._specialise(shapes)
            return self._made[key]

    def _specialise(self, shapes: Shapes | None) -> Specialised:
        key = self._key(shapes) if self._key is not None else None
        executable = load_bundle(key, self._toolchain) if key is not None else None
        if executable is None:
            executable = self._built(shapes, key)
        graph = executable.graph
        return Specialised(
            tuple(graph.values[name] for name in graph.inputs),
            tuple(replace(graph.values[v], name=name) for v, name in zip(graph.outputs, executable.parts.names, strict=True)),
            executable,
        )

    def _built(self, shapes: Shapes | None, key: str | None) -> Executable:
        """Return the model compiled now, and keep it under `key`."""
        loaded = self._load(shapes)
        outputs = loaded.outputs
        graph = optimise(loaded, self._toolchain.wishes, tiles=self._toolchain.tiles)
        del loaded  # weights that the passes have replaced
        if key is None:
            return build(graph, self._toolchain, self._progress, outputs)
        draft = Draft(key, self._toolchain)
        try:
            executable = build(graph, self._toolchain, self._progress, outputs, draft.place)
            draft.finish(executable.parts)
        finally:
            draft.drop()
        return executable


def _only_shapes_are_open(problem: CompileError) -> bool:
    return bool(problem.diagnostics) and all(d.code == OPEN_SHAPES for d in problem.diagnostics)


def _profile(found: Specialised, feeds: Mapping[str, object]) -> tuple[KernelTime, ...]:
    executable = found.executable
    values = executable.graph.values
    times = timed(executable, checked(feeds, found.inputs))
    return tuple(
        KernelTime(k.program.name, members(k), values[k.outputs[0]], seconds, work_of(k.program))
        for k, seconds in zip(executable.kernels, times, strict=True)
    )


def _bounds(executable: Executable) -> tuple[tuple[Work, Bound], ...]:
    """Return how much each kernel has to do, and how fast that could be."""
    works = [work_of(k.program) for k in executable.kernels]
    threads = executable.toolchain.threads
    return tuple((w, bound_of(w, ceilings_for(k.program, threads))) for w, k in zip(works, executable.kernels, strict=True))


def _explain(found: Specialised, feeds: Mapping[str, object] | None) -> str:
    executable = found.executable
    times = [t.seconds for t in _profile(found, feeds)] if feeds is not None else None
    bounds = _bounds(executable)
    graph = executable.graph
    lines = [
        f"model `{graph.name}`: {len(executable.kernels)} kernels ({len({a.symbol for a in executable.artifacts})} distinct), "
        f"{_size(executable.constants.nbytes)} of constants, {_size(executable.plan.arena_bytes)} for values in between",
    ]
    for k, kernel in enumerate(executable.kernels):
        result = graph.values[kernel.outputs[0]]
        about = [_roofline(*bounds[k]), *([] if times is None else [_took(*bounds[k], times[k])]), *_schedule(executable.artifacts[k])]
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
