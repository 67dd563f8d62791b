"""`trust`: what a proof does not decide is accepted with a reason, which is on record; what it refutes is not."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scheduled_programs import legal, written

import tensorlang as tl
from tensorlang.diagnostics import CompileError
from tensorlang.schedule import check, verdict
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule

TEXT = "op f(x: f32[N]) -> (y: f32[N]) {\n    t[i] = 2 * x[i]\n    y[i] = t[i] + 1\n}\n"
REASON = "compared with NumPy"
TRUST = f'trust "{REASON}"'


def scheduled(*directives: str) -> str:
    return "\n".join([f"{TEXT}schedule f for cpu {{", *directives, "}\n"])


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let proofs about orders end after a few steps."""
    monkeypatch.setattr(check, "verdict_of", partial(verdict.verdict_of, limit=10))


@pytest.mark.usefixtures("impatient")
def test_what_is_not_decided_is_refused_unless_somebody_says_why_to_trust_it() -> None:
    with pytest.raises(CompileError, match=r'(?s)S0400.*`trust "REASON"`') as refused:
        legal(scheduled("reverse t.i"))
    assert [d.code for d in refused.value.diagnostics] == ["S0400"]
    _, plan = legal(scheduled(TRUST, "reverse t.i"))
    assert plan.trusted.endswith(f"and trusted: {REASON}") and "10 steps" in plan.trusted


def test_where_the_proof_ends_there_is_nothing_to_trust() -> None:
    _, plan = legal(scheduled(TRUST, "reverse t.i"))
    assert plan.trusted == ""
    assert f"`{TRUST}` changes nothing: all is proven" in plan.idle
    with pytest.raises(CompileError) as refused:
        wrong = written(scheduled(TRUST, "at t at y.i", "order y.i", "fold t at i by 1", "skew t.i by t.i"))
        proven(wrong.program, wrong.schedule)
    assert all(d.code != "S0400" for d in refused.value.diagnostics)


@pytest.mark.usefixtures("impatient")
def test_what_one_proof_does_not_decide_another_refutes() -> None:
    found = written(scheduled(TRUST, "fold t at i by 2"))
    with pytest.raises(CompileError) as refused:
        proven(found.program, found.schedule)
    assert [d.code for d in refused.value.diagnostics] == ["S0308"]


@pytest.mark.parametrize("line", ["trust", "trust y", 'trust ""', 'trust "a", "b"', 'trust "a" at y.i'])
def test_a_reason_is_one_text(line: str) -> None:
    with pytest.raises(CompileError) as refused:
        legal(scheduled(line))
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.code == "S0102"


def test_a_schedule_trusts_once() -> None:
    with pytest.raises(CompileError, match="a schedule trusts once"):
        legal(scheduled(TRUST, 'trust "again"'))


@pytest.mark.usefixtures("impatient")
def test_what_is_trusted_is_in_reports_and_in_the_record_of_a_library(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32)
    operator = tl.parse(scheduled(TRUST, "reverse t.i")).f
    assert np.array_equal(operator(x), 2 * x + 1)
    told = str(operator.explain(x))
    assert f"and trusted: {REASON}" in told and "the order keeps all dependences" not in told
    assert f"trusted: {REASON}" in operator.proofs(x)
    operator.save(tmp_path / "lib", {"x": x})
    assert REASON in (tmp_path / "lib" / "manifest.json").read_text("utf-8")


@pytest.mark.usefixtures("impatient")
def test_what_is_derived_beside_it_is_not_trusted() -> None:
    with pytest.raises(CompileError, match="S0400"):
        tl.parse(scheduled(TRUST, "derive")).f(np.zeros(64, np.float32))


def test_a_reason_is_said_from_python_as_it_is_written() -> None:
    assert str(Schedule("f").trust(REASON)) == f"schedule f for cpu {{\n    {TRUST}\n}}"
