"""The loops of the programs of `tests/programs`, under the schedules that nobody wrote, compute the terms of their equations."""

from __future__ import annotations

import pytest
from operators_at_sizes import EXAMPLES, arguments

from codegen.llvm.target import host
from tensorlang.check.instantiate import instantiate
from tensorlang.device.driver import device_loops, plan_for_device
from tensorlang.driver import loops_of, machine_of, plan_kernel
from tensorlang.lower.kernel import Lowered
from tensorlang.validation.kernel import validate

BUDGET = 6_000


@pytest.mark.parametrize("name", EXAMPLES)
def test_so_do_loops_for_a_device_before_threads_have_buffers_of_their_own(name: str) -> None:
    example = EXAMPLES[name]
    n = max(5, example.least)
    types, _ = arguments(example.inputs(n))
    program = instantiate(example.module, example.operator, types, example.attrs, example.sizes(n))
    kept: list[Lowered] = []
    device_loops(plan_for_device(program).plan, "kernel", in_order=kept.append)
    outcome = str(validate(program, kept[0].function, kept[0].params, budget=BUDGET))
    assert outcome == "validated" or "too large" in outcome


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("symbolic", [False, True])
def test_loops_compute_the_terms_of_equations(name: str, symbolic: bool) -> None:
    example = EXAMPLES[name]
    n = max(5, example.least)
    types, _ = arguments(example.inputs(n))
    symbolic = symbolic and example.symbolic
    program = instantiate(example.module, example.operator, types, example.attrs, example.sizes(n), symbolic=symbolic)
    lowered = loops_of(plan_kernel(program, machine_of(host(), 2)).plan, "kernel")
    outcome = str(validate(program, lowered.function, lowered.params, budget=BUDGET))
    assert outcome == "validated" or "too large" in outcome
