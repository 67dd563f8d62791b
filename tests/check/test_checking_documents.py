"""docs/language-checking.md and docs/errors-check.md: every program checks or is refused as the page says, every Python line holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checking import load, run

from codegen.dtypes import DTYPES
from tensorlang.check.definition import check_module
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.diagnostics import CompileError, Diagnostic, render

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "language-checking.md").read_text("utf-8")
ERRORS = (ROOT / "docs" / "errors-check.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\S+)(?: (\S+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^### ([TR]\d{4}) .*?(?=^##|\Z)", re.MULTILINE | re.DOTALL)


def blocks(text: str, kind: str) -> list[tuple[str, str]]:
    return [(note, body) for found, note, body in BLOCK.findall(text) if found == kind]


def problems(text: str) -> list[Diagnostic]:
    try:
        return check_module(load(text))
    except CompileError as problem:
        return list(problem.diagnostics)


@pytest.mark.parametrize("text", [body for _, body in blocks(PAGE, "tl")])
def test_programs_of_the_page_are_right_for_all_sizes(text: str) -> None:
    assert [render(d) for d in problems(text)] == []


@pytest.mark.parametrize(("code", "text"), blocks(PAGE, "tl-wrong"))
def test_wrong_programs_of_the_page_are_refused_with_their_code(code: str, text: str) -> None:
    assert [d.code for d in problems(text)] == [code]


def run_text(text: str, *arrays: Any, **attrs: Any) -> Any:
    module = load(text)
    return run(module, next(reversed([n for n in module.operators if n in module.declared])), *arrays, **attrs)


@pytest.mark.parametrize("text", [body for _, body in blocks(PAGE, "python")])
def test_python_lines_of_the_page_hold(text: str) -> None:
    exec(text, {"np": np, "run": run_text})


class Types:
    """`f32[2, 3]` in a call of the error page."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getitem__(self, shape: Any) -> ArgType:
        return ArgType(DTYPES[self.name], shape if isinstance(shape, tuple) else (shape,))


def refused_call(program: str, call: str) -> list[str]:
    """Return the codes with which `f(x, …, attr=…, sizes={…})` is refused."""
    module = load(program)

    def invoke(*args: Any, sizes: dict[str, Any] | None = None, **attrs: Any) -> None:
        instantiate(module, next(n for n in module.operators if n in module.declared), list(args), attrs, sizes)

    try:
        eval(call, {"f": invoke, **{name: Types(name) for name in DTYPES}})
    except CompileError as problem:
        return [d.code for d in problem.diagnostics]
    return []


ENTRIES = {m.group(1): m.group(0) for m in ENTRY.finditer(ERRORS)}


@pytest.mark.parametrize("code", ENTRIES)
def test_the_example_of_an_error_gives_exactly_that_error(code: str) -> None:
    programs, calls = blocks(ENTRIES[code], "tl"), blocks(ENTRIES[code], "python")
    assert len(programs) == 1 or code in ("T0153", "T0192")  # what takes thousands of lines, or several files
    for _, program in programs:
        got = [c for _, call in calls for c in refused_call(program, call.strip())] if calls else [d.code for d in problems(program)]
        assert got == [code]


def test_every_code_of_the_checker_is_on_the_error_page() -> None:
    sources = "".join(p.read_text("utf-8") for p in (ROOT / "tensorlang" / "check").glob("*.py"))
    assert set(re.findall(r'"([TR]0[0-9]{3})"', sources)) == set(ENTRIES)


def test_functions_nested_beyond_reason_are_refused() -> None:
    chain = "\n".join(f"fn g{k}(x) = g{k - 1}(x) + 1" for k in range(1, 400))
    found = problems(f"fn g0(x) = x\n{chain}\nop f(x: f32[N]) -> (y: f32[N]) {{\n    y[i] = g399(x[i])\n}}")
    assert [d.code for d in found] == ["T0153"]
