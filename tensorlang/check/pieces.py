"""From an equation to a piece: its indices over the axes of the tensor, its guard, and the type of what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from codegen.dtypes import DType, bool_, f32
from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check import bounds, typed
from tensorlang.check.equations import (
    Body,
    Equation,
    Opened,
    axis_sizes,
    coordinate_of,
    found_places,
    index_names,
    lengths_of,
    open_equation,
)
from tensorlang.check.problems import error
from tensorlang.check.ranges import Place, agreed, near_size
from tensorlang.check.reads import check_rank, show_dims
from tensorlang.check.reduction import unknown_length
from tensorlang.check.scalar import value
from tensorlang.check.scope import Scope, expand
from tensorlang.check.solve import Slot, Solution, solve
from tensorlang.check.suggest import equation_of_elements, written
from tensorlang.check.values import Dim, Idx, Packed, Tensor, Tup, Value
from tensorlang.syntax import nodes as sx
from tensorlang.tensor.walk import Fresh


def element_type_of(body: Body, name: str) -> DType | None:
    """Return the type of a local; None while it is being inferred, when whatever meets it decides."""
    if name in body.types:
        return body.types[name]
    if name in body.inferring:
        return None
    body.inferring.append(name)
    try:
        found = next((t for e in body.of(name) for t in (_type_of(body, e, name),) if t is not None), None)
    finally:
        body.inferring.pop()
    if found is not None:
        body.types[name] = found
    elif not body.inferring:
        if (proposed := _type_of_results(body)) is not None:
            body.types[name] = proposed  # what is made of it is told by the same cast
        raise error(
            "T0117",
            f"the element type of `{name}` cannot be told",
            body.of(name)[0].span,
            "only numbers are assigned",
            help=_typed_number(body, name),
        )
    return found


def _typed_number(body: Body, name: str) -> str:
    """Return the first equation of a local of numbers with its value cast, and that there are others of the same element."""
    first, *others = [e.clause for e in body.of(name)]
    target = next((t for t in first.targets if t.name == name), first.targets[0])
    text, left = written(first.value.span) if first.value.span.end else "", written(target.span) if target.span.end else name
    short = len(first.targets) == 1 and 0 < len(text) <= 40 and "\n" not in text
    cast = f"`{left} = {_suggested(body)}({text})`" if short else f"`{left} = {_suggested(body)}(…)`"
    if target.slots is None and any(not c.conds and not c.otherwise for c in others):
        times = "twice" if len(others) == 1 else f"{len(others) + 1} times"
        return f"cast the number: {cast}; and `{name}` is defined {times}: give what the other makes of it a name of its own"
    return f"cast one: {cast}"


def _suggested(body: Body) -> DType:
    """Return the type that a local of numbers most near should have: that of the results, where they agree."""
    return _type_of_results(body) or f32


def _type_of_results(body: Body) -> DType | None:
    found = {t.dtype for r in body.binding.results.values() for t in (r if isinstance(r, tuple) else (r,))}
    only = found.pop() if len(found) == 1 else None
    return None if only == bool_ else only


def _type_of(body: Body, equation: Equation, name: str) -> DType | None:
    names = body.ctx.names
    body.ctx.names = Fresh()
    try:
        tensor = body.ctx.tensors[name]
        axes = tuple(f"!{k}" for k in range(tensor.rank))
        solved = solve_equation(body, equation, name, axes)
        computed = value(body.ctx, solved.scope, equation.clause.value)
    finally:
        body.ctx.names = names
    items = computed.items if isinstance(computed, Tup) else (computed,)
    position = equation.tensors.index(name)
    return typed.dtype_of(items[position]) if position < len(items) else None


@dataclass(frozen=True, slots=True)
class Solved:
    scope: Scope
    guard: px.Cond


def solve_equation(body: Body, equation: Equation, name: str, axes: tuple[str, ...]) -> Solved:
    """Return the equation with its indices expressed over the axes of the tensor it defines."""
    opened = open_equation(body, equation)
    if opened is None:
        lengths = lengths_of(body, equation)
        pack = next(n for n, is_pack in index_names(equation).items() if is_pack and n not in lengths)
        raise unknown_length(pack, equation.clause.targets[0].span)
    tensor = body.ctx.tensors[name]
    slots = slots_of(body, equation, opened, tensor, axes)
    extents_of_axes = axis_sizes(tensor)
    box = {a: (affine.ZERO, extents_of_axes[k]) for k, a in enumerate(axes)}
    ranges = _index_ranges(body, equation, opened, tensor, slots, dict(zip(axes, extents_of_axes, strict=True)))
    starting = {n: hi for n, (lo, hi) in ranges.items() if lo == affine.ZERO}
    solution = solve(slots, frozenset(opened.names), starting)
    open_ = foreign(body, equation, name)
    _check_determined(equation, opened, solution, open_)
    guard = solution.guard
    for index, (lo, hi) in ranges.items():
        if index in open_:
            continue
        at = solution.indices[index]
        low, high = affine.substitute(lo, solution.indices), affine.substitute(hi, solution.indices)
        inside = bounds.in_box(affine.sub(at, low), affine.sub(high, low), box)
        guard = affine.conj(guard, _tidy(inside, at, low, high))
    scope = _rebound(opened.scope, solution)
    scope = scope.bounded({**box, **_axis_ranges(ranges, solution)})
    conds = px.TRUE
    for cond, within in opened.conds:
        inner = replace(_rebound(within, solution), ranges=scope.ranges)
        conds = affine.conj(conds, _tail_condition(body, inner, cond))
    return Solved(scope, affine.conj(guard, conds))


def _tidy(inside: px.Cond, at: px.Expr, low: px.Expr, high: px.Expr) -> px.Cond:
    """Return the halves of `low <= at < high` that `inside` (about at - low) still asks for, as people write them."""
    parts = inside.conds if isinstance(inside, px.And) else (inside,)
    shift = px.Int(affine.terms(at)[1])
    out: list[px.Cond] = []
    for part in parts:
        match part:
            case px.Compare(">=", _, _):
                out.append(affine.compare(">=", affine.sub(at, shift), affine.sub(low, shift)))
            case px.Compare("<", _, _):
                out.append(affine.compare("<", affine.sub(at, shift), affine.sub(high, shift)))
            case _:
                out.append(part)
    return affine.conj(*out)


def slots_of(body: Body, equation: Equation, opened: Opened, tensor: Tensor, axes: tuple[str, ...]) -> list[Slot]:
    target = equation.clause.targets[equation.tensors.index(tensor.name)]
    parts = list(expand(opened.scope, target.slots or ()))
    if target.slots is None and tensor.dims:
        raise equation_of_elements(
            equation.clause, target, tensor, show_dims(tensor), {**body.ctx.tensors, **equation.scope.values}, body.ctx.module.operators
        )
    check_rank(tensor, len(parts), target.span)
    out: list[Slot] = []
    for dim, (slot, at) in zip(tensor.dims, parts, strict=True):
        inner = list(expand(at, slot.items)) if isinstance(slot, sx.TupleOf) else [(slot, at)]
        if len(inner) != len(dim.sizes):
            if isinstance(slot, sx.TupleOf):
                raise error(
                    "T0133",
                    f"a tuple of {len(inner)} indices for a dimension of {len(dim.sizes)}",
                    slot.span,
                    "on the left",
                    help="use as many indices as the dimension was declared with",
                )
            out.append(_whole_composite(body, at, slot, dim, axes, len(out)))
            out += [Slot("", affine.ZERO, slot.span)] * (len(dim.sizes) - 1)
            continue
        for part, scope in inner:
            out.append(Slot(axes[len(out)], coordinate_of(body, scope, part), part.span, isinstance(part, sx.Id | sx.Index)))
    return [s for s in out if s.axis]


def _whole_composite(body: Body, scope: Scope, slot: sx.Node, dim: Dim, axes: tuple[str, ...], first: int) -> Slot:
    raise error(
        "T0133",
        "a composite dimension on the left is indexed by a tuple",
        slot.span,
        "one index for several sizes",
        help=f"write `({', '.join('ijkl'[: len(dim.sizes)])})`",
    )


def _index_ranges(
    body: Body, equation: Equation, opened: Opened, tensor: Tensor, slots: list[Slot], extents: Mapping[str, px.Expr]
) -> dict[str, tuple[px.Expr, px.Expr]]:
    """Return the range of every index: written, that of a declared dimension on the left, or agreed by all plain places on the right.
    In `otherwise` only written ones count."""
    if not equation.is_plain:
        return dict(opened.explicit)
    out = dict(opened.explicit)
    open_names = [n for n in opened.names if n not in out and n not in foreign(body, equation, tensor.name)]
    everything = frozenset(body.ctx.tensors)
    tiers = (everything - body.cyclic - {*equation.tensors}, everything - {*equation.tensors}, everything)
    found: list[list[Place]] = []
    for name in open_names:
        left = [Place(name, extents[s.axis], tensor.name, s.span, False) for s in slots if s.plain and s.at == px.Name(name)]
        right: list[Place] = []
        for tier, known in enumerate(() if left and tensor.declared else tiers):
            if tier == len(found):
                found.append(found_places(body, equation, opened, known))
            right = [p for p in found[tier] if p.index == name]
            if right:
                break
        own, bare_name = left if left and (tensor.declared or not right) else right, name.lstrip("?")
        near = None if own else near_size(body.ctx, equation.scope, [equation.clause.value], bare_name)
        out[name] = agreed(own, bare_name, equation.clause.targets[0].span, "index", near)
    return out


def foreign(body: Body, equation: Equation, name: str) -> frozenset[str]:
    """Return the indices of an equation, as placeholders, that only other tensors have that it defines together with `name`."""
    target = equation.clause.targets[equation.tensors.index(name)]
    own = index_names(replace(equation, clause=replace(equation.clause, targets=(target,), conds=())))
    together = index_names(replace(equation, clause=replace(equation.clause, conds=())))
    lengths = lengths_of(body, equation)
    out: list[str] = []
    for index, pack in together.items():
        if index not in own:
            out += [f"?{index}.{k}" for k in range(lengths.get(index, 0))] if pack else [f"?{index}"]
    return frozenset(out)


def _check_determined(equation: Equation, opened: Opened, solution: Solution, others: frozenset[str]) -> None:
    missing = next((n for n in opened.names if n not in solution.indices and n not in others), None)
    if missing is not None:
        name = missing.lstrip("?")
        raise error(
            "T0146",
            f"index `{name}` is not on the left, so each element would be defined many times",
            equation.clause.targets[0].span,
            f"`{name}` is missing here",
            help=f"reduce over it: `sum({name} in …) …`, or put it on the left",
        )


def _rebound(scope: Scope, solution: Solution) -> Scope:
    def put(item: Value) -> Value:
        match item:
            case Idx(px.Name(name)) if name in solution.indices:
                return Idx(solution.indices[name])
            case Packed(items):
                return Packed(tuple(put(i) for i in items))
            case _:
                return item

    return replace(scope, values={n: put(v) for n, v in scope.values.items()})


def _axis_ranges(ranges: Mapping[str, tuple[px.Expr, px.Expr]], solution: Solution) -> dict[str, tuple[px.Expr, px.Expr]]:
    """Return the ranges of axes that are an index plus something: they are as wide as the index's."""
    out = {}
    for index, (lo, hi) in ranges.items():
        if index not in solution.indices:
            continue
        factors, const = affine.terms(solution.indices[index])
        if list(factors.values()) == [1] and isinstance(axis := next(iter(factors)), px.Name):
            low, high = affine.substitute(lo, solution.indices), affine.substitute(hi, solution.indices)
            out[axis.name] = (affine.add(low, -const), affine.add(high, -const))
    return out


def _tail_condition(body: Body, scope: Scope, node: sx.Node) -> px.Cond:
    match typed.truth(value(body.ctx, scope, node), node.span):
        case bool(known):
            return px.TRUE if known else px.FALSE
        case px.Compare() | px.And() | px.Or() | px.Not() as cond:
            return cond
        case _:
            raise error(
                "T0147",
                "the guard of an equation depends on data",
                node.span,
                "decided only at run time",
                help="choose the value instead: `y[i] = if … then … else …`",
            )
