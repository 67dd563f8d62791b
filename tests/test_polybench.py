"""The kernels of `examples/polybench`, compiled as they are derived, compute what plain NumPy does."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parents[1] / "examples" / "polybench"


def references() -> ModuleType:
    spec = importlib.util.spec_from_file_location("polybench_references", HERE / "references.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFERENCES = references()
OPERATORS = REFERENCES.operators()


@pytest.mark.parametrize("n", [3, 19])
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_a_kernel_computes_what_its_reference_does(name: str, n: int) -> None:
    REFERENCES.compare(OPERATORS[name], name, n)


@pytest.mark.parametrize("name", ["cholesky", "lu", "ludcmp", "nussinov"])
def test_a_kernel_in_blocks_computes_what_its_reference_does(name: str) -> None:
    REFERENCES.compare(OPERATORS[name], name, 150)


def test_every_kernel_of_the_files_is_compared() -> None:
    assert sorted(REFERENCES.arguments(5)) == sorted(OPERATORS)
