"""Prove the schedules of a file where they are written: for the operator with its own sizes as symbols.

A schedule that only makes sense for known sizes (it fuses loops, or has directives with conditions on sizes) is proven for samples of them
instead; where it has no conditions and one of the samples refuses it, that is a warning. Whether an operator of any
element type computes what an instruction does is seen where it is called. A refusal can be *replayed*:
the refused order is run on small arrays, watched, and what comes out wrong is added to the message. Not so on a device, whose blocks and
threads one after the other show nothing wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from polyhedral import affine
from polyhedral.expr import Cond, Int
from tensorlang.check.definition import Representative, representative
from tensorlang.check.module import Module
from tensorlang.diagnostics import CompileError, Diagnostic, error
from tensorlang.policy.complete import completed, is_partial
from tensorlang.policy.machine import Machine
from tensorlang.policy.select import conditional, read
from tensorlang.replay import replay
from tensorlang.schedule.cases import MOST_CASES, EveryCase, as_chosen, fixed_in, is_empty
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as sx
from tensorlang.targets import served
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import substitute_sizes

SAMPLES = (37, 512)
"""What sizes are where a schedule wants numbers: no multiple of any tile, or else one of every."""


def prove_schedules(module: Module, *, replaying: bool = False) -> list[Diagnostic]:
    """Return why schedules of the module's own are refused, or W0202 where that is so for some sizes; with `replaying`, also what they
    would have computed. Schedules of roles, and of operators that need attributes nobody can guess, are proven where they are used."""
    out: list[Diagnostic] = []
    for written in module.schedules[: module.declared_schedules]:
        if written.role is None and written.operator in module.operators:
            found = representative(module, written.operator)
            if found is not None:
                out += _refusals_of_each(module, written, found, replaying)
    return out


def _refusals_of_each(module: Module, written: sx.Schedule, of: Representative, replaying: bool) -> list[Diagnostic]:
    """Return why a schedule is refused on the first of the targets that it is for which refuses it, for all sizes rather than for some."""
    found = [_refusals(module, replace(written, target=target.name), of, replaying) for target in served(written.target)]
    return min(filter(None, found), key=lambda refusals: refusals[0].severity, default=[])


def _refusals(module: Module, written: sx.Schedule, of: Representative, replaying: bool) -> list[Diagnostic]:
    program = replace(of.program, context=affine.conj(of.program.context, *_known(written, of.program)))
    refused: CompileError | None = None
    tried: list[tuple[Program, Schedule]] = []
    legal, partly = list[int](), dict[int, Diagnostic]()
    for n in (None, *SAMPLES):
        candidate = program if n is None else substitute_sizes(program, {s: Int(n) for s in program.sizes})
        reading: list[tuple[Program, Schedule]] = []
        try:
            for case, schedule in _cases(module, written, candidate, of.attrs):
                whole = completed(case, schedule, Machine(target="cpu")).schedule if is_partial(schedule) else schedule
                reading.append((case, whole))
                proven(case, whole, advised=False, blamed=False)
            if n is None:
                return []
            legal.append(n)
        except CompileError as refusal:
            if n is not None and not is_empty((), (), candidate.context):
                partly[n] = refusal.diagnostics[0]
            refused, tried = refusal, reading[-1:]
            if reading and any(d.code.startswith("S03") for d in refusal.diagnostics):
                refused = _told(refusal, reading[-1:])
                watched = replaying and written.target == "cpu"
                return _replayed(refused, *reading[-1]) if watched else list(refused.diagnostics)
    if legal:
        return [] if conditional(module, written) else [_refused_at(n, d, program, legal[0]) for n, d in partly.items()]
    refused = refused and _told(refused, tried)
    generic = bool(module.operators[written.operator].generics)
    return [d for d in refused.diagnostics if not (generic and d.code == "S0215")] if refused is not None else []


def _refused_at(n: int, refusal: Diagnostic, program: Program, legal: int) -> Diagnostic:
    """Return W0202: with sizes of `n` a schedule is refused, with sizes of `legal` it is not."""
    refused, proven = (", ".join(f"{size} = {number}" for size in program.sizes) for number in (n, legal))
    note = f"with {refused} the schedule is refused ({refusal.code}), with {proven} it is legal"
    title = f"this schedule is not for all sizes: {refusal.title}"
    return replace(refusal, code="W0202", title=title, notes=(*refusal.notes, note), edits=(), severity="warning")


def _told(refusal: CompileError, tried: Sequence[tuple[Program, Schedule]]) -> CompileError:
    """Return the refusal of a schedule that was `tried`, if one was read at all, with the directive to blame and what cures it."""
    try:
        for program, schedule in tried:
            proven(program, schedule)
    except CompileError as told:
        return told
    return refusal


def _cases(module: Module, written: sx.Schedule, program: Program, attrs: Mapping[str, object]) -> Iterator[tuple[Program, Schedule]]:
    """Yield each case of a schedule with the program for its sizes: one alone, where it has no cases."""
    every = EveryCase()
    for _ in range(MOST_CASES):
        chosen = read(module, written, program, attrs=attrs, choose=every)
        fixed = fixed_in(chosen.assumed)
        if is_empty(chosen.assumed, program.sizes, program.context):
            pass
        elif fixed:
            known = substitute_sizes(program, {name: Int(n) for name, n in fixed.items() if name in program.sizes})
            yield known, read(module, written, known, attrs=attrs, choose=as_chosen(chosen.assumed)).schedule
        else:
            yield program, chosen.schedule
        if not every.more():
            return
    title = f"this schedule has more than {MOST_CASES} cases"
    raise error("S0107", title, written.span, help="`specialize` fewer conditions, or write several schedules with guards")


def _replayed(refusal: CompileError, program: Program, schedule: Schedule) -> list[Diagnostic]:
    seen = replay(program, schedule)
    note = f"replayed: {seen}" if seen is not None else "replayed: these inputs come out right, by chance of their values"
    return [replace(d, notes=(*d.notes, note)) for d in refusal.diagnostics]


def _known(written: sx.Schedule, program: Program) -> Iterator[Cond]:
    """Yield what the guards in the header say of sizes: comparisons of a size with a number."""
    for guard in written.guards:
        match guard:
            case sx.Compare((sx.Id(name), sx.Number(text)), (("<" | "<=" | ">" | ">=" | "==") as op,)) if name in program.sizes:
                yield affine.compare(op, name, int(text))
            case _:
                pass
