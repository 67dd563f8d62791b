"""Attention in one pass over the keys: the algebra is exact, floats agree to rounding, exceptions stay, nothing else is rewritten."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.dtypes import from_numpy
from stdlib.library import library
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.syntax.parse import parse
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Call, Expr, Program
from tensorlang.tensor.online import online
from tensorlang.tensor.prove import prove
from tensorlang.tensor.verify import verify
from tensorlang.tensor.walk import map_children, map_values

Array = np.ndarray[Any, Any]
SOFTMAX = "p = softmax(s, axis = {axis})"
MASKED = "p = masked_softmax(s)"


def plain(*arrays: Array, softmax: str = SOFTMAX, mode: str = "", extra: str = "", mask: str = "") -> Program:
    """Return attention as people write it: heads share keys by twos, scores are scaled, a bias is added."""
    more = ", z: T[H, L, S]" if extra else ""
    text = f"""
{mode}op plain[T: float](q: T[H, L, D], k: T[G, S, D], v: T[S, G, E], bias: T[L, S]) -> (y: T[L, H, E]{more}) {{
    s[h, i, j] = 0.5 * (sum(c) q[h, i, c] * k[h // 2, j, c]) + bias[i, j]{mask}
    {softmax.format(axis=2)}
    y[i, h, e] = 2 * sum(j) p[h, i, j] * v[j, h // 2, e]
    {extra}
}}"""
    module = load_module(parse(Source("plain.tl", text)), [library()])
    return instantiate(module, "plain", [ArgType(from_numpy(a.dtype), a.shape) for a in arrays], {}, {})


def operands(dtype: Any, heads: int, rows: int, keys: int, depth: int, width: int, seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    groups = -(-heads // 2)
    shapes = ((heads, rows, depth), (groups, keys, depth), (keys, groups, width), (rows, keys))
    return [(3 * random.standard_normal(shape)).astype(dtype) for shape in shapes]


def values(program: Program, arrays: list[Array]) -> Array:
    [name] = program.results
    return interpret(program, {}, dict(zip((p.name for p in program.params), arrays, strict=True)))[name]


def rewritten(program: Program, rows: int, keys: int) -> Program:
    made = online(program, lambda sizes: (rows, keys))
    assert made is not None
    verify(made)
    prove(made)
    return made


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 21), st.integers(1, 5), st.sampled_from([2, 4, 16]), st.sampled_from([1, 4, 8]))
def test_blocks_of_keys_one_after_another_give_the_same(heads: int, rows: int, keys: int, width: int, tall: int, deep: int) -> None:
    arrays = operands(np.float64, heads, rows, keys, 3, width)
    program = plain(*arrays)
    np.testing.assert_allclose(values(rewritten(program, tall, deep), arrays), values(program, arrays), rtol=1e-12, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 19), st.sampled_from([1, 2, 4, 8]), st.integers(0, 1000))
def test_no_bit_is_lost_where_the_exponential_is_exact(keys: int, deep: int, seed: int) -> None:
    """Powers of two have the one law that is used, 2**(s - a) * 2**(a - b) = 2**(s - b), and are exact, as sums of them are."""
    random = np.random.default_rng(seed)
    arrays = [random.integers(-3, 4, shape).astype(np.float64) for shape in ((2, 4, 2), (1, keys, 2), (keys, 1, 3), (4, keys))]
    arrays[0] *= 2

    def powers(e: Expr) -> Expr:
        e = map_children(powers, e)
        return replace(e, fn="exp2") if isinstance(e, Call) and e.fn == "exp" else e

    program = plain(*arrays)
    made = map_values(rewritten(program, 4, deep), powers)
    q, k, v, bias = arrays
    scores = np.einsum("hic,jc->hij", q, k[0]) / 2 + bias
    weights = np.exp2(scores - scores.max(-1, keepdims=True))
    found = values(made, arrays)
    for head in range(2):
        np.testing.assert_array_equal(found[:, head], 2 * ((weights[head] @ v[:, 0]) / weights[head].sum(-1, keepdims=True)))


@pytest.mark.parametrize("softmax", [SOFTMAX, MASKED])
def test_rows_that_see_no_key_stay_what_they_are(softmax: str) -> None:
    arrays = operands(np.float64, 2, 6, 20, 4, 3)
    arrays[3][0, :] = -np.inf
    arrays[3][1, :8] = -np.inf
    arrays[3][2, 8:] = -np.inf
    arrays[3][3, :19] = -np.inf
    arrays[3][4, 3] = np.inf
    arrays[3][5, 3] = np.nan
    program = plain(*arrays, softmax=softmax)
    with np.errstate(all="ignore"):
        found, wanted = (values(p, arrays) for p in (rewritten(program, 4, 4), program))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert np.isnan(found[0]).all() if softmax == SOFTMAX else (found[0] == 0).all()
    assert np.isfinite(found[1:4]).all() and np.isnan(found[4:]).all()


MASKS = {
    "causal": ("j <= i", "-inf"),
    "causal, ahead": ("j <= i + 5", "-3.4e38"),
    "a window": ("j <= i and i - j < 4", "-inf"),
    "later keys": ("i + 2 <= j", "-inf"),
    "some rows see none": ("j < i - 3", "-inf"),
    "a falling line": ("2*i + j < 17", "-inf"),
}


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(MASKS)), st.integers(1, 13), st.integers(1, 21), st.sampled_from([2, 4]), st.sampled_from([1, 2, 4, 8]))
def test_rows_that_do_without_some_blocks_give_the_same(mask: str, rows: int, keys: int, tall: int, deep: int) -> None:
    arrays = operands(np.float64, 2, rows, keys, 3, 2)
    seen, outside = MASKS[mask]
    for softmax in (SOFTMAX, MASKED):
        program = plain(*arrays, softmax=softmax, mask=f" + (if {seen} then 0 else {outside})")
        with np.errstate(all="ignore"):
            found, wanted = (values(p, arrays) for p in (rewritten(program, tall, deep), program))
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_what_a_row_does_not_see_cannot_make_it_undefined() -> None:
    arrays = operands(np.float64, 2, 8, 16, 3, 2)
    program = rewritten(plain(*arrays, mask=" + (if j <= i then 0 else -inf)"), 4, 4)
    wanted = values(program, arrays)
    arrays[1][0, 8:], arrays[2][8:] = np.inf, np.nan
    np.testing.assert_array_equal(values(program, arrays), wanted)


def test_single_precision_is_as_near_as_a_plain_softmax() -> None:
    arrays = operands(np.float32, 4, 40, 200, 16, 8)
    exact = values(plain(*(a.astype(np.float64) for a in arrays)), [a.astype(np.float64) for a in arrays])
    program = plain(*arrays)
    errors = [float(np.abs(values(p, arrays) - exact).max()) for p in (program, rewritten(program, 8, 32))]
    assert errors[1] <= 2 * errors[0]


def test_what_is_no_attention_stays() -> None:
    arrays = operands(np.float32, 2, 4, 8, 3, 3)
    some = lambda sizes: (2, 4)  # noqa: E731
    assert online(plain(*arrays), some) is not None
    assert online(plain(*arrays), lambda sizes: None) is None
    assert online(plain(*arrays, mode="strict "), some) is None
    assert online(plain(*arrays, extra="z[h, i, j] = s[h, i, j]"), some) is None
    assert online(plain(*arrays, softmax="p[h, i, j] = s[h, i, j] / sum(l) s[h, i, l]"), some) is None
    assert online(plain(*arrays, softmax="p = softmax(s, axis = 1)"), some) is None
    halved = "m[h, i] = max(j) s[h, i, j]\n    w[h, i, j] = exp(s[h, i, j] - 0.5*m[h, i])\n    t[h, i] = sum(j) w[h, i, j]\n"
    assert online(plain(*arrays, softmax=f"{halved}    p[h, i, j] = w[h, i, j] / t[h, i]"), some) is None
    written = halved.replace("0.5*", "")
    assert online(plain(*arrays, softmax=f"{written}    p[h, i, j] = w[h, i, j] / t[h, i]"), some) is not None
