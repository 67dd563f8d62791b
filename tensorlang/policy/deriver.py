"""What a derived schedule is made from: the program, the machine, how tensors are stored, and the directives so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from codegen.dtypes import DType, compute_dtype
from polyhedral import affine
from polyhedral.expr import Int
from tensorlang.lower.prefetch import LINE_BYTES
from tensorlang.policy.asked import with_asked_terms
from tensorlang.policy.cpu.values import instructions
from tensorlang.policy.element_types import computed_bytes
from tensorlang.policy.followers import accumulations
from tensorlang.policy.machine import GpuMachine, Machine
from tensorlang.policy.scatters import range_of_terms, scattered_axes
from tensorlang.schedule.flattened import flattened
from tensorlang.schedule.plan import Storage, full, owned
from tensorlang.schedule.rfactor import name_of, rfactor
from tensorlang.schedule.scan import growths, running
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import OPEN_EXTENT, extents, is_product, work_of_definition
from tensorlang.schedule.tables import VALUES, of_byte, tabulated
from tensorlang.schedule.windows import STORED, STORED_IN_ROWS, Window, composed, window_lengths, windows
from tensorlang.syntax import nodes as syntax
from tensorlang.tensor.bands import WORTH_NARROWING, Band, bands, narrowed
from tensorlang.tensor.factorize import Factorized, factorized
from tensorlang.tensor.invariant_axes import invariant_axes, without_axes
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Call, Definition, Program, Reduce, Tensor
from tensorlang.tensor.prove import problems_since
from tensorlang.tensor.searches import Bounded, bisected, bounded
from tensorlang.tensor.terms_apart import parts_apart
from tensorlang.tensor.types import dtype_of, types_of
from tensorlang.tensor.walk import (
    components,
    definers,
    definition_reads,
    index_names,
    is_recurrence,
    nodes,
    reads,
    reduces,
    substitute_sizes,
    tensor_table,
)

PARALLEL_WORK = 16_000
"""Scalar operations below which handing a part to another thread costs more than it saves."""
PRODUCTS_PER_OPERATION = 8
"""How many products and sums of a register tile take as long as one operation elsewhere."""
LONG_ALONE = 64
"""Steps of a running reduction whose additions take as long, one after the other, as all terms of each in vectors."""
LONG_BESIDE_OTHERS = 8
"""The same, where so many run side by side."""
LONG_BESIDE_NEIGHBOURS = 3
"""The same, where those that run side by side also lie so, and a step is taken by vectors that are loaded whole."""
WORTH_COMPOSING = 0.7
"""Of the operations of a window, how many may be left of it where it is made of shorter ones. What windows of rows are made of is kept for
a row, and takes fewer loads where it takes fewer operations: those along a row cross lines."""
FEWEST_LOOKED_UP = 2048
"""Elements, from which on those of a table are few."""
PICKED = 8
"""Vector instructions that picking a vector of elements from a table in registers takes, with its load and store."""
LOOKED_UP = 2.5
"""Vector instructions in whose time one element is looked up in memory: measured, 0.35 ns."""
ROUNDINGS = ("round", "floor", "ceil", "trunc")
"""Functions that are one instruction."""
SEARCH_STEP = 2
"""Vectors of terms that are looked at in the time of a step of a binary search."""
FEWEST_SEARCHES = 16
"""Searches from which on it is worth to ask whether data ascend, which takes as long as one that looks at all."""
WORTH_FACTORIZING = 0.7
"""Of the operations of a reduction, how many may be left of it where factors are taken one by one."""
NARROW_ROWS = 32
"""How many terms of a row of a product lie in a band at most where they are faster added for each row than for a register tile of rows.
Measured, 512 rows of 64 and 512 columns, AVX2 and AVX-512: bands of 17 take 0.5 to 0.9 of the time, of 33 0.6 to 1.3, of 65 1 to 1.3."""
ITERATIONS_PER_THREAD = 32
"""How many iterations a parallel loop shall have for each thread: then their shares differ little, and one that is late costs little."""


@dataclass(slots=True)
class Deriver:
    program: Program
    machine: Machine
    layouts: Mapping[str, Storage]
    constants: frozenset[str]
    schedule: Schedule
    axes: dict[str, tuple[str, ...]]
    separate: frozenset[str] = frozenset()
    """Tensors that are computed by themselves."""
    plain: bool = False
    """Whether loops of sums, pieces and recurrences are left as they are, but for an order that is legal."""
    rewritten: int = 0
    """How many of the directives have made `program` what it is."""
    open_extents: Mapping[str, int] = field(default_factory=dict)
    """Axes and binders, by their full names, whose extents are open: `program` has samples for these, as many iterations."""
    open_rows: frozenset[str] = frozenset()
    """Tensors the length of whose rows is open."""
    multiples: Mapping[str, int] = field(default_factory=dict)
    """Axes, by their full names, whose extents are open, each with a number that divides its extent whatever the sizes are."""
    unknown: frozenset[str] = frozenset()
    """Axes and binders, by their full names, for which there are samples of any sort: their loops cannot be written out."""

    alone: bool = False
    """Whether directives are for one group alone, beside others that are not seen."""
    cut: int | None = None
    """The place of the axis of a group the loop over which is cut into strips when the loops of the group are there."""
    at_once: Mapping[str, int] = field(default_factory=dict)
    """Axes and binders, by their full names, of which loops around take so many elements at a time: of a binder one."""
    beside: dict[tuple[object, ...], Schedule] = field(default_factory=dict, repr=False, compare=False)
    """What recurrences get by themselves, by all that decides it: states that are made of this one know it, too."""

    @property
    def since(self) -> Schedule:
        """Return the directives that are still to be applied to `program`."""
        return replace(self.schedule, directives=self.schedule.directives[self.rewritten :])

    def add(self, schedule: Schedule) -> None:
        """Take a schedule with one more directive, which unrolls no loop that cannot be written out."""
        *before, last = schedule.directives or (None,)
        if last is not None and last.name == "unroll" and self.unknown:
            known = tuple(loop for loop in last.operands if not isinstance(loop, syntax.Id) or loop.name not in self.unknown)
            schedule = replace(schedule, directives=(*before, *((replace(last, operands=known),) if known else ())))
        self.schedule = schedule

    def lanes_of(self, definition: Definition) -> int:
        """Return how many elements of a definition a vector register holds: of 32 bits at least, unless all that is read and computed is
        narrower and lies in rows."""
        lanes = self.machine.lanes(compute_dtype(definition.tensors[0].dtype))
        if self.layouts.keys() & {t.name for t in definition.tensors} or any(r in self.layouts for r in definition_reads(definition)):
            return lanes
        return max(lanes, self.machine.vector_bytes // computed_bytes(self.program)[definition.tensors[0].name])

    def is_open(self, name: str) -> bool:
        """Tell whether a sample stands for the extent of an axis or binder of this name."""
        return any(full.endswith(f".{name}") for full in self.open_extents)

    def settled(self, definition: Definition) -> dict[str, int | None]:
        """Return the extents of a definition's axes and binders; None for those that a sample stands for, and those not known at all."""
        name = definition.tensors[0].name
        return {a: None if n is None or self.open_extents.get(f"{name}.{a}") == n else n for a, n in extents(definition).items()}


