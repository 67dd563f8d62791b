"""What is shown parses back; what is formatted says the same, keeps every comment, and stays as it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import strategies_syntax as trees
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tensorlang.diagnostics import CompileError, Source
from tensorlang.syntax.format import WIDTH, fmt
from tensorlang.syntax.nodes import Binary, File, Id, Index, Number, Pack, Reduction, TupleOf, Unary
from tensorlang.syntax.parse import parse, parse_expr
from tensorlang.syntax.printer import show
from tensorlang.syntax.scanner import scan

PROGRAMS = sorted((Path(__file__).parents[1] / "programs").glob("*.tl"))
thorough = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def read(text: str) -> File:
    return parse(Source("t.tl", text))


def expression(text: str):
    return parse_expr(Source("t.tl", text))


def writable(file: File) -> str:
    """Return the text of a generated file, unless it nests too deeply to be accepted."""
    text = show(file)
    try:
        read(text)
    except CompileError as problem:
        assume(not any(d.code == "P014" for d in problem.diagnostics))
    return text


@thorough
@given(trees.files)
def test_every_tree_parses_back_from_its_text_and_from_its_layout_which_settles_at_once(file):
    text = writable(file)
    once = fmt(Source("t.tl", text))
    assert read(text) == read(once) == file
    assert fmt(Source("t.tl", once)) == once


@thorough
@given(st.data())
def test_formatting_loses_no_comment(data):
    text = data.draw(trees.scattered(writable(data.draw(trees.files))))
    once = fmt(Source("t.tl", text))
    assert comments(once) == comments(text)
    assert read(once) == read(text)
    assert fmt(Source("t.tl", once)) == once


@pytest.mark.parametrize("head", ["instruction lift[x: T]", "op yield"])
def test_a_long_operator_may_be_called_as_a_word_that_begins_a_line(head: str) -> None:
    params = ", ".join(f"parameter_{k}: f32[N]" for k in range(8))
    text = f"{head}({params}) -> (y: f32[N]){' for x' if head.startswith('i') else ''} {{\n}}\n"
    assert fmt(Source("t.tl", text)).startswith(f"{head}(parameter_0") and read(fmt(Source("t.tl", text))) == read(text)


def comments(text: str) -> Counter[str]:
    return Counter(comment.text for comment in scan(Source("t.tl", text)).comments)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_each_program_parses_prints_and_is_laid_out_canonically(path):
    text = path.read_text("utf-8")
    file = read(text)
    assert file.declarations
    assert read(show(file)) == file
    assert fmt(Source(path.name, text)) == text


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_no_line_of_a_formatted_program_is_too_wide(path):
    assert all(len(line.split("  #")[0]) <= WIDTH for line in fmt(Source(path.name, path.read_text("utf-8"))).split("\n"))


# ---------------------------------------------------------------- what the grammar means

a, b, c, k, n = Id("a"), Id("b"), Id("c"), Id("k"), Id("n")
MEANINGS = {
    "sum(k) a / n": Binary("/", Reduction("sum", (), (k,), a), n),
    "sum(k) a * b": Reduction("sum", (), (k,), Binary("*", a, b)),
    "sum(k) a + b": Binary("+", Reduction("sum", (), (k,), a), b),
    "a * sum(k) b * c": Binary("*", a, Reduction("sum", (), (k,), Binary("*", b, c))),
    "(a * sum(k) b) * c": Binary("*", Binary("*", a, Reduction("sum", (), (k,), b)), c),
    "a / sum(k) b / c": Binary("/", Binary("/", a, Reduction("sum", (), (k,), b)), c),
    "sum(k) a / sum(k) b": Binary("/", Reduction("sum", (), (k,), a), Reduction("sum", (), (k,), b)),
    "sum(k) sum(n) a * b": Reduction("sum", (), (k,), Reduction("sum", (), (n,), Binary("*", a, b))),
    "-sum(k) a": Unary("-", Reduction("sum", (), (k,), a)),
    "-a * b": Binary("*", Unary("-", a), b),
    "a - b - c": Binary("-", Binary("-", a, b), c),
    "a or b and c": Binary("or", a, Binary("and", b, c)),
    "a[(b + 1).. | 0]": Index("a", (Pack(Binary("+", b, Number("1"))),), Number("0")),
    "a[(b..)]": Index("a", (TupleOf((Pack(b),)),)),
    "`p.m`": Id("p.m"),
}


@pytest.mark.parametrize("text", MEANINGS)
def test_operators_bind_as_documented(text):
    assert expression(text) == MEANINGS[text]
    assert expression(show(MEANINGS[text])) == MEANINGS[text]


@pytest.mark.parametrize("reducer", ["max", "min"])
def test_a_product_under_max_or_min_is_shown_in_parentheses(reducer):
    assert show(expression(f"{reducer}(k) a * b")) == f"{reducer}(k) (a * b)"
    assert show(expression("sum(k) a * b")) == "sum(k) a * b"


# ---------------------------------------------------------------- newlines

ONE_LINE = "op f(x: f32[N]) -> (y: f32[N]) {\n    y[i] = x[i] + 1   for i in 0..N, i > 2\n}\n"
BROKEN = {
    "after an operator": "op f(x: f32[N]) -> (y: f32[N]) {\n y[i] = x[i] +\n 1 for i in 0..N, i > 2\n}",
    "before an operator": "op f(x: f32[N]) -> (y: f32[N]) {\n y[i] = x[i]\n\n # why\n + 1 for i in 0..N, i > 2\n}",
    "after `=`": "op f(x: f32[N]) -> (y: f32[N]) {\n y[i] =\n x[i] + 1 for i in 0..N, i > 2\n}",
    "before `for`": "op f(x: f32[N]) -> (y: f32[N]) {\n y[i] = x[i] + 1\n for i in 0..N, i > 2\n}",
    "after `for`, `in` and a comma": "op f(x: f32[N]) -> (y: f32[N]) {\n y[i] = x[i] + 1 for\n i in\n 0..N,\n i > 2\n}",
    "inside brackets": "op f(\n x: f32[\nN]\n) -> (\ny: f32[N]) {\n y[\ni\n] = x[i\n] + 1 for i in 0..N, i > 2\n}",
    "before `->` and `{`": "op f(x: f32[N])\n -> (y: f32[N])\n{\n y[i] = x[i] + 1 for i in 0..N, i > 2 }",
    "with tabs and carriage returns": "op f(x: f32[N]) -> (y: f32[N]) {\r\n\ty[i] = x[i] + 1 for i in 0..N, i > 2\r\n}\r\n",
    "nowhere": "op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] + 1 for i in 0..N, i > 2 }",
}


@pytest.mark.parametrize("where", BROKEN)
def test_a_line_may_end(where):
    assert read(BROKEN[where]) == read(ONE_LINE)
    assert show(read(BROKEN[where])) == ONE_LINE


# ---------------------------------------------------------------- layout

UGLY = """\
# about f
op f[T](x:T[D.., N])->(y:T[D..,N]){ # header


m[d..]=max(j)x[d..,j]  # the greatest

# differences
e[d..,j]=exp(x[d..,j]
   # stands inside
   -m[d..])
y[d.., j] = e[d.., j]/sum(k)e[d..,k] for j in 1..N - 1
y[d.., j] = 0 otherwise
# last
}
fn sq(x)=x*x
fn id(x)=x # same
"""
PRETTY = """\
# about f
op f[T](x: T[D.., N]) -> (y: T[D.., N]) {
    # header

    m[d..] = max(j) x[d.., j]  # the greatest

    # differences
    # stands inside
    e[d.., j] = exp(x[d.., j] - m[d..])
    y[d.., j] = e[d.., j] / sum(k) e[d.., k]   for j in 1..N-1
    y[d.., j] = 0                              otherwise
    # last
}

