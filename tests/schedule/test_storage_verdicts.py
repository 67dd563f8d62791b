"""Folds and layouts are proven like orders: what would lose an element is refused, with the two elements."""

from __future__ import annotations

from dataclasses import replace

import pytest
from schedule_trial import differs
from strategies_schedule import Case, family, small_arrays

from codegen.dtypes import f64
from polyhedral import affine
from tensorlang.backends.cpu.driver import loops_of
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, InternalError, Source
from tensorlang.policy.select import read
from tensorlang.replay import Difference, Hazard, replay
from tensorlang.schedule.apply import outline
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.parse import parse
from tensorlang.tensor.walk import substitute_sizes
from tensorlang.validation.kernel import validate


def program(name: str, **sizes: int):
    return substitute_sizes(family(name, f64), {k: affine.to_expr(v) for k, v in sizes.items()})


def written(text: str, *shapes: tuple[int, ...]):
    """Return the one operator of `text` for arguments of these shapes."""
    module = load_module(parse(Source("written.tl", text)))
    return instantiate(module, text.split("op ")[1].split("(")[0], [ArgType(f64, shape) for shape in shapes])


def refusal(case: Case) -> str:
    with pytest.raises(CompileError) as caught:
        proven(case.program, case.schedule)
    return str(caught.value)


def computes_the_same(name: str, schedule: Schedule, natively: bool = True, **sizes: int) -> None:
    p = program(name, **sizes)
    lowered = loops_of(proven(p, schedule), "kernel")
    assert not differs(p, lowered, {}, small_arrays(p, {}, 1), natively=natively)


def test_a_fold_that_loses_a_needed_row_is_refused_and_replayed() -> None:
    p, schedule = program("blur", M=5, N=4), Schedule("blur").fold("h", "i", 2)
    assert "h[0, 0]` and `h[2, 0]` would share one cell" in refusal(Case(p, {}, schedule))
    assert isinstance(replay(p, schedule), Difference)


def test_a_fold_that_keeps_what_is_read_back_is_accepted() -> None:
    computes_the_same("heat", Schedule("heat").fold("s", "t", 4), N=7, T1=3)
    p = program("heat", N=7, T1=3)
    assert "share one cell" in refusal(Case(p, {}, Schedule("heat").fold("s", "t", 1)))


def test_a_lost_element_is_seen_in_its_cell_whatever_the_values_are() -> None:
    module = load_module(parse(Source("f.tl", "op f(x: f64[M]) -> (y: f64[M]) { h[i] = x[i] + 1\n y[i] = sum(k in 0..M) h[k] * 0 }")))
    p = instantiate(module, "f", [ArgType(f64, ("M",))], symbolic=True)
    seen = replay(p, Schedule("f").fold("h", "i", 2))
    assert str(seen) == "`y.sum.0.acc` at (k=0) reads `h[0]`, and its cell holds `h[2]`"


def test_an_element_that_is_kept_for_later_iterations_is_made_once_and_may_not_be_overwritten_between() -> None:
    """p[i, j] is read by y[i, l] for each l: kept at the root it is there, in its own loop it is made again."""
    again = Schedule("two").at("p", "y.j")
    computes_the_same("two", again, M=3, N=4, K=2)
    kept = again.store_at("p", "root")
    computes_the_same("two", kept, M=3, N=4, K=2)
    assert "share one cell" in refusal(Case(program("two", M=3, N=4, K=2), {}, kept.fold("p", "j", 1)))


SLIDING = """op f(x: f64[N, M]) -> (y: f64[N - 2, M]) where N >= 3 {
    a[i, j] = x[i, j] + x[i, j - 1 | clamp]
    h[i, j] = a[i, j] * a[i, j + 2 | clamp]
    y[i, j] = h[i, j] + h[i + 1, j] * h[i + 2, j]
}"""
HALVING = """op f(x: f64[N, M]) -> (y: f64[N // 2 - 1, M]) where N >= 4 {
    h[i, j] = 2 * x[i, j]   for i in 0..N, j in 0..M
    y[i, j] = h[2 * i, j] - h[2*i + 1, j] * h[2*i + 3, j]   for i in 0..N // 2 - 1, j in 0..M
}"""


