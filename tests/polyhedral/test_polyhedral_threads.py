"""Threads of a block that meet in a cell, and numbers that they hand each other, in the smallest cases."""

from __future__ import annotations

import islpy as isl
import pytest

from polyhedral.expr import TRUE, Compare, Cond, Expr, Int, Name
from polyhedral.signals import Signals, signal_fault
from polyhedral.threads import THREAD, Block, Conflict, ThreadAccess
from polyhedral.waits import Ending, Moment

T = Name(THREAD)


def touch(time: int, writes: bool, when: Cond = TRUE, cell: Expr = Int(0), group: Expr | None = None) -> ThreadAccess:  # noqa: B008  # immutable
    return ThreadAccess("s", (cell,), writes, (Int(time),), (), when, group)


def only(thread: int) -> Cond:
    return Compare("==", T, Int(thread))


def exposed(touches: list[ThreadAccess], barriers: list[int] = [], waits: list[tuple[int, int]] = []) -> tuple[int, int] | None:  # noqa: B006  # read only
    endings = [Ending((Int(time),), (), TRUE, Int(ended)) for time, ended in waits]
    block, moments = Block(touches, (), TRUE, 4, endings), [Moment((Int(time),), (), TRUE) for time in barriers]
    ordered, found = block.is_ordered(moments), block.exposed(moments)
    assert found is None or isinstance(found, Conflict)
    assert ordered == block.is_ordered(moments) == (found is None)
    return None if found is None else found.threads


def test_threads_that_write_one_cell_at_the_same_time_meet() -> None:
    assert exposed([touch(1, True)]) is not None
    assert exposed([touch(1, True, cell=T)]) is None
    assert exposed([touch(1, False)]) is None


@pytest.mark.parametrize(("first", "second"), [(0, 3), (3, 0)])
def test_whichever_thread_comes_first_it_meets_the_other(first: int, second: int) -> None:
    pair = [touch(1, True, only(first)), touch(3, False, only(second))]
    assert exposed(pair) == (first, second)
    assert exposed(pair, barriers=[2]) is None


def test_what_a_barrier_was_put_there_for_is_unordered_again_without_it() -> None:
    early, needed = (Moment((Int(time),), (), TRUE) for time in (2, 4))
    block = Block([touch(3, True, cell=T), touch(5, False, cell=Int(2))], (), TRUE, 4)
    assert block.exposed([]) is not None and block.is_ordered([early, needed])
    assert not block.is_ordered([early]) and block.is_ordered([needed])


def test_no_accesses_are_known_to_be_ordered_where_finding_out_takes_too_long() -> None:
    pair = [touch(1, True, only(0)), touch(3, False, only(3))]
    assert not Block(pair, (), TRUE, 4).is_ordered([Moment((Int(2),), (), TRUE)], limit=1)


def test_a_wait_ends_what_has_begun_before_it() -> None:
    pair = [touch(3, True, only(0), group=Int(0)), touch(7, False, only(0))]
    assert exposed(pair) == (0, 0)
    assert exposed(pair, waits=[(1, 1)]) == (0, 0)
    assert exposed(pair, waits=[(5, 0)]) == (0, 0)
    assert exposed(pair, waits=[(5, 1)]) is None


def signals(asked: str, landed: str, released: str, reclaimed: str) -> Signals:
    """Each is points of time and the number that is given then, as `1: 0, 5: 1`."""

    def numbered(text: str) -> isl.Map | None:
        pairs = [p.split(":") for p in text.split(",") if p]
        return isl.Map("{ " + "; ".join(f"[{time.strip()}] -> [{number.strip()}]" for time, number in pairs) + " }") if pairs else None

    return Signals("full", "empty", *map(numbered, (asked, landed, released, reclaimed)))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("1: 0, 7: 1", "2: 0, 8: 1", "3: 0, 9: 1", "6: 0"), None),
        (("1: 0, 7: 2", "2: 0, 8: 2", "3: 0, 9: 2", ""), "not one above the one before it"),
        (("1: 1, 7: 0", "8: 0, 9: 1", "", ""), "not above the one before it"),
        (("1: 0", "0: 0", "", ""), "waited for, and not issued before"),
        (("1: 0, 3: 1", "2: 0", "", ""), "issued, and nobody waits for it"),
        (("1: 0", "4: 0", "3: 0", ""), "released, and not waited for before"),
        (("1: 0", "2: 0", "4: 0", "3: 0"), "reclaimed, and not released before"),
    ],
)
def test_numbers_are_asked_for_waited_for_released_and_reclaimed_in_turn(given: tuple[str, str, str, str], why: str | None) -> None:
    found = signal_fault(signals(*given))
    assert (None if found is None else found.why) == why
