"""What the language server knows of a text: what is checked again after an edit, where places move, and how help becomes an edit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorlang.diagnostics import Diagnostic, Label, Source, Span, render
from tensorlang.lsp.analysis import Analyser, Analysis, Superseded, moved
from tensorlang.lsp.places import Places
from tensorlang.lsp.server import Document, cures, make_server
from tensorlang.syntax.parse import parse_parts

TEXT = """fn half(x) = 0.5 * x
op f(x: f32[N]) -> (y: f32[N]) {
    y[i] = half(x[i])
}
op g(x: f32[N]) -> (y: f32[N]) {
    t = f(x)
    y[i] = t[i]
}
op h(x: f32[N]) -> (y: f32[N]) {
    y[i] = x[i + 1]
}
reducer both a b from true = a and b
schedule f for cpu {
    vectorize i
    vectorize i
}
"""


def analysed(analyser: Analyser, text: str) -> tuple[list[str], int]:
    """Return the messages about a text, and how many checks it took."""
    before = analyser.checks
    return [render(d) for d in analyser.analyse(Source("f.tl", text)).diagnostics], analyser.checks - before


@pytest.fixture
def analyser() -> Analyser:
    found = Analyser()
    analysed(found, TEXT)
    return found


@pytest.mark.parametrize(
    ("change", "checks"),
    [
        (("op f", "# about f\n\nop f"), 0),
        (("x[i + 1]", "x[i + 2]"), 1),
        (("half(x[i])", "half(x[i]) + 1"), 3),
        (("0.5 * x", "0.25 * x"), 3),
        (("a and b", "a and b and b"), 1),
        (("vectorize i\n    vec", "unroll i\n    vec"), 1),
    ],
    ids=["a comment", "h", "f, g which calls it, and its schedule", "the function they call", "the reducer", "the schedule"],
)
def test_an_edit_has_only_checked_what_may_have_changed(analyser: Analyser, change: tuple[str, str], checks: int) -> None:
    edited = TEXT.replace(*change)
    found, made = analysed(analyser, edited)
    assert found == analysed(Analyser(), edited)[0], "what is remembered is what would be found"
    assert made == checks


def test_an_analysis_that_an_edit_overtakes_ends() -> None:
    analyser, asked = Analyser(), []

    def stale() -> bool:
        asked.append(1)
        return len(asked) > 7

    with pytest.raises(Superseded):
        analyser.analyse(Source("f.tl", TEXT), stale)
    assert 0 < analyser.checks < 5


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a text, as diagnostics have them."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Editable(Diagnostic):
    """A diagnostic whose help a machine can apply."""

    edits: tuple[Edit, ...] = ()


def _wrong(source: Source) -> Editable:
    span = Span(source, 2, 7)
    return Editable("T0101", "there is no `hafl`", (Label(span, "here"),), (), "did you mean `half`?", edits=(Edit(span, "half"),))


def test_edits_move_with_their_diagnostic() -> None:
    there = Source("f.tl", "later")
    found = moved(_wrong(Source("f.tl", "")), [10, 10], there)
    assert isinstance(found, Editable)
    assert [(s.start, s.end, s.source) for s in (found.labels[0].span, found.edits[0].span)] == [(12, 17, there)] * 2


def test_a_text_that_a_defect_kept_from_being_analysed_has_no_answers() -> None:
    async def asked() -> object:
        server = make_server()
        document = server.documents["untitled:a"] = Document()
        document.done.set()
        return await asyncio.wait_for(server.current("untitled:a"), timeout=20)

    assert asyncio.run(asked()) is None


def test_help_with_edits_is_a_quick_fix() -> None:
    server = make_server()
    source = Source("f.tl", "ab\ncd half")
    analysis = Analyser().analyse(source)
    places = Places(source.text)
    [action] = cures(server, "untitled:a", analysis, places, _wrong(source))
    assert action.title == "did you mean `half`?" and action.is_preferred
    [edit] = action.edit.changes["untitled:a"]
    assert (edit.new_text, edit.range.start.line, edit.range.end.line, edit.range.end.character) == ("half", 0, 1, 4)
    elsewhere = Source("prelude.tl", "")
    assert cures(server, "untitled:a", analysis, places, _wrong(elsewhere)) == []


@given(st.text("ab\U0001d54f\u00e9\n\r\t", max_size=30), st.sampled_from(["utf-8", "utf-16", "utf-32"]))
def test_a_character_is_found_again_by_its_line_and_column(text: str, encoding: str) -> None:
    places = Places(text, encoding)  # type: ignore[arg-type]
    for offset in range(len(text) + 1):
        line, column = places.position(offset)
        within_break = text[offset - 1 : offset + 1] == "\r\n"
        assert within_break or places.offset(line, column) == offset
    assert places.offset(10_000, 0) == len(text) and places.offset(-1, 5) == 0


def test_what_was_edited_is_told_before_what_uses_it_is_checked(analyser: Analyser) -> None:
    told: list[tuple[list[str], int]] = []
    began = analyser.checks

    def early(partial: Analysis) -> None:
        told.append(([d.title for d in partial.diagnostics], analyser.checks - began))

    source = Source("f.tl", TEXT.replace("half(x[i])", "half(z[i])"))
    whole = [d.title for d in analyser.analyse(source, early=early).diagnostics]
    outside, unknown = "`x` is read outside its bounds when N=1", "there is no tensor `z`"
    [(titles, checks)] = told
    assert {outside, unknown} <= {*titles} and {outside, unknown} <= {*whole}
    assert checks == 1 and analyser.checks - began == 3


def test_what_is_known_is_told_before_a_check_that_took_long(analyser: Analyser) -> None:
    told: list[list[str]] = []
    analyser.seconds.enter("op f", 60.0)
    source = Source("f.tl", TEXT.replace("half(x[i])", "half(z[i])"))
    analyser.analyse(source, early=lambda partial: told.append([d.title for d in partial.diagnostics]))
    outside, unknown = "`x` is read outside its bounds when N=1", "there is no tensor `z`"
    assert [(outside in titles, unknown in titles) for titles in told] == [(True, False), (True, True)]


def test_declarations_in_front_of_an_edit_are_the_same_nodes() -> None:
    before = parse_parts(Source("f.tl", TEXT))[0]
    after = parse_parts(Source("f.tl", TEXT.replace("half(x[i])", "half(x[i]) + 1")), before)[0]
    assert [a is b for a, b in zip(after.declarations, before.declarations, strict=True)] == [True, *[False] * 5]
    assert after == parse_parts(after.span.source)[0]


@pytest.mark.parametrize("change", [("# 1\nop", "# 2\nop"), ("0\n", "0 + 1\n"), ("0\n", "0 }\n"), ("# 1", "")])
def test_a_text_read_after_another_is_what_it_is_alone(change: tuple[str, str]) -> None:
    text = "# 1\nop f() -> (y: f32) {\n    y = 0\n}\n# 2\nop g() -> (y: f32) {\n    y = 0\n}\n"
    source = Source("f.tl", text.replace(*change))
    read, wrong = parse_parts(source, parse_parts(Source("f.tl", text))[0])
    alone, expected = parse_parts(source)
    assert (read.declarations, [d.title for d in wrong]) == (alone.declarations, [d.title for d in expected])
    assert [getattr(d, "doc", "") for d in read.declarations] == [getattr(d, "doc", "") for d in alone.declarations]
