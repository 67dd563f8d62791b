"""Passes take as many steps as a graph has nodes: twice the graph, twice the steps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import pytest
from small_graphs import binary, graph, kernel, unary

from codegen.dtypes import f32
from tensorlang.graph.edit import fresh, members
from tensorlang.graph.nodes import Graph, Node, View
from tensorlang.graph.passes.algebra.identities import identities
from tensorlang.graph.pipeline import optimise
from tensorlang.graph.plan import planned
from tensorlang.graph.programs import transpose_program


def chain(n: int) -> Graph:
    programs = [unary("exp", 4), unary("relu", 4)]
    return graph({"v0": (4,)}, [kernel(programs[k % 2], f"v{k}", f"v{k + 1}") for k in range(n)], [f"v{n}"])


def fan(n: int) -> Graph:
    """One value that many read, and whose readers are all returned."""
    program, first = binary("+", 4), kernel(unary("exp", 4), "x", "e")
    inputs = {"x": (4,)} | {f"a{k}": (4,) for k in range(n)}
    return graph(inputs, [first, *(kernel(program, f"e a{k}", f"y{k}") for k in range(n))], [f"y{k}" for k in range(n)])


def returned(n: int) -> Graph:
    """Inputs that are returned: each is copied."""
    names = [f"x{k}" for k in range(n)]
    return graph(dict.fromkeys(names, (4,)), [], names)


def reshaped(n: int) -> Graph:
    shapes = ("6x4", "24", "2x12")
    return graph({"v0": (4, 6)}, [View(f"{k}->{shapes[k % 3]}", f"v{k}", f"v{k + 1}") for k in range(n)], [f"v{n}"])


def transposed(n: int) -> Graph:
    programs = [transpose_program(f32, (4, 6), (1, 0)), transpose_program(f32, (6, 4), (1, 0))]
    return graph({"v0": (4, 6)}, [kernel(programs[k % 2], f"v{k}", f"v{k + 1}") for k in range(n)], [f"v{n}"])


def steps(task: Callable[[], object]) -> int:
    """Return how many calls of Python functions it takes."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        task()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("make", [chain, fan, returned, reshaped, transposed])
def test_a_graph_twice_as_long_takes_twice_as_many_steps(make: Callable[[int], Graph]) -> None:
    small, large = make(300), make(600)
    optimise(make(30))  # what is known of programs, once
    few = steps(lambda: planned(optimise(small)))
    assert steps(lambda: planned(optimise(large))) < 2.2 * few


def test_a_free_name_is_found_without_asking_for_all_that_are_taken() -> None:
    asked: list[str] = []

    class Taken(set[str]):
        def __contains__(self, name: object) -> bool:
            asked.append(str(name))
            return super().__contains__(name)

    for count in (0, 1, 2, 3, 1000):
        asked.clear()
        assert fresh(Taken(["x", *(f"x.{k}" for k in range(1, count))][:count]), "x") == (f"x.{count}" if count else "x")
        assert len(asked) < 22


def named(nodes: tuple[Node, ...]) -> int:
    return sum(len(members(node)) for node in nodes)


def test_the_members_of_merged_views_are_named_by_what_is_left_and_once() -> None:
    g = reshaped(301)
    found = identities(g)
    assert members(found.nodes[-1]) == tuple(node.name for node in g.nodes)
    assert named(found.nodes) < 2 * len(g.nodes)


def test_views_that_are_returned_each_name_what_no_other_does() -> None:
    whole = reshaped(300)
    g = replace(whole, outputs=("v100", "v200", "v300"))
    found = {node.output: members(node) for node in identities(g).nodes if isinstance(node, View)}
    names = tuple(node.name for node in g.nodes)
    assert (found["v100"], found["v200"], found["v300"]) == (names[:100], names[100:200], names[200:])
