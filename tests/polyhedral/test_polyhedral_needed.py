"""Which instances somebody needs: through recurrences, exactly where isl knows the closure, and never fewer."""

from __future__ import annotations

from functools import partial

import pytest

from polyhedral import needed as module
from polyhedral.expr import TRUE, Add, And, Compare, Floor, Int, Name, Scale
from polyhedral.model import Access, Scop, Statement, Tensor
from polyhedral.needed import needed
from polyhedral.space import Frame, limited

I, T = Name("i"), Name("t")
BOX = And((Compare(">=", I, Int(0)), Compare("<", I, Int(12)), Compare(">=", T, Int(0)), Compare("<", T, Int(12))))
ROWS = And((Compare(">=", I, Int(0)), Compare("<", I, Int(12))))
BLOCK = Add(Scale(2, Floor(I, 4)), Int(1))


def scop(asked: object, begins: object = Int(0)) -> Scop:
    """Return s[i, t] from s[i, t - 1] where t > begins, and y[i] from s[i, asked], of 12 rows and steps."""
    step = Access("s", (I, Add(T, Int(-1))), Compare(">", T, begins))  # type: ignore[arg-type]
    made = Statement("s", ("i", "t"), BOX, Access("s", (I, T)), (step, Access("x", (I, T), TRUE)))
    last = Statement("y", ("i",), ROWS, Access("y", (I,)), (Access("s", (I, asked), TRUE),))  # type: ignore[arg-type]
    tensors = (Tensor("x", (Int(12), Int(12))), Tensor("s", (Int(12), Int(12))), Tensor("y", (Int(12),)))
    return Scop((), TRUE, tensors, frozenset({"x"}), (made, last))


@pytest.mark.parametrize(
    ("asked", "begins", "wanted"),
    [
        (Int(11), Int(0), BOX),
        (Int(3), Int(0), Compare("<=", T, Int(3))),
        (I, Int(0), Compare("<=", T, I)),
        (BLOCK, Int(0), Compare("<=", T, BLOCK)),
        (BLOCK, Scale(2, Floor(I, 4)), And((Compare("<=", T, BLOCK), Compare(">=", T, Scale(2, Floor(I, 4)))))),
    ],
    ids=["all of them", "the first steps", "a triangle", "blocks of rows", "blocks that begin later"],
)
def test_steps_up_to_the_one_that_is_asked_for_are_needed(asked, begins, wanted) -> None:
    found = needed(scop(asked, begins), {"y"})
    frame = Frame((), ("i", "t"))
    assert found["s"].is_equal(frame.set(BOX).intersect(frame.set(wanted)))
    assert found["y"].is_equal(Frame((), ("i",)).set(ROWS))


def test_what_nobody_reads_is_not_needed_and_roots_are() -> None:
    assert needed(scop(Int(3)), set())["s"].is_empty()
    assert needed(scop(Int(3)), {"s"})["s"].is_equal(Frame((), ("i", "t")).set(BOX))


def test_all_steps_are_needed_where_it_takes_too_long_to_tell_which(monkeypatch) -> None:
    monkeypatch.setattr(module, "limited", partial(limited, 10))
    assert needed(scop(I), {"y"})["s"].is_equal(Frame((), ("i", "t")).set(BOX))
