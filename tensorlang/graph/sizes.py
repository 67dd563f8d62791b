"""Sizes of models that stay open: expressions over named symbols that compute as integers do.

    Size       a polynomial with integer coefficients over symbols and quotients: batch*seq, past + seq, (height + 1)//2
    Choice     the larger or the smaller of two: min(end, width) - start
    Symbols    the symbols of one model, a sample of each, and what was assumed of them

The code of importers and of passes computes with sizes as it does with integers. A comparison that holds for all values in range is
decided; any other is decided for the sample, and kept as an assumption (`Condition`): what is compiled is for just the combinations of
sizes of which all assumptions hold. Sizes that have to be equal and are not for the samples (`UnequalSizes`) are one symbol from then on.
Where a number itself is needed (`range(n)`, an array of NumPy's), `OpenSize` is raised.

Programs of kernels name the symbols: `expression` gives a size as their quasi-affine index expressions have it, in which a product of
symbols is a symbol of its own, and `Symbols.size` reads it back.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import permutations
from math import gcd, prod
from typing import Any, Literal, TypeAlias, assert_never

from codegen.polynomials import Poly, atom_poly, number
from polyhedral import affine
from polyhedral.expr import Add, Cond, Expr, Floor, Int, Max, Min, Mod, Name, Scale
from tensorlang.diagnostics import CompileError
from tensorlang.schedule.layout import Layout
from tensorlang.tensor.nodes import Tensor
from tensorlang.tensor.walk import caller_shape
from tensorlang.tensor.widths import LARGEST

PREFIX = "size."
"""What names of symbols begin with in programs: no name that a program gives does."""

MOST_PARTS = 64
"""A proof that a size is 0 or more is given up where it takes more sums of sides of choices than this: they double with each choice."""

LONGEST_SIDE = 400
"""So many characters are shown of each side of a choice."""

Relation: TypeAlias = Literal["<", "<=", "==", "!=", ">=", ">"]
NEGATED: Mapping[Relation, Relation] = {"<": ">=", "<=": ">", "==": "!=", "!=": "==", ">=": "<", ">": "<="}


@dataclass(frozen=True, slots=True)
class Quotient:
    """`value // divisor`, rounded down; the divisor is positive."""

    value: Formula
    divisor: Formula


@dataclass(frozen=True, slots=True)
class Choice:
    """The larger of two formulas, or the smaller."""

    which: Literal["max", "min"]
    left: Formula
    right: Formula

    @property
    def sides(self) -> tuple[Formula, Formula]:
        return self.left, self.right


Atom: TypeAlias = str | Quotient | Choice
Formula: TypeAlias = "Poly[Atom]"
Extent: TypeAlias = "int | Size"


class OpenSize(Exception):
    """A number is needed where sizes are open. `names`: the symbols that would have to be numbers."""

    def __init__(self, *sizes: Size, why: str = "") -> None:
        which = ", ".join(f"`{size}`" for size in dict.fromkeys(map(str, sizes)))
        super().__init__(why or f"{which} is open where a number is needed")
        self.names = frozenset(name for size in sizes for name in size.names)


class UnequalSizes(Exception):
    """Sizes have to be equal of which the samples are not: `formula == 0`. `refused` is what is wrong where they cannot be equal."""

    def __init__(self, formula: Formula, refused: CompileError) -> None:
        super().__init__(f"{show(formula)} == 0")
        self.formula, self.refused = formula, refused

    @property
    def has_choice(self) -> bool:
        """Whether the larger or the smaller of two sizes is part of it."""
        return any(isinstance(atom, Choice) for atom in self.formula.atoms())

    def solved(self) -> tuple[str, Formula] | None:
        """Return a symbol and what it has to be in terms of the others, a sum where there is one; None where that is not found."""
        terms = self.formula.terms
        common = [a for a in dict.fromkeys(next(iter(terms), ())) if all(a in m for m in terms)]
        for atom in common:
            divided = self.formula.exactly(atom_poly(atom), repr)
            assert divided is not None
            terms = divided.terms
        unit = Poly(terms).multiple_of() or 1
        found: list[tuple[str, Formula]] = []
        for monomial, factor in terms.items():
            rest = Poly({m: -c // factor for m, c in terms.items() if m != monomial})
            match monomial:
                case (str() as name,) if abs(factor) == unit and name not in names_in(rest):
                    found.append((name, rest))
                case _:
                    pass
        return min(found, key=lambda item: (range_of(item[1])[0] < 0, item[0]), default=None)

    def named_twice(self, sizes: Mapping[str, int]) -> tuple[str, Formula] | None:
        """Return a symbol and another of the same size, which make sizes equal if they are one; None where there are no such two."""
        for name, other in permutations(sorted(names_in(self.formula)), 2):
            if sizes[name] == sizes[other] and substituted(self.formula, name, atom_poly(other)).constant == 0:
                return name, atom_poly(other)
        return None


@dataclass(frozen=True, slots=True)
class Condition:
    """`formula relation 0`."""

    formula: Formula
    relation: Relation

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return _compared(evaluate(self.formula, sizes), self.relation)

    @property
    def is_limit(self) -> bool:
        """Whether it says that sizes are no larger than some number, and not which number they are."""
        factors = [c for m, c in self.formula.terms.items() if m]
        above = self.relation in ("<", "<=") and all(c > 0 for c in factors)
        return above or (self.relation in (">", ">=") and all(c < 0 for c in factors))

    def __str__(self) -> str:
        left = Poly({m: c for m, c in self.formula.terms.items() if m and c > 0})
        right = Poly({m: -c for m, c in self.formula.terms.items() if m and c < 0}) + number(-self.formula.offset)
        return f"{show(left)} {self.relation} {show(right)}"


@dataclass(slots=True, eq=False)
class Symbols:
    """`samples` has a value for each symbol of the model's inputs; `products` has what further symbols stand for."""

    samples: dict[str, int]
    products: dict[str, Formula] = field(default_factory=dict)
    assumed: dict[Condition, None] = field(default_factory=dict)
    unequal: Formula | None = None
    """What a comparison with zero was last asked of that may be zero and is not for the samples."""
    chooses: bool = False
    """Whether `maximum` and `minimum` of two sizes are sizes of their own, rather than the one that is so for the samples."""

    def symbol(self, name: str) -> Size:
        """Return the size that a symbol of the model stands for."""
        return Size(atom_poly(name), self)

    def knows(self, name: str) -> bool:
        """Tell whether `name` is a symbol."""
        return name in self.samples or name in self.products

    def formula(self, name: str) -> Formula:
        """Return what a symbol stands for."""
        return self.products.get(name) or atom_poly(name)

    def with_products(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return `sizes` of inputs with the values of what stands for products of them."""
        return {**sizes, **{name: evaluate(formula, sizes) for name, formula in self.products.items()}}

    def samples_of(self, names: Iterable[str]) -> dict[str, int]:
        """Return a sample for each of these symbols."""
        return {name: evaluate(self.formula(name), self.samples) for name in names}

    def size(self, e: Expr) -> Extent:
        """Return what an expression of a program stands for."""
        return of_formula(self._formula(e), self)

    def shape(self, tensor: Tensor) -> tuple[Extent, ...]:
        """Return the shape of a tensor of a program as its caller sees it."""
        return tuple(prod(self.size(tensor.shape[k]) for k in group) for group in tensor.groups)

    def _formula(self, e: Expr) -> Formula:
        match e:
            case Int(value):
                return number(value)
            case Name(name):
                return self.formula(name)
            case Add(lhs, rhs):
                return self._formula(lhs) + self._formula(rhs)
            case Scale(factor, value):
                return self._formula(value).scaled(factor)
            case Floor(value, divisor):
                return _quotient(self._formula(value), number(divisor))
            case Mod(value, divisor):
                whole = self._formula(value)
                return whole - _quotient(whole, number(divisor)).scaled(divisor)
            case Min(lhs, rhs) | Max(lhs, rhs):
                a, b = self.size(lhs), self.size(rhs)
                return formula_of(min(a, b) if isinstance(e, Min) else max(a, b))
            case _:
                assert_never(e)

    def expression(self, formula: Formula) -> Expr:
        """Return a formula as programs have it."""
        terms: dict[Expr, int] = {}
        for monomial, factor in formula.terms.items():
            if monomial:
                atom = self._atom(monomial)
                terms[atom] = terms.get(atom, 0) + factor
        return affine.from_terms(terms, formula.offset)

    def _atom(self, monomial: tuple[Atom, ...]) -> Expr:
        match monomial:
            case (str() as name,):
                return Name(name)
            case (Quotient(value, divisor),) if divisor.constant is not None:
                return affine.floor(self.expression(value), divisor.constant)
            case _:
                return Name(self._named(Poly({monomial: 1})))

    def name_of(self, e: Expr) -> str:
        """Return the symbol that stands for an expression of a program, which is not the same for all sizes: its own, or a product's."""
        formula = self._formula(e)
        match list(formula.terms.items()):
            case [((str() as name,), 1)]:
                return name
            case _:
                return self._named(formula)

    def _named(self, formula: Formula) -> str:
        """Return the name of the symbol that stands for a formula, which is none below 0: sizes of programs are not. Raises OpenSize."""
        for name, known in self.products.items():
            if known == formula:
                return name
        if not self.decided(formula, ">="):
            raise OpenSize(Size(formula, self), why=f"{show(formula)} is below 0")
        stem = PREFIX + _legal("_".join(sorted(names_in(formula))))
        name, k = stem, 1
        while name in self.products or name in self.samples:
            k += 1
            name = f"{stem}_{k}"
        self.products[name] = formula
        return name

    def conditions(self, sizes: Collection[str], bounded: bool = False) -> Iterator[Cond]:
        """Yield what was assumed of these sizes of programs alone; `bounded`: also that they are no larger than some number, as large as
        which scratch memory would be made."""
        products = (formula.terms for name, formula in self.products.items() if name in sizes)
        symbols = {monomial for terms in products for monomial in terms if list(terms.values()) == [1]}
        others = list(map(self.formula, sizes))
        meant = [fact for name, formula in self.products.items() if name in sizes for fact in self._facts(formula, others)]
        told = (c for c in self.assumed if c.relation != "!=" and (bounded or not c.is_limit))
        for condition in dict.fromkeys((*meant, *told)):
            if all(m in symbols or (len(m) <= 1 and all(_is_affine(a, sizes) for a in m)) for m in condition.formula.terms):
                yield affine.compare(condition.relation, self.expression(condition.formula), 0)

    def _facts(self, formula: Formula, others: Iterable[Formula]) -> Iterator[Condition]:
        """Yield what holds of the larger of two: that it is no smaller than either, and no larger than those of `others` that neither is
        larger than; of the smaller of two the same the other way round. A program may have that size alone, and not the two."""
        match list(formula.terms.items()):
            case [((Choice(which) as choice,), 1)]:
                sign = 1 if which == "max" else -1
                yield from (Condition((formula - side).scaled(sign), ">=") for side in choice.sides)
                beyond = ((other - formula).scaled(sign) for other in others if other != formula)
                yield from (Condition(found, ">=") for found in beyond if self.is_proven(found, ">="))
            case _:
                pass

    def is_proven(self, formula: Formula, relation: Relation) -> bool:
        """Tell whether `formula relation 0` holds for all sizes of which what was assumed holds. False says nothing."""
        if holds_between(*range_of(formula), relation):
            return True
        known = [g for c in self.assumed if c.relation != "!=" for least in _as_least(c.formula, c.relation) for g in least]
        found: dict[Formula, bool] = {}
        return any(all(_is_least(part, known, found) for part in least) for least in _as_least(formula, relation))

    def decided(self, formula: Formula, relation: Relation) -> bool:
        """Tell whether `formula relation 0` holds: for all sizes of which holds what was assumed, or, which is assumed from here on, for
        the samples."""
        if self.is_proven(formula, relation):
            return True
        if self.is_proven(formula, NEGATED[relation]):
            return False
        sample = evaluate(formula, self.samples)
        holds = _compared(sample, relation)
        if relation in ("==", "!=") and sample:
            self.unequal = formula
        self.assumed[Condition(formula, relation if holds else NEGATED[relation])] = None
        return holds


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Size:
    """An integer that is not known yet."""

    formula: Formula
    symbols: Symbols

    @property
    def names(self) -> frozenset[str]:
        """The symbols that it depends on."""
        return frozenset(names_in(self.formula))

    @property
    def sample(self) -> int:
        """What it is for the samples: for decisions that change no result."""
        return evaluate(self.formula, self.symbols.samples)

    @property
    def expression(self) -> Expr:
        """What it is in programs."""
        return self.symbols.expression(self.formula)

    def __repr__(self) -> str:
        return show(self.formula)

    def __hash__(self) -> int:
        return hash(self.formula)

    def __index__(self) -> int:
        raise OpenSize(self)

    __int__ = __float__ = __index__

    def __truediv__(self, other: object) -> Any:
        raise OpenSize(self)

    __rtruediv__ = __rpow__ = __truediv__

    def __pow__(self, other: object) -> Any:
        if not isinstance(other, int) or other < 0:
            raise OpenSize(self)
        return prod([self] * other)

    def _with(self, formula: Formula) -> Extent:
        return of_formula(formula, self.symbols)

    def __add__(self, other: object) -> Any:
        return self._with(self.formula + formula_of(other)) if isinstance(other, (int, Size)) else NotImplemented

    def __sub__(self, other: object) -> Any:
        return self._with(self.formula - formula_of(other)) if isinstance(other, (int, Size)) else NotImplemented

    def __rsub__(self, other: object) -> Any:
        return self._with(formula_of(other) - self.formula) if isinstance(other, int) else NotImplemented

    def __mul__(self, other: object) -> Any:
        return self._with(self.formula.times(formula_of(other), repr)) if isinstance(other, (int, Size)) else NotImplemented

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Extent:
        return self._with(self.formula.scaled(-1))

    def __pos__(self) -> Size:
        return self

    def __floordiv__(self, other: object) -> Any:
        return _divided(self, other, self.symbols) if isinstance(other, (int, Size)) else NotImplemented

    def __rfloordiv__(self, other: object) -> Any:
        return _divided(other, self, self.symbols) if isinstance(other, int) else NotImplemented

    def __mod__(self, other: object) -> Any:
        return self - _divided(self, other, self.symbols) * other if isinstance(other, (int, Size)) else NotImplemented

    def __rmod__(self, other: object) -> Any:
        return other - _divided(other, self, self.symbols) * self if isinstance(other, int) else NotImplemented

    def __abs__(self) -> Extent:
        return self if self >= 0 else -self

    def __bool__(self) -> bool:
        return self.symbols.decided(self.formula, "!=")

    def _compared(self, other: object, relation: Relation) -> Any:
        if not isinstance(other, (int, Size)):
            if isinstance(other, float) and abs(other) != float("inf") and other == int(other):
                other = int(other)
            else:
                return NotImplemented
        return self.symbols.decided(self.formula - formula_of(other), relation)

    def __eq__(self, other: object) -> bool:
        return self._compared(other, "==")  # type: ignore[no-any-return]

    def __ne__(self, other: object) -> bool:
        return self._compared(other, "!=")  # type: ignore[no-any-return]

    def __lt__(self, other: object) -> bool:
        return self._compared(other, "<")  # type: ignore[no-any-return]

    def __le__(self, other: object) -> bool:
        return self._compared(other, "<=")  # type: ignore[no-any-return]

    def __gt__(self, other: object) -> bool:
        return self._compared(other, ">")  # type: ignore[no-any-return]

    def __ge__(self, other: object) -> bool:
        return self._compared(other, ">=")  # type: ignore[no-any-return]


def _as_least(formula: Formula, relation: Relation) -> tuple[tuple[Formula, ...], ...]:
    """Return what `formula relation 0` says, as alternatives each of which is that all of some formulas are 0 or more."""
    above, below = formula - number(1), formula.scaled(-1) - number(1)
    match relation:
        case ">=":
            return ((formula,),)
        case ">":
            return ((above,),)
        case "<=":
            return ((formula.scaled(-1),),)
        case "<":
            return ((below,),)
        case "==":
            return ((formula, formula.scaled(-1)),)
        case "!=":
            return ((above,), (below,))
        case _:
            assert_never(relation)


def _is_affine(atom: Atom, sizes: Container[str]) -> bool:
    """Tell whether index expressions over these sizes have an atom: one of them, or a quotient of a sum of such by a number."""
    if isinstance(atom, str):
        return atom in sizes
    if isinstance(atom, Choice):
        return False
    terms = atom.value.terms
    return atom.divisor.constant is not None and all(len(m) <= 1 and _is_affine(a, sizes) for m in terms for a in m)


# ---------------------------------------------------------------- shapes


def is_open(shape: Sequence[Extent]) -> bool:
    """Tell whether a shape has sizes that are open."""
    return any(isinstance(n, Size) for n in shape)


def same(a: Extent, b: Extent) -> bool:
    """Tell whether two extents are equal whatever the sizes are. Nothing is assumed."""
    return (a if isinstance(a, int) else a.formula) == (b if isinstance(b, int) else b.formula)


def same_shape(a: Sequence[Extent], b: Sequence[Extent]) -> bool:
    """Tell whether two shapes are equal whatever the sizes are."""
    return len(a) == len(b) and all(map(same, a, b))


def is_one(n: Extent) -> bool:
    """Tell whether an extent is one whatever the sizes are."""
    return isinstance(n, int) and n == 1


def larger(a: Any, b: Any) -> Any:
    """Return the larger of two extents. Nothing is assumed where one of them always is."""
    return a if is_proven_least(a - b) else b if is_proven_least(b - a) else max(a, b)


def smaller(a: Any, b: Any) -> Any:
    """Return the smaller of two extents, as `larger` does."""
    return b if is_proven_least(a - b) else a if is_proven_least(b - a) else min(a, b)


def maximum(a: Any, b: Any) -> Any:
    """Return the larger of two extents: as a size of its own where neither always is, and their symbols keep both
    (`Symbols.chooses`), unless the samples are equal."""
    return _of_two("max", a, b)


def minimum(a: Any, b: Any) -> Any:
    """Return the smaller of two extents, as `maximum` does."""
    return _of_two("min", a, b)


def _of_two(which: Literal["max", "min"], a: Any, b: Any) -> Any:
    difference = a - b
    if isinstance(difference, int) or not difference.symbols.chooses or difference.sample == 0:
        return (larger if which == "max" else smaller)(a, b)
    return chosen(which, a, b, difference.symbols)


def chosen(which: Literal["max", "min"], a: Extent, b: Extent, symbols: Symbols) -> Extent:
    """Return the larger or the smaller of two extents: one of them where it always is, else a size of its own."""
    first, second = formula_of(a), formula_of(b)
    if symbols.is_proven(first - second, ">="):
        return a if which == "max" else b
    if symbols.is_proven(second - first, ">="):
        return b if which == "max" else a
    return Size(atom_poly(Choice(which, *sorted((first, second), key=show))), symbols)


def is_least(n: Extent) -> bool:
    """Tell whether an extent is 0 or more whatever the sizes are."""
    return n >= 0 if isinstance(n, int) else range_of(n.formula)[0] >= 0


def is_proven_least(n: Extent) -> bool:
    """Tell whether an extent is 0 or more wherever what was assumed holds."""
    return n >= 0 if isinstance(n, int) else n.symbols.is_proven(n.formula, ">=")


def to_expr(n: Extent) -> Expr:
    """Return an extent as programs have it."""
    return n.expression if isinstance(n, Size) else Int(n)


def laid_out(layout: Layout) -> Layout:
    """Return a layout of a graph as programs have it: its block of expressions where sizes are open."""
    shape: tuple[Any, ...] = layout.shape
    block: Any = tuple(map(to_expr, shape))
    return replace(layout, shape=block) if is_open(shape) else layout


def sample_of(n: Extent) -> int:
    """Return an extent, of an open one the sample: for decisions that change no result."""
    return n.sample if isinstance(n, Size) else n


def shape_in(tensor: Tensor, symbols: Symbols | None) -> tuple[Any, ...]:
    """Return the shape of a tensor of a program as its caller sees it, open sizes as those of `symbols`."""
    return caller_shape(tensor, {}) if symbols is None else symbols.shape(tensor)


def value_at(n: Extent, sizes: Mapping[str, int]) -> int:
    """Return an extent where the symbols are `sizes`."""
    return evaluate(n.formula, sizes) if isinstance(n, Size) else n


def with_sizes(n: Extent, sizes: Mapping[str, Extent]) -> Any:
    """Return an extent where the symbols are `sizes`, numbers and other sizes."""
    return _of_atoms(n.formula, sizes) if isinstance(n, Size) else n


def _of_atoms(formula: Formula, sizes: Mapping[str, Extent]) -> Any:
    def value(atom: Atom) -> Any:
        match atom:
            case str():
                return sizes[atom]
            case Quotient(above, below):
                return _of_atoms(above, sizes) // _of_atoms(below, sizes)
            case Choice(which, left, right):
                a, b = _of_atoms(left, sizes), _of_atoms(right, sizes)
                symbols = next((n.symbols for n in (a, b) if isinstance(n, Size)), Symbols({}))
                return chosen(which, a, b, symbols)
            case _:
                assert_never(atom)

    return sum(factor * prod(map(value, monomial)) for monomial, factor in formula.terms.items())


# ---------------------------------------------------------------- formulas


def evaluate(formula: Formula, sizes: Mapping[str, int]) -> int:
    """Return the value of a formula."""
    return sum(factor * prod(value_of(atom, sizes) for atom in monomial) for monomial, factor in formula.terms.items())


def value_of(atom: Atom, sizes: Mapping[str, int]) -> int:
    """Return the value of an atom of a formula."""
    match atom:
        case str():
            return sizes[atom]
        case Quotient(value, divisor):
            return evaluate(value, sizes) // max(1, evaluate(divisor, sizes))
        case Choice(which, left, right):
            return (max if which == "max" else min)(evaluate(left, sizes), evaluate(right, sizes))
        case _:
            assert_never(atom)


def _is_least(formula: Formula, known: Sequence[Formula], found: dict[Formula, bool]) -> bool:
    """Tell whether a formula is surely 0 or more: by its range, by something `known` to be so, or, of the larger or the smaller of two, by
    one of them or by both. `found`: what was asked before; of choices between choices no more than MOST_PARTS are looked at."""
    if formula not in found and len(found) < MOST_PARTS:
        found[formula] = range_of(formula)[0] >= 0 or any(range_of(formula - g)[0] >= 0 for g in known)
        found[formula] = found[formula] or _is_least_by_choice(formula, known, found)
    return found.get(formula, False)


def _is_least_by_choice(formula: Formula, known: Sequence[Formula], found: dict[Formula, bool]) -> bool:
    for monomial, factor in formula.terms.items():
        match monomial:
            case (Choice() as choice,):
                rest = formula.without(monomial)
                sides = (_is_least(rest.plus(side, factor), known, found) for side in choice.sides)
                return any(sides) if (choice.which == "max") == (factor > 0) else all(sides)
            case _:
                pass
    return False


def range_of(formula: Formula, most: Mapping[str, int] | None = None) -> tuple[int, int]:
    """Return between which numbers a formula lies, both included, whatever the sizes are, of which those in `most` are no larger."""
    low = high = 0
    for monomial, factor in formula.terms.items():
        lo, hi = 1, 1
        for atom in monomial:
            a, b = _range(atom, most) if most else _own_range(atom)
            corners = (lo * a, lo * b, hi * a, hi * b)
            lo, hi = min(corners), max(corners)
        low, high = low + min(factor * lo, factor * hi), high + max(factor * lo, factor * hi)
    return low, high


@lru_cache(maxsize=1 << 14)
def _own_range(atom: Atom) -> tuple[int, int]:
    """Return the range of an atom where nothing is known of the sizes; formulas share their parts, so each is looked at once."""
    return _range(atom, {})


def _range(atom: Atom, most: Mapping[str, int]) -> tuple[int, int]:
    if isinstance(atom, str):
        return 0, most.get(atom, LARGEST)
    if isinstance(atom, Choice):
        (lo, hi), (least, largest) = (range_of(side, most) for side in atom.sides)
        return (max(lo, least), max(hi, largest)) if atom.which == "max" else (min(lo, least), min(hi, largest))
    (lo, hi), (least, largest) = range_of(atom.value, most), range_of(atom.divisor, most)
    least, largest = max(1, least), max(1, largest)
    return min(lo // least, lo // largest), max(hi // least, hi // largest)


def show(formula: Formula) -> str:
    """Return a formula as people write it."""
    out = ""
    for monomial, factor in sorted(formula.terms.items(), key=lambda term: (not term[0], *map(_place, term[0]))):
        factors = [*([str(abs(factor))] if abs(factor) != 1 or not monomial else []), *map(_text, monomial)]
        sign = ("-" if factor < 0 else "") if not out else " - " if factor < 0 else " + "
        out += sign + "*".join(factors)
    return out or "0"


def _place(atom: Atom) -> tuple[str, str]:
    """Return what atoms are sorted by: symbols first, and then by their texts."""
    return ("" if isinstance(atom, str) else type(atom).__name__), _text(atom)


@lru_cache(maxsize=1 << 10)
def _text(atom: Atom) -> str:
    """Return the text of an atom, of choices between choices no more than tells them apart: it doubles with each."""
    if isinstance(atom, str):
        return atom.removeprefix(PREFIX)
    if isinstance(atom, Choice):
        left, right = (text if len(text) <= LONGEST_SIDE else f"{text[:LONGEST_SIDE]}…" for text in map(show, atom.sides))
        return f"{atom.which}({left}, {right})"
    value, divisor = show(atom.value), show(atom.divisor)
    return f"({f'({value})' if ' ' in value else value}//{f'({divisor})' if len(atom.divisor.terms) > 1 else divisor})"


def formula_of(n: object) -> Formula:
    """Return an extent as a formula."""
    return n.formula if isinstance(n, Size) else number(int(n))  # type: ignore[call-overload]


def substituted(formula: Formula, name: str, meaning: Formula) -> Formula:
    """Return a formula with another in place of a symbol."""
    symbols = Symbols(dict.fromkeys({*names_in(formula), *names_in(meaning)}, 1))
    sizes = {n: symbols.symbol(n) for n in symbols.samples}
    return formula_of(_of_atoms(formula, {**sizes, name: of_formula(meaning, symbols)}))


def of_formula(formula: Formula, symbols: Symbols) -> Extent:
    """Return the extent that a formula says."""
    known = formula.constant
    return Size(formula, symbols) if known is None else known


def _divided(a: object, b: object, symbols: Symbols) -> Extent:
    divisor = formula_of(b)
    if divisor.constant == 0:
        raise ZeroDivisionError(f"{a} divided by 0")
    if divisor.constant is not None and divisor.constant < 0:
        return _divided(-a, -divisor.constant, symbols)  # type: ignore[operator]
    if not symbols.decided(divisor, ">"):
        raise OpenSize(b if isinstance(b, Size) else Size(divisor, symbols))
    return of_formula(_quotient(formula_of(a), divisor), symbols)


def _quotient(value: Formula, divisor: Formula) -> Formula:
    """Return `value // divisor` for a positive divisor: whole terms by themselves, quotients of quotients as one."""
    if divisor.constant == 1:
        return value
    exact = None if divisor.constant is not None else value.exactly(divisor, repr)
    if exact is not None:
        return exact
    whole, rest = value.divided(divisor)
    if divisor.constant is None and rest.terms:
        whole, rest = number(0), value
    if not rest.terms:
        return whole
    lo, hi = range_of(rest)
    if divisor.constant is not None and lo >= 0 and hi < divisor.constant:
        return whole
    if divisor.constant is not None and rest.constant is None:
        inner = rest.without(())
        if all(c < 0 for c in inner.terms.values()):  # (-n)//2 is -((n + 1)//2), so that what is rounded up has one form
            return whole - _quotient(number(divisor.constant - 1) - rest, divisor)
        common = gcd(inner.multiple_of(), divisor.constant)
        if common > 1:  # (4*n + 3) // 6 is (2*n + 1) // 3
            reduced = Poly({m: c // common for m, c in rest.terms.items()})
            return whole + _quotient(reduced, number(divisor.constant // common))
        match list(inner.terms.items()):
            case [((Quotient(above, below),), 1)] if below.constant is not None:
                merged = above + number(rest.offset * below.constant)
                return whole + _quotient(merged, number(below.constant * divisor.constant))
            case _:
                pass
    return whole + atom_poly(Quotient(rest, divisor))


def names_in(formula: Formula) -> set[str]:
    """Return the symbols that a formula depends on."""
    found: set[str] = set()
    for atom in formula.atoms():
        found |= {atom} if isinstance(atom, str) else {name for part in parts_of(atom) for name in names_in(part)}
    return found


def parts_of(atom: Quotient | Choice) -> tuple[Formula, Formula]:
    """Return the formulas that an atom is made of."""
    return atom.sides if isinstance(atom, Choice) else (atom.value, atom.divisor)


def _legal(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", text.replace(PREFIX, ""))


def symbol_name(declared: str, taken: Mapping[str, object]) -> str:
    """Return a name in programs for a dimension that a model calls `declared`."""
    stem = PREFIX + (_legal(declared) or "n")
    name, k = stem, 1
    while name in taken:
        k += 1
        name = f"{stem}_{k}"
    return name


def _compared(value: int, relation: Relation) -> bool:
    match relation:
        case "<":
            return value < 0
        case "<=":
            return value <= 0
        case "==":
            return value == 0
        case "!=":
            return value != 0
        case ">=":
            return value >= 0
        case ">":
            return value > 0
        case _:
            assert_never(relation)


def holds_between(lo: int, hi: int, relation: Relation) -> bool:
    match relation:
        case "<":
            return hi < 0
        case "<=":
            return hi <= 0
        case "==":
            return lo == hi == 0
        case "!=":
            return lo > 0 or hi < 0
        case ">=":
            return lo >= 0
        case ">":
            return lo > 0
        case _:
            assert_never(relation)
