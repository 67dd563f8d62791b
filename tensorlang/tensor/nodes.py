"""Tensor IR: one operator with its ranks, dtypes, attributes and callees resolved. This is what an operator *means*.

    program    ::= sizes, params, results, definitions (in no particular order: data flow alone orders them)
    definition ::= tensors share axes and pieces (more than one tensor when a clause defines several results at once)
    piece      ::= guard over the axes, value

Everything is said in *box coordinates*: a tensor of shape [S0, S1, …] is defined for axis k in 0..Sk by pieces whose guards are disjoint
and cover the box (proven by `tensorlang.tensor.prove`). `s[t + 1, i] = s[t, i] * 2 for t in 0..T` becomes a piece over axes (t, i) with
guard `t >= 1 and …` and value `s[t - 1, i] * 2`.

Sizes stay symbolic (`Program.sizes`, integers >= 0 known at run time) or were replaced by integers. Indices are quasi-affine expressions of
`polyhedral.expr`, or `Dynamic` when the data decides. What lies outside a padded read has become an `Select` (value), a `Min`/`Max`
(clamp), arithmetic (wrap, reflect) or a condition of the reduction (skip), so a `Read` is always in bounds, which is proven, too.

dtypes are concrete. f16, bf16 and f8 values are computed in f32: reading such a tensor yields f32 and the value of a piece is rounded
once, when it is stored (rule T3). Casts to them are explicit `Cast` nodes, which round and yield f32 again when used in arithmetic.

The text form is the language itself, without packs, generics and attributes: `show(program)` prints an `op` that `parse` and `check`
turn into an equal program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import copysign
from typing import Literal, TypeAlias

from codegen.dtypes import DType
from polyhedral import affine
from polyhedral.expr import TRUE, Cond
from polyhedral.expr import Expr as Affine
from tensorlang.diagnostics import NOWHERE, InternalError, Span
from tensorlang.externs import Kernel


@dataclass(frozen=True, slots=True)
class Node:
    span: Span = field(default=NOWHERE, kw_only=True, compare=False, repr=False)


# ---------------------------------------------------------------- scalar expressions


@dataclass(frozen=True, slots=True)
class Const(Node):
    """`value` fits `dtype`; floats may be inf, -inf, nan. Equality is that of bits: 0.0 differs from -0.0, and nan equals nan."""

    value: float | int | bool
    dtype: DType

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Const) or self.dtype != other.dtype:
            return False
        x, y = self.value, other.value
        return copysign(1.0, x) == copysign(1.0, y) if x == 0 == y else x == y or (x != x and y != y)

    def __hash__(self) -> int:
        return hash((self.dtype, self.value if self.value == self.value else "nan"))


@dataclass(frozen=True, slots=True)
class IndexValue(Node):
    """An index expression as an i64 value."""

    index: Affine


@dataclass(frozen=True, slots=True)
class Dynamic(Node):
    """A data-dependent index: an integer value, known to lie in [lo, hi) when those are given (declared, or proven by a clamp);
    otherwise it is checked at run time against the extent of the axis it indexes."""

    value: Expr
    lo: Affine | None = None
    hi: Affine | None = None


Slot: TypeAlias = Affine | Dynamic


@dataclass(frozen=True, slots=True)
class Read(Node):
    tensor: str
    index: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Name(Node):
    """Bound by `Let` or by a reducer's parameters."""

    name: str


@dataclass(frozen=True, slots=True)
class Unary(Node):
    op: Literal["neg", "not", "bitnot", "abs"]
    value: Expr


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """Both sides have one dtype. `/` on floats, `//` and `%` floor; `min`/`max` propagate NaN, with -0 less than 0; `and`/`or` are lazy."""

    op: Literal["+", "-", "*", "/", "//", "%", "min", "max", "and", "or", "bitand", "bitor", "bitxor", "shl", "shr"]
    lhs: Expr
    rhs: Expr


Comparison: TypeAlias = Literal["<", "<=", ">", ">=", "==", "!="]
MIRRORED: Mapping[str, Comparison] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
"""What says the same of two values that have changed places."""


@dataclass(frozen=True, slots=True)
class Compare(Node):
    op: Comparison
    lhs: Expr
    rhs: Expr


@dataclass(frozen=True, slots=True)
class Holds(Node):
    """A condition over indices, as a bool value. Polyhedral analysis sees it, so it is a fact on the chosen side of a `Select`."""

    cond: Cond


