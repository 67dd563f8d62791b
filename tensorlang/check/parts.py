"""Tensors of different ranks that one equation defines together.

    m[i], l[i], a[i, e] = online(j) (s[i, j], 1, v[j, e])

m and l are the first two components alone, for each i; a is the third for each (i, e), of the same reduction. So the components that make a
tensor of lower rank read none of those of higher rank (rule R7), and what goes into them has none of the indices that its tensor lacks.
"""

from __future__ import annotations

from dataclasses import replace

from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check.equations import Body, Equation, axis_sizes
from tensorlang.check.problems import error
from tensorlang.check.reducers import needed, restricted
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.walk import index_names as indices_of
from tensorlang.tensor.walk import map_children, nodes


def parts(body: Body, first: Equation) -> list[tuple[str, ...]]:
    """Return the tensors of an equation by what stands on their left, those of lower rank first."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for target, name in zip(first.clause.targets, first.tensors, strict=True):
        groups.setdefault(target.slots or (), []).append(name)
    found = sorted(groups.values(), key=lambda group: len(axis_sizes(body.ctx.tensors[group[0]])))
    ranks = [len(axis_sizes(body.ctx.tensors[group[0]])) for group in found]
    return [tuple(group) for group in found] if len(set(ranks)) == len(ranks) else [first.tensors]


def projected(e: ir.Expr, unknown: frozenset[str], guard: px.Cond, equation: Equation, group: tuple[str, ...]) -> ir.Expr:
    """Return the value of some components of an equation without what only those of higher rank need.

    Raises CompileError T0148 where there is no telling them apart: it, or its guard, has an index in `unknown`."""
    made = _projected(e)
    met = sorted(unknown & {*indices_of(made), *affine.names(guard)})
    if met:
        names, index = " and ".join(f"`{name}`" for name in group), met[0].lstrip("?")
        raise error(
            "T0148",
            f"{names} {'has' if len(group) == 1 else 'have'} no index `{index}`, but what defines {names} does",
            equation.span,
            "defined together with tensors of higher rank",
            help="a component of lower rank reads none of higher rank, and nothing at their indices",
        )
    return made


def _projected(e: ir.Expr) -> ir.Expr:
    asked: dict[ir.Reduce, set[int]] = {}
    for node in nodes(e):
        match node:
            case ir.Project(ir.Reduce() as reduce, position):
                asked.setdefault(reduce, set()).add(position)
            case _:
                pass
    kept = {reduce: needed(reduce.reducer, positions) for reduce, positions in asked.items()}

    def swap(inner: ir.Expr) -> ir.Expr:
        match inner:
            case ir.TupleOf((ir.Project(ir.Reduce() as reduce), *_) as items) if [*items] == [ir.Project(reduce, p) for p in kept[reduce]]:
                return map_children(swap, restricted(reduce, kept[reduce]))
            case ir.Project(ir.Reduce() as reduce, position):
                less = map_children(swap, restricted(reduce, kept[reduce]))
                return less if len(kept[reduce]) == 1 else replace(inner, value=less, position=kept[reduce].index(position))
            case _:
                return map_children(swap, inner)

    return swap(e)
