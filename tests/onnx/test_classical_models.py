"""Models of ai.onnx.ml, trees, linear models, encoders, compute what onnxruntime computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

import tensorlang as tl
from stdlib.onnx.table.trees import stages
from tensorlang.diagnostics import CompileError

Array = np.ndarray[Any, Any]
F32, I64 = np.float32, np.int64


def model(op: str, arrays: Mapping[str, Array], outputs: int, version: int, **attributes: Any) -> ModelProto:
    node = helper.make_node(op, list(arrays), [f"y{k}" for k in range(outputs)], domain="ai.onnx.ml", **attributes)
    numbers = [TensorProto.STRING if a.dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(a.dtype) for a in arrays.values()]
    inputs = [helper.make_tensor_value_info(name, number, a.shape) for (name, a), number in zip(arrays.items(), numbers, strict=True)]
    results = [helper.make_empty_tensor_value_info(f"y{k}") for k in range(outputs)]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(helper.make_graph([node], "g", inputs, results), opset_imports=opsets, ir_version=9)


def check(op: str, *arrays: Array, outputs: int = 1, version: int = 3, **attributes: Any) -> list[Array]:
    """Compare an operator with onnxruntime, and return its results."""
    feeds = {f"x{k}": a for k, a in enumerate(arrays)}
    made = model(op, feeds, outputs, version, **attributes)
    expected = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    typed = typed_like(made, expected)
    found = list(tl.compile(typed, threads=1).run(feeds).values())
    for a, b in zip(found, map(np.asarray, expected), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        else:
            assert a.tolist() == b.tolist()
    return found


def typed_like(made: ModelProto, expected: Sequence[Any]) -> ModelProto:
    """Return the model with outputs declared as these arrays are."""
    typed = ModelProto()
    typed.CopyFrom(made)
    for output, array in zip(typed.graph.output, expected, strict=True):
        kind = TensorProto.STRING if np.asarray(array).dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)
        output.CopyFrom(helper.make_tensor_value_info(output.name, kind, None))
    return typed


def forest(
    kind: str, trees: int, depth: int, features: int, targets: int, mode: str, seed: int = 0, missing: bool = False, ending: float = 0.2
) -> dict[str, Any]:
    """Return the attributes of trees with some leaves before the last level, `ending` of the nodes."""
    random = np.random.default_rng(seed)
    nodes: dict[str, list[Any]] = {
        name: [] for name in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    }
    tracks: list[int] = []
    held: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        pending, count = [(0, 0)], 1
        while pending:
            node, level = pending.pop()
            leaf = level == depth or (level > 0 and random.random() < ending)
            value = float(random.choice([-np.inf, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, np.inf]))
            row = (tree, node, int(random.integers(features)), value, "LEAF" if leaf else mode)
            for name, item in zip(nodes, (*row, 0 if leaf else count, 0 if leaf else count + 1), strict=True):
                nodes[name].append(item)
            tracks.append(int(missing and random.random() < 0.5))
            if leaf:
                for target in {int(random.integers(targets)), tree % targets}:
                    for name, item in zip(held, (tree, node, target, float(F32(random.standard_normal()))), strict=True):
                        held[name].append(item)
            else:
                pending += [(count, level + 1), (count + 1, level + 1)]
                count += 2
    found = {f"nodes_{name}": column for name, column in nodes.items()} | {f"{kind}_{name}": column for name, column in held.items()}
    return found | ({"nodes_missing_value_tracks_true": tracks} if missing else {})


def rows(count: int, features: int, seed: int = 1) -> Array:
    x = np.random.default_rng(seed).integers(-4, 5, (count, features)).astype(F32) / 2
    if count > 2:
        x[0, :], x[1, 0], x[2, :] = np.nan, np.inf, -np.inf
    return x


MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_trees_compare_in_every_way(mode: str, missing: bool) -> None:
    trees = forest("target", 7, 4, 5, 1, mode, missing=missing)
    check("TreeEnsembleRegressor", rows(20, 5), n_targets=1, base_values=[0.5], **trees)


@pytest.mark.parametrize("classes", [1, 3])
def test_trees_of_different_depths_are_gone_through_in_several_lists(classes: int) -> None:
    trees = forest("target", 60, 9, 5, 1, "BRANCH_LEQ", missing=True, ending=0.5)
    trees["target_ids"] = [tree % classes for tree in trees["target_treeids"]]
    check("TreeEnsembleRegressor", rows(20, 5), n_targets=classes, **trees)


@pytest.mark.parametrize(
    ("depths", "expected"),
    [
        ([5] * 40, [(0, 40)]),
        ([9] * 16 + [3] * 20, [(0, 16), (16, 36)]),
        ([9] * 4 + [3] * 30, [(0, 34)]),
        ([9] * 20 + [8] * 20, [(0, 40)]),
        ([40] * 16 + [30] * 16 + [20] * 16 + [10] * 16 + [5] * 16, [(0, 16), (16, 48), (48, 80)]),
    ],
)
def test_trees_share_a_list_unless_a_list_of_their_own_saves_levels(depths: list[int], expected: list[tuple[int, int]]) -> None:
    assert stages(np.array(depths), 16) == expected


@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_EQ"])
def test_several_nodes_may_lead_to_one(mode: str) -> None:
    chain = {"treeids": [0] * 8, "nodeids": list(range(8)), "featureids": [0] * 8, "values": [0.5, 1.5, 2.5, 3.5, 4.5, 0.0, 0.0, 0.0]}
    modes, true, false = [mode] * 5 + ["LEAF"] * 3, [5, 6, 5, 6, 5, 0, 0, 0], [1, 2, 3, 4, 7, 0, 0, 0]
    held = {"treeids": [0] * 3, "nodeids": [5, 6, 7], "ids": [0] * 3, "weights": [1.0, 2.0, 4.0]}
    nodes = {f"nodes_{name}": column for name, column in (chain | {"modes": modes, "truenodeids": true, "falsenodeids": false}).items()}
    x = np.array([[0.5], [1.5], [2.5], [3.5], [4.5], [5.5], [0.0], [np.nan]], F32)
    check("TreeEnsembleRegressor", x, n_targets=1, **nodes, **{f"target_{name}": column for name, column in held.items()})


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 2])
def test_a_leaf_may_hold_several_weights_for_a_target(aggregate: str, targets: int) -> None:
    trees = forest("target", 3, 3, 4, targets, "BRANCH_LEQ")
    twice = {name: [*trees[name], *trees[name]] for name in ("target_treeids", "target_nodeids", "target_ids")}
    weights = [*trees["target_weights"], *(-2 * weight for weight in trees["target_weights"])]
    check(
        "TreeEnsembleRegressor",
        rows(9, 4),
        n_targets=targets,
        aggregate_function=aggregate,
        **{**trees, **twice, "target_weights": weights},
    )


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_trees_are_brought_together(aggregate: str, targets: int) -> None:
    trees = forest("target", 6, 3, 4, targets, "BRANCH_LEQ")
    check("TreeEnsembleRegressor", rows(9, 4), n_targets=targets, aggregate_function=aggregate, **trees)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize(("classes", "dtype"), [(3, F32), (4, F32), (4, np.float64)])
def test_trees_that_classify(transform: str, classes: int, dtype: Any) -> None:
    trees = forest("class", 6, 3, 4, classes, "BRANCH_LT")
    check(
        "TreeEnsembleClassifier",
        rows(9, 4).astype(dtype),
        outputs=2,
        classlabels_int64s=[10 * k for k in range(classes)],
        post_transform=transform,
        **trees,
    )


def test_the_shares_of_two_classes_add_up() -> None:
    trees = forest("class", 6, 3, 4, 1, "BRANCH_LEQ")
    shares = [abs(w) % 1 / 12 for w in trees["class_weights"]]
    both = {name: [*trees[name], *trees[name]] for name in ("class_treeids", "class_nodeids")}
    ids = [0] * len(shares) + [1] * len(shares)
    weights = [*shares, *(1 / 6 - share for share in shares)]
    check(
        "TreeEnsembleClassifier",
        rows(9, 4),
        outputs=2,
        classlabels_int64s=[0, 1],
        **{**trees, **both, "class_ids": ids, "class_weights": weights},
    )


@pytest.mark.parametrize(
    ("speaks_for", "transform", "positive"),
    [(0, "NONE", False), (0, "LOGISTIC", False), (0, "NONE", True), (0, "LOGISTIC", True), (1, "NONE", True), (1, "SOFTMAX", False)],
)
def test_trees_that_speak_for_one_of_two_classes(speaks_for: int, transform: str, positive: bool) -> None:
    trees = forest("class", 5, 3, 4, 1, "BRANCH_LEQ")
    if positive:
        trees["class_weights"] = [abs(w) / 5 for w in trees["class_weights"]]
    trees["class_ids"] = [speaks_for] * len(trees["class_ids"])
    check("TreeEnsembleClassifier", rows(9, 4), outputs=2, classlabels_strings=["no", "yes"], post_transform=transform, **trees)


@pytest.mark.parametrize("base", [{}, {"base_values": [0.25]}])
def test_trees_that_speak_for_both_of_two_classes(base: dict[str, Any]) -> None:
    trees = forest("class", 5, 3, 4, 2, "BRANCH_LEQ")
    check("TreeEnsembleClassifier", rows(9, 4), outputs=2, classlabels_int64s=[0, 1], **base, **trees)


def test_two_classes_with_a_base_value_each_are_refused() -> None:
    trees = forest("class", 2, 2, 4, 2, "BRANCH_LEQ") | {"classlabels_int64s": [0, 1], "base_values": [0.5, 0.25]}
    with pytest.raises(CompileError, match="O010"):
        tl.compile(model("TreeEnsembleClassifier", {"x": rows(4, 4)}, 2, 3, **trees))


def test_a_tree_may_be_a_leaf() -> None:
    lists = {f"nodes_{name}": [0] for name in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")}
    held = {"target_treeids": [0], "target_nodeids": [0], "target_ids": [0], "target_weights": [1.5]}
    check("TreeEnsembleRegressor", rows(3, 2), n_targets=1, nodes_values=[0.0], nodes_modes=["LEAF"], **lists, **held)


def test_trees_that_are_none_are_refused() -> None:
    trees = forest("target", 2, 2, 3, 1, "BRANCH_LEQ")
    x = rows(4, 3)
    for change in (
        {"nodes_truenodeids": [99] * len(trees["nodes_treeids"])},
        {"nodes_featureids": [3] * len(trees["nodes_treeids"])},
        {"nodes_modes": ["BRANCH_LIKE"] * len(trees["nodes_treeids"])},
        {"nodes_values": [0.0]},
        {"target_ids": [1] * len(trees["target_ids"])},
        {"nodes_truenodeids": [0] * len(trees["nodes_treeids"])},
    ):
        with pytest.raises(CompileError, match="O012"):
            tl.compile(model("TreeEnsembleRegressor", {"x": x}, 1, 3, n_targets=1, **{**trees, **change}))


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_linear_models(classes: int, transform: str) -> None:
    random = np.random.default_rng(classes)
    x, w, b = random.standard_normal((5, 4)).astype(F32), random.standard_normal(4 * classes), random.standard_normal(classes)
    check("LinearRegressor", x, version=1, targets=classes, coefficients=w, intercepts=b, post_transform=transform)
    labels = list(range(max(2, classes)))
    check("LinearClassifier", x, outputs=2, version=1, coefficients=w, intercepts=b, classlabels_ints=labels, post_transform=transform)


def test_features_are_scaled_and_filled() -> None:
    x = rows(4, 3)
    check("Scaler", x, version=1, offset=[1.0, 2.0, 3.0], scale=[0.5, 1.0, 2.0])
    check("Scaler", x, version=1, offset=[1.0], scale=[0.5])
    check("Binarizer", x[2:], version=1, threshold=0.5)
    check("Imputer", x, version=1, imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=float("nan"))
    check("Imputer", np.array([[1, -1, 2]]), version=1, imputed_value_int64s=[7], replaced_value_int64=-1)
    check("ArrayFeatureExtractor", x, np.array([[2, 0]]), version=1)
    check("FeatureVectorizer", x, x[:, :2], version=1, inputdimensions=[3, 2])


def test_attributes_may_be_nan_where_the_number_of_rows_is_open() -> None:
    x = rows(4, 2)
    made = model("Imputer", {"x": x}, 1, 1, imputed_value_floats=[1.0, 2.0], replaced_value_float=float("nan"))
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    (found,) = tl.compile(typed_like(made, [x]), threads=1).run({"x": x}).values()
    assert found.tolist() == np.where(np.isnan(x), np.array([1, 2], F32), x).tolist()


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_rows_are_normalised(norm: str) -> None:
    check("Normalizer", np.array([[1, -2, 3], [0, 0, 0], [4, 0.5, 2]], F32), version=1, norm=norm)


@pytest.mark.parametrize("count", [5, 200])
def test_labels_are_looked_up(count: int) -> None:
    words, numbers = [f"w{k}" for k in range(count)], list(range(count))
    given = np.array(["w3", "w1", "?", f"w{count - 1}"], object)
    check("LabelEncoder", given, version=2, keys_strings=words, values_int64s=numbers, default_int64=-7)
    check("LabelEncoder", np.array([3, 99999, 0, -1]), version=2, keys_int64s=numbers, values_strings=words, default_string="none")
    floats = [float(k) / 2 for k in range(count)]
    check(
        "LabelEncoder", np.array([0.5, np.nan, 3, 0.25], F32), version=2, keys_floats=floats, values_floats=floats[::-1], default_float=9.0
    )
    check("CategoryMapper", given, version=1, cats_strings=words, cats_int64s=numbers, default_int64=-7)


@pytest.mark.parametrize("more", [0, 50])
def test_of_equal_keys_the_first_counts_and_of_equal_categories_the_last(more: int) -> None:
    numbers = [1, 2, 1, *range(3, 3 + more)]
    check("LabelEncoder", np.array([1, 2, 9]), version=2, keys_int64s=numbers, values_int64s=list(range(len(numbers))))
    check("LabelEncoder", np.array(["a", "b"], object), version=2, keys_strings=["a", "b", "a"], values_floats=[1.0, 2.0, 3.0])
    check("OneHotEncoder", np.array([1, 2, 9]), version=1, cats_int64s=numbers, zeros=1)


def test_categories_become_columns() -> None:
    check("OneHotEncoder", np.array(["a", "c", "?"], object), version=1, cats_strings=["a", "b", "c"], zeros=1)
    check("OneHotEncoder", np.array([[1], [5], [2]]), version=1, cats_int64s=[1, 2], zeros=1)
    check("OneHotEncoder", np.array([["b"], ["a"]], object), version=1, cats_strings=["a", "b", "c"], zeros=0)
    check("OneHotEncoder", np.array([[2.0, 1.0]], F32), version=1, cats_int64s=[1, 2], zeros=0)
    only_known = model("OneHotEncoder", {"x": np.array([1])}, 1, 1, cats_int64s=[1, 2], zeros=0)
    with pytest.raises(tl.RunError, match="R0306"):
        tl.compile(only_known, threads=1).run({"x": np.array([5])})


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("one_class", [0, 1])
def test_support_vectors(kernel: str, one_class: int) -> None:
    random = np.random.default_rng(4)
    x, vectors, weights = random.standard_normal((6, 3)).astype(F32), random.standard_normal(12), random.standard_normal(4)
    given = {"coefficients": weights, "rho": [0.25], "kernel_params": [0.5, 0.25, 3.0], "one_class": one_class}
    check("SVMRegressor", x, version=1, support_vectors=vectors, n_supports=4, kernel_type=kernel, **given)


@pytest.mark.parametrize(
    ("kernel", "per_class", "certain"),
    [
        ("LINEAR", [3, 2], False),
        ("POLY", [3, 2], True),
        ("RBF", [2, 4, 1], False),
        ("SIGMOID", [2, 4, 1], True),
        ("RBF", [1, 2, 0, 3], False),
        ("LINEAR", [1, 2, 0, 3], True),
    ],
)
def test_machines_of_pairs_of_classes_vote(kernel: str, per_class: list[int], certain: bool) -> None:
    classes, count, random = len(per_class), sum(per_class), np.random.default_rng(len(per_class))
    pairs = classes * (classes - 1) // 2
    given: dict[str, Any] = {
        "support_vectors": random.standard_normal(count * 3),
        "coefficients": random.standard_normal(count * (classes - 1)),
        "rho": random.standard_normal(pairs) / 4,
        "kernel_params": [0.5, 0.25, 3.0],
    }
    if certain:
        given |= {"prob_a": -1 - random.random(pairs), "prob_b": random.standard_normal(pairs) / 4}
    x = random.standard_normal((7, 3)).astype(F32)
    labels = [10 * k for k in range(classes)]
    check("SVMClassifier", x, outputs=2, version=1, classlabels_ints=labels, vectors_per_class=per_class, kernel_type=kernel, **given)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("classes", [2, 3])
def test_scores_of_machines_are_transformed(classes: int, transform: str) -> None:
    random, pairs = np.random.default_rng(7), classes * (classes - 1) // 2
    given = {"support_vectors": random.standard_normal(6 * 3), "coefficients": random.standard_normal(6 * (classes - 1))}
    words = ["a", "b", "c"][:classes]
    x, rho, per_class = random.standard_normal((5, 3)).astype(F32), random.standard_normal(pairs), [6 // classes] * classes
    check(
        "SVMClassifier", x, outputs=2, version=1, classlabels_strings=words, vectors_per_class=per_class, rho=rho,
        kernel_params=[0.3, 0.0, 3.0], kernel_type="RBF", post_transform=transform, **given,
    )  # fmt: skip


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_classes_without_vectors_have_linear_scores(classes: int, positive: bool) -> None:
    random = np.random.default_rng(classes)
    w, x = random.standard_normal(4 * classes), random.standard_normal((9, 4)).astype(F32)
    w = np.abs(w) if positive else w
    linear = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0], "coefficients": w, "rho": [0.125]}
    check("SVMClassifier", x, outputs=2, version=1, classlabels_ints=list(range(classes)), **linear)


def test_machines_that_do_not_fit_their_classes_are_refused() -> None:
    given = {"support_vectors": [0.0] * 6, "coefficients": [1.0] * 3, "rho": [0.0], "classlabels_ints": [0, 1], "vectors_per_class": [1, 2]}
    x = rows(4, 2)
    for change in ({"rho": [0.0, 1.0]}, {"coefficients": [1.0]}, {"vectors_per_class": [3]}, {"support_vectors": [0.0]}, {"prob_a": [1.0]}):
        with pytest.raises(CompileError, match="O012"):
            tl.compile(model("SVMClassifier", {"x": x}, 2, 1, **{**given, **change}))
