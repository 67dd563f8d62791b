"""Operators of a `.tl` file, called from Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np
import pytest
from work_done import calls_made

import tensorlang as tl
from tensorlang.schedule.schedule import Schedule

TEXT = """
op linear[T: float](x: T[M, K], w: T[N, K], b: T[N] = 0) -> (y: T[M, N]) {
    y[i, j] = b[j] + sum(k) x[i, k] * w[j, k]
}
op scale[T: float](x: T[N], attr by: float = 2.0) -> (y: T[N]) { y[i] = x[i] * by }
op minmax[T](x: T[N]) -> (lo: T[], hi: T[]) {
    lo = min(i) x[i]
    hi = max(j) x[j]
}
op cumsum[T](x: T[N]) -> (y: T[N]) {
    y[0] = x[0]
    y[i] = y[i - 1] + x[i]    for i in 1..N
}
schedule linear for cpu(M >= 8) {
    knobs mr in {4, 8}
    rows(y, mr)
    vectorize y.j
}
tactic rows(t, n) {
    split t.i by n -> io, ii
}
"""


@pytest.fixture(scope="module")
def ops() -> tl.Operators:
    return tl.parse(TEXT)


def random(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (5, 9, 7), (16, 33, 12), (3, 4, 0)])
def test_an_operator_takes_and_returns_arrays(ops: tl.Operators, m: int, n: int, k: int) -> None:
    x, w, b = random(m, k), random(n, k, seed=1), random(n, seed=2)
    y = ops.linear(x, w, b)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, x @ w.T + b, rtol=1e-5, atol=1e-5)


def test_element_types_shapes_and_attributes_each_make_a_signature(ops: tl.Operators) -> None:
    for x in (random(4), random(9), random(4).astype(np.float64)):
        np.testing.assert_array_equal(ops.scale(x), x * 2, strict=True)
        np.testing.assert_array_equal(ops.scale(x, by=3.0), x * 3, strict=True)
        np.testing.assert_array_equal(ops.scale(x), x * 2, strict=True)


def test_several_results_are_a_tuple(ops: tl.Operators) -> None:
    lo, hi = ops.minmax(np.array([3, -1, 2], np.int32))
    assert (int(lo), int(hi)) == (-1, 3)


def test_a_recurrence_runs_in_its_order(ops: tl.Operators) -> None:
    x = np.arange(1, 9, dtype=np.float64)
    np.testing.assert_array_equal(ops.cumsum(x), np.cumsum(x))


def test_large_and_small_integers_in_one_list_are_not_rounded() -> None:
    same = tl.parse("op same(x: u64[N]) -> (y: u64[N]) { y[i] = x[i] }").same
    assert same([2**63 + 1, 1]).tolist() == [2**63 + 1, 1]
    with pytest.raises(tl.RunError, match=r"`x` is 0.5, which no `u64` is"):
        same([2**63 + 1, 0.5])


def test_lists_and_views_and_dlpack_are_taken(ops: tl.Operators) -> None:
    class Foreign:
        def __init__(self, array: np.ndarray[Any, Any]) -> None:
            self.array = array

        def __dlpack__(self, **kwargs: Any) -> Any:
            return self.array.__dlpack__(**kwargs)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    np.testing.assert_array_equal(ops.scale([1.0, 2.0]), np.array([2, 4], np.float32), strict=True)
    x = random(12)
    np.testing.assert_array_equal(ops.scale(x[::3]), x[::3] * 2)
    np.testing.assert_array_equal(ops.scale(Foreign(x)), x * 2)


def test_another_schedule_changes_the_loops_and_not_the_result(ops: tl.Operators) -> None:
    x, w, b = random(16, 7), random(9, 7, seed=1), random(9, seed=2)
    plain = ops.linear.schedule("split y.j by 3 -> jo, ji")
    np.testing.assert_allclose(plain(x, w, b), ops.linear(x, w, b), rtol=1e-6)
    assert "split y.j by 3" in plain.explain(x, w, b)


def test_a_schedule_made_in_python_may_speak_of_sizes_that_a_call_makes_numbers(ops: tl.Operators) -> None:
    x = np.arange(9, dtype=np.float64)
    halves = ops.scale.schedule(Schedule("scale").cut("y.i", at=[2, "N // 2"], into=("a", "b", "c")).vectorize("y.a"))
    np.testing.assert_array_equal(halves(x), 2 * x)
    np.testing.assert_array_equal(halves(x[:5]), 2 * x[:5])


def test_the_schedule_of_the_file_applies_where_its_guards_hold(ops: tl.Operators) -> None:
    w, b = random(9, 7, seed=1), random(9, seed=2)
    assert "split y.i by 4 -> io, ii" in ops.linear.explain(random(16, 7), w, b)
    assert "`M >= 8` does not hold (M = 5)" in ops.linear.explain(random(5, 7), w, b)


def test_a_schedule_that_breaks_a_dependence_is_refused(ops: tl.Operators) -> None:
    with pytest.raises(tl.CompileError, match="error\\[S"):
        ops.cumsum.schedule("reverse y.i")(np.arange(8, dtype=np.float64))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ops: ops.scale(random(3), random(3)), "R0311"),
        (lambda ops: ops.scale(random(3), bye=2.0), "did you mean `by`"),
        (lambda ops: ops.scale(random(3), x=random(3)), "is given `x` twice"),
        (lambda ops: ops.linear(random(3, 4)), "is not given `w`"),
        (lambda ops: ops.linear(random(3, 4), random(5, 6), random(5)), "`x` gives K = 4, `w` gives K = 6"),
        (lambda ops: ops.scale("text"), "is no array of numbers"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(ops: tl.Operators, call: Any, message: str) -> None:
    with pytest.raises(tl.RunError) as refused:
        call(ops)
    assert message in str(refused.value)
    assert isinstance(refused.value, ValueError)


def test_a_refused_call_has_no_frames_of_the_compiler_and_no_cause(ops: tl.Operators) -> None:
    with pytest.raises(tl.RunError) as refused:
        ops.linear(random(3, 4), random(5, 6), random(5))
    assert [frame.name for frame in refused.traceback][1:] == ["__call__"]
    assert refused.value.__cause__ is None and refused.value.__suppress_context__


@pytest.mark.parametrize("method", ["seconds", "timer", "prepared", "explain", "proofs", "roofline", "program", "stages"])
def test_whatever_takes_arguments_of_calls_refuses_them_without_frames_of_the_compiler(ops: tl.Operators, method: str) -> None:
    options = {"dump": print} if method == "stages" else {}
    for given in ({"bye": 2.0}, {"by": "two"}):
        with pytest.raises(tl.RunError) as refused:
            getattr(ops.scale, method)(*([1] if method == "seconds" else []), random(3), **given, **options)
        assert [frame.name for frame in refused.traceback][1:] == ["at_the_edge"]
        assert refused.value.__cause__ is None and refused.value.__suppress_context__


def test_frames_of_the_edge_ask_to_be_left_out(ops: tl.Operators) -> None:
    for call in (
        lambda: ops.scale(random(3), bye=2.0),
        lambda: ops.scale.explain(random(3), bye=2.0),
        lambda: tl.parse("op"),
        lambda: tl.use("no"),
    ):
        with pytest.raises(tl.CompileError) as refused:
            call()
        hidden = [frame.f_locals.get("__tracebackhide__") for frame, _ in walk_tb(refused.value.__traceback__)]
        assert hidden[-1] is True and not any(hidden[:-1]) and len(hidden) == 3


def test_an_argument_of_a_wrong_type_is_a_type_error_too(ops: tl.Operators) -> None:
    for arguments, given in (((random(3), random(3)), {}), (("text",), {}), ((random(3),), {"by": "two"})):
        with pytest.raises(TypeError) as refused:
            ops.scale(*arguments, **given)
        assert isinstance(refused.value, tl.RunError)


def test_a_condition_that_is_not_met_and_an_index_that_is_out_of_range_are_told_with_their_values() -> None:
    ops = tl.parse(
        "op first(x: f32[N], attr k: int) -> (y: f32[k]) where k <= N {\n    y[i] = x[i]\n}\n"
        "op few(x: f32[N], size k in 0..N) -> (y: f32[k]) { y[i] = x[i]   for i in 0..k }\n"
        "op pick(x: f32[N], at: i64[M]) -> (y: f32[M]) {\n    y[i] = x[at[i]]\n}\n"
        "op declared(x: f32[N], at: i64[M] in 0..N) -> (y: f32[M]) {\n    y[i] = x[at[i]]\n}\n"
    )
    with pytest.raises(tl.RunError) as refused:
        ops.first(random(4), k=9)
    assert "`k <= N` does not hold" in str(refused.value) and "^^^^^^ here k = 9 and N = 4" in str(refused.value)
    with pytest.raises(tl.RunError, match=r"(?s)`0 <= k < N` does not hold.* here k = 9 and N = 4.*help: change `k` or `x`"):
        ops.few(random(4), k=9)
    x, at = random(4), np.array([0, 1, 7, 2])
    for _ in range(2):  # the second call takes the way of a known signature
        with pytest.raises(tl.RunError, match=r"index 7 is out of bounds for axis 0 of `x`, which has 4 elements \(at i=2\)"):
            ops.pick(x, at)
    with pytest.raises(tl.RunError, match=r"`at\[2\]` is 7, outside its declared range 0..4"):
        ops.declared(x, at)


def test_an_unknown_operator_is_an_attribute_error_with_a_hint(ops: tl.Operators) -> None:
    with pytest.raises(AttributeError, match="did you mean `scale`"):
        _ = ops.scal


def test_a_file_is_loaded_and_a_missing_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "my.tl"
    path.write_text(TEXT)
    assert list(tl.load(path)) == ["cumsum", "linear", "minmax", "scale"]
    with pytest.raises(tl.CompileError, match="cannot read"):
        tl.load(tmp_path / "other.tl")


def test_a_call_of_a_known_signature_does_little_more_than_run_the_kernel(ops: tl.Operators) -> None:
    x, scale = np.ones(1, np.float32), ops.scale
    scale(x)
    scale(x)
    assert calls_made(lambda: scale(x)) < 10


def test_what_a_reducer_yields_may_use_all_its_components() -> None:
    ops = tl.parse("""
