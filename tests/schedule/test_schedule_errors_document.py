"""docs/errors-schedules.md: each example is refused with the code it stands under, and every code has an entry."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scheduled_programs import written
from usual_device import device_loops

from codegen.llvm.target import host
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.policy.uncalled import check_schedules
from tensorlang.schedule.check import proven
from tensorlang.syntax.format import fmt
from tensorlang.syntax.parse import parse
from tensorlang.validation.intrinsics import usable

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "errors-schedules.md").read_text("utf-8")
ENTRY = re.compile(r"^### (S\d{4}) .*?(?=^##|\Z)", re.MULTILINE | re.DOTALL)
EXAMPLES = [(m[1], text) for m in ENTRY.finditer(TEXT) for text in re.findall(r"^```tl\n(.*?)^```", m[0], re.MULTILINE | re.DOTALL)]


def codes(text: str) -> list[str]:
    """Return the codes of what is wrong with a text, found when the file is read or when the schedule is applied."""
    problems = check_schedules(load_module(parse(Source("page.tl", text))))
    if problems:
        return [p.code for p in problems]
    with pytest.raises(CompileError) as refused:
        found = written(text, "page.tl")
        plan = proven(found.program, found.schedule)
        if found.schedule.target == "cuda":
            device_loops(plan, "kernel", schedule=found.schedule)
        usable(plan.named, host())
    return [d.code for d in refused.value.diagnostics]


@pytest.mark.parametrize(("code", "text"), EXAMPLES, ids=[code for code, _ in EXAMPLES])
def test_an_example_is_refused_with_its_code(code, text):
    assert fmt(Source("page.tl", text)) == text
    assert codes(text) == [code]


def test_every_code_that_schedules_can_raise_is_explained():
    sources = "".join(p.read_text("utf-8") for folder in ("schedule", "device") for p in (ROOT / "tensorlang" / folder).glob("*.py"))
    raised = set(re.findall(r'"(S0[1-5]\d\d)"', sources))
    assert raised == set(re.findall(r"S0[1-5]\d\d", TEXT)) & raised
    assert len(EXAMPLES) >= 30
