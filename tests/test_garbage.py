"""Compiling has the collector of cycles run seldom, and leaves it as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import tensorlang as tl
from tensorlang.check.instantiate import instantiate
from tensorlang.garbage import THRESHOLDS, fewer_collections
from tensorlang.runtime import operator


@pytest.fixture
def usual() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield 700, 10, 10
    gc.set_threshold(*before)


def test_the_collector_is_as_it_was_after_the_last_that_wanted_it_to_run_seldom(usual: tuple[int, int, int]) -> None:
    with fewer_collections():
        with pytest.raises(ZeroDivisionError), fewer_collections():
            assert gc.get_threshold() == THRESHOLDS
            1 / 0  # noqa: B018
        assert gc.get_threshold() == THRESHOLDS
    assert gc.get_threshold() == usual


def test_a_collector_that_is_off_stays_off(usual: tuple[int, int, int]) -> None:
    gc.set_threshold(0)
    with fewer_collections():
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold()[0] == 0


def test_it_runs_seldom_while_an_operator_is_compiled(usual: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[tuple[int, int, int]]()

    def watched(*given: object, **named: object) -> object:
        seen.append(gc.get_threshold())
        return instantiate(*given, **named)

    monkeypatch.setattr(operator, "instantiate", watched)
    tl.parse("op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] + 1 }").f(np.ones(3, np.float32))
    assert THRESHOLDS in seen and gc.get_threshold() == usual
