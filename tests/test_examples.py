"""Every program in `examples/` runs, warnings included, and prints what it claims."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CLAIMS = {
    "01_custom_operator": ["float32[64, 80]", "error[R0202]"],
    "02_packs_and_padding": ["softmax of rank 4 is right", "concat of 4 tensors is right", "ring    [3.0, 1.0, 2.0, 3.0]"],
    "03_recurrences": ["cholesky is NumPy's", "error[T0304]: `y[1]` depends on itself"],
    "04_own_reducer": ["log-sum-exp [", "at [569, 484, 545, 998]"],
    "05_schedule_by_hand": ["vector 16", "GFLOP/s", "derived by the compiler"],
    "06_refused_schedule": ["error[S0301]", "error[S0302]", "error[S0103]", "accepted, and right"],
    "07_resnet50": ["onnx reference", "onnxruntime", "fused: 176 nodes became", "the output is right"],
    "09_online_softmax": ["as softmax(q kᵀ) v"],
    "10_own_instruction": [
        "words: NumPy's",
        "@llvm.x86.avx2.pmadd.wd(",
        "floats: NumPy's",
        "@llvm.fma.v8f32(",
        "error[S0227]",
        "(255, 255)",
    ],
    "11_reuse": [
        "the block is NumPy's",
        "split i by 4 -> io, ii",
        "the library is NumPy's",
        "op softmax[T: float](",
        "write `use std.norm`",
        "write `use std.norm (softmax)` at the top of the file",
        "error[T0190]",
    ],
    "12_extern": [
        "int32_t sort_rows(",
        "on 32 trials the kernel computes what the body says",
        "error[C0120]",
        "from_median with the kernel is NumPy's",
        "trusted: extern sort_rows",
        "the model is NumPy's",
        "error[C0116]",
    ],
    "13_typed": ["blurred by both schedules", "softmax is NumPy's", "6 trials are right", "the model is NumPy's", "R0201"],
    "08_every_stage": ["---- tensor", "---- schedule", "---- loops", "---- llvm", "---- asm", "project + shift + activate"],
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache that is empty for the first program."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_a_program_prints_what_it_claims(path: Path, tmp_path: Path, cache: Path) -> None:
    arguments = ["--seconds", "0.1"] if path.stem == "07_resnet50" else []
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TENSORLANG_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path), *arguments], capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [claim for claim in CLAIMS[path.stem] if claim not in done.stdout] == []


def test_every_program_has_a_claim() -> None:
    assert sorted(CLAIMS) == sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
