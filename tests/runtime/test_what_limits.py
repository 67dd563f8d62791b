"""What `explain` says limits a kernel: one small operator for each limit, by the lines that name the loop, the reason and what to try."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tensorlang as tl
from codegen.llvm.inner_loops import inner_loops_of, instruction_of
from codegen.llvm.mca import Analysis, analysed
from codegen.llvm.spills import Spills, spills_of
from codegen.llvm.target import host
from codegen.loops.innermost import innermost
from codegen.loops.parser import parse
from tensorlang.backends.cpu.limits import Need, accumulators, carried_by, lane_distance, roofline_limit
from tensorlang.backends.cpu.loop_cycles import estimate
from tensorlang.backends.cpu.roofline import Bound
from tensorlang.runtime.limits import Limit, limit_lines, tried_lines
from tensorlang.runtime.work import Work


def limits(text: str, *arrays: Any, threads: int = 1) -> list[str]:
    """Return what limits the only operator of `text`, but for the roofline."""
    [name] = list(ops := tl.parse(text, threads=threads))
    first, *rest = ops[name].explained(ops[name].call(*arrays)).limits
    assert first.kind == "roofline"
    return [str(limit) for limit in rest]


def row(n: int) -> Any:
    return np.ones(n, np.float32)


SCALED = "op scaled(x: f32[N], y: f32[N]) -> (s: f32[N]) { s[i] = x[i] * y[i] }\n"
SCHEDULE = "schedule scaled for cpu { split s.i by 16 -> o, v\n vectorize s.v }"


def loop(text: str) -> Any:
    """Return the first loop of a function's text."""
    return parse(f"func f()(x: f32[64, 64], out y: f32[64, 64]) {{\n{text}\n}}\n").body[0]


# ---------------------------------------------------------------- operators


def test_where_loops_are_vectors_nothing_but_the_roofline_is_left() -> None:
    assert limits(SCALED + SCHEDULE, row(1600), row(1600)) == []
    assert limit_lines([Limit("roofline", "bound by compute")])[1].split() == ["nothing", "else", "was", "found", "that", "limits", "it"]


@pytest.mark.parametrize(
    ("dtype", "how"),
    [("f32", "is gathered" if host().gathers else "is read one lane after the other"), ("u8", "is read one lane after the other")],
)
def test_elements_that_data_name_are_told_with_their_place_and_how_lanes_read_them(dtype: str, how: str) -> None:
    text = f"op pick(x: {dtype}[N], ids: u8[M] in 0..N) -> (y: {dtype}[M]) {{ y[i] = x[ids[i]] }}\n"
    text += "schedule pick for cpu { split y.i by 16 -> o, v\n vectorize y.v }"
    found = limits(text, np.ones(1000, np.float32 if dtype == "f32" else np.uint8), np.zeros(1600, np.uint8))
    assert any(line.startswith(f"y.v: `x[ids[i]]` {how}: data say where each element lies (") for line in found)


def test_a_column_is_named_with_how_far_its_elements_lie_apart() -> None:
    text = (
        "op column(x: f32[K, N]) -> (y: f32[K]) { y[i] = x[i, 3] * 2 }\nschedule column for cpu { split y.i by 16 -> o, v\n vectorize y.v }"
    )
    [found] = limits(text, np.ones((1600, 100), np.float32))
    assert found.startswith("y.v: `x[i, 3]` is read one lane after the other: elements lie 100 apart (") and "`pack x as [...]`" in found


def test_every_third_element_is_picked_out_of_whole_vectors() -> None:
    text = (
        "op third(x: f32[N]) -> (y: f32[N // 3]) { y[i] = x[3*i] * 2 }\nschedule third for cpu { split y.i by 16 -> o, v\n vectorize y.v }"
    )
    [found] = limits(text, row(4800))
    assert found.startswith("y.v: `x[3*i]` is picked out of 3 vectors: elements lie 3 apart (")


