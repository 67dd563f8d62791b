"""Give a reduction a tensor of its own where it does not need all the axes around it.

    before   y[d, j] = e[d, j] / sum(k) e[d, k]              the sum would be taken anew for each j
    after    y.sum[d] = sum(k) e[d, k]
             y[d, j]  = e[d, j] / y.sum[d]

Nothing is lifted from where a condition guards it (a guarded piece, a side of a `Select`, what comes after `and` or `or`, the terms that a
filter leaves), unless it is one of the piece that speaks of the remaining axes alone. What is then still inside the body of another
reduction `tensorlang.tensor.nested` lifts, whatever it uses, unless the two are one (`tensorlang.tensor.flat_reductions`); what is left
gets its conditions (`tensorlang.tensor.guarded`). Reductions that keep the place of a term begin with the first
(`tensorlang.tensor.first_terms`), and what is read at such a place, of few, is a choice (`tensorlang.tensor.selected_places`), as are sums
of a step where data name the element (`tensorlang.tensor.updates`); those over the bits of a number take them at once
(`tensorlang.tensor.bit_sums`), and places that a binder chooses are indices
(`tensorlang.tensor.chosen_places`).

What is lifted runs also where nothing asks for it, when the axes that it does not use are empty. Where its reads would then leave their
tensors, it has the condition that they are not; where that does not suffice it stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhedral import affine
from polyhedral.expr import FALSE, TRUE, Cond
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.bounded_cache import by_identity
from tensorlang.tensor.bit_sums import with_bit_sums
from tensorlang.tensor.cast_indices import with_plain_indices
from tensorlang.tensor.chosen_places import with_chosen_places
from tensorlang.tensor.digits import with_digits
from tensorlang.tensor.first_terms import with_first_terms
from tensorlang.tensor.flat_reductions import with_flat_reductions
from tensorlang.tensor.guarded import guarded
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nested import Lifting, contiguous, lift_nested
from tensorlang.tensor.nodes import Binary, Definition, Expr, Piece, Program, Project, Read, Reduce, Select, Tensor, TupleOf, as_value
from tensorlang.tensor.prove import reads_in_bounds
from tensorlang.tensor.selected_places import with_selected_places
from tensorlang.tensor.updates import with_updates
from tensorlang.tensor.walk import fresh_for, index_names, map_children, tensor_names, value_names


@by_identity(64)
def lift(program: Program) -> Program:
    """Return `program` with all such reductions lifted: lifting again changes nothing. Tensors hold what they held, bit for bit, but for
    sums of sums and products of products outside of `strict` mode, whose order is free."""
    program = with_first_terms(with_updates(with_digits(with_chosen_places(with_plain_indices(with_bit_sums(program))))))
    program = with_selected_places(program)
    fresh = fresh_for(program)
    out: list[Definition] = []
    for definition in program.definitions:
        lifting = _Invariant(program, definition, fresh)
        pieces = tuple(lifting.piece(p) for p in definition.pieces)
        out += [*lifting.made, replace(definition, pieces=pieces)]
    lifted = redefined(program, out)
    if lifted != program:
        return lift(lifted)
    whole = guarded(lift_nested(with_flat_reductions(program)))
    return program if whole == program else lift(whole)


@dataclass(frozen=True, slots=True)
class _Around:
    """What stands around a part of a piece: the axes of its tensor and binders of reductions."""

    axes: tuple[str, ...]
    extents: dict[str, Affine]
    """Of those that count from 0 up to a number that no other of them decides."""
    some: dict[str, Cond]
    """Axis or binder → the condition that it has a value."""
    guard: Cond

    def inside(self, e: Reduce) -> _Around:
        counted = {b.name: b.hi for b in e.binders if affine.constant(b.lo) == 0 and not set(affine.names(b.hi)) & set(self.extents)}
        return _Around(
            (*self.axes, *(b.name for b in e.binders)),
            {**self.extents, **counted},
            {**self.some, **{b.name: affine.compare("<", b.lo, b.hi) for b in e.binders}},
            affine.conj(self.guard, e.where),
        )


@dataclass(slots=True)
class _Invariant(Lifting):
    def piece(self, piece: Piece) -> Piece:
        axes, shape = self.definition.axes, self.definition.tensors[0].shape
        some = {a: affine.compare("<", affine.ZERO, extent) for a, extent in zip(axes, shape, strict=True)}
        around = _Around(axes, dict(zip(axes, shape, strict=True)), some, piece.guard)
        return replace(piece, value=self.lifted(piece.value, around))

    def lifted(self, e: Expr, around: _Around) -> Expr:
        match e:
            case Reduce():
                if e.filter is None:
                    inner = around.inside(e)
                    e = replace(e, body=tuple(self.lifted(b, inner) for b in e.body))
                return self._outlined(e, around)
            case Select(cond):
                # A reduction on a chosen side may read what exists only there: it stays.
                return replace(e, cond=self.lifted(cond, around))
            case Binary("and" | "or", lhs):
                return replace(e, lhs=self.lifted(lhs, around))
            case Project(value, position):
                found = self.lifted(value, around)
                return found.items[position] if isinstance(found, TupleOf) else replace(e, value=found)
            case _:
                return map_children(lambda child: self.lifted(child, around), e)

    def _outlined(self, e: Reduce, around: _Around) -> Expr:
        """Return an element of a tensor that holds `e`, a tuple of them where it has several parts, or `e` where it needs all the axes, or
        what is known only here."""
        axes, extents, guard = around.axes, around.extents, around.guard
        used = tuple(a for a in axes if a in index_names(e))
        free = set(affine.names(guard)) & set(axes)
        if used == axes or not free <= set(used) or any(a not in extents for a in used):
            return e
        own = {t.name for t in self.definition.tensors}
        if value_names(e) or tensor_names(e) & own or (guard != TRUE and e.reducer.identity is None):
            return e
        inside = affine.conj(*(c for c in affine.conjuncts(guard) if set(affine.names(c)) & set(used)))
        used = contiguous(used, e)
        stem = f"{self.definition.tensors[0].name}.{e.reducer.name}"
        names = tuple(self.fresh(stem if not k else f"{stem}.{k}") for k in range(len(e.body)))
        made = outlined(names, e, used, extents, inside)
        if not self._may_run(made, inside, around):
            # It reads what is there only where something asks for it.
            dropped = [c for a, c in around.some.items() if a not in used and not set(affine.names(c)) & (set(axes) - set(used))]
            inside = affine.conj(guard, *dropped)
            made = outlined(names, e, used, extents, inside)
            if inside == FALSE or e.reducer.identity is None or not reads_in_bounds(self.program_with(made), made):
                return e
        self.made.append(made)
        reads = tuple(Read(name, tuple(AffineName(a) for a in used), span=e.span) for name in names)
        return as_value(reads, e.span)

    def _may_run(self, made: Definition, inside: Cond, around: _Around) -> bool:
        """Tell whether `made` reads what is there wherever `inside` holds, also for sizes for which nothing asks for an element."""
        asked = all(c == TRUE for a, c in around.some.items() if a not in made.axes) and inside == around.guard
        return asked or reads_in_bounds(self.program_with(made), made)


def outlined(names: tuple[str, ...], e: Reduce, used: tuple[str, ...], extents: dict[str, Affine], inside: Cond) -> Definition:
    """Return tensors of these names, over `used`, that hold the components of `e` where `inside`."""
    shape = tuple(extents[a] for a in used)
    tensors = tuple(Tensor(name, dtype, shape, span=e.span) for name, dtype in zip(names, e.reducer.dtypes, strict=True))
    pieces = [Piece(e, inside, span=e.span)]
    if inside != TRUE and e.reducer.identity is not None:
        start = as_value(e.reducer.identity)
        pieces.append(Piece(start, affine.negate(inside), otherwise=True, span=e.span))
    return Definition(tensors, used, tuple(pieces), span=e.span)
