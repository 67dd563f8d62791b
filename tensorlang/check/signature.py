"""Binding the parameters of an operator: element types, sizes, packs, attributes.

Every tensor parameter states equations between its argument's shape and the sizes of the operator:

    x: T[M, K]              M = shape[0], K = shape[1]
    x: T[A.., N, B..]       len(A) + 1 + len(B) = rank, len(A) from `where rank(A) == axis`
    x: T[N, (G, C)]         G * C = shape[1], one of them known
    b: T[broadcast D..]     missing and size-one dimensions agree with anything
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from codegen.dtypes import DTYPES, DType
from polyhedral import expr as px
from tensorlang.check import affine, arith
from tensorlang.check.bindings import Arg, Binding
from tensorlang.check.module import Module
from tensorlang.check.packs import Lengths, PackNames, Pattern, clause_names, constrain, dimension_names
from tensorlang.check.problems import NeedsStatic, counted, did_you_mean, error
from tensorlang.check.reads import show
from tensorlang.check.scalar import value
from tensorlang.check.scope import Context, Scope, expand
from tensorlang.check.types import CLASSES, CONSTANTS, ELEMENTARY, belongs
from tensorlang.check.values import Dim, Fn, Idx, Num, Packed, Str, Tensor, Val, Value
from tensorlang.check.walk import children, descendants
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.walk import Fresh

TensorArg = Arg | tuple[Arg, ...] | None
SizeArg = px.Expr | tuple[px.Expr, ...]


@dataclass(frozen=True, slots=True)
class Given:
    """What a caller hands over, by parameter name. `named`: sizes stay symbolic under their own names, except those in `static`.
    `declared_ranges`: the ranges of integer parameters are checked when the operator is entered."""

    tensors: Mapping[str, TensorArg]
    attrs: Mapping[str, object] = field(default_factory=dict)
    sizes: Mapping[str, SizeArg] = field(default_factory=dict)
    named: bool = False
    static: frozenset[str] = frozenset()
    checks_ranges: bool = True


@dataclass
class Binder:
    """The equations solved so far."""

    module: Module
    operator: sx.Operator
    given: Given
    dtypes: dict[str, DType] = field(default_factory=dict)
    sizes: dict[str, px.Expr] = field(default_factory=dict)
    """By name; elements of packs as `D.0`."""
    sources: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Which parameter gave a size, and with which shape."""
    lengths: Lengths = field(default_factory=Lengths)
    attrs: dict[str, Value] = field(default_factory=dict)
    packs: frozenset[str] = frozenset()
    each_sizes: frozenset[str] = frozenset()
    invented: list[str] = field(default_factory=list)
    context: px.Cond = px.TRUE

    def length(self, name: str) -> int:
        found = self.lengths.get(name)
        if found is None:
            raise error(
                "R0213",
                f"`{self.operator.name}`: it cannot be told how many dimensions `{name}..` stands for",
                self.operator.name_span,
                "in this operator",
                help=f"give it a length: pass a tuple for an attribute or size that goes with `{name}..`",
            )
        return found

    def ctx(self) -> Context:
        names = frozenset(n for e in self.sizes.values() for n in affine.names(e))
        return Context(self.module, self.operator, dict(self.dtypes), Fresh(), value, sizes=names)

    def scope(self) -> Scope:
        values: dict[str, Value] = dict(self.attrs)
        for name in {n for n, _ in dimension_names(self.operator)}:
            if name in self.packs:
                length = self.lengths.get(name)
                if length is not None and all(f"{name}.{k}" in self.sizes for k in range(length)):
                    values[name] = Packed(tuple(Idx(self.sizes[f"{name}.{k}"], True) for k in range(length)))
            elif name in self.sizes:
                values[name] = Idx(self.sizes[name], True)
        return Scope(values)


def bind(module: Module, operator: sx.Operator, given: Given) -> Binding:
    """Return what the operator's parameters stand for. Raises CompileError with R02xx codes."""
    binder = Binder(module, operator, given)
    binder.packs = frozenset(n for n, pack in dimension_names(operator) if pack) | {p.name for p in operator.params if p.pack}
    binder.each_sizes = frozenset(
        d.name for p in operator.params if isinstance(p.type, sx.TensorType) for d in p.type.dims or () if isinstance(d, sx.Each)
    )
    binder.each_sizes |= {
        d.name for p in operator.results if isinstance(p.type, sx.TensorType) for d in p.type.dims or () if isinstance(d, sx.Each)
    }
    _element_types(binder)
    _attributes(binder)
    _lengths(binder)
    _repeat_defaults(binder)
    _match_shapes(binder)
    _size_parameters(binder)
    _name_sizes(binder)
    _check_attribute_ranges(binder)
    _conditions(binder)
    return _binding(binder)


# ---------------------------------------------------------------- element types


