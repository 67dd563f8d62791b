"""Linear models, encoders and what scales features. Domain ai.onnx.ml."""

from __future__ import annotations

from math import prod

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.onnx.model import Array
from stdlib.onnx.site import Result, Site
from stdlib.onnx.table.classes import ML, labelled, labels_of, transformed_results
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import Entry
from stdlib.onnx.table.moving import joined
from tensorlang.graph.nodes import Value

F32 = DTYPES["f32"]
FEW = 32
"""Tables of so many keys at most are searched from the front."""


def reals(n: Site, name: str, default: tuple[float, ...] = ()) -> Array:
    found = n.node.attributes.get(name, default)
    return np.array(found if isinstance(found, tuple) else (), np.float32)


def feature_rows(n: Site) -> Value:
    x = n.arg(0)
    if len(x.shape) not in (1, 2):
        raise n.wrong(f"the shape {list(x.shape)} is not that of rows of features")
    return cast(n, x if len(x.shape) == 2 else n.view(x, (1, *x.shape)), F32)


def linear(n: Site, x: Value, coefficients: Array, intercepts: Array, targets: int) -> Value:
    if coefficients.size != targets * x.shape[1] or intercepts.size not in (0, targets):
        raise n.wrong(f"{coefficients.size} coefficients and {intercepts.size} intercepts for {x.shape[1]} features and {targets} results")
    y = n.op("matmul", x, n.constant(np.ascontiguousarray(coefficients.reshape(targets, x.shape[1]).T)))
    return n.op("add", y, n.constant(intercepts)) if intercepts.size else y


def linear_regressor(n: Site) -> Result:
    targets = n.integer("targets", 1, low=1)
    return transformed_results(n, linear(n, feature_rows(n), reals(n, "coefficients"), reals(n, "intercepts"), targets))


def linear_classifier(n: Site) -> Result:
    labels, intercepts = labels_of(n, "classlabels_ints", "classlabels_strings"), reals(n, "intercepts")
    x, coefficients, transform = feature_rows(n), reals(n, "coefficients"), n.text("post_transform", "NONE")
    scores = coefficients.size // max(1, x.shape[1])
    y = linear(n, x, coefficients, intercepts, scores)
    if scores == 1 and len(labels) == 2:
        return labelled(n, y, labels, transform, 0.0, share=True)
    if scores != len(labels):
        raise n.wrong(f"scores for {scores} of {len(labels)} classes")
    return labelled(n, y, labels, transform)


def scaler(n: Site) -> Result:
    x = cast(n, n.arg(0), F32)
    for operator, name in (("sub", "offset"), ("mul", "scale")):
        table = reals(n, name)
        if table.size not in (0, 1) and table.shape != x.shape[-1:]:
            raise n.wrong(f"{table.size} numbers as {name} for the shape {list(x.shape)}")
        x = n.op(operator, x, n.constant(table if table.size > 1 else table.reshape(()))) if table.size else x
    return x


def normalizer(n: Site) -> Result:
    x = cast(n, n.arg(0), F32)
    if len(x.shape) not in (1, 2):
        raise n.wrong(f"the shape {list(x.shape)} is not that of rows of features")
    return n.op({"MAX": "over_greatest", "L1": "over_absolute", "L2": "over_length"}[n.text("norm", "MAX", ("MAX", "L1", "L2"))], x)


def binarizer(n: Site) -> Result:
    x = n.arg(0)
    return cast(n, n.op("greater", x, n.filled((), x.dtype, n.real("threshold", 0.0))), x.dtype)


def imputer(n: Site) -> Result:
    """What is missing, or NaN, takes a number of its column."""
    x = n.arg(0)
    if x.dtype.is_float:
        missing, given = n.real("replaced_value_float", 0.0), n.node.attributes.get("imputed_value_floats", ())
    else:
        missing, given = float(n.integer("replaced_value_int64", 0)), n.node.attributes.get("imputed_value_int64s", ())
    table = np.array(given, x.dtype.numpy)
    if table.size != 1 and table.shape != x.shape[-1:]:
        raise n.wrong(f"{table.size} numbers to put into the shape {list(x.shape)}")
    lost = n.op("is_nan", x) if np.isnan(missing) else n.op("equal", x, n.filled((), x.dtype, missing))
    return n.op("select", lost, n.constant(table if table.size > 1 else table.reshape(())), x)


def one_hot_encoder(n: Site) -> Result:
    """A column for each category, of equal ones the last, along a new last axis. A value that is none gives zeros, or is refused where
    `zeros` is 0."""
    x = n.arg(0)
    table = labels_of(n, "cats_int64s", "cats_strings")
    keys = n.constant(table)
    if n.is_text(x) != n.is_text(keys):
        raise n.wrong("the categories are of another type than the values")
    value = n.view(x if n.is_text(x) else cast(n, x, keys.dtype), (*x.shape, 1))
    same = n.op("equal", value, keys)
    if len(last := {key: k for k, key in enumerate(table.tolist())}) < len(table):
        same = n.op("logical_and", same, n.constant(np.isin(np.arange(len(table)), list(last.values()))))
    if n.flag("zeros", True):
        return cast(n, same, F32)
    count, rank = len(table), len(x.shape)
    known, first = n.op("reduce_any", same, axis=rank), n.op("arg_max", cast(n, same, F32), axis=rank)
    place = n.op("select", n.view(known, x.shape), n.view(first, x.shape), n.filled((), DTYPES["i64"], count))
    return n.op("gather", n.constant(np.eye(count, dtype=np.float32)), place, axis=0)  # behind the last row nothing is read


