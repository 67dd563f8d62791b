"""Passes over graphs as values, and what runs them: a pipeline is a tuple of stages, a stage a tuple of passes.

Every step is verified; a broken invariant, and whatever else goes wrong in it, names the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tensorlang.diagnostics import CompileError, InternalError
from tensorlang.graph.nodes import Graph
from tensorlang.graph.options import Options
from tensorlang.graph.sizes import OpenSize
from tensorlang.graph.verify import verify

ROUNDS = 8
"""How often a stage is repeated at most."""


@dataclass(frozen=True, slots=True)
class Condition:
    """For which options a pass runs, in `words` too."""

    words: str
    holds: Callable[[Options], bool]


ALWAYS = Condition("", lambda options: True)


@dataclass(frozen=True, slots=True)
class Pass:
    """A function from graph to graph that computes the same. `why` says in one line what it does, `when` for which options it runs."""

    name: str
    why: str
    run: Callable[[Graph, Options], Graph]
    when: Condition = ALWAYS


@dataclass(frozen=True, slots=True)
class PassStage:
    """Passes that run one after another; with `repeated` again until a round leaves the nodes as they were, ROUNDS times at most."""

    name: str
    passes: tuple[Pass, ...]
    repeated: bool = False


Pipeline: TypeAlias = tuple[PassStage, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A run of a pass: `after` is `before` itself where it found nothing to do."""

    stage: PassStage
    ran: Pass
    before: Graph
    after: Graph

    @property
    def changed(self) -> bool:
        return self.after is not self.before


def steps(graph: Graph, pipeline: Pipeline, options: Options) -> Iterator[Step]:
    """Yield what each pass of the pipeline makes of a graph, in order. Raises InternalError that names the pass, whatever goes wrong in it:
    the graph was verified, so it is our mistake and not the user's."""
    verify(graph, "import")
    for stage in pipeline:
        for _ in range(ROUNDS if stage.repeated else 1):
            first = graph
            for each in stage.passes:
                if each.when.holds(options):
                    step = Step(stage, each, graph, _applied(each, graph, options))
                    yield step
                    graph = step.after
            if graph.nodes == first.nodes:
                break


def _applied(each: Pass, before: Graph, options: Options) -> Graph:
    try:
        after = each.run(before, options)
    except (CompileError, InternalError, MemoryError, OpenSize):
        raise
    except Exception as problem:
        raise InternalError(each.name, f"graph `{before.name}`: {type(problem).__name__}: {problem}") from problem
    return before if _same(before, after) else verify(after, each.name)


def _same(a: Graph, b: Graph) -> bool:
    """Tell whether a pass found nothing to do: what was verified before it need not be verified again."""
    return a is b or (
        (a.nodes, a.inputs, a.outputs) == (b.nodes, b.inputs, b.outputs)
        and a.values == b.values
        and a.constants.keys() == b.constants.keys()
        and all(array is b.constants[name] for name, array in a.constants.items())
    )