def _element_types(b: Binder) -> None:
    bounds = {g.name: g.bound for g in b.operator.generics}
    for name, bound in bounds.items():
        wanted = b.given.attrs.get(name)
        if wanted is not None:
            dtype = wanted if isinstance(wanted, DType) else DTYPES.get(str(wanted))
            if dtype is None or not belongs(dtype, bound):
                raise error(
                    "R0204",
                    f"`{b.operator.name}`: {wanted!r} is no type for `{name}`",
                    b.operator.name_span,
                    help=f"`{name}` is {bound or 'any element type'}",
                )
            b.dtypes[name] = dtype
    for param in _tensor_params(b.operator):
        for arg in _args_of(b, param):
            assert isinstance(param.type, sx.TensorType)
            _element_type(b, param, param.type.dtype, arg.dtype, bounds)
    for name in bounds:
        if name not in b.dtypes:
            default = next(
                (p.default for p in _tensor_params(b.operator) if isinstance(p.type, sx.TensorType) and p.type.dtype == name), None
            )
            if default is None:
                raise error(
                    "R0204",
                    f"`{b.operator.name}`: no argument tells the type `{name}`",
                    b.operator.name_span,
                    "in this operator",
                    help=f'pass it as an attribute: `{name}="f32"`',
                )
            b.dtypes[name] = DTYPES["f32"]


def _element_type(b: Binder, param: sx.Param, wanted: str, have: DType, bounds: Mapping[str, str | None]) -> None:
    if wanted in bounds:
        if not belongs(have, bounds[wanted]):
            raise error(
                "R0204",
                f"`{b.operator.name}`: `{param.name}` is `{have}`, but `{wanted}` is {bounds[wanted]}",
                param.span,
                f"declared `{wanted}: {bounds[wanted]}`",
                help="convert the argument",
            )
        known = b.dtypes.setdefault(wanted, have)
        if known != have:
            raise error(
                "R0204",
                f"`{b.operator.name}`: `{param.name}` is `{have}`, but `{wanted}` is `{known}` already",
                param.span,
                f"all `{wanted}` are one type",
                help=f"convert it to `{known}`",
            )
    elif wanted in CLASSES and wanted not in DTYPES:
        if not belongs(have, wanted):
            raise error(
                "R0204",
                f"`{b.operator.name}`: `{param.name}` is `{have}`, but must be {wanted}",
                param.span,
                "declared here",
                help="convert the argument",
            )
    elif DTYPES.get(wanted) != have:
        raise error(
            "R0204",
            f"`{b.operator.name}`: `{param.name}` is `{have}`, but must be `{wanted}`",
            param.span,
            "declared here",
            help=f"convert it to `{wanted}`",
        )


def _tensor_params(operator: sx.Operator) -> list[sx.Param]:
    return [p for p in operator.params if p.kind == "tensor"]


def _args_of(b: Binder, param: sx.Param) -> tuple[Arg, ...]:
    arg = b.given.tensors.get(param.name)
    return () if arg is None else arg if isinstance(arg, tuple) else (arg,)


# ---------------------------------------------------------------- attributes


def _attributes(b: Binder) -> None:
    declared = {p.name: p for p in b.operator.params if p.kind == "attr"}
    known = {*declared, *(g.name for g in b.operator.generics)}
    for name in b.given.attrs:
        if name not in known:
            raise error(
                "R0206",
                f"`{b.operator.name}` has no attribute `{name}`",
                b.operator.name_span,
                "declared here",
                help=did_you_mean(name, known, f"its attributes are {', '.join(sorted(declared)) or 'none'}"),
            )
    for name, param in declared.items():
        if name in b.given.attrs:
            b.attrs[name] = _attribute(b, param, b.given.attrs[name])
        elif param.default is not None:
            b.attrs[name] = _default(b, param)
        else:
            raise error(
                "R0205",
                f"`{b.operator.name}` needs attribute `{name}`",
                param.span,
                "declared without a default",
                help=f"pass it: `{name}=…`",
            )
        found = b.attrs[name]
        if param.pack and isinstance(found, Packed):
            b.lengths.fix(name, len(found.items), param.span)


def _default(b: Binder, param: sx.Param) -> Value:
    assert param.default is not None
    scope = Scope(dict(b.attrs))
    if param.type == sx.Id("fn") and isinstance(param.default, sx.Id):
        return _attribute(b, param, param.default.name)
    items = param.default.items if isinstance(param.default, sx.TupleOf) else None
    if items is not None and param.pack:
        return Packed(tuple(value(b.ctx(), scope, item) for item in items))
    found = value(b.ctx(), scope, param.default)
    return Num(bool(found.value)) if param.type == sx.Id("bool") and isinstance(found, Num) else found


def _attribute(b: Binder, param: sx.Param, given: object) -> Value:
    if param.pack and isinstance(given, list | tuple):
        return Packed(tuple(_scalar_attribute(b, param, item) for item in given))
    return _scalar_attribute(b, param, given)


def _scalar_attribute(b: Binder, param: sx.Param, given: object) -> Value:
    kind = param.type.name if isinstance(param.type, sx.Id) else "int"
    item = given.item() if hasattr(given, "item") and not isinstance(given, str) else given
    match kind, item:
        case _, Num() | Fn() | Str():
            return item
        case "bool", bool() | 0 | 1:
            return Num(bool(item))
        case "int", int() if not isinstance(item, bool):
            return Num(item)
        case "str", str():
            return Str(item)
        case "fn", str():
            if item in b.module.functions or item in ELEMENTARY:
                return Fn(item)
            raise error(
                "R0207",
                f"`{b.operator.name}`: there is no function `{item}` for `{param.name}`",
                param.span,
                "declared here",
                help=did_you_mean(item, [*b.module.functions, *ELEMENTARY], "name a scalar function"),
            )
        case ("float", int() | float()) if not isinstance(item, bool):
            return Num(float(item))
        case (dtype, int() | float()) if dtype in b.dtypes or (dtype in DTYPES and dtype != "bool"):
            return Num(item)
        case _:
            what = type(item).__name__
            raise error(
                "R0207",
                f"`{b.operator.name}`: attribute `{param.name}` is {kind}, and {given!r} is {what}",
                param.span,
                f"declared `{kind}`",
                help=f"pass {_example(kind)}",
            )


