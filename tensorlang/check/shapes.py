"""Shapes of arguments against declared dimensions: what each tells of the operator's sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check import typed
from tensorlang.check.binder import Binder, args_of, dims_of, pack_names, show_shape, tensor_params, wrong_rank
from tensorlang.check.bindings import Arg
from tensorlang.check.packs import dimension_names, linear_names
from tensorlang.check.problems import NeedsStatic, did_you_mean, error, labelled
from tensorlang.check.scalar import value
from tensorlang.check.scope import Scope
from tensorlang.check.types import CONSTANTS
from tensorlang.check.values import Idx, Num, Packed, Val
from tensorlang.check.walk import children, descendants
from tensorlang.diagnostics import Edit
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.printer import show
from tensorlang.tensor.notation import bare


@dataclass(frozen=True, slots=True)
class Expected:
    """One dimension as declared, packs expanded: a size variable, a composite of them, or an expression; possibly broadcast."""

    node: sx.Node
    position: int | None
    broadcast: bool = False


def expected(b: Binder, param: sx.Param, copy: int) -> list[Expected]:
    """Return the declared dimensions of a parameter with packs expanded. `copy`: which of its tensors, for `each`."""
    out: list[Expected] = []
    for dim in dims_of(param):
        broadcast = isinstance(dim, sx.Broadcast)
        inner = dim.value if isinstance(dim, sx.Broadcast) else dim
        match inner:
            case sx.Pack(node):
                key = next(iter(pack_names(b).mentioned(inner)), None)
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
class MatchedDim:
    """A dimension of an argument against its declaration."""

    param: sx.Param
    arg: Arg
    expected: Expected
    sizes: tuple[px.Expr, ...]


def match_shapes(b: Binder) -> None:
    met: list[MatchedDim] = []
    for param in tensor_params(b.operator):
        for copy, arg in enumerate(args_of(b, param)):
            met += _aligned(b, param, arg, copy)
    pending = sorted((m for m in met if not _is_one(m)), key=lambda m: not isinstance(m.expected.node, sx.Id | sx.TupleOf))
    progress = True
    while pending and progress:
        left = [m for m in pending if not _meet(b, m)]
        progress = len(left) < len(pending)
        pending = left
    for m in met:
        if _is_one(m):
            _meet_one(b, m)
    if pending:
        _take_given(b)
    for m in pending:
        if not _meet(b, m, last=True):
            from tensorlang.check.reachability import unbound_sizes  # which needs more than a call does

            told = next(unbound_sizes(b.operator), None)
            note, help = _untold(b, m)
            raise error(
                "R0210",
                f"`{b.operator.name}`: a dimension of `{m.param.name}` does not tell its sizes",
                m.param.span,
                f"given shape [{show_shape(m.arg)}]",
                notes=(note,) if note else (),
                help=told.help if told is not None else help,
            )


def _untold(b: Binder, m: MatchedDim) -> tuple[str, str]:
    """Return why a dimension does not tell the sizes in it that nothing else tells, and what to do about it."""
    mentioned = dict.fromkeys(n.name for n in descendants(m.expected.node) if isinstance(n, sx.Id))
    unknown = [name for name in mentioned if name not in b.sizes and name not in b.attrs]
    left_out = {
        name: param.name
        for param in reversed(tensor_params(b.operator))
        for name in unknown
        if sx.Id(name) in dims_of(param) and not args_of(b, param)
    }
    if left_out:
        size, param = next(iter(left_out.items()))
        return f"`{param}`, which tells {size}, is left out", f"pass `{param}`, or declare `size {size}` and pass that"
    if len(unknown) == 1:
        (size,) = unknown
        known = ", ".join(f"{name} = {bare(b.sizes[name])}" for name in mentioned if name in b.sizes)
        same = f"`{show(m.expected.node)}` is {bare(affine.product(m.sizes) or px.Int(0))} for every {size}"
        return same + (f" where {known}" if known else ""), f"declare `size {size}` and pass it"
    return "", "at most one size of a dimension may be unknown"


def _take_given(b: Binder) -> None:
    """Enter the sizes that the caller gives, for dimensions that do not tell them: `2*n`."""
    for param in b.operator.params:
        given = b.given.sizes.get(param.name) if param.kind == "size" and not param.pack else None
        if given is not None and not isinstance(given, tuple):
            b.sizes.setdefault(param.name, given)


def _is_one(m: MatchedDim) -> bool:
    return m.expected.broadcast and affine.product(m.sizes) == affine.ONE


def _aligned(b: Binder, param: sx.Param, arg: Arg, copy: int) -> list[MatchedDim]:
    wanted = expected(b, param, copy)
    missing = len(wanted) - len(arg.dims)
    if missing < 0 or not all(e.broadcast for e in wanted[:missing]):
        raise wrong_rank(b, param, arg)
    return [MatchedDim(param, arg, e, sizes) for e, sizes in zip(wanted[missing:], arg.dims, strict=True)]


def _key(b: Binder, node: sx.Id, position: int | None) -> str:
    return node.name if position is None or node.name not in b.packs else f"{node.name}.{position}"


def _meet_one(b: Binder, m: MatchedDim) -> None:
    """A broadcast dimension of size one gives its size only if nothing else does."""
    if isinstance(m.expected.node, sx.Id):
        b.sizes.setdefault(_key(b, m.expected.node, m.expected.position), affine.ONE)


def _meet(b: Binder, m: MatchedDim, last: bool = False) -> bool:
    """Unify one dimension; False when it cannot be decided yet."""
    node, position = m.expected.node, m.expected.position
    match node:
        case sx.Id(name) if name not in b.attrs:
            whole = affine.product(m.sizes)
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


def _meet_sum(b: Binder, m: MatchedDim, name: str) -> bool:
    given = b.given.sizes.get(name)
    if not isinstance(given, tuple):
        return False
    for position, size in enumerate(given):
        b.sizes[f"{name}.{position}"] = size
    return _meet_expression(b, m, True)


def _unify(b: Binder, m: MatchedDim, key: str, size: px.Expr) -> None:
    if key not in b.sizes:
        b.sizes[key] = size
        b.sources[key] = (m.param.name, show_shape(m.arg))
        return
    known = b.sizes[key]
    if known == size:
        return
    first, second = affine.constant(known), affine.constant(size)
    if _differ(known, size):
        raise disagree(b, m, key, known, size)
    if first is None and second is not None:
        b.sizes[key] = size
    b.context = affine.conj(b.context, affine.compare("==", known, size)) if b.given.checks_ranges is False else b.context


def _differ(a: px.Expr, b: px.Expr) -> bool:
    """Tell whether two sizes are never equal, whatever those are that they are made of."""
    return affine.constant(affine.sub(a, b)) not in (None, 0)


def disagree(b: Binder, m: MatchedDim, key: str, previous: px.Expr, size: px.Expr) -> Exception:
    other, shape = b.sources.get(key, ("an attribute", ""))
    return error(
        "R0202",
        f"`{b.operator.name}`: `{other}` gives {key} = {bare(previous)}, `{m.param.name}` gives {key} = {bare(size)}",
        m.param.span,
        f"declared with {key.split('.')[0]}",
        notes=(f"`{other}` has shape [{shape}]", f"`{m.param.name}` has shape [{show_shape(m.arg)}]"),
        help="the two sizes must be equal",
    )


def _meet_composite(b: Binder, m: MatchedDim, items: Sequence[sx.Node]) -> bool:
    parts = parts_of(b, items)
    scope = b.scope()
    sizes: list[px.Expr | None] = []
    for node, position in parts:
        sizes.append(_known_size(b, scope, node, position))
    if len(m.sizes) == len(parts) > 1 and all(known in (None, size) for known, size in zip(sizes, m.sizes, strict=True)):
        told = True
        for (node, position), size, known in zip(parts, m.sizes, sizes, strict=True):
            if known is None and isinstance(node, sx.Id):
                _unify(b, m, _key(b, node, position), size)
            elif known is None:
                told &= _solved(b, m, node, position, size)
        return told
    unknown = [k for k, s in enumerate(sizes) if s is None]
    if len(unknown) > 1:
        return False
    known_product = affine.product(s for s in sizes if s is not None)
    whole = affine.product(m.sizes)
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
                f"`{b.operator.name}`: a dimension of `{m.param.name}` has {bare(whole)} elements and should have {bare(known_product)}",
                m.param.span,
                f"given shape [{show_shape(m.arg)}]",
                help="change the argument, or the attributes it depends on",
            )
        return True
    node, position = parts[unknown[0]]
    d = affine.constant(known_product)
    if d is None:
        raise NeedsStatic(affine.name_set(known_product), m.param.span, "is a factor of a composite dimension")
    part = affine.ZERO if d == 0 else _quotient(b, m, whole, d, node.name if isinstance(node, sx.Id) else show(node))
    if part is None:
        raise error(
            "R0203",
            f"`{b.operator.name}`: {bare(whole)} elements of `{m.param.name}` do not divide into {d} equal parts",
            m.param.span,
            f"given shape [{show_shape(m.arg)}]",
            help=f"make the dimension a multiple of {d}",
        )
    if isinstance(node, sx.Id):
        _tell(b, m, _key(b, node, position), part)
        return True
    return _solved(b, m, node, position, part)


def _tell(b: Binder, m: MatchedDim, key: str, size: px.Expr) -> None:
    b.sizes[key] = size
    b.sources[key] = (m.param.name, show_shape(m.arg))


def _quotient(b: Binder, m: MatchedDim, whole: px.Expr, divisor: int, name: str) -> px.Expr | None:
    """Return what the size `name` is, a part of `whole`; None where `divisor` does not divide it. Raises NeedsStatic where a caller's sizes
    do not say so."""
    if affine.mod(whole, divisor) == affine.ZERO:
        return affine.floor(whole, divisor)
    if affine.constant(whole) is not None:
        return None
    if not b.given.checks_ranges:
        raise NeedsStatic(affine.name_set(whole), m.param.span, f"must be a multiple of {divisor}")
    return px.Name(name)


def _solved(b: Binder, m: MatchedDim, node: sx.Node, position: int | None, whole: px.Expr) -> bool:
    """Solve `node == whole` for the one size that is not known, which stands in it once or several times with a factor that is a number:
    `2*N + 1`. False where there are several, or none that the dimension tells. Raises R0203 where no whole number solves it."""
    scope = b.scope()
    unknown = {n for n in linear_names(node) if n not in scope.values and n not in b.packs}
    if len(unknown) != 1:
        return False
    (name,) = unknown
    hidden = f"?{name}"
    try:
        form = evaluate(b, Scope({**scope.values, name: Idx(px.Name(hidden), True)}), node, position)
    except NeedsStatic as need:
        if need.sizes <= {hidden}:  # a product of the size with itself
            return False
        raise NeedsStatic(need.sizes - {hidden}, need.span, need.what) from None
    if form is None:
        return False
    factor = affine.terms(form)[0].get(px.Name(hidden), 0)
    rest = affine.sub(form, affine.scale(factor, px.Name(hidden)))
    if factor == 0 or hidden in affine.name_set(rest):
        return False
    difference = affine.sub(whole, rest) if factor > 0 else affine.sub(rest, whole)
    number, size = affine.constant(difference), _quotient(b, m, difference, abs(factor), name)
    if size is None or (number is not None and number < 0):
        raise _no_size(b, m, node, name, factor, rest, whole)
    if number is None:
        b.context = affine.conj(b.context, affine.compare(">=", difference, affine.ZERO))
    _tell(b, m, name, size)
    return True


def _no_size(b: Binder, m: MatchedDim, node: sx.Node, name: str, factor: int, rest: px.Expr, whole: px.Expr) -> Exception:
    """Return R0203 for an extent that `factor*name + rest` is for no size."""
    least, extent = affine.constant(rest), affine.constant(whole)
    step, side = abs(factor), "more" if factor > 0 else "less"
    if least is None or extent is None:
        may_be = f"`{bare(rest)}` or {side}" if step == 1 else f"`{bare(rest)}`, or a multiple of {step} {side}"
    else:
        lower = max((extent - least) // factor, 0)
        near = [n for k in (lower, lower + 1) if (n := factor * k + least) >= 0 and n != extent]
        may_be = " or ".join(map(str, sorted(near)))
    return error(
        "R0203",
        f"`{b.operator.name}`: a dimension of `{m.param.name}` is {bare(whole)}, and `{show(node)}` is that for no whole `{name}`",
        m.param.span,
        f"given shape [{show_shape(m.arg)}]",
        help=f"it may be {may_be}",
    )


def parts_of(b: Binder, items: Sequence[sx.Node]) -> list[tuple[sx.Node, int | None]]:
    out: list[tuple[sx.Node, int | None]] = []
    for item in items:
        if isinstance(item, sx.Pack):
            key = next(iter(pack_names(b).mentioned(item)), None)
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
    return evaluate(b, scope, node, position)


def evaluate(b: Binder, scope: Scope, node: sx.Node, position: int | None) -> px.Expr | None:
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
            help=did_you_mean(strange[0], known, _how_to_tell(node, strange[0])),
        )
    scalar = next((p for p in tensor_params(b.operator) if p.name in mentioned and p.name not in scope.values), None)
    if scalar is not None:
        raise labelled(
            "T0154",
            f"a size cannot come from data, and `{scalar.name}` is a tensor",
            [(node.span, "used as a size"), (scalar.span, "a value, known when the operator runs")],
            help=f"let the caller tell it before the data is there: declare `size {scalar.name}`",
            edits=(Edit(scalar.span, f"size {scalar.name}"),) if not dims_of(scalar) else (),
        )
    if position is not None:
        scope = scope.at([n for n in mentioned if isinstance(scope.values.get(n), Packed) and not _indexed(node, n)], position)
    match value(b.ctx(), scope, node):
        case Idx(e):
            return e
        case Num(number) if isinstance(number, bool | int) or number.is_integer():
            return typed.whole(number, node.span)
        case Val(_, _, _, _, factors):
            raise NeedsStatic(factors, node.span, "is a factor of a size")
        case _:
            raise error("T0151", "a size is a whole number", node.span, "not whole", help="use `//` to divide sizes")


def _how_to_tell(node: sx.Node, name: str) -> str:
    if isinstance(node, sx.Id):
        return f"use it in the shape of a parameter, or declare `size {name}`"
    return f"declare `size {name}`: `{show(node)}` does not tell it"


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


def _meet_expression(b: Binder, m: MatchedDim, last: bool) -> bool:
    want = evaluate(b, b.scope(), m.expected.node, m.expected.position)
    whole = affine.product(m.sizes)
    if whole is None:
        return False
    if want is None:
        return _solved(b, m, m.expected.node, m.expected.position, whole)
    if want == whole:
        return True
    if _differ(want, whole):
        raise error(
            "R0203",
            f"`{b.operator.name}`: a dimension of `{m.param.name}` is {bare(whole)} and should be {bare(want)}",
            m.param.span,
            f"given shape [{show_shape(m.arg)}]",
            help="change the argument, or the sizes it depends on",
        )
    b.context = affine.conj(b.context, affine.compare("==", want, whole))
    return True
