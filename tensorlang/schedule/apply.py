"""Apply a schedule to a program: directives one after the other, then nests and a tree.

Directives that rewrite the program (`inline`, `pack`, `rfactor`) come first, in their order; then those that shape loops, each on its
stage; last, stages are placed, readers before what they read, because a stage computed `at` a loop of its reader runs over the region that
the reader needs. Nothing is proven here: `tensorlang.schedule.check` proves the result as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product

from polyhedral.deps import dependences
from polyhedral.errors import NestError
from polyhedral.expr import TRUE, Floor, Mod
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from polyhedral.legality import distances
from polyhedral.model import Mark, Scop, Statement, Tree
from polyhedral.nest import Nest
from polyhedral.region import place_at
from polyhedral.schedule import Schedule as Placed
from tensorlang.diagnostics import error
from tensorlang.schedule import operands
from tensorlang.schedule.pack import pack
from tensorlang.schedule.plan import Change, Plan, Stage, Storage, changed, full, make_stage, nests_of, trees
from tensorlang.schedule.recurrence import shared_stage
from tensorlang.schedule.rfactor import rfactor
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as syntax
from tensorlang.tensor import affine
from tensorlang.tensor.compose import can_inline, eliminate_dead, inline
from tensorlang.tensor.flatten import flatten
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.scop import StatementInfo, Stages, to_scop
from tensorlang.tensor.walk import components, definers, definition_reads, tensor_table


@dataclass(slots=True)
class _State:
    """What directives change."""

    program: Program
    knobs: Mapping[str, int]
    stages: dict[str, Stage] = field(default_factory=dict)
    """First tensor of each stage → stage."""
    copies: dict[str, str] = field(default_factory=dict)
    """Packed tensor → its copy."""
    layouts: dict[str, Storage] = field(default_factory=dict)
    folds: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    stored_at: dict[str, tuple[str, syntax.Directive]] = field(default_factory=dict)
    """Tensor → the loop that privatises it ("" for none), and who said so."""
    peels: list[tuple[Stage, syntax.Directive]] = field(default_factory=list)
    prefetches: list[tuple[str, str, int]] = field(default_factory=list)
    scop: Scop = field(default_factory=lambda: Scop((), TRUE, (), frozenset(), ()))
    kept: frozenset[str] = frozenset()
    """Tensors that the caller stores in a layout."""


def apply(program: Program, schedule: Schedule, layouts: Mapping[str, Storage] | None = None, knobs: Mapping[str, int] | None = None) -> Plan:
    """Return the plan that `schedule` describes for `program`. `layouts`: how parameters and results are stored by the caller.

    Raises CompileError S01xx for directives that cannot be read or name what is not there, S02xx for ones that make no sense here."""
    return _place(*_directed(program, schedule, layouts, knobs))


@dataclass(frozen=True, slots=True)
class Outline:
    """What directives that follow may name: the program as rewritten so far and the loops of each stage, outermost first."""

    program: Program
    loops: Mapping[str, tuple[str, ...]]
    """First tensor of each stage → its loops by their full names."""
    extents: Mapping[str, int | None]
    """Loop → its number of iterations where that is a constant."""


def outline(program: Program, schedule: Schedule, layouts: Mapping[str, Storage] | None = None, knobs: Mapping[str, int] | None = None) -> Outline:
    """Return what `program` looks like after the directives of `schedule`, without placing stages. Raises CompileError like `apply`."""
    state, _ = _directed(program, schedule, layouts, knobs)
    extents = {loop: extent for stage in state.stages.values() for loop, extent in stage.extents.items()}
    return Outline(state.program, {name: tuple(stage.loops) for name, stage in state.stages.items()}, extents)


def _directed(
    program: Program, schedule: Schedule, layouts: Mapping[str, Storage] | None, knobs: Mapping[str, int] | None
) -> tuple[_State, Stages]:
    """Return the state after every directive, and the statements it is about."""
    state = _State(lift(program), knobs or {}, kept=frozenset(layouts or {}))
    for directive in schedule.directives:
        if directive.name not in _TABLE:
            known = ", ".join(sorted(_TABLE))
            later = directive.name in _LATER
            title = f"`{directive.name}` is not supported yet on the CPU" if later else f"there is no directive `{directive.name}`"
            raise error("S0101", title, directive.span, help=f"the directives are {known}")
        rewriting = _REWRITES.get(directive.name)
        if rewriting is not None:
            rewriting(state, directive)
    state.layouts.update(layouts or {})
    state.program = lift(state.program)
    stages = to_scop(state.program)
    state.scop = stages.scop
    for group in components(state.program):
        stage = make_stage(stages, group[0]) if len(group) == 1 else shared_stage(stages, group)
        state.stages[stage.name] = stage
        stage.synthetic = stage.name in state.copies.values()
    for directive in schedule.directives:
        try:
            _TABLE[directive.name](state, directive)
        except NestError as refused:
            raise error("S0201", f"`{directive.name}` is not possible here: {refused.reason}", directive.span) from None
    return state, stages


# ---------------------------------------------------------------- names


def _stage(state: _State, directive: syntax.Directive, name: str) -> Stage:
    """Return the stage that defines tensor `name`."""
    for stage in state.stages.values():
        if any(t.name == name for d in stage.definitions for t in d.tensors):
            return stage
    known = sorted(t.name for s in state.stages.values() for d in s.definitions for t in d.tensors)
    params = {p.name for p in state.program.params}
    why = "is an input: it has no loops" if name in params else "is no tensor of this operator"
    raise error("S0105", f"`{name}` {why}", directive.span, help=f"tensors with loops: {', '.join(known)}")


def _loop(state: _State, directive: syntax.Directive, name: str) -> tuple[Stage, str]:
    """Return the loop called `name`, in full or by its last part where that is unique."""
    for stage in state.stages.values():
        if name in stage.loops:
            return stage, name
    found = [(s, loop) for s in state.stages.values() if not s.synthetic for loop in s.loops if s.local(loop) == name]
    found = found or [(s, loop) for s in state.stages.values() for loop in s.loops if s.local(loop) == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise error(
            "S0104",
            f"`{name}` could be {' or '.join(f'`{loop}`' for _, loop in found)}",
            directive.span,
            help="write the full name",
        )
    known = ", ".join(loop for s in state.stages.values() for loop in s.loops)
    raise error("S0103", f"there is no loop `{name}` at this point", directive.span, help=f"the loops are now {known}")


def _fresh_loop(state: _State, directive: syntax.Directive, stage: Stage, name: str, gone: tuple[str, ...] = ()) -> str:
    loop = full(stage.name, name)
    if loop in stage.loops and loop not in gone:
        raise error("S0106", f"`{stage.name}` has a loop `{name}` already", directive.span, help="choose another name")
    return loop


# ---------------------------------------------------------------- rewriting directives


def _inline(state: _State, directive: syntax.Directive) -> None:
    for name in operands.names(directive, directive.operands):
        definition = definers(state.program).get(name)
        if definition is None or name in state.program.results:
            why = "a result has to be stored" if name in state.program.results else "it is no tensor defined here"
            raise error("S0202", f"`{name}` cannot be inlined: {why}", directive.span)
        if name in state.copies.values():
            raise error("S0202", f"`{name}` cannot be inlined: it is a copy that `pack` makes", directive.span, help="leave out the `pack`")
        if not can_inline(definition):
            raise error("S0202", f"`{name}` cannot be inlined: it is a reduction, a recurrence or one of several results", directive.span)
        state.program = eliminate_dead(inline(state.program, name))


def _pack_rewrite(state: _State, directive: syntax.Directive) -> None:
    (name,) = operands.names(directive, directive.operands)
    if name not in tensor_table(state.program):
        raise error("S0105", f"`{name}` is no tensor of this operator", directive.span)
    made = pack(state.program, name)
    if isinstance(made, str):
        raise error("S0203", f"`{name}` cannot be packed: {made}", directive.span)
    state.program, state.copies[name] = made


def _rfactor_rewrite(state: _State, directive: syntax.Directive) -> None:
    (name,) = operands.names(directive, directive.operands)
    by = operands.positive(directive, operands.the(directive, "by"), state.knobs)
    made = rfactor(state.program, name, by)
    if isinstance(made, str):
        raise error("S0204", f"`{name}` cannot be factored out: {made}", directive.span)
    state.program = made


def _flatten_rewrite(state: _State, directive: syntax.Directive) -> None:
    state.program = flatten(state.program, state.kept)


_REWRITES: dict[str, Callable[[_State, syntax.Directive], None]] = {
    "flatten": _flatten_rewrite,
    "inline": _inline,
    "pack": _pack_rewrite,
    "rfactor": _rfactor_rewrite,
}

# ---------------------------------------------------------------- loop directives


def _split(state: _State, directive: syntax.Directive) -> None:
    (name,) = operands.names(directive, directive.operands)
    factor = operands.positive(directive, operands.the(directive, "by"), state.knobs)
    if len(directive.results) != 2:
        operands.bad(directive, "it gives two loops")
    stage, loop = _loop(state, directive, name)
    _split_loop(state, directive, stage, loop, factor, *directive.results)


def _split_loop(state: _State, directive: syntax.Directive, stage: Stage, loop: str, factor: int, outer_name: str, inner_name: str) -> None:
    outer = _fresh_loop(state, directive, stage, outer_name, (loop,))
    inner = _fresh_loop(state, directive, stage, inner_name, (loop,))
    if outer == inner:
        operands.bad(directive, "the two loops need different names")
    _unmark(directive, stage, loop)
    stage.changes.append(Change((loop,), lambda nest: nest.split(loop, factor, outer, inner)))
    whole, extent = stage.forward.pop(loop), stage.extents.pop(loop)
    stage.forward[outer], stage.forward[inner] = affine.floor(whole, factor), affine.mod(whole, factor)
    stage.extents[outer] = None if extent is None else -(-extent // factor)
    stage.extents[inner] = factor
    _inherit(stage, loop, (outer, inner))


def _unmark(directive: syntax.Directive, stage: Stage, *loops: str) -> None:
    """Forget how `loops`, which are about to change, were to run where `pack` said so; refuse where somebody wrote it."""
    for loop in loops:
        mark = stage.marks.pop(loop, None)
        if mark is not None and not stage.synthetic:
            done = {"vector": "vectorized", "unroll": "unrolled"}.get(mark, mark)
            title = f"`{loop}` is {done} already, so `{directive.name}` cannot change it"
            raise error("S0213", title, directive.span, help=f"say how a loop runs after `{directive.name}`")


def _inherit(stage: Stage, loop: str, by: tuple[str, ...]) -> None:
    """Let the loops `by` take the place of `loop`."""
    stage.replace_loop(loop, by)
    owned = stage.owned.pop(loop)
    for new in by:
        stage.owned[new] = owned
        if loop in stage.reductions:
            stage.reductions.add(new)
    if loop not in by:
        stage.reductions.discard(loop)


def _tile(state: _State, directive: syntax.Directive) -> None:
    match directive.operands:
        case (syntax.Apply(tensor, args),):
            pass
        case _:
            operands.bad(directive, "it needs one tensor with its loops in parentheses")
    loops = [operands.name(directive, a) for a in args if not isinstance(a, syntax.Keyword)]
    sizes = [operands.positive(directive, e, state.knobs) for e in operands.items(operands.the(directive, "by"))]
    results = directive.results
    if len(sizes) != len(loops) or len(results) != 2 * len(loops):
        operands.bad(directive, f"{len(loops)} loops need {len(loops)} sizes and {2 * len(loops)} names")
    stage = _stage(state, directive, tensor)
    found = []
    for name in loops:
        loop = name if name in stage.loops else full(stage.name, name)
        if loop not in stage.loops:
            raise error("S0103", f"`{tensor}` has no loop `{name}` at this point", directive.span, help=f"its loops are {', '.join(stage.loops)}")
        found.append(loop)
    outers, inners = results[: len(loops)], results[len(loops) :]
    for loop, size, outer, inner in zip(found, sizes, outers, inners, strict=True):
        _split_loop(state, directive, stage, loop, size, outer, inner)
    made = [full(stage.name, n) for n in (*outers, *inners)]
    _permute(stage, made)


def _permute(stage: Stage, wanted: list[str]) -> None:
    """Put the loops `wanted` in this order into the positions they hold together."""
    positions = sorted(stage.loops.index(loop) for loop in wanted)
    for position, loop in zip(positions, wanted, strict=True):
        stage.loops[position] = loop


def _order(state: _State, directive: syntax.Directive) -> None:
    found = [_loop(state, directive, n) for n in operands.names(directive, directive.operands, 2)]
    stage = found[0][0]
    for other, loop in found:
        if other is not stage:
            raise error("S0205", f"`{loop}` belongs to `{other.name}`, `{found[0][1]}` to `{stage.name}`", directive.span, help="order the loops of one stage at a time")
    wanted = [loop for _, loop in found]
    if len(set(wanted)) != len(wanted):
        operands.bad(directive, "a loop is named twice")
    _permute(stage, wanted)


def _fuse(state: _State, directive: syntax.Directive) -> None:
    first, second = operands.names(directive, directive.operands, 2)[:2]
    if len(directive.operands) != 2 or len(directive.results) != 1:
        operands.bad(directive, "it takes two loops and gives one")
    (stage, outer), (other, inner) = _loop(state, directive, first), _loop(state, directive, second)
    if other is not stage:
        raise error("S0205", f"`{outer}` and `{inner}` belong to different stages", directive.span)
    if stage.loops.index(inner) != stage.loops.index(outer) + 1:
        raise error("S0206", f"`{inner}` is not the loop directly inside `{outer}`", directive.span, help=f"`order` them first; the order is now {', '.join(stage.loops)}")
    if stage.owned[outer] != stage.owned[inner] or (outer in stage.reductions) != (inner in stage.reductions):
        raise error("S0206", f"`{outer}` and `{inner}` do not enclose the same statements", directive.span)
    extent = stage.extents[inner]
    if extent is None:
        raise error("S0201", f"`fuse` is not possible here: the extent of `{inner}` is not a constant", directive.span, help="split it first, or make the size static")
    fused = _fresh_loop(state, directive, stage, directive.results[0], (outer, inner))
    _unmark(directive, stage, outer, inner)
    ends = [nest.ends(inner) for nest in _owners(state, stage, inner)]
    known = [e for e in ends if e is not None]
    common = (min(e[0] for e in known), max(e[1] for e in known)) if len(set(ends)) > 1 and known else None
    stage.changes.append(Change((outer, inner), lambda nest: _adjacent(nest, outer, inner).fuse(outer, inner, fused, common)))
    outer_extent = stage.extents.pop(outer)
    stage.extents.pop(inner)
    stage.extents[fused] = None if outer_extent is None else outer_extent * extent
    stage.forward[fused] = affine.add(affine.scale(extent, stage.forward.pop(outer)), stage.forward.pop(inner))
    _inherit(stage, outer, (fused,))
    for cut in stage.cuts:
        if inner in cut:
            cut.remove(inner)
            cut.add(fused)
    stage.loops.remove(inner)
    stage.owned.pop(inner)
    stage.reductions.discard(inner)


def _owners(state: _State, stage: Stage, loop: str) -> list[Nest]:
    """Return the nests, as changed so far, of the statements that have `loop`: all copies where loops are peeled."""
    statements = {s.name: s for s in state.scop.statements}
    owners = [(s, Nest.identity(state.scop, statements[s.name])) for s in stage.statements if s.name in stage.owned[loop]]
    return [changed(stage, s, nest, sides=sides) for sides in product((False, True), repeat=len(stage.cuts)) for s, nest in owners]


def _adjacent(nest: Nest, outer: str, inner: str) -> Nest:
    """Return `nest` with `inner` moved directly inside `outer`: only the final order counts."""
    rest = [loop for loop in nest.loops if loop != inner]
    rest.insert(rest.index(outer) + 1, inner)
    return nest.reorder(rest)


def _distribute(state: _State, directive: syntax.Directive) -> None:
    (name,) = operands.names(directive, directive.operands)
    stage = _stage(state, directive, name)
    loop = ""
    if operands.phrase(directive, "at") is not None:
        owner, loop = _loop(state, directive, operands.name(directive, operands.the(directive, "at")))
        if owner is not stage:
            raise error("S0205", f"`{loop}` is no loop of `{name}`", directive.span)
    stage.distributed = loop


def _skew(state: _State, directive: syntax.Directive) -> None:
    (name,) = operands.names(directive, directive.operands)
    amount = operands.the(directive, "by")
    match amount:
        case syntax.Binary("*", factor, syntax.Id(by)):
            times = operands.number(directive, factor, state.knobs)
        case syntax.Binary("*", syntax.Id(by), factor):
            times = operands.number(directive, factor, state.knobs)
        case syntax.Id(by):
            times = 1
        case _:
            operands.bad(directive, "the amount is a loop or a multiple of one")
    stage, loop = _loop(state, directive, name)
    other, along = _loop(state, directive, by)
    if other is not stage:
        raise error("S0205", f"`{loop}` and `{along}` belong to different stages", directive.span)
    if loop == along:
        operands.bad(directive, "a loop cannot be skewed by itself")
    if stage.marks.get(loop) in ("vector", "unroll"):
        _unmark(directive, stage, loop)
    stage.changes.append(Change((loop, along), lambda nest: nest.skew(loop, along, times)))
    stage.forward[loop] = affine.add(stage.forward[loop], affine.scale(times, stage.forward[along]))
    stage.extents[loop] = None


def _shift(state: _State, directive: syntax.Directive) -> None:
    (name,) = operands.names(directive, directive.operands)
    amount = operands.number(directive, operands.the(directive, "by"), state.knobs)
    stage, loop = _loop(state, directive, name)
    stage.changes.append(Change((loop,), lambda nest: nest.shift(loop, amount)))
    stage.forward[loop] = affine.add(stage.forward[loop], amount)


def _reverse(state: _State, directive: syntax.Directive) -> None:
    for name in operands.names(directive, directive.operands):
        stage, loop = _loop(state, directive, name)
        extent = stage.extents[loop]
        if len({nest.range(loop) for nest in _owners(state, stage, loop)}) == 1:
            stage.changes.append(Change((loop,), lambda nest, loop=loop: nest.reverse(loop)))  # type: ignore[misc]
        else:  # one mirror for all, or they would part
            about = affine.to_expr(0 if extent is None else extent - 1)
            stage.changes.append(Change((loop,), lambda nest, loop=loop, about=about: nest.mirror(loop, about)))  # type: ignore[misc]
        mirrored = affine.neg(stage.forward[loop])
        stage.forward[loop] = mirrored if extent is None else affine.add(mirrored, extent - 1)


def _mark(mark: Mark) -> Callable[[_State, syntax.Directive], None]:
    def directive_of(state: _State, directive: syntax.Directive) -> None:
        for name in operands.names(directive, directive.operands):
            stage, loop = _loop(state, directive, name)
            limit = {"vector": 64, "unroll": 256}.get(mark)
            extent = stage.extents[loop]
            if limit is not None and extent is None:
                raise error("S0207", f"`{name}` has no constant extent, so it cannot be {'vectorized' if mark == 'vector' else 'unrolled'}", directive.span, help=f"split it first: `split {name} by 16 -> {name}o, {name}i`")
            if limit is not None and extent is not None and extent > limit:
                raise error("S0207", f"`{name}` has {extent} iterations, too many to {'vectorize' if mark == 'vector' else 'unroll'} (at most {limit})", directive.span, help=f"split it first: `split {name} by {16 if mark == 'vector' else 8} -> {name}o, {name}i`")
            stage.marks[loop] = mark

    return directive_of


def _at(state: _State, directive: syntax.Directive) -> None:
    (name,) = operands.names(directive, directive.operands)
    stage = _stage(state, directive, name)
    wanted = operands.name(directive, operands.the(directive, "at"))
    reader = operands.phrase(directive, "in")
    if reader is not None and len(reader) == 1:
        wanted = full(operands.name(directive, reader[0]), wanted.rsplit(".", 1)[-1])
    consumer, loop = _loop(state, directive, wanted)
    if consumer is stage:
        raise error("S0208", f"`{name}` cannot be computed inside its own loop `{loop}`", directive.span)
    if name in state.program.results:
        raise error("S0208", f"`{name}` is a result: it is computed at the root", directive.span)
    stage.inside = (consumer.name, loop)


def _root(state: _State, directive: syntax.Directive) -> None:
    for name in operands.names(directive, directive.operands):
        _stage(state, directive, name).inside = None


def _store_at(state: _State, directive: syntax.Directive) -> None:
    (name,) = operands.names(directive, directive.operands)
    _stage(state, directive, name)
    wanted = operands.name(directive, operands.the(directive, "at"))
    state.stored_at[name] = ("" if wanted == "root" else _loop(state, directive, wanted)[1], directive)


def _pack(state: _State, directive: syntax.Directive) -> None:
    (name,) = operands.names(directive, directive.operands)
    copy = state.stages[state.copies[name]]
    definition = copy.definitions[0]
    reader = next(s for s in state.stages.values() if s is not copy and any(copy.name in definition_reads(d) for d in s.definitions))
    if operands.phrase(directive, "at") is not None:
        where = operands.name(directive, operands.the(directive, "at"))
        if where != "root":
            consumer, loop = _loop(state, directive, where)
            copy.inside = (consumer.name, loop)
    if operands.phrase(directive, "as") is None:
        _store_alike(state, directive, copy, name)
        return
    env: dict[str, Affine] = {axis: AffineName(axis) for axis in definition.axes}
    env |= _reader_names(state, copy, reader)
    dims = tuple(operands.dimension(directive, e, env, state.knobs) for e in operands.items(operands.the(directive, "as")))
    state.layouts[copy.name] = _storage(directive, definition.axes, definition.tensors[0].shape, dims, copy.inside is not None)
    _shape_copy(state, directive, copy, dims)


def _store_alike(state: _State, directive: syntax.Directive, copy: Stage, name: str) -> None:
    """Store a copy in the layout that the caller stores tensor `name` in, if any."""
    storage = state.layouts.get(name)
    definition = copy.definitions[0]
    if storage is None:
        _copy_rows_as_vectors(state, directive, copy)
        return
    own = definers(state.program).get(name)
    axes = own.axes if own else tuple(f"a{k}" for k in range(len(definition.axes)))
    to: dict[str, Affine] = {old: AffineName(new) for old, new in zip(axes, definition.axes, strict=True)}
    dims = tuple(affine.substitute(d, to) for d in storage.dims if affine.constant(d) is None)
    state.layouts[copy.name] = _storage(directive, definition.axes, definition.tensors[0].shape, dims, copy.inside is not None)
    _shape_copy(state, directive, copy, dims)


def _copy_rows_as_vectors(state: _State, directive: syntax.Directive, copy: Stage) -> None:
    if copy.loops:
        last = copy.loops[-1]
        base = copy.local(last)
        _split_loop(state, directive, copy, last, 16, f"{base}o", f"{base}i")
        copy.marks[full(copy.name, f"{base}i")] = "vector"


def _reader_names(state: _State, copy: Stage, reader: Stage) -> dict[str, Affine]:
    """Return what the loops of the reader mean along the axes of the copy, for axes that one iterator of the reader indexes directly."""
    axes = copy.definitions[0].axes
    out: dict[str, Affine] = {}
    to: dict[str, Affine] = {}
    for statement in _statements_of(state, reader):
        for access in statement.reads:
            if access.tensor == copy.name:
                for axis, slot in zip(axes, access.index, strict=True):
                    if isinstance(slot, AffineName):
                        to.setdefault(slot.name, AffineName(axis))
    for loop, meaning in reader.forward.items():
        if set(affine.names(meaning)) <= to.keys():
            out[reader.local(loop)] = out[loop] = affine.substitute(meaning, to)
    return out


def _statements_of(state: _State, stage: Stage) -> list[Statement]:
    names = {s.name for s in stage.statements}
    return [s for s in state.scop.statements if s.name in names]


def _storage(
    directive: syntax.Directive, axes: tuple[str, ...], extents: tuple[Affine, ...], dims: tuple[Affine, ...], local: bool
) -> Storage:
    """Return the storage with the shape that `dims` need over the box."""
    ranges = dict(zip(axes, extents, strict=True))
    below = next((d for d in dims if not _from_zero(d)), None)
    if below is not None:
        operands.bad(directive, f"`{affine.show(below)}` may be negative")
    shape = tuple(upper_bound(d, ranges) for d in dims)
    if any(s is None for s in shape):
        worst = next(d for d, s in zip(dims, shape, strict=True) if s is None)
        operands.bad(directive, f"the extent of `{affine.show(worst)}` is not known")
    return Storage(dims, tuple(s for s in shape if s is not None))


def _from_zero(e: Affine) -> bool:
    """Tell whether a layout dimension cannot be negative, its names running from 0."""
    terms, const = affine.terms(e)
    return const >= 0 and all(k >= 0 and (not isinstance(atom, Floor) or _from_zero(atom.value)) for atom, k in terms.items())


def upper_bound(e: Affine, extents: Mapping[str, Affine]) -> Affine | None:
    """Return an exclusive upper bound of a layout dimension whose names run from 0 to their extents."""
    from_terms, const = affine.terms(e)
    total: Affine = affine.to_expr(const + 1)
    for atom, k in from_terms.items():
        bound = _atom_bound(atom, extents)
        if bound is None or k < 0:
            return None
        total = affine.add(total, affine.scale(k, affine.sub(bound, 1)))
    return total


def _atom_bound(atom: Affine, extents: Mapping[str, Affine]) -> Affine | None:
    match atom:
        case AffineName(name):
            return extents.get(name)
        case Floor(value, divisor):
            inner = upper_bound(value, extents)
            return None if inner is None else affine.ceil_div(inner, divisor)
        case Mod(value, divisor):
            inner = upper_bound(value, extents)
            size = None if inner is None else affine.constant(inner)
            return affine.to_expr(divisor if size is None else min(divisor, size))
        case _:
            return None


def _shape_copy(state: _State, directive: syntax.Directive, copy: Stage, dims: tuple[Affine, ...]) -> None:
    """Give a packed copy loops that write its buffer in order, the innermost as vectors where its extent is constant."""
    order: list[str] = []
    for position, dim in enumerate(dims):
        loop = next((loop for loop, meaning in copy.forward.items() if affine.same(meaning, dim)), None)
        if loop is None:
            loop = _split_for(state, directive, copy, dim, position)
        if loop is None:
            return
        order.append(loop)
    order = [*(loop for loop in copy.loops if loop not in order and copy.extents[loop] == 1), *order]
    if len(set(order)) == len(copy.loops) == len(order) and set(order) == set(copy.loops):
        _permute(copy, order)
        extent = copy.extents[order[-1]]
        if extent is not None and 4 <= extent <= 64:
            copy.marks[order[-1]] = "vector"


def _split_for(state: _State, directive: syntax.Directive, copy: Stage, dim: Affine, position: int) -> str | None:
    """Split a loop of the copy so that one of the two parts is `dim`; return that part."""
    match dim:
        case Floor(value, divisor) | Mod(value, divisor):
            pass
        case _:
            return None
    loop = next((loop for loop, meaning in copy.forward.items() if affine.same(meaning, value)), None)
    if loop is None:
        inner = _split_for(state, directive, copy, value, position)
        if inner is None:
            return None
        loop = inner
    base = copy.local(loop)
    _split_loop(state, directive, copy, loop, divisor, f"{base}o", f"{base}i")
    return full(copy.name, f"{base}o" if isinstance(dim, Floor) else f"{base}i")


def _layout(state: _State, directive: syntax.Directive) -> None:
    (name,) = operands.names(directive, directive.operands)
    tensor = tensor_table(state.program).get(name)
    if tensor is None:
        raise error("S0105", f"`{name}` is no tensor of this operator", directive.span)
    definition = definers(state.program).get(name)
    if definition is None or name in state.program.results:
        raise error("S0212", f"the caller stores `{name}`, so its layout is not the schedule's", directive.span, help=f"`pack {name} as […]` makes a copy")
    if name in state.folds:
        raise error("S0212", f"`{name}` is folded already", directive.span, help="write the modulus in the layout: `t % 2`")
    axes = definition.axes
    env: dict[str, Affine] = {axis: AffineName(axis) for axis in axes}
    dims = tuple(operands.dimension(directive, e, env, state.knobs) for e in operands.items(operands.the(directive, "as")))
    state.layouts[name] = _storage(directive, axes, tensor.shape, dims, False)


def _fold(state: _State, directive: syntax.Directive) -> None:
    (name,) = operands.names(directive, directive.operands)
    stage = _stage(state, directive, name)
    definition = next(d for d in stage.definitions if any(t.name == name for t in d.tensors))
    axis = operands.name(directive, operands.the(directive, "at"))
    if axis not in definition.axes:
        raise error("S0209", f"`{name}` has no axis `{axis}`", directive.span, help=f"its axes are {', '.join(definition.axes)}")
    if name in state.program.results:
        raise error("S0209", f"`{name}` is a result: all of it has to be stored", directive.span)
    if name in state.layouts:
        raise error("S0209", f"`{name}` has a layout already", directive.span, help=f"write the modulus in the layout: `{axis} % 2`")
    modulus = operands.positive(directive, operands.the(directive, "by"), state.knobs)
    state.folds.setdefault(name, []).append((definition.axes.index(axis), modulus))


def _peel(state: _State, directive: syntax.Directive) -> None:
    (name,) = operands.names(directive, directive.operands)
    count = operands.positive(directive, operands.the(directive, "by"), state.knobs)
    stage, loop = _loop(state, directive, name)
    if stage.inside is not None:
        raise error("S0211", f"`{stage.name}` is computed inside `{stage.inside[1]}`, so its loops cannot be peeled", directive.span, help=f"`root {stage.name}` first")
    low = _lowest(state, stage, loop)
    if low is None:
        raise error("S0211", f"`{loop}` has no first iteration that is the same everywhere, so it cannot be peeled", directive.span, help="peel before `skew`")
    bound = affine.add(low, count)
    first = lambda nest: nest.restrict(affine.compare("<", loop, bound))  # noqa: E731
    rest = lambda nest: nest.restrict(affine.compare(">=", loop, bound))  # noqa: E731
    stage.changes.append(Change((loop,), first, rest, len(stage.cuts)))
    stage.cuts.append({loop})
    state.peels.append((stage, directive))


def _lowest(state: _State, stage: Stage, loop: str) -> Affine | None:
    """Return the least value of a loop, over sizes alone, or None when its statements do not agree on one."""
    lows: list[Affine] = []
    for nest in _owners(state, stage, loop):
        span = nest.range(loop)
        if span is None:
            return None
        lows.append(span[0])
    numbers = [n for n in (affine.constant(low) for low in lows) if n is not None]
    if len(numbers) == len(lows):
        return affine.to_expr(min(numbers))
    return lows[0] if all(affine.same(lows[0], low) for low in lows) else None


def _prefetch(state: _State, directive: syntax.Directive) -> None:
    (name,) = operands.names(directive, directive.operands)
    _, loop = _loop(state, directive, operands.name(directive, operands.the(directive, "at")))
    distance = operands.positive(directive, operands.the(directive, "by"), state.knobs)
    state.prefetches.append((state.copies.get(name, name), loop, distance))


def _done(state: _State, directive: syntax.Directive) -> None:
    """The directive has rewritten the program already."""


_TABLE: dict[str, Callable[[_State, syntax.Directive], None]] = {
    "split": _split,
    "tile": _tile,
    "order": _order,
    "fuse": _fuse,
    "distribute": _distribute,
    "skew": _skew,
    "shift": _shift,
    "reverse": _reverse,
    "peel": _peel,
    "unroll": _mark("unroll"),
    "vectorize": _mark("vector"),
    "parallel": _mark("parallel"),
    "at": _at,
    "root": _root,
    "store_at": _store_at,
    "pack": _pack,
    "layout": _layout,
    "fold": _fold,
    "prefetch": _prefetch,
    "flatten": _done,
    "inline": _done,
    "rfactor": _done,
}
DIRECTIVES = frozenset(_TABLE)
"""The directives there are."""
_LATER = {"cache", "bind", "tensorize", "stages", "specialize", "predicate", "raster", "persistent", "split_k", "tail", "assume"}

# ---------------------------------------------------------------- placing stages


def _place(state: _State, stages: Stages) -> Plan:
    """Build the nests of every stage, readers before what they read, and the tree."""
    _nothing_inside_peeled(state)
    scop = stages.scop
    statements = {s.name: s for s in scop.statements}
    order = list(state.stages.values())
    nests: dict[str, Nest] = {}
    for stage in _readers_first(order, statements):
        try:
            if stage.inside is None:
                nests |= {p: n for s in stage.statements for p, n in nests_of(stage, s, Nest.identity(scop, statements[s.name])).items()}
            else:
                nests |= _region(stage, Placed(scop, nests, _tree(order, statements, nests)), statements)
        except NestError as refused:
            where = f" at `{stage.inside[1]}`" if stage.inside is not None else ""
            raise error("S0208", f"`{stage.name}` cannot be computed{where}: {refused.reason}", stage.definitions[0].span) from None
    placed = Placed(scop, nests, _tree(order, statements, nests))
    depth = {
        array.name: _depth(placed, array.name, *state.stored_at.get(array.name, (None, None)))
        for array in scop.tensors
        if array.name not in scop.inputs and array.name not in state.program.results
    }
    depth |= _of_copies(state, placed, {a.name for accs in stages.accumulators.values() for a in accs})
    depth |= _kept_across(placed, depth, {t.name for s in order if _recurs(s) for d in s.definitions for t in d.tensors})
    folds = {t: tuple(f) for t, f in state.folds.items()}
    return Plan(state.program, stages, placed, state.layouts, folds, depth, tuple(state.prefetches))


def _nothing_inside_peeled(state: _State) -> None:
    """Refuse what is computed inside a loop that has two copies."""
    for stage, directive in state.peels:
        first = min(stage.loops.index(loop) for cut in stage.cuts for loop in cut)
        for other in state.stages.values():
            if other.inside is not None and other.inside[0] == stage.name and other.inside[1] in stage.loops[first:]:
                title = f"`{other.name}` is computed inside loop `{other.inside[1]}`, of which peeling makes two"
                raise error("S0211", title, directive.span, help=f"compute `{other.name}` outside the peeled loop, or at the root")


def _readers_first(order: list[Stage], statements: Mapping[str, Statement]) -> list[Stage]:
    """Return the stages so that one computed inside another comes after every reader of it that is placed inside the same loop."""
    return [s for s in order if s.inside is None] + [s for s in reversed(order) if s.inside is not None]


def _tree(order: list[Stage], statements: Mapping[str, Statement], nests: Mapping[str, Nest]) -> tuple[Tree, ...]:
    """Return the tree of the stages that have nests so far."""
    present = [stage for stage in order if all(s.name in nests for s in stage.statements)]

    def inside(loop: str, within: list[StatementInfo]) -> tuple[Tree, ...]:
        out: list[Tree] = []
        for stage in present:
            if stage.inside is not None and stage.inside[1] == loop and _feeds(stage, within, statements, present):
                out += trees(stage, list(stage.statements), list(stage.loops), inside)
        return tuple(out)

    return tuple(t for stage in present if stage.inside is None for t in trees(stage, list(stage.statements), list(stage.loops), inside))


def _made(stage: Stage) -> set[str]:
    return {t.name for d in stage.definitions for t in d.tensors}


def _feeds(stage: Stage, within: list[StatementInfo], statements: Mapping[str, Statement], order: list[Stage]) -> bool:
    """Tell whether statements in `within`, or stages computed for them in the same loop or deeper, read what `stage` defines."""
    readers = {s.name for s in within}
    grown = True
    while grown:
        grown = False
        for other in order:
            mine = {s.name for s in other.statements}
            if other is stage or other.inside is None or mine <= readers:
                continue
            if any(a.tensor in _made(other) for r in readers for a in statements[r].reads):
                readers |= mine
                grown = True
    return any(a.tensor in _made(stage) for r in readers for a in statements[r].reads)


def _region(stage: Stage, schedule: Placed, statements: Mapping[str, Statement]) -> dict[str, Nest]:
    """Return the nests of a stage over the region that its readers need, under the outer loops it shares with them."""
    assert stage.inside is not None
    consumer, loop = stage.inside
    made = _made(stage)
    readers = [p for p in schedule.places if any(a.tensor in made for a in statements[schedule.nests[p].statement].reads)]
    outside = [r for r in readers if loop not in schedule.nests[r].loops]
    if outside or not readers:
        where = f"`{outside[0]}`, which does not run inside loop `{loop}`, reads it" if outside else f"nothing in `{consumer}` reads it"
        raise error("S0208", f"`{stage.name}` cannot be computed at `{loop}`: {where}", stage.definitions[0].span)
    depth = schedule.nests[readers[0]].loops.index(loop) + 1
    names = {s.name: {i: full(stage.name, i) for i in s.iters} for s in stage.statements}
    found = place_at(schedule, [s.name for s in stage.statements], stage.definitions[0].tensors[0].name, readers, depth, names)
    return {p: n for s, nest in zip(stage.statements, found, strict=True) for p, n in nests_of(stage, s, nest, depth).items()}


def _recurs(stage: Stage) -> bool:
    return any(_made(stage) & set(definition_reads(d)) for d in stage.definitions)


def _kept_across(placed: Placed, depth: Mapping[str, int], recurrent: set[str]) -> dict[str, int]:
    """Return the depths of tensors whose values are read in a later iteration of a loop that would make them private."""
    candidates = {t for t in recurrent if depth.get(t, 0) > 0}
    if not candidates:
        return {}
    out: dict[str, int] = {}
    for dep in dependences(placed.scop):
        if dep.tensor in candidates and dep.kind == "RAW":
            loops = [loop.name for loop in placed.places[dep.target].loops[: depth[dep.tensor]]]
            for _, ranges in distances(placed, [dep], loops):
                crossing = next((k for k, (low, high) in enumerate(ranges) if low != 0 or high != 0), len(ranges))
                out[dep.tensor] = min(out.get(dep.tensor, len(loops)), crossing)
    return out


def _depth(placed: Placed, tensor: str, stored_at: str | None, directive: syntax.Directive | None) -> int:
    """Return how many loops enclose every access of `tensor`, or those down to `stored_at`."""
    touching = _touching(placed, tensor)
    common = _shared(placed, touching)
    if stored_at is None:
        return common
    loops = placed.places[touching[0]].loops[:common]
    names = [loop.name for loop in loops]
    if stored_at and stored_at not in names and directive is not None:
        title = f"`{tensor}` cannot be stored inside loop `{stored_at}`: not all that touches it runs there"
        raise error("S0214", title, directive.span, help=f"loops around every use of it: {', '.join(names) or 'none'}")
    return names.index(stored_at) + 1 if stored_at in names else 0


def _touching(placed: Placed, tensor: str) -> list[str]:
    return [
        name
        for name, nest in placed.nests.items()
        if any(a.tensor == tensor for a in (placed.statements[nest.statement].write, *placed.statements[nest.statement].reads))
    ]


def _shared(placed: Placed, placements: list[str]) -> int:
    """Return how many loops enclose all of `placements`."""
    first = placements[0]
    return min((placed.shared(first, other) for other in placements[1:]), default=placed.shared(first, first))


def _of_copies(state: _State, placed: Placed, accumulators: set[str]) -> dict[str, int]:
    """Return the depths of accumulators of which peeling makes copies: each copy runs in loops of its own and keeps its sums there."""
    out: dict[str, int] = {}
    for stage in dict.fromkeys(stage.name for stage, _ in state.peels):
        around = {s.name: set(state.stages[stage].cut_around(s.name)) for s in state.stages[stage].statements}
        for tensor in accumulators:
            touching = _touching(placed, tensor)
            statements = {placed.nests[p].statement for p in touching}
            if not statements <= around.keys():
                continue
            cuts = set.intersection(*(around[s] for s in statements))
            copies: dict[tuple[bool, ...], list[str]] = {}
            for p in touching:
                suffix = p.removeprefix(placed.nests[p].statement).split(".")
                copies.setdefault(tuple(f"first{k or ''}" in suffix for k in sorted(cuts)), []).append(p)
            depth = min(_shared(placed, group) for group in copies.values())
            loops = {loop.name for loop in placed.places[touching[0]].loops[:depth]}
            if len(copies) > 1 and all(loops & state.stages[stage].cuts[k] for k in cuts):
                out[tensor] = depth
    return out
