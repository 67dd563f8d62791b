"""Schedules that are refused: one diagnostic each, at the directive's own line, with a pair of instances that a run confirms.

The line is marked `# refused` in the text. What cures most of them is told, and is an edit of the text.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from cure_share import golden_refusals, refusal
from golden_case import cases, source
from scheduled_programs import assert_same, some_sizes, written

from tensorlang.replay import Difference, Hazard, replay
from tensorlang.schedule.check import proven
from tensorlang.schedule.cures.cure import UNREAD

CASES = cases("bad_schedules")
SHARED = "share the element"
CURED, CONSTRUCTIVE = 0.9, 0.6
"""Of the golden refusals at least: told what cures them, and by more than leaving a directive out."""


def test_there_are_at_least_thirty_of_them():
    assert len(CASES) >= 30


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
def test_a_bad_schedule_is_refused_with_the_golden_words(case, golden_case):
    golden_case(case, str(refusal(case)) + "\n")


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
def test_the_one_diagnostic_points_at_the_directive(case):
    (diagnostic,) = refusal(case).diagnostics
    main = diagnostic.labels[0].span
    line, _ = main.source.location(main.start)
    assert main.source.line(line).endswith("# refused")
    assert diagnostic.code.startswith("S0")


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
def test_a_refuted_order_shows_two_instances_the_element_and_what_goes_wrong(case):
    (diagnostic,) = refusal(case).diagnostics
    if not diagnostic.code.startswith("S03"):
        return
    first = diagnostic.notes[0]
    if diagnostic.code == "S0308":
        assert first.count("`") == 4
    else:
        assert SHARED in first and first.count(" at (") == 2
    found = written(source(case), case.name)
    seen = replay(found.program, found.schedule)
    assert isinstance(seen, Difference | Hazard), "a refusal that no run confirms"


def test_most_of_them_are_proofs_and_not_only_mistakes_in_writing():
    codes = [refusal(case).diagnostics[0].code for case in CASES]
    assert sum(code.startswith("S03") for code in codes) >= 25


def test_most_refusals_are_told_what_cures_them() -> None:
    found = list(golden_refusals())
    assert sum(one.cured for one in found) >= CURED * len(found)
    assert sum(one.constructive for one in found) >= CONSTRUCTIVE * len(found)
    assert sum(one.applicable for one in found) >= CURED * len(found)


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
def test_the_edit_of_a_refusal_makes_the_schedule_legal(case: Path) -> None:
    """Whatever the edit leaves of the schedule is proven when it is read again, and computes what the operator says."""
    text = source(case)
    (diagnostic,) = refusal(case).diagnostics
    edits = diagnostic.edits
    if diagnostic.code in UNREAD and not edits:
        assert "without" in (diagnostic.help or "")
        return
    assert edits
    for edit in sorted(edits, key=lambda e: e.span.start, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    found = written(text, case.name)
    plan = proven(found.program, found.schedule)
    if found.schedule.target == "cpu" and "strict" not in text:
        for sizes in some_sizes(found.program)[:2]:
            assert_same(found.program, plan, sizes)
