"""Operators that no call can reach, and clauses that apply nowhere: what a signature and its conditions leave over.

An operator is called with shapes. A dimension of several sizes, `x: T[(G, C)]`, is one number of a shape: all but one of its sizes have to
be known from elsewhere. Conditions that contradict one another leave no shape at all."""

from __future__ import annotations

from collections.abc import Iterator

from polyhedral import affine
from polyhedral.expr import FALSE, TRUE, Cond
from polyhedral.verdict import Proven
from tensorlang.check.binder import dims_of
from tensorlang.check.lint import warning
from tensorlang.check.packs import dimension_names, linear_names
from tensorlang.check.problems import error, labelled
from tensorlang.check.walk import descendants
from tensorlang.diagnostics import Diagnostic
from tensorlang.syntax import nodes as sx
from tensorlang.tensor.facts import box
from tensorlang.tensor.nodes import Program


def unbound_sizes(operator: sx.Operator) -> Iterator[Diagnostic]:
    """Yield T0158 for each dimension of several sizes of which more than one is told nowhere else."""
    dims = [(p, d.value if isinstance(d, sx.Broadcast) else d) for p in operator.params for d in dims_of(p)]
    sizes = {name for name, pack in dimension_names(operator) if not pack}
    known = {p.name for p in operator.params if p.kind != "tensor"}
    known |= {n.name for _, dim in dims if not isinstance(dim, _PRODUCTS) for n in descendants(dim) if isinstance(n, sx.Id | sx.Each)}
    mixed = [(param, dim, told) for param, dim in dims if isinstance(dim, _PRODUCTS) for told in (_told(dim) & sizes,)]
    while told := {name for _, _, names in mixed if len(names - known) == 1 for name in names} - known:
        known |= told
    for param, dim, names in mixed:
        unknown = [n for n in dict.fromkeys(i.name for i in descendants(dim) if isinstance(i, sx.Id)) if n in names - known]
        if len(unknown) > 1 and param.default is None:
            listed = " and ".join(f"`{n}`" for n in unknown)
            same = next((c for w in operator.where for c in _equal_to(w, unknown)), None)
            help = f"use the attribute itself: write `{same[1]}` for `{same[0]}`" if same else f"declare one of them: `size {unknown[0]}`"
            what = "product" if isinstance(dim, sx.TupleOf) else "sum" if isinstance(dim, sx.Binary) and dim.op != "*" else "product"
            labels = [(dim.span, f"a shape says their {what} alone")]
            yield labelled("T0158", f"no call of `{operator.name}` can tell {listed}", labels, help=help).diagnostics[0]


_PRODUCTS = (sx.TupleOf, sx.Binary, sx.Unary)
"""What may have several sizes in one dimension."""


def _told(dim: sx.Node) -> set[str]:
    """Return the sizes that a dimension may tell."""
    items = dim.items if isinstance(dim, sx.TupleOf) else (dim,)
    return {name for item in items for name in linear_names(item)}


def _equal_to(cond: sx.Node, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (size, attribute) where a condition says that one is the other."""
    match cond:
        case sx.Compare((sx.Id(a), sx.Id(b)), ("==",)) if (a in names) != (b in names):
            yield (a, b) if a in names else (b, a)
        case _:
            return


def check_satisfiable(operator: sx.Operator, program: Program) -> None:
    """Raise T0158 where no sizes meet the conditions of an operator."""
    if not operator.where or program.context == TRUE:
        return
    from polyhedral.sets import implies

    if isinstance(implies(program.sizes, (), _context(program), FALSE), Proven):
        conditions = operator.where[0].span.to(operator.where[-1].span)
        title = f"no call of `{operator.name}` meets its conditions"
        raise error("T0158", title, conditions, "no sizes are like this", help="change one of them")


def _context(program: Program) -> Cond:
    return affine.conj(program.context, *(affine.compare(">=", size, 0) for size in program.sizes))


def unreachable_clauses(operator: sx.Operator, program: Program) -> Iterator[Diagnostic]:
    """Yield W0106 for each clause whose condition holds of no index, whatever the sizes. `program` is of sizes that are all symbols;
    conditions on attributes and packs, which have values there, are left alone."""
    clauses = {(c.span.start, c.span.end): c for c in operator.clauses if c.conds or c.otherwise}
    free = {p.name for p in operator.params if p.kind == "attr"}
    shaped = [
        *operator.where,
        *(d for p in (*operator.params, *operator.results) if isinstance(p.type, sx.TensorType) for d in p.type.dims or ()),
    ]
    if free & {n.name for node in shaped for n in descendants(node) if isinstance(n, sx.Id)}:
        return  # sizes follow from the values that attributes have here
    if {name for name, pack in dimension_names(operator) if not pack} - {*program.sizes}:
        return  # a size had to be a number
    for definition in program.definitions:
        for piece in definition.pieces:
            clause = clauses.get((piece.span.start, piece.span.end))
            if clause is None or piece.guard == TRUE or piece.span.source is not operator.span.source:
                continue
            decides: list[sx.Node] = list(clause.conds)
            names = {t.name for t in clause.targets}
            if clause.otherwise:  # what is left over by all other clauses of the tensor
                beside = [c for c in operator.clauses if names & {t.name for t in c.targets}]
                decides = [n for c in beside for n in (*c.targets, *c.conds)]
            inner = [n for node in decides for n in descendants(node)]
            mentioned = {n.name for n in inner if isinstance(n, sx.Id | sx.Index | sx.Apply)}
            if mentioned & free or any(isinstance(n, sx.Pack | sx.Each) for n in inner):
                continue
            from polyhedral.sets import implies

            given = affine.conj(_context(program), box(definition))
            if isinstance(implies(program.sizes, definition.axes, given, affine.negate(piece.guard)), Proven):
                if clause.otherwise:
                    slots = [s for c in operator.clauses for t in c.targets if t.name in names for s in t.slots or ()]
                    index = next((s.name for s in slots if isinstance(s, sx.Id)), None)
                    shown = f", or say behind the others where they apply: `for {index} >= 1`" if index is not None else ""
                    at, help = clause.span, f"delete the clause{shown}"
                    yield warning("W0106", "this clause never applies", at, "the clauses before it define every element", help=help)
                    continue
                last = clause.conds[0].span.to(clause.conds[-1].span)
                help = "delete the clause, or change its condition"
                yield warning("W0106", "this clause never applies", last, "holds of no index, whatever the sizes", help=help)
