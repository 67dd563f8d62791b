"""What nobody scheduled runs on a graphics processor too, in every order of threads."""

from __future__ import annotations

import numpy as np
import pytest
from device_programs import assert_computed, called, chosen, kernels_of, normal
from executors import Executor
from usual_device import derive_device, device_loops

from codegen.loops.printer import show
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.policy.gpu import recurrence_cost, scattered_sums
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.parse import parse

OWN = load_module(
    parse(
        Source(
            "own.tl",
            """op total(x: f32[N]) -> (y: f32[]) {
    y = sum(i) x[i]
}

op greatest(x: f32[M, N]) -> (y: f32[M]) {
    y[i] = max(j) x[i, j]
}

op running(x: f32[M, N]) -> (y: f32[M, N]) {
    y[i, 0] = x[i, 0]
    y[i, j] = y[i, j - 1] + x[i, j]   for j in 1..N
}

op attended(q: f32[S, D], k: f32[T, D], v: f32[T, D]) -> (o: f32[S, D]) {
    p[i, j] = if j <= i then 0.125 * sum(d) q[i, d] * k[j, d] else -inf
    m[i] = max(j) p[i, j]
    e[i, j] = exp(p[i, j] - m[i])
    z[i] = sum(j) e[i, j]
    o[i, d] = (sum(j) e[i, j] * v[j, d]) / z[i]
}

op chained(x: f32[M, N], b: f32[N]) -> (y: f32[M, N]) {
    t[i, j] = x[i, j] + b[j]
    u[i, j] = t[i, j] * t[i, j]
    y[i, j] = t[i, j] / (1 + u[i, j])
}

op triple(x: f32[N, 3]) -> (y: f32[N]) {
    s[i] = sum(c) x[i, c] * x[i, c]
    e[i, c] = x[i, c] / (1 + s[i])
    y[i] = max(c) e[i, c]
}

op trace(a: f32[M, N], b: f32[N, M]) -> (y: f32) { y = sum(i, j) a[i, j] * b[j, i] }

op positive(x: f32[N]) -> (n: i32, s: f32) {
    n = sum(i, x[i] > 0) i32(1)
    s = sum(i, x[i] > 0) x[i]
}

op bins(ids: i64[K] in 0..5) -> (y: i32[5]) { y[n] = sum(k, ids[k] == n) i32(1) }

op greatest_at(x: f32[M, N]) -> (m: f32[M], at: i64[M]) { m[i], at[i] = first_max(j) (x[i, j], j) }

op least_of_all(x: f32[N]) -> (at: i64) { at = argmin(i) x[i] }

op turning(x: f32[N], attr steps: int) -> (y: f32[N]) {
    a[0, i] = x[i]
    b[0, i] = 0
    a[t + 1, i] = a[t, i] - 0.1 * b[t, i]   for t in 0..steps
    b[t + 1, i] = b[t, i] + 0.1 * a[t, i]   for t in 0..steps
    y[i] = a[steps, i] + b[steps, i]
}

op waves(ex0: f32[N, M], ey0: f32[N, M], hz0: f32[N, M], attr steps: int) -> (h: f32[N, M]) {
    ex[0, i, j] = ex0[i, j]
    ey[0, i, j] = ey0[i, j]
    hz[0, i, j] = hz0[i, j]
    ey[t + 1, i, j] = if i == 0 then f32(t) else ey[t, i, j] - 0.5 * (hz[t, i, j] - hz[t, i - 1, j])   for t in 0..steps
    ex[t + 1, i, j] = if j == 0 then ex[t, i, j] else ex[t, i, j] - 0.5 * (hz[t, i, j] - hz[t, i, j - 1])   for t in 0..steps
    hz[t + 1, i, j] = if i < N - 1 and j < M - 1
                      then hz[t, i, j] - 0.7 * (ex[t + 1, i, j + 1] - ex[t + 1, i, j] + ey[t + 1, i + 1, j] - ey[t + 1, i, j])
                      else hz[t, i, j]   for t in 0..steps
    h[i, j] = hz[steps, i, j]
}

op so_far(x: f32[M, N]) -> (y: f32[M, N]) { y[i, j] = x[i, j] - sum(k in 0..j+1) x[i, k] }

op greatest_left(x: f32[M, N]) -> (y: f32[M, N]) {
    y[i, N - 1] = x[i, N - 1]
    y[i, j] = max(x[i, j], y[i, j + 1])   for j in 0..N-1
}

op corner(x: f32[M, N]) -> (y: f32[M, N]) { y[i, j] = prod(a in 0..i, b in 0..j) x[a, b] }

op softmax(x: f32[M, N]) -> (y: f32[M, N]) {
    e[i, j] = exp(x[i, j])
    s[i] = sum(j) e[i, j]
    y[i, j] = e[i, j] / s[i]
}

op both_ways(x: f32[N, M]) -> (y: f32[N, M]) {
    a[i, j] = x[i, j] + 0.5 * a[i, j - 1 | 0]
    b[i, j] = x[i, j] + 0.5 * b[i, j + 1 | 0]
    y[i, j] = a[i, j] + b[i, j]
}

op alternating(x: f32[N, N], attr steps: int) -> (y: f32[N, N]) {
    u[0, i, j] = x[i, j]
    q[t, i, 0] = 1   for t in 0..steps, i in 0..N
    q[t, i, j] = 0.25 * (u[t, j, i] + q[t, i, j - 1])   for t in 0..steps, i in 0..N, j in 1..N
    u[t + 1, i, N - 1] = q[t, i, N - 1]   for t in 0..steps, i in 0..N
    u[t + 1, i, j] = 0.5 * u[t + 1, i, j + 1] + q[t, j, i]   for t in 0..steps, i in 0..N, j in 0..N-1
    y[i, j] = u[steps, i, j]
}

op spread_out(x: f32[N, M], attr steps: int) -> (y: f32[N, M]) {
    u[0, i, j] = x[i, j]
    u[t + 1, i, j] = 0.5 * u[t, i, j] + 0.25 * (u[t, i - 1, j | clamp] + u[t, i, j + 1 | clamp])   for t in 0..steps
    y[i, j] = u[steps, i, j]
}

op aligned(x: f32[N, M]) -> (y: f32[N, M]) { y[i, j] = x[i, j] + 0.5 * max(y[i - 1, j | 0], y[i, j - 1 | 0]) }

op relaxed(x: f32[N, M]) -> (y: f32[N, M]) {
    u[0, i, j] = x[i, j]
    u[t + 1, i, j] = 0.25 * (u[t + 1, i - 1, j + 1 | 0] + u[t + 1, i, j - 1 | 0] + u[t, i + 1, j | 0] + u[t, i, j])   for t in 0..3
    y[i, j] = u[3, i, j]
}

op factored(a: f32[N, N]) -> (m: f32[N, N]) {
    m[i, j] = (a[i, j] - sum(k in 0..j) m[i, k] * m[k, j]) / m[j, j]   for j < i
    m[i, j] = a[i, j] - sum(k in 0..i) m[i, k] * m[k, j]               otherwise
}

op solved(l: f32[N, N], b: f32[N, M]) -> (x: f32[N, M]) {
    x[i, c] = (b[i, c] - sum(j in i+1..N) l[i, j] * x[j, c]) / l[i, i]
}

op orthogonal(a: f32[M, N]) -> (q: f32[M, N]) {
    s[0, i, j]     = a[i, j]
    s[k + 1, i, j] = s[k, i, j] - u[k, i] * r[k, j]   for k in 0..N
    norm[k]        = sqrt(sum(i) s[k, i, k] * s[k, i, k])   for k in 0..N
    u[k, i]        = s[k, i, k] / norm[k]   for k in 0..N
    r[k, j]        = sum(i) u[k, i] * s[k, i, j]   for k in 0..N, j in 0..N
    q[i, k]        = u[k, i]
}

op shares(x: f32[N]) -> (y: f32[N]) {
    s = sum(i) x[i]
    y[i] = x[i] / s
}

op upper(a: f32[N, N], b: f32[N, M]) -> (y: f32[N, M]) { y[i, c] = sum(j in i+1..N) a[i, j] * b[j, c] }

reducer least_greatest (l1, h1) (l2, h2) from none = (min(l1, l2), max(h1, h2))

op span(x: f32[M, 4]) -> (lo: f32[M], hi: f32[M]) { lo[i], hi[i] = least_greatest(j in 0..4) (x[i, j], x[i, j]) }

op segments(x: f32[K, D], ids: i64[K], _like: f32[N]) -> (y: f32[N, D]) { y[n, d] = sum(k, ids[k] == n) x[k, d] }

op counted(ids: i64[B, K], _like: f32[N]) -> (y: i32[B, N]) { y[b, n] = sum(k, ids[b, k] == n) i32(1) }

op farthest(x: f32[K], ids: i64[K], _like: f32[N]) -> (y: f32[N], z: f32[N]) {
    y[n] = max(k, ids[k] == n, from 0) x[k]
    z[n] = y[n] * y[n]
}

op means(x: f32[K], ids: i64[K], _like: f32[N]) -> (y: f32[N]) {
    y[n] = (sum(k, ids[k] == n) x[k]) / max(1, sum(q, ids[q] == n) f32(1))
}

op sparse(x: f32[E], begin: i64[P]) -> (y: f32[P - 1]) { y[i] = sum(e, begin[i] <= e, e < begin[i + 1]) x[e] * x[e] }

op hashed(x: i32[M, N]) -> (h: i32[M]) {
    t[i, j] = x[i, j] * 1664525
    h[i] = sum(j) t[i, j]
}
""",
        )
    )
)