fn sq(x) = x * x
fn id(x) = x  # same
"""


def test_a_text_is_laid_out_in_columns_with_its_comments():
    assert fmt(Source("t.tl", UGLY)) == PRETTY
    assert fmt(Source("t.tl", PRETTY)) == PRETTY


def test_many_names_that_are_used_stand_below_each_other():
    names = [f"a_name_of_something_{k}" for k in range(9)]
    text = f"use std.norm ({', '.join(names)})\n"
    laid_out = fmt(Source("t.tl", text))
    assert laid_out == f"use std.norm ({', '.join(names[:4])},\n{' ' * 14}{', '.join(names[4:8])},\n{' ' * 14}{names[8]})\n"
    assert read(laid_out) == read(text)


def test_long_functions_may_be_called_like_the_parts_of_reducers():
    text = f"fn yield(lift) = {' + '.join(['lift'] * 30)}\n"
    laid_out = fmt(Source("t.tl", text))
    assert laid_out.startswith("fn yield(lift) =\n    lift + ")
    assert read(laid_out) == read(text)


BOUND = """op f(x: f32[N], w: f32[N], b: f32[N]) -> (y: f32[N]) {
    y[i] = let weighted = x[i] * w[i] + b[i] in
           let other = max(weighted, b[i]) in
           if weighted > 0 and other > w[i] then weighted - other
           else let squared = x[i] * x[i] in squared + other
}

fn bend(x, alpha, beta) =
    let inner = alpha*x + beta * x * x * x in
    let outer = inner*alpha + inner * inner * beta in
    if outer > 0 then outer
    else outer * alpha
"""


def test_what_is_bound_for_an_if_stands_line_by_line_where_one_line_is_too_short():
    assert fmt(Source("t.tl", BOUND)) == BOUND
    assert fmt(Source("t.tl", BOUND.replace("in\n", "in ").replace("\n           ", " "))) == BOUND
