"""Which candidate for a product is the least on a graphics processor, and into how many parts its sums are cut."""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.policy.deriver import Deriver, device_of
from tensorlang.policy.gpu.candidates import Candidate, Level
from tensorlang.policy.gpu.cost import adding_cycles
from tensorlang.policy.gpu.forms import Form, Kind, forms
from tensorlang.policy.gpu.matrix_tiles import by_warpgroups, by_warps
from tensorlang.policy.gpu.thread_tiles import by_threads
from tensorlang.policy.machine import GpuMachine
from tensorlang.tensor.nodes import Definition

LEVELS = {Level.WARPGROUP: by_warpgroups, Level.WARP: by_warps, Level.THREAD: by_threads}
PARTS = (2, 4, 8, 16)
"""Into how many sums a long one may be cut."""


def least(d: Deriver, definition: Definition, kind: Kind, level: Level) -> Candidate | None:
    """Return the least candidate of one form and one level for a tensor by itself, or None where there is none."""
    return _least(c for form in forms(d, definition) if form.kind is kind for c in LEVELS[level](form, 1, device_of(d)))


def cut(d: Deriver, definition: Definition) -> tuple[str, int] | None:
    """Return a reduction and how much of it one block sums up, where blocks are too few for the device, or None where they are not."""
    machine, found = device_of(d), [*forms(d, definition)]
    whole = _least(_candidates(found, 1, machine))
    if whole is None:
        return None
    results = whole.form.grid * whole.form.rows * whole.form.columns * whole.form.lines
    in_parts = [(c, n) for n in PARTS if (c := _least(_candidates(found, n, machine))) is not None]
    best, parts = min([(whole, 1), *in_parts], key=lambda x: x[0].cycles + adding_cycles(x[1], results, machine))
    return (best.form.deep, best.form.depth // parts) if parts > 1 else None


def _candidates(found: list[Form], parts: int, machine: GpuMachine) -> Iterator[Candidate]:
    """Yield the candidates of all levels for forms whose sums are cut into parts of one length."""
    for level in LEVELS.values():
        yield from (c for form in found if form.depth % parts == 0 for c in level(form, parts, machine))


def _least(candidates: Iterator[Candidate]) -> Candidate | None:
    """Return the candidate of least cost; of equal ones the largest, and of equally large ones that of the fewest lines."""
    return min(candidates, key=lambda c: (c.cycles, -c.tile.size * max(1, c.row_bytes), c.tile.lines.tile), default=None)
