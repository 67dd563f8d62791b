"""Notebooks: a cell in the language, and how operators, models and mistakes show themselves in HTML."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from IPython.core.interactiveshell import InteractiveShell
from onnx import TensorProto, helper

import tensorlang as tl
from tensorlang.diagnostics import CompileError, Diagnostic, Label, Source, Span

NASTY = '<script>alert("x")</script><img src=x onerror=alert(1)>&\x1b[2J'
HARMLESS = {"div", "strong", "code", "details", "summary", "pre", "span", "table", "thead", "tbody", "tr", "th", "td"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    InteractiveShell.clear_instance()
    made = InteractiveShell.instance()
    made.history_manager.enabled = False
    yield made
    InteractiveShell.clear_instance()


def shown(text: str) -> str:
    """Return the text of HTML, having seen that nothing in it does anything."""
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag in HARMLESS and {name for name, _ in attrs} <= {"style"}, (tag, attrs)

        def handle_data(self, data: str) -> None:
            found.append(data)

    Reader().feed(text)
    return "".join(found)


DOUBLE = "op double(x: f32[N]) -> (y: f32[N]) { y[i] = 2 * x[i] }\n"


def test_a_cell_in_the_language_makes_functions_of_its_operators(shell: Any) -> None:
    half = "op half(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] / 2 }"
    for text in ("%load_ext tensorlang", f"%%tensorlang --threads 1 --mode=strict\n{DOUBLE}{half}"):
        assert shell.run_cell(text).success
    result = shell.run_cell("import numpy as np\nfloat(half(double(np.full(3, 4, np.float32)))[1])")
    assert result.result == 4
    assert shell.user_ns["double"].tools.threads == 1
    assert shell.run_cell("%unload_ext tensorlang").success
    assert not shell.run_cell(f"%%tensorlang\n{DOUBLE}").success


@pytest.mark.parametrize(
    ("line", "cell", "code", "place"),
    [
        ("", "op f(x: f32[N]) -> (y: f32[N]) {\n  y[i] = z[i]\n}\n", "T0105", "<cell>:3:10"),
        ("", "op f(", "P0", "<cell>:2:"),
        ("--target tpu", DOUBLE, "C0101", "tpu"),
        ("--threads many", DOUBLE, "C0107", "many"),
        ("--threads 0", DOUBLE, "C0107", "0"),
        ("--thread 1", DOUBLE, "C0211", "--thread"),
        ("--threads", DOUBLE, "C0211", "no value"),
        ("--mode 'fast", DOUBLE, "C0211", "quot"),
        ("--mode slow", DOUBLE, "C0104", "slow"),
        ("--sizes some", DOUBLE, "C0105", "some"),
    ],
)
def test_a_mistake_in_a_cell_is_a_diagnostic_and_no_traceback(
    shell: Any, capsys: pytest.CaptureFixture[str], line: str, cell: str, code: str, place: str
) -> None:
    shell.run_cell("%load_ext tensorlang")
    capsys.readouterr()
    assert not shell.run_cell(f"%%tensorlang {line}\n{cell}").success, "cells after it do not run"
    out, err = capsys.readouterr()
    text = out + err
    assert f"error[{code}" in text and place in text
    assert "Traceback" not in text and "site-packages" not in text and "File " not in text
    assert "f" not in shell.user_ns and "double" not in shell.user_ns


def test_a_cell_uses_files_of_the_working_folder(shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.tl").write_text(DOUBLE)
    shell.run_cell("%load_ext tensorlang")
    text = 'use "mine.tl"\nop again(x: f32[N]) -> (y: f32[N]) { y = double(x) }'
    assert shell.run_cell(f"%%tensorlang\n{text}").success


def test_an_operator_shows_its_signature_how_it_is_written_and_its_loops() -> None:
    double = tl.parse("# Twice <b>x</b> & more\n" + DOUBLE, threads=1).double
    text = shown(double._repr_html_())
    assert "op double(x: f32[N]) -> (y: f32[N])" in text and "not compiled yet" in text and "for " not in text
    double(np.ones(5, np.float32))
    assert "for i in" in shown(double._repr_html_()) or "for " in shown(double._repr_html_())


def test_a_model_shows_its_inputs_and_outputs(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [d, 3]) for n, d in ((NASTY, NASTY), ("y", "n")))
    graph = helper.make_graph([helper.make_node("Relu", [NASTY], ["y"])], NASTY, [x], [y])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    model = tl.compile(path, threads=1)
    before = shown(model._repr_html_())
    assert before.count("<script>") == 3 and "\x1b" not in before
    model(np.ones((2, 3), np.float32))
    assert "1 kernel" in shown(model._repr_html_())
    assert "<script>" in shown(model.profile(np.ones((2, 3), np.float32))._repr_html_())


def test_mistakes_show_themselves_with_nothing_that_a_browser_obeys() -> None:
    source = Source(NASTY, f"one\n{NASTY}\n")
    label = Label(Span(source, 4, 8), NASTY)
    problem = CompileError(Diagnostic("T0101", NASTY, (label,), (NASTY,), NASTY), Diagnostic("T0102", "second"))
    text = shown(problem._repr_html_())
    assert text.count('<script>alert("x")</script>') >= 5 and "\x1b" not in text
    assert "error[T0101]" in text and "second" in text
