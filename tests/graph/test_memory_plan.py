"""The memory plan: values that live at one time never share a byte, and little is wasted."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_graphs import binary, graph, kernel, unary

from tensorlang.diagnostics import InternalError
from tensorlang.graph import plan as plan_module
from tensorlang.graph.nodes import View
from tensorlang.graph.passes.memory.copy_outputs import copy_outputs
from tensorlang.graph.plan import (
    ALIGNMENT,
    Arena,
    Constant,
    Input,
    Output,
    Placement,
    Storage,
    arena_bytes,
    assign,
    placements_of,
    planned,
)
from tensorlang.graph.stacking import stacking
from tensorlang.graph.verify import verify

storages = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 8)), max_size=40).map(
    lambda rows: [Storage(f"v{k}", size, first, first + length) for k, (size, first, length) in enumerate(rows)]
)


def lower_bound(storages: list[Storage]) -> int:
    """Return the most bytes that live at one time, each storage at a multiple of the alignment: no plan can be smaller."""
    alive = ([s for s in storages if s.first <= moment <= s.last] for moment in {s.first for s in storages})
    return max((sum(-(-s.size_bytes // ALIGNMENT) * ALIGNMENT for s in group) for group in alive), default=0)


@given(storages)
def test_storages_that_live_at_one_time_never_overlap(items: list[Storage]) -> None:
    offsets = assign(items)
    placed = [(s, offsets[s.name], offsets[s.name] + s.size_bytes) for s in items]
    sharing = [(a, b) for (a, lo, end), (b, start, stop) in combinations(placed, 2) if a.overlaps(b) and lo < stop and start < end]
    assert sharing == []
    assert all(offset % ALIGNMENT == 0 for offset in offsets.values())


@given(storages, st.data())
def test_storages_stacked_for_samples_never_overlap_at_any_sizes_and_take_no_more_at_the_samples(
    items: list[Storage], data: st.DataObject
) -> None:
    planned = assign(items)
    stack = stacking(items, planned)
    by_name = {s.name: s for s in items}
    order = [by_name[name] for name in stack.names]
    assert stack.offsets([s.size_bytes for s in order])[1] <= -(-arena_bytes(items, planned) // ALIGNMENT) * ALIGNMENT
    sized = [replace(s, size_bytes=data.draw(st.integers(0, 5000))) for s in order]
    offsets, whole = stack.offsets([s.size_bytes for s in sized])
    placed = list(zip(sized, offsets, strict=True))
    assert not [
        (a, b)
        for (a, lo), (b, start) in combinations(placed, 2)
        if a.overlaps(b) and lo < start + b.size_bytes and start < lo + a.size_bytes
    ]
    assert all(offset % ALIGNMENT == 0 and offset + s.size_bytes <= whole for s, offset in placed)


@given(storages)
def test_the_arena_is_never_larger_than_all_storages_together_nor_smaller_than_what_lives_at_once(items: list[Storage]) -> None:
    offsets = assign(items)
    size = max((offsets[s.name] + s.size_bytes for s in items), default=0)
    assert size <= sum(s.size_bytes + ALIGNMENT - 1 for s in items)
    assert size + ALIGNMENT > lower_bound(items)


def test_what_lives_long_is_placed_before_what_is_large_for_a_moment_where_that_takes_less() -> None:
    """Largest first, d and c begin at 0, which leaves room for a above d alone, and b above a."""
    items = [Storage("a", 128, 2, 5), Storage("b", 128, 4, 8), Storage("c", 192, 4, 7), Storage("d", 256, 2, 2)]
    assert arena_bytes(items, assign(items)) == lower_bound(items) == 448


@given(storages)
def test_storages_find_those_that_they_meet(items: list[Storage]) -> None:
    """The tree of lifetimes gives what looking at every pair would."""
    placed: list[Storage] = []
    offsets: dict[str, int] = {}
    for item in sorted(items, key=lambda s: (-s.size_bytes, s.first, s.name)):
        taken = sorted((offsets[s.name], offsets[s.name] + s.size_bytes) for s in placed if s.overlaps(item))
        offsets[item.name] = plan_module._tightest(taken, item.size_bytes)
        placed.append(item)
    assert plan_module._in_turn(placed) == offsets


def test_a_chain_of_ten_thousand_values_is_placed_by_few_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0

    def counted(taken: list[tuple[int, int]], size: int) -> int:
        nonlocal seen
        seen += len(taken)
        return tightest(taken, size)

    tightest = plan_module._tightest
    monkeypatch.setattr(plan_module, "_tightest", counted)
    items = [Storage(f"v{k}", 1024 * (1 + k % 7), k, k + 1) for k in range(10_000)]
    offsets = assign(items)
    assert arena_bytes(items, offsets) < 40 * 1024 and seen < 40_000


def test_a_long_chain_of_views_lies_where_its_first_value_does() -> None:
    nodes = [View("->256", f"v{k}", f"v{k + 1}") for k in range(20_000)]
    homes = placements_of(graph({"v0": (256,)}, nodes, ["v20000"]))
    assert homes["v20000"] == Placement("v0")


def test_a_chain_of_equal_values_takes_two_places() -> None:
    nodes = [kernel(unary("exp", 16, 16), f"v{k}", f"v{k + 1}") for k in range(6)]
    plan = planned(graph({"v0": (16, 16)}, nodes, ["v6"]))
    assert plan.arena_bytes == 2 * 16 * 16 * 4
    assert plan.places["v0"] == Input(0)
    assert plan.places["v6"] == Output(0)


def test_a_view_shares_the_memory_of_its_input_and_keeps_it_alive() -> None:
    nodes = [
        kernel(unary("exp", 16, 16), "x", "a"),
        View("->256", "a", "flat"),
        kernel(unary("exp", 16, 16), "x", "b"),
        kernel(unary("exp", 256), "flat", "c"),
        kernel(unary("exp", 16, 16), "b", "d"),
    ]
    plan = planned(graph({"x": (16, 16)}, nodes, ["c", "d"]))
    assert plan.places["flat"] == plan.places["a"]
    assert isinstance(plan.places["a"], Arena)
    assert plan.places["a"] != plan.places["b"]


def test_scratch_memory_of_a_kernel_lives_for_that_kernel_alone() -> None:
    nodes = [kernel(unary("exp", 16, 16), f"v{k}", f"v{k + 1}") for k in range(4)]
    plan = planned(graph({"v0": (16, 16)}, nodes, ["v4"]), {"exp v1": 4096, "exp v4": 4096})
    assert plan.arena_bytes < 2 * 4096
    assert set(plan.workspaces) == {"exp v1", "exp v4"}


def test_an_output_that_is_an_input_is_copied_first() -> None:
    g = graph({"x": (4,)}, [View("->2x2", "x", "y")], ["x", "y", "y"])
    with pytest.raises(InternalError, match="not the result of a kernel"):
        planned(g)
    ready = verify(copy_outputs(g))
    plan = planned(ready)
    assert [plan.places[name] for name in ready.outputs] == [Output(0), Output(1), Output(2)]


def test_a_constant_is_where_it_was_put() -> None:
    nodes = [kernel(binary("+", 4), "x w", "y")]
    plan = planned(graph({"x": (4,)}, nodes, ["y"], {"w": np.ones(4, np.float32)}))
    assert plan.places["w"] == Constant("w")
