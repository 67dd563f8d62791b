"""Recurrences in blocks: what is derived for factorisations and dynamic programming, and that it computes what the equations say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scheduled_programs import assert_same, legal, loops, operator

from codegen.loops.nodes import Alloc, For
from codegen.loops.walk import walk
from tensorlang.diagnostics import CompileError
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.block import block
from tensorlang.schedule.check import proven
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.prove import prove

WIDE = Machine(target="cpu", threads=1)
NARROW = Machine(target="cpu", vector_bytes=16, vector_registers=16, threads=1)
TWO = replace(NARROW, threads=2)


def directives(program: Program, machine: Machine = NARROW) -> list[str]:
    return [show(d) for d in derive(program, machine).directives]


SIGNATURE = "a: {T}[N, N]) -> (m: {T}[N, N])"
FACTORS = """
    m[i, j] = a[i, j] - sum(k in 0..j) m[i, k] * m[k, j] for j < i
    m[i, j] = a[i, j] + sum(k in 0..i) m[i, k] * m[k, j] otherwise"""
SQUARE_ROOT = """
    m[i, i] = a[i, i] - sum(k in 0..i) m[i, k] * m[i, k]
    m[i, j] = a[i, j] - sum(k in 0..j) m[i, k] * m[j, k] for j < i
    m[i, j] = 0                                          otherwise"""
PARTS = """
    m[i, j] = a[i, j]                                                 for j <= i + 1
    m[i, j] = max(m[i + 1, j - 1], max(k in i+1..j) (m[i, k] + m[k + 1, j])) for j > i + 1"""
CHAIN = """
    m[i, j] = 0                                                                 for j <= i
    m[i, j] = min(k in i..j, from 100000) (m[i, k] + m[k + 1, j] + a[k, j] * a[i, i]) for j > i"""
STARTED = """
    m[i, j] = a[i, j] + sum(k in 0..j, from 3) m[i, k] * m[k, j] for j < i
    m[i, j] = 1                                                  otherwise"""
PRODUCTS = [FACTORS, SQUARE_ROOT, PARTS, CHAIN]
NAMES = ["factors", "square root", "parts", "chain"]


def integers(body: str, sizes: dict[str, int] | None = None) -> Program:
    return operator(SIGNATURE.replace("{T}", "i32"), body, sizes)


SIZED = [(NARROW, 16), (NARROW, 35), (NARROW, None), (TWO, 21), (TWO, 65), (TWO, None)]
"""Machines and sizes, None for an open one; work for two threads begins at 64."""
SIZED_OTHERS = [(NARROW, 35), (TWO, None)]
"""Those of equations whose blocks are those of the first ones: a last tile that is short, and threads for sizes that nobody knows."""


@pytest.mark.parametrize(
    ("body", "machine", "n"),
    [pytest.param(FACTORS, m, n, id=f"factors-{m.threads} threads, {n or 'any size'}") for m, n in SIZED]
    + [
        pytest.param(body, m, n, id=f"{name}-{m.threads} threads, {n or 'any size'}")
        for name, body in zip(NAMES[1:], PRODUCTS[1:], strict=True)
        for m, n in SIZED_OTHERS
    ],
)
def test_recurrences_in_blocks_are_proven_and_right(body: str, n: int | None, machine: Machine) -> None:
    program = integers(body, None if n is None else {"N": n})
    schedule = derive(program, machine)
    assert any(d.name == "block" for d in schedule.directives)
    assert any(d.name == "parallel" for d in schedule.directives) == (machine is TWO and n != 21)
    plan = proven(program, schedule)
    for size in (n,) if n is not None else (0, 1, 3, 18):
        assert_same(program, plan, {"N": size})


FACTORS_APART = """
    u[i, j] = a[i, j] - sum(k in 0..i) l[i, k] * u[k, j] for i <= j
    u[i, j] = 0                                          otherwise
    l[i, j] = a[i, j] - sum(k in 0..j) l[i, k] * u[k, j] for i > j
    l[i, j] = if i == j then 1 else 0                    otherwise"""
OPEN_AND_CLOSED = """
    v[i, j] = 0                                                                              for i >= j, i in 0..N, j in 0..N
    v[i, j] = a[i, j] + min(v[i + 1, j - 1], min(k in i..j) (m[i, k] + m[k + 1, j]))         for i < j, i in 0..N, j in 0..N
    m[i, j] = 0                                                                              for i >= j
    m[i, j] = min(min(m[i + 1, j], m[i, j - 1]), v[i, j])                                    for i < j"""
TWO_RIGHT_SIDES = """
    x[i, j] = a[i, j] - sum(k in 0..i) b[i, k] * y[k, j]
    y[i, j] = x[i, j] - sum(k in 0..i) a[i, k] * x[k, j]"""
TOGETHER = {
    "factors apart": ("a: i32[N, N]) -> (l: i32[N, N], u: i32[N, N])", FACTORS_APART),
    "open and closed": (SIGNATURE.replace("{T}", "i32"), OPEN_AND_CLOSED),
    "two right sides": ("a: i32[N, N], b: i32[N, N]) -> (x: i32[N, N], y: i32[N, N])", TWO_RIGHT_SIDES),
}


@pytest.mark.parametrize(("name", "n"), [("factors apart", 18), ("open and closed", None), ("two right sides", 18)])
def test_tensors_that_need_each_other_share_tiles_and_each_has_a_register_tile_for_its_sums(name: str, n: int | None) -> None:
    signature, body = TOGETHER[name]
    program = operator(signature, body, None if n is None else {"N": n})
    found = derive(program, NARROW)
    kinds = [x.name for x in found.directives]
    sums = body.count("sum(") + body.count("min(k")
    assert [kinds.count(x) for x in ("block", "distribute", "unroll")] == [sums] * 3
    plan = proven(program, found)
    for size in (n,) if n is not None else (0, 1, 18):
        assert_same(program, plan, {"N": size})


@pytest.mark.parametrize("n", [18, None])
@pytest.mark.parametrize("body", [SQUARE_ROOT, CHAIN], ids=["below", "above"])
def test_what_needs_no_element_of_a_recurrence_is_computed_in_vectors_apart_from_its_tiles(body: str, n: int | None) -> None:
    program = integers(body, None if n is None else {"N": n})
    found, number = derive(program, NARROW), 2 if body is SQUARE_ROOT else 0
    assert {f"distribute m.{number} at m.i, m.j -> i_{number}, j_{number}", f"vectorize m.j_{number}_v"} <= {
        show(d) for d in found.directives
    }
    plan = proven(program, found)
    for size in (n,) if n is not None else (0, 1, 5, 18):
        assert_same(program, plan, {"N": size})


def test_loops_that_tensors_share_and_that_go_back_count_from_the_front_before_they_are_cut() -> None:
    found = directives(operator(*TOGETHER["open and closed"], {"N": 18}))
    start = found.index("affine v (-i + 17) -> i")
    assert found[start + 1 : start + 4] == ["split v.i by 4 -> i_b, i_t", "reverse v.i_b", "reverse v.i_t"]


def test_of_several_recurrences_each_has_blocks_whatever_their_sums_are_called() -> None:
    found = directives(operator("a: i32[N, N]) -> (m: i32[N, N], y: i32[N, N])", PARTS + PARTS.replace("m[", "y["), {"N": 18}))
    assert [x for x in found if x.startswith("block")] == ["block k by 4", "block y.k by 4"]
    assert "order y.j_b, y.i_b, y.k, y.j_t, y.i_t, y.k.rest_1, y.k.first_1" in found


def test_a_factorisation_adds_up_whole_blocks_in_registers_before_the_elements_of_a_tile() -> None:
    assert directives(operator(SIGNATURE.replace("{T}", "f64"), FACTORS, {"N": 400}), WIDE) == [
        "block k by 8",
        "block k_1 by 8",
        "split m.i by 8 -> i_b, i_t",
        "split m.j by 8 -> j_b, j_t",
        "order m.j_b, m.i_b, m.k, m.k_1, m.j_t, m.i_t, m.k.rest, m.k_1.rest",
        "distribute m.k at m.j_t, m.i_t -> j_u, i_u",
        "order m.i_u, m.j_u",
        "unroll m.i_u",
        "vectorize m.j_u",
        "distribute m.k_1 at m.j_t, m.i_t -> j_u1, i_u1",
        "order m.i_u1, m.j_u1",
        "unroll m.i_u1",
        "vectorize m.j_u1",
    ]


def test_lanes_are_terms_where_both_operands_lie_along_them() -> None:
    found = directives(operator(SIGNATURE.replace("{T}", "f64"), SQUARE_ROOT, {"N": 400}), WIDE)
    assert "split m.k_1 by 8 -> k_1_o, k_1_v" in found
    assert found[-2:] == ["unroll m.i_u, m.j_u", "vectorize m.k_1_v"]


def test_parts_that_begin_at_an_index_run_backwards() -> None:
    found = directives(integers(PARTS, {"N": 400}), WIDE)
    assert {"reverse m.i_b", "reverse m.i_t"} <= {*found}


def test_threads_share_squares_of_tiles_along_diagonals() -> None:
    found = directives(operator(SIGNATURE.replace("{T}", "f64"), FACTORS, {"N": 1500}), replace(WIDE, threads=2))
    assert {"split m.i_b by 8 -> i_w, i_b", "skew m.j_w by m.i_w", "parallel m.i_w"} <= {*found}


@pytest.mark.parametrize("body", PRODUCTS, ids=NAMES)
def test_tiles_beside_the_diagonal_have_a_loop_over_blocks_without_conditions(body: str) -> None:
    program = integers(body, {"N": 96})
    function = loops(proven(program, derive(program, NARROW)))
    kept = {
        s.buffer.name for s in walk(*function.body) if isinstance(s, Alloc) and s.buffer.space == "registers" and len(s.buffer.shape) > 1
    }
    summing = [s for s in walk(*function.body) if isinstance(s, For) and s.kind == "serial" and {*map(_kind, s.body)} == {"unroll"}]
    assert any(name in str(s) for s in summing for name in kept)


def _kind(s: object) -> str:
    return s.kind if isinstance(s, For) else type(s).__name__


COLUMNS = {
    "forwards": ("m[i] = b[i] - 2 * (sum(k in 0..i) a[k, i] * m[k])", [], "rest"),
    "backwards": ("m[i] = b[i] - sum(k in i+1..N) a[k, i] * m[k] for i in 0..N", ["reverse m.i_b", "reverse m.i_t"], "first"),
}


@pytest.mark.parametrize("n", [35, None])
@pytest.mark.parametrize(("body", "backwards", "left"), COLUMNS.values(), ids=COLUMNS)
def test_substitution_by_columns_of_a_triangle_adds_up_rows_of_vectors(body: str, backwards: list[str], left: str, n: int | None) -> None:
    signature = "a: i32[N, N], b: i32[N]) -> (m: i32[N])"
    program = operator(signature, body, None if n is None else {"N": n})
    found = [
        "block k by 8",
        "split m.i by 8 -> i_b, i_t",
        *backwards,
        f"order m.i_b, m.k, m.i_t, m.k.{left}",
        "distribute m.k at m.i_t -> i_u",
        "vectorize m.i_u",
    ]
    assert directives(program) == found
    plan = proven(program, derive(program, NARROW))
    for size in (n,) if n is not None else (0, 1, 3, 18):
        assert_same(program, plan, {"N": size})


@pytest.mark.parametrize("n", [35, None])
@pytest.mark.parametrize(("body", "backwards", "left"), COLUMNS.values(), ids=COLUMNS)
def test_substitution_by_rows_of_a_triangle_adds_up_a_few_rows_together_and_writes_out_what_they_need_of_each_other(
    body: str, backwards: list[str], left: str, n: int | None
) -> None:
    program = operator("a: i32[N, N], b: i32[N]) -> (m: i32[N])", body.replace("a[k, i]", "a[i, k]"), None if n is None else {"N": n})
    assert directives(program) == [
        "block k by 4",
        "split m.i by 4 -> i_b, i_t",
        *backwards,
        "split m.k by 4 -> k_o, k_v",
        f"split m.k.{left} by 4 -> k_{left}_o, k_{left}_i",
        *([f"reverse m.k_{left}_i"] if backwards else []),
        f"order m.i_b, m.k_o, m.i_t, m.k_{left}_o, m.k_{left}_i, m.k_v",
        "distribute m.k_o at m.i_t -> i_u",
        "unroll m.i_u",
        f"unroll m.i_t, m.k_{left}_i",
        "vectorize m.k_v",
    ]
    plan = proven(program, derive(program, NARROW))
    for size in (n,) if n is not None else (0, 1, 3, 18):
        assert_same(program, plan, {"N": size})


def test_few_unknowns_are_found_one_by_one() -> None:
    body = COLUMNS["forwards"][0].replace("a[k, i]", "a[i, k]")
    program = operator("a: f64[N, N], b: f64[N]) -> (m: f64[N])", body, {"N": 15})
    assert not any(d.startswith("block") for d in directives(program, WIDE))


@pytest.mark.parametrize(("n", "lanes"), [(15, []), (16, [4]), (31, [4]), (32, [8]), (63, [8]), (64, [16])])
def test_axes_that_are_short_are_cut_into_tiles_of_fewer_lanes(n: int, lanes: list[int]) -> None:
    program = operator(SIGNATURE.replace("{T}", "f32"), FACTORS, {"N": n})
    found = directives(program, replace(WIDE, vector_bytes=64))
    assert [d for d in found if d.startswith("block")] == [f"block {k} by {count}" for count in lanes for k in ("k", "k_1")]
    columns = "m[i, j] = b[i, j] - sum(k in 0..i) a[i, k] * m[k, j]"
    program = operator("a: f32[N, N], b: f32[N, N]) -> (m: f32[N, N])", columns, {"N": n})
    assert any(d.startswith("block") for d in directives(program, replace(WIDE, vector_bytes=64))) == (n == 64)


UNKNOWNS = {
    "forwards": ("m[i, j] = b[i, j] - 2 * (sum(k in 0..i) a[i, k] * m[k, j])", [], "rest"),
    "backwards": ("m[i, j] = b[i, j] - sum(k in i+1..N) a[i, k] * m[k, j] for i in 0..N", ["reverse m.i_b", "reverse m.i_t"], "first"),
}


@pytest.mark.parametrize(("body", "backwards", "left"), UNKNOWNS.values(), ids=UNKNOWNS)
def test_columns_that_need_nothing_of_each_other_are_lanes_in_a_tile_and_shared_by_threads(
    body: str, backwards: list[str], left: str
) -> None:
    signature = "a: i32[N, N], b: i32[N, M]) -> (m: i32[N, M])"
    program = operator(signature, body, {"N": 67, "M": 70})
    found = [
        "block k by 4",
        "split m.i by 4 -> i_b, i_t",
        *backwards,
        "split m.j by 4 -> j_b, j_t",
        f"order m.j_b, m.i_b, m.k, m.i_t, m.k.{left}, m.j_t",
        "parallel m.j_b",
        "distribute m.k at m.i_t, m.j_t -> i_u, j_u",
        "unroll m.i_u",
        "vectorize m.j_u",
        "vectorize m.j_t",
    ]
    derived = derive(program, TWO)
    assert [show(d) for d in derived.directives] == found
    small = operator(signature, body, {"N": 19, "M": 22})
    assert_same(small, proven(small, derived), {})
    anywhere = operator(signature, body)
    plan = proven(anywhere, derive(anywhere, NARROW))
    for n in (0, 1, 3, 18):
        assert_same(anywhere, plan, {"N": n, "M": n + 1})


def test_a_sum_from_a_value_is_not_cut_nor_one_of_a_strict_operator_nor_few_elements() -> None:
    assert not any(d.startswith("block") for d in directives(integers(STARTED, {"N": 400})))
    program = operator(SIGNATURE.replace("{T}", "f32"), FACTORS, {"N": 400})
    assert not any(d.startswith("block") for d in directives(replace(program, mode="strict")))
    assert not any(d.startswith("block") for d in directives(integers(FACTORS, {"N": 12})))


@pytest.mark.parametrize(
    ("body", "binder", "why"),
    [
        (FACTORS, "j", "there is no reduction"),
        (STARTED, "k", "starts from"),
        ("m[i, j] = sum(k) a[i, k] * a[k, j]", "k", "the same for all elements"),
        ("m[i, j] = sum(k in 0..i, l in 0..j) a[k, l]", "k", "only a reduction over one range"),
    ],
)
def test_a_sum_that_cannot_be_cut_says_why(body: str, binder: str, why: str) -> None:
    found = block(integers(body), binder, 8)
    assert isinstance(found, str) and why in found


TRIANGLE = """op triangle(a: i32[N, N]) -> (l: i32[N, N]) {
    l[i, j] = a[i, j] - sum(k in 0..j) l[i, k] * l[k, j] for j < i
    l[i, j] = a[i, j]                                    otherwise
}
schedule triangle for cpu {
    block k by 4
    tile l (i, j) by (ROWS, 4) -> io, jo, ii, ji
    order l.jo, l.io, l.k, l.ii, l.ji, l.k.rest
    DIRECTIVE
}"""


def refused(directive: str, rows: int = 4) -> str:
    with pytest.raises(CompileError) as caught:
        legal(TRIANGLE.replace("DIRECTIVE", directive).replace("ROWS", str(rows)))
    return caught.value.diagnostics[0].code


@pytest.mark.parametrize(
    ("directive", "code"),
    [
        ("distribute l.k at l.ii, l.ji -> iu", "S0102"),
        ("distribute l.ii at l.ji -> iu", "S0205"),
        ("distribute l.k at l.k.rest -> iu", "S0206"),
        ("distribute l.k -> iu, ju", "S0102"),
        ("distribute l.k at l.ii, l.ji -> jo, ju", "S0106"),
        ("distribute l.k at l.ii, l.ji -> ii, ji", "S0106"),
        ("distribute l.k at l.ii, l.ji -> iu, iu", "S0102"),
        ("vectorize l.ji\\n    distribute l.k at l.ii, l.ji -> iu, ju", "S0213"),
        ("distribute l.k.rest at l.ii, l.ji -> iu, ju", "S0301"),
    ],
)
def test_loops_of_a_sums_own_that_make_no_sense_are_refused(directive: str, code: str) -> None:
    assert refused(directive.replace("\\n", "\n")) == code


def test_a_block_longer_than_a_tile_needs_is_refused_where_a_term_is_not_made_yet() -> None:
    with pytest.raises(CompileError) as caught:
        legal(
            TRIANGLE.replace("block k by 4", "block k by 2")
            .replace("DIRECTIVE", "distribute l.k at l.ii, l.ji -> iu, ju")
            .replace("ROWS", "4")
        )
    assert caught.value.diagnostics[0].code == "S0301"


APART = """op factors(a: i32[N, N]) -> (l: i32[N, N], u: i32[N, N]) {
    l[i, j] = a[i, j] - sum(k in 0..j) l[i, k] * u[k, j]   for j < i
    l[i, j] = 1                                            for i == j
    l[i, j] = 0                                            otherwise
    u[i, j] = a[i, j] - sum(q in 0..i) l[i, q] * u[q, j]   for i <= j
    u[i, j] = 0                                            otherwise
}
schedule factors for cpu {
    block k by BLOCK
    block q by BLOCK
    together l, u -> j
    tile l (i, j) by (4, 4) -> io, jo, ii, ji
    order jo, io, l.k, u.q, ji, ii, l.k.rest, u.q.rest
    distribute l.k at ji, ii -> jl, il
    distribute u.q at ji, ii -> ju, iu
    order il, jl
    order iu, ju
    unroll il, iu
    vectorize jl, ju
}"""


def test_tensors_that_need_each_other_far_back_run_in_blocks_of_one_nest() -> None:
    found, plan = legal(APART.replace("BLOCK", "4"))
    for n in (0, 1, 3, 9):
        assert_same(found.program, plan, {"N": n})


def test_blocks_that_do_not_end_where_tiles_do_are_refused() -> None:
    with pytest.raises(CompileError) as caught:
        legal(APART.replace("BLOCK", "3"))
    assert caught.value.diagnostics[0].code == "S0301"


BINDS = st.sampled_from(["0..j", "0..i", "j+1..i", "j..i", "0..min(i, j)", "j+1..N"])
READS = st.sampled_from(["m[i, k] * m[k, j]", "m[i, k] * a[k, j]", "m[i, k] + m[j, k]", "m[i, k]", "m[i, k] * m[k, j] * a[i, k]"])
GUARDS = st.sampled_from(["j < i", "j <= i - 1", "j < i, i + j > 3", "j + 1 < i"])


@settings(max_examples=12, deadline=None)
@given(BINDS, READS, GUARDS, st.sampled_from(["sum", "min"]), st.sampled_from([NARROW, TWO]), st.integers(16, 21))
def test_whatever_is_derived_for_a_triangle_of_sums_is_right(
    bounds: str, read: str, guard: str, kind: str, machine: Machine, n: int
) -> None:
    start = ", from 7" if kind == "min" else ""
    body = f"m[i, j] = a[i, j] + {kind}(k in {bounds}{start}) ({read}) for {guard}\nm[i, j] = a[i, j] otherwise"
    program = integers(body, {"N": n})
    assume(_is_proven(program))
    assert_same(program, proven(program, derive(program, machine)), {"N": n})


def _is_proven(program: Program) -> bool:
    try:
        prove(program)
    except CompileError:
        return False
    return True
