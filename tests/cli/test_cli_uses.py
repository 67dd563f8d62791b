"""Commands on files that use others, and `list`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import run

MAIN = """\
use "lib/norm.tl" (rms)
use std.norm as n

# The softmax of what is normalised.
# More of it.
op f(x: f32[M, N]) -> (y: f32[M, N]) {
    t = rms(x)
    y = n.softmax(t)
}
"""
NORM = "op rms(x: f32[D.., N]) -> (y: f32[D.., N]) {\n    y[d.., j] = x[d.., j] / sqrt(sum(k) sq(x[d.., k]) / f32(N))\n}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder of one's own, in which a file uses another."""
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path_factory.getbasetemp() / "objects"))
    monkeypatch.chdir(tmp_path)
    Path("lib").mkdir()
    Path("main.tl").write_text(MAIN, "utf-8")
    Path("lib/norm.tl").write_text(NORM, "utf-8")


@pytest.fixture
def tl(capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs a command line and returns exit code, standard output and standard error."""
    return partial(run, capsys)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("check main.tl lib/norm.tl", "2 files checked, no mistakes"),
        ("fmt --check main.tl", ""),
        ("show main.tl", 'use "lib/norm.tl" (rms)'),
        ("show main.tl x=f32[3,4] --stage tensor", "op f("),
        ("run main.tl x=f32[3,4]", "y: float32[3, 4]"),
        ("bench main.tl x=f32[3,4] --seconds 0.02", "tensorlang"),
        ("explain main.tl x=f32[3,4]", "every read is in bounds"),
        ("certify main.tl x=f32[3,4]", '"kernel": "f"'),
    ],
)
def test_every_command_follows_what_a_file_uses(tl: Any, line: str, said: str) -> None:
    code, out, err = tl(*line.split())
    assert (code, err) == (0, "")
    assert said in out


def test_mistakes_are_shown_in_the_used_file(tl: Any) -> None:
    Path("lib/norm.tl").write_text(NORM.replace("sqrt", "sqart"), "utf-8")
    for line in ("check main.tl", "run main.tl x=f32[3,4]"):
        code, _, err = tl(*line.split())
        assert code == 1
        assert " --> lib/norm.tl:2:29" in err and "main.tl:1:5" in err
    code, out, _ = tl("check", "main.tl", "--json")
    (problem,) = json.loads(out)["diagnostics"]
    assert [(label["file"], label["line"]) for label in problem["labels"]] == [("lib/norm.tl", 2), ("main.tl", 1)]


def test_a_mistake_in_a_file_that_is_checked_and_used_is_told_once(tl: Any) -> None:
    Path("lib/norm.tl").write_text(NORM.replace("sqrt", "sqart"), "utf-8")
    for files in ("main.tl lib/norm.tl", "lib/norm.tl main.tl"):
        code, _, err = tl("check", *files.split())
        assert (code, err.count("error[")) == (1, 1)


def test_the_operators_of_a_file_are_listed_with_their_comments(tl: Any) -> None:
    assert tl("list", "main.tl") == (
        0,
        "main.tl\n\n    op f(x: f32[M, N]) -> (y: f32[M, N])\n        The softmax of what is normalised.\n",
        "",
    )
    out = tl("list", "main.tl", "--json")[1]
    assert json.loads(out)["modules"] == [
        {
            "module": "main.tl",
            "purpose": "",
            "operators": [
                {"name": "f", "signature": "op f(x: f32[M, N]) -> (y: f32[M, N])", "doc": "The softmax of what is normalised.\nMore of it."}
            ],
        }
    ]


def test_modules_and_their_operators_are_listed(tl: Any) -> None:
    code, out, _ = tl("list")
    assert code == 0 and "std.norm   Normalisations and softmax." in out and "op " not in out
    code, out, _ = tl("list", "std.norm")
    assert code == 0 and "    op softmax[T: float](" in out and "op conv" not in out
    code, out, _ = tl("list", "std")
    assert code == 0 and "    op softmax[T: float](" in out and "    op conv[T: num](" in out


@pytest.mark.parametrize(("what", "help"), [("std.nrom", "did you mean `std.norm`?"), ("frob", "installed packages offer `std`")])
def test_what_cannot_be_listed_is_told(tl: Any, what: str, help: str) -> None:
    code, _, err = tl("list", what)
    assert code == 1 and "error[C0214]" in err and help in err


HELPERS = """\
fn twice(x) = 2 * x

op f(x: f32[N]) -> (y: f32[N]) {
    y[i] = x[i]
}
"""


@pytest.mark.parametrize(
    "use", ['use "helpers.tl" (f, twice)', 'use "./helpers.tl" (twice as t)', 'use "helpers.tl" as h', 'use "helpers.tl"']
)
def test_a_function_that_another_file_uses_is_not_said_to_be_unused(tl: Any, use: str) -> None:
    Path("helpers.tl").write_text(HELPERS)
    assert "W0103" in tl("check", "helpers.tl")[2]
    Path("user.tl").write_text(f"{use}\n")
    assert tl("check", "helpers.tl")[2] == ""


def test_files_beside_and_above_are_users_too_and_those_of_other_names_or_files_are_none(tl: Any) -> None:
    Path("lib/helpers.tl").write_text(HELPERS)
    Path("other").mkdir()
    Path("other/helpers.tl").write_text(HELPERS)
    Path("other/user.tl").write_text('use "helpers.tl" as h\n# use "../lib/helpers.tl" as h\n')
    Path("user.tl").write_text('use "lib/helpers.tl" (f)\n')
    assert "W0103" in tl("check", "lib/helpers.tl")[2]
    Path("user.tl").write_text('use "lib/helpers.tl" (\n    f, twice\n)\n')
    assert tl("check", "lib/helpers.tl")[2] == ""
    Path("user.tl").unlink()
    Path("other/user.tl").write_text('use "../lib/helpers.tl" (twice)\n')
    assert tl("check", "lib/helpers.tl")[2] == ""


def test_a_file_without_operators_is_there_for_others(tl: Any) -> None:
    Path("fns.tl").write_text("fn twice(x) = 2 * x\n")
    assert tl("check", "fns.tl")[2] == ""