def _example(kind: str) -> str:
    return {"int": "a whole number", "float": "a number", "bool": "True or False", "str": "a text", "fn": "the name of a function"}.get(
        kind, f"a {kind}"
    )


def _repeat_defaults(b: Binder) -> None:
    """A single number for a pack attribute stands in every position."""
    for param in b.operator.params:
        if param.kind == "attr" and param.pack and not isinstance(b.attrs[param.name], Packed):
            b.attrs[param.name] = Packed((b.attrs[param.name],) * b.length(param.name))


def _check_attribute_ranges(b: Binder) -> None:
    for param in b.operator.params:
        if param.kind != "attr" or param.range is None:
            continue
        inside = sx.Compare((param.range.lo, sx.Id(param.name), param.range.hi), ("<=", "<"))
        found = b.attrs[param.name]
        for item in found.items if isinstance(found, Packed) else (found,):
            held = value(b.ctx(), b.scope().bind({param.name: item}), inside)
            if isinstance(held, Num) and not held.value:
                lo, hi = (_text(value(b.ctx(), b.scope(), side)) for side in (param.range.lo, param.range.hi))
                raise error(
                    "R0208",
                    f"`{b.operator.name}`: attribute `{param.name}` is outside {lo}..{hi}",
                    param.span,
                    "declared here",
                    help=f"pass a value from {lo} on and below {hi}",
                )


def _text(found: Value) -> str:
    return show(found.expr) if isinstance(found, Idx) else str(found.value) if isinstance(found, Num) else "?"


# ---------------------------------------------------------------- pack lengths


def _names(b: Binder) -> PackNames:
    return PackNames(b.packs, frozenset(), "")


def _dims(param: sx.Param) -> tuple[sx.Node, ...]:
    return param.type.dims or () if isinstance(param.type, sx.TensorType) else ()


def _lengths(b: Binder) -> None:
    """Find the length of every pack of the signature: from ranks, from `where`, from attributes, from how the body uses them."""
    lengths, names = b.lengths, _names(b)
    _lengths_from_where(b)
    for param in b.operator.params:
        given = b.given.sizes.get(param.name)
        if param.kind == "size" and param.pack and isinstance(given, tuple):
            lengths.fix(param.name, len(given), param.span)
    for param in _tensor_params(b.operator):
        args = _args_of(b, param)
        for each in (d for d in _dims(param) if isinstance(d, sx.Each)):
            lengths.fix(each.name, len(args), param.span)
        if not any(isinstance(d, sx.Broadcast) for d in _dims(param)):
            for arg in args:
                _count(b, param, arg)
        _rank_equations(b, param, args)
    lengths.solve()
    _broadcast_lengths(b)
    lengths.solve()
    constrain_all(b.operator, lengths, names)
    lengths.solve()


def _lengths_from_where(b: Binder) -> None:
    for cond in b.operator.where:
        for pack, other in _rank_conditions(cond):
            scope = Scope(dict(b.attrs))
            if any(isinstance(n, sx.Id) and n.name not in b.attrs for n in descendants(other)):
                continue
            found = value(b.ctx(), scope, other)
            if isinstance(found, Num) and isinstance(found.value, int):
                if found.value < 0:
                    raise error(
                        "R0209",
                        f"`{b.operator.name}`: `rank({pack})` would be {found.value}",
                        cond.span,
                        "required here",
                        help="count axes from 0; a negative axis is `rank + axis`",
                    )
                b.lengths.fix(pack, found.value, cond.span)


def _rank_conditions(cond: sx.Node) -> Iterable[tuple[str, sx.Node]]:
    match cond:
        case sx.Compare((sx.Apply("rank", (sx.Id(pack),)), other), ("==",)) | sx.Compare(
            (other, sx.Apply("rank", (sx.Id(pack),))), ("==",)
        ):
            yield pack, other
        case sx.Binary("and", lhs, rhs):
            yield from _rank_conditions(lhs)
            yield from _rank_conditions(rhs)
        case _:
            return


def _count(b: Binder, param: sx.Param, arg: Arg) -> None:
    pattern = _names(b).pattern(_dims(param))
    if pattern is None:
        return
    rest = len(arg.dims) - sum(1 for p in pattern if p is None)
    keys = [p for p in pattern if isinstance(p, str)]
    if rest < 0 or (rest != 0 and not keys):
        raise wrong_rank(b, param, arg)
    b.lengths.count(keys, rest, param.span)
    known = [b.lengths.get(k) for k in keys]
    if sum(k for k in known if k is not None) > rest:
        raise wrong_rank(b, param, arg)
    if all(k is not None for k in known) and sum(k for k in known if k is not None) != rest:
        raise wrong_rank(b, param, arg)


