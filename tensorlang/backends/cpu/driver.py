"""The pipeline of one kernel, on a page.

    program ─lift, derive or given→ schedule ─apply, prove→ plan ─lower→ loops ─simplify, promote→ loops ─emit→ LLVM IR ─→ object

Every step is verified. What was compiled before comes from the cache: its key is the program, the schedule, the layouts, the target and
the compiler, so a hit skips everything from scheduling on.

With `TENSORLANG_VALIDATE=1` loops are validated against the program by running both on terms (`tensorlang.validation`); another number is
how many operations a kernel may take to be.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from itertools import islice
from types import MappingProxyType

from codegen.dtypes import DType
from codegen.errors import Unfit
from codegen.llvm.cache import cache_key
from codegen.llvm.dot import pairs
from codegen.llvm.emit import emit
from codegen.llvm.jit import assembly, compile_object
from codegen.llvm.target import Target
from codegen.llvm.tile_forms import tile_pairs
from codegen.llvm.workspace import plan as workspace_plan
from codegen.loops.aligned_rows import with_aligned_rows
from codegen.loops.at_most_once import at_most_once
from codegen.loops.carried import carried
from codegen.loops.carried_rows import carried_rows
from codegen.loops.clamped_lanes import clamped_lanes
from codegen.loops.combine import combine
from codegen.loops.contract import contract, separate
from codegen.loops.demote import demote
from codegen.loops.dots import BITS
from codegen.loops.evaluate import packed, unpacked
from codegen.loops.first_iteration import with_first_iterations
from codegen.loops.hoist import hoist
from codegen.loops.invariant_lanes import invariant_lanes
from codegen.loops.lanes_by_distance import lanes_by_distance
from codegen.loops.late_terms import with_late_terms_last
from codegen.loops.masked_lanes import masked_lanes
from codegen.loops.nodes import Function
from codegen.loops.notes import AnyOrder, Partitioned
from codegen.loops.partial_sums import with_partial_sums
from codegen.loops.partition import idle_notes, partition
from codegen.loops.pinned import pinned
from codegen.loops.printer import show as show_loops
from codegen.loops.promote import drop_stack_to_registers, promote_accumulators
from codegen.loops.quotients import fewer_quotients
from codegen.loops.rotated_registers import rotated_registers
from codegen.loops.serial import serial
from codegen.loops.simplify import simplify
from codegen.loops.sink import sink_loops
from codegen.loops.stages import staged
from codegen.loops.tiles import tiled
from codegen.loops.unread import without_unread
from codegen.loops.unswitch import unswitch
from codegen.loops.verify import verify
from codegen.loops.walk import noted_loops, stores, walk, without
from codegen.loops.written_out import written_out
from codegen.store import Cache
from polyhedral.expr import Int
from polyhedral.schedule import show as show_tree
from tensorlang.artifact import DERIVED_FIRST, DERIVED_FOR_SAMPLES, DERIVED_PLAIN, Artifact, Requirement, SizeCase
from tensorlang.backends.cpu.size_cases import Planned, most_scanned, telling, with_cases
from tensorlang.diagnostics import CompileError, error
from tensorlang.digest import compiler_digest
from tensorlang.graph.nodes import Form
from tensorlang.lower.bounds import prove_bounds
from tensorlang.lower.kernel import Lowered, lower
from tensorlang.planning import Dump, Rules, Scheduled, ScheduleRequest, planned
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.cpu.layouts import derive_layouts
from tensorlang.policy.machine import Machine
from tensorlang.room import check_buffers
from tensorlang.schedule.directives.loops import idle_in_loops
from tensorlang.schedule.directives.placing import idle_streams
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.plan import Plan, Storage
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.storage import stored_as
from tensorlang.targets import HOST
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.scop import show as show_scop
from tensorlang.tensor.walk import substitute_sizes
from tensorlang.validation.budget import validation_budget
from tensorlang.validation.intrinsics import usable
from tensorlang.validation.kernel import validated

ROOM = 4
"""Of the bytes that vector registers hold, one of so many is for what goes from iteration to iteration, and for small buffers."""


NO_SIZES: Mapping[str, int] = MappingProxyType({})


@lru_cache(maxsize=64)
def machine_of(target: Target, threads: int) -> Machine:
    dots = pairs(target.features, target.vector_bits // BITS)
    near = target.caches
    return Machine(
        target.vector_bits // 8,
        target.vector_registers,
        threads,
        l1_bytes=near.l1_bytes,
        l2_bytes=near.l2_bytes,
        dots=dots,
        tiles=tile_pairs(target.features) & dots,
        tables=frozenset((size, bytes_each * count) for size in (1, 2, 4, 8) for bytes_each, count in [target.tables(size)] if count),
        cache_bytes=near.last_bytes,
        target=HOST,
    )


def compile_kernel(
    program: Program,
    target: Target,
    *,
    schedule: Schedule | None = None,
    rules: Rules | None = None,
    knobs: Mapping[str, int] | None = None,
    layouts: Mapping[str, Layout] | None = None,
    constants: frozenset[str] = frozenset(),
    threads: int = 1,
    store: Cache | None = None,
    dump: Dump | None = None,
    forms: Sequence[Form] = (),
) -> Artifact:
    """Return native code for `program` under `schedule`, or the one that `rules` choose, or a derived one. `layouts`: how the caller
    stores inputs and results that are not row-major; `constants`: inputs that never change; `forms`: other programs for ranges of sizes.
    Raises CompileError when the schedule cannot be read or is refused."""
    key = _key(program, target, schedule, rules, knobs, layouts, constants, threads, forms)
    found = _found(key, store) if store is not None and dump is None else None
    if found is not None:
        return found
    clock = _Clock()
    asked = _Asked(program, target, threads, f"tl_{key[:24]}", schedule, rules, knobs, layouts or {}, constants, forms, dump)
    samples, scheduled = asked.for_samples()
    clock("schedule")
    alone = asked.loops(scheduled.plan, dump=dump, clock=clock)
    lowered, cases, added = asked.with_cases(Planned(scheduled, alone), samples, clock)
    outcome = asked.validated(scheduled, alone if any(case.form for case in added) else lowered)
    for case in (case for case in added if case.form is not None):
        asked.validated(case.scheduled, case.lowered, case.form)
    if outcome:
        clock("validate")
    if dump is not None and outcome:
        dump("validate", outcome)
    named = tuple(dict.fromkeys(n for made in (scheduled, *(case.scheduled for case in added)) for n in made.plan.named))
    text = emit(lowered.function, target, usable(named, target))
    clock("emit")
    if dump is not None:
        dump("llvm", text)
        dump("asm", assembly(text, target))
    code = compile_object(text, target)
    clock("llvm")
    sizes, needed = lowered.function.sizes, workspace_plan(lowered.function)
    artifact = Artifact(
        asked.symbol,
        code,
        lowered.params,
        sizes,
        lowered.requirements,
        str(scheduled.with_idle(lowered.idle)),
        show_loops(lowered.function),
        clock.times,
        origin=scheduled.origin,
        tried=scheduled.tried,
        trusted=scheduled.plan.trusted,
        scratch=(needed.shared_bytes, needed.thread_bytes),
        validated=outcome,
        validation_budget=validation_budget(),
        cases=cases,
    )
    if store is not None:
        store.put(key, _pack(artifact))
    return artifact


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a kernel is asked for, as `compile_kernel` takes it, and its name in machine code."""

    program: Program
    target: Target
    threads: int
    symbol: str
    schedule: Schedule | None
    rules: Rules | None
    knobs: Mapping[str, int] | None
    layouts: Mapping[str, Layout]
    constants: frozenset[str]
    forms: Sequence[Form]
    dump: Dump | None

    @property
    def machine(self) -> Machine:
        return machine_of(self.target, self.threads)

    def stored(self, program: Program, known: Mapping[str, int] = NO_SIZES) -> dict[str, Layout]:
        """Return how tensors of a program are stored, of which some sizes may be numbers."""
        named = {*program.results, *(p.name for p in program.params)}
        return {name: layout.where(known) for name, layout in self.layouts.items() if name in named}

    def scheduled(self, rules: Rules | None) -> Scheduled:
        return plan_kernel(self.program, self.machine, self.schedule, self.knobs, self.layouts, self.constants, self.dump, rules)

    def scheduled_beside(self, rules: Rules, known: Mapping[str, int] = NO_SIZES, form: Form | None = None) -> Scheduled:
        """Return a schedule of the program, or of a form of it, with sizes that are numbers, for loops beside those of the kernel."""
        whole = self.program if form is None else form.program
        program = substitute_sizes(whole, {size: Int(n) for size, n in known.items()})
        constants = self.constants & {p.name for p in program.params}
        return plan_kernel(program, self.machine, self.schedule, self.knobs, self.stored(whole, known), constants, None, rules)

    def for_samples(self) -> tuple[Mapping[str, int], Scheduled]:
        """Return a schedule, and the samples that it is for."""
        met = (self.rules and self.rules.at) or NO_SIZES
        if self.rules is not None and met and self.rules.cases and self.schedule is None:
            samples = telling(self.program, met)
            usual = replace(self.rules, at=samples, sampled=True)
            if samples != met and not any(one.is_written(self.program) for one in (self.rules, usual)):
                with suppress(CompileError):
                    return samples, self.scheduled(usual)
        return met, self.scheduled(self.rules)

    def loops(
        self,
        plan: Plan,
        dump: Dump | None = None,
        clock: Callable[[str], None] = lambda stage: None,
        most: int | None = None,
        proves: bool = True,
    ) -> Lowered:
        """Return the loops of a plan for the target, as `loops_of` does."""
        return loops_of(
            plan,
            self.symbol,
            dump,
            self.threads,
            clock,
            self.target.contracts,
            self.target.masked_bytes,
            self.machine.vector_bytes,
            self.machine.vector_registers,
            most,
            proves,
        )

    def with_cases(
        self, base: Planned, samples: Mapping[str, int], clock: Callable[[str], None]
    ) -> tuple[Lowered, tuple[SizeCase, ...], tuple[Planned, ...]]:
        """Return loops with those of cases of open sizes, as `size_cases.with_cases` does, where the schedule is left to this compiler."""
        rules, found = self.rules, base.scheduled
        if rules is None or not rules.at or not rules.cases or self.schedule is not None:
            return base.lowered, (), ()
        if not found.of_roles and found.origin != "derived":
            return base.lowered, (), ()

        def at(sizes: Mapping[str, int], known: Mapping[str, int]) -> Scheduled:
            return self.scheduled_beside(replace(rules, at=sizes, sampled=not known), known)

        def of_form(form: Form) -> Planned:
            other = self.scheduled_beside(replace(rules, at={**samples, **dict(form.at)}, sampled=True), form=form)
            return Planned(other, self.loops(other.plan, proves=False))

        most = most_scanned(base.lowered)
        lowered, cases, added = with_cases(
            base,
            samples,
            rules.at,
            at,
            lambda other: self.loops(other.plan, most=most, proves=False),
            self.machine,
            {form: partial(of_form, form) for form in self.forms},
        )
        for case in added:
            prove_bounds(case.lowered.function, case.lowered.given)
        clock("cases")
        return lowered, cases, added

    def validated(self, scheduled: Scheduled, lowered: Lowered, form: Form | None = None) -> str:
        """Return what came of validating loops for the program, or for a form of it."""
        program = self.program if form is None else form.program
        return validated(scheduled.plan.served(program), lowered.function, lowered.params, self.stored(program), program)


