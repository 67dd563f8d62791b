"""Sums over the taps of a filter go, at each row of a result, over those that meet an element there."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from bits import assert_same_bits
from small_graphs import run
from test_drop_zero_terms import model

from codegen.dtypes import f32, i8, i32, u8
from codegen.loops.nodes import Alloc, For, Int
from codegen.loops.walk import walk
from polyhedral.expr import TRUE
from polyhedral.text import show_cond
from stdlib.library import library
from stdlib.onnx import Importer
from tensorlang.backends.cpu.driver import loops_of
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.passes.algebra.bound_taps import bound_taps
from tensorlang.graph.verify import verify
from tensorlang.policy.cpu.register_tiles import rows_of_blocks
from tensorlang.policy.machine import Machine
from tensorlang.policy.select import search
from tensorlang.schedule.check import proven
from tensorlang.syntax.parse import parse
from tensorlang.tensor.contraction import Contraction, contractions

RNG = np.random.default_rng(7)
MACHINE = Machine(vector_bytes=64, vector_registers=32, threads=1, target="cpu", dots=frozenset({(u8, i8)}))


def summed(graph: Graph) -> Contraction:
    [kernel] = [node for node in graph.nodes if isinstance(node, Kernel)]
    [(_, found)] = contractions(kernel.program)
    return found


@pytest.mark.parametrize(
    ("x", "w", "attrs", "bounds", "padded"),
    [
        ((1, 2, 9, 7), (3, 2, 3, 3), {"dilations": [4, 1], "pads": [4, 0, 4, 0]}, ["4*r.0 + p.0 - 4 >= 0", "4*r.0 + p.0 - 4 < 9"], False),
        (
            (1, 2, 9, 9),
            (3, 2, 3, 3),
            {"dilations": [4, 4], "pads": [4] * 4, "strides": [2, 1]},
            [
                "4*r.0 + 2*p.0 - 4 >= 0",
                "4*r.0 + 2*p.0 - 4 < 9",
                "0 <= 4*r.1 + 3*(p.1 // 3) - 2",
                "0 <= -4*r.1 - 3*(p.1 // 3) + 12",
            ],
            True,
        ),
        ((2, 4, 9, 9), (4, 1, 3, 1), {"pads": [4, 0, 0, 0], "dilations": [2, 1], "group": 4}, ["2*r.0 + p.0 - 4 >= 0"], False),
    ],
    ids=["rows", "blocks of a strided one's last axis", "one side, depthwise"],
)
def test_sums_are_bounded_by_what_rows_and_blocks_meet(
    x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], bounds: list[str], padded: bool
) -> None:
    before = Importer().load(model(x, w, **attrs))
    after = verify(bound_taps(before, lambda rows, columns, types, met: 3))
    found = summed(after)
    assert show_cond(found.reduce.where) == " and ".join(bounds)
    assert any(f.mask is not None for f in found.factors) == padded
    assert bound_taps(after, lambda rows, columns, types, met: 3) is after
    given = {"x": RNG.standard_normal(x).astype(np.float32)}
    assert_same_bits(run(after, given)["y"], run(before, given)["y"])


@pytest.mark.parametrize(
    "of",
    [
        model((1, 2, 9, 9), (3, 2, 3, 3), dilations=[4, 4], pads=[4] * 4, last=float("nan")),
        model((1, 2, 9, 9), (3, 2, 3, 3), dilations=[4, 4], pads=[4] * 4, constant=False),
        model((1, 2, 30, 30), (3, 2, 3, 3), pads=[1] * 4),
        model((1, 2, 9), (3, 2, 3), dilations=[4], pads=[4] * 2),
    ],
    ids=["no number", "given", "few in the padding", "along tiles alone, of which nobody says how large they are"],
)
def test_other_sums_stay(of: onnx.ModelProto) -> None:
    graph = Importer().load(of)
    assert summed(graph).reduce.where == TRUE
    assert bound_taps(graph) is graph


def test_tiles_are_smaller_where_they_skip_more_taps() -> None:
    def met(rows: int) -> float:
        return 0.4 if rows <= 8 else 1.0

    assert rows_of_blocks(32, 64, (f32, f32, f32), met, MACHINE) == 8
    assert rows_of_blocks(33, 64, (f32, f32, f32), lambda rows: 1.0, MACHINE) is None
    assert rows_of_blocks(33, 8, (f32, f32, f32), met, MACHINE) is None, "vectors of columns are half empty"
    assert rows_of_blocks(33, 64, (u8, i8, i32), met, MACHINE) is None, "the machine multiplies bytes in another way"


CONV = """
op conv(x: f32[16, 9, 9], w: f32[3, 3, 16, 32]) -> (y: f32[9, 9, 32]) {
    y[p, q, f] = sum(r in 0..3, s in 0..3, c in 0..16, 0 <= p + 4*r - 4 < 9, 0 <= 3*(q // 3) + 4*s - 2, 3*(q // 3) + 4*s - 4 < 9)
        (if 0 <= q + 4*s - 4 < 9 then x[c, p + 4*r - 4, q + 4*s - 4] else 0.0) * w[r, s, c, f]
}
"""


def test_rows_and_tiles_bound_loops_over_taps_and_the_copy_of_the_input_holds_what_is_read() -> None:
    module = load_module(parse(Source("f.tl", CONV)), [library()])
    program = instantiate(module, "conv", [ArgType(f32, (16, 9, 9)), ArgType(f32, (3, 3, 16, 32))], {})
    chosen = search(module, "conv", program, {}, "cpu", MACHINE).chosen
    assert chosen is not None
    function = loops_of(proven(program, chosen.schedule), "f").function
    found = [n for n in walk(*function.body) if isinstance(n, For)]
    assert {n.extent for n in found if n.kind == "unroll" and "ii" in n.var} == {3}
    assert all(not isinstance(n.hi, Int) for n in found if n.var in ("y_r", "y_s"))
    [copy] = [n.buffer for n in walk(*function.body) if isinstance(n, Alloc) and "pack" in n.buffer.name]
    assert Int(9) in copy.shape and Int(17) in copy.shape
