"""Schedules of operators that call kernels: each directive is one of the part that it is about, and the call is a barrier."""

from __future__ import annotations

import extern_kernels as kernels
import numpy as np
import pytest

import tensorlang as tl
from tensorlang.diagnostics import InternalError
from tensorlang.runtime.operator import Operator
from tensorlang.runtime.specialization import Sizes
from tensorlang.schedule.schedule import Schedule
from tensorlang.tensor import segments as cut

TEXT = """
extern op scale(x: f32[N], attr by: float = 2) -> (y: f32[N])
op around(x: f32[N]) -> (y: f32[N]) {
    a[i] = x[i] + 1
    b = scale(a, by=3)
    c[j] = b[j] * b[j]
    y[j] = c[j] + a[j]
}
"""
SCALED = {"scale": tl.llvm_ir(kernels.scale("scale"), "scale")}
X = np.arange(40, dtype=np.float32)
EXPECTED = 9 * (X + 1) ** 2 + X + 1


def around(schedule: str = "", sizes: Sizes = "static") -> Operator:
    return tl.parse(TEXT + schedule, externs=SCALED, sizes=sizes).around


def parts_told(operator: Operator) -> list[str]:
    """Return what is reported of each part."""
    return operator.explain(X).split("part ")[1:]


@pytest.mark.parametrize("sizes", ["static", "symbolic"])
def test_directives_go_to_the_part_whose_loops_they_name(sizes: Sizes) -> None:
    operator = around(
        "schedule around for cpu {\n split a.i by 8 -> o, l\n vectorize a.l\n inline c\n split y.j by 4 -> o, l\n unroll y.l\n}", sizes
    )
    np.testing.assert_array_equal(operator(X), EXPECTED)
    first, second = parts_told(operator)
    assert "split a.i by 8" in first and "vectorize a.l" in first and "inline" not in first
    assert "inline c" in second and "unroll y.l" in second and "vectorize" not in second
    assert "schedule   schedule around for cpu" in first


def test_a_part_that_no_directive_is_about_has_a_derived_schedule() -> None:
    first, second = parts_told(around().schedule("split y.j by 8 -> o, l"))
    assert "schedule   given" in second and "split y.j by 8" in second
    assert "schedule   derived" in first


def test_names_of_loops_that_a_directive_gives_may_be_used_by_those_behind_it() -> None:
    operator = around().schedule("split y.j by 8 -> o, l\nsplit o by 2 -> oo, oi\nunroll oi\nat c at oo")
    np.testing.assert_array_equal(operator(X), EXPECTED)
    assert "at c at oo" in parts_told(operator)[1]


def test_a_tensor_that_a_kernel_made_is_copied_where_it_is_read() -> None:
    operator = around().schedule("split y.j by 8 -> o, l\npack a at o")
    np.testing.assert_array_equal(operator(X), EXPECTED)
    assert "pack a at o" in parts_told(operator)[1]


def test_a_schedule_from_python_is_divided_the_same_way() -> None:
    made = Schedule("around").split("a.i", 8, into=("o", "l")).vectorize("a.l").unroll("y.j")
    np.testing.assert_array_equal(around().schedule(made)(X), EXPECTED)


def test_knobs_of_a_schedule_reach_the_part() -> None:
    operator = around().schedule("knobs B in {4, 8}\nsplit y.j by B -> o, l", B=8)
    assert "split y.j by 8" in parts_told(operator)[1]
    np.testing.assert_array_equal(operator(X), EXPECTED)


def test_conditions_of_a_schedule_see_the_sizes_of_the_operator() -> None:
    text = "schedule around for cpu(N >= 1000) { unroll a.i }\nschedule around for cpu { split a.i by 4 -> o, l\n unroll y.j if N <= 3 }"
    first, second = parts_told(around(text))
    assert "split a.i by 4" in first and "unroll" not in second


def refusal(schedule: str) -> tuple[str, str]:
    with pytest.raises(tl.CompileError) as found:
        around().schedule(schedule)(X)
    return found.value.diagnostics[0].code, str(found.value)


@pytest.mark.parametrize("schedule", ["fuse a.i, y.j -> k", "order a.i, y.j", "at a at y.j", "together a, y -> k"])
def test_a_directive_that_reaches_across_a_call_is_refused(schedule: str) -> None:
    code, told = refusal(schedule)
    assert code == "S0605" and "reaches across the call of a kernel" in told and "`scale`" in told


@pytest.mark.parametrize(
    ("schedule", "code", "said"),
    [
        ("vectorize q", "S0103", "a.i, c.j, y.j"),
        ("vectorize j", "S0104", "c.j"),
        ("swizzle a.i", "S0101", "no directive"),
        ("unroll b", "S0103", "there is no loop `b`"),
        ("inline a", "S0", "read behind the call of a kernel"),
        ("split a.i by 0 -> o, l", "S0", ""),
        ("order c.j, a.q", "S0103", "no loop `a.q`"),
    ],
)
def test_what_no_part_can_do_is_refused_with_its_code(schedule: str, code: str, said: str) -> None:
    found, told = refusal(schedule)
    assert found.startswith(code) and said in told


def test_a_bare_name_that_two_parts_have_is_refused() -> None:
    text = TEXT.replace("[j]", "[i]")
    with pytest.raises(tl.CompileError, match=r"S0104.*`i` could be `a\.i` or"):
        tl.parse(text, externs=SCALED).around.schedule("vectorize i")(X)


def test_an_illegal_schedule_of_a_part_is_refused_by_its_proof() -> None:
    text = "extern op scale(x: f32[N], attr by: float = 2) -> (y: f32[N])\n"
    text += "op f(x: f32[N]) -> (y: f32[N]) {\n a = scale(x)\n y[i] = a[i] for i == 0\n y[i] = y[i - 1] + a[i] for i > 0\n}"
    with pytest.raises(tl.CompileError, match="S03"):
        tl.parse(text, externs=SCALED).f.schedule("reverse y.i")(X)


def test_proofs_and_stages_are_those_of_the_written_schedule() -> None:
    operator, seen = around().schedule("split y.j by 8 -> o, l"), dict[str, str]()
    operator.stages(X, dump=lambda stage, text: seen.update({stage: text}))
    assert "split y.j by 8" in seen["schedule"]
    assert "proven of `around`" in operator.proofs(X) and "trusted: extern scale" in operator.proofs(X)


def test_segments_that_would_read_what_is_not_there_are_no_program() -> None:
    program = around().program(X)
    made = cut.segments(program)
    with pytest.raises(InternalError, match="before it is computed"):
        cut._check_order(program, tuple(reversed(made)))
    with pytest.raises(InternalError, match="not cut into all"):
        cut._check_order(program, made[:1])
