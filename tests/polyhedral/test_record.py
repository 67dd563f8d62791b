"""What is proven can be written down as it is proven."""

from __future__ import annotations

from polyhedral.expr import Compare, Int, Name
from polyhedral.record import Statement, recording, subject
from polyhedral.sets import implies

I = Name("i")
GIVEN, CLAIM = Compare("==", I, Int(3)), Compare(">=", I, Int(0))


def test_a_proof_leaves_its_statement_with_whoever_records() -> None:
    with recording() as shown:
        implies((), ("i",), GIVEN, CLAIM)
        subject("`i` is not negative")
    assert shown == [Statement("implies", "`i` is not negative", ("{ [i = 3] }", "{ [i] : i >= 0 }"))]


def test_what_is_refuted_leaves_nothing() -> None:
    with recording() as shown:
        implies((), ("i",), CLAIM, GIVEN)
    assert shown == []


def test_nothing_is_kept_when_nobody_records() -> None:
    with recording() as shown:
        pass
    implies((), ("i",), GIVEN, CLAIM)
    subject("nobody listens")
    assert shown == []
