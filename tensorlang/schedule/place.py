"""Place stages: nests and a tree, readers before what they read, and how many loops own each tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from polyhedral.deps import dependences
from polyhedral.errors import NestError
from polyhedral.legality import distances
from polyhedral.model import Statement, Tree
from polyhedral.nest import Nest
from polyhedral.region import place_at
from polyhedral.schedule import Schedule as Placed
from tensorlang.diagnostics import Span, error
from tensorlang.schedule.annotations import Annotation
from tensorlang.schedule.directives.kind import Placement
from tensorlang.schedule.directives.placing import ComputedAt, StoredAt
from tensorlang.schedule.directives.table import TABLE
from tensorlang.schedule.directives.trim import trimmed
from tensorlang.schedule.plan import Plan, Stage, full, nests_of, trees
from tensorlang.schedule.state import State
from tensorlang.syntax import nodes as syntax
from tensorlang.tensor.scop import Stages, StatementInfo
from tensorlang.tensor.walk import definition_reads


def place(state: State, stages: Stages) -> Plan:
    """Build the nests of every stage, readers before what they read, and the tree."""
    _nothing_inside_copies(state)
    _nothing_about_lost_loops(state)
    scop = stages.scop
    statements = {s.name: s for s in scop.statements}
    order = list(state.stages.values())
    nests: dict[str, Nest] = {}
    for stage in _readers_first(order, statements):
        try:
            if stage.inside is None:
                nests |= {p: n for s in stage.statements for p, n in nests_of(stage, s, Nest.identity(scop, statements[s.name])).items()}
            else:
                nests |= _region(stage, Placed(scop, nests, _tree(order, statements, nests)), statements, _stored(state, stage))
        except NestError as refused:
            where = f" at `{stage.inside[1]}`" if stage.inside is not None else ""
            raise error("S0208", f"`{stage.name}` cannot be computed{where}: {refused.reason}", _placed_by(state, stage)) from None
        nests |= trimmed(state, stage, scop, nests)
    placed = Placed(scop, nests, _tree(order, statements, nests))
    depth = {
        array.name: _depth(placed, array.name, state.about_tensors.about(array.name, StoredAt))
        for array in scop.tensors
        if array.name not in scop.inputs and array.name not in state.program.results
    }
    depth |= _of_copies(state, placed, {a.name for accs in stages.accumulators.values() for a in accs})
    depth |= _kept_across(placed, depth, {t.name for s in order if _recurs(s) for d in s.definitions for t in d.tensors})
    placement = Placement(placed, depth, stages)
    for kind in TABLE.values():
        if kind.check is not None:
            kind.check(state, placement)
    folds = {t: tuple(f) for t, f in state.folds.items()}
    return Plan(
        state.program,
        stages,
        placed,
        state.layouts,
        folds,
        depth,
        tuple(state.prefetches),
        state.about_loops.notes(),
        state.about_tensors.notes(),
        requirements=tuple(state.requirements),
        factorized=state.factorized,
        idle=(*state.idle, *(said for kind in TABLE.values() if kind.idle is not None for said in kind.idle(state))),
    )


def _placed_by(state: State, stage: Stage) -> Span:
    """Return what says that a stage is computed where it is: the directive, or its equation."""
    said = state.about_tensors.about(stage.name, ComputedAt)
    return stage.definitions[0].span if said is None or stage.inside is None else said.directive.span


def _nothing_inside_copies(state: State) -> None:
    """Refuse what is computed inside a loop that has several copies."""
    for name, directive in state.peels:
        stage = state.stages[name]
        for other in state.stages.values():
            if other.inside is not None and other.inside[0] == stage.name and _is_doubled(stage, other.inside[1]):
                title = f"`{other.name}` is computed inside loop `{other.inside[1]}`, of which `{directive.name}` makes two"
                raise error("S0211", title, directive.span, help=f"compute `{other.name}` outside of it, or at the root")


def _is_doubled(stage: Stage, loop: str) -> bool:
    """Return whether cuts make several copies of a loop: of one that stands in the loop that is cut, and not in one of its parts alone."""
    parts, inside = stage.parts(loop), stage.loops[: stage.loops.index(loop) + 1] if loop in stage.loops else ()
    return any(k not in parts and not cut.loops.isdisjoint(inside) for k, cut in enumerate(stage.cuts))


def _nothing_about_lost_loops(state: State) -> None:
    """Refuse what is said of a loop that directives after it have made others of: it would be forgotten."""
    loops = {loop for stage in state.stages.values() for loop in stage.loops}
    for loop, directive in _about_loops(state):
        if loop not in loops:
            name = directive.name
            title = f"`{loop}` has been made into other loops since, so `{name}` is about none"
            raise error("S0213", title, directive.span, help=f"`{name}` after the loop has its shape")


def _about_loops(state: State) -> Iterator[tuple[str, syntax.Directive]]:
    """Yield the loops that something is said of, or computed or stored in, with what says so."""
    yield from ((said.about, said.directive) for said in state.about_loops)
    for computed in state.about_tensors.of(ComputedAt):
        stage = state.stages.get(computed.about)
        if stage is not None and stage.inside is not None:
            yield computed.what.loop, computed.directive
    yield from ((stored.what.loop, stored.directive) for stored in state.about_tensors.of(StoredAt) if stored.what.loop)


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
    """Return the tensors of a stage; of those that one equation makes the first, which accesses of any of them name."""
    return {d.tensors[0].name for d in stage.definitions}


def _feeds(stage: Stage, within: list[StatementInfo], statements: Mapping[str, Statement], order: list[Stage]) -> bool:
    """Tell whether statements in `within`, or stages computed for them in the same loop or deeper, read what `stage` defines."""
    readers, own = {s.name for s in within}, {s.name for s in within}
    grown = True
    while grown:
        grown = False
        for other in order:
            mine = {s.name for s in other.statements}
            if other is stage or other.inside is None or mine <= readers or mine & own:
                continue  # the stage of `within` itself: its other statements run elsewhere
            if any(a.tensor in _made(other) for r in readers for a in statements[r].reads):
                readers |= mine
                grown = True
    return any(a.tensor in _made(stage) for r in readers for a in statements[r].reads)


def _stored(state: State, stage: Stage) -> str | None:
    """Return the loop, "" for none, for all of whose iterations a stage's tensors are kept, where directives say one for all of them."""
    found = [state.about_tensors.about(name, StoredAt) for name in sorted(_made(stage))]
    loops = {stored.what.loop if stored is not None else None for stored in found}
    return loops.pop() if len(loops) == 1 else None