def test_a_scalar_loop_that_could_be_vectors_is_told_the_directives() -> None:
    [found] = limits(SCALED + "schedule scaled for cpu { }", row(1600), row(1600))
    assert found.startswith(
        "s.i: runs element by element: no directive makes vectors of s.i, which carries no dependence; try `split s.i by "
    )


def test_a_scalar_loop_is_named_inside_one_that_keeps_few_rows_of_a_tensor() -> None:
    text = (
        "op blur(x: f32[N, M]) -> (y: f32[N - 2, M]) {\n h[i, j] = x[i, j] + x[i, j]\n y[i, j] = h[i, j] + h[i + 1, j] + h[i + 2, j]\n}\n"
    )
    text += "schedule blur for cpu {\n at h at y.i\n store_at h at root\n fold h at i by 4\n split y.j by 16 -> o, v\n vectorize v\n}"
    found = limits(text, np.ones((32, 320), np.float32))
    assert [line for line in found if line.startswith("h.j: runs element by element: no directive makes vectors of h.j")]


def test_a_recurrence_is_named_by_the_read_that_needs_the_iteration_before() -> None:
    [found] = limits("op decay(x: f32[N]) -> (y: f32[N]) {\n y[0] = x[0]\n y[i] = y[i - 1] * y[i - 1] + x[i] for i in 1..N\n}", row(1600))
    assert found.startswith("y.i: runs element by element: every iteration needs `y[i - 1]`, of one before it (") and ":3:9)" in found


def test_a_recurrence_that_a_directive_made_is_named_as_schedules_name_it() -> None:
    text = "fast op counted(x: f32[N]) -> (y: f32[N]) {\n y[0] = x[0]\n y[i] = y[i - 1] + x[i] for i in 1..N\n}\n"
    found = limits(text + "schedule counted for cpu { scan y.i to 64\n split y.i by 16 -> o, v\n vectorize v }", row(4096))
    assert "y.part.i.in: runs element by element: every iteration needs an element of `y.part` that one before it made" in found


def test_of_a_sweep_the_read_along_the_inner_loop_is_meant_and_skewing_is_tried() -> None:
    text = "op sweep(x: f32[N, M]) -> (y: f32[N, M]) {\n y[i, j] = 0.5 * (y[i - 1, j | 0] + y[i, j - 1 | 0]) + x[i, j]\n}\n"
    [found] = limits(text + "schedule sweep for cpu { }", np.ones((64, 64), np.float32))
    assert "every iteration needs `y[i, j - 1 | 0]`" in found and found.endswith("try `skew y.i by y.j` and vectors along y.j")


def test_a_sum_in_one_accumulator_waits_for_itself() -> None:
    text = "op sums(x: f32[M, N]) -> (s: f32[M]) { s[i] = sum(j) x[i, j] }\n"
    text += "schedule sums for cpu { split s.j by 16 -> o, v\n vectorize s.v }"
    [found] = limits(text, np.ones((64, 1600), np.float32))
    assert found.startswith("s.o: ") and "each addition waits for the one before" in found


def test_strict_sums_are_told_the_mode_that_may_regroup() -> None:
    found = limits("strict op dot(x: f32[N], y: f32[N]) -> (s: f32) { s = sum(i) x[i] * y[i] }", row(1600), row(1600))
    assert any("adds up in" in line and line.endswith("try mode `reduce`, in which sums may be regrouped") for line in found)


def test_too_little_work_stays_on_one_thread() -> None:
    assert "one thread: 160 operations are too few to share, which pays from 16000 on" in limits(SCALED, row(160), row(160), threads=2)
    assert not any("thread" in line for line in limits(SCALED, row(160), row(160)))


def test_a_loop_that_could_be_parallel_is_named() -> None:
    found = limits(SCALED + SCHEDULE, row(160_000), row(160_000), threads=2)
    assert found == ["one thread: no loop is parallel, though s.o carries no dependence; try `parallel s.o`"]


