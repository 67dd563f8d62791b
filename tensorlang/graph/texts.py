"""Texts in tensors: each is an i64 that follows from its characters, the same in every process, and is looked up where it leaves a model.

The empty text is 0. Equal numbers are equal texts: two texts of one number are refused where the second comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any

import numpy as np

from tensorlang.diagnostics import Diagnostic, exception

Array = np.ndarray[Any, Any]

_constants: dict[int, str] = {0: ""}
"""Texts that models hold."""
_of_run: ContextVar[dict[int, str] | None] = ContextVar("texts of a run", default=None)
"""Texts that a run was given, or has made."""


@contextmanager
def texts_of_a_run() -> Iterator[None]:
    """Forget the texts that come while this lasts."""
    token = _of_run.set({})
    try:
        yield
    finally:
        _of_run.reset(token)


def number_of(text: str, constant: bool = False) -> int:
    """Return the number of a text, by which `texts` finds it: for good where a model holds it, or no run goes on, and else while the run
    lasts. Raises RunError R0305 where another text has it."""
    if not text:
        return 0
    number = int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little", signed=True)
    run = _of_run.get()
    known = _constants.get(number, None if run is None else run.get(number))
    if known is not None and known != text:
        raise exception(Diagnostic("R0305", f"the texts {known!r} and {text!r} cannot be told apart", notes=("their digests are equal",)))
    if constant or run is None:
        _constants[number] = text
    elif known is None:
        run[number] = text
    return number


def numbers(value: object, name: str, constant: bool = False) -> Array:
    """Return an array of texts as numbers; `constant`: a model holds them.
    Raises RunError R0305 for what holds something else."""
    array = np.asarray(value, object if isinstance(value, (list, tuple)) else None)
    if array.dtype.kind not in "OUST":
        raise exception(Diagnostic("R0305", f"`{name}` is no array of texts", notes=(f"its elements are {array.dtype}",)))
    return np.array([number_of(_text(item, name), constant) for item in array.reshape(-1)], np.int64).reshape(array.shape)


def _text(item: object, name: str) -> str:
    if isinstance(item, bytes):
        return item.decode("utf-8", "surrogateescape")
    if not isinstance(item, str):
        raise exception(Diagnostic("R0305", f"`{name}` holds a `{type(item).__name__}` where a text is expected"))
    return str(item)


def texts(found: Array) -> Array:
    """Return the texts of numbers, in an array of objects."""
    run = _of_run.get() or {}
    made = np.empty(found.shape, object)
    for index, number in np.ndenumerate(found):
        key = int(number)
        made[index] = _constants[key] if key in _constants else run[key]
    return made
