"""From equations to statements: the normal form that scheduling and lowering share.

    y[i, j] = b[j] + sum(k) x[i, k] * w[j, k]

    y.0.acc.init   { [i, j] }        init     y.0.acc[i, j]      the reducer's identity
    y.0.acc        { [i, j, k] }     update   y.0.acc[i, j]      reads x[i, k], w[j, k]
    y.0            { [i, j] }        define   y[i, j]            reads y.0.acc[i, j], b[j]

A statement is named after its tensor and piece; the accumulator of the first reduction of a piece is `acc`, then `acc1`, … A reduction
that does not depend on every axis of its tensor is expected to have been lifted (`tensorlang.tensor.lift`). Tensors that one definition
defines together are one tensor to the analysis, the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from polyhedral import affine
from polyhedral.expr import TRUE, Cond
from polyhedral.expr import Expr as Affine
from polyhedral.model import Access, Scop, Statement, Within
from polyhedral.model import Tensor as Array
from tensorlang.bounded_cache import by_identity
from tensorlang.tensor import notation
from tensorlang.tensor.facts import Place, context_of, is_of_indices, parts, possible, reductions
from tensorlang.tensor.nodes import Definition, Expr, Piece, Program, Read, Reduce, Reducer, Select
from tensorlang.tensor.walk import coordinate, index_names, value_names

Phase: TypeAlias = Literal["init", "update", "define"]


@dataclass(frozen=True, slots=True)
class Accumulator:
    """The running value of one reduction of one piece, a tensor over the definition's axes with one component per reducer component.
    `cell`: its axes, over those of the definition; several of these may be numbered as one."""

    name: str
    reduce: Reduce
    when: Cond
    """Where the piece asks for the reduction's value."""
    cell: tuple[Affine, ...]


@dataclass(frozen=True, slots=True)
class StatementInfo:
    """What a statement of the scop stands for. `accumulator` is None for a `define`."""

    name: str
    definition: Definition
    piece: int
    phase: Phase
    iters: tuple[str, ...]
    accumulator: Accumulator | None = None


@dataclass(frozen=True, slots=True)
class Stages:
    """A program as a scop. `statements` keeps the order in which the phases of a definition depend on each other."""

    program: Program
    scop: Scop
    statements: dict[str, StatementInfo]
    accumulators: dict[tuple[str, int], tuple[Accumulator, ...]]
    """Per (first tensor of the definition, piece), in the order of their reductions in the piece's value."""

    def of(self, definition: Definition) -> list[StatementInfo]:
        """Return the statements of what makes a definition's tensors, which a directive may have made anew."""
        name = definition.tensors[0].name
        return [s for s in self.statements.values() if s.definition.tensors[0].name == name]


Groups: TypeAlias = tuple[tuple[str, ...], ...]


def to_scop(program: Program, numbered: Mapping[str, Groups] | None = None, summed: Mapping[tuple[str, int], Cond] | None = None) -> Stages:
    """Return the statements, domains and accesses of `program`. `numbered`: tensor → its axes in groups; each of its sums lies along as
    many axes as there are groups, whose elements are counted along the last of a group first. `summed`: first tensor and number of a
    piece → where its sums run, which may be for more elements than the piece has."""
    return _stages(program, numbered, summed) if numbered or summed else _as_written(program)


@by_identity(64)
def _as_written(program: Program) -> Stages:
    return _stages(program, {}, {})


def _stages(program: Program, numbered: Mapping[str, Groups] | None, summed: Mapping[tuple[str, int], Cond] | None) -> Stages:
    primary = {t.name: d.tensors[0].name for d in program.definitions for t in d.tensors}
    statements: list[Statement] = []
    infos: dict[str, StatementInfo] = {}
    accumulators: dict[tuple[str, int], tuple[Accumulator, ...]] = {}
    arrays = [Array(p.name, p.shape) for p in program.params]
    declared = {p.name: p.declared_range for p in program.params if p.declared_range is not None}
    for definition in program.definitions:
        name = definition.tensors[0].name
        box = _box(definition)
        arrays.append(Array(name, definition.tensors[0].shape))
        for number, piece in enumerate(definition.pieces):
            domain = affine.conj(box, piece.guard)
            summed_domain = affine.conj(box, (summed or {}).get((name, number), piece.guard))
            cell = tuple(affine.to_expr(axis) for axis in definition.axes)
            sums, shape = _numbered(definition, (numbered or {}).get(name, tuple((axis,) for axis in definition.axes)))
            accs = _accumulators(f"{name}.{number}", piece, sums)
            accumulators[name, number] = accs
            arrays += [Array(a.name, shape) for a in accs]
            for acc in accs:
                ordered = in_order(acc.reduce.reducer, program.mode)
                for info, statement in _reduction(definition, number, acc, summed_domain, primary, ordered, declared):
                    infos[info.name] = info
                    statements.append(statement)
            reads = (*_accesses(piece.value, primary, Place(), {a.reduce: a.name for a in accs}, sums),)
            copied = tuple(_copied(piece.value, Place())) if len(definition.tensors) == 1 else ()
            same = frozenset(definition.axes) - index_names(piece.value) - value_names(piece.value)
            statement = Statement(f"{name}.{number}", definition.axes, domain, Access(name, cell), reads, copied=copied, same_along=same)
            infos[statement.name] = StatementInfo(statement.name, definition, number, "define", definition.axes)
            statements.append(statement)
    positive = [affine.compare(">=", size, 0) for size in program.sizes]
    scop = Scop(
        program.sizes,
        affine.conj(*positive, program.context),
        tuple(arrays),
        frozenset(p.name for p in program.params),
        tuple(statements),
    )
    return Stages(program, scop, infos, accumulators)


