"""Loop fusion: tensors that need each other at their own points alone, or read the same, are computed in one loop nest.

    u[i] = x[i] - m                              together u, v, y -> i
    v[i] = x[i] / s                   →          split u.i by 16 -> i_o, i_v
    y[i] = u[i] * u[i] + v[i]                    vectorize u.i_v

What no caller asked for is then kept for the points of a vector, in registers, and what several read is loaded once. Sums over the same
ranges share these loops, too: what both compute of a term is computed once.

    n[i] = sum(p) f(x[i + p]) * x[i + p]         together n, d, y -> i
    d[i] = sum(p) f(x[i + p])         →          together n, d -> p
    y[i] = n[i] / d[i]                           order n.i_o, n.p, n.i_v

So do sums along rows, in vectors along these, and what is made of the sums of a row follows them.

    u[i] = sum(j) x[i, j]                        together u, v, y -> i
    v[i] = sum(j) x[i, j] * z[i, j]   →          together u, v -> j
    y[i] = v[i] - u[i] * u[i]                    split u.j by 16 -> j_o, j_v;  vectorize u.j_v

What is made for each term of sums that alone read it shares the loops of these terms: of it, too, nothing is kept but a vector (array
contraction).

    w[i, j] = f(x[i], x[j])                      together w, a, b -> i
    a[i]    = sum(j) w[i, j] * u[j]   →          together w, a, b -> j
    b[i]    = sum(j) w[i, j] * v[j]              order w.i_o, w.j, w.i_v

Where it sums few terms itself, `w[i, j] = sum(c in 0..3) abs(x[i, c] - z[j, c])`, these are written out there.

Where loops of their own would run row by row, what is made of a row goes to a cache and back. Blocks of columns run outside of rows where
more than a cache holds is read for every row.

    order m.i, m.j_o, m.k, y.l, m.j_v       →    order m.j_o, m.i, m.k, y.l, m.j_v

Maps in pieces that lie at the ends of axes share loops like any other: the inside of all of them is split off where the loops are made.

Only tensors of one box, or of boxes that end next to each other, whose elements lie along memory like those that they read: there is
nothing to turn. Products, which find register tiles of their own, stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import assert_never

from codegen.loops.written_out import MOST_TERMS
from polyhedral import affine
from polyhedral.expr import And, Compare, Cond, Not, Or
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.cost import FAR_LOADS, from_memory_cycles
from tensorlang.policy.cpu.inner_cost import InnerLoops, cycles_of
from tensorlang.policy.cpu.inner_loops import ByOrder, add_blocks, best_inner_loops, candidates
from tensorlang.policy.cpu.joint_steps import with_joint_steps
from tensorlang.policy.cpu.narrow_rows import has_narrow_rows
from tensorlang.policy.cpu.nests import WORTH_TURNING
from tensorlang.policy.cpu.row_lanes import has_row_lanes
from tensorlang.policy.cpu.shared_scatters import with_shared_scatters
from tensorlang.policy.cpu.shared_sums import as_one
from tensorlang.policy.cpu.strips import Strip, sized, strips
from tensorlang.policy.deriver import Deriver, bytes_of, mark_parallel, reads_itself, with_lifted
from tensorlang.policy.followers import is_free_between
from tensorlang.policy.groups import FusionGroup, fusion_groups, recurs, runs_between
from tensorlang.policy.pointwise import shared_axis
from tensorlang.policy.scatters import range_of_terms, ranges_of_data, scattered_axes
from tensorlang.schedule.directives.loops import MOST_LANES
from tensorlang.schedule.plan import full, owned
from tensorlang.schedule.shape import OPEN_EXTENT, extents, is_product, readers, unit_stride
from tensorlang.tensor.nodes import Definition, Dynamic, Read, Reduce
from tensorlang.tensor.scop import in_order as keeps_order
from tensorlang.tensor.walk import components, definition_reads, index_names, reads, reduces

MOST_FUSED = 24
"""Tensors in one loop nest: what they compute for a point still finds registers, and what they read streams of the prefetcher."""
MOST_BEYOND = 8
"""Elements by which an axis of one map may be longer than that of another in the same loops."""
LEAST_VECTORS = 5
"""Along an axis whose ends are pieces of their own: all pieces are computed for a vector in which some of them meet."""
NARROWEST = 8
"""Elements along an axis from which on they are computed in lanes, though they may fill a part of a vector alone."""
WORTH_FUSING = 2.0
"""How many times the cycles of their own loops sums of the same elements may take in those that they share, before what is loaded and
computed once is taken off: measured, as sums of a window and of its squares take 0.57 of the time of their own loops."""


@dataclass(frozen=True, slots=True)
class SharedLoops:
    """How tensors run together: vectors of `lanes` elements along the axis at `position`, or along the last binder of sums (None). `tile`:
    what else of sums over the same ranges is computed together, and copied. `order`: of the loops over blocks of the axes, by their
    positions; where it is empty, that along vectors is innermost."""

    position: int | None
    lanes: int
    tile: InnerLoops | None = None
    order: tuple[int, ...] = ()


def fused(d: Deriver, groups: Sequence[FusionGroup]) -> list[Strip]:
    """Return the strips of groups with those joined that may share a loop nest, each where the last of its members was."""
    if d.plain:
        return strips(d, groups)
    return gathered(
        d, [_in_shared_loops(d, strip) for strip in strips(d, _contracted(d, with_shared_scatters(d, with_joint_steps(d, groups))))]
    )


def _in_shared_loops(d: Deriver, strip: Strip) -> Strip:
    """Return a strip whose groups share their loops in it where they may: not those of which it keeps rows that move."""
    if not strip.rows:
        return strip
    moving = {t.name for x, _ in strip.kept for t in x.tensors}
    *inside, last = (part.group for part in gathered(d, [Strip(group) for group in (*strip.inside, strip.group)], moving))
    if last.fused and _are_rows_cut(d, last, strip):
        return strip if inside or len(last.head.axes) > 1 else Strip(last)  # Of a signal nothing is left to keep.
    return sized(d, replace(strip, group=last, inside=tuple(inside)), points_alone(d, (*inside, last)))


def _are_rows_cut(d: Deriver, group: FusionGroup, strip: Strip) -> bool:
    """Tell whether tensors that run together are computed several rows at a time, or other loops are around those over rows."""
    shared = shared_loops_of(d, [group])
    outer = (*range(strip.depth), strip.row)
    return shared is not None and (
        shared.position in outer
        or (shared.tile is not None and named_after(group).axes[strip.row] in dict(shared.tile.rows))
        or (strip.row == strip.depth and shared.order[: len(outer)] not in ((), outer))
    )


def points_alone(d: Deriver, groups: Sequence[FusionGroup]) -> set[str]:
    """Return the tensors that are read in the loops alone that make them."""
    readers_of = readers(d.program)
    fused_names = [{m.tensors[0].name for m in g.members} for g in groups if g.fused]
    return {n for names in fused_names for n in names if n not in d.program.results and {*readers_of.get(n, ())} <= names}


def gathered(d: Deriver, every: Sequence[Strip], apart: Set[str] = frozenset()) -> list[Strip]:
    """Return the strips with the groups joined that may share a loop nest, each where the last of its members was. `apart`: tensors that
    stay as they are."""
    found: list[list[Strip]] = []
    simple = {id(s) for s in every if _is_simple(d, s) and not any(m.tensors[0].name in apart for m in s.group.members)}
    for k, strip in enumerate(every):
        own, waiting = [strip], [_groups([s]) for s in every[k + 1 :]]
        while id(strip) in simple:
            candidates = (parts for parts in reversed(found) if id(parts[0]) in simple)
            beside = ((parts, [*(_groups(x) for x in found if x is not parts), *waiting]) for parts in candidates)
            into = next((parts for parts, others in beside if _may_join(d, _groups(parts), _groups(own), others)), None)
            if into is None:
                break
            found.remove(into)
            own = [*into, *own]
        found.append(own)
    return [_joined(d, parts) if id(parts[0]) in simple else parts[0] for parts in found]


def _joined(d: Deriver, parts: Sequence[Strip]) -> Strip:
    members = _members(d, [part.group for part in parts])
    # Whether several parts share their loops was asked when the last of them came.
    if len(parts) == 1 and (len(members) < 2 or shared_loops_of(d, [parts[0].group]) is None):
        return parts[0]
    return Strip(FusionGroup(members[-1], members, len(members[-1].axes), fused=True))


def _contracted(d: Deriver, groups: Sequence[FusionGroup]) -> list[FusionGroup]:
    """Return the groups with one for all that sums need for each of their terms and nothing else reads, where it may share their loops."""
    found = list(groups)
    for names in _made_for_terms(d):
        touched = [g for g in found if any(m.tensors[0].name in names for m in g.members)]
        members = _members(d, touched)
        others = [[g] for g in found if not any(g is other for other in touched)]
        if (
            all(_is_own(g) for g in touched)
            and _may_share(d, members)
            and not runs_between(others, touched)
            and shared_loops_of(d, touched) is not None
        ):
            last = found.index(touched[-1])
            found[last] = FusionGroup(members[-1], members, len(members[-1].axes), fused=True)
            found = [g for g in found if not any(g is other for other in touched)]
    return found


def with_sums_apart(d: Deriver) -> Deriver:
    """Return the state in which the sums of an equation are tensors of their own, where what is made for their terms may then share their
    loops."""
    made_for = {read_by[0] for read_by in map(readers(d.program).get, d.axes.keys() - {p.name for p in d.program.params}) if read_by}
    several = (x for x in d.program.definitions if _sums(x) > 1 and not reads_itself(x))
    for name in (x.tensors[0].name for x in several if x.tensors[0].name in made_for):
        apart = _apart(d, name)
        if apart is not None:
            return with_sums_apart(apart)
    return d


def _sums(definition: Definition) -> int:
    return sum(1 for p in definition.pieces for _ in reduces(p.value))


def _apart(d: Deriver, name: str) -> Deriver | None:
    """Return the state with the sums of a tensor's equation as tensors of their own; None where they share no loops with what is made
    for their terms."""
    apart = with_lifted(d, name)
    if apart is None:
        return None
    axes = apart.axes.keys() - d.axes.keys()
    shared = (g for g in _contracted(apart, fusion_groups(apart)) if g.fused)
    return apart if any(axes <= {m.tensors[0].name for m in g.members} for g in shared) else None


def _is_own(group: FusionGroup) -> bool:
    """Tell whether a group is made of definitions alone."""
    return group.transformed is None and group.online is None and not (group.fused or group.joint or group.asked)


def _made_for_terms(d: Deriver) -> list[set[str]]:
    """Return the tensors that sums read for each of their terms and nothing else reads, those together that something reads of both, with
    all that reads them."""
    readers_of = readers(d.program)
    by_name = {t.name: x for x in d.program.definitions for t in x.tensors}
    inner: set[str] = set()
    found: list[set[str]] = []
    for x in reversed(_computed(d)):
        name = x.tensors[0].name
        read_by = readers_of.get(name, [])
        if name in d.program.results or not read_by or len(x.tensors) > 1 or not _is_written_out(x):
            continue
        if all(len(by_name[r].axes if r in inner else _terms(by_name[r])) == len(x.axes) for r in read_by):
            inner.add(name)
            joined = [names for names in found if names & {name, *read_by}]
            found = [*(names for names in found if names not in joined), {name, *read_by}.union(*joined)]
    return found


def _is_written_out(definition: Definition) -> bool:
    """Tell whether a definition sums nothing, or few terms, which stand one behind the other where they are needed."""
    found = [r for p in definition.pieces for r in reduces(p.value)]
    lengths = (affine.difference(b.hi, b.lo) or OPEN_EXTENT for r in found for b in r.binders)
    return len(definition.pieces) == 1 and len(found) <= 1 and prod(lengths) <= MOST_TERMS


def _terms(definition: Definition) -> tuple[str, ...]:
    """Return the axes and binders that a term of the one sum of a definition is for; none where it has no such sum."""
    found = [r for p in definition.pieces for r in reduces(p.value)]
    return (*definition.axes, *(b.name for b in found[0].binders)) if len(found) == 1 else ()


def _members(d: Deriver, parts: Sequence[FusionGroup]) -> tuple[Definition, ...]:
    """Return the definitions of some groups, in the order in which tensors are computed."""
    names = {m.tensors[0].name for group in parts for m in group.members}
    return tuple(x for x in _computed(d) if x.tensors[0].name in names)


def _computed(d: Deriver) -> list[Definition]:
    """Return all definitions in the order in which they are computed, unless directives say another."""
    return [x for group in components(d.program) for x in group]


def _groups(parts: Sequence[Strip]) -> list[FusionGroup]:
    return [group for part in parts for group in (*part.inside, part.group)]


def _may_join(d: Deriver, parts: Sequence[FusionGroup], added: Sequence[FusionGroup], others: Sequence[Sequence[FusionGroup]]) -> bool:
    """Tell whether simple groups may share the loops of others before them: they read one another or the same tensors, and nothing that
    runs together beside them has to run in between."""
    groups = [*parts, *added]
    if not _may_share(d, _members(d, groups)):
        return False
    before = _members(d, parts)
    made, read = {m.tensors[0].name for m in before}, {r for m in before for r in definition_reads(m)}
    common = any((made | read) & {*definition_reads(m)} for m in _members(d, added))
    return common and not runs_between(others, groups) and shared_loops_of(d, groups) is not None


def _may_share(d: Deriver, members: Sequence[Definition]) -> bool:
    """Tell whether definitions may run in one loop nest: they are of one box, or made for each term of sums over it, read one another at
    their own points, and nothing outside has to run in between."""
    if len(members) > MOST_FUSED or not _has_own_binders(members) or not is_free_between(d.program, members):
        return False
    points, inner = _points(members), {m.tensors[0].name for m in _inner(members) if _is_written_out(m)}
    most = 0 if any(map(_sums, members)) else MOST_BEYOND
    if len(inner) < len(_inner(members)) or not all(_is_single(d, m, inner) and _has_box_of(m, points, most) for m in members):
        return False
    own = {m.tensors[0].name for m in members}
    beside = {t.name for m in members for t in m.tensors[1:]}
    if any(not beside.isdisjoint(definition_reads(m)) for m in members):
        return False
    readers_of = readers(d.program)
    alone = not inner & {*d.program.results} and all(name in readers_of and {*readers_of[name]} <= own for name in inner)
    return alone and all(_reads_own_points(m, own) and _sums_whole(m, members) for m in members) and _in_turn(members) is not None


def _is_simple(d: Deriver, strip: Strip) -> bool:
    """Tell whether each member of a group may share its loops."""
    group = strip.group
    if strip.rows or group.transformed is not None or group.online is not None or group.asked or has_row_lanes(d, group):
        return False
    return group.fused or (not group.joint and _may_share(d, group.members))


def _points(members: Sequence[Definition]) -> Definition:
    """Return a member that has the axes that all of them share."""
    return min(members, key=lambda m: len(m.axes))


def _inner(members: Sequence[Definition]) -> list[Definition]:
    """Return the members that are made for each term of sums."""
    count = len(_points(members).axes)
    return [m for m in members if len(m.axes) > count]


def _is_single(d: Deriver, definition: Definition, inner: Set[str]) -> bool:
    """Tell whether all elements of a tensor are computed alike, with one sum at most. `inner`: tensors that are made for terms of sums."""
    name = definition.tensors[0].name
    if name in d.separate or recurs(d.program, definition) or (len(definition.tensors) > 1 and not inner):
        return False
    if d.layouts.keys() & {name, *definition_reads(definition)}:
        return False
    if len(definition.pieces) > 1:
        return not inner and _is_in_ranges(definition)
    found = list(reduces(definition.pieces[0].value))
    if not inner and has_narrow_rows(d, definition):
        return False
    if not found:
        return bool(definition.axes)
    (first, *others) = found
    plain = first.filter is None or not (scattered_axes(definition) or ranges_of_data(definition) or range_of_terms(definition))
    return plain and not others and (bool(inner & {*definition_reads(definition)}) or _is_plain_sum(d, definition))


def _is_in_ranges(definition: Definition) -> bool:
    """Tell whether a definition is a map whose pieces are told apart by the ranges that single axes are in."""
    maps = not any(True for p in definition.pieces for _ in reduces(p.value))
    return maps and all(_asks_for_ranges(p.guard, {*definition.axes}) for p in definition.pieces)


def _asks_for_ranges(guard: Cond, axes: Set[str]) -> bool:
    match guard:
        case Compare(_, lhs, rhs):
            asked = [atom for atom in affine.terms(affine.sub(lhs, rhs))[0] if axes & affine.name_set(atom)]
            return len(asked) <= 1 and all(isinstance(atom, AffineName) for atom in asked)
        case And(conds) | Or(conds):
            return all(_asks_for_ranges(c, axes) for c in conds)
        case Not(cond):
            return _asks_for_ranges(cond, axes)
        case _:
            assert_never(guard)


def _is_plain_sum(d: Deriver, definition: Definition) -> bool:
    """Tell whether terms of a sum may be added up in any order, and make no product."""
    return not is_product(definition) and _is_regroupable(d, definition)


def _is_regroupable(d: Deriver, definition: Definition) -> bool:
    """Tell whether a definition has a sum whose terms may be added up in any order."""
    found = _sum(definition)
    if found is None:
        return False
    return found.reducer.kind is not None and len(found.body) == 1 and not keeps_order(found.reducer, d.program.mode)


def _sum(definition: Definition) -> Reduce | None:
    return next(reduces(definition.pieces[0].value), None)


def _has_box_of(definition: Definition, points: Definition, most: int) -> bool:
    """Tell whether the first axes of a tensor are as long as those of another, or up to `most` elements longer or shorter."""
    found = zip(definition.tensors[0].shape, points.tensors[0].shape, strict=False)
    return all(n is not None and abs(n) <= most for n in (affine.difference(x, y) for x, y in found))


def _has_own_binders(members: Sequence[Definition]) -> bool:
    """Tell whether no range of a sum depends on where it is, and no binder is called like an axis of what sums."""
    inner = {m.tensors[0].name for m in _inner(members)}
    own = [m for m in members if m.tensors[0].name not in inner and (_sum(m) is not None or m.axes == _points(members).axes)]
    axes = {a for m in own for a in m.axes}
    found = [b for m in members for r in reduces(m.pieces[0].value) for b in r.binders]
    return not any(b.name in axes or axes & (affine.name_set(b.lo) | affine.name_set(b.hi)) for b in found)


def _reads_own_points(definition: Definition, names: Set[str]) -> bool:
    """Tell whether a definition reads tensors at its own points alone, for a term of its sum at those of the term."""
    point = tuple(map(AffineName, _terms(definition) or definition.axes))
    return all(r.index == point[: len(r.index)] for p in definition.pieces for r in reads(p.value) if r.tensor in names)


def _sums_whole(definition: Definition, members: Sequence[Definition]) -> bool:
    """Tell whether a definition reads what is made for terms of sums at each of its own points, or, itself at a point that all share, for
    each term of its own sum."""
    found, count = _sum(definition), len(definition.axes)
    for m in _inner(members):
        if m.tensors[0].name in definition_reads(definition):
            ranges = [(b.lo, b.hi) for b in found.binders] if found is not None else []
            shape = m.tensors[0].shape
            same = (affine.constant(lo) == 0 and affine.same(hi, n) for (lo, hi), n in zip(ranges, shape[count:], strict=False))
            if len(shape) != count + len(ranges) or not all(same) or len(shape) > count > len(_points(members).axes):
                return False
    return True


def shared_loops_of(d: Deriver, groups: Sequence[FusionGroup]) -> SharedLoops | None:
    """Return how the members of some groups run together; None where loops of their own are better, unless they were joined before."""
    members = _members(d, groups)
    lanes = min(d.lanes_of(m) for m in members)
    if _inner(members):
        return _loops_of_terms(d, groups, members, lanes)
    sums = [m for m in members if _sum(m) is not None]
    position = shared_axis(d, members, range(len(members[0].axes)))
    if not sums:
        return SharedLoops(position, lanes) if position is not None and _is_mostly_inside(members, position, lanes) else None
    joined = len(groups) == 1 and groups[0].fused
    depths = {m.tensors[0].name: g.depth for g in groups for m in g.members if len(g.members) > 1 and not g.fused}
    own = [best_inner_loops(d, m, m.axes) for m in sums]
    vectors = max(1, min(MOST_LANES // lanes, d.machine.vector_registers // (2 * len(sums))))
    along = all(x.vector == (_last_binder(m),) for m, x in zip(sums, own, strict=True))
    if members[0].axes and along:
        rows = _tile_along_rows(d, members)
        if rows is not None and (joined or rows.cycles <= sum(_own_cycles(d, m, x, depths) for m, x in zip(sums, own, strict=True))):
            return SharedLoops(None, lanes * rows.vectors, rows)
    if position is None or (not joined and any(x.vector != (m.axes[position],) for m, x in zip(sums, own, strict=True))):
        one = not members[0].axes and len(_in_turn(members) or ()) == 1
        return SharedLoops(None, lanes * vectors) if along and one else None
    apart = sum(_own_cycles(d, m, x, depths) for m, x in zip(sums, own, strict=True))
    apart += sum(_kept_cycles(d, m, members, depths) for m in members)
    orders = list(_orders(d, members, position))
    tile = _tile(d, members, position, orders)
    if tile is not None and (d.cut is not None or tile[0].cycles <= apart):
        return SharedLoops(position, lanes * tile[0].vectors, *tile)
    extent = extents(members[0])[members[0].axes[position]] or OPEN_EXTENT
    vectors = next((n for n in (4, 2) if n <= vectors and n * lanes <= extent), 1)
    shared = [(m, InnerLoops((m.axes[position],), vectors)) for m in sums]
    costs = [(m, ByOrder(d, m, [replace(c, cycles=cycles_of(d, m, c))])) for m, c in shared]
    taken = {order: sum(c.best([m.axes[k] for k in order]).cycles for m, c in costs) for order in orders}
    order = _cheapest(taken)
    most = WORTH_FUSING if all(_reads_alike(alike) for alike in _classes(members)) else 1.0
    worth = joined or (not any(x.packed for x in own) and taken[order] <= most * apart)
    return SharedLoops(position, lanes * vectors, order=order) if worth else None


def _orders(d: Deriver, members: Sequence[Definition], position: int) -> Iterator[tuple[int, ...]]:
    """Yield the orders in which loops over blocks of the axes, by their positions, may run outside of vectors along one of them: that one
    innermost, and further out, so that what its points read is there for those of others, but inside of that along which strips are cut."""
    others = [k for k in range(len(members[0].axes)) if k != position]
    first = 0 if d.cut is None else min(d.cut + 1, len(others))
    for at in reversed(range(first, len(others) + 1)):
        yield (*others[:at], position, *others[at:])


def _cheapest(taken: Mapping[tuple[int, ...], float]) -> tuple[int, ...]:
    """Return the order that takes the fewest cycles; the first unless another is worth it."""
    first, least = next(iter(taken)), min(taken, key=lambda order: taken[order])
    return least if taken[least] < WORTH_TURNING * taken[first] else first


def _own_cycles(d: Deriver, definition: Definition, inner: InnerLoops, depths: Mapping[str, int]) -> float:
    """Return the cycles of an element in loops of its own, of which these are the best; inside of those over rows that others share, blocks
    have points of one row alone. `depths`: of how many axes loops are shared."""
    depth = depths.get(definition.tensors[0].name, 0)
    return best_inner_loops(d, definition, definition.axes[depth:]).cycles if depth else inner.cycles


def _kept_cycles(d: Deriver, made: Definition, members: Sequence[Definition], depths: Mapping[str, int]) -> float:
    """Return the cycles of an element in which it goes to a cache, and comes from there, where others of the members read it in loops of
    their own. `depths`: of how many axes these are shared."""
    name, sizes = made.tensors[0].name, extents(made)
    if name in d.program.results or not any(name in definition_reads(m) for m in members):
        return 0.0
    element = made.tensors[0].dtype.size_bytes
    kept = element * prod(sizes[a] or OPEN_EXTENT for a in made.axes[depths.get(name, 0) :])
    return from_memory_cycles(2 * element, kept, d.machine.l2_bytes) if kept > d.machine.l1_bytes else 0.0


def _is_mostly_inside(members: Sequence[Definition], position: int, lanes: int) -> bool:
    """Tell whether few of the vectors along an axis have elements of several pieces."""
    extent = extents(members[0])[members[0].axes[position]] or OPEN_EXTENT
    return extent >= LEAST_VECTORS * lanes or not any(m.axes[position] in affine.name_set(p.guard) for m in members for p in m.pieces)


def _tile(
    d: Deriver, members: Sequence[Definition], position: int, orders: Sequence[tuple[int, ...]]
) -> tuple[InnerLoops, tuple[int, ...]] | None:
    """Return the cheapest block of points in vectors along an axis whose sums run in one loop, and the order of the loops outside of it;
    None where they take several."""
    first, *_ = _in_turn(members) or [[]]
    if len(first) != sum(_sum(m) is not None for m in members) or any(_sum(m) is None for m in first) or d.cut == position:
        return None
    every = as_one(first)
    found = candidates(d, every, every.axes, along=every.axes[position], joined=True)
    legal = (c for c in found if d.cut is None or every.axes[d.cut] not in dict(c.rows))
    by_order = ByOrder(d, every, legal, joined=True)
    best = {order: by_order.best([every.axes[k] for k in order]) for order in orders}
    order = _cheapest({order: inner.cycles for order, inner in best.items()})
    return best[order], order


def _tile_along_rows(d: Deriver, members: Sequence[Definition]) -> InnerLoops | None:
    """Return the cheapest block of points whose sums run in one loop, in vectors along the last of their binders; None where they take
    several loops."""
    first, *_ = _in_turn(members) or [[]]
    if len(first) < 2 or any(_sum(m) is None for m in first) or len(first) != sum(_sum(m) is not None for m in members):
        return None
    every = as_one(first)
    free = tuple(a for k, a in enumerate(every.axes) if k != d.cut)
    return ByOrder(d, every, candidates(d, every, free, along=_last_binder(first[0]), joined=True), joined=True).best(every.axes)


def _loops_of_terms(d: Deriver, groups: Sequence[FusionGroup], members: Sequence[Definition], lanes: int) -> SharedLoops | None:
    """Return how sums run together with what is made for their terms: in vectors of points, or of terms, whichever takes fewer loads; None
    where groups that have such loops of their own load less in these."""
    found = _lanes_of_terms(d, members, lanes)
    if found is None:
        return None
    own = [_lanes_of_terms(d, g.members, lanes) for g in groups if g.fused and _inner(g.members)]
    if own and sum(x.loads for x in own if x is not None) < found.loads:
        return None
    sums = [m for m in members if _sum(m) is not None and len(m.axes) == len(_points(members).axes)]
    room = min(d.machine.vector_registers // (2 * len(sums)), d.machine.vector_registers // (len(sums) + len(_inner(members))))
    vectors = next((n for n in (4, 2) if n <= room and n * lanes <= min(found.extent, MOST_LANES)), 1)
    return SharedLoops(found.position, lanes * vectors)


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Vectors along the axis at `position`, or along the last binder of sums (None), of `extent` elements, and how many loads a term takes
    in them, as many lanes counted as one."""

    position: int | None
    extent: int
    loads: float


