"""Windows over each channel by itself on a graphics processor: depthwise convolutions and pools whose channels are last in memory.

    y[n, h, w, c] = f(sum(r, s) a[n, 2*h + r - 1, 2*w + s - 1, c] * b[r, s, c])

A thread has `lanes` neighbouring channels of `times` neighbours along a line. For each r it keeps what their windows see of a line in
registers, so neighbours share what they read. Threads of a block lie along channels, then points, then lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from polyhedral import affine
from polyhedral.expr import Name
from tensorlang.policy.deriver import Deriver
from tensorlang.policy.gpu.forms import product_of, slots_of
from tensorlang.policy.groups import FusionGroup, recurs
from tensorlang.policy.machine import GpuMachine
from tensorlang.schedule.pack import pack
from tensorlang.schedule.shape import extents, unit_stride
from tensorlang.tensor.nodes import Definition, Read
from tensorlang.tensor.walk import reads, reduces

LANES = 4
LARGEST = 64
"""Places of a window at most, which are all written out, and how far it may reach: what it sees of a line is kept in registers."""
ACROSS = 64
"""Threads along channels at most."""
FULL = 128
"""So many threads for each block of a full device are enough to take fewer points each."""


@dataclass(frozen=True, slots=True)
class Windowed:
    """`a` is read around points `width` of lines `height` (one or none), at places `across` and `others` of a window."""

    a: str
    outer: tuple[str, ...]
    height: tuple[str, ...]
    width: str
    channel: str
    others: tuple[str, ...]
    across: str
    lanes: int
    times: int
    points: int
    """Threads along a line; `lines` and `channels`: along the others."""
    lines: int
    channels: int


def windowed(d: Deriver, group: FusionGroup) -> Windowed | None:
    """Return a tensor by itself as windows over channels, or None."""
    definition = group.head
    if len(group.members) > 1 or len(definition.pieces) != 1 or recurs(d.program, definition) or product_of(d, definition) is not None:
        return None
    found = list(reduces(definition.pieces[0].value))
    if len(found) != 1 or not isinstance(d.machine, GpuMachine):
        return None
    sizes = {name: e or 0 for name, e in extents(definition).items()}
    binders = tuple(b.name for b in found[0].binders)
    if not all(sizes.values()) or prod(sizes[b] for b in binders) > LARGEST:
        return None
    lying = next((x for e in found[0].body for r in reads(e) if (x := _lying(d, definition, r, binders, sizes)) is not None), None)
    if lying is None or isinstance(pack(d.program, lying.read.tensor), str):
        return None
    outer = tuple(x for x in definition.axes if x not in (lying.height, lying.width, lying.channel))
    vectors = sizes[lying.channel] // LANES
    count = prod(sizes[x] for x in definition.axes) // LANES
    times = next((n for n in (4, 2) if n <= sizes[lying.width] and count // n >= d.machine.blocks * FULL), 1)
    channels = max(n for n in range(1, ACROSS + 1) if vectors % n == 0 or (vectors > ACROSS and n == d.machine.warp))
    points = max(1, min(-(-sizes[lying.width] // times), d.machine.threads // channels))
    lines = max(1, min(sizes[lying.height] if lying.height else 1, d.machine.threads // (channels * points)))
    others = tuple(b for b in binders if b != lying.across)
    height = (lying.height,) if lying.height else ()
    return Windowed(
        lying.read.tensor, outer, height, lying.width, lying.channel, others, lying.across, LANES, times, points, lines, channels
    )


@dataclass(frozen=True, slots=True)
class _Lying:
    read: Read
    height: str | None
    width: str
    channel: str
    across: str


def _lying(d: Deriver, definition: Definition, read: Read, binders: tuple[str, ...], sizes: Mapping[str, int]) -> _Lying | None:
    """Return how windows of a tensor lie that is read along channels, or None where there are none."""
    storage, axes = d.layouts.get(read.tensor), d.axes[read.tensor]
    channel = next((x for x in definition.axes if sizes[x] > 1 and unit_stride(read.index, storage, axes, x)), None)
    own = d.layouts.get(definition.tensors[0].name)
    lies = channel is not None and unit_stride(tuple(map(Name, definition.axes)), own, definition.axes, channel)
    if channel is None or not lies or sizes[channel] % LANES:
        return None
    found: list[tuple[str, str]] = []
    for slot in slots_of(read):
        form = affine.affine_form(slot)
        steps = form[0] if form is not None else {}
        along, across = [x for x in definition.axes if x in steps and sizes[x] > 1], [b for b in binders if b in steps]
        if len(along) == len(across) == 1 and sizes[across[0]] > 1 and abs(steps[across[0]]) * (sizes[across[0]] - 1) <= LARGEST:
            found.append((along[0], across[0]))
    if not found:
        return None
    *before, (width, across_) = found
    return _Lying(read, before[-1][0] if before else None, width, channel, across_)