def is_local(d: Deriver, definition: Definition) -> bool:
    """Tell whether nobody outside sees what is computed, so that it may be kept for a few steps only."""
    return definition.tensors[0].name not in d.layouts and not any(t.name in d.program.results for t in definition.tensors)


def deriver(
    program: Program,
    machine: Machine,
    layouts: Mapping[str, Storage],
    constants: frozenset[str],
    at: Mapping[str, int] | None = None,
) -> Deriver:
    """Return the state of deriving before any group is scheduled: the program as directives will see it, and the directives for that.
    `at`: samples of open sizes, which every question about how much there is to do is answered for."""
    lifted, schedule = with_factors_apart(lift(program), Schedule(program.name))
    flat, stored = flattened(lifted, layouts)
    start = deriver_of(flat, machine, stored, constants, schedule if flat == lifted else schedule.flatten())
    d = _partial(_narrowed(_tabulated(_composed(_scanned(_bisected(_asked(_hoisted(start))))))))
    d = d if d is start else deriver_of(lift(d.program), machine, d.layouts, constants, d.schedule)  # `apply` lifts it, too
    return sampled(_with_separate(d), at)


def with_factors_apart(program: Program, schedule: Schedule) -> tuple[Program, Schedule]:
    """Return a lifted program with its reductions factor by factor where that takes far fewer operations, and the schedule that says so."""
    for name in (x.tensors[0].name for x in program.definitions if any(True for p in x.pieces for _ in reduces(p.value))):
        made = factorized(program, name)
        if isinstance(made, Factorized) and made.after <= WORTH_FACTORIZING * made.before:
            program, schedule = made.program, schedule.factorize(name)
    return program, schedule


