"""Sums of products of elements of two tensors: matrix products, convolutions, and what stands around the elements that they multiply.

    sum(k in 0..K) (if p + k < N then x[p + k] else 0) * f32(w[k, j])
        factors    x under a mask, with zeros outside; w, bf16 widened to f32
        rows p, columns j

`contraction` recognises one reduction, `contractions` all of a program. They look at what is written: whoever rewrites what is found, or
gives it to an instruction, says which types, masks, casts and guards may be there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from codegen.dtypes import DType, i32
from polyhedral.expr import TRUE
from polyhedral.expr import Name as AffineName
from tensorlang.tensor import walk
from tensorlang.tensor.nodes import Binary, Call, Cast, Const, Definition, Dynamic, Expr, Program, Read, Reduce, Select

ROUNDINGS = ("round_bf16", "round_tf32")
"""The elementary functions that round an element before it is multiplied."""


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor of a product, `value` as it stands: the element `read`, and what is done to it. `casts`: the types that it is cast to,
    the outermost first; `rounding`: one of ROUNDINGS, or "". `select` says under which condition (`mask`) it is the element, and what it is
    otherwise (`outside`); `zero` is what is taken off it last, as a zero point is. None where there is no such thing."""

    value: Expr
    read: Read
    casts: tuple[DType, ...] = ()
    saturates: bool = False
    rounding: str = ""
    select: Select | None = None
    zero: Expr | None = None

    @property
    def mask(self) -> Expr | None:
        return self.select and self.select.cond

    @property
    def outside(self) -> Expr | None:
        return self.select and self.select.orelse

    @property
    def is_padding(self) -> bool:
        """Tell whether its mask, if any, chooses between the element itself and what is no tensor's: a padded copy could hold both."""
        if self.select is None:
            return True
        return self.select.then is self.read and not walk.tensor_names(self.select.orelse)

    @property
    def is_plain(self) -> bool:
        """Tell whether it is the element itself."""
        return self.value is self.read

    @property
    def is_indexed_by_data(self) -> bool:
        return any(isinstance(slot, Dynamic) for slot in self.read.index)

    @property
    def is_padded_with_zeros(self) -> bool:
        """Tell whether it is 0 wherever it is not the element."""
        match self.outside:
            case None | Const(0):
                return True
            case _:
                return False


@dataclass(frozen=True, slots=True)
class Contraction:
    """`reduce` sums the products of two factors, in an equation with these `axes`."""

    reduce: Reduce
    factors: tuple[Factor, Factor]
    axes: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[Read, Read]:
        return self.factors[0].read, self.factors[1].read

    @property
    def tensors(self) -> tuple[str, str]:
        return self.factors[0].read.tensor, self.factors[1].read.tensor

    @property
    def dtype(self) -> DType:
        """Return the type that is summed in."""
        return self.reduce.reducer.dtypes[0]

    @property
    def is_guarded(self) -> bool:
        """Tell whether only some points are summed, or something besides."""
        return self.reduce.where != TRUE or self.reduce.filter is not None or self.reduce.init is not None

    @property
    def shared(self) -> tuple[str, ...]:
        """Return the binders that are by themselves an index of both elements, in order."""
        return tuple(b.name for b in self.reduce.binders if all(AffineName(b.name) in read.index for read in self.reads))

    def axes_of(self, factor: int) -> tuple[str, ...]:
        """Return the axes of the result that index this factor (0 or 1) and not the other: its rows, or its columns."""
        mine, others = (walk.index_names(self.reads[k]) for k in (factor, 1 - factor))
        return tuple(a for a in self.axes if a in mine and a not in others)

    def extent(self, binder: str) -> int | None:
        """Return how many values a binder takes, None where that is not constant."""
        return next(b.extent for b in self.reduce.binders if b.name == binder)


@dataclass(frozen=True, slots=True)
class NoContraction:
    """`why` a reduction is no contraction."""

    why: str


def contraction(e: Expr, axes: tuple[str, ...] = ()) -> Contraction | NoContraction:
    """Return the products of elements that `e` sums in an equation with these axes, or why it does not."""
    if not isinstance(e, Reduce) or e.reducer.kind != "sum":
        return NoContraction("it is no sum")
    pair = multiplied(e)
    if pair is None:
        return NoContraction("what is summed is no product")
    x, y = map(factor, pair)
    if x is None or y is None:
        return NoContraction("what is multiplied is computed on the way")
    return Contraction(e, (x, y), axes)


def contractions(program: Program) -> Iterator[tuple[Definition, Contraction]]:
    """Yield every contraction of a program with the definition that it stands in; one that stands there twice, twice."""
    for definition in program.definitions:
        for piece in definition.pieces:
            for e in walk.reduces(piece.value):
                found = contraction(e, definition.axes)
                if isinstance(found, Contraction):
                    yield definition, found


def multiplied(e: Expr) -> tuple[Expr, Expr] | None:
    """Return both factors of the products that a reduction goes over, elements or not; None where it goes over something else."""
    match e:
        case Reduce(body=(Binary("*", lhs, rhs),)):
            return lhs, rhs
        case _:
            return None


def sum_and_rest(e: Expr) -> tuple[Reduce, tuple[Expr, ...]] | None:
    """Return the one reduction that `e` is, and what is added to it, or None where it is something else. Zeros are nothing."""
    terms = [t for t in walk.operands("+", e) if not (isinstance(t, Const) and t.value == 0)]
    totals = [t for t in terms if isinstance(t, Reduce)]
    rest = tuple(t for t in terms if not isinstance(t, Reduce))
    if len(totals) != 1 or any(True for t in rest for _ in walk.reduces(t)):
        return None
    return totals[0], rest


def sums_products(e: Expr) -> bool:
    """Tell whether `e` sums products of what is read, whatever is done to elements and products: more than `contraction` recognises."""
    return isinstance(e, Reduce) and e.reducer.kind == "sum" and any(map(_is_product, e.body))


def _is_product(e: Expr) -> bool:
    match e:
        case Binary("*", lhs, rhs):
            return lhs != rhs and bool(walk.tensor_names(lhs)) and bool(walk.tensor_names(rhs))
        case Cast(_, value) | Select(_, value):
            return _is_product(value)
        case _:
            return False


def factor(e: Expr) -> Factor | None:
    """Return a factor as an element and what is done to it; None where it is computed in another way."""
    match e:
        case Binary("-", Cast(wide, _) as value, zero) if wide == i32:
            found = _stripped(value)
            return None if found is None else replace(found, value=e, zero=zero)
        case _:
            return _stripped(e)


def _stripped(e: Expr) -> Factor | None:
    match e:
        case Read():
            return Factor(e, e)
        case Cast(dtype, value, saturate):
            found = _stripped(value)
            return found and replace(found, value=e, casts=(dtype, *found.casts), saturates=saturate or found.saturates)
        case Call(name, (value,)) if name in ROUNDINGS:
            found = _stripped(value)
            return None if found is None or found.rounding else replace(found, value=e, rounding=name)
        case Select(_, value, _):
            found = _stripped(value)
            return None if found is None or found.select is not None else replace(found, value=e, select=e)
        case _:
            return None
