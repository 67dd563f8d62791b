"""What loops take at given sizes, predicted from their text alone, in cycles of one thread: to compare loops that compute the same.

Of the statements of each loop that stand in no loop inside it: what its lanes and copies compute together, load, shuffle and store by the
rates of `policy.cpu.cost`, the longest of these, at least what the next iteration waits for. Lanes that take no part are computed with the
others; what copies share is there once; registers are no memory; what only copies and lanes decide is known. To enter a loop and to go
round it takes its time, and so does combining lanes to one element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2, prod

from codegen.dtypes import f32
from codegen.loops.evaluate import evaluated
from codegen.loops.indices import coefficients
from codegen.loops.innermost import Block, blocks, trips
from codegen.loops.nodes import (
    Alloc,
    Binary,
    Buffer,
    Call,
    Compare,
    Expr,
    Fma,
    For,
    Function,
    Index,
    Int,
    Load,
    Name,
    Select,
    Store,
    Var,
)
from codegen.loops.verify import is_reduction
from codegen.loops.walk import free_vars, loads, statements, stores, walk
from tensorlang.policy.cpu.cost import (
    CALL_OPERATIONS,
    EXTREMUM_OPERATIONS,
    FAR_BYTES,
    FAR_LOADS,
    FORWARD_CYCLES,
    FUNCTION_OPERATIONS,
    LATENCY_CYCLES,
    LOOP_CYCLES,
    MASKED_LOADS,
    OVERLAPPED_STEPS,
    PARTS_CYCLES,
    SHUFFLES,
    STREAM_BYTES,
    kernel_cycles,
    load_cycles,
    multiply_cycles,
    store_cycles,
)
from tensorlang.policy.deriver import ROUNDINGS
from tensorlang.policy.machine import Machine

_NEAR_STEP = 8
"""How far lanes lie apart at most that several vectors are loaded for and picked from, or stored together."""
_FEWEST_TURNED = 8
"""Neighbours that copies of a loop read, from which on squares of them are turned in registers."""
_ENTRY_CYCLES = 3.0
"""Of a loop that is entered and left again, whose number of iterations is no constant."""


def function_cycles(function: Function, sizes: Mapping[str, int], machine: Machine) -> float:
    """Return about how many cycles a run of `function` takes at these sizes: where the second-level cache does not hold all that it takes
    and returns, no less than that needs to arrive."""
    return cycles_at_sizes(function, machine)(sizes)


def cycles_at_sizes(function: Function, machine: Machine) -> Callable[[Mapping[str, int]], float]:
    """Return `function_cycles` of a function as one of sizes alone: what does not depend on these is worked out once."""
    allocated = [s.buffer for s in statements(*function.body) if isinstance(s, Alloc)]
    registers = frozenset(b.name for b in allocated if b.space in ("registers", "tiles"))
    shapes = {b.name: b.shape for b in (*function.params, *allocated)}
    rates: dict[tuple[int, int, tuple[int, ...]], _Rate] = {}

    def block_cycles(block: Block, sizes: Mapping[str, int]) -> float:
        vector = next((loop for loop in block.path if loop.kind == "vector"), None)
        copies = {loop.var: max(1, trips(loop, sizes)) for loop in block.path if loop.kind == "unroll"}
        width = max(1, trips(vector, sizes)) if vector is not None else 1
        key = id(block.body), width, tuple(copies.values())
        if key not in rates:
            asked = {loop.var: max(copies[loop.var], loop.extent or 1) for loop in block.path if loop.kind == "unroll"}
            rates[key] = _Turn(block, vector, asked, machine.lanes(f32), registers, shapes).rate()
        count = 0 if (loop := _serial_loop(block)) is None else trips(loop, sizes)
        return block.turns * rates[key].cycles(count)

    def cycles(sizes: Mapping[str, int]) -> float:
        own, shared = 0.0, 0.0
        for block in blocks(function, sizes):
            taken = block_cycles(block, sizes) if block.statements else 0.0
            if block.path and block.path[-1].kind not in ("vector", "unroll"):
                taken += _round_cycles(block)
            if any(loop.kind == "parallel" for loop in block.path):
                shared += taken
            else:
                own += taken
        taken = own + (kernel_cycles(shared, threads) if shared else kernel_cycles(0.0, 1))
        return max(taken, memory_cycles(moved, sizes, machine))

    threads, moved = machine.threads, touched(function)
    return cycles


def touched(function: Function) -> tuple[Buffer, ...]:
    """Return the parameters that `function` reads or writes."""
    names = {e.buffer for e in loads(*function.body)} | {s.buffer for s in stores(*function.body)}
    return tuple(p for p in function.params if p.name in names)


def memory_cycles(buffers: Sequence[Buffer], sizes: Mapping[str, int], machine: Machine) -> float:
    """Return the cycles in which all of these buffers arrive at these sizes: none from the second-level cache."""
    count = sum(prod(evaluated(n, sizes) or 0 for n in b.shape) * b.dtype.size_bytes for b in buffers)
    if count <= machine.l2_bytes:
        return 0.0
    return count / (STREAM_BYTES if count <= machine.cache_bytes else FAR_BYTES)


def _round_cycles(block: Block) -> float:
    """Return what a loop takes beside what is in it."""
    loop = block.path[-1]
    is_constant = isinstance(loop.lo, Int) and isinstance(loop.hi, Int)
    return block.rounds * LOOP_CYCLES + block.entries * (0.0 if is_constant else _ENTRY_CYCLES)


def _serial_loop(block: Block) -> For | None:
    """Return the innermost loop around a block that is neither lanes nor copies."""
    return next((one for one in reversed(block.path) if one.kind not in ("vector", "unroll")), None)


@dataclass(frozen=True, slots=True)
class _Rate:
    """What the lanes and copies of a block take together, whatever the sizes are: as long as they keep units `busy`, or as the next
    iteration waits for what is `forwarded` to it in memory. `sums`: whether it waits for a sum in registers."""

    busy: float
    forwarded: float
    sums: bool

    def cycles(self, count: int) -> float:
        """Return the cycles of one of `count` iterations."""
        return max(self.busy, self.forwarded, LATENCY_CYCLES * min(1.0, count / OVERLAPPED_STEPS) if self.sums else 0.0)


@dataclass(frozen=True, slots=True)
class _Turn:
    """What the lanes and copies of a block take together, `copies` as many as are asked about."""

    block: Block
    vector: For | None
    copies: Mapping[str, int]
    lanes: int
    registers: frozenset[str]
    shapes: Mapping[str, tuple[Index, ...]]

    def rate(self) -> _Rate:
        loop = _serial_loop(self.block)
        return _Rate(self._busy(), *((0.0, False) if loop is None else self._waiting(loop)))

    @property
    def vectors(self) -> int:
        """How many vectors the lanes are, those that take no part among them."""
        return ceil(max(1, self.vector.extent or trips(self.vector, {})) / self.lanes) if self.vector is not None else 1

    def _busy(self) -> float:
        nodes = dict.fromkeys(walk(*self.block.statements))
        choices = {n for s in nodes if isinstance(s, Select) for n in loads(s.then, s.orelse)}
        asked = self.vector is not None and self.vector.var in free_vars(*self.block.conditions)
        masked = frozenset(nodes) if asked else choices
        taken = _Units()
        for n in nodes:
            match n:
                case Binary() | Fma() | Call() | Select() | Compare():
                    taken.computed += self._computed(n)
                case Load() if n.buffer not in self.registers:
                    self._load(n, n in masked, taken)
                case Store() if n.buffer not in self.registers:
                    self._store(n, taken)
                case Store() if self._is_combined(n):
                    taken.combined += prod(self.copies.values())
        steps = log2(self.lanes)
        computed = taken.computed + taken.combined * steps
        shuffled = taken.shuffled + taken.combined * steps
        return max(multiply_cycles(computed), load_cycles(taken.loaded), store_cycles(taken.stored), shuffled / SHUFFLES)

    def _is_part(self) -> bool:
        """Tell whether only the first lanes take part, perhaps."""
        return self.vector is not None and not (isinstance(self.vector.lo, Int) and isinstance(self.vector.hi, Int))

    def _is_combined(self, s: Store) -> bool:
        return self.vector is not None and self.vector.var not in free_vars(*s.index) and is_reduction(s)

    def _distinct(self, index: Sequence[Index]) -> int:
        """Return how many of the copies touch elements of their own."""
        names = free_vars(*index)
        return prod(count for name, count in self.copies.items() if name in names)

    def _computed(self, n: Expr) -> float:
        """Return the vector instructions of an operation: none for what only copies and lanes decide."""
        inside = list(walk(n))
        names, opaque = free_vars(n), any(isinstance(x, Name) for x in inside)
        ranges = {*self.copies, *((self.vector.var,) if self.vector is not None and isinstance(self.vector.lo, Int) else ())}
        if isinstance(n, Compare | Select | Binary) and not opaque and names <= ranges and not any(isinstance(x, Load) for x in inside):
            return 0.0
        varies = opaque or (self.vector is not None and self.vector.var in names)
        copies = prod(count for name, count in self.copies.items() if opaque or name in names)
        return _operations(n) * copies * (self.vectors if varies else 1)

    def _step(self, buffer: str, index: Sequence[Index], var: str) -> int | None:
        """Return how many elements lie between neighbours along a variable, None where that is open, or no one number."""
        step = 0
        for k, e in enumerate(index):
            if var not in free_vars(e):
                continue
            terms, behind = coefficients(e), self.shapes[buffer][k + 1 :]
            if terms is None or any(var in free_vars(atom) and atom != Var(var) for atom in terms[0]):
                return None
            known = [n.value for n in behind if isinstance(n, Int)]
            if len(known) < len(behind):
                return None
            step += terms[0].get(Var(var), 0) * prod(known)
        return step

    def _beside(self, buffer: str, index: Sequence[Index], step: int) -> int:
        """Return how many copies touch what lies between the elements of neighbouring lanes, `step` elements apart."""
        found = ((self._step(buffer, index, name), count) for name, count in self.copies.items())
        return prod(count for near, count in found if near is not None and 0 < abs(near) * count <= step)

    def _load(self, n: Load, is_masked: bool, taken: _Units) -> None:
        copies, vectors = self._distinct(n.index), self.vectors
        step = self._step(n.buffer, n.index, self.vector.var) if self.vector is not None else 0
        if step == 0:
            taken.loaded += copies
        elif step is not None and abs(step) == 1:
            taken.loaded += copies * vectors
        elif step is not None and abs(step) <= _NEAR_STEP and not is_masked:
            masks = 2 if self._is_part() else 1
            taken.loaded += masks * vectors * abs(step) * copies / self._beside(n.buffer, n.index, abs(step))
            taken.shuffled += vectors * (abs(step) - 1) * copies
        elif not is_masked and self._is_square(n):
            taken.loaded += copies * vectors
            taken.shuffled += copies * vectors * log2(self.lanes)
        elif is_masked:
            taken.loaded += copies * vectors * self.lanes * MASKED_LOADS
        else:
            taken.loaded += copies * vectors * self.lanes * FAR_LOADS

    def _is_square(self, n: Load) -> bool:
        """Tell whether lanes are rows of which copies read neighbours: squares are turned in registers."""
        if self.vector is None or self.vector.var not in free_vars(*n.index[:-1]) or self.vector.var in free_vars(*n.index[-1:]):
            return False
        terms = coefficients(n.index[-1])
        return terms is not None and any(count >= _FEWEST_TURNED and terms[0].get(Var(name), 0) == 1 for name, count in self.copies.items())

    def _store(self, n: Store, taken: _Units) -> None:
        copies, vectors = self._distinct(n.index), self.vectors
        step = self._step(n.buffer, n.index, self.vector.var) if self.vector is not None else 0
        if step == 0:
            taken.stored += copies
        elif step is not None and abs(step) == 1:
            taken.stored += copies * vectors
        elif step is not None and abs(step) <= _NEAR_STEP and self._beside(n.buffer, n.index, abs(step)) == abs(step):
            taken.stored += copies * vectors
            taken.shuffled += copies * vectors * (abs(step) - 1)
        else:
            taken.stored += copies * vectors * self.lanes

    def _waiting(self, loop: For) -> tuple[float, bool]:
        """Return how long an iteration of a loop waits for what the one before it has stored, and whether it waits for a sum of it."""
        own = {s.buffer.name for s in statements(*loop.body) if isinstance(s, Alloc)}
        forwarded, sums = 0.0, False
        for s in (s for s in self.block.statements if isinstance(s, Store) and s.buffer not in own):
            again = [n for n in loads(s.value) if n.buffer == s.buffer]
            if s.buffer in self.registers:
                sums |= any(n.index == s.index for n in again) and loop.var not in free_vars(*s.index)
            elif any(a != b and loop.var in free_vars(a) for n in again for a, b in zip(s.index, n.index, strict=True)):
                forwarded = (PARTS_CYCLES if self._is_part() else FORWARD_CYCLES) + LATENCY_CYCLES
        return forwarded, sums


def _operations(n: Expr) -> float:
    """Return the vector instructions of an operation."""
    match n:
        case Call(fn) if fn not in ("sqrt", *ROUNDINGS):
            return FUNCTION_OPERATIONS
        case Call("sqrt") | Binary("/" | "//" | "%"):
            return CALL_OPERATIONS
        case Binary("min" | "max"):
            return EXTREMUM_OPERATIONS
        case _:
            return 1


@dataclass(slots=True)
class _Units:
    """Vectors that are computed with, loads, stores, shuffles, and elements that lanes are combined to."""

    computed: float = 0.0
    loaded: float = 0.0
    stored: float = 0.0
    shuffled: float = 0.0
    combined: float = 0.0
