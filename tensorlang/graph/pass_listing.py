"""Pipelines as text: every pass in order with what it does, or what each did to a graph."""

from __future__ import annotations

from collections.abc import Iterable

from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.pass_manager import ROUNDS, PassStage, Pipeline, Step


def listed(pipeline: Pipeline) -> str:
    """Return the passes of a pipeline in order, with what each does and for which options it runs."""
    width = max(len(each.name) for stage in pipeline for each in stage.passes)
    lines: list[str] = []
    for stage in pipeline:
        lines.append(_heading(stage))
        for each in stage.passes:
            when = f" (where {each.when.words})" if each.when.words else ""
            lines.append(f"  {each.name:<{width}}  {each.why}{when}")
    return "\n".join(lines) + "\n"


def traced(ran: Iterable[Step]) -> str:
    """Return the passes that ran in order, each with the number of kernels before and after where it changed the graph; rounds of a stage
    that is repeated are told together."""
    stages: dict[PassStage, dict[str, list[Step]]] = {}
    for step in ran:
        known = stages.setdefault(step.stage, {})
        known.setdefault(step.ran.name, []).append(step)
    width = max(len(name) for known in stages.values() for name in known)
    lines: list[str] = []
    for stage, known in stages.items():
        lines.append(_heading(stage))
        lines += [f"  {name:<{width}}  {_told(found)}".rstrip() for name, found in known.items()]
    return "\n".join(lines) + "\n"


def _heading(stage: PassStage) -> str:
    return f"{stage.name} (until nothing changes, {ROUNDS} times at most)" if stage.repeated else stage.name


def _told(found: list[Step]) -> str:
    """Return what the rounds of a pass did to the graph."""
    counts = [(_kernels(step.before), _kernels(step.after)) for step in found if step.changed]
    if not counts:
        return ""
    return "kernels " + ", ".join(f"{before} -> {after}" for before, after in counts)


def _kernels(graph: Graph) -> int:
    return sum(isinstance(node, Kernel) for node in graph.nodes)
