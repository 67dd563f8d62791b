"""How fast a program could be on AMD's graphics processors, by what their maker documents: one board of each architecture."""

from __future__ import annotations

from codegen.hip.arch import Arch
from tensorlang.backends.gpu.vendor import Board

_BOARDS = {
    "gfx90a": Board("Instinct MI210", 22.6e12, 181e12, 1.6384e12),
    "gfx942": Board("Instinct MI300X", 163.4e12, 1307.4e12, 5.3e12),
    "gfx1100": Board("Radeon RX 7900 XTX", 61.4e12, 122.8e12, 0.96e12),
}
"""From AMD's data sheets of these boards: vectors of f32, dense matrices of bf16, memory."""


def board_of(arch: Arch) -> Board | None:
    """Return the board of this architecture that bounds are given for."""
    return _BOARDS.get(arch.name)
