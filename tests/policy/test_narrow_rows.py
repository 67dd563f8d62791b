"""Rows of few elements: lanes are rows, and the elements of each are written out."""

from __future__ import annotations

import pytest
from scheduled_programs import assert_same, operator

from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

MACHINE = Machine(target="cpu", threads=2)


def directives(program: Program) -> list[str]:
    return [show(d) for d in derive(program, MACHINE).directives]


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        pytest.param(
            "p: i32[N, 3], r: i32[3, 3], t: i32[3]) -> (q: i32[N, 3])", "q[n, i] = t[i] + sum(j) r[i, j] * p[n, j]", id="rotation"
        ),
        pytest.param(
            "p: i32[N, 3], r: i32[3, 3], s: i32[3, 3]) -> (q: i32[N, 3])",
            "q[n, i] = (sum(j) r[i, j] * p[n, j]) * sum(k) s[i, k] * p[n, k]",
            id="sums that share a loop",
        ),
        pytest.param(
            "a: i32[N, 3], b: i32[N, 3]) -> (q: i32[N, 3])",
            "q[n, i] = a[n, (i + 1) % 3] * b[n, (i + 2) % 3] - a[n, (i + 2) % 3] * b[n, (i + 1) % 3]",
            id="cross product",
        ),
        pytest.param("a: i32[N, 2]) -> (q: i32[N, 2])", "q[n, 0] = a[n, 0] + a[n, 1]\n q[n, 1] = a[n, 0] - a[n, 1]", id="an equation each"),
        pytest.param("a: i32[2, N, 4], b: i32[N]) -> (q: i32[2, N, 4])", "q[m, n, i] = max(a[m, n, 3 - i], 0) * b[n]", id="planes"),
        pytest.param(
            "a: i32[N], b: i32[N]) -> (q: i32[N, 3])",
            "q[n, 0] = b[n]\n q[n, 1] = a[n // 2] - b[n]\n q[n, 2] = b[n] + 3 * a[n // 2]",
            id="some of which read the same",
        ),
        pytest.param(
            "a: i32[N, 3]) -> (q: i32[N, 3])", "q[n, i] = sum(k in 0..3) a[n + k - 1, i | 0] * (i32(k) + 1)", id="windows over rows"
        ),
        pytest.param("a: i32[N]) -> (q: i32[N, 2])", "q[n, 0] = a[n + 1 | 0] - a[n]\n q[n, 1] = a[n - 1 | 5]", id="of neighbours"),
        pytest.param(
            "a: i32[9, N], b: i32[9, N]) -> (q: i32[9, N, 3])",
            """c[m, n]    = 3 * a[m, n] - b[m, n]
            e[m, n]    = b[m // 2, n // 2] - 7   for m in 0..9, n in 0..N
            q[m, n, i] = if i == 0 then c[m, n] else if i == 1 then c[m, n] - e[m, n] else c[m, n] + e[m, n]   for i in 0..3""",
            id="of what is made for each row before",
        ),
    ],
)
@pytest.mark.parametrize("rows", [32, 75])
def test_lanes_of_narrow_rows_are_rows(signature: str, body: str, rows: int) -> None:
    program = operator(signature, body, {"N": rows})
    found = directives(program)
    assert any(d.startswith("vectorize q.n_v") for d in found)
    assert any(d.startswith(("unroll q.i_t", "unroll q.a1_t")) for d in found)
    assert_same(program, proven(program, derive(program, MACHINE)), {})


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        pytest.param("a: i32[N, 5]) -> (q: i32[N, 5])", "q[n, i] = a[n, 4 - i]", id="longer rows"),
        pytest.param(
            "a: i32[N, 90], w: i32[90, 3]) -> (q: i32[N, 3])", "q[n, i] = sum(k) a[n, k] * w[k, i]", id="long rows that are summed"
        ),
        pytest.param("a: i32[4, 3]) -> (q: i32[4, 3])", "q[n, i] = a[3 - n, i] + 2 * a[n, 2 - i]", id="few rows"),
    ],
)
def test_other_rows_run_as_they_would(signature: str, body: str) -> None:
    program = operator(signature, body, {"N": 64})
    assert "unroll q.i_t" not in directives(program)
    assert_same(program, proven(program, derive(program, MACHINE)), {})


def test_rows_whose_terms_are_a_range_of_data_are_no_lanes() -> None:
    body = "q[n, i] = sum(k in 0..Z, s[n] <= k, k < e[n]) a[k, i]"
    program = operator("a: i32[Z, 3], s: i64[N], e: i64[N]) -> (q: i32[N, 3])", body, {"N": 32, "Z": 50})
    assert not any(d.startswith("vectorize q.n_v") for d in directives(program))
    assert_same(program, proven(program, derive(program, MACHINE)), {})


def test_elements_of_a_narrow_row_that_data_name_are_fetched_one_by_one() -> None:
    program = operator("x: u8[N, 3], t: i32[3, 256]) -> (q: i32[N, 3])", "q[n, c] = t[c, x[n, c]]", {"N": 40})
    assert "unroll q.c_t" in directives(program)
    assert not any(d.startswith("vectorize") for d in directives(program))
    assert_same(program, proven(program, derive(program, MACHINE)), {})


def test_terms_that_data_send_to_narrow_rows_go_where_they_belong() -> None:
    body = "y[n, c] = max(k in 0..K, ids[k] == n, from x[n, c]) u[k, c]"
    program = operator("x: i32[N, 2], ids: i32[K] in 0..N, u: i32[K, 2]) -> (y: i32[N, 2])", body, {"N": 64, "K": 9})
    assert "order y.k_o, y.k_i, y.n, y.c_o, y.c_v" in directives(program)
    assert_same(program, proven(program, derive(program, MACHINE)), {})


@pytest.mark.parametrize("few", [2, 3, 5])
def test_terms_are_lanes_where_several_tensors_are_reduced_along_an_axis_before_few_elements(few: int) -> None:
    body = """most[a, b] = max(j in 0..60) x[a, j, b]
        y[a, j, b] = most[a, b] - x[a, j, b]"""
    program = operator("x: i32[4, 60, F]) -> (y: i32[4, 60, F])", body, {"F": few})
    found = directives(program)
    assert {"vectorize most.j_v", "unroll most.b_t"} <= {*found}
    assert_same(program, proven(program, derive(program, MACHINE)), {})


def test_terms_of_short_windows_are_written_out_where_vectors_are_of_elements_a_few_apart() -> None:
    program = operator("x: i32[4, 200]) -> (y: i32[4, 50])", "y[b, i] = max(j in 0..4) x[b, 4*i + j]", {})
    found = directives(program)
    assert any(d.startswith("unroll") and d.endswith("y.j") for d in found) and "vectorize y.i_v" in found
    assert_same(program, proven(program, derive(program, MACHINE)), {})