@dataclass(frozen=True, slots=True)
class Select(Node):
    """Lazy: the side not chosen is not evaluated."""

    cond: Expr
    then: Expr
    orelse: Expr


@dataclass(frozen=True, slots=True)
class Cast(Node):
    dtype: DType
    value: Expr
    saturate: bool = False


@dataclass(frozen=True, slots=True)
class Call(Node):
    """An elementary function of floats: the names in codegen.loops.nodes.Call."""

    fn: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Let(Node):
    name: str
    value: Expr
    body: Expr


@dataclass(frozen=True, slots=True)
class TupleOf(Node):
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Project(Node):
    """Component `position` of a tuple value (a Reduce over a tuple reducer)."""

    value: Expr
    position: int


@dataclass(frozen=True, slots=True)
class Binder(Node):
    """A reduction index ranging over [lo, hi); bounds may mention axes, sizes and earlier binders."""

    name: str
    lo: Affine
    hi: Affine

    @property
    def extent(self) -> int | None:
        """Return how many values it takes, None where that is not constant."""
        return affine.difference(self.hi, self.lo)


@dataclass(frozen=True, slots=True)
class Reducer(Node):
    """`combine` maps (left…, right…) (as `Name`s) to the new components. dtypes are those of the accumulator's components.

    `identity` None: the range must be proven non-empty or an `init` given. `kind` names the shape the code generators know
    ("sum" "prod" "min" "max" "any" "all") when `combine` is exactly that operation on one component, else None."""

    name: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    dtypes: tuple[DType, ...]
    combine: tuple[Expr, ...]
    identity: tuple[Expr, ...] | None
    commutative: bool = True
    kind: str | None = None


Operation: TypeAlias = Literal["+", "*", "min", "max", "and", "or"]
OPERATIONS: Mapping[str | None, Operation] = {"sum": "+", "prod": "*", "min": "min", "max": "max", "any": "or", "all": "and"}
"""What `combine` is, by the kind of a reducer; nothing for a reducer without a kind."""


@dataclass(frozen=True, slots=True)
class Reduce(Node):
    """Left fold of `body` (one expression a component, already lifted, in the accumulator's dtypes) over the points of `binders` that
    satisfy `where` and, for filters that depend on data, `filter`; first binder outermost. Yields a tuple when the reducer has
    several components, else a value; a reducer's `yield` has already been applied around it."""

    reducer: Reducer
    binders: tuple[Binder, ...]
    body: tuple[Expr, ...]
    where: Cond = TRUE
    filter: Expr | None = None
    init: tuple[Expr, ...] | None = None


Expr: TypeAlias = (
    Const | IndexValue | Read | Name | Unary | Binary | Compare | Holds | Select | Cast | Call | Let | TupleOf | Project | Reduce
)


def as_value(parts: tuple[Expr, ...], span: Span = NOWHERE) -> Expr:
    """Return the value that has these parts: the only one, or a tuple."""
    return parts[0] if len(parts) == 1 else TupleOf(parts, span=span)


# ---------------------------------------------------------------- programs


