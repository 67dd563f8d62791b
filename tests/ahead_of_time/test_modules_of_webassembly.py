"""Operators and models built for WebAssembly: a module for each level, weights, and JavaScript that calls them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulated import run_module

import tensorlang as tl

OPS = """
op product(a: f32[M, K], b: f32[K, N]) -> (c: f32[M, N]) { c[i, j] = sum(k) a[i, k] * b[k, j] }
op pick(x: f32[N], at: i64[M]) -> (y: f32[M]) { y[i] = x[at[i]] }
op bell(x: f64[N]) -> (y: f64[N]) { y[i] = erf(x[i]) }
"""
A = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def operators() -> tl.Operators:
    return tl.parse(OPS)


def test_each_level_has_a_module_that_computes_the_operator(operators: tl.Operators, tmp_path: Path) -> None:
    targets = ("wasm32", "wasm32-relaxed")
    folder = operators.product.save(tmp_path / "product", {"a": A, "b": A.T.copy()}, targets=targets, threads=4)
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json",
        "product-wasm32-relaxed.wasm",
        "product-wasm32.wasm",
        "product.js",
    ]
    for target in targets:
        found = run_module(folder, "product", target, {"a": A, "b": A.T.copy()})
        np.testing.assert_array_equal(found["c"], A @ A.T)
    text = (folder / "product.js").read_text("utf-8")
    assert text.index('"wasm32-relaxed"') < text.index('"wasm32"'), "the level with more instructions is tried first"
    with pytest.raises(tl.SavedError, match="built for wasm32"):
        tl.load_model(folder)


def test_javascript_is_told_what_refused_data_means(operators: tl.Operators, tmp_path: Path) -> None:
    folder = operators.pick.save(tmp_path / "pick", {"x": A[0], "at": np.array([0, 1])}, targets="wasm32")
    assert "`pick` cannot go on with this data" in (folder / "pick.js").read_text("utf-8")
    with pytest.raises(AssertionError):
        run_module(folder, "pick", "wasm32", {"x": A[0], "at": np.array([0, 4])})


def test_modules_compute_what_javascript_has_no_function_for(operators: tl.Operators, tmp_path: Path) -> None:
    x = A[0].astype(np.float64)
    folder = operators.bell.save(tmp_path / "bell", {"x": x}, targets="wasm32")
    np.testing.assert_allclose(run_module(folder, "bell", "wasm32", {"x": x})["y"], operators.bell(x), rtol=1e-15)


def test_modules_with_open_sizes_are_refused(operators: tl.Operators, tmp_path: Path) -> None:
    with pytest.raises(tl.CompileError, match=r"C0131.*open sizes"):
        operators.pick.save(tmp_path / "x", {"x": A[0], "at": np.array([0])}, symbolic=True, targets="wasm32")
