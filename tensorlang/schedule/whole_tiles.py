"""Sums of register tiles that the guard of a clause cuts are computed for the whole tile; what is for no element is never read.

    y[i, j] = sum(k) a[i, k] * a[j, k]   for j <= i            order i_o, j_o, k, i_t, j_v;  unroll i_t;  vectorize j_v

Tiles on the diagonal hold elements of the clause and others. Adding up all of them costs no more than asking each, and keeps the sums in
registers, so initialising and updating run where a tile has any element of the clause at all: `j <= i` becomes
`16 * (j // 16) <= 6 * (i // 6) + 5`. Storing runs where it did. This is done where every tile of a clause sums over the same range, what
the others read lies inside its tensor, by exact sets, and nothing they compute can fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from polyhedral import affine
from polyhedral.expr import TRUE, And, Compare, Cond, Floor, Name, Or
from polyhedral.expr import Expr as Affine
from polyhedral.model import Within
from polyhedral.sets import implies
from polyhedral.verdict import Proven
from tensorlang.schedule.plan import Stage
from tensorlang.schedule.state import State
from tensorlang.tensor.facts import has_gather
from tensorlang.tensor.nodes import Binary, Definition, Piece, Reduce
from tensorlang.tensor.scop import Accumulator, Stages, to_scop
from tensorlang.tensor.walk import definition_reads, nodes, reduces

IN_REGISTERS = ("unroll", "vector")


def whole_tiles(state: State, stages: Stages) -> Stages:
    """Return `stages` with the domains of such sums grown to whole tiles; the stages of `state` go by them."""
    wanted = {key: cond for stage in state.stages.values() for key, cond in _grown(stage, stages)}
    if not wanted:
        return stages
    made = to_scop(state.program, state.numbered, wanted)
    wanted = {key: cond for key, cond in wanted.items() if _reads_inside(made, stages.accumulators[key])}
    if not wanted:
        return stages
    made = to_scop(state.program, state.numbered, wanted)
    state.scop = made.scop
    for name, stage in state.stages.items():
        state.stages[name] = replace(stage, memo={})
    return made


def _grown(stage: Stage, stages: Stages) -> Iterator[tuple[tuple[str, int], Cond]]:
    """Yield the tensor and the number of each clause of a stage whose sums may run for whole tiles, with where they then do."""
    if stage.inside is not None or stage.together or stage.cuts or len(stage.definitions) != 1:
        return
    (definition,) = stage.definitions
    if {t.name for t in definition.tensors} & set(definition_reads(definition)):
        return
    for number, piece in enumerate(definition.pieces):
        found = stages.accumulators[definition.tensors[0].name, number]
        tiles = [_tile(stage, definition, acc) for acc in found]
        if piece.guard == TRUE or not tiles or not tiles[0] or any(tile != tiles[0] for tile in tiles):
            continue
        cond = _relaxed(piece.guard, tiles[0])
        if cond is not None and all(_is_uniform(acc, definition) and _is_total(acc.reduce) for acc in found) and not _pins(piece):
            yield (definition.tensors[0].name, number), cond


def _tile(stage: Stage, definition: Definition, acc: Accumulator) -> dict[str, int]:
    """Return how many elements along each axis the loops inside those of a sum run over, all in registers; none where they do not."""
    own = [loop for loop in stage.loops if acc.name in stage.members[loop]]
    first = next((k for k, loop in enumerate(own) if loop in stage.reductions), len(own))
    inside = [loop for loop in own[first:] if loop not in stage.reductions]
    if not inside or any(stage.marks.get(loop) not in IN_REGISTERS for loop in inside):
        return {}
    sizes: dict[str, int] = {}
    for loop in own[:first]:
        match stage.forward[loop]:
            case Floor(Name(axis), factor) if axis in definition.axes:
                sizes[axis] = factor
            case _:
                pass
    within = {name for loop in inside for name in affine.names(stage.forward[loop])}
    return {axis: size for axis, size in sizes.items() if axis in within} if within <= sizes.keys() else {}


def _relaxed(guard: Cond, tiles: Mapping[str, int]) -> Cond | None:
    """Return where tiles have an element for which `guard` holds, or more; None where that is not known."""
    if _is_thin(affine.negate(guard)):
        return TRUE
    found = [_relaxed_comparison(c, tiles) for c in affine.conjuncts(guard)]
    known = [c for c in found if c is not None]
    return affine.conj(*known) if len(known) == len(found) else None


def _relaxed_comparison(cond: Cond, tiles: Mapping[str, int]) -> Cond | None:
    if isinstance(cond, Or) and _is_thin(affine.negate(cond)):
        return TRUE
    if not isinstance(cond, Compare):
        return None
    if cond.op == "!=":
        return TRUE
    whole = [_at_best(e, tiles) for e in affine.inequalities(cond)]
    known = [e for e in whole if e is not None]
    return affine.conj(*(affine.compare(">=", e, 0) for e in known)) if len(known) == len(whole) else None


def _at_best(e: Affine, tiles: Mapping[str, int]) -> Affine | None:
    """Return the largest value of `e` in a tile, or None where it is no sum of names."""
    form = affine.affine_form(e)
    if form is None:
        return None
    parts = [
        affine.scale(factor, _corner(name, tiles[name], last=factor > 0) if name in tiles else Name(name))
        for name, factor in form[0].items()
    ]
    return affine.add(*parts, form[1])


def _corner(axis: str, size: int, *, last: bool) -> Affine:
    first = affine.scale(size, affine.floor(Name(axis), size))
    return affine.add(first, size - 1) if last else first


def _is_thin(cond: Cond) -> bool:
    """Tell whether a condition holds along a line only: it has an equation."""
    match cond:
        case And(conds):
            return any(map(_is_thin, conds))
        case Or(conds):
            return bool(conds) and all(map(_is_thin, conds))
        case Compare(op):
            return op == "=="
        case _:
            return False


def _pins(piece: Piece) -> bool:
    """Tell whether a clause is for a line of elements: sums of whole tiles would be many more."""
    return _is_thin(piece.guard)


def _is_uniform(acc: Accumulator, definition: Definition) -> bool:
    """Tell whether every element sums over the same range."""
    bounds = (e for b in acc.reduce.binders for e in (b.lo, b.hi))
    names = {n for e in bounds for n in affine.names(e)} | affine.name_set(acc.reduce.where) | affine.name_set(acc.when)
    return acc.reduce.filter is None and names.isdisjoint(definition.axes)


def _is_total(reduce: Reduce) -> bool:
    """Tell whether nothing in a sum can fail, whatever it reads: no division of integers, no index from data, no start that is read."""
    whole = not any(t.is_float for t in reduce.reducer.dtypes)
    divides = any(isinstance(n, Binary) and n.op in ("/", "//", "%") for b in reduce.body for n in nodes(b))
    plain = reduce.init is None and not any(True for b in reduce.body for _ in reduces(b))
    return plain and not (whole and divides) and not any(map(has_gather, reduce.body))


def _reads_inside(stages: Stages, accumulators: tuple[Accumulator, ...]) -> bool:
    """Tell whether all that sums read lies inside its tensor."""
    shapes = {t.name: t.shape for t in stages.scop.tensors}
    names = {acc.name for acc in accumulators}
    for statement in (s for s in stages.scop.statements if s.name in names):
        for read in statement.reads:
            exact = [slot for slot in read.index if not isinstance(slot, Within)]
            if len(exact) < len(read.index):
                return False
            inside = affine.conj(*(affine.within(slot, 0, n) for slot, n in zip(exact, shapes[read.tensor], strict=True)))
            given = affine.conj(stages.scop.context, statement.domain, read.when)
            if not isinstance(implies(stages.scop.params, statement.iters, given, inside), Proven):
                return False
    return True
