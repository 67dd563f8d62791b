"""What the log says of a kernel that was compiled: its types and shapes, its schedule, how long that took, for which target."""

from __future__ import annotations

from logging import INFO
from typing import TYPE_CHECKING

from codegen.log import log_of
from tensorlang.diagnostics import counted
from tensorlang.tensor import notation
from tensorlang.tensor.nodes import Program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorlang.artifact import SizeCase
    from tensorlang.runtime.protocol import Tools

_log = log_of("compile")


def log_kernel(program: Program, how: str, schedule: str, seconds: float, tools: Tools) -> None:
    """Log a kernel of an operator. `how`: compiled, or found; sizes that it leaves open are named."""
    if _log.isEnabledFor(INFO):
        shapes = ", ".join(f"{p.name}: {p.dtype}[{', '.join(map(notation.show, p.shape))}]" for p in program.params)
        where = f"{tools.name}, {counted(tools.threads, 'thread')}"
        _log.info("`%s` for %s: %s in %.1f ms, %s, for %s", program.name, shapes, how, seconds * 1e3, schedule, where)


def log_cases(name: str, cases: Sequence[SizeCase]) -> None:
    """Log the ranges of open sizes that have loops of their own in a kernel, and why."""
    for case in cases[:-1]:
        _log.info("`%s` has other loops for %s: %s", name, case.range, case.why)
