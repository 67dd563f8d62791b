"""Schedules that are refused: one diagnostic each, at the directive's own line, with a pair of instances that a run confirms.

The line is marked `# refused` in the text.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from golden_case import cases, source
from scheduled_programs import written

from tensorlang.diagnostics import CompileError
from tensorlang.replay import Difference, Hazard, replay
from tensorlang.schedule.check import proven

CASES = cases("bad_schedules")
SHARED = "share the element"


@cache
def refusal(case: Path) -> CompileError:
    with pytest.raises(CompileError) as refused:
        found = written(source(case), case.name)
        proven(found.program, found.schedule)
    return refused.value


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
