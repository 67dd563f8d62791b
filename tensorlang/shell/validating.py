"""Models validated from the command line: every kernel against its equations, and where it is small the whole in its memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tensorlang.graph.edit import members
from tensorlang.graph.nodes import Graph
from tensorlang.runtime.build import build, optimised
from tensorlang.runtime.executable import Progress, Toolchain
from tensorlang.runtime.validated import check_model
from tensorlang.validation.budget import ENVIRONMENT, validation_budget


@dataclass(frozen=True, slots=True)
class Validation:
    """What came of a model and of its kernels: the nodes of each, and what was found."""

    kernels: tuple[tuple[tuple[str, ...], str], ...]
    model: str

    def __str__(self) -> str:
        left = [(names, outcome) for names, outcome in self.kernels if not outcome.startswith("validated")]
        large = sum(outcome == "validated on fingerprints" for _, outcome in self.kernels)
        how = f", {large} of them on fingerprints" if large else ""
        lines = [f"{len(self.kernels) - len(left)} of {len(self.kernels)} kernels validated{how}"]
        lines += [f"  {', '.join(names)}: {outcome}" for names, outcome in left]
        return "\n".join((*lines, f"the model as a whole {self.model}"))


def validated(loaded: Graph, tools: Toolchain, progress: Progress) -> Validation:
    """Compile an imported graph, whatever is kept of it unless that was validated. Raises InternalError for what is wrong."""
    with _asked():
        graph = optimised(loaded, tools)
        executable = build(graph, tools, progress, loaded.outputs)
        outcome = check_model(loaded, graph, executable)
    pairs = zip(executable.kernels, executable.artifacts, strict=True)
    return Validation(tuple((members(node), made.validated) for node, made in pairs), str(outcome))


@contextmanager
def _asked() -> Iterator[None]:
    """Have kernels validated, in other processes too."""
    before = os.environ.get(ENVIRONMENT)
    os.environ[ENVIRONMENT] = str(validation_budget() or 1)
    try:
        yield
    finally:
        if before is None:
            del os.environ[ENVIRONMENT]
        else:
            os.environ[ENVIRONMENT] = before
