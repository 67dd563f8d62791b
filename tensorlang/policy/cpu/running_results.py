"""Running results along rows: recurrences whose rows run in lanes by themselves, as loops are emitted (`codegen.loops.running_lanes`).

    s[i, j] = s[i, j - 1] + x[i, j] + s[i - 1, j] - s[i - 1, j - 1]

Each element combines the one before it in its row with what is there, by an operation whose grouping changes nothing. Such rows run as they
are written, one after the other.
"""

from __future__ import annotations

from math import log2

from codegen.dtypes import DType, bool_
from codegen.loops.running_lanes import LEAST_BEGINNING, LEAST_LANES, LEAST_VECTORS
from codegen.loops.running_results import OPERATIONS
from polyhedral import affine
from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.cost import EXTREMUM_OPERATIONS, SHUFFLES, multiply_cycles
from tensorlang.policy.cpu.inner_cost import InnerLoops, cycles_of
from tensorlang.policy.deriver import Deriver
from tensorlang.schedule.shape import OPEN_EXTENT, extents, names_of_slot, step_of_slot
from tensorlang.tensor.facts import is_of_indices
from tensorlang.tensor.nodes import Binary, Call, Compare, Definition, Dynamic, Expr, Read, Reduce, Select
from tensorlang.tensor.walk import nodes, reads

BEGINNING = 2
"""How many times as many instructions it takes where some elements begin again."""
KEEPING_CYCLES = 2.0
"""For each vector: of adding what is before it, and of keeping what it comes to."""


def running_cycles(d: Deriver, definition: Definition) -> float | None:
    """Return the cycles of an element where rows run in lanes; None where they do not."""
    lanes, op = d.lanes_of(definition), _operation(d, definition)
    begins = op is not None and any(_begins(p.value, definition) for p in definition.pieces)
    least, extent = LEAST_BEGINNING if begins else LEAST_LANES, extents(definition)[definition.axes[-1]]
    if op is None or lanes < least or (OPEN_EXTENT if extent is None else extent) < LEAST_VECTORS * lanes:
        return None
    is_float = definition.tensors[0].dtype.is_float
    step = (1 / SHUFFLES + multiply_cycles(EXTREMUM_OPERATIONS if is_float else 1)) * (BEGINNING if begins else 1)
    return cycles_of(d, definition, InnerLoops((definition.axes[-1],))) + (log2(lanes) * step + KEEPING_CYCLES) / lanes


def _operation(d: Deriver, definition: Definition) -> str | None:
    """Return by what the elements of a row are combined with those before them, if that is all they need of their row."""
    (tensor, *others), (*rows, along) = definition.tensors, definition.axes
    if others or tensor.name in d.layouts:
        return None
    found: set[str] = set()
    before: set[Read] = set()
    for value in (p.value for p in definition.pieces):
        own = {r for r in reads(value) if r.tensor == tensor.name and r.index[:-1] == tuple(map(AffineName, rows))}
        if not all(_is_near(d, n, along) for n in nodes(value)):
            return None
        if own:
            op = _combined(value, next(iter(own)), tensor.dtype) if len(own) == 1 else None
            if not op:
                return None
            found.add(op)
            before |= own
    steps = {affine.constant(affine.sub(along, slot)) for r in before if not isinstance(slot := r.index[-1], Dynamic)}
    return found.pop() if len(found) == len(before) == 1 and steps <= {1, -1} else None


def _is_near(d: Deriver, n: Expr, along: str) -> bool:
    """Tell whether lanes along an axis compute something as one element does: of what they read they find neighbours, or one for all."""
    if isinstance(n, Read):
        *others, last = n.index or (affine.ZERO,)
        far = any(isinstance(s, Dynamic) or along in names_of_slot(s) for s in others) or isinstance(last, Dynamic)
        return n.tensor not in d.layouts and not far and step_of_slot(last, along) in (0, 1, -1)
    return not isinstance(n, Call | Reduce)


def _begins(e: Expr, definition: Definition) -> bool:
    """Tell whether data say that an element is not combined with any before it."""

    def has_own(side: Expr) -> bool:
        return any(r.tensor == definition.tensors[0].name for r in reads(side))

    return any(isinstance(n, Select) and not is_of_indices(n.cond) and has_own(n.then) != has_own(n.orelse) for n in nodes(e))


def _combined(e: Expr, own: Read, dtype: DType) -> str | None:
    """Return the operation by which a value goes on with `own`: any, said as "", where it is that itself; None where it does not."""
    sides = [s for s in (e.lhs, e.rhs) if own in reads(s)] if isinstance(e, Binary | Compare) else []
    side = _combined(sides[0], own, dtype) if len(sides) == 1 else None
    match e:
        case Read():
            return "" if e == own else None
        case Binary("+" | "-" as op, _, rhs) if not dtype.is_float and side in ("", "+") and (op == "+" or own not in reads(rhs)):
            return "+"
        case Binary(op) if op in OPERATIONS and side in ("", op) and (not dtype.is_float or op in ("min", "max")):
            return op
        case Compare("!=") if side in ("", "bitxor"):
            return "bitxor"
        case Select(cond, then, orelse) if own not in reads(cond):
            here = [_combined(s, own, dtype) for s in (then, orelse) if own in reads(s)]
            if len(here) == 1 and is_of_indices(cond):
                return here[0]
            ops = {op for op in here if op} or ({"or"} if dtype == bool_ else set())
            return ops.pop() if None not in here and len(ops) == 1 else None
        case _:
            return None
