"""The pipeline of one kernel for a graphics processor.

    program ─given, chosen by rules or derived→ plan ─lower→ loops
    loops ─simplify, whole→ loops ─prepare, pipeline_copies→ loops ─barriers→ loops ─render→ C text

What is proven is the same as for a processor, and by the same means; barriers are proven on the loops as they are written out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from codegen.errors import Unfit
from codegen.gpu.clusters import check_clusters, share_copies_in_cluster
from codegen.gpu.launches import blocks_outside, launches
from codegen.gpu.linear_grid import linearize
from codegen.gpu.persistent import make_persistent
from codegen.gpu.pipeline import pipeline_copies
from codegen.gpu.prepare import prepare
from codegen.gpu.program import Program as Kernels
from codegen.gpu.render import render
from codegen.gpu.spread_checks import spread_checks
from codegen.loops.contract import contract
from codegen.loops.nodes import Function
from codegen.loops.notes import AnyOrder, Edge, Kept, Multicast
from codegen.loops.pinned import pinned_in_threads
from codegen.loops.printer import show as show_loops
from codegen.loops.simplify import simplify
from codegen.loops.unread import without_unread
from codegen.loops.verify import verify
from codegen.loops.walk import noted_buffers, noted_loops, without
from polyhedral.expr import Int
from tensorlang.artifact import DERIVED_FIRST
from tensorlang.diagnostics import NOWHERE, CompileError, error
from tensorlang.lower.barriers import with_barriers
from tensorlang.lower.bounds import prove_bounds
from tensorlang.lower.clusters import differing
from tensorlang.lower.edge_tiles import edges, whole
from tensorlang.lower.kernel import Lowered, lower
from tensorlang.planning import Dump, Rules, Scheduled, ScheduleRequest, planned
from tensorlang.policy.deriver import samples_of
from tensorlang.policy.gpu.derive import derive_device
from tensorlang.policy.machine import GpuMachine
from tensorlang.policy.select import stated_for
from tensorlang.schedule.annotations import origin_of
from tensorlang.schedule.check import proven
from tensorlang.schedule.directives.table import TABLE
from tensorlang.schedule.instructions import declared
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.plan import Plan, Storage
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import substitute_sizes

USUAL_SIZE = 1000
"""Of an axis of which no sample is known."""
LARGE = 1 << 17
"""Of an axis whose rows no block keeps."""


def plan_for_device(
    program: Program,
    schedule: Schedule | None = None,
    rules: Rules | None = None,
    knobs: Mapping[str, int] | None = None,
    layouts: Mapping[str, Layout] | None = None,
    *,
    machine: GpuMachine,
    plain: bool = False,
) -> Scheduled:
    """Return the proven plan of `schedule`, or of the one that `rules` choose for a device, or of a derived one. `layouts`: how the caller
    stores inputs and results that are not row-major; `machine`: what the device is like; `plain`: what is derived asks a device for threads
    alone.

    Where sizes are open, and nobody wrote a schedule, it is that for samples of them, if that is proven for all sizes.

    Raises CompileError when the schedule cannot be read or is refused."""
    if schedule is None and rules is not None and not layouts:
        found = _for_samples(program, rules, machine)
        if found is not None:
            return found
    derived = _derived(program, rules, machine, plain=plain)
    return planned(program, machine, ScheduleRequest(schedule, rules, knobs or {}), derived, layouts)


def _derived(
    program: Program, rules: Rules | None, machine: GpuMachine, *, plain: bool = False
) -> Callable[[dict[str, Storage]], Iterator[tuple[str, Schedule]]]:
    instructions = declared(rules.module) if rules is not None else ()

    def derived(stored: dict[str, Storage]) -> Iterator[tuple[str, Schedule]]:
        yield DERIVED_FIRST, derive_device(program, stored, instructions, machine=machine, plain=plain)

    return derived


def _for_samples(program: Program, rules: Rules, machine: GpuMachine) -> Scheduled | None:
    """Return the plan of the schedule that a program gets for samples of its open sizes, or else for large ones; None where no size is
    open, somebody wrote a schedule, or none of these is proven for all sizes. Samples are odd: nothing is made for sizes that vectors
    divide."""
    if not program.sizes:
        return None
    samples = {**dict.fromkeys(program.sizes, USUAL_SIZE), **samples_of(program, rules.at or {})}
    stated = stated_for(rules.module, rules.operator, program, rules.attrs, rules.target, rules.sizes, rules.knobs, rules.at)
    own = replace(rules, operator=None, attrs={}, sizes={}, knobs={}, text=None, at=None)
    for least in (1, LARGE) if stated is None else ():
        try:
            sample = substitute_sizes(program, {name: Int(max(n, least) | 1) for name, n in samples.items()})
            found = planned(sample, machine, ScheduleRequest(rules=own), _derived(sample, own, machine))
            return replace(found, plan=proven(program, found.schedule, {}, advised=False))
        except CompileError:
            continue
    return None


def device_loops(
    plan: Plan,
    symbol: str,
    dump: Dump | None = None,
    schedule: Schedule | None = None,
    in_order: Callable[[Lowered], object] = lambda lowered: None,
    *,
    machine: GpuMachine,
) -> Lowered:
    """Return the verified loop-IR function of a plan for a device, with every buffer and barrier in its place. `in_order` is told the
    loops while they still mean what they say when run one iteration after the other: before threads have buffers and instructions of their
    own.

    Raises CompileError S0220 at a directive of `schedule`, where that is known, when loops cannot run where it binds them."""
    lowered = lower(plan, symbol)
    lowered = replace(lowered, function=without(lowered.function, AnyOrder))
    try:
        function = _whole(plan, lowered)
        in_order(replace(lowered, function=function))
        function = prepare(_filled(function), machine.warp)
        function = _shared(pipeline_copies(_kept(function), machine.warp))
        function = with_barriers(function, machine.warp)
        launches(function, machine.warp)
    except Unfit as refused:
        raise unfit(refused, schedule) from None
    verify(function)
    prove_bounds(function, lowered.given)
    function = _checked_by_threads(function, lowered, machine)
    if dump is not None:
        dump("loops", show_loops(function))
    return replace(lowered, function=function)


def _checked_by_threads(function: Function, lowered: Lowered, machine: GpuMachine) -> Function:
    """Return a function that is proven to keep its bounds with its checks over threads: what they are proven by are its loops."""
    made, checks = spread_checks(function, machine.threads)
    if made == function:
        return function
    prove_bounds(replace(made, body=checks), lowered.given)
    made = simplify(made)
    verify(made)
    return made


def _whole(plan: Plan, lowered: Lowered) -> Function:
    """Return the simplified loops, those of a thread as far as data let them go, blocks in clusters and persistent ones, tiles at the edges
    run to their ends where nobody sees it."""
    function = simplify(without_unread(lowered.function))
    pinned = pinned_in_threads(function)
    function = blocks_outside(function if pinned == function else simplify(pinned))
    function = contract(function) if plan.program.mode == "fast" else function
    check_clusters(function)
    return whole(linearize(make_persistent(function)), strict=plan.program.mode == "strict")


def _shared(function: Function) -> Function:
    """Return a function with the boxes that the blocks of a cluster share. Raises Unfit for what is not the same for all of them, and for
    what cannot be shared."""
    function = share_copies_in_cluster(function)
    apart = differing(function)
    if apart is not None:
        notes = {buffer.name: note for buffer, note in noted_buffers(Multicast, *function.body)}
        blamed = (notes[name] for name in (*apart.names, *notes) if name in notes)
        raise Unfit(apart.reason, *apart.names, note=next(blamed, None))
    return function


def _filled(function: Function) -> Function:
    """Return a function whose edges are as they are to be. Raises CompileError S0222 where a loop around sums ends early that was to go on
    over zeros."""
    left = edges(function)
    for loop, edge in noted_loops(Edge, *function.body):
        if edge.how == "zfill" and loop.var in left:
            asked = origin_of(edge)
            title = f"`{asked.about}` cannot go on over zeros"
            help_ = "sums can that read nothing but copies for all threads of a block (`cache … in shared`), and add nothing for zeros"
            raise error("S0222", title, asked.directive.span, help=help_)
    return without(function, Edge)


def _kept(function: Function) -> Function:
    """Return a function whose buffers are where they are to be. Raises CompileError S0219 where one is not."""
    for buffer, kept in noted_buffers(Kept, *function.body):
        if buffer.space != kept.place:
            asked, space = origin_of(kept), _SPACES.get(buffer.space, buffer.space)
            title = f"`{asked.about}` cannot be kept in {kept.memory}: it is in {space}"
            help_ = (
                "in registers lies what one thread alone touches, at places that unrolled loops number: its subscripts are sums of loops"
            )
            help_ += " bound to threads and of unrolled or vector loops, the same at every use"
            raise error("S0219", title, asked.directive.span, help=help_)
    return without(function, Kept)


_SPACES = {"shared": "shared memory", "stack": "slow memory of each thread", "heap": "the memory of the device"}


def device_text(lowered: Lowered, dump: Dump | None = None, schedule: Schedule | None = None, *, machine: GpuMachine) -> Kernels:
    """Return the kernels of a function as text for a device. Raises CompileError S0220 for what is not supported yet in kernels."""
    try:
        kernels = render(launches(lowered.function, machine.warp))
    except Unfit as refused:
        raise unfit(refused, schedule) from None
    if dump is not None:
        dump(machine.target, kernels.text)
    return kernels


def unfit(refused: Unfit, schedule: Schedule | None) -> CompileError:
    """Return the error for loops that cannot run where `schedule` binds them: at the directive whose note cannot be carried out, or at one
    that names one of them."""
    if refused.note is not None:
        directive = origin_of(refused.note).directive
        return error(TABLE[directive.name].refused, refused.reason, directive.span)
    directives = schedule.directives if schedule is not None else ()
    blamed = [d for d in directives if any(_is_about(operand, name) for operand in _operands(d) for name in refused.names)]
    blamed = [d for d in blamed if d.name == "bind"] or blamed or [d for d in directives if d.name == "bind"]
    return error("S0220", refused.reason, blamed[-1].span if blamed else NOWHERE)


def _operands(directive: syntax.Directive) -> list[str]:
    return [name.replace(".", "_") for name in (*map(show, directive.operands), *directive.results)]


def _is_about(operand: str, name: str) -> bool:
    """Tell whether a name of the IR is made from what stands in a schedule: `y_ko_1` from `ko` or `y.ko`."""
    return name == operand or name.endswith(f"_{operand}") or name.startswith(f"{operand}_") or f"_{operand}_" in name
