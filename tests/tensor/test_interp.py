"""The interpreter computes what the language says."""

from __future__ import annotations

from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from strategies_tensor import (
    Case,
    cases,
    conv,
    cumsum,
    definition,
    heat,
    matmul,
    max_of,
    read,
    softmax,
    tensor,
    total,
)

from codegen.dtypes import DTYPES, bf16, bool_, f8e4m3, f16, f32, f64, i4, i8, i32, i64, u8
from polyhedral import affine
from polyhedral.expr import Int
from polyhedral.expr import Name as N
from tensorlang.diagnostics import RunError
from tensorlang.tensor import arith
from tensorlang.tensor.interp import Evaluator, interpret
from tensorlang.tensor.nodes import (
    Binary,
    Binder,
    Call,
    Cast,
    Compare,
    Const,
    Dynamic,
    Expr,
    Name,
    Piece,
    Program,
    Read,
    Reduce,
    Reducer,
    Select,
)
from tensorlang.tensor.value_domain import Numbers

rng = np.random.default_rng(7)


def of_one(value: Expr, dtype=f32, source=f32):
    """Return a program y[i] = value over x[i]."""
    return Program("one", ("n",), (tensor("x", source, "n"),), ("y",), (definition(tensor("y", dtype, "n"), ("i",), value),))


def run_one(value: Expr, x, dtype=f32, source=f32):
    x = np.asarray(x).astype(source.numpy)
    return interpret(of_one(value, dtype, source), {"n": len(x)}, {"x": x})["y"]


X = read("x", "i")


def test_a_matrix_product_sums_from_left_to_right_in_f32():
    a, b = rng.standard_normal((5, 70), dtype=np.float32), rng.standard_normal((70, 3), dtype=np.float32)
    expected = np.zeros((5, 3), np.float32)
    for k in range(70):
        expected += a[:, k : k + 1] * b[k : k + 1, :]
    got = interpret(matmul(), {"M": 5, "K": 70, "N": 3}, {"a": a, "b": b})["y"]
    assert (got == expected).all()


def test_empty_sizes_give_empty_results_and_the_identity_of_empty_sums():
    a, b = np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32)
    assert (interpret(matmul(), {"M": 2, "K": 0, "N": 3}, {"a": a, "b": b})["y"] == 0).all()
    assert interpret(matmul(), {"M": 0, "K": 0, "N": 3}, {"a": a[:0], "b": b})["y"].shape == (0, 3)


def test_bf16_products_are_summed_in_f32_and_rounded_once():
    a, b = rng.standard_normal((4, 9)).astype(ml_dtypes.bfloat16), rng.standard_normal((9, 4)).astype(ml_dtypes.bfloat16)
    wide = interpret(matmul(), {"M": 4, "K": 9, "N": 4}, {"a": a.astype(np.float32), "b": b.astype(np.float32)})["y"]
    got = interpret(matmul(bf16), {"M": 4, "K": 9, "N": 4}, {"a": a, "b": b})["y"]
    assert got.dtype == ml_dtypes.bfloat16 and (got == wide.astype(ml_dtypes.bfloat16)).all()


def test_a_padded_convolution_equals_the_sum_over_shifts():
    x, w = rng.standard_normal((3, 5, 6), dtype=np.float32), rng.standard_normal((2, 3, 3, 3), dtype=np.float32)
    around = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    expected = sum(np.einsum("chw,fc->fhw", around[:, r : r + 5, s : s + 6], w[:, :, r, s]) for r in range(3) for s in range(3))
    np.testing.assert_allclose(interpret(conv(), {"C": 3, "H": 5, "W": 6, "F": 2}, {"x": x, "w": w})["y"], expected, rtol=1e-4, atol=1e-4)


def test_softmax_agrees_with_numpy():
    x = rng.standard_normal((3, 7), dtype=np.float32)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(interpret(softmax(), {"M": 3, "N": 7}, {"x": x})["y"], e / e.sum(1, keepdims=True), rtol=1e-5)


def test_a_recurrence_is_evaluated_in_the_order_it_needs():
    x = rng.standard_normal(300, dtype=np.float32)
    assert (interpret(cumsum(), {"n": 300}, {"x": x})["y"] == np.add.accumulate(x)).all()


