"""Which rule serves which operator of ATen: one table, put together from the modules of this folder.

A rule has the arguments that ATen declares, by the same names. It stands under the operator's name for all its overloads, or under the name
of one: `max.dim`.
"""

from __future__ import annotations

from stdlib.aten.call import Rule
from stdlib.aten.table import (
    attention,
    backward,
    control,
    drawing,
    elementwise,
    factoring,
    indexing,
    making,
    moving,
    normalising,
    pooling,
    products,
    recurrent,
    reducing,
    resizing,
)

TABLE: dict[str, Rule] = {}
for _module in (
    attention, backward, control, drawing, elementwise, factoring, indexing, making, moving, normalising, pooling, products, recurrent,
    reducing, resizing,
):  # fmt: skip
    TABLE |= _module.RULES


def rule_for(operator: str) -> Rule | None:
    """Return the rule for an operator, `add.Tensor`, None where there is none."""
    return TABLE.get(operator) or TABLE.get(operator.partition(".")[0])
