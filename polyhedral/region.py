"""Which cells a part of the loop tree touches, and nests that compute just those.

    need        { [outer loops] -> A[x] }      cells that consumers touch below the first `depth` loops, the inner loops projected out
    place_at    { [outer loops, i] : write(i) in need(outer loops) }, of a recurrence with the steps before those that consumers touch
    footprint   A[origin + y], 0 <= y < extent     of the whole tile (splits without the domain), so that extents stay constant

A producer placed this way runs once for each iteration of the outer loops; its own loops count from the origin of the footprint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from polyhedral import affine
from polyhedral.deps import access_map
from polyhedral.errors import NestError
from polyhedral.expr import TRUE, Add, Expr, Int, Name
from polyhedral.model import Access, Statement, Within
from polyhedral.nest import Nest
from polyhedral.schedule import Schedule
from polyhedral.space import DT, Frame, OperationLimit, integer, limited, val
from polyhedral.storage import fold_factor

FAR = 1 << 20
"""From here on an extent is told by sizes where these say it, even if something bounds it: what is known of sizes may be a limit that
nobody comes near."""

BOX_LIMIT = 100_000
"""Of steps of integer set arithmetic for the ends of a box along one axis, which is taken whole past that."""

MOST_CASES = 8
"""Of values that the quotients of a relation take."""

__all__ = ["Footprint", "fold_factor", "footprint", "place_at"]


@dataclass(frozen=True, slots=True)
class Footprint:
    """The cells `origin + y`, 0 <= y < extent: origins over the outer loops and parameters."""

    origin: tuple[Expr, ...]
    extent: tuple[int | Expr, ...]


def place_at(
    schedule: Schedule,
    statements: Sequence[str],
    tensors: Sequence[str],
    consumers: Sequence[str],
    depth: int,
    names: Mapping[str, Mapping[str, str]] | None = None,
    kept: int | None = None,
) -> tuple[Nest, ...]:
    """Return nests that compute what the `consumers` (placements) touch of any of `tensors` within each iteration of their first `depth`
    loops: of all tensors, which have as many axes, the same cells. Loops are those `depth` loops, then one for each iterator of the
    statement, called `names[statement][iter]`, or the iterator's name, or `statement.iter` where that is taken. Cells that are `kept` for
    all iterations of loops after the first so many are computed in the first iteration that touches them (sliding windows), but those of a
    recurrence. Raises `NestError` when the consumers do not share the loops."""
    outer = _outer_loops(schedule, consumers, depth)
    need = _need(schedule, tensors, consumers, depth)
    box = _box(schedule, tensors, consumers, depth)
    carried = _carried(schedule, statements, tensors, need)
    if carried:
        need, box = _whole_along(need, carried), _with_whole_sides(schedule, tensors[0], box, carried)
    elif kept is not None and kept < depth:
        need = _first(need, kept)
    return tuple(_at(schedule, schedule.statements[s], need, outer, box, (names or {}).get(s, {})) for s in statements)


def _outer_loops(schedule: Schedule, placements: Sequence[str], depth: int) -> tuple[str, ...]:
    if not placements:
        raise NestError("there is no consumer to compute it for")
    first = placements[0]
    for other in placements:
        if min(schedule.shared(first, other), len(schedule.nests[other].loops)) < depth:
            raise NestError(f"`{first}` and `{other}` do not share {depth} loops")
    return schedule.nests[first].loops[:depth]


def _need(schedule: Schedule, tensors: Sequence[str], placements: Sequence[str], depth: int) -> isl.Map:
    """Return `{ [outer loops] -> [x] }`: convex where possible, which may be more than is touched."""
    total: isl.Map | None = None
    for name in placements:
        nest = schedule.nests[name]
        points = nest.points.intersect_params(nest.context)
        for relation in _accesses(schedule, nest, tensors):
            touched = relation.intersect_domain(points).project_out(DT.in_, depth, len(nest.loops) - depth)
            total = touched if total is None else total.union(touched)
    if total is None:
        raise NestError(f"no consumer touches {_listed(tensors)}")
    total = (_in_cases(total) if _has_divs(total) else total).coalesce()
    if len(total.get_basic_maps()) == 1 and not _has_divs(total):
        return total
    around = total.domain().simple_hull().remove_divs().to_set()
    hull = isl.Map.from_basic_map(total.simple_hull().remove_divs()).intersect_domain(around)
    both = hull.wrap().flatten()
    bounded = all(both.dim_is_bounded(DT.set, p) for p in range(both.dim(DT.set)))
    return hull if bounded else total


def _first(need: isl.Map, kept: int) -> isl.Map:
    """Return `{ [outer loops] -> [x] }` without what an iteration before, of the same first `kept` loops, needs as well."""
    outer = need.get_space().domain().map_from_set()
    before = isl.Map.lex_gt(outer.domain())
    for k in range(kept):
        before = before.equate(DT.in_, k, DT.out, k)
    return need.subtract(before.apply_range(need)).coalesce()


def _carried(schedule: Schedule, statements: Sequence[str], tensors: Sequence[str], need: isl.Map) -> tuple[int, ...]:
    """Return the axes along which the statements read `tensors` elsewhere than where they write; none where what they read for the cells of
    `need` is among these."""
    scop, own = schedule.scop, [schedule.statements[s] for s in statements]
    accesses = [(s, a) for s in own for a in s.reads if a.tensor in tensors]
    reads = [access_map(scop, s, s.write).reverse().apply_range(access_map(scop, s, a)) for s, a in accesses]
    if all(need.apply_range(read).is_subset(need) for read in reads):
        return ()
    same = [isl.Map.universe(read.get_space()).equate(DT.in_, k, DT.out, k) for read in reads[:1] for k in range(read.dim(DT.out))]
    return tuple(k for k, at_own in enumerate(same) if not all(read.is_subset(at_own) for read in reads))


def _whole_along(need: isl.Map, axes: Sequence[int]) -> isl.Map:
    """Return `{ [outer loops] -> [x] }` with any coordinates along `axes` beside the others of each cell."""
    rank = need.dim(DT.out)
    line = isl.Map.universe(need.get_space().range().map_from_set())
    for k in set(range(rank)) - set(axes):
        line = line.equate(DT.in_, k, DT.out, k)
    return need.apply_range(line).coalesce()


def _with_whole_sides(schedule: Schedule, tensor: str, box: Footprint, axes: Sequence[int]) -> Footprint:
    shape = next(t.shape for t in schedule.scop.tensors if t.name == tensor)
    origin = tuple(Int(0) if k in axes else x for k, x in enumerate(box.origin))
    return Footprint(
        origin, tuple(_constant(whole) if k in axes else x for k, (x, whole) in enumerate(zip(box.extent, shape, strict=True)))
    )


def _has_divs(relation: isl.Map) -> bool:
    return any(b.dim(DT.div) > 0 for b in relation.get_basic_maps())


def _in_cases(relation: isl.Map) -> isl.Map:
    """Return a relation of which quotients that take few values, as those of indices that are reflected at edges, are cases of these: what
    a hull is made of then says which cells are touched where."""
    found = isl.Map.empty(relation.get_space())
    for basic in relation.get_basic_maps():
        cases = _cases(isl.Set.from_basic_set(basic.wrap().lift()).unwrap()) if basic.dim(DT.div) else []
        for case in cases or [isl.Map.from_basic_map(basic)]:
            found = found.union(case)
    return found


def _cases(lifted: isl.Map) -> list[isl.Map]:
    """Return the cases of the quotients that a relation is lifted by; none where these take more than `MOST_CASES` values."""
    quotients, cases = lifted.range(), [lifted]
    for k in range(quotients.dim(DT.set)):
        least, most = quotients.dim_min_val(k), quotients.dim_max_val(k)
        if not (least.is_int() and most.is_int()) or (integer(most) - integer(least) + 1) * len(cases) > MOST_CASES:
            return []
        cases = [case.fix_val(DT.out, k, val(n)) for case in cases for n in range(integer(least), integer(most) + 1)]
    return [case.domain().unwrap() for case in cases]


def _accesses(schedule: Schedule, nest: Nest, tensors: Sequence[str]) -> list[isl.Map]:
    """Return `{ [loops] -> [x] }` of each access of the placement to one of `tensors`, without its domain."""
    statement = schedule.statements[nest.statement]
    return [access_map(schedule.scop, statement, a).preimage_domain_multi_aff(nest.back) for a in _touching(statement, tensors)]


def _touching(statement: Statement, tensors: Sequence[str]) -> list[Access]:
    return [a for a in (statement.write, *statement.reads) if a.tensor in tensors]


def _at(schedule: Schedule, statement: Statement, need: isl.Map, outer: tuple[str, ...], box: Footprint, names: Mapping[str, str]) -> Nest:
    scop = schedule.scop
    base = Nest.identity(scop, statement)
    n = len(outer)
    write = access_map(scop, statement, statement.write)
    points = need.apply_range(write.reverse()).wrap().flatten()
    inner = tuple(_fresh(names.get(i, i), statement.name, outer, names) for i in statement.iters)
    loops = (*outer, *inner)
    frame = Frame(scop.params, loops)
    starts = _origins(statement, box)
    change = frame.multi_aff(
        [*(Name(o) for o in outer), *(Add(Name(x), starts[i][0]) for i, x in zip(statement.iters, inner, strict=True))]
    )
    own = points.preimage_multi_aff(change)
    bounds = frame.universe()
    for k, iterator in enumerate(statement.iters):
        extent = starts[iterator][1]
        if isinstance(extent, int):
            bounds = bounds.lower_bound_val(DT.set, n + k, val(0)).upper_bound_val(DT.set, n + k, val(extent - 1))
    back = frame.multi_aff(Add(Name(x), starts[i][0]) for i, x in zip(statement.iters, inner, strict=True))
    return replace(base, loops=loops, points=own.intersect(bounds).coalesce(), back=back, box=bounds)


def _fresh(name: str, statement: str, outer: tuple[str, ...], names: Mapping[str, str]) -> str:
    if name in outer and name not in names.values():
        return f"{statement}.{name}"
    return name


def _origins(statement: Statement, box: Footprint) -> dict[str, tuple[Expr, int | Expr | None]]:
    """Return where each iterator starts and how far it goes, for iterators that are coordinates of the written cell plus a constant."""
    result: dict[str, tuple[Expr, int | Expr | None]] = {i: (Int(0), None) for i in statement.iters}
    for axis, index in enumerate(statement.write.index):
        if isinstance(index, Within):
            continue
        form = affine.linear(index)
        match form.terms:
            case ((Name(name), 1),) if name in result and result[name][1] is None:
                result[name] = (affine.add(box.origin[axis], Int(-form.constant)), box.extent[axis])
            case _:
                pass
    return result


def footprint(schedule: Schedule, tensor: str, placements: Sequence[str], depth: int) -> Footprint:
    """Return the box of cells of `tensor` that the placements touch within one iteration of their first `depth` loops. An axis with no
    affine origin is taken whole."""
    return _box(schedule, (tensor,), placements, depth)


def _box(schedule: Schedule, tensors: Sequence[str], placements: Sequence[str], depth: int) -> Footprint:
    outer = _outer_loops(schedule, placements, depth)
    frame = Frame(schedule.scop.params, outer)
    tile = _touched(schedule, tensors, placements, depth, clipped=False)
    clipped = _touched(schedule, tensors, placements, depth, clipped=True)
    shape = next(t.shape for t in schedule.scop.tensors if t.name == tensors[0])
    context = schedule.nests[placements[0]].context
    sides = []
    for axis, whole in enumerate(shape):
        of_tile, of_points = (_side(relation.intersect_params(context), axis, frame, context) for relation in (tile, clipped))
        side = _smallest([s for s in (of_tile, of_points) if s is not None] or [(Int(0), _constant(whole))])
        if depth == 0 and side[0] != Int(0) and not isinstance(side[1], int):
            # Tiles begin before the tensor, or behind, and how far they reach takes quotients of sizes to say.
            side = of_points or (Int(0), _constant(whole))
        sides.append(side)
    return Footprint(tuple(s[0] for s in sides), tuple(s[1] for s in sides))


def _smallest(sides: Sequence[tuple[Expr, int | Expr]]) -> tuple[Expr, int | Expr]:
    """Return the side of least constant extent, or the first when none is constant."""
    best = sides[0]
    for side in sides[1:]:
        if isinstance(side[1], int) and (not isinstance(best[1], int) or side[1] < best[1]):
            best = side
    return best


def _touched(schedule: Schedule, tensors: Sequence[str], placements: Sequence[str], depth: int, *, clipped: bool) -> isl.Map:
    """Return `{ [outer loops] -> [x] }` touched at the points of the domain, or over the whole tile."""
    total: isl.Map | None = None
    for name in placements:
        nest = schedule.nests[name]
        points = nest.points.intersect_params(nest.context) if clipped else _whole_tile(nest, depth)
        for access in _touching(schedule.statements[nest.statement], tensors):
            relation = _access(schedule, nest, access, clipped=clipped)
            touched = relation.intersect_domain(points).project_out(DT.in_, depth, len(nest.loops) - depth)
            total = touched if total is None else total.union(touched)
    if total is None:
        raise NestError(f"no placement touches {_listed(tensors)}")
    return total.coalesce()


def _access(schedule: Schedule, nest: Nest, access: Access, *, clipped: bool) -> isl.Map:
    """Return `{ [loops] -> [x] }`, without the statement's domain unless `clipped`."""
    statement = schedule.statements[nest.statement]
    if not clipped:
        statement, access = replace(statement, domain=TRUE), replace(access, when=TRUE)
    return access_map(schedule.scop, statement, access).preimage_domain_multi_aff(nest.back)


