"""Arrays in mapped files: what is forgotten is read again, and other memory is never touched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorlang.memory_map import PAGE, contents, forget

COUNT = 4 * PAGE


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mapped") / "numbers"
    path.write_bytes(np.arange(COUNT, dtype="<u4").tobytes())
    return path


@given(st.integers(0, COUNT), st.integers(0, COUNT), st.sampled_from([1, 2, 7, -1, -3]), st.booleans())
def test_what_is_forgotten_reads_the_same(file: Path, low: int, high: int, step: int, soon: bool) -> None:
    whole = np.frombuffer(contents(file, soon=soon), "<u4")
    part = whole[low:high][::step]
    before = part.copy()
    forget(part)
    np.testing.assert_array_equal(part, before)
    np.testing.assert_array_equal(whole, np.arange(COUNT, dtype=np.uint32))


def test_the_transposed_matrix_of_a_file_is_forgotten_as_a_whole(file: Path) -> None:
    matrix = np.frombuffer(contents(file), "<u4").reshape(-1, 64).T[3:7]
    before = matrix.copy()
    forget(matrix)
    np.testing.assert_array_equal(matrix, before)


def test_memory_of_other_kinds_is_left_alone() -> None:
    array = np.arange(COUNT)
    forget(array)
    np.testing.assert_array_equal(array, np.arange(COUNT))


def test_an_empty_file_has_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert len(contents(tmp_path / "empty")) == 0
