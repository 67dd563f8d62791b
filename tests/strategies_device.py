"""Random schedules for a graphics processor: loops shaped and bound to blocks and threads, products in tiles, or what is derived with a
part changed.

    case = bound(Random(7))         a program, sizes for it, and a schedule that can be applied (its proof is another matter)

Programs are the families of `strategies_schedule`.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from usual_device import derive_device

from codegen.dtypes import DTYPES
from tensorlang.diagnostics import CompileError, Source
from tensorlang.schedule.apply import Outline, outline
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.parse import parse
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
    case = Case(program, draw_sizes(program, random), random_binds(program, random, directives))
    tiled = random_tiles(program, random) if program.name in PRODUCTS and random.random() < 0.5 else None
    return case if tiled is None else replace(case, schedule=tiled)


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


# ---------------------------------------------------------------- tiles of products

PRODUCTS = {"matmul": ("a", "b"), "linear": ("x", "w"), "halves": ("x", "w"), "bytes": ("x", "w"), "triangle": ("a", "b")}
"""Families that are one product `y` over i, j and k, and its factors."""


def random_tiles(program: Program, random: Random) -> Schedule | None:
    """Return a product in tiles as people write it for a device, directives about grids, clusters and boxes among them, now and then
    without one that others need; None where that cannot be applied."""
    lines = [line for line in _tile_lines(program, random) if random.random() < 0.98]
    text = f"schedule {program.name} for cuda {{\n" + "\n".join(lines) + "\n}"
    (written,) = parse(Source("tiles.tl", text)).declarations
    assert isinstance(written, syntax.Schedule)
    schedule = Schedule(program.name, "cuda", directives=tuple(d for d in written.body if isinstance(d, syntax.Directive)))
    return schedule if outline_or_none(program, schedule) is not None else None


def _tile_lines(program: Program, random: Random) -> Iterator[str]:
    left, right = PRODUCTS[program.name]
    rastered, boxed, parts = random.random() < 0.3, random.random() < 0.6, random.random() < 0.2
    if parts:
        yield f"split_k k by {random.choice((2, 3, 4))}"
        yield "bind y.part.i, y.part.j to block.x, thread.x"
        yield "bind y.i, y.j to block.x, thread.x"
        return
    yield f"tile y (i, j) by ({random.choice((2, 4, 8))}, {random.choice((2, 4, 8))}) -> io, jo, ii, ji"
    yield f"split k by {random.choice((2, 4, 8))} -> ko, ki"
    if rastered:
        yield f"raster io, jo by {random.choice((1, 2, 3))} -> ig, ir"
    blocks = "ig, jo, ir" if rastered else "io, jo"
    yield f"order {blocks}, ko, ii, ji, ki"
    copied = [name for name in (left, right) if random.random() < 0.8]
    for name in copied:
        yield f"cache {name} in {random.choice(('shared', 'shared', 'registers'))} at ko"
    if copied:
        yield f"stages ko by {random.choice((2, 2, 3))} with tma" if boxed else f"stages ko by {random.choice((1, 2, 2, 3))}"
        if random.random() < 0.4:
            yield "specialize ko"
    yield f"bind {blocks}, ii, ji to {'block.z, ' if rastered else ''}block.y, block.x, thread.y, thread.x"
    if random.random() < 0.4:
        yield f"cluster jo by {random.choice((1, 2, 2, 4))}"
        if copied:
            yield f"multicast {random.choice(copied)} at jo"
    if random.random() < 0.4:
        yield f"persistent jo by {random.choice((1, 2, 3, 5))}"
    if random.random() < 0.4:
        yield f"predicate {random.choice(('ki', 'ki', 'ii', 'ji'))} with {random.choice(('guard', 'zfill'))}"
