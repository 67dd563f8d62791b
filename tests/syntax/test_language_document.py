"""docs/language.md: its grammar is the one that is used, and its programs parse or fail as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tensorlang.check.definition import check_module
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.syntax.format import fmt
from tensorlang.syntax.parse import parse
from tensorlang.syntax.scanner import PREPOSITIONS, RESERVED

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "language.md"
GRAMMAR = ROOT / "tensorlang" / "syntax" / "grammar.lark"
BLOCK = re.compile(r"^```(tl|ebnf|ebnf-words|tl-clauses|tl-directives|tl-wrong)\n(.*?)^```", re.MULTILINE | re.DOTALL)

CONTEXTUAL = [
    "USE",
    "AS",
    "STRICT",
    "REDUCE",
    "FAST",
    "REDUCER",
    "ORDERED",
    "SCHEDULE",
    "TACTIC",
    "INSTRUCTION",
    "LLVM",
    "ROLE",
    "LIFT",
    "AT",
    "YIELD",
]
SIGNS = {
    "EXPAND": '".."',
    "RANGE": '".."',
    "ARROW": '"->"',
    "CALL": '"("',
    "NEWLINE": "newline",
    "PREPOSITION": "preposition",
    "COMPARE": "comparator",
}
WORDS = ("NAME", "QUALIFIED", "NUMBER", "TEXT", "SIGN", "TIMES", "DIVIDE")


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall(DOCUMENT.read_text("utf-8")) if found == kind]


def ebnf(grammar: str) -> str:
    """Return the rules of grammar.lark as the document writes them: no names of alternatives, keywords in quotes."""
    lines: list[str] = []
    for line in grammar.split("// ---- terminals")[0].split("\n"):
        if line.startswith("// ----"):
            lines.append(f"\n(* {line[7:].strip()} *)\n")
        elif not line or line.startswith("//"):
            continue
        else:
            lines.append(re.sub(r"^\??([a-z_]+):", r"\1 =", re.sub(r" -> \w+(?= \||$)", "", line)))
    text = "\n".join(lines).replace("yield_", "yield").replace("\n\n\n", "\n\n").strip()
    return re.sub(r'"[^"]*"|[A-Z]{2,}', lambda match: _terminal(match.group()), text) + "\n"


def _terminal(name: str) -> str:
    if name.startswith('"'):
        return name
    if name.lower() in RESERVED or name in CONTEXTUAL:
        return f'"{name.lower()}"'
    return SIGNS.get(name, name.lower() if name in WORDS else name)


def test_the_grammar_of_the_document_is_the_grammar_of_the_parser(update_golden):
    expected = ebnf(GRAMMAR.read_text("utf-8"))
    if update_golden:
        text = DOCUMENT.read_text("utf-8")
        DOCUMENT.write_text(re.sub(r"(^```ebnf\n)(.*?)(^```)", lambda m: m[1] + expected + m[3], text, count=1, flags=re.M | re.S), "utf-8")
    assert blocks("ebnf")[0] == expected
    assert not re.search(r"\b[A-Z]{2,}\b", re.sub(r'"[^"]*"', "", expected)), "every terminal has a name for people"


def test_the_document_names_every_reserved_word_and_preposition():
    listed = blocks("ebnf-words")[0]
    assert set(re.findall(r'"(\w+)"', re.search(r"reserved += (.*?)\n\w", listed, re.S)[1])) == RESERVED
    assert set(re.findall(r'"(\w+)"', re.search(r"preposition += (.*?)\n\w", listed, re.S)[1])) == PREPOSITIONS


@pytest.mark.parametrize("text", blocks("tl"), ids=lambda text: text.split("\n")[0][:40])
def test_each_program_parses_and_is_formatted(text):
    assert fmt(Source("language.md", text)) == text


@pytest.mark.parametrize(
    "text", [t for t in blocks("tl") if re.search(r"^(strict |fast )?op\b", t, re.M)], ids=lambda t: t.split("\n")[0][:40]
)
def test_each_program_of_operators_is_right(text):
    assert not check_module(load_module(parse(Source("language.md", text))))


@pytest.mark.parametrize("text", blocks("tl-clauses"), ids=lambda text: text.split("\n")[0][:40])
def test_each_group_of_clauses_parses(text):
    assert parse(Source("language.md", f"op f() -> (y: f32) {{\n{text}}}")).declarations


@pytest.mark.parametrize("text", blocks("tl-directives"), ids=lambda text: text.split("\n")[0][:40])
def test_each_group_of_directives_parses(text):
    assert parse(Source("language.md", f"tactic t() {{\n{text}}}")).declarations


@pytest.mark.parametrize("line", [line for text in blocks("tl-wrong") for line in text.rstrip("\n").split("\n")])
def test_each_wrong_line_fails_as_the_document_says(line):
    wrong, code = re.fullmatch(r"(.*?) +# (P\d\d\d).*", line).groups()
    head = "" if re.match(r"(op|fn|extern|schedule|import|use|def)\b", wrong) else "op f() -> (y: f32) {\n"
    with pytest.raises(CompileError) as problem:
        parse(Source("language.md", f"{head}{wrong}\n{'}' if head else ''}"))
    assert [diagnostic.code for diagnostic in problem.value.diagnostics] == [code]
