"""What to try where the order of a schedule, or its storage, is refuted: skews, other orders, other loops in lanes or threads, folds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations

from polyhedral.deps import dependences
from polyhedral.legality import Violation, suggest_skew
from polyhedral.order import distance
from tensorlang.diagnostics import CompileError
from tensorlang.schedule.apply import Outline, apply
from tensorlang.schedule.cures.refusal import Refusal, Replacement, listed, parsed, written
from tensorlang.schedule.plan import Plan, full
from tensorlang.schedule.recurrence import legal_order
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.verdict import verdict_of
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Definition
from tensorlang.tensor.walk import definition_reads, reduces

FACTORS = (1, 2, 3)
"""Of skews."""
MOST_SHIFTS = 8
"""Of loops that are to be shared, one after the other."""
MODULI = (*range(2, 9), 12, 16, 32, 64)
"""Of folds."""
LANES = 8
"""Iterations of a loop that is split to run in lanes."""
MOST_LANES = 64
STRETCH = 256
"""Terms of a sum that a thread adds up, where sums are cut for threads."""


def orders(refusal: Refusal) -> Iterator[Replacement]:
    """Yield what may cure a refuted order, the likeliest first: nothing where a refusal is for other reasons."""
    if refusal.refuted is None:
        return
    if refusal.at < 0:
        yield from _in_turn(refusal)
        return
    seen = refusal.before()
    if seen is None:
        return
    if not isinstance(refusal.refuted, Violation):
        yield from _cells(refusal, seen)
    elif refusal.refuted.kind in ("race", "lane"):
        yield from _marks(refusal, seen, refusal.refuted)
    else:
        yield from _shifts(refusal, seen)
        yield from _skews(refusal, seen, refusal.refuted)
        yield from _rewritten(refusal, seen)
        yield from _one_skew(refusal, refusal.refuted)
        yield from _turned(refusal, seen, refusal.refuted)


def _in_turn(refusal: Refusal) -> Iterator[Replacement]:
    """Yield what turns the loops of recurrences that do not run in the order of their axes."""
    order = Schedule(refusal.program.name)
    try:
        plan = apply(refusal.program, refusal.schedule, refusal.layouts, refusal.knobs)
    except CompileError:
        return
    for definition in plan.program.definitions:
        order = legal_order(order, plan.program, definition)
    if order.directives:
        yield Replacement(-1, tuple(map(show, order.directives)))


# ---------------------------------------------------------------- orders


def _stage_of(seen: Outline, violation: Violation, plan: Plan) -> str | None:
    for instance in (violation.target, violation.source):
        statement = plan.stages.statements.get(instance.statement)
        if statement is not None and statement.definition.tensors[0].name in seen.loops:
            return statement.definition.tensors[0].name
    return None


def _skews(refusal: Refusal, seen: Outline, violation: Violation) -> Iterator[Replacement]:
    """Yield skews of the axes along which a tensor depends on elements behind, by one along which it never does: before the directive, or,
    where these loops have become others, before everything."""
    plan = refusal.planned_before()
    stage = _stage_of(seen, violation, plan) if plan is not None else None
    if plan is None or stage is None:
        return
    definition = next(d for d in plan.program.definitions if d.tensors[0].name == stage)
    lows = _least_distances(plan, definition)
    backwards = [a for a, low in zip(definition.axes, lows, strict=True) if low is None or low < 0]
    now = all(full(stage, axis) in seen.loops[stage] for axis in definition.axes)
    at = refusal.at if now else 0
    kept = show(refusal.schedule.directives[at])
    name = _namer(seen, refusal) if now else (lambda loop: loop)
    for by, low in zip(definition.axes, lows, strict=True):
        if low is None or low < 0 or not backwards:
            continue
        for factor in FACTORS:
            amount = f"{factor} * " if factor > 1 else ""
            lines = [f"skew {name(full(stage, axis))} by {amount}{name(full(stage, by))}" for axis in backwards]
            yield Replacement(at, (*lines, kept))


def _shifts(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield shifts of loops that tensors are to share, by as much as each needs elements of others that come later (retiming)."""
    tensors = [o.name for o in refusal.directive.operands if isinstance(o, syntax.Id)]
    loops = [loop for stage in seen.loops.values() for loop in stage]
    if refusal.directive.name != "together" or not all(any(loop.startswith(f"{t}.") for loop in loops) for t in tensors):
        return
    shared, name = [full(tensors[0], result) for result in refusal.directive.results], _namer(seen, refusal)
    by: dict[str, int] = {}
    for _ in range(MOST_SHIFTS):
        lines = [f"shift {name(loop)} by {count}" for loop, count in by.items()]
        added = (*refusal.schedule.directives[: refusal.at], *map(parsed, lines), refusal.directive)
        plan = apply(refusal.program, replace(refusal.schedule, directives=added), refusal.layouts, refusal.knobs)
        found = verdict_of(plan)
        if not isinstance(found, Violation):
            yield refusal.here(*lines, refusal.text)
            return
        target = plan.stages.statements.get(found.target.statement)
        tensor = target.definition.tensors[0].name if target is not None else ""
        around = {*found.source.loops} & {*found.target.loops} - {*shared}
        own = [loop for loop in loops if loop.startswith(f"{tensor}.") and loop not in around]
        pairs = [(loop, found.source.loops.get(s, 0) - found.target.loops.get(s, 0)) for loop, s in zip(own, shared, strict=False)]
        late = next(((loop, count) for loop, count in pairs if count), None)
        if late is None or late[1] < 0:
            return
        by[late[0]] = by.get(late[0], 0) + late[1]


