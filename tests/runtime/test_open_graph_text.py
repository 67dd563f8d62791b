"""Graphs of open sizes as text: what is printed reads back, with symbols, what these stand for, and what was assumed of them."""

from __future__ import annotations

import pytest
from test_open_sizes import MODELS

from polyhedral.expr import Name
from stdlib.onnx import Importer
from tensorlang.diagnostics import CompileError
from tensorlang.graph.nodes import Graph
from tensorlang.graph.parser import parse
from tensorlang.graph.pipeline import optimise
from tensorlang.graph.printer import constants_of, show
from tensorlang.graph.sizes import Formula, Symbols, UnequalSizes, substituted
from tensorlang.graph.verify import verify
from tensorlang.runtime.open_sizes import OpenShapes, sizes_of


def imported(data: bytes) -> Graph:
    """Return a model with all its sizes open, those that have to be equal as one."""
    open_shapes = OpenShapes(Importer().signature(data).inputs)
    given = open_shapes.given()
    assert given is not None
    equal: dict[str, Formula] = {}
    while True:
        symbols = Symbols({name: 12 + 5 * k for k, name in enumerate(open_shapes.names.values())})
        try:
            return Importer().load(data, given.at(sizes_of(symbols, equal)).shapes)
        except UnequalSizes as need:
            name, formula = need.solved() or pytest.fail(str(need))
            equal = {**{n: substituted(f, name, formula) for n, f in equal.items()}, name: formula}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("stage", ["imported", "optimised"])
def test_a_graph_of_open_sizes_reads_back(name: str, stage: str) -> None:
    graph = imported(MODELS[name][0]())
    graph = optimise(graph) if stage == "optimised" else graph
    again = verify(parse(show(graph), constants_of(graph)))
    assert (again.inputs, again.outputs, again.values) == (graph.inputs, graph.outputs, graph.values)
    assert again.symbols is not None and graph.symbols is not None
    assert (again.symbols.samples, again.symbols.products) == (graph.symbols.samples, graph.symbols.products)
    assert again.symbols.assumed == graph.symbols.assumed
    once = show(again)
    assert show(parse(once, constants_of(again))) == once


HEAD = 'graph "g"\ninputs "x"\noutputs "x"\n'


def test_the_smaller_of_two_sizes_reads_back() -> None:
    lines = (
        'size "size.n" sample 30\nsize "size.m" sample 5\nsize "size.k" = min(`size.n` - 1, max(`size.m`, 9))\nvalue "x": f32[`size.k`]\n'
    )
    graph = parse(HEAD + lines, {})
    again = parse(show(graph), {})
    assert graph.symbols is not None and again.symbols is not None
    assert str(graph.symbols.size(Name("size.k"))) == "min(max(9, m), n - 1)"
    assert (again.symbols.products, again.values) == (graph.symbols.products, graph.values)


@pytest.mark.parametrize(
    "lines",
    [
        'value "x": f32[`size.n`]',
        'size "size.n" sample 3\nvalue "x": f32[`size.m`]',
        'size "size.n" sample 3\nsize "size.n" sample 4\nvalue "x": f32[`size.n`]',
        'size "size.n" sample many\nvalue "x": f32[2]',
        'size "size.n" sample 3\nassume `size.n` is 0\nvalue "x": f32[`size.n`]',
        'size "size.n" sample 3\nvalue "x": f32[`size.n` ** 2]',
    ],
)
def test_sizes_that_are_not_declared_or_mean_nothing_are_refused(lines: str) -> None:
    with pytest.raises(CompileError, match="O0002"):
        parse(HEAD + lines + "\n", {})


def test_products_quotients_and_assumptions_are_told() -> None:
    text = (
        'graph "g"\ninputs "x"\noutputs "x"\nsize "size.a" sample 6\nsize "size.b" sample 7\nsize "size.a_b" = ((1)*`size.a`*`size.b`)\n'
        'assume ((1)*`size.a`) + ((-3)) >= 0\nvalue "x": f32[`size.a_b`, `size.a` // 2 + 1]\n'
    )
    graph = parse(text, {})
    assert show(graph) == text
    assert [str(condition) for condition in graph.symbols.assumed] == ["a >= 3"]  # type: ignore[union-attr]
