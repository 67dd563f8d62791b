"""The operators of `examples/pipelines`, compiled as they are derived, compute what plain NumPy does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from example_references import EXAMPLES, references

import tensorlang as tl

REFERENCES = references("pipelines")
OPERATORS = REFERENCES.operators()


@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_an_operator_computes_what_its_reference_does(name: str, n: int) -> None:
    REFERENCES.compare(OPERATORS[name], name, n)


@pytest.fixture(scope="module")
def known_sizes() -> Mapping[str, Callable[..., Any]]:
    """Return operators that have met no other sizes, for which they would be compiled for any."""
    found: Mapping[str, Callable[..., Any]] = REFERENCES.operators()
    return found


@pytest.mark.parametrize("name", ["harris", "unsharp"])
def test_a_pipeline_in_strips_computes_what_its_reference_does(name: str, known_sizes: Mapping[str, Callable[..., Any]]) -> None:
    REFERENCES.compare(known_sizes[name], name, 500)


def test_what_is_scheduled_by_hand_computes_what_its_reference_does() -> None:
    written = tl.load(EXAMPLES / "pipelines" / "by_hand.tl")
    assert sorted(dir(written)) == ["harris", "unsharp"]
    for name in dir(written):
        REFERENCES.compare(getattr(written, name), name, 40)


def test_every_operator_of_the_files_is_compared() -> None:
    assert sorted(REFERENCES.arguments(5)) == sorted(OPERATORS)
