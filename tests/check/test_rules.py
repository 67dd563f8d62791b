"""Single rules of the checker, seen in the tensor IR that comes out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checking import load, mistakes, program_of, run

from codegen.dtypes import bf16, f32, f64
from polyhedral.expr import TRUE, Add, Compare, Int, Name
from tensorlang.check.definition import check_module, examine
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.diagnostics import CompileError
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.printer import show
from tensorlang.tensor.prove import prove
from tensorlang.tensor.verify import verify
from tensorlang.tensor.walk import nodes

X = np.arange(6, dtype=np.float32)


def program(text: str, *args: Any, **kwargs: Any) -> ir.Program:
    module = load(text)
    return program_of(module, next(iter(module.declared)), *args, **kwargs)


def definition(made: ir.Program, name: str) -> ir.Definition:
    return next(d for d in made.definitions if d.tensors[0].name == name)


def reduces(made: ir.Program) -> list[ir.Reduce]:
    return [n for d in made.definitions for p in d.pieces for n in nodes(p.value) if isinstance(n, ir.Reduce)]


# ---------------------------------------------------------------- left sides


def test_a_shift_on_the_left_becomes_one_in_the_body() -> None:
    made = program("op f(x: f32[N]) -> (y: f32[N + 1]) {\n y[0] = 0\n y[i + 1] = x[i]\n}", X, symbolic=True)
    (first, second) = made.definitions[0].pieces
    assert made.definitions[0].axes == ("i",)
    assert first.guard == Compare("==", Name("i"), Int(0))
    assert second.guard == Compare(">=", Name("i"), Int(1))
    (read,) = [n for n in nodes(second.value) if isinstance(n, ir.Read)]
    assert read.index == (Add(Name("i"), Int(-1)),)


def test_a_full_range_leaves_no_guard() -> None:
    made = program("op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i]   for i in 0..N }", X)
    assert made.definitions[0].pieces[0].guard == TRUE


def test_a_mirrored_left_side_is_solved() -> None:
    assert run(load("op f(x: f32[N]) -> (y: f32[N]) { y[N - 1 - i] = x[i] }"), "f", X).tolist() == X[::-1].tolist()


def test_digits_on_the_left_are_taken_apart() -> None:
    text = "op f(x: f32[M, N]) -> (y: f32[4 * M]) { y[4*i + j] = x[i, j]   for j in 0..N }"
    assert run(load(text), "f", X[:4].reshape(1, 4)).tolist() == X[:4].tolist()


def test_strides_on_the_left_meet() -> None:
    text = "op f(x: f32[N]) -> (y: f32[2*N]) {\n y[2*i] = x[i]\n y[2*i + 1] = -x[i]\n}"
    assert run(load(text), "f", X[1:3]).tolist() == [1, -1, 2, -2]


def test_otherwise_is_the_rest() -> None:
    text = "op f(x: f32[N]) -> (y: f32[N]) {\n y[0] = 7\n y[i] = x[i]   for i in 3..5\n y[i] = 0   otherwise\n}"
    assert run(load(text), "f", X).tolist() == [7, 0, 0, 3, 4, 0]


def test_a_local_ranges_over_the_hull_of_its_equations() -> None:
    made = program("op f(x: f32[N]) -> (y: f32[N]) {\n t[0] = x[0 | 0]\n t[i + 1] = x[i]\n y[i] = t[i + 1]\n}", X, symbolic=True)
    (shape,) = definition(made, "t").tensors[0].shape
    assert shape == Add(Name("N"), Int(1))


# ---------------------------------------------------------------- indices from data


LOOKUP = "op f(x: f32[N], z: f32[M], ids: i64[L] in -1..N, at: i64[L]) -> (y: f32[L]) where M >= 1 {{ y[i] = {value} }}"


@pytest.mark.parametrize(
    "value",
    [
        "if ids[i] >= 0 and ids[i] < M then x[ids[i]] else 0",
        "if ids[i] >= 0 and ids[i] < M then z[ids[i]] else 0",
        "if ids[i] in 0..M then x[ids[i]] + z[ids[i]] else 0",
        "if not (ids[i] < 0 or ids[i] >= M) then sum(k) x[ids[i]] * z[ids[i]] * z[k] else 0",
        "if 0 <= ids[i] <= i then x[ids[i]] else 0",
        "sum(k, ids[k] >= 0, ids[k] < M) x[ids[k]] * z[ids[k]]",
        "sum(k, ids[k] >= 0, x[ids[k]] > 0) x[ids[k]]",
        "max(k, 0 <= ids[k] < i, from 0) x[ids[k]]",
    ],
)
def test_bounds_that_cannot_be_compared_are_both_known(value: str) -> None:
    prove(program(LOOKUP.format(value=value), X, X[:4], np.zeros(3, np.int64), np.zeros(3, np.int64), symbolic=True))


@pytest.mark.parametrize(
    "value",
    [
        "if ids[i] < M then z[ids[i]] else 0",
        "if ids[i] >= 0 or ids[i] < M then x[ids[i]] else 0",
        "sum(k, ids[k] < M) z[ids[k]]",
        "sum(k, x[ids[k]] > 0, ids[k] >= 0) x[ids[k]]",
        "sum(k, ids[k] >= 0 or k > 1) x[ids[k]]",
        "sum(k in -2..1, at[i] >= k) z[min(at[i], 0)]",
        "sum(k in -2..1) (if at[i] >= k then z[min(at[i], 0)] else 0)",
    ],
)
def test_an_index_that_may_be_negative_is_no_size(value: str) -> None:
    with pytest.raises(CompileError, match="T0305"):
        prove(program(LOOKUP.format(value=value), X, X[:4], np.zeros(3, np.int64), np.zeros(3, np.int64), symbolic=True))


def test_a_remainder_by_an_index_has_no_range() -> None:
    made = program("op f(x: f32[N], at: i64[L]) -> (y: f32[L]) { y[i] = sum(k in -2..1) x[at[i] % (k + 1)] }", X, np.zeros(3, np.int64))
    (read,) = [n for n in nodes(definition(made, "y").pieces[0].value) if isinstance(n, ir.Read) and n.tensor == "x"]
    assert isinstance(read.index[0], ir.Dynamic) and read.index[0].lo is None


# ---------------------------------------------------------------- types


def test_a_local_of_halves_is_kept_in_f32() -> None:
    made = program("op f[T: float](x: T[N]) -> (y: T[N]) {\n t[i] = x[i] + 1\n y[i] = t[i]\n}", X.astype(np.float16))
    assert definition(made, "t").tensors[0].dtype == f32


def test_a_written_type_makes_a_local_round() -> None:
    text = """
