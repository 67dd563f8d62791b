"""The kernels of `examples/polybench`, compiled as they are derived, compute what plain NumPy does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from example_references import references

REFERENCES = references("polybench")
OPERATORS = REFERENCES.operators()


@pytest.mark.parametrize("n", [3, 19])
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_a_kernel_computes_what_its_reference_does(name: str, n: int) -> None:
    REFERENCES.compare(OPERATORS[name], name, n)


@pytest.fixture(scope="module")
def known_sizes() -> Mapping[str, Callable[..., Any]]:
    """Return operators that have met no other sizes, for which they would be compiled for any."""
    found: Mapping[str, Callable[..., Any]] = REFERENCES.operators()
    return found


@pytest.mark.parametrize("name", ["cholesky", "lu", "ludcmp", "nussinov"])
def test_a_kernel_in_blocks_computes_what_its_reference_does(name: str, known_sizes: Mapping[str, Callable[..., Any]]) -> None:
    REFERENCES.compare(known_sizes[name], name, 150)


def test_every_kernel_of_the_files_is_compared() -> None:
    assert sorted(REFERENCES.arguments(5)) == sorted(OPERATORS)
