"""What an iteration of an innermost loop of machine code takes, estimated from its instructions and the rates of `policy.cpu.cost`.

arithmetic, loads, stores, shuffles, instructions     as many as there are, at so many a cycle
chain                                                 what waits from one iteration to the next

The longest of these is the estimate. It knows nothing of caches that miss, and takes what branches skip at times as if it always ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from codegen.llvm.inner_loops import InnerLoop, Instruction, chain_cycles, instruction_of
from tensorlang.policy.cpu.cost import (
    CALL_OPERATIONS,
    DIVISION_CYCLES,
    INSTRUCTIONS,
    INTEGER_CYCLES,
    LATENCY_CYCLES,
    LOAD_CYCLES,
    SHUFFLE_CYCLES,
    SHUFFLES,
    load_cycles,
    multiply_cycles,
    store_cycles,
)
from tensorlang.runtime.limits import LoopCycles

_LATENCIES = {
    "multiply": LATENCY_CYCLES,
    "divide": DIVISION_CYCLES,
    "shuffle": SHUFFLE_CYCLES,
    "vector": INTEGER_CYCLES,
    "scalar": INTEGER_CYCLES,
    "move": 0.0,
}


def estimate(name: str, loop: InnerLoop, cpu: str = "") -> LoopCycles | None:
    """Return what an iteration of a loop takes that schedules call `name`; None where there is nothing in it."""
    code = [found for found in map(instruction_of, loop.lines) if found is not None]
    parts = _parts(code)
    return LoopCycles(name, tuple(sorted(parts, key=lambda part: -part[2])), loop.lines, cpu) if parts else None


def _parts(code: Sequence[Instruction]) -> list[tuple[str, int, float]]:
    """Return what takes time: what it is, how many there are, and the cycles of all of them."""
    units = Counter(c.unit for c in code)
    computed = units["multiply"] + units["vector"]
    loads, stores = sum(c.loads for c in code), sum(c.stores for c in code)
    found = [
        ("arithmetic", computed + units["divide"], multiply_cycles(computed + CALL_OPERATIONS * units["divide"])),
        ("loads", loads, load_cycles(loads)),
        ("stores", stores, store_cycles(stores)),
        ("shuffles", units["shuffle"], units["shuffle"] / SHUFFLES),
        ("instructions", len(code), len(code) / INSTRUCTIONS),
        ("chain", 1, chain_cycles(code, _latency)),
    ]
    return [part for part in found if part[1] and part[2]]


def _latency(code: Instruction) -> float:
    return LOAD_CYCLES if code.unit == "move" and code.loads else _LATENCIES[code.unit]
