"""Which element of the data a kernel could not go on with: its equations are evaluated once more, with every read looked at.

A kernel that meets an index outside its tensor says which check failed and nothing else, so that checks cost little. Who called it wants to
know where and what.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorlang.diagnostics import Diagnostic, Label, RunError
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.operation_count import operations

Array = np.ndarray[Any, Any]

LONGEST = 1 << 26
"""Operations that are evaluated once more for the sake of a message: a few seconds."""


def with_element(refused: RunError, program: Program, arrays: Sequence[Array]) -> RunError:
    """Return R0306 with the element that is at fault, its place in the data and in the text; `refused` as it is where looking for it
    would take long, or kernels that are not in the language. `arrays` are those of the program's parameters, whose sizes are numbers."""
    if program.externs or operations(program, {}) > LONGEST:
        return refused
    from tensorlang.tensor.interp import interpret

    try:
        interpret(program, {}, {p.name: array for p, array in zip(program.params, arrays, strict=True)})
    except RunError as found:
        return _placed(refused, program.name, found.diagnostics[0])
    return refused


def _placed(refused: RunError, operator: str, found: Diagnostic) -> RunError:
    if found.code not in ("R0103", "R0104"):
        return refused
    read = found.code == "R0104"
    labels = tuple(Label(label.span, "read here" if read else "declared here") for label in found.labels)
    help = (
        "say what lies outside, in the brackets: `| 0`, `| clamp`; or change the data"
        if read
        else "change the data, or the range that is declared"
    )
    return RunError(
        Diagnostic("R0306", f"`{operator}` cannot go on with this data: {found.title}", labels, refused.diagnostics[0].notes, help)
    )