op one[T: float](x: T[N]) -> (y: T[N]) { y[i] = x[i] + 1 }
op f[T: float](x: T[N]) -> (y: T[N]) {
    t: T[N] = one(x)
    y[i] = t[i]
}"""
    made = program_of(load(text), "f", X.astype(np.float16))
    assert str(definition(made, "t").tensors[0].dtype) == "f16"
    assert [d.code for d in mistakes(text.replace("t: T[N] =", "t: f64[N] ="))] == ["T0165"]


def test_sums_of_narrow_floats_accumulate_in_f32_and_named_ones_in_their_type() -> None:
    module = load("op f[T: float](x: T[N]) -> (y: T) { y = sum(i) x[i] }\nop g[T: float](x: T[N]) -> (y: f64) { y = sum[f64](i) x[i] }")
    args = [ArgType(bf16, (4,))]
    assert reduces(instantiate(module, "f", args))[0].reducer.dtypes == (f32,)
    assert reduces(instantiate(module, "g", args))[0].reducer.dtypes == (f64,)


def test_the_kind_of_a_reducer_is_seen_in_its_operation_not_in_its_name() -> None:
    text = "reducer plus u v from 0 = v + u\nreducer sum u v from 0 = u * v\nop f(x: f32[N]) -> (y: f32) { y = plus(i) x[i] }"
    assert reduces(program(text, X))[0].reducer.kind == "sum"
    other = text.replace("= plus(i)", "= sum(i)")
    assert reduces(program(other, X))[0].reducer.kind == "prod"


def test_an_ordered_reducer_has_no_kind() -> None:
    text = "ordered reducer plus u v from 0 = u + v\nop f(x: f32[N]) -> (y: f32) { y = plus(i) x[i] }"
    assert reduces(program(text, X))[0].reducer.kind is None
    assert not reduces(program(text, X))[0].reducer.commutative


def test_a_size_takes_the_type_of_an_integer_and_an_index_does_not() -> None:
    module = load("op f(n: i32[N]) -> (y: i32[N]) { y[i] = n[i] + N }")
    assert run(module, "f", np.array([1, 2], np.int32)).tolist() == [3, 4]
    assert [d.code for d in mistakes("op f(n: i32[N]) -> (y: i32[N]) { y[i] = n[i] + i }")] == ["T0112"]


def test_numbers_in_both_sides_of_a_choice_take_the_type_of_the_tensor() -> None:
    assert run(load("op f(x: f32[N]) -> (y: i32[N]) { y[i] = 3 * (if x[i] > 2 then 1 else 0) }"), "f", X).tolist() == [0, 0, 0, 3, 3, 3]


def test_a_bool_is_made_of_index_conditions() -> None:
    assert run(load("op f(x: f32[N]) -> (y: bool[N]) { y[i] = i % 2 == 0 and x[i] > 1 }"), "f", X).tolist() == [0, 0, 1, 0, 1, 0]


def test_text_attributes_choose_when_compiling() -> None:
    text = 'op f(x: f32[N], attr mode: str = "a") -> (y: f32[N]) { y[i] = if mode == "a" then x[i] else -x[i] }'
    assert not [n for n in nodes(program(text, X).definitions[0].pieces[0].value) if isinstance(n, ir.Select)]
    assert run(load(text), "f", X, mode="b").tolist() == (-X).tolist()


# ---------------------------------------------------------------- reads


def test_only_the_indices_that_can_leave_are_guarded() -> None:
    made = program("op f(x: f32[M, N]) -> (y: f32[M, N]) { y[i, j] = x[i, j - 1 | 0] }", X.reshape(2, 3), symbolic=True)
    (chosen,) = [n for n in nodes(made.definitions[0].pieces[0].value) if isinstance(n, ir.Select)]
    assert isinstance(chosen.cond, ir.Holds)
    assert chosen.cond.cond == Compare(">=", Add(Name("j"), Int(-1)), Int(0))


@pytest.mark.parametrize("mode", ["wrap", "reflect"])
def test_nothing_is_divided_by_the_size_of_a_tensor_without_elements(mode: str) -> None:
    made = program(f"op f(x: f32[M, N]) -> (y: f32[M, N]) {{ y[i, j] = x[i, j - 1 | {mode}] }}", np.zeros((3, 0), np.float32))
    (read,) = [n for n in nodes(made.definitions[0].pieces[0].value) if isinstance(n, ir.Read)]
    assert read.index == (Name("i"), Int(0))


@pytest.mark.parametrize("mode", ["clamp", "wrap", "reflect", "-1"])
@pytest.mark.parametrize(
    ("read", "asked"),
    [
        ("if i >= w[i] then x[i - w[i] | MODE] else 0", False),
        ("if i < w[i] then x[i - w[i] | MODE] else 0", True),
        ("x[ids[i] | MODE]", False),
        ("x[ids[i] + 1 | MODE]", True),
    ],
)
def test_what_is_known_of_data_says_whether_an_index_is_asked_about_the_edges(read: str, asked: bool, mode: str) -> None:
    text = f"op f(x: f32[N], w: i64[N] in 1..9, ids: i32[N] in 0..N) -> (y: f32[N]) {{ y[i] = {read.replace('MODE', mode)} }}"
    made = program(text, X, np.array([1, 2, 2, 4, 8, 1]), np.array([5, 4, 3, 0, 1, 2], np.int32), symbolic=True)
    (slot,) = next(n for n in nodes(made.definitions[0].pieces[0].value) if isinstance(n, ir.Read) and n.tensor == "x").index
    conditions = [n for n in nodes(made.definitions[0].pieces[0].value) if isinstance(n, ir.Select)]
    plain = (
        isinstance(slot, ir.Dynamic)
        and (not isinstance(slot.value, ir.Binary) or slot.value.op in "+-")
        and len(conditions) == ("if" in read)
    )
    assert plain == (not asked)


def test_skip_becomes_a_condition_of_the_reduction() -> None:
    (made,) = reduces(program("op f(x: f32[N]) -> (y: f32[N]) { y[i] = sum(r in 0..3) x[i + r - 1 | skip] }", X))
    assert made.where != TRUE
    assert made.filter is None


def test_a_declared_range_reaches_the_read() -> None:
    text = "op f(x: f32[N], ids: i32[L] in -N..N) -> (y: f32[L]) { y[i] = x[from_end(ids[i], N)] }"
    made = program(text, X, np.array([-1, 0], np.int32), symbolic=True)
    (read,) = [n for n in nodes(made.definitions[0].pieces[0].value) if isinstance(n, ir.Read) and n.tensor == "x"]
    (slot,) = read.index
    assert isinstance(slot, ir.Dynamic)
    assert (slot.lo, slot.hi) == (Int(0), Name("N"))


def test_a_read_by_data_without_a_range_is_left_to_a_check_at_run_time() -> None:
    made = program("op f(x: f32[N], ids: i64[L]) -> (y: f32[L]) { y[i] = x[ids[i]] }", X, np.array([1]))
    (slot,) = next(n for n in nodes(made.definitions[0].pieces[0].value) if isinstance(n, ir.Read) and n.tensor == "x").index
    assert isinstance(slot, ir.Dynamic)
    assert slot.lo is None


# ---------------------------------------------------------------- packs and reductions


@pytest.mark.parametrize("shape", [(), (6,), (2, 3)])
def test_reducing_over_a_pack_of_any_length(shape: tuple[int, ...]) -> None:
    assert run(
        load("op f(x: f32[D..]) -> (y: f32) { y = sum(d..) x[d..] }"), "f", X[: int(np.prod(shape))].reshape(shape)
    ) == pytest.approx(X[: int(np.prod(shape))].sum())


def test_positions_of_several_indices_are_row_major() -> None:
    assert run(load("op f(x: f32[M, N]) -> (y: i64) where M >= 1 and N >= 1 { y = argmax(i, j) x[i, j] }"), "f", X.reshape(2, 3)) == 5


def test_nan_is_greatest_and_the_lowest_position_wins() -> None:
    module = load("op f(x: f32[N]) -> (y: i64) where N >= 1 { y = argmax(i) x[i] }")
    assert run(module, "f", np.array([1, np.nan, 5, np.nan], np.float32)) == 1
    assert run(module, "f", np.array([2, 5, 5], np.float32)) == 1


def test_masks_that_a_program_computes_of_a_type_are_numbers() -> None:
    module = load("op f[T: int](x: T[N]) -> (y: T[N]) { y[i] = bitand(x[i], bitor(x[i], highest) // 5) }")
    assert run(module, "f", np.array([255, 4], np.uint8)).tolist() == [51, 0]
    assert "bitand(x[i], 51)" in show(program_of(module, "f", np.zeros(2, np.uint8)))
    assert run(module, "f", np.array([-1, 4], np.int8)).tolist() == [-1, 0]


def test_false_is_less_than_true() -> None:
    x = np.array([False, True, True, False])
    for op, compare in {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}.items():
        module = load("op f(a: bool[N], b: bool[N]) -> (y: bool[N]) { y[i] = a[i] " + op + " b[i] }")
        assert (run(module, "f", x, x[::-1]) == compare(x, x[::-1])).all()
    places = "op f(x: bool[N]) -> (y: i64, z: i64, v: bool) where N >= 1 { y = argmax(i) x[i]\n v, z = first_min(i) (x[i], i) }"
    assert run(load(places), "f", x) == (1, 0, 0)


def test_mean_and_logsumexp_yield_one_value() -> None:
    module = load("op f(x: f32[N]) -> (m: f32, l: f32) {\n m = mean(i) x[i]\n l = logsumexp(i) x[i]\n}")
    m, total = run(module, "f", X)
    assert m == pytest.approx(2.5)
    assert total == pytest.approx(np.log(np.exp(X).sum()))


# ---------------------------------------------------------------- calls of operators

CALLEE = """
op softmax[T: float](x: T[D.., N]) -> (y: T[D.., N]) {
    m[d..]    = max(j) x[d.., j]
    e[d.., j] = exp(x[d.., j] - m[d..])
    y[d.., j] = e[d.., j] / sum(k) e[d.., k]
}
"""


def test_an_inlined_callee_has_prefixed_names() -> None:
    text = CALLEE + "op f(s: f32[M, K]) -> (o: f32[M, K]) {\n p = softmax(s)\n o[i, j] = 2 * p[i, j]\n}"
    made = program_of(load(text), "f", X.reshape(2, 3))
    assert [d.tensors[0].name for d in made.definitions] == ["p.m", "p.e", "p", "o"]


def test_a_callee_meets_a_composite_argument() -> None:
    text = """