def _least_distances(plan: Plan, definition: Definition) -> list[int | None]:
    """Return, for each axis, how far on at least what depends on an element lies; None where there is no such number."""
    own = {s.name for s in plan.stages.of(definition)}
    relations = [d.relation for d in dependences(plan.stages.scop) if d.hard and d.source in own and d.target in own]
    out: list[int | None] = []
    for k in range(len(definition.axes)):
        found = [distance(relation, k)[0] for relation in relations]
        known = [low for low in found if low is not None]
        out.append(min(known, default=0) if len(known) == len(found) else None)
    return out


def _namer(seen: Outline, refusal: Refusal) -> _Names:
    local = [loop.removeprefix(f"{stage}.") for stage, loops in seen.loops.items() for loop in loops]
    return _Names(seen, frozenset(n for n in local if local.count(n) == 1) if "." not in refusal.text else frozenset())


@dataclass(frozen=True, slots=True)
class _Names:
    """Calls loops by their last names where these say which, and the directive that is blamed does so, too."""

    seen: Outline
    unique: frozenset[str]

    def __call__(self, loop: str) -> str:
        stage = next((s for s, loops in self.seen.loops.items() if loop in loops), "")
        local = loop.removeprefix(f"{stage}.")
        return written(local if local in self.unique else loop)


def _one_skew(refusal: Refusal, violation: Violation) -> Iterator[Replacement]:
    """Yield the skew of one loop that is found by looking at the refused order itself."""
    upto = replace(refusal.schedule, directives=refusal.schedule.directives[: refusal.at + 1])
    try:
        refused = apply(refusal.program, upto, refusal.layouts, refusal.knobs)
    except CompileError:
        return
    found = suggest_skew(refused.placed, violation, refused.depth)
    if found is None:
        return
    stage = refused.stages.statements[violation.source.statement].definition.tensors[0].name
    loop, by = (name.removeprefix(stage + ".") for name in found[:2])
    for names in ((loop, by), (full(stage, loop), full(stage, by))):
        (skew,) = Schedule("").skew(*names, found[2]).directives
        yield refusal.here(show(skew), refusal.text)
        yield refusal.here(refusal.text, show(skew))


