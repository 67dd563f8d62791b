"""Calls like those that were made before: native code found by what is given, without sorting arguments out.

    form      the arguments of a call without their arrays: which tensors are given, where or by which name, and the values of attributes
              and sizes, each with its type: `1`, `1.0` and `True` are equal and mean different code, as `0.0` and `-0.0` do. Numbers that
              are given for tensors are arrays
    shapes    the element types and shapes of its arrays, in the order they are given

The code that a form had last is tried first: it looks at its arrays itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import numpy as np

from codegen.dtypes import DTYPES, DType
from codegen.forks import Lock
from tensorlang.diagnostics import RunError
from tensorlang.runtime.arguments import as_tensor, types_known
from tensorlang.runtime.feeds import as_array
from tensorlang.runtime.protocol import Direct
from tensorlang.syntax import nodes as sx

Array = np.ndarray[Any, Any]
Form: TypeAlias = tuple[object, ...]

KEPT_SHAPES = 512
"""For how many forms, and for how many combinations of shapes, an operator keeps its code at hand."""

T = TypeVar("T")
_PLAIN = frozenset((int, bool, str, type(None)))
_NUMBERS = frozenset((int, bool, float))


@dataclass(frozen=True, slots=True)
class _Entry:
    """Native code, and the places of its inputs among the arrays of a form; None where they are in order."""

    native: Direct
    order: tuple[int, ...] | None
    quick: Callable[..., Any] | None
    """The code for a call by position alone, which may have numbers for what has no axes."""

    def inputs(self, given: Sequence[T]) -> Sequence[T]:
        return given if self.order is None else [given[k] for k in self.order]


@dataclass(frozen=True, slots=True)
class Settled:
    """The code of a call that gives its arrays by position, and attributes and sizes by name: these, and their types."""

    named: tuple[tuple[str, Any], ...]
    types: tuple[type, ...]
    quick: Callable[..., Any]

    def serves(self, named: Mapping[str, Any]) -> bool:
        """Tell whether a call with these by name is one for the same code. Values of one type are compared alone, so none is an array."""
        return (*map(type, named.values()),) == self.types and (*named.items(),) == self.named


@dataclass(frozen=True, slots=True)
class _Call:
    """The form of a call, and its arrays; where numbers are given for arrays, these, with what they are given for, and which types the
    arrays settle."""

    form: Form
    given: list[Any]
    numbers: Sequence[tuple[int, sx.Param]]
    known: Callable[[], Mapping[str, DType]]

    def arrays(self) -> list[Array] | None:
        """Return the arrays, those of numbers made; None where what one is given for does not hold it."""
        made = self.given.copy()
        try:
            known = self.known() if self.numbers else {}
            for k, param in self.numbers:
                made[k] = as_tensor(made[k], param, known)
        except RunError:
            return None
        return made


class CallCache:
    """What an operator was called with. Several threads may ask and remember at once."""

    def __init__(self, declaration: sx.Operator | None) -> None:
        tensors = [p for p in declaration.params if p.kind == "tensor"] if declaration is not None else []
        self._params = tensors
        self._is_generic = bool(declaration and declaration.generics)
        self._order = {p.name: k for k, p in enumerate(tensors)}
        self._tensors: dict[object, sx.Param] = {**dict(enumerate(tensors)), **{p.name: p for p in tensors}}
        self._last: dict[Form, _Entry] = {}
        self._at: dict[tuple[object, ...], _Entry] = {}
        self._lock = Lock()
        self.positional: Callable[..., Any] | None = None
        """The code of the last call by position alone, as a built-in function (`Direct.quick`)."""
        self.positional_writes: tuple[int, Callable[..., Any]] | None = None
        """The same for arrays to write into, which come first (`Direct.writes`), behind the number of arrays that it reads."""
        self.settled: Settled | None = None
        """The code of the last call by position that named attributes or sizes."""

    def result(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """Return what a call returns, or `NotImplemented` for one that is not known. Raises RunError as the code does."""
        call = self._read(args, named)
        entry = None if call is None else self._last.get(call.form)
        if call is None or entry is None:
            return NotImplemented
        found = entry.quick(*entry.inputs(call.given)) if entry.quick is not None else NotImplemented
        if found is NotImplemented:
            arrays = call.arrays()
            entry = None if arrays is None else self._at.get((call.form, *map(_shape, arrays)))
            if entry is None or arrays is None:
                return NotImplemented
            self._use(call.form, entry, named)
            return entry.native(*entry.inputs(arrays))
        if type(found) is int:
            raise entry.native.failed(found)
        return found

    def written(self, args: tuple[Any, ...], named: Mapping[str, Any], out: Any) -> Any:
        """Return what a call that writes into `out` returns, or `NotImplemented` for what is not known or does not fit. Raises RunError as
        the code does."""
        call = self._read(args, named)
        if call is None or (arrays := call.arrays()) is None:
            return NotImplemented
        form = call.form
        found = _written(self._last.get(form), arrays, out)
        if found is NotImplemented:
            entry = self._at.get((form, *map(_shape, arrays)))
            found = _written(entry, arrays, out)
            if entry is not None and found is not NotImplemented:
                self._use(form, entry, named)
        return found

    def remember(self, args: tuple[Any, ...], named: Mapping[str, Any], native: Direct) -> None:
        """Keep the code that serves a call, where arrays are all it is about."""
        call = self._read(args, named)
        if call is None or (arrays := call.arrays()) is None:
            return
        form, order = call.form, self._places(args, named)
        if not len(order) == len(arrays) == len(native.inputs):
            return  # some were made of lists
        if any(_shape(arrays[k]) != (port.dtype.numpy, port.shape) for k, port in zip(order, native.inputs, strict=True)):
            return
        entry = _Entry(native, None if list(order) == sorted(order) else tuple(order), self._quick(native))
        with self._lock:
            enter(self._at, (form, *map(_shape, arrays)), entry)
            enter(self._last, form, entry)
        self._use(form, entry, named)

    def _use(self, form: Form, entry: _Entry, named: Mapping[str, Any]) -> None:
        """Let code be tried first for its form, which names so much."""
        if form in self._last:
            self._last[form] = entry
        count = len(entry.native.inputs)
        if entry.order is not None or form[:count] != tuple(range(count)):
            return
        if len(form) == count:
            writes = entry.native.writes
            self.positional, self.positional_writes = entry.quick, None if writes is None else (count, writes)
        elif entry.quick is not None and isinstance(form[count], str) and all(map(_is_told_by_equality, named.values())):
            self.settled = Settled((*named.items(),), (*map(type, named.values()),), entry.quick)

    def _quick(self, native: Direct) -> Callable[..., Any] | None:
        """Return code for calls by position alone, with numbers where tensors without axes are declared."""
        params = list(self._order)
        if len(native.inputs) != len(params) or any(self._tensors[name].each for name in params):
            return native.quick
        types = (self._tensors[name].type for name in params)
        return native.quick_for_numbers([isinstance(t, sx.TensorType) and t.dtype in DTYPES for t in types])

    def _read(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> _Call | None:
        """Return a call as it is given; None for what has to be looked at: numbers in lists."""
        form: list[object] = []
        arrays: list[Any] = []
        numbers: list[tuple[int, sx.Param]] = []
        for name, value in chain(enumerate(args), named.items()):
            kind = type(value)
            form.append(name)
            if kind is np.ndarray:
                arrays.append(value)
            elif (param := self._tensors.get(name)) is not None and (kind in _NUMBERS or issubclass(kind, np.generic)):
                if param.each:
                    return None
                numbers.append((len(arrays), param))
                arrays.append(value)
            elif kind in _PLAIN:
                form += (kind, value)
            elif kind is float:
                form += (kind, value or str(value))
            elif kind is tuple or kind is list:
                first = type(value[0]) if value else None
                if (first is not np.ndarray and first is not int) or any(type(item) is not first for item in value):
                    return None
                if first is int:
                    form += (kind, tuple(value))
                else:
                    form += (kind, len(value))
                    arrays += value
            elif hasattr(kind, "__dlpack__") and not isinstance(value, np.ndarray):
                try:
                    arrays.append(as_array(value, str(name)))
                except RunError:
                    return None
            else:
                return None
        given = {**dict(zip(self._order, args, strict=False)), **named} if numbers and self._is_generic else {}
        return _Call(tuple(form), arrays, numbers, partial(types_known, self._params, given))

    def _places(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> Sequence[int]:
        """Return the places of a call's arrays in the order of the parameters they are given for."""
        order = self._order
        places: list[int] = []
        for name, value in chain(zip(order, args, strict=False), named.items()):
            if name in order and value is not None:
                places += [order[name]] * (len(value) if isinstance(value, tuple | list) else 1)
        return sorted(range(len(places)), key=places.__getitem__)


