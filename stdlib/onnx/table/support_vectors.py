"""Support vector machines: what is like the vectors that training has kept. Domain ai.onnx.ml."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.onnx.model import Array
from stdlib.onnx.site import Result, Site
from stdlib.onnx.table.classes import ML, labels_at, labels_of, scores_of_two, transformed
from stdlib.onnx.table.entry import Entry
from stdlib.onnx.table.features import feature_rows, linear, reals
from tensorlang.graph.nodes import Value


def regressor(n: Site) -> Result:
    """Sums of likenesses to vectors, by a kernel; without vectors a linear model."""
    x, count = feature_rows(n), n.integer("n_supports", 0, low=0)
    coefficients, rho = reals(n, "coefficients"), reals(n, "rho")
    if not count:
        y = linear(n, x, coefficients, rho, 1)
    else:
        if coefficients.size != count or rho.size != 1:
            raise n.wrong(f"{coefficients.size} coefficients and {rho.size} offsets for {count} vectors")
        y = n.op("add", n.op("matmul", _likeness(n, x, count), n.constant(coefficients.reshape(count, 1))), n.constant(rho))
    if n.flag("one_class"):
        positive = n.op("greater", y, n.filled((), y.dtype))
        return n.op("select", positive, n.filled((), y.dtype, 1), n.filled((), y.dtype, -1))
    return transformed(n, y, n.text("post_transform", "NONE"))


def _likeness(n: Site, x: Value, count: int) -> Value:
    """Return how like each row is to each of `count` vectors."""
    vectors = reals(n, "support_vectors")
    if vectors.size != count * x.shape[1]:
        raise n.wrong(f"{vectors.size} numbers for {count} vectors of {x.shape[1]} features")
    vectors = vectors.reshape(count, x.shape[1])
    gamma, offset, degree = (*reals(n, "kernel_params").tolist(), 0.0, 0.0, 0.0)[:3]
    match n.text("kernel_type", "LINEAR", ("LINEAR", "POLY", "RBF", "SIGMOID")):
        case "LINEAR":
            return n.op("matmul", x, n.constant(np.ascontiguousarray(vectors.T)))
        case "RBF":
            return n.op("radial_kernel", x, n.constant(vectors), gamma=gamma)
        case "POLY":
            return n.op("polynomial_kernel", x, n.constant(vectors), gamma=gamma, offset=offset, degree=degree)
        case _:
            return n.op("tangent_kernel", x, n.constant(vectors), gamma=gamma, offset=offset)


def classifier(n: Site) -> Result:
    """Each pair of classes has a machine of its own that votes for one of them; without vectors each class has a linear score."""
    labels, per_class = labels_of(n, "classlabels_ints", "classlabels_strings"), n.integers("vectors_per_class", (), low=0)
    x, transform = feature_rows(n), n.text("post_transform", "NONE")
    if not sum(per_class):
        return _of_linear_scores(n, x, labels, transform)
    count, pairs = len(labels), list(combinations(range(len(labels)), 2))
    coefficients, rho, slopes, shifts = (reals(n, name) for name in ("coefficients", "rho", "prob_a", "prob_b"))
    expected = (count, sum(per_class) * (count - 1), len(pairs))
    if (len(per_class), coefficients.size, rho.size) != expected or not pairs:
        raise n.wrong(f"{coefficients.size} coefficients and {rho.size} offsets for {list(per_class)} vectors of {count} classes")
    if slopes.size not in (0, len(pairs)) or slopes.size != shifts.size:
        raise n.wrong(f"probabilities of {slopes.size} and {shifts.size} of {len(pairs)} pairs of classes")
    found = n.op("matmul", _likeness(n, x, sum(per_class)), n.constant(_of_pairs(coefficients, per_class, pairs)))
    scores = n.op("add", found, n.constant(rho))
    label = _label_of_votes(n, scores, labels, pairs)
    if not slopes.size and count == 2:
        if transform == "PROBIT":
            raise n.unsupported("two classes, no probabilities and the transform PROBIT")
        return label, scores_of_two(n, scores, transform, share=transform != "NONE")
    if not slopes.size:
        return label, transformed(n, scores, transform)
    certain = n.op("add", n.op("mul", scores, n.constant(slopes)), n.constant(shifts))
    first = n.op("clip", n.op("map", n.op("map", certain, f="negate"), f="sigmoid"), lo=1e-7, hi=1 - 1e-7)
    return label, transformed(n, n.op("coupled_shares", first, _columns(n, pairs, count)), transform)


def _of_pairs(coefficients: Array, per_class: tuple[int, ...], pairs: list[tuple[int, int]]) -> Array:
    """Return what each vector says in the machine of each pair: coefficients have a row for each class but the vector's own."""
    rows, starts = coefficients.reshape(-1, sum(per_class)), np.cumsum((0, *per_class))
    found = np.zeros((sum(per_class), len(pairs)), np.float32)
    for k, (i, j) in enumerate(pairs):
        for of, row in ((i, j - 1), (j, i)):
            own = slice(starts[of], starts[of + 1])
            found[own, k] = rows[row, own]
    return found


def _label_of_votes(n: Site, scores: Value, labels: Array, pairs: list[tuple[int, int]]) -> Value:
    """Return the label of the class that most machines of pairs are for, of several the first."""
    for_first = np.array([[(i == c) - (j == c) for c in range(len(labels))] for i, j in pairs], np.float32)
    for_second = np.array([sum(j == c for _, j in pairs) for c in range(len(labels))], np.float32)
    first = n.op("cast_f32", n.op("greater", scores, n.filled((), scores.dtype)))
    votes = n.op("add", n.op("matmul", first, n.constant(for_first)), n.constant(for_second))
    return labels_at(n, labels, n.view(n.op("arg_max", votes, axis=1), (scores.shape[0],)))


def _columns(n: Site, pairs: list[tuple[int, int]], count: int) -> Value:
    """Return for each two classes the number of their pair; of a class with itself it is not looked at."""
    table = np.zeros((count, count), np.int64)
    for k, (i, j) in enumerate(pairs):
        table[i, j] = table[j, i] = k
    return n.constant(table)


def _of_linear_scores(n: Site, x: Value, labels: Array, transform: str) -> Result:
    """The class of the greatest score; of two classes the second where that score is large enough, whichever has it, as in onnxruntime."""
    coefficients, rho = reals(n, "coefficients"), reals(n, "rho")
    if not rho.size:
        raise n.wrong("there is no offset")
    scores = linear(n, x, coefficients, np.full(len(labels), rho[0], np.float32), len(labels))
    best = n.view(n.op("arg_max", scores, axis=1), (scores.shape[0],))
    if len(labels) == 2 and not reals(n, "prob_a").size:
        positive = bool(np.all(coefficients >= 0))
        greatest = n.view(n.op("reduce_max", scores, axis=1), (scores.shape[0],))
        limit = n.filled((), scores.dtype, 0.5 if positive else 0)
        large = n.op("greater_equal" if positive else "greater", greatest, limit)
        best = n.op("select", large, n.filled((), DTYPES["i64"], 1), best)
    return labels_at(n, labels, best), transformed(n, scores, transform)


RULES = (
    Entry("SVMClassifier", 1, 1, classifier, ML),
    Entry("SVMRegressor", 1, 1, regressor, ML),
)
