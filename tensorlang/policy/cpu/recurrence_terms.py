"""Loop distribution: what a recurrence along rows makes without itself runs in loops of its own, in lanes along the rows, where that takes
fewer cycles than all of it in lanes over rows, or in none.

    y[i, j] = max(y[i, j - 1], f(x[i, j]))     ->     y.term[i, j] = f(x[i, j])           in lanes along j
                                                      y[i, j]      = max(y[i, j - 1], y.term[i, j])
"""

from __future__ import annotations

from math import prod

from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.cost import from_memory_cycles
from tensorlang.policy.cpu.inner_loops import best_inner_loops
from tensorlang.policy.cpu.joint_steps import waiting_together
from tensorlang.policy.cpu.running_results import running_cycles
from tensorlang.policy.cpu.wavefronts import waiting_cycles
from tensorlang.policy.deriver import Deriver, bytes_of, with_lifted
from tensorlang.schedule.shape import OPEN_EXTENT, extents
from tensorlang.tensor.nodes import Definition
from tensorlang.tensor.terms_apart import terms_apart
from tensorlang.tensor.walk import components, definers, reads


def with_terms_apart(d: Deriver) -> Deriver:
    """Return the state in which terms of recurrences along rows are tensors of their own, where that pays. Open sizes stay as they are:
    what exists for all of them is not known of samples."""
    if d.open_extents:
        return d
    found = [group[0] for group in components(d.program) if len(group) == 1 and _runs_along_rows(d, group[0])]
    together = waiting_together(d) if any(len(x.axes) == 1 for x in found) else set()  # Their terms are made while they wait.
    for definition in (x for x in found if x.tensors[0].name not in together):
        apart = with_lifted(d, definition.tensors[0].name, terms_apart)
        if apart is not None and _is_worth_storing(d, apart, definition):
            d = apart
    return d


def _runs_along_rows(d: Deriver, definition: Definition) -> bool:
    """Tell whether the elements of a row, in row-major order, need earlier ones of it, and no other."""
    name = definition.tensors[0].name
    own = [r for p in definition.pieces for r in reads(p.value) if r.tensor == name]
    rows = tuple(map(AffineName, definition.axes[:-1]))
    return bool(own) and name not in d.layouts and all(r.index[:-1] == rows for r in own)


def _is_worth_storing(d: Deriver, apart: Deriver, definition: Definition) -> bool:
    """Tell whether it takes fewer cycles with terms of their own."""
    name = definition.tensors[0].name
    stored = [x for x in apart.program.definitions if x.tensors[0].name not in d.axes]
    elements = _elements(definition)
    before = elements * _cycles(d, definition)
    after = elements * _cycles(apart, definers(apart.program)[name])
    for x in stored:
        size = bytes_of(apart, (x.tensors[0].name,))
        after += _elements(x) * best_inner_loops(apart, x, x.axes).cycles + 2 * from_memory_cycles(size, size, d.machine.l2_bytes)
    return after < before


def _cycles(d: Deriver, definition: Definition) -> float:
    """Return the cycles of an element: of a line those at least that it waits for the one before it, while others of its terms are made,
    unless it runs in lanes."""
    running = running_cycles(d, definition)
    if running is not None:
        return running
    cycles = best_inner_loops(d, definition, definition.axes[:-1]).cycles
    return max(cycles, waiting_cycles((definition,))) if len(definition.axes) == 1 else cycles


def _elements(definition: Definition) -> int:
    sizes = extents(definition)
    return prod(sizes[a] or OPEN_EXTENT for a in definition.axes)
