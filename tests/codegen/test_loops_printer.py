import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from loops_strategies import exprs, functions, indices

from codegen.dtypes import f32, f64
from codegen.errors import InternalError
from codegen.loops import parser
from codegen.loops.nodes import Add, Const, Expr, For, Function, Index, Int, Mul, Unary, Var
from codegen.loops.notes import (
    KINDS,
    AnyOrder,
    Begins,
    Clustered,
    Edge,
    Kept,
    Multicast,
    Partitioned,
    Persistent,
    Specialized,
    Staged,
    Streamed,
    read,
)
from codegen.loops.parser import parse, parse_expr, parse_index
from codegen.loops.printer import KEYWORDS, show, show_expr, show_index
from codegen.loops.simplify import simplify

MATMUL = """\
func matmul(M, N)(a: f32[M, 8], b: f32[8, N], out c: f32[M, N] align 64) {
    require index(N) >= 1_i64 else 2
    for io in 0 .. (M + 3) // 4 parallel {
        alloc acc: f32[4, 16] registers
        for ii in 0 .. min(4, M - 4*io) unroll 4 {
            for j in 0 .. 16 vector 16 {
                acc[ii, j] = fma(a[4*io + ii, 0], b[0, j], 0.0_f32)
            }
        }
        prefetch b[0, 16] locality 2
        if index(io) == 0_i64 {
            let x = select(a[0, 0] < b[0, 0], -inf_f32, nan_f32)
            c[0, 0] = x stream
        }
    }
}
"""


def test_the_notation_is_read_and_written_the_same_way() -> None:
    assert show(parse(MATMUL)) == MATMUL


@settings(max_examples=150, deadline=None)
@given(functions())
def test_every_function_survives_its_text(function: Function) -> None:
    assert parse(show(function)) == function


@settings(max_examples=150, deadline=None)
@given(exprs)
def test_every_value_survives_its_text(e: Expr) -> None:
    assert parse_expr(show_expr(e)) == e


@settings(max_examples=150, deadline=None)
@given(indices)
def test_every_index_survives_its_text(e: Index) -> None:
    assert parse_index(show_index(e)) == e


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (Add(Var("N"), Mul(Int(-16), Var("jo"))), "N - 16*jo"),
        (Add(Var("N"), Int(-3)), "N - 3"),
        (Add(Var("N"), Mul(Int(-1), Add(Var("i"), Int(1)))), "N - (i + 1)"),
        (Add(Add(Mul(Int(32), Var("io")), Var("ii")), Int(1)), "32*io + ii + 1"),
        (Add(Var("i"), Add(Var("j"), Int(1))), "i + (j + 1)"),
    ],
)
def test_index_arithmetic_reads_like_mathematics(e: Index, text: str) -> None:
    assert show_index(e) == text


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (Const(0.1, f64), "0.1_f64"),
        (Const(1 / 3, f64), "0x1.5555555555555p-2_f64"),
        (Const(-0.0, f32), "-0.0_f32"),
        (Unary("neg", Const(0.0, f32)), "-(0.0_f32)"),
        (Const(float("-inf"), f32), "-inf_f32"),
    ],
)
def test_literals_are_exact(e: Expr, text: str) -> None:
    assert show_expr(e) == text
    assert parse_expr(text) == e


def test_constants_are_equal_when_their_bits_are() -> None:
    assert Const(0.0, f32) != Const(-0.0, f32)
    assert Const(float("nan"), f32) == Const(float("nan"), f32)
    assert len({Const(0.0, f32), Const(-0.0, f32), Const(0, f32)}) == 2


def test_every_kind_of_note_is_drawn_and_survives_its_text() -> None:
    kept = {"stages": Staged(3, boxes=True), "specialized": Specialized((40, 232)), "persistent": Persistent(132), "cluster": Clustered(2)}
    kept |= {"edge": Edge("zfill"), "kept": Kept("shared"), "multicast": Multicast(), "streamed": Streamed()}
    kept |= {"partition": Partitioned(), "begins": Begins("y"), "any_order": AnyOrder()}
    assert kept.keys() == KINDS.keys()
    assert [read(word, note.parts) for word, note in kept.items()] == list(kept.values())
    assert str(kept["stages"]) == "stages 3 boxes" and str(kept["specialized"]) == "specialized 40 232"


@pytest.mark.parametrize("note", ["stages", "stages boxes", "stages 2 boxed", "hurried 2", "multicast 2", "persistent 1 2"])
def test_what_is_the_text_of_no_note_is_refused(note: str) -> None:
    with pytest.raises(InternalError, match=r"note|followed by"):
        parse(f"func f()() {{\n    for i in 0 .. 4 ({note}) {{}}\n}}\n")


def test_who_asks_makes_no_note_differ_and_is_kept_by_passes() -> None:
    function = parse("func f(N)(out c: f32[4]) { for i in 0 .. N { c[i % 4 + 0] = 1.0_f32 } }")
    (loop,) = function.body
    assert isinstance(loop, For)
    asked = replace(loop, notes=(Staged(2, origin="here"),))
    assert asked == replace(loop, notes=(Staged(2),)) != loop
    (kept,) = simplify(replace(function, body=(asked,))).body
    assert isinstance(kept, For) and [note.origin for note in kept.notes] == ["here"]


def test_bad_text_is_refused_with_its_place() -> None:
    with pytest.raises(InternalError, match="line 2, column 21"):
        parse("func f()() {\n    let x = 1_i64 + }\n")


def test_the_printer_quotes_every_word_of_the_grammar() -> None:
    grammar = Path(parser.__file__).with_name("loops.lark").read_text()
    words = set(re.findall(r'"\.?([a-z]+)"', grammar))
    assert words <= KEYWORDS