op total[T: float](x: T[B, N]) -> (y: T[B]) { y[b] = logsumexp(j) x[b, j] }
op shifted[T: float](x: T[B, N]) -> (y: T[B, N]) { y[b, j] = if j >= 1 then x[b, j] - logsumexp(k) x[b, k] else 0 }
""")
    x = random(3, 11) * 50
    top = x.max(axis=1)
    want = top + np.log(np.exp(x - top[:, None]).sum(axis=1))
    np.testing.assert_allclose(ops.total(x), want, rtol=1e-6)
    np.testing.assert_allclose(ops.shifted(x)[:, 1:], (x - want[:, None])[:, 1:], rtol=1e-5, atol=1e-5)


SCRATCH = """
import numpy as np, tensorlang as tl
ops = tl.parse('''
op product[T: float](a: T[M, K], b: T[K, N]) -> (y: T[M, N]) {
    y[i, j] = sum(k) a[i, k] * b[k, j]
}

schedule product for cpu {
    split y.j by 32 -> jo, jt
    order jo, y.i, y.k, jt
    vectorize jt
    pack b at jo as [k, j % 32]
    parallel jo
}
''', threads=1)
a = np.random.default_rng(0).standard_normal((256, 256), dtype=np.float32)
expected = a @ a
for _ in range(50):
    assert np.allclose(ops.product(a, a), expected, atol=1e-3)
