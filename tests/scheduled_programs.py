"""Operators with schedules as texts: read, proven, lowered, run in the loop interpreter and compared with what the operator says.

A text holds one schedule and the operator it is for. The arguments are what the operator declares: a size stays symbolic, a generic type
is f32, attributes have their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from bits import assert_same_bits

from codegen.dtypes import DTYPES, f32
from codegen.loops.interp import run
from codegen.loops.nodes import Function
from polyhedral import affine
from tensorlang.backends.cpu.driver import loops_of
from tensorlang.bounded_cache import BoundedCache
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import Module, load_module
from tensorlang.diagnostics import Source
from tensorlang.lower.kernel import Lowered
from tensorlang.policy.complete import completed, is_partial
from tensorlang.policy.machine import Machine
from tensorlang.policy.select import read
from tensorlang.schedule.check import proven
from tensorlang.schedule.plan import Plan
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.parse import parse
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import caller_shape, shape_of, tensor_table

Arrays = dict[str, np.ndarray[Any, Any]]
STALE = 77
MACHINE = Machine(32, 16, 2, target="cpu")


@dataclass(frozen=True, slots=True)
class Written:
    module: Module
    program: Program
    schedule: Schedule


def written(text: str, name: str = "example.tl", libraries: Sequence[Module] | None = None) -> Written:
    """Return the operator and the schedule of a text, tactics and knobs put in their place, and what it leaves to derive; instructions may
    be those of libraries."""
    module = load_module(parse(Source(name, text)), libraries)
    stated = module.schedules[0]
    program = declared(module, stated.operator)
    schedule = read(module, stated, program).schedule
    schedule = completed(program, schedule, MACHINE).schedule if is_partial(schedule) else schedule
    return Written(module, program, schedule)


def declared(module: Module, operator: str, **sizes: int) -> Program:
    """Return the operator for arguments as it declares them, sizes symbolic unless given."""
    declaration = module.operators[operator]
    args = [argument(p, sizes) for p in declaration.params if p.kind == "tensor"]
    return instantiate(module, operator, args, {}, {p.name: p.name for p in declaration.params if p.kind == "size"}, symbolic=not sizes)


def operator(signature: str, body: str, sizes: dict[str, int] | None = None) -> Program:
    """Return the program of `op f(SIGNATURE { BODY }`, of these sizes, or of any."""
    module = load_module(parse(Source("f.tl", f"op f({signature} {{\n{body}\n}}")))
    args = [argument(p, sizes or {}) for p in module.operators["f"].params]
    return instantiate(module, "f", args, symbolic=sizes is None)


def argument(param: sx.Param, sizes: Mapping[str, int]) -> ArgType:
    assert isinstance(param.type, sx.TensorType)
    dims: list[int | str] = []
    for dim in param.type.dims or ():
        match dim:
            case sx.Id(name):
                dims.append(sizes.get(name, name))
            case sx.Number(text):
                dims.append(int(text))
            case _:
                raise ValueError(f"the test needs a plain dimension, not {dim}")
    return ArgType(DTYPES.get(param.type.dtype, f32), tuple(dims))


def legal(text: str, libraries: Sequence[Module] | None = None) -> tuple[Written, Plan]:
    """Return the proven plan of a text."""
    found = written(text, libraries=libraries)
    return found, proven(found.program, found.schedule)


_LOWERED: BoundedCache[int, tuple[Plan, Lowered]] = BoundedCache(128)
"""By the identity of plans, which are kept so that no other gets it."""


def lowered_of(plan: Plan) -> Lowered:
    """Return the loops of a plan, made once for all sizes that they are run at."""
    return _LOWERED.used(id(plan), lambda: (plan, loops_of(plan, "kernel")))[1]


def loops(plan: Plan) -> Function:
    return lowered_of(plan).function


def assert_same(program: Program, plan: Plan, sizes: Mapping[str, int], seed: int = 1) -> None:
    """Run the loops of `plan` on small whole numbers; every result is bit for bit what the program says."""
    lowered = lowered_of(plan)
    rng = np.random.default_rng(seed)
    inputs = {p.name: small(rng, caller_shape(p, sizes), p.dtype.numpy) for p in program.params}
    expected = interpret(program, sizes, inputs)
    table, stored = tensor_table(program), tensor_table(plan.program)
    arrays: Arrays = {}
    results: dict[str, str] = {}
    for buffer, name in zip(lowered.function.params, lowered.params, strict=True):
        shape = shape_of(stored[name], sizes)
        if name in inputs:
            arrays[buffer.name] = inputs[name].reshape(shape).copy()
        else:
            arrays[buffer.name], results[buffer.name] = np.full(shape, STALE, table[name].dtype.numpy), name
    code = run(lowered.function, {s: sizes[n] for s, n in zip(lowered.function.sizes, program.sizes, strict=True)}, arrays)
    assert code == 0
    for buffer_name, name in results.items():
        assert_same_bits(arrays[buffer_name].reshape(expected[name].shape), expected[name], f"{name} at {dict(sizes)}: ")


def small(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Return whole numbers of which sums and products are exact in any order; a positive definite matrix is none of our business."""
    return rng.integers(1, 4, shape).astype(dtype)


def some_sizes(program: Program) -> list[dict[str, int]]:
    """Return assignments of the program's sizes that it allows: around the sizes of tiles, and different from each other; where it allows
    none of these, multiples of eight."""
    tried = [{s: (base + 3 * k) % 11 + low for k, s in enumerate(program.sizes)} for base, low in ((0, 1), (4, 2), (7, 3), (1, 2))]
    found = [sizes for sizes in tried if affine.holds(program.context, sizes)]
    return found or [eights for sizes in tried if affine.holds(program.context, eights := {s: 8 * n for s, n in sizes.items()})]
