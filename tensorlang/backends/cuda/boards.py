"""How fast a program could be on a graphics processor, by what its maker documents; nothing is measured here.

A compute capability says nothing about clocks and memory, so a bound is given for one board of each generation whose data sheet tells f32
operations without tensor cores, bf16 operations with them (of dense matrices) and memory bandwidth; where none is known, there is no bound.
"""

from __future__ import annotations

from codegen.cuda.arch import Arch
from tensorlang.backends.gpu.vendor import Board

_BOARDS = {
    (8, 0): Board("A100 SXM 80 GB", 19.5e12, 312e12, 2.039e12),
    (8, 6): Board("A40", 37.4e12, 149.7e12, 0.696e12),
    (8, 9): Board("L40S", 91.6e12, 362.05e12, 0.864e12),
    (9, 0): Board("H100 SXM", 67e12, 989.5e12, 3.35e12),
}
"""From NVIDIA's data sheets of these boards. That of the H100 gives 1979e12 for bf16, "with sparsity": half of it is for dense matrices."""


def board_of(arch: Arch) -> Board | None:
    """Return the board of this compute capability that bounds are given for."""
    return _BOARDS.get(arch.capability)


def products_of_bf16(arch: Arch) -> float | None:
    """Return how many products of bf16 the board of this architecture adds up in the time of one of f32, 0 where devices have no
    instruction for them, None where no board is known."""
    board = board_of(arch)
    if not arch.has_bf16:
        return 0
    return board.bf16_flops / board.flops if board is not None else None
