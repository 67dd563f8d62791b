"""Arrays in memory layouts: every element is where the layout says, everything else holds the fill."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from polyhedral import affine
from polyhedral.expr import Add, Expr, Floor, Int, Mod, Name, Scale
from tensorlang.graph.relayout import restored, to_layout
from tensorlang.schedule.layout import Layout

n, c, h = Name("n"), Name("c"), Name("h")
CASES = {
    "row-major": ((2, 5, 3), (n, c, h), (2, 5, 3)),
    "transposed": ((2, 5, 3), (h, n, c), (3, 2, 5)),
    "channels in blocks of four": ((2, 5, 3), (n, Floor(c, 4), h, Mod(c, 4)), (2, 2, 3, 4)),
    "blocks, and a halo": ((2, 5, 3), (n, Floor(c, 4), Add(h, Int(1)), Mod(c, 4)), (2, 2, 5, 4)),
    "inner part first": ((2, 5, 3), (Mod(c, 4), n, Floor(c, 4), h), (4, 2, 2, 3)),
    "blocks with a cell to spare": ((2, 5, 3), (n, Floor(c, 4), h, Mod(c, 4)), (2, 2, 3, 5)),
    "two axes split": ((4, 5, 6), (Floor(n, 2), Floor(h, 3), c, Mod(h, 3), Mod(n, 2)), (2, 2, 5, 3, 2)),
    "two axes in one": ((2, 5, 3), (n, Add(Scale(3, c), h)), (2, 15)),
    "a spread axis": ((2, 5, 3), (n, Scale(2, c), h), (2, 9, 3)),
    "no elements": ((2, 0, 3), (n, Floor(c, 4), h, Mod(c, 4)), (2, 1, 3, 4)),
}


@pytest.mark.parametrize(("shape", "dims", "block"), CASES.values(), ids=CASES.keys())
def test_elements_lie_where_the_layout_says(shape: tuple[int, ...], dims: tuple[Expr, ...], block: tuple[int, ...]) -> None:
    layout = Layout(("n", "c", "h"), dims, block)
    array = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    stored = to_layout(array, layout, fill=-1)
    expected = np.full(block, -1, np.float32)
    for point in itertools.product(*map(range, shape)):
        env = dict(zip(("n", "c", "h"), point, strict=True))
        expected[tuple(int(affine.evaluate(e, env)) for e in dims)] = array[point]
    np.testing.assert_array_equal(stored, expected, strict=True)
    np.testing.assert_array_equal(restored(stored, layout, shape), array, strict=True)