"""


def test_a_written_parallel_loop_has_scratch_memory_for_every_thread_of_the_pool() -> None:
    done = subprocess.run([sys.executable, "-c", SCRATCH], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_call_can_be_measured_with_others_in_turns(ops: tl.Operators) -> None:
    arguments = random(4, 8), random(3, 8), random(3)
    timer = ops.linear.timer(*arguments)
    assert ops.linear.seconds(2, *arguments) > 0 and timer(3) > 0


DIFFERENCE = """reducer difference a b from 0 = a - b
op fold(x: f32[N]) -> (y: f32) { y = difference(i) x[i] }
"""
SPLIT = "schedule fold for cpu {\n    rfactor i by 8\n}\n"


def test_terms_of_a_reducer_that_breaks_its_promise_are_combined_in_order(tmp_path: Path) -> None:
    (tmp_path / "used.tl").write_text(DIFFERENCE, "utf-8")
    (tmp_path / "uses.tl").write_text(f'use "used.tl"\nop f(x: f32[N]) -> (y: f32) {{ y = fold(x) }}\n{SPLIT}', "utf-8")
    x, uses = np.arange(40, dtype=np.float32), tl.load(tmp_path / "uses.tl")
    assert tl.parse(DIFFERENCE).fold(x) == uses.f(x) == -780
    for split in (tl.parse(DIFFERENCE + SPLIT), uses):
        with pytest.raises(tl.CompileError, match=r"S0204.*`difference` is not associative"):
            split.fold(x)
    with pytest.raises(tl.CompileError, match=r"S0303[\s\S]*terms of `difference` are combined in order"):
        tl.parse(DIFFERENCE + SPLIT.replace("rfactor i by 8", "vectorize i")).fold(x)


@pytest.mark.parametrize(("rule", "identity", "start", "splits"), [
    ("if a > b then a else b", "lowest", "", "i32 i8"),  # what is no number is forgotten or kept, as the order has it
    ("max(a, b)", "0", "", "f32 i32 i8"),  # changes what it is combined with, but not when combined twice
    ("max(a, b)", "0", "from -5, ", ""),
    ("a + b", "1", "", ""),
    ("a * b", "1", "from 3, ", "f32 i32 i8"),
])  # fmt: skip
def test_whether_terms_may_be_regrouped_is_told_for_their_types(rule: str, identity: str, start: str, splits: str) -> None:
    for dtype in ("f32", "i32", "i8"):
        ops = tl.parse(
            f"""reducer chosen a b from {identity} = {rule}
op f(x: {dtype}[N]) -> (y: {dtype}) {{ y = chosen({start}i in 0..N) x[i] }}
schedule f for cpu {{ rfactor i by 2 }}"""
        )
        if dtype in splits.split():
            ops.f(np.ones(5, dtype.replace("f", "float").replace("i", "int")))
        else:
            with pytest.raises(tl.CompileError, match="S0204"):
                ops.f(np.ones(5, dtype.replace("f", "float").replace("i", "int")))
