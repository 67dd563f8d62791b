"""What a derived schedule is made from: the program, the machine, how tensors are stored, and the directives so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensorlang.schedule.machine import Machine
from tensorlang.schedule.plan import Storage
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import work
from tensorlang.tensor.flatten import flatten
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Definition, Program
from tensorlang.tensor.walk import reads

PARALLEL_WORK = 40_000
"""Scalar operations below which waking other threads costs more than it saves."""


@dataclass(slots=True)
class Deriver:
    program: Program
    machine: Machine
    layouts: Mapping[str, Storage]
    constants: frozenset[str]
    schedule: Schedule
    axes: dict[str, tuple[str, ...]]
    parallel: bool = False

    def add(self, schedule: Schedule) -> None:
        self.schedule = schedule


def deriver(program: Program, machine: Machine, layouts: Mapping[str, Storage], constants: frozenset[str]) -> Deriver:
    """Return the state of deriving before any cluster is scheduled: the program as directives will see it, and the directives for that."""
    lifted = lift(program)
    flat = flatten(lifted, frozenset(layouts))
    schedule = Schedule(program.name)
    d = deriver_of(flat, machine, layouts, constants, schedule if flat == lifted else schedule.flatten())
    d.parallel = machine.threads > 1 and work(flat) >= PARALLEL_WORK
    return d


def deriver_of(
    program: Program, machine: Machine, layouts: Mapping[str, Storage], constants: frozenset[str], schedule: Schedule
) -> Deriver:
    axes = {t.name: x.axes for x in program.definitions for t in x.tensors}
    axes |= {p.name: tuple(f"a{k}" for k in range(len(p.shape))) for p in program.params}
    return Deriver(program, machine, layouts, constants, schedule, axes)


def reads_itself(definition: Definition) -> bool:
    own = {t.name for t in definition.tensors}
    return any(r.tensor in own for p in definition.pieces for r in reads(p.value))


def in_order(schedule: Schedule, stage: str, loops: list[str]) -> Schedule:
    return schedule.order(*(f"{stage}.{loop}" for loop in loops)) if len(loops) > 1 else schedule


def mark_parallel(d: Deriver, stage: str, loops: list[str], sizes: Mapping[str, int | None]) -> None:
    """Mark the outermost loop that has work for every thread; fuse down to it where the loops outside are short."""
    if not d.parallel or not loops:
        return
    chosen = next((k for k, loop in enumerate(loops) if (sizes.get(loop) or 64) >= 2 * d.machine.threads), None)
    if chosen is None:
        chosen = max(range(len(loops)), key=lambda k: sizes.get(loops[k]) or 64)
    d.add(d.schedule.parallel(f"{stage}.{loops[chosen]}"))
