"""Derivatives: equal to differences of the interpreter in f64, and written as one would write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tensorlang as tl
from tensorlang.backends.registry import tools_for
from tensorlang.check.definition import representative_program
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.syntax.parse import parse
from tensorlang.tensor.gradient import gradient
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.printer import show
from tensorlang.tensor.prove import prove
from tensorlang.tensor.walk import caller_shape, nodes, reduces, tensor_table

Arrays = Mapping[str, np.ndarray[Any, Any]]
STEP = 1e-6


def program(text: str) -> Program:
    """Return the last operator of a text, with symbolic sizes."""
    module = load_module(parse(Source("text.tl", text)))
    found = representative_program(module, list(module.operators)[-1])
    assert found is not None
    return found


def reversed_program(forward: Program) -> Program:
    """Return the derivatives of a program by all its floats, proven."""
    table = tensor_table(forward)
    by = [p.name for p in forward.params if p.dtype.is_float]
    results = [r for r in forward.results if table[r].dtype.is_float]
    made = gradient(forward, by, {n: f"d_{n}" for n in (*by, *results)}, f"{forward.name}_gradient")
    prove(made)
    return made


def arrays_for(forward: Program, sizes: Mapping[str, int], given: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(7)
    made = {p.name: rng.uniform(0.2, 1.5, caller_shape(p, sizes)) for p in forward.params if p.name not in given}
    return {**made, **given}


def check(text: str, sizes: Mapping[str, int], **given: np.ndarray[Any, Any]) -> None:
    """Compare the derivatives of an operator on f64 with differences, along directions of random numbers."""
    forward = program(text)
    backward = reversed_program(forward)
    arrays = arrays_for(forward, sizes, given)
    rng = np.random.default_rng(11)
    results = {r: p for r in forward.results if (p := tensor_table(forward)[r]).dtype.is_float}
    slopes = {r: rng.standard_normal(caller_shape(t, sizes)) for r, t in results.items()}

    def number(at: Arrays) -> float:
        out = interpret(forward, sizes, at)
        return float(sum((out[r] * slopes[r]).sum() for r in results))

    found = interpret(backward, sizes, {**arrays, **{f"d_{r}": s for r, s in slopes.items()}})
    for name in [n.removeprefix("d_") for n in backward.results]:
        direction = rng.standard_normal(arrays[name].shape)
        up, down = ({**arrays, name: arrays[name] + s * STEP * direction} for s in (1, -1))
        measured = (number(up) - number(down)) / (2 * STEP)
        np.testing.assert_allclose(float((found[f"d_{name}"] * direction).sum()), measured, rtol=1e-5, atol=1e-6, err_msg=name)


CASES = {
    "a product of matrices": (
        "op f(a: f64[M, K], b: f64[K, N]) -> (y: f64[M, N]) { y[i, j] = sum(k) a[i, k] * b[k, j] }",
        {"M": 2, "N": 3, "K": 4},
    ),
    "a convolution": (
        "op f(x: f64[C, H], w: f64[F, C, R]) -> (y: f64[F, H]) { y[f, p] = sum(c, r) x[c, p + r - 1 | 0] * w[f, c, r] }",
        {"C": 2, "H": 5, "F": 2, "R": 3},
    ),
    "a convolution with strides": (
        "op f(x: f64[H], w: f64[R]) -> (y: f64[H // 2]) { y[p] = sum(r) x[2*p + r - 1 | 0] * w[r] }",
        {"H": 9, "R": 3},
    ),
    "a convolution with strides and known sizes": (
        "op f(x: f64[2, 9], w: f64[2, 2, 3]) -> (y: f64[2, 5]) { y[f, p] = sum(c, r) x[c, 2*p + r - 1 | 0] * w[f, c, r] }",
        {},
    ),
    "windows of known sizes": (
        "op f(x: f64[8]) -> (y: f64[4]) { y[p] = max(r in 0..3) x[2*p + r - 1 | skip] }",
        {},
    ),
    "reads of one element in several places": (
        "op f(x: f64[N]) -> (y: f64[N]) { y[i] = x[i] * x[N - 1 - i] + x[0] / x[i] }",
        {"N": 5},
    ),
    "digits of an index": ("op f(x: f64[A, 4, 6]) -> (y: f64[A, 24]) { y[a, k] = sin(x[a, k // 6, k % 6]) }", {"A": 2}),
    "every third element": ("op f(x: f64[N]) -> (y: f64[N // 3]) { y[i] = exp(x[3*i + 1]) }", {"N": 10}),
    "one read for several": ("op f(x: f64[N]) -> (y: f64[3*N]) { y[i] = x[i // 3] * f64(i) }", {"N": 3}),
    "edges that clamp, reflect and wrap": (
        "op f(x: f64[N]) -> (y: f64[N]) where N > 2 { y[i] = x[i - 1 | clamp] * x[i + 1 | reflect] + x[i + 2 | wrap] * x[i - 1 | 3] }",
        {"N": 6},
    ),
    "functions": (
        "op f(x: f64[N], y: f64[N]) -> (z: f64[N]) {\n"
        "  z[i] = exp(x[i]) * log(y[i]) + tanh(x[i]) / sqrt(y[i]) - erf(x[i]) + pow(x[i], y[i]) + sigmoid(x[i]) * cos(y[i]) + abs(-x[i])\n"
        "         + atan2(x[i], y[i]) + asinh(x[i]) + log1p(x[i]) * expm1(y[i]) + rsqrt(x[i]) + exp2(y[i]) + log2(x[i]) + tan(0.5*y[i])\n"
        "}",
        {"N": 4},
    ),
    "choices": (
        "op f(x: f64[N], y: f64[N]) -> (z: f64[N]) { z[i] = if x[i] > y[i] then x[i] * x[i] else max(y[i], 0.5) * min(x[i], 1.0) }",
        {"N": 8},
    ),
    "a sum over a triangle": ("op f(x: f64[N]) -> (y: f64[N]) { y[i] = sum(k, k <= i) x[k] * x[i] }", {"N": 5}),
    "products over a triangle, read along its diagonals": (
        "op f(x: f64[N], w: f64[N]) -> (y: f64[N], z: f64[N]) {\n y[j] = sum(k in 0..j+1) x[k] * w[j - k]\n"
        " z[j] = sum(k in 0..j+1, l in 0..k+1) x[k - l] * w[j - k]\n}",
        {"N": 4},
    ),
    "digits of an index that bounds another": (
        "op f(x: f64[N, 3], w: f64[3*N]) -> (y: f64[3*N]) {\n"
        " y[j] = sum(k in 0..j+1) x[j // 3, j % 3] * w[k] + sum(k in 0..j%3+1, l in 0..k+1) w[j - k] * w[l] }",
        {"N": 2},
    ),
    "a factor of a triangle whose rows are empty where no element of the factor is": (
        "op f(x: f64[N, N], w: f64[N]) -> (y: f64[N]) { y[j] = sum(k in j..N, l in 0..j+1) w[j] * w[l] * x[k, 2*k - j | 0] }",
        {"N": 4},
    ),
    "the greatest and the least": (
        "op f(x: f64[M, N]) -> (y: f64[M], z: f64[M]) {\n y[i] = max(k) (x[i, k] * x[i, k])\n z[i] = min(k) x[i, k] / y[i]\n}",
        {"M": 3, "N": 4},
    ),
    "the greatest and where it stands": (
        "op f(x: f64[M, N]) -> (y: f64[M], at: i64[M]) { y[i], at[i] = first_max(k) (x[i, k], k) }",
        {"M": 3, "N": 4},
    ),
    "products that grow": ("op f(x: f64[N, 2]) -> (y: f64[N]) { y[i] = prod(a in 0..i+1, b in 0..2) x[a, b] }", {"N": 3}),
    "attention in one pass": (
        "fn shrunk(a, m) = if m == a then 1 else exp(a - m)\n"
        "reducer attended (m1, l1, o1) (m2, l2, o2) from (-inf, 0, 0) = let m = max(m2, m1) in"
        " (m, shrunk(m1, m) * l1 + shrunk(m2, m) * l2, o2 * exp(m2 - m) + o1 * shrunk(m1, m))\n yield (m, l, o) = o / l\n"
        "op f(s: f64[N, K], v: f64[K]) -> (y: f64[N]) { y[i] = attended(k) (s[i, k], 1, v[k]) }",
        {"N": 2, "K": 3},
    ),
    "logarithms of sums of some": (
        "op f(x: f64[N, 3]) -> (y: f64[N]) { y[i] = logsumexp(k in 1..3, x[i, k] > -9, from x[i, 0]) (x[i, k] * x[i, 0]) }",
        {"N": 2},
    ),
    "products that grow from the end": (
        "op f(x: f64[M, N]) -> (y: f64[M, N]) { y[i, j] = prod(k in j..N) (x[i, k] + 0.5) }",
        {"M": 2, "N": 3},
    ),
    "a fold in order from a number on": (
        "ordered reducer bent a b from none = a * 0.5 + sin(b)\n"
        "op f(x: f64[N, M], s: f64) -> (y: f64[N, M]) { y[i, j] = bent(k in 1..i+2, x[k - 1, j] > -9, from s) x[k - 1, j] }",
        {"N": 3, "M": 2},
    ),
    "products over a window, and over a triangle": (
        "op f(x: f64[N, N], w: f64[3, 3]) -> (y: f64[N]) {\n"
        " y[i] = (prod(j in max(0, i - 1)..min(N, i + 2)) x[i, j]) + prod(a in 0..3, b in 0..a) (w[a, b] + x[i, i]) }",
        {"N": 4},
    ),
    "logarithms of sums up to each": (
        "op f(x: f64[M, N]) -> (y: f64[M, N]) { y[i, j] = logsumexp(k in j//2..N) x[i, k] }",
        {"M": 3, "N": 4},
    ),
    "products": ("op f(x: f64[M, N]) -> (y: f64[M]) { y[i] = prod(k) x[i, k] }", {"M": 3, "N": 4}),
    "a reset that another recurrence multiplies": (
        "op f(x: f64[L, H], r: f64[H, H]) -> (y: f64[L, H]) {\n h[0, j] = f64(0.5)   for j in 0..H\n"
        " u[t, j] = sigmoid(x[t, j] + sum(m) h[t, m] * r[j, m])\n "
        "v[t, j] = tanh(sum(m) u[t, m] * h[t, m] * r[m, j])   for t in 0..L, j in 0..H\n"
        " h[t + 1, j] = u[t, j] * v[t, j] + (1 - u[t, j]) * h[t, j]   for t in 0..L, j in 0..H\n y[t, j] = h[t + 1, j]\n}",
        {"L": 3, "H": 2},
    ),
    "the last of what data name": (
        "op f(x: f64[N], u: f64[K], ids: i64[K] in 0..N) -> (y: f64[N]) { y[n] = last(k, ids[k] == n, from x[n]) u[k] }",
        {"N": 4, "K": 3},
    ),
    "a system of equations solved from above, of known size": (
        "op f(l: f64[4, 4], b: f64[4]) -> (x: f64[4]) { x[i] = (b[i] - sum(k in 0..i) l[i, k] * x[k]) / l[i, i] }",
        {},
    ),
    "sums of exponentials of paths": (
        "op f(e: f64[T, S], w: f64[S, S]) -> (y: f64) where T > 0 {\n d[0, s] = e[0, s]\n"
        " d[t, s] = e[t, s] + logsumexp(r) (d[t - 1, r] + w[r, s])   for t in 1..T\n y = logsumexp(s) d[T - 1, s]\n}",
        {"T": 3, "S": 2},
    ),
    "means": ("op f(x: f64[M, N]) -> (y: f64[M]) { y[i] = mean(k) (x[i, k] * x[i, k]) }", {"M": 3, "N": 4}),
    "logarithms of sums of exponentials": ("op f(x: f64[M, N]) -> (y: f64[M]) { y[i] = logsumexp(k) x[i, k] }", {"M": 3, "N": 4}),
    "a softmax": (
        "op f(x: f64[M, N]) -> (y: f64[M, N]) {\n m[i] = max(j) x[i, j]\n e[i, j] = exp(x[i, j] - m[i])\n"
        " y[i, j] = e[i, j] / sum(k) e[i, k]\n}",
        {"M": 3, "N": 4},
    ),
    "an exponential without its sum": (
        "op f(x: f64[M, N]) -> (y: f64[M, N]) {\n m[i] = max(j) x[i, j]\n e[i, j] = exp(x[i, j] - m[i])\n"
        " s[i] = sum(j) e[i, j]\n y[i, j] = e[i, j] / (s[i] * s[i])\n}",
        {"M": 3, "N": 4},
    ),
    "a sum over the rows that are shifted": (
        "op f(x: f64[M, N]) -> (y: f64[N]) where M >= 1 {\n m[i] = max(j) x[i, j]\n e[i, j] = exp(x[i, j] - m[i])\n"
        " s[j] = sum(i) e[i, j]\n y[j] = e[0, j] / s[j]\n}",
        {"M": 3, "N": 4},
    ),
    "a recurrence": (
        "op f(x: f64[N]) -> (y: f64[N]) {\n y[0] = x[0]\n y[i] = y[i - 1] * tanh(x[i]) + x[i]   for i in 1..N\n}",
        {"N": 6},
    ),
    "a recurrence along links that data name": (
        "op f(x: f64[N], ids: i64[N] in 0..N) -> (y: f64[N]) { y[i] = x[i] * x[i] + (if ids[i] < i then y[ids[i]] * x[i] else 0) }",
        {"N": 3},
    ),
    "steps of a stencil": (
        "op f(u0: f64[N]) -> (u: f64[N]) {\n s[0, i] = u0[i]\n"
        " s[t + 1, i] = s[t, i] + 0.1 * s[t, i - 1] * s[t, i + 1]   for t in 0..3, i in 1..N - 1\n"
        " s[t + 1, i] = s[t, i]   otherwise\n u[i] = s[3, i]\n}",
        {"N": 7},
    ),
    "reducers of several parts inside of others": (
        "op f(x: f64[N, C]) -> (y: f64, z: f64[N]) {\n y = mean(n) sq(mean(c) x[n, c])\n"
        " z[n] = sum(j) x[n, j] * (logsumexp(c) x[n, c]) * sq(mean(c) x[n, c])\n}",
        {"N": 3, "C": 4},
    ),
    "reducers of several parts beside what has more axes": (
        "op f(x: f64[N, C]) -> (y: f64[N, C]) { y[n, j] = x[n, j] / (logsumexp(c) x[n, c]) + mean(c) sq(x[n, c]) }",
        {"N": 3, "C": 4},
    ),
    "several results of several steps": (
        "op f(x: f64[N]) -> (y: f64[N], z: f64) {\n y[i] = exp(x[i])\n z = sum(i) y[i] * y[i]\n}",
        {"N": 4},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_derivatives_are_those_that_differences_show(case: str) -> None:
    text, sizes = CASES[case]
    check(text, sizes, **({"ids": np.array([2, 0, 2])} if "ids" in text else {}))


CHAIN = """
fn bent(x) = if x < 1 then x * (1 + x * (0.5 - x * (0.25 + x * (0.125 - x * 0.0625)))) else log(x) * sqrt(x) + 1.15
fn twice(x) = bent(bent(x) + x * bent(x))
fn chain(x) = bent(twice(x) * 0.5)
"""


@pytest.mark.parametrize(
    "text",
    [
        "op f(x: f64[N]) -> (y: f64[N]) { y[i] = chain(x[i]) * x[i] }",
        "op f(x: f64[N], w: f64[N]) -> (y: f64) { y = sum(i) chain(x[i] * w[i]) * w[i] }",
        "op f(x: f64[N]) -> (y: f64[N]) { y[i] = chain(sum(j) x[j] * x[i]) * x[i] }",
        "op f(x: f64[N]) -> (y: f64[N]) { y[i] = let c = chain(x[i]) in c * (if i >= 1 then x[i - 1] * c else c) + c * (sum(j) x[j] * c) }",
    ],
)
def test_derivatives_of_functions_of_functions_grow_with_them_and_not_with_the_ways_through_them(text: str) -> None:
    check(CHAIN + text, {"N": 3})
    definitions = reversed_program(program(CHAIN + text)).definitions
    assert sum(1 for d in definitions for p in d.pieces for _ in nodes(p.value)) < 2500


def test_a_side_that_is_not_taken_adds_nothing_though_its_derivative_is_infinite() -> None:
    forward = program(CHAIN + "op f(x: f64[N]) -> (y: f64[N]) { y[i] = if x[i] > 0 then sqrt(x[i]) * chain(x[i]) else x[i] }")
    out = interpret(reversed_program(forward), {"N": 3}, {"x": np.array([0.0, -1.0, 2.0]), "d_y": np.ones(3)})
    assert out["d_x"][:2].tolist() == [1, 1]
    assert np.isfinite(out["d_x"]).all()


def test_what_data_name_is_added_where_they_name_it() -> None:
    text = "op f(x: f64[V, E], ids: i64[L] in 0..V) -> (y: f64[L, E]) { y[l, e] = x[ids[l], e] * x[0, e] }"
    check(text, {"V": 4, "E": 2, "L": 5}, ids=np.array([3, 1, 3, 0, 3]))
    assert "sum(l in 0..L, ids[l] == x0)" in show(reversed_program(program(text)))


LOOKED_UP = {
    "a sum of segments": (
        "op f(x: f64[L, E], s: i64[L] in 0..S, size S) -> (y: f64[S, E]) { y[k, e] = sum(l, s[l] == k) x[l, e] * x[l, e] }",
        "d_x[l, e] = d_y[s[l], e] * (2.0 * x[l, e])",
    ),
    "segments that data may leave, from the last one on": (
        "op f(x: f64[L], s: i64[L], w: f64[3]) -> (y: f64[3]) { y[k] = sum(l) (if s[l] == 2 - k then x[l] * w[k] * f64(k) else 0) }",
        "if 2 - s[l] >= 0 and 2 - s[l] < 3 then",
    ),
    "two indices": (
        "op f(x: f64[L], s: i64[L] in 0..S, t: i64[L], size S) -> (y: f64[S, 2]) { y[i, j] = sum(l, s[l] == i and t[l] == j) x[l] * x[l] }",
        "if t[l] >= 0 and t[l] < 2 then d_y[s[l], t[l]] * (2.0 * x[l])",
    ),
    "what is looked up in turn": (
        "op f(x: f64[4], t: i64[L] in 0..4, s: i64[L] in 0..S, size S) -> (y: f64[S]) { y[k] = sum(l, s[l] == k) x[t[l]] }",
        "sum(l in 0..L, t[l] == x0) d_y[s[l]]",
    ),
    "a choice that names the element": (
        "op f(x: f64[S], s: i64[L] in 0..S, w: f64[L]) -> (y: f64[L]) { y[l] = sum(k) (if s[l] == k and w[l] > 0.7 then x[k] else w[l]) }",
        "sum(l in 0..L, s[l] == k) (if w[l] > 0.7 then",
    ),
    "terms that indices leave out": (
        "op f(x: f64[S], s: i64[L] in 0..S, w: f64[L]) -> (y: f64[L]) { y[l] = sum(k in 1..S, s[l] == k) x[k] * w[l] }",
        "d_w[l] = if s[l] >= 1 and s[l] < S then d_y[l] * x[s[l]] else 0.0",
    ),
    "terms that conditions on indices leave out": (
        "op f(x: f64[S], s: i64[L] in 0..S, w: f64[L]) -> (y: f64[L]) { y[l] = sum(k, k != l, s[l] == k) x[k] * w[l] }",
        "d_w[l] = sum(k in 0..S, k != l) (if s[l] == k then",
    ),
}


@pytest.mark.parametrize("case", LOOKED_UP)
def test_the_one_term_that_data_ask_for_is_looked_up(case: str) -> None:
    text, told = LOOKED_UP[case]
    check(text, {"L": 5, "E": 2, "S": 3}, s=np.array([2, 0, 2, 1, 0]), t=np.array([1, 0, 3, 1, 2]))
    assert told in show(reversed_program(program(text)))


def test_what_cancels_in_every_result_has_no_derivative() -> None:
    shown = show(reversed_program(program(CASES["a softmax"][0])))
    assert "d_m" not in shown and "ties" not in shown
    assert "ties" not in show(reversed_program(program(CASES["sums of exponentials of paths"][0])))
    assert "d_m" in show(reversed_program(program(CASES["an exponential without its sum"][0])))


@pytest.mark.parametrize(
    "term", ["prod(k in 0..j+1) x[i, k]", "prod(k in j..N) x[i, k]", "logsumexp(k in 0..j+1) x[i, k]", "prod(k in 0..N-j) x[i, k]"]
)
def test_a_fold_that_grows_along_an_axis_is_gone_through_once(term: str) -> None:
    made = reversed_program(program(f"op f(x: f64[M, N]) -> (y: f64[M, N]) {{ y[i, j] = {term} }}"))
    assert all(len(d.axes) == 2 and not any(True for p in d.pieces for _ in reduces(p.value)) for d in made.definitions)


BANDS = {
    "a scattered filter": (
        "op f(x: f64[H], w: f64[4]) -> (y: f64[2*H]) { y[p] = sum(h, 0 <= p + 1 - 2*h, p + 1 - 2*h < 4) x[h] * w[p + 1 - 2*h] }",
        "d_x[h] = sum(p in 0..4, 2*h + p - 1 >= 0, 2*h + p - 1 < 2*H) d_y[2*h + p - 1] * w[p]",
    ),
    "a band of a matrix": (
        "op f(a: f64[H, H], x: f64[H]) -> (y: f64[H]) { y[i] = sum(j, -1 <= i - j, i - j <= 1) a[i, j] * x[j] }",
        "d_x[j] = sum(i in 0..3, i + j - 1 >= 0, i + j - 1 < H) d_y[i + j - 1] * a[i + j - 1, j]",
    ),
    "terms close to the diagonal": (
        "op f(a: f64[9], x: f64[9]) -> (y: f64) { y = sum(i, j, j <= i, i < j + 3) a[i] * x[j] * f64(i + 2*j) }",
        "d_a[i] = d_y * (sum(j in 0..3, i + j - 2 >= 0)",
    ),
}


@pytest.mark.parametrize("case", BANDS)
def test_terms_that_lie_in_a_band_are_those_of_the_band(case: str) -> None:
    text, told = BANDS[case]
    check(text, {"H": 6})
    assert told in show(reversed_program(program(text)))


def test_what_divides_many_elements_is_divided_by_once() -> None:
    shown = show(reversed_program(program(CASES["a softmax"][0])))
    assert "    y[i, j]" not in shown  # nor is any quotient of the forward pass asked for
    assert shown.count("/") == 3 and "d_y[i, j] * `y.sum_reciprocal`[i]" in shown
    rows = "op f(x: f64[M, N], s: f64[M, N]) -> (y: f64[M, N]) { y[i, j] = x[i, j] / s[i, j] }"
    assert "reciprocal" not in show(reversed_program(program(rows)))


def test_equal_ones_of_the_greatest_share_alike() -> None:
    ops = tl.parse("op f(x: f64[N]) -> (y: f64) { y = max(k) x[k] }")
    assert ops.f.gradient("x")(np.array([1.0, 2, 2, 0]), np.array(3.0)).tolist() == [0, 1.5, 1.5, 0]


@pytest.mark.parametrize(
    "terms, shares",
    [
        ("max(k in 0..j+1) x[k]", [1, 1 + 1 / 2 + 1 / 3, 1 / 2 + 1 / 3, 1 / 3, 2, 0]),
        ("min(k in j..N) x[k] * 2", [1, 0, 0, 0, 0, 11]),
    ],
)
def test_extrema_that_grow_along_an_axis_are_gone_through_once_and_equal_ones_share_alike(terms: str, shares: list[float]) -> None:
    backward = program(f"op f(x: f64[N]) -> (y: f64[N]) {{ y[j] = {terms} }}")
    made = reversed_program(backward)
    assert "sum(" not in show(made)
    found = interpret(made, {"N": 6}, {"x": np.array([1.0, 2, 2, 2, 3, 1]), "d_y": np.ones(6)})
    np.testing.assert_allclose(found["d_x"], shares)


@pytest.mark.parametrize(
    "text",
    [CASES["a convolution"][0], "op f(x: f64[B, V], t: i64[B] in 0..V) -> (y: f64[B]) { y[b] = x[b, t[b]] * x[b, t[b]] }"],
    ids=["sums", "one element of each row"],
)
def test_what_is_returned_is_a_program_that_can_be_read_back(text: str) -> None:
    shown = show(reversed_program(program(text)))
    again = program(shown)
    prove(again)
    assert show(again) == shown


def test_reductions_relative_to_one_maximum_share_it_and_it_cancels() -> None:
    text = """fn shrunk(a, m) = if a == m then 1 else exp(a - m)
    reducer online (m1, l1, o1) (m2, l2, o2) from (-inf, 0, 0) =
        let m = max(m1, m2) in (m, l1 * shrunk(m1, m) + l2 * shrunk(m2, m), o1 * shrunk(m1, m) + o2 * shrunk(m2, m))
    op f(s: f64[N, K], v: f64[K, E]) -> (y: f64[N, E]) {
        m[i], l[i], o[i, e] = online(j) (s[i, j], 1, v[j, e])
        y[i, e] = o[i, e] / l[i]
    }"""
    check(text, {"N": 2, "K": 3, "E": 2})
    shown = show(reversed_program(program(text)))
    assert (shown.count("max("), shown.count("exp("), shown.count("ties")) == (1, 1, 0)


@pytest.mark.parametrize("terms", ["logsumexp(k) x[k]", "y[3]"], ids=["of all", "of those up to each"])
def test_equal_exponents_share_alike(terms: str) -> None:
    ops = tl.parse(f"op f(x: f64[4]) -> (z: f64) {{\n y[j] = logsumexp(k in 0..j+1) x[k] for j in 0..4\n z = {terms}\n}}")
    assert ops.f.gradient("x")(np.zeros(4), np.array(1.0)).tolist() == [0.25] * 4


@pytest.mark.parametrize(
    ("text", "by", "code"),
    [
        ("op f(x: f32[N], at: i64[K] in 0..N) -> (y: f32[K]) { y[k] = x[at[k]] }", ("at",), "T0180"),
        ("op f(x: f32[N]) -> (y: i64[N]) { y[i] = i64(x[i]) }", ("x",), "T0180"),
        ("extern op f(x: f32[N]) -> (y: f32[N])", ("x",), "T0180"),
        ("op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }", ("z",), "R0312"),
        ("op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }", ("x", "x"), "R0312"),
        ("op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }", (), "R0313"),
    ],
)
def test_what_has_no_derivative_is_refused_by_name(text: str, by: tuple[str, ...], code: str) -> None:
    ops = tl.parse(text)
    with pytest.raises(CompileError) as refused:
        ops.f.gradient(*by)
    assert refused.value.diagnostics[0].code == code


def test_floats_made_of_the_bits_of_others_are_refused() -> None:
    forward = program("op f(x: f32[N]) -> (y: f32[N]) {\n b[i] = bits(x[i])\n y[i] = from_bits(b[N - 1 - i])\n}")
    with pytest.raises(CompileError, match="T0180"):
        reversed_program(forward)


def test_each_of_several_tensors_has_a_derivative() -> None:
    ops = tl.parse("op join[T: float](each x: T[each N], w: T) -> (y: T[sum(N..)]) { y[before(N) + j] = w * x[j]   for each x }")
    first, second = ops.join.gradient("x")((np.ones(2), np.ones(1)), np.array(2.0), np.array([1.0, 2, 3]))
    assert (first.tolist(), second.tolist()) == ([2, 4], [6])


def test_derivatives_have_derivatives() -> None:
    ops = tl.parse("op f(x: f64[N]) -> (y: f64) { y = sum(k) x[k] * x[k] * x[k] }")
    second = ops.f.gradient("x").gradient("x")
    assert second(np.array([1.0, 2, 3]), np.array(1.0), np.array([1.0, 0, 2])).tolist() == [6, 0, 36]


def test_gradients_are_compiled_and_interpreted_for_any_target_as_operators_are() -> None:
    text = "extern op f(x: f64[N]) -> (y: f64[N]) { y[i] = x[i] * x[i] * x[i] }"
    backward, x = tl.parse(text).f.gradient("x"), np.array([1.0, 2])
    interpreted = interpret(backward.meaning(x, d_y=x), {}, {"x": x, "d_y": x})
    elsewhere = backward.compiled_by(tools_for("cuda", None))
    assert interpreted["d_x"].tolist() == [3, 24]
    assert show(elsewhere.program(x, d_y=x)) == show(backward.program(x, d_y=x)) and elsewhere.scheduled_for == "cuda"
    assert backward.gradient("x")(x, d_y=x, d_d_x=np.ones(2)).tolist() == [6, 24]


def test_steps_of_a_ring_are_compiled_backwards() -> None:
    text = """op f(x: f64[N]) -> (y: f64[N]) {
        u[0, k]     = x[k]                                           for k in 0..N
        u[t + 1, k] = u[t, k - 1 | wrap] + 2 * u[t, k + 1 | wrap]    for t in 0..2, k in 0..N
        y[k]        = u[2, k]
    }"""
    assert tl.parse(text).f.gradient("x")(np.ones(5), np.arange(5.0)).tolist() == [14, 23, 12, 16, 25]


def test_names_that_are_taken_are_not_given_twice() -> None:
    ops = tl.parse("op f(x: f64[N], d_y: f64[N]) -> (y: f64[N]) {\n d_x[i] = x[i] * d_y[i]\n y[i] = d_x[i] * x[i]\n}")
    backward = ops.f.gradient("x", "d_y")
    x, d = np.array([2.0]), np.array([3.0])
    assert [list(a) for a in backward(x, d, np.ones(1))] == [[12], [4]]
