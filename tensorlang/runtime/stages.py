"""Models whose shapes depend on elements, for one combination of input shapes: each run first finds the elements that decide, among its
inputs or by a first stage of the model, and goes on with the code for these.

    elements of inputs, or of what the first stage returns  ─►  the rest of the model, for any sizes or compiled when they first come
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from codegen.forks import Lock
from tensorlang.bounded_cache import BoundedCache
from tensorlang.diagnostics import RunError
from tensorlang.graph.data_dependent import DataDependent, HostCall
from tensorlang.graph.nodes import Value
from tensorlang.runtime.feeds import as_array, in_place, row_major
from tensorlang.runtime.profile import Profile
from tensorlang.runtime.protocol import ModelSummary, Runs, Timer, Workers, memory_of
from tensorlang.runtime.signature import TensorSignature, check_feeds
from tensorlang.runtime.timing import mean_time
from tensorlang.runtime.work import Roofline, Work

Array = np.ndarray[Any, Any]


class Stages:
    """A model of which `first` computes what shapes depend on (None: its inputs say so), and `following(elements, hosted)` is the rest."""

    def __init__(
        self,
        problem: DataDependent,
        calls: Sequence[HostCall],
        inputs: tuple[Value, ...],
        first: Runs | None,
        following: Callable[[Mapping[str, Array], Mapping[str, Value]], Runs],
        kept: int,
        shape_of: Callable[[object, str], tuple[int, ...]],
    ) -> None:
        """`calls` are those of the problem, their bodies compiled, `inputs` its inputs for sizes that are known;
        `following(elements, hosted)` is the rest for elements that were found and values that the host computed, of which code stays in
        memory for `kept` at most; `shape_of` tells the shape of an input, wherever it lies."""
        self.inputs, self.outputs = inputs, ()
        self._problem, self._calls, self._first, self._following = problem, calls, first, following
        self._shape_of = shape_of
        self._exact = tuple([(v.name, v.shape, v.dtype.numpy) for v in inputs])
        self._read = tuple(dict.fromkeys([v for call in calls for v in call.inputs if v not in call.constants]))
        self._made: BoundedCache[tuple[object, ...], Runs] = BoundedCache(kept)
        self._lock = Lock()

    @property
    def quick(self) -> Callable[[Mapping[str, object]], Any]:
        return lambda feeds: self._found(feeds, None) if self._fit(feeds) else NotImplemented

    def on(self, workers: Workers | None) -> Stages:
        first = None if self._first is None else self._first.on(workers)

        def following(elements: Mapping[str, Array], carried: Mapping[str, Value]) -> Runs:
            return self._used(elements, carried).on(workers)

        return Stages(self._problem, self._calls, self.inputs, first, following, self._made.limit, self._shape_of)

    @property
    def summary(self) -> ModelSummary:
        parts = [part.summary for part in self._parts()]
        return ModelSummary(parts[-1].name if parts else "", sum(p.kernels for p in parts), memory_of(parts))

    def run(self, feeds: Mapping[str, object], stream: object = None) -> dict[str, Any]:
        """Return the outputs by name. Raises RunError for arrays that do not fit, CompileError for a rest that cannot be compiled."""
        if not self._fit(feeds):
            self._check(feeds)
        return self._found(feeds, stream)

    def _check(self, feeds: Mapping[str, object]) -> None:
        """Raise RunError for arrays that do not fit."""
        check_feeds(feeds, [TensorSignature(v.name, v.dtype, v.shape) for v in self.inputs], self._shape_of)

    def _fit(self, feeds: Mapping[str, object]) -> bool:
        """Tell whether inputs surely fit: arrays of NumPy, of these very types and shapes. Others may fit, too."""
        if type(feeds) is not dict or len(feeds) != len(self._exact):
            return False
        for name, shape, dtype in self._exact:
            array = feeds.get(name)
            if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype:
                return False
        return True

    def _found(self, feeds: Mapping[str, object], stream: object) -> dict[str, Any]:
        """Return the outputs for inputs that fit."""
        made, given = self._after_first(feeds, stream)
        return made.run(given, stream)

    def with_element(self, refused: RunError, feeds: Mapping[str, object]) -> RunError:
        """Return R0306 with the element at fault, where the part that was refused tells it."""
        told = refused if self._first is None else self._first.with_element(refused, _those(self._first, feeds))
        if told is not refused:
            return told
        try:
            made, given = self._rest(feeds)
        except RunError:
            return refused
        return made.with_element(refused, given)

    def _rest(self, feeds: Mapping[str, object]) -> tuple[Runs, Mapping[str, object]]:
        """Return what is left of the model when the elements of these inputs are known, and the inputs of that. Raises RunError for inputs
        that do not fit."""
        self._check(feeds)
        return self._after_first(feeds, None)

    def _after_first(self, feeds: Mapping[str, object], stream: object) -> tuple[Runs, Mapping[str, object]]:
        """Run the first stage on inputs that fit; return what is left of the model, and the inputs of that."""
        found = {} if self._first is None else self._first.run(_those(self._first, feeds), stream)
        known = {**feeds, **found}
        wanted = {name: row_major(as_array(known[name], name)) for name in self._problem.wanted}
        hosted: dict[str, Array] = {}
        if self._calls:
            read = {name: _elements(known[name], name) for name in (*self._problem.wanted, *self._read)}
            for call in self._calls:
                hosted |= call.named(read)
        made = self._made_for(wanted, hosted)
        return made, _those(made, {**feeds, **{name: found[name] for name in self._problem.carried}, **hosted})

    def _made_for(self, elements: Mapping[str, Array], hosted: Mapping[str, Array]) -> Runs:
        return self._used(elements, {name: replace(_typed(array), name=name) for name, array in hosted.items()})

    def _used(self, elements: Mapping[str, Array], carried: Mapping[str, Value]) -> Runs:
        """Return the code for the rest of the model where these are the elements that decide, and such values what the host computed."""
        key = (*map(_key, elements.values()), *((name, value.dtype.name, value.shape) for name, value in carried.items()))
        with self._lock:
            return self._made.used(key, lambda: self._following({name: np.array(a) for name, a in elements.items()}, carried))

    def _parts(self) -> Sequence[Runs]:
        """Return what there is code for and ran last, in order."""
        return [part for part in (self._first, self._made.last()) if part is not None]

    def _each(self, feeds: Mapping[str, object] | None) -> list[tuple[Runs, Mapping[str, object] | None]]:
        """Return the parts that run for these inputs, with theirs; without inputs those that ran last. Raises RunError where none did."""
        if feeds is None:
            if not self._made:
                raise RunError(*self._problem.diagnostics)
            return [(part, None) for part in self._parts()]
        made, given = self._rest(feeds)
        first = [] if self._first is None else [(self._first, _those(self._first, feeds))]
        return [*first, (made, given)]

    def prepared(self, feeds: Mapping[str, object], results: Mapping[str, object] | None) -> Callable[[], dict[str, Any]]:
        if results is None:
            return lambda: self.run(feeds)
        _places_for(self.run(feeds), results)
        return self._copied_into(feeds, results) if self._calls else self._prepared_parts(feeds, results)

    def _copied_into(self, feeds: Mapping[str, object], results: Mapping[str, object]) -> Callable[[], dict[str, Any]]:
        """Return runs whose results are copied: what the host computes lies elsewhere in every run."""

        def run() -> dict[str, Any]:
            found = self.run(feeds)
            for array, place in zip(found.values(), _places_for(found, results), strict=True):
                np.copyto(place, array)
            return {name: results[name] for name in found}

        return run

    def _prepared_parts(self, feeds: Mapping[str, object], results: Mapping[str, object]) -> Callable[[], dict[str, Any]]:
        """Return runs of parts that are prepared, each rest when its elements first come: arrays are where they were, and nothing is asked
        but which elements decide."""
        first = None if self._first is None else self._first.prepared(_those(self._first, feeds), None)
        rests: BoundedCache[tuple[object, ...], Callable[[], dict[str, Any]]] = BoundedCache(self._made.limit)

        def run() -> dict[str, Any]:
            found = {} if first is None else first()
            given = {name: row_major(as_array(found[name] if name in found else feeds[name], name)) for name in self._problem.wanted}

            def rest() -> Callable[[], dict[str, Any]]:
                made = self._made_for(given, {})
                carried = {name: found[name] for name in self._problem.carried}
                return made.prepared(_those(made, {**feeds, **carried}), results)

            return rests.used(tuple(map(_key, given.values())), rest)()

        return run

    def timer(self, feeds: Mapping[str, object]) -> Timer:
        return lambda repeats: mean_time(lambda: self.run(feeds), repeats)

    def explain(self, feeds: Mapping[str, object] | None) -> str:
        return "\n".join(part.explain(given) for part, given in self._each(feeds))

    def profile(self, feeds: Mapping[str, object]) -> Profile:
        found = [part.profile(given or {}) for part, given in self._each(feeds)]
        return Profile(found[-1].model, found[-1].target, tuple(kernel for profile in found for kernel in profile))

    def roofline(self) -> Roofline:
        found = [part.roofline() for part, _ in self._each(None)]
        return Roofline(sum((r.work for r in found), Work(0, 0, 0)), sum(r.seconds for r in found))

    def text(self, stage: str) -> str:
        return "\n".join(part.text(stage) for part, _ in self._each(None))


def _those(part: Runs, feeds: Mapping[str, object]) -> dict[str, object]:
    return {value.name: feeds[value.name] for value in part.inputs}


def _places_for(found: Mapping[str, object], results: Mapping[str, object]) -> list[Array]:
    """Return the arrays in `results` for what a run has found. Raises RunError for those that are of another type or shape."""
    return in_place(results, [replace(_typed(array), name=name) for name, array in found.items()], "output")


def _key(array: Array) -> object:
    """Return what tells a row-major array from others of its type."""
    return array.shape, array.tobytes() if array.dtype != object else tuple(array.flat)


def _elements(value: object, name: str) -> Array:
    return np.array(row_major(as_array(value, name)))


def _typed(array: object) -> Value:
    from codegen.dtypes import from_numpy

    found = as_array(array, "output")
    dtype = from_numpy(found.dtype)
    assert dtype is not None
    return Value("", dtype, found.shape)
