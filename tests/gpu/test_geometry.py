"""Places are digits of the thread's number: which threads a loop over one of them runs on."""

from __future__ import annotations

import pytest

from codegen.errors import Unfit
from codegen.gpu.geometry import Digit, check_places, geometry
from codegen.loops.parser import parse
from codegen.loops.printer import show


def _block(*places: tuple[str, int]) -> str:
    lines = [f"for v{n} in 0 .. {extent} {place} {extent} {{" for n, (place, extent) in enumerate(places)]
    return f"func f()(out y: f32[1] align 4) {{\n{''.join(lines)} y[0] = 1.0_f32 {'}' * len(lines)}\n}}\n"


def test_warps_and_lanes_stand_in_squares() -> None:
    """4 x 2 warps, in each of them 4 x 8 lanes, the last digit first."""
    body = parse(_block(("warp.y", 4), ("warp.x", 2), ("lane.y", 4), ("lane.x", 8))).body
    found = geometry(body)
    check_places(body, found)
    assert found.threads == 256
    assert [found.digit(p) for p in ("lane.x", "lane.y", "warp.x", "warp.y")] == [Digit(1, 8), Digit(8, 4), Digit(32, 2), Digit(64, 4)]
    assert found.gaps(frozenset({"lane.y", "warp.x", "warp.y"})) == ((8, 1),)


def test_lanes_begin_at_powers_of_two() -> None:
    body = parse(_block(("lane.y", 2), ("lane.x", 12))).body
    found = geometry(body)
    assert (found.threads, found.digit("lane.x"), found.digit("lane.y")) == (32, Digit(1, 16), Digit(16, 2))


def test_lanes_have_three_digits() -> None:
    body = parse(_block(("lane.z", 4), ("lane.y", 7), ("lane.x", 1))).body
    found = geometry(body)
    check_places(body, found)
    assert (found.digit("lane.z"), found.digit("lane.y")) == (Digit(8, 4), Digit(1, 8))


def test_a_digit_that_the_warp_has_no_room_for_is_refused() -> None:
    body = parse(_block(("lane.y", 8), ("lane.x", 8))).body
    with pytest.raises(Unfit, match=r"`v0` has 8 iterations; lane\.y counts to 4 in this block"):
        check_places(body, geometry(body))


@pytest.mark.parametrize("inner", ["lane", "thread", "lane.y"])
def test_a_loop_counts_by_digits_that_no_other_counts_by(inner: str) -> None:
    body = parse(_block(("lane.y", 2), (inner, 2))).body
    with pytest.raises(Unfit, match="stands inside of"):
        check_places(body, geometry(body))


def test_places_print_and_parse() -> None:
    function = parse(_block(("warp.y", 2), ("warp.x", 2), ("lane.y", 2), ("lane.x", 2)))
    assert parse(show(function)) == function
