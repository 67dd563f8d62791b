"""The equations of an operator: clauses with their copies, the indices they introduce, what their tails say.

An equation is *opened* by binding its indices to placeholders `?i`; `pieces` then expresses them over the axes of the tensor it defines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from codegen.dtypes import DType
from polyhedral import expr as px
from tensorlang.check import typed
from tensorlang.check.bindings import Binding
from tensorlang.check.foreign import nearest
from tensorlang.check.packs import Lengths, PackNames, Pattern, clause_names, constrain
from tensorlang.check.problems import error, labelled
from tensorlang.check.ranges import Place, agreed, places
from tensorlang.check.reduction import bound, type_named
from tensorlang.check.scalar import value
from tensorlang.check.scope import Context, Copies, Scope, expand, no_shadowing
from tensorlang.check.types import CONSTANTS, LIMITS
from tensorlang.check.values import Dim, Idx, Num, Packed, Tensor, Val, Value
from tensorlang.check.walk import children, descendants
from tensorlang.diagnostics import CompileError, Diagnostic, Edit, Span
from tensorlang.syntax import accumulated
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import nodes as ir


@dataclass(frozen=True, slots=True)
class Equation:
    """One clause, or one copy of a clause `for each`. `tensors`: unique names of what it defines ("" for `_`)."""

    clause: sx.Clause
    key: str
    tensors: tuple[str, ...]
    scope: Scope
    packs: PackNames

    @property
    def span(self) -> Span:
        return self.clause.span

    @property
    def is_plain(self) -> bool:
        return not self.clause.otherwise


@dataclass
class Body:
    """Everything known of the operator's tensors so far."""

    ctx: Context
    binding: Binding
    equations: list[Equation]
    patterns: dict[str, Pattern]
    types: dict[str, DType] = field(default_factory=dict)
    inferring: list[str] = field(default_factory=list)
    inlined: list[ir.Definition] = field(default_factory=list)
    externs: list[ir.ExternCall] = field(default_factory=list)
    """Calls of kernels that are not in the language, of callees."""
    context: px.Cond = px.TRUE
    problems: list[Diagnostic] = field(default_factory=list)
    lengths: tuple[int, Lengths] | None = None
    """The lengths of packs, for so many known tensors."""
    cyclic: frozenset[str] = frozenset()
    """Locals that need themselves, directly or through others: they tell ranges only where nothing else does."""

    def of(self, tensor: str) -> list[Equation]:
        return [e for e in self.equations if tensor in e.tensors]


def declare_locals(body: Body, base: Scope) -> None:
    """Enter the locals whose type is written: `p: T[M, N] = softmax(s)`."""
    for equation in body.equations:
        for target, name in zip(equation.clause.targets, equation.tensors, strict=True):
            if target.type is None or name not in body.ctx.local_names:
                continue
            if name in body.ctx.tensors:
                raise error("T0149", f"the type of `{name}` is written twice", target.span, "again here", help="write it once")
            dims: list[Dim] = []
            axes = 0
            for node, at in expand(base, target.type.dims or ()):
                parts = list(expand(at, node.items)) if isinstance(node, sx.TupleOf) else [(node, at)]
                sizes = tuple(bound(body.ctx, within, part) for part, within in parts)
                dims.append(Dim(sizes, tuple(range(axes, axes + len(sizes))), isinstance(node, sx.TupleOf)))
                axes += len(sizes)
            dtype = type_named(body.ctx, base, sx.Id(target.type.dtype, span=target.type.span))
            body.ctx.tensors[name] = Tensor(name, dtype, tuple(dims), axes)
            body.types[name] = dtype


