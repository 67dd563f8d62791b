"""Sums for triangles and other parts of a tensor run in register tiles, computed whole where the part ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scheduled_programs import argument, assert_same, loops

from codegen.dtypes import DTYPES
from codegen.loops.nodes import Alloc, For, Function, Int, Store
from codegen.loops.printer import show as show_loops
from codegen.loops.verify import is_reduction
from codegen.loops.walk import walk
from stdlib.library import roles
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.policy.select import search
from tensorlang.schedule.check import proven
from tensorlang.schedule.plan import Plan
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

MACHINES = [
    Machine(target="cpu", threads=1),
    Machine(target="cpu", vector_bytes=16, vector_registers=16, threads=2),
]


def operator(signature: str, body: str, sizes: dict[str, int] | None) -> Program:
    module = load_module(parse(Source("f.tl", f"op f({signature} {{\n{body}\n}}")))
    args = [argument(p, sizes or {}) for p in module.operators["f"].params]
    return instantiate(module, "f", args, symbolic=sizes is None)


def schedule_of(program: Program, machine: Machine = MACHINES[0]) -> Schedule:
    """Return the schedule that roles of the library have for a program, or else a derived one."""
    chosen = search(roles(), None, program, {}, "cpu", machine).chosen
    return derive(program, machine) if chosen is None else chosen.schedule


def derived(program: Program, machine: Machine = MACHINES[0]) -> Plan:
    return proven(program, schedule_of(program, machine))


TRIANGLE = """
    y[i, j] = c[i, j] + sum(k) a[i, k] * a[j, k] for j <= i
    y[i, j] = c[i, j]                            otherwise"""
BAND = """
    y[i, j] = sum(k) a[i, k] * a[j, k] for 2 * i - 9 <= j, j <= 2 * i + 30
    y[i, j] = c[i, j]                  otherwise"""
DIAGONAL = """
    y[i, j] = sum(k) a[i, k] * a[j, k] for i != j
    y[i, j] = 1                        otherwise"""
TWO_SIDES = "y[i, j] = c[i, j] + sum(k in 0..i+1) a[i, k] * c[k, j] + sum(k in i+1..N) a[k, i] * c[k, j]"
SIGNATURE = "a: f32[N, M], c: f32[N, N]) -> (y: f32[N, N])"


@pytest.mark.parametrize("machine", MACHINES, ids=["wide", "narrow, two threads"])
@pytest.mark.parametrize("sizes", [{"N": 45, "M": 11}, {"N": 3, "M": 2}, {"N": 1, "M": 1}, {"N": 33, "M": 0}, None], ids=str)
@pytest.mark.parametrize("body", [TRIANGLE, BAND, DIAGONAL], ids=["triangle", "band", "all but the diagonal"])
def test_a_part_of_a_product_is_right(body: str, sizes: dict[str, int] | None, machine: Machine) -> None:
    program = operator(SIGNATURE, body, sizes)
    assert_same(program, derived(program, machine), sizes or {"N": 29, "M": 7})


def updates(function: Function) -> list[tuple[For, ...]]:
    """Return the loops around each store that adds to a sum."""
    found: list[tuple[For, ...]] = []

    def visit(body: tuple[object, ...], around: tuple[For, ...]) -> None:
        for s in body:
            if isinstance(s, For):
                visit(s.body, (*around, s))
            elif isinstance(s, Store) and is_reduction(s):
                found.append(around)

    visit(function.body, ())
    return found


@pytest.mark.parametrize("body", [TRIANGLE, BAND, DIAGONAL], ids=["triangle", "band", "all but the diagonal"])
def test_tiles_that_a_part_cuts_add_up_whole_in_registers(body: str) -> None:
    program = operator(SIGNATURE, body, {"N": 416, "M": 300})
    plan = derived(program)
    text = show_loops(loops(plan))
    for around in updates(loops(plan)):
        tile = [loop for loop in around if loop.kind in ("unroll", "vector")]
        assert tile and all(loop.extent is not None and (loop.lo, loop.hi) == (Int(0), Int(loop.extent)) for loop in tile), text


def test_terms_that_differ_from_element_to_element_are_none_for_others() -> None:
    body = "y[i, j] = sum(k in 0..i+1) a[i, k] * c[k, j] for j <= i\ny[i, j] = c[i, j] otherwise"
    sizes = {"N": 45}
    program = operator("a: f32[N, N], c: f32[N, N]) -> (y: f32[N, N])", body, sizes)
    for machine in MACHINES:
        assert_same(program, derived(program, machine), sizes)


def test_what_lies_outside_a_tensor_is_read_by_nobody() -> None:
    inside, outside = "y[i, j] = sum(k) a[i, k] * b[j, k]", "y[i, j] = sum(k) a[i, k] * b[j - i, k]"
    for body, grown in ((inside, True), (outside, False)):
        text = f"{body} for j >= i\ny[i, j] = 0 otherwise"
        program = operator("a: f32[N, M], b: f32[N, M]) -> (y: f32[N, N])", text, {"N": 45, "M": 9})
        plan = derived(program)
        (sums,) = (s for s in plan.stages.scop.statements if s.role == "update")
        assert ("Floor" in str(sums.domain)) == grown
        assert_same(program, plan, {"N": 45, "M": 9})


def test_sums_of_both_sides_of_a_triangle_stay_in_registers_beside_it() -> None:
    program = operator("a: f64[N, N], c: f64[N, N]) -> (y: f64[N, N])", TWO_SIDES, {"N": 96})
    function = loops(derived(program))
    spaces = {s.buffer.name: s.buffer.space for s in walk(*function.body) if isinstance(s, Alloc)}
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for around in updates(function):
        (store,) = (s for s in walk(*around[-1].body) if isinstance(s, Store))
        found[all(loop.lo == Int(0) for loop in around if loop.kind == "unroll")].add(spaces[store.buffer])
    assert found == {True: {"registers"}, False: {"stack"}}


@pytest.mark.parametrize("part", ["j > i", "j < i", "j <= i"])
def test_a_sum_over_all_of_a_triangle_stays_in_registers(part: str) -> None:
    program = operator("a: f32[N, N]) -> (y: f32)", f"y = sum(i, j, {part}) a[i, j] * a[i, j]", {"N": 75})
    plan = derived(program)
    assert {s.buffer.space for s in walk(*loops(plan).body) if isinstance(s, Alloc)} == {"registers"}
    assert_same(program, plan, {"N": 75})


def test_the_directives_are_those_of_a_product() -> None:
    program = operator(SIGNATURE, TRIANGLE, {"N": 416, "M": 300})
    found = [show(d) for d in schedule_of(program).directives]
    assert found[0] == "distribute y"
    assert "pack a as [y.jo, y.k, y.jt]" in found


@pytest.mark.parametrize(
    ("body", "threads", "arranged"),
    [
        ("y[i, j] = sum(k) a[i, k] * b[j, k]", 1, "pack b in y.j at y.jo as [y.jo, y.k, y.jt]"),
        ("y[i, j] = sum(k) a[i, k] * b[j, k]", 4, "pack b as [y.jo, y.k, y.jt]"),
        ("y[i, j] = sum(k) b[i, k] * b[j, k]", 1, "pack b in y.j at y.jo as [y.jo, y.k, y.jt]"),
        ("y[i, j] = sum(k) b[k, i] * b[k, j]", 1, "pack b as [y.jo, y.k, y.jt]"),
        ("c[i, j] = 2 * b[i, j]\n    y[i, j] = sum(k) a[i, k] * c[k, j]", 1, "layout c as [y.jo, y.k, y.jt]"),
    ],
    ids=["apart", "read by several threads", "twice, once along rows", "twice across", "made for it"],
)
def test_no_more_of_an_operand_is_copied_at_a_time_than_need_be(body: str, threads: int, arranged: str) -> None:
    program = operator("a: f64[640, 640], b: f64[640, 640]) -> (y: f64[640, 640])", body, {})
    found = schedule_of(program, replace(MACHINES[0], threads=threads)).directives
    assert [show(d) for d in found if d.name in ("pack", "layout")] == [arranged]


def test_an_operand_is_copied_where_axes_are_those_of_a_pack() -> None:
    body = "op f(a: f64[D.., K], b: f64[E.., K]) -> (y: f64[D.., E..]) {\n    y[d.., e..] = sum(k) a[d.., k] * b[e.., k]\n}"
    program = instantiate(load_module(parse(Source("f.tl", body))), "f", [ArgType(DTYPES["f64"], (640, 640))] * 2)
    found = [show(d) for d in schedule_of(program).directives]
    assert "pack b in y.e.0 at y.jo as [y.jo, y.k, y.jt]" in found


def test_a_product_of_open_sizes_is_packed_as_one_of_known_sizes_is() -> None:
    program = operator("a: f64[M, K], b: f64[K, N]) -> (y: f64[M, N])", "y[i, j] = sum(k) a[i, k] * b[k, j]", None)
    chosen = search(roles(), None, program, {}, "cpu", replace(MACHINES[0], threads=2), at={"M": 1000, "K": 1200, "N": 1100}).chosen
    assert chosen is not None and "pack b in y.j at y.jo as [y.jo, y.k, y.jt]" in [show(d) for d in chosen.schedule.directives]


def test_a_copy_is_arranged_by_the_names_that_its_first_reader_gives_its_axes() -> None:
    body = """
    t[p, q] = u64(a[p, q // 14]) for p in 0..M, q in 0..M
    u[i, j] = if j >= 1 and j - 1 < M then sum(k in 0..M) t[j - 1, k] * u64(a[k, i]) else 3 for i in 0..N, j in 0..K
    y[j]    = sum(i) u[i, j]"""
    sizes = {"K": 40, "M": 40, "N": 3, "W": 40}
    program = operator("a: f32[M, W], s: u64[K], n: u64[N]) -> (y: u64[K])", body, sizes)
    schedule = schedule_of(program)
    assert any(d.name == "pack" for d in schedule.directives)
    assert_same(program, proven(program, schedule), sizes)


@pytest.mark.parametrize("n", [48, 4800], ids=["short", "long"])
def test_lanes_lie_apart_along_rows_of_a_triangle_only_where_these_are_many_vectors_long(n: int) -> None:
    """Parts of a sentence, by where they end: of a short row most vectors are cut, and their lanes loaded one by one."""
    body = "y[i, k, a] = max(c in 0..8) (x[k, c] + w[a, c]) for k > i\n y[i, k, a] = 0 otherwise"
    program = operator("x: f32[N, 8], w: f32[8, 8]) -> (y: f32[N, N, 8])", body, {"N": n})
    assert ("vectorize y.k_v" in [show(d) for d in derive(program, MACHINES[0]).directives]) == (n == 4800)
    if n < 100:
        assert_same(program, proven(program, derive(program, MACHINES[0])), {"N": n})
