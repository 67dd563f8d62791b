"""Checking operators where they are defined: with symbolic sizes, for packs of length 0 to 3, and proofs.

One operator is instantiated once per choice of pack lengths that its signature allows. Element types are the representative of their
class, attributes have their defaults; numbers without a default stand in for floats, bools and functions, while an operator with a whole
or text attribute that nothing tells is checked where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from codegen.dtypes import DTYPES, DType
from polyhedral import expr as px
from tensorlang.check.binder import Given, TensorArg
from tensorlang.check.bindings import Arg
from tensorlang.check.body import elaborate
from tensorlang.check.inline import inline
from tensorlang.check.instantiate import must_be_known, too_deep
from tensorlang.check.laws import check_laws
from tensorlang.check.module import Module
from tensorlang.check.packs import dimension_names
from tensorlang.check.problems import NeedsStatic
from tensorlang.check.signature import bind
from tensorlang.check.types import CLASSES, REPRESENTATIVE
from tensorlang.check.walk import descendants
from tensorlang.diagnostics import CompileError, Diagnostic
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import affine
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.prove import prove

_LENGTHS = (1, 2, 0, 3)
_SAMPLE = 3
"""What a size is when it must be a number."""


def check_module(module: Module) -> list[Diagnostic]:
    """Return every mistake in the operators and reducers that a file itself declares; one of a callee only where it is declared."""
    out: list[Diagnostic] = []
    for name in module.operators:
        if name in module.own:
            out += check_operator(module, name)
    for name in module.reducers:
        if name in module.own_reducers:
            out += check_laws(module, name)
    return _without_repetition(out)


def _without_repetition(problems: list[Diagnostic]) -> list[Diagnostic]:
    """Drop what is said again of an operator where it is inlined: a label of it is the place of the same mistake elsewhere."""
    places = [(d.code, d.labels[0].span) for d in problems if d.labels]
    kept: list[Diagnostic] = []
    for position, problem in enumerate(problems):
        elsewhere = {(problem.code, label.span) for label in problem.labels[1:]}
        again = problem.labels and (problem.code, problem.labels[0].span) in places[:position]
        if not again and not elsewhere & {p for k, p in enumerate(places) if k != position}:
            kept.append(problem)
    return kept


def check_operator(module: Module, name: str) -> list[Diagnostic]:
    """Return the mistakes of one operator, proofs included, each once; [] when it is right for every choice that was tried."""
    operator = module.operators[name]
    attrs = _attributes(operator)
    if attrs is None:
        return []
    misfits: list[tuple[Diagnostic, ...]] = []
    for lengths in _choices(operator):
        problems = _check(module, operator, lengths, attrs)
        if problems and not _only_this_choice(problems):
            return _once(problems)
        if not misfits and any(p.kind == "tensor" and p.default is not None for p in operator.params):
            omitted = _check(module, operator, lengths, attrs, omitting=True)
            if any(d.code != "R0210" for d in omitted):
                return _once(omitted)
        misfits.append(problems)
    if all(misfits):
        return _once(min(misfits, key=lambda problems: problems[0].code.startswith("R")))
    return []


def _once(problems: tuple[Diagnostic, ...]) -> list[Diagnostic]:
    """Return one diagnostic a place and code."""
    found: dict[tuple[str, object], Diagnostic] = {}
    for problem in problems:
        where = problem.labels[0].span if problem.labels else None
        found.setdefault((problem.code, where and (where.start, where.end)), problem)
    return list(found.values())


def sample_program(module: Module, name: str) -> Program | None:
    """Return an operator with its own sizes as symbols, for the first choice of pack lengths that fits, or None when no stand-in for its
    attributes is to be had. Whole attributes without a default stand at a small number."""
    operator = module.operators[name]
    attrs = _attributes(operator, whole=_SAMPLE)
    if attrs is None:
        return None
    for lengths in _choices(operator):
        numbers: dict[str, int] = {}
        for _ in range(8):
            try:
                given = _given(operator, lengths, attrs, numbers, omitting=False)
                if given is None:
                    break
                return elaborate(module, bind(module, operator, given), inline)
            except NeedsStatic as need:
                numbers |= dict.fromkeys(need.sizes, _SAMPLE)
            except (CompileError, RecursionError):
                break
    return None


def _attributes(operator: sx.Operator, whole: int | None = None) -> dict[str, object] | None:
    """Return stand-ins for attributes without a default, `whole` for whole numbers; None where there is none to be had."""
    told = (
        {n.name for cond in operator.where for n in descendants(cond) if isinstance(n, sx.Id)} if _has_rank_condition(operator) else set()
    )
    out: dict[str, object] = {}
    for param in operator.params:
        if param.kind != "attr" or param.default is not None or param.name in told:
            continue
        kind = param.type.name if isinstance(param.type, sx.Id) else "int"
        match kind:
            case "float":
                out[param.name] = 0.5
            case "bool":
                out[param.name] = True
            case "fn" if (function := _FUNCTIONS.get(_arity(operator, param.name))) is not None:
                out[param.name] = function
            case "int" if whole is not None and not param.pack:
                out[param.name] = whole
            case _:
                return None
    for generic in operator.generics:
        if not _told_by_argument(operator, generic.name):
            out[generic.name] = REPRESENTATIVE.get(generic.bound or "any", generic.bound or "f32")
    return out


_FUNCTIONS = {1: "tanh", 2: "pow", 3: "hard_sigmoid"}
"""Stand-ins for function attributes, by number of arguments."""


def _arity(operator: sx.Operator, function: str) -> int:
    return next((len(n.args) for n in descendants(operator) if isinstance(n, sx.Apply) and n.name == function), 1)


def _told_by_argument(operator: sx.Operator, generic: str) -> bool:
    return any(p.kind == "tensor" and isinstance(p.type, sx.TensorType) and p.type.dtype == generic for p in operator.params)


def _has_rank_condition(operator: sx.Operator) -> bool:
    return any(isinstance(n, sx.Apply) and n.name == "rank" for cond in operator.where for n in descendants(cond))


def _choices(operator: sx.Operator) -> Iterator[dict[str, int]]:
    """Yield lengths of the packs of the signature: all alike first, then (for two packs) mixed."""
    packs = list(dict.fromkeys(n for n, pack in dimension_names(operator) if pack))
    if not packs:
        yield {}
        return
    copies = {d.name for p in (*operator.params, *operator.results) for d in _dims(p) if isinstance(d, sx.Each)}
    packs = [p for p in packs if p not in copies]
    two = dict.fromkeys(copies, 2)
    for length in _LENGTHS if packs else (1,):
        yield {**dict.fromkeys(packs, length), **two}
    if len(packs) == 2:
        for a, b in product((0, 1, 2), repeat=2):
            if a != b:
                yield {packs[0]: a, packs[1]: b, **two}


def _check(
    module: Module, operator: sx.Operator, lengths: Mapping[str, int], attrs: Mapping[str, object], omitting: bool = False
) -> tuple[Diagnostic, ...]:
    numbers: dict[str, int] = {}
    while True:
        try:
            given = _given(operator, lengths, attrs, numbers, omitting)
            if given is None:
                return ()
            prove(elaborate(module, bind(module, operator, given), inline))
            return ()
        except NeedsStatic as need:
            if need.sizes <= numbers.keys():
                return must_be_known(operator, need).diagnostics
            numbers |= dict.fromkeys(need.sizes, _SAMPLE)
        except RecursionError:
            return too_deep(operator).diagnostics
        except CompileError as problem:
            return problem.diagnostics


def _only_this_choice(problems: tuple[Diagnostic, ...]) -> bool:
    """Whether the choice of lengths does not fit the signature, which says nothing about the operator unless no choice fits."""
    return all(d.code in ("R0201", "R0209", "T0131", "R0213") for d in problems)


# ---------------------------------------------------------------- stand-in arguments


def _given(
    operator: sx.Operator, lengths: Mapping[str, int], attrs: Mapping[str, object], numbers: Mapping[str, int], omitting: bool
) -> Given | None:
    attrs = dict(attrs)
    for cond in operator.where:
        attrs |= _told_by_rank(operator, cond, lengths, attrs)
    if any(p.kind == "attr" and p.default is None and p.name not in attrs for p in operator.params):
        return None
    stand_in = _StandIn(operator, lengths, attrs, numbers)
    tensors: dict[str, TensorArg] = {}
    for param in operator.params:
        if param.kind == "tensor":
            tensors[param.name] = None if omitting and param.default is not None else stand_in.argument(param)
    sizes = {
        p.name: tuple(stand_in.size(f"{p.name}.{k}") for k in range(lengths[p.name]))
        for p in operator.params
        if p.kind == "size" and p.pack
    }
    return Given(tensors, attrs, sizes)


def _told_by_rank(operator: sx.Operator, cond: sx.Node, lengths: Mapping[str, int], attrs: Mapping[str, object]) -> dict[str, object]:
    """`where rank(A) == axis`: the attribute follows from the length."""
    match cond:
        case sx.Compare((sx.Apply("rank", (sx.Id(pack),)), sx.Id(attr)), ("==",)) | sx.Compare(
            (sx.Id(attr), sx.Apply("rank", (sx.Id(pack),))), ("==",)
        ):
            return {attr: lengths[pack]} if pack in lengths and any(p.name == attr for p in operator.params) else {}
        case sx.Binary("and", lhs, rhs):
            return _told_by_rank(operator, lhs, lengths, attrs) | _told_by_rank(operator, rhs, lengths, attrs)
        case _:
            return {}


class _StandIn:
    """Arguments whose sizes are the operator's own size variables."""

    def __init__(self, operator: sx.Operator, lengths: Mapping[str, int], attrs: Mapping[str, object], numbers: Mapping[str, int]) -> None:
        self.operator, self.lengths, self.attrs, self.numbers = operator, lengths, attrs, numbers
        self.bounds = {g.name: g.bound for g in operator.generics}

    def size(self, name: str) -> px.Expr:
        return px.Int(self.numbers[name]) if name in self.numbers else px.Name(name)

    def argument(self, param: sx.Param) -> TensorArg:
        if param.each:
            each = next((d.name for d in _dims(param) if isinstance(d, sx.Each)), None)
            return tuple(self.one(param, k) for k in range(self.lengths.get(each or "", 2)))
        return self.one(param, 0)

    def one(self, param: sx.Param, copy: int) -> Arg:
        assert isinstance(param.type, sx.TensorType)
        dims: list[tuple[px.Expr, ...]] = []
        for dim in _dims(param):
            dims += self.dims(dim.value if isinstance(dim, sx.Broadcast) else dim, copy)
        return Arg(self.dtype(param.type.dtype), tuple(dims))

    def dims(self, dim: sx.Node, copy: int) -> list[tuple[px.Expr, ...]]:
        match dim:
            case sx.Pack(inner):
                length = next(
                    (self.lengths[n.name] for n in descendants(inner) if isinstance(n, sx.Id | sx.Index) and n.name in self.lengths), 0
                )
                return [(self.extent(inner, k),) for k in range(length)]
            case sx.Each(name):
                return [(self.size(f"{name}.{copy}"),)]
            case sx.TupleOf(items):
                return [tuple(s for item in items for sizes in self.dims(item, copy) for s in sizes)]
            case _:
                return [(self.extent(dim, None),)]

    def extent(self, node: sx.Node, position: int | None) -> px.Expr:
        """Return a size expression over the stand-ins; what is no sum of sizes becomes a number that the binder then checks."""
        match node:
            case sx.Number(text) if text.isdigit():
                return px.Int(int(text))
            case sx.Id(name):
                return self.named(name, position)
            case sx.Apply("rank", (sx.Id(pack),)) if pack in self.lengths:
                return px.Int(self.lengths[pack])
            case sx.Apply("sum", (sx.Pack(sx.Id(pack)),)) if pack in self.lengths:
                return affine.add(*(self.size(f"{pack}.{k}") for k in range(self.lengths[pack])))
            case sx.Binary("+", lhs, rhs):
                return affine.add(self.extent(lhs, position), self.extent(rhs, position))
            case sx.Binary("-", lhs, rhs):
                return affine.sub(self.extent(lhs, position), self.extent(rhs, position))
            case sx.Binary("*", lhs, rhs) if (whole := affine.mul(self.extent(lhs, position), self.extent(rhs, position))) is not None:
                return whole
            case _:
                raise NeedsStatic(frozenset(n.name for n in descendants(node) if isinstance(n, sx.Id)), node.span, "is part of a dimension")

    def named(self, name: str, position: int | None) -> px.Expr:
        if name in self.attrs:
            return px.Int(int(str(self.attrs[name])))
        param = next((p for p in self.operator.params if p.kind == "attr" and p.name == name), None)
        if param is not None and isinstance(param.default, sx.Number):
            return px.Int(int(param.default.text))
        return self.size(name if position is None or name not in self.lengths else f"{name}.{position}")

    def dtype(self, name: str) -> DType:
        if name in DTYPES:
            return DTYPES[name]
        bound = self.bounds.get(name, name if name in CLASSES else None) or "any"
        return DTYPES[REPRESENTATIVE.get(bound, bound)]


def _dims(param: sx.Param) -> tuple[sx.Node, ...]:
    return param.type.dims or () if isinstance(param.type, sx.TensorType) else ()