@pytest.mark.parametrize(
    ("operator", "arrays", "attrs"),
    [
        ("add", (normal(8, 1, 5), normal(7, 1)), {}),
        ("softmax", (normal(6, 100),), {"axis": 1}),
        ("softmax", (normal(3, 2, 1000),), {"axis": 2}),
        ("softmax", (normal(3, 40, 7),), {"axis": 1}),
        ("transpose", (normal(5, 7, 9),), {"perm": (2, 0, 1)}),
        ("matmul", (normal(33, 20), normal(20, 17)), {}),
        ("layer_norm", (normal(6, 200), normal(200), normal(200)), {"axis": 1}),
    ],
    ids=lambda x: x if isinstance(x, str) else None,
)
def test_operators_of_the_library_run_as_the_interpreter_says(operator, arrays, attrs, executor: Executor):
    program = called(operator, *arrays, **attrs)
    assert_computed(executor, program, derive_device(program), *arrays)


@pytest.mark.parametrize(
    ("operator", "shape"), [("total", (100,)), ("total", (50_000,)), ("greatest", (7, 300)), ("running", (40, 30)), ("corner", (3, 7))]
)
def test_sums_of_everything_rows_and_recurrences_run_as_the_interpreter_says(operator, shape, executor: Executor):
    x = normal(*shape)
    program = called(operator, x, module=OWN)
    assert_computed(executor, program, derive_device(program), x)


