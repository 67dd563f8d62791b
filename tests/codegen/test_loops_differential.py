"""The interpreter, the passes and the LLVM back end agree on functions that nobody thought of."""

import numpy as np
from bits import assert_same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from llvm_run import run_native
from loops_strategies import running_functions

from codegen.llvm.target import host
from codegen.loops.interp import run
from codegen.loops.nodes import Function
from codegen.loops.promote import REGISTER_BYTES, drop_stack_to_registers, promote_accumulators
from codegen.loops.simplify import simplify


@settings(max_examples=25, deadline=None)
@given(running_functions(), st.integers(0, 5))
def test_optimised_native_code_computes_what_the_interpreter_does(function: Function, n: int) -> None:
    expected, actual = ({name: np.linspace(-2, 3, size, dtype=np.float32) for name, size in (("a", 8), ("c", 8), ("n", n))} for _ in "12")
    assert run(function, {"N": n}, expected) == 0
    optimised = drop_stack_to_registers(promote_accumulators(simplify(function)), REGISTER_BYTES)
    assert run_native(optimised, {"N": n}, actual, host(), threads=1) == 0
    assert_same_bits(actual["c"], expected["c"])