op total(x: f32[N]) -> (y: f32) { y = sum(i) x[i] }
op f(x: f32[(4, C)], attr unused: int = 1) -> (y: f32) {
    y = total(x)
}"""
    assert run(load(text), "f", np.arange(8, dtype=np.float32)) == 28


def test_several_results_and_a_discarded_one() -> None:
    text = """
op both(x: f32[N]) -> (p: f32[N], q: f32[N]) {
    p[i] = x[i] + 1
    q[i] = p[i] * 2
}
op f(x: f32[N]) -> (y: f32[N]) {
    _, b = both(x)
    y[i] = b[i]
}"""
    assert run(load(text), "f", X[:2]).tolist() == [2, 4]


def test_attributes_and_functions_pass_through_calls() -> None:
    text = """
op mapped(x: f32[N], attr f: fn = tanh, attr by: float = 1.0) -> (y: f32[N]) { y[i] = by * f(x[i]) }
op g(x: f32[N], attr h: fn = relu, attr c: float = 3.0) -> (y: f32[N]) { y = mapped(x, f = h, by = c) }"""
    assert run(load(text), "g", X - 3).tolist() == [0, 0, 0, 0, 3, 6]


def test_a_pack_of_attributes_is_empty_where_its_default_is() -> None:
    text = """