@pytest.mark.parametrize(
    ("operator", "shape", "lengths"), [("so_far", (2, 1100), "32"), ("greatest_left", (2, 300), "32"), ("running", (2, 300), "")]
)
def test_long_chains_are_stretches_that_do_not_wait_for_each_other_where_that_changes_no_sum(operator, shape, lengths, executor: Executor):
    x = normal(*shape)
    program = called(operator, x, module=OWN)
    schedule = derive_device(program)
    assert [line.strip() for line in str(schedule).splitlines() if line.strip().startswith("scan")] == (
        [f"scan y.j to {lengths}"] if lengths else []
    )
    assert_computed(executor, program, schedule, x, seeds=(4,))


def test_long_chains_have_stretches_of_stretches_and_none_where_rows_fill_the_device():
    assert "scan y.j to 32, 32" in str(derive_device(called("so_far", normal(2, 20_000), module=OWN)))
    assert "scan y.j\n" in str(derive_device(called("so_far", normal(40_000, 300), module=OWN)))


def test_what_is_made_of_the_sums_of_few_long_rows_is_computed_by_all_blocks():
    program = called("softmax", normal(3, 20_000), module=OWN)
    *_, last = kernels_of(program, derive_device(program)).launches
    assert last.grid[0].value == 118


def test_a_product_with_something_that_other_equations_read_as_well_runs_as_the_interpreter_says(executor: Executor):
    q, k, v = normal(19, 16), normal(23, 16), normal(23, 16)
    program = called("attended", q, k, v, module=OWN)
    assert_computed(executor, program, derive_device(program), q, k, v)


def loops_of(operator: str, *arrays: np.ndarray, **attrs: object) -> str:
    program = called(operator, *arrays, module=OWN, **attrs)
    return show(device_loops(proven(program, derive_device(program)), "kernel").function)


