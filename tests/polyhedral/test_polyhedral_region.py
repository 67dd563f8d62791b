"""Footprints cover what is touched with constant extents; storage maps are accepted exactly when no live value is lost."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import islpy as isl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polyhedral_programs import (
    BLUR,
    HEAT,
    MATMUL,
    M,
    N,
    box,
    i,
    in_sequence,
    j,
    le,
    lt,
    nest,
    plus,
    slide,
    t,
    timeline,
    under,
    x,
    y,
)

from polyhedral.affine import evaluate, holds
from polyhedral.errors import NestError
from polyhedral.expr import TRUE, Add, And, Expr, Floor, Int, Mod, Name, Scale
from polyhedral.legality import check
from polyhedral.model import ANYWHERE, Access, Leaf, Loop, Mark, Scop, Statement, Tensor
from polyhedral.region import Footprint, footprint, place_at
from polyhedral.schedule import Schedule
from polyhedral.storage import Cells, Clobber, Collision, Outside, fold_factor, injective, laid_out, validate
from polyhedral.text import show
from polyhedral.verdict import Proven


def texts(found: Footprint) -> tuple[list[str], list[str]]:
    return [show(e) for e in found.origin], [str(e) if isinstance(e, int) else show(e) for e in found.extent]


def tiled_blur() -> Schedule:
    consumer = nest(BLUR, "by").split("y", 8, "yo", "yi").split("x", 16, "xo", "xi").reorder(["yo", "xo", "yi", "xi"])
    return in_sequence(BLUR, nest(BLUR, "bx"), consumer)


def test_the_footprint_of_a_stencil_tile_has_its_halo() -> None:
    found = footprint(tiled_blur(), "bx", ["by"], 2)
    assert texts(found) == (["8*yo", "16*xo"], ["10", "16"])


def test_the_footprint_of_the_whole_nest_is_the_tensor() -> None:
    assert texts(footprint(tiled_blur(), "in", ["bx"], 0)) == (["0", "0"], ["H + 2", "W + 2"])


def test_the_footprints_of_a_matmul_tile() -> None:
    c = nest(MATMUL, "C").split("i", 4, "io", "ii").split("k", 8, "ko", "ki").reorder(["io", "ko", "j", "ii", "ki"])
    schedule = in_sequence(MATMUL, nest(MATMUL, "C.init"), c)
    assert texts(footprint(schedule, "A", ["C"], 2)) == (["4*io", "8*ko"], ["4", "8"])
    assert texts(footprint(schedule, "B", ["C"], 2)) == (["8*ko", "0"], ["8", "N"])
    assert texts(footprint(schedule, "C", ["C"], 5)) == (["4*io + ii", "j"], ["1", "1"])


def test_the_footprint_of_two_readers_holds_what_either_touches() -> None:
    readers = [Statement(n, ("i",), box(i=N), Access(n, (i,)), (Access("a", (plus(i, at),)),)) for n, at in (("b", 0), ("c", 3))]
    scop = Scop(("N",), TRUE, (Tensor("a", (plus(N, 3),)), Tensor("b", (N,)), Tensor("c", (N,))), frozenset({"a"}), tuple(readers))
    nests = {n: nest(scop, n).split("i", 4, "io", "ii") for n in "bc"}
    schedule = Schedule(scop, nests, under(["io"], (*under(["ii"], (Leaf("b"),)), *under(["ii"], (Leaf("c"),)))))
    assert texts(footprint(schedule, "a", ["b", "c"], 1)) == (["4*io"], ["7"])


def test_padding_as_a_domain_keeps_the_footprint_constant() -> None:
    r = Name("r")
    at = plus(Add(i, r), -1)
    domain = And((box(i=N, r=Int(3)), le(Int(0), at), lt(at, N)))
    statement = Statement("S", ("i", "r"), domain, Access("o", (i, r)), (Access("x", (at,)),))
    scop = Scop(("N",), TRUE, (Tensor("x", (N,)), Tensor("o", (N, Int(3)))), frozenset({"x"}), (statement,))
    schedule = in_sequence(scop, nest(scop, "S").split("i", 8, "io", "ii").reorder(["io", "r", "ii"]))
    assert texts(footprint(schedule, "x", ["S"], 1)) == (["8*io - 1"], ["10"])


def test_a_data_dependent_axis_is_taken_whole() -> None:
    statement = Statement("S", ("i", "j"), box(i=N, j=M), Access("o", (i, j)), (Access("x", (ANYWHERE, j)),))
    scop = Scop(("N", "M"), TRUE, (Tensor("x", (N, M)), Tensor("o", (N, M))), frozenset({"x"}), (statement,))
    schedule = in_sequence(scop, nest(scop, "S").split("j", 4, "jo", "ji").reorder(["jo", "i", "ji"]))
    assert texts(footprint(schedule, "x", ["S"], 2)) == (["0", "4*jo"], ["N", "4"])


def test_a_producer_placed_at_a_tile_counts_from_its_origin() -> None:
    (producer,) = place_at(tiled_blur(), ["bx"], ["bx"], ["by"], 2)
    assert producer.loops == ("yo", "xo", "y", "x")
    assert {n: show(e) for n, e in producer.iter_exprs().items()} == {"y": "8*yo + y", "x": "16*xo + x"}
    assert (producer.extent("y"), producer.extent("x")) == (10, 16)


def test_a_producer_that_writes_beside_its_iterators_is_placed_by_what_it_writes() -> None:
    define = Statement("a", ("i",), box(i=N), Access("a", (plus(i, 1),)))
    reader = Statement("b", ("i",), box(i=N), Access("b", (i,)), (Access("a", (plus(i, 1),)),))
    scop = Scop(("N",), TRUE, (Tensor("a", (plus(N, 1),)), Tensor("b", (N,))), frozenset(), (define, reader))
    consumer = nest(scop, "b").split("i", 4, "io", "ii")
    (producer,) = place_at(in_sequence(scop, nest(scop, "a"), consumer), ["a"], ["a"], ["b"], 1, {"a": {"i": "ai"}})
    assert (show(producer.iter_exprs()["i"]), producer.extent("ai")) == ("4*io + ai", 4)
    fused = Schedule(scop, {"a": producer, "b": consumer}, under(["io"], (*under(["ai"], (Leaf("a"),)), *under(["ii"], (Leaf("b"),)))))
    assert isinstance(check(fused, storage={"a": 1}, outputs=["b"]), Proven)


def test_a_recurrence_placed_where_its_last_step_is_read_has_the_steps_before() -> None:
    first = Statement("first", ("i", "t"), box(i=N, t=Int(1)), Access("a", (i, t)))
    step = Statement("step", ("i", "t"), And((box(i=N, t=Int(5)), le(Int(1), t))), Access("a", (i, t)), (Access("a", (i, plus(t, -1))),))
    reader = Statement("b", ("i",), box(i=N), Access("b", (i,)), (Access("a", (i, Int(4))),))
    scop = Scop(("N",), TRUE, (Tensor("a", (N, Int(5))), Tensor("b", (N,))), frozenset(), (first, step, reader))
    whole = in_sequence(scop, nest(scop, "first"), nest(scop, "step"), nest(scop, "b").split("i", 4, "io", "ii"))
    placed = place_at(whole, ["first", "step"], ["a"], ["b"], 1, {s: {"i": "ai"} for s in ("first", "step")})
    assert [(producer.extent("ai"), producer.extent("t")) for producer in placed] == [(4, 5), (4, 5)]


def test_placing_at_loops_that_consumers_do_not_share_is_refused() -> None:
    with pytest.raises(NestError, match="do not share 1 loops"):
        place_at(tiled_blur(), ["bx"], ["bx"], ["by", "bx"], 1)


def fused_heat() -> Schedule:
    nests = {"edge": nest(HEAT, "edge"), "step": nest(HEAT, "step")}
    return Schedule(HEAT, nests, under(["t"], (*under(["i"], (Leaf("edge"),)), *under(["i"], (Leaf("step"),)))))


def test_a_stencil_in_time_needs_two_planes() -> None:
    assert fold_factor(fused_heat(), "A", 0) == 2
    axes = {"A": ("t", "i")}
    assert isinstance(validate(fused_heat(), {"A": Cells((t, i), (2, None))}, axes=axes), Proven)
    lost = validate(fused_heat(), {"A": Cells((t, i), (1, None))}, axes=axes)
    assert isinstance(lost, Clobber) and (lost.params, lost.overwritten, lost.by) == ({"T": 1, "N": 3}, ("A", (0, 0)), ("A", (1, 0)))


def test_a_modulus_beyond_the_most_that_is_asked_for_is_none() -> None:
    assert fold_factor(fused_heat(), "A", 0, most=2) == 2
    assert fold_factor(fused_heat(), "A", 0, most=1) is None


@pytest.mark.parametrize(("mark", "cells"), [("serial", 1), ("vector", 4), ("parallel", 4)])
def test_iterations_that_run_at_once_need_a_cell_each(mark: Mark, cells: int) -> None:
    made = Statement("y", ("i",), box(i=N), Access("y", (i,)))
    read = Statement("z", ("i",), box(i=N), Access("z", (i,)), (Access("y", (i,)),))
    scop = Scop(("N",), TRUE, (Tensor("y", (N,)), Tensor("z", (N,))), frozenset(), (made, read))
    nests = {name: nest(scop, name).split("i", 4, "io", "ii") for name in ("y", "z")}
    schedule = Schedule(scop, nests, under(["io"], (Loop("ii", (Leaf("y"), Leaf("z")), mark),)))
    assert fold_factor(schedule, "y", 0) == cells


def test_values_that_come_backwards_need_as_many_cells_as_those_that_come_forwards() -> None:
    define = Statement("y", ("i",), box(i=N), Access("y", (i,)), (Access("y", (plus(i, 3),), lt(plus(i, 3), N)),))
    scop = Scop(("N",), TRUE, (Tensor("y", (N,)),), frozenset(), (define,))
    assert fold_factor(in_sequence(scop, nest(scop, "y").reverse("i")), "y", 0) == 3  # what is read last gives its cell to what is written


def test_an_output_may_not_be_folded_over_its_own_values() -> None:
    assert isinstance(validate(fused_heat(), {"A": Cells((t, i), (2, None))}, axes={"A": ("t", "i")}, outputs=["A"]), Clobber)


def elimination(mark: Mark, *, copied: bool, used: Expr | None = None) -> Schedule:
    """`A[t, i]` is `A[t - 1, i]` for `i < t`, and made of that and `A[t - 1, t - 1]` for others. `used`: of which
    `t` elements are read at the end."""
    back = plus(t, -1)
    before, pivot = Access("A", (back, i)), Access("A", (back, back), le(t, i))
    kept = (Access("A", (back, i), lt(i, t)),) if copied else ()
    first = Statement("first", ("t", "i"), box(t=Int(1), i=N), Access("A", (t, i)))
    step = Statement("step", ("t", "i"), And((box(t=N, i=N), le(Int(1), t))), Access("A", (t, i)), (before, pivot), copied=kept)
    last = Statement("last", ("i",), box(i=N), Access("y", (i,)), (Access("A", (used or t, i)),))
    statements = (first, step) if used is None else (first, step, last)
    scop = Scop(("N",), TRUE, (Tensor("A", (N, N)), Tensor("y", (N,))), frozenset(), statements)
    nests = {s.name: nest(scop, s.name) for s in statements}
    inner = (*under(["i"], (Leaf("first"),), {"i": mark}), *under(["i"], (Leaf("step"),), {"i": mark}))
    end = () if used is None else under(["i"], (Leaf("last"),))
    return Schedule(scop, nests, (*under(["t"], inner), *end))


@pytest.mark.parametrize(
    ("mark", "copied", "planes"), [("serial", True, 1), ("vector", True, 1), ("parallel", True, 2), ("serial", False, 2)]
)
def test_copies_of_an_element_may_take_its_cell_while_it_is_read_unless_threads_write_them(mark: Mark, copied: bool, planes: int) -> None:
    schedule = elimination(mark, copied=copied)
    assert fold_factor(schedule, "A", 0) == planes
    verdicts = [validate(schedule, {"A": Cells((t, i), (m, None))}, axes={"A": ("t", "i")}) for m in (1, 2)]
    assert [isinstance(v, Proven) for v in verdicts] == [planes == 1, True]


@pytest.mark.parametrize(("used", "proven"), [(i, True), (plus(N, -1), True), (Int(0), False), (plus(i, -1), False)])
def test_an_element_stays_in_the_cell_of_its_copies_up_to_the_step_that_changes_it(used: Expr, proven: bool) -> None:
    schedule = elimination("serial", copied=True, used=used)
    verdict = validate(schedule, {"A": Cells((t, i), (1, None))}, axes={"A": ("t", "i")}, outputs=["y"])
    assert isinstance(verdict, Proven) is proven


@pytest.mark.parametrize(("kept", "rows"), [(None, 3 * 4), (2, 3 * 4), (1, 4 + 4), (0, 6)])
def test_a_producer_makes_what_is_kept_in_the_first_iteration_that_needs_it(kept: int | None, rows: int) -> None:
    """Strips of two rows of a blur of four rows and one column: each row needs three, each strip four."""
    strips = in_sequence(BLUR, nest(BLUR, "bx"), nest(BLUR, "by").split("y", 2, "yo", "yi"))
    (producer,) = place_at(strips, ["bx"], ["bx"], ["by"], 2, {"bx": {"y": "py", "x": "px"}}, kept)
    made = producer.points.intersect_params(isl.Set("[H, W] -> { : H = 4 and W = 1 }"))
    assert made.count_val().to_python() == rows


def test_a_sliding_window_of_a_blur_needs_three_rows() -> None:
    schedule = sliding_blur({})
    assert fold_factor(schedule, "bx", 0) == 3
    verdicts = [validate(schedule, {"bx": Cells((y, x), (m, None))}, axes={"bx": ("y", "x")}) for m in (2, 3, 4)]
    assert [type(v) for v in verdicts] == [Clobber, Proven, Proven]


def sliding_blur(marks: Mapping[str, Mark]) -> Schedule:
    consumer = nest(BLUR, "by")
    (producer,) = place_at(in_sequence(BLUR, nest(BLUR, "bx"), consumer), ["bx"], ["bx"], ["by"], 1, {"bx": {"y": "py", "x": "px"}})
    tree = under(["y"], (*under(["py", "px"], (Leaf("bx"),)), *under(["x"], (Leaf("by"),))), marks)
    return Schedule(BLUR, {"bx": slide(producer, "y"), "by": consumer}, tree)


def test_a_fold_is_refused_when_parallel_iterations_share_it() -> None:
    schedule = sliding_blur({"y": "parallel"})
    assert isinstance(validate(schedule, {"bx": Cells((y, x), (3, None))}, axes={"bx": ("y", "x")}), Clobber)
    assert isinstance(validate(schedule, {"bx": Cells((y, x), (3, None))}, axes={"bx": ("y", "x")}, storage={"bx": 1}), Proven)


def shifted_copy(offset: int) -> Scop:
    at = plus(i, offset)
    read = Access("x", (at,), And((le(Int(0), at), lt(at, N))))
    statement = Statement("y", ("i",), box(i=N), Access("y", (i,)), (read,))
    return Scop(("N",), TRUE, (Tensor("x", (N,)), Tensor("y", (N,))), frozenset({"x"}), (statement,))


@pytest.mark.parametrize(("offset", "safe"), [(0, True), (1, True), (-1, False)])
def test_a_result_may_take_the_place_of_what_it_reads_if_nothing_later_does(offset: int, safe: bool) -> None:
    scop = shifted_copy(offset)
    maps = {"x": Cells((i,), (None,), "memory"), "y": Cells((i,), (None,), "memory")}
    verdict = validate(in_sequence(scop, nest(scop, "y")), maps, axes={"x": ("i",), "y": ("i",)})
    assert isinstance(verdict, Proven) == safe


@pytest.mark.parametrize(("order", "outputs", "safe"), [("uy", "y", True), ("yu", "y", False), ("yu", "", True), ("uy", "uy", False)])
def test_a_result_shares_cells_only_with_what_is_written_before_it(order: str, outputs: str, safe: bool) -> None:
    read = Access("x", (i,))
    statements = tuple(Statement(name, ("i",), box(i=N), Access(name, (i,)), (read,)) for name in "uy")
    scop = Scop(("N",), TRUE, tuple(Tensor(name, (N,)) for name in "xuy"), frozenset({"x"}), statements)
    maps = {name: Cells((i,), (None,), "memory") for name in "uy"}
    axes = dict.fromkeys("uy", ("i",))
    verdict = validate(in_sequence(scop, *(nest(scop, name) for name in order)), maps, axes=axes, outputs=[*outputs])
    assert isinstance(verdict, Proven) == safe


def test_layouts_that_merge_elements_are_refused() -> None:
    assert isinstance(injective(["N"], ["i"], box(i=N), [Floor(i, 4), Mod(i, 4)]), Proven)
    assert injective(["N"], ["i"], box(i=N), [Floor(i, 4)]) == Collision({"N": 2}, (0,), (1,))


terms = st.sampled_from(
    [i, j, Floor(i, 2), Mod(i, 2), Floor(j, 3), Mod(j, 3), Mod(Floor(j, 2), 3), Add(i, Scale(4, j)), Add(i, Int(1)), Int(0)]
)


@settings(max_examples=200, deadline=None)
@given(st.tuples(st.integers(0, 4), st.integers(0, 7)), st.lists(st.tuples(terms, st.integers(1, 40)), min_size=1, max_size=3))
def test_a_layout_is_proven_exactly_when_every_element_has_a_cell_of_its_own_in_the_block(
    shape: tuple[int, int], dims: list[tuple[Expr, int]]
) -> None:
    exprs, block = tuple(e for e, _ in dims), tuple(n for _, n in dims)
    verdict = laid_out((), ("i", "j"), tuple(map(Int, shape)), exprs, tuple(map(Int, block)))

    def cell(element: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(evaluate(e, dict(zip(("i", "j"), element, strict=True))) for e in exprs)

    def inside(element: tuple[int, ...]) -> bool:
        return all(0 <= c < n for c, n in zip(cell(element), block, strict=True))

    cells = {element: cell(element) for element in product(*map(range, shape))}
    match verdict:
        case Proven():
            assert all(map(inside, cells))
            assert len(set(cells.values())) == len(cells)
        case Outside(_, element):
            assert element in cells
            assert not inside(element)
        case Collision(_, first, second):
            assert first != second
            assert cells[first] == cells[second]
        case _:
            raise AssertionError(verdict)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 4),
    st.sampled_from(["none", "reverse", "split"]),
    st.lists(st.integers(-3, 0), min_size=1, max_size=3),
    st.booleans(),
)
def test_folds_of_a_recurrence_are_judged_as_memory_shows(modulus: int, order: str, offsets: list[int], reader: bool) -> None:
    reads = tuple(Access("y", (plus(i, d),), le(Int(0), plus(i, d))) for d in offsets if d < 0)
    statements = [Statement("y", ("i",), box(i=N), Access("y", (i,)), reads)]
    if reader:
        late = tuple(Access("y", (plus(i, d),), le(Int(0), plus(i, d))) for d in offsets)
        statements.append(Statement("z", ("i",), box(i=N), Access("z", (i,)), late))
    scop = Scop(("N",), TRUE, (Tensor("y", (N,)), Tensor("z", (N,))), frozenset(), tuple(statements))
    nests = {s.name: nest(scop, s.name) for s in statements}
    if order == "split":
        nests = {n: v.split("i", 2, "io", "i") for n, v in nests.items()}
    if order == "reverse" and reads:
        return
    loops_of = ("io", "i") if order == "split" else ("i",)
    schedule = Schedule(scop, nests, under(loops_of, tuple(Leaf(n) for n in nests)))
    verdict = validate(schedule, {"y": Cells((i,), (modulus,))}, axes={"y": ("i",)})
    assert isinstance(verdict, Proven) == all(memory_is_right(schedule, n, modulus) for n in range(9))


def memory_is_right(schedule: Schedule, n: int, modulus: int) -> bool:
    """Whether every read finds the element it asks for when `y[i]` lives in cell `i % modulus`."""
    memory: dict[int, int] = {}
    for placement, point in timeline(schedule, {"N": n}):
        at = {"N": n, **dict(zip(schedule.nests[placement].loops, point, strict=True))}
        at |= {name: evaluate(e, at) for name, e in schedule.nests[placement].iter_exprs().items()}
        statement = schedule.statements[schedule.nests[placement].statement]
        for access in statement.reads:
            if holds(access.when, at):
                element = evaluate(_only(access), at)
                if memory.get(element % modulus) != element:
                    return False
        if statement.write.tensor == "y":
            element = evaluate(_only(statement.write), at)
            memory[element % modulus] = element
    return True


def _only(access: Access) -> Expr:
    (index,) = access.index
    assert index is not None
    return index


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(1, 3), st.integers(-2, 2), st.integers(0, 2), st.integers(0, 2))
def test_footprints_hold_every_touched_cell(factor: int, stride: int, shift: int, reach: int, depth: int) -> None:
    r = Name("r")
    index = plus(Add(Scale(stride, i), r), shift)
    statement = Statement("S", ("i", "r"), box(i=N, r=Int(reach + 1)), Access("o", (i, r)), (Access("x", (index,)),))
    scop = Scop(("N",), TRUE, (Tensor("x", (Scale(99, N),)), Tensor("o", (N, N))), frozenset({"x"}), (statement,))
    schedule = in_sequence(scop, nest(scop, "S").split("i", factor, "io", "ii"))
    found = footprint(schedule, "x", ["S"], depth)
    for n, io, ii, rr in product(range(1, 7), range(6), range(factor), range(reach + 1)):
        at = {"N": n, "io": io, "ii": ii, "r": rr, "i": factor * io + ii}
        if at["i"] < n:
            offset = evaluate(index, at) - evaluate(found.origin[0], at)
            extent = found.extent[0]
            assert 0 <= offset < (extent if isinstance(extent, int) else evaluate(extent, at))
