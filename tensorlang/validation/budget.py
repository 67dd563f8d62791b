"""How many operations on terms a kernel or a model may take to be validated, as `TENSORLANG_VALIDATE` says."""

from __future__ import annotations

import os

ENVIRONMENT = "TENSORLANG_VALIDATE"
BUDGET = 200_000
"""Operations, unless somebody says otherwise."""


def validation_budget() -> int:
    """Return the number of operations: 0 where nobody asked, `BUDGET` for `1`, otherwise the number given."""
    asked = os.environ.get(ENVIRONMENT, "")
    return BUDGET if asked == "1" else int(asked) if asked.isdecimal() else 0
