"""Values as text, for what is kept on disk: to read one is to build data, and never runs what the text says.

    document ::= {"classes": [class], "rows": [row], "root": item}
    class    ::= [module, name, field, …]           a dataclass or an enumeration of this compiler
    row      ::= ["c", class, item, …]              an instance, its fields in order
               | ["e", class, name] | ["D", name]   a member of an enumeration, an element type
               | ["t", item, …] | ["l", item, …] | ["f", item, …] | ["s", item, …]      tuple, list, frozenset, set
               | ["d", key, item, key, item, …]     dict
               | ["b", base64] | ["a", type, [extent, …], base64, scalar] | ["p", path] | ["q", numerator, denominator]
               | ["y", {product: factor}]      a polynomial
    item     ::= null, a truth value, a number or a string as it is; [row] refers to an earlier row

Rows are shared: what is one object in memory is one row, and one object again when it is read.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from importlib import import_module
from pathlib import Path, PurePath
from types import MemberDescriptorType
from typing import Any

import numpy as np

from codegen.dtypes import DTYPES, DType
from codegen.polynomials import Poly
from tensorlang.garbage import fewer_collections

_PACKAGES = frozenset(("tensorlang", "codegen", "polyhedral", "stdlib"))
_PLAIN = (str, int, float, bool, type(None))


class FlatError(ValueError):
    """A text is not what `to_flat` writes, or was written by another compiler."""


def to_flat(value: object) -> bytes:
    """Return `value` as text. Raises TypeError for what has no text."""
    writer = _Writer()
    root = writer.item(value)
    document = {"classes": list(writer.classes.values()), "rows": writer.rows, "root": root}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def from_flat(data: bytes) -> Any:
    """Return the value that `to_flat` wrote. Raises FlatError."""
    try:
        document = json.loads(data.decode("utf-8", "surrogatepass"))
        classes = [_Class(*described) for described in document["classes"]]
        with fewer_collections():
            rows: list[Any] = []
            for kind, *items in document["rows"]:
                rows.append(_READERS[kind](items, rows, classes))
            return _item(document["root"], rows)
    except FlatError:
        raise
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, ImportError, RecursionError) as problem:
        raise FlatError(f"not a value of this compiler: {problem}") from problem


# ---------------------------------------------------------------- writing


class _Writer:
    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self.classes: dict[type, list[str]] = {}
        self._numbers: dict[type, int] = {}
        self._known: dict[int, int] = {}
        self._written: dict[str, int] = {}
        self._held: list[object] = []
        """Objects whose numbers `_known` holds: they must not go while it does."""

    def item(self, value: object) -> Any:
        if type(value) in _PLAIN:
            return value
        at = self._known.get(id(value))
        if at is None:
            at = self._known[id(value)] = self._place(self._row(value), shared=_is_frozen(value))
            self._held.append(value)
        return [at]

    def _place(self, row: list[Any], *, shared: bool) -> int:
        """Return the number of a row: what can never change is written once, however many objects say the same."""
        at = self._written.setdefault(repr(row), len(self.rows)) if shared else len(self.rows)
        if at == len(self.rows):
            self.rows.append(row)
        return at

    def _row(self, value: Any) -> list[Any]:
        match value:
            case DType():
                return ["D", value.name]
            case Enum():
                return ["e", self._class(type(value)), value.name]
            case _ if is_dataclass(value) and not isinstance(value, type):
                number = self._class(type(value))
                return ["c", number, *[self.item(getattr(value, name)) for name in self.classes[type(value)][2:]]]
            case tuple() | list() | frozenset() | set() if type(value) in _SEQUENCES:
                return [_SEQUENCES[type(value)], *map(self.item, value)]
            case Mapping():
                return ["d", *(self.item(x) for pair in value.items() for x in pair)]
            case bytes() | bytearray():
                return ["b", b64encode(value).decode()]
            case np.ndarray() | np.generic() if np.asarray(value).dtype != object:
                array = np.asarray(value)
                return ["a", array.dtype.name, list(array.shape), b64encode(array.tobytes()).decode(), isinstance(value, np.generic)]
            case Poly():
                return ["y", self.item(value.terms)]
            case PurePath():
                return ["p", str(value)]
            case Fraction():
                return ["q", value.numerator, value.denominator]
            case _:
                raise TypeError(f"a value of {type(value).__module__}.{type(value).__qualname__} has no text")

    def _class(self, kind: type) -> int:
        if kind not in self.classes:
            if kind.__module__.split(".")[0] not in _PACKAGES:
                raise TypeError(f"{kind.__module__}.{kind.__qualname__} is no class of this compiler")
            names = [f.name for f in fields(kind)] if is_dataclass(kind) else []
            self.classes[kind] = [kind.__module__, kind.__qualname__, *names]
            self._numbers[kind] = len(self._numbers)
        return self._numbers[kind]


def _is_frozen(value: object) -> bool:
    """Tell whether two values written alike may be one: nothing changes either, and they are equal."""
    parameters = getattr(type(value), "__dataclass_params__", None)
    if parameters is not None:
        return bool(parameters.frozen and parameters.eq)
    return isinstance(value, (tuple, frozenset))


_SEQUENCES: dict[type, str] = {tuple: "t", list: "l", frozenset: "f", set: "s"}


# ---------------------------------------------------------------- reading


class _Class:
    """A class by its place, if it is one of this compiler and has the fields that were written."""

    def __init__(self, module: str, name: str, *names: str) -> None:
        if module.split(".")[0] not in _PACKAGES or "." in name:
            raise FlatError(f"{module}.{name} is no class of this compiler")
        self.kind = getattr(import_module(module), name)
        if not isinstance(self.kind, type) or not (issubclass(self.kind, Enum) or is_dataclass(self.kind)):
            raise FlatError(f"{module}.{name} is not data")
        if is_dataclass(self.kind) and tuple(f.name for f in fields(self.kind)) != names:
            raise FlatError(f"{module}.{name} has other fields")
        self._setters = [_setter(self.kind, name) for name in names]

    def instance(self, values: list[Any]) -> Any:
        if len(values) != len(self._setters):
            raise FlatError(f"{self.kind} is written wrongly")
        made = object.__new__(self.kind)
        for put, value in zip(self._setters, values):  # noqa: B905  # of one length, and this is the innermost loop
            put(made, value)
        return made

    def member(self, name: str) -> Any:
        if not issubclass(self.kind, Enum):
            raise FlatError(f"{self.kind} has no members")
        return self.kind[name]


def _setter(kind: type, name: str) -> Callable[[Any, Any], None]:
    slot = getattr(kind, name, None)
    if isinstance(slot, MemberDescriptorType):
        return slot.__set__
    return lambda made, value: object.__setattr__(made, name, value)


def _item(value: Any, rows: list[Any]) -> Any:
    return rows[value[0]] if type(value) is list else value


def _items(values: list[Any], rows: list[Any]) -> list[Any]:
    return [rows[v[0]] if type(v) is list else v for v in values]


def _dict(items: list[Any], rows: list[Any], _: list[_Class]) -> dict[Any, Any]:
    found = _items(items, rows)
    return dict(zip(found[::2], found[1::2], strict=True))


def _array(items: list[Any], _: list[Any], __: list[_Class]) -> Any:
    name, shape, text, scalar = items
    dtype = np.dtype(name) if name not in DTYPES else DTYPES[name].numpy
    array = np.frombuffer(b64decode(text), dtype).reshape(shape).copy()
    return array[()] if scalar else array


_READERS: dict[str, Callable[[list[Any], list[Any], list[_Class]], Any]] = {
    "c": lambda items, rows, classes: classes[items[0]].instance(_items(items[1:], rows)),
    "e": lambda items, _, classes: classes[items[0]].member(items[1]),
    "D": lambda items, _, __: DTYPES[items[0]],
    "t": lambda items, rows, _: tuple(_items(items, rows)),
    "l": lambda items, rows, _: _items(items, rows),
    "f": lambda items, rows, _: frozenset(_items(items, rows)),
    "s": lambda items, rows, _: set(_items(items, rows)),
    "d": _dict,
    "b": lambda items, _, __: b64decode(items[0]),
    "a": _array,
    "p": lambda items, _, __: Path(items[0]),
    "y": lambda items, rows, _: Poly(_item(items[0], rows)),
    "q": lambda items, _, __: Fraction(items[0], items[1]),
}
