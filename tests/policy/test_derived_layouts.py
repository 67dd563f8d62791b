"""Layouts that the derived schedule would like keep every element, also those that the contraction they are made for does not read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduled_programs import declared

import tensorlang as tl
from codegen.dtypes import i8, u8
from codegen.llvm.target import named
from polyhedral import affine
from polyhedral.expr import Floor, Name
from tensorlang.backends.cpu.driver import compile_kernel, machine_of
from tensorlang.check.module import load_module
from tensorlang.diagnostics import InternalError, Source
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.cpu.layouts import derive_layouts
from tensorlang.schedule.injective import fault
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.plan import Storage
from tensorlang.schedule.storage import blocked, stored_as
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show
from tensorlang.tensor.lift import lift

MACHINE = machine_of(named("x86-64-v3"), 1)
SIZES = {"J": 20, "K": 9, "B": 2, "3": 3, "1": 1}
FIXED = {"3": "2", "1": "0"}
"""Where the axes that no loop goes through are read."""


@st.composite
def weights(draw: st.DrawFn) -> tuple[list[list[str]], str]:
    """Return the dimensions of w, each one or several axes, and the batch that goes before: `[["3", "J"], ["K"]], ""`."""
    batch = draw(st.sampled_from(["", "B"]))
    axes = draw(st.permutations(["J", "K", *([batch] if batch else []), *draw(st.lists(st.sampled_from(["3", "1"]), max_size=2))]))
    cuts = [draw(st.booleans()) for _ in axes[1:]]
    dims = [[axes[0]]]
    for axis, joined in zip(axes[1:], cuts, strict=True):
        if joined:
            dims[-1].append(axis)
        else:
            dims.append([axis])
    return dims, batch


@settings(max_examples=60, deadline=None)
@given(weights())
def test_weights_of_which_a_part_is_read_keep_their_other_parts(case: tuple[list[list[str]], str]) -> None:
    dims, batch = case

    def listed(of: dict[str, str]) -> str:
        return ", ".join(of[d[0]] if len(d) == 1 else f"({', '.join(of[a] for a in d)})" for d in dims)

    index = {"J": "j", "K": "k", "B": "b", **FIXED}
    names = {"J": "J", "K": "K", "B": "B", "3": "3", "1": "1"}
    lead, at = ("B, ", "b, ") if batch else ("", "")
    signature = f"op f(x: f32[{lead}7, K], w: f32[{listed(names)}]) -> (y: f32[{lead}7, J])"
    text = f"{signature} {{ y[{at}i, j] = sum(k) x[{at}i, k] * w[{listed(index)}] }}"
    x = np.zeros((2, 7, 9) if batch else (7, 9), np.float32)
    w = np.zeros([int(np.prod([SIZES[a] for a in d])) for d in dims], np.float32)
    wished = derive_layouts(tl.parse(text).f.program(x, w), MACHINE, {}, frozenset({"w"}))
    assert "w" in wished
    assert all(fault(layout, {"w": w, "x": x}.get(name, x).shape) is None for name, layout in wished.items() if name in ("w", "x"))


def test_a_layout_that_loses_elements_is_never_planned_for() -> None:
    program = tl.parse("op f(x: f32[8]) -> (y: f32[8]) { y[i] = x[i] + 1 }").f.program(np.zeros(8, np.float32))
    halves = Layout(("a",), (Floor(Name("a"), 2),), (4,))
    with pytest.raises(InternalError, match=r"`x` of `f` .*: the elements \[0\] and \[1\] share one cell"):
        compile_kernel(program, named("x86-64-v3"), layouts={"x": halves})


@pytest.mark.parametrize("dots", [True, False])
def test_pictures_of_bytes_are_copied_into_blocks_where_neighbouring_channels_are_multiplied_together(dots: bool) -> None:
    text = """op f(x: u8[1, C, P, Q], w: i8[F, C]) -> (y: i32[1, F, P, Q]) {
    y[n, f, p, q] = sum(c) i32(x[n, c, p, q]) * i32(w[f, c])
}
"""
    program = tl.parse(text).f.program(np.zeros((1, 64, 20, 20), np.uint8), np.zeros((64, 64), np.int8))
    machine = replace(MACHINE, dots=frozenset({(u8, i8)}) if dots else frozenset())
    wished = derive_layouts(program, machine, {}, frozenset({"w"}), frozenset({"x", "y"}))
    assert ("y" in wished) == dots


def test_weights_of_a_recurrence_lie_for_lanes_along_columns_and_not_for_dot_products() -> None:
    text = """op f(r: i8[H, H], x: u8[L, H]) -> (y: u8[L + 1, H]) {
        y[0, j]     = 1
        z[t, j]     = sum[i32](m) i32(y[t, m]) * i32(r[m, j])  for t in 0..L
        y[t + 1, j] = u8(z[t, j] // 256) + x[t, j]
    }"""
    program = tl.parse(text).f.program(np.zeros((64, 64), np.int8), np.zeros((9, 64), np.uint8))
    machine = replace(MACHINE, dots=frozenset({(u8, i8)}))
    assert len(derive_layouts(program, machine, {}, frozenset({"r"}))["r"].dims) == 3


GROUPED = """op f(x: u8[1, (G, C), P, Q], w: i8[(G, F), C, 3, 3]) -> (y: i32[1, (G, F), P - 2, Q - 2]) {
    y[n, (g, f), p, q] = sum(c, r, s) i32(x[n, (g, c), p + r, q + s]) * i32(w[(g, f), c, r, s])
}
"""


@pytest.mark.parametrize(
    ("channels", "filters", "dots", "blocks"),
    [
        (24, 40, True, (8, 8)),
        (4, 8, True, (4, 8)),
        (16, 20, True, (8, 4)),
        (6, 8, True, (1, 8)),
        (4, 8, False, (1, 8)),
        (8, 4, True, (8, 4)),
        (8, 4, False, (1, 1)),
    ],
)
def test_channels_of_a_group_lie_in_the_longest_blocks_that_cut_them_where_dot_products_take_them(
    channels: int, filters: int, dots: bool, blocks: tuple[int, int]
) -> None:
    x, w = np.zeros((1, 2 * channels, 20, 20), np.uint8), np.zeros((2 * filters, channels, 3, 3), np.int8)
    machine = replace(MACHINE, dots=frozenset({(u8, i8)}) if dots else frozenset())
    wished = derive_layouts(tl.parse(GROUPED).f.program(x, w), machine, {}, frozenset({"w"}))
    found = {name: layout.shape[-1] for name, layout in wished.items() if len(layout.shape) == 5}
    assert (found.get("x", 1), found.get("y", 1)) == blocks


@pytest.mark.parametrize(
    ("size", "window", "stride", "outside", "in_blocks"),
    [
        (28, 2, 2, 0, False),  # 14 elements in vectors of 8: no copies for the sake of two lanes
        (12, 2, 2, 0, False),  # 6 elements, all windows inside
        (28, 3, 1, 1, False),
        (7, 3, 1, 1, True),  # every vector along a row is read under a mask
        (7, 3, 2, 1, True),
    ],
)
def test_what_is_pooled_is_copied_into_blocks_where_masks_cost_more_than_the_copies(
    size: int, window: int, stride: int, outside: int, in_blocks: bool
) -> None:
    made = (size + 2 * outside - window) // stride + 1
    text = f"""op f(x: f32[1, C, H, W]) -> (y: f32[1, C, {made}, {made}]) {{
        y[n, c, p, q] = sum(r in 0..{window}, s in 0..{window}) x[n, c, p*{stride} + r - {outside}, q*{stride} + s - {outside} | 0]
    }}"""
    program = tl.parse(text).f.program(np.zeros((1, 64, size, size), np.float32))
    fixed, free = (derive_layouts(program, MACHINE, {}, frozenset(), frozenset(names)) for names in (("x", "y"), ()))
    assert fixed.keys() == ({"x", "y"} if in_blocks else set())
    assert free.keys() == {"x", "y"}, "between kernels nothing is copied"


def test_weights_of_channels_that_are_loaded_for_each_vector_of_a_row_are_better_read_along_channels() -> None:
    for size, in_blocks in ((3, False), (5, True)):
        text = f"""op f(x: f32[1, C, H, W], w: f32[C, {size}, {size}]) -> (y: f32[1, C, H, W]) {{
            y[n, c, p, q] = sum(r, s) x[n, c, p + r - {size // 2}, q + s - {size // 2} | 0] * w[c, r, s]
        }}"""
        program = tl.parse(text).f.program(np.zeros((1, 96, 20, 20), np.float32), np.zeros((96, size, size), np.float32))
        assert ("y" in derive_layouts(program, MACHINE, {}, frozenset({"w"}), frozenset({"x", "y"}))) == in_blocks


@pytest.mark.parametrize("in_blocks", [True, False])
def test_weights_of_channels_lie_in_blocks_where_images_of_open_sizes_do(in_blocks: bool) -> None:
    text = """op f(x: f32[N, 96, H, W], w: f32[96, 1, 3, 3]) -> (y: f32[N, 96, H, W]) {
        y[n, c, p, q] = sum(r, s) x[n, c, 2*p + r, 2*q + s | 0] * w[c, 0, r, s]
    }"""
    program = declared(load_module(parse(Source("f.tl", text))), "f")

    def blocks(*axes: str) -> Storage:
        images, channels, *points = map(Name, axes)
        counts = (Name("N"), affine.to_expr(96 // 8), Name("H"), Name("W"), affine.to_expr(8))
        return Storage((images, affine.floor(channels, 8), *points, affine.mod(channels, 8)), counts)

    stored = {"y": blocks("n", "c", "p", "q")} if in_blocks else {}
    wished = derive_layouts(program, MACHINE, stored, frozenset({"w"}), frozenset({"x", "y"} - stored.keys()), {"N": 2, "H": 56, "W": 57})
    assert ("w" in wished) == in_blocks and wished.keys() <= {"w"}


def test_images_of_which_few_channels_are_made_are_read_along_rows() -> None:
    text = """op f(x: f32[1, C, H, W], w: f32[F, C, R, S]) -> (y: f32[1, F, H - R + 1, W - S + 1]) {
        y[n, f, p, q] = sum(c, r, s) x[n, c, p + r, q + s] * w[f, c, r, s]
    }"""
    x = np.zeros((1, 32, 20, 30), np.float32)
    few, many = (np.zeros((features, 32, 3, 3), np.float32) for features in (3, 32))
    along_rows = derive_layouts(tl.parse(text).f.program(x, few), MACHINE, {}, frozenset({"w"}))["x"]
    in_blocks = derive_layouts(tl.parse(text).f.program(x, many), MACHINE, {}, frozenset({"w"}))["x"]
    assert along_rows.shape == x.shape and len(in_blocks.shape) == 5


def test_heads_of_attention_are_no_channels_however_many_there_are() -> None:
    text = """op f(q: f32[B, H, S, D], k: f32[B, H, T, D]) -> (y: f32[B, H, S, T]) {
        y[n, h, i, j] = sum(c) q[n, h, i, c] * k[n, h, j, c]
    }"""
    for heads, queries in ((16, 1), (32, 17)):
        q, k = np.zeros((1, heads, queries, 32), np.float32), np.zeros((1, heads, 100, 32), np.float32)
        wished = derive_layouts(tl.parse(text).f.program(q, k), MACHINE, {}, frozenset())
        assert all(layout.shape in (q.shape, k.shape) for layout in wished.values()) and "y" not in wished


def test_nothing_is_wished_of_what_goes_where_data_say() -> None:
    """In blocks of terms, all of these would be asked for every element whether they are for it."""
    text = """op f(x: f32[24, 6, 10, 3], ids: i64[40] in 0..24, u: f32[40, 6, 10, 3]) -> (y: f32[24, 6, 10, 3]) {
        y[n, a, b, c] = sum(k, ids[k] == n, from x[n, a, b, c]) u[k, a, b, c]
    }"""
    x, u = np.zeros((24, 6, 10, 3), np.float32), np.zeros((40, 6, 10, 3), np.float32)
    assert derive_layouts(tl.parse(text).f.program(x, np.zeros(40, np.int64), u), MACHINE, {}, frozenset()) == {}


@pytest.mark.parametrize("channels", [32, 16, 8])
def test_sums_over_blocks_of_channels_have_channels_as_lanes(channels: int) -> None:
    """Groups of channels normalised where 16 channels of a place lie side by side: of a row of the image no two elements do."""
    x, each = np.zeros((1, 64, 6, 6), np.float32), np.zeros(64, np.float32)
    program = lift(tl.std.group_norm.program(x, each, each, groups=64 // channels))
    stored = stored_as(program, dict.fromkeys(("x", "y"), blocked(4, 1, 16, (1, 64, 6, 6))))
    directives = [show(d) for d in derive(program, machine_of(named("x86-64-v4"), 1), stored).directives]
    assert {f"vectorize {name}.c_v" for name in ("mean", "v", "y")} <= {*directives}
    assert not any(d.startswith("at ") for d in directives)
