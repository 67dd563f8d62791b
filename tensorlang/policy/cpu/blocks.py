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
is stored.
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
from tensorlang.policy.deriver import Deriver, in_order, is_threading_profitable
from tensorlang.schedule.apply import apply
from tensorlang.schedule.block import block
from tensorlang.schedule.check import verdict_of
from tensorlang.schedule.plan import full
from tensorlang.schedule.recurrence import legal_order
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import OPEN_EXTENT, extents, unit_stride
from tensorlang.syntax import nodes as syntax
from tensorlang.tensor.nodes import Definition, Program, Reduce
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
    """The sums of a recurrence over `binders` in tiles of `tile` rows and columns. `by_terms`: lanes are terms and not columns;
    `reversed_axes`: those that run backwards."""

    binders: tuple[str, ...]
    tile: int
    block: int
    by_terms: bool
    reversed_axes: frozenset[str]


def derive_blocks(d: Deriver, definition: Definition) -> bool:
    """Add the directives for a recurrence in blocks, if it is one that may run in them; tell whether it is."""
    found = _blocks(d, definition)
    if found is None:
        return False
    for schedule in _candidates(d, definition, found):
        if _is_legal(d, definition, schedule):
            d.add(schedule)
            return True
    return False


def _candidates(d: Deriver, definition: Definition, found: Blocks) -> Iterator[Schedule]:
    """Yield schedules from the best one on, of which some need more than others of what elements do not need of each other."""
    if len(definition.axes) == 2 and not found.by_terms and _stays_in_columns(definition):
        for shared in (1, 0) if is_threading_profitable(d, (definition,)) else (0,):
            yield _directives(d, definition, found, True, False, True, shared)
    shared = _tiles_shared(d, definition, found)
    for count, columns_first, along_columns in product((shared, 0) if shared else (0,), (True, False), (True, False)):
        yield _directives(d, definition, found, columns_first, along_columns, False, count)


def _stays_in_columns(definition: Definition) -> bool:
    """Tell whether elements need others of their own column alone."""
    column, name = AffineName(definition.axes[-1]), definition.tensors[0].name
    return all(r.index[-1] == column for p in definition.pieces for r in reads(p.value) if r.tensor == name)


def _blocks(d: Deriver, definition: Definition) -> Blocks | None:
    name, own = definition.tensors[0].name, {t.name for t in definition.tensors}
    if len(definition.axes) not in (1, 2) or len(own) != 1 or name in d.layouts or d.program.mode == "strict":
        return None
    lanes = d.machine.lanes(compute_dtype(definition.tensors[0].dtype))
    sums = [r for p in definition.pieces if not _has_equation(p.guard) for r in reduces(p.value)]
    heavy = [r for r in sums if own & {x.tensor for b in r.body for x in reads(b)} and _is_cut(d.program, r, lanes)]
    forms = {_by_terms(r, definition) for r in heavy}
    if len(forms) != 1 or len(heavy) != len(sums) or None in forms:
        return None
    (by_terms,) = forms
    single = len(definition.axes) == 1
    written = single and bool(by_terms)
    if lanes < FEWEST_LANES and not written:
        return None
    tile = TILE_OF_SUMS if by_terms else lanes * VECTORS_OF_A_ROW if single else lanes
    tile = max((n for n in WRITTEN_TILES if n <= lanes), default=WRITTEN_TILES[0]) if written else tile
    sizes = extents(definition)
    order = legal_order(Schedule(d.program.name), d.program, definition).directives
    least = FEWEST_TILES * (tile if written else max(tile, lanes))
    small = any((sizes[a] or OPEN_EXTENT) < least for a in definition.axes)
    if small or any(x.name != "reverse" for x in order):
        return None
    reversed_axes = {o.name.removeprefix(f"{name}.") for x in order for o in x.operands if isinstance(o, syntax.Id)}
    cut = tile if single else lanes
    return Blocks(tuple(r.binders[0].name for r in heavy), tile, cut, bool(by_terms), frozenset(reversed_axes))


