"""How many operations on terms a kernel or a model may take to be validated, as `TENSORLANG_VALIDATE` says."""

from __future__ import annotations

import os

ENVIRONMENT = "TENSORLANG_VALIDATE"
BUDGET = 200_000
"""Operations, unless somebody says otherwise."""


FINGERPRINTS = 5_000
"""Operations on fingerprints for each on terms, where `BUDGET` or more of these are allowed."""


def on_fingerprints(budget: int) -> int:
    """Return how many operations on fingerprints a kernel may take whose operations on terms are more than `budget`."""
    return FINGERPRINTS * budget if budget >= BUDGET else 0


def validation_budget() -> int:
    """Return the number of operations: 0 where nobody asked, `BUDGET` for `1`, otherwise the number given."""
    asked = os.environ.get(ENVIRONMENT, "")
    return BUDGET if asked == "1" else int(asked) if asked.isdecimal() else 0
