"""Merge neighbouring axes that every access walks together.

    before   y[n, c, h, w] = max(x[n, c, h, w] + b[c], 0)              after   y[n, c, h_w] = max(x[n, c, h_w] + b[c], 0)

Two neighbouring dimensions of a tensor merge when every read of them is by two names that occur nowhere else and walk them whole. In
row-major order the merged dimension is the same memory, so only loops change: one long loop in place of two short ones.

    before   y[n, j, k] = x[n, j - 2, k]   for k in 0..1               after   y[n, j] = x[n, j - 2]

A last dimension of one element goes, however the one before it is read, whose elements lie side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from polyhedral import affine
from polyhedral.expr import FALSE
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Binder, Definition, Dynamic, Expr, Holds, IndexValue, Program, Read, Reduce, Tensor
from tensorlang.tensor.unit_binders import drop_unit_binders
from tensorlang.tensor.walk import (
    children,
    components,
    fresh_for,
    index_names,
    is_recurrence,
    map_children,
    reads,
    reduces,
    substitute,
    tensor_table,
)

Product = Callable[[Affine, Affine], Affine | None]
"""Returns the product of two extents, None where there is no expression for it."""
Dims = tuple[str, int]
"""A tensor and the first of two neighbouring dimensions."""
Vars = tuple[int, str, str]
"""Number of a definition and two neighbouring axes or binders of it."""


def flatten(program: Program) -> Program:
    """Return `program` with such axes merged until none are left."""
    while True:
        merged = drop_last(program) or merge_once(program)
        if merged is None:
            return program
        program, _ = merged


def drop_last(program: Program, keep: frozenset[Dims] = frozenset()) -> tuple[Program, Mapping[str, int]] | None:
    """Return `program` without the last dimensions of tensors that have one element there, and these tensors with the dimension before it;
    None where there are none, and of programs with recurrences. What is in `keep` stays as it is, and what is read at indices of data.
    Reductions that read an axis in such a dimension alone, and need it no more, are lifted."""
    if any(map(is_recurrence, components(program))):
        return None
    single = (t for t in tensor_table(program).values() if len(t.shape) > 1 and affine.constant(t.shape[-1]) == 1)
    last = {t.name: len(t.shape) - 2 for t in single if (t.name, len(t.shape) - 2) not in keep}
    every = (read for d in program.definitions for p in d.pieces for read in reads(p.value))
    stay = {read.tensor for read in every if any(isinstance(slot, Dynamic) for slot in read.index[-1:])}
    for d in program.definitions:
        names = {t.name for t in d.tensors}
        if not names <= last.keys() - stay:
            stay |= names
    last = {name: k for name, k in last.items() if name not in stay}
    if not last:
        return None
    definitions = [_without_last(definition, last) for definition in program.definitions]
    params = tuple(_shortened(t, last) for t in program.params)
    return lift(drop_unit_binders(redefined(replace(program, params=params), definitions))), last


def _without_last(definition: Definition, last: Mapping[str, int]) -> Definition:
    pieces = [replace(p, value=_read_short(p.value, last)) for p in definition.pieces]
    if definition.tensors[0].name not in last:
        return replace(definition, pieces=tuple(pieces))
    at: dict[str, Affine] = {definition.axes[-1]: affine.ZERO}
    pieces = [replace(p, value=substitute(p.value, at), guard=affine.substitute_cond(p.guard, at)) for p in pieces]
    tensors = tuple(_shortened(t, last) for t in definition.tensors)
    return replace(definition, tensors=tensors, axes=definition.axes[:-1], pieces=tuple(p for p in pieces if p.guard != FALSE))


def _shortened(tensor: Tensor, last: Mapping[str, int]) -> Tensor:
    return replace(tensor, shape=tensor.shape[:-1], grouping=()) if tensor.name in last else tensor


def _read_short(e: Expr, last: Mapping[str, int]) -> Expr:
    e = map_children(lambda child: _read_short(child, last), e)
    return replace(e, index=e.index[:-1]) if isinstance(e, Read) and e.tensor in last else e


def _pairs(definition: Definition) -> Iterator[tuple[str, str, Affine, Affine]]:
    """Yield neighbouring axes and neighbouring binders with their extents."""
    shape = definition.tensors[0].shape
    for k in range(len(shape) - 1):
        yield definition.axes[k], definition.axes[k + 1], shape[k], shape[k + 1]
    for piece in definition.pieces:
        for reduce in reduces(piece.value):
            for a, b in zip(reduce.binders, reduce.binders[1:], strict=False):
                if affine.constant(a.lo) == 0 and affine.constant(b.lo) == 0:
                    yield a.name, b.name, a.hi, b.hi


def merge_once(
    program: Program, keep: frozenset[Dims] = frozenset(), product: Product = affine.mul
) -> tuple[Program, Mapping[str, int]] | None:
    """Return `program` with one pair of axes merged wherever they occur, and the tensors that have a dimension less with the first of the
    two that it was; None when no axes merge. Dimensions in `keep` stay as they are, and those of which there is no `product`."""
    table = tensor_table(program)
    dims: set[Dims] = {(t.name, k) for t in table.values() for k in range(len(t.shape) - 1)} - keep
    dims = {d for d in dims if product(*table[d[0]].shape[d[1] : d[1] + 2]) is not None}
    variables: dict[Vars, tuple[Affine, Affine]] = {
        (n, u, v): (a, b) for n, definition in enumerate(program.definitions) for u, v, a, b in _pairs(definition)
    }
    joins: set[tuple[Dims, Vars]] = set()
    live = set(variables)
    for n, definition in enumerate(program.definitions):
        for tensor in definition.tensors:
            for k in range(len(definition.axes) - 1):
                joins.add(((tensor.name, k), (n, definition.axes[k], definition.axes[k + 1])))
        counted: dict[str, int] = {}
        for piece in definition.pieces:
            for name in affine.names(piece.guard):
                counted[name] = -1_000_000
            _count(piece.value, counted)
        together: dict[Vars, int] = {}
        for piece in definition.pieces:
            for read in reads(piece.value):
                for k, (a, b) in enumerate(zip(read.index, read.index[1:], strict=False)):
                    pair = (n, a.name, b.name) if isinstance(a, AffineName) and isinstance(b, AffineName) else None
                    if pair is not None and pair in variables and variables[pair] == tuple(table[read.tensor].shape[k : k + 2]):
                        joins.add(((read.tensor, k), pair))
                        together[pair] = together.get(pair, 0) + 1
                    else:
                        dims.discard((read.tensor, k))
        alone = {v for v in live if v[0] == n and any(counted.get(name, 0) != together.get(v, 0) for name in v[1:])}
        live -= alone
    return _apply(program, table, _stable(dims, live, joins), product)


def _count(e: Expr, counted: dict[str, int]) -> None:
    """Count, per name, the places where it is used: slots of reads, index values, conditions, bounds."""
    match e:
        case Read(_, index):
            for slot in index:
                if isinstance(slot, Dynamic):
                    _count(slot.value, counted)
                else:
                    for name in affine.names(slot):
                        counted[name] = counted.get(name, 0) + 1
            return
        case Reduce():
            for binder in e.binders:
                for name in (*affine.names(binder.lo), *affine.names(binder.hi)):
                    counted[name] = counted.get(name, 0) + 1
            for name in affine.names(e.where):
                counted[name] = counted.get(name, 0) + 1
        case IndexValue() | Holds():
            for name in index_names(e):
                counted[name] = counted.get(name, 0) + 1
    for child in children(e):
        _count(child, counted)


def _stable(dims: set[Dims], live: set[Vars], joins: set[tuple[Dims, Vars]]) -> set[tuple[Dims, Vars]]:
    """Return the joins whose both sides can merge: the greatest set in which no side is joined to one that cannot."""
    while True:
        bad = {(d, v) for d, v in joins if d not in dims or v not in live}
        gone_dims = {d for d, _ in bad} & dims
        gone_vars = {v for _, v in bad} & live
        if not gone_dims and not gone_vars:
            return {(d, v) for d, v in joins if d in dims and v in live}
        dims = dims - gone_dims
        live = live - gone_vars


def _apply(
    program: Program, table: dict[str, Tensor], good: set[tuple[Dims, Vars]], product: Product
) -> tuple[Program, Mapping[str, int]] | None:
    if not good:
        return None
    seed = min(good)
    dims, variables = {seed[0]}, {seed[1]}
    grown = True
    while grown:
        grown = False
        for d, v in good:
            if (d in dims) != (v in variables):
                dims.add(d)
                variables.add(v)
                grown = True
    by_tensor = dict(sorted(dims))
    if len(by_tensor) != len(dims):
        return None
    fresh = fresh_for(program)
    names = {(n, u, v): fresh(f"{u}_{v}") for n, u, v in sorted(variables)}

    def shaped(tensor: Tensor) -> Tensor:
        k = by_tensor.get(tensor.name)
        if k is None:
            return tensor
        merged = product(tensor.shape[k], tensor.shape[k + 1])
        assert merged is not None
        return replace(tensor, shape=(*tensor.shape[:k], merged, *tensor.shape[k + 2 :]), grouping=())

    definitions = []
    for n, definition in enumerate(program.definitions):
        mine = {(u, v): name for (m, u, v), name in names.items() if m == n}
        axes = _joined(definition.axes, mine)
        pieces = tuple(replace(p, value=_rewrite(p.value, by_tensor, mine, product)) for p in definition.pieces)
        definitions.append(replace(definition, tensors=tuple(map(shaped, definition.tensors)), axes=axes, pieces=pieces))
    return redefined(replace(program, params=tuple(map(shaped, program.params))), definitions), by_tensor


def _joined(names: tuple[str, ...], merged: dict[tuple[str, str], str]) -> tuple[str, ...]:
    for k in range(len(names) - 1):
        if (names[k], names[k + 1]) in merged:
            return (*names[:k], merged[names[k], names[k + 1]], *names[k + 2 :])
    return names


def _rewrite(e: Expr, dims: dict[str, int], merged: dict[tuple[str, str], str], product: Product) -> Expr:
    e = map_children(lambda child: _rewrite(child, dims, merged, product), e)
    match e:
        case Read(tensor, index) if tensor in dims:
            k = dims[tensor]
            a, b = index[k], index[k + 1]
            assert isinstance(a, AffineName) and isinstance(b, AffineName)
            return replace(e, index=(*index[:k], AffineName(merged[a.name, b.name]), *index[k + 2 :]))
        case Reduce():
            binders = list(e.binders)
            for k in range(len(binders) - 1):
                name = merged.get((binders[k].name, binders[k + 1].name))
                if name is not None:
                    extent = product(binders[k].hi, binders[k + 1].hi)
                    assert extent is not None
                    binders[k : k + 2] = [Binder(name, affine.ZERO, extent)]
                    break
            return replace(e, binders=tuple(binders))
        case _:
            return e
