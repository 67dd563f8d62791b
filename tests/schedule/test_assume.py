"""`assume`: a schedule may rely on what it says of sizes, because a kernel checks that before it does anything else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scheduled_programs import assert_same, legal, loops, written
from usual_device import device_loops, device_text

import tensorlang as tl
from codegen.errors import InternalError
from codegen.gpu import emulator
from codegen.loops.nodes import For, Require
from codegen.loops.printer import show
from codegen.loops.walk import walk
from tensorlang.backends.cpu.driver import loops_of
from tensorlang.diagnostics import CompileError, RunError
from tensorlang.lower.bounds import prove_bounds
from tensorlang.schedule.check import proven

TEXT = "op f(x: f32[N, M]) -> (y: f32[N, M]) { y[i, j] = 2 * x[i, j] + x[i, 0] }\n"
ROWS = "split j by 8 -> jo, ji\norder i, jo, ji\nvectorize ji"
HISTORY = "op g(x: f32[N]) -> (y: f32[N]) {\n    t[i] = 2 * x[i]\n    y[i] = t[N - 1 - i]\n}\n"


def scheduled(text: str, directives: str, target: str = "cpu") -> str:
    return f"{text}schedule {text[3]} for {target} {{\n{directives}\n}}\n"


def refusal(text: str, directives: str) -> str:
    with pytest.raises(CompileError) as refused:
        found = written(scheduled(text, directives))
        proven(found.program, found.schedule)
    return str(refused.value)


def test_what_is_assumed_is_checked_first_and_leaves_no_remainder():
    _, plain = legal(scheduled(TEXT, ROWS))
    found, plan = legal(scheduled(TEXT, f"assume M % 8 == 0\n{ROWS}"))
    function = loops(plan)
    assert isinstance(function.body[0], Require) and "require index(M % 8) == 0_i64 else 1" in show(function)
    vectors = [sum(isinstance(n, For) and n.kind == "vector" for n in walk(*loops(p).body)) for p in (plain, plan)]
    assert vectors == [2, 1]
    for sizes in ({"N": 3, "M": 16}, {"N": 1, "M": 8}, {"N": 2, "M": 0}):
        assert_same(found.program, plan, sizes)


def test_sizes_that_break_it_are_refused_when_called_and_others_are_not():
    operator = tl.parse(TEXT, sizes="symbolic", threads=1).f.schedule(f"assume M % 8 == 0, N >= 2\n{ROWS}")
    for shape in ((2, 8), (5, 24)):
        np.testing.assert_array_equal(operator(np.ones(shape, np.float32)), np.full(shape, 3, np.float32))
    for shape in ((2, 12), (1, 8), (0, 16)):
        with pytest.raises(RunError) as refused:
            operator(np.ones(shape, np.float32))
        (problem,) = refused.value.diagnostics
        assert (problem.code, problem.title) == ("R0306", "`f` cannot go on with these sizes")
        assert problem.notes == ("its schedule says `assume M % 8 == 0, N >= 2`, and that does not hold",)


def test_sizes_known_when_compiling_are_numbers_in_it():
    operator = tl.parse(TEXT, threads=1).f.schedule(f"assume M % 8 == 0\n{ROWS}")
    wide = np.ones((3, 16), np.float32)
    assert float(operator(wide).sum()) == 144
    assert "# `assume 16 % 8 == 0` changes nothing: it holds for all sizes that there are" in operator.explain(wide)
    with pytest.raises(CompileError) as refused:
        operator(np.ones((3, 12), np.float32))
    (problem,) = refused.value.diagnostics
    assert (problem.code, problem.title) == ("S0229", "`assume 12 % 8 == 0` does not hold for the sizes of this operator")


def test_a_fold_that_is_wrong_for_large_sizes_is_legal_where_they_are_not_served():
    assert "error[S0308]" in refusal(HISTORY, "fold t at i by 4")
    assert "error[S0308]" in refusal(HISTORY, "assume N <= 5\nfold t at i by 4")
    found, plan = legal(scheduled(HISTORY, "assume N <= 4\nfold t at i by 4"))
    for n in range(5):
        assert_same(found.program, plan, {"N": n})
    operator = tl.parse(HISTORY, sizes="symbolic", threads=1).g.schedule("assume N <= 4\nfold t at i by 4")
    assert operator(np.arange(4, dtype=np.float32)).tolist() == [6, 4, 2, 0]
    with pytest.raises(RunError, match="assume N <= 4"):
        operator(np.arange(5, dtype=np.float32))


def test_blocks_of_a_device_do_nothing_where_it_does_not_hold():
    directives = "assume M % 8 == 0\nsplit j by 8 -> jo, ji\norder i, jo, ji\nbind i, jo, ji to block.y, block.x, thread.x"
    found, plan = legal(scheduled(TEXT, directives, "cuda"))
    kernels = device_text(device_loops(plan, "kernel", schedule=found.schedule))
    for columns, code in ((16, 0), (12, 1)):
        x, y = np.ones((2, columns), np.float32), np.full((2, columns), 7, np.float32)
        assert emulator.run(kernels, {"N": 2, "M": columns}, {"x": x, "y": y}, outputs=("y",)) == code
        assert np.isnan(y).all() if code else (y == 3).all()  # the emulator hands out memory that is not set


@pytest.mark.parametrize(("target", "bound"), [("cpu", ""), ("cuda", "\nbind i to block.x")])
def test_loops_are_proven_to_stay_in_bounds_by_the_check_and_by_nothing_else(target: str, bound: str):
    _, plan = legal(scheduled(TEXT, f"assume M >= 8\npeel j by 8{bound}", target))
    lowered = (loops_of if target == "cpu" else device_loops)(plan, "kernel")
    check, *rest = lowered.function.body
    assert any(isinstance(n, Require) for n in walk(check))
    with pytest.raises(InternalError, match="is not proven not to lie beyond"):
        prove_bounds(replace(lowered.function, body=tuple(rest)), lowered.given)


@pytest.mark.parametrize(
    ("directive", "said"),
    [
        ("assume K % 8 == 0", "`K` is no size of this operator"),
        ("assume M", "`M` compares no sizes"),
        ("assume M * N >= 8", "`M * N` multiplies two sizes"),
        ("assume M % 8 == 0 by 4", "it is about conditions alone"),
        ("assume", "it is about conditions alone"),
    ],
)
def test_what_is_no_condition_of_sizes_is_refused(directive: str, said: str):
    assert f"error[S0102]: `assume` cannot be read: {said}" in refusal(TEXT, directive)


@pytest.mark.parametrize("directives", ["assume M < 0", "assume M >= 8\nassume M < 8"])
def test_what_holds_for_no_sizes_is_refused(directives: str):
    assert "error[S0229]" in refusal(TEXT, directives)