def test_elements_made_of_each_other_are_computed_by_one_thread_in_vectors(executor: Executor):
    x, b = normal(9, 40), normal(40)
    program = called("chained", x, b, module=OWN)
    assert_computed(executor, program, derive_device(program), x, b)
    schedule = str(derive_device(called("chained", normal(400, 400), normal(400), module=OWN)))
    assert all(part in schedule for part in ("at t at y.item", "vectorize t.j", "bind y.block, y.item to block.x, thread"))


def test_short_rows_are_a_threads(executor: Executor):
    x = normal(300, 3)
    program = called("triple", x, module=OWN)
    schedule = derive_device(program)
    assert "at e at y.item" in str(schedule) and "unroll" in str(schedule)
    assert_computed(executor, program, schedule, x)


def test_what_every_thread_has_of_two_ranges_is_summed_up_before_threads_meet(executor: Executor):
    a, b = normal(20, 70), normal(70, 20)
    program = called("trace", a, b, module=OWN)
    assert_computed(executor, program, derive_device(program), a, b)
    assert loops_of("trace", a, b).count("across") == loops_of("trace", normal(1, 70), normal(70, 1)).count("across")


@pytest.mark.parametrize("length", [70, 20_000])
def test_sums_of_what_a_condition_selects_are_shared_by_threads(length: int, executor: Executor):
    x = normal(length)
    program = called("positive", x, module=OWN)
    assert_computed(executor, program, derive_device(program), x)
    assert "thread" in loops_of("positive", x)


def test_counts_are_shared_by_threads_and_so_are_checks_of_data(executor: Executor):
    ids = np.arange(900) * 7 % 5
    program = called("bins", ids, module=OWN)
    assert_computed(executor, program, derive_device(program), ids)
    checks = loops_of("bins", ids).split("require")[0]
    assert "for block in 0 .. 4 block.x 4" in checks and "thread 256" in checks


IDS = np.array([3, 2, 3, -1, 8, 3 + 2**32, 0, 2, 9, 2] * 40)
"""Of nine elements, some that there are not: also where no more than 32 bits are looked at."""


@pytest.mark.parametrize(
    ("operator", "arrays", "directives"),
    [
        ("segments", (normal(400, 7), IDS, normal(9)), ["order y.part.d, y.part.k.in, y.part.k.out, y.part.n"]),
        (
            "segments",
            (normal(400, 40), IDS, normal(9)),
            ["layout y.part as [k.in, n, d]", "order y.part.k.in, y.part.d, y.part.k.out, y.part.n"],
        ),
        ("counted", (np.stack([IDS, 8 - IDS]), normal(9)), ["rfactor k by", "order y.part.b, y.part.k.in, y.part.k.out, y.part.n"]),
        ("farthest", (normal(400), IDS, normal(9)), ["order y.part.k.in, y.part.k.out, y.part.n"]),
        ("means", (normal(400), IDS, normal(9)), ["rfactor k by", "rfactor q by"]),
    ],
    ids=["few columns", "columns for warps", "rows", "beside its reader", "two sums"],
)
def test_threads_go_once_through_terms_whose_data_name_an_element(operator, arrays, directives, monkeypatch, executor: Executor):
    for name, value in {"SCATTERED": 2, "MOVED": 1, "ENOUGH": 128, "LAUNCHED": 0}.items():
        monkeypatch.setattr(scattered_sums, name, value)
    program = called(operator, *arrays, module=OWN)
    schedule = derive_device(program)
    assert all(directive in str(schedule) for directive in directives)
    assert_computed(executor, program, schedule, *arrays, seeds=(4,))


def test_elements_ask_for_terms_where_either_are_few_and_threads_go_through_these_where_there_are_enough():
    assert "rfactor" not in str(derive_device(called("segments", normal(30, 8), IDS[:30], normal(9), module=OWN)))
    long = np.zeros(1_000_000, np.int64)
    assert "rfactor k by 32768" in str(derive_device(called("counted", long[None], normal(300), module=OWN)))
    wide = str(derive_device(called("segments", np.zeros((64, 40_000), np.float32), long[:64], normal(100), module=OWN)))
    assert "rfactor" not in wide and "order y.d, y.k, y.n" in wide


