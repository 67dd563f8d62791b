"""Inputs and outputs that are no tensors of numbers: sequences, values that may be absent, dictionaries, texts. Compiled code sees tensors.

    s: a sequence of n tensors   ─►  `s[0]`, `s[1]`, …   and `s[]`, of n elements, which says how many there are
    o: a value, or None          ─►  `o`                 and `o[]`, of one element, or none; for a sequence of n + 1, of results, too
    m: a dictionary              ─►  `m[keys]` in ascending order, and `m[values]` in theirs
    l: n dictionaries, one as the other  ◄─  `l[keys]`, and `l[values]` with a row for each
    t: texts                     ─►  their numbers (`texts.py`)

`[]` without a name tells an importer that all this is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
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


def keys_of(name: str) -> str:
    """Return what the tensor of a dictionary's keys is called."""
    return f"{name}[keys]"


def values_of(name: str) -> str:
    """Return what the tensor of what a dictionary holds is called."""
    return f"{name}[values]"


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
    if t.is_map:
        yield from _entries(t, value)
    elif t.is_optional and value is None:
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


def _entries(t: TensorSignature, value: object) -> Iterator[tuple[str, object]]:
    """Yield the keys of a dictionary and what it holds."""
    kind = str if t.text_keys else Integral
    if not isinstance(value, Mapping) or not all(isinstance(key, kind) for key in value):
        keys = "texts" if t.text_keys else "integers"
        raise exception(Diagnostic("R0305", f"`{t.name}` is {kind_of(value)}", help=f"pass a dictionary whose keys are {keys}"))
    assert t.dtype is not None
    order = sorted(value)
    held = [value[key] for key in order]
    keys_, values = (_column(items, text, t.name) for items, text in ((order, t.text_keys), (held, t.text)))
    yield keys_of(t.name), keys_ if t.text_keys else keys_.astype(np.int64)
    yield values_of(t.name), values if t.text else values.astype(t.dtype.numpy)


def _column(items: Sequence[Any], text: bool, name: str) -> Any:
    """Return a vector of numbers, or of those that stand for texts. Raises RunError R0305 where there is something else."""
    if text:
        made = np.empty(len(items), object)
        made[:] = items
        return numbers(made, name)
    made = np.asarray(items) if items else np.zeros(0)
    if made.ndim != 1 or made.dtype.kind not in "biuf":
        raise exception(Diagnostic("R0305", f"`{name}` holds what is no number", help="pass a dictionary of numbers"))
    return made


def flat_inputs(shapes: Mapping[str, tuple[int, ...]], inputs: Sequence[TensorSignature]) -> tuple[TensorSignature, ...]:
    """Return what flat feeds of these shapes have to be."""
    found = [TensorSignature(SAID, DTYPES["bool"], (0,))]
    for t in inputs:
        if t.is_map:
            found += (TensorSignature(keys_of(t.name), DTYPES["i64"], (None,)), TensorSignature(values_of(t.name), t.dtype, (None,)))
            continue
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
    if t.is_map:
        keys, rows = found[keys_of(t.name)], _told(found[values_of(t.name)], t)
        return _dictionaries((texts(keys) if t.text_keys else keys).tolist(), rows)
    if t.is_sequence:
        if t.is_optional and count_of(t.name) not in found:
            return None
        items: list[Any] = []
        while item_of(t.name, len(items)) in found:
            items.append(_told(found[item_of(t.name, len(items))], t))
        return items
    return _told(found[t.name], t) if t.name in found else None


def _dictionaries(keys: list[Any], rows: Any) -> list[dict[Any, Any]]:
    """Return a dictionary for each row. A copy of one that has the keys, into which columns are written, is made in a third of the time of
    one that is built of pairs."""
    empty = dict.fromkeys(keys)
    found: list[dict[Any, Any]] = [empty.copy() for _ in rows]
    for key, column in zip(keys, rows.T.tolist(), strict=True):
        for row, value in zip(found, column, strict=True):
            row[key] = value
    return found


def _told(array: Any, t: TensorSignature) -> Any:
    return texts(array) if t.text else array
