"""Sum only over the taps of a filter that some element of the result meets.

    before   y[f, p] = sum(c, r in 0..3) (if 0 <= p + 36*r - 36 < 33 then x[c, p + 36*r - 36] else 0) * w[f, c, r]
    after    y[f, p] = sum(c) x[c, p] * v[f, c, 0]            v = w[:, :, 1:2], constant

A filter that is dilated further than its input is large meets nothing but padding with its outer taps. What they add is zero as long as
their weights are finite numbers, which constants say; a sum that starts from zero does not change by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from codegen.dtypes import bf16, f64, largest
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name
from tensorlang.graph.edit import Additions
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.tensor.contraction import Contraction, Factor, contractions
from tensorlang.tensor.facts import facts
from tensorlang.tensor.nodes import Definition, Dynamic, Program, Read, Reduce, Tensor
from tensorlang.tensor.simplify import simplify
from tensorlang.tensor.unit_binders import drop_unit_binders
from tensorlang.tensor.walk import map_values, reads, replaced, substitute

Range: TypeAlias = tuple[int, int]
"""The first value and the end."""


def drop_zero_terms(graph: Graph) -> Graph:
    """Return the graph with such sums over the other taps alone, and with what is left of their weights."""
    new = Additions(graph)
    return new.rebuilt([_rewritten(new, node) if isinstance(node, Kernel) else node for node in graph.nodes])


def _rewritten(new: Additions, node: Kernel) -> Kernel:
    program = node.program
    for definition, found, x, w in padded_sums(program):
        position = next((k for k, p in enumerate(program.params) if p.name == w.read.tensor), None)
        if position is None or _reads(program, w.read.tensor) != 1:
            continue
        name, param = node.inputs[position], program.params[position]
        met = _met(definition, found.reduce, x, w.read, param)
        if not met or not has_finite_weights(new.graph, node, w):
            continue
        weights = new.graph.constants[name]
        cut, taken = _cut(program, found.reduce, w.read, param, met)
        kept = weights[tuple(slice(*taken.get(k, (0, n))) for k, n in enumerate(weights.shape))]
        made = new.add(replace(new[name], shape=kept.shape), np.ascontiguousarray(kept))
        return replace(node, program=cut, inputs=(*node.inputs[:position], made, *node.inputs[position + 1 :]))
    return node


def padded_sums(program: Program) -> Iterator[tuple[Definition, Contraction, Factor, Factor]]:
    """Yield the sums of products of elements that are zero outside of a condition, `x`, and others, `w`."""
    for definition, found in contractions(program):
        reduce = found.reduce
        if reduce.init is not None or reduce.filter is not None or reduce.reducer.identity is None:
            continue
        for x, w in (found.factors, found.factors[::-1]):
            if x.select is not None and x.is_padded_with_zeros and x.zero is None and w.select is None and not w.is_indexed_by_data:
                yield definition, found, x, w


def has_finite_weights(graph: Graph, node: Kernel, w: Factor) -> bool:
    """Tell whether a factor is a constant of the graph whose elements are numbers where they are multiplied: none is infinite, or too large
    for a type that it is cast or rounded to."""
    weights = graph.constants.get(node.bound.get(w.read.tensor, ""))
    types = [t for t in (f64, *w.casts, *((bf16,) if w.rounding else ())) if t.is_float]  # bf16 has the least range of all roundings
    return weights is not None and bool((np.abs(weights.astype(np.float64)) <= min(map(largest, types))).all())


def _reads(program: Program, tensor: str) -> int:
    return sum(r.tensor == tensor for d in program.definitions for p in d.pieces for r in reads(p.value))


def _met(definition: Definition, reduce: Reduce, x: Factor, w: Read, param: Tensor) -> dict[str, Range]:
    """Return the binders of which the condition of `x` holds for some values at no element, and which are an index of `w` by themselves,
    with the range of the others: rather too long than too short. Nothing where no term is left."""
    assert x.mask is not None
    sizes = zip(definition.axes, definition.tensors[0].shape, strict=True)
    last = {name: n - 1 for name, e in sizes if (n := affine.constant(e)) is not None}
    binders = {b.name: b.extent for b in reduce.binders if b.lo == affine.ZERO and b.extent is not None}
    last |= {name: n - 1 for name, n in binders.items()}
    met = {name: (0, n) for name, n in binders.items() if n > 1 and _is_index(name, w, param)}
    for cond in affine.conjuncts(facts(x.mask)):
        for e in affine.inequalities(cond):
            names, constant = affine.affine_form(e) or ({}, 0)
            if not names.keys() <= last.keys():
                continue
            for name in met.keys() & names.keys():
                factor, (first, end) = names[name], met[name]
                most = constant + sum(c * last[n] for n, c in names.items() if n != name and c > 0)  # holds where factor * name + most >= 0
                met[name] = (max(first, -(most // factor)), end) if factor > 0 else (first, min(end, most // -factor + 1))
    narrower = {name: (first, end) for name, (first, end) in met.items() if end - first < binders[name]}
    return narrower if all(first < end for first, end in narrower.values()) else {}


def _is_index(binder: str, w: Read, param: Tensor) -> bool:
    """Tell whether a binder is one index of `w` by itself, along a dimension of its own, and is in no other."""
    [*places] = (k for k, slot in enumerate(w.index) if not isinstance(slot, Dynamic) and binder in affine.names(slot))
    return [w.index[k] for k in places] == [Name(binder)] and len(param.groups[param.dimension_of(places[0])]) == 1


def _cut(program: Program, reduce: Reduce, w: Read, param: Tensor, met: Mapping[str, Range]) -> tuple[Program, dict[int, Range]]:
    """Return the program with the sum over these ranges alone, and for dimensions of `w`, by position, what is left of them."""
    shift: dict[str, Affine] = {name: affine.add(name, first) for name, (first, _) in met.items()}
    left = {name: affine.to_expr(end - first) for name, (first, end) in met.items()}
    kept = replace(
        reduce,
        binders=tuple(replace(b, hi=left.get(b.name, b.hi)) for b in reduce.binders),
        body=tuple(replaced(substitute(e, shift), substitute(w, shift), w) for e in reduce.body),
        where=affine.substitute_cond(reduce.where, shift),
    )
    places = {w.index.index(Name(name)): name for name in met}
    shape = tuple(left[places[k]] if k in places else n for k, n in enumerate(param.shape))
    params = tuple(replace(p, shape=shape) if p is param else p for p in program.params)
    cut = map_values(replace(program, params=params), lambda e: replaced(e, reduce, kept))
    return simplify(drop_unit_binders(cut)), {param.dimension_of(k): met[name] for k, name in places.items()}
