"""`prefetch` asks for the lines that a loop reads some iterations later, each once, and changes no result."""

from __future__ import annotations

import re

import numpy as np
import pytest
from schedule_trial import differs
from scheduled_programs import declared, legal, loops, small

from codegen.llvm.emit import emit
from codegen.llvm.jit import assembly
from codegen.llvm.target import named
from codegen.loops.nodes import Prefetch
from codegen.loops.printer import show, show_stmt
from codegen.loops.walk import walk
from tensorlang.diagnostics import CompileError
from tensorlang.driver import loops_of
from tensorlang.schedule.check import proven

MATMUL = """op matmul(a: T[M, K], b: T[K, N]) -> (y: T[M, N]) {
    y[i, j] = sum(k) a[i, k] * b[k, j]
}
schedule matmul for cpu {
    split y.i by 4 -> io, ii
    split y.j by 32 -> jo, jt
    split jt by 16 -> ju, jv
    order jo, io, y.k, ii, ju, jv
    unroll ii, ju
    vectorize jv
    DIRECTIVES
}"""
PACKED = "pack b as [jo, k, j % 32]"


def scheduled(directives: str, dtype: str = "f32"):
    return legal(MATMUL.replace("DIRECTIVES", directives).replace("T[", f"{dtype}["))


def asked_for(directives: str, dtype: str = "f32") -> set[str]:
    """Return the prefetches that a schedule makes, numbers of lines without their digits."""
    function = loops(scheduled(directives, dtype)[1])
    return {re.sub(r"line_\d+", "line", show_stmt(node)) for node in walk(*function.body) if isinstance(node, Prefetch)}


@pytest.mark.parametrize(
    ("directives", "dtype", "expected"),
    [
        ("prefetch b at y.k by 4", "f32", "prefetch b[y_k + 4, 32*y_jo + 16*line] locality 3"),
        (f"{PACKED}\n    prefetch b at y.k by 8", "f32", "prefetch b_pack[y_jo, y_k + 8, 16*line] locality 3"),
        (f"{PACKED}\n    prefetch b at y.k by 8", "f16", "prefetch b_pack[y_jo, y_k + 8, 0] locality 3"),
        (f"{PACKED}\n    prefetch b at b.pack.k by 2", "f32", "prefetch b[b_pack_k + 2, 32*b_pack_jo + 16*line] locality 3"),
        ("prefetch a at io by 1", "f32", "prefetch a[4*y_io + line + 4, 16*line] locality 3"),
    ],
)
def test_the_lines_of_the_box_that_is_read_later(directives: str, dtype: str, expected: str) -> None:
    assert asked_for(directives, dtype) == {expected}


def test_the_processor_gets_one_instruction_for_each_line() -> None:
    found, _ = scheduled(f"{PACKED}\n    prefetch b at y.k by 8")
    program = declared(found.module, "matmul", M=4, K=64, N=32)
    function = loops(proven(program, found.schedule))
    assert show(function).count("prefetch") == 1
    text = assembly(emit(function, named("x86-64-v4")), named("x86-64-v4"))
    assert text.count("prefetcht0") == 2


@pytest.mark.parametrize("n", [1, 7, 70])
@pytest.mark.parametrize("distance", [1, 1000000])
def test_asking_for_what_lies_outside_changes_nothing(n: int, distance: int) -> None:
    found, plan = scheduled(f"{PACKED}\n    parallel jo\n    prefetch b at y.k by {distance}\n    prefetch a at io by {distance}")
    rng = np.random.default_rng(n)
    arrays = {"a": small(rng, (n, n + 1), np.float32), "b": small(rng, (n + 1, n), np.float32)}
    sizes = {"M": n, "K": n + 1, "N": n}
    assert differs(found.program, loops_of(plan, "kernel"), sizes, arrays, natively=True, close=0.0) == ""


def test_lanes_and_unknown_tensors_are_refused() -> None:
    for directive, why in (("prefetch b at jv by 1", "lanes of one vector"), ("prefetch q at y.k by 1", "no tensor of this operator")):
        with pytest.raises(CompileError, match=why):
            scheduled(directive)
