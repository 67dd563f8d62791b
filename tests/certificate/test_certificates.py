"""Certificates of kernels as they are: accepted, by a checker that stands alone."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels import CHECKER, NAMES, OPERATORS, PARTS, SHAPES, checker, text_of, with_loops

import tensorlang as tl
from tensorlang.certificate import certificate
from tensorlang.cli import main


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_as_it_is_is_accepted_with_its_values(name: str) -> None:
    everywhere, values = checker().check(text_of(name))
    assert everywhere.startswith("bounds, 64 bits, order, races, coverage")
    assert values.startswith("values at")


def test_the_checker_imports_itself_the_standard_library_and_islpy_alone() -> None:
    imported = set()
    for node in (n for part in PARTS for n in ast.walk(ast.parse(part.read_text("utf-8")))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported - sys.stdlib_module_names - {part.stem for part in PARTS} == {"islpy"}


def test_the_checker_is_short_enough_to_be_read() -> None:
    lengths = [len(part.read_text("utf-8").splitlines()) for part in PARTS]
    assert max(lengths) < 400
    assert sum(lengths) < 980


def test_a_certificate_that_was_changed_is_rejected() -> None:
    changed = text_of("cumsum").replace("serial 12", "serial 11")
    with pytest.raises(checker().Rejected, match="digest"):
        checker().check(changed)


def test_loops_of_other_equations_are_rejected() -> None:
    other = {k: v for k, v in json.loads(text_of("softmax").replace('"exp"', '"exp2"')).items() if k != "digest"}
    with pytest.raises(checker().Rejected, match="do not compute the equations"):
        checker().check(checker().signed(other))


def test_expressions_that_are_no_equations_are_rejected_and_not_run() -> None:
    body = {k: v for k, v in json.loads(text_of("cumsum")).items() if k != "digest"}
    for planted in (["const", "i64", "print(1)"], ["bin", "if print(1) else", ["int", 1], ["int", 2]], ["int", "print(1)"]):
        changed = json.loads(json.dumps(body))
        changed["definitions"][0]["pieces"][0][1] = ["cast", "f32", False, ["index", planted]]
        with pytest.raises((checker().Rejected, ValueError)):
            checker().check(checker().signed(changed))


def test_values_that_would_take_too_long_are_said_not_to_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker(), "WORK", 10)
    everywhere, values = checker().check(text_of("conv"))
    assert everywhere == "bounds, 64 bits, order, races, coverage for these sizes"
    assert values.startswith("NOT values")


def test_sums_may_be_taken_in_another_order_unless_the_mode_is_strict() -> None:
    for mode, allowed in (("reduce", True), ("strict", False)):
        texts: dict[str, str] = {}
        arrays = [np.zeros(s, "f") for s in SHAPES["matmul"]]
        matmul = tl.parse(OPERATORS, threads=1, mode=mode).matmul  # type: ignore[arg-type]
        matmul.stages(*arrays, dump=texts.__setitem__)
        text = certificate(matmul.program(*arrays), texts["loops"])
        k = re.search(r"for (\w*_k\w*) in", texts["loops"])
        assert checker().check(text) and k is not None
        backwards = re.sub(rf"(?<=[\[ ]){k[1]}(?=[\],])", f"3 - {k[1]}", texts["loops"])
        if allowed:
            assert checker().check(with_loops(text, backwards))
        else:
            with pytest.raises(checker().Rejected, match="do not compute"):
                checker().check(with_loops(text, backwards))


def test_the_command_line_writes_what_the_checker_accepts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ops.tl").write_text(OPERATORS, "utf-8")
    out = tmp_path / "take.json"
    monkeypatch.setattr(
        sys, "argv", ["tensorlang", "certify", str(tmp_path / "ops.tl"), "take", "x=f32[5,9]", "ids=i64[4]", "-o", str(out)]
    )
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 0
    assert json.loads(out.read_text("utf-8"))["kernel"] == "take"
    checked = subprocess.run([sys.executable, str(CHECKER), str(out)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert ": accepted: bounds" in checked.stdout


def test_explain_lists_what_was_proven_as_sets_and_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "ops.tl").write_text(OPERATORS, "utf-8")
    monkeypatch.setattr(sys, "argv", ["tensorlang", "explain", str(tmp_path / "ops.tl"), "cumsum", "x=f32[100]", "--proof"])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 0
    out = capsys.readouterr().out
    for title in ("bounds", "single assignment, whole", "well-founded order", "instances", "definedness", "order of the schedule"):
        assert f"\n{title}: " in out
    assert "    axis 0 of `y`: i - 1\n          { [i] : 0 < i <= 99 }\n        ⊆ { [i] : 0 < i <= 100 }\n" in out
    assert "    y.1 -> y.1\n          { [i0] -> [1 + i0] : 0 < i0 <= 98 }\n" in out


def test_explain_lists_what_parallel_loops_keep_together() -> None:
    rows = "op rows(x: f32[M, N]) -> (y: f32[M, N]) {\n y[i, 0] = x[i, 0] for N >= 1\n y[i, j] = y[i, j - 1] + x[i, j] for j in 1..N\n}"
    text = tl.parse(rows, threads=2).rows.schedule("parallel i").proofs(np.zeros((4, 5), "f"))
    assert "\nparallel loops and lanes: no pair lies in two iterations of the loop\n    y.0 -> y.1, y.i\n" in text


def test_proofs_and_certificates_of_models_are_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for command in (["certify"], ["explain", "--proof"]):
        monkeypatch.setattr(sys, "argv", ["tensorlang", command[0], str(tmp_path / "model.onnx"), *command[1:]])
        with pytest.raises(SystemExit) as done:
            main()
        assert done.value.code == 1
        assert "error[C0103]: not supported yet" in capsys.readouterr().err
