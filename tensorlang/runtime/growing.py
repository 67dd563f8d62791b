"""Runs of a model on arrays with room for larger sizes: `model.prepared(feeds, results, max={"past": 2047})`.

    step = model.prepared({"x": x, "past": cache}, {"present": cache}, max={"past": 2047})
    step(past=0), step(past=1), …         nothing is compiled, copied or made anew

Where an output is given the array of an input, it is written behind what the input has of it, in place (`append_in_place.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from time import perf_counter
from typing import Any

import numpy as np

from codegen.log import log_of
from tensorlang.diagnostics import Diagnostic, RunError, error, exception
from tensorlang.graph.data_dependent import DataDependent
from tensorlang.graph.nodes import Buffer, Value
from tensorlang.graph.sizes import Condition, Extent, OpenSize, Symbols, evaluate, formula_of, value_at
from tensorlang.runtime.feeds import check_disjoint, check_named, in_place, name_mismatches, named_arrays
from tensorlang.runtime.open_sizes import Compiling, OpenShapes
from tensorlang.runtime.protocol import BoundRuns
from tensorlang.runtime.signature import TensorSignature

Array = np.ndarray[Any, Any]
Step = Callable[..., dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Place:
    """An input or output as an array holds it."""

    name: str
    dtype: Any
    shape: tuple[int, ...]


class Growing:
    """The code of a model for arrays with room, by what is open in it and which arrays are shared."""

    def __init__(self, compiling: Compiling, open_shapes: OpenShapes, inputs: Sequence[TensorSignature]) -> None:
        self._compiling, self._open_shapes, self._inputs = compiling, open_shapes, inputs
        self._made: dict[object, BoundRuns] = {}

    def prepared(self, feeds: Mapping[str, Any], results: Mapping[str, Any], most: Mapping[str, int]) -> Step:
        """Return the runs on these arrays, whose sizes `most` limits, as a function of these sizes. Raises RunError R0301 to R0307 for
        arrays that do not fit, R0317 for limits that do not; CompileError C0122 for an output that cannot be written behind an input, C0123
        where sizes cannot be open."""
        check_named(feeds)
        problems = tuple(name_mismatches(feeds, self._inputs, lambda tensor: tensor.type_text))
        if problems:
            raise exception(*problems)
        limits = self._open_shapes.limits(most)
        shared = _shared(feeds, results)
        shapes = self._shapes(feeds, limits)
        made = self._for(shapes, limits, shared)
        return _step(made, feeds, results, {**self._numbers(shapes, limits), **limits}, self._names(limits))

    def _names(self, limits: Mapping[str, int]) -> dict[str, str]:
        return {name: symbol for name, symbol in self._open_shapes.names.items() if symbol in limits}

    def _shapes(self, feeds: Mapping[str, Any], limits: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of inputs where sizes are at their limits: others are those of the arrays."""
        shapes = {}
        for tensor in self._inputs:
            if tensor.name in feeds and tensor.shape is not None:
                given = self._compiling.tools.shape_of(feeds[tensor.name], tensor.name)
                if len(given) == len(tensor.shape):
                    symbols = [self._open_shapes.symbol(tensor, k) for k in range(len(given))]
                    given = tuple(n if s is None else limits.get(s, n) for n, s in zip(given, symbols, strict=True))
                shapes[tensor.name] = given
        return shapes

    def _numbers(self, shapes: Mapping[str, tuple[int, ...]], limits: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes that are numbers."""
        found = self._open_shapes.sizes(shapes)
        if found is None:
            title = "the inputs do not fit the model, or one size is two numbers in them"
            raise RunError(Diagnostic("R0304", title, notes=tuple(f"`{t.name}` is {t.type_text}" for t in self._inputs)))
        return {name: size for name, size in found.items() if name not in limits}

    def _for(self, shapes: Mapping[str, tuple[int, ...]], limits: Mapping[str, int], shared: Mapping[str, str]) -> BoundRuns:
        numbers = self._numbers(shapes, limits)
        key = tuple(numbers.items()), tuple(sorted(limits)), tuple(shared.items())
        if key not in self._made:
            self._made[key] = self._compiled(numbers, limits, shared)
        return self._made[key]

    def _compiled(self, numbers: Mapping[str, int], limits: Mapping[str, int], shared: Mapping[str, str]) -> BoundRuns:
        how, start = self._compiling, perf_counter()
        symbols = Symbols({name: max(2, limit // 2) + k for k, (name, limit) in enumerate(limits.items())})
        given = self._open_shapes.given()
        assert given is not None, "the ranks of all inputs are known"
        given = given.at({**numbers, **{name: symbols.symbol(name) for name in limits}})
        try:
            made = how.tools.built_open_sizes(how.load(*given.arguments), how.progress, None, shared)
        except (OpenSize, DataDependent) as need:
            why = str(need) if isinstance(need, OpenSize) else "shapes depend on elements of the data"
            help = "leave them out of `max`, or run the model without"
            raise error("C0123", "sizes that are to be limited cannot be open", notes=(why,), help=help) from None
        log_of("compile").info("model `%s` for arrays with room: compiled in %.1f ms", how.name(), (perf_counter() - start) * 1e3)
        return made


def _shared(feeds: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, str]:
    """Return the input that lies where an output is to lie, by the output."""
    return {
        output: name
        for output, array in results.items()
        for name, given in feeds.items()
        if isinstance(array, np.ndarray) and isinstance(given, np.ndarray) and _is_same(array, given)
    }


def _is_same(a: Array, b: Array) -> bool:
    return (a.ctypes.data, a.shape, a.strides, a.dtype) == (b.ctypes.data, b.shape, b.strides, b.dtype) and a.size > 0


def _step(
    made: BoundRuns, feeds: Mapping[str, Any], results: Mapping[str, Any], sizes: Mapping[str, int], names: Mapping[str, str]
) -> Step:
    """Return the runs as a function of sizes by their `names`; `sizes` has numbers, and the limits of the others."""
    rooms = _rooms(made.buffers, feeds, made, sizes)
    largest = {**sizes, **{name: room - evaluate(formula_of(used), sizes) for name, (room, used) in rooms.items()}}
    by_input, by_output = ({getattr(b, side): b for b in made.buffers} for side in ("input", "output"))
    taken = [_place(v, by_input.get(v.name), largest, names.values()) for v in made.inputs]
    returned = [_place(v, by_output.get(v.name), largest, names.values()) for v in made.outputs]
    arrays = {p.name: np.empty(p.shape, p.dtype.numpy) for p in returned if p.name not in results}
    inputs, outputs = in_place(feeds, taken, "input"), in_place({**arrays, **results}, returned, "output")
    apart = [(p, a) for p, a in zip(taken, inputs, strict=True) if p.name not in by_input]
    behind = by_output.keys()
    own = {p.name: a for p, a in zip(returned, outputs, strict=True)}
    check_disjoint(named_arrays([p for p, _ in apart], [a for _, a in apart]), own)
    check_disjoint({p.name: a for p, a in zip(taken, inputs, strict=True)}, {n: a for n, a in own.items() if n not in behind})
    run = made.bound(largest, inputs, outputs)
    shown = {v.name: own[v.name] for v in made.outputs}
    moving = [(v, own[v.name].reshape(-1)) for v in made.outputs if v.name not in behind and _moves(v, names.values())]
    limits, assumed = {name: (symbol, sizes[symbol]) for name, symbol in names.items()}, tuple(made.symbols.assumed)
    fixed = {n: s for n, s in sizes.items() if n not in names.values()}

    def step(**given: int) -> dict[str, Any]:
        here = dict(fixed)
        for name, (symbol, limit) in limits.items():
            size = given.get(name)
            if type(size) is not int or not 0 <= size <= limit:
                raise _beyond(name, size, limit)
            here[symbol] = size
        if len(given) != len(limits) or (assumed and not all(condition.holds(here) for condition in assumed)):
            raise _unfit(given, limits, assumed)
        for name, (room, used) in rooms.items():
            here[name] = room - value_at(used, here)
        run(here)
        for value, flat in moving:
            shape = tuple(value_at(n, here) for n in value.shape)
            shown[value.name] = flat[: prod(shape)].reshape(shape)
        return shown

    return step


def _rooms(buffers: Sequence[Buffer], feeds: Mapping[str, Any], made: BoundRuns, sizes: Mapping[str, int]) -> dict[str, tuple[int, Extent]]:
    """Return how many rows buffers have, and how many are used, by the symbols of those that are not. Raises RunError R0317 for buffers
    that are too short for the limits, or of different lengths."""
    whole = {value.name: value for value in made.outputs}
    found: dict[str, tuple[int, Extent]] = {}
    for buffer in buffers:
        array, used = feeds[buffer.input], whole[buffer.output].shape[buffer.axis]
        rows = array.shape[buffer.axis] if array.ndim > buffer.axis else 0
        needed = value_at(used, sizes)
        if rows < needed:
            notes = (f"it has {rows} rows, and {needed} are used where sizes are at their limits",)
            help = "pass a longer array, or a smaller limit"
            raise RunError(Diagnostic("R0317", f"the array of `{buffer.input}` is too short", notes=notes, help=help))
        if found.setdefault(buffer.room, (rows, used))[0] != rows:
            title = f"the array of `{buffer.input}` has {rows} rows, others of its size {found[buffer.room][0]}"
            raise RunError(Diagnostic("R0317", title, help="pass arrays of one length"))
    return found


def _place(value: Value, buffer: Buffer | None, sizes: Mapping[str, int], moving: Any) -> _Place:
    """Return the shape of the array of a value: that for the largest sizes, and that of all rows where it shares a buffer. Raises RunError
    R0307 where a smaller value would not be the first part of its array."""
    if buffer is not None and value.layout is not None:
        return _Place(value.name, value.dtype, tuple(value_at(n, sizes) for n in value.layout.shape))
    shape = tuple(value_at(n, sizes) for n in value.shape)
    first = next((k for k, n in enumerate(value.shape) if _changes(n, moving)), 0)
    if prod(shape[:first]) > 1:
        title = f"`{value.name}` has rows further apart than a run would use"
        raise RunError(Diagnostic("R0307", title, help="limit sizes of outermost dimensions, or share the array with an output"))
    return _Place(value.name, value.dtype, shape)


def _changes(n: Extent, names: Any) -> bool:
    return not isinstance(n, int) and not n.names.isdisjoint(names)


def _moves(value: Value, names: Any) -> bool:
    return any(_changes(n, names) for n in value.shape)


def _beyond(name: str, size: object, limit: int) -> RunError:
    if size is None:
        return RunError(Diagnostic("R0313", f"the size `{name}` is missing", help=f"give it by its name: `step({name}=…)`"))
    if type(size) is not int:
        return RunError(Diagnostic("R0314", f"the size `{name}` is {size!r}", help="pass a whole number"))
    return RunError(Diagnostic("R0317", f"the size `{name}` is {size}, and at most {limit} fit the arrays", help="prepare longer ones"))


def _unfit(given: Mapping[str, int], limits: Mapping[str, object], assumed: Sequence[Condition]) -> RunError:
    strange = [name for name in given if name not in limits]
    if strange:
        return RunError(Diagnostic("R0312", f"there is no size `{strange[0]}`", notes=(f"the sizes are {', '.join(limits)}",)))
    notes = (f"the code is for {', '.join(map(str, assumed))}",)
    return RunError(Diagnostic("R0317", "these sizes are none that the code is for", notes=notes, help="run the model without `max`"))
