"""A loop that the host runs, turn by turn, as what one turn hands to the next changes its shape: its body is a model of its own.

body     (turn: i64[], condition: bool[], carried …, captured …) -> (condition, carried …, rows …)
inputs   ([limit,] [condition,] carried …, captured …)
results  carried …, rows …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorlang.diagnostics import Diagnostic, exception
from tensorlang.graph.data_dependent import Run

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class HostLoop:
    """`label` names the loop; `taken` and `returned` are what its body calls its inputs and outputs, `carried` of them a turn hands on."""

    label: str
    taken: tuple[str, ...]
    returned: tuple[str, ...]
    carried: int
    has_limit: bool
    has_condition: bool

    def __call__(self, run: Run, *arrays: Array) -> tuple[Array, ...]:
        """Return the results, `run` being that of the body. Raises what that raises, R0304 for rows of different shapes."""
        given = list(arrays)
        limit = int(given.pop(0).reshape(())) if self.has_limit else None
        goes_on = bool(given.pop(0).reshape(())) if self.has_condition else True
        held, captured = given[: self.carried], given[self.carried :]
        rows: list[list[Array]] = []
        while goes_on and (limit is None or len(rows) < limit):
            again, held, made = self._turn(run, len(rows), held, captured)
            goes_on = bool(again.reshape(()))
            rows.append(made)
        if rows:
            return (*held, *(self._stacked(column) for column in zip(*rows, strict=True)))
        if len(self.returned) == 1 + self.carried:
            return tuple(held)
        _, _, shaped = self._turn(run, 0, held, captured)  # no other way tells what a row would be like
        return (*held, *(np.empty((0, *row.shape), row.dtype) for row in shaped))

    def _turn(self, run: Run, number: int, held: Sequence[Array], captured: Sequence[Array]) -> tuple[Array, list[Array], list[Array]]:
        """Return whether another turn follows, what it finds, and the rows of this one."""
        feeds = dict(zip(self.taken, (np.asarray(number, np.int64), np.asarray(True), *held, *captured), strict=True))
        found = run(feeds)
        again, *rest = (found[name] for name in self.returned)
        return again, rest[: self.carried], rest[self.carried :]

    def _stacked(self, rows: Sequence[Array]) -> Array:
        shapes = list(dict.fromkeys(row.shape for row in rows))
        if len(shapes) > 1:
            title = f"`{self.label}` makes rows of different shapes, {list(shapes[0])} and {list(shapes[1])}"
            raise exception(Diagnostic("R0304", title, help="let it put them into a sequence, or make them of one shape"))
        return np.stack(rows)
