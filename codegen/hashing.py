"""Hashes of trees that are keys of many dictionaries."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T", bound="type[HashedOnce]")


class HashedOnce:
    """A node that remembers its hash: that of a frozen dataclass goes through the whole tree below it each time."""

    __slots__ = ("_hash",)
    _hash: int


def hashed_once(node: T) -> T:
    """Let the nodes of a frozen dataclass compute their hash the first time they are asked."""
    compute = node.__hash__

    def hash_of(self: HashedOnce) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", compute(self))
            return self._hash

    node.__hash__ = hash_of  # type: ignore[assignment, method-assign]
    return node
