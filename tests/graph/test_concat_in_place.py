"""Joins: what is concatenated lies in its place from the start, where memory in one piece proves that this is the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from small_graphs import at, graph, kernel, tensor, unary

import tensorlang as tl
from polyhedral import affine
from polyhedral.expr import Add, Expr, Floor, Int, Mod, Name
from tensorlang.diagnostics import InternalError
from tensorlang.graph.nodes import Graph, Join, Kernel, Node, Value, View
from tensorlang.graph.passes.memory.concat_in_place import concat_in_place, parts_of
from tensorlang.graph.passes.memory.copy_outputs import copy_outputs
from tensorlang.graph.plan import Arena, Output, planned
from tensorlang.graph.relayout import to_layout
from tensorlang.graph.sizes import Symbols
from tensorlang.graph.verify import verify
from tensorlang.schedule.layout import Layout
from tensorlang.tensor.nodes import Definition, Piece, Program


def concat(axis: int, *shapes: tuple[int, ...]) -> Program:
    """Return the program that puts tensors of these shapes side by side along an axis."""
    axes = tuple("nchw"[: len(shapes[0])])
    here, pieces, start = axes[axis], [], 0
    for k, shape in enumerate(shapes):
        end = start + shape[axis]
        index: list[str | Expr] = [Add(Name(a), Int(-start)) if a == here and start else a for a in axes]
        guards = [affine.compare(">=", here, start)] * bool(start) + [affine.compare("<", here, end)] * (k + 1 < len(shapes))
        pieces.append(Piece(at(f"x{k}", *index), affine.conj(*guards)))
        start = end
    total = tuple(start if k == axis else n for k, n in enumerate(shapes[0]))
    params = tuple(tensor(f"x{k}", *shape) for k, shape in enumerate(shapes))
    return Program("concat", (), params, ("y",), (Definition((tensor("y", *total),), axes, tuple(pieces)),))


def blocked(shape: tuple[int, ...], axis: int, block: int) -> Layout:
    names = tuple("nchw"[: len(shape)])
    dims = tuple(Floor(Name(a), block) if k == axis else Name(a) for k, a in enumerate(names))
    cells = tuple(-(-n // block) if k == axis else n for k, n in enumerate(shape))
    return Layout(names, (*dims, Mod(Name(names[axis]), block)), (*cells, block))


# ---- what is proven


@pytest.mark.parametrize(
    ("whole", "second", "axis", "starts"),
    [("1, M + N, 16", "1, N, 16", "j", ["0", "16*M"]), ("2, M + N, 16", "2, N, 16", "j", None), ("B, M, 32", "B, M, 16", "k", None)],
    ids=["rows", "rows of several", "columns"],
)
def test_of_open_sizes_parts_lie_in_a_row_where_cells_are_as_many_behind_for_all(
    whole: str, second: str, axis: str, starts: list[str] | None
) -> None:
    first, edge = (second.replace("N", "M"), "M") if axis == "j" else (second, "16")
    index = "i, j, k".replace(axis, f"{axis} - {edge}")
    text = f"""op f(a: f32[{first}], b: f32[{second}]) -> (y: f32[{whole}]) {{
        y[i, j, k] = a[i, j, k]  for {axis} in 0..{edge}
        y[i, j, k] = b[{index}]  for {axis} >= {edge}
    }}"""
    program = tl.parse(text).f.symbolic_program({})
    found = parts_of(program, {}, Symbols({"B": 2, "M": 5, "N": 7}))
    assert (None if found is None else [str(part.start) for part in found]) == starts
    assert parts_of(program, {}) is None


@st.composite
def concatenations(draw: st.DrawFn) -> tuple[Program, dict[str, Layout], list[tuple[int, ...]], int]:
    rank = draw(st.integers(1, 4))
    axis = draw(st.integers(0, rank - 1))
    common = [draw(st.integers(1, 3)) for _ in range(rank)]
    shapes = [tuple(draw(st.integers(1, 9)) if k == axis else n for k, n in enumerate(common)) for _ in range(draw(st.integers(2, 3)))]
    program = concat(axis, *shapes)
    total = tuple(sum(s[axis] for s in shapes) if k == axis else n for k, n in enumerate(common))
    layouts: dict[str, Layout] = {}
    for name, shape in [*((f"x{k}", s) for k, s in enumerate(shapes)), ("y", total)]:
        if draw(st.booleans()):
            layouts[name] = blocked(shape, draw(st.integers(0, rank - 1)), draw(st.sampled_from([2, 4])))
    return program, layouts, shapes, axis


@given(concatenations())
def test_where_parts_are_found_their_memory_in_a_row_is_the_memory_of_the_result(
    case: tuple[Program, dict[str, Layout], list[tuple[int, ...]], int],
) -> None:
    program, layouts, shapes, axis = case
    parts = parts_of(program, layouts)
    counts = np.cumsum([0, *(np.prod(s) for s in shapes)])
    numbers = np.arange(counts[-1], dtype=np.float32)
    arrays = {f"x{k}": numbers[counts[k] : counts[k + 1]].reshape(s) for k, s in enumerate(shapes)}
    whole = np.concatenate(list(arrays.values()), axis)

    def memory(name: str, array: np.ndarray) -> np.ndarray:
        return (to_layout(array, layouts[name], fill=-1) if name in layouts else array).reshape(-1)

    one_after_another = np.concatenate([memory(name, array) for name, array in arrays.items()])
    same = one_after_another.tolist() == memory("y", whole).tolist() and len(one_after_another) == whole.size
    assert (parts is not None) == same


@pytest.mark.parametrize(
    ("axis", "shapes", "block", "expected"),
    [
        pytest.param(1, [(1, 16, 3, 3), (1, 32, 3, 3)], 16, [0, 144], id="blocks of channels of one image"),
        pytest.param(1, [(2, 16, 3, 3), (2, 32, 3, 3)], 16, None, id="blocks of channels of two images"),
        pytest.param(1, [(1, 24, 3, 3), (1, 32, 3, 3)], 16, None, id="a block that is not full"),
        pytest.param(0, [(2, 3), (4, 3)], None, [0, 6], id="rows"),
        pytest.param(1, [(2, 3), (2, 5)], None, None, id="columns"),
    ],
)
def test_what_lies_in_one_piece(axis: int, shapes: list[tuple[int, ...]], block: int | None, expected: list[int] | None) -> None:
    program = concat(axis, *shapes)
    tensors = {t.name: tuple(n.value for n in t.shape) for t in (*program.params, program.definitions[0].tensors[0])}  # type: ignore[union-attr]
    layouts = {} if block is None else {name: blocked(shape, 1, block) for name, shape in tensors.items()}
    parts = parts_of(program, layouts)
    assert (None if parts is None else [part.start for part in parts]) == expected


def test_a_part_that_is_changed_on_the_way_is_none() -> None:
    program = concat(0, (2, 3), (4, 3))
    [definition] = program.definitions
    doubled = replace(definition.pieces[0], value=replace(at("x0", "n", "c"), index=(Name("n"), Add(Int(2), affine.scale(-1, "c")))))
    changed = replace(program, definitions=(replace(definition, pieces=(doubled, definition.pieces[1])),))
    assert parts_of(changed, {}) is None


def test_a_part_of_which_some_elements_lie_in_their_place_is_none() -> None:
    """The first element of `x0` is copied twice, the first of `x1` never: 0 and 2 are only where the nearest of their elements lie."""
    pieces = (
        Piece(at("x0", Floor(Name("n"), 2)), affine.compare("<", "n", 3)),
        Piece(at("x1", 1), affine.compare(">=", "n", 3)),
    )
    program = Program("copies", (), (tensor("x0", 2), tensor("x1", 2)), ("y",), (Definition((tensor("y", 4),), ("n",), pieces),))
    assert parts_of(program, {}) is None


# ---- what becomes of a graph


ROWS = 16


def pair(inputs: str, output: str, *rows: int) -> Kernel:
    return kernel(concat(0, *((n, ROWS) for n in rows)), inputs, output)


def joined(nodes: list[Node], returned: list[str], constants: dict[str, np.ndarray] | None = None) -> Graph:
    return verify(copy_outputs(verify(concat_in_place(graph({"x": (4, ROWS)}, nodes, returned, constants)))))


def exp(source: str, result: str, rows: int = 4) -> Kernel:
    return kernel(unary("exp", rows, ROWS), source, result)


def kinds(g: Graph) -> list[str]:
    return [type(node).__name__ for node in g.nodes]


def test_parts_get_their_places_in_the_whole() -> None:
    g = joined([exp("x", "a"), exp("x", "b"), pair("a b", "c", 4, 4), exp("c", "y", 8)], ["y"])
    assert kinds(g) == ["Kernel", "Kernel", "Join", "Kernel"]
    plan = planned(g)
    assert [plan.places[name] for name in "abc"] == [Arena(0), Arena(4 * ROWS * 4), Arena(0)]
    assert plan.arena_bytes == 8 * ROWS * 4


def test_parts_in_another_layout_get_no_place_in_memory_of_the_caller() -> None:
    nodes: list[Node] = [kernel(unary("exp", 1, 16, 1), "x", name) for name in "ab"]
    g = graph({"x": (1, 16, 1)}, [*nodes, kernel(concat(1, (1, 16, 1), (1, 16, 1)), "a b", "c")], ["c"])
    in_blocks = {name: replace(g.values[name], layout=blocked((1, 16, 1), 1, 16)) for name in "ab"}
    ready = verify(copy_outputs(verify(concat_in_place(replace(g, values={**g.values, **in_blocks})))))
    assert kinds(ready) == ["Kernel", "Kernel", "Join", "Kernel"]
    assert [planned(ready).places[name] for name in ("a", "b", *ready.outputs)] == [Arena(0), Arena(64), Output(0)]


def test_a_join_of_joins_is_one_memory() -> None:
    nodes = [exp("x", "a"), exp("x", "b"), pair("a b", "c", 4, 4), exp("x", "d"), pair("c d", "e", 8, 4), exp("e", "y", 12)]
    plan = planned(joined(nodes, ["y"]))
    assert [plan.places[name] for name in "abcde"] == [Arena(0), Arena(256), Arena(0), Arena(512), Arena(0)]


def test_a_joined_value_that_is_returned_is_written_where_the_caller_wants_it() -> None:
    g = joined([exp("x", "a"), exp("x", "b"), pair("a b", "y", 4, 4)], ["y"])
    plan = planned(g)
    assert [plan.places[name] for name in "aby"] == [Output(0, 0), Output(0, 256), Output(0, 0)]


def test_a_whole_lives_from_its_first_part_to_its_last_reader() -> None:
    nodes = [exp("x", "a"), exp("x", "t"), exp("t", "b"), pair("a b", "c", 4, 4), exp("b", "u"), exp("c", "v", 8), pair("u v", "y", 4, 8)]
    plan = planned(joined(nodes, ["y"]))
    taken = range(plan.places["c"].offset, plan.places["c"].offset + 512)  # type: ignore[union-attr]
    assert isinstance(plan.places["t"], Arena) and plan.places["t"].offset not in taken


@pytest.mark.parametrize(
    ("nodes", "returned"),
    [
        pytest.param([exp("x", "a", 4), pair("x a", "c", 4, 4)], ["c"], id="an input"),
        pytest.param([exp("x", "a", 4), pair("a a", "c", 4, 4)], ["c"], id="a value twice"),
        pytest.param([exp("x", "a", 4), exp("x", "b", 4), pair("a b", "c", 4, 4)], ["a", "c"], id="a value that is returned"),
        pytest.param(
            [exp("x", "a"), View("->64", "a", "v"), exp("x", "b"), pair("a b", "c", 4, 4)], ["v", "c"], id="a view that is returned"
        ),
    ],
)
def test_a_part_that_has_a_place_already_is_not_joined_when_it_is_half_of_all(nodes: list[Node], returned: list[str]) -> None:
    assert "Join" not in kinds(joined(nodes, returned))


def test_a_small_part_that_has_a_place_already_is_copied() -> None:
    g = joined([exp("x", "a"), exp("a", "b"), pair("x a b", "c", 4, 4, 4), exp("c", "y", 12)], ["y"])
    join = next(node for node in g.nodes if isinstance(node, Join))
    assert join.inputs == ("x in place", "a", "b")
    assert "put x in place" in [node.name for node in g.nodes]


def test_parts_that_end_where_no_value_may_begin_are_copied() -> None:
    nodes = [kernel(unary("exp", 3), "r", "a"), kernel(unary("exp", 3), "r", "b"), kernel(concat(0, (3,), (3,)), "a b", "c")]
    g = verify(concat_in_place(graph({"r": (3,)}, [*nodes, kernel(unary("exp", 6), "c", "y")], ["y"])))
    assert kinds(g) == ["Kernel"] * 4


def test_a_value_is_placed_once() -> None:
    nodes = [exp("x", "a"), exp("x", "b"), exp("x", "d"), pair("a b d", "c", 4, 4, 4), pair("d a b", "e", 4, 4, 4), exp("c", "y", 12)]
    g = joined(nodes, ["y", "e"])
    assert kinds(g).count("Join") == 1
    again = [*g.nodes, Join("again", ("a", "b", "d"), "e2")]
    with pytest.raises(InternalError, match="has its place already"):
        planned(replace(g, nodes=tuple(again), values=g.values | {"e2": Value("e2", g.values["e"].dtype, (12, ROWS))}))


def test_a_join_whose_parts_do_not_add_up_is_found() -> None:
    g = joined([exp("x", "a"), exp("x", "b"), pair("a b", "c", 4, 4), exp("c", "y", 8)], ["y"])
    broken = [replace(node, inputs=node.inputs[:1]) if isinstance(node, Join) else node for node in g.nodes]
    with pytest.raises(InternalError, match="join"):
        verify(replace(g, nodes=tuple(broken)))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_model_that_joins_computes_the_same(threads: int) -> None:
    rng = np.random.default_rng(0)
    weights = {f"w{k}": rng.standard_normal((32, c, 1, 1)).astype(np.float32) for k, c in enumerate([16, 32, 64])}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"]),
        helper.make_node("Conv", ["a", "w1"], ["b"]),
        helper.make_node("Concat", ["a", "b"], ["c"], axis=1),
        helper.make_node("Conv", ["c", "w2"], ["d"]),
        helper.make_node("Concat", ["c", "d"], ["e"], axis=1),
        helper.make_node("Relu", ["e"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, c, 5, 7]) for n, c in (("x", 16), ("y", 96)))
    proto = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(w, n) for n, w in weights.items()])
    model = tl.compile(helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), threads=threads)
    image = rng.standard_normal((1, 16, 5, 7)).astype(np.float32)

    def conv(v: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.einsum("nchw,fc->nfhw", v, w[:, :, 0, 0])

    a = conv(image, weights["w0"])
    c = np.concatenate([a, conv(a, weights["w1"])], 1)
    expected = np.maximum(np.concatenate([c, conv(c, weights["w2"])], 1), 0)
    np.testing.assert_allclose(model.run({"x": image})["y"], expected, rtol=1e-4, atol=1e-4)
    assert any(isinstance(node, Join) for node in model._known().executable.graph.nodes)