def _whole_tile(nest: Nest, depth: int) -> isl.Set:
    """Return what splits say about the loops, and for inner loops that are not from splits the range they have over the whole domain:
    constants where there are any, else in terms of the parameters."""
    tile = nest.box
    points = nest.points.intersect_params(nest.context)
    for position in range(depth, len(nest.loops)):
        if tile.dim_min_val(position).is_int() and tile.dim_max_val(position).is_int():
            continue
        low, high = points.dim_min_val(position), points.dim_max_val(position)
        has_low, has_high = low.is_int(), _is_known(high, nest.frame)
        if has_low:
            tile = tile.lower_bound_val(DT.set, position, low)
        if has_high:
            tile = tile.upper_bound_val(DT.set, position, high)
        if has_low and has_high:
            continue
        span = nest.range(nest.loops[position])
        if span is None:
            return points
        loop = nest.frame.pw_aff(Name(nest.loops[position]))
        tile = tile.intersect(loop.ge_set(nest.frame.pw_aff(span[0]))).intersect(loop.lt_set(nest.frame.pw_aff(span[1])))
    return tile


def _is_known(most: isl.Val, frame: Frame) -> bool:
    """Tell whether what is at most so large is taken to be: sizes may say it better than a number far away."""
    return bool(most.is_int()) and (integer(most) < FAR or not frame.params)


