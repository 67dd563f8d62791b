"""Models whose shapes depend on elements: what decides them is computed first, and the rest of the model is compiled for that.

an importer raises   DataDependent   what has to be known, the graph that computes it, and what else of that graph is read later
and is called again  with Known      the elements that were found, and the values that are inputs from now on
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any, TypeAlias

import numpy as np

from codegen.dtypes import DType
from tensorlang.diagnostics import CompileError, Diagnostic
from tensorlang.graph.nodes import Graph, Value
from tensorlang.graph.sizes import Extent, is_open, with_sizes
from tensorlang.graph.texts import numbers, texts

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What was computed of a model before the rest of it is compiled: the `elements` of values, which are constants now, or sizes where the
    array is one of objects, and values that are `carried` over, which are inputs now: none whose elements are known."""

    elements: Mapping[str, Array] = field(default_factory=dict)
    carried: Mapping[str, Value] = field(default_factory=dict)
    dtypes: Mapping[str, DType] = field(default_factory=dict)
    """Of which types elements are that were carried over before they were known."""
    is_all: bool = False
    """Whether nothing more will be computed first, so that the graph itself has to decide what data decide."""
    stages: int = 0
    """How many times something was computed first, each of what came before."""
    read: object = field(default=None, repr=False)
    """What the importer made of the file when it was last called, and need not make again; it alone knows what that is."""

    def with_computed(self, elements: Mapping[str, Array], carried: Mapping[str, Value], read: object = None) -> Known:
        """Return what is known once another stage has computed the `elements` of some values, and others that are `carried` over, too;
        `read` is what the importer keeps."""
        found = {**self.elements, **elements}
        left = {n: v for n, v in {**self.carried, **carried}.items() if n not in found}
        dtypes = {**self.dtypes, **{n: v.dtype for n, v in self.carried.items() if n in found}}
        return replace(self, elements=found, carried=left, dtypes=dtypes, stages=self.stages + 1, read=read)

    def digest(self) -> bytes:
        """Return a digest of all there is to say about it."""
        found = sha256(b"all" if self.is_all else b"")
        for name, array in sorted(self.elements.items()):
            elements = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
            found.update(repr((name, array.dtype.name, array.shape)).encode() + elements)
        for name, value in sorted(self.carried.items()):
            found.update(repr((name, value.dtype.name, value.shape)).encode())
        return found.digest()

    def __bool__(self) -> bool:
        return bool(self.elements or self.carried or self.is_all)

    def at(self, sizes: Mapping[str, Extent]) -> Known:
        """Return what is known where the symbols are `sizes`, numbers and other sizes."""
        elements = {name: _elements_at(array, sizes) for name, array in self.elements.items()}
        return replace(self, elements=elements, carried={name: value_at(value, sizes) for name, value in self.carried.items()})


def value_at(value: Value, sizes: Mapping[str, Extent]) -> Value:
    """Return a value with the shape that it has where the symbols are `sizes`."""
    return replace(value, shape=tuple(with_sizes(n, sizes) for n in value.shape)) if is_open(value.shape) else value


def _elements_at(array: Array, sizes: Mapping[str, Extent]) -> Array:
    if array.dtype != object:
        return array
    found = np.empty(array.shape, object)
    found.reshape(-1)[:] = [with_sizes(n, sizes) for n in array.flat]
    return found


Run: TypeAlias = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""A model as a function of named arrays."""
TypeOfInput: TypeAlias = tuple[str, DType, tuple[int | None, ...]]
"""Name, type and shape of an input, None for an extent that each run brings."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelPart:
    """A part of a model that is compiled as a model of its own: `load` imports it as importers do, `key` tells it from others of the same
    model."""

    name: str
    load: Callable[..., Graph]
    inputs: tuple[TypeOfInput, ...]
    outputs: tuple[str, ...]
    key: str


@dataclass(frozen=True, slots=True)
class HostCall:
    """What the host computes between two stages: `compute` of the elements of `inputs`, those of texts (`reads_text`) as objects, is values
    that are called after `stem`, and are carried over. Where there is a `body`, `compute` takes the run of that first."""

    compute: Callable[..., Sequence[Array]]
    inputs: tuple[str, ...]
    reads_text: tuple[bool, ...]
    stem: str
    constants: Mapping[str, Array] = field(default_factory=dict)
    body: ModelPart | None = None

    def on(self, compiled: Callable[[ModelPart], Run]) -> HostCall:
        """Return the call with its body compiled."""
        return self if self.body is None else replace(self, compute=partial(self.compute, compiled(self.body)), body=None)

    def with_constants(self, constants: Mapping[str, Array]) -> HostCall:
        """Return the call with the elements of those inputs that are the same in every run."""
        return replace(self, constants={v: constants[v] for v in self.inputs if v in constants})

    def results(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Return the results for the elements of the inputs. Raises what `compute` raises."""
        given = [texts(array) if text else array for array, text in zip(arrays, self.reads_text, strict=True)]
        return tuple(self.compute(*given))

    def named(self, elements: Mapping[str, Array]) -> dict[str, Array]:
        """Return the results by their names, texts as numbers, where the inputs have these elements."""
        found: dict[str, Array] = {}
        for k, array in enumerate(self.results([{**elements, **self.constants}[name] for name in self.inputs])):
            text = array.dtype.kind in "OU"
            name = f"{self.stem} {k}{' text' if text else ''}"
            found[name] = numbers(array, name) if text else np.asarray(array, order="C")
        return found

    def names(self, known: Iterable[str]) -> list[str]:
        """Return the names of the results among those that are known, in order."""
        numbers = {name: name[len(self.stem) + 1 :].split(" ")[0] for name in known if name.startswith(f"{self.stem} ")}
        return sorted((name for name, number in numbers.items() if number.isdigit()), key=lambda name: int(numbers[name]))


class DataDependent(CompileError):
    """Shapes depend on the elements of `wanted`. Those that are no inputs are outputs of `stage`, as are the values that are to be
    `carried` over, and what `calls` read; `inputs` are those of the model so far. `read`: what the importer is to be told as `Known.read`
    when it is called again."""

    def __init__(
        self,
        *diagnostics: Diagnostic,
        wanted: tuple[str, ...] = (),
        inputs: tuple[Value, ...] = (),
        stage: Graph | None = None,
        carried: tuple[str, ...] = (),
        calls: tuple[HostCall, ...] = (),
    ) -> None:
        super().__init__(*diagnostics)
        self.wanted, self.inputs, self.stage, self.carried, self.calls = wanted, inputs, stage, carried, calls
        self.read: object = None

    def carried_values(self) -> dict[str, Value]:
        """Return the values that are to be carried over by their names."""
        return {} if self.stage is None else {name: self.stage.values[name] for name in self.carried}