def test_sizes_zero_and_open_sizes_are_explained() -> None:
    assert limits(SCALED, row(0), row(0), threads=2) == []
    ops = tl.parse(SCALED + "schedule scaled for cpu { }", sizes="symbolic", threads=1)
    assert "no directive makes vectors of s.i" in ops.scaled.explain(row(1600), row(1600)).splitlines()[1]


def test_lanes_over_the_parts_of_a_sum_of_open_length_run_side_by_side() -> None:
    text = "op total(x: f32[N]) -> (y: f32) { y = sum(k) x[k] }\nschedule total for cpu { rfactor k by 32\n vectorize y.part.k.in }"
    total = tl.parse(text, sizes="symbolic", threads=1).total
    assert "one after the other" not in total.explain(row(1600))
    assert [total(np.ones(n, np.float32)) for n in (0, 1, 31, 32, 33, 63, 65)] == [0, 1, 31, 32, 33, 63, 65]


# ---------------------------------------------------------------- its parts


@pytest.mark.parametrize(
    ("body", "need"),
    [
        ("y[0, i + 1] = y[0, i]", Need("y", (0, -1))),
        ("y[0, 2*i] = y[0, 2*i + 1]", "free"),
        ("y[0, i] = y[1, i]", "free"),
        ("y[0, 0] = y[0, 0] + x[0, i]", Need("y", (0, 0))),
        ("for j in 0 .. 8 { y[0, 8*i + j] = y[0, 8*i + j] * 2.0_f32 }", "free"),
        ("for j in 0 .. 8 { y[0, 8*i + j + 1] = y[0, 8*i + j] }", Need("y", (0, -1))),
        ("y[0, i // 2] = y[0, i // 2]", "unknown"),
    ],
)
def test_what_a_loop_carries(body: str, need: object) -> None:
    assert carried_by(loop(f"for i in 0 .. 8 {{\n{body}\n}}")) == need


def test_accumulators_are_counted_in_vectors() -> None:
    body = "for r in 0 .. 2 unroll 2 { for v in 0 .. 16 vector 16 { y[r, v] = y[r, v] + x[r, 16*k + v] } }"
    assert accumulators(loop(f"for k in 0 .. 4 {{\n{body}\n}}"), 16) == (2, 1.0)
    assert accumulators(loop("for k in 0 .. 4 { y[0, k] = x[0, k] }"), 16) is None


def test_accumulators_are_counted_of_all_lanes_around_their_loop() -> None:
    terms = "for k in 0 .. 4 {{ {sum} = {sum} + x[k, j] }}"
    own = loop(f"for j in 0 .. 64 vector 64 {{\nalloc s: f32[1] registers\n{terms.format(sum='s[0]')}\ny[0, j] = s[0]\n}}")
    shared = loop(f"for j in 0 .. 64 vector 64 {{ {terms.format(sum='y[0, 0]')} }}")
    assert accumulators(own.body[1], 16, (own,)) == (4, 2.0)
    assert accumulators(shared.body[0], 16, (shared,)) == (1, 2.0)


def test_how_far_neighbours_lie_apart() -> None:
    function = parse("func f()(x: f32[64, 32], out y: f32[64]) {\nfor i in 0 .. 64 { y[i] = x[i, 3] + x[i // 2, 0] }\n}\n")
    value = function.body[0].body[0].value
    assert (lane_distance(function, value.lhs, "i"), lane_distance(function, value.rhs, "i")) == (32, None)


def test_innermost_loops_count_by_how_often_they_run() -> None:
    text = (
        "for i in 0 .. 10 { if index(i) <= 8_i64 { for j in 0 .. 4 { y[i, j] = 0.0_f32 } } else { for k in 0 .. 2 { y[i, k] = 0.0_f32 } } }"
    )
    function = parse(f"func f()(out y: f32[10, 4]) {{\n{text}\n}}\n")
    assert [round(n.iterations) for n in innermost(function, {})] == [36, 2]