def feature_vectorizer(n: Site) -> Result:
    parts = [cast(n, v if len(v.shape) == 2 else n.view(v, (v.shape[0] if v.shape else 1, prod(v.shape[1:]))), F32) for v in n.args()]
    given = n.integers("inputdimensions", tuple(p.shape[1] for p in parts))
    if given != tuple(p.shape[1] for p in parts):
        raise n.wrong(f"inputs of {[p.shape[1] for p in parts]} features and not {list(given)}")
    return joined(n, tuple(parts), 1)


def array_feature_extractor(n: Site) -> Result:
    """Columns of the last axis."""
    x, at = n.arg(0), n.arg(1)
    rows = x if len(x.shape) > 1 else n.view(x, (1, *x.shape))
    array = n.array(at)
    if array is not None and array.size and not 0 <= int(array.min()) <= int(array.max()) < rows.shape[-1]:
        raise n.wrong(f"columns {array.min()} to {array.max()} of {rows.shape[-1]}")
    return n.op("gather", rows, n.view(at, (prod(at.shape),)), axis=len(rows.shape) - 1)


def _table(n: Site, what: str) -> Array:
    """Return the keys or values of an encoder, whichever list or tensor holds them."""
    tensor = n.node.attributes.get(f"{what}_tensor")
    if isinstance(tensor, np.ndarray):
        return tensor.reshape(-1)
    for name, dtype in (("strings", object), ("int64s", np.int64), ("floats", np.float32)):
        found = n.node.attributes.get(f"{what}_{name}")
        if isinstance(found, tuple):
            made = np.empty(len(found), dtype)
            made[:] = found
            return made
    raise n.wrong(f"there are no {what}")


def label_encoder(n: Site) -> Result:
    if n.node.since == 1:
        return _mapped_classes(n)
    keys, values = _table(n, "keys"), _table(n, "values")
    if len(keys) != len(values):
        raise n.wrong(f"{len(keys)} keys and {len(values)} values")
    tensor = n.node.attributes.get("default_tensor")
    if isinstance(tensor, np.ndarray) and tensor.size == 1 and tensor.dtype == values.dtype:
        default = tensor.reshape(())
    elif values.dtype == object:
        default = np.array(n.text("default_string", "_Unused"), object)
    elif values.dtype.kind == "f":
        default = np.array(n.real("default_float", -0.0), values.dtype)
    else:
        default = np.array(n.integer("default_int64", -1), values.dtype)
    return looked_up(n, n.arg(0), keys[::-1], values[::-1], default)  # of equal keys the first counts


def _mapped_classes(n: Site) -> Result:
    found = n.node.attributes.get("classes_strings", ())
    words = np.array(found if isinstance(found, tuple) else (), object)
    numbers = np.arange(len(words), dtype=np.int64)
    x = n.arg(0)
    if n.is_text(x):
        return looked_up(n, x, words, numbers, np.array(n.integer("default_int64", -1), np.int64))
    return looked_up(n, x, numbers, words, np.array(n.text("default_string", "_Unused"), object))


def category_mapper(n: Site) -> Result:
    numbers, strings = n.node.attributes.get("cats_int64s", ()), n.node.attributes.get("cats_strings", ())
    ints, words = np.array(numbers, np.int64), np.array(strings, object)
    x = n.arg(0)
    if n.is_text(x):
        return looked_up(n, x, words, ints, np.array(n.integer("default_int64", -1), np.int64))
    return looked_up(n, x, ints, words, np.array(n.text("default_string", "_Unused"), object))


def looked_up(n: Site, x: Value, keys: Array, values: Array, default: Array) -> Value:
    """Return the value of each element of `x`, the last of its key, or the default where there is no such key. A NaN is a key as others."""
    known, found = n.constant(keys), n.constant(values)
    if n.is_text(x) != n.is_text(known) or x.dtype != known.dtype or len(keys) != len(values):
        raise n.wrong(f"keys of another type than the elements, {x.dtype}, or not one for each of {len(values)} values")
    other = n.constant(default)
    if not len(keys):
        return n.of_texts(n.op("select", n.filled(x.shape, DTYPES["bool"], 1), other, n.filled(x.shape, other.dtype)), other)
    if len(keys) <= FEW:
        return n.of_texts(n.op("value_of_key", x, known, found, other), found)
    table = n.array(known)
    assert table is not None
    last = {key if key == key else "nan": k for k, key in enumerate(table.tolist())}
    order = np.array(sorted(last.values(), key=lambda k: (table[k] != table[k], table[k])))
    results = n.array(found)
    assert results is not None
    return n.of_texts(n.op("value_of_sorted_key", x, n.constant(table[order]), n.constant(results[order]), other), found)


RULES = (
    Entry("LinearRegressor", 1, 1, linear_regressor, ML),
    Entry("LinearClassifier", 1, 1, linear_classifier, ML),
    Entry("Scaler", 1, 1, scaler, ML),
    Entry("Normalizer", 1, 1, normalizer, ML),
    Entry("Binarizer", 1, 1, binarizer, ML),
    Entry("Imputer", 1, 1, imputer, ML),
    Entry("OneHotEncoder", 1, 1, one_hot_encoder, ML),
    Entry("FeatureVectorizer", 1, 1, feature_vectorizer, ML),
    Entry("ArrayFeatureExtractor", 1, 1, array_feature_extractor, ML),
    Entry("LabelEncoder", 1, 4, label_encoder, ML),
    Entry("CategoryMapper", 1, 1, category_mapper, ML),
)
