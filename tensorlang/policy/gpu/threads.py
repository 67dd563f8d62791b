"""What of a definition goes to blocks and threads: its elements, rows of it, the terms of its sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tensorlang.policy.deriver import Deriver, device_of
from tensorlang.policy.gpu.access import ENOUGH, shape_of, shared_by
from tensorlang.policy.machine import GpuMachine
from tensorlang.schedule.shape import bounded_extents, extents
from tensorlang.tensor.nodes import Definition
from tensorlang.tensor.walk import reduces

NO_STEPS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Threads:
    """The loop that threads run, and, where each has several neighbours, the loop over these."""

    loop: str
    lanes: str | None = None


def add_elements(
    d: Deriver,
    definition: Definition,
    axes: Sequence[str],
    *,
    neighbours: bool = True,
    steps: Mapping[str, str] = NO_STEPS,
    terms: Sequence[str] = (),
) -> Threads | None:
    """Give the elements of a definition to threads, and several neighbours to each where there are enough and `neighbours` says so. The
    loops of `steps`, by their axes, stand around, in that order; a thread goes through the other axes for each of `terms`. Return the loops
    of a thread, or None where there is one element or none."""
    name = definition.tensors[0].name
    sizes = extents(definition)
    wanted = [a for a in axes if sizes[a] != 1]
    if not wanted:
        share_sums(d, definition)
        return None
    if 0 in shape_of(definition):
        return None
    others = [a for a in definition.axes if a not in wanted and a not in steps]
    if any(sizes[a] is None for a in wanted):
        return _symbolic(d, name, wanted, others)
    binders = [b.name for p in definition.pieces for r in reduces(p.value) for b in r.binders]
    count = prod(sizes[a] or 1 for a in wanted)
    last = wanted[-1]
    inner = sizes[last] or 1
    whole = neighbours and last == definition.axes[-1] and not others
    lanes = next((n for n in (4, 2) if inner % n == 0 and count // n >= ENOUGH // 2 and whole), 1)
    schedule = d.schedule
    if lanes > 1:
        schedule = schedule.split(f"{name}.{last}", lanes, (f"{last}.o", f"{last}.v"))
        wanted[-1] = f"{last}.o"
        if binders and len(definition.pieces) == 1:
            schedule = schedule.order(*steps.values(), *(f"{name}.{loop}" for loop in (*wanted, *binders, f"{last}.v")))
    if others or (steps and list(definition.axes) != [*steps, *axes]):
        schedule = schedule.order(*steps.values(), *(f"{name}.{a}" for a in (*wanted, *terms, *others)))
    loop = wanted[0]
    for k, inner_loop in enumerate(wanted[1:]):
        schedule = schedule.fuse(f"{name}.{loop}", f"{name}.{inner_loop}", f"all{k}")
        loop = f"all{k}"
    if lanes > 1:
        schedule = schedule.vectorize(f"{name}.{last}.v")
    # What does not fill a block is one of as many threads; where each walks through a recurrence, as many blocks as there can be.
    threads = spread(device_of(d), count) if any(sizes[a] != 1 for a in others) else d.machine.threads
    if count // lanes <= threads:
        d.add(schedule.bind(f"{name}.{loop}", to="thread"))
        return Threads(f"{name}.{loop}")
    schedule = schedule.split(f"{name}.{loop}", threads, ("block", "item"))
    d.add(schedule.bind(f"{name}.block", f"{name}.item", to=("block.x", "thread")))
    return Threads(f"{name}.item", f"{name}.{last}.v" if lanes > 1 else None)


def spread(machine: GpuMachine, count: int) -> int:
    """Return how many threads a block has at least, so that there are as many blocks as the device runs at once."""
    threads = machine.threads
    while threads > machine.warp and -(-count // threads) < machine.blocks:
        threads //= 2
    return threads


def _symbolic(d: Deriver, name: str, axes: Sequence[str], others: Sequence[str]) -> Threads:
    """Bind the last three axes to the grid, the innermost in blocks of threads; what is left, and `others`, are walked inside. The axis of
    which a grid has the most blocks is for the one before the innermost: of that there are as many as there are threads fewer."""
    last = axes[-1]
    outer = [f"{name}.{a}" for a in axes[:-1][-2:]]
    inside = [f"{name}.{a}" for a in (*axes[: len(axes) - 1 - len(outer)], *others)]
    schedule = d.schedule.split(f"{name}.{last}", d.machine.threads, ("block", "item"))
    schedule = schedule.order(*outer, f"{name}.block", f"{name}.item", *inside)
    blocks = ("block.z", "block.x", "block.y")[-1 - len(outer) :] if outer else ("block.x",)
    d.add(schedule.bind(*outer, f"{name}.block", f"{name}.item", to=(*blocks, "thread")))
    return Threads(f"{name}.item")


def add_blocks(d: Deriver, definition: Definition, axes: Sequence[str]) -> str:
    """Give each point of some axes to a block, and return the loop over these."""
    name, loop = definition.tensors[0].name, axes[0]
    schedule = d.schedule
    for k, axis in enumerate(axes[1:]):
        schedule = schedule.fuse(f"{name}.{loop}", f"{name}.{axis}", f"row{k}")
        loop = f"row{k}"
    d.add(schedule.bind(f"{name}.{loop}", to="block.x"))
    return f"{name}.{loop}"


def share_sums(d: Deriver, definition: Definition, team: int | None = None) -> None:
    """Let threads share the reductions of a definition: each takes every `team`-th element of all that its innermost range has."""
    name, sizes = definition.tensors[0].name, bounded_extents(definition)
    found = [r for p in definition.pieces for r in reduces(p.value)]
    for reduce in found:
        binders = [b.name for b in reduce.binders]
        binder = binders[-1] if binders else ""
        extent = sizes.get(binder)
        if extent is None or extent < 2 or reduce.reducer.kind is None or d.program.mode == "strict":
            continue
        threads, around = team or shared_by(device_of(d), extent), [f"{name}.{b}" for b in binders[:-1]]
        schedule = d.schedule
        if extent <= threads and extents(definition)[binder] is not None:
            schedule = schedule.order(f"{name}.{binder}", *around) if around else schedule
            d.add(schedule.bind(f"{name}.{binder}", to="thread"))
            continue
        schedule = schedule.split(f"{name}.{binder}", threads, (f"{binder}.o", f"{binder}.t"))
        schedule = schedule.order(f"{name}.{binder}.t", *around, f"{name}.{binder}.o")
        d.add(schedule.bind(f"{name}.{binder}.t", to="thread"))
