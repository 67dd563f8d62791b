"""A compiled model is run on terms where it lies in memory: a value that is overwritten too early or read from the wrong place is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import cast

import numpy as np
import pytest
from small_graphs import add_row, binary, graph, kernel, matmul, softmax, unary

from codegen.dtypes import bool_
from codegen.llvm.program import Slot
from codegen.loops.nodes import Const, Require
from tensorlang.backends.cpu.build import build
from tensorlang.backends.cpu.executable import Executable
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.backends.cpu.validated import check_model, compiled_of
from tensorlang.diagnostics import InternalError
from tensorlang.graph.nodes import Graph, View
from tensorlang.graph.passes.memory.copy_outputs import copy_outputs
from tensorlang.runtime.jobs import optimised
from tensorlang.validation.compiled import Call, Compiled
from tensorlang.validation.model import validate_model
from tensorlang.validation.whole import compare

BUDGET = 50_000
WEIGHTS = np.random.default_rng(1).standard_normal((5, 6)).astype(np.float32)
SMALL: Graph = graph(
    {"x": (4, 5)},
    [
        kernel(unary("exp", 4, 5), "x", "a"),
        kernel(matmul(4, 6, 5), "a w", "b"),
        kernel(add_row(4, 6), "b row", "c"),
        View("->6x4", "c", "turned"),
        kernel(softmax(6, 4), "turned", "d"),
        View("->4x6", "d", "back"),
        kernel(binary("*", 4, 6), "back b", "y"),
    ],
    ["y"],
    {"w": WEIGHTS, "row": np.arange(6, dtype=np.float32)},
)


@cache
def compiled(*, fused: bool = False) -> Compiled:
    tools = toolchain(threads=1, cache=False)
    ready = optimised(SMALL, tools) if fused else copy_outputs(SMALL)
    return compiled_of(ready, build(ready, tools))


def with_call(model: Compiled, number: int, change: Callable[[Call], Call]) -> Compiled:
    calls = list(model.calls)
    calls[number] = change(calls[number])
    return replace(model, calls=tuple(calls))


def with_slot(number: int, buffer: int, slot: Callable[[Compiled, Slot], Slot]) -> Callable[[Compiled], Compiled]:
    """Return the fault that a kernel's buffer lies elsewhere."""

    def fault(model: Compiled) -> Compiled:
        def moved(call: Call) -> Call:
            buffers = list(call.call.buffers)
            buffers[buffer] = slot(model, buffers[buffer])
            return replace(call, call=replace(call.call, buffers=tuple(buffers)))

        return with_call(model, number, moved)

    return fault


def slot_of(model: Compiled, number: int, buffer: int) -> Slot:
    return model.calls[number].call.buffers[buffer]


def test_a_kernel_that_refuses_what_its_equations_accept_is_found():
    def refusing(call: Call) -> Call:
        return replace(call, function=replace(call.function, body=(Require(Const(False, bool_), 3), *call.function.body)))

    with pytest.raises(InternalError, match="refuses data that its equations accept, with 3"):
        compare(with_call(compiled(), 0, refusing))


def test_a_model_as_it_is_compiled_is_what_its_graph_says():
    assert str(validate_model(SMALL, compiled(), BUDGET)) == "validated: 24 elements the same"
    assert str(validate_model(SMALL, compiled(fused=True), BUDGET)) == "validated: 24 elements the same"
    assert compare(compiled()) == compare(compiled(fused=True)) == (24, "")


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(with_slot(2, 0, lambda _, slot: Slot(slot.base, slot.offset + 4)), id="an element further on"),
        pytest.param(with_slot(2, 0, lambda _, slot: Slot(slot.base, slot.offset + 1)), id="between two elements"),
        pytest.param(with_slot(2, 2, lambda m, _: slot_of(m, 1, 2)), id="over the operand of the same kernel"),
        pytest.param(with_slot(3, 1, lambda m, _: slot_of(m, 1, 2)), id="over a value that is needed later"),
        pytest.param(with_slot(3, 1, lambda m, _: Slot(3, slot_of(m, 1, 2).offset + 64)), id="over the end of such a value"),
        pytest.param(with_slot(4, 0, lambda m, _: slot_of(m, 2, 2)), id="a view of another value"),
        pytest.param(with_slot(2, 1, lambda m, _: Slot(2, m.offsets["w"])), id="another constant"),
        pytest.param(lambda m: replace(m, offsets={**m.offsets, "w": m.offsets["w"] + 4}), id="a constant that is moved"),
        pytest.param(lambda m: replace(m, constants={**m.constants, "w": m.constants["w"][::-1] + 1.0}), id="a constant of other numbers"),
        pytest.param(lambda m: replace(m, calls=(*m.calls[:3], m.calls[4])), id="a kernel that is not called"),
        pytest.param(lambda m: replace(m, calls=(m.calls[0], m.calls[2], m.calls[1], *m.calls[3:])), id="kernels in another order"),
        pytest.param(
            lambda m: with_call(m, 3, lambda c: replace(c, call=replace(c.call, workspace=slot_of(m, 1, 2)), scratch_bytes=64)),
            id="scratch memory over a value that is needed later",
        ),
    ],
)
def test_a_fault_in_the_memory_of_a_model_is_found(fault: Callable[[Compiled], Compiled]):
    for found in (partial(validate_model, SMALL, budget=BUDGET), compare):
        with pytest.raises(InternalError, match=r"is not what its graph |share bytes"):
            found(compiled=fault(compiled()))


def test_a_wrong_pass_is_found():
    transposed = replace(SMALL, constants={**SMALL.constants, "row": SMALL.constants["row"][::-1].copy()})
    tools = toolchain(threads=1, cache=False)
    ready = optimised(transposed, tools)
    with pytest.raises(InternalError, match="is not what its graph says"):
        validate_model(SMALL, compiled_of(ready, build(ready, tools)), BUDGET)


def test_what_is_too_large_is_said_to_be_and_none_of_its_loops_is_read(monkeypatch):
    monkeypatch.setenv("TENSORLANG_VALIDATE", "10")
    unread = cast(Executable, None)
    assert str(check_model(SMALL, SMALL, unread)) == "not validated: too large, more than 10 operations"