def test_a_recurrence_may_run_backwards():
    x = rng.standard_normal(50, dtype=np.float32)
    last = affine.sub("n", 1)
    y = definition(
        tensor("y", f32, "n"),
        ("i",),
        Piece(read("x", "i"), affine.compare("==", "i", last)),
        Piece(Binary("+", read("y", affine.add("i", 1)), read("x", "i")), affine.compare("<", "i", last)),
    )
    got = interpret(Program("back", ("n",), (tensor("x", f32, "n"),), ("y",), (y,)), {"n": 50}, {"x": x})["y"]
    assert (got == np.add.accumulate(x[::-1])[::-1]).all()


def test_heat_keeps_its_borders():
    x = np.array([0, 0, 8, 0, 0], np.float32)
    assert interpret(heat(), {"n": 5, "T": 1}, {"x": x})["y"].tolist() == [0, 2, 4, 2, 0]


@dataclass(slots=True)
class Counted(Numbers):
    """Numbers that count the sums and differences asked for, and at how many points."""

    times: int = 0
    points: int = 0

    def binary(self, op, a, b, dtype):
        self.times += 1
        self.points += len(a)
        return arith.binary(op, a, b, dtype)


def sums(below, left):
    """Return t[i, j] = t[below] + t[left] with ones along the borders where that is nothing."""
    inside = affine.conj(affine.compare(">", "i", 0), affine.compare(">", "j", 0))
    pieces = Piece(Binary("+", Read("t", below), Read("t", left)), inside), Piece(Const(1.0, f32), affine.negate(inside))
    return Program("sums", ("n",), (), ("t",), (definition(tensor("t", f32, "n", "n"), ("i", "j"), *pieces),))


def test_elements_of_a_recurrence_that_need_none_of_each_other_are_computed_together():
    n = 30
    above, before = (affine.sub("i", 1), N("j")), (N("i"), affine.sub("j", 1))
    counted = Counted()
    evaluator = Evaluator(sums(above, before), {"n": n}, {}, counted)
    evaluator.run()
    expected = np.ones((n, n), np.float32)
    for i, j in np.ndindex(n - 1, n - 1):
        expected[i + 1, j + 1] = expected[i, j + 1] + expected[i + 1, j]
    assert (evaluator.results()["t"] == expected).all()
    assert counted.times <= 8 * n and counted.points <= 3 * n * n


@pytest.mark.parametrize(("step", "first"), [(-1, Int(0)), (1, affine.sub("n", 1))])
def test_an_element_is_tried_again_when_what_it_lacked_is_there(step, first):
    n, counted = 200, Counted()
    at_first = affine.compare("==", "i", first)
    next_to = Binary("+", read("t", affine.add("i", step)), Const(1.0, f32))
    t = definition(tensor("t", f32, "n"), ("i",), Piece(next_to, affine.negate(at_first)), Piece(Const(0.0, f32), at_first))
    evaluator = Evaluator(Program("chain", ("n",), (), ("t",), (t,)), {"n": n}, {}, counted)
    evaluator.run()
    assert evaluator.results()["t"][::-step].tolist() == list(range(n))
    assert counted.points <= 3 * n


def test_an_element_that_needs_itself_is_named():
    y = definition(tensor("y", f32, "n"), ("i",), read("y", affine.sub(affine.sub("n", 1), "i")))
    with pytest.raises(RunError, match=r"`y\[0\]` needs `y\[2\]` needs `y\[0\]`"):
        interpret(Program("loop", ("n",), (), ("y",), (y,)), {"n": 3}, {})


def test_an_undefined_and_a_doubly_defined_element_are_named():
    small = affine.compare("<", "i", 2)
    for guards, message in (((small,), r"`y\[2\]` is not defined"), ((small, affine.compare(">=", "i", 1)), r"`y\[1\]` is defined twice")):
        y = definition(tensor("y", f32, "n"), ("i",), *(Piece(Const(1.0, f32), g) for g in guards))
        with pytest.raises(RunError, match=message):
            interpret(Program("bad", ("n",), (), ("y",), (y,)), {"n": 3}, {})


def test_the_side_of_a_select_that_is_not_chosen_is_not_read():
    value = Select(Compare("<", X, Const(0, i64)), Const(-1.0, f32), Read("t", (Dynamic(X),)))
    table = tensor("t", f32, 3)
    program = replace(of_one(value, f32, i64), params=(tensor("x", i64, "n"), table))
    t = np.array([5, 6, 7], np.float32)
    assert interpret(program, {"n": 3}, {"x": np.array([-100, 2, 0]), "t": t})["y"].tolist() == [-1, 7, 5]
    with pytest.raises(RunError, match=r"index 3 is out of bounds for axis 0 of `t`, which has 3 elements \(at i=1\)"):
        interpret(program, {"n": 2}, {"x": np.array([0, 3]), "t": t})


