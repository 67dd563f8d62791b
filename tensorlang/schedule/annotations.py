"""What directives say about loops and tensors, kept until the schedule is placed.

    stages ko by 3 with tma         "y.ko" → Staged(3, boxes=True)
    cluster jo by 2                 "y.jo" → Clustered(2)

Of each loop or tensor there is one value of a kind: what was said last. Values that are notes (`codegen.loops.notes`) travel on, through
the plan to the loops and buffers of the loop IR; others are remarks that only the schedule itself looks at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from codegen.loops.notes import Note
from tensorlang.syntax import nodes as syntax

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a note comes from: the name that schedules have for what it is about, and the directive that says so."""

    about: str
    directive: syntax.Directive


def origin_of(note: Note) -> Origin:
    """Return where a note of a plan comes from."""
    found = note.origin
    assert isinstance(found, Origin), "a directive has said it"
    return found


@dataclass(frozen=True, slots=True)
class Annotation(Generic[T]):
    """A value that a directive gives to what it is `about`."""

    about: str
    what: T
    directive: syntax.Directive


@dataclass(slots=True)
class Annotations:
    """What is said about loops, or about tensors."""

    _said: dict[tuple[str, type], Annotation[Any]] = field(default_factory=dict)

    def put(self, about: str, what: object, directive: syntax.Directive) -> None:
        """Let `directive` say `what` about a loop or tensor, in place of what was said of the kind before."""
        if isinstance(what, Note):
            what = replace(what, origin=Origin(about, directive))
        self._said[about, type(what)] = Annotation(about, what, directive)

    def of(self, kind: type[T]) -> list[Annotation[T]]:
        """Return all that is said of a kind, in the order in which it was said first."""
        return [annotation for (_, other), annotation in self._said.items() if other is kind]

    def about(self, name: str, kind: type[T]) -> Annotation[T] | None:
        """Return what is said of a kind about one loop or tensor."""
        return self._said.get((name, kind))

    def take(self, kind: type[T]) -> list[Annotation[T]]:
        """Return all that is said of a kind, which is not said any more."""
        found = self.of(kind)
        for annotation in found:
            del self._said[annotation.about, kind]
        return found

    def __iter__(self) -> Iterator[Annotation[Any]]:
        return iter(self._said.values())

    def notes(self) -> dict[str, tuple[Note, ...]]:
        """Return the notes about each loop or tensor that ask for something."""
        out: dict[str, tuple[Note, ...]] = {}
        for annotation in self._said.values():
            if isinstance(annotation.what, Note) and not annotation.what.vacuous:
                out[annotation.about] = (*out.get(annotation.about, ()), annotation.what)
        return out
