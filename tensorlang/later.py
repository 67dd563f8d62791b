"""Functions of modules that most programs never need, imported when they are called.

    parse = later("tensorlang.syntax.parse:parse")        nothing is imported
    parse(source)                                          the module is, now and once

Running a model that was compiled before needs neither the parser nor isl nor the emitter. What leads to them is called through here, and
nothing else is: an import that a module always needs stands at its head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any


def later(place: str) -> Callable[..., Any]:
    """Return the function at `place` (`module:name`) as one that imports its module when it is first called."""
    return _Later(place)


@dataclass(frozen=True, slots=True)
class _Later:
    """A function by its place, which is all that a pickle of it holds."""

    place: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _found(self.place)(*args, **kwargs)


@cache
def _found(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found
