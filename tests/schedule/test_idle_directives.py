"""A directive that was applied and changes nothing is named by `explain`: nobody has to find out from the loops."""

from __future__ import annotations

import numpy as np
import pytest
from golden_case import GOLDEN, source
from scheduled_programs import written

import tensorlang as tl
from tensorlang.schedule.apply import apply
from tensorlang.schedule.idle import idle_directives

CLUSTER = source(GOLDEN / "schedules" / "cluster.tl")

PRODUCT = "op f(a: f32[8, 8], b: f32[8, 8]) -> (c: f32[8, 8]) { c[i, j] = sum(k) a[i, k] * b[k, j] }"
COPIED = "split k by {} -> ko, ki\norder ko, i, j, ki\npack b at ko as [k, j]\n"
PIECES = "op f(x: f32[8]) -> (y: f32[8]) {\n    y[i] = x[i] for i < 4\n    y[i] = 0 otherwise\n}"

EDGES = "op f(a: f32[8, 8], b: f32[8, 8]) -> (y: f32[8, 8]) { y[i, j] = a[i - 1, j | clamp] * b[i, j] }"
NOTHING = "there is no range of `{}` in which more is decided about edges than elsewhere"

SELECTED = "op f(a: f32[8, 8], b: f32[8, 8]) -> (y: f32[8]) { y[i] = sum(j, a[i, j] > 0) b[i, j] }"


def explained(text: str, schedule: str) -> list[str]:
    operator = tl.parse(text, threads=1).f.schedule(schedule)
    arrays = [np.ones((8, 8), np.float32)] * 2 if text != PIECES else [np.ones(8, np.float32)]
    return [line for line in operator.explain(*arrays).splitlines() if line.startswith("# ")]


@pytest.mark.parametrize(
    ("text", "schedule", "said"),
    [
        (PRODUCT, COPIED.format(8) + "stages ko by 2", ["# `stages ko by 2` changes nothing: `c.ko` runs once, so nothing runs ahead"]),
        (PRODUCT, COPIED.format(4) + "stages ko by 1", ["# `stages ko by 1` changes nothing: one stage is none ahead"]),
        (PRODUCT, COPIED.format(4) + "stages ko by 2", []),
        (PRODUCT, "distribute c", ["# `distribute c` changes nothing: `c` has one piece"]),
        (PIECES, "distribute y", []),
        (EDGES, "partition i", []),
        (
            PIECES,
            "cut i at 0 -> a, b\npartition a",
            [
                "# `cut i at 0 -> a, b` changes nothing: no iteration of `y.i` is in one of the parts",
                f"# `partition a` changes nothing: {NOTHING.format('y.a')}",
            ],
        ),
        (
            SELECTED,
            "order y.j, y.i\nstream y",
            ["# `stream y` changes nothing: nothing stores `y` in one go: it is added up where it lies, or has no elements"],
        ),
        (EDGES, "partition j", [f"# `partition j` changes nothing: {NOTHING.format('y.j')}"]),
        (EDGES, "split i by 5 -> a, b\npartition b", []),
        (EDGES, "split j by 3 -> a, b\nvectorize b\npartition b", [f"# `partition b` changes nothing: {NOTHING.format('y.b')}"]),
        (EDGES, "split j by 8 -> a, b\npartition i, a", ["# `partition i, a` changes nothing: `y.a` runs once, so it has no interior"]),
    ],
)
def test_what_changes_nothing_is_said(text: str, schedule: str, said: list[str]) -> None:
    assert explained(text, schedule) == said


BLUR = """op f(a: f32[8, 8], b: f32[8, 8]) -> (y: f32[8, 8]) {
    h[i, j] = a[i, j - 1 | 0] + a[i, j]
    y[i, j] = h[i - 1, j | 0] * b[i, j]
}"""
SAME = "changes nothing: the other directives make the same plan"


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ("at h at y.i\nat h at y.j", ["at h at y.i"]),
        ("order y.i, y.j", ["order y.i, y.j"]),
        ("order y.j, y.i\norder y.i, y.j", ["order y.j, y.i"]),
        ("root h", ["root h"]),
        ("shift y.i by 0", ["shift y.i by 0"]),
        ("store_at h at root", ["store_at h at root"]),
        ("trim h.i", []),
        ("split y.i by 4 -> io, ii\norder io, ii", ["order io, ii"]),
        ("cut y.i at 3 -> top, low\nparallel low", []),
        ("affine y (i + j, j) -> d, j", []),
        ("affine y (i, j) -> i, j", ["affine y (i, j) -> i, j"]),
        ("shift y.i by 2", ["shift y.i by 2"]),
        ("reverse y.i", []),
        ("skew y.j by y.i", ["skew y.j by y.i"]),
        ("skew y.j by y.i\norder y.j, y.i", []),
        ("skew y.i by y.j", []),
        ("together h, y -> i", []),
        ("shift y.i by 1\ntogether h, y -> i", []),
    ],
)
def test_what_another_directive_undoes_or_what_was_so_is_said(schedule: str, said: list[str]) -> None:
    assert explained(BLUR, schedule) == [f"# `{directive}` {SAME}" for directive in said]


