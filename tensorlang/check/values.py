"""What an expression means while it is checked.

    Num      a number known now: a literal, an attribute (it takes the type of what it meets)
    Idx      a quasi-affine integer over sizes and indices
    Cnd      a condition over such integers
    Val      a value computed at run time
    Tup      several values
    Packed   one value per position of a pack
    Tensor   a whole tensor (only an operator's argument)
    Fn       a scalar function
    Str      a text
    Limit    the smallest or the largest value of whatever type it meets
    Choice   a condition that chooses between numbers whose type is not known yet

A `Val` of a narrow float type has the language type (`f16`) in `dtype` while its expression is computed in f32 (rule T3).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from codegen.dtypes import DType
from polyhedral import expr as px
from tensorlang.check.module import Module
from tensorlang.tensor import nodes as ir


@dataclass(frozen=True, slots=True)
class Num:
    """A number or truth that is known. Equal ones are of the same kind and the same bits: 0.0 differs from -0.0 and from 0."""

    value: int | float | bool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Num) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(self.value)


@dataclass(frozen=True, slots=True)
class Idx:
    """`size`: made of sizes alone, no index; then it takes the type of an integer it meets, as a number does."""

    expr: px.Expr
    size: bool = False


@dataclass(frozen=True, slots=True)
class Cnd:
    cond: px.Cond


@dataclass(frozen=True, slots=True)
class Val:
    """`dtype` None: not known yet (a local that is being inferred). `lo`, `hi`: the value lies in [lo, hi) when both are known.
    `factors`: sizes that would have to be numbers for this to be an index expression. `narrow`: it was of a type narrower than `i64`.
    `as_read`: the same in the type that it was read in, of an element that was widened because it stands in brackets.
    `within`: what takes the place of `lo` and `hi` where the value is known to be an index of a tensor, and so did not wrap."""

    expr: ir.Expr
    dtype: DType | None
    lo: px.Expr | None = None
    hi: px.Expr | None = None
    factors: frozenset[str] = frozenset()
    narrow: bool = False
    as_read: Val | None = None
    within: tuple[px.Expr | None, px.Expr | None] = (None, None)


@dataclass(frozen=True, slots=True)
class Tup:
    """`whole`: the tuple-valued expression that these items are the projections of, if there is one."""

    items: tuple[Value, ...]
    whole: ir.Expr | None = None


@dataclass(frozen=True, slots=True)
class Packed:
    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Str:
    value: str


@dataclass(frozen=True, slots=True)
class Limit:
    highest: bool


@dataclass(frozen=True, slots=True)
class Choice:
    cond: ir.Expr
    then: Value
    orelse: Value


@dataclass(frozen=True, slots=True)
class Fn:
    """The name of a scalar function: of `module`, or a builtin that is passed like one."""

    name: str
    module: Module = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension as the language sees it: a composite has several sizes. `axes[k]` is the axis of the tensor in the IR that the
    k-th size belongs to, or None where nothing is stored (a missing or size-one dimension of a broadcast parameter)."""

    sizes: tuple[px.Expr, ...]
    axes: tuple[int | None, ...]
    composite: bool = False


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in scope. `dtype` is the language's type of an element (None: being inferred). `constant`: an omitted optional parameter,
    whose every element is that number. `rank` counts axes in the IR; axes without a `Dim` are read at 0."""

    name: str
    dtype: DType | None
    dims: tuple[Dim, ...]
    rank: int
    constant: Num | None = None
    declared: bool = True
    lo: px.Expr | None = None
    hi: px.Expr | None = None


Value: TypeAlias = Num | Idx | Cnd | Val | Tup | Packed | Str | Limit | Choice | Fn | Tensor
