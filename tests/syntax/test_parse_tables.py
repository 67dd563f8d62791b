"""The stored tables of the parser: they are those that lark makes of grammar.lark, and a grammar without stored tables is analysed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensorlang.diagnostics import Source
from tensorlang.syntax import automaton
from tensorlang.syntax.automaton import analysed, tables, written
from tensorlang.syntax.parse import parse

FOLDER = Path(__file__).parents[2] / "tensorlang" / "syntax"
TEXT = "op f(x: f32[N]) -> (y: f32[N]) {\n    y[i] = x[i] + 1\n}\n"


def test_the_stored_tables_are_those_of_the_grammar() -> None:
    grammar = (FOLDER / "grammar.lark").read_text("utf-8")
    assert (FOLDER / "grammar.json").read_text("utf-8") == written(grammar), "run `python scripts/tables.py`"
    assert tables() == analysed(grammar)


@pytest.mark.parametrize("stored", [None, "{", "[]", "{}", json.dumps({"checksum": "0-0", "rules": [], "rows": [], "accepting": 0})])
def test_tables_that_are_missing_damaged_or_of_another_grammar_are_made_anew(
    stored: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "grammar.lark").write_bytes((FOLDER / "grammar.lark").read_bytes())
    if stored is not None:
        (tmp_path / "grammar.json").write_text(stored)
    before = tables()
    monkeypatch.setattr(automaton, "GRAMMAR", tmp_path / "grammar.lark")
    tables.cache_clear()
    try:
        assert tables() == before
        assert len(parse(Source("a.tl", TEXT)).declarations) == 1
    finally:
        tables.cache_clear()


def test_what_may_follow_is_what_can_be_fed() -> None:
    run = automaton.Automaton(tables(), automaton.builders(tables(), object()))
    assert {"OP", "FN", "USE", "SCHEDULE"} <= run.accepted()
    run.shift(_Token("OP"))
    assert run.accepted() == {"NAME"}
    with pytest.raises(automaton.NotAcceptedError):
        run.shift(_Token("OP"))


class _Token:
    def __init__(self, type: str) -> None:
        self.type = type
