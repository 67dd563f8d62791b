"""Kernels that stand for extern operators: called where the operator is, on whole tensors, and never silently."""

from __future__ import annotations

import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

import extern_kernels as kernels
import numpy as np
import pytest
from guarded import SIDES, Side, in_child, walled
from shared_library import shared_library

import tensorlang as tl
from codegen.dtypes import DTYPES
from tensorlang.runtime.specialization import Sizes

X = np.arange(6, dtype=np.float32)
SCALE = "extern op scale[T: float](x: T[N], attr by: float = 2) -> (y: T[N])\n"
SCALED = {"scale": tl.llvm_ir(kernels.scale() + kernels.scale("scale_f64", "f64"), "scale_{T}")}
ENDS = "extern op ends(x: f32[N], z: f32[N]) -> (low: f32[N], high: f32[N])\n"
BOTH = {"ends": tl.llvm_ir(kernels.ends(), "ends")}
AROUND = """
op around(x: f32[N]) -> (y: f32[N]) {
    a[i] = x[i] + 1
    b = scale(a, by=3)
    y[i] = b[i] * b[i] + a[i]
}
"""


# ---------------------------------------------------------------- what a kernel computes is the result


def test_a_kernel_of_llvm_ir_computes_what_its_operator_returns() -> None:
    ops = tl.parse(SCALE, externs=SCALED)
    np.testing.assert_array_equal(ops.scale(X), 2 * X)
    np.testing.assert_array_equal(ops.scale(X.astype(np.float64), by=0.5), X / 2)


def test_a_kernel_takes_the_place_of_a_body_and_without_one_the_body_is_compiled() -> None:
    text = "extern op scale(x: f32[N], attr by: float = 2) -> (y: f32[N]) { y[i] = -x[i] }"
    np.testing.assert_array_equal(tl.parse(text).scale(X), -X)
    np.testing.assert_array_equal(tl.parse(text, externs={"scale": tl.llvm_ir(kernels.scale("f"), "f")}).scale(X), 2 * X)


