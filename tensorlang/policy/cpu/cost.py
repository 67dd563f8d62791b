"""What work costs on a processor, in cycles of one thread: the rates and the terms that every comparison of schedules for CPUs is made of.

Rates are those of AVX2 and AVX-512 machines of the last ten years, where no measurement is named; nothing asks for more than their order.
What is compared is in cycles on either side, of one thread or of all of them, never in operations or bytes.
"""

from __future__ import annotations

MULTIPLY_ADDS = 2
"""Vectors that a core multiplies and adds, or otherwise computes with, in a cycle: two units."""
LOADS = 2
"""Vectors, or elements for all lanes of one, that it loads from the first-level cache in a cycle: two ports."""
STORES = 1
"""Vectors, or single elements, that it stores in a cycle."""
SHUFFLES = 1
"""Vectors whose lanes it permutes in a cycle."""
INSTRUCTIONS = 6
"""Instructions that it begins in a cycle."""
CALL_OPERATIONS = 12
"""Vector instructions of an elementary function, a division or a remainder, about."""
FUNCTION_OPERATIONS = 24
"""The same of an elementary function alone, as it is emitted: an exponential is 22 instructions long, a logarithm 28."""
EXTREMUM_OPERATIONS = 3
"""Vector instructions of a minimum or maximum of floats: both orders of the machine's, and what is right of zeros and NaN."""
LOOP_CYCLES = 1.0
"""Of an iteration of an innermost loop, beside what it computes."""
FAR_LOADS = 2
"""Instructions for each lane whose element is no neighbour of the others': its load, and putting it into its place."""
GATHERED_LOADS = 2.5
"""The same where data say its place, which is a lane of a vector: measured, 1.3 cycles a lane where a load of one element takes half of
one."""
ASKING_LOADS = 2
"""Of one element that lies where data say, on one side of a choice: the question, and another address for the other side."""
PICKED_LOADS = 4
"""Instructions for each vector whose lanes are picked from a row in registers: where, and what is there."""
MASKED_LOADS = 4
"""The same under a mask, which is looked at lane by lane: measured, sums over rows of sparse matrices."""
STRIDED_LOADS = 2
"""Instructions for each vector that elements are taken out of which lie a few apart: its load, and putting some of it into place."""
MOST_STRIDE = 8
"""Elements that neighbours of a vector lie apart at most to be taken out of whole vectors, or put between others into whole vectors."""
SPILL_CYCLES = 2.0
"""Of a step for each value that finds no register."""
BRANCH_CYCLES = 1.5
"""Of asking data, once for all lanes, whether a term counts: some of the answers come as a surprise, and that takes longer."""
COUNTED_SHARE = 0.25
"""Of terms that data choose from, about: the others take nothing where they are asked about once for all lanes."""
LATENCY_CYCLES = 4.0
"""Of a multiply-add: a register tile of fewer sums than keep both units busy waits for it."""
OVERLAPPED_STEPS = 64
"""Of a short sum, about: a processor begins the next sum before this one ends, and nothing waits for the accumulator."""
SHUFFLE_CYCLES = 3.0
"""Of a permutation of lanes, until the next can use it."""
LOAD_CYCLES = 5.0
"""Of a load from the first-level cache, until the next can use it."""
INTEGER_CYCLES = 1.0
"""Of an operation on integers, and of a choice between two values, until the next can use it."""
DIVISION_CYCLES = 13.0
"""Of a division of floats."""
CALL_CYCLES = 40.0
"""Of an elementary function."""
FORWARD_CYCLES = 5.0
"""From a store until a load of the same element has it."""
PARTS_CYCLES = 30.0
"""The same, longer, where a vector is loaded whose parts several stores have written: all of them have to reach the cache. Measured:
steps of a diagonal of six."""
VECTOR_CYCLES = 0.15
"""Of a step of a register tile for each vector of its columns, whose loads cross lines: measured, as the rest of a step was taken off."""
NEAR_BYTES = 32.0
"""Bytes a cycle from the second-level cache."""
STREAM_BYTES = 40.0
"""Bytes a cycle that arrive from the second- and third-level cache while a core multiplies, ahead of what it asks for."""
FAR_BYTES = 10.0
"""Bytes a cycle from memory that is no cache of one core."""
AHEAD_BYTES = 1280
"""That a processor loads ahead of what a loop reads, about: twenty lines."""
PAGE_BYTES = 4096
"""Within which it does, while what a loop reads of it goes one way."""
COPY_BYTES = 6.0
"""Bytes a cycle of a tensor that is copied into another layout."""
START_CYCLES = 300.0
"""That a kernel takes to start: a call, its arguments, the first misses."""
SHARING_CYCLES = 4000.0
"""That threads take to begin a kernel together and to end it: one to two microseconds."""


def multiply_cycles(vectors: float) -> float:
    """Return the cycles of so many multiply-adds of vectors, where nothing waits."""
    return vectors / MULTIPLY_ADDS


def load_cycles(loads: float) -> float:
    """Return the cycles of so many loads from the first-level cache."""
    return loads / LOADS


def step_cycles(rows: int, vectors: int, loading: float = 1 / LOADS) -> float:
    """Return the cycles of one step of the sum in a register tile of `rows` by `vectors`, of which each load takes `loading` cycles: the
    longer of its multiply-adds and its loads, at least the latency of a multiply-add."""
    return max(LATENCY_CYCLES, multiply_cycles(rows * vectors), (rows + vectors) * loading) + VECTOR_CYCLES * vectors


def covered_cycles(extent: int, rows: int, vectors: int) -> float:
    """Return the cycles of one step of the sum over so many rows in register tiles, the last one smaller."""
    whole, rest = divmod(extent, rows)
    return whole * step_cycles(rows, vectors) + (step_cycles(rest, vectors) if rest else 0.0)


def kernel_cycles(cycles: float, threads: int) -> float:
    """Return what a kernel takes whose work takes so many cycles of one thread, and is shared by `threads`."""
    return START_CYCLES + (cycles if threads == 1 else cycles / threads + SHARING_CYCLES)


def from_memory_cycles(size_bytes: float, kept_bytes: float, l2_bytes: int) -> float:
    """Return the cycles in which so many bytes arrive of which the cache has to keep `kept_bytes` in between."""
    return size_bytes / (NEAR_BYTES if kept_bytes <= l2_bytes else FAR_BYTES)


def store_cycles(stores: float) -> float:
    """Return the cycles of so many stores."""
    return stores / STORES
