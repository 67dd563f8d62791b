"""Maps: what each key holds, given by whoever runs a model, or made of the scores of classes. Domain ai.onnx.ml."""

from __future__ import annotations

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.onnx.items import Maps
from stdlib.onnx.model import Array
from stdlib.onnx.site import Result, Site
from stdlib.onnx.table.classes import ML, labels_of
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import Entry
from stdlib.onnx.table.strings import to_numbers, to_strings
from stdlib.onnx.tensors import TEXT
from tensorlang.graph.nodes import Value

_CASTS = {"TO_FLOAT": DTYPES["f32"], "TO_INT64": DTYPES["i64"], "TO_STRING": None}


def maps_of_scores(n: Site) -> Result:
    """A map for each row, from labels to its elements."""
    x, labels = n.arg(0), labels_of(n, "classlabels_int64s", "classlabels_strings")
    if len(x.shape) not in (1, 2) or x.shape[-1] != len(labels) or x.dtype != DTYPES["f32"]:
        raise n.wrong(f"{len(labels)} labels for {x.dtype}{list(x.shape)}")
    if len(set(labels.tolist())) != len(labels):
        raise n.wrong("a label is there twice")
    return Maps(n.constant(labels), x if len(x.shape) == 2 else n.view(x, (1, *x.shape)))


def row_of_map(n: Site) -> Result:
    """What a map holds for each key of a vocabulary, 0 or an empty string where it has no such key."""
    given, words = n.map(0), labels_of(n, "int64_vocabulary", "string_vocabulary")
    return _values_of(n, given, words, np.array("", object) if n.is_text(given.values) else np.zeros((), given.values.dtype.numpy))


def row_of_values(n: Site) -> Result:
    """What a map from integers holds, in the order of the keys, or each at the position that its key is."""
    given, to = n.map(0), n.text("cast_to", "TO_FLOAT", tuple(_CASTS))
    if n.is_text(given.keys):
        raise n.wrong("the keys are strings")
    values = given.values
    if n.text("map_form", "DENSE", ("DENSE", "SPARSE")) == "DENSE":
        found = n.of_texts(n.view(values, (1, *values.shape)), values)
    else:
        absent = np.array("0" if to != "TO_STRING" else "", object) if n.is_text(values) else np.zeros((), values.dtype.numpy)
        if to == "TO_STRING" and not n.is_text(values):
            raise n.unsupported("numbers as strings, some of them absent")
        found = _values_of(n, given, np.arange(n.integer("max_map", 1, low=1), dtype=np.int64), absent)
    dtype = _CASTS[to]
    if n.is_text(values):
        return found if dtype is None else to_numbers(n, found, dtype)
    return to_strings(n, found) if dtype is None else cast(n, found, dtype)


def _values_of(n: Site, given: Maps, keys: Array, absent: Array) -> Value:
    """Return what a map holds for each of some keys, as a row."""
    if (keys.dtype == object) != n.is_text(given.keys):
        raise n.wrong("the keys of the map are of another type than those that are asked for")
    n.small(len(keys), "the list of keys")
    wanted, other = n.constant(keys.reshape(1, -1)), n.constant(absent)
    if given.keys.shape == (0,):
        found = n.op("select", n.filled(wanted.shape, DTYPES["bool"], 1), other, n.filled(wanted.shape, other.dtype))
    else:
        found = n.op("value_of_key", wanted, given.keys, given.values, other)
    if n.is_text(given.values):
        assert found.dtype == TEXT
        return n.of_texts(found, given.values)
    return found


RULES = (
    Entry("ZipMap", 1, 1, maps_of_scores, ML),
    Entry("DictVectorizer", 1, 1, row_of_map, ML),
    Entry("CastMap", 1, 1, row_of_values, ML),
)
