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
from codegen.loops.nodes import If, Prefetch
from codegen.loops.printer import show, show_stmt
from codegen.loops.walk import walk
from tensorlang.backends.cpu.driver import loops_of
from tensorlang.diagnostics import CompileError
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
    return {re.sub(r"(line|y_k|y_io)(_\d+)+", r"\1", show_stmt(node)) for node in walk(*function.body) if isinstance(node, Prefetch)}


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
    last = re.sub(r"(32\*)(y_jo|b_pack_jo)", r"\1(N // 32)", expected).replace("y_jo", "N // 32").replace("4*y_io", "4*(M // 4)")
    assert asked_for(directives, dtype) == {expected, last}


def test_the_processor_gets_one_instruction_for_each_line() -> None:
    found, _ = scheduled(f"{PACKED}\n    prefetch b at y.k by 8")
    program = declared(found.module, "matmul", M=4, K=64, N=32)
    function = loops(proven(program, found.schedule))
    assert show(function).count("prefetch") == 1
    text = assembly(emit(function, named("x86-64-v4")), named("x86-64-v4"))
    assert text.count("prefetcht0") == 2


@pytest.mark.parametrize("distance", [1, 1000000])
def test_asking_for_what_lies_outside_changes_nothing(distance: int) -> None:
    found, plan = scheduled(f"{PACKED}\n    parallel jo\n    prefetch b at y.k by {distance}\n    prefetch a at io by {distance}")
    lowered, rng = loops_of(plan, "kernel"), np.random.default_rng(1)
    for m, k, n in ((1, 2, 1), (7, 8, 7), (5, 9, 35)):
        arrays = {"a": small(rng, (m, k), np.float32), "b": small(rng, (k, n), np.float32)}
        assert differs(found.program, lowered, {"M": m, "K": k, "N": n}, arrays, natively=True, close=0.0) == ""


def test_lanes_and_unknown_tensors_are_refused() -> None:
    for directive, why in (("prefetch b at jv by 1", "lanes of one vector"), ("prefetch q at y.k by 1", "no tensor of this operator")):
        with pytest.raises(CompileError, match=why):
            scheduled(directive)


FIXED = MATMUL.replace("T[M, K]", "T[64, 96]").replace("T[K, N]", "T[96, 128]").replace("T[M, N]", "T[64, 128]")


def _asks(node: If) -> bool:
    return any(isinstance(inner, Prefetch) for inner in walk(*node.then))


def shares(directives: str, source: str = FIXED, **sizes: str) -> set[str]:
    """Return what asks for a share, with the condition under which it asks."""
    for name, value in sizes.items():
        source = source.replace(name, value)
    function = loops(legal(source.replace("DIRECTIVES", directives).replace("T[", "f32["))[1])
    return {
        re.sub(r"(line|y_k|y_io)(_\d+)+", r"\1", " ".join(show_stmt(node).split()))
        for node in walk(*function.body)
        if isinstance(node, If) and _asks(node) and not any(isinstance(inner, If) and _asks(inner) for inner in walk(*node.then))
    } or {re.sub(r"(line|y_k|y_io)(_\d+)+", r"\1", show_stmt(node)) for node in walk(*function.body) if isinstance(node, Prefetch)}


def test_a_share_of_what_the_next_iteration_reads_is_asked_for_in_every_so_many_iterations_inside() -> None:
    """16 blocks of rows by 96 iterations of k for 96 rows of two lines: every sixteenth asks for one row."""
    [found] = shares(f"{PACKED}\n    prefetch b at jo by 1 in y.k")
    assert found == (
        "if index(y_k % 16) == 0_i64 { for line in 0 .. 2 unroll 2 { prefetch b_pack[y_jo + 1, 6*y_io + y_k // 16, 16*line] locality 3 } }"
    )


def test_iterations_that_are_left_over_ask_for_nothing() -> None:
    [found] = shares(f"{PACKED}\n    prefetch b at jo by 1 in y.k", **{"T[64": "T[40"})
    assert "y_k % 8) == 0_i64 and index(96*y_io + y_k) < 768_i64" in found


def test_few_iterations_ask_for_several_rows_each() -> None:
    assert shares(f"{PACKED}\n    prefetch b at jo by 1 in io") == {"prefetch b_pack[y_jo + 1, 6*y_io + line, 16*line] locality 3"}


def test_the_innermost_of_several_loops_shares() -> None:
    assert shares("prefetch b at jo by 1 in io, y.k") == shares("prefetch b at jo by 1 in y.k")


def test_every_line_of_the_next_iteration_is_asked_for_once() -> None:
    """The iterations of one block of columns ask, together, for each row of the next."""
    [text] = shares(f"{PACKED}\n    prefetch b at jo by 1 in y.k", **{"T[64": "T[40"})
    period, last = map(int, re.findall(r"% (\d+)\) == 0_i64 and index\(96\*y_io \+ y_k\) < (\d+)_i64", text)[0])
    asked = [(96 * io + k) // period for io in range(10) for k in range(96) if k % period == 0 and 96 * io + k < last]
    assert asked == list(range(96))


def test_nothing_is_asked_for_at_distance_nought() -> None:
    assert asked_for("prefetch b at jo by 0 in y.k") == asked_for("prefetch b at jo by 0") == set()


@pytest.mark.parametrize(
    ("directive", "why"),
    [
        ("prefetch b at jo by 1 in jv", "lanes of one vector"),
        ("prefetch b at y.k by 1 in io", "no loop that is to share it runs inside `y.k`"),
        ("prefetch b at jo by 0-1 in io", "earlier"),
    ],
)
def test_shares_that_no_loop_can_take_are_refused(directive: str, why: str) -> None:
    with pytest.raises(CompileError, match=re.escape(why)):
        shares(directive)


def test_shares_of_iterations_that_are_counted_at_run_time_are_refused() -> None:
    with pytest.raises(CompileError, match="only known at run time"):
        scheduled("prefetch b at jo by 1 in y.k")


def test_where_it_is_open_how_many_rows_there_are_the_first_of_them_ask_for_all() -> None:
    for text in shares(f"{PACKED}\n    prefetch b at jo by 1 in y.k", **{"T[64": "T[M"}):
        assert "index(y_io) == 0_i64" in text or "index(M // 4) == 0_i64" in text
        assert "prefetch b_pack[y_jo + 1, y_k, 16*line]" in text


@pytest.mark.parametrize(("m", "k", "n"), [(5, 3, 70), (70, 5, 33), (6, 20, 100)])
def test_shares_change_nothing(m: int, k: int, n: int) -> None:
    source = MATMUL.replace("T[M, K]", f"f32[{m}, {k}]").replace("T[K, N]", f"f32[{k}, {n}]").replace("T[M, N]", f"f32[{m}, {n}]")
    found, plan = legal(source.replace("DIRECTIVES", f"{PACKED}\n    parallel jo\n    prefetch b at jo by 1 in y.k"))
    rng = np.random.default_rng(n)
    arrays = {"a": small(rng, (m, k), np.float32), "b": small(rng, (k, n), np.float32)}
    assert differs(found.program, loops_of(plan, "kernel"), {}, arrays, natively=True, close=0.0) == ""
