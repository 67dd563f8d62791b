"""Kernels written by hand compute what they should in the emulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from codegen.gpu.emulator import SEEDS, build, run
from codegen.gpu.program import Kernel, Launch, Program
from codegen.loops.nodes import Add, FloorDiv, Int, Var

KERNELS = Path(__file__).parent / "kernels"
TILES = FloorDiv(Add(Var("N"), Int(15)), Int(16))
MATMUL = Kernel("matmul", (KERNELS / "matmul.cu").read_text("utf-8"), ("x", "w", "y"), ("N",), (16, 16, 1), 2048)


@pytest.mark.parametrize("n", [1, 16, 33])
def test_a_product_by_shared_tiles_is_right_on_every_seed(n: int) -> None:
    program = Program("p", ("x", "w", "y"), ("N",), (MATMUL,), (Launch("matmul", (TILES, TILES, Int(1))),))
    rng = np.random.default_rng(n)
    x, w = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    for seed in SEEDS:
        y = np.zeros((n, n), np.float32)
        run(program, {"N": n}, {"x": x, "w": w, "y": y}, seed=seed, outputs=("y",), library=build([MATMUL]))
        np.testing.assert_allclose(y, x @ w, rtol=0, atol=1e-5)
