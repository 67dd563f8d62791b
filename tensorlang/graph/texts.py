"""Texts in tensors: each is an i64 that follows from its characters, the same in every process, and is looked up where it leaves a model.

The empty text is 0. Equal numbers are equal texts: two texts of one number are refused where the second comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
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
    number = digest_of(text)
    run = _of_run.get()
    known = _constants.get(number, None if run is None else run.get(number))
    if known is not None and known != text:
        raise exception(Diagnostic("R0305", f"the texts {known!r} and {text!r} cannot be told apart", notes=("their digests are equal",)))
    if constant or run is None:
        _constants[number] = text
    elif known is None:
        run[number] = text
    return number


@lru_cache(maxsize=4096)
def digest_of(text: str) -> int:
    """Return the number of a text; those of the texts that came last are kept, for most that come are names of categories."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little", signed=True)


def numbers(value: object, name: str, constant: bool = False) -> Array:
    """Return an array of texts as numbers; `constant`: a model holds them. A text that stands there many times is looked at once.
    Raises RunError R0305 for what holds something else."""
    array = np.asarray(value, object if isinstance(value, (list, tuple)) else None)
    if array.dtype.kind not in "OUST":
        raise exception(Diagnostic("R0305", f"`{name}` is no array of texts", notes=(f"its elements are {array.dtype}",)))
    items = array.reshape(-1).tolist()
    for kind in dict.fromkeys(map(type, items)):
        if not issubclass(kind, (str, bytes)):
            raise exception(Diagnostic("R0305", f"`{name}` holds a `{kind.__name__}` where a text is expected"))
    known = {item: number_of(_text(item), constant) for item in dict.fromkeys(items)}
    return np.array([known[item] for item in items], np.int64).reshape(array.shape)


def _text(item: str | bytes) -> str:
    return item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else str(item)


def texts(found: Array) -> Array:
    """Return the texts of numbers, in an array of objects."""
    run = _of_run.get() or {}
    items = found.reshape(-1).tolist()
    made = np.empty(len(items), object)
    made[:] = [_constants[number] if number in _constants else run[number] for number in items]
    return made.reshape(found.shape)