def stored_kernel(
    program: Program,
    target: Target,
    store: Cache,
    *,
    layouts: Mapping[str, Layout],
    constants: frozenset[str],
    threads: int,
    rules: Rules | None = None,
    forms: Sequence[Form] = (),
) -> Artifact | None:
    """Return what `compile_kernel` made of these arguments before, if `store` has it."""
    return _found(_key(program, target, None, rules, None, layouts, constants, threads, forms), store)


def _found(key: str, store: Cache) -> Artifact | None:
    """Return the artifact of a key, unless it is still to be validated."""
    data = store.get(key)
    artifact = None if data is None else _unpack(data)
    return artifact if artifact is not None and artifact.is_validated(validation_budget()) else None


def plan_kernel(
    program: Program,
    machine: Machine,
    schedule: Schedule | None = None,
    knobs: Mapping[str, int] | None = None,
    layouts: Mapping[str, Layout] | None = None,
    constants: frozenset[str] = frozenset(),
    dump: Dump | None = None,
    rules: Rules | None = None,
) -> Scheduled:
    """Return the proven plan of `schedule`, or of the one that `rules` choose, or of the first derived schedule that is legal."""
    request = ScheduleRequest(schedule, rules, knobs or {})

    def derived(stored: dict[str, Storage]) -> Iterator[tuple[str, Schedule]]:
        if program.sizes and rules is not None and rules.at:
            yield DERIVED_FOR_SAMPLES, derive(program, machine, stored, constants, at=rules.at)
            if rules.sampled:
                return
        yield DERIVED_FIRST, derive(program, machine, stored, constants)
        yield DERIVED_PLAIN, derive(program, machine, stored, constants, plain=True)

    result = planned(program, machine, request, derived, layouts, constants)
    if dump is not None:
        dump("scop", show_scop(result.plan.stages))
        dump("schedule", f"{result.schedule}\n\n{show_tree(result.plan.placed)}")
    return result