def wrong_rank(b: Binder, param: sx.Param, arg: Arg) -> Exception:
    assert isinstance(param.type, sx.TensorType)
    return error(
        "R0201",
        f"`{b.operator.name}`: `{param.name}` has {counted(len(arg.dims), 'dimension')}, which does not fit its declaration",
        param.span,
        f"given shape [{_shape(arg)}]",
        help="give an argument of the declared rank",
    )


def _shape(arg: Arg) -> str:
    return ", ".join("*".join(show(s) for s in dim) for dim in arg.dims)


def _rank_equations(b: Binder, param: sx.Param, args: Sequence[Arg]) -> None:
    """`ids: i64[K.., rank(A)]`: a dimension that tells the length of a pack."""
    dims = _dims(param)
    for arg in args:
        if dims and isinstance(dims[-1], sx.Apply) and dims[-1].name == "rank" and len(arg.dims):
            inner, size = dims[-1].args[0], affine.constant(_product(arg.dims[-1]) or px.Name("?"))
            if isinstance(inner, sx.Id) and size is not None:
                b.lengths.fix(inner.name, size, param.span)


def _product(sizes: Iterable[px.Expr]) -> px.Expr | None:
    out: px.Expr | None = affine.ONE
    for size in sizes:
        out = None if out is None else affine.times(out, size)
    return out


def _broadcast_lengths(b: Binder) -> None:
    """A pack that only broadcast parameters mention is as long as the longest of them."""
    longest: dict[str, int] = {}
    for param in _tensor_params(b.operator):
        for dim in _dims(param):
            if isinstance(dim, sx.Broadcast) and isinstance(dim.value, sx.Pack):
                for key in _names(b).mentioned(dim.value):
                    if b.lengths.get(key) is None:
                        singles = sum(1 for d in _dims(param) if not isinstance(d, sx.Broadcast))
                        longest[key] = max([longest.get(key, 0), *(len(a.dims) - singles for a in _args_of(b, param))])
    for key, length in longest.items():
        b.lengths.fix(key, length)


def constrain_all(operator: sx.Operator, lengths: Lengths, names: PackNames) -> None:
    """Add what types and equations say about the lengths of the signature's packs."""
    patterns = signature_patterns(operator, names)
    tensors = [p.name for p in (*operator.params, *operator.results) if p.kind == "tensor"]
    for param in (*operator.params, *operator.results):
        for dim in _dims(param):
            constrain(lengths, names, dim, {})
    for number, clause in enumerate(operator.clauses):
        own = clause_names(number, clause, names.outer, tensors)
        each = any(isinstance(c, sx.Each) for c in clause.conds)
        if not each:
            constrain(lengths, own, clause, patterns)


def signature_patterns(operator: sx.Operator, names: PackNames) -> dict[str, Pattern]:
    out: dict[str, Pattern] = {}
    for param in (*operator.params, *operator.results):
        if isinstance(param.type, sx.TensorType):
            pattern = names.pattern(param.type.dims or ())
            if pattern is not None:
                out[param.name] = pattern
    return out


# ---------------------------------------------------------------- shapes


@dataclass(frozen=True, slots=True)
class Expected:
    """One dimension as declared, packs expanded: a size variable, a composite of them, or an expression; possibly broadcast."""

    node: sx.Node
    position: int | None
    broadcast: bool = False


def expected(b: Binder, param: sx.Param, copy: int) -> list[Expected]:
    """Return the declared dimensions of a parameter with packs expanded. `copy`: which of its tensors, for `each`."""
    out: list[Expected] = []
    for dim in _dims(param):
        broadcast = isinstance(dim, sx.Broadcast)
        inner = dim.value if isinstance(dim, sx.Broadcast) else dim
        match inner:
            case sx.Pack(node):
                key = next(iter(_names(b).mentioned(inner)), None)
                if key is None:
                    raise error(
                        "T0130",
                        "`..` repeats an expression for every position of its packs, but this one has no pack",
                        inner.span,
                        "nothing to repeat",
                        help="name a pack, or delete the `..`",
                    )
                out += [Expected(node, k, broadcast) for k in range(b.length(key))]
            case sx.Each(name):
                out.append(Expected(sx.Id(name, span=inner.span), copy, broadcast))
            case _:
                out.append(Expected(inner, None, broadcast))
    return out


@dataclass(frozen=True, slots=True)
class Met:
    """A dimension of an argument against its declaration."""

    param: sx.Param
    arg: Arg
    expected: Expected
    sizes: tuple[px.Expr, ...]


def _match_shapes(b: Binder) -> None:
    met: list[Met] = []
    for param in _tensor_params(b.operator):
        for copy, arg in enumerate(_args_of(b, param)):
            met += _aligned(b, param, arg, copy)
    pending = [m for m in met if not _is_one(m)]
    progress = True
    while pending and progress:
        left = [m for m in pending if not _meet(b, m)]
        progress = len(left) < len(pending)
        pending = left
    for m in met:
        if _is_one(m):
            _meet_one(b, m)
    for m in pending:
        if not _meet(b, m, last=True):
            raise error(
                "R0210",
                f"`{b.operator.name}`: a dimension of `{m.param.name}` does not tell its sizes",
                m.param.span,
                f"given shape [{_shape(m.arg)}]",
                help="at most one factor of a composite dimension may be unknown",
            )


