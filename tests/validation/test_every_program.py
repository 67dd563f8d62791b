"""The loops and the text of the programs of `tests/programs` for a device, under the schedules that nobody wrote, compute the terms of
their equations; those for processors do in `tests/lower/test_differential.py`."""

from __future__ import annotations

from functools import cache

import pytest
from operators_at_sizes import EXAMPLES, arguments
from usual_device import device_loops, device_text, plan_for_device

from codegen.gpu import emulator
from codegen.gpu.emulator import Library
from codegen.gpu.program import Program as Kernels
from tensorlang.check.instantiate import instantiate
from tensorlang.lower.kernel import Lowered
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.operation_count import operations
from tensorlang.validation.kernel import validate
from tensorlang.validation.text import validate_text

BUDGET = 6_000


@cache
def on_device(name: str) -> tuple[Program, Lowered, Kernels]:
    """Return a program, its loops before threads have buffers of their own, and its kernels."""
    example = EXAMPLES[name]
    n = max(5, example.least)
    types, _ = arguments(example.inputs(n))
    program = instantiate(example.module, example.operator, types, example.attrs, example.sizes(n))
    kept: list[Lowered] = []
    lowered = device_loops(plan_for_device(program).plan, f"k{list(EXAMPLES).index(name)}", in_order=kept.append)
    return program, kept[0], device_text(lowered)


@cache
def compiled() -> Library:
    """Return the kernels of all programs that take few operations, compiled at once to run on terms."""
    small = (kernels for program, _, kernels in map(on_device, EXAMPLES) if operations(program, {}) <= BUDGET)
    return emulator.build([k for kernels in small for k in kernels.kernels], terms=True)


@pytest.mark.parametrize("name", EXAMPLES)
def test_loops_for_a_device_compute_terms_before_threads_have_buffers_of_their_own(name: str) -> None:
    program, lowered, _ = on_device(name)
    outcome = str(validate(program, lowered.function, lowered.params, budget=BUDGET))
    assert outcome == "validated" or "too large" in outcome


@pytest.mark.parametrize("name", EXAMPLES)
def test_so_does_their_text_as_threads_run_it(name: str) -> None:
    program, lowered, kernels = on_device(name)
    outcome = str(validate_text(program, kernels, lowered.params, budget=BUDGET, library=compiled()))
    assert outcome == "validated" or "too large" in outcome