def _lanes_of_terms(d: Deriver, members: Sequence[Definition], lanes: int) -> _Lanes | None:
    """Return the vectors in which sums and what is made for their terms take the fewest loads, the last axis of several that take as many;
    None where nothing fills a vector."""
    points = _points(members)
    sums = [m for m in members if _sum(m) is not None and len(m.axes) == len(points.axes)]
    sizes = extents(points)
    found: list[tuple[int | None, int, tuple[str, ...]]] = []
    found += [(k, sizes[a] or OPEN_EXTENT, tuple(m.axes[k] for m in members)) for k, a in reversed([*enumerate(points.axes)])]
    if len(_in_turn(members) or ()) == 1 and all(_is_regroupable(d, m) for m in sums):
        last = max(extents(m)[_last_binder(m)] or OPEN_EXTENT for m in sums)
        found.append((None, last, tuple(_last_binder(m) if m in sums else m.axes[-1] for m in members)))
    wide = [(k, extent, names) for k, extent, names in found if extent >= min(lanes, NARROWEST)]
    every = [_Lanes(k, n, _loads_of_terms(d, members, names, lanes) * ceil(n / lanes) * lanes / n) for k, n, names in wide]
    return min(every, key=lambda x: x.loads, default=None)


def _loads_of_terms(d: Deriver, members: Sequence[Definition], along: Sequence[str], lanes: int) -> float:
    """Return how many loads a vector of terms takes along loops, which each member calls by a name of `along`; what does not change from
    one term to the next is loaded before."""
    own, loads = {m.tensors[0].name for m in members}, 0.0
    for m, name in zip(members, along, strict=True):
        for read in dict.fromkeys(r for p in m.pieces for r in reads(p.value) if r.tensor not in own):
            names = index_names(read)
            if not names <= {*m.axes[: len(_points(members).axes)]}:
                near = unit_stride(read.index, None, d.axes[read.tensor], name)
                loads += 1 if near or name not in names else FAR_LOADS * lanes
    return loads