def _numbered(definition: Definition, groups: Groups) -> tuple[tuple[Affine, ...], tuple[Affine, ...]]:
    """Return axes that number the groups of axes of a definition, and how long they are."""
    sizes = dict(zip(definition.axes, definition.tensors[0].shape, strict=True))
    cell, shape = [], []
    for group in groups:
        number, count = affine.to_expr(group[0]), sizes[group[0]]
        for axis in group[1:]:
            extent = affine.constant(sizes[axis])
            assert extent is not None, "what is numbered has constant extents"
            number, count = affine.add(affine.scale(extent, number), axis), affine.scale(extent, count)
        cell.append(number)
        shape.append(count)
    return tuple(cell), tuple(shape)


def _box(definition: Definition) -> Cond:
    shape = definition.tensors[0].shape
    return affine.conj(*(affine.within(axis, 0, extent) for axis, extent in zip(definition.axes, shape, strict=True)))


def _reduction(
    definition: Definition,
    number: int,
    acc: Accumulator,
    domain: Cond,
    primary: dict[str, str],
    ordered: bool,
    declared: Mapping[str, tuple[Affine, Affine]],
) -> Iterator[tuple[StatementInfo, Statement]]:
    """Yield the statements that initialise and update `acc`."""
    reduce, cell = acc.reduce, acc.cell
    init_name = f"{acc.name}.init"
    init_reads = tuple(a for e in reduce.init or () for a in _accesses(e, primary, Place(), {}, cell))
    yield (
        StatementInfo(init_name, definition, number, "init", definition.axes, acc),
        Statement(init_name, definition.axes, domain, Access(acc.name, cell), init_reads, "init"),
    )
    iters = (*definition.axes, *(b.name for b in reduce.binders))
    ranges = (affine.within(b.name, b.lo, b.hi) for b in reduce.binders)
    inner = affine.conj(domain, acc.when, *ranges, reduce.where)
    kept = Place() if reduce.filter is None else Place(possible(reduce.filter, declared)).where(reduce.filter)
    bodies = (*((e, kept) for e in reduce.body), *(() if reduce.filter is None else ((reduce.filter, Place()),)))
    reads = tuple(a for e, place in bodies for a in _accesses(e, primary, place, {}, cell))
    yield (
        StatementInfo(acc.name, definition, number, "update", iters, acc),
        Statement(acc.name, iters, inner, Access(acc.name, cell), reads, "update", ordered),
    )


def in_order(reducer: Reducer, mode: str) -> bool:
    """Tell whether a reduction has to run in the order in which it is written: because the order says what is meant, or, in `strict`
    programs, because regrouping would round differently."""
    exact = reducer.kind in ("min", "max", "any", "all") or not any(d.is_float for d in reducer.dtypes)
    return not reducer.commutative or (mode == "strict" and not exact)


def _accumulators(prefix: str, piece: Piece, cell: tuple[Affine, ...]) -> tuple[Accumulator, ...]:
    found = reductions(piece.value, Place()).items()
    return tuple(Accumulator(f"{prefix}.acc{k or ''}", reduce, context_of(places), cell) for k, (reduce, places) in enumerate(found))


def _accesses(e: Expr, primary: dict[str, str], place: Place, accs: dict[Reduce, str], cell: tuple[Affine, ...]) -> Iterator[Access]:
    """Yield what evaluating `e` at `place` reads; the value of a reduction in `accs` is a read of its accumulator at `cell`."""
    match e:
        case Reduce() if e in accs:
            yield Access(accs[e], cell, place.context)
            return
        case Reduce():
            raise ValueError("a reduction inside a reduction's body has to be lifted before to_scop")
        case Read(tensor, index):
            yield Access(primary.get(tensor, tensor), tuple(map(coordinate, index)), place.context)
        case _:
            pass
    for child, there in parts(e, place):
        yield from _accesses(child, primary, there, accs, cell)


def _copied(e: Expr, place: Place) -> Iterator[Access]:
    """Yield the elements that the value of `e`, which stands at `place`, is a copy of, with all conditions under which it is."""
    match e:
        case Read(tensor, index):
            yield Access(tensor, tuple(map(coordinate, index)), place.context)
        case Select(cond, then, orelse) if is_of_indices(cond):
            yield from _copied(then, place.where(cond))
            yield from _copied(orelse, place.unless(cond))
        case _:
            pass


def show(stages: Stages) -> str:
    """Return the statements as text: instances, what they write, what they read.

    c.0.acc  { [i, j, k] : 0 <= i and … }    update  c.0.acc[i, j]    reads  a[i, k], b[k, j]
    """
    lines = []
    for statement in stages.scop.statements:
        domain = notation.show_cond(statement.domain)
        reads = ", ".join(_show_access(a) for a in statement.reads)
        lines.append(f"{statement.name}  {{ [{', '.join(statement.iters)}] : {domain} }}")
        lines.append(f"    {statement.role:<7} {_show_access(statement.write)}" + (f"    reads {reads}" if reads else ""))
    return "\n".join(lines) + "\n"


def _show_access(access: Access) -> str:
    """Return an access; `?` stands for an index that depends on data."""
    index = ", ".join("?" if isinstance(slot, Within) else notation.show(slot) for slot in access.index)
    when = "" if access.when == TRUE else f" when {notation.show_cond(access.when)}"
    return f"{access.tensor}[{index}]{when}"
