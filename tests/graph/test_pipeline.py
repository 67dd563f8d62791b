"""The pipeline is a value: its order is what documents and the command line say, and each pass in it is known by its name."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from small_graphs import graph, kernel, matmul, unary
from test_algebra import random

from codegen.dtypes import f32
from tensorlang.diagnostics import InternalError
from tensorlang.graph.nodes import Graph
from tensorlang.graph.options import Options
from tensorlang.graph.pass_listing import listed, traced
from tensorlang.graph.pass_manager import ROUNDS, Condition, Pass, PassStage, Pipeline, steps
from tensorlang.graph.pipeline import DCE, DEVICE, PROCESSOR, optimise
from tensorlang.graph.precisions import Precision

ROOT = Path(__file__).parents[2]
PIPELINES = {"Processors": PROCESSOR, "Devices": DEVICE}
ENCODINGS = {"narrow_storage", "round_to_tf32", "split_bf16"}
"""What `lower_precision` writes."""
HELPERS = {"band_masks", "broadcast_views", "products", "explain"}
PREPARED = {"append_in_place"}
"""What runs after all others, for outputs that a caller wants in the arrays of inputs."""


def product_and_relu() -> Graph:
    nodes = [kernel(matmul(4, 8, 8), "x w", "t"), kernel(unary("relu", 4, 8), "t", "y")]
    return graph({"x": (4, 8)}, nodes, ["y"], {"w": random(8, 8)})


def names(pipeline: Pipeline, options: Options) -> list[str]:
    return [step.ran.name for step in steps(product_and_relu(), pipeline, options)]


@pytest.mark.parametrize("heading", PIPELINES)
def test_the_page_has_the_order_of_the_value(heading: str) -> None:
    page = (ROOT / "docs" / "passes.md").read_text("utf-8")
    [block] = re.findall(rf"^## {heading}$.*?^```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert block == listed(PIPELINES[heading])


def test_what_the_page_shows_of_a_model_is_what_is_traced() -> None:
    page = (ROOT / "docs" / "passes.md").read_text("utf-8")
    block = re.findall(r"^```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[-1]
    assert block in traced(steps(product_and_relu(), PROCESSOR, Options()))


def test_every_pass_has_one_name_and_every_module_of_passes_a_place_in_a_pipeline() -> None:
    found: dict[str, set[Pass]] = {}
    for stage in (*PROCESSOR, *DEVICE):
        for each in stage.passes:
            found.setdefault(each.name, set()).add(each)
    assert [name for name, passes in found.items() if len(passes) > 1] == []
    modules = {p.stem for p in (ROOT / "tensorlang" / "graph" / "passes").glob("*/*.py")} - {"__init__"}
    assert set(found) == modules - ENCODINGS - HELPERS - PREPARED


def test_processors_and_devices_share_stages() -> None:
    shared = [stage.name for stage in PROCESSOR if stage in DEVICE]
    assert shared == ["clean", "quantised", "algebra", "views", "copies", "fusion", "precision"]


def test_passes_run_for_the_options_that_they_are_meant_for() -> None:
    asked = {"lower_precision": Options(precision=Precision("bf16", "bf16")), "batch_tiling": Options(near_bytes=1 << 20)}
    for name, options in asked.items():
        assert name in names(PROCESSOR, options) and name not in names(PROCESSOR, Options())
    assert "online_attention" in names(DEVICE, Options()) and "online_attention" not in names(DEVICE, Options(one_pass=False))
    assert set(names(PROCESSOR, Options())).isdisjoint({"live_out", "alias_operands", "online_attention"})


def test_a_stage_is_repeated_until_a_round_changes_nothing() -> None:
    g = product_and_relu()
    again: list[int] = []

    def renamed(found: Graph, options: Options) -> Graph:
        again.append(len(again))
        first, *rest = found.nodes
        return replace(found, nodes=(replace(first, name=f"{first.name}'"), *rest)) if len(again) <= 2 else found

    once, more = (PassStage("s", (Pass("renamed", "", renamed),), repeated) for repeated in (False, True))
    assert [step.changed for step in steps(g, (more,), Options())] == [True, True, False]
    again.clear()
    assert [step.changed for step in steps(g, (once,), Options())] == [True]


def test_a_stage_that_never_settles_ends() -> None:
    def longer(found: Graph, options: Options) -> Graph:
        first, *rest = found.nodes
        return replace(found, nodes=(replace(first, name=f"{first.name}'"), *rest))

    assert len(list(steps(product_and_relu(), (PassStage("s", (Pass("longer", "", longer),), repeated=True),), Options()))) == ROUNDS


def test_a_graph_that_a_pass_breaks_is_told_by_its_name() -> None:
    def lost(found: Graph, options: Options) -> Graph:
        return replace(found, nodes=found.nodes[1:])

    with pytest.raises(InternalError, match="`lost`"):
        optimise(product_and_relu(), pipeline=(PassStage("s", (DCE, Pass("lost", "", lost))),))


def test_what_did_not_run_is_not_traced() -> None:
    never = Condition("never", lambda options: False)
    stage = PassStage("s", (DCE, replace(DCE, name="other", when=never)))
    assert traced(steps(product_and_relu(), (stage,), Options())) == "s\n  dce\n"
    assert "other  drop what no output depends on (where never)" in listed((stage,))


def test_a_graph_that_nothing_changes_is_the_one_that_was_given() -> None:
    g = optimise(product_and_relu())
    assert {v.dtype for v in g.values.values()} == {f32}
    [step] = steps(g, (PassStage("s", (DCE,)),), Options())
    assert step.after is step.before
