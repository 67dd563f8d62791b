"""A schedule on a graphics processor for a program that nobody scheduled, chosen from the shape of its equations.

    rows            several tensors that agree on their leading axes: long ones (softmax, layer norm, a long sum and its parts) have a block
                    for each row, its elements and its partial results spread over the threads; short ones, and elements of tensors that
                    are made of each other one by one, a thread for each
    recurrence      the loops that carry nothing over blocks and threads, the others in order
    anything else   a thread for each element, or for some neighbours

What comes out is an ordinary schedule: it prints in the language, can be pasted and edited, and is proven like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt, prod

from polyhedral.deps import dependences
from polyhedral.expr import Name
from polyhedral.order import parallel_loops
from tensorlang.diagnostics import CompileError
from tensorlang.policy.cpu.nests import folded
from tensorlang.policy.deriver import Deriver, deriver_of, device_of, is_local, reads_itself, with_factors_apart
from tensorlang.policy.gpu.access import (
    ENOUGH,
    UNROLLED,
    is_across,
    is_by_threads,
    is_shared,
    is_too_long,
    shared_by,
    stored_bytes,
    terms_of,
)
from tensorlang.policy.gpu.attention import derive_online
from tensorlang.policy.gpu.choice import cut
from tensorlang.policy.gpu.forms import forms
from tensorlang.policy.groups import FusionGroup, agreement, fusion_groups, recurs
from tensorlang.policy.machine import GpuMachine, Machine
from tensorlang.schedule.apply import apply
from tensorlang.schedule.check import proven
from tensorlang.schedule.flattened import flattened
from tensorlang.schedule.plan import Storage
from tensorlang.schedule.recurrence import legal_order
from tensorlang.schedule.rfactor import name_of, rfactor
from tensorlang.schedule.schedule import Instruction, Schedule
from tensorlang.schedule.shape import extents, is_product
from tensorlang.tensor.absorb import absorbed
from tensorlang.tensor.idioms import online_of
from tensorlang.tensor.lift import lift
from tensorlang.tensor.live_out import store_together
from tensorlang.tensor.nodes import Call, Definition, Dynamic, Program, Read, Reduce
from tensorlang.tensor.simplify import can_inline, inline
from tensorlang.tensor.walk import components, definers, definition_reads, nodes, reads, reduces

LONG = 64
"""A reduction of at least so many elements is shared by threads, where there are not enough of them otherwise."""
STRETCH = 8192
"""What one block sums up of a reduction to few elements."""
LEAST_TERMS = 16
"""That a thread combines of a reduction, where many share it."""
MOST_REPEATED = 500
"""Operations that are computed again, wherever they are needed, rather than kept in the memory of the device."""
LAUNCHES = 2048
"""Launches of a recurrence at most, and"""
LAUNCHED = 4096
"""elements of each at least: what one block does before the next could begin, and"""
ELEMENT = 16
"""terms of a sum that take as long as what else is done for an element."""
NO_STEPS: Mapping[str, str] = {}
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
            _recurrence(d, definition)
        else:
            _elements(d, definition, definition.axes)
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
    return _in_parts(_by_lanes(_stretched(_again(_beside(_finished(d))))))


def derive_device_group(d: Deriver, group: FusionGroup) -> Schedule:
    """Return the derived directives for one group alone."""
    alone = replace(d, schedule=Schedule(d.program.name, d.schedule.target, instructions=d.schedule.instructions))
    _derive_group(alone, group)
    return alone.schedule


def _derive_group(d: Deriver, group: FusionGroup) -> None:
    if group.online is not None:
        d.add(derive_online(d.schedule, d.program, group.online))
        return
    if group.depth and not recurs(d.program, group.head):
        if is_by_threads(d, group):
            _points(d, group)
            return
        if all(_sizes(group.head)[: group.depth]) and any(is_shared(d, m, group.depth) for m in group.members):
            _rows(d, group)
            return
    for definition in group.members:
        if recurs(d.program, definition):
            _recurrence(d, definition)
        else:
            _elements(d, definition, definition.axes)


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


def _sizes(definition: Definition) -> list[int | None]:
    sizes = extents(definition)
    return [sizes[a] for a in definition.axes]


def _stretched(d: Deriver) -> Deriver:
    """Return the state with long reductions of few elements in partial results, one for each stretch."""
    for definition in d.program.definitions:
        count = prod(e if e is not None else ENOUGH for e in _sizes(definition))
        if reads_itself(definition) or recurs(d.program, definition) or any(forms(d, definition)):
            continue
        for reduce in (r for p in definition.pieces for r in reduces(p.value)):
            length = _stretch(d, definition, reduce, count)
            d = d if length is None else _factored(d, definition, *length, chunked=True, separate=True)
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
        count = prod(e if e is not None else ENOUGH for e in _sizes(definition))
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
        made = rfactor(d.program, *found, chunked=True) if found is not None else ""
        if found is None or isinstance(made, str):
            continue
        known = {x.tensors[0].name for x in d.program.definitions}
        part = next(x for x in made.definitions if x.tensors[0].name not in known)
        name, shape = part.tensors[0].name, part.tensors[0].shape
        dims, sizes = (part.axes[-1], *part.axes[:-1]), (shape[-1], *shape[:-1])
        layouts = {**d.layouts, name: Storage(tuple(map(Name, dims)), sizes)}
        schedule = d.schedule.rfactor(*found, chunked=True).layout(name, dims)
        d = replace(deriver_of(made, d.machine, layouts, d.constants, schedule), separate=d.separate | {name})
    return d


# ---------------------------------------------------------------- a thread for each element


@dataclass(frozen=True, slots=True)
class _Threads:
    """The loop that threads run, and, where each has several neighbours, the loop over these."""

    loop: str
    lanes: str | None = None


def _elements(
    d: Deriver, definition: Definition, axes: Sequence[str], *, neighbours: bool = True, steps: Mapping[str, str] = NO_STEPS
) -> _Threads | None:
    """Give the elements of a definition to threads, and several neighbours to each where there are enough and `neighbours` says so. The
    loops of `steps`, by their axes, stand around, in that order. Return the loops of a thread, or None where there is one element or
    none."""
    name = definition.tensors[0].name
    sizes = extents(definition)
    wanted = [a for a in axes if sizes[a] != 1]
    if not wanted:
        _combine(d, definition)
        return None
    if 0 in _sizes(definition):
        return None
    others = [a for a in definition.axes if a not in wanted and a not in steps]
    if any(sizes[a] is None for a in wanted):
        return _symbolic(d, name, wanted, others)
    binders = [b.name for p in definition.pieces for r in reduces(p.value) for b in r.binders]
    count = prod(sizes[a] or 1 for a in wanted)
    last = wanted[-1]
    inner = sizes[last] or 1
    whole = neighbours and last == definition.axes[-1] and not others
    lanes = next((n for n in (4, 2) if inner % n == 0 and count // n >= ENOUGH // 2 and whole), 1)
    schedule = d.schedule
    if lanes > 1:
        schedule = schedule.split(f"{name}.{last}", lanes, (f"{last}.o", f"{last}.v"))
        wanted[-1] = f"{last}.o"
        if binders and len(definition.pieces) == 1:
            schedule = schedule.order(*steps.values(), *(f"{name}.{loop}" for loop in (*wanted, *binders, f"{last}.v")))
    if others or (steps and list(definition.axes) != [*steps, *axes]):
        schedule = schedule.order(*steps.values(), *(f"{name}.{a}" for a in (*wanted, *others)))
    loop = wanted[0]
    for k, inner_loop in enumerate(wanted[1:]):
        schedule = schedule.fuse(f"{name}.{loop}", f"{name}.{inner_loop}", f"all{k}")
        loop = f"all{k}"
    if lanes > 1:
        schedule = schedule.vectorize(f"{name}.{last}.v")
    # What does not fill a block is one of as many threads; where each walks through a recurrence, as many blocks as there can be.
    threads = _spread(device_of(d), count) if any(sizes[a] != 1 for a in others) else d.machine.threads
    if count // lanes <= threads:
        d.add(schedule.bind(f"{name}.{loop}", to="thread"))
        return _Threads(f"{name}.{loop}")
    schedule = schedule.split(f"{name}.{loop}", threads, ("block", "item"))
    d.add(schedule.bind(f"{name}.block", f"{name}.item", to=("block.x", "thread")))
    return _Threads(f"{name}.item", f"{name}.{last}.v" if lanes > 1 else None)


def _spread(machine: GpuMachine, count: int) -> int:
    """Return how many threads a block has at least, so that there are as many blocks as the device runs at once."""
    threads = machine.threads
    while threads > machine.warp and -(-count // threads) < machine.blocks:
        threads //= 2
    return threads


def _symbolic(d: Deriver, name: str, axes: Sequence[str], others: Sequence[str]) -> _Threads:
    """Bind the last three axes to the grid, the innermost in blocks of threads; what is left, and `others`, are walked inside."""
    last = axes[-1]
    places = ("block.z", "block.y")[-len(axes[:-1]) :] if axes[:-1] else ()
    outer = [f"{name}.{a}" for a in axes[:-1][-len(places) :]] if places else []
    inside = [f"{name}.{a}" for a in (*axes[: len(axes) - 1 - len(outer)], *others)]
    schedule = d.schedule.split(f"{name}.{last}", d.machine.threads, ("block", "item"))
    schedule = schedule.order(*outer, f"{name}.block", f"{name}.item", *inside)
    schedule = schedule.bind(f"{name}.block", f"{name}.item", to=("block.x", "thread"))
    d.add(schedule.bind(*outer, to=places) if outer else schedule)
    return _Threads(f"{name}.item")


def _points(d: Deriver, group: FusionGroup) -> None:
    """Give the rows of a group to threads: what a thread needs of the other members it computes by itself."""
    head, depth = group.head, group.depth
    others = [m for m in group.members if m is not head]
    single = not any(m.axes[depth:] or any(True for p in m.pieces for _ in reduces(p.value)) for m in group.members)
    threads = _elements(d, head, head.axes[:depth], neighbours=single)
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


# ---------------------------------------------------------------- recurrences


def _recurrence(d: Deriver, definition: Definition) -> None:
    """Give what carries nothing to the grid, where that may stand outside, or inside of steps, each of which is launches of its own; else
    walk in order what does, and share the rest out to the threads of one block. No more steps are kept than are needed."""
    group = next(g for g in components(d.program) if definition in g)
    if definition is not group[0]:
        return
    order = Schedule(d.program.name)
    for member in group:
        order = legal_order(order, d.program, member)
    d.add(replace(d.schedule, directives=(*d.schedule.directives, *order.directives)))
    before = d.schedule
    placed = apply(d.program, order).placed
    free = parallel_loops(placed, dependences(placed.scop))
    axes = [[a for a in member.axes if f"{member.tensors[0].name}.{a}" in free] for member in group]
    if _share(d, group, axes):
        _elements(d, definition, axes[0])
        if _is_legal(d, group):
            _fold(d, group)
            return
    for count in range(1, len(definition.axes)):
        d.schedule = before
        if _in_steps(d, group, axes, count) and _is_legal(d, group):
            _fold(d, group)
            return
    d.schedule = before
    for member in group:
        _one_block(d, member, free)
    if not _is_legal(d, group):
        d.schedule = before
    _fold(d, group)


def _share(d: Deriver, group: Sequence[Definition], axes: Sequence[Sequence[str]]) -> bool:
    """Make one loop of those over each axis that carries nothing, of all that are computed step by step together; tell whether there are
    such axes and they are alike."""
    shapes = [[extents(member)[a] for a in own] for member, own in zip(group, axes, strict=True)]
    if not axes[0] or any(shape != shapes[0] for shape in shapes):
        return False
    for k, axis in enumerate(axes[0] if len(group) > 1 else ()):
        loops = [f"{member.tensors[0].name}.{own[k]}" for member, own in zip(group, axes, strict=True)]
        d.add(d.schedule.together(*loops, into=(axis,)))
    return True


def _in_steps(d: Deriver, group: Sequence[Definition], axes: Sequence[Sequence[str]], count: int) -> bool:
    """Give what carries nothing to the grid inside of the outermost `count` loops that do, of which each iteration is launches of its own;
    tell whether these have enough to do, and are few enough."""
    steps = [[a for a in member.axes if a not in own][:count] for member, own in zip(group, axes, strict=True)]
    work = 0
    for member, own, outer in zip(group, axes, steps, strict=True):
        sizes, terms = extents(member), terms_of(member, len(member.axes))
        many, each = (prod(sizes[a] or LAUNCHES for a in some) for some in (outer, {*member.axes} - {*outer}))
        if not own or len(outer) != count or None in _sizes(member) or terms is None or many * len(group) > LAUNCHES:
            return False
        work += each * (terms + ELEMENT)
    if work < LAUNCHED * ELEMENT * len(group):
        return False
    # All share the loops of the first one's steps.
    loops = [f"{group[0].tensors[0].name}.{a}" for a in steps[0]]
    for member, own, outer in zip(group, axes, steps, strict=True):
        around, rows = dict(zip(outer, loops, strict=True)), prod(extents(member)[a] or 1 for a in own)
        whole = FusionGroup(member, (member,), len(member.axes))
        if len(own) + count == len(member.axes) and is_shared(d, member, len(member.axes)) and not is_by_threads(d, whole, rows):
            d.add(d.schedule.order(*loops, *(f"{member.tensors[0].name}.{a}" for a in own)))
            _by_blocks(d, member, own)
            _combine(d, member)
        else:
            _elements(d, member, own, neighbours=False, steps=around)
    return True


def _fold(d: Deriver, group: Sequence[Definition]) -> None:
    """Keep as few steps of tensors that nobody outside sees as do."""
    before = d.schedule
    local = [member for member in group if is_local(d, member)]
    placed = apply(d.program, d.schedule, d.layouts) if local else None
    for member in local:
        assert placed is not None
        for name, axis, count in tuple(folded(placed, member, member.axes)):
            d.add(d.schedule.fold(name, axis, count))
    if d.schedule != before and not _is_legal(d, group):
        d.schedule = before


def _is_legal(d: Deriver, group: Sequence[Definition]) -> bool:
    """Tell whether what is said of one group so far is legal where all others run in an order that their dependences allow."""
    order = Schedule(d.program.name)
    for definition in d.program.definitions:
        order = order if definition in group else legal_order(order, d.program, definition)
    try:
        proven(d.program, replace(d.schedule, directives=(*d.schedule.directives, *order.directives)), advised=False)
    except CompileError:
        return False
    return True


def _one_block(d: Deriver, definition: Definition, free: set[str]) -> None:
    """Spread the innermost of the axes that carry nothing over threads."""
    name, sizes = definition.tensors[0].name, extents(definition)
    inner = next((a for a in reversed(definition.axes) if f"{name}.{a}" in free and sizes[a] != 1), None)
    if inner is None or 0 in _sizes(definition):
        return
    extent = sizes[inner]
    if extent is not None and extent <= d.machine.threads:
        d.add(d.schedule.bind(f"{name}.{inner}", to="thread"))
        return
    split = d.schedule.split(f"{name}.{inner}", d.machine.threads, (f"{inner}.o", f"{inner}.t"))
    d.add(split.bind(f"{name}.{inner}.t", to="thread"))


# ---------------------------------------------------------------- a block for each row


def _rows(d: Deriver, group: FusionGroup) -> None:
    head, depth = group.head, group.depth
    loop = _by_blocks(d, head, head.axes[:depth])
    team = max((shared_by(device_of(d), extent) for m in group.members for extent in _lengths(m, depth)), default=device_of(d).warp)
    for definition in group.members:
        if definition is not head:
            d.add(d.schedule.at(definition.tensors[0].name, loop))
        _row(d, definition, depth, team)


def _by_blocks(d: Deriver, definition: Definition, axes: Sequence[str]) -> str:
    """Give each point of some axes to a block, and return the loop over these."""
    name, loop = definition.tensors[0].name, axes[0]
    schedule = d.schedule
    for k, axis in enumerate(axes[1:]):
        schedule = schedule.fuse(f"{name}.{loop}", f"{name}.{axis}", f"row{k}")
        loop = f"row{k}"
    d.add(schedule.bind(f"{name}.{loop}", to="block.x"))
    return f"{name}.{loop}"


def _combine(d: Deriver, definition: Definition, team: int | None = None) -> None:
    """Let threads share the reductions of a definition: each takes every `team`-th element of all that its innermost range has."""
    name, sizes = definition.tensors[0].name, extents(definition)
    found = [r for p in definition.pieces for r in reduces(p.value)]
    for reduce in found:
        binders = [b.name for b in reduce.binders]
        binder = binders[-1] if binders else ""
        extent = sizes.get(binder)
        if extent is None or extent < 2 or reduce.reducer.kind is None or d.program.mode == "strict":
            continue
        threads, around = team or shared_by(device_of(d), extent), [f"{name}.{b}" for b in binders[:-1]]
        schedule = d.schedule
        if extent <= threads:
            schedule = schedule.order(f"{name}.{binder}", *around) if around else schedule
            d.add(schedule.bind(f"{name}.{binder}", to="thread"))
            continue
        schedule = schedule.split(f"{name}.{binder}", threads, (f"{binder}.o", f"{binder}.t"))
        schedule = schedule.order(f"{name}.{binder}.t", *around, f"{name}.{binder}.o")
        d.add(schedule.bind(f"{name}.{binder}.t", to="thread"))


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
        _combine(d, definition, team)
        return
    last = inner[-1]
    extent = sizes[last]
    binders = [b.name for p in definition.pieces for r in reduces(p.value) for b in r.binders]
    if 0 in _sizes(definition):
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