@dataclass(frozen=True, slots=True)
class Tensor(Node):
    """`shape` is over sizes. `grouping` tells how axes make up the dimensions the caller sees: (1, 2, 1) is a rank-3 array whose middle
    dimension is the row-major product of two axes; () means one axis each. `declared_range`: for inputs of numbers, `in lo..hi`,
    checked when the operator is entered."""

    name: str
    dtype: DType
    shape: tuple[Affine, ...]
    grouping: tuple[int, ...] = ()
    declared_range: tuple[Affine, Affine] | None = None

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Return, for each dimension that the caller sees, the axes that make it up."""
        axes = iter(range(len(self.shape)))
        return tuple(tuple(islice(axes, n)) for n in self.grouping or (1,) * len(self.shape))

    def dimension_of(self, axis: int) -> int:
        """Return the dimension that the caller sees of which an axis is a part."""
        return next(k for k, group in enumerate(self.groups) if axis in group)


@dataclass(frozen=True, slots=True)
class Piece(Node):
    """`guard` is over axes and sizes, the box itself not repeated. `otherwise` only remembers how it was written."""

    value: Expr
    guard: Cond = TRUE
    otherwise: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Definition(Node):
    """`tensors` (usually one) of one shape, defined at axes by `pieces`; with several tensors the value of a piece is a tuple."""

    tensors: tuple[Tensor, ...]
    axes: tuple[str, ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class ExternSignature:
    """How an extern operator is declared: its header as text, without ranges of tensors, the names of its tensors (None for `each` of
    several), of sizes that a call has to tell (None for those that shapes tell), and of attributes."""

    text: str
    tensors: tuple[str | None, ...] = ()
    sizes: tuple[str | None, ...] = ()
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExternCall(Node):
    """A call of a kernel that nobody wrote in the language: it reads all of `arguments` (None: left out) and writes all of `results`, every
    tensor C-contiguous, and nothing more is known of it. `sizes`: those of the operator, packs as tuples, then `attributes`, each in the
    order of their declarations. `symbol` names the function for the element types at hand. `kernel` None: nobody gave one.

    `counts`: how many tensors each declared result and then each declared parameter is, None for one that is not `each` of several; empty
    where none is. `signature` is how the operator is declared, for the call to be printed with it."""

    operator: str
    arguments: tuple[str | None, ...]
    results: tuple[Tensor, ...]
    sizes: tuple[Affine | tuple[Affine, ...], ...] = ()
    attributes: tuple[int | float, ...] = ()
    kernel: Kernel | None = None
    symbol: str = ""
    counts: tuple[int | None, ...] = ()
    signature: ExternSignature | None = None
    given: tuple[Tensor, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the tensors that it reads, once each."""
        return tuple(dict.fromkeys(name for name in self.arguments if name is not None))


def constant_size(size: Affine) -> int:
    """Return a size around the call of a kernel, which is known there, as a number."""
    number = affine.constant(size)
    if number is None:
        raise InternalError("extern", f"a size around a kernel is open: {size}")
    return number


@dataclass(frozen=True, slots=True)
class OnlineAttention:
    """Attention in one pass over the keys (`tensorlang.tensor.online`), each definition by its first tensor: the products of queries and
    keys, scores, the largest of a block, the running largest, weights, their running sums, those of weighted values, and the result."""

    product: str
    scores: str
    tops: str
    largest: str
    weights: str
    totals: str
    sums: str
    result: str


@dataclass(frozen=True, slots=True)
class MinimalFiltering:
    """A convolution by minimal filtering (`tensorlang.tensor.winograd`), each definition by its tensor: `before` transform the input into
    `tiles`, `product` multiplies them with transformed weights, `after` and `result` transform what comes of it.

    `spatial` are the axes of the result that tiles cut, with `tile_sizes` results each, and `column` the one along which weights differ.
    In the other definitions `tile_axes` number tiles, `point_axes` places in one, and the last axis goes along channels."""

    before: tuple[str, ...]
    tiles: str
    product: str
    after: tuple[str, ...]
    result: str
    spatial: tuple[str, ...]
    tile_sizes: tuple[int, ...]
    column: str
    tile_axes: tuple[str, ...]
    point_axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SplitProduct:
    """A sum of products of f32 as one of products of bf16 (`tensorlang.graph.passes.precision.split_bf16`): in the definition of `result`
    elements of `operands` are multiplied, each of them a part of a number, `terms` products for one."""

    result: str
    operands: tuple[str, str]
    terms: int


Idiom: TypeAlias = OnlineAttention | MinimalFiltering | SplitProduct


@dataclass(frozen=True, slots=True)
class Program(Node):
    """An operator, ready to be interpreted, analysed, scheduled, printed.

    `context`: what is known of the sizes (where-conditions, attribute facts), checked at entry. `mode`: strict | reduce | fast (rule R2).
    `idioms`: what rewrites made of it, which policies go by (`tensorlang.tensor.idioms`); they say nothing about what it means.
    `externs`: calls of kernels that are not in the language. What is scheduled has none: `tensorlang.tensor.segments` cuts a program there.
    Every name (tensors, axes, binders, lets, sizes) is unique in the program, except that definitions may share axis names."""

    name: str
    sizes: tuple[str, ...]
    params: tuple[Tensor, ...]
    results: tuple[str, ...]
    definitions: tuple[Definition, ...]
    context: Cond = TRUE
    mode: Literal["strict", "reduce", "fast"] = "reduce"
    idioms: tuple[Idiom, ...] = ()
    externs: tuple[ExternCall, ...] = ()
