"""Operators and models built for WebAssembly: a module for each level, weights, and JavaScript that calls them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulated import run_module
from saved_libraries import IMAGE, network

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
    with pytest.raises(ValueError, match="lies outside"):
        run_module(folder, "pick", "wasm32", {"x": A[0], "at": np.array([0, 4])})


def test_modules_compute_what_javascript_has_no_function_for(operators: tl.Operators, tmp_path: Path) -> None:
    x = A[0].astype(np.float64)
    folder = operators.bell.save(tmp_path / "bell", {"x": x}, targets="wasm32")
    np.testing.assert_allclose(run_module(folder, "bell", "wasm32", {"x": x})["y"], operators.bell(x), rtol=1e-15)


def test_modules_of_open_sizes_are_told_them_and_refuse_what_they_are_not_for(operators: tl.Operators, tmp_path: Path) -> None:
    folder = operators.product.save(tmp_path / "product", {"a": A, "b": A.T.copy()}, symbolic=True, targets="wasm32", max={"M": 2**40})
    for m, k, n in ((3, 4, 3), (13, 0, 5), (0, 4, 9), (9, 17, 6)):
        a, b = (np.arange(p * q, dtype=np.float32).reshape(p, q) % 7 for p, q in ((m, k), (k, n)))
        found = run_module(folder, "product", "wasm32", {"a": a, "b": b}, {"M": m, "K": k, "N": n})
        np.testing.assert_array_equal(found["c"], a @ b)
    for sizes, said in (({"M": -1}, "`M` is not between 0 and 1099511627776"), ({"M": 2**40, "K": 2**40}, "larger than any memory")):
        with pytest.raises(ValueError, match=said):
            run_module(folder, "product", "wasm32", {"a": A, "b": A}, {"M": 1, "K": 1, "N": 1, **sizes})


def test_a_model_of_an_open_batch_runs_as_a_module(tmp_path: Path) -> None:
    folder = tl.build(network("batch"), tmp_path / "net", targets="wasm32-relaxed", library="net", max={"batch": 4}, threads=1)
    compiled = tl.compile(network("batch"))
    for batch in (1, 4):
        image = np.concatenate([IMAGE, IMAGE[::-1]])[:batch]
        found = run_module(folder, "net", "wasm32-relaxed", {"image": image}, {"batch": batch})["label"]
        np.testing.assert_allclose(found, compiled.run({"image": image})["label"], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="`batch` is not between 0 and 4"):
        run_module(folder, "net", "wasm32-relaxed", {"image": IMAGE}, {"batch": 5})
