"""Interpreter = loop IR = native code for the programs of `tests/programs`, under the schedules that nobody wrote: with no elements, with
one, and with sizes that are no multiples of tiles and vectors; sizes known when compiling and not. Where that takes few operations the
loops compute the terms of their equations, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from operators_at_sizes import EXAMPLES, arguments, sizes_of
from schedule_trial import differs

from codegen.dtypes import f64
from codegen.llvm.target import host
from tensorlang.backends.cpu.driver import loops_of, machine_of, plan_kernel
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.lower.kernel import Lowered
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program
from tensorlang.validation.kernel import validated

Array = np.ndarray[Any, Any]


def lowered_of(program: Program) -> Lowered:
    """Return the loops of a program, validated as far as tests validate what they compile."""
    lowered = loops_of(plan_kernel(program, machine_of(host(), 2)).plan, "kernel")
    outcome = validated(program, lowered.function, lowered.params)
    assert outcome in ("", "validated") or "too large" in outcome
    return lowered


def wrong_with(program: Program, lowered: Lowered, arrays: list[Array], sizes: Mapping[str, int], *, natively: bool) -> str:
    named = dict(zip((p.name for p in program.params), arrays, strict=True))
    return differs(program, lowered, sizes, named, natively=natively, close=2e-4)


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("name", EXAMPLES)
def test_sizes_known_when_compiling(name: str, n: int) -> None:
    example = EXAMPLES[name]
    n = max(n, example.least)
    types, arrays = arguments(example.inputs(n))
    program = instantiate(example.module, example.operator, types, example.attrs, example.sizes(n))
    assert wrong_with(program, lowered_of(program), arrays, {}, natively=n > 1) == ""


@pytest.mark.parametrize("name", [name for name, example in EXAMPLES.items() if example.symbolic])
def test_one_kernel_for_all_sizes(name: str) -> None:
    example, compiled = EXAMPLES[name], dict[str, Lowered]()
    for n in dict.fromkeys(max(n, example.least) for n in (5, 0, 1)):
        types, arrays = arguments(example.inputs(n))
        program = instantiate(example.module, example.operator, types, example.attrs, example.sizes(n), symbolic=True)
        lowered = compiled[text] if (text := repr(program)) in compiled else compiled.setdefault(text, lowered_of(program))
        assert wrong_with(program, lowered, arrays, sizes_of(program, arrays, example.sizes(n)), natively=n > 1) == ""


def test_copies_of_an_unrolled_loop_that_begins_late_stay_in_its_tile() -> None:
    text = (
        "op f(x: f64[7]) -> (y: f64[7]) {\n"
        "    y[i] = if 0 < i then sum(q in 0..5, k in 0..5, 0 <= 12*q - 11*k - i + 12 < 7) x[12*q - 11*k - i + 12] else 0.0\n}"
    )
    x = np.arange(1.0, 8)
    program = instantiate(load_module(parse(Source("late", text))), "f", [ArgType(f64, (7,))])
    assert wrong_with(program, lowered_of(program), [x], {}, natively=True) == ""
