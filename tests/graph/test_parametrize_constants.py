"""Alike: kernels that differ in numbers alone are one, and compute what they did."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from small_graphs import at, graph, kernel, run, single, tensor

from codegen.dtypes import f32, i32
from tensorlang.graph.nodes import Graph, Kernel, Node
from tensorlang.graph.passes.clean.parametrize_constants import parametrize_constants
from tensorlang.graph.programs import program_key
from tensorlang.graph.verify import verify
from tensorlang.tensor.nodes import Binary, Cast, Const, Expr, Program
from tensorlang.tensor.printer import show


def scaled(factor: float, offset: float) -> Program:
    product = Binary("*", at("x", "i"), Const(factor, f32))
    return single("scale", [tensor("x", 5)], tensor("y", 5), "i", Binary("+", product, Const(offset, f32)))


def chain(*programs: Program) -> Graph:
    nodes: list[Node] = [kernel(program, f"v{n}", f"v{n + 1}") for n, program in enumerate(programs)]
    return graph({"v0": (5,)}, nodes, [f"v{len(programs)}"])


def distinct(g: Graph) -> int:
    return len({program_key(n.program) for n in g.nodes if isinstance(n, Kernel)})


def first(g: Graph) -> Kernel:
    node = g.nodes[0]
    assert isinstance(node, Kernel)
    return node


def test_kernels_that_differ_in_numbers_become_one() -> None:
    after = verify(parametrize_constants(chain(scaled(2.0, 1.0), scaled(3.0, 7.0), scaled(5.0, -0.0))))
    assert distinct(after) == 1
    assert "x[i] * numbers_f32[0] + numbers_f32[1]" in show(first(after).program)


def test_only_numbers_that_differ_are_read() -> None:
    after = parametrize_constants(chain(scaled(2.0, 1.0), scaled(3.0, 1.0)))
    assert "x[i] * numbers_f32[0] + 1.0" in show(first(after).program)


def test_zeros_of_both_signs_differ() -> None:
    after = parametrize_constants(chain(scaled(2.0, 0.0), scaled(2.0, -0.0)))
    found = [after.constants[n.inputs[1]] for n in after.nodes if isinstance(n, Kernel)]
    assert [bool(np.signbit(a[0])) for a in found] == [False, True]


def test_a_kernel_without_its_like_keeps_its_numbers() -> None:
    before = chain(scaled(2.0, 1.0))
    assert parametrize_constants(before).nodes == before.nodes


def test_kernels_with_equal_numbers_share_the_constant() -> None:
    after = parametrize_constants(chain(scaled(2.0, 1.0), scaled(3.0, 7.0), scaled(2.0, 1.0)))
    assert len(after.constants) == 2


def test_integers_are_read_but_for_what_they_are_divided_by() -> None:
    def divided(by: int, plus: int) -> Program:
        value: Expr = Binary("//", Binary("+", Cast(i32, at("x", "i")), Const(plus, i32)), Const(by, i32))
        return single("divided", [tensor("x", 5)], tensor("y", 5), "i", Cast(f32, value))

    assert distinct(parametrize_constants(chain(divided(3, 1), divided(3, 2)))) == 1
    assert distinct(parametrize_constants(chain(divided(3, 1), divided(4, 1)))) == 2


numbers = st.floats(-1e6, 1e6, width=32)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=4))
def test_no_bit_changes(found: list[tuple[float, float]]) -> None:
    before = chain(*(scaled(a, b) for a, b in found))
    x = np.linspace(-3, 3, 5, dtype=np.float32)
    [expected], [got] = run(before, {"v0": x}).values(), run(parametrize_constants(before), {"v0": x}).values()
    assert expected.tobytes() == got.tobytes()
