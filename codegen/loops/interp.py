"""Runs a function as nodes.py describes it: one statement after the other, one element at a time. The oracle for the emitters.

It also watches memory, which makes it a checker of whoever built the IR. InternalError is raised for a read or write outside a
buffer, a read of local memory that nobody has written, a loop that runs more often than its extent, a division of an index by less
than one, and two iterations of a `parallel` loop of which one writes what the other reads or writes.

What values are, and what arithmetic does to them, is said by a `domain`: numbers, or the terms they are computed by. Where a domain does
not know a condition, both sides of a `Select` are evaluated, and what they read outside of buffers is absent.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Never, TypeAlias, assert_never

import numpy as np

from codegen.dtypes import bool_, i64
from codegen.loops.domain import Domain, Numbers
from codegen.loops.nodes import (
    Add,
    Alloc,
    Barrier,
    Binary,
    Boxes,
    Buffer,
    Call,
    Cast,
    Commit,
    Compare,
    Const,
    Dot,
    Expr,
    FloorDiv,
    Fma,
    For,
    Function,
    If,
    Index,
    IndexValue,
    Int,
    Let,
    Load,
    LoadMatrix,
    Max,
    Min,
    Mma,
    Mod,
    Mul,
    Name,
    Prefetch,
    Producer,
    Reclaim,
    Release,
    Require,
    Select,
    Stmt,
    Store,
    Unary,
    ValueIndex,
    Var,
    Wait,
    WaitBoxes,
)
from codegen.loops.notes import Begins
from codegen.loops.printer import show_expr, show_index, show_stmt
from codegen.loops.scalars import Scalar, Value, fail, wrapped

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(slots=True)
class _Memory:
    """A buffer at run time. `written` is None for parameters, which the caller has filled. `serial` numbers allocations. The first of the
    rows of one lies in the parameter `first`, which knows it as `rows`: what is stored to either is seen in both."""

    buffer: Buffer
    array: Array
    written: Array | None
    serial: int
    first: _Memory | None = None
    rows: _Memory | None = None

    def put(self, place: tuple[int, ...], scalar: Scalar) -> None:
        self._put(place, scalar)
        if self.first is not None and place[0] == 0:
            self.first._put(place[1:], scalar)
        if self.rows is not None:
            self.rows._put((0, *place), scalar)

    def home(self, place: tuple[int, ...]) -> tuple[_Memory, tuple[int, ...]]:
        """Return whose memory a place lies in, and where in it."""
        return (self, place) if self.first is None or place[0] else (self.first, place[1:])

    def _put(self, place: tuple[int, ...], scalar: Scalar) -> None:
        self.array[place] = scalar
        if self.written is not None:
            self.written[place] = True


@dataclass(slots=True)
class _Team:
    """The accesses of the iterations of one running `parallel` loop to memory that they share."""

    var: str
    iteration: int = 0
    first_private: int = 0
    writers: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)
    readers: dict[tuple[int, tuple[int, ...]], set[int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Scope:
    """What the names mean at a statement."""

    indices: dict[str, int]
    values: dict[str, Value]
    memory: dict[str, _Memory]


_Indexing: TypeAlias = Callable[[_Scope], int]
_Evaluation: TypeAlias = Callable[[_Scope], Value]
_Execution: TypeAlias = Callable[[_Scope], None]


class _Return(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


_NUMBERS = Numbers()


def run(function: Function, sizes: Mapping[str, int], arrays: Mapping[str, Array], domain: Domain = _NUMBERS) -> int:
    """Execute `function` and return 0, or the code of the first `Require` that fails. Writes into `arrays`, whose elements are those of
    `domain`, in place.

    Raises InternalError when the arguments do not fit the header or when the body does what the module docstring forbids."""
    if set(sizes) != set(function.sizes):
        fail(f"sizes {sorted(sizes)} do not fit the header, which has {sorted(function.sizes)}")
    if set(arrays) != {p.name for p in function.params}:
        fail(f"arrays {sorted(arrays)} do not fit the header, which has {sorted(p.name for p in function.params)}")
    machine = _Machine(domain)
    scope = _Scope({name: int(value) for name, value in sizes.items()}, {}, {})
    for param in function.params:
        scope.memory[param.name] = machine.parameter(param, arrays[param.name], scope)
    try:
        with np.errstate(all="ignore"):
            machine.block(function.body)(scope)
    except _Return as stop:
        return stop.code
    return 0


def evaluate(e: Expr) -> Value:
    """Return the value of `e`, which mentions no variables, names or buffers."""
    with np.errstate(all="ignore"):
        return _Machine(_NUMBERS).value(e, _Scope({}, {}, {}))


def evaluate_index(e: Index, variables: Mapping[str, int]) -> int:
    """Return the value of `e`, which reads no memory."""
    return _Machine(_NUMBERS).index(e, _Scope(dict(variables), {}, {}))


class _Machine:
    """Executes statements; remembers the parallel loops that are running and counts allocations.

    Statements and expressions become functions of a scope before they run, and are looked at no more."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._indexings: dict[int, tuple[Index, _Indexing]] = {}
        self._evaluations: dict[int, tuple[Expr, _Evaluation]] = {}
        """By the identity of a node, which is kept, for it has to stay that node's."""
        self._undecided = 0
        """How many conditions that nobody knows the expression at hand stands under."""
        self._teams: list[_Team] = []
        self._serials = itertools.count()
        self._flying: list[list[tuple[_Memory, tuple[int, ...], Scalar]]] = [[]]
        """What was stored `later`, group by group: it lands as late as it may, and until then its cells cannot be read."""

    def parameter(self, buffer: Buffer, array: Array, scope: _Scope) -> _Memory:
        shape = tuple(self.index(e, scope) for e in buffer.shape)
        if array.shape != shape:
            fail(f"array `{buffer.name}` has shape {array.shape}, not {shape}")
        if not self._domain.accepts(array, buffer):
            fail(f"array `{buffer.name}` has type {array.dtype}, not {buffer.dtype}")
        return _Memory(buffer, array, None, next(self._serials))

    # ------------------------------------------------------------ statements

    def block(self, body: tuple[Stmt, ...]) -> _Execution:
        """Return what executes statements in a scope of their own."""
        steps, entered = [self.stmt(s) for s in body], _entered(body)

        def execution(outer: _Scope) -> None:
            scope = entered(outer)
            for step in steps:
                step(scope)

        return execution

    def stmt(self, s: Stmt) -> _Execution:
        match s:
            case For():
                return self.loop(s)
            case Store():
                return self._store(s)
            case Let(name, value):
                return self._let(name, self._evaluation(value))
            case If(cond, then, orelse):
                return self._choice(self._evaluation(cond), {True: then, False: orelse})
            case Alloc():
                return self._alloc(s)
            case Prefetch() | Barrier():
                return _nothing
            case Commit("products") | Wait(of="products"):
                return _nothing  # what they wait for fails
            case Commit():
                return lambda scope: self._flying.append([])
            case Wait(pending):
                return lambda scope: self._land(pending)
            case Producer(body):
                return self.block(body)
            case LoadMatrix() | Mma() | Boxes() | WaitBoxes() | Release() | Reclaim():
                return lambda scope: fail(f"`{show_stmt(s)}` is what threads do together, or one for all of them")
            case Require(cond, code):
                return self._require(self._evaluation(cond), code)
            case _:
                assert_never(s)

    def _store(self, s: Store) -> _Execution:
        evaluation, buffer, places = self._evaluation(s.value), s.buffer, [self._indexing(e) for e in s.index]

        def execution(scope: _Scope) -> None:
            result = evaluation(scope)
            memory = scope.memory[buffer]
            place = tuple([i(scope) for i in places])
            if not _lies_in(place, memory):
                self._outside(s, place, memory, scope)
            if self._teams:
                self.note_write(memory, place, s)
            if s.later:
                if memory.written is not None:
                    memory.written[place] = False
                self._flying[-1].append((memory, place, result.scalar))
            else:
                memory.put(place, result.scalar)

        return execution

    def _let(self, name: str, evaluation: _Evaluation) -> _Execution:
        def execution(scope: _Scope) -> None:
            scope.values[name] = evaluation(scope)

        return execution

    def _choice(self, condition: _Evaluation, sides: Mapping[bool, tuple[Stmt, ...]]) -> _Execution:
        """Return what executes one of two sides. A side becomes functions when it is first taken: most cases of sizes never are."""
        chosen, made = self._domain.chosen, dict[bool, _Execution]()

        def execution(scope: _Scope) -> None:
            side = chosen(condition(scope))
            taken = made.get(side)
            if taken is None:
                taken = made[side] = self.block(sides[side])
            taken(scope)

        return execution

    def _alloc(self, s: Alloc) -> _Execution:
        buffer, extents, begin = s.buffer, [self._indexing(e) for e in s.buffer.shape], s.buffer.note(Begins)

        def execution(scope: _Scope) -> None:
            shape = tuple([extent(scope) for extent in extents])
            if min(shape, default=0) < 0:
                fail(f"`{show_stmt(s)}` has the negative shape {shape}")
            array, written = self._domain.blank(shape, buffer.dtype), np.zeros(shape, np.bool_)
            first = None if begin is None else scope.memory[begin.parameter]
            scope.memory[buffer.name] = memory = _Memory(buffer, array, written, next(self._serials), first)
            if first is not None:
                first.rows = memory

        return execution

    def _land(self, pending: int) -> None:
        landing, self._flying = self._flying[: -1 - pending], self._flying[-1 - pending :]
        for landed, place, scalar in itertools.chain(*landing):
            landed.put(place, scalar)

    def _require(self, condition: _Evaluation, code: int) -> _Execution:
        def execution(scope: _Scope) -> None:
            if not self._domain.truth(condition(scope)):
                raise _Return(code)

        return execution

    def loop(self, loop: For) -> _Execution:
        lower, upper, var = self._indexing(loop.lo), self._indexing(loop.hi), loop.var
        steps, entered = list[_Execution](), _entered(loop.body)

        def execution(scope: _Scope) -> None:
            lo, hi = lower(scope), upper(scope)
            if loop.extent is not None and hi - lo > loop.extent:
                fail(f"loop `{var}` runs {hi - lo} times, more often than its extent {loop.extent}")
            if not steps and lo < hi:
                steps.extend([self.stmt(s) for s in loop.body])
            team = _Team(var)
            if loop.kind == "parallel":
                self._teams.append(team)
            for i in range(lo, hi):
                team.iteration, team.first_private = i, next(self._serials)
                inner = entered(scope)
                inner.indices = {**scope.indices, var: i}
                for step in steps:
                    step(inner)
            if loop.kind == "parallel":
                self._teams.pop()

        return execution

    # ------------------------------------------------------------ memory

    def _outside(self, node: Store | Load, place: tuple[int, ...], memory: _Memory, scope: _Scope) -> Never:
        shape = memory.array.shape
        fail(f"`{_text(node)}` touches {node.buffer}{list(place)}, outside its shape {shape}, where {scope.indices}")

    def note_write(self, memory: _Memory, place: tuple[int, ...], node: Store) -> None:
        memory, place = memory.home(place)
        key = (memory.serial, place)
        for team in self._teams:
            if memory.serial >= team.first_private:
                continue
            now, last, readers = team.iteration, team.writers.get(key), team.readers.get(key)
            if (last is not None and last != now) or (readers is not None and readers != {now}):
                self._race(team, {now if last is None else last} | (readers or set()), memory, place, node)
            team.writers[key] = now

    def note_read(self, memory: _Memory, place: tuple[int, ...], node: Load) -> None:
        memory, place = memory.home(place)
        key = (memory.serial, place)
        for team in self._teams:
            if memory.serial >= team.first_private:
                continue
            now, last, readers = team.iteration, team.writers.get(key), team.readers.get(key)
            if last is not None and last != now:
                self._race(team, {last}, memory, place, node)
            if readers is None:
                team.readers[key] = {now}
            else:
                readers.add(now)

    def _race(self, team: _Team, touched: set[int], memory: _Memory, place: tuple[int, ...], node: Store | Load) -> Never:
        where, other = f"{memory.buffer.name}{list(place)}", min(touched - {team.iteration})
        fail(f"`{_text(node)}` races: {where} is touched by iterations {other} and {team.iteration} of parallel `{team.var}`")

    # ------------------------------------------------------------ index expressions

    def index(self, e: Index, scope: _Scope) -> int:
        return self._indexing(e)(scope)

    def _indexing(self, e: Index) -> _Indexing:
        found = self._indexings.get(id(e))
        if found is None:
            found = self._indexings[id(e)] = e, self._made_indexing(e)
        return found[1]

    def _made_indexing(self, e: Index) -> _Indexing:
        match e:
            case Int(value):
                return lambda scope: value
            case Var(name):
                return lambda scope: scope.indices[name]
            case ValueIndex(value_expr):
                number, evaluated = self._domain.integer, self._evaluation(value_expr)
                return lambda scope: wrapped(number(evaluated(scope)), i64)
            case FloorDiv(lhs, rhs):
                dividend, divisor = self._indexing(lhs), self._divisor(rhs)
                return lambda scope: dividend(scope) // divisor(scope)
            case Mod(lhs, rhs):
                dividend, divisor = self._indexing(lhs), self._divisor(rhs)
                return lambda scope: dividend(scope) % divisor(scope)
        a, b = self._indexing(e.lhs), self._indexing(e.rhs)
        match e:
            case Add():
                return lambda scope: a(scope) + b(scope)
            case Mul(lhs=Int(factor)):
                return lambda scope: factor * b(scope)
            case Mul():
                return lambda scope: a(scope) * b(scope)
            case Min():
                return lambda scope: min(a(scope), b(scope))
            case Max():
                return lambda scope: max(a(scope), b(scope))
            case _:
                assert_never(e)

    def _divisor(self, e: Index) -> _Indexing:
        indexing = self._indexing(e)
        if isinstance(e, Int) and e.value >= 1:
            return indexing

        def checked(scope: _Scope) -> int:
            divisor = indexing(scope)
            if divisor < 1:
                fail(f"division of an index by `{show_index(e)}`, which is {divisor}")
            return divisor

        return checked

    # ------------------------------------------------------------ values

    def value(self, e: Expr, scope: _Scope) -> Value:
        return self._evaluation(e)(scope)

    def _evaluation(self, e: Expr) -> _Evaluation:
        found = self._evaluations.get(id(e))
        if found is None:
            found = self._evaluations[id(e)] = e, self._made_evaluation(e)
        return found[1]

    def _made_evaluation(self, e: Expr) -> _Evaluation:
        domain = self._domain
        match e:
            case Const(value, dtype):
                literal = domain.literal(value, dtype)
                return lambda scope: literal
            case Load():
                return self._made_load(e)
            case IndexValue(index_value):
                indexing = self._indexing(index_value)
                return lambda scope: Value(i64, wrapped(indexing(scope), i64))
            case Name(name):
                return lambda scope: scope.values[name]
            case Unary(op, operand):
                x = self._evaluation(operand)
                return lambda scope: domain.unary(op, x(scope))
            case Binary("and" | "or" as logic, lhs, rhs):
                x = self._evaluation(lhs)
                return lambda scope: self.lazy(logic, x(scope), rhs, scope)
            case Binary(binary_op, lhs, rhs):
                x, y = self._evaluation(lhs), self._evaluation(rhs)
                return lambda scope: domain.binary(binary_op, x(scope), y(scope))
            case Compare(compare_op, lhs, rhs):
                x, y = self._evaluation(lhs), self._evaluation(rhs)
                return lambda scope: domain.compare(compare_op, x(scope), y(scope))
            case Select(cond, then, orelse):
                condition = self._evaluation(cond)
                return lambda scope: self.select(condition(scope), then, orelse, scope)
            case Cast(dtype, operand, saturate):
                x = self._evaluation(operand)
                return lambda scope: domain.cast(dtype, x(scope), saturate)
            case Call(fn, args):
                given = [self._evaluation(arg) for arg in args]
                return lambda scope: domain.call(fn, [arg(scope) for arg in given])
            case Fma(a, b, c):
                x, y, z = self._evaluation(a), self._evaluation(b), self._evaluation(c)
                return lambda scope: domain.fma(x(scope), y(scope), z(scope))
            case Dot():
                return self._made_dot(e)
            case _:
                assert_never(e)

    def lazy(self, op: Literal["and", "or"], left: Value, rhs: Expr, scope: _Scope) -> Value:
        match self._domain.constant_truth(left):
            case None:
                return self._domain.binary(op, left, self.perhaps(rhs, scope))
            case truth:
                return self.value(rhs, scope) if truth == (op == "and") else Value(bool_, truth)

    def select(self, cond: Value, then: Expr, orelse: Expr, scope: _Scope) -> Value:
        match self._domain.constant_truth(cond):
            case None:
                return self._domain.select(cond, self.perhaps(then, scope), self.perhaps(orelse, scope))
            case truth:
                return self.value(then if truth else orelse, scope)

    def perhaps(self, e: Expr, scope: _Scope) -> Value:
        """Return the value of what is perhaps not evaluated."""
        self._undecided += 1
        try:
            return self.value(e, scope)
        finally:
            self._undecided -= 1

    def _made_dot(self, e: Dot) -> _Evaluation:
        places = [Int(r) for r in range(e.count)]
        a, b = ([self._evaluation(Load(o.buffer, (*o.index[:-1], Add(o.index[-1], r)))) for r in places] for o in (e.a, e.b))
        total = self._evaluation(e.c)

        def evaluation(scope: _Scope) -> Value:
            start = total(scope)
            left = [x(scope) for x in a]
            return self._domain.dot(list(zip(left, [y(scope) for y in b], strict=True)), start)

        return evaluation

    def _made_load(self, e: Load) -> _Evaluation:
        buffer, places, element = e.buffer, [self._indexing(i) for i in e.index], self._domain.element

        def evaluation(scope: _Scope) -> Value:
            memory = scope.memory[buffer]
            place = tuple([i(scope) for i in places])
            inside = _lies_in(place, memory)
            if self._undecided and not (inside and (memory.written is None or memory.written[place])):
                absent = self._domain.absent(memory.buffer.dtype)
                if absent is not None:
                    return absent
            if not inside:
                self._outside(e, place, memory, scope)
            if memory.written is not None and not memory.written[place]:
                fail(f"`{show_expr(e)}` reads {buffer}{list(place)}, which nobody has written")
            if self._teams:
                self.note_read(memory, place, e)
            return Value(memory.buffer.dtype, element(memory.array[place], memory.buffer.dtype))

        return evaluation


def _lies_in(place: tuple[int, ...], memory: _Memory) -> bool:
    for i, n in zip(place, memory.array.shape, strict=True):  # noqa: SIM110  a generator takes longer than all of this
        if not 0 <= i < n:
            return False
    return True


def _entered(body: tuple[Stmt, ...]) -> Callable[[_Scope], _Scope]:
    """Return what makes the scope of a body: the names that it defines are its own, the others those around it."""
    names, buffers = any(isinstance(s, Let) for s in body), any(isinstance(s, Alloc) for s in body)

    def entered(outer: _Scope) -> _Scope:
        values = dict(outer.values) if names else outer.values
        return _Scope(outer.indices, values, dict(outer.memory) if buffers else outer.memory)

    return entered


def _nothing(scope: _Scope) -> None:
    """Do what no single thread sees."""


def _text(node: Store | Load) -> str:
    return show_stmt(node) if isinstance(node, Store) else show_expr(node)
