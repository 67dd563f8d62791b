"""The language server, as an editor sees it: a scripted client over standard input and output."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from time import sleep

import pytest
from editor import Editor, editor, place_of

from tensorlang.diagnostics import Source
from tensorlang.syntax.format import fmt

ROOT = Path(__file__).parents[2]
NUMBERS = count()

CUMSUM = """# Sums of the first elements.
op cumsum[T: num](x: T[N]) -> (y: T[N]) {
    y[0] = x[0]
    y[i] = y[i - 1] + x[i]   for i in 1..N
}
"""
LINEAR = """# A layer: x times the transpose of w, and
# what is less than zero becomes zero.
op linear_relu(x: f32[M, K], w: f32[N, K], b: f32[N] = 0) -> (y: f32[M, N]) {
    s[i, j] = b[j] + sum(k) x[i, k] * w[j, k]
    y[i, j] = relu(s[i, j])
}
schedule linear_relu for cpu {
    tile y (i, j) by (4, 8) -> io, jo, ii, ji
    at s at jo
    unroll ii
    vectorize ji
}
"""


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    with editor(tmp_path_factory.mktemp("lsp")) as found:
        found.capabilities = found.start()
        yield found


def opened(there: Editor, text: str) -> str:
    """Open a text that lies nowhere on a disk, and return its address."""
    uri = f"untitled:Untitled-{next(NUMBERS)}"
    there.open(uri, text)
    return uri


def codes(there: Editor, text: str) -> list[str]:
    return [d.get("code", "") for d in there.problems(opened(there, text), 1)]


def hovered(there: Editor, marked: str) -> str:
    text, place = place_of(marked, "¦")
    return there.hover(opened(there, text), place)


def offered(there: Editor, marked: str) -> dict[str, str]:
    text, place = place_of(marked, "¦")
    return there.words(opened(there, text), place)


def test_it_offers_what_it_does(there: Editor) -> None:
    can = there.capabilities
    wanted = ("hoverProvider", "definitionProvider", "documentSymbolProvider", "completionProvider", "documentFormattingProvider")
    assert all(can[name] for name in wanted)
    assert can["codeActionProvider"]["codeActionKinds"] == ["quickfix"]


# ---- diagnostics


def test_a_right_text_has_no_diagnostics(there: Editor) -> None:
    assert codes(there, CUMSUM + LINEAR) == []


def test_a_mistake_is_told_with_code_place_and_help(there: Editor) -> None:
    [found] = there.problems(opened(there, "op f(x: f32[N]) -> (y: f32[N]) {\n    y[i] = x[i + 1]\n}\n"), 1)
    assert (found["code"], found["severity"], found["source"]) == ("T0301", 1, "tensorlang")
    assert found["range"] == {"start": {"line": 1, "character": 11}, "end": {"line": 1, "character": 19}}
    assert "axis 0 is 1 here at i=0" in found["message"] and "help: say what lies outside" in found["message"]


def test_other_places_of_a_mistake_are_related_information(there: Editor) -> None:
    [found] = there.problems(opened(there, CUMSUM + "schedule cumsum for cpu {\n    vectorize y.i\n}\n"), 1)
    assert found["code"] == "S0303"
    assert [r["location"]["range"]["start"]["line"] for r in found["relatedInformation"]] == [3, 2]


def test_what_is_right_and_hardly_meant_is_a_warning_and_what_nothing_uses_is_greyed_out(there: Editor) -> None:
    text = "fn twice(x) = 2 * x\nop f(x: f32[K], m: f32[K], s: f32) -> (y: f32) {\n    y = sum(k) x[k] - s\n}\n"
    found = there.problems(opened(there, text), 1)
    assert [(d["code"], d["severity"], d.get("tags")) for d in found] == [("W0103", 2, [1]), ("W0101", 2, [1]), ("W0105", 2, None)]


def test_a_clause_that_never_applies_is_a_warning(there: Editor) -> None:
    text = "op f(x: f32[N]) -> (y: f32[N]) {\n    y[i] = 0 for i < 0\n    y[i] = x[i] otherwise\n}\n"
    assert [(d["code"], d["severity"]) for d in there.problems(opened(there, text), 1)] == [("W0106", 2)]


def test_what_a_declaration_that_cannot_be_read_may_use_is_not_said_to_be_unused(there: Editor) -> None:
    right = "fn twice(x) = 2 * x\nop f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }\n"
    assert codes(there, right) == ["W0103"]
    assert [c for c in codes(there, f"{right}op g(x: f32[N]) -> (y: f32[N]) {{ y[i] = twice(x[i] }}\n") if c.startswith("W")] == []


@pytest.mark.parametrize(
    ("text", "cured"),
    [
        ("op f(x: f32[N]) -> (y: f32[N]) {\n    y[i] = let a = 3 in x[i]\n}\n", "op f(x: f32[N]) -> (y: f32[N]) {\n    y[i] = x[i]\n}\n"),
        (
            "op f(x: f32[N]) -> (y: f32[N]) {\n    y[i] = x[i]\n}\nschedule f for cpu {\n    parallel y.i\n    parallel y.i\n}\n",
            "op f(x: f32[N]) -> (y: f32[N]) {\n    y[i] = x[i]\n}\nschedule f for cpu {\n    parallel y.i\n}\n",
        ),
    ],
    ids=["a let", "a directive"],
)
def test_the_help_of_a_warning_is_a_change_of_the_text(there: Editor, text: str, cured: str) -> None:
    uri = opened(there, text)
    warned = next(d for d in there.problems(uri, 1) if d["severity"] == 2)
    [action, *_] = there.ask(
        "textDocument/codeAction", {"textDocument": {"uri": uri}, "range": warned["range"], "context": {"diagnostics": []}}
    )
    [edit] = action["edit"]["changes"][uri]
    lines = text.split("\n")
    start, end = (
        sum(len(line) + 1 for line in lines[: p["line"]]) + p["character"] for p in (edit["range"]["start"], edit["range"]["end"])
    )
    assert text[:start] + edit["newText"] + text[end:] == cured


def test_a_declaration_that_cannot_be_read_hides_no_mistake_of_another(there: Editor) -> None:
    broken = "op a(x: f32[N]) -> (y: f32[N]) {\n    y[i] = x[i\n}\nop b(x: f32[N]) -> (y: f32[N]) { y[i] = x[i + 1] }\n"
    assert codes(there, broken) == ["P005", "T0301"]


def test_what_only_misses_a_declaration_that_cannot_be_read_is_no_mistake(there: Editor) -> None:
    right, wrong = (f"op {n}(x: f32[N]) -> (y: f32[N]) {{ y[i] = {called}(x[i]) }}\n" for n, called in (("b", "twice"), ("c", "nothing")))
    broken = f"fn twice(x) = 2 *\n{right}{wrong}"
    found = codes(there, broken)
    assert found[0].startswith("P") and found[1:] == ["T0101"]


def test_operators_that_are_checked_for_some_values_alone_are_pointed_out(there: Editor) -> None:
    text = "op f(x: f32[N], attr steps: int) -> (y: f32[N]) where steps >= 4 { y[i] = x[i] * steps }\n"
    [found] = there.problems(opened(there, text), 1)
    assert found["severity"] == 3 and "steps = 4 alone" in found["message"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "op",
        "}",
        "op f(",
        "\0",
        "op f(x: f32[N]) -> (y: f32[N]) {\n y[i] = `",
        "schedule",
        "\ud83d\ude00",
        "# only\r\n# comments\r",
    ],
)
def test_any_text_has_an_answer(there: Editor, text: str) -> None:
    uri = opened(there, text)
    there.problems(uri, 1)
    assert there.hover(uri, (0, 0)) == "" or text
    there.words(uri, (0, 1))
    assert there.formatted(uri) is not None


def test_places_are_counted_in_utf_16_units(there: Editor) -> None:
    first = "op f(x: f32[N]) -> (y: f32[N]) { # \U0001d54f is two units\n    y[i] = x[i]\n}\n"
    text = first + "op g(x: f32[N]) -> (y: f32[N]) { y[i] = `\U0001d54f`[i] }\n"
    [found] = there.problems(opened(there, text), 1)
    assert (found["range"]["start"], found["range"]["end"]["character"]) == ({"line": 3, "character": 40}, 47)


def test_an_editor_that_counts_characters_is_told_characters(tmp_path: Path) -> None:
    with editor(tmp_path) as there:
        can = there.start(general={"positionEncodings": ["utf-32", "utf-16"]})
        assert can["positionEncoding"] == "utf-32"
        there.open("untitled:a", "op g(x: f32[N]) -> (y: f32[N]) { y[i] = `\U0001d54f`[i] }\n")
        [found] = there.problems("untitled:a", 1)
    assert found["range"]["end"]["character"] == 46


ENDLESS = """
import pathlib, time
from tensorlang.lsp import analysis, server
def analyse(*_):
    pathlib.Path("begun").touch()
    time.sleep(3600)
