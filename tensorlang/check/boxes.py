"""The boxes of local tensors, and the order in which called operators are inlined (rules B1, B2).

The box of a local is the hull of what its equations write. Ranges come from tensors whose boxes are known, so boxes are found in rounds;
a call is inlined as soon as the boxes of its arguments are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check import bounds
from tensorlang.check.bindings import Call
from tensorlang.check.equations import (
    Body,
    Equation,
    Opened,
    called,
    coordinate_of,
    index_names,
    lengths_of,
    mentioned_on_the_right,
    open_equation,
    ranges_of,
)
from tensorlang.check.problems import error, labelled
from tensorlang.check.ranges import near_size, unknown_range
from tensorlang.check.reduction import unknown_length
from tensorlang.check.scope import expand
from tensorlang.check.values import Dim, Tensor
from tensorlang.check.walk import descendants
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.printer import show


def find_boxes(body: Body, call: Call) -> None:
    """Find the box of every local tensor and inline every called operator."""
    pending = [
        n for n in dict.fromkeys(t for e in body.equations for t in e.tensors) if n in body.ctx.local_names and n not in body.ctx.tensors
    ]
    calls = [e for e in body.equations if called(body, e)]
    results = {t for e in calls for t in e.tensors}
    pending = [n for n in pending if n not in results]
    cycles = _cycles(body)
    body.cyclic = frozenset(n for n, c in cycles.items() if len(c) > 1 or any(n in mentioned_on_the_right(e) for e in body.of(n)))
    attempt = 0
    while pending or calls:
        done = _try_boxes(body, pending, cycles, attempt)
        ready = [] if done and attempt else [e for e in calls if _ready(body, e)]
        for equation in ready[:1] if not done else []:
            _refuse_cycle(equation, cycles)
            _inline(body, equation, call)
            calls.remove(equation)
            done = [""]
        pending = [n for n in pending if n not in done]
        attempt = 0 if done else attempt + 1
        if attempt > 2:
            _explain_stuck(body, pending, calls)


def _refuse_cycle(equation: Equation, cycles: Mapping[str, frozenset[str]]) -> None:
    for name in equation.tensors:
        others = sorted(cycles.get(name, frozenset()) - {name})
        if others:
            raise error(
                "T0145",
                "an operator call is part of a cycle",
                equation.span,
                f"needs `{others[0]}`, which needs `{name}`",
                help="a recurrence must be written out in equations: a callee works on whole tensors",
            )


def _try_boxes(body: Body, pending: Sequence[str], cycles: Mapping[str, frozenset[str]], attempt: int) -> list[str]:
    """Find the boxes that can be found. First only from tensors outside of a local's own cycle, then also from those inside that are
    known, at last also with axes that one equation leaves open and another gives."""
    done = []
    for name in pending:
        known = frozenset(body.ctx.tensors) - (cycles[name] if attempt == 0 else frozenset((name,)))
        box = _box(body, name, known, partial=attempt == 2)
        if box is not None:
            body.ctx.tensors[name] = box
            done.append(name)
            if attempt:
                break
    return done


def _cycles(body: Body) -> dict[str, frozenset[str]]:
    """Return, for every local, the locals that it needs and that need it."""
    local = body.ctx.local_names
    needs = {n: {m for e in body.of(n) for m in _mentioned(e) if m in local} for n in local}
    reach = {n: set(m) for n, m in needs.items()}
    for _ in local:
        for found in reach.values():
            found |= {m for n in list(found) for m in needs[n]}
    return {n: frozenset(m for m in reach[n] if n in reach[m]) | {n} for n in local}


def _mentioned(equation: Equation) -> Iterator[str]:
    for node in descendants(equation.clause):
        if isinstance(node, sx.Id | sx.Index):
            yield node.name


def _box(body: Body, name: str, known: frozenset[str], partial: bool) -> Tensor | None:
    extents: list[list[px.Expr | None]] | None = None
    composite: list[bool] = []
    shape: list[int] = []
    equations = [e for e in body.of(name) if e.is_plain] or body.of(name)
    for equation in equations:
        opened = open_equation(body, equation)
        if opened is None:
            return None
        target = equation.clause.targets[equation.tensors.index(name)]
        ranges = ranges_of(body, equation, opened, known)
        uppers, groups, flags = _uppers(body, opened, target, ranges)
        if not partial and any(u is None for u in uppers):
            return None
        if extents is None:
            extents, composite, shape = [[] for _ in uppers], flags, groups
        if groups != shape:
            raise labelled(
                "T0132",
                f"`{name}` is defined with different numbers of indices",
                [(target.span, "here"), (equations[0].clause.targets[0].span, "and here")],
                help="use the same number of indices in every equation",
            )
        for axis, upper in enumerate(uppers):
            extents[axis].append(upper)
    assert extents is not None
    least = bounds.least_sizes(affine.conj(body.binding.context, body.context))
    sizes = [_hull(e, least) for e in extents]
    if any(s is None for s in sizes):
        return None
    dims, axis = [], 0
    for count, flag in zip(shape, composite, strict=True):
        dims.append(Dim(tuple(s for s in sizes[axis : axis + count] if s is not None), tuple(range(axis, axis + count)), flag))
        axis += count
    return Tensor(name, None, tuple(dims), axis, declared=False)


def _hull(uppers: Iterable[px.Expr | None], least: Mapping[str, int]) -> px.Expr | None:
    """Return the largest of some extents, where sizes are at least so large."""
    out: px.Expr | None = None
    for upper in uppers:
        if upper is not None:
            out = upper if out is None else bounds.larger(out, upper, least=least)
    return out


def _uppers(
    body: Body, opened: Opened, target: sx.Target, ranges: Mapping[str, tuple[px.Expr, px.Expr]]
) -> tuple[list[px.Expr | None], list[int], list[bool]]:
    """Return, per axis, one more than the largest coordinate; how many axes each dimension has; which dimensions are composite."""
    uppers: list[px.Expr | None] = []
    groups: list[int] = []
    flags: list[bool] = []
    for slot, at in expand(opened.scope, target.slots or ()):
        parts = list(expand(at, slot.items)) if isinstance(slot, sx.TupleOf) else [(slot, at)]
        groups.append(len(parts))
        flags.append(isinstance(slot, sx.TupleOf))
        for part, inner in parts:
            uppers.append(_upper(coordinate_of(body, inner, part), ranges))
    return uppers, groups, flags


def _upper(at: px.Expr, ranges: Mapping[str, tuple[px.Expr, px.Expr]]) -> px.Expr | None:
    """Return one more than the maximum of `at` over the ranges; None when an index has none."""
    for _ in range(16):
        open_names = [n for n in sorted(affine.name_set(at)) if n.startswith("?")]
        if not open_names:
            return affine.add(at, affine.ONE)
        mentioned = {m for n in open_names if n in ranges for m in (*affine.names(ranges[n][0]), *affine.names(ranges[n][1]))}
        name = next((n for n in open_names if n not in mentioned), open_names[0])
        if name not in ranges:
            return None
        lo, hi = ranges[name]
        factor = affine.terms(at)[0].get(px.Name(name), 0)
        at = affine.substitute(at, {name: lo if factor < 0 else affine.sub(hi, affine.ONE)})
    return None


def _ready(body: Body, equation: Equation) -> bool:
    node = equation.clause.value
    return all(
        m.name in body.ctx.tensors or m.name not in body.ctx.local_names for m in descendants(node) if isinstance(m, sx.Id | sx.Index)
    )


def _explain_stuck(body: Body, pending: Sequence[str], calls: Sequence[Equation]) -> None:
    """Raise for what keeps the first tensor from having a box."""
    for name in pending:
        for equation in body.of(name):
            opened = open_equation(body, equation)
            if opened is None:
                lengths = lengths_of(body, equation)
                pack = next(n for n, is_pack in index_names(equation).items() if is_pack and n not in lengths)
                raise unknown_length(pack, equation.clause.targets[0].span)
            if not equation.is_plain:
                continue
            ranges = ranges_of(body, equation, opened, None)
            missing = [n.lstrip("?") for n in opened.names if n not in ranges]
            if missing:
                near = {n: _read_over(body, name, equation, n) for n in missing}
                near = {n: size or near_size(body.ctx, equation.scope, [equation.clause.value], n) for n, size in near.items()}
                raise unknown_range(near, equation.clause.targets[0].span, "index")
    if calls:
        raise error(
            "T0145",
            "an operator call is part of a cycle",
            calls[0].span,
            "needs a tensor that needs its result",
            help="a recurrence must be written out in equations: a callee works on whole tensors",
        )
    raise error(
        "T0107",
        f"the shape of `{pending[0]}` cannot be told",
        body.of(pending[0])[0].span,
        "defined here",
        help="write the ranges of its indices: `for i in 0..n`",
    )


def _read_over(body: Body, name: str, equation: Equation, index: str) -> str | None:
    """Return the dimension that a result is declared with, along which its equation reads a local tensor where that has this index:
    `y[p, k] = 2 * t[k]` reads `t[k]` over the second of `y`."""
    places = [t.slots.index(sx.Id(index)) for t in equation.clause.targets if t.name == name and t.slots and sx.Id(index) in t.slots]
    declared = {r.name: r.type.dims for r in body.ctx.operator.results if isinstance(r.type, sx.TensorType)}
    for clause in (e.clause for e in body.equations if places and not e.clause.conds and not e.clause.otherwise):
        reads = [r for r in descendants(clause.value) if isinstance(r, sx.Index) and r.name == name and len(r.slots) > places[0]]
        for target, slot in ((t, r.slots[places[0]]) for t in clause.targets for r in reads):
            dims = declared.get(target.name)
            if dims and target.slots and len(dims) == len(target.slots) and isinstance(slot, sx.Id) and slot in target.slots:
                return show(dims[target.slots.index(slot)])
    return None


def _inline(body: Body, equation: Equation, call: Call) -> None:
    node = called(body, equation)
    assert node is not None
    inlined = call(body, equation, node)
    body.inlined += inlined.definitions
    body.externs += inlined.externs
    body.context = affine.conj(body.context, inlined.context)
