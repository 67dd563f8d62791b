"""What the language server knows of `use`: files read as the editor has them, their mistakes, names, definitions and completion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from editor import Editor, editor, place_of

from tensorlang.diagnostics import Source
from tensorlang.lsp.analysis import Analyser
from tensorlang.syntax import modules

ROOT = Path(__file__).parents[2]
NORM = """# All shapes.

# The root of the mean of squares.
op rms(x: f32[N]) -> (y: f32[N]) { y[i] = root(sum(k) x[k] * x[k] / f32(N)) }
fn root(x) = sqrt(x)
fn _own(x) = x
reducer both a b from true = a and b
tactic fast(a) {
    parallel a
}
"""
USER = 'use "norm.tl"\nop f(x: f32[N]) -> (y: f32[N]) { y = rms(x) }\n'


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    with editor(tmp_path_factory.mktemp("lsp")) as found:
        found.capabilities = found.start()
        yield found


class Folder:
    """A folder of files beside the text that is open in the editor."""

    def __init__(self, there: Editor, path: Path) -> None:
        self.there, self.path = there, path
        self.write("norm.tl", NORM)

    def write(self, name: str, text: str) -> str:
        (self.path / name).write_text(text, "utf-8")
        return (self.path / name).as_uri()

    def open(self, text: str, name: str = "main.tl") -> str:
        uri = (self.path / name).as_uri()
        self.there.open(uri, text)
        return uri

    def problems(self, text: str) -> list[dict[str, Any]]:
        return self.latest(self.open(text))

    def latest(self, uri: str) -> list[dict[str, Any]]:
        """Return the diagnostics of a text as it is now: a question is answered once that is analysed."""
        self.there.hover(uri, (0, 0))
        return self.there.diagnostics[uri][-1][1]

    def at(self, marked: str, method: str) -> Any:
        text, place = place_of(marked, "¦")
        return self.there.at(method, self.open(text), place)

    def hover(self, marked: str) -> str:
        found = self.at(marked, "hover")
        return "" if found is None else str(found["contents"]["value"])

    def words(self, marked: str) -> dict[str, str]:
        return {item["label"]: item.get("detail") or "" for item in self.at(marked, "completion")}


@pytest.fixture
def folder(there: Editor, tmp_path: Path) -> Folder:
    return Folder(there, tmp_path)


# ---- diagnostics


@pytest.mark.parametrize(
    "use",
    ['"norm.tl"', '"norm.tl" (rms)', '"./norm.tl" (rms as rms)', "std.norm (softmax as rms)", "std.softmax as rms"],
)
def test_a_text_that_uses_a_file_or_a_module_rightly_has_no_diagnostics(folder: Folder, use: str) -> None:
    assert folder.problems(USER.replace('"norm.tl"', use)) == []


def test_qualified_names_of_functions_operators_and_tactics_are_known(folder: Folder) -> None:
    text = 'use "norm.tl" as n\nop f(x: f32[N]) -> (y: f32[N]) {\n    t = n.rms(x)\n    y[i] = n.root(t[i])\n}\n'
    assert folder.problems(text + "schedule f for cpu {\n    n.fast(y.i)\n}\n") == []


def test_a_text_that_lies_nowhere_uses_modules_and_no_relative_path(there: Editor) -> None:
    there.open("untitled:nowhere", f"{USER}use std.norm (softmax)\n")
    [found] = there.problems("untitled:nowhere", 1)
    assert (found["code"], found["range"]["start"]) == ("T0193", {"line": 0, "character": 4})


def test_a_mistake_of_a_used_file_is_shown_at_the_use_with_its_place(folder: Folder) -> None:
    used = folder.write("norm.tl", NORM.replace("sqrt(x)", "nothing(x)"))
    [found] = folder.problems(f"\n{USER}")
    assert (found["code"], found["range"]) == ("T0101", {"start": {"line": 1, "character": 4}, "end": {"line": 1, "character": 13}})
    assert found["message"].startswith("in `norm.tl`: there is no operator or function `nothing`")
    [related] = found["relatedInformation"]
    assert related["location"] == {"uri": used, "range": {"start": {"line": 4, "character": 13}, "end": {"line": 4, "character": 20}}}


@pytest.mark.parametrize("call", ["rms(x)", "twice(x)"])
def test_a_mistake_in_an_equation_of_a_used_file_is_shown_at_the_use_that_leads_there(folder: Folder, call: str) -> None:
    used = folder.write("norm.tl", NORM.replace("x[k] * x[k]", "x[k] * x[k + 1]"))
    folder.write("between.tl", 'use "norm.tl"\nop twice(x: f32[N]) -> (y: f32[N]) { y = rms(x) }\n')
    first = "norm.tl" if call == "rms(x)" else "between.tl"
    [found] = folder.problems(f"use std.norm (softmax)\n{USER}".replace("norm.tl", first).replace("rms(x)", call))
    assert (found["code"], found["range"]["start"]) == ("T0301", {"line": 1, "character": 4})
    assert [r["location"]["uri"] for r in found["relatedInformation"]] == [used]


def test_a_mistake_of_a_used_file_is_shown_in_that_too_while_it_is_open(folder: Folder) -> None:
    wrong = NORM.replace("sqrt(x)", "nothing(x)")
    used = folder.open(wrong, "norm.tl")
    assert [d["code"] for d in folder.problems(USER)] == ["T0101"]
    assert [(d["code"], d["range"]["start"]["line"]) for d in folder.latest(used)] == [("T0101", 4)]


@pytest.mark.parametrize("use", ['"nrm.tl"', '"nrm.tl" (rms)', "std.nrm (rms)", "std.norm (rms)", "std.norm.rms", '"nrm.tl" as n'])
def test_what_only_misses_a_use_that_is_wrong_is_no_mistake(folder: Folder, use: str) -> None:
    text = USER.replace('"norm.tl"', use).replace("rms(x) }", f"{'n.' * use.endswith(' n')}rms(x) }}")
    assert [(d["code"], d["range"]["start"]["line"]) for d in folder.problems(text)] == [
        ("T0191" if use == "std.norm (rms)" else "T0190", 0)
    ]


def test_a_use_with_a_wrong_name_brings_the_others(folder: Folder) -> None:
    wrong = "op g(x: f32[N]) -> (y: f32[N]) {\n    t = rms(x)\n    y[i] = t[i + 1] + nothing(t[i])\n}\n"
    found = folder.problems(USER.replace('"norm.tl"', '"norm.tl" (rms, nothing)') + wrong.replace(" + nothing(t[i])", ""))
    assert [d["code"] for d in found] == ["T0191", "T0301"]
    folder.there.close((folder.path / "main.tl").as_uri())
    found = folder.problems(USER.replace('"norm.tl"', '"norm.tl" (rms, nothing)') + wrong)
    assert [d["code"] for d in found] == ["T0191"], "`nothing` is missing for the one reason that is told"


def test_files_that_use_each_other_are_refused_at_the_use(folder: Folder) -> None:
    folder.write("norm.tl", f'use "main.tl"\n{NORM}')
    folder.write("main.tl", USER)
    assert [(d["code"], d["range"]["start"]["line"]) for d in folder.problems(USER)] == [("T0192", 0)]


@pytest.mark.parametrize(
    "use",
    ["use", "use ", 'use "', 'use "a', 'use "\\0.tl"', 'use ""', "use std.", "use std.norm (", 'use "norm.tl" (rms as', 'use "norm.tl" as'],
)
def test_a_use_that_is_being_written_has_an_answer_and_hides_no_mistake_of_others(folder: Folder, use: str) -> None:
    uri = folder.open(f"op f(x: f32[N]) -> (y: f32[N]) {{ y[i] = x[i + 1] }}\n{use}\nop g(x: f32[N]) -> (y: f32[N]) {{ y[i] = x[i] }}\n")
    found = folder.latest(uri)
    assert [d["code"] for d in found if d["range"]["start"]["line"] == 0] == ["T0301"]
    assert {d["range"]["start"]["line"] for d in found} == {0, 1}
    for column in range(len(use) + 1):
        folder.there.words(uri, (1, column))
        folder.there.hover(uri, (1, column))
        folder.there.at("definition", uri, (1, column))


@pytest.mark.parametrize("use", ["use", "use std.", 'use "norm.tl" (', "use std.norm (softmax"])
def test_a_name_that_a_use_being_written_may_bring_is_no_mistake(folder: Folder, use: str) -> None:
    found = folder.problems(
        f'use "norm.tl" (root)\n{use}\nop f(x: f32[N]) -> (y: f32[N]) {{\n    t[i] = root(x[i])\n    y = softmax(t)\n}}\n'
    )
    assert {d["code"][0] for d in found} == {"P"}


# ---- texts that change


def test_a_used_file_is_read_as_the_editor_has_it(folder: Folder) -> None:
    used = folder.open(NORM.replace("op rms", "op rmsnorm"), "norm.tl")
    uri = folder.open(USER)
    assert [d["code"] for d in folder.latest(uri)] == ["T0101"]
    folder.there.replace(used, NORM, 2)
    assert folder.latest(uri) == []
    folder.there.replace(used, NORM.replace("f32(N))", "f32(N)"), 3)
    assert [d["code"][0] for d in folder.latest(uri)] == ["P"]


def test_a_used_file_that_only_the_editor_has_is_known(folder: Folder) -> None:
    folder.open(NORM, "new.tl")
    assert folder.problems(USER.replace("norm.tl", "new.tl")) == []


def test_a_closed_file_is_read_from_the_disk_again(folder: Folder) -> None:
    used = folder.open("fn other(x) = x\n", "norm.tl")
    uri = folder.open(USER)
    assert [d["code"] for d in folder.latest(uri)] == ["T0101"]
    folder.there.close(used)
    assert folder.latest(uri) == []


def test_a_file_that_is_used_through_another_has_its_users_analysed_again(folder: Folder) -> None:
    folder.write("between.tl", 'use "norm.tl"\nop twice(x: f32[N]) -> (y: f32[N]) { y = rms(x) }\n')
    uri = folder.open('use "between.tl"\nop f(x: f32[N]) -> (y: f32[N]) { y = twice(x) }\n')
    assert folder.latest(uri) == []
    folder.open(NORM.replace("op rms", "op gone"), "norm.tl")
    [found] = folder.latest(uri)
    assert [r["location"]["uri"].rsplit("/", 1)[1] for r in found["relatedInformation"]] == ["between.tl"]


def test_a_file_that_appears_or_changes_on_the_disk_is_read_again(folder: Folder) -> None:
    uri = folder.open(USER.replace("norm.tl", "late.tl"))
    assert [d["code"] for d in folder.latest(uri)] == ["T0190"]
    written = folder.write("late.tl", NORM)
    folder.there.tell("workspace/didChangeWatchedFiles", {"changes": [{"uri": written, "type": 1}]})
    assert folder.latest(uri) == []


def test_an_editor_that_watches_files_is_asked_to(tmp_path: Path) -> None:
    with editor(tmp_path) as there:
        there.start(workspace={"didChangeWatchedFiles": {"dynamicRegistration": True}})
        there.open("untitled:a", "fn f(x) = x\n")
        there.problems("untitled:a", 1)
        [asked] = [m["params"]["registrations"] for m in there.asked if m["method"] == "client/registerCapability"]
    assert [(r["method"], r["registerOptions"]["watchers"][0]["globPattern"]) for r in asked] == [
        ("workspace/didChangeWatchedFiles", "**/*.tl")
    ]


def test_only_what_depends_on_a_used_file_is_checked_again(tmp_path: Path) -> None:
    analyser, path = Analyser(), str(tmp_path / "norm.tl")
    text = USER + "op g(x: f32[N]) -> (y: f32[N]) { y[i] = 2 * x[i] }\n"
    source = Source(str(tmp_path / "main.tl"), text, folder=str(tmp_path))
    counts = []
    for used in (NORM, NORM, NORM.replace("# All", "# Some"), NORM):
        before = analyser.checks
        assert analyser.analyse(source, texts={str(Path(path).resolve()): used}).diagnostics == ()
        counts.append(analyser.checks - before)
    assert counts == [2, 0, 1, 0]


# ---- hover, definitions, symbols


@pytest.mark.parametrize(
    ("use", "call"),
    [
        ('"norm.tl"', "r¦ms"),
        ('"norm.tl" (rms as r)', "¦r"),
        ('"norm.tl" as n', "n.¦rms"),
        ('"norm.tl" (¦rms)', "rms"),
        ('"norm.tl" (rms as ¦r)', "r"),
    ],
)
def test_a_used_name_leads_to_its_file_and_tells_its_header_and_comment(folder: Folder, use: str, call: str) -> None:
    marked = USER.replace('"norm.tl"', use).replace("rms(x) }", f"{call}(x) }}")
    found = folder.at(marked, "definition")
    assert found == {
        "uri": (folder.path / "norm.tl").as_uri(),
        "range": {"start": {"line": 3, "character": 3}, "end": {"line": 3, "character": 6}},
    }
    folder.there.close((folder.path / "main.tl").as_uri())
    said = folder.hover(marked)
    assert "op rms(x: f32[N]) -> (y: f32[N])" in said and "The root of the mean of squares." in said and "norm.tl`" in said


def test_a_name_of_the_standard_library_leads_to_its_module(folder: Folder) -> None:
    found = folder.at(USER.replace('"norm.tl"', "std.norm (soft¦max as rms)"), "definition")
    assert found["uri"] == (ROOT / "stdlib" / "ops" / "norm.tl").as_uri()
    line = (ROOT / "stdlib" / "ops" / "norm.tl").read_text().split("\n")[found["range"]["start"]["line"]]
    assert "op softmax" in line


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ('use "no¦rm.tl"\n', "norm.tl"),
        ('use "norm.tl" as ¦n\n', "norm.tl"),
        ('use "norm.tl" as n\nfn f(x) = ¦n.root(x)\n', "norm.tl"),
        ("use std.no¦rm\n", str(ROOT / "stdlib" / "ops" / "norm.tl")),
    ],
)
def test_what_a_use_names_leads_to_the_file_and_tells_what_it_offers(folder: Folder, text: str, file: str) -> None:
    assert folder.at(text, "definition")["uri"] == (folder.path / file).as_uri()
    folder.there.close((folder.path / "main.tl").as_uri())
    said = folder.hover(text)
    assert ("`rms`" in said or "`layer_norm`" in said) and "_own" not in said


def test_a_used_file_that_is_wrong_can_still_be_gone_to(folder: Folder) -> None:
    used = folder.write("norm.tl", "op")
    assert folder.at('use "no¦rm.tl"\n', "definition")["uri"] == used


def test_a_name_of_the_file_itself_is_not_that_of_a_used_one(folder: Folder) -> None:
    marked = 'use "norm.tl" (rms as r)\nop rms(x: f32[N, N]) -> (y: f32[N]) {\n    t[i] = x[i, 0]\n    y = r(t)\n}\n'
    assert "f32[N, N]" in folder.hover(marked.replace("op rms", "op ¦rms"))
    folder.there.close((folder.path / "main.tl").as_uri())
    assert "op rms(x: f32[N])" in folder.hover(marked.replace("= r(", "= ¦r("))


def test_symbols_list_what_is_used(folder: Folder) -> None:
    uri = folder.open('use "norm.tl" (rms, root as r)\nuse std.norm as n\nfn f(x) = x\n')
    found = folder.there.ask("textDocument/documentSymbol", {"textDocument": {"uri": uri}})
    assert [(s["name"], s.get("detail")) for s in found] == [("norm.tl", None), ("std.norm", "as n"), ("f", None)]
    assert [(c["name"], c.get("detail")) for c in found[0]["children"]] == [("rms", None), ("r", "root of norm.tl")]


# ---- completion


def test_a_use_is_offered_packages_and_their_modules(folder: Folder) -> None:
    assert "std" in folder.words("use ¦")
    folder.there.close((folder.path / "main.tl").as_uri())
    wanted = {m.title.removeprefix("std.").split(".")[0] for m in modules.modules() if m.title.startswith("std.")}
    assert set(folder.words("use std.¦\nfn f(x) = x\n")) == wanted


@pytest.mark.parametrize("marked", ['use "norm.tl" (¦', 'use "norm.tl" (rms, ¦)\n', 'use "norm.tl" (\n    ro¦\n)\nfn f(x) = x\n'])
def test_the_names_of_a_use_are_offered(folder: Folder, marked: str) -> None:
    assert folder.words(marked) == {"rms": "op", "root": "fn", "both": "reducer", "fast": "tactic"}


@pytest.mark.parametrize(
    ("marked", "words"),
    [('use "norm.tl" ¦', {"as"}), ("use std.norm ¦", {"as"}), ('use "norm.tl" (rms ¦)', {"as"}), ('use "norm.tl" (rms as ¦)', set())],
)
def test_as_is_offered_behind_what_is_used_and_nothing_for_a_name_of_ones_own(folder: Folder, marked: str, words: set[str]) -> None:
    assert set(folder.words(marked)) == words


def test_the_names_of_a_module_are_offered(folder: Folder) -> None:
    assert {"softmax", "layer_norm"} <= set(folder.words("use std.norm (¦)\n"))


def test_the_files_beside_a_text_are_offered(folder: Folder) -> None:
    (folder.path / "lib").mkdir()
    folder.write("lib/tiles.tl", "")
    assert {"norm.tl", "lib/"} <= set(folder.words('use "¦'))
    folder.there.close((folder.path / "main.tl").as_uri())
    assert set(folder.words('use "lib/¦"')) == {"tiles.tl"}


def test_behind_the_name_of_a_file_is_offered_what_it_has(folder: Folder) -> None:
    found = folder.words('use "norm.tl" as n\nop f(x: f32[N]) -> (y: f32[N]) {\n    y = n.¦\n}\n')
    assert set(found) == {"rms", "root", "both", "fast"} and found["rms"].startswith("op rms(x: f32[N])")


def test_names_that_are_used_are_offered_in_a_clause(folder: Folder) -> None:
    assert {"r", "n.root"} <= set(folder.words('use "norm.tl" (rms as r)\nuse "norm.tl" as n\nop f(x: f32[N]) -> (y: f32[N]) { y = ¦ }\n'))


# ---- code actions


def applied(folder: Folder, text: str) -> list[tuple[str, str]]:
    """Return the title of each code action for the first problem of a text, and the text that it makes."""
    uri = folder.open(text)
    where = folder.latest(uri)[0]["range"]
    asked = {"textDocument": {"uri": uri}, "range": where, "context": {"diagnostics": []}}
    found = []
    for action in folder.there.ask("textDocument/codeAction", asked):
        lines = text.split("\n")
        for edit in sorted(action["edit"]["changes"][uri], key=lambda e: e["range"]["start"]["line"], reverse=True):
            (line, start), (last, end) = ((edit["range"][side]["line"], edit["range"][side]["character"]) for side in ("start", "end"))
            assert line == last
            lines[line] = lines[line][:start] + edit["newText"] + lines[line][end:]
        found.append((action["title"], "\n".join(lines)))
    folder.there.close(uri)
    return found


BODY = "# About f.\nop f(x: f32[N]) -> (y: f32[N]) { y = softmax(x) }\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# The file.\n\n", "# The file.\n\nuse std.norm (softmax)\n\n"),
        ("use std.norm (layer_norm)\n", "use std.norm (layer_norm, softmax)\n"),
        ('use "norm.tl"\n', 'use "norm.tl"\nuse std.norm (softmax)\n'),
    ],
)
def test_the_use_line_of_an_unknown_name_is_written(folder: Folder, before: str, after: str) -> None:
    [(title, text)] = applied(folder, before + BODY)
    assert (title, text) == ("write `use std.norm (softmax)`", after + BODY)
    assert folder.problems(text) == []


def test_a_qualified_call_is_changed_with_the_use_line(folder: Folder) -> None:
    [(_, text)] = applied(folder, BODY.replace("softmax", "std.norm.softmax"))
    assert text == f"use std.norm (softmax)\n\n{BODY}"


def test_a_name_that_no_package_has_brings_no_action(folder: Folder) -> None:
    assert applied(folder, BODY.replace("softmax", "nothing")) == []
