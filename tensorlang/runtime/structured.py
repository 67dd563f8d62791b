"""Inputs and outputs that are no tensors of numbers: sequences of tensors, values that may be absent, texts. Compiled code sees tensors.

    s: a sequence of n tensors   ─►  `s[0]`, `s[1]`, …   and `s[]`, of n elements, which says how many there are
    o: a value, or None          ─►  `o`                 and `o[]`, of one element, or none
    t: texts                     ─►  their numbers (`texts.py`)

`[]` without a name tells an importer that all this is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from codegen.dtypes import DTYPES
from tensorlang.diagnostics import Diagnostic, exception
from tensorlang.graph.texts import numbers, texts
from tensorlang.runtime.feeds import kind_of
from tensorlang.runtime.signature import Signature, TensorSignature

SAID = "[]"
"""The input that says how the others are made up."""


def count_of(name: str) -> str:
    """Return the name of the input whose length says how many tensors an input is made of."""
    return f"{name}[]"


def item_of(name: str, k: int) -> str:
    """Return what the tensor number `k` of a sequence is called."""
    return f"{name}[{k}]"


def is_structured(signature: Signature) -> bool:
    """Tell whether anything that a model takes or returns is more than a tensor of numbers."""
    return any(t.form != "tensor" or t.text for t in (*signature.inputs, *signature.outputs))


def flat_feeds(feeds: Mapping[str, object], inputs: Sequence[TensorSignature]) -> dict[str, object]:
    """Return feeds in which all inputs are tensors of numbers. Raises RunError R0305 for what is no sequence, or no text."""
    taken = {t.name: t for t in inputs}
    found: dict[str, object] = {SAID: np.zeros(0, np.bool_)}
    for name, value in feeds.items():
        if name not in taken:
            found[name] = value
            continue
        for item, content in _parts(taken[name], value):
            found[item] = content
    for t in inputs:
        if t.name not in feeds and t.is_optional:
            found[count_of(t.name)] = np.zeros(0, np.bool_)
    return found


def _parts(t: TensorSignature, value: object) -> Iterator[tuple[str, object]]:
    made = (lambda item: numbers(item, t.name)) if t.text else (lambda item: item)
    if t.is_optional and value is None:
        yield count_of(t.name), np.zeros(0, np.bool_)
    elif t.is_sequence:
        if not isinstance(value, (list, tuple)):
            raise exception(Diagnostic("R0305", f"`{t.name}` is {kind_of(value)}", help="pass a list of arrays"))
        yield count_of(t.name), np.zeros(len(value) + t.is_optional, np.bool_)
        for k, item in enumerate(value):
            yield item_of(t.name, k), made(item)
    else:
        if t.is_optional:
            yield count_of(t.name), np.zeros(1, np.bool_)
        yield t.name, made(value)


def flat_inputs(shapes: Mapping[str, tuple[int, ...]], inputs: Sequence[TensorSignature]) -> tuple[TensorSignature, ...]:
    """Return what flat feeds of these shapes have to be."""
    found = [TensorSignature(SAID, DTYPES["bool"], (0,))]
    for t in inputs:
        (count,) = shapes.get(count_of(t.name), (0,))
        plain = replace(t, form="tensor", text=False)
        if t.form != "tensor":
            found.append(TensorSignature(count_of(t.name), DTYPES["bool"], (count,)))
        if t.is_sequence:
            separate = None if t.shape is None else tuple(n if isinstance(n, int) else None for n in t.shape)
            items = (item_of(t.name, k) for k in range(count - t.is_optional))
            found += (replace(plain, name=name, shape=separate) for name in items)
        elif not t.is_optional or count:
            found.append(plain)
    return tuple(found)


def structured_results(found: Mapping[str, Any], outputs: Sequence[TensorSignature]) -> dict[str, Any]:
    """Return the outputs of a model as it declares them: sequences as lists, what is not there as None."""
    return {t.name: _result(found, t) for t in outputs}


def _result(found: Mapping[str, Any], t: TensorSignature) -> Any:
    if t.is_sequence:
        items: list[Any] = []
        while item_of(t.name, len(items)) in found:
            items.append(_told(found[item_of(t.name, len(items))], t))
        return items
    return _told(found[t.name], t) if t.name in found else None


def _told(array: Any, t: TensorSignature) -> Any:
    return texts(array) if t.text else array
