"""Schedules of which somebody wrote a part: `derive` at the end, and what the lines before it leave open is derived.

    schedule f for cpu {                  schedule f for cpu {
        vectorize iv                →         split i by 8 -> io, iv
        derive                                vectorize iv
    }                                         parallel j
                                          }

What is written stays. A tensor that no line is about gets the directives that it would have had alone. Of others what is missing is added
step by step: an order that dependences allow, clauses apart, lanes along the loop of least predicted cycles, points of a sum in registers,
threads, folds. Each step is proven before it is kept; one that is refused is told with the dependence that forbade it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import prod

from codegen.dtypes import compute_dtype
from polyhedral import affine
from polyhedral.directions import Distances, distances_of
from polyhedral.expr import Name
from polyhedral.nest import Nest
from polyhedral.space import OperationLimit
from tensorlang.diagnostics import CompileError
from tensorlang.policy.cpu.inner_cost import InnerLoops, cycles_of
from tensorlang.policy.deriver import PARALLEL_WORK, Deriver, deriver_of, is_local, is_threading_profitable, shared_loops
from tensorlang.policy.folds import folded
from tensorlang.policy.machine import Machine
from tensorlang.schedule.apply import Outline, apply, outline
from tensorlang.schedule.check import kept_legal, proven
from tensorlang.schedule.directives.loops import MOST_LANES
from tensorlang.schedule.directives.operands import bad
from tensorlang.schedule.plan import Plan, Storage, full, last_part
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import OPEN_EXTENT
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.printer import show
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Definition, Program

DERIVE = "derive"
SHARE_OF_SUMS = 0.75
"""Of the vector registers, which sums may take: the others hold what is added."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A schedule without `derive`, and a sentence for each decision."""

    schedule: Schedule
    sentences: tuple[str, ...]


def is_partial(schedule: Schedule) -> bool:
    """Tell whether the rest of a schedule is to be derived, which is possible for processors."""
    return schedule.target == "cpu" and any(d.name == DERIVE for d in schedule.directives)


def completed(
    program: Program,
    schedule: Schedule,
    machine: Machine,
    layouts: Mapping[str, Storage] | None = None,
    knobs: Mapping[str, int] | None = None,
    rest: Callable[[], Schedule] | None = None,
) -> Completed:
    """Return a partial schedule with what it leaves open derived for a machine. `rest` returns what the program would have without it.

    Raises CompileError for a `derive` that does not stand last or names what is no tensor, and for what the schedule itself is refused."""
    asked = next(d for d in schedule.directives if d.name == DERIVE)
    if schedule.directives[-1] is not asked or asked.phrases or asked.results:
        last = show(schedule.directives[-1])
        bad(
            asked,
            "it stands last, and names tensors at most",
            f"write it behind `{last}`" if schedule.directives[-1] is not asked else None,
        )
    pinned = replace(schedule, directives=schedule.directives[:-1])
    tensors = [t.name for d in program.definitions for t in d.tensors]
    named = [o.name for o in asked.operands if isinstance(o, syntax.Id) and o.name in tensors]
    if len(named) < len(asked.operands):
        bad(asked, f"`{show(asked)}` names what is no tensor of this operator", f"its tensors are {', '.join(tensors)}")
    if not pinned.directives and not named and rest is not None:
        return Completed(rest(), ("all of it is derived",))
    work = _Completion(program, machine, layouts or {}, knobs, frozenset(named), *kept_legal(program, pinned, layouts, knobs))
    work.fill(pinned, rest)
    return Completed(work.schedule, tuple(work.sentences))