def _is_one(m: Met) -> bool:
    return m.expected.broadcast and _product(m.sizes) == affine.ONE


def _aligned(b: Binder, param: sx.Param, arg: Arg, copy: int) -> list[Met]:
    wanted = expected(b, param, copy)
    missing = len(wanted) - len(arg.dims)
    if missing < 0 or not all(e.broadcast for e in wanted[:missing]):
        raise wrong_rank(b, param, arg)
    return [Met(param, arg, e, sizes) for e, sizes in zip(wanted[missing:], arg.dims, strict=True)]


def _key(b: Binder, node: sx.Id, position: int | None) -> str:
    return node.name if position is None or node.name not in b.packs else f"{node.name}.{position}"


def _meet_one(b: Binder, m: Met) -> None:
    """A broadcast dimension of size one gives its size only if nothing else does."""
    if isinstance(m.expected.node, sx.Id):
        b.sizes.setdefault(_key(b, m.expected.node, m.expected.position), affine.ONE)


def _meet(b: Binder, m: Met, last: bool = False) -> bool:
    """Unify one dimension; False when it cannot be decided yet."""
    node, position = m.expected.node, m.expected.position
    match node:
        case sx.Id(name) if name not in b.attrs:
            whole = _product(m.sizes)
            if whole is None:
                raise NeedsStatic(
                    frozenset(n for s in m.sizes for n in affine.names(s)), m.param.span, "is multiplied in a composite dimension"
                )
            _unify(b, m, _key(b, node, position), whole)
            return True
        case sx.TupleOf(items):
            return _meet_composite(b, m, items)
        case sx.Apply("sum", (sx.Pack(sx.Id(name)),)) if name in b.packs and not _all_known(b, name):
            return _meet_sum(b, m, name)
        case _:
            return _meet_expression(b, m, last)


def _all_known(b: Binder, name: str) -> bool:
    length = b.lengths.get(name)
    return length is not None and all(f"{name}.{k}" in b.sizes for k in range(length))


def _meet_sum(b: Binder, m: Met, name: str) -> bool:
    given = b.given.sizes.get(name)
    if not isinstance(given, tuple):
        return False
    for position, size in enumerate(given):
        b.sizes[f"{name}.{position}"] = size
    return _meet_expression(b, m, True)


def _unify(b: Binder, m: Met, key: str, size: px.Expr) -> None:
    if key not in b.sizes:
        b.sizes[key] = size
        b.sources[key] = (m.param.name, _shape(m.arg))
        return
    known = b.sizes[key]
    if known == size:
        return
    first, second = affine.constant(known), affine.constant(size)
    if first is not None and second is not None:
        raise disagree(b, m, key, known, size)
    if first is None and second is not None:
        b.sizes[key] = size
    b.context = affine.conj(b.context, affine.compare("==", known, size)) if b.given.checks_ranges is False else b.context


def disagree(b: Binder, m: Met, key: str, known: px.Expr, size: px.Expr) -> Exception:
    other, shape = b.sources.get(key, ("an attribute", ""))
    return error(
        "R0202",
        f"`{b.operator.name}`: `{other}` gives {key} = {show(known)}, `{m.param.name}` gives {key} = {show(size)}",
        m.param.span,
        f"declared with {key.split('.')[0]}",
        notes=(f"`{other}` has shape [{shape}]", f"`{m.param.name}` has shape [{_shape(m.arg)}]"),
        help="the two sizes must be equal",
    )


def _meet_composite(b: Binder, m: Met, items: Sequence[sx.Node]) -> bool:
    parts = _parts(b, items)
    scope = b.scope()
    sizes: list[px.Expr | None] = []
    for node, position in parts:
        sizes.append(_known_size(b, scope, node, position))
    if len(m.sizes) == len(parts) and len(parts) > 1:
        for (node, position), size, known in zip(parts, m.sizes, sizes, strict=True):
            if known is None and isinstance(node, sx.Id):
                _unify(b, m, _key(b, node, position), size)
        return True
    unknown = [k for k, s in enumerate(sizes) if s is None]
    if len(unknown) > 1:
        return False
    known_product = _product(s for s in sizes if s is not None)
    whole = _product(m.sizes)
    if known_product is None or whole is None:
        raise NeedsStatic(
            frozenset(n for s in (*m.sizes, *(s for s in sizes if s is not None)) for n in affine.names(s)),
            m.param.span,
            "is a factor of a composite dimension",
        )
    if not unknown:
        if known_product != whole and (affine.constant(known_product) is not None and affine.constant(whole) is not None):
            raise error(
                "R0203",
                f"`{b.operator.name}`: a dimension of `{m.param.name}` has {show(whole)} elements and should have {show(known_product)}",
                m.param.span,
                f"given shape [{_shape(m.arg)}]",
                help="change the argument, or the attributes it depends on",
            )
        return True
    node, position = parts[unknown[0]]
    assert isinstance(node, sx.Id)
    b.sizes[_key(b, node, position)] = _quotient(b, m, whole, known_product, node.name)
    b.sources[_key(b, node, position)] = (m.param.name, _shape(m.arg))
    return True


