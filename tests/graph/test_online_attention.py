"""On a device attention goes through the keys once, where it is a softmax to the letter."""

from __future__ import annotations

import numpy as np
import pytest
from test_algebra import random, run
from test_fuse_attention import attention, kernels

from tensorlang.graph.nodes import Kernel
from tensorlang.graph.passes.fusion.fuse import fuse
from tensorlang.graph.passes.fusion.online_attention import online_attention
from tensorlang.graph.verify import verify
from tensorlang.policy.gpu.attention import blocks
from tensorlang.tensor.idioms import online_of
from tensorlang.tensor.online import Sizes


@pytest.mark.parametrize(("rows", "keys"), [(20, 12), (64, 70), (100, 33)])
def test_attention_becomes_one_kernel_in_one_pass(rows: int, keys: int) -> None:
    g = attention(rows, keys)
    done = verify(online_attention(fuse(g)))
    assert kernels(done) == [("transpose t", "matmul s", "softmax p", "matmul y")]
    [node] = done.nodes
    assert isinstance(node, Kernel) and online_of(node.program) is not None
    feeds = {"q": random(rows, 8), "k": random(keys, 8, seed=1), "v": random(keys, 5, seed=2)}
    np.testing.assert_allclose(run(done, feeds)["y"], run(g, feeds)["y"], rtol=1e-5, atol=1e-6)


def test_what_somebody_sees_is_stored_and_what_is_no_softmax_stays() -> None:
    for seen in ("s", "p"):
        assert len(kernels(online_attention(fuse(attention(outputs=("y", seen)))))) == 3
    assert len(kernels(online_attention(fuse(attention(between="relu"))))) == 2


def test_blocks_are_as_large_as_fits_and_no_larger_than_there_are_rows_and_keys() -> None:
    assert blocks(Sizes(128, 128, 64, 64, 4)) == (64, 32)
    assert blocks(Sizes(128, 128, 128, 128, 4)) == (32, 32)
    assert blocks(Sizes(20, 200, 64, 64, 4)) == (32, 32)
    assert blocks(Sizes(8, 8, 64, 64, 4)) == (16, 16)
    assert blocks(Sizes(64, 64, 1000, 64, 4)) is None
    assert blocks(Sizes(4096, 4096, 64, 64, 2)) == (64, 64)
    assert blocks(Sizes(4096, 4096, 128, 128, 2)) == (64, 32)
    assert blocks(Sizes(7, 4096, 64, 64, 4)) is None
