"""A compiled model put on terms: what `tensorlang.validation.model` compares with the imported graph."""

from __future__ import annotations

from codegen.loops.parser import parse as parse_loops
from tensorlang.backends.cpu.executable import Executable, workspace_threads
from tensorlang.graph.nodes import Extern, Graph, loops_of
from tensorlang.runtime.constants import places_of
from tensorlang.validation.budget import validation_budget
from tensorlang.validation.compiled import Call, Compiled
from tensorlang.validation.model import ModelOutcome, too_large, validate_model


def check_model(imported: Graph, graph: Graph, executable: Executable) -> ModelOutcome | None:
    """Return what came of validating a model, None when nobody asked. `graph`: what was compiled, constants and all.

    Raises InternalError when the model computes something else than the imported graph says."""
    budget = validation_budget()
    if budget and loops_of(graph):
        return ModelOutcome(reason="how often its loops run is not known")
    trusted = sorted({node.call.operator for node in graph.nodes if isinstance(node, Extern)})
    if budget and trusted:
        return ModelOutcome(reason=f"nothing is known of what {', '.join(f'`{name}`' for name in trusted)} computes")
    large = too_large(imported, budget) if budget else ""
    if large:
        return ModelOutcome(reason=large)
    return validate_model(imported, compiled_of(graph, executable), budget) if budget else None


def compiled_of(graph: Graph, executable: Executable) -> Compiled:
    """Return what runs, with the constants of the graph that was compiled."""
    functions = {symbol: parse_loops(made.loops) for symbol, made in {made.symbol: made for made in executable.artifacts}.items()}
    calls = tuple(
        Call(node.name, functions[made.symbol], call, made.workspace_bytes(workspace_threads(made)))
        for node, made, call in zip(executable.kernels, executable.artifacts, executable.entry.kernel_calls, strict=True)
    )
    places = places_of(graph)
    return Compiled(graph, graph.constants, places.offsets, places.size, executable.arena_bytes, calls)
