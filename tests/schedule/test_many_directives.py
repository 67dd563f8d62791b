"""Schedules of very many directives take time that grows as they do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang as tl
from polyhedral.nest import Nest


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