def test_a_kernel_is_a_function_of_a_shared_library(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(shared_library(kernels.scale() + kernels.ends()))
    given = {"scale": tl.c_symbol(tmp_path / "lib.so", "scale_{T}"), "ends": tl.c_symbol(str(tmp_path / "lib.so"), "ends")}
    ops = tl.parse(SCALE + ENDS + AROUND, externs=given)
    np.testing.assert_array_equal(ops.around(X), 9 * (X + 1) ** 2 + X + 1)
    np.testing.assert_array_equal(ops.ends(X, X[::-1])[0], np.minimum(X, X[::-1]))


def test_a_kernel_is_a_function_that_the_process_has() -> None:
    noise = tl.parse("extern op noise(size N) -> (y: u8[N])", externs={"noise": tl.c_symbol(None, "getentropy")}).noise
    assert noise(N=64).shape == (64,) and noise(N=64).tolist() != noise(N=64).tolist()


def test_a_list_of_kernels_gives_one_for_each_target() -> None:
    given = {"scale": [tl.cuda_source("", "scale_{T}"), SCALED["scale"]]}
    np.testing.assert_array_equal(tl.parse(SCALE, externs=given).scale(X), 2 * X)


# ---------------------------------------------------------------- inside larger operators


def test_what_is_done_before_and_after_a_kernel_is_computed_around_it() -> None:
    np.testing.assert_array_equal(tl.parse(SCALE + AROUND, externs=SCALED).around(X), 9 * (X + 1) ** 2 + X + 1)


@pytest.mark.parametrize("count", [0, 1, 2, 17, 1000])
def test_any_number_of_elements_is_right(count: int) -> None:
    x = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    found = tl.parse(SCALE + AROUND, externs=SCALED).around(x)
    np.testing.assert_allclose(found, 9 * (x + 1) ** 2 + x + 1, rtol=1e-5, atol=1e-5)


def test_kernels_run_in_the_order_of_what_they_need() -> None:
    text = """
    op f(x: f32[M, N]) -> (y: f32[M, N], z: f32[M]) {
        y[i, j] = x[i, j] + u[i]
        u = scale(t, by=10)
        t = scale(s)
        s[i] = sum(j) x[i, j]
        z[i] = t[i] - s[i]
    }
    """
    x = np.random.default_rng(0).integers(-5, 5, (3, 4)).astype(np.float32)
    y, z = tl.parse(SCALE + text, externs=SCALED).f(x)
    np.testing.assert_array_equal(y, x + 20 * x.sum(1, keepdims=True))
    np.testing.assert_array_equal(z, x.sum(1))


def test_a_kernel_with_several_results_defines_them_all_and_one_may_be_discarded() -> None:
    text = """
    op spread(x: f32[N], z: f32[N]) -> (y: f32[N]) {
        a, b = ends(x, z)
        y[i] = b[i] - a[i]
    }
    op top(x: f32[N], z: f32[N]) -> (y: f32[N]) {
        _, b = ends(x, z)
        y[i] = b[i]
    }
    """
    ops, z = tl.parse(ENDS + text, externs=BOTH), X[::-1].copy()
    np.testing.assert_array_equal(ops.spread(X, z), np.abs(X - z))
    np.testing.assert_array_equal(ops.top(X, z), np.maximum(X, z))


def test_results_of_a_kernel_are_results_of_the_operator_and_arguments_of_others() -> None:
    text = "op f(x: f32[N], z: f32[N]) -> (low: f32[N], again: f32[N]) {\n low, high = ends(x, z)\n again = scale(low, by=4)\n}"
    low, again = tl.parse(SCALE + ENDS + text, externs={**SCALED, **BOTH}).f(X, X[::-1].copy())
    np.testing.assert_array_equal(low, np.minimum(X, X[::-1]))
    np.testing.assert_array_equal(again, 4 * low)


def test_one_tensor_may_be_given_twice() -> None:
    text = "op f(x: f32[N]) -> (low: f32[N], high: f32[N]) { low, high = ends(x, x) }"
    for found in tl.parse(ENDS + text, externs=BOTH).f(X):
        np.testing.assert_array_equal(found, X)


def test_calls_may_be_nested_and_calls_of_operators_that_call_kernels_too() -> None:
    text = """
    op twice(x: f32[N]) -> (y: f32[N]) { y = scale(scale(x)) }
    op f(x: f32[N]) -> (y: f32[N]) {
        t = twice(x)
        y = twice(t)
    }
    """
    np.testing.assert_array_equal(tl.parse(SCALE + text, externs=SCALED).f(X), 16 * X)


def test_an_argument_of_other_dimensions_is_copied_for_the_kernel() -> None:
    text = """
    op f(x: f32[(A, B)], attr A: int) -> (y: f32[(A, B)]) {
        t[(a, b)] = x[(a, b)] + 1
        y[(a, b)] = t[(a, b)] * u[a * B + b]
        u = scale(t)
    }
    """
    np.testing.assert_array_equal(tl.parse(SCALE + text, externs=SCALED).f(X, A=2), 2 * (X + 1) ** 2)


def test_a_kernel_reads_arrays_that_are_not_contiguous_as_if_they_were() -> None:
    ops = tl.parse(SCALE + ENDS, externs={**SCALED, **BOTH})
    wide = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(ops.scale(wide[:, 1]), 2 * wide[:, 1])
    np.testing.assert_array_equal(ops.ends(wide[1, ::-1], wide[0])[0], np.minimum(wide[1, ::-1], wide[0]))


def test_operators_of_used_files_have_kernels_too(tmp_path: Path) -> None:
    (tmp_path / "kernels.tl").write_text(SCALE + "op thrice(x: f32[N]) -> (y: f32[N]) { y = scale(x, by=3) }\n")
    (tmp_path / "main.tl").write_text(
        'use "kernels.tl" (thrice, scale as times)\nop f(x: f32[N]) -> (y: f32[N]) {\n a = thrice(x)\n y = times(a)\n}\n'
    )
    for name in ("times", "scale"):
        np.testing.assert_array_equal(tl.load(tmp_path / "main.tl", externs={name: SCALED["scale"]}).f(X), 6 * X)


# ---------------------------------------------------------------- what a kernel is told


def test_a_kernel_is_told_sizes_and_attributes_in_the_order_of_their_declaration() -> None:
    text = "extern op told(x: f32[D..], attr whole: int, attr truth: bool = 1) -> (y: i64[5])"
    ops = tl.parse(text, externs={"told": tl.llvm_ir(kernels.told(), "told")})
    assert ops.told(np.zeros((3, 7), np.float32), whole=-5).tolist() == [2, 3, 7, -5, 1]
    assert ops.told(np.zeros((2, 1, 4), np.float32), whole=9, truth=False).tolist() == [3, 2, 1, 9, 0]


@pytest.mark.parametrize("name", DTYPES)
def test_elements_of_every_type_reach_a_kernel_and_come_back(name: str) -> None:
    dtype = DTYPES[name]
    text = f"extern op copies(x: {name}[N]) -> (y: {name}[N])\nop f(x: {name}[N]) -> (y: {name}[N]) {{ y = copies(copies(x)) }}"
    ops = tl.parse(text, externs={"copies": tl.llvm_ir(kernels.copies(8 * dtype.size_bytes), "copies")})
    x = np.array([0, 1, 1, 0, 1, 0, 0], dtype.numpy) if name == "bool" else np.arange(7).astype(dtype.numpy)
    found = ops.f(x)
    assert found.dtype == x.dtype and found.tobytes() == x.tobytes()


@pytest.mark.parametrize("at", [-1, 6])
def test_a_declared_range_is_checked_before_a_kernel_sees_the_data(at: int) -> None:
    text = "extern op pick(x: f32[N], at: i64[K] in 0..N) -> (y: f32[K])\n"
    text += "op f(x: f32[N], at: i64[K] in 0..N) -> (y: f32[K]) {\n t = pick(x, at)\n y[k] = t[k] + 1\n}"
    ops = tl.parse(text, externs={"pick": tl.llvm_ir(kernels.pick(), "pick")})
    assert ops.pick(X, np.array([5, 0, 3])).tolist() == [5, 0, 3]
    assert ops.f(X, np.array([5, 0, 3])).tolist() == [6, 1, 4]
    for operator in (ops.pick, ops.f):
        with pytest.raises(tl.RunError, match="R0306"):
            operator(X, np.array([0, at]))


def test_an_index_that_a_kernel_makes_is_checked_where_it_is_used() -> None:
    text = "extern op same(x: i64[N]) -> (y: i64[N])\n"
    text += "op f(x: f32[N], at: i64[K]) -> (y: f32[K]) {\n k = same(at)\n y[i] = x[k[i]]\n}"
    operator = tl.parse(text, externs={"same": tl.llvm_ir(kernels.copies(64), "copies")}).f
    assert operator(X, np.array([5, 2])).tolist() == [5, 2]
    with pytest.raises(tl.RunError, match="R0306"):
        operator(X, np.array([0, 6]))


# ---------------------------------------------------------------- statuses


@pytest.mark.parametrize(
    ("status", "told"), [(1, "1"), (-22, "-22"), (32766, "32766"), (1 << 20, "32767 or beyond"), (-(1 << 31), "-32768 or")]
)
def test_a_status_is_an_error_that_names_the_operator(status: int, told: str) -> None:
    text = "extern op g(x: f32[N]) -> (y: f32[N])\nop f(x: f32[N]) -> (y: f32[N]) {\n a = g(x)\n y[i] = a[i] + 1\n}"
    operator = tl.parse(text, externs={"g": tl.llvm_ir(kernels.returns(status), "returns")}).f
    for _ in range(2):
        with pytest.raises(tl.RunError, match=rf"R0316.*extern `g` returned the status {told}"):
            operator(X)


# ---------------------------------------------------------------- memory and threads


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("count", [0, 1, 5, 64])
def test_nothing_outside_of_the_arrays_is_touched(side: Side, count: int) -> None:
    operator = tl.parse(SCALE + AROUND, externs=SCALED).around
    x = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    expected = operator(x)
    given = walled(x, side)
    np.testing.assert_array_equal(in_child(lambda: operator(given)), expected)


def test_several_threads_call_one_operator_at_once() -> None:
    operator = tl.parse(SCALE + AROUND, externs=SCALED).around
    xs = [np.random.default_rng(k).standard_normal(5000).astype(np.float32) for k in range(16)]
    expected = [operator(x) for x in xs]
    with ThreadPoolExecutor(8) as threads:
        for found, wanted in zip(threads.map(operator, xs * 8), expected * 8, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_results_are_written_into_arrays_that_are_given() -> None:
    operator = tl.parse(SCALE + AROUND, externs=SCALED).around
    given = np.zeros(6, np.float32)
    assert operator(X, out=given) is given and given.tolist() == operator(X).tolist()
    x = X.copy()
    again = operator.prepared(x, out=given)
    x[:] = 1
    assert again() is given and given.tolist() == [38] * 6


def test_many_shapes_are_compiled_one_by_one_where_sizes_adapt() -> None:
    operator = tl.parse(SCALE + AROUND, externs=SCALED, sizes="auto").around
    for count in range(1, 6):
        assert operator(np.ones(count, np.float32)).tolist() == [38] * count


def test_a_kernel_that_nothing_needs_is_not_called() -> None:
    text = "op f(x: f32[N], attr on: bool) -> (y: f32[N]) {\n a = returns(x)\n y[i] = if on then a[i] else x[i]\n}"
    given = {"returns": tl.llvm_ir(kernels.returns(3), "returns")}
    operator = tl.parse("extern op returns(x: f32[N]) -> (y: f32[N])\n" + text, externs=given).f
    assert operator(X, on=False).tolist() == X.tolist()
    with pytest.raises(tl.RunError, match="R0316"):
        operator(X, on=True)


def test_a_tensor_that_nothing_needs_may_be_made_of_what_a_kernel_computes() -> None:
    text = "op f(x: f32[N]) -> (y: f32[N]) {\n a = scale(x)\n b[i] = a[i] + 1\n y[i] = x[i]\n}"
    np.testing.assert_array_equal(tl.parse(SCALE + text, externs=SCALED).f(X), X)


def test_an_operator_with_kernels_is_pickled_with_them() -> None:
    operator = pickle.loads(pickle.dumps(tl.parse(SCALE + AROUND, externs=SCALED).around))
    np.testing.assert_array_equal(operator(X), 9 * (X + 1) ** 2 + X + 1)


# ---------------------------------------------------------------- never silently


def test_reports_name_every_kernel_that_is_trusted() -> None:
    operator = tl.parse(SCALE + AROUND, externs=SCALED).around
    trusted = "trusted: extern scale from `scale_{T}` of LLVM IR"
    assert trusted in operator.explain(X) and "for a_jv in 0 .. 6" in operator.explain(X)
    assert trusted in operator.proofs(X)


@pytest.mark.parametrize("sizes", ["static", "symbolic"])
def test_the_times_of_a_report_are_written_where_there_is_room_for_them(sizes: Sizes, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = tl.parse(SCALE + AROUND, externs=SCALED, sizes=sizes).around
    operator(X)
    zeros = np.zeros
    monkeypatch.setattr(np, "zeros", lambda *args, **named: walled(zeros(*args, **named)))
    assert in_child(lambda: operator.explain(X)).count(", took ") == 3


def test_the_times_of_the_steps_of_a_report_are_less_than_that_of_the_report() -> None:
    operator = tl.parse(SCALE + AROUND, externs=SCALED).around
    begin = perf_counter()
    told = operator.explain(X)
    elapsed = perf_counter() - begin
    steps = re.findall(r", took ([\d.]+) us", told)
    assert len(steps) == 3 and sum(float(t) for t in steps) * 1e-6 < elapsed


def test_the_report_for_an_array_that_is_not_aligned_is_made_of_a_copy() -> None:
    operator = tl.parse(SCALE + AROUND, externs=SCALED).around
    given = np.frombuffer(b"." + X.tobytes(), np.float32, offset=1)
    assert not given.flags.aligned
    assert operator.explain(given).count(", took ") == 3


def test_a_program_shows_the_calls_of_its_kernels() -> None:
    from tensorlang.tensor.printer import show

    assert "b = scale(a, `by`=3.0)  # extern: `scale_{T}` of LLVM IR" in show(tl.parse(SCALE + AROUND, externs=SCALED).around.program(X))


def test_a_program_shows_every_argument_of_a_call_and_its_kernel_on_one_line(tmp_path: Path) -> None:
    from tensorlang.tensor.printer import show

    library = tmp_path / "two\nlines.so"
    library.write_bytes(b"")
    text = ENDS + "op f(x: f32[N]) -> (y: f32[N]) {\n    low, high = ends(x, x)\n    y[i] = low[i] + high[i]\n}\n"
    shown = show(tl.parse(text, externs={"ends": tl.c_symbol(library, "ends")}).f.program(X))
    assert f"low, high = ends(x, x)  # extern: `ends` of {tmp_path}/two\\nlines.so\n" in shown


def test_the_stages_of_an_operator_are_those_of_its_parts() -> None:
    seen: list[str] = []
    tl.parse(SCALE + AROUND, externs=SCALED).around.stages(X, dump=lambda stage, text: seen.append(stage))
    assert seen.count("loops") == 2
    assert tl.parse(SCALE, externs=SCALED).scale.stages(X, dump=lambda stage, text: seen.append(stage)) is None


def test_the_parts_between_kernels_are_validated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENSORLANG_VALIDATE", "1")
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path))
    operator = tl.parse(SCALE + AROUND, externs=SCALED).around
    made = operator.compiled(operator.call(X))
    assert [found.validated.split()[0] for found in made.artifacts] == ["validated", "validated"]  # type: ignore[attr-defined]


# ---------------------------------------------------------------- another kernel is another result


def test_changed_text_is_another_kernel() -> None:
    for factor in (1, 2, 3):
        body = kernels.scale().replace("fmul float %v, %f", f"fmul float %v, {float(factor)}")
        assert tl.parse(SCALE, externs={"scale": tl.llvm_ir(body, "scale_{T}")}).scale(X).tolist() == (factor * X).tolist()


def test_a_library_that_changed_after_it_was_loaded_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(shared_library(kernels.scale()))
    assert tl.parse(SCALE, externs={"scale": tl.c_symbol(path, "scale_{T}")}).scale(X).tolist() == (2 * X).tolist()
    path.unlink()
    path.write_bytes(shared_library(kernels.scale() + kernels.ends()))
    with pytest.raises(tl.CompileError, match="C0114") as refused:
        tl.parse(SCALE, externs={"scale": tl.c_symbol(path, "scale_{T}")}).scale(X)
    assert "start Python anew" in str(refused.value)


# ---------------------------------------------------------------- how it is declared in C


def test_the_header_declares_results_parameters_sizes_and_attributes() -> None:
    text = "extern op topk[T: num](x: T[D.., N], size k in 0..N, attr largest: bool = 1, attr by: float = 1)"
    text += " -> (y: T[D.., k], at: i64[D.., k])"
    header = tl.parse(text).topk.c_header
    declared = (
        "int32_t topk_T(\n    void *y,\n    int64_t *at,\n    const void *x,\n    int64_t D_rank, const int64_t *D,\n    int64_t N,\n"
    )
    assert declared + "    int64_t k,\n    int64_t largest,\n    double by);\n" in header
    assert "#include <stdint.h>" in header


def test_names_that_c_has_for_itself_are_told_apart() -> None:
    header = (
        tl.parse("extern op `odd name */`(int: f32[N], N_rank: u8[N], D: i4[N]) -> (float: bool[N])").__getitem__("odd name */").c_header
    )
    assert "uint8_t *float_1,\n    const float *int_1,\n    const uint8_t *N_rank,\n    const int8_t *D,\n    int64_t N);" in header
    assert "int32_t odd_name___(" in header and "*/" not in header.split("/*", 1)[1].split("*/\nint32_t", 1)[0]


# ---------------------------------------------------------------- what is wrong is said with a code


def refused(text: str, given: Any, *args: Any, name: str = "f", **options: Any) -> tuple[str, str]:
    with pytest.raises(tl.CompileError) as found:
        tl.parse(text, externs=given, **options)[name](*args)
    [problem] = found.value.diagnostics
    assert problem.help
    return problem.code, str(found.value)


PLAIN = "extern op f(x: f32[N]) -> (y: f32[N])\n"


@pytest.mark.parametrize(
    ("text", "given", "code", "said"),
    [
        (PLAIN, None, "T0143", "no kernel stands for it"),
        (PLAIN, {"f": tl.cuda_source("", "f")}, "T0143", "no kernel stands for it"),
        (PLAIN, {"g": SCALED["scale"]}, "C0113", "there is no operator `g`"),
        (PLAIN, {"f": "libf.so"}, "C0113", "is a str, no kernel"),
        (PLAIN, {"f": [3]}, "C0113", "is a int, no kernel"),
        (PLAIN, [SCALED["scale"]], "C0113", "`externs` is a list"),
        ("op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }", {"f": SCALED["scale"]}, "C0113", "is not extern"),
        (PLAIN, SCALED | {"f": SCALED["scale"]}, "C0113", "there is no operator `scale`"),
        (PLAIN, {"f": SCALED["scale"]}, "C0118", "names `T`"),
        (SCALE.replace("scale", "f"), {"f": tl.llvm_ir(kernels.scale("f"), "f")}, "C0118", "`T` may be several types"),
        (PLAIN, {"f": tl.c_symbol(None, "no_such_function_anywhere")}, "C0115", "there is no `no_such_function_anywhere` in it"),
        (PLAIN, {"f": tl.llvm_ir("", "f")}, "C0116", "it defines no function"),
        (PLAIN, {"f": tl.llvm_ir("define i32 @f(", "f")}, "C0116", "it is no LLVM IR"),
        (PLAIN, {"f": tl.llvm_ir(kernels.returns(0), "f")}, "C0116", "it defines `returns`"),
        (PLAIN, {"f": tl.llvm_ir("define i32 @f(ptr %y) { ret i32 0 }", "f")}, "C0116", "is called as `i32 (ptr, ptr, i64)`"),
        (PLAIN, {"f": tl.llvm_ir("define void @f(ptr %y, ptr %x, i64 %n) { ret void }", "f")}, "C0116", "`f` is `void (ptr, ptr, i64)`"),
        (
            PLAIN,
            {"f": tl.llvm_ir("declare void @nowhere()\n" + kernels.returns(0, "f").replace("{", "{ call void @nowhere()\n"), "f")},
            "C0116",
            "cannot be linked",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_called_is_said_with_its_code(text: str, given: Any, code: str, said: str) -> None:
    found, message = refused(text, given, X)
    assert found == code and said in message


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_text("no library")
    code, message = refused(PLAIN, {"f": tl.c_symbol(tmp_path / "lib.so", "f")}, X)
    assert code == "C0114" and "cannot be loaded" in message


@pytest.mark.parametrize("symbol", ["", "a b", 'f"() { ret }', "f\n", "9f", "f{", "{T", "f-g", None, 3, "é"])
def test_the_name_of_a_function_is_a_word(symbol: Any) -> None:
    for make in (lambda: tl.c_symbol(None, symbol), lambda: tl.llvm_ir("", symbol), lambda: tl.cuda_source("", symbol)):
        with pytest.raises(tl.CompileError, match="C0113"):
            make()


def test_paths_and_texts_that_are_none_are_refused() -> None:
    for make in (lambda: tl.c_symbol(3, "f"), lambda: tl.llvm_ir(b"", "f")):  # type: ignore[arg-type]
        with pytest.raises(tl.CompileError, match="C0113"):
            make()
    for path in ("nowhere/lib.so", "bad\0path", "/"):
        with pytest.raises(tl.CompileError, match="C0114"):
            tl.c_symbol(path, "f")


@pytest.mark.parametrize(
    "signature",
    [
        "(x: f32[D..], attr each by: int) -> (y: f32[D..])",
        "(x: f32[broadcast N], z: f32[N]) -> (y: f32[N])",
        "(x: f32[N], attr g: fn = abs) -> (y: f32[N])",
        "(x: f32[D..], attr by..: int) -> (y: f32[D..])",
    ],
)
def test_signatures_that_no_kernel_is_called_by_yet_are_refused_where_they_are_given_one(signature: str) -> None:
    with pytest.raises(tl.CompileError, match=r"T0166.*not supported yet"):
        tl.parse(f"extern op f{signature}", externs={"f": tl.llvm_ir("", "f")})


def test_a_call_that_needs_its_own_result_is_refused() -> None:
    text = "op f(x: f32[N]) -> (y: f32[N]) {\n a: f32[N] = scale(y)\n y[i] = a[i] + x[i]\n}"
    code, _ = refused(SCALE + text, SCALED, X)
    assert code == "T0145"


def test_kernels_without_bodies_check_and_what_calls_them_is_proven() -> None:
    from tensorlang.check.definition import check_module
    from tensorlang.check.module import load_module
    from tensorlang.diagnostics import Source
    from tensorlang.syntax.parse import parse

    def problems(text: str) -> list[str]:
        return [d.code for d in check_module(load_module(parse(Source("f.tl", text))))]

    assert problems(SCALE + AROUND) == []
    assert problems(SCALE + AROUND.replace("b[i] * b[i]", "b[i + 1]")) == ["T0301"]