def _written(entry: _Entry | None, arrays: Sequence[Array], out: Any) -> Any:
    """Return what known code returns that writes into `out`, or `NotImplemented`."""
    if entry is None or (writes := entry.native.writes) is None:
        return NotImplemented
    results = _results(out, entry.native)
    found = NotImplemented if results is None else writes(*results, *entry.inputs(arrays))
    if type(found) is int:
        raise entry.native.failed(found)
    return found


def _results(out: Any, native: Direct) -> Sequence[Any] | None:
    """Return what is given for the outputs in their order, or None when that has to be looked at."""
    if type(out) is np.ndarray:
        return (out,)
    if type(out) is dict:
        return [out.get(port.name) for port in native.outputs] if len(out) == len(native.outputs) else None
    return out if type(out) is tuple else None


def _is_told_by_equality(value: object) -> bool:
    """Tell whether what has the type of `value` and equals it means the same code: 0.0 has two signs."""
    return type(value) in _PLAIN or (type(value) is float and value != 0)


def _shape(array: Array) -> tuple[object, ...]:
    return array.dtype, array.shape


def enter(table: dict[Any, T], key: object, value: T) -> None:
    """Enter a value, in place of the oldest when there are too many."""
    if len(table) >= KEPT_SHAPES and key not in table:
        table.pop(next(iter(table)))
    table[key] = value
