"""What was proven of a kernel, told to people: chapters of statements, each the sets and maps of isl that a proof was about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from polyhedral.record import Shown, Statement
from tensorlang.tensor.nodes import Program


@dataclass(frozen=True, slots=True)
class _Chapter:
    """`signs` stand before the sets and maps of a statement; the last one before all that follow, too."""

    title: str
    says: str
    shown: tuple[Shown, ...]
    signs: tuple[str, ...] = (" ",)


_CHAPTERS = (
    _Chapter("bounds", "an index that is no axis by itself lies in bounds wherever it is evaluated", ("implies",), (" ", "⊆")),
    _Chapter("single assignment, apart", "no two clauses define an element", ("disjoint",), (" ", "∥")),
    _Chapter("single assignment, whole", "every element is defined by a clause", ("covers",), (" ", "⊆", "∪")),
    _Chapter("well-founded order", "where an element needs another, the rank of what it needs is less", ("well founded",)),
    _Chapter("instances", "what runs is what the equations ask for, each once", ("once",), (" ", "=")),
    _Chapter("definedness", "what is read is written by somebody", ("defined",), (" ", "⊆")),
    _Chapter("order of the schedule", "no pair runs backwards", ("order",)),
    _Chapter("parallel loops and lanes", "no pair lies in two iterations of the loop", ("race", "lane")),
    _Chapter("storage", "what is written while an element is needed is in another cell", ("alive", "at once"), (" ", "∥")),
    _Chapter("layouts", "each element has a cell of its own", ("injective",)),
)


def shown_proofs(program: Program, *proofs: Sequence[Statement]) -> str:
    """Return the statements by chapters; what was proven several times stands once."""
    found = list(dict.fromkeys(s for proof in proofs for s in proof))
    return "\n".join([f"proven of `{program.name}`", *(line for chapter in _CHAPTERS for line in _lines(chapter, found))])


def _lines(chapter: _Chapter, found: Sequence[Statement]) -> Iterator[str]:
    statements = [s for s in found if s.shown in chapter.shown]
    yield f"\n{chapter.title}: {chapter.says}" if statements else f"\n{chapter.title}: nothing to prove"
    for s in statements:
        yield f"    {s.subject}"
        for k, text in enumerate(s.about):
            yield f"        {chapter.signs[min(k, len(chapter.signs) - 1)]} {text}"