@pytest.mark.parametrize("begin", [[0, 3, 3, 9, 40], [-5, 7, 2, 2**33, 2**40], [2**32, 2**32 + 9, 4, 12, 8]])
def test_rows_go_from_where_data_begin_to_where_they_end(begin: list[int], executor: Executor):
    x, rows = normal(40), np.array(begin)
    program = called("sparse", x, rows, module=OWN)
    assert_computed(executor, program, derive_device(program), x, rows, seeds=(4,))
    start, end = loops_of("sparse", x, rows).split("for y_e_o in ")[1].split(" {")[0].split(" .. ")
    assert "value(begin[y_i])" in start and "value(begin[y_i + 1])" in end


def test_a_row_times_a_matrix_is_cut_into_parts_that_fill_the_device_and_large_strides_are_no_windows(executor: Executor):
    x, w = normal(1, 600), normal(600, 64)
    program = called("matmul", x, w)
    schedule = chosen(program).schedule
    assert "rfactor k to 64" in str(schedule)
    assert_computed(executor, program, schedule, x, w)
    assert "pack" not in str(chosen(called("least_of_all", normal(100_000), module=OWN)).schedule)


@pytest.mark.parametrize(("operator", "shape"), [("greatest_at", (3, 700)), ("greatest_at", (300, 5)), ("least_of_all", (20_000,))])
def test_the_place_of_an_extreme_is_found_by_many_threads(operator: str, shape: tuple[int, ...], executor: Executor):
    x = np.round(normal(*shape))  # with many equal elements
    program = called(operator, x, module=OWN)
    assert_computed(executor, program, derive_device(program), x)


def test_recurrences_of_each_other_run_in_threads_of_their_own_and_keep_no_more_steps_than_they_need(executor: Executor):
    x = normal(600)
    program = called("turning", x, module=OWN, steps=9)
    schedule = derive_device(program)
    assert "block.x" in str(schedule) and "fold a at t by" in str(schedule)
    assert_computed(executor, program, schedule, x)


def test_sums_of_integers_wrap_around_in_every_thread(executor: Executor):
    x = np.full((3, 400), 2**31 - 1, np.int32)
    program = called("hashed", x, module=OWN)
    assert_computed(executor, program, derive_device(program), x)


def test_steps_whose_elements_fill_the_device_are_launches_of_their_own(executor: Executor):
    ex, ey, hz = (normal(70, 90) + k for k in range(3))
    program = called("waves", ex, ey, hz, module=OWN, steps=3)
    schedule = derive_device(program)
    assert "fold hz at t by 1" in str(schedule)
    kernels = kernels_of(program, schedule)
    assert [launch.kernel for launch in kernels.launches].count("kernel_0") == 4
    assert [launch.steps for launch in kernels.launches[::3]] == [*((("ex_t", t),) for t in range(4)), ()]
    assert_computed(executor, program, schedule, ex, ey, hz)


def test_steps_of_few_elements_stay_in_one_launch():
    ex, ey, hz = (normal(7, 9) + k for k in range(3))
    program = called("waves", ex, ey, hz, module=OWN, steps=3)
    assert len(kernels_of(program, derive_device(program)).launches) == 1


def test_loops_by_hand_around_loops_over_blocks_are_steps_too(executor: Executor):
    x = normal(40, 50)
    program = called("spread_out", x, module=OWN, steps=4)
    schedule = Schedule("spread_out", "cuda").bind("u.i", "u.j", "y.i", "y.j", to=("block.x", "thread", "block.x", "thread"))
    assert_computed(executor, program, schedule, x)
    assert_computed(executor, program, schedule.fold("u", "t", 2), x)
    with pytest.raises(CompileError, match="S0308"):
        proven(program, schedule.fold("u", "t", 1))


def test_what_an_unrolled_step_changes_is_read_again_in_the_next(executor: Executor):
    x = normal(9, 4)
    schedule = Schedule("span", "cuda").bind("lo.i", to="thread").unroll("lo.j")
    assert_computed(executor, called("span", x, module=OWN), schedule, x)


def test_more_steps_than_launches_are_worth_are_refused_at_once():
    program = called("spread_out", normal(4, 5), module=OWN, steps=10**9)
    schedule = Schedule("spread_out", "cuda").fold("u", "t", 2).bind("u.i", "u.j", to=("block.x", "thread"))
    with pytest.raises(CompileError, match="more than 4096 launches"):
        kernels_of(program, schedule)


def test_recurrences_in_two_directions_have_a_thread_for_each_row(executor: Executor):
    x = normal(70, 20)
    program = called("both_ways", x, module=OWN)
    schedule = derive_device(program)
    assert "bind a.block, a.item" in str(schedule) and "bind b.block, b.item" in str(schedule)
    assert_computed(executor, program, schedule, x)


