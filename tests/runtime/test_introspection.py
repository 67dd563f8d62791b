"""Operators are functions to whoever looks at them: editors, notebooks, `functools`, `inspect`, `pickle` and `copy`."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import pydoc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tensorlang as tl

TEXT = """
# Multiplies a row.
#
# By a number.
op scaled[T: float](x: T[N], attr by: float = 2.0) -> (y: T[N]) { y[i] = x[i] * by }
op linear(x: f32[M, K], w: f32[N, K], b: f32[N] = 0) -> (y: f32[M, N]) { y[i, j] = b[j] + sum(k) x[i, k] * w[j, k] }
op first(x: f32[N], size k in 0..N) -> (y: f32[k]) { y[i] = x[i]   for i in 0..k }
op joined(out: f32[N], x: f32[N]) -> (y: f32[N]) { y[i] = out[i] + x[i] }
"""
X = np.arange(4, dtype=np.float32)


@pytest.fixture(scope="module")
def ops() -> tl.Operators:
    return tl.parse(TEXT, threads=1)


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("scaled", "(x, *, by=2.0, out=None)"),
        ("linear", "(x, w, b=0, *, out=None)"),
        ("first", "(x, *, k, out=None)"),
        ("joined", "(out, x)"),
    ],
)
def test_a_signature_says_what_a_call_takes(ops: tl.Operators, name: str, signature: str) -> None:
    assert str(inspect.signature(ops[name])) == signature


def test_names_and_documentation_are_those_of_the_declaration(ops: tl.Operators) -> None:
    scaled = ops.scaled
    assert (scaled.__name__, scaled.__qualname__) == ("scaled", "scaled")
    assert inspect.getdoc(scaled).startswith("Multiplies a row.\n\nBy a number.")
    assert "Multiplies a row." in pydoc.plain(pydoc.render_doc(scaled))
    assert repr(scaled) == "<op scaled[T: float](x: T[N], attr by: float = 2.0) -> (y: T[N])>"


def test_names_are_completed(ops: tl.Operators) -> None:
    names = ["first", "joined", "linear", "scaled"]
    assert dir(ops) == ops._ipython_key_completions_() == names
    assert {"prepared", "explain", "schedule"} <= set(dir(ops.scaled))
    assert "softmax" in dir(tl.std) and "softmax" in tl.std._ipython_key_completions_()
    assert not hasattr(ops, "_repr_html_") and not hasattr(ops, "__wrapped__")


def test_functools_takes_operators_for_functions(ops: tl.Operators) -> None:
    scaled = ops.scaled
    tripled = functools.partial(scaled, by=3.0)
    np.testing.assert_array_equal(tripled(X), X * 3)
    assert str(inspect.signature(tripled)) == "(x, *, by=3.0, out=None)"

    @functools.wraps(scaled)
    def wrapped(*args: Any, **named: Any) -> Any:
        return scaled(*args, **named)

    assert (wrapped.__name__, wrapped.__doc__, wrapped.__annotations__) == ("scaled", scaled.__doc__, {})
    assert inspect.signature(wrapped) == inspect.signature(scaled)
    np.testing.assert_array_equal(functools.reduce(lambda x, f: f(x), [scaled, wrapped], X), X * 4)
    np.testing.assert_array_equal(next(map(scaled, [X])), X * 2)
    assert {scaled: 1}[ops.scaled] == 1 and scaled == ops.scaled


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize("sizes", ["auto", "static", "symbolic"])
def test_copies_compute_the_same_and_are_made_of_the_same(again: Callable[[Any], Any], sizes: Any) -> None:
    ops = tl.parse(TEXT, threads=1, sizes=sizes)
    for n in (2, 3, 4, 5):  # the operator that is copied has code, and calls it knows
        ops.scaled(np.ones(n, np.float32), by=3.0)
    for found in (
        again(ops.scaled),
        again(ops).scaled,
        again(ops.scaled.schedule("split y.i by 2 -> a, b")),
        again(functools.partial(ops.scaled)),
    ):
        np.testing.assert_array_equal(found(X, by=3.0), X * 3)
    found = again(ops.scaled)
    assert (found.sizes, found.__doc__, found.__name__) == (sizes, ops.scaled.__doc__, "scaled")
    assert inspect.signature(found) == inspect.signature(ops.scaled)
    y = np.empty_like(X)
    assert found(X, out=y) is y


def test_pools_call_operators(ops: tl.Operators) -> None:
    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(ops.scaled, [X] * 20):
            np.testing.assert_array_equal(found, X * 2)
