"""Tensor IR as text: the language itself, an operator without packs, generics and attributes.

    op conv(x: f32[C, H, W], w: f32[F, C, 3, 3]) -> (y: f32[F, H, W]) {
        y[f, p, q] = sum(c in 0..C, r in 0..3, s in 0..3) (if p + r >= 1 then x[c, p + r - 1, q + s] else 0.0) * w[f, c, r, s]
    }

Reducers that are not those of the prelude are printed before the operator. Literals are exact. What the language leaves to inference is
inferred back: the type of a literal from its partner, the box of a local tensor from the `for` ranges of its clauses. Idioms stand before
the operator, a comment to the language (`tensorlang.tensor.idioms`). Calls of kernels are clauses, and the operators that they call are
declared before the operator; which kernels stand for these is told by `shown_kernels`, and given as `externs` where the text is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, islice
from typing import assert_never

from codegen.dtypes import DType, bool_, called_dtype, compute_dtype, f32, f64, i64
from polyhedral import affine
from polyhedral.expr import FALSE, TRUE, Cond, Int, Or
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.diagnostics import plain_text
from tensorlang.externs import Kernel
from tensorlang.tensor import arith, idioms, notation
from tensorlang.tensor.nodes import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Definition,
    Dynamic,
    Expr,
    ExternCall,
    Holds,
    IndexValue,
    Let,
    Name,
    Piece,
    Program,
    Project,
    Read,
    Reduce,
    Reducer,
    Select,
    Slot,
    Tensor,
    TupleOf,
    Unary,
)
from tensorlang.tensor.notation import quoted
from tensorlang.tensor.walk import children, map_children, nodes, reads, tensor_table

LOOSE, OR, AND, NOT, COMPARE, SUM, TERM, PRODUCT, UNARY, ATOM = range(10)
_BINARY = {"+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "//": PRODUCT, "%": PRODUCT, "and": AND, "or": OR}


def show(program: Program) -> str:
    """Return `program` as an `op` of the language, after the reducers that it needs."""
    printer = _Printer(program)
    operator = printer.operator()
    return "\n".join([*_extern_declarations(program), *printer.declarations, *map(idioms.show, program.idioms), operator])


def shown_kernels(program: Program) -> dict[str, Kernel]:
    """Return the kernels of a program by the names that their operators have in its text."""
    names = _extern_names(program)
    return {names[_declared(call)]: call.kernel for call in program.externs if call.kernel is not None}


def _declared(call: ExternCall) -> tuple[str, str, Kernel | None]:
    return call.operator, call.signature.text if call.signature is not None else "", call.kernel


def _extern_names(program: Program) -> dict[tuple[str, str, Kernel | None], str]:
    """Return what each extern operator that a program calls is called in its text: by its name, where nothing else has that."""
    taken, out = {program.name}, dict[tuple[str, str, Kernel | None], str]()
    for call in program.externs:
        if _declared(call) not in out:
            names = chain((call.operator,), (f"{call.operator}.{k}" for k in count(1)))
            name = next(n for n in names if n not in taken)
            out[_declared(call)] = name
            taken.add(name)
    return out


@dataclass(slots=True)
class _Printer:
    program: Program
    declarations: list[str] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(init=False)
    names: dict[str, DType | None] = field(default_factory=dict)
    """The language types of named values."""
    tuples: dict[str, Reduce] = field(default_factory=dict)
    """Named values that are the components of a reduction."""
    reducers: dict[tuple[Reducer, tuple[str, str]], str] = field(default_factory=dict)
    slots: int = 0
    """How many slots of reads have names."""

    def __post_init__(self) -> None:
        self.tensors = tensor_table(self.program)

    # ------------------------------------------------ declarations

    def operator(self) -> str:
        program = self.program
        bare = {s.name for p in program.params for s in p.shape if not isinstance(s, Int) and hasattr(s, "name")}
        parameters = [f"size {quoted(s)}" for s in program.sizes if s not in bare]
        parameters += [f"{quoted(p.name)}: {self.type(p)}{_range(p)}" for p in program.params]
        results = [f"{quoted(r)}: {self.type(self.tensors[r])}" for r in program.results]
        where = "" if program.context == TRUE else " where " + ", ".join(notation.show_cond(c) for c in affine.conjuncts(program.context))
        clauses = [f"    {line}" for d in program.definitions for line in self.definition(d)]
        names = _extern_names(program)
        clauses += [f"    {_extern(call, names[_declared(call)])}" for call in program.externs]
        mode = "" if program.mode == "reduce" else f"{program.mode} "
        header = f"{mode}op {quoted(program.name)}({', '.join(parameters)}) -> ({', '.join(results)}){where} {{"
        return "\n".join([header, *clauses, "}"]) + "\n"

    def type(self, tensor: Tensor) -> str:
        dims = _grouped(tensor, [notation.show(s) for s in tensor.shape], "1")
        return f"{tensor.dtype}[{dims}]" if tensor.shape else str(tensor.dtype)

    def definition(self, definition: Definition) -> list[str]:
        slots = [quoted(a) for a in definition.axes]
        targets = ", ".join(quoted(t.name) + (f"[{_grouped(t, slots, '0')}]" if slots else "") for t in definition.tensors)
        return [f"{targets} = {self.value(definition, p)}{self.tail(definition, p)}" for p in definition.pieces]

    def value(self, definition: Definition, piece: Piece) -> str:
        """Return the value of a clause, cast where the language could not tell the tensor's type."""
        if len(definition.tensors) > 1:
            return self.text(piece.value)
        tensor, found = definition.tensors[0], self.lang(piece.value)
        if tensor.name in self.program.results:
            plain = found in (tensor.dtype, None)
        else:
            # A local has the type of its value; a narrow float is rounded only where a cast says so.
            rounded = isinstance(piece.value, Cast) and piece.value.dtype == tensor.dtype
            plain = found == tensor.dtype and (rounded or compute_dtype(tensor.dtype) == tensor.dtype)
        return self.text(piece.value) if plain else f"{tensor.dtype}({self.text(piece.value)})"

    def tail(self, definition: Definition, piece: Piece) -> str:
        if piece.otherwise:
            return " otherwise"
        conds = [_condition(c) for c in affine.conjuncts(piece.guard) if c != TRUE]
        local = not all(t.name in self.program.results for t in definition.tensors)
        ranges = zip(definition.axes, definition.tensors[0].shape, strict=True)
        conds = [f"{quoted(a)} in 0..{_bound(s)}" for a, s in ranges if local or self.is_ambiguous(a, s, piece.value)] + conds
        return f" for {', '.join(conds)}" if conds else ""

    def is_ambiguous(self, axis: str, extent: Affine, value: Expr) -> bool:
        """Tell whether `axis` also indexes a dimension of another extent, so that its range cannot be inferred."""
        places = ((s, e) for r in reads(value) for s, e in zip(r.index, self.tensors[r.tensor].shape, strict=True))
        return any(s == AffineName(axis) and not affine.same(e, extent) for s, e in places)

    # ------------------------------------------------ types as the language sees them

    def lang(self, e: Expr) -> DType | None:
        """Return the element type the language gives `e` (f16 for what is read from f16), None for a literal."""
        match e:
            case Const(_, dtype):
                return bool_ if dtype == bool_ else None
            case IndexValue():
                return i64
            case Holds() | Compare():
                return bool_
            case Read(tensor):
                return self.tensors[tensor].dtype
            case Name(name):
                return self.names.get(name)
            case Unary(_, value):
                return self.lang(value)
            case Project(Reduce() as reduce, position):
                return self.component(reduce, position)
            case Project(Name(name), position) if name in self.tuples:
                return self.component(self.tuples[name], position)
            case Project(value):
                return self.lang(value)
            case Binary(_, lhs, rhs) | Select(_, lhs, rhs):
                return self.join(lhs, rhs)
            case Cast(dtype):
                return dtype
            case Call(fn, args):
                of = self.join(*args)
                untyped = of is None and fn in ("bits", "from_bits")
                return None if untyped else called_dtype(fn, of or f32) if fn in ("isnan", "isinf", "bits", "from_bits") else of
            case Let(name, value, body):
                self.bind(name, value)
                return self.lang(body)
            case TupleOf(items):
                return self.lang(items[0])
            case Reduce():
                return self.component(e, 0)
            case _:
                assert_never(e)

    def component(self, reduce: Reduce, position: int) -> DType:
        """Return the type of a component of a reduction: that of the body where it is computed in the accumulator's type."""
        acc, found = reduce.reducer.dtypes[position], self.lang(reduce.body[position])
        return found if found is not None and compute_dtype(found) == acc else acc

    def bind(self, name: str, value: Expr) -> None:
        self.names[name] = self.lang(value)
        if isinstance(value, Reduce):
            self.tuples[name] = value

    def join(self, *items: Expr) -> DType | None:
        """Return the type of an operation on `items`, printed as `operands` says."""
        known = {d for d in map(self.lang, items) if d is not None}
        if len(known) == 1:
            return known.pop()
        if known:
            return compute_dtype(known.pop())
        return items[0].dtype if isinstance(items[0], Const) else None

    def operands(self, *items: Expr) -> list[Expr]:
        """Return the operands with casts where the language would see different types or no type at all."""
        langs = [self.lang(i) for i in items]
        known = {d for d in langs if d is not None}
        first = items[0]
        if not known and isinstance(first, Const):
            return [Cast(first.dtype, first), *items[1:]]
        if len(known) < 2:
            return list(items)
        return [i if d is None or compute_dtype(d) == d else Cast(compute_dtype(d), i) for i, d in zip(items, langs, strict=True)]

    # ------------------------------------------------ expressions

    def at(self, level: int, e: Expr) -> str:
        """Return `e` for a place that takes `level` or tighter."""
        text = self.text(e)
        return text if _level(e) >= level else f"({text})"

    def text(self, e: Expr) -> str:
        match e:
            case Const(value, dtype):
                return literal(value, dtype)
            case IndexValue(index):
                return f"i64({notation.show(index)})"
            case Holds(cond):
                return notation.show_cond(cond)
            case Read(tensor, index):
                return self.read(tensor, index)
            case Name(name):
                return quoted(name)
            case Unary("neg", value):
                return f"-{self.at(ATOM, value)}"
            case Unary("not", value):
                return f"not {self.at(NOT, value)}"
            case Unary(op, value):
                return f"{op}({self.text(value)})"
            case Binary(op, lhs, rhs):
                return self.binary(op, *self.operands(lhs, rhs))
            case Compare(op, lhs, rhs):
                left, right = self.operands(lhs, rhs)
                return f"{self.beside(SUM, left, right)} {op} {self.beside(SUM, right, left)}"
            case Select(cond, then, orelse):
                yes, no = self.operands(then, orelse)
                return f"if {self.at(OR, cond)} then {self.beside(OR, yes, no)} else {self.beside(OR, no, yes)}"
            case Cast(dtype, IndexValue(index), False):
                return f"{dtype}({notation.show(index)})"
            case Cast(dtype, value, saturate):
                return f"sat[{dtype}]({self.text(value)})" if saturate else f"{dtype}({self.text(value)})"
            case Call(fn, args):
                return f"{fn}({', '.join(map(self.text, self.operands(*args)))})"
            case Let(name, value, body):
                self.bind(name, value)
                whole = self.yielded(name, value, body)
                return whole or f"let {quoted(name)} = {self.at(SUM, value)} in {self.at(OR, body)}"
            case TupleOf(items):
                return f"({', '.join(map(self.text, items))})"
            case Project(Reduce() as reduce, position):
                return self.reduce(reduce, (reduce.reducer.left[position], ""))
            case Project(value, position):
                return f"project({self.text(value)}, {position})"
            case Reduce():
                return self.reduce(e)
            case _:
                assert_never(e)

    def binary(self, op: str, lhs: Expr, rhs: Expr) -> str:
        if op not in _BINARY:
            return f"{op}({self.text(lhs)}, {self.text(rhs)})"
        level = _BINARY[op]
        after = {SUM: TERM, PRODUCT: UNARY, AND: NOT, OR: AND}[level]
        return f"{self.beside(level, lhs, rhs)} {op} {self.beside(after, rhs, lhs)}"

    def beside(self, level: int, e: Expr, other: Expr) -> str:
        """Return an operand; an index needs no cast beside a value of its type."""
        if not isinstance(e, IndexValue) or isinstance(other, IndexValue | Const):
            return self.at(level, e)
        return notation.show(e.index) if isinstance(e.index, AffineName) else f"({notation.show(e.index)})"

    def read(self, tensor: str, index: tuple[Slot, ...]) -> str:
        slots, named = [], []
        for slot in index:
            if isinstance(slot, Dynamic) and self.reads_narrow(slot.value):
                self.slots += 1
                slots.append(quoted(f"slot.{self.slots}"))
                named.append(f"let {slots[-1]} = {self.text(slot.value)} in ")
            else:
                slots.append(self.text(slot.value) if isinstance(slot, Dynamic) else notation.show(slot))
        read = f"{quoted(tensor)}[{_grouped(self.tensors[tensor], slots, '0')}]" if slots else quoted(tensor)
        return f"({''.join(named)}{read})" if named else read

    def reads_narrow(self, e: Expr) -> bool:
        """Tell whether an expression has integers that brackets would widen to i64 as they are read: it stands outside of them."""
        match e:
            case Cast(dtype, Read()) if dtype == i64:
                return False
            case Read(tensor):
                dtype = self.tensors[tensor].dtype
                return dtype.is_integer and dtype != i64
            case _:
                return any(map(self.reads_narrow, children(e)))

    # ------------------------------------------------ reductions

    def reduce(self, e: Reduce, project: tuple[str, str] = ("", "")) -> str:
        binders = [f"{quoted(b.name)} in {_bound(b.lo)}..{_bound(b.hi)}" for b in e.binders]
        binders += [_condition(c) for c in affine.conjuncts(e.where) if c != TRUE]
        if e.filter is not None:
            binders.append(self.at(COMPARE, e.filter))
        if e.init is not None:
            binders.append(f"from {self.text(e.init[0]) if len(e.init) == 1 else self.text(TupleOf(e.init))}")
        return f"{self.reducer(e.reducer, project)}({', '.join(binders)}) {self.body(e)}"

    def body(self, e: Reduce) -> str:
        typed = tuple(Cast(d, b) if self.lang(b) is None else b for b, d in zip(e.body, e.reducer.dtypes, strict=True))
        if len(typed) > 1:
            return self.text(TupleOf(typed))
        body = typed[0]
        if isinstance(body, Reduce):
            return self.text(body)
        factors = _factors(body)
        return " * ".join(self.at(ATOM, f) for f in (self.operands(*factors) if len(factors) > 1 else factors))

    def yielded(self, name: str, value: Expr, body: Expr) -> str | None:
        """Return `let t = reduction in f(t.0, t.1)` as a reduction whose reducer yields f, if `body` uses nothing else."""
        if not isinstance(value, Reduce) or len(value.reducer.dtypes) == 1:
            return None
        closed = (Const, Unary, Binary, Compare, Select, Cast, Call, Project, Name)
        if not all(isinstance(n, closed) for n in nodes(body)) or any(isinstance(n, Name) and n.name != name for n in nodes(body)):
            return None
        return self.reduce(value, (self.text(_opened(body, name, value.reducer)), "yield"))

    def reducer(self, reducer: Reducer, project: tuple[str, str]) -> str:
        """Return the name under which the text knows `reducer`, declared before the operator if the prelude does not have it."""
        if _in_prelude(reducer):
            return reducer.name
        key = (reducer, project)
        if key not in self.reducers:
            taken = set(self.reducers.values())
            names = [reducer.name, *(f"{reducer.name}_{n}" for n in range(1, len(taken) + 2))]
            self.reducers[key] = next(n for n in names if n not in taken)
            self.declare(reducer, self.reducers[key], project[0])
        return quoted(self.reducers[key])

    def declare(self, reducer: Reducer, name: str, project: str) -> None:
        self.names.update(dict(zip((*reducer.left, *reducer.right), (*reducer.dtypes, *reducer.dtypes), strict=True)))
        left, right = _pattern(reducer.left), _pattern(reducer.right)
        start = "none" if reducer.identity is None else self.components(reducer.identity)
        ordered = "" if reducer.commutative else "ordered "
        tail = f"\n    yield {left} = {project}" if project else ""
        self.declarations.append(
            f"{ordered}reducer {quoted(name)} {left} {right} from {start} = {self.components(reducer.combine)}{tail}\n"
        )

    def components(self, items: tuple[Expr, ...]) -> str:
        return self.text(items[0]) if len(items) == 1 else self.text(TupleOf(items))