def _simplified(changed: Function, before: Function) -> Function:
    """Return what a pass made of a simplified function simplified again: the function itself where the pass found nothing to do."""
    return before if changed == before else simplify(changed)


def loops_of(
    plan: Plan,
    symbol: str,
    dump: Dump | None = None,
    threads: int | None = None,
    clock: Callable[[str], None] = lambda stage: None,
    contracts: bool = True,
    masked_bytes: Container[int] = (),
    vector_bytes: int = 64,
    vector_registers: int = 32,
    most: int | None = None,
    proves: bool = True,
) -> Lowered:
    """Return the verified, simplified loop-IR function of a plan, for one thread or (None) any number. It stays inside its buffers, which
    is proven here, or (not `proves`) by the caller, of those loops that will run.
    `contracts`: for a target with multiply-adds. There a product that a reduction sums is added by one, and in fast mode every product
    that is added to something; elsewhere the two round one after the other. `masked_bytes`: of how many bytes
    elements are that the target loads under masks; `vector_bytes`: what each
    of so many vector registers holds. `most`: nodes of the loops as they are scanned.

    Raises RunError R0315 when no machine holds one of them, Unfit for more nodes than `most`."""
    lowered = lower(plan, symbol)
    if most is not None and sum(1 for _ in islice(walk(*lowered.function.body), most + 1)) > most:
        raise Unfit(f"its loops have more than {most} nodes")
    lowered = replace(lowered, function=serial(lowered.function)) if threads == 1 else lowered
    try:
        ahead = simplify(staged(simplify(without_unread(lowered.function))))  # the second finds what the first has told of loops
    except Unfit as refused:
        raise error("S0218", "there is nothing to run ahead", notes=(refused.reason,)) from None
    ahead = _simplified(pinned(ahead), ahead)
    ahead = ahead if (under := sink_loops(ahead)) == ahead else simplify(pinned(under))
    split = partition(ahead)
    there = {id(note) for _, note in noted_loops(Partitioned, *ahead.body)}
    gone = (note for notes in plan.about_loops.values() for note in notes if isinstance(note, Partitioned) and id(note) not in there)
    told = {sentence.partition(" changes nothing")[0] for sentence in plan.idle}
    found = idle_in_loops((*idle_notes(ahead, split), *gone))
    idle = tuple(sentence for sentence in found if sentence.partition(" changes nothing")[0] not in told)
    split = _simplified(without(split, Partitioned), ahead)
    split = _simplified(clamped_lanes(at_most_once(unswitch(split)), masked_bytes), split)
    split = _simplified(with_first_iterations(split), split)
    is_fast = plan.program.mode == "fast"
    function: Function = promote_accumulators(demote(tiled(combine(masked_lanes(pinned(split))))))
    function = demote(carried(invariant_lanes(hoist(fewer_quotients(function) if is_fast else function))))
    if not contracts:
        function = separate(function)
    elif is_fast:
        function = contract(function)
    room = vector_bytes * vector_registers // ROOM

    def lanes(dtype: DType) -> int:
        return max(1, vector_bytes // dtype.size_bytes)

    function = _simplified(lanes_by_distance(function, lanes), function)
    function = _simplified(with_partial_sums(function, lanes, vector_registers), without(function, AnyOrder))
    function = rotated_registers(written_out(function, room), vector_registers)
    function = carried_rows(drop_stack_to_registers(function, room), room)
    function = with_aligned_rows(with_late_terms_last(function))
    verify(function)
    check_buffers(plan.program.name, function)
    clock("loops")
    if proves:
        prove_bounds(function, lowered.given)
        clock("bounds")
    if dump is not None:
        dump("loops", show_loops(function))
    streamed = {s.buffer for s in stores(*function.body) if s.stream}
    kept = {name for p, name in zip(function.params, lowered.params, strict=True) if p.name not in streamed}
    return replace(lowered, function=function, idle=(*idle, *idle_streams(plan, kept)))


def preferred_layouts(
    program: Program,
    target: Target,
    constants: frozenset[str] = frozenset(),
    layouts: Mapping[str, Layout] | None = None,
    threads: int = 1,
    fixed: frozenset[str] = frozenset(),
    at: Mapping[str, int] | None = None,
) -> dict[str, Layout]:
    """Return the layouts that the derived schedule would like for inputs and results not in `layouts`; nobody has to grant them. Those in
    `fixed` are row-major: another layout takes a copy. `at`: samples of open sizes."""
    return derive_layouts(program, machine_of(target, threads), stored_as(program, layouts or {}), constants, fixed, at)


# ---------------------------------------------------------------- the cache


def _key(
    program: Program,
    target: Target,
    schedule: Schedule | None,
    rules: Rules | None,
    knobs: Mapping[str, int] | None,
    layouts: Mapping[str, Layout] | None,
    constants: frozenset[str],
    threads: int,
    forms: Sequence[Form],
) -> str:
    parts = [
        compiler_digest(),
        repr(program),
        repr((schedule.directives, schedule.instructions))
        if schedule is not None
        else "derived"
        if rules is None
        else repr(rules.key(program)),
        repr(sorted((knobs or {}).items())),
        repr(sorted((layouts or {}).items(), key=lambda item: item[0])),
        repr(sorted(constants)),
        str(threads),
        repr(tuple(forms)),
    ]
    return cache_key(parts, target)


def _pack(artifact: Artifact) -> bytes:
    head = {
        "symbol": artifact.symbol,
        "params": artifact.params,
        "sizes": artifact.sizes,
        "requirements": [asdict(r) for r in artifact.requirements],
        "schedule": artifact.schedule,
        "loops": artifact.loops,
        "times_ms": dict(artifact.times_ms),
        "origin": artifact.origin,
        "tried": artifact.tried,
        "trusted": artifact.trusted,
        "scratch": [packed(part) for part in artifact.scratch],
        "validated": artifact.validated,
        "validation_budget": artifact.validation_budget,
        "cases": [asdict(case) for case in artifact.cases],
    }
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + artifact.object


def _unpack(data: bytes) -> Artifact:
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + size])
    shared, private = map(unpacked, head["scratch"])
    return Artifact(
        head["symbol"],
        data[8 + size :],
        tuple(head["params"]),
        tuple(head["sizes"]),
        tuple(Requirement(**r) for r in head["requirements"]),
        head["schedule"],
        head["loops"],
        head["times_ms"],
        cached=True,
        origin=head["origin"],
        tried=tuple(head["tried"]),
        trusted=head["trusted"],
        scratch=(shared, private),
        validated=head["validated"],
        validation_budget=head["validation_budget"],
        cases=tuple(SizeCase(**case) for case in head["cases"]),
    )


@dataclass(slots=True)
class _Clock:
    """Milliseconds per stage."""

    times: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.perf_counter)

    def __call__(self, stage: str) -> None:
        now = time.perf_counter()
        self.times[stage] = (now - self.last) * 1e3
        self.last = now
