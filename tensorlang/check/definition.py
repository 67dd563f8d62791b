"""Checking operators where they are defined: with symbolic sizes, for packs of length 0 to 3, and proofs.

One operator is instantiated once per choice of pack lengths that its signature allows. Element types are the representative of their
class, attributes have their defaults, and those without one the values of `trials`; what is proven is said to be proven for these alone.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product
from typing import NamedTuple

from codegen.dtypes import DTYPES, DType
from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check.binder import Given, TensorArg
from tensorlang.check.bindings import Arg
from tensorlang.check.body import elaborate
from tensorlang.check.depth import too_deep
from tensorlang.check.inline import inline
from tensorlang.check.instantiate import not_static
from tensorlang.check.lint import hidden_terms, warnings_in
from tensorlang.check.module import Module
from tensorlang.check.packs import dimension_names
from tensorlang.check.problems import NeedsStatic
from tensorlang.check.reachability import check_satisfiable, unbound_sizes, unreachable_clauses
from tensorlang.check.signature import bind
from tensorlang.check.trials import SMALL, Attributes, Pack, choices, required_attributes
from tensorlang.check.types import CLASSES, REPRESENTATIVE
from tensorlang.check.walk import conjuncts, descendants
from tensorlang.diagnostics import CompileError, Diagnostic
from tensorlang.syntax import nodes as sx
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.prove import prove

_LENGTHS = (1, 2, 0, 3)
_SAMPLE = 3
"""What a size is when it must be a number."""
_SAMPLES = 32
"""How many choices of attributes are tried for one program to look at."""


@dataclass(frozen=True, slots=True)
class Examined:
    """What is known of one operator: its mistakes, and where there are none what they are proven absent for.

    `assumed`: values of attributes without a default and of sizes that had to be numbers, as `steps = 1`; `unchecked`: why nothing could
    be checked, or ""."""

    operator: str
    problems: tuple[Diagnostic, ...] = ()
    assumed: tuple[str, ...] = ()
    unchecked: str = ""

    def __str__(self) -> str:
        if self.unchecked:
            return f"`{self.operator}` is not checked where it is defined: {self.unchecked}"
        return f"`{self.operator}` is checked for {', '.join(self.assumed)} alone, and for other values where it is called"


@dataclass(frozen=True, slots=True)
class Checked:
    """The mistakes of a file, and the operators whose check says less than all."""

    problems: tuple[Diagnostic, ...]
    partly: tuple[Examined, ...]


def checked(module: Module) -> Checked:
    """Return every mistake in the operators and reducers that a file itself declares, one of a callee only where it is declared, and
    what of them was not checked."""
    examined = [examine(module, name) for name in module.operators if name in module.declared]
    called = {n.name for o in module.operators.values() for c in o.clauses for n in descendants(c) if isinstance(n, sx.Apply)}
    unbound = {name: list(unbound_sizes(module.operators[name])) for name in sorted(module.declared - called)}
    out = [problem for found in examined for problem in found.problems if problem.code != "R0210" or not unbound.get(found.operator)]
    out += [problem for problems in unbound.values() for problem in problems]
    out += [problem for name in module.reducers if name in module.declared_reducers for problem in _laws(module, name)]
    return Checked(tuple(without_repetition(out)), tuple(e for e in examined if not e.problems and (e.assumed or e.unchecked)))


def _laws(module: Module, name: str) -> list[Diagnostic]:
    """Return what breaks the promises of a reducer. They are tested on arrays: a file without reducers does not wait for NumPy."""
    from tensorlang.check.laws import check_laws

    return check_laws(module, name)


def check_module(module: Module) -> list[Diagnostic]:
    """Return every mistake in the operators and reducers that a file itself declares."""
    return list(checked(module).problems)


def without_repetition(problems: list[Diagnostic]) -> list[Diagnostic]:
    """Drop what is said again of an operator where it is inlined: a label of it is the place of the same mistake elsewhere."""
    places = [(d.code, d.labels[0].span) for d in problems if d.labels]
    kept: list[Diagnostic] = []
    for position, problem in enumerate(problems):
        elsewhere = {(problem.code, label.span) for label in problem.labels[1:]}
        again = problem.labels and (problem.code, problem.labels[0].span) in places[:position]
        if not again and not elsewhere & {p for k, p in enumerate(places) if k != position}:
            kept.append(problem)
    return kept


def warnings_of(file: sx.File, module: Module) -> list[Diagnostic]:
    """Return what a file says and hardly means: what its text alone tells, and the clauses that are proven to apply nowhere."""
    out = [*warnings_in(file), *hidden_terms(file, module)]
    for name in sorted(module.declared):
        out += unreachable_in(module, name)
    return sorted(out, key=lambda d: d.labels[0].span.start)


def unreachable_in(module: Module, name: str) -> list[Diagnostic]:
    """Return W0106 for the clauses of an operator that are proven to apply nowhere."""
    operator = module.operators[name]
    if not any(c.conds or c.otherwise for c in operator.clauses):
        return []
    program = representative_program(module, name)
    return list(unreachable_clauses(operator, program)) if program is not None else []


def check_operator(module: Module, name: str) -> list[Diagnostic]:
    """Return the mistakes of one operator, proofs included, each once; [] when it is right for every choice that was tried."""
    return list(examine(module, name).problems)


def examine(module: Module, name: str) -> Examined:
    """Return what checking an operator for every choice of pack lengths finds. Attributes without a default take values that its signature
    allows; for each choice of texts and bools, one that is right is enough: which others are, calls tell."""
    steps = examining(module, name)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Examined = end.value
            return found


def examining(module: Module, name: str, right: list[Attributes] | None = None) -> Generator[tuple[Diagnostic, ...], None, Examined]:
    """Do what `examine` does, and yield what is likely to be found: nothing after each choice of pack lengths for which nothing is wrong,
    and the mistakes for attributes that were right before. `right` holds these, and then those that are right now."""
    module, operator = module.defining_module(name), module.operators[name]
    before, now, missing = list(right or ()), list[Attributes](), required_attributes(operator)
    assumed: list[str] = []
    unfit: tuple[Diagnostic, ...] = ()
    for assignments in choices(operator):
        wrong: list[Diagnostic] = []
        for attrs in sorted(assignments, key=lambda attrs: attrs not in before):
            found = yield from _for_all_lengths(module, operator, attrs)
            if found.problems and not missing:
                return Examined(name, tuple(_once(found.problems)))
            if not found.problems:
                assumed.append(_told(missing, attrs, found.numbers))
                now.append(attrs)
                break
            if _only_this_choice(found.problems):
                unfit = unfit or found.problems
            else:
                wrong = wrong or _once(found.problems)
                if attrs in before:
                    yield tuple(wrong)
        else:
            if wrong:
                return Examined(name, tuple(wrong))
    if assumed:
        if right is not None:
            right[:] = now
        return Examined(name, assumed=tuple(dict.fromkeys(a for a in assumed if a)))
    reason = f"no values that were tried for {_names(missing)} fit" + (f" ({unfit[0].title})" if unfit else "")
    return Examined(name, unchecked=reason)


@dataclass(frozen=True, slots=True)
class _Outcome:
    problems: tuple[Diagnostic, ...]
    numbers: frozenset[str] = frozenset()
    """Sizes that had to be numbers."""


def _for_all_lengths(
    module: Module, operator: sx.Operator, attrs: Mapping[str, object]
) -> Generator[tuple[Diagnostic, ...], None, _Outcome]:
    """Return the mistakes of an operator with these attributes, for the first choice of pack lengths that has any; yield () after each that
    has none."""
    misfits: list[tuple[Diagnostic, ...]] = []
    numbers: frozenset[str] = frozenset()
    for lengths in _choices(operator):
        found = _check(module, operator, lengths, attrs)
        if found.problems and not _only_this_choice(found.problems):
            return found
        if not misfits and any(p.kind == "tensor" and p.default is not None for p in operator.params):
            omitted = _check(module, operator, lengths, attrs, omitting=True)
            if any(d.code != "R0210" for d in omitted.problems):
                return omitted
        misfits.append(found.problems)
        numbers |= found.numbers
        if not found.problems:
            yield ()
    if all(misfits):
        return _Outcome(min(misfits, key=lambda problems: problems[0].code.startswith("R")))
    return _Outcome((), numbers)


def _told(missing: Sequence[sx.Param], attrs: Mapping[str, object], numbers: frozenset[str]) -> str:
    values = [f"{p.name} = {_shown(attrs[p.name])}" for p in missing if p.name in attrs]
    sizes = sorted({f"{name.partition('.')[0]}.." if "." in name else name for name in numbers})
    return ", ".join([*values, *(f"{name} = {_SAMPLE}" for name in sizes)])


def _shown(given: object) -> str:
    return f'"{given}"' if isinstance(given, str) else str(given).lower() if isinstance(given, bool) else str(given)


def _names(params: Sequence[sx.Param]) -> str:
    return ", ".join(f"`{p.name}`" for p in params)


def _once(problems: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return one diagnostic a place and code."""
    found: dict[tuple[str, object], Diagnostic] = {}
    for problem in problems:
        where = problem.labels[0].span if problem.labels else None
        found.setdefault((problem.code, where and (where.start, where.end)), problem)
    return list(found.values())


