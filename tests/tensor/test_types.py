"""The dtypes of expressions."""

from __future__ import annotations

from strategies_tensor import read, tensor

from codegen.dtypes import f16, f32, i64
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.types import dtype_of, types_of


def test_values_are_computed_in_f32_for_narrow_floats() -> None:
    types = types_of(Program("p", (), (tensor("h", f16, 3), tensor("k", i64, 3)), (), ()))
    assert dtype_of(read("h", 0), types) == f32 and dtype_of(read("k", 0), types) == i64