def test_declared_ranges_and_shapes_and_dtypes_are_checked_on_entry():
    program = of_one(X, i64, i64)
    program = replace(program, params=(replace(program.params[0], declared_range=(Int(0), N("n"))),))
    with pytest.raises(RunError, match=r"`x\[1\]` is 2, outside its declared range 0..2"):
        interpret(program, {"n": 2}, {"x": np.array([0, 2])})
    with pytest.raises(RunError, match=r"has shape \(3,\), not \(2,\)"):
        interpret(program, {"n": 2}, {"x": np.array([0, 2, 1])})
    with pytest.raises(RunError, match="has elements of int32, not i64"):
        interpret(program, {"n": 2}, {"x": np.array([0, 2], np.int32)})


def test_integers_wrap_and_division_by_zero_is_zero():
    assert run_one(Binary("+", X, Const(1, i8)), [127], i8, i8).tolist() == [-128]
    assert run_one(Binary("//", X, Const(0, i32)), [5, -5], i32, i32).tolist() == [0, 0]
    assert run_one(Binary("%", X, Const(0, i32)), [5, -5], i32, i32).tolist() == [0, 0]
    assert run_one(Binary("//", X, Const(2, i32)), [-3], i32, i32).tolist() == [-2]
    assert run_one(Binary("%", X, Const(-3, i32)), [4], i32, i32).tolist() == [-2]
    assert run_one(Binary("*", X, Const(3, i4)), [3, 7], i4, i4).astype(int).tolist() == [-7, 5]


def test_casts_saturate_from_floats_and_wrap_between_integers():
    assert run_one(Cast(i8, X), [300, -300, np.nan, -1.9, 1.9], i8).tolist() == [127, -128, 0, -1, 1]
    assert run_one(Cast(i64, X), [1e30, -1e30], i64).tolist() == [2**63 - 1, -(2**63)]
    assert run_one(Cast(u8, X), [300, -1], u8, i32).tolist() == [44, 255]
    assert run_one(Cast(u8, X, saturate=True), [300, -1], u8, i32).tolist() == [255, 0]
    assert run_one(Cast(bool_, X), [0, -0.0, np.nan, 2], bool_).tolist() == [False, False, True, True]
    assert np.isnan(run_one(Cast(f8e4m3, X), [1000])[0]) and run_one(Cast(f8e4m3, X, saturate=True), [1000]).tolist() == [448]


def test_f64_is_rounded_to_bf16_once():
    # Just above the middle between two bf16 numbers; rounding through f32 would lose what decides.
    x = 1 + 2.0**-8 + 2.0**-40
    assert run_one(Cast(bf16, X), [x], bf16, f64).astype(np.float64).tolist() == [1 + 2.0**-7]


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_survives_load_and_store(name):
    dtype = DTYPES[name]
    values = np.array([0, 1, 3]).astype(dtype.numpy)
    assert (arith.store(arith.load(values, dtype), dtype) == values).all()


def test_max_and_min_propagate_nan():
    got = run_one(Binary("max", X, Const(1.0, f32)), [0, 2, np.nan])
    assert got[:2].tolist() == [1, 2] and np.isnan(got[2])


def test_of_two_zeros_the_least_is_the_negative_one() -> None:
    zeros = np.array([0.0, -0.0], np.float32)
    assert np.signbit(run_one(Binary("min", X, Const(0.0, f32)), zeros)).tolist() == [False, True]
    assert np.signbit(run_one(Binary("max", Const(-0.0, f32), X), zeros)).tolist() == [False, True]
    whole = Reduce(max_of(f32), (Binder("k", Int(0), N("n")),), (read("x", "k"),))
    for order in (zeros, zeros[::-1]):
        assert not np.signbit(run_one(whole, order)).any()


def test_a_shift_by_the_width_or_more_shifts_everything_out() -> None:
    counts = np.array([1, 8, 100, -1])
    assert run_one(Binary("shl", Const(3, i8), Cast(i8, X)), counts, i8, i64).tolist() == [6, 0, 0, 0]
    assert run_one(Binary("shr", Const(-3, i8), Cast(i8, X)), counts, i8, i64).tolist() == [-2, -1, -1, -1]


