"""Loops of graphs: as text, verified, run as they are and written out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_graphs import at, binary, graph, kernel, single, tensor

from codegen.dtypes import bool_, f32, i64
from tensorlang.backends.cpu.build import build
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.diagnostics import CompileError
from tensorlang.graph.nodes import Graph, Loop, Value
from tensorlang.graph.parser import parse
from tensorlang.graph.passes.clean.unroll import unroll
from tensorlang.graph.pipeline import optimise
from tensorlang.graph.printer import constants_of, show
from tensorlang.graph.verify import problems, verify
from tensorlang.runtime.jobs import optimised
from tensorlang.tensor.nodes import Compare

Array = np.ndarray[Any, Any]
SCALE = np.float32([1.5, -1, 0.5])


def sums(limit: int | None = None, *, asks: bool = False, rows: int = 4, backwards: tuple[bool, bool] = (False, False)) -> Graph:
    """Return `s' = (s + row of x) * scale * by`, which is also the row that it makes; with `asks` as long as s[0] is under 100."""
    nodes = [kernel(binary("+", 3), "s row", "t"), kernel(binary("*", 3), "t scale", "u"), kernel(binary("*", 3), "u by", "v")]
    nodes += [kernel(binary("*", 3), "u by", "w")]
    inner = graph({"turn": (), "s": (3,), "row": (3,), "by": (3,)}, [*nodes], ["v", "w"], {"scale": SCALE})
    inner.values["turn"] = Value("turn", i64, ())
    if asks:
        again = single("below", [tensor("v", 3)], tensor("c", dtype=bool_), "", Compare("<", at("v", 0), at("v", 1)))
        inner.values["c"] = Value("c", bool_, ())
        inner = replace(inner, nodes=(*inner.nodes, kernel(again, "v", "c")), outputs=("c", "v", "w"))
    taken = {"s0": Value("s0", f32, (3,)), "x": Value("x", f32, (rows, 3)), "by": Value("by", f32, (3,))}
    made = {"turns": Value("turns", i64, ()), "last": Value("last", f32, (3,)), "ys": Value("ys", f32, (rows, 3))}
    given = {} if limit is None else {"limit": np.asarray(limit)}
    loop = Loop("again", inner, (*given, *taken), tuple(made), limit is not None, False, asks, backwards[:1], backwards[1:], ("the loop",))
    values = {**taken, **made, **{name: Value(name, i64, ()) for name in given}}
    return verify(Graph("g", tuple(taken), tuple(made), values, dict(given), (loop,)))


def ran(g: Graph, feeds: dict[str, Array], limit: int, backwards: tuple[bool, bool]) -> tuple[int, Array, Array]:
    """Return what the loop of `sums` computes."""
    s, made, turns = feeds["s0"], np.zeros_like(feeds["x"]), min(limit, len(feeds["x"]))
    done = 0
    while done < turns:
        s = (s + feeds["x"][-1 - done if backwards[0] else done]) * SCALE * feeds["by"]
        made[-1 - done if backwards[1] else done] = s
        done += 1
        if g.nodes[0].asks and not s[0] < s[1]:  # type: ignore[union-attr]
            break
    return done, s, made


FEEDS = {"s0": np.float32([1, 2, 3]), "x": np.arange(12, dtype=np.float32).reshape(4, 3), "by": np.float32([0.5, -2, 1])}


@pytest.mark.parametrize("limit", [None, 0, 1, 3, 9, -1])
@pytest.mark.parametrize("backwards", [(False, False), (True, True)])
@pytest.mark.parametrize("asks", [False, True])
def test_a_loop_runs_turn_by_turn(limit: int | None, backwards: tuple[bool, bool], asks: bool) -> None:
    g = sums(limit, asks=asks, backwards=backwards)
    tools = toolchain(threads=1)
    found = build(optimised(g, tools), tools)([FEEDS[name] for name in g.inputs])
    expected = ran(g, FEEDS, 9 if limit is None else max(limit, 0), backwards)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("limit", [None, 0, 3])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_loop_written_out_computes_the_same(limit: int | None, backwards: bool) -> None:
    g, tools = sums(limit, backwards=(backwards, False)), toolchain(threads=1)
    found, expected = (build(optimised(h, tools), tools)([FEEDS[name] for name in g.inputs]) for h in (verify(unroll(g)), g))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_loop_that_its_data_end_cannot_be_written_out() -> None:
    with pytest.raises(CompileError) as refused:
        unroll(sums(asks=True))
    assert refused.value.diagnostics[0].code == "O010"


def test_a_loop_reads_back_as_it_is_printed() -> None:
    g = sums(3, asks=True, backwards=(True, False))
    again = parse(show(g), constants_of(g))
    assert show(again) == show(g)
    assert 'loop "again" ("limit", "s0", "x", "by") -> ("turns", "last", "ys") limit asks scanned [1] made [0] = b0' in show(g)


def test_passes_change_the_body_of_a_loop() -> None:
    [loop] = optimise(sums()).nodes
    assert isinstance(loop, Loop)
    assert len(loop.body.nodes) < len(sums().nodes[0].body.nodes)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"inputs": ("x", "x", "by")}, "loop `again` binds `x` of f32[4, 3] to `s` of f32[3]"),
        ({"inputs": ("s0", "x")}, "loop `again` binds 2 inputs and 3 outputs to a body of 3 and 2"),
        ({"has_limit": True, "inputs": ("s0", "s0", "x", "by")}, "loop `again` takes `s0` of f32[3] for one i64"),
        ({"made": ()}, "loop `again` binds `ys` of f32[4, 3] to `w` of f32[3]"),
    ],
)
def test_what_a_loop_is_bound_to_is_verified(change: dict[str, Any], problem: str) -> None:
    g = sums()
    assert problem in list(problems(replace(g, nodes=(replace(g.nodes[0], **change),))))