def test_spills_of_innermost_loops_are_counted() -> None:
    text = """.LBB0_1:                                # %loop1
                                        # =>This Loop Header: Depth=1
	vmovups	%zmm0, 64(%rsp)                 # 64-byte Spill
.LBB0_2:                                # %loop7
                                        #   Parent Loop BB0_1 Depth=1
                                        # =>  This Inner Loop Header: Depth=2
	vmovups	%zmm0, 64(%rsp)                 # 64-byte Spill
	movq	%rax, 8(%rsp)                   # 8-byte Spill
# %bb.3:                                # %loop7
                                        #   in Loop: Header=BB0_2 Depth=2
	vaddps	64(%rsp), %zmm1, %zmm1          # 64-byte Folded Reload
.LBB0_4:                                # %end
	vmovups	64(%rsp), %zmm1                 # 64-byte Reload
"""
    assert spills_of(inner_loops_of(text)) == (Spills("loop7", 1, 1),)


LOOP = """.LBB0_1:                                # %loop1
                                        # =>This Loop Header: Depth=1
	vaddps	%zmm0, %zmm0, %zmm0
.LBB0_2:                                # %loop7
                                        #   Parent Loop BB0_1 Depth=1
                                        # =>  This Inner Loop Header: Depth=2
CODE
	addq	$64, %rax                       # imm = 0x40
	cmpq	%rax, %rcx
	jl	.LBB0_2
# %bb.3:                                # %end
	vaddps	%zmm0, %zmm0, %zmm0
"""
LOOPS = {
    "	vfmadd231ps	(%rdi,%rax), %zmm1, %zmm0": "chain 4, loads 0.5, arithmetic 0.5",
    "	vfmadd231ps	(%rdi,%rax), %zmm1, %zmm0\n	vfmadd231ps	64(%rdi,%rax), %zmm1, %zmm2": "chain 4, loads 1, arithmetic 1",
    "	vmovups	(%rdi), %zmm0\n	vdivps	%zmm1, %zmm0, %zmm0\n	vmovups	%zmm0, (%rsi)": "arithmetic 6, stores 1, chain 1, loads 0.5",
    "	vpermps	%zmm3, %zmm1, %zmm2\n	vpermps	%zmm2, %zmm1, %zmm2": "shuffles 2, chain 1",
    "	vpermps	%zmm2, %zmm1, %zmm2": "chain 3, shuffles 1",
    "	vaddss	(%rdi,%rax), %xmm0, %xmm0\n	vmulss	%xmm1, %xmm0, %xmm0": "chain 8, arithmetic 1, loads 0.5",
    "	addq	%rdx, (%rdi,%rax)": "stores 1, chain 1, loads 0.5",
    "	movq	(%rdx), %rdx": "chain 5, loads 0.5",
    "	vmovups	%zmm3, %zmm4 {%k1}\n	vaddps	%zmm4, %zmm1, %zmm3": "chain 4, arithmetic 0.5",
    "	vmovups	%zmm3, %zmm4 {%k1} {z}\n	vaddps	%zmm5, %zmm4, %zmm6": "chain 1, arithmetic 0.5",
}


@pytest.mark.parametrize(("code", "parts"), LOOPS.items())
def test_what_an_iteration_takes_is_the_longest_of_its_units_and_of_what_waits_for_the_one_before(code: str, parts: str) -> None:
    [loop] = inner_loops_of(LOOP.replace("CODE", code))
    found = estimate("y.j", loop)
    assert found is not None
    assert {f"{what} {cycles:.3g}" for what, _, cycles in found.parts if what != "instructions"} == set(parts.split(", "))
    assert found.cycles == max(cycles for _, _, cycles in found.parts)


