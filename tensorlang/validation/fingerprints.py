"""Whether the loops of a kernel that is too large for terms compute what its equations say: both on fingerprints, at its own sizes.

    program  ──its plain loops, compiled to compute with fingerprints─────►  y
    loops    ──rewritten to compute with fingerprints, compiled, run──────►  y      the same, element by element

The plain loops are the equations as they stand (`plain`); where elements of a tensor depend on others of it, the evaluator of
programs computes with fingerprints instead. The loops are the last before code is emitted, in the memory and the layouts they
have. What a fingerprint tells, and what not, is in `codegen.loops.fingerprints`: sums and products may be regrouped anywhere, so
this is less than terms say, of much more.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from codegen.dtypes import DType, bool_, called_dtype, u8, u32, u64
from codegen.llvm.emit import emit
from codegen.llvm.jit import Library, compile_object, load
from codegen.llvm.pool import pool_imports
from codegen.llvm.target import host
from codegen.llvm.workspace import workspace_bytes
from codegen.loops import fingerprints
from codegen.loops.fingerprints import HOLE, PRIME, storage_dtype, uninitialised
from codegen.loops.interp import evaluate_index
from codegen.loops.nodes import Function
from tensorlang.graph.blocks import aligned_array
from tensorlang.graph.relayout import restored, to_layout
from tensorlang.schedule.layout import Layout
from tensorlang.tensor import arith
from tensorlang.tensor.interp import Evaluator
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.value_domain import Numbers
from tensorlang.tensor.walk import caller_shape, tensor_table
from tensorlang.validation.plain import plain

Array = np.ndarray[Any, Any]
_STEPS = {"sum": "+", "prod": "*"}
"""The operations that reducers of floats are made of, where they have other names."""


class Fingerprints(Numbers):
    """Floats are fingerprints: unsigned integers in tensors (`storage_dtype`), uint64 while they are computed with. Everything else is
    a number."""

    def blank(self, shape: Any, dtype: DType) -> Array:
        return np.full(shape, HOLE, np.uint64) if dtype.is_float else super().blank(shape, dtype)

    def accepts(self, array: Array, dtype: DType) -> bool:
        return bool(array.dtype == storage_dtype(dtype).numpy)

    def load(self, array: Array, dtype: DType) -> Array:
        return array.astype(np.uint64) if dtype.is_float else arith.load(array, dtype)

    def store(self, values: Array, dtype: DType) -> Array:
        return values.astype(storage_dtype(dtype).numpy) if dtype.is_float else arith.store(values, dtype)

    def constant(self, value: float | int | bool, dtype: DType, count: int) -> Array:
        if not dtype.is_float:
            return arith.constant(value, dtype, count)
        return np.full(count, fingerprints.number(float(arith.constant(value, dtype, 1)[0])), np.uint64)

    def rounded(self, values: Array, dtype: DType) -> Array:
        return _array(fingerprints.rounded(dtype, values)) if dtype.is_float else values

    def unary(self, op: str, a: Array, dtype: DType) -> Array:
        return _array(fingerprints.unary(op, a)) if dtype.is_float else arith.unary(op, a, dtype)

    def binary(self, op: str, a: Array, b: Array, dtype: DType) -> Array:
        return _array(fingerprints.binary(op, a, b)) if dtype.is_float else arith.binary(op, a, b, dtype)

    def compare(self, op: str, a: Array, b: Array) -> Array:
        if a.dtype == np.uint64:
            a, b = fingerprints.place(a), fingerprints.place(b)
        return arith.compare(op, a, b)

    def cast(self, values: Array, source: DType, target: DType, saturate: bool) -> Array:
        if source.is_float and target.is_float:
            return self.rounded(values, target)
        if source.is_float:
            return values != 0 if target == bool_ else _array(fingerprints.whole(target, values, saturate)).astype(arith.carrier(target))
        if not target.is_float:
            return arith.cast(values, source, target, saturate)
        wide = values if values.dtype == np.uint64 else values.astype(np.int64)
        return self.rounded((wide % PRIME).astype(np.uint64), target)

    def call(self, fn: str, args: list[Array], dtype: DType) -> Array:
        if fn == "bits":
            return _array(fingerprints.whole(u32, fingerprints.called(fn, *args), False)).astype(called_dtype(fn, dtype).numpy)
        if fn == "from_bits":
            return _array(fingerprints.called(fn, args[0].astype(np.uint64) % PRIME))
        return _array(fingerprints.hashed_test(fn, args[0]) < 1 if fn in ("isnan", "isinf") else fingerprints.called(fn, *args))

    def accumulate(self, kind: str, values: Array, dtype: DType) -> Array | None:
        if not dtype.is_float:
            return arith.accumulate(kind, values, dtype)
        if kind == "sum":
            return _array(values.sum(axis=1) % PRIME)
        total = values[:, 0]
        for k in range(1, values.shape[1]):
            total = self.binary(_STEPS.get(kind, kind), total, values[:, k], dtype)
        return total

    def joined(self, kind: str, left: Array, right: Array, dtype: DType) -> Array | None:
        return self.binary(_STEPS.get(kind, kind), left, right, dtype) if dtype.is_float else None


def _array(values: Any) -> Array:
    return np.asarray(values)


def unfit(program: Program) -> str:
    """Return why a program cannot be evaluated on fingerprints, "" when it can."""
    return "its integers have all 64 bits" if any(t.dtype == u64 for t in tensor_table(program).values()) else ""


def difference(
    program: Program,
    function: Function,
    params: Sequence[str],
    layouts: Mapping[str, Layout],
    numbers: Mapping[str, Array],
    seed: int,
) -> str:
    """Return where the loops compute something else than `program`, of sizes that are known, "" where nowhere. `numbers`: what parameters
    that are no floats hold. Raises RunError when the equations refuse these data."""
    rng, table = np.random.default_rng(seed), tensor_table(program)
    inputs = {}
    for p in program.params:
        if p.dtype.is_float:
            given = rng.integers(0, PRIME, caller_shape(p, {}), np.uint64)
            inputs[p.name] = _array(fingerprints.rounded(p.dtype, given)).astype(storage_dtype(p.dtype).numpy)
        else:
            inputs[p.name] = numbers[p.name]
    expected = expected_results(program, inputs)
    blocks = []
    for buffer, name in zip(function.params, params, strict=True):
        layout, shape = layouts.get(name), tuple(evaluate_index(e, {}) for e in buffer.shape)
        block = aligned_array(shape, storage_dtype(buffer.dtype))
        block[...] = uninitialised(buffer.dtype)
        if name in inputs:
            block[...] = (inputs[name] if layout is None else to_layout(inputs[name], layout, uninitialised(buffer.dtype))).reshape(shape)
        blocks.append(block)
    code = run(function, [b.ctypes.data for b in blocks])
    if code:
        return f"the loops refuse data that the equations accept, with {code}"
    for block, name in zip(blocks, params, strict=True):
        if name in expected:
            layout, shape = layouts.get(name), caller_shape(table[name], {})
            got = block.reshape(shape) if layout is None else restored(block.reshape(layout.shape), layout, shape)
            wrong = np.argwhere(got != expected[name])
            if len(wrong):
                point = ", ".join(map(str, wrong[0]))
                return f"`{name}[{point}]` is not what the equation says, nor are {len(wrong) - 1} other elements of {got.size}"
    return ""


def expected_results(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the results of a program of known sizes, by its equations. Raises RunError or LookupError where these refuse the data."""
    loops = plain(program)
    if loops is None:
        evaluator = Evaluator(program, {}, inputs, Fingerprints())
        evaluator.run()
        return evaluator.results()
    table = tensor_table(program)
    results = {name: aligned_array(caller_shape(table[name], {}), storage_dtype(table[name].dtype)) for name in program.results}
    for name, result in results.items():
        result[...] = uninitialised(table[name].dtype)
    given = [np.ascontiguousarray(inputs[p.name]) for p in program.params]
    code = run(loops, [a.ctypes.data for a in (*given, *results.values())])
    if code:
        raise LookupError(f"`{program.name}` reads what is not there, or is given what is not in its range")
    return results


def run(function: Function, addresses: Sequence[int]) -> int:
    """Run loops on fingerprints, which lie at these addresses, and return the code they do."""
    library, name, scratch_bytes = _compiled(function)
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(library.address(name))
    slots = (ctypes.c_int64 * max(1, len(addresses)))(*addresses)
    scratch = aligned_array((scratch_bytes,), u8)
    return int(entry(ctypes.addressof(slots), scratch.ctypes.data))


@lru_cache(64)
def _compiled(function: Function) -> tuple[Library, str, int]:
    """Return the code of loops on fingerprints, its name, and how much scratch memory it takes."""
    made = fingerprints.on_fingerprints(function)
    return load([compile_object(emit(made, host()), host())], pool_imports()), made.name, workspace_bytes(made, 1)
