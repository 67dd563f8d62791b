"""A schedule on a graphics processor for a program that nobody scheduled, chosen from the shape of its equations.

    rows            several tensors that agree on their leading axes: long ones (softmax, layer norm, a long sum and its parts) have a block
                    for each row, its elements and its partial results spread over the threads; short ones, and elements of tensors that
                    are made of each other one by one, a thread for each
    recurrence      the loops that carry nothing over blocks and threads, the others in order
    scattered sum   of sums whose terms go where data say: threads for what data do not name and for parts of the terms
    anything else   a thread for each element, or for some neighbours

What comes out is an ordinary schedule: it prints in the language, can be pasted and edited, and is proven like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isqrt, prod

from polyhedral.expr import Name
from tensorlang.policy.deriver import Deriver, deriver_of, device_of, reads_itself, with_factors_apart
from tensorlang.policy.gpu.access import (
    ENOUGH,
    UNROLLED,
    is_across,
    is_by_threads,
    is_shared,
    is_too_long,
    shape_of,
    shared_by,
    stored_bytes,
)
from tensorlang.policy.gpu.attention import derive_online
from tensorlang.policy.gpu.choice import cut
from tensorlang.policy.gpu.forms import forms
from tensorlang.policy.gpu.recurrences import derive_recurrence
from tensorlang.policy.gpu.scattered_sums import ScatteredSum, scatter_parts, scattered_alone
from tensorlang.policy.gpu.threads import add_blocks, add_elements, share_sums
from tensorlang.policy.groups import FusionGroup, agreement, fusion_groups, recurs
from tensorlang.policy.machine import GpuMachine, Machine
from tensorlang.schedule.blocked_scan import scanned_in_parts
from tensorlang.schedule.flattened import flattened
from tensorlang.schedule.plan import Storage
from tensorlang.schedule.rfactor import name_of, rfactor
from tensorlang.schedule.scan import scanned
from tensorlang.schedule.schedule import Instruction, Schedule
from tensorlang.schedule.shape import extents, is_product
from tensorlang.tensor.absorb import absorbed
from tensorlang.tensor.idioms import online_of
from tensorlang.tensor.lift import lift
from tensorlang.tensor.live_out import store_together
from tensorlang.tensor.nodes import Call, Definition, Dynamic, Program, Read, Reduce
from tensorlang.tensor.prove import problems_since
from tensorlang.tensor.simplify import can_inline, inline
from tensorlang.tensor.walk import definers, definition_reads, nodes, reads, reduces

LONG = 64
"""A reduction of at least so many elements is shared by threads, where there are not enough of them otherwise."""
STRETCH = 8192
"""What one block sums up of a reduction to few elements."""
LEAST_TERMS = 16
"""That a thread combines of a reduction, where many share it."""
LONG_CHAIN = 256
"""Steps of a recurrence that take longer, one after the other, than two more launches."""
IN_A_PART = 32
"""Elements that a thread goes through in a chain: of four bytes, those of a line."""
MOST_REPEATED = 500
"""Operations that are computed again, wherever they are needed, rather than kept in the memory of the device."""
MOST_READ = 4
"""Tensors that the elements of a result may be made of, where they are computed again."""


def derive_device(
    program: Program,
    layouts: dict[str, Storage] | None = None,
    instructions: tuple[Instruction, ...] = (),
    *,
    machine: GpuMachine,
    plain: bool = False,
) -> Schedule:
    """Return a schedule for `program`, whose loops are bound to blocks and threads. `instructions` are those it may tensorize with, where
    warps of `machine` multiply matrices. `plain`: every tensor by itself in the memory of the device, a thread for each element, which asks
    a device for nothing but threads."""
    if plain:
        return _plain(program, machine, layouts or {})
    d = device_deriver(program, machine, layouts or {})
    d.add(replace(d.schedule, instructions=instructions if machine.matrices else ()))
    for group in fusion_groups(d, vectors=False):
        made = derive_device_group(d, group)
        d.add(replace(d.schedule, directives=(*d.schedule.directives, *made.directives)))
    return d.schedule


def _plain(program: Program, machine: Machine, layouts: Mapping[str, Storage]) -> Schedule:
    d = deriver_of(lift(program), machine, layouts, frozenset(), Schedule(program.name, machine.target))
    for definition in d.program.definitions:
        if recurs(d.program, definition):
            derive_recurrence(d, definition)
        else:
            add_elements(d, definition, definition.axes)
    return d.schedule


def device_deriver(program: Program, machine: Machine, layouts: Mapping[str, Storage]) -> Deriver:
    """Return the state of deriving before any group is scheduled: long reductions of few elements are cut into stretches."""
    lifted = lift(program)
    schedule = Schedule(program.name, machine.target)
    if online_of(lifted) is not None:
        return deriver_of(lifted, machine, layouts, frozenset(), schedule)
    lifted, schedule = with_factors_apart(lifted, schedule)
    flat, stored = flattened(lifted, layouts, products=True)
    d = deriver_of(flat, machine, stored, frozenset(), schedule if flat == lifted else schedule.flatten())
    return _in_parts(_by_lanes(_over_blocks(_stretched(_scattered(_again(_beside(_finished(_scanned(d)))))))))


def derive_device_group(d: Deriver, group: FusionGroup) -> Schedule:
    """Return the derived directives for one group alone."""
    alone = replace(d, schedule=Schedule(d.program.name, d.schedule.target, instructions=d.schedule.instructions))
    _derive_group(alone, group)
    return alone.schedule


def _derive_group(d: Deriver, group: FusionGroup) -> None:
    if group.online is not None:
        d.add(derive_online(d.schedule, d.program, group.online))
        return
    scattered = scattered_alone(d, group.head) if len(group.members) == 1 else None
    if scattered is not None:
        add_elements(d, group.head, scattered.free, terms=scattered.binders)
        return
    if group.depth and not recurs(d.program, group.head):
        if is_by_threads(d, group):
            _points(d, group)
            return
        if all(shape_of(group.head)[: group.depth]) and any(is_shared(d, m, group.depth) for m in group.members):
            _rows(d, group)
            return
    for definition in group.members:
        if recurs(d.program, definition):
            derive_recurrence(d, definition)
        else:
            add_elements(d, definition, definition.axes)


def _scanned(d: Deriver) -> Deriver:
    """Return the state with reductions that grow along a long axis as running ones; these, and recurrences that combine each element with
    the one before, in stretches and stretches of stretches where there are too few side by side to fill the device."""
    for definition in d.program.definitions:
        name, sizes = definition.tensors[0].name, extents(definition)
        for axis in definition.axes:
            extent, beside = sizes[axis] or 0, prod(ENOUGH if sizes[a] is None else sizes[a] or 1 for a in definition.axes if a != axis)
            if extent < LONG_CHAIN:
                continue
            lengths = _part_lengths(extent) if beside < ENOUGH else []
            made = scanned_in_parts(d.program, name, axis, lengths) if lengths else scanned(d.program, name, axis)
            if isinstance(made, str) and lengths:
                made, lengths = scanned(d.program, name, axis), []
            if isinstance(made, Program) and not problems_since(d.program, made):
                return _scanned(deriver_of(made, d.machine, d.layouts, d.constants, d.schedule.scan(f"{name}.{axis}", to=lengths)))
    return d


def _part_lengths(extent: int) -> list[int]:
    """Return how long the stretches of a chain of `extent` elements are, those of what is before these, and so on."""
    found = list[int]()
    while extent >= LONG_CHAIN:
        found.append(IN_A_PART)
        extent = -(-extent // IN_A_PART)
    return found


def _finished(d: Deriver) -> Deriver:
    """Return the state with products finished where they are made: what is done to each element of one alone happens on its accumulator."""
    for definition in d.program.definitions:
        name = definition.tensors[0].name
        if not is_product(definition) or name in d.program.results or _is_step(d.program, name):
            continue
        program, between = _by_one(d.program, definition)
        made = absorbed(program, definers(program)[name])
        if made is not None:
            return _finished(deriver_of(made, d.machine, d.layouts, d.constants, d.schedule.inline(*between, name)))
    return d


def _is_step(program: Program, name: str) -> bool:
    """Tell whether a recurrence reads a tensor: what is computed before it in one product would be in its steps."""
    return any(name in definition_reads(x) and recurs(program, x) for x in program.definitions)


def _by_one(program: Program, definition: Definition) -> tuple[Program, list[str]]:
    """Return the program with one reader of a tensor, if that is possible, and what was written into the others for that: `g` of
    `g = exp(t); y = t * g`, which is made of an element of it and read once."""
    name, inside = definition.tensors[0].name, list[str]()
    while sum(name in definition_reads(x) for x in program.definitions) > 1:
        every = [r.tensor for x in program.definitions for p in x.pieces for r in reads(p.value)]
        between = next((x for x in program.definitions if name in definition_reads(x) and _is_between(program, x, definition, every)), None)
        if between is None:
            break
        program = inline(program, between.tensors[0].name)
        inside.append(between.tensors[0].name)
    return program, inside


def _is_between(program: Program, reader: Definition, read: Definition, every: Sequence[str]) -> bool:
    """Tell whether a reader of a tensor is made of its elements one by one, and `every` read of the program has it once."""
    own = reader.tensors[0].name
    static = not any(isinstance(s, Dynamic) for x in program.definitions for p in x.pieces for r in reads(p.value) for s in r.index)
    alone = own not in program.results and every.count(own) == 1 and can_inline(reader)
    return static and alone and agreement(reader, read) == len(read.axes) == len(reader.axes)


def _beside(d: Deriver) -> Deriver:
    """Return the state with results that rows are made of stored where these rows are finished, in one pass over what they are made of."""
    for definition in d.program.definitions:
        name = definition.tensors[0].name
        readers = [x for x in d.program.definitions if name in definition_reads(x)]
        hosts = [
            x for x in readers if x.tensors[0].name in d.program.results and x.axes and agreement(x, definition) == len(definition.axes)
        ]
        if name not in d.program.results or len(readers) < 2 or len(hosts) != 1 or not _is_cheap(definition):
            continue
        host = hosts[0].tensors[0].name
        made = store_together(d.program, name, host)
        if isinstance(made, str):
            continue
        changed = deriver_of(made, d.machine, d.layouts, d.constants, d.schedule.store(name, together_with=host))
        rows = next(c for c in fusion_groups(changed, vectors=False) if c.head.tensors[0].name == host)
        if {x.tensors[0].name for x in readers} <= {m.tensors[0].name for m in rows.members}:
            d = changed
    return d


def _again(d: Deriver) -> Deriver:
    """Return the state with tensors along rows that no block can keep computed again wherever they are read, or, where that cannot be,
    by themselves."""
    for group in fusion_groups(d, vectors=False):
        inner = [m for m in group.members if m is not group.head and m.axes[group.depth :]]
        if not is_too_long(d, group):
            continue
        name = next((m.tensors[0].name for m in inner if can_inline(m) and _may_be_repeated(d.program, m)), None)
        if name is not None:
            return _again(deriver_of(inline(d.program, name), d.machine, d.layouts, d.constants, d.schedule.inline(name)))
        if stored_bytes(inner, group.depth) > device_of(d).shared_bytes:
            return _again(replace(d, separate=d.separate | {m.tensors[0].name for m in inner}))
    return d


def _may_be_repeated(program: Program, definition: Definition) -> bool:
    """Tell whether what a definition says is short enough to be written wherever it is read, at indices known when compiling."""
    name = definition.tensors[0].name
    found = [r for x in program.definitions for p in x.pieces for r in reads(p.value) if r.tensor == name]
    length = sum(1 for p in definition.pieces for _ in nodes(p.value))
    return length * len(found) <= MOST_REPEATED and not any(isinstance(s, Dynamic) for r in found for s in r.index)


def _is_cheap(definition: Definition) -> bool:
    """Tell whether elements are sums and products of a few that are read at indices known when compiling."""
    found = [e for p in definition.pieces for e in nodes(p.value)]
    data = any(isinstance(s, Dynamic) for e in found if isinstance(e, Read) for s in e.index)
    return not data and sum(isinstance(e, Read) for e in found) <= MOST_READ and not any(isinstance(e, Call | Reduce) for e in found)


def _scattered(d: Deriver) -> Deriver:
    """Return the state with sums whose terms go where data say by themselves, in parts where too few threads would go through them."""
    for definition in d.program.definitions:
        found = scatter_parts(d, definition)
        parted = d if found is None else _factored(d, definition, *found[1:], separate=True)
        if found is not None and parted is not d:
            part = next(x for x in parted.program.definitions if x.tensors[0].name in parted.separate - d.separate)
            return _scattered(_part_outside(parted, part) if _fills_warps(d, definition, found[0]) else parted)
    alone = {x.tensors[0].name for x in d.program.definitions if scattered_alone(d, x) is not None}
    return replace(d, separate=d.separate | alone)


def _fills_warps(d: Deriver, definition: Definition, found: ScatteredSum) -> bool:
    """Tell whether the threads of a warp are for neighbours of a sum whose terms go where data say."""
    return bool(found.free) and (extents(definition)[found.free[-1]] or 1) >= device_of(d).warp


def _part_outside(d: Deriver, part: Definition) -> Deriver:
    """Return the state with partial results stored part by part: each is a plane."""
    name, shape = part.tensors[0].name, part.tensors[0].shape
    dims, sizes = (part.axes[-1], *part.axes[:-1]), (shape[-1], *shape[:-1])
    layouts = {**d.layouts, name: Storage(tuple(map(Name, dims)), sizes)}
    made = deriver_of(d.program, d.machine, layouts, d.constants, d.schedule.layout(name, dims))
    return replace(made, separate=d.separate)


def _stretched(d: Deriver) -> Deriver:
    """Return the state with long reductions of few elements in partial results, one for each stretch."""
    for definition in d.program.definitions:
        count = prod(e if e is not None else ENOUGH for e in shape_of(definition))
        if reads_itself(definition) or recurs(d.program, definition) or any(forms(d, definition)) or scattered_alone(d, definition):
            continue
        for reduce in (r for p in definition.pieces for r in reduces(p.value)):
            length = _stretch(d, definition, reduce, count)
            d = d if length is None else _factored(d, definition, *length, chunked=True, separate=True)
    return d


def _over_blocks(d: Deriver) -> Deriver:
    """Return the state with few long rows over all blocks: what is made of their sums, which are computed in stretches, by itself."""
    for group in fusion_groups(d, vectors=False):
        sizes = shape_of(group.head)
        rows, along = (prod(ENOUGH if e is None else e for e in part) for part in (sizes[: group.depth], sizes[group.depth :]))
        if 0 < rows < LONG and along >= 2 * STRETCH:
            d = replace(d, separate=d.separate | {m.tensors[0].name for m in group.members if m is not group.head})
    return d


def _stretch(d: Deriver, definition: Definition, reduce: Reduce, count: int) -> tuple[str, int] | None:
    """Return the range of a reduction for each of `count` elements that is cut, and how long its stretches are, or None where it stays."""
    sizes = extents(definition)
    known = [(sizes[b.name], b.name) for b in reduce.binders]
    if not known or any(e is None for e, _ in known) or reduce.reducer.kind is None:
        return None
    extent, binder = max((e or 0, name) for e, name in known)
    others = prod(e or 1 for e, name in known if name != binder)
    if count >= device_of(d).warp and is_across(d, definition, reduce):
        length = max(LONG, 1 << (extent * count // ENOUGH).bit_length())
        return (binder, length) if count < ENOUGH and extent >= 2 * length else None
    length = max(1, STRETCH // others)
    return (binder, length) if count < LONG and extent >= 2 * length else None


def _by_lanes(d: Deriver) -> Deriver:
    """Return the state with long reductions that threads cannot share, those of several values and by reducers of the program, in partial
    results of interleaved terms, one for each thread, until few are left for one."""
    for definition in d.program.definitions:
        sizes = extents(definition)
        count = prod(e if e is not None else ENOUGH for e in shape_of(definition))
        if count >= ENOUGH or reads_itself(definition) or recurs(d.program, definition):
            continue
        for reduce in (r for p in definition.pieces for r in reduces(p.value)):
            binder = reduce.binders[-1].name if reduce.binders else ""
            extent = sizes.get(binder)
            if reduce.reducer.kind is not None or extent is None or extent <= 4 * LONG or is_across(d, definition, reduce):
                continue
            made = _factored(d, definition, binder, _interleaved(extent, count))
            if made is not d:
                return _by_lanes(made)
    return d


def _interleaved(extent: int, count: int) -> int:
    """Return how many threads share one of `count` reductions: as many as there are terms for each then, or, of more terms, as many as fill
    the device."""
    threads = 1 << (isqrt(extent) - 1).bit_length()
    return threads if extent <= ENOUGH else max(threads, 1 << (min(ENOUGH // count, extent // LEAST_TERMS).bit_length() - 1))


def _factored(d: Deriver, definition: Definition, binder: str, by: int, *, chunked: bool = False, separate: bool = False) -> Deriver:
    """Return the state with partial results of a reduction, if it can have any; `separate`: no other tensor is computed with them."""
    called = name_of(d.program, definition, binder)
    made = rfactor(d.program, called, by, chunked=chunked)
    if isinstance(made, str):
        return d
    parts = {x.tensors[0].name for x in made.definitions} - {x.tensors[0].name for x in d.program.definitions} if separate else set()
    schedule = d.schedule.rfactor(called, by, chunked=chunked)
    return replace(deriver_of(made, d.machine, d.layouts, d.constants, schedule), separate=d.separate | parts)


def _in_parts(d: Deriver) -> Deriver:
    """Return the state with the sums of products in parts where blocks would be too few otherwise: each part is a plane of partial results,
    which a second launch adds up."""
    for definition in d.program.definitions if d.program.mode != "strict" else ():
        found = cut(d, definition)
        parted = d if found is None else _factored(d, definition, *found, chunked=True, separate=True)
        if parted is d:
            continue
        d = _part_outside(parted, next(x for x in parted.program.definitions if x.tensors[0].name in parted.separate - d.separate))
    return d


# ---------------------------------------------------------------- a thread for each element


def _points(d: Deriver, group: FusionGroup) -> None:
    """Give the rows of a group to threads: what a thread needs of the other members it computes by itself."""
    head, depth = group.head, group.depth
    others = [m for m in group.members if m is not head]
    single = not any(m.axes[depth:] or any(True for p in m.pieces for _ in reduces(p.value)) for m in group.members)
    threads = add_elements(d, head, head.axes[:depth], neighbours=single)
    if threads is None:
        return
    for definition in others:
        name = definition.tensors[0].name
        schedule = d.schedule.at(name, threads.loop)
        if threads.lanes is not None:
            schedule = schedule.vectorize(f"{name}.{definition.axes[depth - 1]}")
        d.add(schedule)
    for definition in group.members:
        name, sizes = definition.tensors[0].name, extents(definition)
        binders = [b.name for p in definition.pieces for r in reduces(p.value) for b in r.binders]
        short = [loop for loop in (*definition.axes[depth:], *binders) if (sizes[loop] or UNROLLED + 1) <= UNROLLED]
        d.add(d.schedule.unroll(*(f"{name}.{loop}" for loop in short)) if short else d.schedule)


# ---------------------------------------------------------------- a block for each row


def _rows(d: Deriver, group: FusionGroup) -> None:
    head, depth = group.head, group.depth
    loop = add_blocks(d, head, head.axes[:depth])
    team = max((shared_by(device_of(d), extent) for m in group.members for extent in _lengths(m, depth)), default=device_of(d).warp)
    for definition in group.members:
        if definition is not head:
            d.add(d.schedule.at(definition.tensors[0].name, loop))
        _row(d, definition, depth, team)


def _lengths(definition: Definition, depth: int) -> Iterable[int]:
    sizes = extents(definition)
    yield from (sizes[a] or 1 for a in definition.axes[depth:][-1:])
    if len(definition.axes) == depth:
        yield from (sizes[b.name] or 1 for p in definition.pieces for r in reduces(p.value) for b in r.binders[-1:])


def _row(d: Deriver, definition: Definition, depth: int, team: int) -> None:
    """Spread what a block computes of `definition` over `team` threads."""
    name = definition.tensors[0].name
    sizes = extents(definition)
    inner = definition.axes[depth:]
    if not inner:
        share_sums(d, definition, team)
        return
    last = inner[-1]
    extent = sizes[last]
    binders = [b.name for p in definition.pieces for r in reduces(p.value) for b in r.binders]
    if 0 in shape_of(definition):
        return
    if extent is not None and extent <= team:
        d.add(d.schedule.bind(f"{name}.{last}", to="thread"))
        schedule = d.schedule
        for b in binders:
            if (sizes[b] or UNROLLED + 1) <= UNROLLED:
                schedule = schedule.unroll(f"{name}.{b}")
        d.add(schedule)
        return
    schedule = d.schedule.split(f"{name}.{last}", team, (f"{last}.o", f"{last}.t")).bind(f"{name}.{last}.t", to="thread")
    if extent is not None and -(-extent // team) <= UNROLLED:
        schedule = schedule.unroll(f"{name}.{last}.o")
    d.add(schedule)
