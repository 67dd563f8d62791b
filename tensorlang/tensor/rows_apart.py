"""What all elements of a step of a recurrence read of an earlier one, rows, columns or single elements, as tensors of their own.

    m[k, i, j] = m[k - 1, i, j] - m[k - 1, i, k] * r[k, j]     ->     m.row[k, i] = m[k - 1, i, k]
                                                                       m[k, i, j]  = m[k - 1, i, j] - m.row[k, i] * r[k, j]

Once a step has copied what several of its elements need, each may lie in the place of the one before it. Where a condition says which
element is computed, `if i == k then …`, what that reads counts as what it is there. Elements are what they were, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from polyhedral import affine
from polyhedral.expr import TRUE, Compare, Cond
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.facts import Place, map_parts
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Const, Definition, Dynamic, Expr, Piece, Program, Read, Tensor
from tensorlang.tensor.prove import problems_since
from tensorlang.tensor.walk import definers, definition_reads, fresh_for


class _Row(NamedTuple):
    """Elements of a tensor, at `slots`, that differ along some `axes` of those that read them; the tensor has them where `guard` holds."""

    axes: tuple[str, ...]
    slots: tuple[Affine, ...]
    guard: Cond


def rows_apart(program: Program, tensor: str) -> Program | str:
    """Return the program with what a recurrence reads of itself that has fewer axes than it as tensors of their own, or the reason why it
    stays."""
    definition = definers(program).get(tensor)
    if definition is None or tensor not in definition_reads(definition) or len(definition.tensors) > 1:
        return f"`{tensor}` is no recurrence, or computed with others"
    (of,), shape, fresh = definition.tensors, dict(zip(definition.axes, definition.tensors[0].shape, strict=True)), fresh_for(program)
    made: dict[_Row, Definition] = {}

    def apart(e: Expr, place: Place) -> Expr:
        row = _row(program, definition, e, place.context) if isinstance(e, Read) and e.tensor == tensor else None
        if row is None:
            return map_parts(apart, e, place)
        if row not in made:
            name = Tensor(fresh(f"{tensor}.row"), of.dtype, tuple(shape[a] for a in row.axes), span=e.span)
            pieces = [Piece(Read(tensor, row.slots, span=e.span), row.guard, span=e.span)]
            if row.guard != TRUE:
                pieces.append(Piece(Const(of.dtype.zero, of.dtype), affine.negate(row.guard), otherwise=True, span=e.span))
            made[row] = Definition((name,), row.axes, tuple(pieces), span=e.span)
        return Read(made[row].tensors[0].name, tuple(map(AffineName, row.axes)), span=e.span)

    pieces = tuple(replace(p, value=apart(p.value, Place(p.guard))) for p in definition.pieces)
    at = program.definitions.index(definition)
    reading = replace(definition, pieces=pieces)
    changed = redefined(program, (*program.definitions[:at], *made.values(), reading, *program.definitions[at + 1 :]))
    if not made or problems_since(program, changed):
        return f"no rows of `{tensor}` are read by all elements of a step"
    return changed


def _row(program: Program, definition: Definition, read: Read, context: Cond) -> _Row | None:
    """Return the row that an element is of, where those that read it in `context` lie along more axes; None where there is no such row. One
    that lies before its reader along a single axis is what stood in its place."""
    shape = dict(zip(definition.axes, definition.tensors[0].shape, strict=True))
    index = tuple(slot for slot in read.index if not isinstance(slot, Dynamic))
    others = [a for a, slot in zip(definition.axes, index, strict=False) if slot != AffineName(a)]
    if len(index) < len(read.index) or len(others) < 2:
        return None
    known = _known(definition, context)
    fixed = {a: value for a, value in known.items() if affine.constant(value) is not None}

    def there(e: Affine) -> Affine:
        return affine.substitute(affine.substitute(e, known), fixed)

    index = tuple(map(there, index))
    names = frozenset[str]().union(*map(affine.name_set, index))
    axes = tuple(a for a in definition.axes if a in names)
    if not axes or len(axes) >= len(definition.axes) - len(fixed) or not names <= {*axes, *program.sizes}:
        return None
    return _Row(axes, index, affine.conj(*(c for e, n in zip(index, shape.values(), strict=True) for c in _inside(e, n, shape))))


def _inside(e: Affine, extent: Affine, shape: Mapping[str, Affine]) -> Iterator[Cond]:
    """Yield on which sides an index has to be asked whether it is inside an extent, where axes have these extents."""
    for rest in (e, affine.sub(affine.sub(extent, e), affine.ONE)):
        coefficients, _ = affine.terms(rest)
        least = {a: affine.sub(n, affine.ONE) if coefficients.get(AffineName(a), 0) < 0 else affine.ZERO for a, n in shape.items()}
        at_least = affine.constant(affine.substitute(rest, least))
        if at_least is None or at_least < 0:
            yield affine.compare(">=", rest, 0)


def _known(definition: Definition, context: Cond) -> Mapping[str, Affine]:
    """Return what equations of a context say that axes are, the last ones first, by others of the axes."""
    found: dict[str, Affine] = {}
    for c in affine.conjuncts(context):
        if isinstance(c, Compare) and c.op == "==":
            coefficients, const = affine.terms(affine.sub(c.lhs, c.rhs))
            for axis in reversed(definition.axes):
                factor = coefficients.get(AffineName(axis), 0)
                rest = affine.from_terms({e: n for e, n in coefficients.items() if e != AffineName(axis)}, const)
                if abs(factor) == 1 and axis not in found and axis not in affine.name_set(rest):
                    found[axis] = affine.scale(-factor, rest)
                    break
    return found