def _last_binder(definition: Definition) -> str:
    found = _sum(definition)
    assert found is not None
    return found.binders[-1].name if found.binders else ""


def _classes(members: Sequence[Definition]) -> Iterator[list[Definition]]:
    """Yield the members that sum, those together whose sums run over the same ranges."""
    found: dict[tuple[tuple[Affine, Affine], ...], list[Definition]] = {}
    for m in members:
        for r in reduces(m.pieces[0].value):
            found.setdefault(tuple((b.lo, b.hi) for b in r.binders), []).append(m)
    yield from found.values()


def _reads_alike(alike: Sequence[Definition]) -> bool:
    """Tell whether sums over the same ranges read an element in common in each step."""
    found: list[set[Read]] = []
    for m in alike:
        to = {a: AffineName(f"{k} axis") for k, a in enumerate(m.axes)}
        for r in reduces(m.pieces[0].value):
            places = {**to, **{b.name: AffineName(f"{k} binder") for k, b in enumerate(r.binders)}}
            found.append({_renamed(read, places) for b in r.body for read in reads(b)})
    return len(found) < 2 or bool(set.intersection(*found))


def _renamed(read: Read, to: dict[str, AffineName]) -> Read:
    return replace(read, index=tuple(s if isinstance(s, Dynamic) else affine.substitute(s, to) for s in read.index))