class Exactly(int):
    """A sample of a size that stands for no other: what is scheduled for it may be for just so many, as a register tile of one row is."""


def samples_of(program: Program, at: Mapping[str, int]) -> dict[str, int]:
    """Return the samples that schedules of a program are derived for: its sizes `at` hand, rounded to a number of three bits and zeros,
    2, 3, … 8, 10, 12, 14, 16, 20 and so on, so that what is made for one combination of sizes is often what others would be given. They
    are rounded up, and little more is counted than there is: what fits into a cache at hand seldom does not for the samples; but down
    where they are hardly more than such a number, as one of two equal sizes is that are told apart."""
    return {name: at[name] if isinstance(at[name], Exactly) else _rounded(at[name]) for name in program.sizes if name in at}


SLIGHTLY_MORE = 16
"""A size that is no larger than a number and a sixteenth of it is about as large."""


def _rounded(n: int) -> int:
    step = 1 << max(0, (n - 1).bit_length() - 3)
    below, rest = n // step * step, n % step
    return max(2, below if rest * SLIGHTLY_MORE <= below else below + step)


def sampled(d: Deriver, at: Mapping[str, int] | None) -> Deriver:
    """Return the state with samples in place of open sizes. Where more reductions would get tensors of their own for the samples than do
    for all sizes, directives for the one program would make no sense for the other: the sizes stay open."""
    samples = samples_of(d.program, at or {})
    to = {name: Int(n) for name, n in samples.items()}
    program = substitute_sizes(d.program, to)
    if not to or lift(program) != program:
        return d
    settled = substitute_sizes(d.program, {name: to[name] for name, n in samples.items() if isinstance(n, Exactly)})
    opened: dict[str, int] = {}
    multiples: dict[str, int] = {}
    unknown = frozenset(f"{x.tensors[0].name}.{a}" for x in d.program.definitions for a, n in extents(x).items() if n is None)
    for before, after in zip(settled.definitions, program.definitions, strict=True):
        known, name = extents(before), before.tensors[0].name
        opened |= {f"{name}.{a}": n for a, n in extents(after).items() if known[a] is None and n is not None}
        shape = zip(before.axes, before.tensors[0].shape, strict=True)
        multiples |= {f"{name}.{a}": affine.multiple_of(extent) for a, extent in shape if f"{name}.{a}" in opened}
    layouts = {
        name: replace(
            storage,
            dims=tuple(affine.substitute(e, to) for e in storage.dims),
            shape=tuple(affine.substitute(e, to) for e in storage.shape),
        )
        for name, storage in d.layouts.items()
    }
    rows = frozenset(name for name, t in tensor_table(d.program).items() if t.shape and affine.constant(t.shape[-1]) is None)
    return replace(d, program=program, layouts=layouts, open_extents=opened, open_rows=rows, multiples=multiples, unknown=unknown)


