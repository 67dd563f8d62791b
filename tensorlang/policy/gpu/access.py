"""What the equations of a group look like to a schedule for a graphics processor: along which axis threads take neighbours, how many of
them share a row, what a row's elements are read from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd, prod

from polyhedral import affine
from polyhedral.expr import Name as AffineName
from tensorlang.policy.deriver import Deriver, device_of
from tensorlang.policy.gpu.forms import product_of
from tensorlang.policy.groups import FusionGroup, recurs
from tensorlang.policy.machine import GpuMachine
from tensorlang.policy.pointwise import spreadable
from tensorlang.schedule.shape import bounded_extents, extents, unit_stride
from tensorlang.tensor.nodes import Definition, Read, Reduce
from tensorlang.tensor.walk import index_names, reads, reduces, tensor_table

KEPT = 48
"""Elements of a row that a thread keeps in registers at most, of all that the row's tensors hold."""
SHORT = 1024
"""A row of so many elements is a warp's."""
LEAST_SUMS = 32
"""A sum of fewer elements is one thread's."""
LEAST_STORED = 4
"""Bytes that a thread stores at once at least, where it can."""
TILE = 64
"""Elements of a row of a square that is turned in shared memory."""
ENOUGH = 32_768
"""So many threads fill a large device."""
UNROLLED = 32
"""Elements that a thread keeps of a tensor, and steps of a loop that are written out."""
SECTOR = 8
"""Elements of a sector of memory, which is read as a whole."""


@dataclass(frozen=True, slots=True)
class Elements:
    """A tensor whose elements threads compute by themselves, `lanes` neighbours along `along` each; `crossed` tensors are read along
    `crossing`."""

    outer: tuple[str, ...]
    along: tuple[str, ...]
    binders: tuple[str, ...]
    crossing: tuple[str, ...]
    crossed: tuple[str, ...]
    lanes: int
    tile: int
    rows: int
    """Of a square, that the threads of a block write at once."""