analysis.Analyser.analyse = analyse
server.serve()
"""


def test_the_end_waits_for_no_analysis(tmp_path: Path) -> None:
    with editor(tmp_path, "-c", ENDLESS) as there:
        there.start()
        there.open("untitled:a", CUMSUM)
        while not (tmp_path / "begun").exists():
            sleep(0.01)


def test_a_text_is_what_was_typed_last(there: Editor) -> None:
    uri = opened(there, CUMSUM)
    for version in range(2, 40):
        there.type(uri, (0, 0), "#" if version % 2 else "x", version)
    there.replace(uri, CUMSUM.replace("i - 1", "i"), 40)
    assert [d["code"] for d in there.problems(uri, 40)] == ["T0304"]
    assert len([v for v, _ in there.diagnostics[uri] if v != 1]) < 39, "versions that an edit overtakes are not all analysed"


def test_letters_that_are_typed_one_by_one_end_in_the_text(there: Editor) -> None:
    uri = opened(there, "")
    version, line, column = 1, 0, 0
    for character in CUMSUM.replace("x[0]", "z[0]"):
        version += 1
        there.type(uri, (line, column), character, version)
        line, column = (line + 1, 0) if character == "\n" else (line, column + 1)
    assert [d["code"] for d in there.problems(uri, version)] == ["T0105"]


def test_an_edit_of_one_operator_moves_the_mistakes_of_the_others(there: Editor) -> None:
    wrong = "op f(x: f32[N]) -> (y: f32[N]) {\n    y[i] = x[i + 1]\n}\n"
    uri = opened(there, CUMSUM + wrong)
    assert [d["range"]["start"]["line"] for d in there.problems(uri, 1)] == [6]
    there.type(uri, (0, 0), "# one\n# two\n", 2)
    assert [d["range"]["start"]["line"] for d in there.problems(uri, 2)] == [8]


def test_closing_a_text_takes_its_diagnostics_away(there: Editor) -> None:
    uri = opened(there, "op")
    there.problems(uri, 1)
    there.close(uri)
    there.open(uri, CUMSUM, 7)
    assert there.problems(uri, 7) == []
    assert (None, []) in there.diagnostics[uri]


def test_a_text_beyond_the_limit_is_refused_at_once(there: Editor) -> None:
    assert codes(there, "# a line of a large file\n" * 200_000) == ["P022"]


def test_a_long_text_is_analysed(there: Editor) -> None:
    text = "".join(f"op f{k}(x: f32[N]) -> (y: f32[N]) {{\n    y[i] = x[i]{' + z' * (k == 70)}\n}}\n" for k in range(100))
    assert codes(there, text) == ["T0105"]


# ---- hover


def test_hover_tells_the_shape_of_a_tensor_that_was_inferred(there: Editor) -> None:
    assert "s: f32[M, N]" in hovered(there, LINEAR.replace("relu(s[i", "relu(¦s[i"))


def test_hover_tells_what_stands_for_an_extern_operator(there: Editor) -> None:
    bare = hovered(there, "extern op ¦sorted(x: f32[N]) -> (y: f32[N])\n")
    assert "extern: it has no body" in bare and "int32_t sorted(\n    float *y," in bare
    text = "extern op same(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }\nop f(x: f32[N]) -> (y: f32[N]) { y = ¦same(x) }\n"
    assert "takes the place of its body" in hovered(there, text)


def test_hover_tells_the_header_the_comment_and_the_tensors_of_an_operator(there: Editor) -> None:
    said = hovered(there, LINEAR.replace("op linear", "op ¦linear"))
    assert "op linear_relu(x: f32[M, K]" in said and "what is less than zero becomes zero." in said and "s: f32[M, N]" in said


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        (LINEAR.replace("x[i, k]", "x[¦i, k]"), "i in 0..M"),
        (LINEAR.replace("x[i, k]", "x[i, ¦k]"), "k in 0..K"),
        (CUMSUM.replace("y[i - 1]", "y[¦i - 1]"), "i in 0..N, where i >= 1"),
        (CUMSUM.replace("y[0] = x", "y[0] = ¦x"), "x: f32[N]"),
        (LINEAR.replace("relu(s", "¦relu(s"), "fn relu(x) = max(x, 0)"),
        (LINEAR.replace("sum(k)", "¦sum(k)"), "reducer sum a b from 0 = a + b"),
        (LINEAR.replace("tile y", "¦tile y"), "write `tile TENSOR (I, J)"),
        (LINEAR.replace("unroll ii", "unroll ¦ii"), "made by `tile y (i, j) by (4, 8) -> io, jo, ii, ji`"),
        (LINEAR.replace("x: f32[M", "x: ¦f32[M"), "element type of 32 bits"),
    ],
)
def test_hover_says_what_a_word_is(there: Editor, marked: str, said: str) -> None:
    assert said in hovered(there, marked)


def test_hover_says_nothing_of_a_comment(there: Editor) -> None:
    assert hovered(there, CUMSUM.replace("# Sums", "# Su¦ms")) == ""


def test_hover_on_a_refused_directive_shows_the_witness_and_what_comes_out_wrong(there: Editor) -> None:
    said = hovered(there, CUMSUM + "schedule cumsum for cpu {\n    ¦reverse i\n}\n")
    assert "**refused, S0301**" in said
    assert "y.i=-1" in said
    assert "replayed: `y[1]` comes out as" in said


# ---- definitions, symbols


@pytest.mark.parametrize(
    ("marked", "line"),
    [
        (LINEAR.replace("relu(s[i", "relu(¦s[i"), 3),
        (LINEAR.replace("x[i, k]", "¦x[i, k]"), 2),
        (LINEAR.replace("x[i, k]", "x[i, ¦k]"), 3),
        (LINEAR.replace("schedule linear", "schedule ¦linear"), 2),
        (LINEAR.replace("unroll ii", "unroll ¦ii"), 7),
        (LINEAR.replace("at s at", "at ¦s at"), 3),
        (LINEAR.replace("(i, j) by", "(¦i, j) by"), 3),
    ],
)
def test_a_word_leads_to_where_it_is_introduced(there: Editor, marked: str, line: int) -> None:
    text, place = place_of(marked, "¦")
    uri = opened(there, text)
    found = there.at("definition", uri, place)
    assert (found["uri"], found["range"]["start"]["line"]) == (uri, line)


def test_a_name_of_the_library_leads_to_its_file(there: Editor) -> None:
    text, place = place_of(LINEAR.replace("relu(s", "¦relu(s"), "¦")
    found = there.at("definition", opened(there, text), place)
    assert found["uri"] == (ROOT / "tensorlang" / "prelude.tl").as_uri()
    line = (ROOT / "tensorlang" / "prelude.tl").read_text().split("\n")[found["range"]["start"]["line"]]
    assert line.startswith("fn relu(x)")


def test_symbols_are_the_declarations(there: Editor) -> None:
    uri = opened(there, CUMSUM + LINEAR + "fn twice(x) = 2 * x\n")
    found = there.ask("textDocument/documentSymbol", {"textDocument": {"uri": uri}})
    assert [s["name"] for s in found] == ["cumsum", "linear_relu", "linear_relu", "twice"]
    assert [c["name"] for c in found[1]["children"]] == ["x", "w", "b", "y"]
    assert found[2]["detail"] == "schedule for cpu"


# ---- completion


def test_a_clause_is_offered_operators_functions_reducers_and_its_own_names(there: Editor) -> None:
    found = offered(there, CUMSUM + LINEAR.replace("relu(s[i, j])", "re¦"))
    assert {"relu", "sum", "exp", "cumsum", "s", "b", "f32", "otherwise"} <= set(found)
    assert found["cumsum"].startswith("op cumsum[T: num]")


def test_a_line_of_a_schedule_is_offered_directives(there: Editor) -> None:
    found = offered(there, LINEAR.replace("    unroll ii", "    ¦"))
    assert found["split"] == "write `split LOOP by FACTOR -> OUTER, INNER`"
    assert {"vectorize", "tile", "parallel"} <= set(found) and "relu" not in found


def test_a_directive_is_offered_the_loops_there_are_at_its_place(there: Editor) -> None:
    before = offered(there, LINEAR.replace("    tile y", "    split ¦\n    tile y"))
    after = offered(there, LINEAR.replace("    unroll ii", "    unroll ¦"))
    assert {"y.i", "y.j", "s.k"} <= set(before) and "ii" not in before
    assert {"io", "jo", "ii", "ji"} <= set(after) and "y.i" not in after
    assert after["ii"].startswith("loop `y.ii`")


def test_a_schedule_without_its_brace_is_offered_loops(there: Editor) -> None:
    text = LINEAR.split("    at s")[0] + "    unroll ¦"
    assert "ii" in offered(there, text)


def test_outside_of_declarations_their_words_are_offered(there: Editor) -> None:
    found = offered(there, CUMSUM + "\n¦")
    assert {"op", "schedule", "reducer", "strict"} <= set(found) and "relu" not in found


def test_nothing_is_offered_in_a_comment(there: Editor) -> None:
    assert offered(there, CUMSUM.replace("# Sums", "# Su¦ms")) == {}


# ---- layout, code actions


def test_formatting_is_that_of_fmt(there: Editor) -> None:
    text = "op   f(x:f32[N])->(y:f32[N]){y[i]=x[i]}  # \U0001d54f"
    uri = opened(there, text)
    [edit] = there.formatted(uri)
    assert edit["newText"] == fmt(Source("", text))
    assert edit["range"] == {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": len(text) + 1}}


def test_a_text_that_is_laid_out_or_cannot_be_read_is_left_as_it_is(there: Editor) -> None:
    assert there.formatted(opened(there, fmt(Source("", CUMSUM)))) == []
    assert there.formatted(opened(there, "op f(")) == []


def test_a_place_without_edits_has_no_code_actions(there: Editor) -> None:
    uri = opened(there, "op f(x: f32[N]) -> (y: f32[N]) {\n    y[i] = x[i + 1]\n}\n")
    where = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 2}}
    assert there.ask("textDocument/codeAction", {"textDocument": {"uri": uri}, "range": where, "context": {"diagnostics": []}}) == []
