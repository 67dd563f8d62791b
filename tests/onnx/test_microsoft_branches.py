"""Operators on branches, several streams of features side by side, compute what onnxruntime computes."""

from __future__ import annotations

import numpy as np
import pytest
from microsoft_operators import check, draw, model
from onnx_evaluate import staged

from tensorlang.diagnostics import CompileError


@pytest.mark.parametrize("weights", [(2, 3, 4), (2, 3, 4, 1), (2, 3, 4, 5)])
def test_branches_are_summed_by_weights(weights: tuple[int, ...]) -> None:
    check("HyperConnectionPreMix", draw(2, 3, 4, 5), draw(*weights, seed=1), reduction_scale=0.5)
    check("HyperConnectionPreMix", draw(2, 3, 20), draw(*weights, seed=1), num_branches=4)


def test_branches_and_their_weights_may_be_flat() -> None:
    check("HyperConnectionPreMix", draw(3, 20), draw(3, 20, seed=1), num_branches=4)


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("weights", [(3, 4), (3, 4, 1), (3, 4, 5)])
def test_a_block_is_added_to_branches_that_are_mixed(weights: tuple[int, ...], mixed: bool) -> None:
    block, gates, matrix = draw(3, 5, seed=1), draw(*weights, seed=2), draw(3, 4, 4, seed=3) if mixed else None
    check("HyperConnectionPostMix", draw(3, 4, 5), block, gates, matrix)
    check("HyperConnectionPostMix", draw(3, 20), block, gates, matrix, num_branches=4)


@pytest.mark.parametrize("scale", [None, (5,), (4, 5), (20,)])
def test_each_branch_is_normalised_by_itself(scale: tuple[int, ...] | None) -> None:
    given = None if scale is None else draw(*scale, seed=1)
    check("BranchwiseRMSNorm", draw(2, 4, 5), given, epsilon=1e-3)
    check("BranchwiseRMSNorm", draw(2, 20), given, num_branches=4)


def test_features_that_are_no_branches_are_refused() -> None:
    feeds = {"x": draw(2, 19), "w": draw(2, 4)}
    with pytest.raises(CompileError, match="O012"):
        staged(model("HyperConnectionPreMix", feeds, ["x", "w"], 1, [], "com.microsoft", num_branches=4), feeds)


def test_branches_of_halves_are_summed_in_floats() -> None:
    x, weights = draw(2, 4, 5, dtype=np.float16), draw(2, 4, dtype=np.float16, seed=1)
    feeds = {"x": x, "w": weights}
    (found,) = staged(model("HyperConnectionPreMix", feeds, ["x", "w"], 1, [], "com.microsoft"), feeds)
    wide = (x.astype(np.float32) * weights.astype(np.float32)[..., None]).sum(-2)
    np.testing.assert_allclose(found.astype(np.float32), wide, rtol=1e-3, atol=1e-3)
