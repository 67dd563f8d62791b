"""Boxes that are kept and elements that are distinct, as many as the data say, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tensorlang as tl
from tensorlang.diagnostics import CompileError

Array = np.ndarray[Any, Any]
I64 = TensorProto.INT64


def model(kind: str, inputs: dict[str, tuple[int, list[Any]]], outputs: list[str], constants: dict[str, Array], **attrs: Any) -> bytes:
    taken = [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()]
    found = [
        helper.make_tensor_value_info(n, I64 if k or kind != "Unique" else next(iter(inputs.values()))[0], None)
        for k, n in enumerate(outputs)
    ]
    node = helper.make_node(kind, [*inputs, *constants], outputs, **attrs)
    graph = helper.make_graph([node], "g", taken, found, [numpy_helper.from_array(a, n) for n, a in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


def check(data: bytes, *every: dict[str, Array], **options: Any) -> None:
    session, compiled = onnxruntime.InferenceSession(data), tl.compile(data, threads=1, **options)
    for feeds in every:
        for mine, theirs in zip(compiled.run(feeds).values(), session.run(None, feeds), strict=True):
            assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
            np.testing.assert_array_equal(mine, theirs)


def boxes(batch: int, count: int, classes: int, seed: int, center: bool = False) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    corner, extent = rng.uniform(0, 4, (batch, count, 2)), rng.uniform(0.2, 3, (batch, count, 2))
    found = np.concatenate([corner, extent if center else corner + extent], axis=2)
    if not center:  # opposite corners in either order
        turned = rng.random((batch, count)) < 0.3
        found[turned] = found[turned][:, [2, 1, 0, 3]]
    scores = rng.integers(0, 12, (batch, classes, count)) / 12  # equal ones among them
    return {"boxes": found.astype(np.float32), "scores": scores.astype(np.float32)}


def thresholds(most: int, iou: float, score: float) -> dict[str, Array]:
    return {"most": np.array([most]), "iou": np.array([iou], np.float32), "score": np.array([score], np.float32)}


BOXES = {"boxes": (1, ["batch", "n", 4]), "scores": (1, ["batch", "classes", "n"])}


def test_boxes_that_overlap_a_better_one_are_left_out_for_any_sizes() -> None:
    data = model("NonMaxSuppression", BOXES, ["kept"], thresholds(3, 0.3, 0.2))
    check(data, boxes(1, 20, 1, 0), boxes(2, 9, 3, 1), boxes(1, 1, 1, 2), sizes="symbolic")


@pytest.mark.parametrize(("center", "most", "iou", "score"), [(1, 100, 0.5, -1.0), (1, 1, 0.0, 0.5), (0, 0, 0.5, 0.1), (1, 5, 1.0, 2.0)])
def test_limits_leave_all_boxes_that_do_not_overlap_or_one_of_a_class_or_none(center: int, most: int, iou: float, score: float) -> None:
    data = model("NonMaxSuppression", BOXES, ["kept"], thresholds(most, iou, score), center_point_box=center)
    check(data, boxes(2, 9, 3, 1, bool(center)))


@pytest.mark.parametrize("most", [3, 17])
def test_without_a_threshold_no_score_is_too_low(most: int) -> None:
    limits = thresholds(most, 0.5, 0)
    del limits["score"]
    given = boxes(1, 4, 1, 0)
    given["scores"][0, 0, :3] = -np.inf
    check(model("NonMaxSuppression", BOXES, ["kept"], limits), given)


def test_without_limits_no_box_is_kept() -> None:
    check(model("NonMaxSuppression", BOXES, ["kept"], {}), boxes(1, 5, 1, 0))


def test_boxes_that_do_not_fit_their_scores_are_refused() -> None:
    data = model("NonMaxSuppression", {"boxes": (1, [1, 5, 4]), "scores": (1, [1, 2, 6])}, ["kept"], thresholds(3, 0.5, 0))
    with pytest.raises(CompileError, match="O012"):
        tl.compile(data)


@pytest.mark.parametrize(("sorted_", "kind"), [(0, TensorProto.FLOAT), (1, TensorProto.INT64)])
def test_distinct_elements_with_their_places_and_numbers(sorted_: int, kind: int) -> None:
    data = model("Unique", {"x": (kind, ["n", 3])}, ["y", "first", "back", "count"], {}, sorted=sorted_)
    rng = np.random.default_rng(0)
    check(data, *({"x": rng.integers(-3, 4, (n, 3)).astype(np.float32 if kind == 1 else np.int64)} for n in (4, 1, 9)))


@pytest.mark.parametrize("along", [{}, {"axis": 0}])
def test_of_nothing_nothing_is_distinct(along: dict[str, int]) -> None:
    data = model("Unique", {"x": (1, [0, 3])}, ["y", "first", "back", "count"], {}, **along)
    check(data, {"x": np.empty((0, 3), np.float32)})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_distinct_slices_along_an_axis(axis: int) -> None:
    data = model("Unique", {"x": (1, [6, 5, 2])}, ["y", "first", "back", "count"], {}, axis=axis)
    rng = np.random.default_rng(1)
    check(
        data,
        *(
            {
                "x": np.take(
                    rng.integers(0, 2, (6, 5, 2)), rng.integers(0, 3, 6 if axis == 0 else 5 if axis == 1 else 2) % 2, axis=axis
                ).astype(np.float32)
            }
            for _ in range(3)
        ),
    )


@pytest.mark.parametrize(("shape", "along"), [((), {}), ((3, 4), {}), ((3, 4), {"axis": 0}), ((3, 4), {"axis": 1})])
def test_distinct_booleans(shape: tuple[int, ...], along: dict[str, int]) -> None:
    x = np.random.default_rng(2).random(shape) < 0.5
    found = tl.compile(model("Unique", {"x": (TensorProto.BOOL, [*shape])}, ["y", "first", "back", "count"], {}, **along), threads=1).run(
        {"x": x}
    )
    names = ("return_index", "return_inverse", "return_counts")
    for mine, wanted in zip(found.values(), np.unique(x, **dict.fromkeys(names, True), **along), strict=True):
        np.testing.assert_array_equal(mine, np.ravel(wanted) if mine.ndim == 1 else wanted)
