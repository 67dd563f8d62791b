"""Hashes of several words in a row, and gates of what they look up, are those of onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from microsoft_operators import I32, I64, Array, check, draw

HEADS = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 2}


def words(*shape: int, seed: int = 0) -> Array:
    """Return numbers of words, the third of which ends a text."""
    return np.random.default_rng(seed).integers(0, 9, shape)


@pytest.mark.parametrize("dtype", [I32, I64])
@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("length", [1, 7])
def test_words_are_hashed_with_those_before_them(dtype: type, past: bool, length: int) -> None:
    """Products wrap around, and what is left of negative ones is not negative."""
    ids, before = words(2, length).astype(dtype), words(2, 2, seed=1).astype(dtype) if past else None
    factors, sizes = np.asarray([7919, 2**31 - 1, 1299709], dtype), np.asarray([97, 89, 101, 1 << 20], dtype)
    check("NGramHashMapping", ids, factors, sizes, before, outputs=2, **HEADS)
    check("NGramHashMapping", ids, factors, sizes, before, np.asarray([0, 97, 186, 287], dtype), outputs=2, **HEADS)


@pytest.mark.parametrize("reset", [0, 1])
@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("past", [False, True])
def test_nothing_is_known_of_another_text(reset: int, segments: bool, past: bool) -> None:
    ids, before = words(3, 12, seed=2) // 3, words(3, 2, seed=1) // 3 if past else None
    rows = np.sort(words(3, 12, seed=3) // 3, axis=1).astype(I32) if segments else None
    heads = np.asarray([31, 37, 41, 43])
    arrays = (ids, np.asarray([3, 5, 7]), heads, before, None, np.asarray(2), *([rows] if segments else []))
    check("NGramHashMapping", *arrays, outputs=2, reset_on_eos=reset, **HEADS)


@pytest.mark.parametrize("ends", [[0, 3, 8], [0, 1, 2, 8], [0, 8]])
@pytest.mark.parametrize("more", [False, True])
def test_packed_texts_know_nothing_of_each_other(ends: list[int], more: bool) -> None:
    count, heads = len(ends) - 1, np.asarray([31, 37, 41, 43])
    before = words(count, 2, seed=1) // 3 if more else None
    segments = np.sort(words(8, seed=3) // 3).astype(I32) if more else None
    tail = [np.asarray([0, 31, 68, 109]), np.asarray(2), segments] if more else []
    arrays = (words(8, seed=2) // 3, np.asarray([3, 5, 7]), heads, np.asarray(ends, I32), before, *tail)
    check("VarlenNGramHashMapping", *arrays, outputs=2, constants=(3,), reset_on_eos=int(more), **HEADS)


@pytest.mark.parametrize("normed", [False, True])
def test_gates_of_what_is_looked_up(normed: bool) -> None:
    arrays = (draw(2, 3, 2, 8), draw(2, 3, 2, 8, seed=1), draw(2, 3, 8, seed=2), draw(2, 8, seed=3), draw(2, 8, seed=4))
    check("EngramGate", *arrays, *([draw(2, 8, seed=5)] if normed else []), outputs=1 + normed, epsilon=1e-4)
