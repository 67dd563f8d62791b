"""Sums over a number of copies that is known at run time only: one loop for each number, the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from llvm_run import run_native

from codegen.llvm.target import host
from codegen.loops.interp import run
from codegen.loops.nodes import For, Function, If, Int
from codegen.loops.parser import parse
from codegen.loops.promote import promote_accumulators
from codegen.loops.simplify import simplify
from codegen.loops.unswitch import unswitch
from codegen.loops.verify import verify
from codegen.loops.walk import walk

PRODUCT = """
func f(M, K)(a: f32[M, K], b: f32[K, 16], out y: f32[M, 16]) {
    for io in 0 .. (M + 3) // 4 {
        for k in 0 .. K {
            for ii in 0 .. min(4, M - 4*io) unroll 4 {
                for j in 0 .. 16 vector 16 {
                    y[4*io + ii, j] = fma(a[4*io + ii, k], b[k, j], y[4*io + ii, j])
                }
            }
        }
    }
}
"""
COPIES_IN_A_SUM = """
func f(M, K)(a: f32[M, K], out y: f32[M]) {
    for k in 0 .. K {
        for ii in 0 .. min(4, M - k) unroll 4 {
            y[ii] = y[ii] + a[ii, k]
        }
    }
}
"""


WINDOW = """
func f(M)(x: f32[M + 2, 16], w: f32[3], out y: f32[M, 16]) {
    for io in 0 .. (M + 3) // 4 {
        for r in 0 .. 3 unroll 3 {
            for ii in 0 .. min(4, M - 4*io) unroll 4 {
                for j in 0 .. 16 vector 16 {
                    y[4*io + ii, j] = fma(x[4*io + ii + r, j], w[r], y[4*io + ii, j])
                }
            }
        }
    }
}
"""


COLUMNS = """
func f(M, N, K)(a: f32[M, K], b: f32[K, N], out y: f32[M, N]) {
    for io in 0 .. (M + 7) // 8 {
        for jo in 0 .. (N + 47) // 48 {
            for k in 0 .. K {
                for ii in 0 .. min(8, M - 8*io) unroll 8 {
                    for ju in 0 .. min(3, (N + 15) // 16 - 3*jo) unroll 3 {
                        for jv in 0 .. min(16, N - 48*jo - 16*ju) vector 16 {
                            y[8*io + ii, 48*jo + 16*ju + jv] =
                                fma(a[8*io + ii, k], b[k, 48*jo + 16*ju + jv], y[8*io + ii, 48*jo + 16*ju + jv])
                        }
                    }
                }
            }
        }
    }
}
"""


def unswitched(text: str) -> Function:
    function = simplify(parse(text))
    made = simplify(unswitch(function))
    verify(made)
    return made


def open_copies(function: Function) -> list[For]:
    return [n for n in walk(*function.body) if isinstance(n, For) and n.kind == "unroll" and not isinstance(n.hi, Int)]


def test_the_number_of_copies_is_known_inside_a_sum() -> None:
    made = unswitched(PRODUCT)
    assert open_copies(simplify(parse(PRODUCT))) and not open_copies(made)
    assert sorted(n.hi.value for n in walk(*made.body) if isinstance(n, For) and n.kind == "unroll" and isinstance(n.hi, Int)) == [2, 3, 4]


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 5, 7, 8, 11])
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_every_number_of_rows_computes_the_same_bits(rows: int, steps: int) -> None:
    rng = np.random.default_rng(rows)
    given = {n: rng.standard_normal(s).astype(np.float32) for n, s in {"a": (rows, steps), "b": (steps, 16), "y": (rows, 16)}.items()}
    found = []
    for function in (simplify(parse(PRODUCT)), unswitched(PRODUCT)):
        arrays = {name: array.copy() for name, array in given.items()}
        assert run(function, {"M": rows, "K": steps}, arrays) == 0
        found.append(arrays["y"])
    arrays = {name: array.copy() for name, array in given.items()}
    assert run_native(promote_accumulators(unswitched(PRODUCT)), {"M": rows, "K": steps}, arrays, host()) == 0
    assert_same_bits(*found)
    assert_same_bits(found[0], arrays["y"])


def test_the_number_of_copies_is_known_inside_a_sum_whose_steps_are_unrolled() -> None:
    made = unswitched(WINDOW)
    assert open_copies(simplify(parse(WINDOW))) and not open_copies(made)
    rng = np.random.default_rng(1)
    for rows in (0, 1, 3, 4, 6, 9):
        arrays = {n: rng.standard_normal(s).astype(np.float32) for n, s in {"x": (rows + 2, 16), "w": (3,), "y": (rows, 16)}.items()}
        expected, found = ({name: array.copy() for name, array in arrays.items()} for _ in range(2))
        assert run(simplify(parse(WINDOW)), {"M": rows}, expected) == 0
        assert run_native(promote_accumulators(made), {"M": rows}, found, host()) == 0
        assert_same_bits(expected["y"], found["y"])


def test_a_number_that_changes_during_the_sum_is_asked_for_in_every_step() -> None:
    assert not any(isinstance(n, If) for n in walk(*unswitched(COPIES_IN_A_SUM).body))
    assert open_copies(unswitched(COPIES_IN_A_SUM))


def test_loops_that_sum_nothing_are_left_alone() -> None:
    text = PRODUCT.replace("fma(a[4*io + ii, k], b[k, j], y[4*io + ii, j])", "b[k, j]").replace("y[4*io + ii, j] =", "y[k, j] =")
    function = simplify(parse(text.replace("out y: f32[M, 16]", "out y: f32[K, 16]")))
    assert unswitch(function) == function


def test_copies_count_for_how_large_a_function_may_get(monkeypatch: pytest.MonkeyPatch) -> None:
    function = simplify(parse(PRODUCT))
    monkeypatch.setattr("codegen.loops.unswitch.MOST_NODES", sum(1 for _ in walk(*unswitch(function).body)))
    assert unswitch(function) == function, "each sum of two rows and more is written row by row"


WIDER = COLUMNS.replace("+ 47) // 48", "+ 127) // 128").replace("48*jo", "128*jo").replace("min(3,", "min(8,").replace("3*jo", "8*jo")
WIDER = WIDER.replace("unroll 3", "unroll 8")


@pytest.mark.parametrize(("text", "counts"), [(COLUMNS, {3}), (WIDER, {2, 4, 8})], ids=["of three", "of eight"])
def test_of_copies_without_lanes_there_are_all_or_half_as_many_and_so_on_down_to_one(text: str, counts: set[int]) -> None:
    made = unswitched(text)
    assert not open_copies(made)
    assert {n.hi.value for n in walk(*made.body) if isinstance(n, For) and n.var == "ju" and isinstance(n.hi, Int)} == counts
    assert open_copies(unswitched(text.replace("16*ju) vector", "15*ju) vector"))), "lanes of copies that are not there would run"


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        *((COLUMNS, sizes) for sizes in ((0, 5, 3), (1, 1, 4), (3, 16, 2), (7, 17, 5), (8, 32, 1), (9, 33, 3), (10, 48, 0), (11, 64, 3))),
        *((WIDER, (2, columns, 2)) for columns in (16, 33, 65, 145)),
    ],
)
def test_any_number_of_such_copies_computes_the_same_bits(text: str, sizes: tuple[int, int, int]) -> None:
    rows, columns, steps = sizes
    rng = np.random.default_rng(1)
    shapes = {"a": (rows, steps), "b": (steps, columns), "y": (rows, columns)}
    given = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    expected, found = ({name: array.copy() for name, array in given.items()} for _ in range(2))
    known = {"M": rows, "N": columns, "K": steps}
    assert run(simplify(parse(text)), known, expected) == 0
    assert run_native(promote_accumulators(unswitched(text)), known, found, host()) == 0
    assert_same_bits(expected["y"], found["y"])
