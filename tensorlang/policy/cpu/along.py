"""What guards and indices say of one axis or binder: which of its elements they are for, and how they go along it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from polyhedral import affine
from polyhedral.expr import Compare, Cond, Floor, Max, Min, Mod
from polyhedral.expr import Expr as Affine
from tensorlang.schedule.shape import names_of_slot, step_inside
from tensorlang.tensor.nodes import Dynamic, Read
from tensorlang.tensor.walk import distance


def remainders(guard: Cond) -> Iterator[Mod]:
    """Yield the remainders that a guard has equations for, as `i % 2 == 0`."""
    for c in affine.conjuncts(guard):
        if isinstance(c, Compare) and c.op == "==":
            yield from (e for e in (c.lhs, c.rhs) if isinstance(e, Mod))


def pins(guard: Cond, axis: str) -> bool:
    """Tell whether a guard asks for one element along an axis; one of every few is no such thing."""
    equations = (c for c in affine.conjuncts(guard) if isinstance(c, Compare) and c.op == "==")
    return any(axis in affine.name_set(e) for c in equations for e in (c.lhs, c.rhs) if not isinstance(e, Mod))


def shared_along(read: Read, names: Collection[str]) -> dict[str, int]:
    """Return of how many values of a name, one after the other, an element of a row is the same, for those names along which that is so."""
    *others, last = read.index or (None,)
    if not isinstance(last, Floor):
        return {}
    apart = frozenset[str]().union(*(names_of_slot(slot) for slot in others if slot is not None))
    return {n: last.divisor for n in sorted(names) if n not in apart and step_inside(last.value, n) == 1}


def turns(e: Affine | Cond, name: str) -> bool:
    """Tell whether an index goes another way from some value of a name on."""
    return (isinstance(e, Min | Max | Mod) and name in affine.name_set(e)) or any(turns(part, name) for part in affine.parts(e))


def is_other(slot: Affine | Dynamic, axes: Sequence[str]) -> bool:
    """Tell whether an index is one of some axes, plus or minus a number."""
    return any(distance(slot, a) not in (None, 0) for a in axes)
