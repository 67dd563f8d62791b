"""Values as text: they come back as they were, and reading runs nothing."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.dtypes import bf16, f32
from codegen.loops.parser import parse as parse_loops
from polyhedral.expr import Name
from tensorlang.serialization import FlatError, from_flat, to_flat

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.fractions(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
)


@given(PLAIN)
def test_a_value_comes_back_as_it_was(value: object) -> None:
    again = from_flat(to_flat(value))
    assert again == value and repr(again) == repr(value)


def test_nodes_types_and_arrays_come_back_and_what_was_shared_is_shared() -> None:
    function = parse_loops("func f()(x: f32[4], out y: f32[4]) { for i in 0 .. 4 { y[i] = x[i] * 2.0_f32 } }")
    arrays = np.arange(6, dtype=np.int8).reshape(2, 3), np.ones(3, bf16.numpy)
    value = (function, f32, bf16, Path("a/b"), Fraction(1, 3), function, *arrays)
    again = from_flat(to_flat(value))
    assert again[:6] == value[:6] and again[0] is again[5] and again[1] is f32
    for one, other in zip(again[6:], arrays, strict=True):
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes() and one.shape == other.shape


def test_what_can_never_change_is_written_once_and_what_can_stays_apart() -> None:
    one, other = from_flat(to_flat((Name("i"), Name("i"))))
    assert one is other
    first, second = from_flat(to_flat(([1], [1])))
    assert first == second and first is not second


@given(st.lists(st.sampled_from([0, False, 0.0, -0.0, 1, True, 1.0]).map(lambda v: (v,)), min_size=2))
def test_numbers_that_compare_equal_stay_what_they_are(values: list[object]) -> None:
    assert repr(from_flat(to_flat(values))) == repr(values)


@pytest.mark.parametrize(
    "classes",
    [
        ["os", "system"],
        ["subprocess", "Popen", "args"],
        ["tensorlang.runtime.bundle", "shutil.rmtree"],
        ["tensorlang.serialization", "from_flat"],
    ],
    ids=str,
)
def test_only_data_of_this_compiler_is_made(classes: list[str]) -> None:
    document: dict[str, Any] = {"classes": [classes], "rows": [["c", 0, "touch x"]], "root": [0]}
    with pytest.raises(FlatError):
        from_flat(json.dumps(document).encode())


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"classes": [], "rows": [["t", [3]]], "root": [0]}'], ids=str)
def test_what_is_no_value_is_refused(data: bytes) -> None:
    with pytest.raises(FlatError):
        from_flat(data)


def test_a_value_that_would_run_has_no_text() -> None:
    with pytest.raises(TypeError, match="has no text"):
        to_flat((1, print))


def test_nothing_that_is_read_from_disk_is_a_pickle() -> None:
    root = Path(__file__).parents[2]
    sources = [p for folder in ("tensorlang", "codegen", "polyhedral", "stdlib") for p in (root / folder).rglob("*.py")]
    using = {p.name for p in sources if "pickle.load" in p.read_text("utf-8")}
    talking = {"worker.py", "answering.py", "workers.py"}
    assert using == talking, "a worker and the process that started it talk through pipes; nothing else is a pickle"
