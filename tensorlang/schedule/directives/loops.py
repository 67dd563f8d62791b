"""Directives that shape the loops of one stage: `split`, `tile`, `order`, `fuse`, `skew`, `shift`, `reverse` and the marks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from codegen.loops.notes import Note, Partitioned
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.model import Mark
from polyhedral.nest import Nest, most_iterations
from tensorlang.diagnostics import error
from tensorlang.schedule.annotations import origin_of
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind, Placement, idle_message, runs_once
from tensorlang.schedule.plan import Change, Stage, common_extent, current_nest, full, last_part
from tensorlang.schedule.state import State, fresh_loop, loop_of, put, stage_of, statement_of
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import FORMS

MOST_LANES = 64
MOST_COPIES = 256
LIMITS: Mapping[Mark, int] = {"vector": MOST_LANES, "unroll": MOST_COPIES}
"""Iterations of a loop that is vectorized, and of one that is unrolled, at most."""
DONE = {"vector": "vectorized", "unroll": "unrolled", "tensor": "tensorized", "tile": "tensorized"}
"""What has been done to a loop with a mark."""


def split(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    factor = operands.positive(directive, operands.the(directive, "by"), state.knobs)
    if len(directive.results) != 2:
        operands.bad(directive, "it gives two loops")
    stage, loop = loop_of(state, directive, name)
    split_loop(state, directive, stage, loop, factor, *directive.results)


def split_loop(
    state: State, directive: syntax.Directive, stage: Stage, loop: str, factor: int, outer_name: str, inner_name: str
) -> tuple[Stage, str, str]:
    """Replace `loop` by two, and return the stage and their names."""
    outer = fresh_loop(state, directive, stage, outer_name, (loop,))
    inner = fresh_loop(state, directive, stage, inner_name, (loop,))
    if outer == inner:
        operands.bad(directive, "the two loops need different names")
    change = Change((loop,), lambda nest: nest.split(loop, factor, outer, inner))
    whole, extent = stage.forward[loop], stage.extents[loop]
    forward = {outer: affine.floor(whole, factor), inner: affine.mod(whole, factor)}
    extents = {outer: None if extent is None else -(-extent // factor), inner: factor}
    made = unmarked(directive, stage, loop).then(change, forward, extents).instead((loop,), (outer, inner))
    return put(state, made), outer, inner


def unmarked(directive: syntax.Directive, stage: Stage, *loops: str) -> Stage:
    """Return the stage without how `loops`, which are about to change, were to run where `pack` said so; refuse where somebody wrote it."""
    for loop in loops:
        mark = stage.marks.get(loop)
        if mark is not None and not stage.synthetic:
            title = f"`{loop}` is {DONE.get(mark, mark)} already, so `{directive.name}` cannot change it"
            raise error("S0213", title, directive.span, help=f"say how a loop runs after `{directive.name}`")
    return replace(stage, marks={loop: mark for loop, mark in stage.marks.items() if loop not in loops})


def tile(state: State, directive: syntax.Directive) -> None:
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
    stage = stage_of(state, directive, tensor)
    found: list[str] = []
    for name in loops:
        called = [loop for loop in stage.loops if name in (loop, stage.local(loop))]
        own = next((loop for loop in (name, full(tensor, name), full(stage.name, name)) if loop in called), None)
        if own is None and len(called) != 1:
            raise error(
                "S0103", f"`{tensor}` has no loop `{name}` at this point", directive.span, help=f"its loops are {', '.join(stage.loops)}"
            )
        found.append(own or called[0])
    if len(set(found)) != len(found):
        operands.bad(directive, "a loop is named twice")
    outers, inners = results[: len(loops)], results[len(loops) :]
    made: list[tuple[str, str]] = []
    for loop, size, outer, inner in zip(found, sizes, outers, inners, strict=True):
        stage, *both = split_loop(state, directive, stage, loop, size, outer, inner)
        made.append((both[0], both[1]))
    permute(state, stage, [*(outer for outer, _ in made), *(inner for _, inner in made)])


def permute(state: State, stage: Stage, order: list[str]) -> Stage:
    """Put the loops `order` in this order into the positions they hold together, and return the stage."""
    loops, positions = list(stage.loops), sorted(stage.loops.index(loop) for loop in order)
    for position, loop in zip(positions, order, strict=True):
        loops[position] = loop
    return put(state, replace(stage, loops=tuple(loops)))


def order(state: State, directive: syntax.Directive) -> None:
    named = operands.names(directive, directive.operands, 2)
    statements = [known for name in named if (known := statement_of(state, name)) is not None]
    if len(statements) == len(named):
        _order_statements(state, directive, statements)
        return
    found = [loop_of(state, directive, n) for n in operands.names(directive, directive.operands, 2)]
    stage = found[0][0]
    for other, loop in found:
        if other is not stage:
            raise error(
                "S0205",
                f"`{loop}` belongs to `{other.name}`, `{found[0][1]}` to `{stage.name}`",
                directive.span,
                help="order the loops of one stage at a time",
            )
    wanted = [loop for _, loop in found]
    if len(set(wanted)) != len(wanted):
        operands.bad(directive, "a loop is named twice")
    permute(state, stage, wanted)


def _order_statements(state: State, directive: syntax.Directive, found: Sequence[tuple[Stage, str]]) -> None:
    """Put statements in this order into the places they hold together."""
    stage, names = found[0][0], [name for _, name in found]
    for other, name in found:
        if other is not stage:
            title = f"`{name}` belongs to `{other.name}`, `{names[0]}` to `{stage.name}`"
            raise error(
                "S0205", title, directive.span, help="order the statements of one stage at a time, or `together` what shares its loops"
            )
    if len(set(names)) != len(names):
        operands.bad(directive, "a statement is named twice")
    order, known = list(stage.statements), {s.name: s for s in stage.statements}
    positions = sorted(order.index(known[name]) for name in names)
    for position, name in zip(positions, names, strict=True):
        order[position] = known[name]
    if tuple(order) == stage.statements:
        state.idle.append(idle_message(directive, "they stand in this order already"))
    put(state, replace(stage, statements=tuple(order)))


def fuse(state: State, directive: syntax.Directive) -> None:
    first, second = operands.names(directive, directive.operands, 2)[:2]
    if len(directive.operands) != 2 or len(directive.results) != 1:
        operands.bad(directive, "it takes two loops and gives one")
    if first == second:
        operands.bad(directive, "a loop is named twice")
    (stage, outer), (other, inner) = loop_of(state, directive, first), loop_of(state, directive, second)
    if other is not stage:
        raise error("S0205", f"`{outer}` and `{inner}` belong to different stages", directive.span)
    beside = stage.neighbours(outer, inner)
    if outer not in beside or inner not in beside or beside.index(inner) != beside.index(outer) + 1:
        raise error(
            "S0206",
            f"`{inner}` is not the loop directly inside `{outer}`",
            directive.span,
            help=f"`order` them first; the order is now {', '.join(beside)}",
        )
    if stage.parts(outer) != stage.parts(inner):
        title = f"`{outer}` and `{inner}` do not run in the same parts of a loop that is cut"
        raise error("S0206", title, directive.span, help="fuse before `cut`")
    if stage.members[outer] != stage.members[inner] or (outer in stage.reductions) != (inner in stage.reductions):
        raise error("S0206", f"`{outer}` and `{inner}` do not enclose the same statements", directive.span)
    ends = [nest.ends(inner) for nest in owners(state, stage, inner)]
    known = [e for e in ends if e is not None]
    common = (min(e[0] for e in known), max(e[1] for e in known)) if known else None
    extent = stage.extents[inner]
    if extent is None and common is not None and len(known) == len(ends):
        extent = common[1] - common[0] + 1  # of the longest: where another iteration of the outer loop has fewer, nothing runs
    if extent is None:
        raise error(
            "S0201",
            f"`fuse` is not possible here: the extent of `{inner}` is not a constant",
            directive.span,
            help="split it first, or make the size static",
        )
    fused = fresh_loop(state, directive, stage, directive.results[0], (outer, inner))
    stage = unmarked(directive, stage, outer, inner)
    longest = common if len(set(ends)) > 1 else None
    change = Change((outer, inner), lambda nest: _adjacent(nest, outer, inner).fuse(outer, inner, fused, longest))
    outer_extent = stage.extents[outer]
    forward = {fused: affine.add(affine.scale(extent, stage.forward[outer]), stage.forward[inner])}
    extents = {fused: None if outer_extent is None else outer_extent * extent}
    put(state, stage.then(change, forward, extents).instead((outer, inner), (fused,)))


def owners(state: State, stage: Stage, loop: str) -> list[Nest]:
    """Return the nests, as changed so far, of the statements that have `loop`: all copies where loops are peeled."""
    statements = {s.name: s for s in state.scop.statements}
    mine = [(s, Nest.identity(state.scop, statements[s.name])) for s in stage.statements if s.name in stage.members[loop]]
    found = (current_nest(stage, s, nest, peels) for s, nest in mine for peels in stage.copies(s.name))
    return [nest for nest in found if loop in nest.loops]


def _adjacent(nest: Nest, outer: str, inner: str) -> Nest:
    """Return `nest` with `inner` moved directly inside `outer`: only the final order counts."""
    rest = [loop for loop in nest.loops if loop != inner]
    rest.insert(rest.index(outer) + 1, inner)
    return nest.reorder(rest)


def skew(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
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
    stage, loop = loop_of(state, directive, name)
    other, along = loop_of(state, directive, by)
    if other is not stage:
        raise error("S0205", f"`{loop}` and `{along}` belong to different stages", directive.span)
    if loop == along:
        operands.bad(directive, "a loop cannot be skewed by itself")
    if stage.marks.get(loop) in ("vector", "unroll"):
        stage = unmarked(directive, stage, loop)
    change = Change((loop, along), lambda nest: nest.skew(loop, along, times))
    forward = affine.add(stage.forward[loop], affine.scale(times, stage.forward[along]))
    put(state, stage.then(change, {loop: forward}, {loop: None}))


def shift(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    amount = operands.number(directive, operands.the(directive, "by"), state.knobs)
    stage, loop = loop_of(state, directive, name)
    change = Change((loop,), lambda nest: nest.shift(loop, amount))
    put(state, stage.then(change, {loop: affine.add(stage.forward[loop], amount)}, {}))


def reverse(state: State, directive: syntax.Directive) -> None:
    for name in operands.names(directive, directive.operands):
        stage, loop = loop_of(state, directive, name)
        extent = stage.extents[loop]
        if len({nest.range(loop) for nest in owners(state, stage, loop)}) == 1:
            change = Change((loop,), lambda nest, loop=loop: nest.reverse(loop))  # type: ignore[misc]
        else:  # one mirror for all, or they would part
            about = affine.to_expr(0 if extent is None else extent - 1)
            change = Change((loop,), lambda nest, loop=loop, about=about: nest.mirror(loop, about))  # type: ignore[misc]
        mirrored = affine.neg(stage.forward[loop])
        put(state, stage.then(change, {loop: mirrored if extent is None else affine.add(mirrored, extent - 1)}, {}))


def mark_as(mark: Mark) -> Callable[[State, syntax.Directive], None]:
    def directive_of(state: State, directive: syntax.Directive) -> None:
        for name in _loops_meant(state, mark, operands.names(directive, directive.operands)):
            stage, loop = loop_of(state, directive, name)
            if any(loop in request.loops for request in state.tensorized):
                title = f"`{loop}` is tensorized already, so `{directive.name}` cannot say how it runs"
                raise error("S0213", title, directive.span, help="leave it to the instruction")
            before = stage.marks.get(loop, mark)
            if before != mark and not stage.synthetic:
                title = f"`{loop}` is {DONE.get(before, before)} already, so `{directive.name}` cannot say how it runs"
                raise error("S0213", title, directive.span, help="say it once")
            limit = LIMITS.get(mark)
            extent = stage.extents[loop]
            many = limit is not None and (extent is None or extent > limit)
            if limit is not None and many and (stage.inside is not None or _is_short_inside(state, stage, loop, limit)):
                state.about_loops.put(loop, AtMost(limit, "lanes" if mark == "vector" else "copies"), directive)
            elif limit is not None and extent is None:
                raise error(
                    "S0207",
                    f"`{name}` has no constant extent, so it cannot be {'vectorized' if mark == 'vector' else 'unrolled'}",
                    directive.span,
                    help=split_first(name, 16),
                )
            elif limit is not None and extent is not None and extent > limit:
                raise error(
                    "S0207",
                    f"`{name}` has {extent} iterations, too many to {'vectorize' if mark == 'vector' else 'unroll'} (at most {limit})",
                    directive.span,
                    help=split_first(name, 16 if mark == "vector" else 8),
                )
            put(state, stage.marked(loop, mark))

    return directive_of


def _is_short_inside(state: State, stage: Stage, loop: str, limit: int) -> bool:
    """Tell whether a loop that is not of a sum has no more than `limit` iterations where all others have one each, as a row of a tile that
    is no box. Whether it has so few where it will stand, `check_placed` says."""
    if loop in stage.reductions:
        return False
    inside = [nest.reorder((*(name for name in nest.loops if name != loop), loop)) for nest in owners(state, stage, loop)]
    most = most_iterations(inside, loop)
    return most is not None and most <= limit


@dataclass(frozen=True, slots=True)
class AtMost:
    """How many iterations a loop of what is computed inside another one may have there, and what they become."""

    most: int
    what: str


def check_placed(state: State, placement: Placement) -> None:
    """Raise CompileError S0207 where loops of what is computed inside other loops have more iterations there than they may."""
    for said in state.about_loops.of(AtMost):
        loop, most = said.about, said.what.most
        nests = [nest for nest in placement.placed.nests.values() if loop in nest.loops and nest.extent(loop) != 0]
        extent = common_extent(nests, loop) if nests else 0
        if extent is None or extent > most:
            extent = most_iterations(nests, loop)
        if extent is None or extent > most:
            title = f"`{loop}` has {extent or 'no constant number of'} iterations here; there are at most {most} {said.what.what} for it"
            raise error("S0207", title, said.directive.span, help=split_first(loop, min(most, 256 if said.what.what == "threads" else 16)))


def split_first(name: str, by: int) -> str:
    """Return the advice to split a loop, with names for its parts."""
    part = last_part(name)
    return f"split it first: `split {name} by {by} -> {part}o, {part}i`"


SHARED = 128
"""Iterations of a stage's outer loops from which on further loops need not be shared among threads."""


