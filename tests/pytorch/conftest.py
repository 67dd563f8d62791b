"""Networks of the benchmarks are tested here, too, and graphs are evaluated as those of ONNX models are."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS.parent / "benchmarks"), str(TESTS / "onnx")]