def test_rows_and_columns_in_turns_are_launches_of_rows(executor: Executor):
    x = normal(66, 66)
    program = called("alternating", x, module=OWN, steps=2)
    schedule = derive_device(program)
    assert max(value for launch in kernels_of(program, schedule).launches for _, value in launch.steps) == 1
    assert_computed(executor, program, schedule, x)


def test_recurrent_layers_multiply_inputs_before_and_share_the_sums_of_a_step(monkeypatch: pytest.MonkeyPatch, executor: Executor):
    def layer(length: int, batch: int, inputs: int, hidden: int) -> list[np.ndarray]:
        shapes = ((length, batch, inputs), (4 * hidden, inputs), (4 * hidden, hidden), (4 * hidden,), (batch, hidden), (batch, hidden))
        return [*(0.1 * normal(*shape) for shape in shapes), np.full(batch, length - 1, np.int32), 0.1 * normal(3 * hidden)]

    schedule = str(chosen(called("lstm", *layer(64, 2, 256, 256))).schedule)
    assert "inline xw" not in schedule and "bind z.row1 to block.x" in schedule and "bind z.m.t to thread" in schedule
    monkeypatch.setattr(recurrence_cost, "LAUNCHED", 64)
    arrays = layer(3, 2, 8, 33)
    program = called("lstm", *arrays)
    made = chosen(program).schedule
    assert "bind z.row1 to block.x" in str(made)
    assert_computed(executor, program, made, *arrays, seeds=(0,))


def test_what_has_one_sum_of_loops_that_all_carry_dependences_is_computed_at_once(executor: Executor):
    x = normal(9, 33)
    for operator, skewed in (("aligned", "skew y.i by y.j"), ("relaxed", "skew u.j by 2 * u.i")):
        program = called(operator, x, module=OWN)
        schedule = derive_device(program)
        assert skewed in str(schedule)
        assert_computed(executor, program, schedule, x, seeds=(4,))


def test_fronts_of_many_elements_are_launches_and_blocks_share_their_sums(monkeypatch: pytest.MonkeyPatch, executor: Executor):
    a = normal(17, 17) + 9 * np.eye(17, dtype=np.float32)
    assert "bind m.i to block.x" in str(derive_device(called("factored", np.eye(700, dtype=np.float32), module=OWN)))
    monkeypatch.setattr(recurrence_cost, "LAUNCHED", 16)
    program = called("factored", a, module=OWN)
    schedule = derive_device(program)
    assert {launch.steps for launch in kernels_of(program, schedule).launches} == {(("m_j", step),) for step in range(33)}
    assert_computed(executor, program, schedule, a, seeds=(4,))


def test_sums_of_all_that_was_solved_before_are_shared_by_the_threads_of_a_block_for_each_right_hand_side(executor: Executor):
    a, b = 0.1 * normal(70, 70) + 9 * np.eye(70, dtype=np.float32), normal(70, 3)
    program = called("solved", a, b, module=OWN)
    schedule = derive_device(program)
    assert "bind x.c to block.x" in str(schedule) and "to thread" in str(schedule)
    assert_computed(executor, program, schedule, a, b, seeds=(4,))


def test_what_one_warp_of_a_block_adds_up_the_others_know(executor: Executor):
    x = normal(60)
    schedule = Schedule("shares", "cuda").split("s.i", 32, ("io", "it")).order("s.it", "s.io").bind("s.it", "y.i", to=("thread", "thread"))
    assert_computed(executor, called("shares", x, module=OWN), schedule, x)


def test_steps_of_one_element_are_launches_of_one_block_between_those_of_many(monkeypatch: pytest.MonkeyPatch, executor: Executor):
    monkeypatch.setattr(recurrence_cost, "LAUNCHED", 16)
    a = normal(60, 5)
    program = called("orthogonal", a, module=OWN)
    schedule = derive_device(program)
    assert {launch.steps for launch in kernels_of(program, schedule).launches} == {(), *((("norm_k", step),) for step in range(-1, 5))}
    assert_computed(executor, program, schedule, a, seeds=(4,))


def test_threads_have_elements_of_their_own_where_sums_have_different_lengths():
    schedule = str(derive_device(called("upper", normal(300, 300), normal(300, 300), module=OWN)))
    assert "to block.x, thread" in schedule
