"""The faults that `scripts/mutate.py` plants still have their places, and what it tells of a run is what happened."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from faults import FAULTS, Fault  # noqa: E402  # the path has to be set first
from mutate import MARK, Outcome, planted, report, row, verdict  # noqa: E402


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_has_one_place_and_can_be_planted(fault: Fault) -> None:
    text = planted((ROOT / fault.file).read_text("utf-8"), fault)
    assert fault.new != fault.old
    ast.parse(text)


def test_every_fault_has_a_name_of_its_own_and_tests_that_exist() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) > 44
    assert [t for fault in FAULTS for t in fault.tests if not (ROOT / t.split("::")[0]).is_file()] == []


@pytest.mark.parametrize(
    ("text", "status", "by"),
    [
        ("3 passed", 0, ""),
        ("FAILED tests/a.py::test_b - assert 1 == 2", 1, "a test"),
        ("FAILED tests/a.py::test_b[x - y] - assert 1 == 2", 1, "a test"),
        ("FAILED tests/a.py::test_b - codegen.errors.InternalError: bounds: `i` is not proven", 1, "the verifier `bounds`"),
        ("FAILED tests/a.py::test_b - tensorlang.diagnostics.CompileError: error[S0301]: this order", 1, "refusal S0301"),
        ("Fatal Python error: Segmentation fault", -11, "a crash"),
    ],
)
def test_what_noticed_a_fault_is_read_off_the_output(text: str, status: int, by: str) -> None:
    assert verdict(text, status, ("tests/a.py",), 1.0).by == by


def test_a_report_keeps_the_rows_of_faults_that_were_not_planted(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{MARK}\n", "utf-8")
    first, second = FAULTS[:2]
    report(page, {first.name: row(first, Outcome("a test", "tests/a.py::test_b", 3))})
    report(page, {second.name: row(second, Outcome("", "", 5))})
    text = page.read_text("utf-8")
    assert text.startswith(f"# Title\n\n{MARK}\n\n2 faults: 1 caught (1 by a test), 0 equivalent, 1 survive.\n")
    assert text.index(f"| {first.name} |") < text.index(f"| {second.name} |")
