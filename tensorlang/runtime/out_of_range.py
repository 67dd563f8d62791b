"""Which element of the data a kernel could not go on with: its equations are evaluated once more, with every read looked at.

A kernel that meets an index outside its tensor says which check failed and nothing else, so that checks cost little. Who called it wants to
know where and what: of an operator, and of the node of a model that a kernel computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tensorlang.diagnostics import Diagnostic, Label, RunError, plain_text
from tensorlang.graph.edit import members
from tensorlang.graph.nodes import Kernel
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.operation_count import operations

Array = np.ndarray[Any, Any]

LONGEST = 1 << 26
"""Operations that are evaluated once more for the sake of a message: a few seconds."""


def with_element(refused: RunError, program: Program, arrays: Sequence[Array]) -> RunError:
    """Return R0306 with the element that is at fault, its place in the data and in the text; `refused` as it is where looking for it
    would take long, or kernels that are not in the language. `arrays` are those of the program's parameters, whose sizes are numbers."""
    found = _element(program, arrays)
    return refused if found is None else _placed(refused, f"`{program.name}` cannot go on with this data", found)


def of_node(node: Kernel, requirement: str) -> RunError:
    """Return the error for a kernel of a model whose data does not meet a `requirement`, which names the nodes that it computes."""
    nodes = [f"`{plain_text(name)}`" for name in members(node)]
    title = f"{nodes[0]} cannot go on with this data" if len(nodes) == 1 else "a value in the data is out of range"
    computed = (f"one kernel computes {', '.join(nodes)}",) if len(nodes) > 1 else ()
    return RunError(Diagnostic("R0306", title, notes=(requirement, *computed)))


def with_element_of_node(refused: RunError, node: Kernel, values: Mapping[str, Array]) -> RunError:
    """Return what `of_node` does with the element that is at fault, as `with_element`; `values` are those that the kernel reads, by their
    names in the graph."""
    found = _element(node.program, [values[value] for value in node.inputs])
    if found is None:
        return refused
    placed = _placed(refused, refused.diagnostics[0].title, found).diagnostics[0]
    named = [(p, v) for p, v in node.bound.items() if p != v and f"`{p}" in " ".join((found.title, *placed.notes))]
    bound = (f"`{p}` is `{plain_text(v)}` of the model" for p, v in named)
    return RunError(replace(placed, notes=(*placed.notes, *bound), help=_MODEL_HELP))


_MODEL_HELP = "change what the model is fed: an index counts from 0, a negative one back from the end where its range begins below 0"


def _element(program: Program, arrays: Sequence[Array]) -> Diagnostic | None:
    """Return what is wrong with which element; None where looking for it would take long, or nothing is found."""
    if program.externs:
        return None
    from tensorlang.tensor.interp import Evaluator

    try:
        evaluator = Evaluator(program, {}, {p.name: array for p, array in zip(program.params, arrays, strict=True)})
        if operations(program, {}) <= LONGEST:
            evaluator.run()
    except RunError as found:
        return found.diagnostics[0]
    return None


def _placed(refused: RunError, whose: str, found: Diagnostic) -> RunError:
    if found.code not in ("R0103", "R0104"):
        return refused
    read = found.code == "R0104"
    labels = tuple(Label(label.span, "read here" if read else "declared here") for label in found.labels)
    help = (
        "say what lies outside, in the brackets: `| 0`, `| clamp`; or change the data"
        if read
        else "change the data, or the range that is declared"
    )
    return RunError(Diagnostic("R0306", f"{whose}: {found.title}", labels, refused.diagnostics[0].notes, help))