def _with_separate(d: Deriver) -> Deriver:
    """Return the state in which what recurrences accumulate is left to them."""
    own = {x.tensors[0].name for group in components(d.program) for x in accumulations(d.program, group)}
    return replace(d, separate=d.separate | own)


def _hoisted(d: Deriver) -> Deriver:
    """Return the state with recurrences that do not differ along an axis computed once."""
    for group in components(d.program):
        if is_recurrence(group):
            sizes = {member.tensors[0].name: extents(member) for member in group}
            axes = [(tensor, axis) for tensor, axis in invariant_axes(d.program, group) if sizes[tensor][axis] != 0]
            made = without_axes(d.program, axes) if axes else ""
            if not isinstance(made, str):
                d = deriver_of(made, d.machine, d.layouts, d.constants, d.schedule.hoist(*(f"{tensor}.{axis}" for tensor, axis in axes)))
    return d


def _asked(d: Deriver) -> Deriver:
    """Return the state with maps of which few elements are asked for, as data say, written where these are, and on processors sums."""
    made = with_asked_terms(d.program, sums=not isinstance(d.machine, GpuMachine))
    if made is None or problems_since(d.program, made[0]):
        return d
    return _asked(deriver_of(made[0], d.machine, d.layouts, d.constants, d.schedule.inline(made[1])))


def _bisected(d: Deriver) -> Deriver:
    """Return the state with binary searches for the terms of reductions that conditions leave, in data that may ascend."""
    if isinstance(d.machine, GpuMachine):
        return d
    for definition in d.program.definitions:
        name = definition.tensors[0].name
        for binder in dict.fromkeys(b.binder.name for b in bounded(d.program, definition) if _pays_bisected(d, definition, b)):
            made = bisected(d.program, name, binder)
            if not isinstance(made, str) and not problems_since(d.program, made):
                d = deriver_of(made, d.machine, d.layouts, d.constants, d.schedule.bisect(f"{name}.{binder}"))
    return d


def _pays_bisected(d: Deriver, definition: Definition, found: Bounded) -> bool:
    """Tell whether searches for each point take far less than to go through all terms, should the data ascend: should they not, it is the
    searches that are in vain."""
    if range_of_terms(definition) is not None or scattered_axes(definition) is not None:
        return False  # Each term says which elements it is for.
    grown = ((axis, growth) for axis in definition.axes for growth in growths(d.program, definition, axis))
    if any(growth.written == found.reduce and _is_long(definition, axis, growth.reduce) for axis, growth in grown):
        return False  # Each element takes a step from the one before.
    sizes, types = extents(definition), types_of(d.program)
    points = prod(sizes[a] or OPEN_EXTENT for a in definition.axes if a in found.axes)
    compared = [dtype_of(b.condition.lhs, types) for b in found.bounds]
    steps = SEARCH_STEP * found.steps * sum(d.machine.lanes(dtype) for dtype in compared if isinstance(dtype, DType))
    return (found.is_window or found.is_settled) and points >= FEWEST_SEARCHES and found.count >= steps


def _scanned(d: Deriver) -> Deriver:
    """Return the state with reductions whose terms grow along an axis as running ones, where that axis is long enough to pay for steps that
    wait for each other."""
    for definition in d.program.definitions:
        for axis in definition.axes:
            growth = next(growths(d.program, definition, axis), None)
            if growth is None or not _is_long(definition, axis, growth.reduce):
                continue
            made = running(d.program, definition, axis, growth)
            if not problems_since(d.program, made):
                scan = d.schedule.scan(f"{definition.tensors[0].name}.{axis}")
                return _scanned(deriver_of(made, d.machine, d.layouts, d.constants, scan))
    return d


