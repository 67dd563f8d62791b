"""Windows written out as rows of a matrix: the rewriting behind `unfold`.

    before   y[n, h, w, f] = sum(r, s, c) (if … then x[n, h + r - 1, w + s - 1, c] else 0) * k[f, r, s, c]
    after    x.rows[i, q]  = if … then x[i // (H*W), i // W % H + q // (S*C) - 1, i % W + q // C % S - 1, q % C] else 0
             k.rows[i, q]  = k[i, q // (S*C), q // C % S, q % C]
             y[n, h, w, f] = sum(q) x.rows[(n*H + h)*W + w, q] * k.rows[f, q]

Rows are numbered along the axes of the result that the other factors do not have, axes that they have stay axes; q counts the terms of the
sum in the order that is asked for. Nothing says that the matrices are ever stored: they are for copies to be made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from codegen.dtypes import compute_dtype
from polyhedral import affine
from polyhedral.expr import TRUE, Cond
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.facts import Place, visits
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Binder, Const, Definition, Dynamic, Expr, Holds, Piece, Program, Read, Reduce, Select, Tensor
from tensorlang.tensor.walk import fresh_for, index_names, nodes, reads, reduces, replaced, substitute, tensor_table

Extents = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Unfolded:
    """A program whose tensor `sums` adds up products of `rows`; its axes are in `groups`, as rows are numbered."""

    program: Program
    rows: tuple[str, ...]
    sums: str
    groups: tuple[tuple[str, ...], ...]


def unfold(program: Program, tensors: Sequence[str], binders: Sequence[str], binder: str) -> Unfolded | str:
    """Return the program with the factors of a sum over `binders` written out as rows, so that it is one over `binder`, or the reason why
    that is not possible."""
    found = [(d, p, r) for d in program.definitions for p in d.pieces for r in reduces(p.value) if {b.name for b in r.binders} & {*binders}]
    if len(found) != 1:
        return f"there is no sum over {_listed(binders)}" if not found else f"several sums are over {_listed(binders)}"
    definition, _, reduce = found[0]
    if {b.name for b in reduce.binders} != {*binders} or len(reduce.binders) != len(binders):
        return f"the sum is over {_listed([b.name for b in reduce.binders])}, not over {_listed(binders)}"
    if reduce.where != TRUE or reduce.filter is not None:
        return "terms of the sum are left out"
    if program.mode == "strict" and tuple(b.name for b in reduce.binders) != tuple(binders):
        return "the operator is `strict`: its sums keep their order"
    sizes = _extents(definition, reduce)
    if sizes is None:
        return "not all extents are constant, from zero"
    factors = [_factor(reduce, tensor) for tensor in tensors]
    unknown = next((tensor for tensor, factor in zip(tensors, factors, strict=True) if factor is None), None)
    if unknown is not None:
        return f"`{unknown}` is not read once in the sum, at an index that is known at compile time"
    fresh = fresh_for(program)
    if fresh(binder) != binder:
        return f"`{binder}` is a name already"
    made: list[Definition] = []
    numbered: list[tuple[str, ...]] = []
    total = prod(sizes[name] for name in binders)
    row, body = fresh("row"), reduce.body
    for tensor, factor in zip(tensors, factors, strict=True):
        assert factor is not None
        others = {n for f in factors if f is not None and f is not factor for n in index_names(f)}
        shared = tuple(a for a in definition.axes if a in index_names(factor) and a in others)
        rows = tuple(a for a in definition.axes if a in index_names(factor) and a not in others)
        source = tensor_table(program)[tensor]
        numbered.append(rows)
        name = fresh(f"{tensor}.rows")
        digits = _digits(rows, sizes, AffineName(row)) | _digits(binders, sizes, AffineName(binder))
        shape = tuple(affine.to_expr(e) for e in (*(sizes[a] for a in shared), prod(sizes[a] for a in rows), total))
        written = Tensor(name, source.dtype, shape, span=source.span)
        asked = _asked_for(definition, factor, {*shared, *rows, *binders, *program.sizes})
        zero = Const(source.dtype.zero, compute_dtype(source.dtype))
        whole = factor if asked == TRUE else Select(Holds(asked), factor, zero, span=source.span)
        value = Piece(substitute(whole, digits), span=source.span)
        made.append(Definition((written,), (*shared, row, binder), (value,), span=source.span))
        read = Read(name, (*(AffineName(a) for a in shared), _number(rows, sizes), AffineName(binder)), span=reduce.span)
        body = tuple(replaced(e, factor, read) for e in body)
    summed = replace(reduce, binders=(Binder(binder, affine.ZERO, affine.to_expr(total)),), body=body)
    if set(binders) & {n for e in body for n in index_names(e)}:
        return f"the sum uses {_listed(binders)} outside of {_listed(tensors)}"
    pieces = tuple(replace(p, value=replaced(p.value, reduce, summed)) for p in definition.pieces)
    at = program.definitions.index(definition)
    definitions = (*program.definitions[:at], *made, replace(definition, pieces=pieces), *program.definitions[at + 1 :])
    names = tuple(d.tensors[0].name for d in made)
    return Unfolded(redefined(program, definitions), names, definition.tensors[0].name, _groups(definition.axes, numbered))


def _groups(axes: tuple[str, ...], numbered: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Return all axes, those that are numbered together as one group where the first of them is."""
    of = {axis: group for group in numbered for axis in group}
    return tuple(of.get(axis, (axis,)) for axis in axes if of.get(axis, (axis,))[0] == axis)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{n}`" for n in names)


def _extents(definition: Definition, reduce: Reduce) -> dict[str, int] | None:
    """Return the extents of axes and binders, if all are constants and start at zero."""
    if any(affine.constant(b.lo) != 0 for b in reduce.binders):
        return None
    pairs = [*zip(definition.axes, definition.tensors[0].shape, strict=True), *((b.name, b.hi) for b in reduce.binders)]
    out = {name: extent for name, e in pairs if (extent := affine.constant(e)) is not None}
    return out if len(out) == len(pairs) else None


def _factor(reduce: Reduce, tensor: str) -> Expr | None:
    """Return the one read of a tensor in a sum, with the padding around it."""
    found = [e for body in reduce.body for e in nodes(body) if isinstance(e, Read) and e.tensor == tensor]
    if len(found) != 1 or any(isinstance(slot, Dynamic) for slot in found[0].index):
        return None
    padded = [
        e
        for body in reduce.body
        for e in nodes(body)
        if isinstance(e, Select) and isinstance(e.cond, Holds) and e.then == found[0] and not any(True for _ in reads(e.orelse))
    ]
    return padded[0] if padded else found[0]


def _asked_for(definition: Definition, factor: Expr, names: set[str]) -> Cond:
    """Return what the conditions around `factor` say of `names`, wherever it stands."""
    places = [place for p in definition.pieces for e, place in visits(p.value, Place(p.guard)) if e == factor]
    said = [affine.conj(*(c for c in affine.conjuncts(p.context) if c not in affine.conjuncts(p.ranges))) for p in places]
    return affine.conj(*(c for c in affine.conjuncts(affine.disj(*said)) if set(affine.names(c)) <= names))


def _digits(names: Sequence[str], sizes: Extents, number: Affine) -> dict[str, Affine]:
    """Return what each name is of the number that counts all their values, the last fastest."""
    out: dict[str, Affine] = {}
    step = 1
    for name in reversed(names):
        above = affine.floor(number, step)
        # Of no values there are no digits; a divisor there has to be all the same.
        extent = max(sizes[name], 1)
        out[name] = above if name == names[0] else affine.mod(above, extent)
        step *= extent
    return out


def _number(names: Sequence[str], sizes: Extents) -> Affine:
    out: Affine = affine.ZERO
    for name in names:
        out = affine.add(affine.scale(sizes[name], out), name)
    return out
