"""A schedule is accepted exactly when running it keeps every dependence; a refusal can be replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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
    instances,
    j,
    le,
    lt,
    nest,
    plus,
    slide,
    timeline,
    under,
)

from polyhedral.affine import evaluate, holds
from polyhedral.deps import dependences
from polyhedral.errors import NestError, ScheduleError
from polyhedral.expr import TRUE, Add, And, Cond, Expr, Int, Name, Or
from polyhedral.legality import Violation, check, distances, parallel_loops, suggest_skew
from polyhedral.model import ANYWHERE, Access, Leaf, Loop, Mark, Scop, Statement, Tensor, Tree, Within
from polyhedral.nest import Nest
from polyhedral.order import Checker
from polyhedral.region import place_at
from polyhedral.schedule import Schedule, parse, show
from polyhedral.verdict import Proven, Unknown


def refused(schedule: Schedule, **options: object) -> Violation:
    verdict = check(schedule, **options)  # type: ignore[arg-type]
    assert isinstance(verdict, Violation), verdict
    return verdict


def heat(nests: Nest) -> Schedule:
    return in_sequence(HEAT, nest(HEAT, "edge"), nests)


def test_interchanging_time_and_space_of_a_stencil_is_refused_with_the_smallest_case() -> None:
    found = refused(heat(nest(HEAT, "step").reorder(["i", "t"])))
    assert (found.kind, found.loop, found.params) == ("order", "i", {"T": 2, "N": 4})
    assert found.source.iters == {"t": 1, "i": 2} and found.target.iters == {"t": 2, "i": 1}
    assert found.cell == ("A", (1, 2))


def test_skewing_first_makes_interchange_and_tiling_legal() -> None:
    skewed = nest(HEAT, "step").skew("i", "t")
    assert isinstance(check(heat(skewed.reorder(["i", "t"]))), Proven)
    tiled = skewed.split("t", 4, "to", "ti").split("i", 8, "io", "ii").reorder(["to", "io", "ti", "ii"])
    assert isinstance(check(heat(tiled)), Proven)


def test_tiling_a_stencil_without_a_skew_is_refused() -> None:
    tiled = nest(HEAT, "step").split("t", 4, "to", "ti").split("i", 8, "io", "ii").reorder(["to", "io", "ti", "ii"])
    found = refused(heat(tiled))
    assert (found.kind, found.loop) == ("order", "io")
    assert suggest_skew(heat(tiled), found) == ("i", "t", 1)


def test_the_suggested_skew_is_legal() -> None:
    schedule = heat(nest(HEAT, "step").reorder(["i", "t"]))
    suggestion = suggest_skew(schedule, refused(schedule))
    assert suggestion == ("i", "t", 1)
    assert isinstance(check(heat(schedule.nests["step"].skew(*suggestion))), Proven)


def test_loops_that_may_run_at_once() -> None:
    assert parallel_loops(in_sequence(MATMUL, nest(MATMUL, "C.init"), nest(MATMUL, "C"))) == {"i", "j"}
    assert parallel_loops(heat(nest(HEAT, "step"))) == {"i"}


def test_a_loop_that_runs_backwards_carries_what_it_carried() -> None:
    assert parallel_loops(heat(nest(HEAT, "step").reverse("t"))) == {"i"}


def test_a_reduction_loop_may_be_lanes_but_not_threads() -> None:
    lanes, threads = (in_sequence(MATMUL, nest(MATMUL, "C.init"), nest(MATMUL, "C"), marks={"k": mark}) for mark in ("vector", "parallel"))
    assert isinstance(check(lanes), Proven)
    found = refused(threads)
    assert found.kind == "race" and found.dep is not None and found.dep.kind == "RED"
    assert found.params == {"M": 1, "N": 1, "K": 2}


def test_the_lanes_of_a_recurrence_are_refused() -> None:
    scop = prefix_sum()
    found = refused(in_sequence(scop, nest(scop, "y"), marks={"i": "vector"}))
    assert (found.kind, found.loop) == ("lane", "i")


def prefix_sum() -> Scop:
    read = Access("y", (plus(i, -1),), le(Int(1), i))
    return Scop(("N",), TRUE, (Tensor("y", (N,)),), frozenset(), (Statement("y", ("i",), box(i=N), Access("y", (i,)), (read,)),))


def test_distances_of_a_stencil() -> None:
    schedule = heat(nest(HEAT, "step"))
    found = [d for dep, d in distances(schedule, dependences(HEAT), ["t", "i"]) if dep.source == "step"]
    assert set(found) == {((1, 1), (1, 1)), ((1, 1), (0, 0)), ((1, 1), (-1, -1))}


def test_dependences_of_equal_scops_are_found_once() -> None:
    assert dependences(replace(HEAT)) is dependences(HEAT)


def test_distances_ask_for_no_more_than_they_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(checker: Checker, statement: str) -> None:
        raise AssertionError(f"nobody asked how often `{statement}` runs")

    monkeypatch.setattr(Checker, "_repeated_pair", refused)
    assert distances(heat(nest(HEAT, "step")), dependences(HEAT), ["t", "i"])


def test_an_ordered_reduction_keeps_its_order() -> None:
    init, update = MATMUL.statements
    strict = replace(MATMUL, statements=(init, replace(update, ordered=True)))
    assert isinstance(check(in_sequence(strict, nest(strict, "C.init"), nest(strict, "C"))), Proven)
    assert refused(in_sequence(strict, nest(strict, "C.init"), nest(strict, "C").reverse("k"))).kind == "order"
    assert isinstance(check(in_sequence(MATMUL, nest(MATMUL, "C.init"), nest(MATMUL, "C").reverse("k"))), Proven)
    lanes = in_sequence(strict, nest(strict, "C.init"), nest(strict, "C"), marks={"k": "vector"})
    assert (refused(lanes).kind, refused(lanes).loop) == ("lane", "k")


def test_a_reduction_starts_from_its_initial_value() -> None:
    found = refused(in_sequence(MATMUL, nest(MATMUL, "C"), nest(MATMUL, "C.init")))
    assert (found.kind, found.source.statement, found.target.statement) == ("order", "C.init", "C")


def test_readers_wait_for_every_update_of_a_reduction() -> None:
    tensors = (*MATMUL.tensors, Tensor("D", (M, N)))
    reader = Statement("D", ("i", "j"), box(i=M, j=N), Access("D", (i, j)), (Access("C", (i, j)),))
    scop = replace(MATMUL, tensors=tensors, statements=(*MATMUL.statements, reader))
    early = nest(scop, "D").insert(2, "k", Int(0))
    inside = under(["i", "j"], (Leaf("C.init"), *under(["k"], (Leaf("C"), Leaf("D")))))
    nests = {"C.init": nest(scop, "C.init"), "C": nest(scop, "C"), "D": early}
    found = refused(Schedule(scop, nests, inside))
    assert (found.kind, found.loop, found.params["K"]) == ("order", "k", 2)
    after = under(["i", "j"], (Leaf("C.init"), *under(["k"], (Leaf("C"),)), Leaf("D")))
    assert isinstance(check(Schedule(scop, {**nests, "D": nest(scop, "D")}, after)), Proven)


def test_a_data_dependent_read_waits_for_the_whole_axis() -> None:
    gather = Statement("g", ("i",), box(i=N), Access("g", (i,)), (Access("a", (ANYWHERE,)),))
    define = Statement("a", ("i",), box(i=N), Access("a", (i,)))
    scop = Scop(("N",), TRUE, (Tensor("a", (N,)), Tensor("g", (N,))), frozenset(), (define, gather))
    assert isinstance(check(in_sequence(scop, nest(scop, "a"), nest(scop, "g"))), Proven)
    together = Schedule(scop, {"a": nest(scop, "a"), "g": nest(scop, "g")}, under(["i"], (Leaf("a"), Leaf("g"))))
    assert refused(together).kind == "order"


def test_a_data_dependent_read_waits_for_no_more_than_it_may_be_of() -> None:
    gather = Statement("g", ("i",), box(i=N), Access("g", (i,)), (Access("a", (Within(None, plus(i, 1)),)),))
    define = Statement("a", ("i",), box(i=N), Access("a", (i,)))
    scop = Scop(("N",), TRUE, (Tensor("a", (N,)), Tensor("g", (N,))), frozenset(), (define, gather))
    nests = {"a": nest(scop, "a"), "g": nest(scop, "g")}
    assert isinstance(check(Schedule(scop, nests, under(["i"], (Leaf("a"), Leaf("g"))))), Proven)
    assert refused(Schedule(scop, nests, under(["i"], (Leaf("g"), Leaf("a"))))).cell == ("a", (0,))


def test_a_data_dependent_read_may_be_of_the_first_element() -> None:
    gather = Statement("g", ("i",), box(i=N), Access("g", (i,)), (Access("a", (ANYWHERE,)),))
    define = Statement("a", ("j",), box(j=Int(1)), Access("a", (j,)))
    scop = Scop(("N",), TRUE, (Tensor("a", (Int(1),)), Tensor("g", (N,))), frozenset(), (define, gather))
    assert refused(in_sequence(scop, nest(scop, "g"), nest(scop, "a"))).cell == ("a", (0,))


def test_scattered_writes_may_not_run_in_parallel() -> None:
    scatter = Statement("a", ("i",), box(i=N), Access("a", (ANYWHERE,)))
    scop = Scop(("N",), TRUE, (Tensor("a", (N,)),), frozenset(), (scatter,))
    assert isinstance(check(in_sequence(scop, nest(scop, "a"))), Proven)
    assert refused(in_sequence(scop, nest(scop, "a"), marks={"i": "parallel"})).kind == "race"


def test_tiramisu_300_a_consumer_before_its_producer_is_refused() -> None:
    found = refused(in_sequence(BLUR, nest(BLUR, "by"), nest(BLUR, "bx")))
    assert (found.kind, found.params, found.cell) == ("order", {"H": 1, "W": 1}, ("bx", (0, 0)))


def test_tiramisu_422_a_parallel_mark_is_checked_after_the_interchange() -> None:
    scop = prefix_rows()
    rows: dict[str, Mark] = {"i": "parallel"}
    assert isinstance(check(in_sequence(scop, nest(scop, "y"), marks=rows)), Proven)
    assert isinstance(check(in_sequence(scop, nest(scop, "y").reorder(["j", "i"]), marks=rows)), Proven)
    assert refused(in_sequence(scop, nest(scop, "y").reorder(["j", "i"]), marks={"j": "parallel"})).kind == "race"


def prefix_rows() -> Scop:
    read = Access("y", (i, plus(j, -1)), le(Int(1), j))
    write = Statement("y", ("i", "j"), box(i=M, j=N), Access("y", (i, j)), (read,))
    return Scop(("M", "N"), TRUE, (Tensor("y", (M, N)),), frozenset(), (write,))


def test_halide_6808_a_race_behind_a_condition_is_found() -> None:
    read = Access("y", (plus(i, -1),), And((le(Int(1), i), lt(Int(100), N))))
    scop = Scop(("N",), TRUE, (Tensor("y", (N,)),), frozenset(), (Statement("y", ("i",), box(i=N), Access("y", (i,)), (read,)),))
    found = refused(in_sequence(scop, nest(scop, "y"), marks={"i": "parallel"}))
    assert found.params == {"N": 101}


def test_tvm_15911_a_producer_that_computes_too_little_is_refused() -> None:
    part = nest(BLUR, "bx").restrict(lt(Name("y"), Name("H")))
    found = refused(in_sequence(BLUR, part, nest(BLUR, "by")))
    assert (found.kind, found.source.statement) == ("missing", "bx")
    found = refused(in_sequence(BLUR, part, nest(BLUR, "by")), outputs=["by"])
    assert (found.kind, found.target.statement, found.params) == ("missing", "by", {"H": 1, "W": 1})


def test_tvm_15877_computing_inside_a_vector_loop_is_refused_or_right() -> None:
    schedule, storage = blur_at(2, {"x": "vector"})
    assert isinstance(check(schedule, storage=storage), Proven)


def test_a_statement_that_is_not_placed_is_missing() -> None:
    schedule = in_sequence(BLUR, nest(BLUR, "by"))
    assert refused(schedule).kind == "missing"


def test_an_instance_that_runs_twice_in_a_reduction_is_refused() -> None:
    again = nest(MATMUL, "C").placed("again")
    assert refused(in_sequence(MATMUL, nest(MATMUL, "C.init"), nest(MATMUL, "C"), again)).kind == "repeated"


def blur_at(depth: int, marks: Mapping[str, Mark]) -> tuple[Schedule, dict[str, int]]:
    consumer = nest(BLUR, "by")
    base = in_sequence(BLUR, nest(BLUR, "bx"), consumer)
    (producer,) = place_at(base, ["bx"], ["bx"], ["by"], depth, {"bx": {"y": "py", "x": "px"}})
    first = under(producer.loops[depth:], (Leaf("bx"),), marks)
    tree = under(consumer.loops[:depth], (*first, *under(consumer.loops[depth:], (Leaf("by"),), marks)), marks)
    return Schedule(BLUR, {"bx": producer, "by": consumer}, tree), {"bx": depth}


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_producer_may_be_computed_at_any_loop_of_its_consumer(depth: int) -> None:
    schedule, storage = blur_at(depth, {})
    assert isinstance(check(schedule, storage=storage, outputs=["by"]), Proven)


def test_recomputation_in_parallel_needs_a_private_copy() -> None:
    schedule, storage = blur_at(1, {"y": "parallel"})
    assert isinstance(check(schedule, storage=storage), Proven)
    found = refused(schedule, storage={"bx": 0}, outputs=["by"])
    assert (found.kind, found.loop) == ("race", "y")


@pytest.mark.parametrize(
    ("rows", "accepted"),
    [
        pytest.param(Or((le(Int(1), Name("py")), le(Name("y"), Int(0)))), True, id="the first row comes from the iterations before"),
        pytest.param(le(Name("py"), Int(1)), False, id="the last row comes from the next iteration"),
    ],
)
def test_what_is_computed_again_and_again_serves_readers_after_it(rows: Cond, accepted: bool) -> None:
    schedule, _ = blur_at(1, {})
    fewer = replace(schedule, nests={**schedule.nests, "bx": schedule.nests["bx"].restrict(rows)})
    verdict = check(fewer, outputs=["by"])
    assert isinstance(verdict, Proven) if accepted else isinstance(verdict, Violation) and verdict.kind == "missing"


def test_a_sliding_window_computes_each_row_once_and_must_be_kept_outside() -> None:
    schedule, _ = blur_at(1, {})
    sliding = replace(schedule, nests={**schedule.nests, "bx": slide(schedule.nests["bx"], "y")})
    assert isinstance(check(sliding, outputs=["by"]), Proven)
    assert refused(sliding, storage={"bx": 1}).kind == "missing"


def test_a_producer_after_its_consumer_in_the_same_iteration_is_refused() -> None:
    schedule, storage = blur_at(1, {})
    (loop,) = schedule.tree
    assert isinstance(loop, Loop)
    backwards = replace(schedule, tree=(replace(loop, body=loop.body[::-1]),))
    assert refused(backwards, storage=storage).kind == "order"


def test_trees_are_printed_and_read_back() -> None:
    schedule, _ = blur_at(1, {"y": "parallel", "px": "vector"})
    assert show(schedule) == (
        "parallel y {\n    py {\n        vector px {\n            bx\n        }\n    }\n    x {\n        by\n    }\n}\n"
    )
    assert parse(show(schedule)) == schedule.tree


def test_a_nest_whose_loops_differ_from_the_tree_is_an_error() -> None:
    wrong = Schedule(
        BLUR, {"by": nest(BLUR, "by"), "bx": nest(BLUR, "bx")}, (*under(["x", "y"], (Leaf("by"),)), *under(["y", "x"], (Leaf("bx"),)))
    )
    with pytest.raises(ScheduleError, match="has loops y, x but stands under x, y"):
        check(wrong)


def test_an_impossible_limit_gives_up_and_says_so() -> None:
    assert isinstance(check(in_sequence(MATMUL, nest(MATMUL, "C.init"), nest(MATMUL, "C")), limit=20), Unknown)


@st.composite
def programs(draw: st.DrawFn) -> Scop:
    """`a` may read itself at earlier elements, `b` reads `a`, `c` sums rows of `a` or `b`."""
    extents = box(i=N, j=N)
    a = Statement("a", ("i", "j"), extents, Access("a", (i, j)), tuple(_read("a", d) for d in draw(st.lists(_earlier(), max_size=2))))
    b = Statement("b", ("i", "j"), extents, Access("b", (i, j)), tuple(_read("a", d) for d in draw(st.lists(_offsets, max_size=2))))
    source = draw(st.sampled_from(["a", "b"]))
    init = Statement("c.init", ("i",), box(i=N), Access("c", (i,)), (), "init")
    update = Statement("c", ("i", "j"), extents, Access("c", (i,)), (_read(source, draw(_offsets)),), "update", draw(st.booleans()))
    tensors = (Tensor("a", (N, N)), Tensor("b", (N, N)), Tensor("c", (N,)))
    return Scop(("N",), TRUE, tensors, frozenset(), (a, b, init, update))


_offsets = st.tuples(st.integers(-1, 1), st.integers(-1, 1))


def _earlier() -> st.SearchStrategy[tuple[int, int]]:
    return _offsets.filter(lambda d: d < (0, 0))


def _read(tensor: str, offset: tuple[int, int]) -> Access:
    index: tuple[Expr, Expr] = (plus(i, offset[0]), plus(j, offset[1]))
    return Access(tensor, index, And(tuple(c for e in index for c in (le(Int(0), e), lt(e, N)))))


@st.composite
def schedules(draw: st.DrawFn, scop: Scop) -> Schedule:
    nests = {s.name: nest(scop, s.name) for s in scop.statements}
    nests["c.init"] = nests["c.init"].insert(1, "j", Int(0))
    for _ in range(draw(st.integers(0, 3))):
        chosen = draw(st.sampled_from([*nests, "all"]))
        step = draw(st.sampled_from(["reorder", "skew", "reverse", "shift", "split"]))
        by, constant = draw(st.sampled_from([("i", "j"), ("j", "i")])), draw(st.integers(-2, 2))
        names = list(nests) if chosen == "all" or step in ("reorder", "split") else [chosen]
        for name in names:
            nests[name] = _applied(nests[name], step, by, constant)
    loops_of = next(iter(nests.values())).loops
    order = draw(st.permutations(list(nests)))
    shared = draw(st.integers(0, len(loops_of)))
    marks: dict[str, Mark] = {n: draw(st.sampled_from(["serial", "serial", "parallel", "vector"])) for n in loops_of}
    inner: tuple[Tree, ...] = tuple(node for name in order for node in under(loops_of[shared:], (Leaf(name),), marks))
    return Schedule(scop, nests, under(loops_of[:shared], inner, marks))


def _applied(n: Nest, step: str, by: tuple[str, str], constant: int) -> Nest:
    try:
        match step:
            case "reorder":
                return n.reorder(n.loops[::-1])
            case "skew":
                return n.skew(*by, 1 if constant >= 0 else -1)
            case "reverse":
                return n.reverse(by[0])
            case "shift":
                return n.shift(by[0], constant)
            case _:
                return n.split(by[0], 2, f"{by[0]}o", by[0])
    except NestError:
        return n


Accesses = dict[tuple[str, tuple[int, ...]], list[tuple[tuple[str, int], str, tuple[int, ...]]]]


def faults(schedule: Schedule, sizes: Mapping[str, int]) -> bool:
    """Whether running the schedule at these sizes breaks a dependence or a mark; by looking at every pair of accesses to every cell."""
    times: dict[tuple[str, tuple[int, ...]], tuple[int, tuple[tuple[int, ...], tuple[int, ...]]]] = {}
    for position, (placement, point) in enumerate(timeline(schedule, sizes)):
        back = schedule.nests[placement].iter_exprs()
        at = {**sizes, **dict(zip(schedule.nests[placement].loops, point, strict=True))}
        key = (schedule.nests[placement].statement, tuple(evaluate(e, at) for e in back.values()))
        times[key] = position, (schedule.places[placement].path, point)
    cells: dict[tuple[str, tuple[int, ...]], list[tuple[str, tuple[str, tuple[int, ...]]]]] = {}
    for statement in schedule.scop.statements:
        for instance in instances(schedule.scop, statement, sizes, reach=6):
            at = {**sizes, **dict(zip(statement.iters, instance, strict=True))}
            role = statement.role + ("!" if statement.ordered else "")
            cells.setdefault(_cell(statement.write, at), []).append((role, (statement.name, instance)))
            for access in statement.reads:
                if holds(access.when, at):
                    cells.setdefault(_cell(access, at), []).append(("read", (statement.name, instance)))
    return any(_broken(schedule, times, users) for users in cells.values())


def _cell(access: Access, at: Mapping[str, int]) -> tuple[str, tuple[int, ...]]:
    return access.tensor, tuple(evaluate(e, at) for e in access.index if e is not None)


_PHASE = {"define": 0, "init": 0, "update": 1, "update!": 1, "read": 2}


def _broken(schedule: Schedule, times: Mapping, users: list[tuple[str, tuple[str, tuple[int, ...]]]]) -> bool:  # type: ignore[type-arg]
    for role, first in users:
        for other, second in users:
            if first == second or role == other == "read":
                continue
            ordered = _PHASE[role] < _PHASE[other] or (role == other == "update!" and first[1] < second[1])
            if ordered and times[first][0] > times[second][0]:
                return True
            if _at_once(schedule, times[first][1], times[second][1], combining=role == other == "update"):
                return True
    return False


def _at_once(schedule: Schedule, first: tuple, second: tuple, *, combining: bool) -> bool:  # type: ignore[type-arg]
    """Whether the outermost loop that separates the two lets them run at once (a vector may combine its lanes)."""
    (path, point), (other_path, other_point) = first, second
    tree: tuple[Tree, ...] = schedule.tree
    for depth in range(len(point)):
        if path[depth] != other_path[depth]:
            return False
        node = tree[path[depth]]
        assert isinstance(node, Loop)
        if point[depth] != other_point[depth]:
            return node.mark == "parallel" or (node.mark == "vector" and not combining)
        tree = node.body
    return False


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_schedules_are_judged_as_running_them_shows(data: st.DataObject) -> None:
    scop = data.draw(programs())
    schedule = data.draw(schedules(scop))
    verdict = check(schedule)
    if isinstance(verdict, Violation):
        if verdict.params["N"] <= 4:
            assert faults(schedule, verdict.params), verdict
    else:
        assert isinstance(verdict, Proven)
        assert not any(faults(schedule, {"N": n}) for n in range(4))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_smallest_size_of_a_refusal_is_the_smallest_that_fails(data: st.DataObject) -> None:
    schedule = data.draw(schedules(data.draw(programs())))
    verdict = check(schedule)
    if isinstance(verdict, Violation) and verdict.params["N"] > 0:
        assert any(faults(schedule, {"N": n}) for n in range(verdict.params["N"] + 1)) or verdict.params["N"] > 4


def test_reading_what_nobody_defines_is_refused() -> None:
    first, second = BLUR.statements
    scop = replace(BLUR, statements=(replace(first, domain=And((first.domain, lt(Name("y"), Name("H"))))), second))
    found = refused(in_sequence(scop, nest(scop, "bx"), nest(scop, "by")))
    assert (found.kind, found.source.statement, found.cell) == ("uninitialised", "by", ("bx", (1, 0)))


def test_reading_what_an_input_does_not_have_is_refused() -> None:
    first, second = BLUR.statements
    narrow = tuple(replace(t, shape=(t.shape[0], Add(t.shape[1], Int(-1)))) if t.name in BLUR.inputs else t for t in BLUR.tensors)
    scop = replace(BLUR, tensors=narrow)
    found = refused(in_sequence(scop, nest(scop, first.name), nest(scop, second.name)))
    assert (found.kind, found.source.statement) == ("beyond", "bx")
