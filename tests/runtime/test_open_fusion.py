"""What becomes one kernel in models of open sizes."""

from __future__ import annotations

from test_open_graph_text import imported
from test_open_sizes import Net

from tensorlang.graph.nodes import Kernel
from tensorlang.graph.passes.fusion.fuse import fuse


def test_what_follows_a_convolution_joins_it_at_every_scale_of_an_open_image() -> None:
    n, x = Net(), "x"
    for channels in (3, 4):
        x = n.op("Conv", x, n.weight(4, channels, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1])
        x = n.op("Mul", x, n.op("Sigmoid", x))
    graph = fuse(imported(n.model({"x": ["batch", 3, "height", "width"]}, x)))
    assert len([node for node in graph.nodes if isinstance(node, Kernel)]) == 2
