"""Schedules near an operator's own, which `explain --measure` proves, measures and prints to be pasted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run

import tensorlang as tl
from tensorlang.shell.variants import Faster, Tried, Variant, tried, tried_text, variants

PRODUCT = "op mm(a: f32[M, K], b: f32[K, N]) -> (c: f32[M, N]) { c[i, j] = sum(k) a[i, k] * b[k, j] }\n"
LINES = (
    "split c.i by 6 -> io, ii",
    "split c.j by 16 -> jo, ji",
    "order c.jo, c.io, c.k, c.ii, c.ji",
    "unroll c.ii",
    "vectorize c.ji",
    "parallel c.jo",
)


def program(text: str = PRODUCT, *arrays: Any) -> Any:
    [name] = list(ops := tl.parse(text, threads=1))
    return ops[name].compiled(ops[name].call(*arrays or (np.ones((9, 7), np.float32), np.ones((7, 32), np.float32)))).program


def test_schedules_near_one_differ_in_one_factor_one_directive_or_one_operand_in_another_order() -> None:
    found = [v.change for v in variants(program(), LINES)]
    rows = [f"`split c.i by {n} -> io, ii` for `{LINES[0]}`" for n in (3, 4, 5, 7, 8, 12)]
    lanes = [f"`split c.j by {n} -> jo, ji` for `{LINES[1]}`" for n in (8, 32)]
    assert found == [*rows, *lanes, "without `parallel c.jo`", "with `pack b as [c.jo, c.k, c.ji]`"]
    assert all(len(set(v.lines) ^ set(LINES)) in (1, 2) for v in variants(program(), LINES))


def test_an_operand_that_is_packed_already_is_not_packed_again() -> None:
    assert not [v for v in variants(program(), (*LINES, "pack b as [c.jo, c.k, c.ji]")) if v.change.startswith("with `")]


def test_each_schedule_is_measured_and_what_is_refused_is_counted() -> None:
    scan = "op scan(x: f32[N]) -> (y: f32[N]) { y[0] = x[0]\n y[i] = y[i - 1] + x[i] for i in 1..N }\n"
    schedule = "schedule scan for cpu { split y.i by 8 -> o, v\n unroll y.v }"
    seen: list[tuple[str, int, int]] = []
    found = tried(tl.parse(scan + schedule, threads=1).scan, {"x": np.ones(999, np.float32)}, 0.02, lambda *told: seen.append(told))
    assert (found.count, found.refused) == (6, 0)
    assert all(f.ratio >= 1.02 and f.variant.lines[-1] == "unroll y.v" for f in found.faster)
    assert seen[-1] == ("compiling schedules", 6, 6)


def test_the_fastest_is_printed_to_be_pasted() -> None:
    variant = Variant("with `parallel c.i`", ("order c.j, c.i", "parallel c.i"))
    text = tried_text("mm", "cpu", Tried(3, 1, (Faster(1.5, variant),)))
    assert text.splitlines()[1:] == [
        "           1.50x as fast: with `parallel c.i`",
        "",
        "schedule mm for cpu {",
        "    order c.j, c.i",
        "    parallel c.i",
        "}",
    ]
    tl.parse(PRODUCT + text[text.index("schedule mm") :])
    assert tried_text("mm", "cpu", Tried(3, 0, ())).splitlines()[1].strip() == "none is 1.02x as fast"


def test_explain_measures_schedules_of_an_operator_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorlang.commands.explain._SECONDS", 0.02)
    (file := tmp_path / "mm.tl").write_text(PRODUCT)
    code, out, _ = run(capsys, "explain", file, "a=f32[9,7]", "b=f32[7,32]", "--measure", "--json")
    found = json.loads(out)
    assert code == 0 and "\nmeasured   " in found["text"]
    assert all(set(f) == {"ratio", "change", "schedule"} for f in found["faster"])
