"""Lifting, absorbing and flattening change the shape of a program, and no bit of its results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from strategies_tensor import Case, cases

import tensorlang as tl
from tensorlang.tensor.absorb import absorb
from tensorlang.tensor.flatten import flatten, merge_once
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.printer import show
from tensorlang.tensor.prove import prove
from tensorlang.tensor.verify import verify
from tensorlang.tensor.walk import reduces

X = np.linspace(-2, 3, 24, dtype=np.float32).reshape(2, 3, 4)
Pass = Callable[[Program], Program]


def program(text: str, *arrays: np.ndarray) -> Program:
    [name] = ops = tl.parse(text)
    return ops[name].program(*arrays)


def clauses(p: Program) -> list[str]:
    """Return the equations of a program as they are printed, without blanks."""
    return [line.strip() for line in show(p).splitlines() if "=" in line and not line.startswith(("op", "reducer", "    yield"))]


@pytest.mark.parametrize("change", [lift, absorb, flatten], ids=lambda f: f.__name__)
@given(case=cases())
@settings(max_examples=60)
def test_results_stay_the_same_bit_for_bit(change: Pass, case: Case) -> None:
    after = verify(change(case.program))
    prove(after)
    before, now = (interpret(p, case.sizes, case.arrays) for p in (case.program, after))
    for name in case.program.results:
        assert now[name].tobytes() == before[name].tobytes()


@pytest.mark.parametrize("change", [lift, absorb, flatten], ids=lambda f: f.__name__)
@given(case=cases())
@settings(max_examples=30)
def test_doing_it_twice_does_nothing_more(change: Pass, case: Case) -> None:
    once = change(case.program)
    assert change(once) == once


# ---------------------------------------------------------------- lift

SOFTMAX = "op f(e: f32[A, N]) -> (y: f32[A, N]) { y[d, j] = e[d, j] / sum(k) e[d, k] }"


def test_a_reduction_that_does_not_need_an_axis_gets_a_tensor_without_it() -> None:
    lifted = lift(program(SOFTMAX, X[0]))
    assert [tuple(d.axes) for d in lifted.definitions] == [("d",), ("d", "j")]
    assert [len(d.tensors[0].shape) for d in lifted.definitions] == [1, 2]


@pytest.mark.parametrize(
    ("reduction", "ranks"),
    [("mean(k) e[d, k]", [[1], [0], [2]]), ("logsumexp(k) e[d, k]", [[1, 1], [2]])],
    ids=["parts by themselves", "parts of each other"],
)
def test_a_reduction_of_several_parts_that_does_not_need_an_axis_gets_tensors_without_it(reduction: str, ranks: list[list[int]]) -> None:
    whole = program(f"op f(e: f32[A, N]) -> (y: f32[A, N]) {{ y[d, j] = e[d, j] / ({reduction}) }}", X[0])
    lifted = lift(whole)
    assert [[len(t.shape) for t in d.tensors] for d in lifted.definitions] == ranks
    assert interpret(lifted, {}, {"e": X[0]})["y"].tobytes() == interpret(whole, {}, {"e": X[0]})["y"].tobytes()


def test_a_reduction_that_needs_every_axis_stays() -> None:
    whole = program("op f(x: f32[N, K]) -> (y: f32[N]) { y[i] = sum(k) x[i, k] }", X[0])
    assert lift(whole) == whole


def test_a_reduction_on_a_chosen_side_stays_where_it_is_guarded() -> None:
    guarded = program("op f(x: f32[N]) -> (y: f32[N]) { y[i] = if i >= 1 then x[i] + sum(k) x[k] else 0 }", X[0, 0])
    assert len(lift(guarded).definitions) == 1


def test_a_reduction_that_needs_fewer_axes_once_nothing_of_it_runs_is_lifted_at_once() -> None:
    body = "y[i, j] = max(k in 0..N) (x[k, i | skip] * (max(h in 0..M) z[i, j | f32(1)])) for i in 0..M, j in 0..1"
    operator = tl.parse(f"op f(x: f32[K, K], z: f32[N, M]) -> (y: f32[M, 1]) {{ {body} }}", threads=1).f
    arrays = np.zeros((0, 0), np.float32), np.zeros((1, 2), np.float32)
    once = lift(operator.program(*arrays))
    assert lift(once) == once
    assert operator(*arrays).tolist() == [[-np.inf], [-np.inf]]


# ---------------------------------------------------------------- absorb

LAYER = """op f(x: f32[M, K], w: f32[K, N]) -> (y: f32[M, N]) {
    t[i, j] = sum(k) x[i, k] * w[k, j]
    y[i, j] = max(t[i, j] + 1, 0)
}"""


def test_a_sum_is_written_where_its_only_reader_reads_it() -> None:
    before = program(LAYER, X[0], X[0].T)
    after = absorb(before)
    assert [len(before.definitions), len(after.definitions)] == [2, 1]
    assert "sum(k in 0..4)" in clauses(after)[0] and "max(" in clauses(after)[0]


def test_sums_that_are_written_in_one_equation_have_binders_of_different_names() -> None:
    text = """op f(x: f32[M, K]) -> (y: f32[M]) {
        p[i] = sum(k in 0..K, x[i, k] > 0) x[i, k]
        q[i] = sum(k in 0..K, x[i, k] < 1) x[i, k] * 3
        y[i] = p[i] - q[i]
    }"""
    (made,) = absorb(program(text, X[0])).definitions
    assert len({b.name for e in reduces(made.pieces[0].value) for b in e.binders}) == 2


def test_a_sum_that_its_reader_uses_twice_is_computed_once() -> None:
    before = program(LAYER.replace("t[i, j] + 1", "t[i, j] * t[i, j]"), X[0], X[0].T)
    (definition,) = absorb(before).definitions
    assert len(list(reduces(definition.pieces[0].value))) == 1
    assert clauses(absorb(before))[0].count("let t_1 = sum(k in 0..4)") == 1


def test_a_product_of_the_input_is_not_written_in_a_recurrence_but_one_of_the_state_is() -> None:
    text = """op f(x: f32[L, K], w: f32[J, K], r: f32[J, J]) -> (y: f32[L, J]) {
        given[t, j]    = sum(k) x[t, k] * w[j, k]
        kept[t, j]     = sum(m) h[t, m] * r[j, m] for t in 0..L
        h[0, j]        = 0.0 for j in 0..J
        z[t, j]        = given[t, j] + kept[t, j]
        h[t + 1, j]    = tanh(z[t, j])
        y[t, j]        = h[t + 1, j]
    }"""
    after = absorb(program(text, X[0], X[1], np.eye(3, dtype=np.float32)))
    assert {t.name for d in after.definitions for t in d.tensors} == {"given", "z", "h", "y"}


def test_an_index_of_a_sum_makes_way_for_an_axis_of_its_reader() -> None:
    before = program("op f(x: f32[M, N]) -> (y: f32[M, N]) {\n t[i] = 1 / sum(j) x[i, j]\n y[i, j] = x[i, j] * t[i]\n}", X[0, :, :1])
    (definition,) = absorb(before).definitions
    (reduction,) = reduces(definition.pieces[0].value)
    assert not {b.name for b in reduction.binders} & set(definition.axes)


@pytest.mark.parametrize(
    "text",
    [
        LAYER.replace("-> (y:", "-> (t: f32[M, N], y:"),
        LAYER.replace("t[i, j] + 1", "t[i, j] + t[i, 0]"),
        LAYER.replace("y: f32[M, N]", "y: f32[M, N, N]").replace("y[i, j]", "y[i, j, l]").replace("+ 1, 0)", "+ w[0, l], 0)"),
        LAYER.replace("y[i, j] = max(t[i, j] + 1, 0)", "y[i, j] = max(k) (t[i, k] + w[0, j])"),
    ],
    ids=["a result", "read at two points", "a reader with more axes", "a reader that reduces it"],
)
def test_a_sum_that_others_need_or_that_would_be_repeated_stays(text: str) -> None:
    before = program(text, X[0], X[0].T)
    assert absorb(before) == before


# ---------------------------------------------------------------- flatten


def test_axes_that_all_accesses_walk_together_become_one() -> None:
    text = "op f(x: f32[C, H, W], b: f32[C]) -> (y: f32[C, H, W]) { y[c, h, w] = max(x[c, h, w] + b[c], 0) }"
    before = program(text, X, X[0, 0, :2])
    after = flatten(before)
    assert [tuple(d.axes) for d in after.definitions] == [("c", "h_w")]
    assert clauses(after) == ["y[c, h_w] = max(x[c, h_w] + b[c], 0.0)"]


@pytest.mark.parametrize(
    "text",
    [
        "op f(x: f32[H, W, D]) -> (y: f32[W, H, D]) { y[w, h, d] = x[h, w, d] + f32(d) + f32(w) }",
        "op f(x: f32[H, W, D]) -> (y: f32[H, W, D]) { y[h, w, d] = x[h, w - 1, d | 0] + f32(d) + x[0, w, d] }",
    ],
    ids=["transposed", "shifted"],
)
def test_axes_that_an_access_takes_apart_stay(text: str) -> None:
    before = program(text, X)
    assert [len(d.axes) for d in flatten(before).definitions] == [3]


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("op f(x: f32[5, 1]) -> (y: f32[4, 1]) { y[i, j] = x[i + 1, j] * f32(i + j) }", "y[i] = x[i + 1] * f32(i)"),
        ("op f(x: f32[5, 1]) -> (y: f32[2]) { y[i] = sum(a in 0..2, b) x[2*i + a, b] }", "y[i] = sum(a in 0..2) x[a + 2*i]"),
        ("op f(x: f32[5, 1], k: i64[1] in 0..1) -> (y: f32[4, 1]) { y[i, j] = x[i, k[j]] }", "y[i] = x[i, k[0]] for i in 0..4"),
    ],
    ids=["moved", "summed", "read at data"],
)
def test_a_last_dimension_of_one_element_goes_however_the_others_are_read(text: str, clause: str) -> None:
    after = flatten(program(text, np.zeros((5, 1), np.float32), *[np.zeros(1, np.int64)] * ("k:" in text)))
    assert clauses(after) == [clause]


def test_programs_with_recurrences_keep_dimensions_of_one_element() -> None:
    text = "op f(x: f32[5, 1]) -> (y: f32[5, 1]) {\ny[0, j] = x[0, j]\ny[i + 1, j] = y[i, j] + x[i + 1, j] for i in 0..4\n}"
    before = program(text, np.zeros((5, 1), np.float32))
    assert flatten(before) == before


def test_dimensions_that_are_kept_do_not_merge() -> None:
    copy = program("op f(x: f32[C, H, W]) -> (y: f32[C, H, W]) { y[c, h, w] = x[c, h, w] + 1 }", X)
    assert [len(d.axes) for d in flatten(copy).definitions] == [1]
    assert merge_once(copy, frozenset({("x", 0), ("x", 1)})) is None
    merged, places = merge_once(copy, frozenset({("x", 0)})) or (copy, {})
    assert [d.axes for d in merged.definitions] == [("c", "h_w")]
    assert places == {"x": 1, "y": 1}