def _side(touched: isl.Map, axis: int, frame: Frame, context: isl.Set) -> tuple[Expr, int | Expr] | None:
    """Return origin and extent along one axis, or None when the origin is not one affine function of the outer loops, or takes too long to
    say."""
    rank = touched.dim(DT.out)
    line = touched.project_out(DT.out, axis + 1, rank - axis - 1).project_out(DT.out, 0, axis)
    values = line.wrap().flatten()
    if values.is_empty():
        return Int(0), 0
    try:
        with limited(BOX_LIMIT):
            low, high = _ends(line)
    except OperationLimit:
        return None
    except isl.Error as error:
        if "maximal number of operations" in str(error):
            raise
        return None
    origin = _one_piece(low, frame, context)
    if origin is None:
        return None
    start = frame.pw_aff(origin)
    width = isl.Map.from_pw_aff(high.sub(start)).range()
    greatest = width.dim_max_val(0)
    if _is_known(greatest, frame):
        return origin, integer(greatest) + 1
    if not width.dim_has_upper_bound(DT.set, 0):
        return None
    extent = Frame(frame.params, ()).piecewise(width.dim_max(0).gist_params(context))
    if extent is not None:
        return origin, affine.add(extent, Int(1))
    return (origin, integer(greatest) + 1) if greatest.is_int() else None


def _ends(line: isl.Map) -> tuple[isl.PwAff, isl.PwAff]:
    return line.lexmin_pw_multi_aff().get_at(0), line.lexmax_pw_multi_aff().get_at(0)


def _one_piece(pw: isl.PwAff, frame: Frame, context: isl.Set) -> Expr | None:
    """Return `pw` when it is one affine function on its domain."""
    pieces = pw.coalesce().get_pieces()
    for domain, aff in pieces:
        candidate = aff.gist(domain)
        if all(domain.is_subset(candidate.eq_set(other)) for domain, other in pieces):
            return frame.expr(candidate.gist(isl.Set.universe(candidate.get_domain_space()).intersect_params(context)))
    return None


def _listed(tensors: Sequence[str]) -> str:
    return " or ".join(f"`{t}`" for t in tensors)


def _constant(expr: Expr) -> int | Expr:
    form = affine.linear(expr)
    return expr if form.terms else form.constant