class Representative(NamedTuple):
    """An operator with its own sizes as symbols, and the attributes that it has there; of others it has the defaults."""

    program: Program
    attrs: Mapping[str, object]


def representative_program(
    module: Module, name: str, attrs: Mapping[str, object] | None = None, sizes: Mapping[str, int] | None = None
) -> Program | None:
    """Return the program of `representative`."""
    found = representative(module, name, attrs, sizes)
    return found.program if found is not None else None


def representative(
    module: Module, name: str, attrs: Mapping[str, object] | None = None, sizes: Mapping[str, int] | None = None
) -> Representative | None:
    """Return an operator with its own sizes as symbols, for the first choice of attributes and pack lengths that fits, or None where none
    does. Whole attributes without a default stand at a small number. `attrs` and `sizes` are those that are known."""
    module, operator = module.defining_module(name), module.operators[name]
    for tried in islice(chain.from_iterable(choices(operator, (_SAMPLE, *SMALL))), _SAMPLES):
        for lengths in _choices(operator):
            told = {**tried, **(attrs or {})}
            made = _sampled(module, operator, lengths, told, dict(sizes or {}))
            if made is not None:
                return Representative(made, told)
    return None


def _sampled(
    module: Module, operator: sx.Operator, lengths: Mapping[str, int], attrs: Mapping[str, object], numbers: dict[str, int]
) -> Program | None:
    for _ in range(8):
        try:
            return elaborate(module, bind(module, operator, _given(operator, lengths, attrs, numbers, omitting=False)), inline)
        except NeedsStatic as need:
            numbers |= dict.fromkeys(need.sizes, _SAMPLE)
        except (CompileError, RecursionError):
            return None
    return None


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
) -> _Outcome:
    numbers: dict[str, int] = {}
    while True:
        try:
            given = _given(operator, lengths, attrs, numbers, omitting)
            program = elaborate(module, bind(module, operator, given), inline)
            check_satisfiable(operator, program)
            prove(program)
            return _Outcome((), frozenset(numbers))
        except NeedsStatic as need:
            if need.sizes <= numbers.keys():
                return _Outcome(not_static(operator, need).diagnostics)
            numbers |= dict.fromkeys(need.sizes, _SAMPLE)
        except RecursionError:
            return _Outcome(too_deep(operator).diagnostics)
        except CompileError as problem:
            return _Outcome(problem.diagnostics)