def _rewritten(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield the directive with other operands, or in another order of them."""
    d = refusal.directive
    names = [o.name for o in d.operands if isinstance(o, syntax.Id)]
    match d.name:
        case "order" | "together" if len(names) == len(d.operands) <= 4:
            for again in permutations(names):
                if list(again) != names:
                    yield refusal.here(show(replace(d, operands=tuple(map(syntax.Id, again)))))
        case "skew" if len(names) == 1 and len(d.phrases) == 1:
            yield from _other_skews(refusal, names[0], d.phrases[0].operands)
        case "tile":
            yield from _smaller_tiles(refusal)
        case "distribute" if len(names) == 1 and not d.results:
            yield from _inner_pieces(refusal, seen, names[0])
        case "at" if names:
            for stage, loops in seen.loops.items():
                yield from (refusal.here(f"at {written(names[0])} at {written(loop)}") for loop in loops if stage != names[0])
        case _:
            pass


def _other_skews(refusal: Refusal, loop: str, amount: Sequence[object]) -> Iterator[Replacement]:
    match amount:
        case (syntax.Id(by),):
            yield refusal.here(f"skew {written(by)} by {written(loop)}")
            yield refusal.here(f"skew {written(loop)} by -1 * {written(by)}")
        case (syntax.Binary("*", _, syntax.Id(by)),):
            yield refusal.here(f"skew {written(loop)} by {written(by)}")
        case _:
            pass


def _smaller_tiles(refusal: Refusal) -> Iterator[Replacement]:
    """Yield tiles of all loops but one."""
    match refusal.directive:
        case syntax.Directive(
            operands=(syntax.Apply(tensor, args),), phrases=(syntax.Phrase("by", (syntax.TupleOf(sizes),)),), results=results
        ) if len(args) > 2 and len(results) == 2 * len(args):
            for k in range(len(args)):
                loops = [show(a) for j, a in enumerate(args) if j != k]
                by = [show(s) for j, s in enumerate(sizes) if j != k]
                names = [written(r) for j, r in enumerate(results) if j % len(args) != k]
                yield refusal.here(f"tile {written(tensor)} ({', '.join(loops)}) by ({', '.join(by)}) -> {', '.join(names)}")
        case _:
            pass


def _inner_pieces(refusal: Refusal, seen: Outline, tensor: str) -> Iterator[Replacement]:
    """Yield clauses apart from inner loops on, and, where none will do, with the outermost loops interchanged before."""
    loops = seen.loops.get(tensor, ())
    name = _namer(seen, refusal)
    for loop in loops:
        yield refusal.here(f"distribute {written(tensor)} at {name(loop)}")
    axes = [loop for loop in loops if loop not in seen.reductions]
    for first, second in pairwise(axes):
        yield refusal.here(f"order {name(second)}, {name(first)}", f"distribute {written(tensor)} at {name(first)}")


def _turned(refusal: Refusal, seen: Outline, violation: Violation) -> Iterator[Replacement]:
    """Yield the directive after a loop of the statement at fault is reversed."""
    plan = refusal.planned_before()
    stage = _stage_of(seen, violation, plan) if plan is not None else None
    if stage is not None and refusal.directive.name != "reverse":
        name = _namer(seen, refusal)
        yield from (refusal.here(f"reverse {name(loop)}", refusal.text) for loop in seen.loops[stage])


# ---------------------------------------------------------------- threads and lanes


def _marks(refusal: Refusal, seen: Outline, violation: Violation) -> Iterator[Replacement]:
    """Yield other loops to run in lanes or threads, diagonals, and sums in parts."""
    loop, verb = violation.loop, refusal.directive.name
    stage = next((s for s, loops in seen.loops.items() if loop in loops), None)
    if stage is None or loop is None or verb not in ("parallel", "vectorize"):
        return
    name = _namer(seen, refusal)
    named = [o.name for o in refusal.directive.operands if isinstance(o, syntax.Id)]
    rest = [n for n in named if loop not in (n, full(stage, n))]
    kept = (f"{verb} {listed(rest)}",) if rest else ()
    free = [x for x in seen.loops[stage] if x != loop and x not in seen.marks and x not in seen.reductions]
    if verb == "parallel":
        yield from (refusal.here(*kept, f"parallel {name(x)}") for x in free)
        yield from _wavefronts(refusal, seen, stage, kept, "parallel")
    else:
        yield from _lanes(refusal, seen, stage, kept, free)
        yield from _wavefronts(refusal, seen, stage, kept, "vectorize")
    if kept:
        yield refusal.here(*kept)
    yield from _parts(refusal, seen, stage, loop, kept)


def _lanes(refusal: Refusal, seen: Outline, stage: str, kept: tuple[str, ...], free: Sequence[str]) -> Iterator[Replacement]:
    name = _namer(seen, refusal)
    for x in reversed(free):
        extent = seen.extents.get(x)
        if extent is not None and 1 < extent <= MOST_LANES:
            yield refusal.here(*kept, f"vectorize {name(x)}")
        else:
            outer, inner = _fresh(seen, stage, x)
            yield refusal.here(*kept, f"split {name(x)} by {LANES} -> {outer}, {inner}", f"vectorize {inner}")


def _wavefronts(refusal: Refusal, seen: Outline, stage: str, kept: tuple[str, ...], verb: str) -> Iterator[Replacement]:
    """Yield two loops along diagonals, the inner one in threads or in lanes."""
    name = _namer(seen, refusal)
    loops = [x for x in seen.loops[stage] if x not in seen.reductions and x not in seen.marks]
    for outer, inner in permutations(loops, 2):
        for factor in FACTORS[:2]:
            amount = f"{factor} * {name(inner)}" if factor > 1 else name(inner)
            turned = loops.index(outer) > loops.index(inner)
            order = (f"order {name(outer)}, {name(inner)}",) if turned else ()
            lines = (f"skew {name(outer)} by {amount}", *order)
            if verb == "parallel":
                yield refusal.here(*kept, *lines, f"parallel {name(inner)}")
            else:
                o, v = _fresh(seen, stage, inner)
                yield refusal.here(*kept, *lines, f"split {name(inner)} by {LANES} -> {o}, {v}", f"vectorize {v}")


def _fresh(seen: Outline, stage: str, loop: str) -> tuple[str, str]:
    used = {x.removeprefix(f"{s}.") for s, loops in seen.loops.items() for x in loops}
    base = loop.removeprefix(f"{stage}.")
    outer, inner = f"{base}_o", f"{base}_v"
    while outer in used or inner in used:
        outer, inner = f"{outer}o", f"{inner}v"
    return written(outer), written(inner)


def _parts(refusal: Refusal, seen: Outline, stage: str, loop: str, kept: tuple[str, ...]) -> Iterator[Replacement]:
    """Yield a sum in parts that threads or lanes share, where it is over the loop itself."""
    binder = loop.removeprefix(f"{stage}.")
    known = {b.name for d in seen.program.definitions for p in d.pieces for r in reduces(p.value) for b in r.binders}
    if loop not in seen.reductions or binder not in known:
        return
    factor = f"rfactor {written(binder)} " + (f"to {STRETCH}" if refusal.directive.name == "parallel" else f"by {LANES}")
    made = refusal.after(factor)
    if made is None:
        return
    for part, loops in made.loops.items():
        if part not in seen.loops:
            yield from (
                refusal.here(*kept, factor, f"{refusal.directive.name} {written(x)}") for x in reversed(loops) if x not in made.reductions
            )


# ---------------------------------------------------------------- storage


def _cells(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield larger moduli, other axes to fold, and layouts that give each element a cell."""
    d = refusal.directive
    tensor = d.operands[0].name if d.operands and isinstance(d.operands[0], syntax.Id) else ""
    definition = next((x for x in seen.program.definitions for t in x.tensors if t.name == tensor), None)
    if definition is None:
        return
    match d.name, d.phrases:
        case "fold", (syntax.Phrase("at", (syntax.Id(axis),)), syntax.Phrase("by", (syntax.Number(by),))):
            yield from (refusal.here(f"fold {written(tensor)} at {written(axis)} by {n}") for n in MODULI if n > int(by))
            if tensor not in definition_reads(definition):  # a recurrence would begin anew for each of these rows
                yield from _kept_rows(refusal, seen, tensor, axis)
            others = [a for a in definition.axes if a != axis]
            yield from (refusal.here(f"fold {written(tensor)} at {written(a)} by {n}") for a in others for n in (1, 2, 3, 4, 8))
        case "layout", _:
            yield refusal.here(f"layout {written(tensor)} as [{', '.join(map(written, reversed(definition.axes)))}]")
        case _:
            pass


def _kept_rows(refusal: Refusal, seen: Outline, tensor: str, axis: str) -> Iterator[Replacement]:
    """Yield a tensor that is computed where it is read, a few rows at a time, and kept outside of that loop."""
    readers = [x.tensors[0].name for x in seen.program.definitions if tensor in definition_reads(x) and x.tensors[0].name != tensor]
    for reader in readers[:1]:
        for loop in seen.loops.get(reader, ())[:2]:
            for n in MODULI[:3]:
                placed = f"at {written(tensor)} at {written(loop)}"
                yield refusal.here(placed, f"store_at {written(tensor)} at root", f"fold {written(tensor)} at {written(axis)} by {n}")