@pytest.mark.parametrize(
    ("directive", "idle"),
    [
        ("skew y.i by y.j", True),
        ("skew y.j by y.i", True),
        ("shift y.j by 1", True),
        ("reverse y.j", True),
        ("unroll y.j", True),
        ("vectorize y.j", True),
        ("parallel y.j", True),
        ("reverse y.i", False),
        ("unroll y.i", False),
    ],
)
def test_what_is_said_of_a_loop_of_one_iteration_changes_nothing(directive: str, idle: bool) -> None:
    operator = "op f(x: f32[9, 1]) -> (y: f32[9, 1]) {\n    y[i, j] = 2 * x[i, j]\n}\n"
    found = written(f"{operator}schedule f for cpu {{\n    {directive}\n}}\n")
    told = list(idle_directives(found.program, found.schedule, apply(found.program, found.schedule)))
    assert told == [f"`{directive}` {SAME}"] * idle


def test_parts_without_iterations_are_said() -> None:
    assert explained(BLUR, "cut y.i at 9 -> top, low") == [
        "# `cut y.i at 9 -> top, low` changes nothing: no iteration of `y.i` is in one of the parts"
    ]
    assert explained(BLUR, "prefetch a at h.i by 0") == ["# `prefetch a at h.i by 0` changes nothing: what is read at once is not ahead"]


def test_a_cluster_of_one_block_is_none() -> None:
    found = written(CLUSTER, "cluster.tl")
    assert apply(found.program, found.schedule).idle == ()
    alone = "\n".join(line.replace("by 2", "by 1") for line in CLUSTER.splitlines() if "multicast" not in line)
    found = written(alone, "cluster.tl")
    assert [line.split(" changes")[0] for line in apply(found.program, found.schedule).idle] == ["`cluster jo by 1`"]


BLOCKS = """op square(a: f32[12, 12], b: f32[12, 12]) -> (c: f32[12, 12]) {{
    c[i, j] = sum(k) a[i, k] * b[k, j]
}}
schedule square for cuda {{
    tile c (i, j) by ({}, {}) -> io, jo, ii, ji
    {}
}}"""


@pytest.mark.parametrize(
    ("tile", "directives", "said"),
    [
        (
            (2, 2),
            "raster io, jo by 1 -> ig, ir",
            ["`raster io, jo by 1 -> ig, ir` changes nothing: it goes through the tiles as they were"],
        ),
        (
            (2, 12),
            "raster io, jo by 4 -> ig, ir",
            ["`raster io, jo by 4 -> ig, ir` changes nothing: it goes through the tiles as they were"],
        ),
        (
            (12, 2),
            "raster jo, io by 2 -> jg, jr",
            ["`raster jo, io by 2 -> jg, jr` changes nothing: it goes through the tiles as they were"],
        ),
        ((2, 2), "raster io, jo by 4 -> ig, ir", []),
        ((2, 2), "raster jo, io by 1 -> jg, jr", []),
    ],
)
def test_a_raster_that_leaves_tiles_in_their_order_is_named(tile: tuple[int, int], directives: str, said: list[str]) -> None:
    found = written(BLOCKS.format(*tile, directives), "raster.tl")
    assert list(apply(found.program, found.schedule).idle) == said


@pytest.mark.parametrize(("count", "named"), [(8, False), (9, True), (132, True)])
def test_as_many_persistent_blocks_as_there_are_places_take_no_turns(count: int, named: bool) -> None:
    bound = f"bind io, jo to block.y, block.x\n    persistent jo by {count}"
    found = written(BLOCKS.format(4, 4, bound), "persistent.tl")
    why = "there are 9 places in the grid, so no block takes a second turn"
    assert list(apply(found.program, found.schedule).idle) == ([f"`persistent jo by {count}` changes nothing: {why}"] if named else [])
