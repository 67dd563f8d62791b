"""Layouts as a caller sees an array, and as a schedule sees its axes: one becomes the other and back."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedule_trial import Outcome, trial
from strategies_schedule import Case, family

import tensorlang as tl
from codegen.dtypes import f32
from polyhedral import affine
from polyhedral.expr import Int, Name
from tensorlang.graph.programs import copy_program
from tensorlang.schedule.flattened import flattened
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.plan import Storage
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import innermost_axis
from tensorlang.schedule.storage import axis_names, blocked, in_blocks, row_major, to_layout, to_storage
from tensorlang.tensor import notation
from tensorlang.tensor.nodes import Program, Tensor
from tensorlang.tensor.walk import substitute_sizes, tensor_table

GROUPED = "op f(x: f32[N, (g, C)], attr g: int = 1) -> (y: f32[N, g, C]) { y[n, a, c] = x[n, (a, c)] }"


def program(g: int, c: int) -> Program:
    return tl.parse(GROUPED).f.program(np.zeros((2, g * c), np.float32), g=g)


def cells(layout: Layout, shape: tuple[int, ...]) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Return the cell of every element of an array."""
    return {p: tuple(int(affine.evaluate(d, dict(zip(layout.axes, p, strict=True)))) for d in layout.dims) for p in np.ndindex(*shape)}


def inside(layout: Layout, shape: tuple[int, ...]) -> bool:
    return all(0 <= i < n for cell in cells(layout, shape).values() for i, n in zip(cell, layout.shape, strict=True))


@given(st.integers(1, 3), st.integers(0, 2), st.integers(1, 6), st.data())
def test_blocks_put_every_element_into_a_cell_of_its_own(rank: int, axis: int, block: int, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.integers(1, 7)) for _ in range(rank))
    layout = blocked(rank, axis % rank, block, shape)
    where = cells(layout, shape)
    assert len(set(where.values())) == len(where)
    assert inside(layout, shape)


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 5))
def test_a_layout_over_axes_and_back_is_the_same_layout(g: int, c: int, block: int) -> None:
    p = program(g, c)
    for layout in (row_major(tensor_table(p)["x"]), blocked(2, 1, block, (2, g * c))):
        again = to_layout(p, "x", to_storage(p, "x", layout))
        assert again is not None
        assert again.shape == layout.shape
        assert cells(again, (2, g * c)) == cells(layout, (2, g * c))


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 5))
def test_an_axis_of_a_composite_dimension_finds_the_cell_of_its_element(g: int, c: int, block: int) -> None:
    p, layout = program(g, c), blocked(2, 1, block, (2, g * c))
    storage, names = to_storage(p, "x", layout), axis_names(p, "x")
    where = cells(layout, (2, g * c))
    for n, a, k in product(range(2), range(g), range(c)):
        point = dict(zip(names, (n, a, k), strict=True))
        assert tuple(int(affine.evaluate(d, point)) for d in storage.dims) == where[n, a * c + k]


def test_blocks_that_groups_divide_are_told_by_the_axes_of_the_groups() -> None:
    """Of 16 channels side by side, 8 are one group: `(8 * a + c) % 16` goes along `c`."""
    storage = to_storage(program(4, 8), "x", blocked(2, 1, 16, (2, 32)))
    assert [notation.show(d) for d in storage.dims] == ["a0", "a1 // 2", "a2 + 8*(a1 % 2)"]
    assert innermost_axis(storage) == "a2"


@pytest.mark.parametrize(("axis", "block", "fits"), [(1, 4, True), (2, 4, True), (2, 5, False), (1, 3, False)])
def test_blocks_of_an_axis_need_a_dimension_on_which_it_runs_on(axis: int, block: int, fits: bool) -> None:
    x = tensor_table(program(1, 8))["x"] if axis == 2 and fits else tensor_table(program(2, 8))["x"]
    found = in_blocks(x, axis, block)
    if axis == 1:
        assert found is None
    else:
        assert (found is not None) == fits


def test_open_shapes_have_no_layout() -> None:
    assert in_blocks(Tensor("x", tensor_table(program(1, 1))["x"].dtype, (Name("n"), Int(4))), 0, 4) is None


# ---------------------------------------------------------------- merged axes


@given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(0, 3), st.integers(2, 4))
def test_merged_axes_lie_where_they_lay(shape: list[int], axis: int, block: int) -> None:
    copy = copy_program(f32, tuple(shape))
    stored = {"x": to_storage(copy, "x", blocked(len(shape), axis % len(shape), block, tuple(shape)))}
    flat, merged = flattened(copy, stored)
    assert places(flat, "x", merged["x"]) == places(copy, "x", stored["x"])


def places(program: Program, name: str, storage: Storage) -> list[int]:
    """Return where in memory the elements of a tensor lie, in row-major order."""
    box = [affine.constant(n) or 0 for n in tensor_table(program)[name].shape]
    extents = [affine.constant(n) or 0 for n in storage.shape]
    points = (dict(zip(axis_names(program, name), p, strict=True)) for p in np.ndindex(*box))
    return [int(np.ravel_multi_index([int(affine.evaluate(d, p)) for d in storage.dims], extents)) for p in points]


def test_axes_next_to_each_other_in_a_layout_become_one() -> None:
    copy = copy_program(f32, (2, 32, 7, 5))
    flat, merged = flattened(copy, {"x": to_storage(copy, "x", blocked(4, 1, 16, (2, 32, 7, 5)))})
    assert [d.axes for d in flat.definitions] == [("i0", "i1", "i2_i3")]
    assert [str(affine.constant(n)) for n in merged["x"].shape] == ["2", "2", "35", "16"]