def equations_of(body: Body, base: Scope, number: int, clause: sx.Clause) -> Iterator[Equation]:
    binding = body.binding
    for target in clause.targets:
        if target.name in binding.params:
            raise error(
                "T0141",
                f"`{target.name}` is a parameter and cannot be defined",
                target.span,
                "defined here",
                help="define a result or a tensor of another name",
            )
        if target.name in binding.values and target.name != "_":
            no_shadowing(base, target.name, target.span, "tensor")
    outer = frozenset(n for n, v in base.values.items() if isinstance(v, Packed))
    names = frozenset([*binding.params, *binding.results, *body.ctx.local_names])
    each = next((c for c in clause.conds if isinstance(c, sx.Each)), None)
    if each is None:
        yield Equation(clause, str(number), _targets(clause, base), base, clause_names(number, clause, outer, names))
        return
    group = {**binding.params, **binding.results}.get(each.name)
    if not isinstance(group, tuple):
        raise error(
            "T0142",
            f"`{each.name}` is not declared with `each`",
            each.span,
            "repeated over here",
            help=f"declare it so: `each {each.name}: T[…]`",
        )
    copies = {n: v for n, v in base.values.items() if n in binding.each_sizes and isinstance(v, Packed) and len(v.items) == len(group)}
    sums: dict[str, list[Value]] = {}
    for position in range(len(group)):
        members = {
            n: g[position] for n, g in {**binding.params, **binding.results}.items() if isinstance(g, tuple) and len(g) == len(group)
        }
        scope = replace(base.bind({**members, **{n: v.items[position] for n, v in copies.items()}}), copies=Copies(copies, position, sums))
        inner = outer - copies.keys()
        yield Equation(
            clause,
            f"{number}.{position}",
            _targets(clause, scope),
            scope,
            PackNames(inner, clause_names(number, clause, outer, names).inner, f"{number}.{position}"),
        )


def _targets(clause: sx.Clause, scope: Scope) -> tuple[str, ...]:
    out = []
    for target in clause.targets:
        found = scope.values.get(target.name)
        out.append("" if target.name == "_" else found.name if isinstance(found, Tensor) else target.name)
    return tuple(out)


def check_results(body: Body) -> None:
    defined = {t for e in body.equations for t in e.tensors}
    read = {name for e in body.equations for name in mentioned_on_the_right(e)}
    for param in body.binding.operator.results:
        result = body.binding.results[param.name]
        for tensor in result if isinstance(result, tuple) else (result,):
            if tensor.name not in defined:
                title, help = f"result `{tensor.name}` is never defined", f"add an equation `{param.name}[…] = …`"
                written = {t.name: t.span for e in body.equations for t in e.clause.targets if t.name not in read}
                close = nearest(param.name, written)
                if close is None:
                    raise error("T0143", title, param.span, "declared here", help=help)
                at = Span(written[close].source, written[close].start, written[close].start + len(close))
                labels = [(at, f"`{close}` is no result"), (param.span, "declared here")]
                raise labelled("T0143", title, labels, help=f"did you mean `{param.name}`?", edits=(Edit(at, param.name),))


def called(body: Body, equation: Equation) -> sx.Apply | None:
    """Return the operator call that an equation consists of, or None."""
    node = equation.clause.value
    module = body.ctx.module
    if not isinstance(node, sx.Apply) or node.name not in module.operators or node.name in equation.scope.values:
        return None
    return node if all(t.slots is None for t in equation.clause.targets) else None


def lengths_of(body: Body, equation: Equation) -> dict[str, int]:
    """Return the length of every pack of indices of an equation that can be told."""
    if body.lengths is None or body.lengths[0] != len(body.ctx.tensors):
        body.lengths = (len(body.ctx.tensors), _all_lengths(body))
    lengths = body.lengths[1]
    return {name: n for name in equation.packs.inner if (n := lengths.get(f"{equation.packs.prefix}/{name}")) is not None}


def _all_lengths(body: Body) -> Lengths:
    """Return what all equations together say of the lengths of packs."""
    lengths = Lengths()
    declared = {p.name: p.span for p in (*body.binding.operator.params, *body.binding.operator.results)}
    patterns = {n: (None,) * len(t.dims) for n, t in body.ctx.tensors.items()} | body.patterns
    for equation in body.equations:
        for name, pack in equation.scope.values.items():
            if isinstance(pack, Packed) and name in equation.packs.outer:
                lengths.fix(name, len(pack.items))
    for equation in body.equations:
        constrain(lengths, equation.packs, equation.clause, patterns, declared)
    lengths.solve()
    return lengths


