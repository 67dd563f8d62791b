"""Libraries that the tests of this folder share, each made once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from saved_libraries import LEVELS, OPERATORS, X, network

import tensorlang as tl


@pytest.fixture(scope="session")
def operators() -> tl.Operators:
    return tl.parse(OPERATORS)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, operators: tl.Operators) -> Path:
    """Return a folder of libraries: `first` and `pick` of open sizes, `product` of two threads, `net` with and without an open batch."""
    root = tmp_path_factory.mktemp("libraries")
    operators.first.save(root / "first", {"x": X, "k": 2}, symbolic=True, targets=LEVELS)
    operators.pick.save(root / "pick", {"x": X, "at": np.array([0, 1])}, symbolic=True, targets="x86-64", max={"M": 1000})
    square = np.eye(64, dtype=np.float32)
    operators.product.save(root / "product", {"a": square, "b": square}, targets="x86-64-v2", threads=2)
    tl.build(network(2), root / "net", targets=("x86-64-v2", "x86-64"), library="net", threads=2)
    tl.build(network("batch"), root / "open", targets="x86-64", library="open_net", max={"batch": 4}, weights="inside", threads=1)
    return root
