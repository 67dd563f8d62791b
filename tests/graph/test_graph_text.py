"""Graphs as text: what is printed, and that it reads back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from golden_case import GOLDEN
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import add_row, graph, kernel, matmul, softmax, unary
from test_fuse import grouped_conv

import tensorlang as tl
from codegen.dtypes import bool_, f32, i64
from polyhedral.expr import Add, Floor, Int, Mod, Name
from tensorlang.diagnostics import CompileError
from tensorlang.externs import CSymbol, CUDASource, LLVMText
from tensorlang.graph.externs import graph_of
from tensorlang.graph.nodes import Extern, Graph, Join, Kernel, Part, Value, View
from tensorlang.graph.parser import parse
from tensorlang.graph.passes.fusion.fuse import fuse
from tensorlang.graph.printer import show
from tensorlang.graph.sizes import Symbols
from tensorlang.schedule.layout import Layout
from tensorlang.tensor.nodes import ExternCall, Tensor


def example() -> Graph:
    c = Name("d1")
    layout = Layout(("d0", "d1"), (Floor(c, 2), Add(Name("d0"), Int(1)), Mod(c, 2)), (3, 6, 2))
    nodes = [
        Kernel(
            'odd "name"\n%s',
            matmul(2, 5, 3),
            ("x", "w"),
            ("t",),
            "MatMul",
            (("axis", 1), ("pads", (1, 2)), ("eps", 1e-5), ("mode", "a{b}")),
            ("m", "n"),
        ),
        kernel(add_row(2, 5), "t b", "u"),
        kernel(softmax(2, 5), "u", "p"),
        View("v", "p", "y", ("reshape",)),
        kernel(unary("relu", 2, 5), "p", "z"),
        kernel(unary("relu", 2, 5), "t", "q"),
        Join("j", ("p", "q"), "s", ("side by side",)),
        Part("half", "s", "h", 40, ("sample",)),
    ]
    g = graph(
        {"x": (2, 3), "w": (3, 5), "b": (5,)}, [n for n in nodes if isinstance(n, Kernel)], ["z", "y", "q"], {"b": np.ones(5, np.float32)}
    )
    values = g.values | {
        "y": Value("y", g.values["p"].dtype, (10,)),
        "s": Value("s", g.values["p"].dtype, (4, 5)),
        "h": Value("h", g.values["p"].dtype, (2, 5)),
        "u": Value("u", g.values["u"].dtype, (2, 5), layout),
    }
    return Graph("net", ("x", "w"), ("z", "y", "q"), values, g.constants, tuple(nodes))


def same(a: Graph, b: Graph) -> None:
    assert (a.name, a.inputs, a.outputs, a.values) == (b.name, b.inputs, b.outputs, b.values)
    for mine, theirs in zip(a.nodes, b.nodes, strict=True):
        assert mine == theirs


@pytest.mark.parametrize("make", [example, lambda: fuse(example())], ids=["as imported", "fused"])
def test_what_is_printed_reads_back(make: Any) -> None:
    g = make()
    same(parse(show(g), g.constants), g)


def test_a_program_with_groups_of_axes_reads_back() -> None:
    program = grouped_conv(2, 3, 5, 2, 4)
    base = graph({"x": (2, 15, 4), "w": (6, 5), "t": (2, 6, 4)}, [], [])
    g = Graph("g", ("x", "w"), ("t",), base.values, {}, (kernel(program, "x w", "t"),))
    same(parse(show(g), {}), g)


def test_the_text_of_a_graph(golden: Any) -> None:
    golden(GOLDEN / "graph.txt", show(example()))


def test_a_constant_that_is_another_one_is_refused() -> None:
    g = example()
    with pytest.raises(CompileError, match="is not the one"):
        parse(show(g), {"b": np.zeros(5, np.float32)})
    with pytest.raises(CompileError, match="is not given"):
        parse(show(g), {})


NAMES = st.text(min_size=1, max_size=8) | st.sampled_from(
    ["a) -> (b", 'x", "y', ' members ["m"]', "} kernel {", "line\n\u2028feed", "\ud800", "\\"]
)
KERNELS = st.builds(CSymbol, NAMES, NAMES, NAMES) | st.builds(LLVMText, NAMES, NAMES, NAMES) | st.builds(CUDASource, NAMES, NAMES, NAMES)
SIZES = st.integers(0, 9).map(Int)


@st.composite
def calls(draw: st.DrawFn) -> ExternCall:
    shapes = [draw(st.lists(SIZES, max_size=3)) for _ in range(draw(st.integers(1, 3)))]
    results = tuple(
        Tensor(draw(NAMES), draw(st.sampled_from([f32, i64, bool_])), tuple(shape), draw(st.sampled_from([(), (len(shape),)])))
        for shape in shapes
    )
    sizes = st.lists(SIZES | st.lists(SIZES, max_size=3).map(tuple), max_size=3).map(tuple)
    numbers = st.lists(st.integers() | st.floats(allow_nan=False), max_size=3).map(tuple)
    arguments = st.lists(NAMES | st.none(), max_size=3).map(tuple)
    return ExternCall(draw(NAMES), draw(arguments), results, draw(sizes), draw(numbers), draw(KERNELS | st.none()), draw(NAMES))


@given(calls(), st.lists(NAMES, min_size=3, max_size=6, unique=True))
@settings(max_examples=200, deadline=None)
def test_a_call_of_a_kernel_reads_back_whatever_names_and_paths_are(call: ExternCall, names: list[str]) -> None:
    first, *others, last = names
    node = Extern(first, call, tuple(others), (last, last), tuple(others))
    nodes = (node, Join(last, tuple(names), first, (last,)), View(last, first, last), Part(first, last, first, 3, (first,)))
    g = Graph(first, tuple(others), (last,), {n: Value(n, f32, (2,)) for n in names}, {}, nodes)
    back = parse(show(g), {})
    same(back, g)
    assert [type(a) for a in back.nodes[0].call.attributes] == [type(a) for a in call.attributes]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "line",
    [
        "kernel x",
        "valu",
        'value "x": f33[1]',
        'view "a" "b"',
        'view "a" "b" -> "c" members',
        'view "a" "b" -> "c" more',
        'join "a" ("b", ) -> "c"',
        'part "a" "b" at "c" -> "d"',
        'value "x": f32["n"]',
        'extern "n" ("a") -> ("b")',
        'extern "n" ("a") -> ("b") = "f" "f_f32" arguments [3] results []',
        'extern "n" ("a") -> ("b") = "f" "f_f32" arguments ["a"] results [["b", "f33", [2], []]]',
        'extern "n" ("a") -> ("b") = "f" "f_f32" arguments ["a"] results [["b", "f32", [2], []]] kernel {"kind": "CSymbol"}',
        'extern "n" ("a") -> ("b") = "f" "f_f32" arguments ["a"] results [["b", "f32", [2], []]] kernel {"kind": ["CSymbol"]}',
    ],
)
def test_a_line_that_is_no_part_of_a_graph_is_refused(line: str) -> None:
    with pytest.raises(CompileError, match="O0002"):
        parse(f'graph "g"\ninputs\noutputs\n{line}\n', {})


@pytest.mark.parametrize(
    "head", ["", 'graph "g"\ninputs', "graph\ninputs\noutputs", 'graph "g"\ninputs x\noutputs', 'graph "g"\nin\noutputs']
)
def test_a_text_that_does_not_begin_like_a_graph_is_refused(head: str) -> None:
    with pytest.raises(CompileError, match="O0002"):
        parse(head, {})


def test_a_program_with_kernels_is_a_graph_that_reads_back() -> None:
    text = "extern op scale[T: float](x: T[D.., N], attr by: float = 2) -> (y: T[D.., N])\nop f(x: f32[N, M]) -> (y: f32[N, M]) {\n"
    text += "    a[i, j] = x[i, j] + 1\n    b = scale(a, by=3)\n    y[i, j] = b[i, j] * a[i, j]\n}\n"
    operator = tl.parse(text, externs={"scale": tl.llvm_ir('line "one"\n; two', "scale_{T}")}).f
    g = graph_of(operator.program(np.ones((2, 3), np.float32)))
    assert any(isinstance(node, Extern) for node in g.nodes)
    same(parse(show(g), {}), g)


def test_the_call_of_a_kernel_with_open_sizes_reads_back() -> None:
    symbols = Symbols({"n": 5})
    n = symbols.symbol("n")
    call = ExternCall("f", ("a",), (Tensor("b", f32, (Name("n"), Int(2))),), (Name("n"), (Add(Name("n"), Int(1)), Int(2))), symbol="f")
    values = {name: Value(name, f32, (n, 2)) for name in "ab"}  # type: ignore[arg-type]
    g = Graph("g", ("a",), ("b",), values, {}, (Extern("e", call, ("a",), ("b",)),), symbols)
    assert show(parse(show(g), {})) == show(g)
    assert parse(show(g), {}).nodes == g.nodes


def test_the_call_of_a_kernel_by_a_symbol_that_is_none_is_refused() -> None:
    line = 'extern "n" ("a") -> ("b") = "f" "f" arguments ["a"] results [["b", "f32", ["m"], []]]'
    with pytest.raises(CompileError, match="O0002"):
        parse(f'graph "g"\nsize "n" sample 3\ninputs\noutputs\n{line}\n', {})
