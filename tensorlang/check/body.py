"""The equations of one operator: boxes and types of its tensors, then one piece an equation.

Order of work: packs and ranges give boxes of locals, boxes of arguments let callees be inlined, boxes and callees let types be inferred,
and only then is every right-hand side turned into tensor IR.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from codegen.dtypes import DType, compute_dtype
from polyhedral import expr as px
from tensorlang.check import affine, arith
from tensorlang.check.bindings import Binding, Call
from tensorlang.check.module import Module
from tensorlang.check.packs import Lengths, PackNames, Pattern, clause_names, constrain
from tensorlang.check.problems import error, labelled
from tensorlang.check.ranges import Place, agreed, places
from tensorlang.check.reads import check_rank, show
from tensorlang.check.reduction import bound, type_named, unknown_length
from tensorlang.check.scalar import value
from tensorlang.check.scope import Context, Scope, expand, no_shadowing
from tensorlang.check.solve import Slot, Solution, solve
from tensorlang.check.types import CONSTANTS, LIMITS
from tensorlang.check.values import Dim, Idx, Num, Packed, Tensor, Tup, Val, Value
from tensorlang.check.walk import children, descendants, repeated_names
from tensorlang.diagnostics import CompileError, Diagnostic, Span
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.walk import Fresh


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
    context: px.Cond = px.TRUE
    problems: list[Diagnostic] = field(default_factory=list)
    lengths: tuple[int, Lengths] | None = None
    """The lengths of packs, for so many known tensors."""
    cyclic: frozenset[str] = frozenset()
    """Locals that need themselves, directly or through others: they tell ranges only where nothing else does."""

    def of(self, tensor: str) -> list[Equation]:
        return [e for e in self.equations if tensor in e.tensors]


def elaborate(module: Module, binding: Binding, call: Call) -> ir.Program:
    """Return the tensor IR of an operator whose parameters are bound. `call` inlines another operator."""
    body = _start(module, binding)
    _boxes(body, call)
    definitions = _definitions(body)
    if body.problems:
        raise CompileError(*dict.fromkeys(body.problems))
    return ir.Program(
        binding.operator.name,
        binding.sizes,
        binding.parameters,
        binding.result_names,
        (*body.inlined, *definitions),
        affine.conj(binding.context, body.context),
        span=binding.operator.span,
    )


# ---------------------------------------------------------------- equations


def _start(module: Module, binding: Binding) -> Body:
    operator = binding.operator
    declared = {t.name: t for t in binding.all_tensors()}
    singles = {name: t for name, t in {**binding.params, **binding.results}.items() if isinstance(t, Tensor)}
    base = Scope({**binding.values, **singles})
    written = {t.name for c in operator.clauses for t in c.targets} - {"_"}
    local = written - binding.params.keys() - binding.results.keys()
    ctx = Context(
        module, operator, dict(binding.dtypes), Fresh(), value, dict(declared), local_names=frozenset(local), sizes=frozenset(binding.sizes)
    )
    body = Body(ctx, binding, [], dict(binding.patterns))
    ctx.element_type = lambda name: _element_type(body, name)
    for number, clause in enumerate(operator.clauses):
        for equation in _equations(body, base, number, clause):
            body.equations.append(equation)
            for target, name in zip(clause.targets, equation.tensors, strict=True):
                if name in local and target.slots is not None and name not in body.patterns:
                    pattern = equation.packs.pattern(target.slots)
                    if pattern is not None:
                        body.patterns[name] = pattern
    _declare_locals(body, base)
    _check_results(body)
    return body


def _declare_locals(body: Body, base: Scope) -> None:
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


def _equations(body: Body, base: Scope, number: int, clause: sx.Clause) -> Iterator[Equation]:
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
    for position in range(len(group)):
        members = {
            n: g[position] for n, g in {**binding.params, **binding.results}.items() if isinstance(g, tuple) and len(g) == len(group)
        }
        scope = replace(base.bind({**members, **{n: v.items[position] for n, v in copies.items()}}), copies=(copies, position))
        inner = outer - copies.keys()
        yield Equation(
            clause,
            f"{number}.{position}",
            _targets(clause, scope),
            scope,
            PackNames(inner, clause_names(number, clause, outer, names).own, f"{number}.{position}"),
        )


def _targets(clause: sx.Clause, scope: Scope) -> tuple[str, ...]:
    out = []
    for target in clause.targets:
        found = scope.values.get(target.name)
        out.append("" if target.name == "_" else found.name if isinstance(found, Tensor) else target.name)
    return tuple(out)


def _check_results(body: Body) -> None:
    defined = {t for e in body.equations for t in e.tensors}
    for param in body.binding.operator.results:
        result = body.binding.results[param.name]
        for tensor in result if isinstance(result, tuple) else (result,):
            if tensor.name not in defined:
                raise error(
                    "T0143",
                    f"result `{tensor.name}` is never defined",
                    param.span,
                    "declared here",
                    help=f"add an equation `{param.name}[…] = …`",
                )


def called(body: Body, equation: Equation) -> sx.Apply | None:
    """Return the operator call that an equation consists of, or None."""
    node = equation.clause.value
    module = body.ctx.module
    if not isinstance(node, sx.Apply) or node.name not in module.operators or node.name in equation.scope.values:
        return None
    return node if all(t.slots is None for t in equation.clause.targets) else None


# ---------------------------------------------------------------- indices of an equation


def lengths_of(body: Body, equation: Equation) -> dict[str, int]:
    """Return the length of every pack of indices of an equation that can be told."""
    if body.lengths is None or body.lengths[0] != len(body.ctx.tensors):
        body.lengths = (len(body.ctx.tensors), _all_lengths(body))
    lengths = body.lengths[1]
    return {name: n for name in equation.packs.own if (n := lengths.get(f"{equation.packs.prefix}/{name}")) is not None}


def _all_lengths(body: Body) -> Lengths:
    """Return what all equations together say of the lengths of packs."""
    lengths = Lengths()
    patterns = {n: (None,) * len(t.dims) for n, t in body.ctx.tensors.items()} | body.patterns
    for equation in body.equations:
        for name, pack in equation.scope.values.items():
            if isinstance(pack, Packed) and name in equation.packs.outer:
                lengths.fix(name, len(pack.items))
    for equation in body.equations:
        constrain(lengths, equation.packs, equation.clause, patterns)
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
            out.setdefault(name, pack and name in equation.packs.own)
        case sx.Index(name, slots) if name in equation.packs.own:
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


def ranges_of(body: Body, equation: Equation, opened: Opened, known: frozenset[str] | None) -> dict[str, tuple[px.Expr, px.Expr]]:
    """Return the ranges of indices that are written or that plain places on the right give."""
    out = dict(opened.explicit)
    found = _found(body, equation, opened, known)
    for name in opened.names:
        mine = [p for p in found if p.index == name]
        if name not in out and mine:
            out[name] = agreed(mine, name.lstrip("?"), equation.span, "index")
    return out


def _found(body: Body, equation: Equation, opened: Opened, known: frozenset[str] | None) -> list[Place]:
    found = list(places(body.ctx, opened.scope, equation.clause.value, known))
    for cond, at in opened.conds:
        found += places(body.ctx, at, cond, known)
    return found


# ---------------------------------------------------------------- boxes


def _boxes(body: Body, call: Call) -> None:
    """Find the box of every local tensor and inline every called operator."""
    pending = [
        n for n in dict.fromkeys(t for e in body.equations for t in e.tensors) if n in body.ctx.local_names and n not in body.ctx.tensors
    ]
    calls = [e for e in body.equations if called(body, e)]
    results = {t for e in calls for t in e.tensors}
    pending = [n for n in pending if n not in results]
    cycles = _cycles(body)
    body.cyclic = frozenset(n for n, c in cycles.items() if len(c) > 1 or any(n in _mentioned_on_the_right(e) for e in body.of(n)))
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
    sizes = [_hull(e) for e in extents]
    if any(s is None for s in sizes):
        return None
    dims, axis = [], 0
    for count, flag in zip(shape, composite, strict=True):
        dims.append(Dim(tuple(s for s in sizes[axis : axis + count] if s is not None), tuple(range(axis, axis + count)), flag))
        axis += count
    return Tensor(name, None, tuple(dims), axis, declared=False)


def _hull(uppers: Iterable[px.Expr | None]) -> px.Expr | None:
    out: px.Expr | None = None
    for upper in uppers:
        if upper is not None:
            out = upper if out is None else affine.larger(out, upper)
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
            uppers.append(_upper(_coordinate(body, inner, part), ranges))
    return uppers, groups, flags


def _upper(at: px.Expr, ranges: Mapping[str, tuple[px.Expr, px.Expr]]) -> px.Expr | None:
    """Return one more than the maximum of `at` over the ranges; None when an index has none."""
    for _ in range(16):
        open_names = [n for n in sorted(affine.names(at)) if n.startswith("?")]
        if not open_names:
            return affine.add(at, affine.ONE)
        mentioned = {m for n in open_names if n in ranges for m in affine.names(ranges[n][0]) | affine.names(ranges[n][1])}
        name = next((n for n in open_names if n not in mentioned), open_names[0])
        if name not in ranges:
            return None
        lo, hi = ranges[name]
        factor = dict(affine.linear(at).terms).get(px.Name(name), 0)
        at = affine.substitute(at, {name: lo if factor < 0 else affine.sub(hi, affine.ONE)})
    return None


def _coordinate(body: Body, scope: Scope, slot: sx.Node) -> px.Expr:
    """Return a slot of the left side as an index expression. Raises T0144 when data decides it."""
    match value(body.ctx, replace(scope, indexing=True), slot):
        case Idx(at):
            return at
        case Num(number) if isinstance(number, bool | int):
            return px.Int(int(number))
        case other:
            factors = other.factors & body.ctx.sizes if isinstance(other, Val) else frozenset[str]()
            if factors:
                raise body.binding.needs_static(factors, slot.span, "multiplies an index")
            raise error(
                "T0144",
                "the left side must be an index expression",
                slot.span,
                "data decides where this writes" if not isinstance(other, Num) else "not a whole number",
                help="a scatter is a filtered reduction: `y[a] = last(k, ids[k] == a, from x[a]) u[k]`",
            )


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
            missing = next((n for n in opened.names if n not in ranges), None)
            if missing is not None:
                agreed([], missing.lstrip("?"), equation.clause.targets[0].span, "index")
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


# ---------------------------------------------------------------- types


def _element_type(body: Body, name: str) -> DType | None:
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
        raise error(
            "T0117",
            f"the element type of `{name}` cannot be told",
            body.of(name)[0].span,
            "only numbers are assigned",
            help=f"cast one: `{name}[…] = f32(0)`",
        )
    return found


def _type_of(body: Body, equation: Equation, name: str) -> DType | None:
    names = body.ctx.names
    body.ctx.names = Fresh()
    try:
        tensor = body.ctx.tensors[name]
        axes = tuple(f"!{k}" for k in range(tensor.rank))
        solved = _solved(body, equation, name, axes)
        computed = value(body.ctx, solved.scope, equation.clause.value)
    finally:
        body.ctx.names = names
    items = computed.items if isinstance(computed, Tup) else (computed,)
    position = equation.tensors.index(name)
    return arith.dtype_of(items[position]) if position < len(items) else None


# ---------------------------------------------------------------- pieces


@dataclass(frozen=True, slots=True)
class Solved:
    scope: Scope
    guard: px.Cond


def _solved(body: Body, equation: Equation, name: str, axes: tuple[str, ...]) -> Solved:
    """Return the equation with its indices expressed over the axes of the tensor it defines."""
    opened = open_equation(body, equation)
    if opened is None:
        lengths = lengths_of(body, equation)
        pack = next(n for n, is_pack in index_names(equation).items() if is_pack and n not in lengths)
        raise unknown_length(pack, equation.clause.targets[0].span)
    tensor = body.ctx.tensors[name]
    slots = _slots(body, equation, opened, tensor, axes)
    extents_of_axes = _axis_sizes(tensor)
    box = {a: (affine.ZERO, extents_of_axes[k]) for k, a in enumerate(axes)}
    ranges = _index_ranges(body, equation, opened, tensor, slots, dict(zip(axes, extents_of_axes, strict=True)))
    starting = {n: hi for n, (lo, hi) in ranges.items() if lo == affine.ZERO}
    solution = solve(slots, frozenset(opened.names), starting)
    _check_determined(equation, opened, solution)
    guard = solution.guard
    for index, (lo, hi) in ranges.items():
        at = solution.indices[index]
        low, high = affine.substitute(lo, solution.indices), affine.substitute(hi, solution.indices)
        inside = affine.in_box(affine.sub(at, low), affine.sub(high, low), box)
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
    shift = px.Int(affine.linear(at).const)
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


def _axis_sizes(tensor: Tensor) -> list[px.Expr]:
    return [size for dim in tensor.dims for size in dim.sizes]


def _slots(body: Body, equation: Equation, opened: Opened, tensor: Tensor, axes: tuple[str, ...]) -> list[Slot]:
    target = equation.clause.targets[equation.tensors.index(tensor.name)]
    parts = list(expand(opened.scope, target.slots or ()))
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
            out.append(Slot(axes[len(out)], _coordinate(body, scope, part), part.span, isinstance(part, sx.Id | sx.Index)))
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
    open_names = [n for n in opened.names if n not in out]
    everything = frozenset(body.ctx.tensors)
    tiers = (everything - body.cyclic - {*equation.tensors}, everything - {*equation.tensors}, everything)
    found: list[list[Place]] = []
    for name in open_names:
        left = [Place(name, extents[s.axis], tensor.name, s.span, False) for s in slots if s.plain and s.at == px.Name(name)]
        right: list[Place] = []
        for tier, known in enumerate(() if left and tensor.declared else tiers):
            if tier == len(found):
                found.append(_found(body, equation, opened, known))
            right = [p for p in found[tier] if p.index == name]
            if right:
                break
        out[name] = agreed(
            left if left and (tensor.declared or not right) else right, name.lstrip("?"), equation.clause.targets[0].span, "index"
        )
    return out


def _mentioned_on_the_right(equation: Equation) -> Iterator[str]:
    for node in descendants(equation.clause.value):
        if isinstance(node, sx.Index):
            yield node.name


def _check_determined(equation: Equation, opened: Opened, solution: Solution) -> None:
    missing = next((n for n in opened.names if n not in solution.indices), None)
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
        form = affine.linear(solution.indices[index])
        if len(form.terms) == 1 and form.terms[0][1] == 1 and isinstance(axis := form.terms[0][0], px.Name):
            low, high = affine.substitute(lo, solution.indices), affine.substitute(hi, solution.indices)
            out[axis.name] = (affine.add(low, px.Int(-form.const)), affine.add(high, px.Int(-form.const)))
    return out


def _tail_condition(body: Body, scope: Scope, node: sx.Node) -> px.Cond:
    match arith.truth(value(body.ctx, scope, node), node.span):
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


# ---------------------------------------------------------------- definitions


def _definitions(body: Body) -> list[ir.Definition]:
    """Return one definition a group of tensors that share equations, in the order in which they are first written."""
    out: list[ir.Definition] = []
    done: set[str] = set()
    for equation in body.equations:
        if called(body, equation):
            continue
        if equation.tensors[0] in done and equation.tensors[0]:
            continue
        try:
            out.append(_definition(body, equation))
        except CompileError as problem:
            body.problems += problem.diagnostics
        done |= set(equation.tensors)
    return out


def _definition(body: Body, first: Equation) -> ir.Definition:
    if "" in first.tensors:
        raise error(
            "T0148",
            "`_` discards a result of an operator, not of an expression",
            first.clause.targets[0].span,
            "here",
            help="give it a name",
        )
    group = first.tensors
    equations = [e for e in body.equations if set(e.tensors) & set(group)]
    for equation in equations:
        if equation.tensors != group or called(body, equation):
            raise labelled(
                "T0148",
                f"{' and '.join(f'`{t}`' for t in group)} are defined together here and apart there",
                [(first.span, "together"), (equation.span, "differently")],
                help="define them together in every equation, or apart in every one",
            )
    tensors = [body.ctx.tensors[name] for name in group]
    _check_same_shape(first, tensors)
    axes = _axes(body, equations, tensors[0])
    body.ctx.names = Fresh(
        {*body.binding.sizes, *body.ctx.tensors, *body.ctx.local_names, *axes, *(d.name for x in body.inlined for d in x.tensors)}
    )
    plain = [_piece(body, e, group, axes) if e.is_plain else None for e in equations]
    guards = [p.guard for p in plain if p is not None]
    pieces = []
    rest = [e for e in equations if not e.is_plain]
    if len(rest) > 1:
        raise labelled(
            "T0149",
            f"`{group[0]}` has two `otherwise`",
            [(rest[0].span, "one"), (rest[1].span, "another")],
            help="give one of them a guard",
        )
    for equation, made in zip(equations, plain, strict=True):
        if made is None:
            written = _piece(body, equation, group, axes)
            made = replace(written, guard=affine.conj(written.guard, affine.negate(affine.disj(*guards))), otherwise=True)
        pieces.append(made)
    return ir.Definition(tuple(ir_tensor(t, _stored(body, t)) for t in tensors), axes, tuple(pieces), span=first.span)


def _check_same_shape(first: Equation, tensors: list[Tensor]) -> None:
    for tensor in tensors[1:]:
        if _axis_sizes(tensor) != _axis_sizes(tensors[0]):
            raise error(
                "T0148",
                f"`{tensors[0].name}` and `{tensor.name}` are defined together but have different shapes",
                first.span,
                "defined together",
                help="define them in equations of their own",
            )


def _stored(body: Body, tensor: Tensor) -> DType:
    if tensor.dtype is not None:
        return tensor.dtype
    found = _element_type(body, tensor.name)
    assert found is not None
    return compute_dtype(found)


def ir_tensor(tensor: Tensor, dtype: DType) -> ir.Tensor:
    """Return the tensor as the IR declares it."""
    shape: list[px.Expr] = []
    for dim in tensor.dims:
        shape += dim.sizes
    grouping = tuple(len(d.sizes) for d in tensor.dims) if any(d.composite for d in tensor.dims) else ()
    return ir.Tensor(tensor.name, dtype, tuple(shape), grouping)


def _axes(body: Body, equations: list[Equation], tensor: Tensor) -> tuple[str, ...]:
    """Name the axes after the first equation that has a plain index, or one with a shift, in each place (rule L1)."""
    taken = Fresh({*body.binding.sizes, *body.ctx.tensors, *body.ctx.local_names, *(t.name for d in body.inlined for t in d.tensors)})
    wishes: list[str | None] = [None] * tensor.rank
    for equation in equations:
        opened = open_equation(body, equation)
        if opened is None:
            continue
        placeholder = tuple(str(k) for k in range(tensor.rank))
        for slot in _slots(body, equation, opened, tensor, placeholder):
            form = affine.linear(slot.at)
            match form.terms:
                case ((px.Name(name), 1),) if name.startswith("?") and wishes[int(slot.axis)] is None and name[1:] not in wishes:
                    wishes[int(slot.axis)] = name[1:]
                case _:
                    pass
    return tuple(taken(w if w is not None else f"a{k}") for k, w in enumerate(wishes))


def _piece(body: Body, equation: Equation, group: tuple[str, ...], axes: tuple[str, ...]) -> ir.Piece:
    solved = _solved(body, equation, group[0], axes)
    for other in group[1:]:
        if _solved(body, equation, other, axes) != solved:
            raise error(
                "T0148",
                "tensors defined together must have the same indices on the left",
                equation.span,
                "here",
                help="define them in equations of their own",
            )
    computed = value(body.ctx, replace(solved.scope, owner=group[0]), equation.clause.value)
    return ir.Piece(_stored_value(body, equation, group, computed), solved.guard, span=equation.span)


def _stored_value(body: Body, equation: Equation, group: tuple[str, ...], computed: Value) -> ir.Expr:
    items = computed.items if isinstance(computed, Tup) else (computed,)
    if len(items) != len(group):
        raise error(
            "T0115",
            f"{len(group)} tensor{'s are' if len(group) != 1 else ' is'} defined by {len(items)} value{'s' * (len(items) != 1)}",
            equation.span,
            "here",
            help="give as many names on the left as there are values on the right",
        )
    typed = []
    for name, item in zip(group, items, strict=True):
        tensor = body.ctx.tensors[name]
        wanted = tensor.dtype if tensor.dtype is not None else _element_type(body, name)
        typed.append(_assigned(name, wanted, item, equation))
    if len(typed) == 1:
        return typed[0]
    return computed.whole if isinstance(computed, Tup) and computed.whole is not None else ir.TupleOf(tuple(typed), span=equation.span)


def _assigned(name: str, wanted: DType | None, item: Value, equation: Equation) -> ir.Expr:
    have = arith.dtype_of(item)
    if have is not None and wanted is not None and have != wanted and not isinstance(item, Idx):
        raise error(
            "T0150",
            f"`{name}` holds `{wanted}` and is given `{have}`",
            equation.span,
            f"this is `{have}`",
            help=f"cast the right side: `{wanted}(…)`",
        )
    return arith.coerce(item, wanted, equation.clause.value.span if equation.clause.value.span.end else equation.span)


# ---------------------------------------------------------------- inlining


def _inline(body: Body, equation: Equation, call: Call) -> None:
    node = called(body, equation)
    assert node is not None
    inlined = call(body, equation, node)
    body.inlined += inlined.definitions
    body.context = affine.conj(body.context, inlined.context)


def mismatch_note(a: px.Expr, b: px.Expr) -> str:
    return f"{show(a)} and {show(b)}"


__all__ = ["Body", "Equation", "called", "elaborate", "ir_tensor", "repeated_names"]
