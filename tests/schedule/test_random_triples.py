"""A schedule cannot change what an operator computes: random programs, sizes and schedules (`scripts/fuzz.py` tries many more).

Accepted: the loops compute what the operator says, in the interpreter, which also watches races and memory, and every few natively.
Refused: a run of the refused order shows why, unless the values happen to hide it.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schedule_trial import trial
from strategies_schedule import Case, family, family_names, scheduled

from codegen.dtypes import f64
from tensorlang.tensor.prove import prove


def test_random_schedules_compute_what_the_operator_says() -> None:
    kinds: Counter[str] = Counter()
    findings: list[str] = []

    @seed(20)
    @settings(max_examples=100, phases=[Phase.generate], deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(scheduled(), st.integers(0, 2**16))
    def one(case: Case, number: int) -> None:
        outcome = trial(case, number, natively=sum(kinds.values()) % 8 == 0)
        kinds[outcome.kind] += 1
        if outcome.kind == "different":
            findings.append(f"{case}\n{outcome.text}")

    one()
    assert not findings, findings[0]
    assert kinds["accepted"] >= 27 and kinds["replayed"] >= 7, kinds
    assert kinds["silent"] * 10 <= kinds["replayed"], kinds
    assert kinds["unknown"] == 0, kinds


@pytest.mark.parametrize("name", family_names())
def test_the_programs_are_themselves_right(name: str) -> None:
    prove(family(name, f64))
