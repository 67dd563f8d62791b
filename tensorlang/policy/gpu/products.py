"""Schedules of contractions on a graphics processor: a block of threads for a tile of the result.

    y[batch, rows, columns] = f(sum(k) x[batch, rows, k] * w[batch, columns, k])

A block copies what a stretch of k needs of both operands into shared memory, and each thread keeps the sums of a few rows by a few columns
in registers. Neighbouring threads take neighbours along the axis in which the result lies in memory, four elements each. A convolution is
the same product: its rows are pixels, in tiles of one or two axes, and what is copied is the box of pixels that a tile looks at.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from polyhedral.expr import Name as AffineName
from tensorlang.policy.deriver import Deriver
from tensorlang.policy.machine import GpuMachine
from tensorlang.policy.pointwise import stored_axis
from tensorlang.schedule.pack import pack
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import Contraction, extents
from tensorlang.tensor.nodes import Definition
from tensorlang.tensor.walk import definition_reads

TILE = 64
"""Rows and columns of a block's tile, where there are so many."""
LARGE = 128
BLOCKS = 128
"""How many blocks a large device wants at least."""
DEPTH = 16
"""How much of the sum is copied at a time."""
LANES = 4


@dataclass(frozen=True, slots=True)
class OperandAxes:
    """The axes of one operand that the result has: `last` in tiles of `threads` times `each` neighbours, `times` over; `before`, if any, in
    tiles of `lines`; `outer` one by one."""

    last: str
    threads: int
    each: int
    times: int
    outer: tuple[str, ...]
    before: str | None = None
    lines: int = 1


def derive_product(d: Deriver, definition: Definition, c: Contraction) -> Schedule:
    """Return the schedule so far with the directives of one contraction."""
    name = definition.tensors[0].name
    sizes = {axis: e or 1 for axis, e in extents(definition).items()}
    stored = stored_axis(d, definition)
    near, far = (c.rows, c.columns) if stored in c.rows else (c.columns, c.rows)
    tiles = prod(-(-prod(sizes[a] for a in side) // LARGE) for side in (near, far)) * prod(sizes[a] for a in c.batch)
    large = tiles >= BLOCKS
    fast, slow = _side(near, sizes, large), _side(far, sizes, large)
    deep = max(c.inner, key=lambda k: sizes[k])
    others = [k for k in c.inner if k != deep]
    depth = max(1, DEPTH // prod(sizes[k] for k in others))
    s, outer, threads, registers = d.schedule, list(c.batch), [], []
    for side in (slow, fast):
        s = _tiled(s, name, side)
        outer += [*side.outer, *([f"{side.before}.o"] if side.before else []), f"{side.last}.o"]
        threads += [*([f"{side.before}.t"] if side.before else []), f"{side.last}.t"]
        registers += [f"{side.last}.h"] if side.times > 1 else []
    registers += [f"{slow.last}.r", f"{fast.last}.r"]
    stretch = sizes[deep] > depth
    s = s.split(f"{name}.{deep}", depth, (f"{deep}.o", f"{deep}.i")) if stretch else s
    inner = [f"{deep}.i" if stretch else deep, *others]
    order = [*outer, *([f"{deep}.o"] if stretch else []), *threads, *inner, *registers]
    s = s.order(*(f"{name}.{loop}" for loop in order))
    at = f"{name}.{deep}.o" if stretch else f"{name}.{outer[-1]}"
    s = _copies(d, s, c, at, name) if not isinstance(d.machine, GpuMachine) or d.machine.copies else s
    s = _grid(s, name, outer, slow, fast)
    return _threads(s, name, slow, fast, registers)


def _side(axes: tuple[str, ...], sizes: dict[str, int], large: bool) -> OperandAxes:
    last = axes[-1]
    extent = sizes[last]
    whole = LARGE if large else TILE
    tile = min(whole, max(LANES, 1 << (extent - 1).bit_length()))
    each = LANES
    before = next((a for a in reversed(axes[:-1]) if sizes[a] > 1), None) if tile < TILE // 2 and len(axes) > 1 else None
    lines = min(TILE // tile, 1 << (sizes[before] - 1).bit_length()) if before else 1
    times = 2 if tile == LARGE else 1
    return OperandAxes(last, tile // (each * times), each, times, tuple(a for a in axes[:-1] if a != before), before, lines)


def _tiled(s: Schedule, name: str, side: OperandAxes) -> Schedule:
    a = side.last
    s = s.split(f"{name}.{a}", side.threads * side.each * side.times, (f"{a}.o", f"{a}.b"))
    if side.times > 1:
        s = s.split(f"{name}.{a}.b", side.threads * side.each, (f"{a}.h", f"{a}.q"))
    s = s.split(f"{name}.{a}.{'q' if side.times > 1 else 'b'}", side.each, (f"{a}.t", f"{a}.r"))
    if side.before:
        s = s.split(f"{name}.{side.before}", side.lines, (f"{side.before}.o", f"{side.before}.t"))
    return s


def _copies(d: Deriver, s: Schedule, c: Contraction, at: str, name: str) -> Schedule:
    """Return `s` with copies of both operands in what loop `at` leaves to its iterations, the sum outermost. An operand that other
    equations read as well has none: they would read the copy, too."""
    program = d.program
    for operand, read in ((c.x, c.x_read), (c.w, c.w_read)):
        made = pack(program, operand)
        if isinstance(made, str) or any(x.tensors[0].name != name and made[1] in definition_reads(x) for x in made[0].definitions):
            continue
        program, copy = made
        axes = next(x.axes for x in program.definitions if x.tensors[0].name == copy)
        plain = {slot.name: axis for slot, axis in zip(read.index, axes, strict=True) if isinstance(slot, AffineName)}
        first = [plain[k] for k in c.inner if k in plain]
        s = s.pack(operand, [*first, *(a for a in axes if a not in first)], at=at)
    return s


def _grid(s: Schedule, name: str, outer: list[str], slow: OperandAxes, fast: OperandAxes) -> Schedule:
    columns, rows = f"{fast.last}.o", f"{slow.last}.o"
    rest = [loop for loop in outer if loop not in (columns, rows)]
    s = s.order(*(f"{name}.{loop}" for loop in (*rest, rows, columns)))
    if rest:
        loop = rest[0]
        for k, inner in enumerate(rest[1:]):
            s = s.fuse(f"{name}.{loop}", f"{name}.{inner}", f"grid{k}")
            loop = f"grid{k}"
        s = s.bind(f"{name}.{loop}", to="block.z")
    return s.bind(f"{name}.{rows}", f"{name}.{columns}", to=("block.y", "block.x"))


def _threads(s: Schedule, name: str, slow: OperandAxes, fast: OperandAxes, registers: list[str]) -> Schedule:
    lines = [f"{side.before}.t" for side in (slow, fast) if side.before]
    for loop in lines[:1]:
        s = s.bind(f"{name}.{loop}", to="thread.z")
    s = s.bind(f"{name}.{slow.last}.t", f"{name}.{fast.last}.t", to=("thread.y", "thread.x"))
    return s.unroll(*(f"{name}.{r}" for r in registers[:-1])).vectorize(f"{name}.{registers[-1]}")