def _loops_meant(state: State, mark: Mark, names: Iterable[str]) -> Iterator[str]:
    """Yield the loops to mark. In `parallel T` a tensor stands for as many of its outer loops as make `SHARED` iterations; the innermost
    is among them only where it is the only one."""
    loops = {known for stage in state.stages.values() for loop in stage.loops for known in (loop, stage.local(loop))}
    for name in names:
        stage = state.stages.get(name) if mark == "parallel" and name not in loops else None
        if stage is None:
            yield name
            continue
        free = [loop for loop in stage.loops if loop not in stage.marks and stage.extents[loop] != 1]
        together = 1
        for loop in free if len(free) == 1 else (x for x in free if x != stage.loops[-1]):
            if together < SHARED:
                yield loop
            together *= stage.extents[loop] or SHARED


def lowest(state: State, stage: Stage, loop: str) -> Affine | None:
    """Return the least value of a loop, over sizes alone, or None when its statements do not agree on one."""
    lows: list[Affine] = []
    for nest in owners(state, stage, loop):
        span = nest.range(loop)
        if span is None:
            return None
        lows.append(span[0])
    numbers = [n for n in (affine.constant(low) for low in lows) if n is not None]
    if len(numbers) == len(lows):
        return affine.to_expr(min(numbers))
    return lows[0] if all(affine.same(lows[0], low) for low in lows) else None


