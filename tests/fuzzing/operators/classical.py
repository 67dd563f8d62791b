"""Operators of classical models, ai.onnx.ml: trees, support vectors, linear models, scalers and encoders."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzzing.network import NetDrawing, Rule
from fuzzing.operators import draw
from fuzzing.operators.microsoft import whole

DOMAIN = "ai.onnx.ml"
_AFTER = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _reals(d: NetDrawing, *shape: int, unit: float = 0.25) -> list[float]:
    return [float(v) for v in draw.parts(d, "f32", shape, unit, 9).ravel()]


def _table(d: NetDrawing, *, rows: tuple[int, ...] = (1, 2, 5), columns: tuple[int, ...] = (1, 3, 4)) -> str:
    """Return samples, a row each."""
    dtype = d.random.choice(("f32", "f32", "f32", "f64", "i64", "i32"))
    shape = (d.random.choice(rows), d.random.choice(columns))
    return draw.put(d, draw.parts(d, dtype, shape, 0.25, 9) if dtype[0] == "f" else d.array(dtype, shape), 0.0)


def _trees(d: NetDrawing, features: int, targets: int, votes: str) -> dict[str, Any]:
    """Return the attributes of an ensemble of trees that are no alike; `votes` is "target" or "class"."""
    rows: dict[str, list[Any]] = {
        k: [] for k in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids", "tracks")
    }
    leaves: dict[str, list[Any]] = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    modes = (
        ("BRANCH_LEQ",) if d.random.random() < 0.6 else ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
    )
    for tree in range(d.random.choice((1, 2, 3, 9))):
        count = 0

        def grow(depth: int, tree: int = tree) -> int:
            nonlocal count
            own, leaf = count, depth == 0 or d.random.random() < 0.2
            count += 1
            place = len(rows["nodeids"])
            whole_row = (tree, own, 0 if leaf else d.random.randrange(features), "LEAF" if leaf else d.random.choice(modes))
            for key, value in zip(
                rows,
                (*whole_row, 0.0 if leaf else d.random.choice((-1.0, 0.0, 0.25, 0.5, 1.0)), 0, 0, d.random.choice((0, 0, 1))),
                strict=True,
            ):
                rows[key].append(value)
            if leaf:
                for target in range(targets):  # of a result without a leaf onnxruntime forgets the base value
                    for key, value in zip(leaves, (tree, own, target, d.random.choice((-0.5, 0.25, 1.0, 2.0))), strict=True):
                        leaves[key].append(value)
                return own
            rows["truenodeids"][place] = grow(depth - 1)
            rows["falsenodeids"][place] = grow(depth - 1)
            return own

        grow(d.random.choice((0, 1, 2, 4)))
    found = {f"nodes_{k}": v for k, v in rows.items() if k != "tracks"}
    if d.random.random() < 0.4:
        found["nodes_missing_value_tracks_true"] = rows["tracks"]
    return found | {f"{votes}_{k}": v for k, v in leaves.items()}


def _regressor(d: NetDrawing) -> None:
    x = _table(d)
    targets = d.random.choice((1, 1, 2, 3))
    attrs = _trees(d, d.values[x].shape[1], targets, "target")
    attrs |= draw.maybe(d, 0.5, aggregate_function=d.random.choice(("SUM", "AVERAGE", "MIN", "MAX")))
    attrs |= draw.maybe(d, 0.4, base_values=_reals(d, targets)) | draw.maybe(d, 0.3, post_transform=d.random.choice(_AFTER))
    d.add("TreeEnsembleRegressor", [x], rough=True, domain=DOMAIN, n_targets=targets, **attrs)


def _labels(d: NetDrawing, count: int) -> dict[str, Any]:
    return {"classlabels_ints": d.random.choice((list(range(count)), [3 * k - 2 for k in range(count)]))}


def _classifier(d: NetDrawing) -> None:
    x = _table(d)
    classes = d.random.choice((1, 2, 2, 3, 4))
    voted = 1 if classes == 2 and d.random.random() < 0.6 else classes
    attrs = _trees(d, d.values[x].shape[1], voted, "class")
    attrs |= draw.maybe(d, 0.4 if voted != 2 else 0.0, base_values=_reals(d, voted)) | draw.maybe(
        d, 0.6, post_transform=d.random.choice(_AFTER[:4])
    )
    (labels,) = _labels(d, max(classes, 2)).values() if voted != 2 else [[0, 1]]  # in whose place onnxruntime returns these
    d.add("TreeEnsembleClassifier", [x], 2, rough=True, decided=True, domain=DOMAIN, classlabels_int64s=labels, **attrs)


def _linear(d: NetDrawing) -> None:
    x = _table(d)
    features, count = d.values[x].shape[1], d.random.choice((1, 2, 3))
    after = draw.maybe(d, 0.6, post_transform=d.random.choice(_AFTER[:4]))
    if d.random.random() < 0.5:
        attrs = {"targets": count, **draw.maybe(d, 0.7, intercepts=_reals(d, count)), **after}
        d.add("LinearRegressor", [x], rough=True, domain=DOMAIN, coefficients=_reals(d, count, features), **attrs)
        return
    attrs = {**draw.maybe(d, 0.9, intercepts=_reals(d, count)), **draw.maybe(d, 0.3, multi_class=1), **after}
    labels = _labels(d, max(2, count))
    d.add("LinearClassifier", [x], 2, rough=True, decided=True, domain=DOMAIN, coefficients=_reals(d, count, features), **attrs, **labels)


def _support_vectors(d: NetDrawing) -> None:
    x = _table(d)
    features, vectors = d.values[x].shape[1], d.random.choice((1, 2, 5))
    kernel = {
        "kernel_type": d.random.choice(("LINEAR", "POLY", "RBF", "SIGMOID")),
        "kernel_params": [0.5, 0.25, float(d.random.choice((1, 2, 3)))],
    }
    kernel |= {"support_vectors": _reals(d, vectors, features)}
    if d.random.random() < 0.5:
        attrs = draw.maybe(d, 0.2, one_class=1)  # onnxruntime leaves the transform of the scores out
        d.add(
            "SVMRegressor",
            [x],
            rough=True,
            domain=DOMAIN,
            n_supports=vectors,
            coefficients=_reals(d, vectors),
            rho=_reals(d, 1),
            **kernel,
            **attrs,
        )
        return
    classes = d.random.choice((2, 3))
    each = [d.random.choice((1, 2)) for _ in range(classes)]
    kernel["support_vectors"] = _reals(d, sum(each), features)
    pairs = classes * (classes - 1) // 2
    attrs = {"vectors_per_class": each, "coefficients": _reals(d, (classes - 1) * sum(each)), "rho": _reals(d, pairs)}
    attrs |= draw.maybe(d, 0.4, prob_a=[-1.0 - k for k in range(pairs)], prob_b=[0.25] * pairs)
    attrs |= draw.maybe(d, 0.4, post_transform=d.random.choice(_AFTER[:4]))
    d.add("SVMClassifier", [x], 2, rough=True, decided=True, domain=DOMAIN, **kernel, **attrs, **_labels(d, classes))


def _scaled(d: NetDrawing) -> None:
    x = _table(d)
    features = d.values[x].shape[1]
    match d.random.randrange(6):
        case 0:
            attrs = draw.maybe(d, 0.8, offset=_reals(d, d.random.choice((1, features)))) | draw.maybe(
                d, 0.8, scale=_reals(d, d.random.choice((1, features)))
            )
            d.add("Scaler", [x], rough=True, domain=DOMAIN, **attrs)
        case 1:
            d.add("Normalizer", [x], rough=True, domain=DOMAIN, norm=d.random.choice(("MAX", "L1", "L2")))
        case 2:
            d.add("Binarizer", [x], rough=True, domain=DOMAIN, threshold=d.random.choice((0.0, 0.5, -1.0)))
        case 3:
            kind = "int64s" if d.values[x].dtype.kind == "i" else "floats"
            values: list[Any] = [1] * d.random.choice((1, features)) if kind == "int64s" else _reals(d, d.random.choice((1, features)))
            replaced = {f"imputed_value_{kind}": values, f"replaced_value_{kind[:-1]}": d.random.choice((0, 1))}
            if kind == "floats":
                replaced["replaced_value_float"] = float(d.random.choice((0.0, 0.5, np.nan)))
            d.add("Imputer", [x], rough=True, domain=DOMAIN, **replaced)
        case 4:
            ids = draw.put(d, whole(d, 0, features, 1, d.random.choice((1, 2)), dtype="i64"))
            d.add("ArrayFeatureExtractor", [x, ids], rough=True, domain=DOMAIN)
        case _:
            others = [draw.put(d, d.array("f32", (d.values[x].shape[0], n))) for n in (1, 2)]
            d.add("FeatureVectorizer", [*others], rough=True, domain=DOMAIN, inputdimensions=[1, 2])


def _encoded(d: NetDrawing) -> None:
    x = draw.put(d, whole(d, -2, 4, *draw.shape(d, d.random.choice((1, 2)), (1, 2, 4)), dtype="i64"), 0.1)
    if d.random.random() < 0.5:
        attrs: dict[str, Any] = {"cats_int64s": d.random.sample(range(-2, 4), d.random.choice((1, 3, 6))), "zeros": 1}
        d.add("OneHotEncoder", [x], rough=True, domain=DOMAIN, **attrs)
        return
    keys = d.random.sample(range(-2, 4), 3)
    if d.random.random() < 0.5:
        d.add(
            "LabelEncoder",
            [x],
            rough=True,
            domain=DOMAIN,
            keys_int64s=keys,
            values_floats=_reals(d, 3),
            **draw.maybe(d, 0.5, default_float=0.5),
        )
    else:
        d.add("LabelEncoder", [x], domain=DOMAIN, keys_int64s=keys, values_int64s=[7, 7, -1], **draw.maybe(d, 0.5, default_int64=5))


RULES: tuple[Rule, ...] = (
    _regressor,
    _regressor,
    _classifier,
    _classifier,
    _linear,
    _support_vectors,
    _support_vectors,
    _scaled,
    _scaled,
    _encoded,
)
