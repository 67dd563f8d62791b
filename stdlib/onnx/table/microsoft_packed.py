"""Operators of onnxruntime on sequences without their padding: the tokens of a batch are the rows of one matrix. Domain com.microsoft.

offsets   [batch, length]: where each token stands in the batch with padding, those of the padding last
ends      [batch + 1]: how many tokens come before each sequence, and all
"""

from __future__ import annotations

from math import prod

from codegen.dtypes import DTYPES
from stdlib.onnx.site import Site
from stdlib.onnx.table.contract import product
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import microsoft
from stdlib.onnx.table.indexing import places_where, rows_at
from stdlib.onnx.table.microsoft_attention import attended_heads, attended_sequences
from stdlib.onnx.table.moving import joined, slice_axis
from stdlib.onnx.table.reducing import reduced
from tensorlang.graph.nodes import Value
from tensorlang.graph.sizes import same

I64 = DTYPES["i64"]


def without_padding(n: Site) -> tuple[Value, ...]:
    x, counts = n.arg(0), n.arg(1)
    if len(x.shape) != 3 or counts.shape != x.shape[:1]:
        raise n.wrong(f"sequences of the shape {list(x.shape)} and their lengths of the shape {list(counts.shape)}")
    batch, length, width = x.shape
    lengths = cast(n, counts, I64)
    there = n.kept(n.view(n.op("length_mask", lengths, queries=1, keys=length), (batch * length,)))
    y = rows_at(n, n.view(x, (batch * length, width)), places_where(n, there))
    offsets = n.op("argsort", cast(n, n.op("logical_not", there), DTYPES["u8"]), axis=0)
    ends = joined(n, (n.filled((1,), I64), n.op("cumsum", lengths, axis=0)), 0)
    longest = reduced(n, "reduce_max", lengths, (0,), keep=True)
    return y, *(cast(n, value, counts.dtype) for value in (n.view(offsets, (batch, length)), ends, longest))


def with_padding(n: Site) -> Value:
    return _padded(n, n.arg(0), n.arg(1))


def packed_attention(n: Site) -> Value:
    x, weights, offsets = n.arg(0), n.arg(1), n.arg(3)
    if len(x.shape) != 2 or len(weights.shape) != 2:
        raise n.wrong(f"tokens of the shape {list(x.shape)} and weights of {list(weights.shape)}")
    found = n.op("add", product(n, x, weights), n.arg(2))
    y, _ = attended_heads(n, _padded(n, found, offsets), _lengths(n, 4, offsets), None, n.maybe(5))
    return _packed(n, y, offsets, x.shape[0])


def packed_multi_head_attention(n: Site) -> Value:
    """Queries, keys and values apart, or packed into one value of four dimensions."""
    q, k, v, offsets = n.arg(0), n.maybe(1), n.maybe(2), n.arg(4)
    count = q.shape[0] if q.shape else 0
    if len(q.shape) == 4 and q.shape[2] == 3:
        q, k, v = (n.view(slice_axis(n, n.arg(0), 2, j, 1), (count, q.shape[1] * q.shape[3])) for j in range(3))
    if k is None or v is None:
        raise n.wrong("there are no keys or values")
    q, k, v = (_padded(n, value, offsets) for value in (q, k, v))
    return _packed(n, attended_sequences(n, q, k, v, n.maybe(3), _lengths(n, 5, offsets), n.maybe(6)), offsets, count)


def _padded(n: Site, rows: Value, offsets: Value) -> Value:
    """Return [batch, length, width] of rows, zeros where there is padding."""
    places = prod(offsets.shape)
    if len(rows.shape) != 2 or len(offsets.shape) != 2:
        raise n.wrong(f"tokens of the shape {list(rows.shape)} and where they stand of the shape {list(offsets.shape)}")
    count, width = rows.shape
    padding = n.filled((places, width), rows.dtype)
    if not same(count, 0):
        padding = n.op("scatter_nd", padding, _first(n, offsets, count), rows)
    return n.view(padding, (*offsets.shape, width))


def _packed(n: Site, x: Value, offsets: Value, count: int) -> Value:
    """Return the rows of the tokens, of which there are `count`, among [batch, length, width]."""
    return rows_at(n, n.view(x, (prod(x.shape[:2]), x.shape[2])), _first(n, offsets, count))


def _first(n: Site, offsets: Value, count: int) -> Value:
    """Return where the tokens stand."""
    return slice_axis(n, n.view(cast(n, offsets, I64), (prod(offsets.shape),)), 0, 0, count)


def _lengths(n: Site, k: int, offsets: Value) -> Value:
    """Return how many tokens sequences have, of which argument `k` has the sums."""
    ends, batch = n.arg(k), offsets.shape[0] if offsets.shape else 0
    if ends.shape != (batch + 1,):
        raise n.wrong(f"sums of lengths of the shape {list(ends.shape)} for {batch} sequences")
    return n.op("sub", slice_axis(n, ends, 0, 1, batch), slice_axis(n, ends, 0, 0, batch))


RULES = (
    microsoft("RemovePadding", without_padding),
    microsoft("RestorePadding", with_padding),
    microsoft("PackedAttention", packed_attention),
    microsoft("PackedMultiHeadAttention", packed_multi_head_attention),
)
