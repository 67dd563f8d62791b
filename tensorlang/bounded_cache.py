"""What is kept so that it is not made again: a dictionary of what was used last, and what functions returned for the same object."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(OrderedDict[K, V]):
    """Values by keys, of which the `limit` that were used last stay."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def used(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, made if there is none, as the one used last."""
        if key in self:
            self.move_to_end(key)
            return self[key]
        value = make()
        self.enter(key, value)
        return value

    def found(self, key: K) -> V | None:
        """Return the value of a key as the one used last, None where there is none."""
        value = self.get(key)
        if value is not None:
            self.move_to_end(key)
        return value

    def enter(self, key: K, value: V) -> None:
        """Enter a value as the one used last."""
        self[key] = value
        self.move_to_end(key)
        while len(self) > self.limit:
            self.popitem(last=False)

    def last(self) -> V | None:
        """Return the value that was used last."""
        return next(reversed(self.values())) if self else None


def by_identity(limit: int) -> Callable[[Callable[[K], V]], Callable[[K], V]]:
    """Return a decorator for functions of an object that never changes: what they returned for an object they return for it again, as long
    as no more than `limit` others came since. The objects are not compared, and stay as long, so that no other is taken for one of them."""

    def kept(function: Callable[[K], V]) -> Callable[[K], V]:
        known: dict[int, tuple[K, V]] = {}

        @wraps(function)
        def found(thing: K) -> V:
            entry = known.get(id(thing))
            if entry is None:
                entry = thing, function(thing)
                if len(known) >= limit:
                    known.clear()
                known[id(thing)] = entry
            return entry[1]

        return found

    return kept