@dataclass(frozen=True, slots=True)
class Sums:
    """A reduction along `along` that `team` threads share, `rows` of them in a block."""

    along: tuple[str, ...]
    others: tuple[str, ...]
    lanes: int
    team: int
    rows: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Tensors that are computed row by row: `team` threads for each, `rows` of them in a block; the loops along it (in full) of tensors
    that are spread along it, and of reductions; the tensors that are read more than once."""

    along: tuple[str, ...]
    reduced: tuple[str, ...]
    reread: tuple[str, ...]
    lanes: int
    team: int
    rows: int


def elements(d: Deriver, group: FusionGroup) -> Elements | None:
    """Return a tensor by itself as one of elements, or None where it is computed in order or in pieces, or its sizes are open."""
    definition = group.head
    sizes = extents(definition)
    if len(group.members) > 1 or len(definition.pieces) != 1 or recurs(d.program, definition) or product_of(d, definition) is not None:
        return None
    if not definition.axes or not all(sizes[a] for a in definition.axes):
        return None
    binders = tuple(b.name for p in definition.pieces for r in reduces(p.value) for b in r.binders)
    if binders and is_shared(d, definition, len(definition.axes)) and not is_by_threads(d, group):
        return None
    axis = max(reversed(definition.axes), key=lambda a: _weight(d, definition, a))
    crossing = None if binders else _crossing(d, definition, axis)
    others = tuple(a for a in definition.axes if a not in (axis, crossing))
    lanes = _lanes(d, (definition,), {axis}, sizes[axis] or 1, alone=len(definition.axes) == 1)
    if binders and prod(sizes[a] or 1 for a in definition.axes) // lanes < device_of(d).blocks * device_of(d).threads:
        lanes = min(lanes, max(1, LEAST_STORED // definition.tensors[0].dtype.size_bytes))
    crossed = tuple(dict.fromkeys(_crossed(d, definition, axis, crossing))) if crossing else ()
    if crossing is not None and min(sizes[axis] or 1, sizes[crossing] or 1) < 8:
        others, crossing, crossed = tuple(a for a in definition.axes if a != axis), None, ()
    return Elements(others, (axis,), binders, (crossing,) if crossing else (), crossed, lanes, TILE, device_of(d).threads * lanes // TILE)


def _weight(d: Deriver, definition: Definition, axis: str) -> int:
    """Return how many elements are stored and read that lie next to each other along `axis`."""
    sizes, table = extents(definition), tensor_table(d.program)
    if sizes[axis] == 1:
        return -1
    count = prod(sizes[a] or 1 for a in definition.axes)
    most = count * prod(e or 1 for n, e in sizes.items() if n not in definition.axes)
    total = count if all(sizes[a] == 1 for a in definition.axes[definition.axes.index(axis) + 1 :]) else 0
    for read in (r for p in definition.pieces for r in reads(p.value)):
        if unit_stride(read.index, d.layouts.get(read.tensor), d.axes[read.tensor], axis):
            total += min(most, prod(affine.constant(e) or 1 for e in table[read.tensor].shape))
    return total


def _crossing(d: Deriver, definition: Definition, axis: str) -> str | None:
    """Return an axis along which lies what is read for most of the elements, or None."""
    return next((a for a in reversed(definition.axes) if a != axis and any(_crossed(d, definition, axis, a))), None)


def _crossed(d: Deriver, definition: Definition, axis: str, crossing: str) -> Iterator[str]:
    table, sizes = tensor_table(d.program), extents(definition)
    count = prod(sizes[a] or 1 for a in definition.axes)
    for read in reads(definition.pieces[0].value):
        large = 2 * prod(affine.constant(e) or 1 for e in table[read.tensor].shape) >= count
        if large and axis in index_names(read) and unit_stride(read.index, d.layouts.get(read.tensor), d.axes[read.tensor], crossing):
            yield read.tensor


def sums(d: Deriver, group: FusionGroup) -> Sums | None:
    """Return a tensor by itself whose long reductions run along memory, or None."""
    definition = group.head
    sizes = extents(definition)
    if len(group.members) > 1 or recurs(d.program, definition) or not spreadable(d, definition):
        return None
    if product_of(d, definition) is not None or not all(sizes[a] for a in definition.axes):
        return None
    along = [r.binders[-1].name for r in reduces(definition.pieces[0].value) if r.binders]
    found = {sizes[name] for name in along}
    extent = next(iter(found)) if len(found) == 1 else None
    if extent is None or extent < LEAST_SUMS or not all(_contiguous(d, r) for r in reduces(definition.pieces[0].value)):
        return None
    machine = device_of(d)
    others = tuple(b.name for r in reduces(definition.pieces[0].value) for b in r.binders[:-1])
    lanes = _lanes(d, (definition,), set(along), extent, alone=False)
    count = prod(sizes[a] or 1 for a in definition.axes)
    work = extent * prod(sizes[b] or 1 for b in others)
    team = machine.warp if work <= SHORT else min(machine.threads, _power(-(-extent // lanes)))
    return Sums(tuple(along), others, lanes, max(2, min(team, _power(-(-extent // lanes)))), _together(machine, team, count))


@dataclass(frozen=True, slots=True)
class _Along:
    """Of rows of one length: the loops along them (in full) of tensors that are spread along them and of reductions, their names; how many
    rows there are, and how many tensors of a row are stored."""

    spread: tuple[str, ...]
    reduced: tuple[str, ...]
    named: frozenset[str]
    length: int
    count: int
    kept: int


def rows(d: Deriver, group: FusionGroup) -> Rows | None:
    """Return tensors that are computed row by row as such, or None where their rows have different lengths or no thread could keep its
    share of them in registers."""
    found = _along(d, group)
    if found is None:
        return None
    machine = device_of(d)
    reread = _reread(d, group, found.named)
    lanes = _lanes(d, group.members, {*found.named}, found.length, alone=False)
    team = _team(machine, found.length, lanes, found.kept + len(reread))
    if team is None:
        return None
    return Rows(found.spread, found.reduced, reread, lanes, team, _together(machine, team, found.count))


def long_rows(d: Deriver, group: FusionGroup) -> Rows | None:
    """Return tensors that are computed row by row where no thread could keep its share of a row: what is read again is loaded again, and
    nothing else is stored along a row than the result. None for shorter rows, and where more is stored."""
    found = _along(d, group)
    if found is None or found.kept or rows(d, group) is not None:
        return None
    machine = device_of(d)
    lanes = _lanes(d, group.members, {*found.named}, found.length, alone=False)
    team = machine.most_threads if found.count <= machine.blocks else min(machine.threads, machine.most_threads)
    return Rows(found.spread, found.reduced, (), lanes, team, 1)


def is_too_long(d: Deriver, group: FusionGroup) -> bool:
    """Tell whether tensors are computed row by row, and neither registers of threads nor the memory that they share hold what is stored
    along a row."""
    inner = [m for m in group.members if m is not group.head and m.axes[group.depth :]]
    if len(group.members) < 2 or not inner or group.transformed is not None or group.online is not None:
        return False
    if _along(d, group) is not None:
        return rows(d, group) is None
    return stored_bytes(inner, group.depth) > device_of(d).shared_bytes


# ---------------------------------------------------------------- a thread, or threads together


def is_by_threads(d: Deriver, group: FusionGroup, rows: int | None = None) -> bool:
    """Tell whether a thread for each row of a group is done sooner than a block: where what it keeps fits its registers, and steps of as
    many threads as a device runs at once are fewer. `rows`: so many are computed at a time, where that is not all."""
    sizes = shape_of(group.head)[: group.depth]
    if 0 in sizes:
        return False
    kept = [shape_of(m)[group.depth :] for m in group.members]
    if any(None in inner or prod(e or 0 for e in inner) > UNROLLED for inner in kept):
        return False
    lengths = [terms_of(m, group.depth) for m in group.members]
    if None in lengths or None in sizes:
        return None not in lengths and max(n or 0 for n in lengths) <= UNROLLED
    rows, apart = rows or prod(e or 1 for e in sizes), max(n or 1 for n in lengths)
    team = shared_by(device_of(d), apart)
    apart_far, together_far = _far(d, group)
    alone = apart * max(1, rows // ENOUGH) * (min(SECTOR, max(1, apart // SECTOR)) if apart_far else 1)
    together = (-(-apart // team) + team.bit_length()) * max(1, rows * team // ENOUGH) * (SECTOR if together_far else 1)
    return alone <= together


def _far(d: Deriver, group: FusionGroup) -> tuple[bool, bool]:
    """Tell whether threads that compute rows by themselves read what lies far apart, whichever neighbours they are, and whether those that
    share a row do."""
    apart, together = False, False
    for member in group.members:
        rows, inner = _long(member, member.axes[: group.depth]), member.axes[group.depth :]
        binders = [r.binders[-1].name for p in member.pieces for r in reduces(p.value) if r.binders]
        found = {r: along for p in member.pieces for r in reads(p.value) if (along := _along_row(r, inner, binders))}
        apart |= bool(inner) or (bool(found) and not _are_beside(d, found, rows))
        together |= not all(_is_unit(d, read, name) for read, along in found.items() for name in along)
    return apart, together


def _along_row(read: Read, inner: Sequence[str], binders: Sequence[str]) -> tuple[str, ...]:
    """Return the axis along which what is read for a row lies: the innermost of its elements, or those of its reductions."""
    return tuple(inner[-1:]) or tuple(b for b in binders if b in index_names(read))


def _are_beside(d: Deriver, found: Iterable[Read], rows: Iterable[str]) -> bool:
    """Tell whether there are neighbours, along some axis, that read the same or what lies next to each other."""
    return any(all(row not in index_names(r) or _is_unit(d, r, row) for r in found) for row in rows)


def _long(definition: Definition, axes: Sequence[str]) -> frozenset[str]:
    """Return the axes that have more than one element."""
    sizes = extents(definition)
    return frozenset(a for a in axes if sizes[a] != 1)


def _is_unit(d: Deriver, read: Read, name: str) -> bool:
    return unit_stride(read.index, d.layouts.get(read.tensor), d.axes[read.tensor], name)


def is_shared(d: Deriver, definition: Definition, depth: int) -> bool:
    """Tell whether threads may share what a definition has in a row: elements, or the terms of a plain reduction."""
    found = (r for p in definition.pieces for r in reduces(p.value))
    return bool(definition.axes[depth:]) or (d.program.mode != "strict" and any(r.reducer.kind is not None for r in found))


def terms_of(definition: Definition, depth: int) -> int | None:
    """Return how many terms and elements a row of a definition has at most, or None where no constant bounds that."""
    sizes = bounded_extents(definition)
    counts = [prod(sizes[b.name] or 0 for b in r.binders) for p in definition.pieces for r in reduces(p.value)]
    known = [sizes[b.name] for p in definition.pieces for r in reduces(p.value) for b in r.binders] + shape_of(definition)[depth:]
    return None if None in known else prod(e or 1 for e in shape_of(definition)[depth:]) * max(counts, default=1)


def shape_of(definition: Definition) -> list[int | None]:
    """Return the constant extents of the axes of a definition, None where they are not constant."""
    sizes = extents(definition)
    return [sizes[a] for a in definition.axes]


def is_across(d: Deriver, definition: Definition, reduce: Reduce) -> bool:
    """Tell whether neighbouring elements read next to each other, or the same, in each step of a reduction."""
    name = reduce.binders[-1].name
    told = reduce.body if reduce.filter is None else (*reduce.body, reduce.filter)
    found = [r for e in told for r in reads(e) if name in index_names(r)]
    return _are_beside(d, found, _long(definition, definition.axes))


def shared_by(machine: GpuMachine, extent: int) -> int:
    """Return how many threads share a row of `extent` elements: whole warps, a few elements for each thread."""
    return min(machine.threads, max(machine.warp, 1 << (extent // 4 - 1).bit_length()))


# ---------------------------------------------------------------- rows


def stored_bytes(members: Sequence[Definition], depth: int) -> int:
    """Return the bytes of what definitions hold of one row."""
    sizes = [(t, [extents(m)[a] or 1 for a in m.axes[depth:]]) for m in members for t in m.tensors]
    return sum(prod(extent) * t.dtype.size_bytes for t, extent in sizes)


def _along(d: Deriver, group: FusionGroup) -> _Along | None:
    """Return what runs along the rows of a group, or None where they have different lengths, or are not those of reductions alone."""
    if len(group.members) < 2 or group.transformed is not None or recurs(d.program, group.head):
        return None
    along: list[str] = []
    reduced: list[str] = []
    named: set[str] = set()
    lengths: set[int | None] = set()
    kept = 0
    for m in group.members:
        name, inner, sizes = m.tensors[0].name, m.axes[group.depth :], extents(m)
        found = [r for p in m.pieces for r in reduces(p.value)]
        if len(m.pieces) != 1 or len(inner) > 1 or (inner and found):
            return None
        if any(len(r.binders) != 1 or r.reducer.kind is None or len(r.body) != 1 for r in found) or (found and not spreadable(d, m)):
            return None
        names = [*inner, *(r.binders[0].name for r in found)]
        named |= {*names}
        lengths |= {sizes[n] for n in names}
        along += [f"{name}.{n}" for n in inner]
        reduced += [f"{name}.{r.binders[0].name}" for r in found]
        kept += m is not group.head and bool(inner)
    count = [extents(group.head)[a] for a in group.head.axes[: group.depth]]
    length = next(iter(lengths)) if len(lengths) == 1 else None
    if not length or not all(count):
        return None
    return _Along(tuple(along), tuple(reduced), frozenset(named), length, prod(e or 1 for e in count), kept)


def _team(machine: GpuMachine, length: int, lanes: int, kept: int) -> int | None:
    """Return how many threads share a row, so that they can keep `kept` tensors of it in registers."""
    teams = (2, 4, 8, 16, machine.warp, 64, 128, 256, 512, machine.most_threads)
    for team in (n for n in teams if n <= machine.most_threads):
        each = -(-length // (team * lanes)) * lanes
        wide = team <= machine.warp and (length <= SHORT if team == machine.warp else each <= lanes)
        if (wide or (team > machine.warp and each <= 4 * max(lanes, 4))) and each * max(1, kept) <= KEPT:
            return team
    return machine.most_threads if -(-length // machine.most_threads) * max(1, kept) <= KEPT else None


def _together(machine: GpuMachine, team: int, count: int) -> int:
    """Return how many teams to give to a block: as many as make it half as large as usual, fewer where blocks get few, and one where a
    team is more than a warp."""
    rows = max(1, machine.threads // 2 // team) if team <= machine.warp else 1
    while rows > 1 and -(-count // rows) < machine.blocks:
        rows //= 2
    return rows


def _reread(d: Deriver, group: FusionGroup, along: frozenset[str]) -> tuple[str, ...]:
    """Return what more than one member reads of the row, from outside the group, at their own point."""
    own = {m.tensors[0].name for m in group.members}
    readers: dict[str, set[str]] = {}
    elsewhere: set[str] = set()
    for m in group.members:
        for r in (r for p in m.pieces for r in reads(p.value)):
            if r.tensor in own:
                continue
            if _is_row(r, m, group.depth, along):
                readers.setdefault(r.tensor, set()).add(m.tensors[0].name)
            else:
                elsewhere.add(r.tensor)
    return tuple(t for t, found in readers.items() if len(found) > 1 and t not in elsewhere)


def _is_row(read: Read, member: Definition, depth: int, along: frozenset[str]) -> bool:
    names = [slot.name if isinstance(slot, AffineName) else "" for slot in read.index]
    return len(names) == depth + 1 and names[:depth] == list(member.axes[:depth]) and names[depth] in along


def _contiguous(d: Deriver, reduce: Reduce) -> bool:
    name = reduce.binders[-1].name
    found = [r for b in reduce.body for r in reads(b) if name in index_names(r)]
    return bool(found) and all(unit_stride(r.index, d.layouts.get(r.tensor), d.axes[r.tensor], name) for r in found)


def _lanes(d: Deriver, members: Sequence[Definition], along: set[str], extent: int, *, alone: bool) -> int:
    """Return how many neighbours along these names a thread loads and stores at once: 16 bytes of the narrowest tensor, and a divisor of
    the extent, so that every row begins where vectors do; `alone`: there is but one row."""
    table = tensor_table(d.program)
    inside = [m.tensors[0].name for m in members[:-1]]
    touched = [t.name for t in members[-1].tensors] if set(members[-1].axes) & along else []
    touched += [r.tensor for m in members for p in m.pieces for r in reads(p.value) if set(index_names(r)) & along]
    most = min((device_of(d).lanes(table[t].dtype) for t in touched if t not in inside), default=1)
    return most if alone else gcd(most, extent)


def _power(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()