def index_names(equation: Equation) -> dict[str, bool]:
    """Return the indices that an equation introduces, in order; True for packs."""
    out: dict[str, bool] = {}
    for target in equation.clause.targets:
        for slot in target.slots or ():
            _introduced(equation, slot, False, out)
    for cond in equation.clause.conds:
        match cond:
            case sx.Member(sx.Id(name)) if name not in equation.scope.values:
                out.setdefault(name, False)
            case sx.Member(sx.Pack(sx.Id(name))) | sx.Pack(sx.Member(sx.Id(name))) if name not in equation.scope.values:
                out.setdefault(name, True)
            case _:
                pass
    return out


def _introduced(equation: Equation, node: sx.Node, pack: bool, out: dict[str, bool]) -> None:
    match node:
        case sx.Id(name) if name not in equation.scope.values and name not in CONSTANTS and name not in LIMITS:
            out.setdefault(name, pack and name in equation.packs.inner)
        case sx.Index(name, slots) if name in equation.packs.inner:
            out.setdefault(name, True)
            for slot in slots:
                _introduced(equation, slot, False, out)
        case sx.Pack(inner):
            _introduced(equation, inner, True, out)
        case sx.Apply("before" | "rank" | "pos"):
            return
        case _:
            for child in children(node):
                _introduced(equation, child, pack, out)


@dataclass(frozen=True, slots=True)
class Opened:
    """An equation with its indices bound to placeholders `?i`, before they are solved for."""

    scope: Scope
    explicit: Mapping[str, tuple[px.Expr, px.Expr]]
    conds: tuple[tuple[sx.Node, Scope], ...]
    names: tuple[str, ...]


def open_equation(body: Body, equation: Equation) -> Opened | None:
    """Return the equation with indices bound; None while the length of a pack is not known."""
    lengths = lengths_of(body, equation)
    indices = index_names(equation)
    bound_values: dict[str, Value] = {}
    names: list[str] = []
    for name, pack in indices.items():
        if name in body.ctx.tensors or name in body.ctx.local_names:
            no_shadowing(Scope({name: body.ctx.tensors.get(name, Num(0))}), name, equation.clause.targets[0].span, "index")
        if not pack:
            bound_values[name] = Idx(px.Name("?" + name))
            names.append("?" + name)
        elif name in lengths:
            uniques = [f"?{name}.{p}" for p in range(lengths[name])]
            bound_values[name] = Packed(tuple(Idx(px.Name(u)) for u in uniques))
            names += uniques
        else:
            return None
    scope = replace(equation.scope.bind(bound_values), lengths=lengths)
    explicit, conds = _tail(body, equation, scope, indices)
    return Opened(scope, explicit, tuple(conds), tuple(names))


def _tail(
    body: Body, equation: Equation, scope: Scope, indices: Mapping[str, bool]
) -> tuple[dict[str, tuple[px.Expr, px.Expr]], list[tuple[sx.Node, Scope]]]:
    explicit: dict[str, tuple[px.Expr, px.Expr]] = {}
    conds: list[tuple[sx.Node, Scope]] = []
    for cond in equation.clause.conds:
        match cond:
            case sx.Each():
                continue
            case sx.Member(sx.Id(name), range_) if name in indices and "?" + name not in explicit:
                explicit["?" + name] = (bound(body.ctx, scope, range_.lo), bound(body.ctx, scope, range_.hi))
            case sx.Member(sx.Pack(sx.Id(name)), range_) | sx.Pack(sx.Member(sx.Id(name), range_)) if name in indices:
                pack = sx.Pack(sx.Member(sx.Id(name), range_), span=cond.span)
                for position, (_, at) in enumerate(expand(scope, (pack,))):
                    explicit[f"?{name}.{position}"] = (bound(body.ctx, at, range_.lo), bound(body.ctx, at, range_.hi))
            case _:
                conds += list(expand(scope, (cond,)))
    return explicit, conds


