"""Own: what is only widened is widened where it is read, so the narrow value is all that is stored."""

from __future__ import annotations

import numpy as np
from small_graphs import at, graph, kernel, run, single, tensor, unary

from codegen.dtypes import f32, i8
from tensorlang.graph.nodes import Kernel
from tensorlang.graph.passes.fusion.duplicate_casts import duplicate_casts
from tensorlang.graph.verify import verify
from tensorlang.tensor.nodes import Cast


def test_every_reader_of_a_widened_value_widens_for_itself() -> None:
    narrow = single("narrow", [tensor("x", 4)], tensor("y", 4, dtype=i8), "i", Cast(i8, at("x", "i")))
    wide = single("wide", [tensor("x", 4, dtype=i8)], tensor("y", 4), "i", Cast(f32, at("x", "i")))
    nodes = [kernel(narrow, "x", "q"), kernel(wide, "q", "t"), *(kernel(unary("exp", 4), "t", name) for name in "uvw")]
    before = graph({"x": (4,)}, nodes, list("uvw"))
    after = verify(duplicate_casts(before))
    read = [node.inputs for node in after.nodes if isinstance(node, Kernel) and node.program.name == "exp"]
    assert len(set(read)) == 3
    assert [node.inputs for node in after.nodes if isinstance(node, Kernel) and node.program.name == "wide"] == [("q",)] * 3
    feeds = {"x": np.array([1.5, -2.0, 0.0, 3.0], np.float32)}
    for name, array in run(before, feeds).items():
        np.testing.assert_array_equal(run(after, feeds)[name], array)