@pytest.mark.parametrize(
    "layout",
    [
        Layout(("a", "b"), (Name("b"), Name("a")), (5, 3)),
        Layout(("a", "b"), (Name("a"), Name("b")), (3, 6)),
        Layout(("a", "b"), (Name("a"), affine.add(Name("b"), Int(1))), (3, 7)),
        Layout(("a", "b"), (affine.floor(Name("a"), 2), Name("b"), affine.mod(Name("a"), 2)), (2, 5, 2)),
    ],
    ids=["transposed", "with a gap after rows", "with a border", "in blocks"],
)
def test_axes_that_a_layout_takes_apart_stay(layout: Layout) -> None:
    copy = copy_program(f32, (3, 5))
    stored = {"x": to_storage(copy, "x", layout)}
    assert flattened(copy, stored) == (copy, stored)


@pytest.mark.parametrize("rows", [0, 6])
@pytest.mark.parametrize("stored", ["input", "result"])
def test_merged_axes_of_what_the_caller_stores_in_blocks_hold_the_same_elements(stored: str, rows: int) -> None:
    copy = copy_program(f32, (rows, 2, 5))
    name = copy.params[0].name if stored == "input" else copy.results[0]
    layouts = {name: to_storage(copy, name, blocked(3, 0, 4, (rows, 2, 5)))}
    assert trial(Case(copy, {}, Schedule(copy.name).flatten(), layouts), 1, natively=True) == Outcome("accepted")


def test_products_keep_the_axes_that_layouts_were_chosen_for() -> None:
    text = "op f(x: f32[C, H, W], w: f32[C, F]) -> (y: f32[F, H, W]) { y[f, h, w_] = sum(c) x[c, h, w_] * w[c, f] }"
    product = tl.parse(text).f.program(np.zeros((32, 7, 5), np.float32), np.zeros((32, 8), np.float32))
    stored = {"x": to_storage(product, "x", blocked(3, 0, 16, (32, 7, 5)))}
    assert len(flattened(product, {})[0].definitions[0].axes) == 2
    assert flattened(product, stored) == (product, stored)


# ---------------------------------------------------------------- indices from data


@pytest.mark.parametrize("schedule", [Schedule("bag"), Schedule("bag").pack("ids")], ids=["read", "copied"])
@pytest.mark.parametrize("count", [None, 1, 2, 4, 6])
def test_indices_that_the_caller_stores_in_blocks_are_proven_though_a_block_is_not_full(count: int | None, schedule: Schedule) -> None:
    """`count`: how many there are, None where that is known only when the kernel runs."""
    bag = family("bag", f32)
    bag = bag if count is None else substitute_sizes(bag, {"K": Int(count)})
    sizes = {"R": 5, "N": 3, "K": 6}
    place, extent = Name("a0"), Name("K") if count is None else Int(count)
    layouts = {"ids": Storage((affine.floor(place, 4), affine.mod(place, 4)), (affine.ceil_div(extent, 4), Int(4)))}
    case = Case(bag, {s: sizes[s] for s in bag.sizes}, schedule, layouts)
    assert trial(case, 1, natively=False) == Outcome("accepted")


def test_a_copy_of_what_is_stored_without_dimensions_is_packed_again() -> None:
    product = substitute_sizes(family("triangle", f32), {"N": Int(1)})
    schedule = Schedule("triangle").pack("b").pack("b.pack")
    layouts = {"b": Storage((Int(0), Int(0)), (Int(1), Int(1)))}
    outcome = trial(Case(product, {}, schedule, layouts), 1, natively=False)
    assert outcome == Outcome("accepted"), outcome.text


@pytest.mark.parametrize(
    "lines",
    [
        "pack a in y.i at y.i",
        "pack a in y.i at y.i as [y.k]\n    pack a in y.j at y.jo as [y.k, y.jt]",
        "layout b as [y.jo, y.k, y.jt]\n    pack a in y.k",
    ],
    ids=["one of two reads", "each read by itself", "a layout in the loops of what reads it"],
)
def test_reads_of_one_tensor_are_arranged_one_by_one(lines: str) -> None:
    body = "b[i, j] = a[i, j] + 1 for i in 0..N, j in 0..N\n    y[i, j] = sum(k) a[i, k] * (a[k, j] + b[k, j])"
    text = f"op f(a: f32[N, N]) -> (y: f32[N, N]) {{\n    {body}\n}}\n"
    text += f"schedule f for cpu {{\n    split y.j by 4 -> jo, jt\n    order y.jo, y.i, y.jt\n    {lines}\n}}"
    a = np.arange(49, dtype=np.float32).reshape(7, 7) % 5
    assert np.array_equal(tl.parse(text).f(a), a @ (2 * a + 1))


def test_a_copy_of_one_read_does_not_stand_in_the_way_of_another_by_the_name_of_an_axis() -> None:
    text = "op f(a: f32[N, K]) -> (y: f32[N, N]) {\n    y[i, j] = sum(k) a[i, k] * a[j, k]\n}\n"
    a = np.arange(35, dtype=np.float32).reshape(7, 5)
    square = tl.parse(text + "schedule f for cpu {\n    pack a in j as [k, j]\n    pack a in i as [k, i]\n}").f
    assert np.array_equal(square(a), a @ a.T)


def test_divisions_that_the_extents_of_axes_decide_are_carried_out_wherever_they_stand() -> None:
    grouped = program(3, 326)
    apart, along = affine.floor(Name("n"), 326), affine.mod(Name("n"), 326)
    layout = Layout(("m", "n"), (Name("m"), apart, affine.floor(along, 192), affine.mod(along, 192)), (2, 3, 2, 192))
    m, group, column = axis_names(grouped, "x")
    expected = (Name(m), Name(group), affine.floor(Name(column), 192), affine.mod(Name(column), 192))
    assert to_storage(grouped, "x", layout).dims == expected
