"""Sums of products with their factors written out as rows: the same values, whatever the windows are; what is refused."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.dtypes import f32
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.syntax.parse import parse
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.printer import show
from tensorlang.tensor.unfold import Unfolded, unfold
from tensorlang.tensor.verify import verify

WINDOWS = """
op windows(x: f32[N, G, C, H, W], w: f32[G, F, C, R, S], attr stride: int = 1, attr lo: int = 0)
    -> (y: f32[N, G, F, (H + 2*lo - R) // stride + 1, (W + 2*lo - S) // stride + 1]) {
    y[n, g, j, h, v] = max(sum(c, r, s) x[n, g, c, h*stride + r - lo, v*stride + s - lo | 0] * w[g, j, c, r, s], 0.0)
}
"""


def program(text: str, *shapes: tuple[int, ...], mode: str = "", **attrs: int) -> Program:
    module = load_module(parse(Source("own.tl", text.replace("op ", f"{mode} op ", 1))))
    return instantiate(module, next(iter(module.operators)), [ArgType(f32, shape) for shape in shapes], attrs, {})


@given(
    st.tuples(*(st.integers(1, 3),) * 4), st.tuples(st.integers(3, 6), st.integers(3, 7)), st.integers(1, 2), st.integers(0, 1), st.data()
)
@settings(max_examples=30)
def test_rows_of_windows_give_the_same_sums(counts, size, stride, lo, data) -> None:
    samples, groups, channels, columns = counts
    shapes = (samples, groups, channels, *size), (groups, columns, channels, 3, 2)
    before = program(WINDOWS, *shapes, stride=stride, lo=lo)
    order = data.draw(st.permutations(["c", "r", "s"]))
    tensors = data.draw(st.sampled_from([("x", "w"), ("x", "w"), ("w", "x")]))
    found = unfold(before, tensors, order, "q")
    assert isinstance(found, Unfolded)
    verify(found.program)
    random = np.random.default_rng(sum(counts))
    arrays = {p.name: random.integers(-4, 5, shape).astype(np.float32) for p, shape in zip(before.params, shapes, strict=True)}
    np.testing.assert_array_equal(interpret(found.program, {}, arrays)["y"], interpret(before, {}, arrays)["y"])


def test_rows_are_numbered_along_what_one_factor_alone_has() -> None:
    before = program(WINDOWS, (2, 1, 4, 7, 7), (1, 8, 4, 3, 3), lo=1)
    found = unfold(before, ("x", "w"), ("r", "s", "c"), "q")
    assert isinstance(found, Unfolded)
    assert (found.rows, found.sums, found.groups) == (("x.rows", "w.rows"), "y", (("n", "h", "v"), ("g",), ("j",)))
    text = show(found.program)
    assert "x.rows[g, 7*h + 49*n + v, q]" in text.replace("`", "") and "w.rows[g, j, q]" in text.replace("`", "")


def refused(before: Program, tensors: tuple[str, ...], over: tuple[str, ...], name: str = "q") -> str:
    found = unfold(before, tensors, over, name)
    assert isinstance(found, str)
    return found


def test_what_cannot_be_unfolded_says_why() -> None:
    shapes = (1, 1, 4, 7, 7), (1, 8, 4, 3, 3)
    before = program(WINDOWS, *shapes)
    assert refused(before, ("x",), ("r", "s", "c")) == "the sum uses `r`, `s`, `c` outside of `x`"
    assert refused(before, ("x", "w"), ("r", "s")) == "the sum is over `c`, `r`, `s`, not over `r`, `s`"
    assert refused(before, ("x", "w"), ("k",)) == "there is no sum over `k`"
    assert refused(before, ("x", "w"), ("r", "s", "c"), "h") == "`h` is a name already"
    strict = program(WINDOWS, *shapes, mode="strict")
    assert refused(strict, ("x", "w"), ("r", "s", "c")) == "the operator is `strict`: its sums keep their order"
    assert isinstance(unfold(strict, ("x", "w"), ("c", "r", "s"), "q"), Unfolded)
    square = program("op square(x: f32[4, 5]) -> (y: f32[4]) { y[i] = sum(k) x[i, k] * x[i, k] }", (4, 5))
    assert refused(square, ("x",), ("k",)) == "`x` is not read once in the sum, at an index that is known at compile time"
