"""What a model takes and returns, known before it is compiled for any shapes: `image: f32[batch, 3, 224, 224]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from codegen.dtypes import DType
from tensorlang.diagnostics import Diagnostic, RunError, exception, plain_text
from tensorlang.graph.nodes import Value
from tensorlang.runtime.feeds import as_array, check_named, name_mismatches, wrong_shape, wrong_type

Extent: TypeAlias = int | str | None
"""How long a dimension is: a number, a symbol that stands for one, or None when nothing is said."""
Form: TypeAlias = Literal["tensor", "sequence", "optional", "optional sequence", "map", "sequence of maps"]
"""What an input or output is: a tensor, a list of such, either of them or None; a dictionary, a list of such."""


@dataclass(frozen=True, slots=True)
class TensorSignature:
    """An input or output of a model. `dtype` None: any the model comes to; `shape` None: not even the rank is said. `text`: its elements
    are texts, which the model has as numbers of the type `dtype`. Of dictionaries all this is said of their values; `text_keys`: their
    keys are texts, not integers."""

    name: str
    dtype: DType | None
    shape: tuple[Extent, ...] | None
    form: Form = "tensor"
    text: bool = False
    text_keys: bool = False

    def __str__(self) -> str:
        return f"{plain_text(self.name)}: {self.type_text}"

    def __repr__(self) -> str:
        return f"<{self}>"

    @property
    def type_text(self) -> str:
        """The type as the language writes it, `?` for what is not said."""
        if self.is_map:
            return f"{self.form} of {'text' if self.text_keys else 'i64'} to {'text' if self.text else self.dtype}"
        if self.dtype is None and self.shape is None:
            return "?"
        tensor = f"{'text' if self.text else self.dtype or '?'}{extents_text(self.shape)}"
        return tensor if self.form == "tensor" else f"{self.form} of {tensor}"

    @property
    def is_sequence(self) -> bool:
        return self.form.endswith("sequence")

    @property
    def is_optional(self) -> bool:
        return self.form.startswith("optional")

    @property
    def is_map(self) -> bool:
        return self.form in ("map", "sequence of maps")

    @property
    def has_texts(self) -> bool:
        """Whether its elements or keys are texts."""
        return self.text or self.text_keys


def extents_text(shape: Sequence[Extent] | None) -> str:
    """Return a shape as the language writes it, `?` for what is not said."""
    if shape is None:
        return "[…]"
    return f"[{', '.join('?' if n is None else plain_text(str(n)) for n in shape)}]"


def shape_with_ones(tensor: TensorSignature) -> tuple[int, ...]:
    """Return a shape that a tensor may have, 1 for what is not said."""
    return tuple(n if isinstance(n, int) else 1 for n in tensor.shape or ())


@dataclass(frozen=True, slots=True)
class Signature:
    """A model's name, and its inputs and outputs in order; `defaults` are inputs that a run may leave out."""

    name: str
    inputs: tuple[TensorSignature, ...]
    outputs: tuple[TensorSignature, ...]
    defaults: tuple[TensorSignature, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A model that leaves shapes open: its signature, and what its importer says of them."""

    signature: Signature
    diagnostics: tuple[Diagnostic, ...]


def signature_of(name: str, inputs: Sequence[Value], outputs: Sequence[Value]) -> Signature:
    """Return the signature of a model whose shapes are known."""
    taken, returned = (tuple(TensorSignature(v.name, v.dtype, v.shape) for v in values) for values in (inputs, outputs))
    return Signature(name, taken, returned)


def named_inputs(arrays: Sequence[object], named: Mapping[str, object], inputs: Sequence[TensorSignature]) -> dict[str, object]:
    """Return inputs given in order and by name, all by name. Raises RunError R0311 for too many, R0312 for one that is given twice."""
    if len(arrays) > len(inputs):
        known = ", ".join(f"`{t.name}`: {t.type_text}" for t in inputs) or "none"
        title = f"the model takes {len(inputs)} {'array' if len(inputs) == 1 else 'arrays'} and is given {len(arrays)}"
        raise exception(Diagnostic("R0311", title, notes=(f"its inputs, in order: {known}",)))
    found: dict[str, object] = {t.name: array for t, array in zip(inputs, arrays, strict=False)}
    for name in named:
        if name in found:
            help = "give an input in order or by name"
            raise exception(Diagnostic("R0312", f"the model is given `{name}` twice", help=help))
    return found | dict(named)


def check_feeds(
    feeds: object, inputs: Sequence[TensorSignature], shape_of: Callable[[object, str], tuple[int, ...]]
) -> tuple[Diagnostic, ...]:
    """Raise RunError R0301 to R0305 with everything about `feeds` that does not fit inputs of open shapes. `shape_of(value, name)` tells
    the shape of an input, wherever it lies. Return where sizes of one name differ and all else fits: R0304, unless the model may be
    right for them."""
    check_named(feeds)
    assert isinstance(feeds, Mapping)
    problems = list(name_mismatches(feeds, inputs, lambda tensor: tensor.type_text))
    symbols: dict[str, tuple[int, str]] = {}
    differing: list[Diagnostic] = []
    for tensor in inputs:
        if tensor.name in feeds:
            try:
                shape = shape_of(feeds[tensor.name], tensor.name)
                unfit = list(_unfit(feeds[tensor.name], tensor, shape))
                problems += unfit
                differing += () if unfit else _differing(tensor, shape, symbols)
            except RunError as problem:
                problems += problem.diagnostics
    if problems:
        raise exception(*problems, *differing)
    return tuple(differing)


def _unfit(value: object, tensor: TensorSignature, shape: tuple[int, ...]) -> Iterator[Diagnostic]:
    """Yield what is wrong with an input by itself."""
    host = as_array(value, tensor.name) if isinstance(value, (np.ndarray, list, tuple, int, float)) else None
    if host is not None and tensor.dtype is not None:
        yield from wrong_type(host, tensor.name, tensor.dtype)
    if tensor.shape is None:
        return
    fixed = len(shape) == len(tensor.shape) and all(not isinstance(n, int) or n == m for n, m in zip(tensor.shape, shape, strict=True))
    if not fixed:
        given = f"the array has the shape {list(shape)}" if host is None else None
        yield wrong_shape(host, tensor.name, extents_text(tensor.shape), tensor.shape, given)


def _differing(tensor: TensorSignature, shape: tuple[int, ...], symbols: dict[str, tuple[int, str]]) -> Iterator[Diagnostic]:
    """Yield which symbols are another number in an input than before; enter the `symbols` that it fixes, with the name of the first input
    that did."""
    for symbol, extent in zip(tensor.shape or (), shape, strict=tensor.shape is not None):
        if isinstance(symbol, str):
            before, first = symbols.setdefault(symbol, (extent, tensor.name))
            if before != extent:
                title = f"`{symbol}` is {before} in input `{first}` and {extent} in input `{tensor.name}`"
                notes = (f"`{tensor.name}` is {tensor.type_text}, and the array has the shape {list(shape)}",)
                yield Diagnostic("R0304", title, notes=notes, help="one symbol is one number in all inputs of a run")
