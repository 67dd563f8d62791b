"""Windows that reach over the edges of arrays run between pages without access, in loops that are split there, and give bit for bit what
they mean: whatever lies outside, whatever the sizes, one element and none among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from guarded import agrees, only
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorlang as tl
from tensorlang.diagnostics import Source
from tensorlang.shell.checking import check_source

Array = np.ndarray[Any, Any]
DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "u8": np.uint8, "i8": np.int8, "i64": np.int64, "u64": np.uint64}

EQUATIONS = {
    "a window": "y[i, j] = x[i - 1, j - 2 MODE] + x[i + 1, j MODE] + x[i, j + 3 MODE]",
    "a sum": "y[i, j] = sum(u in 0..3, v in 0..5) x[i + u - 1, j + v - 2 MODE]",
    "products": "y[i, j] = sum(u in 0..3, v in 0..3) x[u, v MODE] * x[i + u - 1, j + v - 1 MODE]",
    "a maximum": "y[i, j] = max(u in 0..2, v in 0..3) x[i + u, j + v - 1 MODE]",
    "strides": "y[i, j] = x[2*i - 1, 3*j - 1 MODE]",
    "backwards": "y[i, j] = x[H - i, W + 1 - j MODE]",
    "every element twice": "y[i, j] = x[i // 2, (j + 1) // 2 MODE]",
    "a condition": "y[i, j] = if i >= 1 and i < H - 1 and j >= 2 and j < W - 2 then x[i - 1, j - 2] + x[i + 1, j + 2] else x[i, j]",
    "either side": "y[i, j] = if j < 20 then x[i, j] else x[i, j - 20]",
    "in two steps": "h[i, j] = x[i, j - 1 MODE] + x[i, j]\n y[i, j] = h[i - 1, j MODE] + h[i + 1, j MODE]",
    "clauses": "y[i, j] = x[i, j] for i in 0..H, j in 0..min(2, W)\n y[i, j] = x[i, j - 2] + x[i, j + 1 MODE] otherwise",
    "terms that are dropped": "y[i, j] = sum(v in 0..5) x[i, j + v - 2 | skip]",
}


def text(equation: str, mode: str, dtype: str = "f32") -> str:
    return f"op f(x: {dtype}[H, W]) -> (y: {dtype}[H, W]) {{\n{equation.replace('MODE', mode)}\n}}"


def integers(shape: tuple[int, int], dtype: str = "f32") -> Array:
    """Return small whole numbers, of which floats make exact sums in any order."""
    return np.random.default_rng(5).integers(0, 9, shape).astype(DTYPES[dtype])


LONG_ROWS, SHORT_ROWS = (3, 67), (9, 5)


def cases() -> list[tuple[str, str, tuple[int, int]]]:
    """Return each equation with each mode: rows of several vectors and rows shorter than one take turns. One without a mode has both."""
    found = []
    for n, (name, equation) in enumerate(EQUATIONS.items()):
        modes = ("| clamp", "| reflect", "| wrap", "| 0") if "MODE" in equation else ("", "")
        found += [(name, mode, (LONG_ROWS, SHORT_ROWS)[(n + m) % 2]) for m, mode in enumerate(modes)]
    return found


@pytest.mark.parametrize(("name", "mode", "shape"), cases())
def test_edges_cost_no_bit(name: str, mode: str, shape: tuple[int, int]) -> None:
    agrees(text(EQUATIONS[name], mode), integers(shape))


@pytest.mark.parametrize(("name", "mode"), [(name, ("| clamp", "| 0")[n % 2]) for n, name in enumerate(EQUATIONS)])
def test_edges_of_open_sizes_cost_no_bit(name: str, mode: str) -> None:
    agrees(text(EQUATIONS[name], mode), integers((4, 67)), symbolic=True)


@pytest.mark.parametrize("name", ["a window", "backwards", "in two steps"])
def test_windows_that_wrap_are_proven_and_compiled_for_any_sizes(name: str) -> None:
    program = text(EQUATIONS[name], "| wrap")
    assert check_source(Source("f.tl", program)).partly == ()
    for shape in ((4, 67), (1, 2)):
        agrees(program, integers(shape), symbolic=True)


def test_a_single_element_mirrors_itself_whatever_sizes_are_open() -> None:
    program = "op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i - 1 | reflect] + 2 * x[i + 1 | reflect] }"
    assert check_source(Source("f.tl", program)).partly == ()
    operator = only(tl.parse(program, sizes="symbolic"))
    for size in (1, 2, 5):
        x = np.arange(size, dtype=np.float32) + 1
        assert np.array_equal(operator(x), only(tl.parse(program))(x))


def test_what_is_declared_of_indices_holds_of_those_that_wrap() -> None:
    program = "op f(x: f32[V], ids: i64[N] in 0..V) -> (y: f32[N]) { y[i] = x[ids[i + 1 | wrap]] }"
    loops = {}
    only(tl.parse(program)).symbolic_stages({}, loops.__setitem__, ("loops",))
    assert loops["loops"].count("require") == 1  # on entry, and not where they are used


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1), (1, 40), (40, 1), (2, 16)])
@pytest.mark.parametrize("mode", ["| clamp", "| 0"])
def test_arrays_smaller_than_the_window_are_all_edge(shape: tuple[int, int], mode: str) -> None:
    for name in ("a sum", "in two steps"):
        agrees(text(EQUATIONS[name], mode), integers(shape))


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_of_every_width_are_picked_alike(dtype: str) -> None:
    for mode in ("| clamp", "| reflect"):
        agrees(text(EQUATIONS["a window"], mode, dtype), integers((4, 131), dtype))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-4, 4), st.integers(-20, 20)), min_size=1, max_size=3),
    st.tuples(st.integers(1, 6), st.integers(1, 80)),
    st.sampled_from([("| clamp", False), ("| clamp", True), ("| reflect", False), ("| wrap", False), ("| 0", True), ("| 3", False)]),
)
def test_any_window_over_any_array(window: list[tuple[int, int]], shape: tuple[int, int], how: tuple[str, bool]) -> None:
    mode, symbolic = how
    reads = " + ".join(f"x[i + {u}, j + {v} {mode}]" for u, v in window)
    agrees(text(f"y[i, j] = {reads}", mode), integers(shape), symbolic=symbolic)


def test_threads_share_rows_that_are_split() -> None:
    operator = only(tl.parse(text(EQUATIONS["a sum"], "| clamp"), threads=2))
    x = integers((300, 203))
    padded = np.pad(x, ((1, 1), (2, 2)), mode="edge")
    want = sum(padded[u : u + 300, v : v + 203] for u in range(3) for v in range(5))
    np.testing.assert_array_equal(operator(x), want)
