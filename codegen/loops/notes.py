"""Notes: what is asked of a loop or of a buffer, for a pass to carry out.

    for k in 0 .. K (stages 3 boxes, specialized 40 232) { … }          alloc c: f32[8] registers (kept registers)

A note never changes what a loop computes. Whoever carries it out takes it away, unless those who come after need it too: blocks stay
`cluster`, and what they share stays `multicast`. In text a note is its word and what it holds in the order of its fields: numbers and words
as they are, and the name of a switch that is on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

Part: TypeAlias = int | str
N = TypeVar("N", bound="Note")


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that is asked. `origin`: who asks, for messages; nothing here looks into it, and it makes no note differ from another."""

    word: ClassVar[str]
    about: ClassVar[Literal["loop", "buffer"]] = "loop"
    origin: Any = field(default=None, compare=False, repr=False, kw_only=True)

    @property
    def parts(self) -> tuple[Part, ...]:
        """What it holds, as its text has it."""
        out: list[Part] = []
        for f in fields(self):
            if f.compare:
                match getattr(self, f.name):
                    case bool(on):
                        out += [f.name] * on
                    case tuple(values):
                        out += values
                    case value:
                        out.append(value)
        return tuple(out)

    @property
    def vacuous(self) -> bool:
        """Whether it asks for what is so without it."""
        return False

    def __str__(self) -> str:
        return " ".join(map(str, (self.word, *self.parts)))


@dataclass(frozen=True, slots=True)
class Staged(Note):
    """A software pipeline: what is copied in the loop runs `stages - 1` iterations ahead of it. `boxes`: copies are boxes of tensors, which
    the device copies as such."""

    word = "stages"
    stages: int
    boxes: bool = False

    @property
    def vacuous(self) -> bool:
        return self.stages == 1


@dataclass(frozen=True, slots=True)
class Specialized(Note):
    """Warp specialisation: a thread beside those of the block asks for the boxes of the loop. `registers`: how many are dealt out to a
    thread there and to one of the block; none: all have as many."""

    word = "specialized"
    registers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Persistent(Note):
    """At most so many blocks go over all places of the grid that the loop over blocks is part of."""

    word = "persistent"
    blocks: int


@dataclass(frozen=True, slots=True)
class Clustered(Note):
    """So many neighbours along a loop over blocks run as one cluster: they can wait for each other, and share what is copied."""

    word = "cluster"
    blocks: int

    @property
    def vacuous(self) -> bool:
        return self.blocks == 1


@dataclass(frozen=True, slots=True)
class Edge(Note):
    """What happens at the edge of a loop: it ends early (`guard`), or goes on over zeros where that is harmless (`zfill`)."""

    word = "edge"
    how: Literal["guard", "zfill"]


@dataclass(frozen=True, slots=True)
class Partitioned(Note):
    """The loop is split at its interior (`codegen.loops.partition`), also where that does not seem to be worth its code."""

    word = "partition"


@dataclass(frozen=True, slots=True)
class Kept(Note):
    """Where the blocks of a graphics processor keep a buffer."""

    word = "kept"
    about = "buffer"
    place: Literal["shared", "registers"]

    @property
    def memory(self) -> str:
        """The place in words."""
        return "shared memory" if self.place == "shared" else self.place


@dataclass(frozen=True, slots=True)
class Multicast(Note):
    """The blocks of a cluster share what is copied into the buffer: each asks for a part, and all parts arrive at each."""

    word = "multicast"
    about = "buffer"


@dataclass(frozen=True, slots=True)
class Streamed(Note):
    """What is stored to the buffer is not read again soon: stores go past the caches."""

    word = "streamed"
    about = "buffer"


@dataclass(frozen=True, slots=True)
class Begins(Note):
    """The first of the two rows of a heap buffer may lie in the memory of a parameter that is row-major, too, as large, and written with
    nothing but copies of that row, after which nothing is stored to the buffer."""

    word = "begins"
    about = "buffer"
    parameter: str


@dataclass(frozen=True, slots=True)
class AnyOrder(Note):
    """What is collected in the buffer may be collected in any order, and in parts."""

    word = "any_order"
    about = "buffer"


KINDS: dict[str, type[Note]] = {
    k.word: k for k in (Staged, Specialized, Persistent, Clustered, Edge, Partitioned, Kept, Multicast, Streamed, Begins, AnyOrder)
}
"""The kinds of notes by their words."""


def read(word: str, parts: Sequence[Part]) -> Note:
    """Return the note whose text is `word` and `parts`. Raises ValueError for what is the text of none."""
    if word not in KINDS:
        raise ValueError(f"`{word}` is no note: there are {', '.join(sorted(KINDS))}")
    kind, left = KINDS[word], list(parts)
    given: dict[str, object] = {}
    for f in fields(kind):
        if not f.compare:
            continue
        match f.type:
            case "bool":
                given[f.name] = f.name in left
                left = [part for part in left if part != f.name]
            case "tuple[int, ...]":
                given[f.name], left = tuple(left), []
            case _ if left and isinstance(left[0], int) == (f.type == "int"):
                given[f.name] = left.pop(0)
            case _:
                raise ValueError(f"`{word}` is followed by {', '.join(f.name for f in fields(kind) if f.compare)}")
    note = kind(**given)
    if note.parts != tuple(parts):
        raise ValueError(f"`{' '.join(map(str, (word, *parts)))}` is no note: `{note}` is")
    return note


def note_of(notes: Sequence[Note], kind: type[N]) -> N | None:
    """Return the note of this kind, if there is one."""
    return next((note for note in notes if isinstance(note, kind)), None)
