"""Conditions on sizes that decide what is computed: where sizes are open, code is for one side of them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import tensorlang as tl
from polyhedral import affine
from tensorlang.check.definition import representative_program
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.size_cases import decided_by_sizes

CHOSEN = """op f(x: f32[N]) -> (y: f32[N]) {
    few[i]  = x[i] + 1
    many[i] = x[i] * 2
    y[i]    = if N > 4 then many[i] else few[i]
}
"""
SAME = """op f(x: f32[N]) -> (y: f32[N]) {
    t[i] = x[i] + 1
    y[i] = if N > 4 then t[i] else 2 * t[i]
}
"""


def program_of(text: str) -> Program:
    found = representative_program(load_module(parse(Source("f.tl", text))), "f")
    assert found is not None
    return found


def tensors_in(program: Program) -> set[str]:
    return {t.name for d in program.definitions for t in d.tensors}


@pytest.mark.parametrize(("size", "kept"), [(3, "few"), (9, "many")])
def test_what_the_other_side_alone_needs_is_left_out_and_the_side_is_taken_for_granted(size: int, kept: str) -> None:
    made, assumed = decided_by_sizes(program_of(CHOSEN), lambda condition: affine.holds(condition, {"N": size}))
    assert tensors_in(made) == {kept, "y"} and len(assumed) == 1
    assert [affine.holds(made.context, {"N": n}) for n in (3, 4, 5)] == ([True, True, False] if size == 3 else [False, False, True])


def test_a_condition_that_decides_no_computation_stays() -> None:
    program = program_of(SAME)
    asked = []
    made, assumed = decided_by_sizes(program, lambda condition: bool(asked.append(condition)))
    assert made == program and not assumed and not asked


@pytest.mark.parametrize("written", ["", "schedule f for cpu {\n    at few in y at i\n}\n"], ids=["derived", "with a schedule of few"])
def test_operators_with_open_sizes_compute_either_side(written: str) -> None:
    f = tl.parse(CHOSEN + written, sizes="symbolic", threads=1).f
    for n in (3, 9, 4, 5, 0, 1):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(f(x), x * 2 if n > 4 else x + 1)


def test_a_model_with_open_sizes_computes_one_side_and_is_compiled_again_for_the_other() -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N"]) for n in "xy")
    graph = helper.make_graph([helper.make_node("F", ["x"], ["y"], domain="my")], "g", [x], [y])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=9)
    model = tl.compile(made, ops={"my::F": tl.parse(CHOSEN).f}, sizes="symbolic", threads=1)
    for n in (3, 9, 4):
        given = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(model(given), given * 2 if n > 4 else given + 1)
