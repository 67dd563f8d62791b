"""Run a refused schedule all the same, slowly and watched, to show what it would have computed.

The inputs are small integers, so that every order of a sum gives the same value and a difference is the schedule's doing; in `strict`
programs, where the order of a sum counts, they are fractions of all sizes, of which every order rounds otherwise. Elements that nobody has
written yet hold 99. Lanes of a vector that are at fault run as threads, because lanes, too, run at the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from codegen.errors import InternalError as LoopError
from codegen.loops.interp import run
from polyhedral import affine
from polyhedral.legality import Violation
from polyhedral.model import Leaf, Loop, Tree
from polyhedral.storage import Clobber
from polyhedral.watch import watch
from tensorlang.diagnostics import CompileError
from tensorlang.lower.kernel import lower
from tensorlang.lower.memory import lane_loop
from tensorlang.schedule.apply import apply
from tensorlang.schedule.blocks import from_block, to_block
from tensorlang.schedule.check import stored_cells, verdict_of
from tensorlang.schedule.plan import Plan, Storage
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.storage import axis_names
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program, Tensor
from tensorlang.tensor.walk import shape_of, tensor_table

STALE = 99


@dataclass(frozen=True, slots=True)
class Difference:
    """The first element that comes out different."""

    tensor: str
    index: tuple[int, ...]
    expected: float
    got: float

    def __str__(self) -> str:
        at = ", ".join(map(str, self.index))
        return f"`{self.tensor}[{at}]` comes out as {self.got:g}; the operator says {self.expected:g}"


@dataclass(frozen=True, slots=True)
class Hazard:
    """What the watched run ran into: a race, a read of memory that was never written, a read out of bounds."""

    text: str

    def __str__(self) -> str:
        return self.text


def replay(
    program: Program,
    schedule: Schedule,
    layouts: Mapping[str, Storage] | None = None,
    knobs: Mapping[str, int] | None = None,
    seed: int = 7,
) -> Difference | Hazard | None:
    """Return what goes wrong when the refused `schedule` is run at the sizes of its refutation; None when it is not refuted or when these
    inputs happen to hide it there and at sizes a little larger. `seed`: of the inputs."""
    plan = apply(program, schedule, layouts, knobs)
    violation = verdict_of(plan)
    if not isinstance(violation, Violation | Clobber):
        return None
    plan = _lanes_as_threads(plan, violation)
    for k, sizes in _tries(program, violation.params):
        if affine.holds(program.context, sizes) and all(_can_be_given(p, sizes) for p in program.params):
            seen = _run(program, plan, sizes, seed + k) or (_watched(plan, sizes) if isinstance(violation, Clobber) else None)
            if seen is not None:
                return seen
    return None


def _tries(program: Program, found: Mapping[str, int]) -> Iterator[tuple[int, dict[str, int]]]:
    """Yield sizes to try, and what to add to the seed for other data: the sizes `found`, larger ones, these and others on other data, and
    those with one longer than the rest, so that much meets in few elements."""
    least = {s: found.get(s, 1) for s in program.sizes}
    for more in range(3):
        yield 0, {s: n + more for s, n in least.items()}
    for k, longer in enumerate((*program.sizes, *(None,) * 12), 1):
        yield k, {s: n + 4 if s == longer else n + 1 for s, n in least.items()}


def _watched(plan: Plan, sizes: Mapping[str, int]) -> Hazard | None:
    """Return a read that finds another element in its cell, whatever the values are."""
    for name, cells, axes in stored_cells(plan):
        found = watch(plan.placed, {name: cells}, axes={name: axes}, storage=plan.depth, sizes=sizes)
        if found is not None:
            wanted, instead = (f"`{found.tensor}[{', '.join(map(str, e))}]`" for e in (found.expected, found.instead))
            at = ", ".join(f"{k}={v}" for k, v in found.reader.iters.items())
            return Hazard(f"`{found.reader.statement}` at ({at}) reads {wanted}, and its cell holds {instead}")
    return None


def _run(program: Program, plan: Plan, sizes: Mapping[str, int], seed: int) -> Difference | Hazard | None:
    """Return what goes wrong at these sizes, if anything."""
    rng = np.random.default_rng(seed)
    inputs = {p.name: _values(p, sizes, rng, program.mode == "strict") for p in program.params}
    expected = interpret(program, sizes, inputs)
    try:
        lowered = lower(plan, "replay")
    except CompileError as refused:
        return Hazard(str(refused))
    function = lowered.function
    table, stored = tensor_table(program), tensor_table(plan.program)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    names: dict[str, str] = {}
    for buffer, name in zip(function.params, lowered.params, strict=True):
        names[buffer.name] = name
        shape = shape_of(stored[name], sizes)
        given = inputs[name].reshape(shape) if name in inputs else np.full(shape, STALE, table[name].dtype.numpy)
        storage = plan.layouts.get(name)
        arrays[buffer.name] = given if storage is None else to_block(storage, axis_names(plan.program, name), given, sizes, STALE)
    try:
        run(function, dict(zip(function.sizes, (sizes[s] for s in program.sizes), strict=True)), arrays)
    except LoopError as fault:
        return Hazard(fault.detail)
    got: dict[str, np.ndarray[Any, Any]] = {}
    for buffer_name, name in names.items():
        if name in expected:
            storage, block = plan.layouts.get(name), arrays[buffer_name]
            shape = shape_of(stored[name], sizes)
            got[name] = block if storage is None else from_block(storage, axis_names(plan.program, name), block, shape, sizes)
    return _first_difference(got, expected)


def _can_be_given(param: Tensor, sizes: Mapping[str, int]) -> bool:
    """Tell whether an input declared `in lo..hi` has values to hold, or no elements."""
    if param.declared_range is None or 0 in shape_of(param, sizes):
        return True
    low, high = (affine.evaluate(e, sizes) for e in param.declared_range)
    return bool(low < high)


def _values(param: Tensor, sizes: Mapping[str, int], rng: np.random.Generator, fractions: bool) -> np.ndarray[Any, Any]:
    """Return values of an input, within its declared range where it has one."""
    low, high = (-4, 5) if param.declared_range is None else (int(affine.evaluate(e, sizes)) for e in param.declared_range)
    whole = rng.integers(low, max(low + 1, high), shape_of(param, sizes))
    if param.declared_range is not None and param.dtype.is_float:
        return np.asarray(whole + rng.integers(0, 4, whole.shape) / 4).astype(param.dtype.numpy)
    if fractions and param.dtype.is_float:
        whole = (whole + rng.random(whole.shape)) * 2.0 ** rng.integers(-8, 8, whole.shape)
    return np.asarray(whole).astype(param.dtype.numpy)


def _first_difference(got: Mapping[str, np.ndarray[Any, Any]], expected: Mapping[str, np.ndarray[Any, Any]]) -> Difference | None:
    for name, want in expected.items():
        have = got[name].reshape(want.shape)
        wrong = np.argwhere(~((have == want) | ((have != have) & (want != want))))
        if len(wrong):
            index = tuple(int(i) for i in wrong[0])
            return Difference(name, index, float(want[index]), float(have[index]))
    return None


def _lanes_as_threads(plan: Plan, refuted: Violation | Clobber) -> Plan:
    """Return the plan with the vector loop at fault in parallel; with all that do not reduce over their lanes where none is named."""
    if isinstance(refuted, Violation):
        chosen = {refuted.loop} if refuted.kind == "lane" else set()
    else:
        placed = plan.placed
        chosen = {loop.name for place in placed.places.values() for loop in place.loops if loop.mark == "vector"}
        for name, nest in placed.nests.items():
            statement = placed.statements[nest.statement]
            lane = lane_loop(plan, name, statement) if statement.role == "update" else None
            chosen -= {lane.name} if lane is not None else set()
    return replace(plan, placed=replace(plan.placed, tree=tuple(_marked(t, chosen) for t in plan.placed.tree)))


def _marked(tree: Tree, chosen: Collection[str | None]) -> Tree:
    match tree:
        case Loop(name, body, mark):
            return Loop(name, tuple(_marked(t, chosen) for t in body), "parallel" if name in chosen else mark)
        case Leaf():
            return tree
