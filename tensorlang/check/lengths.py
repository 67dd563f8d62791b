"""How long the packs of a signature are: from ranks, from `where`, from attributes, from how the body uses them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check.binder import Binder, args_of, dims_of, pack_names, tensor_params, wrong_rank
from tensorlang.check.bindings import Arg
from tensorlang.check.packs import Lengths, PackNames, Pattern, clause_names, constrain
from tensorlang.check.problems import error
from tensorlang.check.scalar import value
from tensorlang.check.scope import Scope
from tensorlang.check.values import Num
from tensorlang.check.walk import conjuncts, descendants
from tensorlang.syntax import nodes as sx


def find_lengths(b: Binder) -> None:
    """Find the length of every pack of the signature: from ranks, from `where`, from attributes, from how the body uses them."""
    lengths, names = b.lengths, pack_names(b)
    _lengths_from_where(b)
    for param in b.operator.params:
        given = b.given.sizes.get(param.name)
        if param.kind == "size" and param.pack and isinstance(given, tuple):
            lengths.fix(param.name, len(given), param.span)
    for param in tensor_params(b.operator):
        args = args_of(b, param)
        for each in (d for d in dims_of(param) if isinstance(d, sx.Each)):
            lengths.fix(each.name, len(args), param.span)
        if not any(isinstance(d, sx.Broadcast) for d in dims_of(param)):
            for arg in args:
                _count(b, param, arg)
        _rank_equations(b, param, args)
    lengths.solve()
    _broadcast_lengths(b)
    lengths.solve()
    constrain_all(b.operator, lengths, names)
    lengths.solve()


def _lengths_from_where(b: Binder) -> None:
    for cond in (part for where in b.operator.where for part in conjuncts(where)):
        for pack, other in _rank_conditions(cond):
            scope = Scope(dict(b.attrs))
            if any(isinstance(n, sx.Id) and n.name not in b.attrs for n in descendants(other)):
                continue
            found = value(b.ctx(), scope, other)
            if isinstance(found, Num) and isinstance(found.value, int):
                length = _from_the_end(b, pack, other, found.value) if found.value < 0 else found.value
                if length < 0:
                    raise error(
                        "R0209",
                        f"`{b.operator.name}`: `rank({pack})` would be {length}",
                        cond.span,
                        "required here",
                        help="axes count from 0, negative ones from the end: -1 is the last",
                    )
                b.lengths.fix(pack, length, cond.span)


def _from_the_end(b: Binder, pack: str, axis: sx.Node, given: int) -> int:
    """Return what a negative axis is counted from the start, of the first parameter that begins with `pack`; the attribute becomes that."""
    for param in tensor_params(b.operator) if isinstance(axis, sx.Id) else ():
        first = next(iter(dims_of(param)), None)
        if first == sx.Pack(sx.Id(pack)) and (args := args_of(b, param)):
            length = len(args[0].dims) + given
            if length >= 0 and isinstance(axis, sx.Id):
                b.attrs[axis.name] = Num(length)
            return length
    return given


def _rank_conditions(cond: sx.Node) -> Iterable[tuple[str, sx.Node]]:
    match cond:
        case sx.Compare((sx.Apply("rank", (sx.Id(pack),)), other), ("==",)) | sx.Compare(
            (other, sx.Apply("rank", (sx.Id(pack),))), ("==",)
        ):
            yield pack, other
        case _:
            return


def _count(b: Binder, param: sx.Param, arg: Arg) -> None:
    pattern = pack_names(b).pattern(dims_of(param))
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


def _rank_equations(b: Binder, param: sx.Param, args: Sequence[Arg]) -> None:
    """`ids: i64[K.., rank(A)]`: a dimension that tells the length of a pack."""
    dims = dims_of(param)
    for arg in args:
        if dims and isinstance(dims[-1], sx.Apply) and dims[-1].name == "rank" and len(arg.dims):
            inner, size = dims[-1].args[0], affine.constant(affine.product(arg.dims[-1]) or px.Name("?"))
            if isinstance(inner, sx.Id) and size is not None:
                b.lengths.fix(inner.name, size, param.span)


def _broadcast_lengths(b: Binder) -> None:
    """A pack that only broadcast parameters mention is as long as the longest of them."""
    longest: dict[str, int] = {}
    for param in tensor_params(b.operator):
        for dim in dims_of(param):
            if isinstance(dim, sx.Broadcast) and isinstance(dim.value, sx.Pack):
                for key in pack_names(b).mentioned(dim.value):
                    if b.lengths.get(key) is None:
                        singles = sum(1 for d in dims_of(param) if not isinstance(d, sx.Broadcast))
                        longest[key] = max([longest.get(key, 0), *(len(a.dims) - singles for a in args_of(b, param))])
    for key, length in longest.items():
        b.lengths.fix(key, length)


def constrain_all(operator: sx.Operator, lengths: Lengths, names: PackNames) -> None:
    """Add what types and equations say about the lengths of the signature's packs."""
    patterns = signature_patterns(operator, names)
    tensors = [p.name for p in (*operator.params, *operator.results) if p.kind == "tensor"]
    for param in (*operator.params, *operator.results):
        for dim in dims_of(param):
            constrain(lengths, names, dim, {})
    for number, clause in enumerate(operator.clauses):
        own = clause_names(number, clause, names.outer, tensors)
        each = any(isinstance(c, sx.Each) for c in clause.conds)
        if not each:
            constrain(lengths, own, clause, patterns, {p.name: p.span for p in (*operator.params, *operator.results)})


def signature_patterns(operator: sx.Operator, names: PackNames) -> dict[str, Pattern]:
    out: dict[str, Pattern] = {}
    for param in (*operator.params, *operator.results):
        if isinstance(param.type, sx.TensorType):
            pattern = names.pattern(param.type.dims or ())
            if pattern is not None:
                out[param.name] = pattern
    return out
