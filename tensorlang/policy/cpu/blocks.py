"""Blocked recurrences: what a tile sums of earlier ones is added up in a register tile, before the elements of the tile are computed.

    m[i, j] = a[i, j] - sum(k in 0..j) m[i, k] * m[k, j]          block k by 8
                                                                  tile m (i, j) by (8, 8) -> i_b, j_b, i_t, j_t
    for each tile:  all terms of whole blocks, in lanes           distribute m.k at m.j_t, m.i_t -> j_u, i_u
                    then element by element the few that are left

Tiles need those before them in their row and their column. On several threads, squares of tiles of one diagonal run at the same time.
Elements of a tile need each other, so their sums could only run one after the other: factorisations, and dynamic programming over
parts. Sums of whole blocks need nothing of the tile. Their lanes are columns where one operand lies along them and the other does not
have them, or terms where both lie along those. Where columns need nothing of each other, as the unknowns of a triangle with several
right sides, the elements of a row of a tile are lanes, too, and threads share the tiles of columns. A recurrence of one axis, such as
substitution by columns of a triangle, has tiles of a row of a few vectors. Where its matrix lies along the terms, the sums of a few
elements go through these together, and what they need of each other is written out, in registers: lanes would wait until each element
is stored. Tensors that need each other, as the two factors of a matrix do, share the loops over tiles and over the elements of one, and
each has a register tile for its sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from codegen.dtypes import compute_dtype
from polyhedral import affine
from polyhedral.expr import Compare, Cond
from polyhedral.expr import Name as AffineName
from polyhedral.verdict import Proven
from tensorlang.diagnostics import CompileError
from tensorlang.policy.deriver import Deriver, is_threading_profitable
from tensorlang.schedule.apply import apply
from tensorlang.schedule.block import block
from tensorlang.schedule.check import verdict_of
from tensorlang.schedule.plan import full, owned
from tensorlang.schedule.recurrence import directions, innermost_apart, legal_order
from tensorlang.schedule.rfactor import name_of
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import OPEN_EXTENT, extents, unit_stride
from tensorlang.syntax import nodes as syntax
from tensorlang.tensor.nodes import Definition, Program, Reduce
from tensorlang.tensor.notation import show
from tensorlang.tensor.walk import components, index_names, reads, reduces

FEWEST_LANES = 4
"""Elements of a vector, from which on lanes are worth a tile."""
TILE_OF_SUMS = 4
"""Rows and columns of a tile whose lanes are terms: sixteen sums, which two units do not wait for."""
FEWEST_TILES = 4
"""Along each axis, that are worth blocks."""
SHARED_ROWS = 64
"""Rows and columns of what a thread takes at once: what its tiles read of earlier columns is read from near for all rows but the first."""
VECTORS_OF_A_ROW = 2
"""Of a tile that has no other rows: a sum waits for the one before it."""
WRITTEN_TILES = (4, 8)
"""Elements of a tile of one axis whose lanes are terms, where registers hold fewer lanes than the second of these, or as many: what they
need of each other is a few dozen terms."""
TILES_PER_THREAD = 8
"""Of those along each axis, at least, so that diagonals are long enough for all threads."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The sums of recurrences that need each other over `binders`, each with its tensor, in tiles of `tile` rows and columns. `by_terms`:
    lanes are terms and not columns; `reversed_axes`: those that run backwards. `owner`: the first of them, after which the loops that they
    share are called; `joining`: what has them share all. `apart`: the clauses of a single one that need no element of it, each with the
    lanes of a vector."""

    owner: Definition
    binders: tuple[tuple[str, str], ...]
    tile: int
    block: int
    by_terms: bool
    reversed_axes: frozenset[str]
    joining: tuple[syntax.Directive, ...] = ()
    apart: tuple[tuple[int, int], ...] = ()


def derive_blocks(d: Deriver, group: tuple[Definition, ...]) -> bool:
    """Add the directives for recurrences that need each other in blocks, if these may run in them; tell whether they do."""
    found = _blocks(d, group)
    if found is None:
        return False
    for schedule in _candidates(d, group, found):
        if _is_legal(d, group, schedule):
            d.add(schedule)
            return True
    return False


def _candidates(d: Deriver, group: Sequence[Definition], found: Blocks) -> Iterator[Schedule]:
    """Yield schedules from the best one on, of which some need more than others of what elements do not need of each other."""
    if len(found.owner.axes) == 2 and not found.by_terms and _stay_in_columns(group):
        for shared in (1, 0) if is_threading_profitable(d, group) else (0,):
            yield _directives(d, found, True, False, True, shared)
    shared = _tiles_shared(d, group, found)
    for count, columns_first, along_columns in product((shared, 0) if shared else (0,), (True, False), (True, False)):
        yield _directives(d, found, columns_first, along_columns, False, count)


def _stay_in_columns(group: Sequence[Definition]) -> bool:
    """Tell whether elements need others of their own column alone."""
    own = {x.tensors[0].name for x in group}
    return all(r.index[-1] == AffineName(x.axes[-1]) for x in group for p in x.pieces for r in reads(p.value) if r.tensor in own)


def _blocks(d: Deriver, group: tuple[Definition, ...]) -> Blocks | None:
    own, axes = {t.name for x in group for t in x.tensors}, {len(x.axes) for x in group}
    dtypes = {compute_dtype(x.tensors[0].dtype) for x in group}
    if len(own) != len(group) or len(axes) != 1 or len(dtypes) != 1 or own & d.layouts.keys() or d.program.mode == "strict":
        return None
    (count,), (dtype,) = axes, dtypes
    lanes = _lanes(d, group, d.machine.lanes(dtype))
    sums = [(x, r) for x in group for p in x.pieces if not _has_equation(p.guard) for r in reduces(p.value)]
    heavy = [(x, r) for x, r in sums if own & {y.tensor for b in r.body for y in reads(b)} and _is_cut(d.program, x, r, lanes)]
    forms = {_by_terms(r, x) for x, r in heavy}
    if count not in (1, 2) or len(forms) != 1 or len(heavy) != len(sums) or None in forms:
        return None
    (by_terms,) = forms
    single = count == 1
    written = single and bool(by_terms)
    if lanes < FEWEST_LANES and not written:
        return None
    tile = TILE_OF_SUMS if by_terms else lanes * VECTORS_OF_A_ROW if single else lanes
    tile = max((n for n in WRITTEN_TILES if n <= lanes), default=WRITTEN_TILES[0]) if written else tile
    least = FEWEST_TILES * (tile if written else max(tile, lanes))
    found = _in_loops(d, group) if all(n >= least for x in group for n in _sizes(x)) else None
    if found is None:
        return None
    owner, reversed_axes, joining = found
    cut = tile if single else lanes
    binders = tuple((x.tensors[0].name, r.binders[0].name) for x, r in heavy)
    apart = [(k, lanes) for k, p in enumerate(owner.pieces) if not own & {r.tensor for r in reads(p.value)}] if len(group) == 1 else []
    return Blocks(owner, binders, tile, cut, bool(by_terms), reversed_axes, joining, tuple(apart))


def _lanes(d: Deriver, group: Sequence[Definition], most: int) -> int:
    """Return how many lanes a vector has: those of a register, or fewer where axes are too short for enough tiles of so many. Columns that
    need nothing of each other run in whole vectors without tiles, too."""
    least = min(n for x in group for n in _sizes(x))
    while not _stay_in_columns(group) and most >= 2 * FEWEST_LANES and FEWEST_TILES * most > least:
        most //= 2
    return most


def _in_loops(d: Deriver, group: tuple[Definition, ...]) -> tuple[Definition, frozenset[str], tuple[syntax.Directive, ...]] | None:
    """Return the tensor after which the loops over the axes are called, the axes along which they run backwards, and what has all of a
    group share them; None where they run along several axes at once, or the tensors do not go along with each other."""
    empty = Schedule(d.program.name)
    if len(group) == 1:
        (owner,) = group
        order = legal_order(empty, d.program, owner).directives
        turned = {o.name for x in order for o in x.operands if isinstance(o, syntax.Id)}
        back = frozenset(a for a in owner.axes if full(owner.tensors[0].name, a) in turned)
        return None if any(x.name != "reverse" for x in order) else (owner, back, ())
    taken = directions(d.program, group)
    if taken is None:
        return None
    plan = apply(d.program, d.since, d.layouts)
    loops = {plan.placed.nests[s.name].loops for x in group for s in plan.stages.of(x)}
    joined = innermost_apart(plan, group)
    by_name = {x.tensors[0].name: x for x in group}
    called = next(iter(joined), None) or owned(next(iter(loops))[0], by_name)[0]
    owner, schedule = by_name[called], empty
    if not joined and len({x[: len(owner.axes)] for x in loops}) != 1:
        return None
    schedule = schedule.together(*joined, into=tuple({*joined.values()})) if joined else schedule
    for axis, sign, size in zip(owner.axes, taken, owner.tensors[0].shape, strict=True):
        if sign < 0 and axis != joined.get(called):
            # A loop that several tensors share and that goes back counts from the end.
            schedule = schedule.affine(called, [show(affine.sub(affine.sub(size, 1), AffineName(axis)))], [axis])
    return owner, frozenset(a for k, a in enumerate(owner.axes) if taken[k] < 0), schedule.directives


def _sizes(definition: Definition) -> list[int]:
    return [extents(definition)[a] or OPEN_EXTENT for a in definition.axes]


def _tiles_shared(d: Deriver, group: Sequence[Definition], found: Blocks) -> int:
    """Return how many tiles along each axis a thread takes at once; 0 where there are too few for threads."""
    if len(found.owner.axes) == 1 or not is_threading_profitable(d, group):
        return 0
    tiles = min(n // found.tile for x in group for n in _sizes(x))
    most = max(1, SHARED_ROWS // found.tile)
    return next((n for n in range(most, 0, -1) if n & (n - 1) == 0 and tiles >= TILES_PER_THREAD * d.machine.threads * n), 0)


def _has_equation(guard: Cond) -> bool:
    return any(isinstance(c, Compare) and c.op == "==" for c in affine.conjuncts(guard))


def _is_cut(program: Program, definition: Definition, reduce: Reduce, by: int) -> bool:
    return len(reduce.binders) == 1 and not isinstance(block(program, name_of(program, definition, reduce.binders[0].name), by), str)


def _by_terms(reduce: Reduce, definition: Definition) -> bool | None:
    """Tell whether lanes had better be the terms of a sum, or else columns; None where neither lie side by side."""
    column, binder = definition.axes[-1], reduce.binders[0].name
    found = [r for b in reduce.body for r in reads(b)]
    for by_terms, along in ((False, column), (True, binder)):
        if any(along in index_names(r) for r in found) and all(
            along not in index_names(r) or unit_stride(r.index, None, None, along) for r in found
        ):
            return by_terms
    return None


def _directives(d: Deriver, found: Blocks, columns_first: bool, along_columns: bool, side_by_side: bool, shared: int) -> Schedule:
    """Return the directives. `columns_first`: tiles of a column run one after the other, else those of a row; `along_columns`: elements
    of a tile run column after column; `side_by_side`: columns need nothing of each other, so those of a tile are lanes, and threads share
    tiles of columns, where `shared` is not 0; otherwise that is how many tiles along each axis one thread takes of a diagonal, or 0."""
    name, axes = found.owner.tensors[0].name, found.owner.axes
    s = d.schedule
    for called in _called(d.program, found):
        s = s.block(called, found.block)
    s = _apart(replace(s, directives=(*s.directives, *found.joining)), found)
    for axis in axes:
        s = s.split(full(name, axis), found.tile, (f"{axis}_b", f"{axis}_t"))
        for loop in (f"{axis}_b", f"{axis}_t") if axis in found.reversed_axes else ():
            s = s.reverse(full(name, loop))
    for tensor, binder in found.binders if found.by_terms else ():
        s = s.split(full(tensor, binder), found.block, (f"{binder}_o", f"{binder}_v"))
    blocks = [f"{axis}_b" for axis in (reversed(axes) if columns_first else axes)]
    fronts: list[str] = []
    if shared and not side_by_side:
        row, column = axes
        for axis in axes:
            s = s.split(full(name, f"{axis}_b"), shared, (f"{axis}_w", f"{axis}_b"))
        s = s.skew(full(name, f"{column}_w"), full(name, f"{row}_w"))
        fronts = [f"{column}_w", f"{row}_w"]
    points = [f"{axis}_t" for axis in (reversed(axes) if along_columns else axes)]
    whole = [(tensor, f"{b}_o" if found.by_terms else b) for tensor, b in found.binders]
    lanes = [full(tensor, f"{b}_v") for tensor, b in found.binders] if found.by_terms else []
    rest, written = _rest(_blocked(d, s), found), list[str]()
    if found.by_terms and len(axes) == 1:
        s, rest, written = _written(s, name, [owned(loop, (name,))[1] for loop in rest], found)
        rest = [full(name, loop) for loop in rest]
    around, within = [full(name, loop) for loop in (*fronts, *blocks)], [full(name, p) for p in points]
    inner = [within[0], *rest, within[1]] if side_by_side else [*within, *rest]
    s = s.order(*around, *(full(*loop) for loop in whole), *inner, *lanes)
    s = s.parallel(full(name, fronts[1] if fronts else blocks[0])) if shared else s
    for number, (tensor, loop) in enumerate(whole):
        own = {axis: f"{axis}_u{number or ''}" for axis in axes}
        s = s.distribute(full(tensor, loop), at=within, into=[own[p.removesuffix("_t")] for p in points])
        *rows, columns = (full(tensor, own[axis]) for axis in axes)
        s = s.order(*rows, columns) if rows and along_columns and not found.by_terms else s
        s = s.unroll(*rows, columns) if found.by_terms else (s.unroll(*rows) if rows else s).vectorize(columns)
    s = s.unroll(*(full(name, loop) for loop in (*points, *written))) if written else s
    lanes = [within[1]] if side_by_side else lanes
    return s.vectorize(*lanes) if lanes else s


def _apart(s: Schedule, found: Blocks) -> Schedule:
    """Return the directives with vectors for what needs no element of a recurrence: each of a tile would be asked for it."""
    name, axes = found.owner.tensors[0].name, found.owner.axes
    for number, lanes in found.apart:
        own = [f"{axis}_{number}" for axis in axes]
        s = s.distribute(f"{name}.{number}", at=[full(name, axis) for axis in axes], into=own)
        s = s.split(full(name, own[-1]), lanes, (f"{own[-1]}_o", f"{own[-1]}_v")).vectorize(full(name, f"{own[-1]}_v"))
    return s


def _written(s: Schedule, name: str, rest: Sequence[str], found: Blocks) -> tuple[Schedule, list[str], list[str]]:
    """Return the directives with the ranges of what is left over cut at blocks, of which each lies in one, what was computed last at their
    end; all of their loops, and those that are to be written out."""
    loops, written = list[str](), list[str]()
    for binder in rest:
        outer, inner = (f"{binder.replace('.', '_')}_{end}" for end in "oi")
        s = s.split(full(name, binder), found.block, (outer, inner))
        s = s.reverse(full(name, inner)) if found.reversed_axes else s
        loops += (outer, inner)
        written.append(inner)
    return s, loops, written


def _called(program: Program, found: Blocks) -> list[str]:
    """Return what the ranges of sums are called in the whole program."""
    owners = {x.tensors[0].name: x for x in program.definitions}
    return [name_of(program, owners[tensor], binder) for tensor, binder in found.binders]


def _blocked(d: Deriver, schedule: Schedule) -> Program:
    """Return the program with all sums cut that the directives so far cut: what is left over of each has a name of its own."""
    program = d.program
    for x in schedule.directives[d.rewritten :]:
        match x:
            case syntax.Directive("block", (syntax.Id(called),), (syntax.Phrase("by", (syntax.Number(by),)),)):
                made = block(program, called, int(by))
                assert not isinstance(made, str)
                program = made
            case _:
                pass
    return program


def _rest(program: Program, found: Blocks) -> list[str]:
    """Return the ranges that are left over for each element, innermost of all: of sums in blocks, and of other sums."""
    tensors = dict.fromkeys([found.owner.tensors[0].name, *(tensor for tensor, _ in found.binders)])
    own = ((tensor, x) for tensor in tensors for x in program.definitions if x.tensors[0].name == tensor)
    every = dict.fromkeys((tensor, b.name) for tensor, x in own for p in x.pieces for r in reduces(p.value) for b in r.binders)
    return [full(*loop) for loop in every if loop not in found.binders]


def _is_legal(d: Deriver, own: Sequence[Definition], schedule: Schedule) -> bool:
    """Tell whether the directives that a schedule adds are proven, with other recurrences in an order that is legal. Of what has been said
    of those before, only how their sums are cut matters, which names what is left over here: the whole is proven in the end."""
    count = len(d.schedule.directives)
    before = (x for x in schedule.directives[d.rewritten : count] if x.name == "block")
    schedule = replace(schedule, directives=(*before, *schedule.directives[count:]))
    for group in components(d.program):
        for other in group:
            schedule = schedule if any(other is x for x in own) else legal_order(schedule, d.program, other)
    try:
        return isinstance(verdict_of(apply(d.program, schedule, d.layouts)), Proven)
    except CompileError:
        return False
