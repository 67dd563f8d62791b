"""Recurrences that combine each element with the one before, in stretches that do not wait for each other: each runs from its own first
term, what is before it is combined for all of them, and both are put together.

    before   y[0] = x[0]                    y[i] = y[i - 1] + x[i]                                   scan y.i to 32
    after    y.part[i.out, 0] = x[32*i.out]
             y.part[i.out, i.in] = y.part[i.out, i.in - 1] + x[32*i.out + i.in]
             y.before[0] = y.part[0, 31]    y.before[i.out] = y.before[i.out - 1] + y.part[i.out, 31]
             y[i] = y.part[0, i]            for i < 32
             y[i] = y.before[floor(i / 32) - 1] + y.part[floor(i / 32), i mod 32]                    for i >= 32

Every element is computed twice, and steps wait for few others. Terms keep their order and are grouped otherwise, which changes sums and
products of floats: these have to come from a reduction, or the operator has to be `fast`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from codegen.dtypes import compute_dtype
from polyhedral import affine, sets
from polyhedral.expr import TRUE, Cond
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from polyhedral.verdict import Proven
from tensorlang.schedule.scan import defined_along, growths, has_one_place, points, running
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import OPERATIONS, Binary, Const, Definition, Expr, Piece, Program, Read, Tensor
from tensorlang.tensor.walk import Fresh, components, definers, fresh_for, reads, refresh, substitute

T = TypeVar("T")
_REGROUPED = "its sums would be grouped otherwise, which changes what they are: write it as a reduction, or the operator as `fast`"


@dataclass(frozen=True, slots=True)
class Chain:
    """A recurrence of one tensor: `where` it is, `start` at the first place of an axis, and at all others `then`, the element `step` before
    combined with `new`, or, where the equation says so, `new` with that."""

    definition: Definition
    axis: str
    step: int
    where: Cond
    start: Piece
    then: Piece
    new: Expr
    new_first: bool

    @property
    def combined(self) -> Binary:
        assert isinstance(self.then.value, Binary)
        return self.then.value

    @property
    def at(self) -> int:
        """Return which of the axes it runs along."""
        return self.definition.axes.index(self.axis)

    @property
    def extent(self) -> Affine:
        return self.definition.tensors[0].shape[self.at]

    def mirrored(self, position: Affine) -> Affine:
        """Return the place of the axis that is so many steps from the first, or the other way about."""
        return position if self.step > 0 else affine.sub(affine.sub(self.extent, 1), position)

    def join(self, before: Expr, after: Expr) -> Expr:
        return replace(self.combined, lhs=after, rhs=before) if self.new_first else replace(self.combined, lhs=before, rhs=after)


def chain_along(program: Program, definition: Definition, axis: str) -> Chain | None:
    """Return how a tensor runs along an axis, None where it does not, or does more than combine each element with the one before."""
    tensor = definition.tensors[0]
    if axis not in definition.axes or len(definition.tensors) > 1 or tensor.dtype != compute_dtype(tensor.dtype):
        return None
    own = [(p, r) for p in definition.pieces for r in reads(p.value) if r.tensor == tensor.name]
    if len(own) != 1:
        return None
    (then, read), shape = own[0], dict(zip(definition.axes, tensor.shape, strict=True))
    combined, new_first = then.value, isinstance(then.value, Binary) and read == then.value.rhs
    if not isinstance(combined, Binary) or combined.op not in OPERATIONS.values() or read not in (combined.lhs, combined.rhs):
        return None
    if next(len(group) for group in components(program) if definition in group) > 1:
        return None
    new = combined.lhs if new_first else combined.rhs
    where = affine.conj(*(c for c in affine.conjuncts(then.guard) if axis not in affine.name_set(c)))
    known = points(program, definition.axes, shape)

    def same(a: Cond, b: Cond) -> bool:
        both = ((a, b), (b, a))
        return all(isinstance(sets.implies(program.sizes, definition.axes, affine.conj(known, x), y), Proven) for x, y in both)

    for step in (1, -1):
        if read.index != tuple(affine.sub(a, step) if a == axis else AffineName(a) for a in definition.axes):
            continue
        for start in (p for p in definition.pieces if p is not then):
            made = Chain(definition, axis, step, where, start, then, new, new_first)
            is_first = affine.compare("==", axis, made.mirrored(affine.ZERO))
            if same(start.guard, affine.conj(where, is_first)) and same(then.guard, affine.conj(where, affine.negate(is_first))):
                return made
    return None


def is_exact(program: Program, chain: Chain) -> bool:
    """Tell whether the grouping of a chain's terms is nobody's business: that of minima, maxima, truths and integers, and that of sums and
    products of floats in an operator that is `fast`."""
    return program.mode == "fast" or not chain.definition.tensors[0].dtype.is_float or chain.combined.op in ("min", "max")


def scanned_in_parts(program: Program, tensor: str, axis: str, lengths: Sequence[int]) -> Program | str:
    """Return the program with a reduction of `tensor` that grows along `axis` as a running one, or its recurrence along it, in stretches of
    the first of `lengths`, what is before these in stretches of the next, and so on, or the reason why it cannot be."""
    definition = defined_along(program, tensor, axis)
    if isinstance(definition, str):
        return definition
    if min(lengths, default=0) < 2:
        return "stretches have two elements or more"
    if has_one_place(definition, axis):
        return program
    growth = next(growths(program, definition, axis), None)
    if growth is not None:
        made = running(program, definition, axis, growth)
        names = {x.tensors[0].name for x in program.definitions}
        own = next((x for x in made.definitions if x.tensors[0].name not in names), None)
        program, definition = made, own or definers(made)[tensor]
    chain = chain_along(program, definition, axis)
    if chain is None:
        return f"`{definition.tensors[0].name}` does not combine each element along `{axis}` with the one before, from one start"
    if growth is None and not is_exact(program, chain):
        return _REGROUPED
    return _in_parts(program, chain, lengths)


def _in_parts(program: Program, chain: Chain, lengths: Sequence[int]) -> Program:
    definition, at, fresh = chain.definition, chain.at, fresh_for(program)
    tensor, length, count = definition.tensors[0], affine.to_expr(lengths[0]), affine.ceil_div(chain.extent, lengths[0])
    part = replace(tensor, name=fresh(f"{tensor.name}.part"), shape=_with(tensor.shape, at, count, length))
    before = replace(tensor, name=fresh(f"{tensor.name}.before"), shape=_with(tensor.shape, at, count))
    outer, inner = fresh(f"{chain.axis}.out"), fresh(f"{chain.axis}.in")
    blocked = _Blocked(chain, lengths[0], part, before, outer, inner, fresh)
    made = blocked.parts(), blocked.ends(), blocked.whole()
    place = program.definitions.index(definition)
    changed = redefined(program, (*program.definitions[:place], *made, *program.definitions[place + 1 :]))
    if len(lengths) == 1:
        return changed
    further = chain_along(changed, made[1], outer)
    assert further is not None
    return _in_parts(changed, further, lengths[1:])


@dataclass(frozen=True, slots=True)
class _Blocked:
    """A chain in stretches of `length`, of which `outer` is the number and `inner` the place in one: what these come to by themselves,
    `part`, and what all up to the end of each come to, `before`."""

    chain: Chain
    length: int
    part: Tensor
    before: Tensor
    outer: str
    inner: str
    fresh: Fresh

    def parts(self) -> Definition:
        """Return what stretches come to by themselves, each from its own first term."""
        chain, here, start = self.chain, AffineName(self.outer), affine.scale(self.length, self.outer)
        position, at_first = affine.add(start, self.inner), affine.compare("==", self.inner, 0)
        is_whole = (affine.constant(chain.extent) or 1) % self.length == 0
        inside = TRUE if is_whole else affine.compare("<", position, chain.extent)
        first = [(self._term(chain.new, start), at_first)]
        if substitute(chain.new, {chain.axis: chain.mirrored(affine.ZERO)}) != chain.start.value:
            begins, later = affine.compare("==", self.outer, 0), affine.compare(">=", self.outer, 1)
            first = [
                (self._term(chain.start.value, affine.ZERO), affine.conj(begins, at_first)),
                (first[0][0], affine.conj(later, at_first)),
            ]
        following = chain.join(self._of(self.part, here, affine.sub(self.inner, 1)), self._term(chain.new, position))
        pieces = self._pieces(*first, (following, affine.conj(affine.compare(">=", self.inner, 1), inside)))
        asked = affine.conj(chain.where, affine.disj(at_first, inside))
        axes = _with(chain.definition.axes, chain.at, self.outer, self.inner)
        return Definition((self.part,), axes, self._or_nothing(pieces, asked), span=chain.definition.span)

    def ends(self) -> Definition:
        """Return what all stretches up to each come to."""
        chain, here, last = self.chain, AffineName(self.outer), affine.to_expr(self.length - 1)
        pieces = self._pieces(
            (self._of(self.part, affine.ZERO, last), affine.compare("==", self.outer, 0)),
            (
                chain.join(self._of(self.before, affine.sub(self.outer, 1)), self._of(self.part, here, last)),
                affine.compare(">=", self.outer, 1),
            ),
        )
        axes = _with(chain.definition.axes, chain.at, self.outer)
        return Definition((self.before,), axes, self._or_nothing(pieces, chain.where), span=chain.definition.span)

    def whole(self) -> Definition:
        """Return the chain, put together."""
        chain = self.chain
        own = chain.mirrored(AffineName(chain.axis))
        number, within = affine.floor(own, self.length), affine.mod(own, self.length)
        pieces = self._pieces(
            (self._of(self.part, affine.ZERO, own), affine.compare("<", own, self.length)),
            (
                chain.join(self._of(self.before, affine.sub(number, 1)), self._of(self.part, number, within)),
                affine.compare(">=", own, self.length),
            ),
        )
        others = (p for p in chain.definition.pieces if p not in (chain.start, chain.then))
        return replace(chain.definition, pieces=(*pieces, *others))

    def _of(self, made: Tensor, *index: Affine) -> Read:
        axes = tuple(map(AffineName, self.chain.definition.axes))
        return Read(made.name, _with(axes, self.chain.at, *index), span=self.chain.definition.span)

    def _term(self, value: Expr, position: Affine) -> Expr:
        return refresh(substitute(value, {self.chain.axis: self.chain.mirrored(position)}), self.fresh)

    def _pieces(self, *found: tuple[Expr, Cond]) -> tuple[Piece, ...]:
        span = self.chain.definition.span
        return tuple(Piece(value, affine.conj(self.chain.where, guard), span=span) for value, guard in found)

    def _or_nothing(self, found: tuple[Piece, ...], asked: Cond) -> tuple[Piece, ...]:
        dtype = self.part.dtype
        nothing = Piece(Const(dtype.zero, dtype), affine.negate(asked), otherwise=True, span=self.chain.definition.span)
        return found if asked == TRUE else (*found, nothing)


def _with(values: tuple[T, ...], at: int, *instead: T) -> tuple[T, ...]:
    return (*values[:at], *instead, *values[at + 1 :])
