"""Schedules of very many directives take time that grows as they do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang as tl
from polyhedral.nest import Nest
from tensorlang.schedule.schedule import MOST_DIRECTIVES, Schedule


@pytest.mark.parametrize("directive", ["reverse i", "shift i by 1", "reverse i, j"])
def test_each_directive_changes_a_nest_a_few_times_only(directive: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    substituted = Nest._substituted

    def counted(self: Nest, *args: Any) -> Nest:
        made.append(directive)
        return substituted(self, *args)

    monkeypatch.setattr(Nest, "_substituted", counted)
    operator = tl.parse("op f(x: f32[8, 8]) -> (y: f32[8, 8]) { y[i, j] = x[i, j] }").f
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    np.testing.assert_array_equal(operator.schedule("\n".join([directive] * 40))(x), x)
    assert len(made) < 40 * 2 * 3


def test_tactics_that_call_tactics_come_to_an_end() -> None:
    tactics = "\n".join(f"tactic t{k}() {{\n    t{k - 1}()\n    t{k - 1}()\n}}" for k in range(1, 40))
    schedule = "tactic t0() {\n    reverse i\n}\nschedule f for cpu {\n    t39()\n}"
    operator = tl.parse(f"op f(x: f32[8]) -> (y: f32[8]) {{ y[i] = x[i] }}\n{tactics}\n{schedule}").f
    with pytest.raises(tl.CompileError, match="S0107"):
        operator(np.ones(8, np.float32))


def test_a_schedule_made_as_a_value_has_so_many_directives_at_most() -> None:
    operator = tl.parse("op f(x: f32[8]) -> (y: f32[8]) { y[i] = x[i] }").f
    (reverse,) = Schedule("f", "cpu").reverse("i").directives
    with pytest.raises(tl.CompileError, match="S0107"):
        operator.schedule(Schedule("f", "cpu", (reverse,) * (MOST_DIRECTIVES + 1)))(np.ones(8, np.float32))
