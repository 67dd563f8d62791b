"""Random schedules for a graphics processor: loops shaped and bound to blocks and threads, or what is derived with a part changed.

    case = bound(Random(7))         a program, sizes for it, and a schedule that can be applied (its proof is another matter)

Programs are the families of `strategies_schedule`.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from strategies_schedule import (
    LOOPS,
    MARKS_ANYWHERE,
    REWRITES,
    Case,
    Drawing,
    draw_sizes,
    family,
    family_names,
    outline_or_none,
    some_static,
)

from codegen.dtypes import DTYPES
from tensorlang.diagnostics import CompileError
from tensorlang.policy.gpu.derive import derive_device
from tensorlang.schedule.apply import Outline, outline
from tensorlang.schedule.schedule import Schedule
from tensorlang.tensor.nodes import Program

ELEMENTS = ("f64", "f32", "f32", "i32", "i64", "i8")
PLACES = (
    ("block.x", "thread"),
    ("block.x", "thread.x"),
    ("block.y", "block.x", "thread.y", "thread.x"),
    ("block.x", "warp", "lane"),
    ("block.x", "warp.y", "warp.x", "lane.y", "lane.x"),
    ("warp.x", "lane"),
    ("block.x", "warp.z", "lane.z", "lane.x"),
    ("lane.y", "lane.x"),
    ("thread.y", "thread.x"),
    ("thread",),
    ("lane",),
    ("block.x",),
    ("block.z", "thread.z", "thread.x"),
)


def bound(random: Random, directives: int = 5) -> Case:
    """Return a program with a schedule whose loops are bound to blocks and threads."""
    program = family(random.choice(family_names()), DTYPES[random.choice(ELEMENTS)])
    program = some_static(program, random)
    if random.random() < 0.1:
        program = replace(program, mode="strict")
    return Case(program, draw_sizes(program, random), random_binds(program, random, directives))


def random_binds(program: Program, random: Random, directives: int) -> Schedule:
    """Return random directives, and random binds after them, each of which can be applied after those before it."""
    if random.random() < 0.3:
        derived = derive_device(program)
        kept = tuple(d for d in derived.directives if random.random() < 0.9)
        some = replace(derived, directives=kept)
        return some if outline_or_none(program, some) is not None else derived
    schedule = Schedule(program.name, "cuda")
    seen = outline(program, schedule)
    wanted = random.randint(1, directives)
    for kinds, share in ((REWRITES, 0.3), (LOOPS, 0.6), (MARKS_ANYWHERE, 0.3)):
        for _ in range(wanted):
            if random.random() < share:
                drawn = random.choice(kinds)(schedule, seen, Drawing(random, seen))
                schedule, seen = _accepted(program, schedule, drawn, seen)
    for stage in seen.loops:
        if random.random() < 0.85:
            schedule, seen = _stage_bound(program, schedule, seen, stage, random)
    return schedule


def _stage_bound(program: Program, schedule: Schedule, seen: Outline, stage: str, random: Random) -> tuple[Schedule, Outline]:
    """Bind some loops of a stage, from the outside in most of the time, those to threads split where they need to be."""
    places = list(random.choice(PLACES))
    loops = list(seen.loops[stage])
    chosen = sorted(random.sample(range(len(loops)), min(len(loops), len(places))))
    if random.random() < 0.6:
        chosen = list(range(len(chosen)))
    for k, place in zip(chosen, places[-len(chosen) :], strict=False):
        loop = loops[k]
        extent = seen.extents.get(loop)
        if not place.startswith("block") and (extent is None or extent > 16 or random.random() < 0.2):
            outer, inner = Drawing(random, seen).fresh(loop, "ot")
            split = schedule.split(loop, random.choice((2, 3, 4, 8, 32)), (outer, inner))
            schedule, seen = _accepted(program, schedule, split, seen)
            loop = f"{stage}.{inner}" if f"{stage}.{inner}" in seen.loops[stage] else loop
        schedule, seen = _accepted(program, schedule, schedule.bind(loop, to=place), seen)
    return schedule, seen


def _accepted(program: Program, before: Schedule, after: Schedule | None, seen: Outline) -> tuple[Schedule, Outline]:
    """Return `after` and what it looks like where it can be applied, otherwise what was there."""
    try:
        return (before, seen) if after is None else (after, outline(program, after))
    except CompileError:
        return before, seen