def _quotient(b: Binder, m: Met, whole: px.Expr, divisor: px.Expr, name: str) -> px.Expr:
    d = affine.constant(divisor)
    if d is None:
        raise NeedsStatic(affine.names(divisor), m.param.span, "is a factor of a composite dimension")
    if d == 0:
        return affine.ZERO
    if affine.mod(whole, d) == affine.ZERO:
        return affine.floordiv(whole, d)
    if affine.constant(whole) is not None:
        raise error(
            "R0203",
            f"`{b.operator.name}`: {show(whole)} elements of `{m.param.name}` do not divide into {d} equal parts",
            m.param.span,
            f"given shape [{_shape(m.arg)}]",
            help=f"make the dimension a multiple of {d}",
        )
    if not b.given.checks_ranges:
        raise NeedsStatic(affine.names(whole), m.param.span, f"must be a multiple of {d}")
    b.invented.append(name)
    return px.Name(name)


def _parts(b: Binder, items: Sequence[sx.Node]) -> list[tuple[sx.Node, int | None]]:
    out: list[tuple[sx.Node, int | None]] = []
    for item in items:
        if isinstance(item, sx.Pack):
            key = next(iter(_names(b).mentioned(item)), None)
            if key is None:
                raise error(
                    "T0130",
                    "`..` repeats an expression for every position of its packs, but this one has no pack",
                    item.span,
                    "nothing to repeat",
                    help="name a pack, or delete the `..`",
                )
            out += [(item.value, k) for k in range(b.length(key))]
        else:
            out.append((item, None))
    return out


def _known_size(b: Binder, scope: Scope, node: sx.Node, position: int | None) -> px.Expr | None:
    if isinstance(node, sx.Id) and node.name not in b.attrs:
        return b.sizes.get(_key(b, node, position))
    return _evaluate(b, scope, node, position)


def _evaluate(b: Binder, scope: Scope, node: sx.Node, position: int | None) -> px.Expr | None:
    """Return a size expression; None while a size in it is unknown. Raises T0154 for a name that no parameter introduces."""
    mentioned = {n.name for n in descendants(node) if isinstance(n, sx.Id | sx.Index)}
    unknown = {
        n for n in mentioned if n not in scope.values and (n in b.packs or any(n == name for name, _ in dimension_names(b.operator)))
    }
    if unknown:
        return None
    strange = [n for n in mentioned if n not in scope.values and n not in CONSTANTS and n not in {p.name for p in b.operator.params}]
    if strange:
        known = [name for name, _ in dimension_names(b.operator)]
        raise error(
            "T0154",
            f"no parameter tells the size `{strange[0]}`",
            node.span,
            "used here",
            help=did_you_mean(strange[0], known, f"use it in the shape of a parameter, or declare `size {strange[0]}`"),
        )
    if position is not None:
        scope = scope.at([n for n in mentioned if isinstance(scope.values.get(n), Packed) and not _indexed(node, n)], position)
    match value(b.ctx(), scope, node):
        case Idx(e):
            return e
        case Num(number) if isinstance(number, bool | int) or number.is_integer():
            return px.Int(int(number))
        case Val(_, _, _, _, factors):
            raise NeedsStatic(factors, node.span, "is a factor of a size")
        case _:
            raise error("T0151", "a size is a whole number", node.span, "not whole", help="use `//` to divide sizes")


def _indexed(node: sx.Node, name: str) -> bool:
    """Return whether a pack is mentioned only as `name[…]`, folded, or asked for its rank, so that it is not projected."""
    return not any(isinstance(n, sx.Id) and n.name == name for n in _outside_packs(node))


def _outside_packs(node: sx.Node) -> list[sx.Node]:
    if isinstance(node, sx.Pack) or (isinstance(node, sx.Apply) and node.name in ("rank", "before")):
        return []
    out = [node]
    for child in children(node):
        out += _outside_packs(child)
    return out


def _meet_expression(b: Binder, m: Met, last: bool) -> bool:
    want = _evaluate(b, b.scope(), m.expected.node, m.expected.position)
    whole = _product(m.sizes)
    if want is None or whole is None:
        return False
    if want == whole:
        return True
    if affine.constant(want) is not None and affine.constant(whole) is not None:
        raise error(
            "R0203",
            f"`{b.operator.name}`: a dimension of `{m.param.name}` is {show(whole)} and should be {show(want)}",
            m.param.span,
            f"given shape [{_shape(m.arg)}]",
            help="change the argument, or the sizes it depends on",
        )
    b.context = affine.conj(b.context, affine.compare("==", want, whole))
    return True


# ---------------------------------------------------------------- sizes


