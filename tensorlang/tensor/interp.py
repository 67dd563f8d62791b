"""What a program computes: the oracle for schedules, code generators and ONNX rules. Written to be obvious.

An expression is evaluated at many points at once: `Lanes` holds one array per index name, with one entry per point. A `Select`
evaluates each side at the points that choose it; a reduction walks its binders in order, first one outermost, and combines from left to
right. What is said of one point therefore never depends on how many are evaluated together.

Definitions that (directly or not) depend on themselves are evaluated stretch by stretch along their first axis: the points whose operands
are known already are stored, and each of the others is tried again when the element is known that it last lacked, until all are stored or
nothing moves: then some element depends on itself.

What the elements are is said by `carried`: numbers, or the terms they are computed by. Where values are terms a condition may be undecided:
both sides are evaluated then, and what lies outside of a tensor has no value there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, assert_never

import numpy as np

from codegen.dtypes import bool_
from polyhedral import affine
from polyhedral.expr import Cond
from polyhedral.expr import Expr as Affine
from tensorlang.diagnostics import NOWHERE, Diagnostic, InternalError, Label, RunError, Span
from tensorlang.externs import PythonFunction
from tensorlang.tensor import notation
from tensorlang.tensor.arith import Array
from tensorlang.tensor.nodes import (
    Binary,
    Binder,
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
    Select,
    Slot,
    Tensor,
    TupleOf,
    Unary,
)
from tensorlang.tensor.python_calls import computed
from tensorlang.tensor.segments import segments
from tensorlang.tensor.types import Type, Types, dtype_of, scalar_dtype, types_of
from tensorlang.tensor.value_domain import Carried, Numbers
from tensorlang.tensor.walk import call_at, caller_shape, components, definition_reads, shape_of, tensor_table

Value: TypeAlias = "Array | tuple[Array, ...]"

BATCH = 1 << 16
"""How many points of a reduction are evaluated together."""
STRETCH = 1 << 12
"""How many points of a recurrence wait together at most, unless more have the same coordinate."""


def interpret(program: Program, sizes: Mapping[str, int], arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the results of `program`, by name, in the dtypes and shapes the caller sees.

    Raises RunError: R0101 a missing or unfit argument, R0102 sizes outside the context, R0103 a declared range, R0104 an index out of
    bounds, R0105 an element that is undefined, defined twice, or depends on itself, R0107 a call of a kernel that is not a function of
    Python."""
    if program.externs:
        return _in_parts(program, sizes, arrays)
    evaluator = Evaluator(program, sizes, arrays)
    evaluator.run()
    return evaluator.results()


