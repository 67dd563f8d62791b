"""What is kept on disk is found again, and only by who asks for the same."""

from __future__ import annotations

from pathlib import Path

from codegen.store import Cache
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.runtime.stored import stored
from tensorlang.syntax.parse import parse


def test_a_value_is_made_once_for_equal_texts(tmp_path: Path) -> None:
    made: list[str] = []

    def make(value: str) -> str:
        made.append(value)
        return value

    cache = Cache(tmp_path)
    assert stored("n", ["a", "bc"], lambda: make("one"), cache) == "one"
    assert stored("n", ["a", "bc"], lambda: make("two"), cache) == "one"
    assert stored("n", ["ab", "c"], lambda: make("three"), cache) == "three"
    assert stored("m", ["a", "bc"], lambda: make("four"), cache) == "four"
    assert made == ["one", "three", "four"]


def test_a_damaged_entry_is_made_anew(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert stored("n", ["a"], lambda: 1, cache) == 1
    [entry] = tmp_path.rglob("*.o")
    entry.write_bytes(entry.read_bytes()[:-3])
    assert stored("n", ["a"], lambda: 2, cache) == 2


def test_a_module_comes_back_as_it_was(tmp_path: Path) -> None:
    text = "op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] * 2 }\n"
    cache = Cache(tmp_path)
    first = stored("m", [text], lambda: load_module(parse(Source("m", text))), cache)
    again = stored("m", [text], lambda: load_module(parse(Source("m", "op g() -> (y: f32[]) { y = 1 }\n"))), cache)
    assert again == first
    assert again.operators["f"].span.source.text == text
