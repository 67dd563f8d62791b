"""Calls that do not fit an operator are refused with R codes that name the parameters, the sizes and the shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checking import load, run

from codegen.dtypes import f32, f64, i8, i32
from polyhedral.expr import Int, Name
from polyhedral.text import show, show_cond
from tensorlang.check.definition import check_module
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.diagnostics import CompileError, Diagnostic

LIBRARY = load("""
op linear[T: float](x: T[M, K], w: T[N, K], b: T[N] = 0) -> (y: T[M, N]) {
    y[i, j] = b[j] + sum(k) x[i, k] * w[j, k]
}
op grouped(x: f32[(group, C)], attr group: int in 1..9 = 1) -> (y: f32[C]) {
    y[c] = sum(g) x[(g, c)]
}
op window(x: f32[D..], attr width..: int) -> (y: f32[(D - width + 1)..]) {
    y[d..] = max(r.. in 0..width) x[(d + r)..]
}
op stack(each x: f32[each N], attr scale: float = 1.0, attr flag: bool = false, attr f: fn = tanh, attr mode: str = "a")
    -> (y: f32[sum(N..)]) where rank(N) >= 1 {
    y[before(N) + j] = f(scale * x[j])   for each x
}
op pick(x: f32[N], size k in 0..N) -> (y: f32[k]) {
    y[i] = x[i]
}
op bent(x: f32[A.., B..], attr axis: int) -> (y: f32[A.., B..]) where rank(A) == axis {
    y[a.., b..] = x[a.., b..]
}
op cast_to[U](x: f32[N]) -> (y: U[N]) {
    y[i] = U(x[i])
}
op table(t: f32[2*N + 1, D]) -> (y: f32[N, D]) {
    y[i, j] = t[2*i + 1, j]
}
op rows(offsets: i32[M + 1]) -> (y: i32[M]) {
    y[i] = offsets[i + 1] - offsets[i]
}
""")


def refusal(operator: str, args: list[Any], attrs: dict[str, Any] | None = None, sizes: dict[str, Any] | None = None) -> Diagnostic:
    with pytest.raises(CompileError) as caught:
        instantiate(LIBRARY, operator, args, attrs or {}, sizes or {})
    (diagnostic,) = caught.value.diagnostics
    return diagnostic


def a(*shape: int | str) -> ArgType:
    return ArgType(f32, shape)


def test_sizes_that_disagree_are_named_with_both_shapes() -> None:
    found = refusal("linear", [a(2, 3), a(5, 4)])
    assert found.code == "R0202"
    assert found.title == "`linear`: `x` gives K = 3, `w` gives K = 4"
    assert found.notes == ("`x` has shape [2, 3]", "`w` has shape [5, 4]")


CALLS = [
    ("R0201", "linear", [a(2), a(5, 4)], {}, {}, "`x` has 1 dimension"),
    ("R0201", "linear", [a(2, 3), a(5, 3), a(5, 1)], {}, {}, "`b` has 2 dimensions"),
    ("R0203", "grouped", [a(10)], {"group": 3}, {}, "10 elements of `x` do not divide into 3 equal parts"),
    ("R0203", "table", [a(8, 2)], {}, {}, "a dimension of `t` is 8, and `2*N + 1` is that for no whole `N`"),
    ("R0203", "rows", [ArgType(i32, (0,))], {}, {}, "a dimension of `offsets` is 0, and `M + 1` is that for no whole `M`"),
    ("R0204", "linear", [ArgType(i32, (2, 3)), ArgType(i32, (5, 3))], {}, {}, "`x` is `i32`, but `T` is float"),
    ("R0204", "linear", [a(2, 3), ArgType(f64, (5, 3))], {}, {}, "`w` is `f64`, but `T` is `f32` already"),
    ("R0204", "grouped", [ArgType(i8, (4,))], {}, {}, "`x` is `i8`, but must be `f32`"),
    ("R0204", "cast_to", [a(2)], {}, {}, "no argument tells the type `U`"),
    ("R0204", "cast_to", [a(2)], {"U": "f33"}, {}, "'f33' is no type for `U`"),
    ("R0205", "linear", [a(2, 3)], {}, {}, "needs argument `w`"),
    ("R0205", "linear", [a(2, 3), a(5, 3), a(5), a(5)], {}, {}, "takes 3 tensors and is given 4"),
    ("R0205", "stack", [a(2)], {}, {}, "takes any number of tensors"),
    ("R0205", "linear", [(a(2, 3),), a(5, 3)], {}, {}, "`x` is one tensor, not several"),
    ("R0205", "window", [a(5)], {}, {}, "needs attribute `width`"),
    ("R0205", "liner", [], {}, {}, "there is no operator `liner`"),
    ("R0206", "grouped", [a(4)], {"groups": 2}, {}, "has no attribute `groups`"),
    ("R0206", "pick", [a(4)], {}, {"n": 2}, "has no size `n`"),
    ("R0207", "grouped", [a(4)], {"group": 2.5}, {}, "attribute `group` is int, and 2.5 is float"),
    ("R0207", "stack", [(a(4),)], {"scale": "big"}, {}, "attribute `scale` is float"),
    ("R0207", "stack", [(a(4),)], {"flag": 2}, {}, "attribute `flag` is bool"),
    ("R0207", "stack", [(a(4),)], {"mode": 1}, {}, "attribute `mode` is str"),
    ("R0207", "stack", [(a(4),)], {"f": "tanhh"}, {}, "there is no function `tanhh` for `f`"),
    ("R0207", "pick", [a(4)], {}, {"k": (1, 2)}, "size `k` is one number"),
    ("R0208", "grouped", [a(4)], {"group": 0}, {}, "attribute `group` is outside 1..9"),
    ("R0209", "pick", [a(4)], {}, {"k": 4}, "`0 <= k < N` does not hold"),
    ("R0209", "bent", [a(4)], {"axis": -2}, {}, "`rank(A)` would be -1"),
    ("R0209", "stack", [()], {}, {}, "`rank(N) >= 1` does not hold"),
    ("R0201", "bent", [a(4)], {"axis": 2}, {}, "`x` has 1 dimension"),
    ("R0211", "window", [a(2)], {"width": (4,)}, {}, "`y` would have a dimension of -1 elements"),
]


@pytest.mark.parametrize(("code", "operator", "args", "attrs", "sizes", "said"), CALLS, ids=[c[5] for c in CALLS])
def test_a_call_that_does_not_fit_is_refused(code: str, operator: str, args: list[Any], attrs: Any, sizes: Any, said: str) -> None:
    found = refusal(operator, args, attrs, sizes)
    assert found.code == code
    assert said in found.title
    assert found.help


@pytest.mark.parametrize(
    ("params", "given", "size", "why", "what"),
    [
        ("x: f32[N * K], w: f32[K]", [a(0), a(0)], "N", "`N * K` is 0 for every N where K = 0", "declare `size N` and pass it"),
        (
            "x: f32[N + M], w: f32[M] = 0",
            [a(7)],
            "M",
            "`w`, which tells M, is left out",
            "pass `w`, or declare `size M` and pass that",
        ),
    ],
)
def test_a_dimension_that_does_not_tell_its_sizes_says_which_and_why(params: str, given: list[Any], size: str, why: str, what: str) -> None:
    text = "op f({}) -> (y: f32[N]) {{ y[i] = sum(k) w[k | 0] * x[i | 0] }}"
    with pytest.raises(CompileError) as caught:
        instantiate(load(text.format(params)), "f", given)
    (found,) = caught.value.diagnostics
    assert (found.code, found.notes, found.help) == ("R0210", (why,), what)
    instantiate(load(text.format(f"{params}, size {size}")), "f", given, sizes={size: 3})  # as the help says


def test_a_misspelt_name_is_corrected() -> None:
    assert refusal("grouped", [a(4)], {"grup": 2}).help == "did you mean `group`?"
    assert refusal("liner", []).help == "did you mean `linear`?"


@pytest.mark.parametrize(
    ("dimensions", "shapes", "sizes"),
    [
        (["M + 1"], [(6,)], {"M": 5}),
        (["2*N + 1", "N - 1"], [(7,), (2,)], {"N": 3}),
        (["10 - N"], [(10,)], {"N": 0}),
        (["N + K", "K"], [(7,), (3,)], {"N": 4, "K": 3}),
        (["2 * K * N", "K"], [(12,), (3,)], {"N": 2, "K": 3}),
        (["N + N - 3"], [(5,)], {"N": 4}),
        (["(K, 2*N)", "K"], [(12,), (3,)], {"N": 2, "K": 3}),
        (["N + K", "K + L", "L - 1"], [(7,), (5,), (1,)], {"N": 4, "K": 3, "L": 2}),
    ],
)
def test_a_dimension_tells_the_one_size_in_it_that_nothing_else_does(dimensions: list[str], shapes: Any, sizes: dict[str, int]) -> None:
    params = ", ".join(f"x{k}: f32[{dim}]" for k, dim in enumerate(dimensions))
    module = load(f"op f({params}) -> (y: f32[{', '.join(sizes)}]) {{ y[{', '.join('ijk'[: len(sizes)])}] = 0 }}")
    program = instantiate(module, "f", [a(*shape) for shape in shapes])
    assert program.definitions[0].tensors[0].shape == tuple(map(Int, sizes.values()))


def test_a_factor_of_a_dimension_tells_the_size_in_it_where_a_caller_has_the_factors() -> None:
    text = "op f(x: f32[(K, 2*N)], w: f32[K]) -> (y: f32[N]) { y[i] = sum(k) x[(k, 2*i)] * w[k] }"
    assert not check_module(load(text))
    again = "op g(x: f32[(K, M)], w: f32[K]) -> (y: f32[M // 2]) where M % 2 == 0 { y = f(x, w) }"
    program = instantiate(load(f"{text} {again}"), "g", [a(12), a(3)])
    assert program.definitions[-1].tensors[0].shape == (Int(2),)


def test_a_size_that_a_dimension_tells_stays_open() -> None:
    assert [*map(show, instantiate(LIBRARY, "table", [a(7, 2)], symbolic=True).params[0].shape)] == ["2*N + 1", "D"]
    module = load("op gaps(x: i32[K]) -> (y: i32[K - 1]) { y = rows(x) } op rows(o: i32[M + 1]) -> (y: i32[M]) { y[i] = o[i + 1] - o[i] }")
    program = instantiate(module, "gaps", [ArgType(i32, ("K",))])
    assert program.sizes == ("K",)
    assert show_cond(program.context) == "K - 1 >= 0"


@pytest.mark.parametrize(
    ("dimension", "given", "extent", "may_be"),
    [
        ("2*N + M", "K + 1", "K + 1", "`K`, or a multiple of 2 more"),
        ("N + M", "K - 1", "K - 1", "`K` or more"),
        ("M - 3*N", "K + 3", "K + 3", "`K`, or a multiple of 3 less"),
    ],
)
def test_sizes_of_a_caller_that_no_size_fits_are_said_by_their_names(dimension: str, given: str, extent: str, may_be: str) -> None:
    called = f"op g(x: f32[M], y: f32[{dimension}]) -> (z: f32[M]) {{ z[i] = x[i] }}"
    module = load(f"{called} op f(a: f32[K], b: f32[{given}]) -> (z: f32[K]) {{ z = g(a, b) }}")
    (found,) = check_module(module)
    assert f"is {extent}, and `{dimension}` is that for no whole `N`" in found.title
    assert found.help == f"it may be {may_be}"


@pytest.mark.parametrize(("dimension", "code"), [("N // 2", "T0154"), ("N * N", "T0154"), ("N + K", "T0158"), ("N * K", "T0158")])
def test_a_dimension_that_does_not_tell_its_sizes_is_refused_where_it_is_declared(dimension: str, code: str) -> None:
    module = load(f"op f(x: f32[{dimension}]) -> (y: f32[N]) {{ y[i] = x[i | 0] }}")
    (found,) = check_module(module)
    assert found.code == code
    assert "`size N`" in str(found.help)


def test_a_range_to_write_is_said_by_the_name_of_a_size_and_not_by_its_number() -> None:
    module = load("op f(x: f32[H, W]) -> (y: f32[H, W]) { h[i, j] = x[i, j - 1 | clamp]  y[i, j] = h[i, j] }".replace("  ", "\n"))
    with pytest.raises(CompileError) as caught:
        instantiate(module, "f", [a(3, 4)])
    assert caught.value.diagnostics[0].help == "write its range after the expression: `for j in 0..W`"


def test_a_size_that_meets_a_fraction_is_cast_by_its_name() -> None:
    with pytest.raises(CompileError) as caught:
        instantiate(load("op f(x: f32[N]) -> (y: f32) { y = (sum(i) x[i]) / (sqrt(2 * pi) * N) }"), "f", [a(4)])
    assert [(d.code, d.help) for d in caught.value.diagnostics] == [("T0112", "cast it: `f32(N)`")]


def test_an_omitted_parameter_reads_as_its_default() -> None:
    program = instantiate(LIBRARY, "linear", [a(2, 3), a(5, 3)])
    assert [p.name for p in program.params] == ["x", "w"]


def test_sizes_that_the_caller_names_stay_symbolic() -> None:
    program = instantiate(LIBRARY, "linear", [a("batch", 3), a(5, 3)])
    assert program.sizes == ("batch",)
    assert program.definitions[0].tensors[0].shape == (Name("batch"), Int(5))


def test_a_number_beats_a_name_for_one_size() -> None:
    program = instantiate(LIBRARY, "linear", [a(2, "k"), a(5, 3)])
    assert program.params[0].shape == (Int(2), Int(3))


def test_a_product_with_an_index_makes_a_size_a_number() -> None:
    module = load("op every(x: f32[N], size step) -> (y: f32[N]) { y[i] = x[i * step | 0] }")
    program = instantiate(module, "every", [a(7)], sizes={"step": 2}, symbolic=True)
    assert program.sizes == ("N",)
    with pytest.raises(CompileError) as caught:
        instantiate(module, "every", [a(7)])
    assert caught.value.diagnostics[0].code == "R0212"


def test_a_size_that_is_an_attribute_of_a_call_stays_open_unless_a_range_has_to_hold_it() -> None:
    text = "op first(x: f32[N], attr count: int{}) -> (y: f32[count]) {{ y[i] = x[i | 0] }}\n"
    text += "op half(x: f32[N]) -> (y: f32[N // 2]) {{ y = first(x, count = N // 2) }}"
    assert instantiate(load(text.format("")), "half", [a("n")], symbolic=True).sizes == ("N",)
    with pytest.raises(CompileError) as caught:
        instantiate(load(text.format(" in 1..9")), "half", [a("n")], symbolic=True)
    assert caught.value.diagnostics[0].code == "R0212"


def test_a_composite_dimension_of_unknown_size_gets_a_size_of_its_own() -> None:
    program = instantiate(LIBRARY, "grouped", [a("channels")], {"group": 2})
    assert program.params[0].shape == (Int(2), Name("C"))
    assert program.params[0].grouping == (2,)


def test_a_type_may_be_an_attribute() -> None:
    program = instantiate(LIBRARY, "cast_to", [a(3)], {"U": "f16"})
    assert str(program.definitions[0].tensors[0].dtype) == "f16"


def test_run_time_sizes_are_checked_on_entry() -> None:
    program = instantiate(LIBRARY, "pick", [a(4)])
    assert program.sizes == ("k",)
    assert "k" in str(program.context)


def test_a_tensor_that_nothing_needs_may_be_made_of_what_a_call_computes() -> None:
    text = "op g(x: f32[N]) -> (y: f32[N]) {\n m = max(j) x[j]\n y[i] = x[i] - m\n}\n"
    module = load(text + "op f(x: f32[N]) -> (y: f32[N]) {\n p = g(x)\n a[i] = p[i] + 1\n y[i] = x[i]\n}")
    assert run(module, "f", np.ones(3, np.float32)).tolist() == [1, 1, 1]
