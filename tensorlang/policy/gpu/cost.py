"""What a product costs on a graphics processor, in cycles: the one formula by which candidates of all forms and levels are compared.

    waves x (terms x max(issue, shared memory, second-level cache, latency) + barriers x wait + start)

A wave is the blocks that run at the same time, as many on each multiprocessor as its registers, threads and shared memory have room for.
Of every term of its sums a block issues instructions, reads operands from shared memory, and has them brought there; what takes longest
hides the others. Rates are facts of devices (`GpuMachine.rates`), what is estimated is told. Of the formula itself, times on an H200 bear
out no more than that large products run fastest in tiles of 128 x 256.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorlang.policy.machine import GpuMachine

BARRIER_CYCLES = 40
"""That threads of a block wait for each other, and for copies to begin, between two stretches of a sum: two barriers, estimated."""
START_CYCLES = 1500
"""From the first instruction of a block to its first products, and after the last: a copy from memory, results stored, estimated."""
LAUNCH_CYCLES = 4000
"""Of another launch: two to three microseconds, estimated."""
RESIDENT_THREADS = 1024
"""Of a multiprocessor: every generation keeps so many, more than these help little where each has a tile of sums."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one block of a candidate does for each of `terms` of its sums, and at each of so many `barriers` between them, where threads
    wait for each other: 0 where other work hides that.

    `blocks`: how many there are; `warps`: of each; `resident`: how many a multiprocessor has room for. `issue_cycles`: of one warp, on the
    scheduler that it has. `shared_bytes`: read from shared memory by all warps. `global_bytes`: copied from the second-level cache, in rows
    of `row_bytes`. `latency_cycles`: that a term takes at least."""

    blocks: int
    warps: int
    resident: int
    terms: int
    barriers: int
    issue_cycles: float
    shared_bytes: float
    global_bytes: float
    row_bytes: int
    latency_cycles: float
    start_cycles: float = START_CYCLES
    """Before the first products of a block and after the last, as far as no other work hides it."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cycles of a candidate, by what they are spent on; of what is done for each term at the same time, only the longest is waited for."""

    issue_cycles: float
    shared_cycles: float
    global_cycles: float
    latency_cycles: float
    barrier_cycles: float
    start_cycles: float

    @property
    def cycles(self) -> float:
        terms = max(self.issue_cycles, self.shared_cycles, self.global_cycles, self.latency_cycles)
        return terms + self.barrier_cycles + self.start_cycles


def cost(work: Work, machine: GpuMachine) -> Cost:
    """Return what a candidate costs on a machine, of which every multiprocessor has the same number of blocks or one fewer."""
    of_each = -(-work.blocks // machine.blocks)
    together = max(1, min(work.resident, of_each))
    waves = -(-of_each // together)
    terms = waves * work.terms
    return Cost(
        terms * issue_cycles(work, together, machine),
        terms * shared_cycles(work, together, machine),
        terms * global_cycles(work, together, machine),
        terms * work.latency_cycles,
        waves * work.barriers * BARRIER_CYCLES,
        waves * work.start_cycles,
    )


def issue_cycles(work: Work, together: int, machine: GpuMachine) -> float:
    """Return the cycles in which schedulers issue one term of so many blocks: warps are dealt out to them."""
    return work.issue_cycles * -(-together * work.warps // machine.rates.schedulers)


def shared_cycles(work: Work, together: int, machine: GpuMachine) -> float:
    """Return the cycles in which shared memory brings one term of so many blocks into registers."""
    return together * work.shared_bytes / machine.rates.shared_bytes


def global_cycles(work: Work, together: int, machine: GpuMachine) -> float:
    """Return the cycles in which one term of so many blocks reaches a multiprocessor from the second-level cache: what is no whole line
    takes twice as long, about."""
    rates = machine.rates
    return together * work.global_bytes / (rates.l2_bytes if work.row_bytes >= rates.line_bytes else rates.l2_bytes / 2)


def resident_blocks(machine: GpuMachine, warps: int, shared_bytes: int, registers: int = 1) -> int:
    """Return how many blocks of so many warps, bytes of shared memory, and registers of each thread, where these may be what limits them, a
    multiprocessor keeps."""
    limits, threads = machine.limits, warps * machine.warp
    by_memory = limits.shared_per_multiprocessor // (shared_bytes + limits.shared_reserved)
    return max(1, min(limits.registers_per_multiprocessor // (registers * threads), RESIDENT_THREADS // threads, by_memory))


def adding_cycles(parts: int, results: int, machine: GpuMachine) -> float:
    """Return the cycles of the launch that adds up `parts` partial results of each of `results`: each is written, and read again."""
    return LAUNCH_CYCLES + 2 * 4 * parts * results / machine.rates.all_l2_bytes if parts > 1 else 0.0
