"""Sums of one equation that share their loops: those over the same ranges that read an element in common, so that what several read is
loaded once.

    y[i] = (sum(j) x[i, j] * w[j]) / (sum(k) x[i, k])   →   order y.0.acc.init, y.0.acc1.init, y.0.acc, y.0.acc1
                                                            together y.j, y.k -> j
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.policy.deriver import Deriver, reads_itself
from tensorlang.schedule.plan import full
from tensorlang.tensor.facts import Place, reductions
from tensorlang.tensor.nodes import Binary, Definition, Expr, Read, Reduce
from tensorlang.tensor.walk import components, reads, reduces, substitute


def shared_sums(d: Deriver, definition: Definition) -> list[list[Reduce]]:
    """Return the sums of a definition that share their loops: those over the same ranges, each of which reads an element that one before it
    reads. Nothing outside says how they run, and no data say which terms they have."""
    name, found = definition.tensors[0].name, list[list[Reduce]]()
    if len(definition.pieces) != 1 or any(loop.startswith(f"{name}.") for loop in d.at_once):
        return []
    for reduce in reductions(definition.pieces[0].value, Place()):
        if reduce.filter is None and reduce.binders:
            read = _reads_of_terms(reduce, reduce)
            into = next((c for c in found if _ranges_alike(c[0], reduce) and any(read & _reads_of_terms(r, reduce) for r in c)), None)
            if into is None:
                found.append([reduce])
            else:
                into.append(reduce)
    found = [c for c in found if len(c) > 1]
    recurs = found and (reads_itself(definition) or any(len(g) > 1 and definition in g for g in components(d.program)))
    return [] if recurs else found


def as_one(definitions: Sequence[Definition]) -> Definition:
    """Return the sums of several definitions of one box, over the same ranges, as one equation of the first of them."""
    first, *_ = definitions
    ranges = next(r for p in first.pieces for r in reduces(p.value))
    value: Expr | None = None
    for definition in definitions:
        to = {a: AffineName(b) for a, b in zip(definition.axes, first.axes, strict=True)}
        for r in (r for p in definition.pieces for r in reduces(p.value)):
            names = {**to, **as_in(r, ranges)}
            body, asked = tuple(substitute(b, names) for b in r.body), r.filter
            e = replace(r, binders=ranges.binders, body=body, filter=None if asked is None else substitute(asked, names))
            value = e if value is None else Binary("+", value, e)
    assert value is not None
    return replace(first, pieces=(replace(first.pieces[0], value=value),))


def as_in(reduce: Reduce, other: Reduce) -> dict[str, Affine]:
    """Return the binders of one sum as those of another."""
    return {b.name: AffineName(o.name) for b, o in zip(reduce.binders, other.binders, strict=False)}


def _ranges_alike(first: Reduce, second: Reduce) -> bool:
    to = as_in(second, first)
    ranges = [(affine.substitute(b.lo, to), affine.substitute(b.hi, to)) for b in second.binders]
    return ranges == [(b.lo, b.hi) for b in first.binders] and affine.substitute_cond(second.where, to) == first.where


def _reads_of_terms(reduce: Reduce, other: Reduce) -> set[Read]:
    """Return what terms of a sum read, with the binders of another, of as many, in the place of its own."""
    return {r for b in reduce.body for r in reads(substitute(b, as_in(reduce, other)))}


def names_of_shared(classes: Sequence[Sequence[Reduce]]) -> dict[str, str]:
    """Return the loops of sums that share those of another, by their own names."""
    return {b.name: o.name for first, *others in classes for r in others for b, o in zip(r.binders, first.binders, strict=True)}


def add_shared_sums(d: Deriver, definition: Definition) -> dict[str, str]:
    """Let sums share their loops; return what loops are called that are gone, by their own names."""
    name, classes = definition.tensors[0].name, shared_sums(d, definition)
    numbers = {e: k for k, e in enumerate(reductions(definition.pieces[0].value, Place()))} if classes else {}
    for alike in classes:
        updates = [f"{name}.0.acc{numbers[e] or ''}" for e in alike]
        d.add(d.schedule.order(*(f"{update}.init" for update in updates), *updates))
        for binders in zip(*(r.binders for r in alike), strict=True):
            loops = list(dict.fromkeys(full(name, b.name) for b in binders))
            d.add(d.schedule.together(*loops, into=(binders[0].name,)) if len(loops) > 1 else d.schedule)
    return names_of_shared(classes)