def _tiles_shared(d: Deriver, definition: Definition, found: Blocks) -> int:
    """Return how many tiles along each axis a thread takes at once; 0 where there are too few for threads."""
    if len(definition.axes) == 1 or not is_threading_profitable(d, (definition,)):
        return 0
    tiles = min((extents(definition)[a] or OPEN_EXTENT) // found.tile for a in definition.axes)
    most = max(1, SHARED_ROWS // found.tile)
    return next((n for n in range(most, 0, -1) if n & (n - 1) == 0 and tiles >= TILES_PER_THREAD * d.machine.threads * n), 0)


def _has_equation(guard: Cond) -> bool:
    return any(isinstance(c, Compare) and c.op == "==" for c in affine.conjuncts(guard))


def _is_cut(program: Program, reduce: Reduce, by: int) -> bool:
    return len(reduce.binders) == 1 and not isinstance(block(program, reduce.binders[0].name, by), str)


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


def _directives(
    d: Deriver, definition: Definition, found: Blocks, columns_first: bool, along_columns: bool, side_by_side: bool, shared: int
) -> Schedule:
    """Return the directives. `columns_first`: tiles of a column run one after the other, else those of a row; `along_columns`: elements
    of a tile run column after column; `side_by_side`: columns need nothing of each other, so those of a tile are lanes, and threads share
    tiles of columns, where `shared` is not 0; otherwise that is how many tiles along each axis one thread takes of a diagonal, or 0."""
    name, axes = definition.tensors[0].name, definition.axes
    s = d.schedule
    for binder in found.binders:
        s = s.block(binder, found.block)
    for axis in axes:
        s = s.split(full(name, axis), found.tile, (f"{axis}_b", f"{axis}_t"))
        for loop in (f"{axis}_b", f"{axis}_t") if axis in found.reversed_axes else ():
            s = s.reverse(full(name, loop))
    for binder in found.binders if found.by_terms else ():
        s = s.split(full(name, binder), found.block, (f"{binder}_o", f"{binder}_v"))
    blocks = [f"{axis}_b" for axis in (reversed(axes) if columns_first else axes)]
    fronts: list[str] = []
    if shared and not side_by_side:
        row, column = axes
        for axis in axes:
            s = s.split(full(name, f"{axis}_b"), shared, (f"{axis}_w", f"{axis}_b"))
        s = s.skew(full(name, f"{column}_w"), full(name, f"{row}_w"))
        fronts = [f"{column}_w", f"{row}_w"]
    points = [f"{axis}_t" for axis in (reversed(axes) if along_columns else axes)]
    whole = [f"{b}_o" if found.by_terms else b for b in found.binders]
    lanes = [f"{b}_v" for b in found.binders] if found.by_terms else []
    rest, written = _binders(d.program, definition, found), list[str]()
    if found.by_terms and len(axes) == 1:
        s, rest, written = _written(s, name, rest, found)
    inner = [points[0], *rest, points[1]] if side_by_side else [*points, *rest]
    s = in_order(s, name, [*fronts, *blocks, *whole, *inner, *lanes])
    s = s.parallel(full(name, fronts[1] if fronts else blocks[0])) if shared else s
    for number, loop in enumerate(whole):
        own = {axis: f"{axis}_u{number or ''}" for axis in axes}
        s = s.distribute(full(name, loop), at=[full(name, p) for p in points], into=[own[p.removesuffix("_t")] for p in points])
        *rows, columns = (full(name, own[axis]) for axis in axes)
        s = s.order(*rows, columns) if rows and along_columns and not found.by_terms else s
        s = s.unroll(*rows, columns) if found.by_terms else (s.unroll(*rows) if rows else s).vectorize(columns)
    s = s.unroll(*(full(name, loop) for loop in (*points, *written))) if written else s
    lanes = [points[1]] if side_by_side else lanes
    return s.vectorize(*(full(name, loop) for loop in lanes)) if lanes else s


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


def _binders(program: Program, definition: Definition, found: Blocks) -> list[str]:
    """Return the ranges that are left over for each element, innermost of all: of sums in blocks, and of other sums."""
    name = definition.tensors[0].name
    for binder in found.binders:
        made = block(program, binder, found.block)
        assert not isinstance(made, str)
        program = made
    (own,) = (x for x in program.definitions if x.tensors[0].name == name)
    every = dict.fromkeys(b.name for p in own.pieces for r in reduces(p.value) for b in r.binders)
    return [b for b in every if b not in found.binders]


def _is_legal(d: Deriver, definition: Definition, schedule: Schedule) -> bool:
    """Tell whether a schedule is proven, with other recurrences in an order that is legal."""
    for group in components(d.program):
        for other in group:
            schedule = schedule if other is definition else legal_order(schedule, d.program, other)
    try:
        return isinstance(verdict_of(apply(d.program, replace(schedule, directives=schedule.directives[d.rewritten :]), d.layouts)), Proven)
    except CompileError:
        return False