def ranges_of(body: Body, equation: Equation, opened: Opened, boxed: frozenset[str] | None) -> dict[str, tuple[px.Expr, px.Expr]]:
    """Return the ranges of indices that are written or that plain places on the right give."""
    out = dict(opened.explicit)
    found = found_places(body, equation, opened, boxed)
    for name in opened.names:
        mine = [p for p in found if p.index == name]
        if name not in out and mine:
            out[name] = agreed(mine, name.lstrip("?"), equation.span, "index")
    return out


def found_places(body: Body, equation: Equation, opened: Opened, boxed: frozenset[str] | None) -> list[Place]:
    found = list(places(body.ctx, opened.scope, equation.clause.value, boxed))
    for cond, at in opened.conds:
        found += places(body.ctx, at, cond, boxed)
    return found


def coordinate_of(body: Body, scope: Scope, slot: sx.Node) -> px.Expr:
    """Return a slot of the left side as an index expression. Raises T0144 when data decides it."""
    if isinstance(slot, sx.Compare) and (masked := _mask(body, scope, slot)) is not None:
        raise masked
    match value(body.ctx, replace(scope, indexing=True), slot):
        case Idx(at):
            return at
        case Num(number) if isinstance(number, bool | int):
            return typed.whole(number, slot.span)
        case other:
            if isinstance(slot, sx.Id) and isinstance(other, Tensor):
                title, help = f"`{slot.name}` is a tensor here, and an index is needed", "give the index a name that nothing else has"
                raise error("T0144", title, slot.span, f"this is the tensor `{slot.name}`", help=help)
            factors = other.factors & body.ctx.sizes if isinstance(other, Val) else frozenset[str]()
            if factors:
                raise body.binding.needs_static(factors, slot.span, "multiplies an index")
            clause = accumulated.clause_at(slot.span) if isinstance(other, Val) and not isinstance(slot, sx.Compare) else None
            meant = accumulated.scattered(clause, slot.span.source.text[slot.span.start : slot.span.end]) if clause is not None else None
            raise error(
                "T0144",
                "the left side must be an index expression",
                slot.span,
                "data decides where this writes" if not isinstance(other, Num) else "not a whole number",
                help="a mask is a condition of the value: `y[i] = if c then a else b`"
                if isinstance(slot, sx.Compare)
                else f"the indices on the left run over all elements: `{meant}`"
                if meant is not None and " = if " in meant
                else f"a scatter is a filtered reduction: `{meant or 'y[a] = last(k, ids[k] == a, from x[a]) u[k]'}`",
            )


def _mask(body: Body, scope: Scope, slot: sx.Compare) -> CompileError | None:
    """Return T0144 for a comparison of whole tensors, `x > 0`, with the condition of one element that it stands for."""
    whole = [n for n in slot.items if isinstance(n, sx.Id) and isinstance(scope.values.get(n.name) or body.ctx.tensors.get(n.name), Tensor)]
    if not whole:
        return None
    text = slot.span.source.text[slot.span.start : slot.span.end]
    for node in whole:
        text = re.sub(rf"\b{re.escape(node.name)}\b", f"{node.name}[i]", text)
    help = f"a mask is a condition of the value: `y[i] = if {text} then a else b`"
    return labelled("T0144", "the left side must be an index expression", [(slot.span, "data decides where this writes")], help=help)


def axis_sizes(tensor: Tensor) -> list[px.Expr]:
    return [size for dim in tensor.dims for size in dim.sizes]


def mentioned_on_the_right(equation: Equation) -> Iterator[str]:
    for node in descendants(equation.clause.value):
        if isinstance(node, sx.Index):
            yield node.name
