"""A compiled model: called with named arrays, it returns named arrays.

A model whose inputs leave dimensions open is compiled for each combination of shapes it meets, once each. What was compiled is kept on
disk, kernel by kernel and as a whole, so that another process finds it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pickle import PicklingError
from typing import Any, Protocol

import numpy as np

from codegen.forks import Lock
from tensorlang.diagnostics import CompileError, RunError
from tensorlang.graph.nodes import Graph, Value
from tensorlang.runtime.bundle import kept
from tensorlang.runtime.executable import Executable, Progress, Toolchain, assembled, quiet
from tensorlang.runtime.feeds import as_array, check_apart, check_named, checked, in_place
from tensorlang.runtime.kernel_time import KernelTime
from tensorlang.runtime.work import Roofline

Array = np.ndarray[Any, Any]
Shapes = Mapping[str, tuple[int, ...]]

OPEN_SHAPES = "O011"
"""The code of an importer's complaint that a shape is not known."""


class Runs(Protocol):
    """A model for one combination of input shapes, wherever it runs. `outputs` are the model's names, in order."""

    @property
    def inputs(self) -> tuple[Value, ...]: ...

    @property
    def outputs(self) -> tuple[Value, ...]: ...

    @property
    def quick(self) -> Callable[[Mapping[str, object]], Any]:
        """Return `run` as a built-in function, which returns something else than a dictionary for feeds that `run` has to look at."""
        ...

    def run(self, feeds: Mapping[str, object]) -> dict[str, Any]: ...

    def prepared(self, feeds: Mapping[str, object], results: Mapping[str, object] | None) -> Callable[[], dict[str, Any]]: ...

    def explain(self, feeds: Mapping[str, object] | None) -> str: ...

    def profile(self, feeds: Mapping[str, object]) -> tuple[KernelTime, ...]: ...

    def roofline(self) -> Roofline: ...