def _composed(d: Deriver, own: frozenset[str] = frozenset()) -> Deriver:
    """Return the state with reductions over windows of many terms made of those over shorter ones. `own`: tensors that are these."""
    if isinstance(d.machine, GpuMachine) or d.program.mode == "strict":
        return d
    recurring = {x.tensors[0].name for group in components(d.program) if is_recurrence(group) for x in group}
    for definition in d.program.definitions:
        name = definition.tensors[0].name
        if name in recurring or d.layouts.keys() & {name, *definition_reads(definition)}:
            continue
        for window, lengths in _worth_composing(definition, 1.0 if own & definition_reads(definition) else WORTH_COMPOSING):
            made = composed(d.program, name, window.binder.name, lengths)
            if not isinstance(made, str) and not problems_since(d.program, made):
                compose = d.schedule.compose(f"{name}.{window.binder.name}", lengths)
                shorter = definers(made).keys() - definers(d.program).keys()
                return _composed(deriver_of(made, d.machine, d.layouts, d.constants, compose), own | shorter)
    return d


def _worth_composing(definition: Definition, most: float) -> list[tuple[Window, tuple[int, ...]]]:
    """Return the windows of a definition that take `most` of their operations where they are made of shorter ones, with the lengths of
    these, the fewest operations first. Elements along an axis are stored near, where windows of them are read along axes further in alone.
    """
    found: list[tuple[float, Window, tuple[int, ...]]] = []
    at, sizes = definition.axes.index, extents(definition)
    for window in windows(definition):
        beside = prod(b.extent or OPEN_EXTENT for b in window.written.binders if b.name in window.others)
        extent = sizes[window.axis] or OPEN_EXTENT
        edges = (extent + abs(window.factor) * (window.count - 1)) / extent
        stored = STORED if window.axis == definition.axes[-1] else STORED_IN_ROWS
        weighted = window.outside is not None
        terms, lengths = (window.count, ()) if weighted else window_lengths(window.count, window.may_overlap, stored)
        anew, once = (n * (window.operations - 1) for n in (lengths[0] if lengths else window.count, 1))
        if once + 1 + stored < anew and not weighted:
            terms, lengths = terms + once + 1 + stored, (1, *lengths)
        else:
            terms += anew
        is_near = all(at(axis) > at(window.axis) for axis, _ in window.others.values())
        after = terms * edges + (2 * (STORED if is_near else STORED_IN_ROWS) + beside if window.others else 0)
        if (lengths or window.others) and after <= most * window.count * window.loads * beside:
            found.append((after, window, lengths))
    return [(window, lengths) for _, window, lengths in sorted(found, key=lambda x: x[0])]


def _tabulated(d: Deriver) -> Deriver:
    """Return the state with results that are functions of one byte looked up in tables, where that takes less than to compute them."""
    if isinstance(d.machine, GpuMachine):
        return d
    given, read = {p.name for p in d.program.params}, frozenset().union(*map(definition_reads, d.program.definitions))
    for definition in d.program.definitions:
        name = definition.tensors[0].name
        found = of_byte(d.program, name) if name in d.program.results and name not in read else ""
        if isinstance(found, str) or found.read.tensor not in given or d.layouts.keys() & {name, *definition_reads(definition)}:
            continue
        made = tabulated(d.program, name) if _worth_tabulating(d, definition) else ""
        if not isinstance(made, str) and not problems_since(d.program, made):
            d = deriver_of(made, d.machine, d.layouts, d.constants, d.schedule.tabulate(name))
    return d


def _worth_tabulating(d: Deriver, definition: Definition) -> bool:
    """Tell whether elements of a function of one byte are looked up in less time than they are computed in, all but the first few."""
    if prod(n or OPEN_EXTENT for n in extents(definition).values()) < FEWEST_LOOKED_UP:
        return False
    parts, size = set(nodes(definition.pieces[0].value)), definition.tensors[0].dtype.size_bytes
    computed = sum(1 if isinstance(e, Call) and e.fn in ROUNDINGS else instructions(e) for e in parts) / d.lanes_of(definition)
    in_registers = any(size == each and VALUES * size <= most for each, most in d.machine.tables)
    return computed >= (PICKED * size / d.machine.vector_bytes if in_registers else LOOKED_UP)


