"""A dictionary that keeps what was used last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
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

    def enter(self, key: K, value: V) -> None:
        """Enter a value as the one used last."""
        self[key] = value
        self.move_to_end(key)
        while len(self) > self.limit:
            self.popitem(last=False)

    def last(self) -> V | None:
        """Return the value that was used last."""
        return next(reversed(self.values())) if self else None
