"""The CUDA text of kernels, by example: an operator and its schedule go in, the text of its kernels comes out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from golden_case import cases, source
from scheduled_programs import legal
from usual_device import device_loops, device_text

from stdlib.library import library
from tensorlang.lower.barriers import exposed


@pytest.mark.parametrize("case", cases("cuda"), ids=lambda p: p.stem)
def test_the_text_of_a_kernel_is_the_golden_one(case: Path, golden_case: Callable[[Path, str], None]) -> None:
    found, plan = legal(source(case), [library()])
    lowered = device_loops(plan, found.schedule.operator, schedule=found.schedule)
    assert exposed(lowered.function) is None
    golden_case(case, device_text(lowered, schedule=found.schedule).text)