def _narrowed(d: Deriver) -> Deriver:
    """Return the state with indices of reductions that conditions leave few values as places in the bands of these."""
    for definition in d.program.definitions:
        name = definition.tensors[0].name
        for binder, band in (found for found in bands(definition) if found[1].is_narrow(found[0], WORTH_NARROWING)):
            made = narrowed(d.program, name, binder.name)
            if isinstance(made, str) or not _pays_narrowed(definition, definers(made)[name], band) or problems_since(d.program, made):
                continue
            return _narrowed(deriver_of(made, d.machine, d.layouts, d.constants, d.schedule.narrow(f"{name}.{binder.name}")))
    return d


def _pays_narrowed(before: Definition, after: Definition, band: Band) -> bool:
    """Tell whether going through a band alone is faster. Rows of a product that have bands of their own share no operand: each element
    is read for one row alone, where a register tile goes through all values that any of its rows asks for, and reads them once."""
    terms = affine.constant(band.count)
    return not is_product(before) or is_product(after) or (terms is not None and terms <= NARROW_ROWS)


def _is_long(definition: Definition, axis: str, e: Reduce) -> bool:
    """Tell whether steps along an axis take less time than all terms anew: they wait for each other, but side by side along others."""
    sizes = extents(definition)
    steps, beside = sizes[axis], 1
    for other in index_names(e) & set(definition.axes) - {axis}:
        extent = sizes[other]
        beside *= OPEN_EXTENT if extent is None else extent
    beside_others = LONG_BESIDE_OTHERS if axis == definition.axes[-1] else LONG_BESIDE_NEIGHBOURS
    return steps is None or steps >= (beside_others if beside >= LONG_BESIDE_OTHERS else LONG_ALONE)


def _partial(d: Deriver) -> Deriver:
    """Return the state with sums of everything in partial results, one for each of the stretches that threads take."""
    own = _with_separate(d).separate
    for definition in (x for x in d.program.definitions if x.tensors[0].name not in own):
        binder, length = _stretches(d, definition)
        called = name_of(d.program, definition, binder) if length else ""
        factored = rfactor(d.program, called, length, chunked=True) if length else ""
        if not isinstance(factored, str):
            d = deriver_of(factored, d.machine, d.layouts, d.constants, d.schedule.rfactor(called, length, chunked=True))
    return d


