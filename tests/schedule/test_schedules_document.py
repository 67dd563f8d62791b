"""docs/schedules.md and docs/schedules: every schedule on these pages is run through the compiler, which says what stands below it.

`--update-golden` writes the outputs into the pages.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from scheduled_programs import assert_same, legal, loops, some_sizes, written
from usual_device import USUAL, device_loops

from codegen.dtypes import f32
from codegen.loops.printer import show as show_loops
from polyhedral.schedule import show as show_tree
from stdlib.library import library
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.policy.machine import Machine
from tensorlang.policy.select import search
from tensorlang.schedule.check import proven
from tensorlang.schedule.directives.table import DIRECTIVES
from tensorlang.schedule.plan import Plan
from tensorlang.syntax.format import fmt
from tensorlang.syntax.parse import parse

DOCS = Path(__file__).parents[2] / "docs"
INDEX = DOCS / "schedules.md"
PAGES = [INDEX, *sorted((DOCS / "schedules").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@cache
def outputs(document: str) -> list[tuple[str, str, str]]:
    """Return (kind, what the page says, what the compiler says) for each block that shows an output."""
    declared: dict[str, str] = {}
    current = ""
    found: list[tuple[str, str, str]] = []
    for kind, text in BLOCK.findall(document):
        if kind == "tl":
            assert fmt(Source("page.tl", text)) == text, "a program that is not laid out as `fmt` does"
            word, name = re.findall(r"^(op|tactic|schedule|instruction) (\w+)", text, re.MULTILINE)[0]
            if word == "schedule":
                current = "\n".join((text, *(t for (w, n), t in declared.items() if w in ("tactic", "instruction") or n == name)))
            else:
                declared[word, name] = text
        elif kind in ("tree", "loops", "device", "refused"):
            found.append((kind, text, output(kind, current)))
    return found


def output(kind: str, text: str) -> str:
    if kind == "refused":
        try:
            refused = written(text, "page.tl")
            plan = proven(refused.program, refused.schedule)
            if refused.schedule.target == "cuda":
                device_loops(plan, "kernel")
        except CompileError as error:
            return f"{error}\n"
        raise AssertionError(f"accepted:\n{text}")
    plan = right(text)
    if kind == "device":
        return show_loops(device_loops(plan, "kernel").function)
    return show_tree(plan.placed) if kind == "tree" else show_loops(loops(plan))


@cache
def right(text: str) -> Plan:
    """Return the proven plan of a text, whose loops compute what the operator says."""
    found, plan = legal(text)
    for sizes in some_sizes(plan.served(found.program))[:2]:
        assert_same(found.program, plan, sizes)
    return plan


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_shows_what_the_compiler_says(page, update_golden):
    document = page.read_text("utf-8")
    found = outputs(document)
    if update_golden:
        made = iter(found)

        def replaced(match: re.Match[str]) -> str:
            return f"```{match[1]}\n{next(made)[2]}```" if match[1] in ("tree", "loops", "device", "refused") else match[0]

        page.write_text(BLOCK.sub(replaced, document), "utf-8")
        found = outputs(page.read_text("utf-8"))
    assert [(kind, said) for kind, said, _ in found] == [(kind, made) for kind, _, made in found]


def test_the_pages_show_more_than_twenty_refusals_and_forty_outputs():
    kinds = [kind for page in PAGES for kind, _ in BLOCK.findall(page.read_text("utf-8"))]
    assert kinds.count("refused") >= 20 and sum(kinds.count(kind) for kind in ("tree", "loops", "device")) >= 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_programs_and_the_python_of_the_page_run(page):
    for kind, text in BLOCK.findall(page.read_text("utf-8")):
        if kind == "tl":
            parse(Source("page.tl", text))
        elif kind == "python":
            exec(compile(text, str(page), "exec"), {})


def test_every_directive_has_a_section():
    told = [page for page in PAGES[1:] if page.stem != "pictures"]
    headings = [line for page in told for line in re.findall(r"^## (.*)$", page.read_text("utf-8"), re.MULTILINE)]
    titles = [word for line in headings for word in line.split(", ") if word in DIRECTIVES]
    assert sorted(titles) == sorted(DIRECTIVES)


def test_the_index_leads_to_every_directive():
    index = INDEX.read_text("utf-8")
    assert [name for name in sorted(DIRECTIVES) if f'<a id="{name}"></a>[`{name}`](schedules/' not in index] == []


def _role(name: str) -> str:
    blocks = BLOCK.findall((DOCS / "schedules" / "choosing.md").read_text("utf-8"))
    (role,) = (text for kind, text in blocks if kind == "tl" and text.startswith(f"schedule role {name}"))
    return role


def test_the_role_of_the_page_is_chosen_for_rows_on_a_device():
    module = load_module(parse(Source("page.tl", _role("row_reduction"))), [library()])
    program = instantiate(module, "softmax", [ArgType(f32, (12, 500))], {"axis": 1}, {})
    found = search(module, "softmax", program, {"axis": 1}, "cuda", USUAL).chosen
    assert found is not None and found.origin == "schedule role row_reduction for gpu (page.tl:1)"
    assert proven(program, found.schedule)


def test_the_role_of_the_page_is_chosen_for_a_product():
    module = load_module(parse(Source("page.tl", _role("contraction"))), [library()])
    program = instantiate(module, "matmul", [ArgType(f32, (12, 4)), ArgType(f32, (4, 32))], {})
    found = search(module, "matmul", program, {}, "cpu", Machine(target="cpu", threads=2)).chosen
    assert found is not None and found.origin == "schedule role contraction for cpu(b.reuse >= 4) (page.tl:1)"
    assert_same(program, proven(program, found.schedule), {})