def _size_parameters(b: Binder) -> None:
    for param in b.operator.params:
        if param.kind != "size":
            continue
        given = b.given.sizes.get(param.name)
        if not param.pack:
            if given is None:
                b.sizes.setdefault(param.name, px.Name(param.name))
            elif isinstance(given, tuple):
                raise error(
                    "R0207",
                    f"`{b.operator.name}`: size `{param.name}` is one number",
                    param.span,
                    "declared here",
                    help="pass a whole number",
                )
            else:
                b.sizes[param.name] = given
            continue
        length = b.length(param.name)
        if given is not None and not isinstance(given, tuple):
            given = (given,) * length
        for k in range(length):
            b.sizes.setdefault(f"{param.name}.{k}", px.Name(f"{param.name}.{k}") if given is None else given[k])
    for name in b.given.sizes:
        if not any(p.kind == "size" and p.name == name for p in b.operator.params):
            known = [p.name for p in b.operator.params if p.kind == "size"]
            raise error(
                "R0206",
                f"`{b.operator.name}` has no size `{name}`",
                b.operator.name_span,
                "declared here",
                help=did_you_mean(name, known, f"its sizes are {', '.join(known) or 'none'}"),
            )


def _name_sizes(b: Binder) -> None:
    """With `named`, sizes stay symbolic; those that must be numbers keep their value. Missing packs of length 0 need nothing."""
    if not b.given.named:
        return
    for key, size in b.sizes.items():
        if key not in b.given.static and (affine.constant(size) is None or not _only_broadcast_one(b, key)):
            b.sizes[key] = px.Name(key)


def _only_broadcast_one(b: Binder, key: str) -> bool:
    return b.sizes[key] == affine.ONE and key not in b.sources


def _conditions(b: Binder) -> None:
    scope = b.scope()
    for cond in b.operator.where:
        for node, at in expand(scope, (cond,)):
            _condition(b, node, value(b.ctx(), at, node))
    for param in b.operator.params:
        if param.kind == "size" and param.range is not None and not param.pack:
            inside = sx.Compare((param.range.lo, sx.Id(param.name), param.range.hi), ("<=", "<"), span=param.span)
            _condition(b, inside, value(b.ctx(), scope, inside))


def _condition(b: Binder, node: sx.Node, found: Value) -> None:
    match arith.truth(found, node.span):
        case True:
            return
        case False:
            raise error(
                "R0209",
                f"`{b.operator.name}`: a condition on its parameters does not hold",
                node.span,
                "required here",
                help="change the arguments or attributes that it mentions",
            )
        case px.Compare() | px.And() | px.Or() | px.Not() as cond:
            b.context = affine.conj(b.context, cond)
        case _:
            raise error(
                "T0147",
                "a condition on parameters depends on data",
                node.span,
                "decided only at run time",
                help="`where` speaks of sizes and attributes",
            )


# ---------------------------------------------------------------- the result


def _binding(b: Binder) -> Binding:
    values = dict(b.scope().values)
    for name in b.packs:
        if name not in values and b.lengths.get(name) == 0:
            values[name] = Packed(())
    parameters: list[ir.Tensor] = []
    params: dict[str, Tensor | tuple[Tensor, ...]] = {}
    for param in _tensor_params(b.operator):
        params[param.name] = _parameter(b, values, param, parameters)
    results: dict[str, Tensor | tuple[Tensor, ...]] = {}
    names: list[str] = []
    for param in b.operator.results:
        results[param.name] = _result(b, values, param)
        found = results[param.name]
        names += [t.name for t in found] if isinstance(found, tuple) else [found.name]
    sizes = _symbolic(b, values, parameters, [t for r in results.values() for t in (r if isinstance(r, tuple) else (r,))])
    patterns = {n: _fixed(b, p) for n, p in signature_patterns(b.operator, _names(b)).items()}
    patterns |= {t.name: patterns[n] for n, g in {**params, **results}.items() if isinstance(g, tuple) and n in patterns for t in g}
    return Binding(b.operator, b.dtypes, values, params, results, tuple(parameters), tuple(names), patterns, b.each_sizes, sizes, b.context)


def _fixed(b: Binder, pattern: Pattern) -> Pattern:
    return tuple(b.lengths.get(p) if isinstance(p, str) else p for p in pattern)


def _symbolic(b: Binder, values: Mapping[str, Value], parameters: Sequence[ir.Tensor], results: Sequence[Tensor]) -> tuple[str, ...]:
    """Return the sizes that are not numbers, in the order in which the parameters mention them."""
    seen: dict[str, None] = {}
    for tensor in parameters:
        for size in tensor.shape:
            seen.update(dict.fromkeys(sorted(affine.names(size))))
    for item in values.values():
        for part in item.items if isinstance(item, Packed) else (item,):
            if isinstance(part, Idx):
                seen.update(dict.fromkeys(sorted(affine.names(part.expr))))
    for result in results:
        for dim in result.dims:
            for size in dim.sizes:
                seen.update(dict.fromkeys(sorted(affine.names(size))))
    return tuple(seen)


def _parameter(b: Binder, values: Mapping[str, Value], param: sx.Param, out: list[ir.Tensor]) -> Tensor | tuple[Tensor, ...]:
    args = _args_of(b, param)
    if not args and not param.each:
        if param.default is None:
            raise error(
                "R0205", f"`{b.operator.name}` needs argument `{param.name}`", param.span, "declared without a default", help="pass it"
            )
        constant = value(b.ctx(), Scope(values), param.default)
        if not isinstance(constant, Num):
            raise error("T0152", f"the default of `{param.name}` must be a number", param.span, "declared here", help="`= 0`")
        dims = tuple(
            Dim(_sizes(b, values, e), tuple(None for _ in _sizes(b, values, e)), isinstance(e.node, sx.TupleOf))
            for e in expected(b, param, 0)
        )
        return Tensor(param.name, _dtype(b, param, None), dims, 0, constant)
    tensors = []
    for copy, arg in enumerate(args):
        name = f"{param.name}.{copy}" if param.each else param.name
        tensors.append(_stored(b, values, param, arg, copy, name, out))
    return tuple(tensors) if param.each else tensors[0]