def _only_this_choice(problems: tuple[Diagnostic, ...]) -> bool:
    """Whether the choice of lengths does not fit the signature, which says nothing about the operator unless no choice fits."""
    return all(d.code in ("R0201", "R0208", "R0209", "T0131", "T0158", "R0213") for d in problems)


# ---------------------------------------------------------------- stand-in arguments


def _given(
    operator: sx.Operator, lengths: Mapping[str, int], attrs: Mapping[str, object], numbers: Mapping[str, int], omitting: bool
) -> Given:
    most = max(lengths.values(), default=1)
    attrs = {n: v.of(lengths.get(n, most)) if isinstance(v, Pack) else v for n, v in attrs.items()}
    for cond in (part for where in operator.where for part in conjuncts(where)):
        attrs |= _told_by_rank(operator, cond, lengths)
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


def _told_by_rank(operator: sx.Operator, cond: sx.Node, lengths: Mapping[str, int]) -> dict[str, object]:
    """`where rank(A) == axis`: the attribute follows from the length."""
    match cond:
        case sx.Compare((sx.Apply("rank", (sx.Id(pack),)), sx.Id(attr)), ("==",)) | sx.Compare(
            (sx.Id(attr), sx.Apply("rank", (sx.Id(pack),))), ("==",)
        ):
            return {attr: lengths[pack]} if pack in lengths and any(p.name == attr for p in operator.params) else {}
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
            case sx.Binary("//" | "%" as op, lhs, rhs) if (by := affine.constant(self.extent(rhs, position)) or 0) > 0:
                return (affine.floor if op == "//" else affine.mod)(self.extent(lhs, position), by)
            case sx.Binary("*", lhs, rhs) if (whole := affine.mul(self.extent(lhs, position), self.extent(rhs, position))) is not None:
                return whole
            case _:
                raise NeedsStatic(frozenset(n.name for n in descendants(node) if isinstance(n, sx.Id)), node.span, "is part of a dimension")

    def named(self, name: str, position: int | None) -> px.Expr:
        if name in self.attrs:
            given = self.attrs[name]
            return px.Int(int(str(given[position or 0] if isinstance(given, tuple) else given)))
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