op mapped(x: f32[N], attr f: fn = relu, attr of_f..: float = ()) -> (y: f32[N]) { y[i] = f(x[i], of_f..) }
op g(x: f32[N], attr h: fn = relu, attr of_h..: float = ()) -> (y: f32[N]) { y = mapped(x, f = h, of_f = of_h) }"""
    for name, given in (("mapped", {"f": "leaky_relu", "of_f": (0.5,)}), ("g", {"h": "leaky_relu", "of_h": (0.5,)})):
        assert run(load(text), name, X[:4] - 2).tolist() == [0, 0, 0, 1]
        assert run(load(text), name, X[:4] - 2, **given).tolist() == [-1, -0.5, 0, 1]


def test_the_own_operator_of_a_file_hides_a_library_function() -> None:
    text = "op relu(x: f32[N]) -> (y: f32[N]) { y[i] = max(x[i], 1) }\nop f(x: f32[N]) -> (y: f32[N]) { y = relu(x) }"
    assert run(load(text), "f", X[:3]).tolist() == [1, 1, 2]


def test_a_comparison_with_a_huge_float_is_no_fact_about_indices() -> None:
    assert run(load("op f(x: f32[N]) -> (y: f32[N]) { y[i] = if x[i] > 1e30 then 0 else x[i] }"), "f", X).tolist() == X.tolist()


def test_a_mistake_of_a_callee_is_reported_once() -> None:
    for wrong in ("y[i] = x[j]", "y[i] = x[i - 1]"):
        text = f"op g(x: f32[N]) -> (y: f32[N]) {{ y = f(x) }}\nop f(x: f32[N]) -> (y: f32[N]) {{ {wrong} }}"
        assert len(check_module(load(text))) == 1


def test_skip_may_depend_on_a_named_value() -> None:
    text = "op f(x: f32[N], ids: i64[K]) -> (y: f32) { y = sum(k) (let a = ids[k] - 1 in x[a | skip] * f32(a)) }"
    assert run(load(text), "f", X, np.array([0, 3, 9, 5])) == 2 * 2 + 4 * 4


def test_everything_is_reported_at_once() -> None:
    text = "op f(x: f32[N]) -> (y: f32[N], z: f32[N]) {\n y[i] = x[j]\n z[i] = x[i] + N\n}\nop g(x: i32[N]) -> (y: f32[N]) { y[i] = x[i] }"
    assert [d.code for d in mistakes(text)] == ["T0105", "T0112", "T0150"]


def test_names_of_a_definition_are_unique_even_where_indices_repeat() -> None:
    made = program("op f(x: f32[N]) -> (y: f32) { y = sum(k) x[k] + max(k) x[k] }", X)
    assert [b.name for r in reduces(made) for b in r.binders] == ["k", "k_1"]
    verify(made)
    prove(made)


def test_an_accumulated_count_may_be_of_another_type() -> None:
    assert run(load("op f(x: f32[N]) -> (y: i64) { y = sum[i64](i) i64(x[i] > 2) }"), "f", X) == 3


# ---------------------------------------------------------------- what is passed, replaced, refused


@pytest.mark.parametrize(("function", "want"), [("abs", np.abs(X - 3)), ("tanh", np.tanh(X - 3)), ("twice", 2 * (X - 3))])
def test_a_builtin_is_passed_like_a_function(function: str, want: Any) -> None:
    text = "fn twice(v) = 2 * v\nop f(x: f32[N], attr g: fn = abs) -> (y: f32[N]) { y[i] = g(x[i]) }"
    np.testing.assert_allclose(run(load(text), "f", X - 3, g=function), want, rtol=1e-6)
    called = load(f"{text}\nop h(x: f32[N]) -> (y: f32[N]) {{ y = f(x, g={function}) }}")
    np.testing.assert_allclose(run(called, "h", X - 3), want, rtol=1e-6)


def test_a_builtin_of_two_values_is_passed_too() -> None:
    text = "op f(x: f32[N], attr g: fn) -> (y: f32[N]) { y[i] = g(x[i], 2) }"
    assert run(load(text), "f", X, g="max").tolist() == [2, 2, 2, 3, 4, 5]


def test_the_body_of_an_extern_operator_is_what_it_computes() -> None:
    assert run(load("extern op f(x: f32[N]) -> (y: f32[N]) { y[i] = 2 * x[i] }"), "f", X).tolist() == (2 * X).tolist()


def test_an_extern_operator_without_a_body_is_not_called_without_a_kernel() -> None:
    module = load("extern op f(x: f32[N]) -> (y: f32[N])")
    with pytest.raises(CompileError, match="`f` has no body, and no kernel stands for it"):
        run(module, "f", X)


@pytest.mark.parametrize("text", ["op f(attr size..: int) -> (y: f32) { y = 1 }", "op f() -> (size: f32) { y = 1 }"])
def test_a_parameter_or_result_with_a_reserved_name_is_told_so(text: str) -> None:
    with pytest.raises(CompileError, match="`size` is a reserved word") as refused:
        load(text)
    assert refused.value.diagnostics[0].code == "P007"


# ---------------------------------------------------------------- types of recurrences


OWN_SUMS = {
    "a term after the sum": "s[i] = sum(k in 0..i) s[k] + x[i]",
    "a term before the sum": "s[i] = x[i] - sum(k in 0..i) s[k]",
    "a greatest of its own": "s[i] = max(1, max(k in 0..i, from 0) s[k]) + x[i]",
    "a later equation tells": "s[i] = sum(k in 0..i) s[k]   for i in 1..N\n s[0] = x[0]",
    "a function of any type": "s[i] = twice(s[i - 1])   for i in 1..N\n s[0] = x[0]",
    "through another tensor": "s[0] = 1\n s[i] = b[i - 1]   for i in 1..N\n b[i] = sum(k in 0..i + 1) s[k] + x[i]",
}


@pytest.mark.parametrize("dtype", ["f64", "i64", "f32", "i32"])
@pytest.mark.parametrize("equations", OWN_SUMS.values(), ids=OWN_SUMS)
def test_a_recurrence_has_the_type_of_what_it_reads_besides_itself(equations: str, dtype: str) -> None:
    head = f"op f(x: {dtype}[N]) -> (y: {dtype}[N]) where N >= 1"
    text = f"fn twice[T: num](v: T) = T(2) * v\n{head} {{\n {equations}\n y[i] = s[i]\n}}"
    assert mistakes(text) == []


@pytest.mark.parametrize(
    ("condition", "codes"),
    [("N >= 2", []), ("1 < N", []), ("N > 5", []), ("M >= 2, N >= M", ["T0122"]), ("N >= 1", ["T0122"]), ("N <= 2", ["T0122"])],
)
def test_a_box_is_as_long_as_the_sizes_are_at_least(condition: str, codes: list[str]) -> None:
    first = "m[0] = x[0]\n m[1] = x[0]\n m[i] = m[i - 1] + x[i]   for i in 2..N"
    found = mistakes(f"op f(x: f64[N], z: f64[M]) -> (y: f64) where {condition} {{\n {first}\n y = z[0] * sum(k) m[k] * x[k]\n}}")
    assert [m.code for m in found if m.code == "T0122"] == codes


@pytest.mark.parametrize("body", ["1", "(if x[i] > 0 then 1 else 0)", "2 * 3"])
def test_the_terms_of_a_reduction_that_are_numbers_take_the_type_of_its_accumulator(body: str) -> None:
    assert mistakes(f"op f(x: f32[N]) -> (y: i64) {{\n y = sum[i64](i in 0..N) {body}\n}}") == []
    (found,) = mistakes(f"op f(x: f32[N]) -> (y: i64) {{\n y = prod(i in 0..N) {body}\n}}")
    assert (found.code, found.help) == ("T0117", "cast the body: `i64(1)`, or name the accumulator: `prod[i64](k) …`")


def test_a_narrow_float_that_is_named_for_what_accumulates_is_computed_as_wider_ones_are() -> None:
    text = "op f(x: bf16[N], c: f32[N]) -> (y: bf16) {\n y = sum[bf16](i, c[i] > 0, from 1) x[i]\n}"
    assert run(load(text), "f", np.array([256, 1, 9], bf16.numpy), np.array([1, 2, -1], np.float32)) == 258


def test_terms_that_are_numbers_with_a_point_are_asked_for_a_type_that_has_one() -> None:
    (found,) = mistakes("op f(x: f32[N]) -> (y: f32) {\n y = sum(i in 0..N) 1.0\n}")
    assert (found.code, found.help) == ("T0117", "cast the body: `f32(1)`, or name the accumulator: `sum[f32](k) …`")


def test_a_recurrence_of_numbers_alone_is_asked_for_a_type_that_fits_the_result() -> None:
    (found,) = mistakes("op f(x: f64[N]) -> (y: f64[N]) {\n s[0] = 1\n s[i] = sum(k in 0..i) s[k]   for i in 1..N\n y[i] = s[i] * x[i]\n}")
    assert (found.code, found.help) == ("T0117", "cast one: `s[0] = f64(1)`")


def test_tensors_of_numbers_that_need_each_other_are_asked_for_one_type_which_tells_all_of_them() -> None:
    text = """op f(x: f64[N]) -> (y: f64[N]) {
        a[0]     = ONE
        b[0]     = 2
        c[i]     = (a[i] + b[i]) / 2
        a[i + 1] = if x[i] > 0 then c[i] else a[i]   for i in 0..N
        b[i + 1] = c[i]                              for i in 0..N
        y[i]     = a[i] - b[i]                       for i in 0..N
    }"""
    (found,) = mistakes(text.replace("ONE", "1"))
    assert (found.code, found.help) == ("T0117", "cast one: `a[0] = f64(1)`")
    assert mistakes(text.replace("ONE", "f64(1)")) == []


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("f32[N] f64[N]", "cast it: `f64(x[i])`"),
        ("u8[N] i32[N]", "cast it: `i32(x[i])`"),
        ("f32[N] i16[N]", "cast it: `f32(z[i])`"),
        ("f32[N] i32[N]", "cast it, which may round: `f32(z[i])`; `f64(…)` of both sides is exact"),
        ("f64[N] i64[N]", "cast it, which may round: `f64(z[i])`"),
    ],
)
def test_of_two_types_the_one_that_holds_both_is_advised(value: str, advice: str) -> None:
    a, b = value.split()
    (found,) = mistakes(f"op f(x: {a}, z: {b}) -> (y: {a}) {{\n y[i] = x[i] * z[i]\n}}")
    assert (found.code, found.help) == ("T0110", advice)


# ---------------------------------------------------------------- operators whose attributes have no default


ASSUMED = {
    "op f(x: f32[N], attr k: int) -> (y: f32[N]) { y[i] = x[i] * k }": "k = 1",
    "op f(x: f32[N], attr k: int in -3..-1) -> (y: f32[N]) { y[i] = x[i + k | 0] }": "k = -3",
    "op f(x: f32[N], attr k: int) -> (y: f32[N]) where k >= 40 { y[i] = x[i] * k }": "k = 40",
    "op f(x: f32[N], attr k: int, attr l: int) -> (y: f32[N]) where k == l + 2 { y[i] = x[i] * k * l }": "k = 2, l = 0",
    "op f[T](x: T[D..], attr perm..: int) -> (y: T[D[perm]..]) { y[d[perm]..] = x[d..] }": "perm = (0, 1, …)",
    'op f(x: f32[N], attr how: str) -> (y: f32[N]) { y[i] = if how == "twice" then 2 * x[i] else x[i] }': 'how = "twice"',
}


@pytest.mark.parametrize("text", ASSUMED)
def test_an_operator_is_checked_for_the_first_values_of_its_attributes_that_it_allows(text: str) -> None:
    found = examine(load(text), "f")
    assert (found.problems, found.assumed, found.unchecked) == ((), (ASSUMED[text],), "")


def test_each_text_that_an_operator_compares_with_is_tried() -> None:
    text = 'op f(x: f32[N], attr how: str) -> (y: f32[N]) { y[i] = if how == "a" then x[i] else if how == "b" then x[i + 1] else 0 }'
    assert [d.code for d in mistakes(text)] == ["T0301"]


def test_an_operator_that_no_value_fits_is_said_not_to_be_checked() -> None:
    found = examine(load("op f(x: f32[N], attr k: int) -> (y: f32[N]) where k * k == 7 { y[i] = x[i] }"), "f")
    assert "no values that were tried for `k` fit" in found.unchecked