def _region(stage: Stage, schedule: Placed, statements: Mapping[str, Statement], stored: str | None) -> dict[str, Nest]:
    """Return the nests of a stage over the region that its readers need, under the outer loops it shares with them; of what is `stored` for
    all iterations of a loop without what iterations before have made."""
    assert stage.inside is not None
    consumer, loop = stage.inside
    made = _made(stage)
    readers = [p for p in schedule.places if any(a.tensor in made for a in statements[schedule.nests[p].statement].reads)]
    outside = [r for r in readers if loop not in schedule.nests[r].loops]
    if outside or not readers:
        where = f"`{outside[0]}`, which does not run inside loop `{loop}`, reads it" if outside else f"nothing in `{consumer}` reads it"
        raise NestError(where)
    depth = schedule.nests[readers[0]].loops.index(loop) + 1
    names = {s.name: {i: full(s.definition.tensors[0].name, i) for i in s.iters} for s in stage.statements}
    around = schedule.nests[readers[0]].loops[:depth]
    kept = around.index(stored) + 1 if stored in around else 0 if stored == "" else None
    found = place_at(schedule, [s.name for s in stage.statements], sorted(made), readers, depth, names, kept)
    return {p: n for s, nest in zip(stage.statements, found, strict=True) for p, n in nests_of(stage, s, nest, depth).items()}


def _recurs(stage: Stage) -> bool:
    """Tell whether a stage reads what it makes in other iterations than those that make it: not several tensors computed inside a loop of
    others, which read one another at their own points."""
    if stage.inside is not None and len(stage.definitions) > 1:
        return False
    made = {t.name for d in stage.definitions for t in d.tensors}
    return any(made & definition_reads(d) for d in stage.definitions)


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


def _depth(placed: Placed, tensor: str, stored: Annotation[StoredAt] | None) -> int:
    """Return how many loops enclose every access of `tensor`, or those down to the one that it is `stored` at."""
    touching = placed.accessing(tensor)
    common = _shared(placed, touching)
    if stored is None:
        return common
    at, loops = stored.what.loop, placed.places[touching[0]].loops[:common]
    names = [loop.name for loop in loops]
    if at and at not in names:
        title = f"`{tensor}` cannot be stored inside loop `{at}`: not all that touches it runs there"
        raise error("S0214", title, stored.directive.span, help=f"loops around every use of it: {', '.join(names) or 'none'}")
    return names.index(at) + 1 if at in names else 0


def _shared(placed: Placed, placements: list[str]) -> int:
    """Return how many loops enclose all of `placements`."""
    first = placements[0]
    return min((placed.shared(first, other) for other in placements[1:]), default=placed.shared(first, first))


def _of_copies(state: State, placed: Placed, accumulators: set[str]) -> dict[str, int]:
    """Return the depths of accumulators of which peeling makes copies: each copy runs in loops of its own and keeps its sums there."""
    out: dict[str, int] = {}
    for stage in dict.fromkeys(name for name, _ in state.peels):
        around = {s.name: set(state.stages[stage].cut_around(s.name)) for s in state.stages[stage].statements}
        for tensor in accumulators:
            touching = placed.accessing(tensor)
            statements = {placed.nests[p].statement for p in touching}
            if not statements <= around.keys():
                continue
            cuts = set.intersection(*(around[s] for s in statements))
            copies: dict[tuple[bool, ...], list[str]] = {}
            for p in touching:
                suffix = p.removeprefix(placed.nests[p].statement).split(".")
                copies.setdefault(tuple(f"first{k or ''}" in suffix for k in sorted(cuts)), []).append(p)
            depth = min(_shared(placed, group) for group in copies.values())
            if len(copies) > 1:
                out[tensor] = depth
    return out