@dataclass(frozen=True, slots=True)
class Specialised:
    """A model on this machine for one combination of input shapes."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    executable: Executable

    @property
    def quick(self) -> Callable[[Mapping[str, object]], Any]:
        by_name = self.executable.call.by_name
        return by_name if by_name is not None else lambda feeds: NotImplemented

    def run(self, feeds: Mapping[str, object]) -> dict[str, Array]:
        results = self.executable(checked(feeds, self.inputs))
        return dict(zip((value.name for value in self.outputs), results, strict=True))

    def prepared(self, feeds: Mapping[str, object], results: Mapping[str, object] | None) -> Callable[[], dict[str, Array]]:
        if results is None:
            results = {v.name: np.empty(v.shape, v.dtype.numpy) for v in self.outputs}
        inputs, arrays = in_place(feeds, self.inputs, "input"), in_place(results, self.outputs, "output")
        check_apart(inputs, arrays)
        again = self.executable.call.bound(inputs, arrays)
        found = dict(zip((v.name for v in self.outputs), arrays, strict=True))

        def run(kept: Executable = self.executable) -> dict[str, Array]:
            again()
            return found

        return run

    def explain(self, feeds: Mapping[str, object] | None) -> str:
        from tensorlang.runtime.explain import explained

        return explained(self.executable, None if feeds is None else checked(feeds, self.inputs))

    def profile(self, feeds: Mapping[str, object]) -> tuple[KernelTime, ...]:
        from tensorlang.runtime.explain import profiled

        return profiled(self.executable, checked(feeds, self.inputs))

    def roofline(self) -> Roofline:
        from tensorlang.runtime.roofline import roofline_of

        return roofline_of([k.program for k in self.executable.kernels], self.executable.toolchain.threads)


class CompiledModel:
    """A model ready to run. `run` may be called from several threads; runs of one model follow one another."""

    kept = 64
    """For how many combinations of shapes at most code stays in memory; that of others is read again when they come back."""

    def __init__(
        self,
        load: Callable[[Shapes | None], Graph],
        toolchain: Toolchain,
        *,
        shapes: Shapes | None = None,
        progress: Progress = quiet,
        key: Callable[[Shapes | None], str] | None = None,
        made: Callable[[], CompiledModel] | None = None,
    ) -> None:
        """`load(shapes)` returns the model's graph for given input shapes, or for its own when they are all known; `key(shapes)` is what
        the compiled model is kept under on disk, if it may be; `made()` makes the same model in another process.

        Raises CompileError for what the model does that is not supported."""
        self._load, self._toolchain, self._progress, self._key = load, toolchain, progress, key
        self._start(shapes, made)

    def _start(self, shapes: Shapes | None, made: Callable[[], CompiledModel] | None) -> None:
        """Compile for `shapes`, or for the model's own; where these are open, wait for the first run."""
        self._again = made
        self._made: OrderedDict[tuple[tuple[str, tuple[int, ...]], ...], Runs] = OrderedDict()
        self._is_open = False
        self._lock = Lock()
        self._static: Runs | None = None
        self._quick: Callable[[Mapping[str, object]], Any] = lambda feeds: NotImplemented
        try:
            self._static = self._specialise(shapes)
        except CompileError as problem:
            if shapes is not None or not only_shapes_are_open(problem):
                raise
            self._open, self._is_open = problem, True

    def __reduce__(self) -> tuple[Callable[[], CompiledModel], tuple[()]]:
        """Pickled is what the model was made of; what was compiled stays in the cache."""
        if self._again is None:
            raise PicklingError("a model of a graph in memory cannot be pickled: `tensorlang.compile` makes models that can")
        return self._again, ()

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
        made = self._made_for(feeds)
        self._quick = made.quick
        return made.run(feeds)

    def _made_for(self, feeds: Mapping[str, object]) -> Runs:
        return self._static if self._static is not None else self._for(feeds)

    def prepared(self, feeds: Mapping[str, object], results: Mapping[str, object] | None = None) -> Callable[[], dict[str, Array]]:
        """Return `run` on these arrays for good: a function that computes what they hold when it is called, writes into the arrays of
        `results` (or some of its own), and returns them by name. It looks at nothing and makes nothing, so it is for many runs in a row;
        it is called once at a time. Raises RunError as `run` does, and R0307 for arrays that it would have to copy."""
        found = self._static if self._static is not None else self._for(feeds)
        return found.prepared(feeds, results)

    def explain(self, feeds: Mapping[str, object] | None = None) -> str:
        """Return the kernels in the order they run: what each computes, how fast that could be on this machine, where its schedule is
        from; with `feeds` also the times they take."""
        found = self._known() if feeds is None or self._static is not None else self._for(feeds)
        return "\n".join((found.explain(feeds), *self._shapes()))

    def _shapes(self) -> Iterator[str]:
        """Yield what there is to say of the shapes that an open model has met."""
        if self._is_open:
            yield f"shapes: of at most {self.kept} combinations code stays in memory, of these now, the last one used last"
            yield from ("        " + ", ".join(f"{name} {list(shape)}" for name, shape in key) for key in self._made)

    def profile(self, feeds: Mapping[str, object]) -> tuple[KernelTime, ...]:
        """Return each kernel's time in a run, in the order they run. Raises RunError as `run` does."""
        return self._made_for(feeds).profile(feeds)

    def roofline(self, feeds: Mapping[str, object] | None = None) -> Roofline:
        """Return what the kernels have to do for inputs of such shapes, and how fast this machine could do it."""
        found = self._known() if feeds is None or self._static is not None else self._for(feeds)
        return found.roofline()

    def _known(self) -> Runs:
        if self._static is not None:
            return self._static
        if not self._made:
            raise RunError(*self._open.diagnostics)
        return next(reversed(self._made.values()))

    def _for(self, feeds: Mapping[str, object]) -> Runs:
        check_named(feeds)
        shapes = {name: self._shape(value, name) for name, value in feeds.items()}
        key = tuple(sorted(shapes.items()))
        with self._lock:
            if key not in self._made:
                self._made[key] = self._specialise(shapes)
            self._made.move_to_end(key)
            while len(self._made) > self.kept:
                self._made.popitem(last=False)
            return self._made[key]

    def _shape(self, value: object, name: str) -> tuple[int, ...]:
        shape: tuple[int, ...] = as_array(value, name).shape
        return shape

    def _specialise(self, shapes: Shapes | None) -> Runs:
        key = self._key(shapes) if self._key is not None else None
        found = kept(key, self._toolchain.store) if key is not None else None
        if found is not None:
            parts, block = found
            executable = assembled(replace(parts, constants=block), self._toolchain)
        else:
            from tensorlang.runtime.build import built

            executable = built(self._load(shapes), self._toolchain, self._progress, key)
        graph = executable.graph
        return Specialised(
            tuple(graph.values[name] for name in graph.inputs),
            tuple(replace(graph.values[v], name=name) for v, name in zip(graph.outputs, executable.parts.names, strict=True)),
            executable,
        )


def only_shapes_are_open(problem: CompileError) -> bool:
    return bool(problem.diagnostics) and all(d.code == OPEN_SHAPES for d in problem.diagnostics)