def _dtype(b: Binder, param: sx.Param, arg: Arg | None) -> DType:
    assert isinstance(param.type, sx.TensorType)
    name = param.type.dtype
    if name in b.dtypes:
        return b.dtypes[name]
    if name in DTYPES:
        return DTYPES[name]
    if arg is not None:
        return arg.dtype
    raise error("T0104", f"the element type of `{param.name}` cannot be told", param.span, "declared here", help="name a type or a generic")


def _sizes(b: Binder, values: Mapping[str, Value], e: Expected) -> tuple[px.Expr, ...]:
    scope = Scope(values)
    if isinstance(e.node, sx.TupleOf):
        parts = _parts(b, e.node.items)
        return tuple(_size(b, scope, node, position) for node, position in parts)
    return (_size(b, scope, e.node, e.position),)


def _size(b: Binder, scope: Scope, node: sx.Node, position: int | None) -> px.Expr:
    found = _evaluate(b, scope, node, position)
    if found is None:
        names = sorted({n.name for n in descendants(node) if isinstance(n, sx.Id) and n.name not in scope.values})
        raise error(
            "R0210",
            f"`{b.operator.name}`: the size `{', '.join(names)}` is not known",
            node.span,
            "no argument tells it",
            help=f"pass an argument that has it, or declare `size {names[0] if names else 'n'}`",
        )
    return found


def _stored(b: Binder, values: Mapping[str, Value], param: sx.Param, arg: Arg, copy: int, name: str, out: list[ir.Tensor]) -> Tensor:
    """Enter one tensor parameter and return how the body sees it."""
    wanted = expected(b, param, copy)
    missing = len(wanted) - len(arg.dims)
    dims: list[Dim] = []
    shape: list[px.Expr] = []
    grouping: list[int] = []
    for k, e in enumerate(wanted):
        sizes = _sizes(b, values, e)
        composite = isinstance(e.node, sx.TupleOf)
        if k < missing:
            dims.append(Dim(sizes, (None,) * len(sizes), composite))
        elif e.broadcast and _product(arg.dims[k - missing]) == affine.ONE and sizes != (affine.ONE,):
            dims.append(Dim(sizes, (None,) * len(sizes), composite))
            shape.append(affine.ONE)
            grouping.append(1)
        else:
            dims.append(Dim(sizes, tuple(range(len(shape), len(shape) + len(sizes))), composite))
            shape += sizes
            grouping.append(len(sizes))
    lo = hi = None
    if param.range is not None:
        lo, hi = (_size(b, Scope(values), side, None) for side in (param.range.lo, param.range.hi))
        if not b.given.checks_ranges and (arg.lo, arg.hi) != (lo, hi):
            lo = hi = None
    dtype = _dtype(b, param, arg)
    declared = (lo, hi) if lo is not None and hi is not None else None
    groups = tuple(grouping) if any(g != 1 for g in grouping) else ()
    out.append(ir.Tensor(name, dtype, tuple(shape), groups, declared, span=param.span))
    return Tensor(name, dtype, tuple(dims), len(shape), lo=lo, hi=hi)


def _result(b: Binder, values: Mapping[str, Value], param: sx.Param) -> Tensor | tuple[Tensor, ...]:
    copies = 1
    if param.each:
        each = next((d.name for d in _dims(param) if isinstance(d, sx.Each)), None)
        if each is None:
            raise error(
                "T0142",
                f"`each {param.name}` needs a dimension `each N`",
                param.span,
                "declared here",
                help="write which dimension differs",
            )
        copies = b.length(each)
    tensors = []
    for copy in range(copies):
        dims, axis = [], 0
        for e in expected(b, param, copy):
            sizes = _sizes(b, values, e)
            _check_extents(b, param, sizes)
            dims.append(Dim(sizes, tuple(range(axis, axis + len(sizes))), isinstance(e.node, sx.TupleOf)))
            axis += len(sizes)
        name = f"{param.name}.{copy}" if param.each else param.name
        tensors.append(Tensor(name, _dtype(b, param, None), tuple(dims), axis))
    return tuple(tensors) if param.each else tensors[0]


def _check_extents(b: Binder, param: sx.Param, sizes: Sequence[px.Expr]) -> None:
    for size in sizes:
        number = affine.constant(size)
        if number is not None and number < 0:
            raise error(
                "R0211",
                f"`{b.operator.name}`: `{param.name}` would have a dimension of {number} elements",
                param.span,
                "declared here",
                help="change the arguments or attributes that its shape depends on",
            )
        if number is None and not affine.surely_nonnegative(size, {}):
            b.context = affine.conj(b.context, affine.compare(">=", size, affine.ZERO))


__all__ = ["Arg", "Given", "TensorArg", "bind"]
