"""Programs that call kernels are printed with the declarations of what they call, and read back."""

from __future__ import annotations

from typing import Any

import extern_kernels as kernels
import numpy as np
import pytest

import tensorlang as tl
from codegen.dtypes import DTYPES
from tensorlang.check.definition import representative_program
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import Module, load_module
from tensorlang.diagnostics import Source
from tensorlang.graph.externs import graph_of
from tensorlang.graph.parser import parse as parse_graph
from tensorlang.graph.printer import show as show_graph
from tensorlang.runtime.externs import with_externs
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.printer import show, shown_kernels
from tensorlang.tensor.walk import caller_shape

SCALE = "extern op scale[T: float](x: T[N], attr by: float = 2) -> (y: T[N])\n"
KERNELS = {
    "scale": tl.llvm_ir(kernels.scale(), "scale_{T}"),
    "ends": tl.llvm_ir(kernels.ends(), "ends"),
    "pick": tl.llvm_ir(kernels.pick(), "pick"),
    "told": tl.llvm_ir("", "told"),
    "cat": tl.llvm_ir("", "cat"),
    "first": tl.llvm_ir("", "first"),
}
PROGRAMS = {
    "around": (SCALE + "op f(x: f32[N]) -> (y: f32[N]) {\n a[i] = x[i] + 1\n b = scale(a, by=-0.5)\n y[i] = b[i] + a[i]\n}", [(5,)]),
    "twice": (SCALE + "op f(x: f32[N]) -> (y: f32[N]) { y = scale(scale(x)) }", [(5,)]),
    "results": (
        "extern op ends(x: f32[N], z: f32[N]) -> (low: f32[N], high: f32[N])\n"
        "op f(x: f32[N], z: f32[N]) -> (y: f32[N]) {\n _, b = ends(z, x)\n y[i] = b[i]\n}",
        [(4,), (4,)],
    ),
    "ranges": (
        "extern op pick(x: f32[N], at: i64[K] in 0..N) -> (y: f32[K])\n"
        "op f(x: f32[N], at: i64[K] in 0..N) -> (y: f32[K]) {\n t = pick(x, at)\n y[k] = t[k] + 1\n}",
        [(4,), (3,)],
    ),
    "left out": (
        "extern op told(x: f32[D..], w: f32[K] = 1, z: f32[K] = 0, attr on: bool = 1, attr k: int) -> (y: f32[D..])\n"
        "op f(x: f32[A, B], z: f32[K]) -> (y: f32[A, B]) { y = told(x, z=z, on=false, k=-3) }",
        [(2, 3), (4,)],
    ),
    "sizes": (
        "extern op first(x: f32[N], size k in 0..N, size p..) -> (y: f32[k, p..])\n"
        "op f(x: f32[N]) -> (y: f32[2, 3, 4]) { y = first(x, k=2, p=(3, 4)) }",
        [(5,)],
    ),
    "each": (
        "extern op cat(z: f32[M], each x: f32[each N]) -> (y: f32[sum(N..)])\n"
        "op f(a: f32[P], b: f32[Q]) -> (y: f32[P + Q]) { y = cat(a, a, b) }",
        [(2,), (3,)],
    ),
}  # fmt: skip


def program(name: str, symbolic: bool) -> Program:
    text, shapes = PROGRAMS[name]
    given = {k: v for k, v in KERNELS.items() if f"extern op {k}" in text}
    module = with_externs(load_module(parse(Source("f.tl", text))), given, "cpu")
    if symbolic:
        made = representative_program(module, "f", {}, {})
        assert made is not None
        return made
    types = [p.type.dtype for p in module.operators["f"].params]  # type: ignore[union-attr]
    return instantiate(module, "f", [ArgType(DTYPES[t], s) for t, s in zip(types, shapes, strict=True)])


def read_module(made: Program) -> Module:
    return with_externs(load_module(parse(Source("shown.tl", show(made)))), shown_kernels(made), "cpu")


def read_back(made: Program, name: str | None = None) -> Any:
    module = read_module(made)
    if made.sizes:
        return representative_program(module, name or made.name, {}, {})
    return instantiate(module, name or made.name, [ArgType(p.dtype, caller_shape(p, {})) for p in made.params])


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_calls_kernels_reads_back_equal(name: str, symbolic: bool) -> None:
    made = program(name, symbolic)
    assert made.externs and read_back(made) == made
    assert show(read_back(made)) == show(made)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_graph_of_a_program_that_calls_kernels_reads_back_equal(name: str) -> None:
    graph = graph_of(program(name, symbolic=False))
    again = parse_graph(show_graph(graph), {})
    assert again.nodes == graph.nodes and show_graph(again) == show_graph(graph)


def test_an_operator_called_like_the_kernels_is_told_apart() -> None:
    made = tl.parse(SCALE, externs={"scale": KERNELS["scale"]}).scale.program(np.ones(3, np.float32))
    assert "`scale.1`" in show(made) and list(shown_kernels(made)) == ["scale.1"]
    [call], [again] = made.externs, read_back(made).externs
    assert (again.sizes, again.attributes, again.kernel, again.symbol) == (call.sizes, call.attributes, call.kernel, call.symbol)
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(tl.parse(show(made), externs=shown_kernels(made)).scale(x), 2 * x)


def test_kernels_of_one_name_from_two_files_are_told_apart(tmp_path: Any) -> None:
    for name, body in (("a", "x: f32[N]"), ("b", "x: f32[N], z: f32[N]")):
        results = "y: f32[N]" if name == "a" else "low: f32[N], high: f32[N]"
        (tmp_path / f"{name}.tl").write_text(f"extern op g({body}) -> ({results})\n")
    text = 'use "a.tl" (g as g1)\nuse "b.tl" (g as g2)\nop f(x: f32[N]) -> (y: f32[N]) {\n a = g1(x)\n y, _ = g2(a, x)\n}'
    (tmp_path / "main.tl").write_text(text)
    given = {"g1": tl.llvm_ir(kernels.copies(32), "copies"), "g2": tl.llvm_ir(kernels.ends(), "ends")}
    operator, x = tl.load(tmp_path / "main.tl", externs=given).f, np.array([1, -2], np.float32)
    made = operator.program(x)
    assert sorted(shown_kernels(made)) == ["g", "g.1"]
    np.testing.assert_array_equal(tl.parse(show(made), externs=shown_kernels(made)).f(x), operator(x))