def partition(state: State, directive: syntax.Directive) -> None:
    """`partition LOOP, …`: note which loops are split at their interiors, whatever that costs."""
    if directive.phrases or directive.results:
        operands.bad(directive, "it is about loops alone")
    for name in operands.names(directive, directive.operands):
        _, loop = loop_of(state, directive, name)
        state.about_loops.put(loop, Partitioned(), directive)


def idle_in_loops(notes: Iterable[Note]) -> Iterator[str]:
    """Yield a sentence for each of the notes, of loops that no pass could split."""
    for origin in map(origin_of, notes):
        yield idle_message(origin.directive, f"there is no range of `{origin.about}` in which more is decided about edges than elsewhere")


def _idle_partition(state: State) -> Iterator[str]:
    for said in state.about_loops.of(Partitioned):
        if runs_once(state, said.about):
            yield idle_message(said.directive, f"`{said.about}` runs once, so it has no interior")


SPLIT = Kind(
    "split",
    FORMS["split"],
    split,
)
TILE = Kind(
    "tile",
    FORMS["tile"],
    tile,
)
ORDER = Kind(
    "order",
    FORMS["order"],
    order,
)
FUSE = Kind(
    "fuse",
    FORMS["fuse"],
    fuse,
)
SKEW = Kind(
    "skew",
    FORMS["skew"],
    skew,
)
SHIFT = Kind(
    "shift",
    FORMS["shift"],
    shift,
)
REVERSE = Kind(
    "reverse",
    FORMS["reverse"],
    reverse,
)
PARTITION = Kind(
    "partition",
    FORMS["partition"],
    partition,
    target="cpu",
    instead="`predicate` says what happens at edges",
    idle=_idle_partition,
)
UNROLL = Kind(
    "unroll",
    FORMS["unroll"],
    mark_as("unroll"),
    check=check_placed,
)
VECTORIZE = Kind(
    "vectorize",
    FORMS["vectorize"],
    mark_as("vector"),
)
PARALLEL = Kind(
    "parallel",
    FORMS["parallel"],
    mark_as("parallel"),
    target="cpu",
    instead="`bind` gives iterations to blocks and threads",
)
