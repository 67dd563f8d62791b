"""What the earlier clauses of a step make that later ones of it read, as tensors of their own.

    before   u[t, 0] = u[t, 1]                   after   u.earlier[t, i] = f(u[t - 1, i - 1], u[t - 1, i + 1])  for i in 1..N-1
             u[t, i] = f(u[t - 1, i - 1],                u.earlier[t, i] = 0                                    otherwise
                         u[t - 1, i + 1])                u[t, 0]         = u.earlier[t, 1]
                           for i in 1..N-1               u[t, i]         = u.earlier[t, i]                      for i in 1..N-1
             u[t, N - 1] = u[t, N - 2]                   u[t, N - 1]     = u.earlier[t, N - 2]

Edges of a grid that are made of what lies beside them read forwards on one side and backwards on the other: the elements of no step can be
computed one after the other along an axis, though the clauses can. Whatever is not read so, a step before among it, is read where it was.
Elements are what they were, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

from polyhedral import affine
from polyhedral.expr import Name as AffineName
from tensorlang.bounded_cache import BoundedCache
from tensorlang.tensor.facts import Place, box, map_parts
from tensorlang.tensor.nodes import Const, Definition, Expr, Holds, Piece, Program, Read, Select, Tensor, TupleOf
from tensorlang.tensor.prove import Prover, problems_since
from tensorlang.tensor.walk import components, distance, fresh_for, is_recurrence, reads

if TYPE_CHECKING:
    from polyhedral.recurrence import ClauseOrder

_ORDERS: BoundedCache[tuple[object, ...], ClauseOrder | None] = BoundedCache(1024)
Names: TypeAlias = Mapping[str, str]
"""Tensor → the first of those that are defined with it."""


def clauses_apart(program: Program) -> Program:
    """Return `program` with such tensors wherever clauses have an order and the elements of the tensor have none."""
    ordered: list[tuple[tuple[Definition, ...], ClauseOrder]] = []
    for group in components(program):
        if not is_recurrence(group) or _advances(group):
            continue
        clauses = tuple(replace(d, pieces=tuple(branch for p in d.pieces for branch in _branches(p))) for d in group)
        order = _order(program, clauses)
        if order is not None and _is_sound(program, group):
            ordered.append((clauses, order))
    if not ordered:
        return program
    fresh, out = fresh_for(program), dict[str, list[Definition]]()
    for clauses, order in ordered:
        out |= _apart(clauses, order, fresh)
    made = replace(program, definitions=tuple(new for d in program.definitions for new in out.get(d.tensors[0].name, (d,))))
    return program if problems_since(program, made) else made


def _branches(piece: Piece) -> Iterator[Piece]:
    """Yield the clauses that one is whose value is chosen by places."""
    match piece.value:
        case Select(Holds(cond), then, orelse):
            yield from _branches(replace(piece, value=then, guard=affine.conj(piece.guard, cond), otherwise=False))
            yield from _branches(replace(piece, value=orelse, guard=affine.conj(piece.guard, affine.negate(cond)), otherwise=False))
        case _:
            yield piece


def _order(program: Program, group: tuple[Definition, ...]) -> ClauseOrder | None:
    if all(len(d.pieces) == 1 for d in group):
        return None
    return _ORDERS.used((program.sizes, program.context, group), lambda: _found_order(program, group))


def _is_sound(program: Program, group: Sequence[Definition]) -> bool:
    """Tell whether nothing else is wrong with definitions: what is, is said of them as they were written."""
    prover = Prover(program)
    for d in group:
        prover.elements(d)
    return not prover.problems


def _found_order(program: Program, group: Sequence[Definition]) -> ClauseOrder | None:
    from polyhedral.recurrence import clause_order

    prover, names = Prover(program), _names(group)
    nodes = {d.tensors[0].name: (d.axes, box(d)) for d in group}
    clauses = {d.tensors[0].name: [p.guard for p in d.pieces] for d in group}
    alone = ((k, replace(d, pieces=(piece,))) for d in group for k, piece in enumerate(d.pieces))
    edges = [(k, edge) for k, clause in alone for edge in prover.edges(clause, names)]
    return clause_order(program.sizes, prover.context, nodes, clauses, edges)


def _names(group: Sequence[Definition]) -> Names:
    return {t.name: d.tensors[0].name for d in group for t in d.tensors}


def _advances(group: Sequence[Definition]) -> bool:
    """Tell whether an axis counts steps, each of which reads only earlier ones, or only later ones: as of most recurrences, at a glance."""
    names = _names(group)
    found = ((r, d) for d in group for p in d.pieces for r in reads(p.value) if r.tensor in names)
    steps = [[distance(slot, axis) for slot, axis in zip(r.index, d.axes, strict=False)] for r, d in found]
    return any(all(n is not None and sign * n > 0 for n in axis) for axis in zip(*steps, strict=False) for sign in (1, -1))


def _with_reads(e: Expr, names: Names, f: Callable[[Read], str]) -> Expr:
    """Return `e` with the tensors that `f` says read in place of those in `names`. It is asked in the order of `Prover.edges`."""
    if isinstance(e, Read) and e.tensor in names:
        e = replace(e, tensor=f(e))
    return map_parts(lambda child, _: _with_reads(child, names, f), e, Place())


def _apart(group: Sequence[Definition], order: ClauseOrder, fresh: Callable[[str], str]) -> dict[str, list[Definition]]:
    """Return what each definition becomes, under the name of its first tensor."""
    names, number = _names(group), count()
    levels = {d.tensors[0].name: sorted({order.levels[d.tensors[0].name, k] for k in range(len(d.pieces))}) for d in group}
    called = {
        (t.name, level): t.name if level == levels[d.tensors[0].name][-1] else fresh(f"{t.name}.earlier")
        for d in group
        for t in d.tensors
        for level in levels[d.tensors[0].name]
    }
    out: dict[str, list[Definition]] = {}
    for d in group:
        first = d.tensors[0].name

        def there(read: Read) -> str:
            up_to = order.reads.get(next(number))
            return read.tensor if up_to is None else called[read.tensor, max(x for x in levels[names[read.tensor]] if x <= up_to)]

        pieces = [(order.levels[first, k], replace(p, value=_with_reads(p.value, names, there))) for k, p in enumerate(d.pieces)]
        out[first] = [
            _at_level(d, pieces, level, before, called) for before, level in zip((None, *levels[first]), levels[first], strict=False)
        ]
    return out


def _at_level(
    d: Definition, pieces: Sequence[tuple[int, Piece]], level: int, before: int | None, called: Mapping[tuple[str, int], str]
) -> Definition:
    """Return what clauses up to a level make: those of it what they say, those before it what they made, and any later ones nothing."""
    index = tuple(map(AffineName, d.axes))
    kept: list[Piece] = []
    for x, piece in pieces:
        if x == level:
            kept.append(piece)
        elif x < level and before is not None:
            kept.append(replace(piece, value=_together([Read(called[t.name, before], index, span=piece.span) for t in d.tensors])))
    if len(kept) < len(pieces):
        nothing = _together([Const(t.dtype.zero, t.dtype) for t in d.tensors])
        kept.append(Piece(nothing, affine.conj(*(affine.negate(p.guard) for p in kept)), otherwise=True, span=d.span))
    return replace(d, tensors=tuple(_called(t, called[t.name, level]) for t in d.tensors), pieces=tuple(kept))


def _called(t: Tensor, name: str) -> Tensor:
    return t if name == t.name else Tensor(name, t.dtype, t.shape, span=t.span)


def _together(values: Sequence[Expr]) -> Expr:
    return values[0] if len(values) == 1 else TupleOf(tuple(values))
