"""Patterns in schedules: a directive or a tactic for each equation of a role, whose loops it is handed."""

from __future__ import annotations

import pytest
from scheduled_programs import assert_same, written

from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.policy.machine import Machine
from tensorlang.policy.select import read, search
from tensorlang.policy.uncalled import check_schedules
from tensorlang.schedule.check import proven
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show

LAYERS = """
op layers(x: i32[M, K], w: i32[K, H], v: i32[H, N]) -> (y: i32[M, N]) {
    h[i, j] = sum(k) x[i, k] * w[k, j]
    r[i, j] = max(h[i, j], 0)
    q[i, j] = r[i, j] * 2 + r[i, H - 1 - j]
    y[i, j] = sum(k) q[i, k] * v[k, j]
}
tactic register_tile(y, i, j, k, rows) {
    knobs columns in {4, 8}
    tile y (i, j) by (rows, columns) -> io, jo, ii, ji
    order jo, io, k, ii, ji
    unroll ii
    vectorize ji
}
tactic halves(j) {
    cut j at 4 -> head, tail
    vectorize head
    split tail by 4 -> uo, uv
}
tactic diagonal(y, i, j) {
    affine y (i + j, j) -> d, e
    distribute y.acc at d, e -> dd, ee
    order ee, dd
}
"""
PRODUCT = "contraction(y, a, b; batch.., i.., j.., k..)"
MAP = "pointwise(y; i.., j.., k..)"


def directives(*lines: str) -> list[str]:
    """Return the directives of a schedule, which is proven and computes what the operator says."""
    found = written(f"{LAYERS}schedule layers for cpu {{\n" + "\n".join(lines) + "\n}")
    assert_same(found.program, proven(found.program, found.schedule), {"M": 5, "K": 3, "H": 6, "N": 9})
    return [show(d) for d in found.schedule.directives]


def refused(text: str) -> str:
    with pytest.raises(CompileError) as caught:
        written(text)
    return caught.value.diagnostics[0].code


def test_a_tactic_is_handed_the_loops_of_each_equation_that_a_pattern_finds() -> None:
    assert directives(f"register_tile(y, i, j, k, 2) for {PRODUCT}") == [
        "split h.i by 2 -> io, ii",
        "split h.j by 4 -> jo, ji",
        "order h.io, h.jo, h.ii, h.ji",
        "order h.jo, h.io, h.k, h.ii, h.ji",
        "unroll h.ii",
        "vectorize h.ji",
        "split y.i by 2 -> io, ii",
        "split y.j by 4 -> jo, ji",
        "order y.io, y.jo, y.ii, y.ji",
        "order y.jo, y.io, y.k, y.ii, y.ji",
        "unroll y.ii",
        "vectorize y.ji",
    ]


def test_a_directive_alone_has_a_pattern_too() -> None:
    assert directives(f"parallel i for {PRODUCT}", f"reverse j.. for {MAP}") == [
        "parallel h.i",
        "parallel y.i",
        "reverse r.j",
        "reverse q.j",
    ]


def test_equations_that_share_rows_are_found_one_by_one() -> None:
    found = directives(f"halves(j) for {MAP}")
    assert [d for d in found if d.startswith("vectorize")] == ["vectorize r.head", "vectorize q.head"]


def test_loops_that_a_tactic_makes_are_those_of_each_equation() -> None:
    found = directives(f"diagonal(y, i, j) for {PRODUCT}")
    assert found[2:4] == ["order h.ee, h.dd", "affine y (y.i + y.j, y.j) -> d, e"]


def test_a_condition_asks_for_what_the_pattern_found() -> None:
    assert directives(f"unroll k for {PRODUCT} if rank(k) == 2") == []


def test_a_tactic_that_is_called_twice_makes_loops_of_its_own_each_time() -> None:
    found = directives("register_tile(h, h.i, h.j, h.k, 2)", "register_tile(y, y.i, y.j, y.k, 4)", "parallel h.jo, y.jo")
    assert [d for d in found if d.startswith("vectorize")] == ["vectorize h.ji", "vectorize y.ji"]


def test_a_pattern_that_finds_nothing_is_told() -> None:
    rows = "row_reduction(y, t..; i.., j.., k.., l.., r..)"
    text = f"op f(x: f32[N]) -> (y: f32[N]) {{ y[i] = x[i] }}\nschedule f for cpu {{ parallel i for {rows} }}"
    module = load_module(parse(Source("p.tl", text)))
    left_out = read(module, module.schedules[0], written(text).program).left_out
    assert left_out == (f"`parallel i for {rows}` is left out: no equation here is a `row_reduction`",)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("parallel i for contractions(y, a, b; batch.., i.., j.., k..)", "S0511"),
        ("parallel i for contraction(y; i..)", "S0512"),
        (f"split z by 4 -> zo, zi for {PRODUCT}", "S0103"),
    ],
)
def test_patterns_that_cannot_be_read_are_refused(line: str, code: str) -> None:
    assert refused(f"{LAYERS}schedule layers for cpu {{\n{line}\n}}") == code


def test_the_schedule_of_a_role_names_no_loops_that_are_not_there_and_has_no_patterns() -> None:
    for line, code in ((f"parallel i for {PRODUCT}", "S0102"), ("split z by 4 -> zo, zi", "S0103")):
        with pytest.raises(CompileError) as caught:
            from_role(f"{LAYERS}schedule role {PRODUCT} for cpu {{\n{line}\n}}")
        assert caught.value.diagnostics[0].code == code


def from_role(text: str) -> None:
    module = load_module(parse(Source("p.tl", text)))
    assert not check_schedules(module)
    program = written(f"{LAYERS}schedule layers for cpu {{ }}").program
    search(module, "layers", program, {}, "cpu", Machine(target="cpu", threads=1))
