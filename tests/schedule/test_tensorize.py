"""`tensorize`: loops become an instruction where they compute what it is declared to compute, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from scheduled_programs import assert_same, declared, legal, loops, some_sizes, written

from codegen.dtypes import bf16, i8, u8
from codegen.features import FEATURES
from codegen.llvm.dot import FORMS
from codegen.loops.nodes import Dot
from codegen.loops.walk import walk
from stdlib.library import library, roles
from tensorlang.backends.cpu.driver import plan_kernel
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.policy.cpu.layouts import derive_layouts
from tensorlang.policy.machine import Machine
from tensorlang.runtime.library import rules_of
from tensorlang.schedule.check import proven
from tensorlang.schedule.directives.tensorize import form_of
from tensorlang.schedule.instructions import instruction
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.parse import parse
from tensorlang.tensor import notation
from tensorlang.tensor.interp import interpret

DOT = """instruction dot(c: f32[L], a: bf16[2], b: bf16[L, 2]) -> (d: f32[L]) for avx512bf16 {
    d[l] = c[l] + sum(r in 0..2) f32(a[r]) * f32(b[l, r])
}
"""
MATMUL = """op matmul(x: bf16[M, K], w: bf16[K, N]) -> (y: f32[M, N]) {
    y[i, j] = sum(k) f32(x[i, k]) * f32(w[k, j])
}
"""
TILED = """schedule matmul for cpu {
    split i by 3 -> io, ii
    split j by 8 -> jo, jt
    split k by 2 -> ko, kr
    pack w as [jo, ko, jt, kr]
    split jt by 4 -> ju, jv
    order jo, io, ko, ii, ju, jv, kr
    unroll ii, ju
    tensorize jv, kr with dot
}
"""


def dots(text: str) -> int:
    _, plan = legal(text)
    return sum(isinstance(n, Dot) for n in walk(*loops(plan).body))


def refused(text: str) -> str:
    found = written(text)
    with pytest.raises(CompileError) as error:
        proven(found.program, found.schedule)
    (diagnostic,) = error.value.diagnostics
    return diagnostic.title


def test_a_register_tile_of_dot_products_computes_the_product() -> None:
    found, plan = legal(DOT + MATMUL + TILED)
    for sizes in some_sizes(found.program):
        assert_same(found.program, plan, sizes)
    assert dots(DOT + MATMUL + TILED) >= 1


def test_the_rest_of_a_sum_is_computed_without_the_instruction() -> None:
    found, plan = legal(DOT + MATMUL + TILED)
    assert_same(found.program, plan, {"M": 4, "N": 9, "K": 5})
    assert_same(found.program, plan, {"M": 1, "N": 1, "K": 1})


def test_any_instruction_that_fits_is_taken_when_none_is_named() -> None:
    assert dots(DOT + MATMUL + TILED.replace(" with dot", "")) >= 1


def test_products_may_be_written_the_other_way_round() -> None:
    turned = MATMUL.replace("f32(x[i, k]) * f32(w[k, j])", "f32(w[k, j]) * f32(x[i, k])")
    assert dots(DOT + turned + TILED) >= 1


def test_a_schedule_as_a_value_names_the_instruction_itself() -> None:
    found = written(DOT + MATMUL + TILED)
    dot = instruction(found.module.operators["dot"])
    assert dot is not None
    schedule = (
        Schedule("matmul")
        .split("j", 16, ("jo", "jv"))
        .split("k", 2, ("ko", "kr"))
        .pack("w", ["jo", "ko", "jv", "kr"])
        .order("i", "jo", "ko", "jv", "kr")
        .tensorize("jv", "kr", by=dot)
    )
    assert str(schedule).endswith("tensorize jv, kr with dot\n}")
    assert_same(found.program, proven(found.program, schedule), {"M": 2, "N": 20, "K": 6})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("pack w as [jo, ko, jt, kr]", ""), "elements of `w` along `y.kr` are not next to each other"),
        (("pack w as [jo, ko, jt, kr]", "pack w as [jo, kr, jt, ko]"), "elements of `w` along `y.kr` are not next to each other"),
        (("pack w as [jo, ko, jt, kr]", "pack w as [jo, jt, ko, kr]"), "elements of `w` along `y.jv` are not next to each other"),
        (("by 2 -> ko, kr", "by 4 -> ko, kr"), "`y.kr` has 4 iterations, the instruction 2"),
        (("by 4 -> ju, jv", "by 3 -> ju, jv"), "`y.jv` has 3 iterations, the instruction a power of two"),
        (("ko, ii, ju, jv, kr", "ko, kr, ii, ju, jv"), "they are not the innermost loops, in this order"),
        (("f32(x[i, k])", "abs(f32(x[i, k]))"), "what is added is not a product of two elements"),
        (("sum(k)", "max(k)"), "what is added is not a product of two elements"),
        (("w: bf16", "w: f32"), "it multiplies bf16 with bf16, the sum bf16 with f32"),
        (("op matmul", "strict op matmul"), "the operator is strict, and the instruction adds in an order of its own"),
    ],
)
def test_loops_that_compute_anything_else_are_refused(change: tuple[str, str], why: str) -> None:
    text = (MATMUL + TILED).replace(*change)
    assert refused(DOT + text).endswith(f"cannot become `dot`: {why}")


def test_an_operand_that_every_lane_has_for_itself_is_not_one_that_all_share() -> None:
    text = MATMUL.replace("x: bf16[M, K]", "x: bf16[N, M, K]").replace("x[i, k]", "x[j, i, k]")
    assert refused(DOT + text + TILED).endswith("`x` is not the same for all of `y.jv`")


def test_an_instruction_means_its_equation_and_no_other() -> None:
    other = DOT.replace("c[l] + sum", "c[l] - sum")
    assert "not supported yet" in refused(other + MATMUL + TILED)
    assert "not supported yet" in refused(DOT.replace("bf16[", "f32[") + MATMUL + TILED)
    assert refused(MATMUL + TILED).startswith("there is no instruction `dot`")


def test_an_instruction_is_an_operator_that_can_be_run() -> None:
    found = instruction(library().operators["dot_u8i8"])
    assert found is not None and found.needs == ("avx512vnni",)
    c, a, b = np.array([7, -7], np.int32), np.array([1, 2, 3, 255], np.uint8), np.array([[1, 1, 1, -128], [0, 0, 0, 1]], np.int8)
    np.testing.assert_array_equal(interpret(found.program, {"L": 2}, {"c": c, "a": a, "b": b})["d"], [7 + 6 - 255 * 128, -7 + 255])


WITH_DOTS = Machine(target="cpu", dots=frozenset({(bf16, bf16), (u8, i8)}))
BYTES = """op bytes(x: u8[M, K], w: i8[K, N]) -> (y: i32[M, N]) {
    y[i, j] = sum(k) i32(x[i, k]) * i32(w[k, j])
}
"""
WINDOW = """op window(x: u8[1, 32, 6, 6], w: i8[32, 32, 3, 3]) -> (y: i32[1, 32, 6, 6]) {
    y[n, f, p, q] = sum(c, r, s) i32(x[n, c, p + r - 1, q + s - 1 | 0]) * i32(w[f, c, r, s])
}
"""


@pytest.mark.parametrize(("text", "sizes"), [(MATMUL, {"M": 9, "K": 11, "N": 40}), (BYTES, {"M": 5, "K": 12, "N": 33})])
def test_contractions_of_narrow_elements_are_dot_products_where_the_machine_has_them(text: str, sizes: dict[str, int]) -> None:
    module = load_module(parse(Source("narrow.tl", text)))
    program = declared(module, text.split("(")[0].split()[-1], **sizes)
    plan = plan_kernel(program, WITH_DOTS, rules=rules_of((roles(),))).plan
    assert any(isinstance(n, Dot) for n in walk(*loops(plan).body))
    assert_same(program, plan, {})
    wide = plan_kernel(program, Machine(target="cpu"), rules=rules_of((roles(),))).plan
    assert not any(isinstance(n, Dot) for n in walk(*loops(wide).body))


def test_constant_operands_of_dot_products_are_stored_in_groups() -> None:
    program = declared(load_module(parse(Source("narrow.tl", WINDOW))), "window", M=1)
    wanted = derive_layouts(program, WITH_DOTS, {}, frozenset({"w"}))
    assert [notation.show(d) for d in wanted["w"].dims][-1].endswith("% 4")
    plan = plan_kernel(program, WITH_DOTS, layouts=wanted, constants=frozenset({"w"}), rules=rules_of((roles(),))).plan
    assert any(isinstance(n, Dot) for n in walk(*loops(plan).body))


def test_every_instruction_of_the_library_is_a_sum_that_the_compiler_knows() -> None:
    found = [instruction(operator) for operator in library().instructions.values()]
    assert len(found) >= 6
    assert all(i is not None and form_of(i) is not None for i in found)


def test_an_instruction_may_call_functions_of_its_file() -> None:
    assert dots("fn wide(x) = f32(x)\n" + DOT.replace("f32(a", "wide(a").replace("f32(b", "wide(b") + MATMUL + TILED) >= 1


def mistakes(text: str) -> list[str]:
    with pytest.raises(CompileError) as error:
        written(text)
    return [d.title for d in error.value.diagnostics]


def test_an_instruction_with_a_mistake_is_told_by_its_mistake() -> None:
    two = DOT.replace("-> (d: f32[L])", "-> (d: f32[L], e: f32[L])")
    assert mistakes(two + MATMUL + TILED) == ["result `e` is never defined"]


def test_an_operator_that_is_named_is_called_an_operator() -> None:
    assert mistakes(DOT.replace("instruction", "op").replace(" for avx512bf16", "") + MATMUL + TILED) == [
        "`dot` is an operator, not an instruction"
    ]


def test_an_instruction_of_no_processor_is_refused() -> None:
    assert mistakes(DOT.replace("avx512bf16", "avx9000") + MATMUL + TILED) == ["there is no feature `avx9000` of processors"]


def test_every_feature_that_the_emitter_asks_for_may_be_declared() -> None:
    assert {need for form in FORMS for need in form.needs} <= set(FEATURES)


@pytest.mark.parametrize("mark", ["unroll kr", "vectorize kr", "parallel jv", "unroll jv", "vectorize jv"])
def test_a_loop_of_an_instruction_runs_in_no_other_way(mark: str) -> None:
    loop = mark.split()[1]
    assert refused(DOT + MATMUL + TILED.replace("with dot\n", f"with dot\n    {mark}\n")).startswith(f"`y.{loop}` is tensorized already")


def test_loops_of_a_copy_that_change_afterwards_are_refused() -> None:
    text = TILED.replace(
        "    tensorize jv, kr with dot\n", "    tensorize `w.pack.ko`, `w.pack.ji` with dot\n    split `w.pack.ji` by 2 -> a, b\n"
    )
    assert refused(DOT + MATMUL + text).endswith("they have been changed since")


def test_a_loop_that_ran_in_another_way_is_not_tensorized() -> None:
    assert refused(DOT + MATMUL + TILED.replace("    tensorize", "    unroll kr\n    tensorize")).startswith("`y.kr` is unrolled already")
