"""What classifiers share: labels, scores of two classes from one number, and what is made of scores. Domain ai.onnx.ml."""

from __future__ import annotations

import numpy as np

from stdlib.onnx.model import Array
from stdlib.onnx.site import Site
from stdlib.onnx.table.moving import joined
from tensorlang.graph.nodes import Value

ML = "ai.onnx.ml"
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def labels_of(n: Site, numbers: str, strings: str) -> Array:
    """Return the labels of the classes: integers or strings."""
    for name, dtype in ((strings, object), (numbers, np.int64)):
        found = n.node.attributes.get(name, ())
        if isinstance(found, tuple) and found:
            made = np.empty(len(found), dtype)
            made[:] = found
            return made
    raise n.wrong("there are no labels")


def transformed(n: Site, y: Value, how: str) -> Value:
    """Return scores after a transform, each row for itself."""
    match how:
        case "NONE":
            return y
        case "LOGISTIC":
            return n.op("map", y, f="sigmoid")
        case "SOFTMAX":
            return n.op("softmax", y, axis=1)
        case "SOFTMAX_ZERO":
            return n.op("softmax_of_nonzero", y)
        case "PROBIT":
            return n.op("map", y, f="probit")
        case _:
            raise n.wrong(f"the transform {how!r} is none of {', '.join(TRANSFORMS)}")


def transformed_results(n: Site, y: Value) -> Value:
    """Return the results of a regression after their transform. Of a single result it is the probit or nothing, as in onnxruntime."""
    how = n.text("post_transform", "NONE", TRANSFORMS)
    return y if y.shape[1] == 1 and how != "PROBIT" else transformed(n, y, how)


def labelled(n: Site, scores: Value, labels: Array, transform: str, above: float | None = None, share: bool = False) -> tuple[Value, Value]:
    """Return the label of each row and its scores: the class of the greatest score or, where one number stands for two classes, the second
    where that is greater than `above`. `share`: that number is what the second class has of 1."""
    rows = scores.shape[0]
    if above is None:
        best = n.op("arg_max", scores, axis=1)
        return labels_at(n, labels, n.view(best, (rows,))), transformed(n, scores, transform)
    label = label_of_two(n, scores, labels, above)
    if transform == "PROBIT":
        return label, transformed(n, scores, transform)
    return label, scores_of_two(n, scores, transform, share)


def scores_of_two(n: Site, scores: Value, transform: str, share: bool) -> Value:
    """Return the scores of two classes from those of the second: of the first the negative, before a LOGISTIC transform too, or, of a
    share, what is left of 1."""
    first = n.op("map", scores, f="negate")
    if transform == "LOGISTIC":
        first, scores = (n.op("map", value, f="sigmoid") for value in (first, scores))
    elif share:
        first = n.op("sub", n.filled((), scores.dtype, 1), scores)
    return joined(n, (first, scores), 1)


def label_of_two(n: Site, sums: Value, labels: Array, above: float) -> Value:
    """Return the second label for rows whose sum, one column, is greater than `above`, the first for others."""
    second = n.op("greater", sums, n.filled((), sums.dtype, above))
    return labels_at(n, labels, n.view(n.op("cast_i64", second), (sums.shape[0],)))


def labels_at(n: Site, labels: Array, at: Value) -> Value:
    """Return the labels of classes by their numbers."""
    table = n.constant(labels)
    return n.of_texts(n.op("gather", table, at, axis=0), table)
