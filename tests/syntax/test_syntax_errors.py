"""Every wrong program is told what is wrong with it, and where; no text makes the parser fail otherwise."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from golden_case import cases, expected, source
from hypothesis import given, settings
from hypothesis import strategies as st
from work_done import calls_made

from tensorlang.diagnostics import CompileError, Source
from tensorlang.syntax.parse import MAX_BYTES, MAX_DEPTH, decode, load, parse
from tensorlang.syntax.printer import show

ROOT = Path(__file__).parents[2]
CASES = cases("bad_syntax")
PROGRAMS = sorted((ROOT / "tests" / "programs").glob("*.tl"))


def read(text: str) -> CompileError:
    with pytest.raises(CompileError) as problem:
        parse(Source("t.tl", text))
    return problem.value


def codes(problem: CompileError) -> list[str]:
    return [diagnostic.code for diagnostic in problem.diagnostics]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_each_wrong_program_is_explained(path, golden_case):
    with pytest.raises(CompileError) as problem:
        parse(Source(path.name, source(path)))
    golden_case(path, f"{problem.value}\n")


@pytest.mark.parametrize("sign", ["**", "<<", "&&"])
def test_a_sign_of_another_language_among_operators_is_one_mistake(sign: str) -> None:
    problem = read(f"op f(x: f32[N]) -> (y: f32[N]) {{\n    y[i] = 2 - (x[i] + 1) {sign} 2 {sign} 3 - 1\n}}\n")
    assert set(codes(problem)) == {"P003"}


def test_a_mistake_in_one_declaration_does_not_hide_those_in_the_next():
    text = "op f(x: f32[N]) -> (y: f32[N]) {\n    y[i] = (x[i]\n\nop g(x: f32) -> (y: f32) {\n    y = x +\n}\nfn h(x) = x y\n"
    assert codes(read(text)) == ["P005", "P009", "P010"]


def test_a_misread_character_is_one_mistake_only():
    assert codes(read("fn f(x) = x @ ) 2")) == ["P001"]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "x" + ")" * 5000,
        "-" * 5000 + "x",
        "not " * 5000 + "x",
        "sum(k) " * 5000 + "x",
        "if a then b else " * 5000 + "x",
        "let a = b in " * 5000 + "x",
        "f(" * 5000 + "x" + ")" * 5000,
        "x[" * 5000 + "x" + "]" * 5000,
    ],
    ids=lambda text: text[:8].strip(),
)
def test_deep_nesting_ends_in_a_diagnostic(text):
    try:
        parse(Source("t.tl", f"fn f(x) = {text}"))
    except CompileError as problem:
        assert codes(problem) == ["P014"]
    else:
        assert text.startswith("((((")  # parentheses alone make no node


@pytest.mark.parametrize("op", ["+", "*", "and", "//"])
def test_operators_in_a_row_are_no_nesting(op):
    text = f"fn f(x) = x{f' {op} x' * 5000}\n"
    file = parse(Source("t.tl", text))
    assert show(file) == text and file == parse(Source("t.tl", text))


def test_more_operators_in_a_row_than_anybody_waits_for_end_in_a_diagnostic():
    problem = read(f"fn f(x) = x{' + x' * 10_001}")
    assert codes(problem) == ["P014"] and "10000" in problem.diagnostics[0].notes[0]


@pytest.mark.parametrize("text", ["op f(x: f32) -> (y: f32) {{\n{}}}", "schedule f for cpu {{\n{}}}"])
def test_more_lines_in_a_declaration_than_anybody_waits_for_end_in_a_diagnostic(text):
    problem = read(text.format("y = x\n" * 10_002 if "op" in text else "reverse i\n" * 10_002))
    assert codes(problem) == ["P033"] and "the limit is 10000" in problem.diagnostics[0].notes[0]


def test_reductions_in_a_long_product_keep_their_bodies():
    text = f"fn f(x) = {'(sum(k) x) * ' * 40}sum(k) x * y\n"
    file = parse(Source("t.tl", text))
    assert parse(Source("t.tl", show(file))) == file


def test_what_the_depth_limit_admits_can_be_shown_and_compared():
    text = "fn f(x) = " + "-(x + " * (MAX_DEPTH // 2 - 2) + "x" + ")" * (MAX_DEPTH // 2 - 2)
    assert parse(Source("t.tl", text)) == parse(Source("t.tl", text))


WORDS = (
    "op fn for in let if then else otherwise and or not attr size each where from broadcast extern knobs reducer ordered schedule "
    "tactic role lift yield by at x y N sum f32 0 1 2.5 .5 1. 1e .. ... ( ) [ ] { } , : ; = == -> + - * / // % < <= | || ** ` `a` `` "
    '" "t" # \n \n\n \t \\ @ é \u2212 \u00a0 \x0c \x7f 🙂'
)
soup = st.lists(st.sampled_from(WORDS.split(" ")), max_size=40)


@settings(max_examples=400, deadline=None)
@given(soup.map(" ".join) | soup.map("".join) | st.text(max_size=40))
def test_any_text_is_read_or_explained(text):
    explained_or_read(text)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_damage_to_a_program_is_read_or_explained(data):
    text = data.draw(st.sampled_from(PROGRAMS)).read_text("utf-8")
    start = data.draw(st.integers(0, len(text) - 1))
    explained_or_read(
        text[:start] + data.draw(st.sampled_from(["", " ", "(", ")", "}", "\n", "=", "..", ",", "x", "1"])) + text[start + 1 :]
    )


def explained_or_read(text: str) -> None:
    source = Source("t.tl", text)
    try:
        parse(source)
    except CompileError as problem:
        assert problem.diagnostics
        for diagnostic in problem.diagnostics:
            assert re.fullmatch(r"P\d\d\d", diagnostic.code)
            assert diagnostic.labels and all(0 <= label.span.start <= label.span.end <= len(text) for label in diagnostic.labels)
        assert str(problem)


# ---------------------------------------------------------------- files


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CompileError, match=r"error\[P020\]: cannot read `.*absent.tl`: no such file or directory"):
        load(tmp_path / "absent.tl")


def test_a_directory_is_no_program(tmp_path):
    with pytest.raises(CompileError, match=r"error\[P021\]: `.*` is a directory"):
        load(tmp_path)


def test_a_huge_file_is_refused(tmp_path):
    path = tmp_path / "huge.tl"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(CompileError, match=r"error\[P022\]: `.*huge.tl` is too large"):
        load(path)


def test_bytes_that_are_no_utf8_are_pointed_at():
    with pytest.raises(CompileError) as problem:
        decode(b"fn f(x) = x\nfn g(x) = \xff", "t.tl")
    assert str(problem.value) == (
        "error[P023]: `t.tl` is not UTF-8\n --> t.tl:2:11\n  |\n2 | fn g(x) = \ufffd\n  |           ^ byte 0xff\n"
        "  = help: save the file as UTF-8"
    )


def test_a_nul_byte_is_pointed_at():
    assert codes(read("fn f(x) = \0")) == ["P024"]


def test_a_byte_order_mark_and_windows_line_ends_are_no_mistake(tmp_path):
    path = tmp_path / "dos.tl"
    path.write_bytes(b"\xef\xbb\xbffn f(x) = x\r\nfn g(x) = x\r\n")
    assert len(parse(load(path)).declarations) == 2


# ---------------------------------------------------------------- work


def test_the_work_of_parsing_grows_with_the_lines_alone():
    text = "\n".join(path.read_text("utf-8") for path in PROGRAMS)
    text *= 1000 // text.count("\n")
    parse(Source("t.tl", "fn f(x) = x"))
    once, twice = (calls_made(lambda n=n: parse(Source("t.tl", text * n))) for n in (1, 2))
    assert once < 1500 * text.count("\n")
    assert twice < 2.1 * once


# ---------------------------------------------------------------- docs/errors.md

ENTRY = re.compile(r"^### (P\d\d\d) .*?(?=^### |^## |\Z)", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^```tl\n(.*?)^```", re.MULTILINE | re.DOTALL)


def entries() -> dict[str, str]:
    text = (ROOT / "docs" / "errors.md").read_text("utf-8")
    return {match.group(1): match.group() for match in ENTRY.finditer(text)}


def raised() -> set[str]:
    """Every P code written in the source."""
    found = set()
    for path in (ROOT / "tensorlang" / "syntax").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"P\d\d\d", node.value):
                found.add(node.value)
    return found


def test_every_code_has_an_entry_and_every_entry_a_code():
    assert set(entries()) == raised()


@pytest.mark.parametrize("code", sorted(raised() - {"P020", "P021", "P022", "P023", "P024", "P033"}))
def test_the_example_of_a_code_gives_that_code(code):
    examples = EXAMPLE.findall(entries()[code])
    assert examples
    for example in examples:
        assert codes(read(example)) == [code]


def test_every_code_of_the_grammar_has_a_wrong_program():
    explained = {code for path in CASES for code in re.findall(r"error\[(P\d\d\d)\]", expected(path))}
    assert explained == raised() - {"P020", "P021", "P022", "P023", "P024", "P033"}
