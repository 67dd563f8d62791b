"""However absurd a program is, it is checked or refused: no traceback, and no refusal without a place."""

from __future__ import annotations

import random
import re

import pytest
from checking import PROGRAMS, load

from tensorlang.check.definition import check_module
from tensorlang.diagnostics import CompileError, Diagnostic, Source
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.parse import parse

TOKEN = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|\.\.|[-+*/%=<>!]+|[^\s\w]|\s+")


def operators() -> list[str]:
    """Return the operators of the program files, each with all functions and reducers of its file."""
    out = []
    for name in ("tour_operators.tl", "library_operators.tl"):
        text = (PROGRAMS / name).read_text("utf-8")
        declarations = parse(Source(name, text)).declarations
        shared = "\n".join(text[d.span.start : d.span.end] for d in declarations if isinstance(d, sx.ScalarFunction | sx.Reducer))
        out += [f"{text[d.span.start : d.span.end]}\n{shared}" for d in declarations if isinstance(d, sx.Operator)]
    return out


OPERATORS = operators()


def mutated(source: random.Random) -> str:
    """Return an operator with a token lost, replaced by another of its kind, repeated or moved."""
    tokens = TOKEN.findall(source.choice(OPERATORS))
    at = source.randrange(len(tokens))
    match source.randrange(4):
        case 0:
            del tokens[at]
        case 1:
            tokens.insert(at, source.choice(tokens))
        case 2:
            other = source.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        case _:
            alike = [t for t in tokens if t.isidentifier() == tokens[at].isidentifier() and t.strip()]
            tokens[at] = source.choice(alike)
    return "".join(tokens)


def refusals(text: str) -> list[Diagnostic] | None:
    """Return what the checker says; None where the parser refuses already."""
    try:
        parse(Source("mutant.tl", text))
    except CompileError:
        return None
    try:
        return check_module(load(text))
    except CompileError as problem:
        return list(problem.diagnostics)


@pytest.mark.parametrize("seed", range(6))
def test_a_mutated_program_is_checked_or_refused_at_a_place(seed: int) -> None:
    source = random.Random(seed)
    checked = 0
    while checked < 40:
        found = refusals(mutated(source))
        checked += found is not None
        for problem in found or []:
            assert problem.labels, problem


ABSURD = {
    "a number of a thousand digits": f"op f(x: f32[N]) -> (y: f32[N]) {{ y[i] = x[i] * {'9' * 1000} }}",
    "an index of a thousand digits": f"op f(x: f32[N]) -> (y: f32[N]) {{ y[i] = x[i + {'9' * 1000} | 0] }}",
    "a size beyond all memory": f"op f(x: f32[N]) -> (y: f32[{10**30}]) {{ y[i] = 0 }}",
    "a power that does not fit": "op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] * pow(10, 1000000000) }",
    "a divisor of zero": "op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i // 0] }",
    "a shift beyond all bits": "op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] + shl(1, 100000) }",
    "a pack of itself": "op f(x: f32[D..]) -> (y: f32[D[D]..]) { y[d..] = 0 }",
    "a shape of its own result": "op f(x: f32[N]) -> (y: f32[y]) { y[i] = 0 }",
    "a tensor that only needs itself": "op f(x: f32[N]) -> (y: f32[N]) {\n t[i] = t[i]\n y[i] = x[i]\n}",
    "no parameters at all": "op f() -> (y: f32) { y = 1 }",
    "an empty body": "op f(x: f32[N]) -> (y: f32[N]) { }",
    "a reduction of nothing": "op f(x: f32[N]) -> (y: f32[N]) { y[i] = sum() x[i] }",
    "a cast of a tuple": "op f(x: f32[N]) -> (y: f32[N]) { y[i] = f32((x[i], x[i])) }",
    "a condition in a shape": "op f(x: f32[N]) -> (y: f32[if N > 3 then 1 else 2]) { y[i] = 0 }",
}


@pytest.mark.parametrize("text", ABSURD.values(), ids=ABSURD.keys())
def test_absurd_programs_are_refused_or_harmless(text: str) -> None:
    for problem in refusals(text) or []:
        assert problem.labels, problem
