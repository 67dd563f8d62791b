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
from kernels import CHECKER, NAMES, OPERATORS, SHAPES, checker, text_of, with_loops
from ml_dtypes import bfloat16

import tensorlang as tl
from tensorlang.certificate import certificate, written
from tensorlang.cli import main


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_as_it_is_is_accepted_with_its_values(name: str) -> None:
    everywhere, values = checker().check(text_of(name))
    assert everywhere.startswith("bounds, 64 bits, order, races, coverage")
    assert values.startswith("values at")


OTHERS = """
op softmax(x: f32[A.., N]) -> (y: f32[A.., N]) where N >= 1 {
    e[a.., j] = exp(x[a.., j] - max(k) x[a.., k])
    y[a.., j] = e[a.., j] / sum(k) e[a.., k]
}
op transpose(x: f32[D..], attr perm..: int) -> (y: f32[D[perm]..]) { y[d[perm]..] = x[d..] }
op flatten(x: f32[A, B, 4]) -> (y: f32[A, (B, 4)]) { y[a, (b, c)] = 2 * x[a, b, c] }
op mean(x: f32[D.., E]) -> (y: f32[D..]) { y[d..] = sum(e) x[d.., e] / f32(E) }
op conv2d(x: f32[C, H, W], w: f32[F, C, R, S]) -> (y: f32[F, (H + 2 - R) // 2 + 1, (W + 2 - S) // 2 + 1]) {
    y[f, p, q] = sum(c, r, s) x[c, 2*p + r - 1, 2*q + s - 1 | 0] * w[f, c, r, s]
}
"""
ARGUMENTS: dict[str, tuple[tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    "softmax": (((2, 3, 5),), {}),
    "transpose": (((2, 3, 5),), {"perm": (2, 0, 1)}),
    "flatten": (((2, 3, 4),), {}),
    "mean": (((2, 3, 5),), {}),
    "conv2d": (((2, 5, 6), (2, 2, 3, 3)), {}),
}


@pytest.mark.parametrize("sizes", ["static", "symbolic"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_may_have_other_axes_and_sizes_other_names_than_in_the_equations(name: str, sizes: Any) -> None:
    operator = tl.parse(OTHERS, sizes=sizes, threads=1)[name]
    operator = operator.schedule("parallel f") if (name, sizes) == ("conv2d", "symbolic") else operator  # its tiles take a minute to check
    shapes, attrs = ARGUMENTS[name]
    arrays, texts = [np.zeros(s, "f") for s in shapes], dict[str, str]()
    operator.stages(*arrays, dump=texts.__setitem__, **attrs)
    everywhere, values = checker().check(certificate(operator.program(*arrays, **attrs), texts["loops"]))
    assert everywhere.startswith("bounds")
    assert values.startswith("values at")


def test_arguments_of_another_memory_are_rejected() -> None:
    body = json.loads(text_of("softmax"))
    body["loops"]["params"][0]["shape"] = [["const", "ix", n] for n in (4, 19)]
    with pytest.raises(checker().Rejected, match="is another argument than"):
        checker().check(written(body))


def test_the_checker_imports_the_standard_library_and_islpy_alone() -> None:
    imported = set()
    for node in ast.walk(ast.parse(CHECKER.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported - sys.stdlib_module_names == {"islpy"}


def test_the_checker_is_short_enough_to_be_read() -> None:
    lines = CHECKER.read_text("utf-8").splitlines()
    assert len(lines) <= 500
    assert max(map(len, lines)) <= 140


def test_a_certificate_whose_loops_were_changed_is_rejected() -> None:
    text = text_of("cumsum")
    changed = text.replace('"serial", 11', '"serial", 10')
    assert changed != text
    with pytest.raises(checker().Rejected, match="runs too often"):
        checker().check(changed)


def test_loops_of_other_equations_are_rejected() -> None:
    body = json.loads(text_of("softmax"))
    other = body | {"definitions": json.loads(json.dumps(body["definitions"]).replace('"exp"', '"exp2"'))}
    with pytest.raises(checker().Rejected, match="do not compute the equations"):
        checker().check(written(other))


def test_expressions_that_are_no_equations_are_rejected_and_not_run() -> None:
    body = json.loads(text_of("cumsum"))
    for planted in (
        ["const", "i64", "print(1)"],
        ["if print(1) else", "i64", ["const", "i64", 1], ["const", "i64", 2]],
        ["name", "ix", "print(1)"],
    ):
        changed = json.loads(json.dumps(body))
        changed["definitions"][0]["pieces"][0][1] = ["cast", "f32", planted]
        with pytest.raises((checker().Rejected, ValueError)):
            checker().check(written(changed))


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


BF16 = "op f(a: bf16[M, K], b: bf16[K, N]) -> (c: f32[M, N]) { c[i, j] = sum(k) f32(a[i, k]) * f32(b[k, j]) }"
DOTS = """func f()(a: bf16[3, 4], b: bf16[5, 4], out c: f32[3, 5]) {
    for i in 0 .. 3 { for j in 0 .. 5 {
        c[i, j] = 0.0_f32
        for k in 0 .. 2 { c[i, j] = dot(2, a[i, 2*k], b[j, 2*k], c[i, j]) } } } }"""


@pytest.mark.parametrize(("mode", "accepted"), [("reduce", True), ("strict", False)])
def test_an_instruction_that_sums_products_in_its_own_order_is_accepted_where_sums_have_none(mode: Any, accepted: bool) -> None:
    turned = BF16.replace("b: bf16[K, N]", "b: bf16[N, K]").replace("b[k, j]", "b[j, k]")
    arrays = [np.zeros(s, bfloat16) for s in ((3, 4), (5, 4))]
    text = certificate(tl.parse(turned, threads=1, mode=mode).f.program(*arrays), DOTS)
    if accepted:
        assert checker().check(text)[1] == "values at these sizes"
        text = certificate(tl.parse(turned, threads=1, mode=mode).f.program(*arrays), DOTS.replace("b[j, 2*k]", "b[j, 0]"))
    with pytest.raises(checker().Rejected, match="do not compute the equations"):
        checker().check(text)


def test_an_operand_that_leaves_every_bit_of_the_other_may_be_dropped_and_no_other() -> None:
    loops = "func f()(x: f32[4], out y: f32[4]) { for i in 0 .. 4 { y[i] = x[i] } }"
    for value, same in {
        **dict.fromkeys(("x[i] * 1", "1 * x[i]", "x[i] / 1", "x[i] - 0", "x[i] + -0.0"), True),
        **dict.fromkeys(("1 / x[i]", "x[i] + 0", "0 - x[i]", "x[i] * 2", "max(x[i], 0)", "max(x[i], -0.0)"), False),
    }.items():
        text = certificate(tl.parse(f"op f(x: f32[N]) -> (y: f32[N]) {{ y[i] = {value} }}", threads=1).f.program(np.zeros(4, "f")), loops)
        if same:
            assert checker().check(text)[1] == "values at these sizes"
        else:
            with pytest.raises(checker().Rejected, match="do not compute the equations"):
                checker().check(text)


def test_sizes_at_which_no_element_is_in_its_declared_range_are_not_compared() -> None:
    operator = tl.parse(OPERATORS, sizes="symbolic", threads=1).ranged
    arrays, texts = [np.zeros((5, 9), "f"), np.zeros(4, np.int64)], dict[str, str]()
    operator.stages(*arrays, dump=texts.__setitem__)
    values = checker().check(certificate(operator.program(*arrays), texts["loops"]))[1]
    assert "R = 1, K = 1, Q = 1" in values
    assert not re.search(r"R = 0, K = \d+, Q = [1-9]", values)


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
