"""Models validated from the command line: every kernel against its equations, and where it is small the whole in its memory.

Of models for a device the loops of every kernel, and its text, which g++ compiles for the emulator.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from codegen.gpu.emulator import EmulatorError
from tensorlang.backends.cpu.build import build
from tensorlang.backends.cpu.toolchain import Toolchain
from tensorlang.backends.cpu.validated import check_model
from tensorlang.backends.gpu.model import DeviceModel
from tensorlang.backends.gpu.tools import DeviceTools, written
from tensorlang.graph.edit import members
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.passes.memory.layout import layouts_of
from tensorlang.runtime.jobs import optimised
from tensorlang.runtime.protocol import Progress, Tools
from tensorlang.validation.budget import ENVIRONMENT, validation_budget
from tensorlang.validation.text import validate_text

Outcomes: TypeAlias = tuple[tuple[tuple[str, ...], str], ...]


@dataclass(frozen=True, slots=True)
class Validation:
    """What came of a model and of its kernels: the nodes of each, and what was found."""

    kernels: Outcomes
    model: str
    texts: Outcomes = ()
    """Of kernels for a device, what came of their text."""

    def __str__(self) -> str:
        lines = [*_lines(self.kernels, "kernels"), *_lines(self.texts, "kernels as text")]
        return "\n".join((*lines, f"the model as a whole {self.model}"))


def _lines(outcomes: Outcomes, what: str) -> Iterator[str]:
    left = [(names, outcome) for names, outcome in outcomes if not outcome.startswith("validated")]
    large = sum(outcome == "validated on fingerprints" for _, outcome in outcomes)
    if outcomes:
        yield f"{len(outcomes) - len(left)} of {len(outcomes)} {what} validated{f', {large} of them on fingerprints' if large else ''}"
    for names, outcome in left:
        yield f"  {', '.join(names)}: {outcome}"


def validated(loaded: Graph, tools: Tools, progress: Progress) -> Validation:
    """Compile an imported graph, whatever is kept of it unless that was validated. Raises InternalError for what is wrong."""
    if isinstance(tools, DeviceTools):
        return _on_device(loaded, tools, progress)
    assert isinstance(tools, Toolchain)
    with _asked():
        graph = optimised(loaded, tools)
        executable = build(graph, tools, progress, loaded.outputs)
        outcome = check_model(loaded, graph, executable)
    pairs = zip(executable.kernels, executable.artifacts, strict=True)
    return Validation(tuple((members(node), made.validated) for node, made in pairs), str(outcome))


def _on_device(loaded: Graph, tools: DeviceTools, progress: Progress) -> Validation:
    """Write the kernels of an imported graph for a device, and run what is small enough of their loops and of their text. Raises
    InternalError for what is wrong."""
    with _asked():
        model = written(loaded, tools, progress)
        texts = _texts(model, progress)
    calls = [(members(call.node), call.kernel) for call in model.calls if isinstance(call.node, Kernel)]
    return Validation(
        tuple((names, model.kernels[kernel].validated) for names, kernel in calls),
        "not validated: its memory on a device",
        tuple((names, texts[kernel]) for names, kernel in calls),
    )


def _texts(model: DeviceModel, progress: Progress) -> dict[str, str]:
    """Return what came of the text of each kernel by name."""
    out: dict[str, str] = {}
    for call in model.calls:
        if call.kernel not in out and isinstance(call.node, Kernel):
            progress("running kernels on terms", len(out), len(model.kernels))
            program, kernels = call.node.program, model.kernels[call.kernel].launched
            params = (*(p.name for p in program.params), *program.results)
            layouts = layouts_of(model.graph, call.node)
            try:
                out[call.kernel] = str(validate_text(program, kernels, params, layouts, validation_budget()))
            except EmulatorError as missing:
                out[call.kernel] = f"not validated: {missing.problem}"
    return out


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
