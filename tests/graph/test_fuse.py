"""Fusion: which kernels become one, and that the one computes what they did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_graphs import add_row, at, binary, conv1x1, graph, kernel, matmul, single, softmax, tensor, unary
from test_algebra import random, run

from codegen.dtypes import f16, f32, i64
from polyhedral.expr import Int
from tensorlang.graph.nodes import Graph, Kernel, Value, View
from tensorlang.graph.passes.fusion.fuse import LARGEST_GROUP, fuse, groups
from tensorlang.graph.programs import expressions, transpose_program
from tensorlang.graph.verify import verify
from tensorlang.tensor.nodes import Binary, Binder, Const, Dynamic, Let, Piece, Program, Read, Reduce, Tensor
from tensorlang.tensor.nodes import Definition as Def
from tensorlang.tensor.verify import verify as verify_program


def names(g: Graph) -> list[list[str]]:
    return [[node.name for node in group] for group in groups(g)]


def check(g: Graph, expected: list[list[str]], **feeds: Any) -> Graph:
    assert names(g) == expected
    done = verify(fuse(g))
    assert len([n for n in done.nodes if isinstance(n, Kernel)]) == len(expected)
    for node in done.nodes:
        if isinstance(node, Kernel):
            verify_program(node.program)
    want, got = run(g, feeds), run(done, feeds)
    for name in g.outputs:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-5)
    return done


def test_bias_residual_and_activation_join_the_matrix_product() -> None:
    nodes = [
        kernel(matmul(4, 5, 3), "x w", "t"),
        kernel(add_row(4, 5), "t b", "u"),
        kernel(binary("+", 4, 5), "u r", "v"),
        kernel(unary("relu", 4, 5), "v", "y"),
    ]
    shapes = {"x": (4, 3), "w": (3, 5), "b": (5,), "r": (4, 5)}
    g = graph(shapes, nodes, ["y"])
    done = check(g, [["matmul t", "add u", "add v", "relu y"]], **{k: random(*s, seed=i) for i, (k, s) in enumerate(shapes.items())})
    [fused] = done.nodes
    assert isinstance(fused, Kernel)
    assert fused.inputs == ("x", "w", "b", "r")
    assert fused.members == ("matmul t", "add u", "add v", "relu y")
    assert len(fused.program.definitions) == 1


def test_a_value_used_twice_inside_the_epilogue_does_not_split_it() -> None:
    nodes = [
        kernel(matmul(4, 4, 4), "x w", "t"),
        kernel(unary("erf", 4, 4), "t", "e"),
        kernel(binary("*", 4, 4), "t e", "y"),
    ]
    check(graph({"x": (4, 4), "w": (4, 4)}, nodes, ["y"]), [["matmul t", "erf e", "mul y"]], x=random(4, 4), w=random(4, 4, seed=1))


def test_a_value_that_is_read_twice_in_place_is_bound_once() -> None:
    nodes = [kernel(add_row(4, 5), "x b", "u")]
    for k in range(6):
        nodes.append(kernel(binary("*", 4, 5), f"{'u' if k == 0 else f'v{k}'} {'u' if k == 0 else f'v{k}'}", f"v{k + 1}"))
    done = check(graph({"x": (4, 5), "b": (5,)}, nodes, ["v6"]), [[n.name for n in nodes]], x=random(4, 5), b=random(5, seed=1))
    [fused] = done.nodes
    assert isinstance(fused, Kernel)
    assert sum(isinstance(e, Let) for e in expressions(fused.program)) == 6
    assert sum(isinstance(e, Binary) for e in expressions(fused.program)) == 7


def test_a_value_that_is_returned_ends_the_group() -> None:
    nodes = [kernel(matmul(4, 4, 4), "x w", "t"), kernel(unary("exp", 4, 4), "t", "u"), kernel(unary("relu", 4, 4), "u", "y")]
    g = graph({"x": (4, 4), "w": (4, 4)}, nodes, ["u", "y"])
    check(g, [["matmul t", "exp u"], ["relu y"]], x=random(4, 4), w=random(4, 4, seed=1))


def test_a_value_that_is_returned_is_not_part_of_its_reader() -> None:
    nodes = [kernel(unary("relu", 4, 4), "x", "u"), kernel(binary("+", 4, 4), "u x", "y")]
    check(graph({"x": (4, 4)}, nodes, ["u", "y"]), [["relu u"], ["add y"]], x=random(4, 4))


def test_programs_of_other_modes_are_kernels_of_their_own() -> None:
    strict = replace(unary("relu", 4, 4), mode="strict")
    nodes = [kernel(strict, "x", "u"), kernel(unary("exp", 4, 4), "u", "y")]
    check(graph({"x": (4, 4)}, nodes, ["y"]), [["relu u"], ["exp y"]], x=random(4, 4))
    nodes = [kernel(matmul(4, 4, 4), "x x", "t"), kernel(strict, "t", "y")]
    check(graph({"x": (4, 4)}, nodes, ["y"]), [["matmul t"], ["relu y"]], x=random(4, 4))


def test_what_reads_a_product_out_of_place_does_not_join_it() -> None:
    both = Binary("+", at("a", "i", "j"), at("a", "j", "i"))
    symmetric = single("symmetric", [tensor("a", 4, 4)], tensor("y", 4, 4), "ij", both)
    nodes = [kernel(matmul(4, 4, 4), "x w", "t"), kernel(symmetric, "t", "y")]
    g = graph({"x": (4, 4), "w": (4, 4)}, nodes, ["y"])
    check(g, [["matmul t"], ["symmetric y"]], x=random(4, 4), w=random(4, 4, seed=1))


def test_the_later_of_two_products_takes_the_addition() -> None:
    nodes = [
        kernel(matmul(4, 4, 4), "x w", "a"),
        kernel(matmul(4, 4, 4), "x v", "b"),
        kernel(binary("+", 4, 4), "a b", "y"),
    ]
    g = graph({"x": (4, 4), "w": (4, 4), "v": (4, 4)}, nodes, ["y"])
    feeds = {name: random(4, 4, seed=k) for k, name in enumerate("xwv")}
    check(g, [["matmul a"], ["matmul b", "add y"]], **feeds)


def test_a_transpose_is_read_by_the_product_it_feeds() -> None:
    nodes = [kernel(transpose_program(f32, (4, 3), (1, 0)), "q", "z"), kernel(matmul(5, 4, 3), "p z", "y")]
    g = graph({"p": (5, 3), "q": (4, 3)}, nodes, ["y"])
    check(g, [["transpose z", "matmul y"]], p=random(5, 3), q=random(4, 3, seed=1))


def test_arithmetic_is_not_repeated_inside_a_product() -> None:
    nodes = [kernel(unary("exp", 4, 4), "q", "z"), kernel(matmul(4, 4, 4), "p z", "y")]
    g = graph({"p": (4, 4), "q": (4, 4)}, nodes, ["y"])
    check(g, [["exp z"], ["matmul y"]], p=random(4, 4), q=random(4, 4, seed=1))


def test_arithmetic_is_not_repeated_inside_a_product_that_reads_it_through_transposes() -> None:
    turned = transpose_program(f32, (4, 4), (1, 0))
    chain = [kernel(unary("relu", 4, 4), "q", "u"), kernel(turned, "u", "v"), kernel(turned, "v", "z"), kernel(matmul(4, 4, 4), "p z", "y")]
    g = graph({"p": (4, 4), "q": (4, 4)}, chain, ["y"])
    check(g, [["relu u"], ["transpose v", "transpose z", "matmul y"]], p=random(4, 4), q=random(4, 4, seed=1))


def test_a_cheap_mask_joins_the_softmax_behind_it_and_an_expensive_function_does_not() -> None:
    shapes = {"x": (4, 5), "m": (5,)}
    feeds = {"x": random(4, 5), "m": random(5, seed=1)}
    nodes = [kernel(add_row(4, 5), "x m", "t"), kernel(softmax(4, 5), "t", "y")]
    check(graph(shapes, nodes, ["y"]), [["add t", "softmax y"]], **feeds)
    nodes = [kernel(unary("exp", 4, 5), "x", "t"), kernel(softmax(4, 5), "t", "y")]
    check(graph(shapes, nodes, ["y"]), [["exp t"], ["softmax y"]], x=feeds["x"])


def test_pointwise_kernels_without_an_anchor_are_one() -> None:
    nodes = [
        kernel(unary("exp", 4, 5), "x", "a"),
        kernel(unary("tanh", 4, 5), "a", "b"),
        kernel(binary("*", 4, 5), "a b", "c"),
        kernel(transpose_program(f32, (4, 5), (1, 0)), "c", "y"),
    ]
    check(graph({"x": (4, 5)}, nodes, ["y"]), [["exp a", "tanh b", "mul c", "transpose y"]], x=random(4, 5))


def test_a_view_is_a_border() -> None:
    nodes = [kernel(matmul(4, 6, 3), "x w", "t"), View("->24", "t", "v"), kernel(unary("relu", 24), "v", "y")]
    check(graph({"x": (4, 3), "w": (3, 6)}, nodes, ["y"]), [["matmul t"], ["relu y"]], x=random(4, 3), w=random(3, 6, seed=1))


def grouped_conv(n: int, g: int, c: int, f: int, p: int) -> Program:
    """A convolution by one pixel in groups: y[n, (g, f), p] = sum(c) x[n, (g, c), p] * w[(g, f), c]."""
    body = Binary("*", at("x", "n", "g", "c", "p"), at("w", "g", "f", "c"))
    base = conv1x1(1, 1, 1, 1).definitions[0].pieces[0].value
    assert isinstance(base, Binary) and isinstance(base.rhs, Reduce)
    value = Reduce(base.rhs.reducer, (Binder("c", Int(0), Int(c)),), (body,))
    x = Tensor("x", f32, (Int(n), Int(g), Int(c), Int(p)), (1, 2, 1))
    w = Tensor("w", f32, (Int(g), Int(f), Int(c)), (2, 1))
    y = Tensor("y", f32, (Int(n), Int(g), Int(f), Int(p)), (1, 2, 1))
    return Program("conv", (), (x, w), ("y",), (Def((y,), ("n", "g", "f", "p"), (Piece(value),)),))


def test_what_follows_a_grouped_convolution_takes_over_its_axes() -> None:
    value = Binary("+", at("a", "n", "k", "p"), at("b", "k"))
    per_channel = single("add", [tensor("a", 2, 6, 4), tensor("b", 6)], tensor("y", 2, 6, 4), "nkp", value)
    nodes = [
        kernel(grouped_conv(2, 3, 5, 2, 4), "x w", "t"),
        kernel(per_channel, "t b", "u"),
        kernel(binary("+", 2, 6, 4), "u r", "v"),
        kernel(unary("relu", 2, 6, 4), "v", "y"),
    ]
    shapes = {"x": (2, 15, 4), "w": (6, 5), "b": (6,), "r": (2, 6, 4)}
    values = {k: random(*s, seed=i) for i, (k, s) in enumerate(shapes.items())}
    base = graph({**shapes, "t": (2, 6, 4), "u": (2, 6, 4), "v": (2, 6, 4), "y": (2, 6, 4)}, [], [])
    g = Graph("g", tuple(shapes), ("y",), base.values, {}, tuple(nodes))
    done = check(g, [[n.name for n in nodes]], **values)
    [fused] = done.nodes
    assert isinstance(fused, Kernel)
    assert [len(d.axes) for d in fused.program.definitions] == [4]


@pytest.mark.parametrize("groups", [1, 2])
def test_what_reads_a_grouped_convolution_and_what_is_made_of_it_takes_over_its_axes_once(groups: int) -> None:
    nodes = [
        kernel(grouped_conv(2, groups, 5, 3, 4), "x w", "t"),
        kernel(unary("sigmoid", 2, 3 * groups, 4), "t", "s"),
        kernel(binary("*", 2, 3 * groups, 4), "t s", "y"),
    ]
    shapes = {"x": (2, 5 * groups, 4), "w": (3 * groups, 5)}
    values = {k: random(*s, seed=i) for i, (k, s) in enumerate(shapes.items())}
    base = graph({**shapes, **dict.fromkeys("tsy", (2, 3 * groups, 4))}, [], [])
    done = check(Graph("g", tuple(shapes), ("y",), base.values, {}, tuple(nodes)), [[n.name for n in nodes]], **values)
    [fused] = done.nodes
    assert isinstance(fused, Kernel)
    [definition] = fused.program.definitions
    assert len(definition.axes) == 4 and sum(isinstance(e, Reduce) for e in expressions(fused.program)) == 1


def test_what_data_chooses_from_is_stored() -> None:
    row = single("take", [tensor("x", 5), tensor("i", 3, dtype=i64)], tensor("y", 3), "k", Read("x", (Dynamic(at("i", "k")),)))
    nodes = [kernel(unary("exp", 5), "x", "t"), Kernel("take y", row, ("t", "i"), ("y",))]
    base = graph({"x": (5,), "t": (5,), "i": (3,), "y": (3,)}, [], [])
    values = base.values | {"i": Value("i", i64, (3,))}
    g = Graph("g", ("x", "i"), ("y",), values, {}, tuple(nodes))
    check(g, [["exp t"], ["take y"]], x=random(5), i=np.array([4, 0, 2]))


def test_what_a_kernel_checks_is_made_before_it() -> None:
    """Of indices that it computed itself, it would not know that they lie in what it reads."""
    index = replace(tensor("i", 3, dtype=i64), declared_range=(Int(0), Int(5)))
    taken = single("take", [tensor("x", 5), index], tensor("y", 3), "k", Read("x", (Dynamic(at("i", "k")),)))
    twice = single("twice", [tensor("h", 3, dtype=i64)], tensor("i", 3, dtype=i64), "k", Binary("+", at("h", "k"), at("h", "k")))
    values = {n: Value(n, i64 if n in "hi" else f32, (5 if n == "x" else 3,)) for n in "xhiy"}
    nodes = (Kernel("twice i", twice, ("h",), ("i",)), Kernel("take y", taken, ("x", "i"), ("y",)))
    check(Graph("g", ("x", "h"), ("y",), values, {}, nodes), [["twice i"], ["take y"]], x=random(5), h=np.array([2, 0, 1]))


@pytest.mark.parametrize("length", [3, 40])
def test_long_chains_stay_within_a_limit(length: int) -> None:
    nodes = [kernel(unary("tanh", 3), f"v{k}", f"v{k + 1}") for k in range(length)]
    done = verify(fuse(graph({"v0": (3,)}, nodes, [f"v{length}"])))
    assert len(done.nodes) == (1 if length == 3 else 2)


def test_a_narrow_result_is_rounded_where_it_was() -> None:
    add = single("scale", [tensor("x", 3, dtype=f16)], tensor("y", 3, dtype=f16), "i", Binary("*", at("x", "i"), Const(3.0, f32)))
    nodes = [kernel(add, "x", "t"), kernel(add, "t", "y")]
    base = graph({}, [], [])
    g = graph({"x": (3,)}, nodes, ["y"])
    g = Graph("g", ("x",), ("y",), {n: type(v)(n, f16, v.shape) for n, v in g.values.items()}, base.constants, g.nodes)
    x = np.array([1.0009765625, 333.3, 6e-5], np.float16)
    done = verify(fuse(g))
    assert len(done.nodes) == 1
    np.testing.assert_array_equal(run(done, {"x": x})["y"], run(g, {"x": x})["y"], strict=True)


def test_groups_of_one_shape_share_one_program() -> None:
    programs = [unary("tanh", 4), unary("relu", 4)]
    nodes = [kernel(programs[k % 2], f"v{k}", f"v{k + 1}") for k in range(3 * LARGEST_GROUP)]
    g = graph({"v0": (4,)}, nodes, [f"v{len(nodes)}"])
    made = [n for n in fuse(g).nodes if isinstance(n, Kernel)]
    assert len(made) == 3 and len({id(n.program) for n in made}) == 1
    check(g, [[n.name for n in nodes[k : k + LARGEST_GROUP]] for k in range(0, len(nodes), LARGEST_GROUP)], v0=random(4))


@pytest.mark.parametrize(("rows", "expected"), [(1, [["mul u", "matmul y"]]), (2, [["mul u"], ["matmul y"]])])
def test_arithmetic_on_a_matrix_joins_its_product_with_a_vector_where_no_element_is_used_again(
    rows: int, expected: list[list[str]]
) -> None:
    nodes = [kernel(binary("*", 3, 5), "w s", "u"), kernel(matmul(rows, 5, 3), "x u", "y")]
    shapes = {"x": (rows, 3), "w": (3, 5), "s": (3, 5)}
    check(graph(shapes, nodes, ["y"]), expected, **{k: random(*s, seed=i) for i, (k, s) in enumerate(shapes.items())})


def test_a_vector_that_every_column_reads_stays_outside_of_its_product() -> None:
    nodes = [kernel(unary("relu", 1, 3), "x", "u"), kernel(matmul(1, 5, 3), "u w", "y")]
    check(graph({"x": (1, 3), "w": (3, 5)}, nodes, ["y"]), [["relu u"], ["matmul y"]], x=random(1, 3), w=random(3, 5))


def test_a_transpose_that_undoes_the_one_before_a_reduction_joins_both() -> None:
    before, after = (transpose_program(f32, shape, (1, 0)) for shape in ((5, 3), (3, 5)))
    nodes = [kernel(before, "x", "t"), kernel(softmax(3, 5), "t", "s"), kernel(after, "s", "y")]
    done = check(graph({"x": (5, 3)}, nodes, ["y"]), [["transpose t", "softmax s", "transpose y"]], x=random(5, 3))
    [made] = done.nodes
    assert isinstance(made, Kernel) and len(made.program.definitions) == 4
