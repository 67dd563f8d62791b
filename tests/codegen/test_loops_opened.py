"""Loops for sizes that are numbers, as part of a function of open sizes: the same memory, and addresses that know the numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest
from llvm_run import check

from codegen.dtypes import i64
from codegen.llvm.emit import emit
from codegen.llvm.target import named
from codegen.loops.nodes import Binary, Compare, Const, Function, If, IndexValue, Var
from codegen.loops.opened import opened
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.verify import verify


def joined(params: str, known: Mapping[str, int], part: str, body: str) -> Function | None:
    """Return a function of the sizes M and D with these parameters that does nothing but run `body`, over the parameters `part`, where the
    sizes in `known` are these numbers."""
    whole = parse(f"func f(M, D)({params}) {{}}")
    own = ", ".join(name for name in ("M", "D") if name not in known)
    made = opened(parse(f"func f({own})({part}) {{ {body} }}"), whole, known)
    if made is None:
        return None
    terms = [Compare("==", IndexValue(Var(name)), Const(n, i64)) for name, n in known.items()]
    function = Function("f", whole.sizes, whole.params, (If(terms[0] if len(terms) == 1 else Binary("and", *terms), made),), frozenset("y"))
    verify(function)
    return function


OPEN = "x: f32[M, D], out y: f32[M, D]"
DOUBLED = "for i in 0 .. M {{ for v in 0 .. {0} vector {0} {{ y[{1}] = 2.0_f32 * x[{1}] }} }}"


def text_of(function: Function | None) -> str:
    assert function is not None
    return show(function)


def test_merged_axes_are_places_in_rows() -> None:
    made = text_of(joined(OPEN, {"D": 3}, "x: f32[3*M], out y: f32[3*M]", DOUBLED.format(3, "3*i + v")))
    assert "y[(3*i + v) // 3, (3*i + v) % 3]" in made


def test_an_axis_of_one_element_is_at_its_first() -> None:
    made = text_of(joined("x: f32[M, D, M], out y: f32[M, M, D]", {"D": 1}, "x: f32[M, M], out y: f32[M, M]", DOUBLED.format(4, "i, v")))
    assert "y[i, v, 0] = 2.0_f32 * x[i, 0, v]" in made


def test_what_has_the_same_shape_stays() -> None:
    made = text_of(joined(OPEN, {"D": 3}, "x: f32[M, 3], out y: f32[M, 3]", DOUBLED.format(3, "i, v")))
    assert "y[i, v] = 2.0_f32 * x[i, v]" in made


@pytest.mark.parametrize("part", ["x: f32[M, 3], out y: f32[M, 3]", "x: f32[3*M], out y: f32[3*M]"])
def test_rows_begin_in_no_parameter_that_has_them_as_long_as_is_known(part: str) -> None:
    shape = part.rpartition("f32")[2].strip("[]")
    assert "begins" not in text_of(joined(OPEN, {"D": 3}, part, f"alloc u: f32[2, {shape}] heap (begins y)"))


@pytest.mark.parametrize("part", ["x: f32[4*M], out y: f32[4*M]", "x: f32[M], out y: f32[M]", "z: f32[3*M], out y: f32[3*M]"])
def test_other_memory_is_refused(part: str) -> None:
    assert joined(OPEN, {"D": 3}, part, "for i in 0 .. M { y[i] = 0.0_f32 }") is None


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_the_same_elements_are_read_and_written(rows: int) -> None:
    made = text_of(joined(OPEN, {"D": 3}, "x: f32[3*M], out y: f32[3*M]", DOUBLED.format(3, "3*i + v")))
    x = np.arange(3.0 * rows, dtype=np.float32).reshape(rows, 3)
    assert np.array_equal(check(made, sizes={"M": rows, "D": 3}, x=x, y=np.zeros_like(x))["y"], 2 * x)


@pytest.mark.parametrize("part", ["x: f32[3*M], out y: f32[3*M]", "x: f32[M, 3], out y: f32[M, 3]"])
def test_rows_are_as_long_as_is_known(part: str) -> None:
    place = "48*i + 3*v + d" if "3*M" in part else "16*i + v, d"
    rows = f"for v in 0 .. 16 vector 16 {{ y[{place}] = 2.0_f32 * x[{place}] }}"
    made = joined(OPEN, {"D": 3}, part, f"for i in 0 .. M // 16 {{ for d in 0 .. 3 unroll 3 {{ {rows} }} }}")
    written = emit(parse(text_of(made)), named("x86-64-v4"))
    assert len(re.findall(r"load <16 x float>", written)) == len(re.findall(r"store <16 x float>", written)) == 3
    x = np.arange(96.0, dtype=np.float32).reshape(32, 3)
    assert np.array_equal(check(text_of(made), sizes={"M": 32, "D": 3}, x=x, y=np.zeros_like(x))["y"], 2 * x)


def test_a_size_is_open_again_behind_the_condition() -> None:
    text = "func f(M, D)(x: f32[M, D], out y: f32[M, D]) { if index(D) == 3_i64 { y[1, 0] = x[1, 2] } y[0, 1] = x[1, 1] }"
    x = np.arange(8.0, dtype=np.float32).reshape(2, 4)
    check(text, sizes={"M": 2, "D": 4}, x=x, y=np.zeros_like(x))
    check(text, sizes={"M": 2, "D": 3}, x=x[:, :3].copy(), y=np.zeros((2, 3), np.float32))