def _in_parts(program: Program, sizes: Mapping[str, int], arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the results of a program that calls functions of Python, as `interpret` does; these raise R0318 and R0319. Of other kernels
    nothing is known here."""
    known = dict(arrays)
    for part in segments(program):
        match part:
            case Program():
                known |= interpret(part, sizes, known)
            case ExternCall(kernel=PythonFunction()):
                known |= computed(call_at(part, {name: affine.to_expr(size) for name, size in sizes.items()}), known)
            case ExternCall():
                title = f"`{program.name}` calls a kernel for `{part.operator}`, and what that computes is not in the language"
                raise _error("R0107", title, part.span, "interpret the bodies of its operators: `operator.meaning(…)`")
    return {name: known[name] for name in program.results}


@dataclass(frozen=True, slots=True)
class Lanes:
    """`count` points. `index`: the coordinates, integers where all points agree; `values`: named values, whose dtypes are in `types`;
    `origin`: which element of the slab under evaluation each point belongs to; `perhaps`: nobody knows whether the expression at hand is
    evaluated."""

    count: int
    index: Mapping[str, Any]
    values: Mapping[str, Value]
    types: Types
    origin: Array
    perhaps: bool = False

    def take(self, where: Array) -> Lanes:
        """Return the points selected by a mask or by positions."""
        index = {n: v if isinstance(v, int) else v[where] for n, v in self.index.items()}
        values = {n: _map(lambda a: a[where], v) for n, v in self.values.items()}
        origin = self.origin[where]
        return Lanes(len(origin), index, values, self.types, origin, self.perhaps)

    def at(self, name: str, index: Any) -> Lanes:
        return Lanes(self.count, {**self.index, name: index}, self.values, self.types, self.origin, self.perhaps)

    def bind(self, name: str, value: Value, dtype: Type) -> Lanes:
        return replace(self, values={**self.values, name: value}, types=self.types.bind([name], [dtype]))

    def full(self, value: Any) -> Array:
        """Return an index value as one entry per point."""
        return self._each(value, np.int64)

    def holds(self, cond: Cond) -> Array:
        """Return whether a condition holds, as one entry per point."""
        return self._each(affine.holds(cond, self.index), np.bool_)

    def _each(self, value: Any, kind: type[np.generic]) -> Array:
        return np.asarray(value, kind) if isinstance(value, np.ndarray) and value.ndim else np.full(self.count, value, kind)


def _map(f: Callable[[Array], Array], value: Value) -> Value:
    return tuple(map(f, value)) if isinstance(value, tuple) else f(value)


def _single(value: Value) -> Array:
    if isinstance(value, tuple):
        raise InternalError("interp", "a tuple where one value is needed")
    return value


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Points of a definition in a stretch of a recurrence. `open`: which are not stored yet; `lacking`: the element that each lacked
    when it last had to wait, as `Evaluator._known` counts them, 0 where it had not."""

    definition: Definition
    points: Array
    open: Array
    lacking: Array


@dataclass(slots=True)
class Evaluator:
    """The state of an evaluation: `arrays` carried values of each tensor, `defined` which elements of them are known (absent: all)."""

    program: Program
    sizes: Mapping[str, int]
    inputs: Mapping[str, Array]
    carried: Carried = field(default_factory=Numbers)
    tensors: dict[str, Tensor] = field(init=False)
    types: Types = field(init=False)
    arrays: dict[str, Array] = field(init=False)
    defined: dict[str, Array] = field(init=False)
    _blocked: Array = field(init=False)
    _missing: tuple[str, tuple[int, ...]] | None = field(init=False, default=None)
    _known: Array = field(init=False)
    """Of a recurrence: `defined` of all its tensors, one after the other, after one element that is always known."""
    _first: dict[str, int] = field(init=False, default_factory=dict)
    """Where the elements of each tensor of a recurrence begin in `_known`."""
    _lacking: Array = field(init=False)
    """The last element of `_known` that each point under evaluation lacked, 0 where none is."""

    def __post_init__(self) -> None:
        self.tensors = tensor_table(self.program)
        self.types = types_of(self.program)
        self.sizes = {n: int(self.sizes[n]) for n in self.program.sizes if n in self.sizes}
        _check_sizes(self.program, self.sizes)
        self.arrays = {p.name: self._argument(p) for p in self.program.params}
        self.defined = {}
        self._blocked = np.zeros(0, np.bool_)
        self._known = np.ones(1, np.bool_)
        self._lacking = np.zeros(0, np.int64)

    def _argument(self, tensor: Tensor) -> Array:
        """Return the array given for a parameter, carried, one axis per axis of its box."""
        if tensor.name not in self.inputs:
            raise _error("R0101", f"no array given for `{tensor.name}`", tensor.span)
        array = np.asarray(self.inputs[tensor.name])
        if not self.carried.accepts(array, tensor.dtype):
            raise _error("R0101", f"`{tensor.name}` has elements of {array.dtype}, not {tensor.dtype}", tensor.span)
        if array.shape != caller_shape(tensor, self.sizes):
            raise _error("R0101", f"`{tensor.name}` has shape {array.shape}, not {caller_shape(tensor, self.sizes)}", tensor.span)
        carried = self.carried.load(array, tensor.dtype).reshape(shape_of(tensor, self.sizes))
        self._check_declared(tensor, carried)
        return carried

    def _check_declared(self, tensor: Tensor, array: Array) -> None:
        if tensor.declared_range is None:
            return
        lo, hi = (int(affine.evaluate(bound, self.sizes)) for bound in tensor.declared_range)
        wide = self.carried.reals(array) if tensor.dtype.is_float else self.carried.integers(array)
        bad = ~((wide >= lo) & (wide < hi))
        if bad.any():
            point = tuple(int(k) for k in np.argwhere(bad)[0])
            title = f"`{notation.element(tensor.name, point)}` is {wide[point].item()}, outside its declared range {lo}..{hi}"
            raise _error("R0103", title, tensor.span)

    # ------------------------------------------------ whole programs

    def run(self) -> None:
        """Define every tensor of the program."""
        for group in components(self.program):
            for definition in group:
                self.declare(definition)
            if len(group) > 1 or definition_reads(group[0]) & {t.name for t in group[0].tensors}:
                self._recur(group)
            else:
                self._define(group[0], self._box(group[0]))
            for tensor in (t for d in group for t in d.tensors):
                del self.defined[tensor.name]

    def results(self) -> dict[str, Array]:
        """Return the results as the caller sees them."""
        out = {}
        for name in self.program.results:
            tensor = self.tensors[name]
            out[name] = self.carried.store(self.arrays[name], tensor.dtype).reshape(caller_shape(tensor, self.sizes))
        return out

    def declare(self, definition: Definition) -> None:
        """Make room for the tensors of `definition`, with no element defined."""
        for tensor in definition.tensors:
            shape = shape_of(tensor, self.sizes)
            self.arrays[tensor.name] = self.carried.blank(shape, tensor.dtype)
            self.defined[tensor.name] = np.zeros(shape, np.bool_)

    # ------------------------------------------------ single elements, for replaying any order

    def value(self, definition: Definition, point: tuple[int, ...]) -> tuple[Any, ...]:
        """Return what `definition` gives at `point`, one value per tensor, carried. Raises RunError if that reads an undefined element."""
        lanes = self._lanes(definition, np.array([point], np.int64).reshape(1, len(point)))
        values, _ = self._elements(definition, lanes)
        if self._blocked.any() and self._missing:
            raise _error(
                "R0105", f"`{_element(definition, point)}` is computed before `{notation.element(*self._missing)}`", definition.span
            )
        return tuple(v[0] for v in values)

    def store(self, definition: Definition, point: tuple[int, ...], values: tuple[Any, ...]) -> None:
        """Define the element of `definition` at `point`."""
        for tensor, value in zip(definition.tensors, values, strict=True):
            self.arrays[tensor.name][point] = value
            self.defined[tensor.name][point] = True

    # ------------------------------------------------ definitions

    def _box(self, definition: Definition) -> Array:
        """Return the points of the box of `definition`, one row each, in row-major order."""
        shape = shape_of(definition.tensors[0], self.sizes)
        return np.indices(shape, np.int64).reshape(len(shape), -1).T if shape else np.zeros((1, 0), np.int64)

    def _lanes(self, definition: Definition, points: Array) -> Lanes:
        index = {axis: points[:, k] for k, axis in enumerate(definition.axes)}
        self._blocked = np.zeros(len(points), np.bool_)
        self._lacking = np.zeros(len(points), np.int64)
        self._missing = None
        return Lanes(len(points), {**self.sizes, **index}, {}, self.types, np.arange(len(points)))

    def _define(self, definition: Definition, points: Array) -> Array:
        """Store the elements at `points` whose operands are known; return which these are."""
        if not len(points):
            return np.zeros(0, np.bool_)
        values, covered = self._elements(definition, self._lanes(definition, points))
        if not covered.all():
            point = tuple(points[int(np.argmin(covered))].tolist())
            raise _error("R0105", f"`{_element(definition, point)}` is not defined by any clause", definition.span)
        ready = ~self._blocked
        for tensor, value in zip(definition.tensors, values, strict=True):
            self._assign(tensor, points[ready], value[ready])
        return ready

    def _assign(self, tensor: Tensor, points: Array, values: Array) -> None:
        if len(points):
            # A scalar tensor has the one point (), which NumPy does not take as an array of points.
            at = tuple(points.T)
            self.arrays[tensor.name][at] = values if at else values[0]
            self.defined[tensor.name][at] = True

    def _elements(self, definition: Definition, lanes: Lanes) -> tuple[tuple[Array, ...], Array]:
        """Return the values at `lanes`, one array per tensor, and which points some piece defines."""
        out = tuple(self.carried.blank(lanes.count, t.dtype) for t in definition.tensors)
        covered = np.zeros(lanes.count, np.bool_)
        for piece in definition.pieces:
            here = lanes.holds(piece.guard)
            if (here & covered).any():
                point = tuple(int(lanes.full(lanes.index[a])[int(np.argmax(here & covered))]) for a in definition.axes)
                raise _error("R0105", f"`{_element(definition, point)}` is defined twice", piece.span)
            covered = covered | here
            if here.any():
                some = lanes if here.all() else lanes.take(here)
                for values, result in zip(out, self._piece(definition, piece, some), strict=True):
                    values[here] = result
        return out, covered

    def _piece(self, definition: Definition, piece: Piece, lanes: Lanes) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            value = self.evaluate(piece.value, lanes)
            parts = value if isinstance(value, tuple) else (value,)
            return tuple(self.carried.rounded(part, t.dtype) for part, t in zip(parts, definition.tensors, strict=True))

    def _recur(self, group: tuple[Definition, ...]) -> None:
        """Define tensors that depend on each other's elements.

        Where all points with one coordinate are known at once, the next are tried next. Else more of them wait together: those of
        several coordinates may then be known at once."""
        self._count_elements(group)
        shapes = [shape_of(d.tensors[0], self.sizes) for d in group]
        axis = next((k for k in range(max(map(len, shapes))) if any(s[k] > 1 for s in shapes if len(s) > k)), 0)
        extent = max((s[axis] for s in shapes if len(s) > axis), default=1)
        boxes = [self._box(d) for d in group]
        each = [len(box) // s[axis] if len(s) > axis and s[axis] else len(box) for box, s in zip(boxes, shapes, strict=True)]
        widest = max(1, STRETCH // max(1, sum(each)))
        stretches: list[list[_Waiting]] = []
        begin, width = 0, 1
        while begin < extent:
            stretch = [self._waiting(d, box, n, begin, begin + width) for d, box, n in zip(group, boxes, each, strict=True)]
            begin += width
            self._settle(stretch)
            if any(w.lacking.any() for w in stretch):
                width = min(2 * width, widest)
            if any(w.open.any() for w in stretch):
                stretches.append(stretch)
        while stretches:
            moved = [self._settle(s) for sweep in (reversed(stretches), stretches) for s in sweep]
            stretches = [s for s in stretches if any(w.open.any() for w in s)]
            if stretches and not any(moved):
                raise self._stuck(stretches)
        self._first = {}

    def _count_elements(self, group: tuple[Definition, ...]) -> None:
        """Let the elements of tensors that depend on each other be counted through."""
        end = 1
        for tensor in (t for d in group for t in d.tensors):
            self._first[tensor.name] = end
            end += self.defined[tensor.name].size
        self._known = np.zeros(end, np.bool_)
        self._known[0] = True
        for name, first in self._first.items():
            there = self.defined[name]
            self.defined[name] = self._known[first : first + there.size].reshape(there.shape)

    def _waiting(self, definition: Definition, box: Array, each: int, begin: int, end: int) -> _Waiting:
        """Return the points of the box, of which there are so many for each coordinate, with coordinates from `begin` to `end`."""
        points = box[begin * each : end * each]
        return _Waiting(definition, points, np.ones(len(points), np.bool_), np.zeros(len(points), np.int64))

    def _settle(self, stretch: Sequence[_Waiting]) -> bool:
        """Define what can be defined of the points of a stretch; return whether any was."""
        found, moved = False, True
        while moved:
            moved = False
            for waiting in stretch:
                while len(at := np.flatnonzero(waiting.open & self._known[waiting.lacking])):
                    ready = self._define(waiting.definition, waiting.points[at])
                    waiting.open[at[ready]] = False
                    waiting.lacking[at[~ready]] = self._lacking[~ready]
                    moved = moved or bool(ready.any())
            found = found or moved
        return found

    def _stuck(self, stretches: Sequence[Sequence[_Waiting]]) -> RunError:
        """Return the error that shows a chain of elements, each needing the next, that closes."""
        waiting = next(w for of_definition in zip(*stretches, strict=True) for w in of_definition if w.open.any())
        chain: list[tuple[str, tuple[int, ...]]] = []
        point = tuple(waiting.points[int(np.argmax(waiting.open))].tolist())
        definition = waiting.definition
        name = definition.tensors[0].name
        while (name, point) not in chain:
            chain.append((name, point))
            self._elements(definition, self._lanes(definition, np.array([point], np.int64).reshape(1, len(point))))
            if self._missing is None:
                raise InternalError("interp", f"`{notation.element(name, point)}` is pending without a reason")
            name, point = self._missing
            definition = next(w.definition for w in stretches[0] if any(t.name == name for t in w.definition.tensors))
        cycle = [*chain[chain.index((name, point)) :], (name, point)]
        text = " needs ".join(f"`{notation.element(*element)}`" for element in cycle[:6])
        return _error("R0105", f"an element depends on itself: {text}", definition.span)

    # ------------------------------------------------ expressions

    def evaluate(self, e: Expr, lanes: Lanes) -> Value:
        """Return the value of `e` at every point of `lanes`, carried."""
        match e:
            case Const(value, dtype):
                return self.carried.constant(value, dtype, lanes.count)
            case IndexValue(index):
                return self.carried.from_indices(lanes.full(affine.evaluate(index, lanes.index)))
            case Holds(cond):
                return self.carried.from_indices(lanes.holds(cond))
            case Read():
                return self._read(e, lanes)
            case Name(name):
                return lanes.values[name]
            case Unary(op, value):
                return self.carried.unary(op, self._one(value, lanes), scalar_dtype(value, lanes.types))
            case Binary("and" | "or" as op, lhs, rhs):
                return self._lazy(op, lhs, rhs, lanes)
            case Binary(op, lhs, rhs):
                return self.carried.binary(op, self._one(lhs, lanes), self._one(rhs, lanes), scalar_dtype(lhs, lanes.types))
            case Compare(op, lhs, rhs):
                return self.carried.compare(op, self._one(lhs, lanes), self._one(rhs, lanes))
            case Select(cond, then, orelse):
                return self._select(self._one(cond, lanes), then, orelse, lanes)
            case Cast(dtype, value, saturate):
                return self.carried.cast(self._one(value, lanes), scalar_dtype(value, lanes.types), dtype, saturate)
            case Call(fn, args):
                return self.carried.call(fn, [self._one(a, lanes) for a in args], scalar_dtype(args[0], lanes.types))
            case Let(name, value, body):
                return self.evaluate(body, lanes.bind(name, self.evaluate(value, lanes), dtype_of(value, lanes.types)))
            case TupleOf(items):
                return tuple(self._one(item, lanes) for item in items)
            case Project(value, position):
                parts = self.evaluate(value, lanes)
                return parts[position] if isinstance(parts, tuple) else parts
            case Reduce():
                return self._reduce(e, lanes)
            case _:
                assert_never(e)

    def _one(self, e: Expr, lanes: Lanes) -> Array:
        return _single(self.evaluate(e, lanes))

    def _select(self, cond: Array, then: Expr, orelse: Expr, lanes: Lanes) -> Value:
        undecided = self.carried.undecided(cond)
        if undecided.any():
            some, rest = lanes.take(undecided), lanes.take(~undecided)
            return _merge(
                undecided,
                lambda: self._both(cond[undecided], then, orelse, some),
                lambda: self._select(cond[~undecided], then, orelse, rest),
            )
        chosen = self.carried.truth(cond)
        return _merge(chosen, lambda: self.evaluate(then, lanes.take(chosen)), lambda: self.evaluate(orelse, lanes.take(~chosen)))

    def _both(self, cond: Array, then: Expr, orelse: Expr, lanes: Lanes) -> Value:
        """Return the values of a `Select` under conditions that are undecided."""
        yes, no = (self.evaluate(side, replace(lanes, perhaps=True)) for side in (then, orelse))
        if isinstance(yes, tuple) and isinstance(no, tuple):
            return tuple(self.carried.select(cond, a, b) for a, b in zip(yes, no, strict=True))
        return self.carried.select(cond, _single(yes), _single(no))

    def _lazy(self, op: Literal["and", "or"], lhs: Expr, rhs: Expr, lanes: Lanes) -> Array:
        left = self._one(lhs, lanes)
        out, undecided = left.copy(), self.carried.undecided(left)
        if undecided.any():
            right = self._one(rhs, replace(lanes.take(undecided), perhaps=True))
            out[undecided] = self.carried.binary(op, left[undecided], right, bool_)
        open_ = ~undecided
        truth = self.carried.truth(left[open_])
        open_[open_] = truth if op == "and" else ~truth
        if open_.any():
            out[open_] = self._one(rhs, lanes.take(open_))
        return out

    # ------------------------------------------------ reads

    def _read(self, e: Read, lanes: Lanes) -> Array:
        array = self.arrays[e.tensor]
        if not lanes.count:
            return np.zeros(0, array.dtype)
        index = tuple(self._slot(s, lanes) for s in e.index)
        inside: Array | None = None  # every point
        for k, (coordinate, extent) in enumerate(zip(index, array.shape, strict=True)):
            fine = (coordinate >= 0) & (coordinate < extent)
            if not np.all(fine):
                fine = np.broadcast_to(fine, (lanes.count,))
                self._check_bounds(e, k, coordinate, extent, fine, lanes)
                inside = fine if inside is None else inside & fine
        at = index if inside is None else tuple(lanes.full(i)[inside] for i in index)
        found = array[at] if index else array[()]
        if inside is None and np.shape(found) == (lanes.count,):
            out = found
        else:
            out = self.carried.blank(lanes.count, self.tensors[e.tensor].dtype)
            out[slice(None) if inside is None else inside] = found
        if e.tensor in self.defined and not np.all(known := self.defined[e.tensor][at]):
            missing = np.zeros(lanes.count, np.bool_)
            missing[slice(None) if inside is None else inside] = ~known
            self._block(e, index, lanes, missing)
        return out

    def _slot(self, slot: Slot, lanes: Lanes) -> Any:
        if not isinstance(slot, Dynamic):
            return affine.evaluate(slot, lanes.index)
        return self.carried.integers(self._one(slot.value, lanes))

    def _check_bounds(self, e: Read, k: int, coordinate: Any, extent: int, fine: Array, lanes: Lanes) -> None:
        """Raise if a point whose operands are all known is not `fine`: it reads outside axis `k`."""
        bad = ~fine & ~self._blocked[lanes.origin]
        if not bad.any() or lanes.perhaps:
            return
        lane = int(np.argmax(bad))
        value = int(lanes.full(coordinate)[lane])
        place = ", ".join(f"{n}={int(lanes.full(v)[lane])}" for n, v in lanes.index.items() if n not in self.sizes)
        title = f"index {value} is out of bounds for axis {k} of `{e.tensor}`, which has {extent} elements"
        raise _error("R0104", title + (f" (at {place})" if place else ""), e.span)

    def _block(self, e: Read, index: tuple[Any, ...], lanes: Lanes, missing: Array) -> None:
        """Note that the elements which read an undefined element cannot be computed yet."""
        lane = int(np.argmax(missing))
        if not self._blocked[lanes.origin[lane]]:
            self._missing = (e.tensor, tuple(int(lanes.full(i)[lane]) for i in index))
        self._blocked[lanes.origin[missing]] = True
        if e.tensor in self._first:
            place: Any = 0
            for coordinate, extent in zip(index, self.arrays[e.tensor].shape, strict=True):
                place = place * extent + coordinate
            self._lacking[lanes.origin[missing]] = self._first[e.tensor] + lanes.full(place)[missing]

    # ------------------------------------------------ reductions

    def _reduce(self, e: Reduce, lanes: Lanes) -> Value:
        """Return the left fold of the body over the points, in order, that satisfy the conditions."""
        start = e.init or e.reducer.identity
        if start is None:
            return self._fold_without_start(e, lanes)
        total = tuple(_own(self._one(s, lanes)) for s in start)
        for batch, owner in self._points(e, e.binders, lanes, np.arange(lanes.count)):
            self._combine_batch(e, total, batch, owner)
        return total if len(total) > 1 else total[0]

    def _fold_without_start(self, e: Reduce, lanes: Lanes) -> Value:
        """The first point's body starts the fold."""
        total = tuple(self.carried.blank(lanes.count, d) for d in e.reducer.dtypes)
        started = np.zeros(lanes.count, np.bool_)
        for batch, owner in self._points(e, e.binders, lanes, np.arange(lanes.count)):
            for step, positions in _steps(owner, *_folds(owner)):
                first = ~started[positions]
                bodies = tuple(self._one(b, batch.take(step)) for b in e.body)
                for values, body in zip(total, bodies, strict=True):
                    values[positions[first]] = body[first]
                started[positions] = True
                if not first.all():
                    self._combine(e, total, positions[~first], tuple(b[~first] for b in bodies))
        if not (started | self._blocked[lanes.origin]).all():
            raise _error("R0106", f"`{e.reducer.name}` over an empty range has no value", e.span)
        return total if len(total) > 1 else total[0]

    def _points(self, e: Reduce, binders: tuple[Binder, ...], lanes: Lanes, owner: Array) -> Iterator[tuple[Lanes, Array]]:
        """Yield batches of points and, for each point, the position of the fold it belongs to. Batches follow the order of the fold, and
        so do the points of one fold within a batch."""
        if not lanes.count:
            return
        if not binders:
            where = lanes.holds(e.where)
            lanes, owner = (lanes, owner) if where.all() else (lanes.take(where), owner[where])
            if e.filter is not None and lanes.count:
                kept = self.carried.truth(self._one(e.filter, lanes))
                lanes, owner = lanes.take(kept), owner[kept]
            if lanes.count:
                yield lanes, owner
            return
        binder, inner = binders[0], binders[1:]
        lo, hi = self._bound(binder.lo, lanes), self._bound(binder.hi, lanes)
        extents = np.maximum(hi - lo, 0)
        if int(extents.sum()) * self._inner_extent(inner, binder, lanes, int(lo.min()), int(hi.max())) <= BATCH:
            positions = np.repeat(np.arange(lanes.count), extents)
            offsets = np.arange(len(positions)) - np.repeat(np.cumsum(extents) - extents, extents)
            expanded = lanes.take(positions).at(binder.name, lo[positions] + offsets)
            yield from self._points(e, inner, expanded, owner[positions])
            return
        for value in range(int(lo.min()), int(hi.max())):
            here = (lo <= value) & (value < hi)
            some = lanes if here.all() else lanes.take(here)
            yield from self._points(e, inner, some.at(binder.name, value), owner if here.all() else owner[here])

    def _bound(self, bound: Affine, lanes: Lanes) -> Array:
        return lanes.full(affine.evaluate(bound, lanes.index))

    def _inner_extent(self, inner: tuple[Binder, ...], binder: Binder, lanes: Lanes, lo: int, hi: int) -> int:
        """Return about how many points the inner binders have for one point of `binder`."""
        index: dict[str, Any] = {n: int(lanes.full(v).max()) for n, v in lanes.index.items()}
        index[binder.name] = max(lo, hi - 1)
        count = 1
        for b in inner:
            low, high = int(affine.evaluate(b.lo, index)), int(affine.evaluate(b.hi, index))
            count *= max(1, high - low)
            index[b.name] = max(low, high - 1)
        return count

    def _combine_batch(self, e: Reduce, total: tuple[Array, ...], batch: Lanes, owner: Array) -> None:
        """Fold the bodies at `batch` into `total`."""
        bodies = tuple(self._one(b, batch) for b in e.body)
        starts, counts = _folds(owner)
        if e.reducer.kind and len(bodies) == 1 and counts[0] > 1 and (counts == counts[0]).all():
            folds = owner[starts]
            rows = np.concatenate([total[0][folds][:, None], bodies[0].reshape(len(folds), -1)], axis=1)
            result = self.carried.accumulate(e.reducer.kind, rows, e.reducer.dtypes[0])
            if result is not None:
                total[0][folds] = result
                return
        for step, positions in _steps(owner, starts, counts):
            self._combine(e, total, positions, tuple(b[step] for b in bodies))

    def _combine(self, e: Reduce, total: tuple[Array, ...], positions: Array, bodies: tuple[Array, ...]) -> None:
        """Replace `total` at `positions` by its combination with `bodies`."""
        reducer = e.reducer
        left = tuple(t[positions] for t in total)
        if reducer.kind and len(bodies) == 1:
            joined = self.carried.joined(reducer.kind, left[0], bodies[0], reducer.dtypes[0])
            if joined is not None:
                total[0][positions] = joined
                return
        self.carried.met(reducer, left, bodies)
        names = (*reducer.left, *reducer.right)
        types = self.types.bind(names, (*reducer.dtypes, *reducer.dtypes))
        values_of = dict(zip(names, (*left, *bodies), strict=True))
        lanes = Lanes(len(positions), self.sizes, values_of, types, np.zeros(len(positions), np.int64))
        results = [self._one(c, lanes) for c in reducer.combine]
        for values, result in zip(total, results, strict=True):
            values[positions] = result


def _own(array: Array) -> Array:
    return np.array(array)


def _steps(owner: Array, starts: Array, counts: Array) -> Iterator[tuple[Array, Array]]:
    """Yield (points, folds): first the first point of every fold, then the second, … They are those that `_folds` tells of `owner`."""
    for step in range(int(counts.max())):
        live = starts[counts > step] + step
        yield live, owner[live]


def _folds(owner: Array) -> tuple[Array, Array]:
    """Return the first point of every fold, and how many it has. `owner` does not decrease."""
    begins = np.ones(len(owner), np.bool_)
    np.not_equal(owner[1:], owner[:-1], out=begins[1:])
    starts = np.flatnonzero(begins)
    counts = np.full(len(starts), len(owner))
    counts[:-1] = starts[1:]
    counts -= starts
    return starts, counts


def _merge(chosen: Array, then: Callable[[], Value], orelse: Callable[[], Value]) -> Value:
    """Return the points' values from the side each one chose; a side that no point chose is not evaluated."""
    if chosen.all():
        return then()
    if not chosen.any():
        return orelse()
    yes, no = then(), orelse()
    if isinstance(yes, tuple) and isinstance(no, tuple):
        return tuple(_join(chosen, a, b) for a, b in zip(yes, no, strict=True))
    return _join(chosen, _single(yes), _single(no))


def _join(chosen: Array, yes: Array, no: Array) -> Array:
    out = np.empty(len(chosen), yes.dtype)
    out[chosen], out[~chosen] = yes, no
    return out


# ---------------------------------------------------------------- the call


def _check_sizes(program: Program, sizes: Mapping[str, int]) -> None:
    for size in program.sizes:
        if size not in sizes:
            raise _error("R0101", f"no value given for the size `{size}`", program.span)
        if sizes[size] < 0:
            raise _error("R0102", f"the size `{size}` is {sizes[size]}; sizes are not negative", program.span)
    for cond in affine.conjuncts(program.context):
        if not affine.holds(cond, sizes):
            place = ", ".join(f"{n}={v}" for n, v in sizes.items())
            raise _error("R0102", f"`{program.name}` requires {notation.show_cond(cond)}, which does not hold for {place}", program.span)


def _element(definition: Definition, point: tuple[int, ...]) -> str:
    return notation.element(definition.tensors[0].name, point)


def _error(code: str, title: str, span: Span, help: str | None = None) -> RunError:
    return RunError(Diagnostic(code, title, () if span is NOWHERE else (Label(span),), help=help))