def literal(value: float | int | bool, dtype: DType) -> str:
    """Return a constant exactly."""
    if dtype == bool_:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    if math.isnan(value):
        return "nan"
    return ("-inf" if value < 0 else "inf") if math.isinf(value) else repr(float(value))


def _level(e: Expr) -> int:
    match e:
        case Select() | Let():
            return LOOSE
        case Binary(op) if op in _BINARY:
            return _BINARY[op]
        case Unary("not"):
            return NOT
        case Compare():
            return COMPARE
        case Holds(cond):
            return ATOM if cond in (TRUE, FALSE) else OR if isinstance(cond, Or) else AND
        case Reduce() | Project(Reduce()):
            return TERM
        case Unary("neg"):
            return UNARY
        case Const(value, dtype) if dtype != bool_ and (value < 0 or (value == 0 and math.copysign(1, value) < 0)):
            return UNARY
        case _:
            return ATOM


def _factors(e: Expr) -> tuple[Expr, ...]:
    """Return the factors of a product from left to right; anything else is one factor."""
    return (*_factors(e.lhs), e.rhs) if isinstance(e, Binary) and e.op == "*" else (e,)


def _bound(e: Affine) -> str:
    return notation.show(e)


def _grouped(tensor: Tensor, axes: Sequence[str], none: str) -> str:
    """Return what is said of each axis of a tensor as the caller's dimensions have it; `none`: of a dimension without axes."""
    parts = ([axes[k] for k in group] for group in tensor.groups)
    return ", ".join(none if not part else part[0] if len(part) == 1 else f"({', '.join(part)})" for part in parts)


