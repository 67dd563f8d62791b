"""`tensorlang check` proves the schedules of a file for all sizes, and `--replay` shows what a refused one would have done."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tensorlang.check.module import load_module
from tensorlang.cli import app
from tensorlang.diagnostics import CompileError, Diagnostic, Source
from tensorlang.policy.prove import prove_schedules
from tensorlang.schedule import check
from tensorlang.schedule.cures.refusal import Refusal
from tensorlang.syntax.parse import parse

CUMSUM = """op cumsum[T: num](x: T[N]) -> (y: T[N]) {
    y[0] = x[0]
    y[i] = y[i - 1] + x[i]   for i in 1..N
}
"""
MATMUL = """op mm[T: float](a: T[M, K], b: T[K, N]) -> (c: T[M, N]) {
    c[i, j] = sum(k) a[i, k] * b[k, j]
}
"""


def refusals(text: str, replaying: bool = False) -> list[str]:
    module = load_module(parse(Source("f.tl", text)))
    return [str(CompileError(d)) for d in prove_schedules(module, replaying=replaying)]


def test_a_legal_schedule_is_proven_for_all_sizes() -> None:
    directives = ("tile c (i, j) by (8, 32) -> io, jo, ii, ji", "order jo, io, k, ii, ji", "vectorize ji", "parallel jo")
    tiled = "schedule mm for cpu {\n" + "".join(f"    {d}\n" for d in directives) + "}\n"
    assert refusals(MATMUL + tiled) == []


def test_a_schedule_that_needs_numbers_is_proven_for_a_sample() -> None:
    assert refusals(MATMUL + "schedule mm for cpu {\n    fuse i, j -> ij\n    parallel ij\n}\n") == []


def test_a_schedule_that_one_sample_refuses_is_warned_of_unless_it_has_conditions() -> None:
    [message] = refusals(MATMUL + "schedule mm for cpu {\n    unroll i\n}\n")
    assert message.startswith("warning[W0202]") and "unroll i" in message
    refused, legal = (", ".join(f"{size} = {n}" for size in "MKN") for n in (512, 37))
    assert f"with {refused} the schedule is refused (S0207), with {legal} it is legal" in message
    assert refusals(MATMUL + "schedule mm for cpu {\n    unroll i if M < 50\n}\n") == []


@pytest.mark.parametrize("directive", ["cut i at count -> a, b", "unroll k if count == 2"])
def test_a_schedule_that_asks_for_an_attribute_is_proven_for_the_value_that_the_operator_is_checked_for(directive: str) -> None:
    text = MATMUL.replace("b: T[K, N])", "b: T[K, N], attr count: int)")
    assert refusals(f"{text}schedule mm for cpu {{\n    {directive}\n}}\n") == []


def test_what_cures_a_refusal_is_looked_for_once_whatever_sizes_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[str]()

    def cured(refusal: Refusal) -> Diagnostic:
        looked.append(refusal.text)
        return refusal.diagnostic

    monkeypatch.setattr(check, "cured", cured)
    for directive in ("order i, n", "parallel k"):
        assert len(refusals(MATMUL + f"schedule mm for cpu {{\n    {directive}\n}}\n")) == 1
    assert looked == ["order i, n", "parallel k"]


def test_a_schedule_with_conditions_is_proven_for_samples_on_both_sides() -> None:
    assert refusals(MATMUL + "schedule mm for cpu {\n    parallel i if M > 100\n    parallel j if M < 100\n}\n") == []
    for condition in ("M > 100", "M < 100"):
        [message] = refusals(MATMUL + f"schedule mm for cpu {{\n    parallel k if {condition}\n}}\n")
        assert "S0302" in message and f"parallel k if {condition}" in message


@pytest.mark.parametrize(
    ("text", "line", "shown"),
    [
        (CUMSUM + "schedule cumsum for cpu {\n    split i by 8 -> io, ii\n    vectorize ii\n}\n", "vectorize ii", "races"),
        (CUMSUM + "schedule cumsum for cpu {\n    reverse i\n}\n", "reverse i", "replayed"),
        (MATMUL + "schedule mm for cpu {\n    parallel k\n}\n", "parallel k", "races"),
    ],
    ids=["lanes", "order", "threads"],
)
def test_a_refusal_names_its_line_and_replays(text: str, line: str, shown: str) -> None:
    [message] = refusals(text, replaying=True)
    assert line in message and "replayed: " in message and shown in message
    assert "by chance" not in message
    [plain] = refusals(text)
    assert "replayed" not in plain


def test_schedules_for_devices_are_proven_with_the_instructions_of_the_library(tmp_path: Path) -> None:
    directives = ("split i by 16 -> io, mi", "split j by 8 -> jo, ni", "split k by 16 -> ko, ki", "order io, jo, ko, mi, ni, ki")
    bound = (*directives, "bind io, jo to block.y, block.x", "tensorize mi, ni, ki with mma_m16n8k16_f16")
    operator = "op mm(a: f16[M, K], b: f16[N, K]) -> (y: f32[M, N]) { y[i, j] = sum(k) f32(a[i, k]) * f32(b[j, k]) }\n"
    right, wrong = tmp_path / "right.tl", tmp_path / "wrong.tl"
    for path, last in ((right, ()), (wrong, ("bind ko to block.z",))):
        path.write_text(operator + "schedule mm for cuda {\n" + "".join(f"    {d}\n" for d in (*bound, *last)) + "}\n", "utf-8")
    CliRunner().invoke(app, ["check", str(right)], catch_exceptions=False, standalone_mode=False)
    with pytest.raises(CompileError, match="bind ko to"):
        CliRunner().invoke(app, ["check", str(wrong)], catch_exceptions=False, standalone_mode=False)


def test_a_schedule_for_every_graphics_processor_is_proven_for_each_of_them() -> None:
    scan = "op scan(x: f32[64]) -> (y: f32[]) { y = sum(i) x[i] }\n"
    assert refusals(scan + "schedule scan for hip { bind i to lane }\n") == []
    [message] = refusals(scan + "schedule scan for gpu { bind i to lane }\n")
    assert "S0207" in message and "at most 32" in message
    assert refusals(scan + "schedule scan for gpu {\n    split i by 32 -> io, ii\n    bind ii to lane\n}\n") == []


def test_the_command_line_refuses_the_file_and_leaves_with_one(tmp_path: Path) -> None:
    path = tmp_path / "f.tl"
    path.write_text(CUMSUM + "schedule cumsum for cpu {\n    split i by 8 -> io, ii\n    vectorize ii\n}\n", "utf-8")
    with pytest.raises(CompileError, match="replayed"):
        CliRunner().invoke(app, ["check", "--replay", str(path)], catch_exceptions=False, standalone_mode=False)