def test_the_registers_of_an_instruction_are_known_by_one_name() -> None:
    found = instruction_of("	movzbl	(%rdi,%r10), %eax               # comment")
    assert found is not None
    assert (found.reads, found.writes, found.loads, found.stores) == ({"rdi", "r10"}, {"rax"}, 1, 0)
    assert instruction_of("	xorl	%r9d, %r9d").reads == frozenset()  # type: ignore[union-attr]
    assert instruction_of(".LBB0_2:") is None and instruction_of("	.p2align	4") is None


def test_an_operator_is_told_what_an_iteration_of_its_loop_takes() -> None:
    ops = tl.parse(SCALED + SCHEDULE, threads=1)
    found = ops.scaled.explained(ops.scaled.call(row(1600), row(1600)))
    [cycles] = found.cycles
    assert cycles.loop == "s.o" and {"loads", "stores", "arithmetic"} <= {what for what, _, _ in cycles.parts}
    assert f"cycles     {cycles}" in found.text.splitlines()


MCA = """Iterations:        200
Total Cycles:      2024

Throughput Bottlenecks:
  Resource Pressure       [ 18.82% ]
  - SKXFPDivider  [ 18.82% ]
  - SKXPort0  [ 19.29% ]
  Data Dependencies:      [ 19.17% ]
  - Register Dependencies [ 1.17% ]
"""


def test_the_machine_code_analyser_is_asked_for_cycles_and_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def run(command: list[str], **options: Any) -> SimpleNamespace:
        asked.append((command, options["input"]))
        return SimpleNamespace(returncode=0, stdout=MCA, stderr="'zen9' is not a recognized processor for this target")

    monkeypatch.setattr("codegen.llvm.mca.subprocess.run", run)
    found = analysed(["	addq	$64, %rax    # imm", "	jl	.LBB0_2"], "zen9")
    assert found == Analysis(10.12, (("SKXPort0", 0.1929), ("SKXFPDivider", 0.1882)), False)
    assert "-mcpu=zen9" in asked[0][0] and asked[0][1].split() == ["addq", "$64,", "%rax", "jl", ".LBB0_2"]


def test_the_roofline_says_what_it_is_bound_by_in_one_line() -> None:
    work = Work(2_000_000, 500_000, 500_000)
    assert str(roofline_limit(Bound(1e-3, 1e-4, "L2"), work, 2e-3)).startswith("bound by compute: 1 of 2 GFLOP/s, 50% of the roofline")
    assert str(roofline_limit(Bound(1e-5, 1e-4, "L2"), work, 2e-4)).startswith("bound by memory (L2): 5 of 10 GB/s, 50% of the roofline")
    assert "nothing to do" in roofline_limit(Bound(0.0, 0.0, "L1"), replace(work, flops=0), 1e-6).reason


def test_schedules_of_roles_that_are_not_for_an_operator_are_named_on_request() -> None:
    tried = ("schedule role a for cpu: `x` does not hold", "schedule role b for cpu: refused: no", "schedule f for cpu: `y` does not hold")
    assert len(tried_lines(tried, roles=True)) == 3
    few = tried_lines(tried, roles=False)
    assert "role a" not in "".join(few) and "role b" in few[0] and "schedule f" in few[1] and "1 schedule of roles" in few[2]


def test_a_register_tile_of_too_many_rows_is_told_how_much_it_spills() -> None:
    text = "op product(a: f32[M, K], b: f32[K, N]) -> (c: f32[M, N]) { c[i, j] = sum(k) a[i, k] * b[k, j] }\n"
    text += "schedule product for cpu { split c.i by 40 -> io, ii\n split c.j by 16 -> jo, jv\n order c.jo, c.io, c.k, c.ii, c.jv\n"
    found = limits(text + "unroll c.ii\n vectorize c.jv }", np.ones((80, 64), np.float32), np.ones((64, 64), np.float32))
    assert any(line.startswith("c.k: each iteration stores ") and "vectors that find no register" in line for line in found)
