"""Memory between walls: what is inside can be used, what is next to it kills."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from guarded import SIDES, Killed, Side, in_child, walled


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("count", [0, 1, 7, 512, 5000])
def test_all_of_an_array_is_there_to_be_used(count: int, side: Side) -> None:
    values = np.arange(count, dtype=np.float64)
    copy = walled(values, side)
    copy += 1
    assert (copy == values + 1).all()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("count", [0, 1, 7, 512])
def test_the_byte_beside_it_kills(count: int, side: Side) -> None:
    array = walled(np.zeros(count, np.float32), side)
    outside = array.ctypes.data + array.nbytes if side == "high" else array.ctypes.data - 1
    with pytest.raises(Killed, match=r"SIGSEGV|SIGBUS"):
        in_child(lambda: ctypes.string_at(outside, 1))


def test_an_array_can_be_aligned() -> None:
    assert walled(np.zeros(7, np.uint8), align=64).ctypes.data % 64 == 0


def test_a_child_tells_what_it_returns_and_raises() -> None:
    assert in_child(lambda: 6 * 7) == 42
    with pytest.raises(ZeroDivisionError):
        in_child(lambda: 1 // 0)