def _stretches(d: Deriver, definition: Definition) -> tuple[str, int]:
    """Return what to cut a reduction to one element along, and into how long stretches; 0 where one thread is as fast."""
    found = [r for p in definition.pieces for r in reduces(p.value)]
    if definition.axes or len(found) != 1 or not is_threading_profitable(d, (definition,)) or reads_itself(definition):
        return "", 0
    binder = found[0].binders[0]
    extent = extents(definition)[binder.name] or 0
    length = 1 << max(0, (extent // (ITERATIONS_PER_THREAD // 2 * d.machine.threads)).bit_length() - 1)
    return binder.name, length if extent >= 2 * length and length * extent > 0 else 0


def deriver_of(
    program: Program, machine: Machine, layouts: Mapping[str, Storage], constants: frozenset[str], schedule: Schedule
) -> Deriver:
    axes = {t.name: x.axes for x in program.definitions for t in x.tensors}
    axes |= {p.name: tuple(f"a{k}" for k in range(len(p.shape))) for p in program.params}
    return Deriver(program, machine, layouts, constants, schedule, axes, rewritten=len(schedule.directives))


def with_lifted(d: Deriver, name: str, apart: Callable[[Program, str], Program | str] = parts_apart) -> Deriver | None:
    """Return the state in which what the equation of a tensor is made of are tensors of their own, with its axes; None where they stay.
    `apart`: which of its parts, of what `lift` takes."""
    made = apart(d.program, name)
    if isinstance(made, str):
        return None
    axes = {t.name: x.axes for x in made.definitions for t in x.tensors if t.name not in d.axes}
    of_tensor = {loop.removeprefix(f"{name}."): n for loop, n in d.open_extents.items() if owned(loop, d.axes)[0] == name}
    opened = {full(m, loop): n for m in axes for loop, n in of_tensor.items()}
    schedule = d.schedule.lift(name)
    made_of = replace(d, program=made, schedule=schedule, rewritten=len(schedule.directives))
    rows = d.open_rows | {m for m in axes if name in d.open_rows}
    own = {loop.removeprefix(f"{name}.") for loop in d.unknown if owned(loop, d.axes)[0] == name}
    unknown = d.unknown | {full(m, loop) for m in axes for loop in own}
    return replace(made_of, axes={**d.axes, **axes}, open_extents={**d.open_extents, **opened}, open_rows=rows, unknown=unknown)


def reads_itself(definition: Definition) -> bool:
    own = {t.name for t in definition.tensors}
    return any(r.tensor in own for p in definition.pieces for r in reads(p.value))


def device_of(d: Deriver) -> GpuMachine:
    """Return the graphics processor that a schedule is derived for."""
    assert isinstance(d.machine, GpuMachine)
    return d.machine


def bytes_of(d: Deriver, names: Iterable[str]) -> int:
    """Return the size of tensors, 0 where it is only known at run time."""
    table, total = tensor_table(d.program), 0
    for tensor in (table[n] for n in names if n in table):
        size = tensor.dtype.size_bytes
        for extent in tensor.shape:
            size *= affine.constant(extent) or 0
        total += size
    return total


def row_bytes(d: Deriver, tensor: Tensor) -> int:
    """Return how many bytes apart rows of a tensor lie. Samples of open sizes are round, and the sizes at hand seldom are: rows of an open
    length lie an odd number of lines apart."""
    found = prod(affine.constant(extent) or OPEN_EXTENT for extent in tensor.shape[-1:]) * tensor.dtype.size_bytes
    is_round = tensor.name in d.open_rows and found % (2 * LINE_BYTES) == 0
    return found + LINE_BYTES if is_round else found


def in_order(schedule: Schedule, stage: str, loops: list[str]) -> Schedule:
    return schedule.order(*(f"{stage}.{loop}" for loop in loops)) if len(loops) > 1 else schedule


def mark_parallel(d: Deriver, members: Sequence[Definition], loops: list[str], sizes: Mapping[str, int | None]) -> None:
    """Mark the outer loops of the last of `members`, which are computed in them, that hold enough iterations for every thread."""
    if is_threading_profitable(d, members):
        stage = members[-1].tensors[0].name
        chosen = shared_loops(loops, [sizes.get(loop) or OPEN_EXTENT for loop in loops], d.machine.threads)
        d.add(d.schedule.parallel(*(f"{stage}.{loop}" for loop in chosen)) if chosen else d.schedule)


def is_threading_profitable(d: Deriver, definitions: Iterable[Definition]) -> bool:
    """Tell whether several threads compute `definitions` sooner than one."""
    return d.machine.threads > 1 and sum(map(operations_of, definitions)) >= PARALLEL_WORK


def operations_of(definition: Definition) -> int:
    """Return the operations of a definition as threads count them: those of products are faster."""
    return work_of_definition(definition) // (PRODUCTS_PER_OPERATION if is_product(definition) else 1)


def shared_loops(loops: Sequence[str], trips: Sequence[int], threads: int) -> tuple[str, ...]:
    """Return the loops from the outside in that together have iterations for every thread; those that run once are left out."""
    chosen: list[str] = []
    together = 1
    for loop, count in zip(loops, trips, strict=True):
        if count > 1 and together < ITERATIONS_PER_THREAD * threads:
            chosen.append(loop)
            together *= count
    return tuple(chosen)
