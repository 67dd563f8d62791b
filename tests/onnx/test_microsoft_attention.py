"""Attention as onnxruntime writes it, with all that it may be given: masks, biases, positions, sinks, and room for keys to come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from microsoft_operators import F32, I8, I32, U8, Array, check, draw, model
from onnx_evaluate import staged

from stdlib.onnx import Importer
from tensorlang.diagnostics import CompileError


@pytest.mark.parametrize("causal", [0, 1])
def test_masks_say_where_rows_begin_or_which_places_see_each_other(causal: int) -> None:
    x, w, b = draw(2, 4, 8), draw(8, 24) / 4, draw(24)
    check("Attention", x, w, b, np.asarray([4, 3, 1, 0], I32), num_heads=2, unidirectional=causal, mask_filter_value=-5000.0)
    check("Attention", x, w, b, None, None, draw(1, 2, 4, 4), num_heads=2, unidirectional=causal)


def test_the_first_query_stands_at_the_first_key_where_there_is_no_past() -> None:
    q, k, v = draw(2, 4, 8), draw(2, 2, 8), draw(2, 2, 8, seed=1)
    check("MultiHeadAttention", q, k, v, num_heads=2, unidirectional=1)


def test_scores_may_be_scaled_by_a_number_below_zero() -> None:
    q, k, v = draw(1, 3, 8), draw(1, 5, 8), draw(1, 5, 8)
    check("MultiHeadAttention", q, k, v, num_heads=2, scale=-0.5)
    half, arrays = [a.astype(np.float16) for a in (q, k, v)], {"q": q, "k": k, "v": v}
    found, expected = (
        staged(model("MultiHeadAttention", feeds, list(feeds), 1, [], "com.microsoft", num_heads=2, scale=-0.5), feeds)[0]
        for feeds in (dict(zip(arrays, half, strict=True)), arrays)
    )
    np.testing.assert_allclose(found.astype(F32), expected, atol=4e-3)


def test_a_bias_says_nothing_of_keys_that_there_is_only_room_for() -> None:
    q, k, v = (draw(2, 1, 8, seed=s) for s in range(3))
    room, bias = (draw(2, 2, 6, 4), draw(2, 2, 6, 4, seed=5)), draw(1, 2, 1, 4)
    length = np.asarray([3], I32)
    check("DecoderMaskedMultiHeadAttention", q, k, v, None, bias, *room, length, outputs=3, num_heads=2, past_present_share_buffer=1)


def computed(op: str, *arrays: Array | None, outputs: int = 1, constants: tuple[int, ...] = (), **attributes: Any) -> list[Array]:
    feeds = {f"x{k}": a for k, a in enumerate(arrays) if a is not None}
    names = ["" if a is None else f"x{k}" for k, a in enumerate(arrays)]
    fixed = [f"x{k}" for k in constants]
    made = model(op, feeds, names, outputs, fixed, "com.microsoft", **attributes)
    return staged(made, {name: a for name, a in feeds.items() if name not in fixed})


def same(found: list[Array], expected: list[Array]) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_mask_may_have_room_for_more_places() -> None:
    x, w, b, past = draw(2, 4, 8), draw(8, 24) / 4, draw(24), draw(2, 2, 2, 2, 4)
    square = np.tril(np.ones((8, 8), I32))
    wide, narrow = (np.broadcast_to(m, (2, *m.shape)).copy() for m in (square[None], square[2:6, :6]))
    same(*(computed("Attention", x, w, b, mask, past, outputs=2, num_heads=2) for mask in (wide, narrow)))


@pytest.mark.parametrize("past", [0, 3])
def test_one_query_behind_a_past(past: int) -> None:
    q, k, v = (draw(2, 1, 8, seed=s) for s in range(3))
    before = (draw(2, 2, past, 4), draw(2, 2, past, 4, seed=5))
    mask = np.asarray([[1] * past + [1], [0] * past + [1]], I32)
    for bias in (None, draw(1, 2, 1, past + 1)):
        one = computed("DecoderMaskedMultiHeadAttention", q, k, v, mask, bias, *before, outputs=3, num_heads=2, scale=0.3)
        same(one, computed("MultiHeadAttention", q, k, v, None, mask, bias, *before, outputs=3, num_heads=2, scale=0.3))


def test_one_query_among_the_keys_of_an_encoder() -> None:
    q, heads = draw(2, 1, 8), (draw(2, 2, 5, 4), draw(2, 2, 5, 4, seed=1))
    mask = np.asarray([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], I32)
    one = computed("DecoderMaskedMultiHeadAttention", q, *heads, mask, num_heads=2)
    same(one, computed("MultiHeadAttention", q, *heads, None, mask, num_heads=2))


def test_a_past_with_room_for_more() -> None:
    q, k, v = (draw(2, 1, 8, seed=s) for s in range(3))
    room = draw(2, 2, 6, 4), draw(2, 2, 6, 4, seed=5)
    op = "DecoderMaskedMultiHeadAttention"
    length = np.asarray([3], I32)
    found = computed(op, q, k, v, None, None, *room, length, outputs=3, num_heads=2, past_present_share_buffer=1)
    expected = computed(op, q, k, v, None, None, *(part[:, :, :3] for part in room), outputs=3, num_heads=2)
    same(found[:1], expected[:1])
    for a, b, first in zip(found[1:], expected[1:], room, strict=True):
        np.testing.assert_array_equal(a[:, :, :4], b)
        np.testing.assert_array_equal(a[:, :, 4:], first[:, :, 4:])


def grouped(length: int, past: int, **attributes: Any) -> tuple[list[Array], dict[str, Any]]:
    """Return the first seven arguments of attention whose heads of queries share heads of keys, and its attributes."""
    batch, heads, shared, size = 2, 4, 2, 16
    new = [draw(batch, length, count * size, seed=k) for k, count in enumerate((heads, shared, shared))]
    before = [draw(batch, shared, past, size, seed=k) for k in (0, 3)]
    total = past + length
    ends = [np.full(batch, total - 1, I32), np.asarray(total, I32)]
    return [*new, *before, *ends], {"num_heads": heads, "kv_num_heads": shared, "outputs": 3, **attributes}


@pytest.mark.parametrize(("length", "past"), [(5, 0), (1, 5)])
def test_what_is_added_to_the_scores_of_groups(length: int, past: int) -> None:
    arrays, attributes = grouped(length, past)
    for bias in (draw(2, 4, length, past + length), draw(1, 1, length, past + length)):
        check("GroupQueryAttention", *arrays, None, None, None, bias, **attributes)


@pytest.mark.parametrize(("length", "past"), [(5, 0), (1, 5)])
def test_a_share_of_attention_that_goes_nowhere(length: int, past: int) -> None:
    arrays, attributes = grouped(length, past, local_window_size=3)
    check("GroupQueryAttention", *arrays, None, None, None, None, draw(4), **attributes)
    check("GroupQueryAttention", *arrays, smooth_softmax=1, **attributes)
    check("GroupQueryAttention", *arrays, smooth_softmax=0, softcap=2.0, **attributes)


@pytest.mark.parametrize(("length", "past"), [(5, 0), (1, 5)])
def test_heads_are_normalised_before_they_are_rotated(length: int, past: int) -> None:
    arrays, attributes = grouped(length, past, do_rotary=1, qk_norm_epsilon=1e-5)
    tables = draw(16, 8), draw(16, 8, seed=1)
    places = np.broadcast_to(np.arange(past, past + length), (2, length)).copy()
    check("GroupQueryAttention", *arrays, *tables, places, **attributes)
    arrays, attributes = grouped(length, past)
    norms = np.abs(draw(16)), np.abs(draw(16, seed=1))

    def normalised(x: Array, g: Array) -> Array:
        heads = x.reshape(*x.shape[:2], -1, 16)
        return np.asarray((heads / np.sqrt((heads**2).mean(-1, keepdims=True) + 1e-6) * g).reshape(x.shape), x.dtype)

    expected = [normalised(x, g) for x, g in zip(arrays[:2], norms, strict=True)]
    one = computed("GroupQueryAttention", *arrays, *[None] * 7, *norms, constants=(6,), **attributes)
    same(one, computed("GroupQueryAttention", *expected, *arrays[2:], constants=(6,), **attributes))


@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
@pytest.mark.parametrize("bits", [4, 8])
def test_keys_and_values_of_the_past_are_kept_in_few_bits(bits: int, kind: str) -> None:
    arrays, attributes = grouped(1, 5, k_quant_type=kind, v_quant_type=kind, kv_cache_bit_width=bits)
    kept: list[Array] = [draw(2, 2, 5, 16, seed=s, dtype=I8) if bits == 8 else draw(2, 2, 5, 8, seed=s, dtype=U8) for s in range(2)]
    scales = [np.abs(draw(*([1] if kind == "PER_TENSOR" else [1, 2, 1, 16]), seed=s)) / 2**bits + F32(1e-3) for s in range(2)]
    check("GroupQueryAttention", *arrays[:3], *kept, *arrays[5:], *[None] * 5, *scales, **attributes)


@pytest.mark.parametrize(
    ("window", "room", "steps", "valid"),
    [
        (4, 4, (3, 1, 1, 1), ()),
        (4, 6, (9, 1, 1, 1), ()),
        (4, 6, (5, 5, 5, 1), ((5, 3), (2, 5), (0, 4), (1, 0))),
    ],
)
def test_a_cache_of_the_keys_of_a_window_loses_those_that_no_query_reads(
    window: int, room: int, steps: Sequence[int], valid: Sequence[tuple[int, int]]
) -> None:
    """`valid`: how many queries of each of two rows of the batch are there, the others are padding."""
    kept: list[Array] = [np.zeros((2, 2, room, 16), F32)] * 2
    tables, lengths = (draw(32, 8), draw(32, 8, seed=1)), np.zeros(2, int)
    for turn, length in enumerate(steps):
        new = np.array(valid[turn] if valid else (length, length))
        lengths += new
        ends = [np.asarray(lengths - 1, I32), np.asarray(32 if valid else lengths[0], I32)]
        arrays = [draw(2, length, 128, seed=turn), None, None, *kept, *ends, *tables, *([*[None] * 7, new.astype(I32)] if valid else [])]
        feeds = {f"x{k}": a for k, a in enumerate(arrays) if a is not None}
        names = [f"x{k}" if a is not None else "" for k, a in enumerate(arrays)]
        attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "local_window_size": window, "sliding_window_cache": 1}
        made = model("GroupQueryAttention", feeds, names, 3, [], "com.microsoft", **attributes)
        expected = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
        found = staged(made, feeds)
        spare = room - window + 1
        left = lengths - np.maximum(lengths - room + spare - 1, 0) // spare * spare
        for row in range(2):
            np.testing.assert_allclose(found[0][row, : new[row]], expected[0][row, : new[row]], rtol=1e-4, atol=1e-5)
            for a, b in zip(found[1:], expected[1:], strict=True):  # of what lies behind nothing is said
                np.testing.assert_allclose(a[row, :, : left[row]], b[row, :, : left[row]], rtol=1e-4, atol=1e-5)
        kept = [np.asarray(a) for a in expected[1:]]


def test_groups_may_see_all_keys() -> None:
    arrays, attributes = grouped(5, 0)
    check("GroupQueryAttention", *arrays, causal=0, **attributes)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("heads_first", [False, True])
def test_positions_of_moments_rows_and_columns_rotate_together(layout: int, interleaved: int, heads_first: bool) -> None:
    angles, places = draw(20, 8), np.random.default_rng(0).integers(0, 20, (3, 2, 5))
    x = draw(2, 3, 5, 16) if heads_first else draw(2, 5, 48)
    more = {} if heads_first else {"num_heads": 3, "rotary_embedding_dim": 16}
    more |= {"mrope_layout": layout, "interleaved": interleaved}
    check("MRotaryEmbedding", x, places, np.cos(angles), np.sin(angles), mrope_section=[4, 2, 2], **more)


@pytest.mark.parametrize(("length", "past"), [(40, 0), (1, 30), (1, 39)])
@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
def test_queries_see_the_blocks_that_a_table_names(length: int, past: int, rotary: int, packed: bool) -> None:
    room, size, heads, shared, total = 48, 16, 4, 2, length + past
    q, k, v = draw(1, length, heads * size), draw(1, length, shared * size, seed=1), draw(1, length, shared * size, seed=2)
    old = [np.where(np.arange(room)[:, None] < past, draw(1, shared, room, size, seed=s), 0).astype(np.float32) for s in (3, 4)]
    rows, columns = np.asarray([[0, 1, 3, 5], [0, 1, 2, 4]], I32), np.asarray([[0, 0, 1, 0, 2], [0, 1, 1, 2, -1]], I32)
    angles = draw(room, size // 2)
    tables = [np.cos(angles), np.sin(angles)] if rotary else []
    given = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]
    arrays = [*given, *old, rows, columns, np.asarray([total], I32), np.asarray([total], I32), *tables]
    more = {"num_heads": heads, "kv_num_heads": shared, "sparse_block_size": 16, "do_rotary": rotary}
    same(computed("SparseAttention", *arrays, outputs=3, constants=(5, 6, 7), **more), with_caches_in_place(arrays, more))


def with_caches_in_place(arrays: list[Array | None], attributes: dict[str, Any]) -> list[Array]:
    """Return what onnxruntime computes, which has caches before and after a run in one memory."""
    names, feeds = ["" if a is None else f"x{k}" for k, a in enumerate(arrays)], {f"x{k}": a for k, a in enumerate(arrays) if a is not None}
    made = model("SparseAttention", feeds, names, 3, [], "com.microsoft", **attributes)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    values, binding = {name: onnxruntime.OrtValue.ortvalue_from_numpy(a) for name, a in feeds.items()}, session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y0")
    binding.bind_ortvalue_output("y1", values["x3"])
    binding.bind_ortvalue_output("y2", values["x4"])
    session.run_with_iobinding(binding)
    return list(binding.copy_outputs_to_cpu())


def test_what_is_kept_in_fewer_bits_needs_a_scale() -> None:
    arrays, attributes = grouped(1, 5)
    feeds = {f"x{k}": a for k, a in enumerate(arrays)}
    del attributes["outputs"]
    made = model("GroupQueryAttention", feeds, list(feeds), 3, ["x6"], "com.microsoft", **attributes, k_quant_type="PER_TENSOR")
    with pytest.raises(CompileError, match="lacks its input 12"):
        Importer().load(made)
