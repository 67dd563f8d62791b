"""Directives about the grid: the order of blocks, blocks that take turns, sums that blocks share, edges."""

from __future__ import annotations

from dataclasses import replace

import pytest
from batch import Made, difference, library, made, named
from executors import Executor, Library
from test_stages import edited
from test_whole import program_of, tiled, values
from usual_device import device_loops

from codegen.gpu import emulator
from codegen.loops import nodes as loops
from codegen.loops.interp import evaluate_index
from tensorlang.diagnostics import CompileError
from tensorlang.lower.barriers import Exposed, exposed
from tensorlang.lower.edge_tiles import edges
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.tensor.nodes import Program


def shaped(program: Program, grid: Schedule, bound: tuple[tuple[str, str], ...]) -> Schedule:
    """Return a product's schedule with 16 by 16 tiles, whose loops over tiles `grid` arranges."""
    s = Schedule(program.name, "cuda").tile("c", ("i", "j"), (16, 16), into=("io", "jo", "ii", "ji")).split("c.k", 8, ("ko", "ki"))
    s = s.order("io", "jo", "ko", "ii", "ji", "ki")
    for d in grid.directives:
        s = s.then(d)
    s = s.cache("a", "shared", ["k", "i"], at="ko").cache("b", "shared", ["k", "j"], at="ko")
    for loop, place in (*bound, ("ii", "thread.y"), ("ji", "thread.x")):
        s = s.bind(loop, to=place)
    return s


EMPTY = Schedule("product", "cuda")
SIZES = (70, 21, 50)

PLAIN = (("io", "block.y"), ("jo", "block.x"))
STRIPES = (("ig", "block.z"), ("jo", "block.y"), ("ir", "block.x"))
SCHEDULES = {
    "stripes of rows": (EMPTY.raster("io", "jo", 3, ("ig", "ir")), STRIPES),
    "blocks that take turns": (EMPTY.persistent("jo", 6), PLAIN),
    "more blocks than tiles": (EMPTY.persistent("io", 64), PLAIN),
    "turns through stripes": (EMPTY.raster("io", "jo", 2, ("ig", "ir")).persistent("ig", 7), STRIPES),
}


def split_k(program: Program, by: int) -> Schedule:
    s = Schedule("product", "cuda").split_k("k", by)
    s = s.tile("c.part", ("i", "j"), (16, 16), into=("io", "jo", "ii", "ji")).split("c.part.k.in", 8, ("ko", "ki"))
    s = s.order("c.part.io", "c.part.jo", "c.part.ko", "c.part.ii", "c.part.ji", "c.part.ki")
    s = s.cache("a", "shared", ["a1", "i"], at="c.part.ko").cache("b", "shared", ["a0", "j"], at="c.part.ko")
    s = s.bind("c.part.io", "c.part.jo", "c.part.ii", "c.part.ji", to=("block.y", "block.x", "thread.y", "thread.x"))
    return s.split("c.j", 32, ("jb", "jt")).bind("c.i", "c.jb", "c.jt", to=("block.y", "block.x", "thread.x"))


@pytest.fixture(scope="module")
def compiled(executor: Executor) -> tuple[dict[str, Made], Library]:
    program = program_of("product", *values("product", *SIZES))
    found = {name: made(program, f"grid_{k}", shaped(program, grid, bound)) for k, (name, (grid, bound)) in enumerate(SCHEDULES.items())}
    found |= {f"sums shared by {by} blocks": made(program, f"split_{by}", split_k(program, by)) for by in (1, 2, 4, 9)}
    return found, library(found.values(), executor)


@pytest.mark.parametrize("name", [*SCHEDULES, *(f"sums shared by {by} blocks" for by in (1, 2, 4, 9))])
def test_every_arrangement_of_blocks_is_right_in_every_order(name, compiled):
    found, kernels = compiled
    each = found[name]
    arrays = named(each.program, values("product", *SIZES))
    assert difference(each, arrays, {}, kernels, seeds=emulator.SEEDS, close=1e-4) == ""


def grid(each: Made, number: int = 0) -> tuple[int, ...]:
    return tuple(evaluate_index(e, {}) for e in each.kernels.launches[number].grid)


def test_grids_are_as_large_as_the_directives_say(compiled):
    found, _ = compiled
    assert grid(found["stripes of rows"]) == (3, 4, 2)
    assert grid(found["blocks that take turns"]) == (6, 1, 1)
    assert grid(found["more blocks than tiles"]) == (20, 1, 1)
    assert grid(found["turns through stripes"]) == (7, 1, 1)
    assert grid(found["sums shared by 4 blocks"]) == (4, 5, 4)
    assert len(found["sums shared by 4 blocks"].kernels.launches) == 2


def test_blocks_that_take_turns_wait_between_their_turns(compiled):
    """What is copied in one turn is read to its end before the next turn copies."""
    function = compiled[0]["blocks that take turns"].lowered.function
    weaker = [body for s, body in edited(function.body) if isinstance(s, loops.Barrier)]
    assert len(weaker) == 2
    for body in weaker:
        assert isinstance(exposed(replace(function, body=body)), Exposed)


def test_an_edge_can_be_kept_where_it_is():
    program = program_of("product", *values("product", *SIZES))
    plan = proven(program, tiled(program).predicate("c.ki", by="guard"))
    assert edges(device_loops(plan, "k").function) == {"c_ki"}
    plan = proven(program, tiled(program).predicate("c.ki", "c.ii", by="zfill"))
    assert edges(device_loops(plan, "k").function) == set()


@pytest.mark.parametrize("operator", ["greatest", "shifted"])
def test_an_edge_that_zeros_would_change_is_refused(operator):
    program = program_of(operator, *values(operator, *SIZES))
    plan = proven(program, tiled(program).predicate("c.ii", by="zfill"))
    assert "c_ii" not in edges(device_loops(plan, "k").function)
    with pytest.raises(CompileError, match="S0222"):
        device_loops(proven(program, tiled(program).predicate("c.ki", by="zfill")), "k")


def test_only_blocks_can_take_turns():
    program = program_of("product", *values("product", *SIZES))
    with pytest.raises(CompileError, match="S0223"):
        proven(program, shaped(program, EMPTY.persistent("ko", 4), PLAIN))