@pytest.mark.parametrize(
    ("text", "directives", "made"),
    [
        (SLIDING, ["at h at y.i", "store_at h at root"], {"h": 99, "a": 99}),
        (SLIDING, ["at h at y.i", "store_at h at root", "fold h at i by 3"], {"h": 99, "a": 99}),
        (SLIDING, ["split y.i by 4 -> io, ii", "at h at ii", "store_at h at io", "parallel io"], {"h": 9 * (6 + 6 + 3), "a": 99}),
        (SLIDING, ["at h at y.i", "store_at h at root", "at a at y.i", "store_at a at root"], {"h": 99, "a": 99}),
        (SLIDING, ["at h at y.j", "store_at h at y.i"], {"h": 9 * 3 * 9, "a": 99}),
        (SLIDING, ["tile y (i, j) by (4, 4) -> io, jo, ii, ji", "at h at jo", "store_at h at root"], {"h": 99, "a": 99}),
        (HALVING, ["at h at y.i", "store_at h at root", "fold h at i by 4"], {"h": 10 * 9}),
        (HALVING, ["reverse y.i", "at h at y.i", "store_at h at root"], {"h": 10 * 9}),
    ],
)
def test_windows_slide_over_what_is_kept(text: str, directives: list[str], made: dict[str, int]) -> None:
    module = load_module(parse(Source("f.tl", "\n".join([text, "schedule f for cpu {", *directives, "}"]))))
    p = instantiate(module, "f", [ArgType(f64, (11 if text is SLIDING else 10, 9))])
    plan = proven(p, read(module, module.schedules[0], p).schedule)
    counted = {n: plan.placed.nests[f"{n}.0"].points.count_val().to_python() for n in made}
    assert counted == made
    assert not differs(p, loops_of(plan, "kernel"), {}, small_arrays(p, {}, 1), natively=len(directives) == 3)


def test_a_layout_that_puts_two_elements_into_one_cell_is_refused() -> None:
    p = program("blur", M=5, N=4)
    assert "share one cell" in refusal(Case(p, {}, Schedule("blur").layout("h", ["i"])))
    assert "share one cell" in refusal(Case(p, {}, Schedule("blur").layout("h", ["i % 4", "j"])))
    computes_the_same("blur", Schedule("blur").layout("h", ["j", "i + 1"]), M=5, N=4)


def test_a_packed_copy_may_reuse_cells_only_between_iterations_of_the_loop_it_lives_in() -> None:
    tiled = Schedule("matmul").split("j", 2, ["jo", "ji"]).order("jo", "y.i", "k", "ji")
    computes_the_same("matmul", tiled.pack("b", ["k", "j % 2"], "jo"), M=3, K=3, N=5)
    p = program("matmul", M=3, K=3, N=5)
    assert "share one cell" in refusal(Case(p, {}, tiled.pack("b", ["k", "j % 2"])))


def test_the_layout_of_what_the_caller_stores_is_not_for_the_schedule() -> None:
    p = program("matmul", M=3, K=3, N=5)
    assert "the caller stores `a`" in refusal(Case(p, {}, Schedule("matmul").layout("a", ["a1", "a0"])))
    assert "the caller stores `y`" in refusal(Case(p, {}, Schedule("matmul").layout("y", ["j", "i"])))


def test_a_layout_below_zero_is_refused() -> None:
    assert "may be negative" in refusal(Case(program("blur", M=5, N=4), {}, Schedule("blur").layout("h", ["i - 1", "j"])))