def _condition(cond: Cond) -> str:
    return notation.show_cond(cond)


def _range(tensor: Tensor) -> str:
    return "" if tensor.declared_range is None else f" in {_bound(tensor.declared_range[0])}..{_bound(tensor.declared_range[1])}"


def _pattern(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _opened(e: Expr, name: str, reducer: Reducer) -> Expr:
    """Return `e` with the components of the tuple `name` by the names that the reducer gives them."""
    match e:
        case Project(Name(n), position) if n == name:
            return Name(reducer.left[position])
        case _:
            return map_children(lambda c: _opened(c, name, reducer), e)


def _in_prelude(reducer: Reducer) -> bool:
    """Tell whether the prelude declares just this reducer."""
    if reducer.kind is None or reducer.kind != reducer.name or (reducer.left, reducer.right) != (("a",), ("b",)):
        return False
    dtype = reducer.dtypes[0]
    return reducer.identity == (Const(_identity(reducer.kind, dtype), dtype),)


def _identity(kind: str, dtype: DType) -> float | int | bool:
    match kind:
        case "any" | "all":
            return kind == "all"
        case "sum" | "prod":
            number = int(kind == "prod")
            return float(number) if dtype.is_float else number
        case _:
            if dtype.is_float:
                return math.inf if kind == "min" else -math.inf
            low, high = arith.integer_range(dtype)
            return high if kind == "min" else low


def _extern_declarations(program: Program) -> Iterator[str]:
    """Yield the declarations of the extern operators that a program calls."""
    for (operator, text, _), name in _extern_names(program).items():
        if text:
            yield text.replace(f"op {quoted(operator)}", f"op {quoted(name)}", 1) + "\n"


def _extern(call: ExternCall, name: str) -> str:
    """Return the call of a kernel as a clause, with the kernel in a comment."""
    left = ", ".join(quoted(t.name) for t in call.results)
    kernel = f"  # extern: {plain_text(str(call.kernel))}" if call.kernel is not None else "  # extern"
    return f"{left} = {quoted(name)}({', '.join(_passed(call))}){kernel}"


def _passed(call: ExternCall) -> Iterator[str]:
    """Yield what a call is given: tensors in order, by name behind one that is left out or is `each` of several, then the rest by name."""
    signature = call.signature
    if signature is None:
        yield from (quoted(a) for a in call.arguments if a is not None)
        yield from map(repr, call.attributes)
        return
    arguments, named = iter(call.arguments), False
    counts = call.counts[-len(signature.tensors) :] if call.counts and signature.tensors else (None,) * len(signature.tensors)
    for parameter, number in zip(signature.tensors, counts, strict=True):
        for argument in islice(arguments, 1 if number is None else number):
            if argument is not None:
                yield f"{quoted(parameter)}={quoted(argument)}" if named and parameter is not None else quoted(argument)
            named = named or argument is None
        named = named or number is not None
    for size, value in zip(signature.sizes, call.sizes, strict=True):
        if size is not None:
            shown = f"({', '.join(map(notation.show, value))})" if isinstance(value, tuple) else notation.show(value)
            yield f"{quoted(size)}={shown}"
    yield from (
        f"{quoted(n)}={literal(value, f64 if isinstance(value, float) else i64)}"
        for n, value in zip(signature.attributes, call.attributes, strict=True)
    )