@dataclass(slots=True)
class _Completion:
    program: Program
    machine: Machine
    layouts: Mapping[str, Storage]
    knobs: Mapping[str, int] | None
    named: frozenset[str]
    """The tensors to derive directives for: all, where none is named."""
    schedule: Schedule
    sentences: list[str] = field(default_factory=list)

    def fill(self, pinned: Schedule, rest: Callable[[], Schedule] | None) -> None:
        seen = self._seen(self.schedule)
        open_ = [d for d in seen.program.definitions if not self.named or self.named & {t.name for t in d.tensors}]
        untouched = [d for d in open_ if not _is_touched(pinned, seen, d)]
        if rest is not None and untouched:
            known = {t.name for d in open_ for t in d.tensors}
            self._add_rest(rest(), {t.name for d in untouched for t in d.tensors}, known)
            rewritten = self._seen(self.schedule).program.definitions
            open_ = [d for d in rewritten if known & {t.name for t in d.tensors}]
        for definition in open_:
            self._distribute(definition)
        for definition in open_:
            self._lanes(definition)
            self._threads(definition)
        for definition in open_:
            self._fold(definition)

    def _seen(self, schedule: Schedule) -> Outline:
        return outline(self.program, schedule, self.layouts, self.knobs)

    def _plan(self) -> Plan:
        return apply(self.program, self.schedule, self.layouts, self.knobs)

    def _deriver(self) -> Deriver:
        return deriver_of(self._seen(self.schedule).program, self.machine, self.layouts, frozenset(), Schedule(self.program.name))

    def tried(self, *added: syntax.Directive, why: str = "") -> bool:
        """Add directives if the schedule is proven with them, and say so; or say what forbids them."""
        made = replace(self.schedule, directives=(*self.schedule.directives, *added))
        text = ", ".join(f"`{show(d)}`" for d in added)
        try:
            undecided = proven(self.program, made, self.layouts, self.knobs, advised=False).trusted
        except CompileError as refused:
            (first, *_) = refused.diagnostics
            note = f": {first.notes[0]}" if first.notes else ""
            self.sentences.append(f"not derived: {text}: {first.title}{note}")
            return False
        if undecided:
            self.sentences.append(f"not derived: {text}: the proof does not end, and what is trusted is what somebody wrote")
            return False
        self.schedule = made
        self.sentences.append(f"derived: {text}" + (f": {why}" if why else ""))
        return True

    def _add_rest(self, rest: Schedule, untouched: set[str], known: set[str]) -> None:
        """Add what untouched tensors would have without the schedule: the directives that are about them alone, or as many of these from
        the first on as are legal without those about others."""
        tensors = {t.name for d in self._seen(self.schedule).program.definitions for t in d.tensors} | known
        about = [(d, {n for n in map(_owner(tensors), _names(d)) if n is not None}) for d in rest.directives]
        chosen = [d for d, owners in about if owners and owners <= untouched]
        if any(d.name == "flatten" for d in rest.directives):
            return
        before, why = len(self.sentences), "as it would be without a schedule"
        for count in range(len(chosen), 0, -1):  # What comes last, as a fold, may need loops shared with tensors that others are about.
            if self.tried(*chosen[:count], why=why):
                return
            del self.sentences[before + 1 :]

    def _distribute(self, definition: Definition) -> None:
        name, seen = definition.tensors[0].name, self._seen(self.schedule)
        said = any(d.name == "distribute" and name in _names(d) for d in self.schedule.directives)
        if len(definition.pieces) > 1 and not said:
            for loop in (None, *self._loops(definition, seen)):
                (directive,) = Schedule("").distribute(name, at=loop).directives
                if self.tried(directive, why="each clause has loops of its own, and asks nothing"):
                    return

    def _loops(self, definition: Definition, seen: Outline) -> tuple[str, ...]:
        """Return the loops around a definition's statements. Its stage may be named after another tensor that needs it, and have loops of
        that one alone."""
        name = definition.tensors[0].name
        stage = name if name in seen.loops else next((s for s, found in seen.statements.items() if f"{name}.0" in found), "")
        plan = self._plan()
        around = {x for s in plan.stages.of(definition) for nest in plan.placed.placements(s.name) for x in nest.loops}
        return tuple(loop for loop in seen.loops.get(stage, ()) if loop in around)

    def _free(self, definition: Definition) -> tuple[Distances, list[str]] | None:
        """Return the distances of a definition's dependences, and the loops of all its statements that carry none, outermost first."""
        plan = self._plan()
        own = {s.name: k for k, s in enumerate(plan.stages.of(definition))}
        try:
            distances = distances_of(plan.placed, own) if own else None
        except OperationLimit:
            return None
        return None if distances is None else (distances, list(distances.free(distances.loops)))

    def _lanes(self, definition: Definition) -> None:
        name, seen = definition.tensors[0].name, self._seen(self.schedule)
        loops = self._loops(definition, seen)
        found = self._free(definition) if not any(seen.marks.get(loop) == "vector" for loop in loops) else None
        if found is None:
            return
        distances, free = found
        carried = [loop for loop in distances.loops if loop not in free]
        if carried:
            self.sentences.append(f"`{name}`: {_listed(carried)} carry dependences" + (f", {_listed(free)} none" if free else ""))
        costs = dict(self._costs(definition, seen, [x for x in free if x in loops and x not in seen.marks]))
        if not costs:
            return
        plain = cycles_of(self._deriver(), definition, InnerLoops())
        told = ", ".join(f"{cycles:.2f} along `{loop}`" for loop, cycles in costs.items())
        for loop in sorted(costs, key=lambda x: costs[x]):
            if costs[loop] < plain:
                why = f"cycles of an element: {plain:.2f} one by one, {told}"
                points = self._points(definition, seen, loop, free)
                held = f"; {prod(seen.extents[x] or 1 for x in points)} points of each lane are added up together" if points else ""
                if points and self.tried(*self._in_lanes(definition, seen, loop, points), why=why + held):
                    return
                if self.tried(*self._in_lanes(definition, seen, loop), why=why):
                    return

    def _costs(self, definition: Definition, seen: Outline, free: Sequence[str]) -> Iterator[tuple[str, float]]:
        """Yield the free loops whose neighbours are those of an axis, with the cycles of an element in lanes along it."""
        d, plan = self._deriver(), self._plan()
        nests = [n for s in plan.stages.of(definition) if s.phase == "define" for n in plan.placed.placements(s.name)]
        for loop in reversed(free):
            axis = _axis_along(nests[0], loop) if nests else None
            if axis in definition.axes and axis is not None and seen.extents.get(loop) != 1:
                yield loop, cycles_of(d, definition, InnerLoops((axis,)))

    def _points(self, definition: Definition, seen: Outline, lanes: str, free: Sequence[str]) -> tuple[str, ...]:
        """Return the innermost loops over points, outermost first, whose sums registers hold for all lanes together: terms are gone through
        around them. None where somebody has said in which order they run."""
        loops, width = self._loops(definition, seen), self.machine.lanes(compute_dtype(definition.tensors[0].dtype))
        ordered = {n for d in self.schedule.directives if d.name == "order" for n in _names(d)}
        named = {x for x in loops if {x, last_part(x)} & ordered}
        if not any(x in seen.reductions for x in loops) or named:
            return ()
        vectors = max(1, min(seen.extents.get(lanes) or width, 2 * width) // width)
        points, count = list[str](), vectors
        for x in (x for x in reversed(loops) if x != lanes and x not in seen.reductions):
            extent = seen.extents.get(x)
            if extent is None or x not in free or x in seen.marks or count * extent > self.machine.vector_registers * SHARE_OF_SUMS:
                break
            points, count = [x, *points], count * extent
        return tuple(points)

    def _in_lanes(self, definition: Definition, seen: Outline, loop: str, points: Sequence[str] = ()) -> tuple[syntax.Directive, ...]:
        """Return what lets a loop run in lanes, innermost, and sums of `points` be added up together, right around them."""
        name = _owner({t.name for d in seen.program.definitions for t in d.tensors})(loop) or ""
        lanes, extent = self.machine.lanes(compute_dtype(definition.tensors[0].dtype)), seen.extents.get(loop)
        made, order, inner = Schedule(""), list(self._loops(definition, seen)), loop
        if extent is None or extent > min(MOST_LANES, 2 * lanes):
            base = loop.removeprefix(f"{name}.")
            outer, vector = _fresh(seen, f"{base}_o"), _fresh(seen, f"{base}_v")
            made, inner = made.split(loop, lanes, (outer, vector)), full(name, vector)
            order[order.index(loop) : order.index(loop) + 1] = [full(name, outer), inner]
        wanted = [*(x for x in order if x != inner and x not in points), *points, inner]
        made = made.order(*wanted) if wanted != order else made
        made = made.unroll(*points) if points else made
        return made.vectorize(inner).directives

    def _threads(self, definition: Definition) -> None:
        seen = self._seen(self.schedule)
        loops = self._loops(definition, seen)
        d = self._deriver()
        if any(seen.marks.get(x) == "parallel" for x in loops) or not is_threading_profitable(d, (definition,)):
            return
        found = self._free(definition)
        if found is None:
            return
        distances, free = found
        outer = list(takewhile(lambda loop: loop in free and loop not in seen.marks, distances.loops))
        chosen = shared_loops(outer, [seen.extents.get(x) or OPEN_EXTENT for x in outer], self.machine.threads)
        inside = next((k for k, x in enumerate(loops) if x in free and x not in seen.marks), len(loops))
        if not chosen and prod(seen.extents.get(x) or OPEN_EXTENT for x in loops[inside:]) >= PARALLEL_WORK:
            chosen = loops[inside : inside + 1]
        if chosen:
            self.tried(*Schedule("").parallel(*chosen).directives, why=f"work for {self.machine.threads} threads")

    def _fold(self, definition: Definition) -> None:
        name = definition.tensors[0].name
        said = any(d.name in ("fold", "layout", "store_at") and name in _names(d) for d in self.schedule.directives)
        own = {t.name for d in lift(self.program).definitions for t in d.tensors}
        if said or name not in own or not is_local(self._deriver(), definition):
            return  # a copy is as large as whoever asked for it wants it, and may be filled ahead
        for tensor, axis, count in tuple(folded(self._plan(), definition, definition.axes)):
            self.tried(*Schedule("").fold(tensor, axis, count).directives, why=f"no more than {count} along `{axis}` are needed at a time")


def _axis_along(nest: Nest, loop: str) -> str | None:
    """Return the iterator that goes on by one with each iteration of a loop, where no other does at all."""
    moving = {name: affine.linear(value).terms for name, value in nest.iter_exprs().items() if loop in affine.name_set(value)}
    (name, terms), *others = moving.items() if moving else (("", ()),)
    return name if not others and dict(terms).get(Name(loop)) == 1 else None


def _listed(loops: Sequence[str]) -> str:
    return ", ".join(f"`{loop}`" for loop in loops)


def _fresh(seen: Outline, base: str) -> str:
    used = {last_part(loop) for loops in seen.loops.values() for loop in loops}
    return next(name for name in (base, *(f"{base}{n}" for n in range(2, 100))) if name not in used)


def _names(directive: syntax.Directive) -> list[str]:
    """Return the names that a directive is about: tensors and loops."""
    found: list[str] = []
    for operand in (*directive.operands, *(o for p in directive.phrases for o in p.operands)):
        match operand:
            case syntax.Id(name):
                found.append(name)
            case syntax.Apply(name, args):
                found += [name, *(a.name for a in args if isinstance(a, syntax.Id))]
            case _:
                pass
    return found


def _owner(tensors: set[str]) -> Callable[[str], str | None]:
    def owner(name: str) -> str | None:
        return max((t for t in tensors if name == t or name.startswith(f"{t}.")), key=len, default=None)

    return owner


def _is_touched(pinned: Schedule, seen: Outline, definition: Definition) -> bool:
    """Tell whether a directive is about a tensor, or about one of its loops."""
    own = {t.name for t in definition.tensors}
    name = definition.tensors[0].name
    binders = {loop.removeprefix(f"{name}.") for loop in seen.loops.get(name, ())}
    made = {full(name, axis) for axis in definition.axes}
    spoken = {n for d in pinned.directives for n in _names(d)}
    return bool(spoken & (own | binders | {*definition.axes}) or any(n.startswith(f"{t}.") for n in spoken for t in own)) or not (
        made <= {*seen.loops.get(name, ())}
    )
