"""Proves the loops that become code: what a kernel touches lies in its buffers, whatever the sizes and the data.

Of the last form of a function, from nothing but its own loops, conditions and checks:

    every subscript lies in its buffer                       for i in 0 .. N { y[i] = x[i - 1] }            refused: i - 1 can be -1
    every extent of a buffer is 0 or more                    heap a: f32[2*N - 1]                           refused: N can be 0
    no index leaves 64 bits                                  i * 2**62 // 3                                 refused, unless i is small
    a subscript from data stands behind what bounds it       x[value(ids[q])] after require ids[q] < N      fine

What is known of data is what conditions and `require` say of the same value, where nothing has been stored to what it was read from, and
the ranges that the function checks of whole parameters when it is entered. What is not proven is a mistake of this compiler: InternalError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Never, assert_never

from codegen.dtypes import DType, bool_, i64, limits, u64
from codegen.errors import InternalError
from codegen.loops import nodes as loops
from codegen.loops.printer import show_buffer, show_expr, show_index, show_stmt
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import children, free_vars, loads, names, range_of_condition, runs_at_least_once, statements, walk
from polyhedral import affine
from polyhedral import expr as sets
from polyhedral.expr import FALSE, TRUE, Cond, Expr
from polyhedral.scopes import Scope
from tensorlang.lower.set_bits import negated, set_bit, without_bit
from tensorlang.lower.sets import to_expr
from tensorlang.tensor.widths import LARGEST, greatest

_REACH = 1 << 63
Chosen = tuple[tuple[Cond, Expr], ...]
"""Conditions of which one holds, each with what a value is then."""


def prove_bounds(function: loops.Function, given: Cond = TRUE) -> None:
    """Raise InternalError when something of the above is not proven of `function`, whose sizes keep `given`."""
    scope = Scope()
    for size in function.sizes:
        scope = scope.with_name(size, sets.Int(0), sets.Int(LARGEST))
    prover = _Prover(function)
    around = _Around(scope.with_fact(given), Env(frozenset(function.sizes)))
    for param in function.params:
        around = prover.declared(param, around)
    prover.block(function.body, around)


@dataclass(frozen=True, slots=True)
class _Elements:
    """All elements of a parameter lie between `low` and `high`, inclusive; of a blocked one those in its `blocks` that are no padding."""

    low: Expr
    high: Expr
    blocks: tuple[_Block, ...] = ()


@dataclass(frozen=True, slots=True)
class _Block:
    """Position `p` for 0 <= p < `extent` is stored at [.., p // size, .., p % size, ..]: at `outer` the one axis, at `inner` the other.
    `outer` None: there is one block, and position `p` is stored at [.., p, ..]."""

    outer: int | None
    inner: int
    size: int
    extent: Expr


@dataclass(frozen=True, slots=True)
class _Around:
    """What is known at a statement. `elements`: parameter → what is known of all that it holds; `epochs`: buffer → a number that
    changes when something is stored to it; `values`, `truths`: what integers and truth values bound by `Let` are."""

    scope: Scope
    env: Env
    shapes: Mapping[str, tuple[Expr, ...]] = field(default_factory=dict)
    elements: Mapping[str, _Elements] = field(default_factory=dict)
    epochs: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Expr] = field(default_factory=dict)
    truths: Mapping[str, tuple[Cond, Cond]] = field(default_factory=dict)


class _Prover:
    """Walks one function. Values that are no function of indices get names, the same name for the same value."""

    def __init__(self, function: loops.Function) -> None:
        buffers = [*function.params, *(s.buffer for s in statements(*function.body) if isinstance(s, loops.Alloc))]
        self._guards = _guards(function)
        """Conditions that decide whether something is checked: where one stands again, it has the same value."""
        self._changing = _written(*function.body) & ({b.name for b in buffers if not b.dtype.is_float} | _asked(function))
        """Buffers that are stored to and may be read for an index, or for a condition."""
        self._sizes = frozenset(function.sizes)
        self._copied = _copied(function)
        self._unseen = Counter(s.buffer for s in statements(*function.body) if isinstance(s, loops.Store) and s.buffer in self._copied)
        """How many stores of copies to a buffer are still to be walked."""
        self._filled: dict[str, set[_Elements | None]] = {}
        """What is known of all copies that the stores walked so far put into a buffer: None of those that may be padding."""
        self._names: dict[object, sets.Name] = {}
        self._sides: dict[str, tuple[Expr | None, Expr | None]] = {}
        self._wide: set[str] = set()
        """Which of them are any number of 64 bits."""
        self._facts: dict[str, Cond] = {}
        self._epochs = count(1)
        self._proven: dict[tuple[int, Expr], bool] = {}
        self._kept: list[Scope] = []

    # ------------------------------------------------------------ statements

    def block(self, body: Iterable[loops.Stmt], around: _Around) -> _Around:
        """Prove `body`, and return what is known at its end."""
        for s in body:
            around = self.stmt(s, around)
        return around

    def stmt(self, s: loops.Stmt, around: _Around) -> _Around:
        """Prove `s`, and return what is known after it."""
        match s:
            case loops.For():
                inner = self._inside(s, around)
                end = self.block(s.body, inner)
                after = self._stored(around, s)
                kept = end.elements if runs_at_least_once(s) else {}
                after = replace(after, elements={**after.elements, **kept, **self._checked(s, inner)})
                return self.assuming(self._required(s, around), after) if runs_at_least_once(s) else after
            case loops.Store(buffer, index, value):
                self.expr(value, around)
                self.access(buffer, index, around, s)
                if buffer in self._copied and isinstance(value, loops.Load):
                    self._copy(buffer, value, around)
                return self._stored(around, s)
            case loops.Let(name, value):
                self.expr(value, around)
                return self._bound(name, value, around)
            case loops.If(cond, then, orelse):
                self.expr(cond, around)
                yes, no = self.truths(cond, around)
                self.block(then, self.assuming(yes, around))
                if orelse:
                    self.block(orelse, self.assuming(no, around))
                return self._stored(around, s)
            case loops.Alloc(buffer):
                return self.declared(buffer, around)
            case loops.Prefetch(_, index):
                for e in index:
                    self.index(e, around)
                return around
            case loops.Require(cond):
                self.expr(cond, around)
                after = self.assuming(self.truths(cond, around)[0], around)
                return replace(after, elements={**after.elements, **self._checked(s, around)})
            case loops.LoadMatrix():
                self._matrix(s, around)
                return self._stored(around, s)
            case loops.Mma(_, sums, rows, columns):
                for operand in (sums, rows, columns):
                    self.access(operand.buffer, operand.index, around, s)
                return self._stored(around, s)
            case loops.Boxes(_, group, boxes):
                self.index(group, around)
                for box in boxes:
                    self._box(box, around, s)
                return self._stored(around, s)
            case loops.WaitBoxes(_, group) | loops.Release(_, group) | loops.Reclaim(_, group):
                self.index(group, around)
                return around
            case loops.Producer(body):
                self.block(body, around)
                return self._stored(around, s)
            case loops.Barrier() | loops.Commit() | loops.Wait():
                return around
            case _:
                assert_never(s)

    def declared(self, buffer: loops.Buffer, around: _Around) -> _Around:
        """Prove that no extent is negative, and return what is known with the buffer in scope."""
        shape = tuple(self.index(e, around) for e in buffer.shape)
        for e, extent in zip(buffer.shape, shape, strict=True):
            if not self.nonnegative(extent, around):
                _fail(f"the extent `{show_index(e)}` of `{show_buffer(buffer)}` is not proven to be 0 or more")
        return replace(
            around,
            env=around.env.with_buffer(buffer),
            shapes={**around.shapes, buffer.name: shape},
        )

    def _inside(self, loop: loops.For, around: _Around) -> _Around:
        low, high = self.index(loop.lo, around), self.index(loop.hi, around)
        scope = self._complete(around.scope, sets.Add(low, high)).with_name(loop.var, low, affine.sub(high, sets.Int(1)))
        inner = replace(self._stored(around, loop), scope=scope, env=around.env.with_loop(loop))
        return self.assuming(sets.Compare("<", low, high), inner) if self._sizes & (affine.name_set(low) | affine.name_set(high)) else inner

    def _stored(self, around: _Around, *body: loops.Stmt) -> _Around:
        """Return what is known where `body` may have been executed."""
        if not self._changing:
            return around
        changed = {b: next(self._epochs) for b in sorted(_written(*body) & self._changing)}
        return replace(around, epochs={**around.epochs, **changed})

    def _bound(self, name: str, value: loops.Expr, around: _Around) -> _Around:
        dtype = dtype_of(value, around.env)
        after = replace(around, env=around.env.with_value(name, dtype))
        if dtype == bool_:
            return replace(after, truths={**around.truths, name: self.truths(value, around)})
        if dtype.is_integer:
            return replace(after, values={**around.values, name: self.number(value, around)})
        return after

    def _required(self, loop: loops.For, around: _Around) -> Cond:
        """Return what each iteration of a loop requires of sizes alone."""
        asked = (s.cond for s in loop.body if isinstance(s, loops.Require) and self._is_of_sizes(s.cond))
        return affine.conj(*(self.truths(cond, around)[0] for cond in asked))

    def _checked(self, s: loops.Stmt, inner: _Around) -> dict[str, _Elements]:
        """Return the range of the elements of a parameter where `s` is nothing but a check of all of them, or of the only one. An end that
        it does not ask for is that of their type."""
        path: dict[str, loops.For] = {}
        while isinstance(s, loops.For) and len(body := [b for b in s.body if not isinstance(b, loops.Barrier)]) == 1:
            path[s.var] = s
            s = body[0]
        asked = range_of_condition(s.cond) if isinstance(s, loops.Require) else None
        if asked is None:
            return {}
        checked, *ends = asked
        low, high = ends
        given = [e for e in ends if e is not None]
        if not all(isinstance(e, loops.IndexValue | loops.Const) for e in given) or not self._is_of_sizes(*given):
            return {}
        if not self._is_ordered(checked, inner):
            return {}
        load = checked.value if isinstance(checked, loops.Cast) and _keeps(checked, dtype_of(checked.value, inner.env)) else checked
        blocks = _covered(load, path, inner.env) if isinstance(load, loops.Load) else None
        if not isinstance(load, loops.Load) or blocks is None or load.buffer in self._changing:
            return {}
        known = inner.elements.get(load.buffer)
        if not self._is_of_sizes(*(end for end, *_ in blocks)) or (blocks and known is not None and not known.blocks):
            return {}
        found = tuple(_Block(outer, inside, size, self.index(extent, inner)) for extent, outer, inside, size in blocks)
        if known is not None and len(given) == 1:
            return {}  # both of its ends may be known
        least, most = _limits(dtype_of(load, inner.env))
        first = sets.Int(least) if low is None else self.number(low, inner)
        last = sets.Int(most) if high is None else affine.sub(self.number(high, inner), sets.Int(1))
        return {load.buffer: _Elements(first, last, found)}

    def _is_of_sizes(self, *nodes: loops.Index | loops.Expr) -> bool:
        """Tell whether `nodes` are the same everywhere in the function: no variables of loops in them, and nothing from data."""
        return free_vars(*nodes) <= self._sizes and not names(*nodes) and not any(True for _ in loads(*nodes))

    def _element(self, load: loops.Load, around: _Around) -> tuple[Expr, Expr] | None:
        """Return bounds, inclusive, of what is read, where all elements of the parameter that it comes from were checked."""
        known = around.elements.get(self._copied.get(load.buffer, load.buffer))
        return None if known is None or not self._is_checked(load, known, around) else (known.low, known.high)

    def _is_checked(self, load: loops.Load, known: _Elements, around: _Around) -> bool:
        """Tell whether what is read is no padding, of a parameter or of a buffer that holds copies of it."""
        if known.blocks and load.buffer in self._copied:
            return not self._unseen[load.buffer] and self._filled[load.buffer] == {known}
        for block in known.blocks:
            position = self._operand(load.index[block.inner], around)
            if block.outer is not None:
                position = sets.Add(sets.Scale(block.size, self._operand(load.index[block.outer], around)), position)
            if not all(self.nonnegative(e, around) for e in (position, affine.sub(affine.sub(block.extent, sets.Int(1)), position))):
                return False
        return True

    def _copy(self, buffer: str, load: loops.Load, around: _Around) -> None:
        """Keep what is known of the elements that a store copies into `buffer`."""
        known = around.elements.get(self._copied[buffer])
        stored = known if known is not None and self._is_checked(load, known, around) else None
        self._filled.setdefault(buffer, set()).add(stored)
        self._unseen[buffer] -= 1

    def _matrix(self, s: loops.LoadMatrix, around: _Around) -> None:
        self.access(s.buffer, s.index, around, s, s.count)
        rows = sets.Int(8 * s.count - 1)
        lanes = replace(around, scope=around.scope.with_name(s.lane, sets.Int(0), rows), env=around.env.with_index(s.lane))
        size = around.env.buffers[s.source.buffer].dtype.size_bytes
        self.access(s.source.buffer, s.source.index, lanes, s, 16 // size)

    def _box(self, box: loops.Box, around: _Around, s: loops.Stmt) -> None:
        """Prove that a box fits where it is put; where it is taken from, what lies outside counts as zero."""
        self.access(box.target.buffer, box.target.index, around, s)
        for e in box.source.index:
            self.index(e, around)

    # ------------------------------------------------------------ expressions

    def expr(self, e: loops.Expr, around: _Around) -> None:
        """Prove all that is read when `e` is evaluated."""
        match e:
            case loops.Const() | loops.Name():
                return
            case loops.Load(buffer, index):
                self.access(buffer, index, around, e)
            case loops.IndexValue(index_value):
                self._wrapping(index_value, around)
            case loops.Compare(_, loops.IndexValue() | loops.Const() as lhs, loops.IndexValue() | loops.Const() as rhs):
                for side in (lhs, rhs):
                    if isinstance(side, loops.IndexValue):
                        self.index(side.index, around)
            case loops.Select(cond, then, orelse):
                self.expr(cond, around)
                yes, no = self.truths(cond, around)
                self.expr(then, self.assuming(yes, around))
                self.expr(orelse, self.assuming(no, around))
            case loops.Binary("and" | "or" as op, lhs, rhs):
                self.expr(lhs, around)
                yes, no = self.truths(lhs, around)
                self.expr(rhs, self.assuming(yes if op == "and" else no, around))
            case loops.Dot(taken, a, b, c):
                self.access(a.buffer, a.index, around, e, taken)
                self.access(b.buffer, b.index, around, e, taken)
                self.expr(c, around)
            case loops.Unary() | loops.Binary() | loops.Compare() | loops.Cast() | loops.Call() | loops.Fma():
                for child in children(e):
                    self.expr(child, around)  # type: ignore[arg-type]  # none of these has an index in it
            case _:
                assert_never(e)

    def access(self, buffer: str, index: tuple[loops.Index, ...], around: _Around, what: loops.Expr | loops.Stmt, width: int = 1) -> None:
        """Prove that `width` elements, from that at `index` on along the last axis, lie in the buffer."""
        for axis, (e, extent) in enumerate(zip(index, around.shapes[buffer], strict=True)):
            place = self.index(e, around)
            last = affine.sub(affine.sub(extent, sets.Int(width if axis == len(index) - 1 else 1)), place)
            for side, claim in (("below", place), ("beyond", last)):
                if not self.nonnegative(claim, around) and not self.nonnegative(claim, self._as_before(e, around)):
                    shape = show_buffer(around.env.buffers[buffer])
                    _fail(f"`{show_index(e)}` is not proven not to lie {side} `{shape}` in `{_shown(what)}`")

    def _as_before(self, e: loops.Index, around: _Around) -> _Around:
        """Return what is known where sums and products of data in `e`, which cannot wrap here, are what they were when nothing said so: a
        check of `ids[q] + 1` is one of the number after `ids[q]` once that is checked, too."""
        for value in (part for data in _data(e) for part in walk(data) if isinstance(part, loops.Binary | loops.Unary | loops.Cast)):
            if dtype_of(value, around.env).is_integer:
                before, now = self._names.get(self._of_any_value(value, around)), self._exact(value, around)
                if before is not None and before.name in around.scope.bounds and now is not None and now != before:
                    around = self.assuming(sets.Compare("==", before, now), around)
        return around

    def index(self, e: loops.Index, around: _Around) -> Expr:
        """Return `e` over the names in scope, proven to stay in 64 bits on the way."""
        for value in _data(e):
            self.expr(value, around)
        result = to_expr(e, lambda other: self._opaque_index(other, around))
        assert result is not None
        # What data come to is known step by step: a step that is not proven to stay in 64 bits is a number of its own.
        if not isinstance(e, loops.ValueIndex) and not _fits(result, self._complete(around.scope, result)):
            _fail(f"the index `{show_index(e)}` is not proven to stay in 64 bits")
        return result

    def _wrapping(self, e: loops.Index, around: _Around) -> None:
        """Prove of an index that is a value what stands below its sums and products, which may wrap."""
        match e:
            case loops.Add(lhs, rhs) | loops.Mul(lhs, rhs):
                self._wrapping(lhs, around)
                self._wrapping(rhs, around)
            case _:
                self.index(e, around)

    def _opaque_index(self, e: loops.Index, around: _Around) -> Expr:
        """Return the name of an index that is not quasi-affine."""
        match e:
            case loops.ValueIndex(value):
                return self.number(value, around)
            case loops.Mul(lhs, rhs):
                a, b = self._operand(lhs, around), self._operand(rhs, around)
                ends = _products(around.scope.range_of(a), around.scope.range_of(b))
                low, high = (None if end is None or abs(end) >= _REACH else sets.Int(end) for end in ends)
                return self._named((e, self._versions(e, around)), low, high)
            case loops.Mod(_, rhs) | loops.FloorDiv(_, rhs):
                divisor = self._operand(rhs, around)
                if not self.nonnegative(affine.sub(divisor, sets.Int(1)), around):
                    _fail(f"`{show_index(rhs)}` is not proven to be 1 or more in `{show_index(e)}`")
                divided = self._operand(e.lhs, around)
                if isinstance(e, loops.Mod):
                    return self._named((e, self._versions(e, around)), sets.Int(0), affine.sub(divisor, sets.Int(1)))
                return self._named((e, self._versions(e, around)), sets.Min(sets.Int(0), divided), sets.Max(sets.Int(0), divided))
            case _:
                raise AssertionError(f"`{show_index(e)}` is quasi-affine")

    def _operand(self, e: loops.Index, around: _Around) -> Expr:
        found = to_expr(e, lambda other: self._opaque_index(other, around))
        assert found is not None
        return found

    # ------------------------------------------------------------ values

    def number(self, e: loops.Expr, around: _Around) -> Expr:
        """Return what the integer `e` is as a 64-bit index: exactly where it is arithmetic that cannot wrap, else by a name."""
        exact = self._exact(e, around)
        if exact is not None:
            return exact
        element = self._element(e, around) if isinstance(e, loops.Load) else None
        if element is not None:
            return self._named((e, self._versions(e, around)), *element)
        key, low, high, _ = self._of_any_value(e, around)
        name = self._named(key, low, high)
        if low is None:
            self._wide.add(name.name)
        return name

    def _of_any_value(self, e: loops.Expr, around: _Around) -> tuple[object, Expr | None, Expr | None, Chosen]:
        """Return by what the name is found of an integer of which only its type and its form are known."""
        low, high = _ends(e, around.env)
        key = (e, self._versions(e, around))
        if high >= _REACH or (low, high) == _limits(i64):
            return key, None, None, ()
        return key, sets.Int(low), sets.Int(high), ()

    def _exact(self, e: loops.Expr, around: _Around) -> Expr | None:
        match e:
            case loops.Const(value) if not isinstance(value, float):
                return sets.Int(int(value))
            case loops.IndexValue(index):
                exact = self._operand(index, around)
                return exact if _fits(exact, self._complete(around.scope, exact)) else None
            case loops.Name(name):
                return around.values.get(name)
            case loops.Cast(dtype) if dtype.is_integer:
                return self._cast(e, around)
            case loops.Binary("+" | "-" | "*" | "min" | "max" | "//" | "%" | "shr" as op, lhs, rhs) if dtype_of(e, around.env).is_integer:
                return self._arithmetic(op, self.number(lhs, around), self.number(rhs, around), dtype_of(e, around.env), around, e)
            case loops.Binary("bitand") if (ends := _ends(e, around.env))[0] >= 0 and ends[1] < _REACH:
                return self._named((e, self._versions(e, around)), sets.Int(ends[0]), sets.Int(ends[1]))
            case loops.Unary() if dtype_of(e, around.env) == u64:
                return None  # as of other arithmetic
            case loops.Unary("neg", value) if dtype_of(e, around.env).is_integer:
                return self._within(sets.Scale(-1, self.number(value, around)), dtype_of(e, around.env), around)
            case loops.Unary("abs", value) if dtype_of(e, around.env).is_integer:
                of = self.number(value, around)
                return self._within(sets.Max(of, sets.Scale(-1, of)), dtype_of(e, around.env), around)
            case loops.Select(cond, then, orelse) if dtype_of(e, around.env).is_integer:
                yes, no = self.truths(cond, around)
                a, b = self.number(then, self.assuming(yes, around)), self.number(orelse, self.assuming(no, around))
                return a if a == b else self._chosen(e, (yes, a), (no, b), around)
            case _:
                return None

    def _cast(self, e: loops.Cast, around: _Around) -> Expr | None:
        dtype, source = e.dtype, dtype_of(e.value, around.env)
        if not source.is_integer or (e.saturate and u64 in (dtype, source)):
            return None  # what saturates is a number beyond 2**63, which as an index is another
        of = self.number(e.value, around)
        if dtype.bits == 64 and source.bits == 64:
            return of  # the same bits; as an index both are read with a sign
        return self._within(of, dtype, around)

    def _arithmetic(self, op: str, a: Expr, b: Expr, dtype: DType, around: _Around, e: loops.Expr) -> Expr | None:
        if dtype.bits == 64 and dtype.kind != "int":
            return None  # numbers beyond 2**63 are not what they are as an index
        match op, a, b:
            case "+", _, _:
                return self._within(sets.Add(a, b), dtype, around)
            case "-", _, _:
                return self._within(affine.sub(a, b), dtype, around)
            case "*", sets.Int(factor), other:
                return self._within(sets.Scale(factor, other), dtype, around)
            case "*", other, sets.Int(factor):
                return self._within(sets.Scale(factor, other), dtype, around)
            case "min", _, _:
                return sets.Min(a, b)
            case "max", _, _:
                return sets.Max(a, b)
            case "//" | "%", _, sets.Int(divisor) if divisor > 0:
                return sets.Floor(a, divisor) if op == "//" else sets.Mod(a, divisor)
            case "shr", _, sets.Int(count) if 0 <= count < dtype.bits:
                return sets.Floor(a, 1 << count)
            case "%", _, _ if self.nonnegative(affine.sub(b, sets.Int(1)), around):
                return self._named((e, self._versions(e, around)), sets.Int(0), affine.sub(b, sets.Int(1)))
            case "%", _, _ if self.nonnegative(b, around):  # what is left of a division by zero is zero
                return self._named((e, self._versions(e, around)), sets.Int(0), sets.Max(sets.Int(0), affine.sub(b, sets.Int(1))))
            case _:
                return None

    def _within(self, result: Expr, dtype: DType, around: _Around) -> Expr | None:
        """Return `result` where it is proven to be a number of type `dtype`."""
        low, high = self._complete(around.scope, result).range_of(result)
        least, most = _limits(dtype)
        return result if low is not None and high is not None and least <= low and high <= most else None

    def _chosen(self, e: loops.Select, then: tuple[Cond, Expr], orelse: tuple[Cond, Expr], around: _Around) -> Expr:
        """Return the name of what is one value where a condition holds, and another where it does not."""
        sides = [self._complete(self.assuming(cond, around).scope, value).range_of(value) for cond, value in (then, orelse)]
        low, high = (_extreme(of, [side[k] for side in sides]) for k, of in enumerate((min, max)))
        return self._named((e, self._versions(e, around)), low, high, (then, orelse))

    def _named(self, key: object, low: Expr | None, high: Expr | None, chosen: Chosen = ()) -> sets.Name:
        """Return the name of a value between `low` and `high` that is one of those `chosen` between by conditions. Where other things are
        known of the same value it has another name."""
        known = (key, low, high, chosen)
        if known not in self._names:
            name = self._names[known] = sets.Name(f"#{len(self._names)}")
            self._sides[name.name] = (low, high)
            if chosen:
                self._facts[name.name] = sets.Or(tuple(affine.conj(cond, sets.Compare("==", name, value)) for cond, value in chosen))
        return self._names[known]

    def _versions(self, node: loops.Index | loops.Expr, around: _Around) -> tuple[tuple[str, int], ...]:
        read = {load.buffer for load in loads(node)}
        return tuple((b, around.epochs.get(b, 0)) for b in sorted(read))

    # ------------------------------------------------------------ conditions

    def truths(self, cond: loops.Expr, around: _Around) -> tuple[Cond, Cond]:
        """Return what surely holds where `cond` is true, and where it is false."""
        match cond:
            case loops.Const(value):
                return (TRUE, FALSE) if value else (FALSE, TRUE)
            case loops.Name(name):
                return around.truths.get(name, (TRUE, TRUE))
            case loops.Unary("not", value):
                yes, no = self.truths(value, around)
                return no, yes
            case loops.Binary("and" | "or" as op, lhs, rhs):
                yes, no = self.truths(lhs, around)
                first = yes if op == "and" else no
                also, nor = self.truths(rhs, self.assuming(first, around))
                return (affine.conj(yes, also), _any(no, nor)) if op == "and" else (_any(yes, also), affine.conj(no, nor))
            case loops.Compare(op, lhs, rhs) if self._is_ordered(lhs, around):
                known = sets.Compare(op, self.number(lhs, around), self.number(rhs, around))
                yes, no = (self._without_bit(c, around) for c in (cond, negated(cond)))
                return affine.conj(known, yes), affine.conj(affine.negate(known), no)
            case _ if cond in self._guards:
                one = self._named((cond, self._versions(cond, around)), sets.Int(0), sets.Int(1))
                return sets.Compare("==", one, sets.Int(1)), sets.Compare("==", one, sets.Int(0))
            case _:
                return TRUE, TRUE

    def _without_bit(self, cond: loops.Compare, around: _Around) -> Cond:
        """Return what a comparison that finds a bit set in a number, which is none below 0, says of that and of it without the bit."""
        found = set_bit(cond)
        if found is None or not self.nonnegative(number := self.number(found[0], around), around):
            return TRUE
        less = (affine.within(self.number(e, around), 0, number) for e in without_bit(*found))
        return affine.conj(affine.compare("<=", self.number(found[1], around), number), *less)

    def _is_ordered(self, e: loops.Expr, around: _Around) -> bool:
        """Tell whether comparing values of this type is comparing them as indices."""
        dtype = dtype_of(e, around.env)
        return dtype.is_integer and (dtype.kind == "int" or dtype.bits < 64)

    def assuming(self, cond: Cond, around: _Around) -> _Around:
        if cond == TRUE:
            return around
        return replace(around, scope=self._complete(around.scope, cond).with_fact(cond))

    # ------------------------------------------------------------ proofs

    def nonnegative(self, e: Expr, around: _Around) -> bool:
        scope = self._complete(around.scope, e)
        key = (id(scope), e)
        if key not in self._proven:
            self._kept.append(scope)
            self._proven[key] = scope.nonnegative(e) or scope.is_impossible()
        return self._proven[key]

    def _complete(self, scope: Scope, node: Expr | Cond) -> Scope:
        """Return the scope with the named values that `node` mentions."""
        for name in sorted(affine.name_set(node) - scope.bounds.keys(), key=lambda n: int(n[1:])):
            low, high = self._sides[name]
            for side in (low, high):
                scope = scope if side is None else self._complete(scope, side)
            scope = scope.with_number(name, -_REACH, _REACH - 1) if name in self._wide else scope.with_name(name, low, high)
            fact = self._facts.get(name)
            scope = scope if fact is None else self._complete(scope, fact).with_fact(fact)
        return scope


def _guards(function: loops.Function) -> frozenset[loops.Expr]:
    """Return the conditions that checks are made of, but for `and`, `or` and `not`."""
    bound = {s.name: s.value for s in statements(*function.body) if isinstance(s, loops.Let)}
    asked = [s.cond for s in statements(*function.body) if isinstance(s, loops.Require)]
    found: set[loops.Expr] = set()
    while asked:
        match asked.pop():
            case loops.Unary("not", value):
                asked.append(value)
            case loops.Binary("and" | "or", lhs, rhs):
                asked += (lhs, rhs)
            case loops.Name(name) if name in bound:
                asked.append(bound[name])
            case cond:
                found.add(cond)
    return frozenset(found)


def _asked(function: loops.Function) -> frozenset[str]:
    """Return the buffers that conditions are about, or integers made of floats: no other floats decide about an index."""
    deciding = (
        e for e in walk(*function.body) if isinstance(e, loops.Compare | loops.Call) or (isinstance(e, loops.Cast) and not e.dtype.is_float)
    )
    return frozenset(load.buffer for e in deciding for load in loads(e))


def _written(*body: loops.Stmt) -> frozenset[str]:
    """Return the buffers that `body` stores to."""
    found: set[str] = set()
    for s in statements(*body):
        match s:
            case loops.Store(buffer) | loops.LoadMatrix(buffer):
                found.add(buffer)
            case loops.Mma(_, sums):
                found.add(sums.buffer)
            case loops.Boxes(_, _, boxes):
                found |= {box.target.buffer for box in boxes}
            case _:
                pass
    return frozenset(found)


def _data(e: loops.Index) -> list[loops.Expr]:
    """Return the values in the outermost data-dependent parts of `e`."""
    if isinstance(e, loops.ValueIndex):
        return [e.value]
    return [value for child in children(e) for value in _data(child)]  # type: ignore[arg-type]  # children of other indices are indices


def _copied(function: loops.Function) -> dict[str, str]:
    """Return the buffers of a function's own that hold nothing but elements of a parameter that it only reads, or copies of them, with the
    parameter. What is read of them has been stored: schedules are proven to."""
    written = _written(*function.body)
    own = {s.buffer.name for s in statements(*function.body) if isinstance(s, loops.Alloc)}
    origin = {b.name: b.name for b in function.params if b.name not in written}
    stores: dict[str, set[str]] = {}
    others: set[str] = set()
    for s in statements(*function.body):
        match s:
            case loops.Store(buffer, _, loops.Load(source)) if buffer in own and (source in origin or source in own):
                stores.setdefault(buffer, set()).add(source)
            case loops.Store() | loops.LoadMatrix() | loops.Mma() | loops.Boxes():
                others |= _written(s)
            case _:
                pass
    pending = {buffer: sources for buffer, sources in stores.items() if buffer not in others}
    while found := {b: origin[min(s)] for b, s in pending.items() if s <= origin.keys() and len({origin[name] for name in s}) == 1}:
        origin |= found
        pending = {buffer: sources for buffer, sources in pending.items() if buffer not in found}
    return {buffer: param for buffer, param in origin.items() if buffer in own}


def _covered(load: loops.Load, path: Mapping[str, loops.For], env: Env) -> list[tuple[loops.Index, int | None, int, int]] | None:
    """Tell whether loops with `load` inside go over every element of its buffer, but for padding: None where they do not, else of each axis
    that they go over up to a place before its end, alone or with another in blocks, that place, the axes of what is before and what is in a
    block, and how long a block is."""
    left = {name: loop for name, loop in path.items() if not runs_at_least_once(loop) or name in free_vars(*load.index)}
    blocks: list[tuple[loops.Index, int | None, int, int]] = []
    shape = env.buffers[load.buffer].shape
    for axis, (e, extent) in enumerate(zip(load.index, shape, strict=True)):
        match e:
            case loops.Var(name) if name in left:
                loop = left.pop(name)
                if loop.lo != loops.Int(0):
                    return None
                if loop.hi != extent:
                    blocks.append((loop.hi, None, axis, 1))
            case loops.FloorDiv(loops.Var(name) as var, loops.Int(size)) if name in left and loops.Mod(var, e.rhs) in load.index:
                inside = load.index.index(loops.Mod(var, e.rhs))
                loop = left.pop(name)
                if loop.lo != loops.Int(0) or shape[inside] != e.rhs:
                    return None
                blocks.append((loop.hi, axis, inside, size))
            case loops.Mod() if any(axis == inner for _, _, inner, _ in blocks):
                pass
            case loops.Int(0):
                if extent != loops.Int(1):
                    blocks.append((loops.Int(1), None, axis, 1))
            case _:
                return None
    return None if left else blocks


def _keeps(cast: loops.Cast, source: DType) -> bool:
    """Tell whether a cast gives what was cast, as a 64-bit index."""
    if not source.is_integer or cast.saturate:
        return False
    (least, most), (low, high) = _limits(cast.dtype), _limits(source)
    return least <= low and high <= most


def _limits(dtype: DType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type as a 64-bit index."""
    if dtype == bool_:
        return 0, 1
    if dtype.kind == "int" or dtype.bits >= i64.bits:
        bits = min(dtype.bits, i64.bits)
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def _ends(e: loops.Expr, env: Env) -> tuple[int, int]:
    """Return between which numbers an integer lies, whatever data are: it has one name under all conditions then."""
    dtype = dtype_of(e, env)
    low, high = limits(dtype) if dtype == u64 else _limits(dtype)
    match e:
        case loops.Const(value):
            return int(value), int(value)
        case loops.Binary("%", _, loops.Const(divisor)) if divisor > 0:
            return 0, int(divisor) - 1
        case loops.Binary("//", lhs, loops.Const(divisor)) if divisor > 0:
            least, most = _ends(lhs, env)
            return least // int(divisor), most // int(divisor)
        case loops.Binary("shr", lhs, loops.Const(count)) if 0 <= count < dtype.bits:
            least, most = _ends(lhs, env)
            return least >> int(count), most >> int(count)
        case loops.Binary("bitand", lhs, rhs):
            mosts = [most for least, most in (_ends(lhs, env), _ends(rhs, env)) if least >= 0]
            return (0, min(mosts)) if mosts else (low, high)
        case loops.Binary("min" | "max" as op, lhs, rhs):
            ends, choose = (_ends(lhs, env), _ends(rhs, env)), min if op == "min" else max
            return choose(least for least, _ in ends), choose(most for _, most in ends)
        case loops.Select(_, then, orelse):
            ends = _ends(then, env), _ends(orelse, env)
            return min(least for least, _ in ends), max(most for _, most in ends)
        case loops.Cast(_, value) if dtype_of(value, env).is_integer and not e.saturate:
            least, most = _ends(value, env)
            return (least, most) if low <= least and most <= high else (low, high)
        case _:
            return low, high


def _fits(e: Expr, scope: Scope) -> bool:
    """Tell whether every number on the way to `e` is proven to be one of 64 bits, in whatever order it is added up."""
    limits: dict[str, int] = {}
    for name in affine.name_set(e):
        low, high = scope.ranges.get(name, (None, None))
        if low is None or high is None:
            return False
        limits[name] = max(abs(low) - (low < 0), abs(high))
    return max(greatest(e, limits, scope.ranges)) < _REACH


def _extreme(of: Callable[[Iterable[int]], int], ends: list[int | None]) -> Expr | None:
    numbers = [end for end in ends if end is not None]
    return sets.Int(of(numbers)) if len(numbers) == len(ends) else None


def _products(a: tuple[int | None, int | None], b: tuple[int | None, int | None]) -> tuple[int | None, int | None]:
    if None in (*a, *b):
        return None, None
    ends = [x * y for x in a for y in b if x is not None and y is not None]
    return min(ends), max(ends)


def _any(a: Cond, b: Cond) -> Cond:
    return TRUE if TRUE in (a, b) else b if a == FALSE else a if b == FALSE else sets.Or((a, b))


def _shown(what: loops.Expr | loops.Stmt) -> str:
    return show_stmt(what) if isinstance(what, loops.Stmt) else show_expr(what)


def _fail(detail: str) -> Never:
    raise InternalError("bounds", detail)
