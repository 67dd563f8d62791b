"""Memories of the last few words of a text: tables that hashes of several words in a row look up, and gates of what is found there.
Domain com.microsoft."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

from codegen.dtypes import DTYPES
from stdlib.onnx.site import Result, Site
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import microsoft
from stdlib.onnx.table.moving import joined, repeated, slice_axis
from tensorlang.graph.nodes import Value

F32 = DTYPES["f32"]


def hashes(n: Site) -> tuple[Value, Value]:
    """Of the last 2, 3, … words at each place a hash for each of several heads: the words times odd numbers, combined bit by bit, modulo as
    many as the head has. Words before a text, before its end marks or of another segment are one that stands for none."""
    ids, factors, sizes = n.arg(0), n.arg(1), n.arg(2)
    most, heads = n.integer("max_ngram_size", 0, low=2), n.integer("n_head_per_ngram", 0, low=1)
    if len(ids.shape) != 2 or sizes.shape != ((most - 1) * heads,) or len(factors.shape) != 1 or factors.shape[0] < most:
        raise n.wrong(f"words of the shape {list(ids.shape)}, {list(factors.shape)} factors and {list(sizes.shape)} heads")
    (batch, length), pad, end = ids.shape, n.integer("pad_id", 0), n.maybe(5)
    none = n.filled((), ids.dtype, pad) if end is None else n.view(end, ())
    before = n.maybe(3)
    before = repeated(n, n.view(none, (1, 1)), (batch, most - 1)) if before is None else before
    if before.shape != (batch, most - 1):
        raise n.wrong(f"{list(before.shape)} words before those of the shape {list(ids.shape)}")
    whole, inside = joined(n, (before, ids), 1), n.filled((1, 1), DTYPES["bool"], 1)
    ends = n.op("equal", whole, none) if end is not None and n.flag("reset_on_eos") else None
    n.without_effect("reset_on_eos")
    changes, offsets = _changes(n, (batch, length)), n.maybe(4)
    mixed, found = n.op("mul", ids, _element(n, factors, 0)), list[Value]()
    for back in range(1, most):
        if ends is not None:
            inside = n.op("logical_and", inside, n.op("logical_not", slice_axis(n, ends, 1, most - 1 - back, length)))
        if changes is not None:
            one = n.filled((batch, min(back - 1, length)), DTYPES["bool"], 0)
            moved = joined(n, (one, slice_axis(n, changes, 1, 0, length - one.shape[1])), 1)
            inside = n.op("logical_and", inside, n.op("logical_not", moved))
        word = slice_axis(n, whole, 1, most - 1 - back, length)
        word = word if ends is None and changes is None else n.op("select", inside, word, none)
        mixed = n.op("bitwise_xor", mixed, n.op("mul", word, _element(n, factors, back)))
        each = n.view(slice_axis(n, sizes, 0, (back - 1) * heads, heads), (1, 1, heads))
        found.append(n.op("mod_int", n.view(mixed, (batch, length, 1)), each))
    y = joined(n, tuple(found), 2)
    y = y if offsets is None else n.op("add", y, n.view(offsets, (1, 1, sizes.shape[0])))
    return y, slice_axis(n, whole, 1, length, most - 1)


def packed_hashes(n: Site) -> Result:
    """The same of texts that stand one after the other, as long as they say: nothing is known of one in another."""
    if n.integer("state_update_capacity", 0) or n.maybe(8) is not None:
        raise n.unsupported("state_update_capacity other than 0 or segments of words before")
    n.without_effect(inputs=[9])
    ids, ends, before, segments = n.arg(0), n.constant_ints(3), n.maybe(4), n.maybe(7)
    fits = ends is not None and len(ends) > 1 and ends[0] == 0 and all(a < b for a, b in pairwise(ends))
    if not fits or ends is None or ids.shape != (ends[-1],) or (segments is not None and segments.shape != ids.shape):
        raise n.wrong(f"words of the shape {list(ids.shape)} in texts that end at {list(ends or ())}")
    if before is not None and (len(before.shape) != 2 or before.shape[0] != len(ends) - 1):
        raise n.wrong(f"words of the shape {list(before.shape)} before {len(ends) - 1} texts")

    def part(x: Value | None, start: int, length: int) -> Value | None:
        return None if x is None else n.view(slice_axis(n, x, 0, start, length), (1, length))

    texts = []
    for k, (start, end) in enumerate(pairwise(ends)):
        words, own = (part(x, start, end - start) for x in (ids, segments))
        past = None if before is None else slice_axis(n, before, 0, k, 1)
        texts.append(hashes(n.like(words, n.item(1), n.item(2), past, n.item(5), n.item(6), own)))
    y = joined(n, tuple(n.view(found, found.shape[1:]) for found, _ in texts), 0)
    return y, joined(n, tuple(last for _, last in texts), 0)


def _element(n: Site, x: Value, k: int) -> Value:
    return n.view(slice_axis(n, x, 0, k, 1), ())


def _changes(n: Site, shape: tuple[int, ...]) -> Value | None:
    """Return where a word is of another segment than the one before it, which the first one is not; None where no segments are given."""
    segments = n.maybe(6)
    if segments is None:
        return None
    if segments.shape != shape:
        raise n.wrong(f"segments of the shape {list(segments.shape)} for words of {list(shape)}")
    batch, length = shape
    later, sooner = (slice_axis(n, segments, 1, k, length - 1) for k in (1, 0))
    first = n.filled((batch, 1), DTYPES["bool"], 0)
    return joined(n, (first, n.op("logical_not", n.op("equal", later, sooner))), 1)


def gate(n: Site) -> Result:
    """What was looked up, for each branch times how well its key fits the query: the sigmoid of a root of their product, with its sign."""
    key, query, value = (cast(n, n.arg(k), F32) for k in range(3))
    *front, branches, features = key.shape
    if query.shape != key.shape or value.shape != (*front, features):
        raise n.wrong(f"keys, queries and values of the shapes {[list(x.shape) for x in (key, query, value)]}")
    eps, dtype, last = n.real("epsilon", 1e-5), n.arg(2).dtype, len(key.shape) - 1

    def normalised(x: Value, k: int) -> Value:
        scale = n.arg(k)
        if scale.shape != (branches, features):
            raise n.wrong(f"a scale of the shape {list(scale.shape)} for {branches} branches of {features} features")
        return n.op("mul", n.op("rms_norm", x, None, axis=last, eps=eps), cast(n, scale, F32))

    both = n.op("reduce_sum", n.op("mul", normalised(key, 3), normalised(query, 4)), axis=last)
    fit = n.op("mul", n.view(both, (*front, branches, 1)), n.filled((), F32, 1 / sqrt(features)))
    root = n.op("map", n.op("maximum", n.op("map", fit, f="magnitude"), n.filled((), F32, 1e-6)), f="sqrt")
    share = n.op("map", n.op("mul", n.op("map", fit, f="sign"), root), f="sigmoid")
    y = n.op("mul", share, n.view(value, (*front, 1, features)))
    n.without_effect(inputs=[5])
    return cast(n, y, dtype), cast(n, normalised(y, 5), dtype) if n.has_output(1) else None


RULES = (
    microsoft("NGramHashMapping", hashes),
    microsoft("VarlenNGramHashMapping", packed_hashes),
    microsoft("EngramGate", gate),
)
