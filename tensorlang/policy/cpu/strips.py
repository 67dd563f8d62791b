"""Strips: chains of maps and windows over large tensors, a few rows at a time, so that what one makes of the other stays in a near cache.

    g[i, j] = f(x[i, j], x[i + 1, j])                 split y.i by 32 -> i_b, i
    y[i, j] = h(g[i - 1, j], g[i, j], g[i + 1, j])    at g at y.i_b

A strip computes the rows of a tensor anew that it shares with its neighbours, so it has several times as many as windows reach; strips need
nothing of each other, and threads share them. Of a tensor that is read at another rate, `g[i // 2, j]` or `g[8 * i + k, j]`, a strip needs
half as many rows, or eight times as many, and it has so many itself that these are whole numbers. Of planes that no cache holds,
`y[c, i, j]` made of those of the same `c`, each is computed in strips of its own; where all are made of one plane, or one of all, a strip
has the rows of all of them, those of what is made for one plane after the other. Rows that are recurrences of their own (filters, running
sums) are computed so, too: their lanes are the rows of a strip, which has as many at least. Of signals, `y[i]`, a strip has as many points
as the first-level cache holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from math import prod
from typing import NamedTuple

from polyhedral import affine
from polyhedral.expr import Cond, Max, Min, Mod
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.policy.deriver import Deriver, bytes_of
from tensorlang.policy.groups import FusionGroup, recurs
from tensorlang.policy.pointwise import vector_axis
from tensorlang.schedule.plan import full
from tensorlang.schedule.shape import extents, is_product, rate_inside, readers
from tensorlang.tensor.nodes import Definition, Dynamic, Read
from tensorlang.tensor.walk import component_of, definition_reads, reads, reduces, tensor_table

ROWS = (64, 48, 32, 24, 16, 12, 8, 6, 4, 2)
"""How many rows a strip may have."""
POINTS = (8192, 4096, 2048, 1024, 512)
"""And how many points of a signal, whose only axis is that of lanes, too."""
WORTH_ROWS = 2
"""How many times as many rows as windows reach a strip has at least."""
CACHE_SHARE = 0.75
"""Of a cache that strips or planes may fill."""
MOST_TERMS = 128
"""Of a sum over a window."""


class Reach(NamedTuple):
    """Which rows of a tensor a row of a strip needs: `rate` for each row from `low` to `high` about its own. `axis`: the place of that of
    rows among the axes of the tensor."""

    low: Fraction = Fraction(0)
    high: Fraction = Fraction(0)
    rate: Fraction = Fraction(1)
    axis: int = 0

    def about(self, reader: Reach) -> Reach:
        """Return these rows, which are about one of a reader, about one of the strip."""
        low, high = reader.low + self.low / reader.rate, reader.high + self.high / reader.rate
        return Reach(low, high, self.rate * reader.rate, self.axis)

    def rows(self, count: int) -> int:
        """Return how many rows of the tensor so many of a strip need."""
        return int(self.rate * (count - 1 + self.high - self.low)) + 1


@dataclass(frozen=True, slots=True)
class Strip:
    """A group of definitions, in strips of so many `rows` of its head, with those that are computed inside them; 0 rows: as it is.
    `kept`: how many rows are kept of tensors of which a strip at an edge needs others than one in the middle; `reach`: which rows of each
    tensor, about a row of the head, are needed; `depth`: the axes along which all are computed at their own points, outside of strips;
    `row`: the place of that of rows among the axes of the head, of which the others before it run inside of strips. `rows_of`: of what is
    computed row by row, by the name of its loops, the loop over the rows that it is computed in."""

    group: FusionGroup
    inside: tuple[FusionGroup, ...] = ()
    rows: int = 0
    kept: tuple[tuple[Definition, int], ...] = ()
    reach: Mapping[str, Reach] = field(default_factory=dict)
    depth: int = 0
    row: int = 0
    rows_of: Mapping[str, str] = field(default_factory=dict)


def strips(d: Deriver, groups: Sequence[FusionGroup]) -> list[Strip]:
    """Return the groups, each in one strip."""
    taken: set[str] = set()
    found: list[Strip] = []
    for group in reversed(groups):
        if group.head.tensors[0].name not in taken:
            strip = _planes(d, group) or _strip(d, group, groups)
            taken |= {g.head.tensors[0].name for g in (group, *strip.inside)}
            found.append(strip)
    return found[::-1]


def _planes(d: Deriver, group: FusionGroup) -> Strip | None:
    """Return the largest strip of rows of the planes of a group that a near cache holds; None where planes are computed whole, one after
    the other: where there is one for each thread and what is touched of it lies in a cache, rows had better not be computed anew."""
    depth, names = group.depth, {m.tensors[0].name for m in group.members}
    if len(names) < 2 or not _is_in_rows(d, group, depth, depth) or any(len(m.axes) != len(group.head.axes) for m in group.members):
        return None
    planes = prod(extents(group.head)[a] or 0 for a in group.head.axes[:depth])
    touched = names.union(*(definition_reads(m) for m in group.members))
    if planes >= d.machine.threads and bytes_of(d, [*touched]) // max(planes, 1) <= CACHE_SHARE * d.machine.cache_bytes / d.machine.threads:
        return None
    apart = [FusionGroup(m, (m,), len(m.axes)) for m in group.members]
    strip = _strip(d, next(g for g in apart if g.head is group.head), apart, depth)
    return strip if strip.rows and len(strip.inside) == len(apart) - 1 else None


def _strip(d: Deriver, group: FusionGroup, groups: Sequence[FusionGroup], depth: int = 0) -> Strip:
    """Return the largest strip of rows of a group that a near cache holds, these along the axis after `depth` others, or along the first
    further in of which there is one, where what is inside has none of those before it: planes that are made of one."""
    if group.head.tensors[0].name in d.layouts:
        return Strip(group)
    places = (depth,) if depth else range(min(group.depth, max(1, len(group.head.axes) - 1)))
    found = (_strip_along(d, group, groups, depth, place) for place in places if _is_in_rows(d, group, depth, place))
    return next((strip for strip in found if strip.rows), Strip(group))


def _strip_along(d: Deriver, group: FusionGroup, groups: Sequence[FusionGroup], depth: int, row: int) -> Strip:
    readers_of = readers(d.program)
    inside: list[FusionGroup] = []
    reach = {t.name: Reach(axis=row) for m in group.members for t in m.tensors}
    for made in reversed(groups[: groups.index(group)]):
        names = {t.name for t in made.head.tensors}
        if names & {*d.program.results, *d.layouts} or _counts(made) is not _counts(group):
            continue
        read = [name for name in names if {*readers_of.get(name, ())} - names]
        if not read or not {r for name in read for r in readers_of[name]} - names <= reach.keys():
            continue
        span = joined([span_of(d, name, reach, depth) for name in read])
        if span is None or span.high - span.low > _counts(group)[0]:
            continue
        own_rows = depth == 0 and span.rate == 1 and span.axis == 0 and _has_own_rows(d, made)
        if own_rows or _is_in_rows(d, made, depth, span.axis):
            inside.append(made)
            reach |= {t.name: span for m in made.members for t in m.tensors}
        elif _is_in_planes(d, made, span.axis):
            inside.append(made)
            reach |= {t.name: span for t in made.head.tensors}
            for m in reversed(made.members):
                reach |= {t.name: own for t in m.tensors if t.name not in reach and (own := span_of(d, t.name, reach, made.depth))}
    if not inside or bytes_of(d, [t.name for g in inside for m in g.members for t in m.tensors]) <= d.machine.l2_bytes:
        return Strip(group)
    return sized(d, Strip(group, tuple(reversed(inside)), reach=reach, depth=depth, row=row))


def sized(d: Deriver, strip: Strip, points: Set[str] = frozenset()) -> Strip:
    """Return a strip with as many rows as fit; its group alone where too few do. `points`: tensors that are kept for a point alone."""
    rows = _rows(d, strip, points)
    return replace(strip, rows=rows, kept=tuple(_kept(d, strip, rows, points))) if rows else Strip(strip.group)


def _kept(d: Deriver, strip: Strip, rows: int, points: Set[str]) -> Iterator[tuple[Definition, int]]:
    """Yield the tensors whose rows in a strip do not begin a fixed distance from the strip's, since edges are repeated where they, or what
    is made of them, are read; with a power of two of rows that holds those of a strip. Of planes it holds one more: what edges need of
    all of them is told by a hull."""
    moving: set[str] = set()
    inside, reach = strip.inside[::-1], strip.reach
    for definition in (m for g in inside for m in reversed(g.members) if m is g.head or g.fused):
        name, own = definition.tensors[0].name, {t.name for t in definition.tensors}
        readers = [x for x in d.program.definitions if x.tensors[0].name in reach and own & definition_reads(x)]
        axis = reach[name].axis
        slots = [r.index[axis] for x in readers for p in x.pieces for r in reads(p.value) if r.tensor in own]
        if any(x.tensors[0].name in moving for x in readers) or any(_has_edges(slot) for slot in slots):
            moving |= {m.tensors[0].name for g in inside if definition in g.members for m in g.members}
            if name in points | strip.rows_of.keys():
                continue
            count = 1 << (reach[name].rows(rows) - 1 + (strip.depth > 0)).bit_length()
            if count < (extents(definition)[definition.axes[axis]] or 0):
                yield definition, count


def _has_edges(slot: Affine | Dynamic | Cond) -> bool:
    return isinstance(slot, Dynamic | Min | Max | Mod) or any(map(_has_edges, affine.parts(slot)))


def _is_in_rows(d: Deriver, group: FusionGroup, depth: int, row: int) -> bool:
    """Tell whether a group goes through its rows one after the other, and makes each of a few others."""
    return _is_plain(group) and row < max(group.depth, depth + 1) and all(is_windowed(d, m, depth, row) for m in group.members)


def _is_in_planes(d: Deriver, group: FusionGroup, row: int) -> bool:
    """Tell whether a group goes through planes, in each of which all its tensors have rows, and makes each element of a few others."""
    alike = all(len(m.axes) == len(group.head.axes) for m in group.members)
    return _is_plain(group) and alike and group.depth <= row and all(is_windowed(d, m, group.depth, row) for m in group.members)


def _is_plain(group: FusionGroup) -> bool:
    return group.transformed is None and group.online is None and not (group.fused or group.joint or group.asked)


def _has_own_rows(d: Deriver, group: FusionGroup) -> bool:
    """Tell whether a group is a recurrence of each of its rows by itself."""
    definition, group_of = group.head, component_of(d.program, group.head)
    if len(definition.axes) < 2 or len(group.members) > 1 or len(group_of) > 1 or not recurs(d.program, definition):
        return False
    name, rows = definition.tensors[0].name, definition.axes[0]
    own = [r for p in definition.pieces for r in reads(p.value) if r.tensor == name]
    plain = len(definition.tensors) == 1 and not any(True for p in definition.pieces for _ in reduces(p.value))
    return plain and all(r.index[0] == AffineName(rows) for r in own) and None not in extents(definition).values()


def is_windowed(d: Deriver, definition: Definition, depth: int, row: int) -> bool:
    """Tell whether a tensor of several axes is computed row by row along the one at `row`, or one of a single axis in lanes along that, and
    each element of a few others."""
    count = len(definition.axes)
    if count <= row or (count > 1 and count < row + 2) or len(definition.pieces) != 1:
        return False
    if recurs(d.program, definition) or is_product(definition):
        return False
    if (vector_axis(d, definition) in {*definition.axes[:depth], definition.axes[row]}) == (count > 1):
        return False
    sizes, value = extents(definition), definition.pieces[0].value
    terms = [prod(sizes[b.name] or MOST_TERMS + 1 for b in r.binders) for r in reduces(value)]
    return max(terms, default=1) <= MOST_TERMS and all(e is not None for e in sizes.values())


def span_of(d: Deriver, name: str, reach: Mapping[str, Reach], depth: int) -> Reach | None:
    """Return which rows of a tensor its readers need for a row of the strip; None where these are not a few, or none."""
    found: list[Reach | None] = []
    for reader in (x for x in d.program.definitions if x.tensors[0].name in {*reach} - {name} and name in definition_reads(x)):
        around = reach[reader.tensors[0].name]
        for read in (r for p in reader.pieces for r in reads(p.value) if r.tensor == name):
            own = _reach(reader, read, depth, around.axis)
            found.append(
                own and Reach(around.low + own.low / around.rate, around.high + own.high / around.rate, around.rate * own.rate, own.axis)
            )
    return joined(found)


def joined(found: Sequence[Reach | None]) -> Reach | None:
    """Return the rows that several reads need, at one rate; None where one of them needs others than rows near by, or there is none."""
    known = [r for r in found if r is not None]
    if not found or len(known) < len(found) or len({(r.rate, r.axis) for r in known}) > 1:
        return None
    return known[0]._replace(low=min(r.low for r in known), high=max(r.high for r in known))


def _reach(reader: Definition, read: Read, depth: int, row: int) -> Reach | None:
    """Return which rows a read needs for a row of its reader, by the ends of its windows, in the middle and at the edges; None where it is
    not made of rows near by."""
    axis, sizes = reader.axes[row], extents(reader)
    moving = [k for k, s in enumerate(read.index) if not isinstance(s, Dynamic | Mod) and axis in affine.name_set(s)]
    if len(moving) != 1 or (depth and moving != [depth]):
        return None
    slot = read.index[moving[0]]
    rate = None if isinstance(slot, Dynamic) else rate_inside(slot, axis)
    if isinstance(slot, Dynamic) or rate is None or rate <= 0:
        return None
    windows = sorted(affine.name_set(slot) - {axis})
    if any(sizes.get(n) is None or n in reader.axes[:depth] for n in windows):
        return None
    last = (sizes[axis] or 1) - 1
    rows = {0, last, *(min(last // 2 + k, last) for k in range(Fraction(rate).denominator))}
    found: list[Fraction] = []
    for row, *at in product(sorted(rows), *((0, (sizes[n] or 1) - 1) for n in windows)):
        found.append(Fraction(affine.evaluate(slot, {axis: row, **dict(zip(windows, at, strict=True))})) / rate - row)
    return Reach(min(found), max(found), Fraction(rate), moving[0])


def _rows(d: Deriver, strip: Strip, points: Set[str]) -> int:
    """Return how many rows a strip has; 0 where too few fit a near cache."""
    group, inside, reach = strip.group, strip.inside, strip.reach
    table = tensor_table(d.program)
    every = {t.name for g in (*inside, group) for m in g.members for t in m.tensors}
    every |= {n for x in d.program.definitions if x.tensors[0].name in every for n in definition_reads(x)}
    every -= points
    others = [(g, m) for g in (*inside, group) if g.depth and not g.fused for m in g.members if m is not g.head]
    in_planes = {t.name: g.depth for g, m in others if g.depth <= reach[g.head.tensors[0].name].axis for t in m.tensors}
    single = {t.name for _, m in others for t in m.tensors} - in_planes.keys()
    single |= {m.tensors[0].name for g in inside if any(m.tensors[0].name in strip.rows_of for m in g.members) for m in g.members}
    height, depth = extents(group.head)[group.head.axes[strip.row]] or 0, strip.depth
    reach = {**reach, **{n: span_of(d, n, reach, depth) or Reach(axis=depth) for n in every - reach.keys()}}

    def row_bytes(name: str) -> int:
        shape = table[name].shape
        apart = (*shape[: in_planes.get(name, depth)], *shape[reach[name].axis : reach[name].axis + 1])
        return bytes_of(d, (name,)) // max(1, prod(affine.constant(e) or 1 for e in apart))

    row = {n: row_bytes(n) for n in every if table[n].shape}
    made = [r for n, r in reach.items() if n in strip.reach]
    low, high = min(r.low for r in made), max(r.high for r in made)
    needed = max((d.lanes_of(g.head) for g in inside if recurs(d.program, g.head)), default=1)
    near, far = CACHE_SHARE * d.machine.l2_bytes, CACHE_SHARE * d.machine.cache_bytes / d.machine.threads

    def size_bytes(rows: int) -> int:
        whole = {n: reach[n]._replace(low=low, high=high) for n in row}
        return sum(size if name in single else size * whole[name].rows(rows) for name, size in row.items())

    is_far = bytes_of(d, [t.name for g in inside for m in g.members for t in m.tensors]) > far
    rooms = (near, ROWS), (far, (needed,) if needed > 1 else ROWS if is_far else ())
    for room, counts in ((CACHE_SHARE * d.machine.l1_bytes, POINTS), (near, POINTS)) if _counts(group) is POINTS else rooms:
        whole = (r for r in counts if all((r * x.rate).denominator == 1 for x in made))
        fits = (r for r in whole if needed <= r and 2 * r <= height and size_bytes(r) <= room)
        rows = next(fits, 0)
        if rows and rows >= WORTH_ROWS * (high - low):
            return rows
    return 0


def _counts(group: FusionGroup) -> tuple[int, ...]:
    """Return how many rows, or points of a signal, a strip of a group may have."""
    return ROWS if len(group.head.axes) > 1 else POINTS


def add_strip(d: Deriver, strip: Strip, loops: Definition) -> str:
    """Cut the rows of a strip and compute in each what is inside and shares no loops yet; return the loop over strips. The loops inside a
    strip have the names that they had. `loops`: whose name those of the strip have."""
    name, axis = loops.tensors[0].name, loops.axes[strip.row]
    over = f"{axis}_b" if strip.rows else axis
    d.add(d.schedule.split(full(name, axis), strip.rows, (over, axis)) if strip.rows else d.schedule)
    before = loops.axes[strip.depth : strip.row]
    d.add(d.schedule.order(full(name, over), *(full(name, a) for a in before)) if before else d.schedule)
    for made in (g.head.tensors[0].name for g in strip.inside if not g.fused and g.head.tensors[0].name not in strip.rows_of):
        d.add(d.schedule.at(made, full(name, over)))
    for definition, count in strip.kept:
        axis = definition.axes[strip.reach[definition.tensors[0].name].axis]
        for tensor in definition.tensors:
            d.add(d.schedule.fold(tensor.name, axis, count))
    return over


def repeats_recurrences(d: Deriver, strip: Strip) -> bool:
    """Tell whether two strips compute a row of a recurrence, of which not every one then has memory of its own."""
    rows = (strip.reach[g.head.tensors[0].name] for g in strip.inside if recurs(d.program, g.head))
    return any(r.low < r.high for r in rows)


def inside_of(d: Deriver, strip: Strip, group: FusionGroup) -> Deriver:
    """Return the state in which a group of a strip is derived: by one thread, and of recurrences so many rows."""
    rows = {full(g.head.tensors[0].name, g.head.axes[0]): strip.rows for g in strip.inside if recurs(d.program, g.head)}
    return replace(d, machine=replace(d.machine, threads=1), at_once=rows, cut=strip.reach[group.head.tensors[0].name].axis)
