"""Dependences by composition of accesses: exact, because every cell has one writer or one reduction.

    write   { S[i] -> A[x] }      read   { T[j] -> A[y] }
    RAW     { S[i] -> T[j] : write(S[i]) = read(T[j]) }         define, init, and update to their readers; init to update
    RED     { S[i] -> S'[j] : same cell, i != j }               updates among themselves, in no order unless `ordered`
    WAW     { S[i] -> T[j] : both may write the cell }          only when an index depends on data

All pairs on a cell count, not only the last writer: a reduction may be reordered afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Literal, TypeAlias

import islpy as isl

from polyhedral import affine
from polyhedral.expr import Compare, Cond, Expr, Int, Name
from polyhedral.model import Access, Coordinate, Scop, Statement, Within
from polyhedral.nest import context_of
from polyhedral.space import DT, Frame, universe_map

Kind: TypeAlias = Literal["RAW", "WAR", "WAW", "RED"]


@dataclass(frozen=True, slots=True, eq=False)
class Dep:
    """`source` and `target` touch one cell of `tensor`. `hard`: the source must run first; otherwise the order is free but the two
    may not run at once."""

    kind: Kind
    source: str
    target: str
    tensor: str
    relation: isl.Map
    hard: bool = True


@lru_cache(maxsize=32)  # each schedule that is looked at for one program asks
def dependences(scop: Scop) -> tuple[Dep, ...]:
    """Return every dependence that is not empty."""
    context = context_of(scop)
    rank = {t.name: len(t.shape) for t in scop.tensors}
    writes = [(s, access_map(scop, s, s.write)) for s in scop.statements]
    writers: dict[str, list[tuple[Statement, isl.Map]]] = {}
    for source, write in writes:
        writers.setdefault(source.write.tensor, []).append((source, write))
    result: list[Dep] = []
    for target in scop.statements:
        for access in target.reads:
            assert len(access.index) == rank.get(access.tensor, len(access.index))
            read = access_map(scop, target, access)
            for source, write in writers.get(access.tensor, ()):
                result.append(Dep("RAW", source.name, target.name, access.tensor, write.apply_range(read.reverse())))
    for first, write in writes:
        for second, other in writers[first.write.tensor]:
            result.extend(_between_writers(first, write, second, other))
    kept = ((d, d.relation.intersect_params(context)) for d in result)
    return tuple(d for d, relation in kept if not relation.is_empty())


def _between_writers(first: Statement, write: isl.Map, second: Statement, other: isl.Map) -> list[Dep]:
    pairs = write.apply_range(other.reverse())
    tensor = first.write.tensor
    if first.role == "init" and second.role == "update":
        return [Dep("RAW", first.name, second.name, tensor, pairs)]
    if first.role == "update" and second.role == "update":
        return [_among_updates(first, second, pairs)]
    if first.role == second.role == "define" and not (first.write.is_exact and second.write.is_exact):
        different = pairs if first.name != second.name else pairs.subtract(identity(pairs))
        return [Dep("WAW", first.name, second.name, tensor, different, hard=False)]
    return []


def _among_updates(first: Statement, second: Statement, pairs: isl.Map) -> Dep:
    if first.name != second.name:
        return Dep("RED", first.name, second.name, first.write.tensor, pairs, hard=False)
    if not first.ordered:
        return Dep("RED", first.name, first.name, first.write.tensor, pairs.subtract(identity(pairs)), hard=False)
    return Dep("RED", first.name, first.name, first.write.tensor, pairs.intersect(earlier(pairs)), hard=True)


def identity(pairs: isl.Map) -> isl.Map:
    return isl.Map.identity(pairs.get_space())


def earlier(pairs: isl.Map) -> isl.Map:
    """Return `{ [i] -> [j] : i is lexicographically before j }`."""
    return isl.Map.lex_lt(pairs.get_space().domain())


def access_map(scop: Scop, statement: Statement, access: Access) -> isl.Map:
    """Return `{ S[i] -> [x] }` over the instances that make the access."""
    frame = Frame(scop.params, statement.iters)
    shape = next((t.shape for t in scop.tensors if t.name == access.tensor), None)
    relation = cells_at(frame, access.index)
    for axis, index in enumerate(access.index):
        if isinstance(index, Within) and shape is not None:
            relation = relation.intersect(_coordinate(frame, len(access.index), axis, Within(Int(0), shape[axis])))
    return relation.intersect_domain(instances(scop, statement, access.when))


def cells_at(frame: Frame, index: Sequence[Coordinate]) -> isl.Map:
    """Return `{ [names] -> [x] }` the cells that an index may be, for all values of the names."""
    relation = universe_map(frame.params, len(frame.dims), len(index))
    for axis, x in enumerate(index):
        relation = relation.intersect(_coordinate(frame, len(index), axis, x))
    return relation


def elements(scop: Scop, shape: Sequence[Expr]) -> isl.Set:
    """Return `{ [x] : 0 <= x < shape }`."""
    axes = tuple(f"${k}" for k in range(len(shape)))
    sides = ((Compare(">=", Name(x), Int(0)), Compare("<", Name(x), extent)) for x, extent in zip(axes, shape, strict=True))
    return Frame(scop.params, axes).set(affine.conj(*(bound for side in sides for bound in side)))


def instances(scop: Scop, statement: Statement, when: Cond) -> isl.Set:
    """Return the instances of `statement` at which `when` holds."""
    frame = Frame(scop.params, statement.iters)
    return frame.set(statement.domain).intersect(frame.set(when))


def _coordinate(frame: Frame, rank: int, axis: int, x: Coordinate) -> isl.Map:
    """Return `{ [names] -> [x] }` of which one coordinate is, or lies in, what is said of it."""
    line = Frame(frame.params, ("x",)).space
    match x:
        case Within(lo, hi):
            least = isl.Map.from_pw_aff(frame.pw_aff(lo)).apply_range(isl.Map.lex_le(line)) if lo is not None else None
            below = isl.Map.from_pw_aff(frame.pw_aff(hi)).apply_range(isl.Map.lex_gt(line)) if hi is not None else None
            sides = [side for side in (least, below) if side is not None]
            one = reduce(isl.Map.intersect, sides, universe_map(frame.params, len(frame.dims), 1))
        case _:
            one = isl.Map.from_pw_aff(frame.pw_aff(x))
    return one.insert_dims(DT.out, 1, rank - axis - 1).insert_dims(DT.out, 0, axis)
