"""The emulator reports a race exactly when there is one: random threads against a definition that looks at all pairs of accesses.

A kernel executes a script: per thread, reads and writes of bytes and of words in shared memory, and of elements of a buffer that two
blocks share; between them barriers of the block and of warps, the same ones for all. The definition: two accesses of different threads
to a common byte, one of them a write, are a race unless a barrier that both have taken part in lies between.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codegen.gpu.emulator import EmulatorError, build, run
from codegen.gpu.program import Kernel, Launch, Program
from codegen.loops.nodes import Int

NOTHING, READ_BYTE, WRITE_BYTE, READ_WORD, WRITE_WORD, READ_ELEMENT, WRITE_ELEMENT, BARRIER, WARP_BARRIER = range(9)
THREADS, BLOCKS, WORDS = 64, 2, 2

SCRIPT = Kernel(
    "script",
    """
TL_KERNEL(64, 0) script(TL_IN(tl_i32) op, TL_IN(tl_i32) at, TL_OUT(tl_f32) y, tl_i64 P) {
    TL_SHARED(arena, 8);
    TL_SHARED_ARRAY(tl_u8, byte_s, arena, 0, 8);
    TL_SHARED_ARRAY(tl_f32, word_s, arena, 0, 2);
    if (tl_thread_x() < 2) word_s[tl_thread_x()] = 0.0f;
    tl_barrier();
    tl_i64 first = (tl_i64)(tl_block_x() * 64 + tl_thread_x()) * P;
    tl_f32 sum = 0.0f;
    for (tl_i64 p = first; p < first + P; ++p) {
        int i = at[p];
        switch (op[p]) {
        case 1: sum += byte_s[i]; break;
        case 2: byte_s[i] = 1; break;
        case 3: sum += word_s[i]; break;
        case 4: word_s[i] = 1.0f; break;
        case 5: sum += y[i]; break;
        case 6: y[i] = 1.0f; break;
        case 7: tl_barrier(); break;
        case 8: tl_warp_barrier(); break;
        }
    }
    if (sum == -1.0f) y[0] = sum;
}
""",
    ("op", "at", "y"),
    ("P",),
    (THREADS, 1, 1),
    8,
)
PROGRAM = Program("p", SCRIPT.buffers, SCRIPT.sizes, (SCRIPT,), (Launch("script", (Int(BLOCKS), Int(1), Int(1))),))


@dataclass(frozen=True)
class Access:
    block: int
    thread: int
    op: int
    at: int

    @property
    def writes(self) -> bool:
        return self.op in (WRITE_BYTE, WRITE_WORD, WRITE_ELEMENT)

    @property
    def cells(self) -> set[tuple[str, int, int]]:
        """What is touched: bytes of the block's shared memory, or an element of the buffer."""
        if self.op in (READ_ELEMENT, WRITE_ELEMENT):
            return {("buffer", 0, self.at)}
        return {
            ("shared", self.block, b) for b in (range(4 * self.at, 4 * self.at + 4) if self.op in (READ_WORD, WRITE_WORD) else [self.at])
        }


Part = tuple[Access, ...]
"""Accesses between two barriers, in the order in which each thread makes its own."""

CELLS = {READ_BYTE: 4 * WORDS, WRITE_BYTE: 4 * WORDS, READ_WORD: WORDS, WRITE_WORD: WORDS, READ_ELEMENT: 2, WRITE_ELEMENT: 2}


def accesses() -> st.SearchStrategy[Access]:
    """Few places and mostly few threads, so that accesses meet."""
    thread = st.sampled_from([0, 1, 2, 31, 32, 33, 63])
    op = st.sampled_from(sorted(CELLS))
    return op.flatmap(lambda o: st.builds(Access, st.integers(0, BLOCKS - 1), thread, st.just(o), st.integers(0, CELLS[o] - 1)))


parts = st.lists(st.tuples(st.lists(accesses(), max_size=4).map(tuple), st.sampled_from([BARRIER, WARP_BARRIER])), max_size=5)


@settings(max_examples=200)
@given(parts, st.integers(0, 8))
@example([((Access(0, 3, READ_WORD, 0), Access(0, 5, READ_WORD, 0), Access(0, 5, WRITE_WORD, 0)), BARRIER)], 0)
@example([((Access(0, 0, READ_WORD, 0), Access(0, 32, READ_BYTE, 1), Access(0, 0, WRITE_BYTE, 2)), BARRIER)], 0)
@example([((Access(0, 0, READ_ELEMENT, 0),), BARRIER), ((Access(1, 0, READ_ELEMENT, 0), Access(1, 0, WRITE_ELEMENT, 0)), BARRIER)], 0)
def test_a_race_is_reported_exactly_when_two_accesses_are_not_ordered(script: list[tuple[Part, int]], seed: int) -> None:
    race = has_race(script)
    try:
        perform(script, seed)
    except EmulatorError as error:
        assert error.problem.startswith("race: ")
        assert race, error
    else:
        assert not race


def has_race(script: list[tuple[Part, int]]) -> bool:
    timed, epoch = [], 0
    for step, (part, barrier) in enumerate(script):
        timed += [(access, epoch, step) for access in part]
        epoch += barrier == BARRIER
    return any(_races(a, b) for a, b in itertools.combinations(timed, 2))


def _races(first: tuple[Access, int, int], second: tuple[Access, int, int]) -> bool:
    (a, epoch_a, step_a), (b, epoch_b, step_b) = first, second
    if (a.block, a.thread) == (b.block, b.thread) or not (a.writes or b.writes) or not a.cells & b.cells:
        return False
    if a.block != b.block:
        return True
    return epoch_a == epoch_b and (a.thread // 32 != b.thread // 32 or step_a == step_b)


def perform(script: list[tuple[Part, int]], seed: int) -> None:
    columns: list[list[list[tuple[int, int]]]] = [[[] for _ in range(THREADS)] for _ in range(BLOCKS)]
    for part, barrier in script:
        for access in part:
            columns[access.block][access.thread].append((access.op, access.at))
        for thread in itertools.chain.from_iterable(columns):
            thread.append((barrier, 0))
    length = max((len(thread) for block in columns for thread in block), default=0)
    table: np.ndarray[Any, Any] = np.zeros((BLOCKS, THREADS, length, 2), np.int32)
    for b, t in itertools.product(range(BLOCKS), range(THREADS)):
        table[b, t, : len(columns[b][t])] = np.array(columns[b][t], np.int32).reshape(-1, 2)
    arrays = {"op": table[..., 0].copy(), "at": table[..., 1].copy(), "y": np.zeros(2, np.float32)}
    run(PROGRAM, {"P": length}, arrays, seed=seed, library=build([SCRIPT]))