def test_a_recurrence_does_not_read_a_copy_of_itself() -> None:
    p = program("twins", N=3, M=2)
    packed = outline(p, Schedule("twins").pack("a")).program
    readers = [d.tensors[0].name for d in packed.definitions if "a.pack" in str(d)]
    assert "y" in readers and "g" not in readers
    computes_the_same("twins", Schedule("twins").pack("a"), N=3, M=2)
    assert "outside its own recurrence" in refusal(Case(program("scan", M=2, N=3), {}, Schedule("scan").pack("y")))


def test_a_copy_is_not_inlined_again() -> None:
    p = program("matmul", M=2, K=2, N=2)
    assert "it is a copy that `pack` makes" in refusal(Case(p, {}, Schedule("matmul").pack("a").inline("a.pack")))


def test_loops_that_cannot_be_built_are_refused_in_words() -> None:
    p = program("scan", M=3, N=4)
    schedule = Schedule("scan").pack("x", (), "y.j").distribute("y", at="y.i")
    assert "`x.pack` cannot be computed at `y.j`" in refusal(Case(p, {}, schedule))


def test_a_reduction_computed_in_a_vector_loop_belongs_to_its_lane() -> None:
    computes_the_same("rows", Schedule("rows").at("s", "y.j").vectorize("y.j"), M=5, N=5)


def test_a_tuple_reducer_without_identity_takes_its_first_value_as_it_is() -> None:
    computes_the_same("best", Schedule("best"), M=4, N=5)
    computes_the_same("best", Schedule("best").vectorize("y.j"), M=4, N=5)


def test_a_tuple_reducer_that_computes_is_spread_over_lanes_and_means_the_same_number() -> None:
    p = written("op total(x: f64[M, N]) -> (y: f64[M]) { y[i] = logsumexp(j) x[i, j] }", (4, 5))
    made = loops_of(proven(p, Schedule("total").vectorize("j")), "kernel")
    assert str(validate(p, made.function, made.params)) == "validated"
    fewer = written("op total(x: f64[M, N]) -> (y: f64[M]) where N >= 1 { y[i] = logsumexp(j in 0..N - 1) x[i, j] }", (4, 5))
    with pytest.raises(InternalError, match="not what the equation says"):
        validate(fewer, made.function, made.params)


def test_what_nobody_reads_need_not_be_computed() -> None:
    schedule = Schedule("blur").at("h", "y.i").store_at("h", "root")
    p = program("blur", M=0, N=4)
    assert not differs(p, loops_of(proven(p, schedule), "kernel"), {}, small_arrays(p, {}, 1), natively=False)


def test_lanes_are_counted_from_zero_wherever_their_loop_starts() -> None:
    backwards = Schedule("backward").reverse("i").split("j", 4, ["jo", "ji"]).shift("ji", 1).vectorize("ji")
    shifted = Schedule("triangle").shift("k", 2).split("k", 4, ["ko", "ki"]).vectorize("ki")
    for schedule in (backwards, shifted):
        computes_the_same(schedule.operator, schedule, N=5)


def test_lanes_that_pieces_share_reach_from_the_first_of_one_to_the_last_of_another() -> None:
    """The piece for the first column and the one for the others lie one after the other along `y.j`."""
    computes_the_same("scan", Schedule("scan").skew("y.i", "y.j").vectorize("y.j"), M=4, N=3)


def test_lanes_of_a_reduction_count_its_initial_value_once() -> None:
    p = written("op total(x: f64[N, M], s: f64[N]) -> (y: f64[N]) { y[i] = sum(j, from s[i]) x[i, j] }", (3, 10), (3,))
    lowered = loops_of(proven(p, Schedule("total").split("j", 4, ["jo", "ji"]).vectorize("ji")), "kernel")
    assert not differs(p, lowered, {}, small_arrays(p, {}, 1), natively=True)


def test_what_several_threads_read_is_kept_in_memory() -> None:
    computes_the_same("rows", Schedule("rows").at("s", "y.i").parallel("y.j"), M=3, N=4)