def named_after(group: FusionGroup) -> Definition:
    """Return the definition that the loops of a group are named after."""
    classes = _in_turn(group.members) if group.fused else None
    return classes[0][0] if classes else group.head


def derive_fused(d: Deriver, group: FusionGroup) -> None:
    """Add the directives for tensors that share a loop nest: vectors along the axis that most of them lie along in memory."""
    shared = shared_loops_of(d, [group])
    assert shared is not None
    classes = _in_turn(group.members)
    assert classes is not None
    first, axes = classes[0][0], _points(group.members).axes
    name, sizes, axes = first.tensors[0].name, extents(first), first.axes[: len(axes)]
    members = [m for alike in classes for m in alike]
    last_is_first = (*members[1:], first)
    if axes:
        d.add(d.schedule.together(*(m.tensors[0].name for m in members), into=axes))
    binders, written_out = list(_shared_binders(d, classes, len(axes))), _written_out(group.members)
    if shared.position is None and shared.tile is not None:
        outer = add_blocks(d, as_one(classes[0]), axes, [owned(b, (name,))[1] for b in binders], shared.tile)
        blocks = {f"{a}_o": -(-(sizes[a] or OPEN_EXTENT) // n) for a, n in shared.tile.rows}
        mark_parallel(d, last_is_first, outer, {**sizes, **blocks})
        return
    if shared.position is None:
        inner = owned(binders[-1], (m.tensors[0].name for m in members))[1]
        d.add(d.schedule.split(binders[-1], shared.lanes, (f"{inner}_o", f"{inner}_v")))
        d.add(d.schedule.unroll(*written_out) if written_out else d.schedule)
        d.add(d.schedule.vectorize(full(name, f"{inner}_v")))
        mark_parallel(d, last_is_first, list(axes), sizes)
        return
    axis = axes[shared.position]
    order = [axes[k] for k in shared.order] or [*(a for a in axes if a != axis), axis]
    if sizes[axis] is not None and (sizes[axis] or 0) < 2:
        mark_parallel(d, last_is_first, list(axes), sizes)
        return
    if shared.tile is not None:
        counts = {**dict(shared.tile.rows), axis: shared.lanes}
        outer = add_blocks(d, as_one(classes[0]), order, [owned(b, (name,))[1] for b in binders], shared.tile)
        mark_parallel(d, last_is_first, outer, {**sizes, **{f"{a}_o": -(-(sizes[a] or OPEN_EXTENT) // n) for a, n in counts.items()}})
        return
    outer = [f"{a}_o" if a == axis else a for a in order]
    d.add(d.schedule.split(full(name, axis), shared.lanes, (f"{axis}_o", f"{axis}_v")))
    loops = [*(full(name, loop) for loop in outer), *binders, full(name, f"{axis}_v"), *written_out]
    d.add(d.schedule.order(*loops) if len(loops) > 1 else d.schedule)
    d.add(d.schedule.unroll(*written_out) if written_out else d.schedule)
    d.add(d.schedule.vectorize(full(name, f"{axis}_v")))
    mark_parallel(d, last_is_first, outer, {**sizes, f"{axis}_o": -(-(sizes[axis] or OPEN_EXTENT) // shared.lanes)})
    large = [m.tensors[0].name for m in members if bytes_of(d, (m.tensors[0].name,)) > d.machine.cache_bytes]
    results = [n for n in large if n in d.program.results]
    d.add(d.schedule.stream(*results) if results else d.schedule)


def _written_out(members: Sequence[Definition]) -> list[str]:
    """Return the loops over few terms of what is made for each term of other sums, by their full names."""
    return [full(m.tensors[0].name, b.name) for m in _inner(members) for r in reduces(m.pieces[0].value) for b in r.binders]


def _in_turn(members: Sequence[Definition]) -> list[list[Definition]] | None:
    """Return the members in an order in which each comes behind what it reads, those together that share the loops of their sums: of sums
    over the same ranges all, where no term of one needs another, behind what is made for these terms. None where several loops need that.
    """
    inner = {m.tensors[0].name: m for m in _inner(members)}
    others = [m for m in members if m.tensors[0].name not in inner]
    needed = {id(m): _needed(definition_reads(m), inner) for m in others}
    alike = [c for c in _classes(others) if len(c) > 1 and not any(_needs_in_terms(m, c, inner) for m in c)]
    while (found := _ordered(others, alike, needed)) is None:
        if not alike:
            return None
        alike = alike[:-1]
    made = [inner.keys() & set[str]().union(*(needed[id(m)] for m in part)) for part in found]
    if sum(map(len, made)) > len(inner):
        return None
    return [[*(m for name, m in inner.items() if name in own), *part] for own, part in zip(made, found, strict=True)]


def _needed(read: Iterable[str], inner: Mapping[str, Definition]) -> set[str]:
    """Return what is read, and what those of it need that are made for terms."""
    found: set[str] = set()
    waiting = [*read]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += definition_reads(inner[name]) if name in inner else ()
    return found


def _needs_in_terms(definition: Definition, others: Sequence[Definition], inner: Mapping[str, Definition]) -> bool:
    names = {m.tensors[0].name for m in others}
    terms = (read.tensor for r in reduces(definition.pieces[0].value) for read in reads(r))
    return not names.isdisjoint(_needed(terms, inner))


def _ordered(
    members: Sequence[Definition], alike: Sequence[list[Definition]], needed: Mapping[int, Set[str]]
) -> list[list[Definition]] | None:
    """Return the members in parts, each behind all that it needs; None where parts need each other."""
    shared = {id(m) for c in alike for m in c}
    left = [*alike, *([m] for m in members if id(m) not in shared)]
    left.sort(key=lambda part: members.index(part[0]))
    found: list[list[Definition]] = []
    while left:
        waiting = {id(part): {m.tensors[0].name for other in left if other is not part for m in other} for part in left}
        ready = next((part for part in left if not any(waiting[id(part)] & needed[id(m)] for m in part)), None)
        if ready is None:
            return None
        found.append(ready)
        left = [part for part in left if part is not ready]
    return found


def _shared_binders(d: Deriver, classes: Sequence[Sequence[Definition]], count: int) -> Iterator[str]:
    """Let sums over the same ranges share their loops, with what is made for their terms; yield the loops of all sums by their full names.
    `count`: how many axes all share."""
    for alike in classes:
        first = alike[0]
        names = first.axes[count:] or _terms(first)[count:]
        if len(alike) > 1 and names:
            d.add(d.schedule.together(*(m.tensors[0].name for m in alike), into=names))
        yield from (full(first.tensors[0].name, n) for n in names)
