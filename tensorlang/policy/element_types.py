"""In which types a processor computes the elements of tensors: those that are written, unless integers are known to fit narrower ones.

    y[i] = u8((i32(x[i]) * 3 + i32(x[i + 1])) // 4)        x: u8[N]: computed in i16

How many elements a vector has is chosen before there are loops; which integers become narrow is decided of loops (`codegen.loops.narrow`).
So the definitions of a program are written as loops that compute one element of each in vectors, and what becomes of these is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from codegen.dtypes import DType, compute_dtype, i64
from codegen.loops import nodes as loops
from codegen.loops.narrow import narrowed
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import children, free_vars, loads, statements
from polyhedral import affine
from polyhedral import expr as sets
from tensorlang.bounded_cache import by_identity
from tensorlang.lower.index import to_index
from tensorlang.lower.value import Point, components, value
from tensorlang.tensor import nodes as tensor
from tensorlang.tensor.types import types_of
from tensorlang.tensor.walk import reduces, tensors

MOST_ROW_BYTES = 256
"""Of a row of which lanes pick elements, as many as registers hold where any do."""
Axes = tuple[tuple[str, sets.Expr, sets.Expr], ...]
"""Names with the bounds between which they run, the second exclusive."""


@by_identity(256)
def computed_bytes(program: tensor.Program) -> Mapping[str, int]:
    """Return the size in bytes of the widest type that elements of each defined tensor are computed in, its own included."""
    elements = _Elements(program)
    ends = [len(elements.body)]
    for definition in program.definitions:
        elements.define(definition)
        ends.append(len(elements.body))
    function = narrowed(loops.Function("elements", (), tuple(elements.params), (*elements.allocs, *elements.body)))
    tables = frozenset(t.name for t in tensors(program) if (row_bytes(t) or MOST_ROW_BYTES + 1) <= MOST_ROW_BYTES)
    body, found = function.body[len(elements.allocs) :], dict[str, int]()
    buffers = {b.name: b for b in (*function.params, *(s.buffer for s in function.body if isinstance(s, loops.Alloc)))}
    for k, definition in enumerate(program.definitions):
        size = max(_sizes(body[ends[k] : ends[k + 1]], buffers, frozenset(definition.axes), tables), default=1)
        found |= {t.name: size for t in definition.tensors}
    return found


def row_bytes(tensor: tensor.Tensor) -> int | None:
    """Return how many bytes a row of a tensor has, along its last axis; None where that is open, or there is none."""
    extent = affine.constant(tensor.shape[-1]) if tensor.shape else None
    return None if extent is None else extent * tensor.dtype.size_bytes


def _sizes(body: Iterable[loops.Stmt], buffers: Mapping[str, loops.Buffer], axes: frozenset[str], tables: frozenset[str]) -> Iterator[int]:
    """Yield the sizes of the types of what lanes along some of `axes` load, convert and store, where rows of `tables` lie in registers."""
    values = dict[str, DType]()
    for s in statements(*body):
        match s:
            case loops.Let(name, e):
                values[name] = dtype_of(e, Env(values=values, buffers=buffers))
                yield from _sizes_in(e, buffers, axes, tables)
            case loops.Store(buffer, _, e):
                yield compute_dtype(buffers[buffer].dtype).size_bytes
                yield from _sizes_in(e, buffers, axes, tables)
            case _:
                pass


def _sizes_in(
    e: loops.Expr | loops.Index, buffers: Mapping[str, loops.Buffer], axes: frozenset[str], tables: frozenset[str]
) -> Iterator[int]:
    """Yield the sizes of what a value is loaded from and converted to. An index that becomes an integer is one of its type, whose wrapping
    is the same; one that is compared with another is none; one of binders alone is one number for all lanes of an axis. Of an index into a
    row in registers as many bits are computed as an element has: what it is made of counts as it is loaded."""
    match e:
        case loops.Load(buffer) if buffer in tables:
            yield from (compute_dtype(buffers[found.buffer].dtype).size_bytes for found in loads(e))
            return
        case loops.Load(buffer):
            yield compute_dtype(buffers[buffer].dtype).size_bytes
        case loops.Cast(dtype):
            yield dtype.size_bytes
            if isinstance(e.value, loops.IndexValue) and dtype.is_integer:
                return
        case loops.Compare(_, loops.IndexValue(), loops.IndexValue()):
            return
        case loops.IndexValue() if not axes.isdisjoint(free_vars(e)):
            yield i64.size_bytes
        case _:
            pass
    for child in children(e):
        yield from _sizes_in(child, buffers, axes, tables)  # type: ignore[arg-type]  # a value has values and indices below it


@dataclass(slots=True)
class _Elements:
    """Loops that compute one element of each definition of a program: what they read and store to has no axes."""

    program: tensor.Program
    params: list[loops.Buffer] = field(default_factory=list)
    allocs: list[loops.Stmt] = field(default_factory=list)
    body: list[loops.Stmt] = field(default_factory=list)
    numbers: int = 0

    def __post_init__(self) -> None:
        defined = [t for d in self.program.definitions for t in d.tensors]
        given = (*self.program.params, *(t for t in defined if t.name in self.program.results), *_of_externs(self.program))
        self.params += [loops.Buffer(t.name, t.dtype, ()) for t in given]
        known = {b.name for b in self.params}
        self.allocs += [loops.Alloc(loops.Buffer(t.name, t.dtype, (), "registers")) for t in defined if t.name not in known]
        for p in self.program.params:
            if p.declared_range is not None and p.dtype.is_integer:
                element = loops.Cast(i64, loops.Load(p.name, ()))
                low, high = (loops.IndexValue(to_index(e, loops.Var)) for e in p.declared_range)
                asked = loops.Binary("and", loops.Compare(">=", element, low), loops.Compare("<", element, high))
                self.body.append(loops.Require(asked, 1))

    def define(self, definition: tensor.Definition) -> None:
        """Add the loops of a definition."""
        shape = definition.tensors[0].shape
        axes = tuple((a, sets.Int(0), extent) for a, extent in zip(definition.axes, shape, strict=True))
        for piece in definition.pieces:
            self._store([t.name for t in definition.tensors], (piece.value,), axes)

    def _store(self, to: Iterable[str], values: Iterable[tensor.Expr], axes: Axes) -> None:
        """Add loops over `axes` that store the components of values."""
        reductions = {r: self._reduced(r, axes) for e in values for r in reduces(e)}
        point = Point({}, loops.Var, types_of(self.program), self._element, reductions, self._fresh)
        stored = [c for e in values for c in components(e, point)]
        block: tuple[loops.Stmt, ...] = (*point.before, *(loops.Store(name, (), c) for name, c in zip(to, stored, strict=True)))
        for name, low, high in (*reversed(axes), ("_", sets.Int(0), sets.Int(1))):
            block = (loops.For(name, to_index(low, loops.Var), to_index(high, loops.Var), block, "vector"),)
        self.body += block

    def _reduced(self, e: tensor.Reduce, axes: Axes) -> tuple[loops.Expr, ...]:
        """Return what stands for a reduction whose terms are computed before."""
        totals = [loops.Buffer(self._fresh("total"), compute_dtype(dtype), ()) for dtype in e.reducer.dtypes]
        self.params += totals
        self._store([b.name for b in totals], e.body, (*axes, *((b.name, b.lo, b.hi) for b in e.binders)))
        return tuple(loops.Load(b.name, ()) for b in totals)

    def _element(self, name: str, slots: tuple[tensor.Slot, ...], point: Point) -> loops.Load:
        return loops.Load(name, tuple(loops.ValueIndex(value(s.value, point)) for s in slots if isinstance(s, tensor.Dynamic)))

    def _fresh(self, name: str) -> str:
        self.numbers += 1
        return f"{name}.{self.numbers}"


def _of_externs(program: tensor.Program) -> Iterator[tensor.Tensor]:
    for call in program.externs:
        yield from call.results