def test_elementary_functions_are_rounded_from_f64():
    x = np.array([-2, 0.5, 3], np.float32)
    assert (run_one(Call("exp", (X,)), x) == np.exp(x.astype(np.float64)).astype(np.float32)).all()
    assert run_one(Call("erf", (X,)), [0, np.inf]).tolist() == [0, 1]
    assert run_one(Call("round", (X,)), [0.5, 1.5, 2.5]).tolist() == [0, 2, 2]
    assert run_one(Call("sigmoid", (X,)), [-1000, 0]).tolist() == [0, 0.5]


def argmax() -> Reducer:
    """The greatest value and the first index that has it."""
    v, i, w, j = map(Name, ("v", "i", "w", "j"))
    left = Compare(">=", v, w)
    pair = (Select(left, v, w), Select(left, i, j))
    return Reducer("argmax", ("v", "i"), ("w", "j"), (f32, i64), pair, None)


def test_a_tuple_reduction_without_identity_starts_with_its_first_point():
    from tensorlang.tensor.nodes import IndexValue, Project

    value = Project(Reduce(argmax(), (Binder("k", Int(0), N("n")),), (read("x", "k"), IndexValue(N("k")))), 1)
    program = Program("a", ("n",), (tensor("x", f32, "n"),), ("y",), (definition(tensor("y", i64), (), value),))
    assert interpret(program, {"n": 4}, {"x": np.array([1, 9, 9, 2], np.float32)})["y"] == 1
    with pytest.raises(RunError, match="empty range"):
        interpret(program, {"n": 0}, {"x": np.zeros(0, np.float32)})


def test_filters_and_triangular_ranges_drop_terms():
    x = np.arange(5, dtype=np.float32)
    triangle = total(read("x", "k"), f32, ("k", 0, affine.add("i", 1)))
    assert run_one(triangle, x).tolist() == [0, 1, 3, 6, 10]
    odd = total(read("x", "k"), f32, ("k", 0, N("n")), where=affine.compare("==", affine.mod(N("k"), 2), 1))
    assert run_one(odd, x).tolist() == [4] * 5
    big = replace(total(read("x", "k"), f32, ("k", 0, N("n"))), filter=Compare(">", read("x", "k"), read("x", "i")))
    assert run_one(big, x).tolist() == [10, 9, 7, 4, 0]
    assert run_one(Reduce(max_of(f32), (Binder("k", N("i"), N("n")),), (read("x", "k"),)), x[::-1]).tolist() == [4, 3, 2, 1, 0]


def test_single_elements_can_be_evaluated_in_any_legal_order():
    program = cumsum()
    evaluator = Evaluator(program, {"n": 3}, {"x": np.array([1, 2, 3], np.float32)})
    evaluator.declare(program.definitions[0])
    with pytest.raises(RunError, match=r"`y\[1\]` is computed before `y\[0\]`"):
        evaluator.value(program.definitions[0], (1,))
    for k in range(3):
        evaluator.store(program.definitions[0], (k,), evaluator.value(program.definitions[0], (k,)))
    assert evaluator.results()["y"].tolist() == [1, 3, 6]


@given(cases())
@settings(max_examples=40, deadline=None)
def test_evaluating_all_points_together_equals_evaluating_them_one_by_one(case: Case):
    together = interpret(case.program, case.sizes, case.arrays)
    evaluator = Evaluator(case.program, case.sizes, case.arrays)
    for d in case.program.definitions:
        evaluator.declare(d)
        for point in np.ndindex(*evaluator.arrays[d.tensors[0].name].shape):
            evaluator.store(d, point, evaluator.value(d, point))
    for name, alone in evaluator.results().items():
        assert alone.tobytes() == together[name].tobytes()


def test_grouped_axes_are_one_dimension_for_the_caller():
    x = replace(tensor("x", f32, 2, "n"), grouping=(2,))
    program = Program("g", ("n",), (x,), ("y",), (definition(tensor("y", f32, "n"), ("i",), read("x", 1, "i")),))
    assert interpret(program, {"n": 3}, {"x": np.arange(6, dtype=np.float32)})["y"].tolist() == [3, 4, 5]


def test_f16_values_are_computed_in_f32():
    x = np.array([2048], np.float16)
    one = Const(1.0, f32)
    assert run_one(Binary("-", Binary("+", X, one), Const(2048.0, f32)), x, f16, f16).tolist() == [1]
