"""What loops take at given sizes, predicted from their text alone, in cycles of one thread: to compare loops that compute the same.

Of each innermost nest (`codegen.loops.innermost`): vectors that are computed, loaded and stored by the rates of `policy.cpu.cost`, the
longest of these, and what its loops take beside. Lanes run together; a load that copies share is there once; registers are no memory.
Lanes of which copies read neighbours, squares, are loaded by rows and turned in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import ceil, log2, prod

from codegen.dtypes import f32
from codegen.loops.evaluate import evaluated
from codegen.loops.indices import coefficients
from codegen.loops.innermost import Nest, innermost, trips
from codegen.loops.nodes import Alloc, Binary, Call, Compare, Expr, Fma, For, Function, If, Index, Int, Load, Select, Store, Var
from codegen.loops.walk import free_vars, loads, statements, walk
from tensorlang.policy.cpu.cost import (
    CALL_OPERATIONS,
    FAR_BYTES,
    FAR_LOADS,
    LOADS,
    LOOP_CYCLES,
    MASKED_LOADS,
    SHUFFLES,
    STREAM_BYTES,
    STRIDED_LOADS,
    kernel_cycles,
    load_cycles,
    multiply_cycles,
    store_cycles,
)
from tensorlang.policy.machine import Machine

_NEAR_STEP = 4
"""How far lanes lie apart at most that several vectors are loaded for and picked from."""
_FEWEST_TURNED = 8
"""Neighbours that copies of a loop read, from which on squares of them are turned in registers."""


def function_cycles(function: Function, sizes: Mapping[str, int], machine: Machine) -> float:
    """Return about how many cycles a run of `function` takes at these sizes: where the second-level cache does not hold all that it takes
    and returns, no less than that needs to arrive."""
    return cycles_at_sizes(function, machine)(sizes)


def cycles_at_sizes(function: Function, machine: Machine) -> Callable[[Mapping[str, int]], float]:
    """Return `function_cycles` of a function as one of sizes alone: what does not depend on these is worked out once."""
    registers = {s.buffer.name for s in statements(*function.body) if isinstance(s, Alloc) and s.buffer.space in ("registers", "tiles")}
    lanes, threads = machine.lanes(f32), machine.threads
    turns: dict[tuple[int, int, tuple[int, ...]], float] = {}

    def nest_cycles(nest: Nest, sizes: Mapping[str, int]) -> float:
        vector = next((loop for loop in nest.path if loop.kind == "vector"), None)
        copies = {loop.var: max(1, trips(loop, sizes)) for loop in nest.path if loop.kind == "unroll"}
        width = max(1, trips(vector, sizes)) if vector is not None else 1
        key = id(nest.path[-1]), width, tuple(copies.values())
        if key not in turns:
            asked = {loop.var: max(copies[loop.var], loop.extent or 1) for loop in nest.path if loop.kind == "unroll"}
            turns[key] = _turn_cycles(nest.path, vector, width, asked, lanes, registers)
        return nest.iterations / (width * prod(copies.values())) * turns[key]

    def cycles(sizes: Mapping[str, int]) -> float:
        own, shared = 0.0, 0.0
        for nest in innermost(function, sizes):
            taken = nest_cycles(nest, sizes)
            if any(loop.kind == "parallel" for loop in nest.path):
                shared += taken
            else:
                own += taken
        taken = own + (kernel_cycles(shared, threads) if shared else kernel_cycles(0.0, 1))
        touched = sum(prod(evaluated(n, sizes) or 0 for n in p.shape) * p.dtype.size_bytes for p in function.params)
        if touched <= machine.l2_bytes:
            return taken
        return max(taken, touched / (STREAM_BYTES if touched <= machine.cache_bytes else FAR_BYTES))

    return cycles


def _turn_cycles(
    path: tuple[For, ...], vector: For | None, width: int, copies: Mapping[str, int], lanes: int, registers: set[str]
) -> float:
    """Return what the last of the loops takes for its lanes and copies together: those of the copies that do not run are asked about, which
    takes about as long."""
    vectors = ceil(width / lanes) if vector is not None else 1
    body = list(walk(*path[-1].body))
    operations = sum(CALL_OPERATIONS if _is_slow(n) else 1 for n in body if isinstance(n, (Binary, Fma, Call, Select, Compare)))
    read = {n for n in body if isinstance(n, Load) and n.buffer not in registers}
    written = [n for n in body if isinstance(n, Store) and n.buffer not in registers]
    masked = {n for s in body if isinstance(s, (Select, If)) for n in _loads_of_sides(s)}
    is_part = vector is not None and not (isinstance(vector.lo, Int) and isinstance(vector.hi, Int))  # some lanes alone, perhaps
    loaded = sum(_loads(n.index, vector, vectors, width, is_part or n in masked, copies) * _copies(n.index, copies) for n in read)
    stored = sum(_accesses(n.index, vector, vectors, width) * _copies(n.index, copies) for n in written)
    computed = operations * vectors * prod(copies.values())
    return max(multiply_cycles(computed), load_cycles(loaded), store_cycles(stored)) + LOOP_CYCLES


def _loads_of_sides(s: Select | If) -> Iterator[Load]:
    """Yield what is read where a condition holds, or where it does not."""
    return loads(*s.then, *s.orelse) if isinstance(s, If) else loads(s.then, s.orelse)


def _is_slow(n: Expr) -> bool:
    return isinstance(n, Call) or (isinstance(n, Binary) and n.op in ("/", "//", "%"))


def _copies(index: tuple[Index, ...], copies: Mapping[str, int]) -> int:
    """Return how many of the copies of a loop touch elements of their own."""
    names = free_vars(*index)
    return prod(count for name, count in copies.items() if name in names)


def _loads(index: tuple[Index, ...], vector: For | None, vectors: int, width: int, is_masked: bool, copies: Mapping[str, int]) -> float:
    """Return how many loads the lanes need, or what takes as long."""
    found = _accesses(index, vector, vectors, width, is_masked)
    if vector is None or is_masked or vector.var not in free_vars(*index[:-1]) or vector.var in free_vars(*index[-1:]):
        return found
    terms = coefficients(index[-1])
    is_square = terms is not None and any(count >= _FEWEST_TURNED and terms[0].get(Var(name), 0) == 1 for name, count in copies.items())
    return min(found, vectors * (1 + log2(width / vectors) * LOADS / SHUFFLES)) if is_square else found


def _accesses(index: tuple[Index, ...], vector: For | None, vectors: int, width: int, is_masked: bool = False) -> float:
    """Return how many loads or stores the lanes need: one for all where they share an element. Under a mask, lanes whose elements are no
    neighbours are looked at one by one."""
    if vector is None or vector.var not in free_vars(*index):
        return 1
    terms = coefficients(index[-1]) if vector.var not in free_vars(*index[:-1]) else None
    step = abs(terms[0].get(Var(vector.var), 0)) if terms is not None else 0
    if step == 1:
        return vectors
    if is_masked:
        return width * MASKED_LOADS
    return vectors * STRIDED_LOADS * step if 0 < step <= _NEAR_STEP else width * FAR_LOADS