def test_strict_programs_keep_the_order_of_their_sums() -> None:
    p = replace(program("matmul", M=2, K=6, N=3), mode="strict")
    for schedule in (Schedule("matmul").reverse("k"), Schedule("matmul").split("k", 4, ["ko", "ki"]).vectorize("ki")):
        assert "before" in refusal(Case(p, {}, schedule)) or "lanes" in refusal(Case(p, {}, schedule))
        assert isinstance(replay(p, schedule), Difference | Hazard)
    tiled = Schedule("matmul").split("k", 4, ["ko", "ki"]).order("ko", "y.i", "y.j", "ki").vectorize("y.j")
    assert not differs(p, loops_of(proven(p, tiled), "kernel"), {}, small_arrays(p, {}, 1), natively=True)


def test_a_mark_does_not_outlive_its_loop() -> None:
    p = program("blur", M=3, N=8)
    for change in (
        Schedule("blur").vectorize("y.j").split("y.j", 4, ["j", "ji"]),
        Schedule("blur").parallel("y.i").fuse("y.i", "y.j", "f"),
        Schedule("blur").unroll("y.j").skew("y.j", "y.i"),
    ):
        assert "already, so" in refusal(Case(p, {}, change))
    computes_the_same("blur", Schedule("blur").pack("h").skew("h.pack.ji", "h.pack.jo"), M=3, N=8)


def test_a_stage_computed_in_a_loop_that_is_gone_is_refused() -> None:
    schedule = Schedule("scan").pack("x", (), "y.i").peel("y.j", 1).fuse("y.i", "y.j", "f")
    assert "`y.i` has been made into other loops since, so `pack` is about none" in refusal(Case(program("scan", M=5, N=7), {}, schedule))


def test_lanes_at_fault_are_replayed_as_threads_and_only_they() -> None:
    p = program("scan", M=3, N=4)
    seen = replay(p, Schedule("scan").vectorize("y.j"))
    assert isinstance(seen, Hazard) and "races" in seen.text
    tuples = replay(program("best", M=3, N=4), Schedule("best").vectorize("y.j"))
    assert tuples is None or (isinstance(tuples, Hazard) and "races" in tuples.text)


def test_copies_made_by_peeling_are_mirrored_alike() -> None:
    p = program("linear")
    schedule = Schedule("linear").peel("y.j", 1).reverse("y.j")
    sizes = {"M": 2, "K": 3, "N": 5}
    assert not differs(p, loops_of(proven(p, schedule), "kernel"), sizes, small_arrays(p, sizes, 1), natively=False)


def test_a_layout_that_names_an_axis_twice_is_refused() -> None:
    text = """op diagonal(x: f64[N, N, N]) -> (y: f64[N, N]) {
        t[i, j, k] = x[i, j, k] + 1
        y[i, j]    = t[j, j, i]
    }"""
    p = written(text, (5, 5, 5))
    # In `as`, `i` and `j` are the loops of `y`: `i` is the last axis of `t`, and `k` is that axis as well.
    assert "share one cell" in refusal(Case(p, {}, Schedule("diagonal").pack("t", ["i", "k // 2", "j", "k % 2"])))


def test_a_copy_in_blocks_keeps_them_where_its_tile_begins_inside_one() -> None:
    """An iteration reads x[2*io + 1] and x[2*io + 2], of two blocks; counted from the first of them they would be one block."""
    p = written("op shifted(x: f64[7]) -> (y: f64[6]) { y[i] = x[i + 1] }", (7,))
    lowered = loops_of(proven(p, Schedule("shifted").split("i", 2, ["io", "ii"]).pack("x", ["a0 // 2"], "io")), "kernel")
    assert not differs(p, lowered, {}, small_arrays(p, {}, 1), natively=True)


def test_a_copy_has_room_for_its_own_tile() -> None:
    schedule = Schedule("latest").peel("y.i", 1).tile("y", ("y.i", "y.j"), (8, 8), ("io", "jo", "ii", "ji"))
    computes_the_same("latest", schedule, M=7, N=2)
