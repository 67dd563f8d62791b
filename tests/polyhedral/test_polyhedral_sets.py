"""Proofs about sets, with the smallest counter-example; expressions and conditions survive the way to isl and back."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polyhedral_programs import MATMUL, H, N, T, box, i, instances, j, k, le, lt, nest, one, plus, points_of, t

from polyhedral import affine, sets
from polyhedral.affine import evaluate, holds
from polyhedral.errors import NestError
from polyhedral.expr import FALSE, TRUE, Add, And, Compare, Cond, Expr, Floor, Int, Max, Min, Mod, Name, Not, Or, Scale
from polyhedral.model import ANYWHERE, Within
from polyhedral.space import Frame, OperationLimit, limited
from polyhedral.text import show, show_cond
from polyhedral.verdict import Proven, Refuted, Unknown

sizes = le(Int(0), N)


def test_implications_are_proven_or_refuted_at_the_smallest_size() -> None:
    assert isinstance(sets.implies(["N"], ["i"], And((sizes, box(i=N))), lt(i, plus(N, 3))), Proven)
    assert sets.implies(["N"], ["i"], And((sizes, box(i=N))), lt(i, Int(5))) == Refuted({"i": 5}, {"N": 6})
    assert sets.implies(["N"], ["i"], And((sizes, box(i=N))), Compare(">=", plus(i, -1), Int(0))) == Refuted({"i": 0}, {"N": 1})


def test_disjoint_pieces_and_covers() -> None:
    low, high = lt(i, j), Compare(">", i, j)
    box2 = And((sizes, box(i=N, j=N)))
    assert isinstance(sets.disjoint(["N"], ["i", "j"], box2, low, high), Proven)
    assert sets.disjoint(["N"], ["i", "j"], box2, low, lt(i, Int(1))) == Refuted({"i": 0, "j": 1}, {"N": 2})
    assert sets.covers(["N"], ["i", "j"], sizes, box(i=N, j=N), [low, high]) == Refuted({"i": 0, "j": 0}, {"N": 1})
    assert isinstance(sets.covers(["N"], ["i", "j"], sizes, box(i=N, j=N), [low, high, Compare("==", i, j)]), Proven)
    assert isinstance(sets.is_empty(["N"], ["i"], sizes, And((lt(i, Int(0)), lt(N, i)))), Proven)


def test_a_witness_exists_even_where_nothing_bounds_the_point_below() -> None:
    verdict = sets.implies([], ["i"], lt(i, Int(-40)), FALSE)
    assert isinstance(verdict, Refuted) and verdict.point["i"] < -40


def test_parametric_bounds() -> None:
    triangle = And((sizes, box(i=N, j=N), lt(j, i)))
    low, high = sets.bounds(["N"], ["i", "j"], triangle, affine.sub(i, j))
    assert low == Int(1) and high is not None and show(high) == "N - 1"
    assert sets.bounds(["N"], ["i"], sizes, i) == (None, None)


def test_limits_give_up_with_a_reason_and_leave_isl_usable() -> None:
    with pytest.raises(OperationLimit), limited(10):
        frame = Frame(("N",), ("i", "j", "k"))
        frame.set(box(i=N, j=N, k=plus(N, 77))).subtract(frame.set(And((lt(i, j), lt(j, k))))).lexmin()
    assert isinstance(sets.is_empty(["N"], ["i"], FALSE), Proven)


def between(name: str, low: Expr, high: Expr) -> Cond:
    return And((le(low, Name(name)), lt(Name(name), high)))


_IJ = box(i=N, j=N)
_TIJ = box(t=T, i=N, j=N)
_U = plus(t, -1)
_GATES = And((box(t=T), between("g", Int(0), Scale(4, H))))
_Y = {"y": (["i"], box(i=N))}
_L = {"l": (["i", "j"], _IJ)}
_F = {name: (["t", "i", "j"], _TIJ) for name in ("ex", "ey", "hz")}
_A, _ITJ, _APART = ["t", "i", "j"], ["i", "t", "j"], ["u", "v", "w"]


@pytest.mark.parametrize(
    ("nodes", "edges"),
    [
        pytest.param(_Y, [("y", [plus(i, -1)], "y", ["i"], [], le(Int(1), i))], id="a prefix sum"),
        pytest.param(_Y, [("y", [plus(i, 1)], "y", ["i"], [], TRUE)], id="a backward sweep"),
        pytest.param(_Y, [("y", [Floor(i, 2)], "y", ["i"], [], le(Int(1), i))], id="a heap"),
        pytest.param(
            {"s": (_A, _TIJ)},
            [("s", [_U, plus(i, a), plus(j, b)], "s", _A, [], TRUE) for a, b in ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))],
            id="heat",
        ),
        pytest.param(
            {"s": (_A, _TIJ)},
            [("s", [t if (a, b) < (0, 0) else _U, plus(i, a), plus(j, b)], "s", _A, [], TRUE) for a, b in product((-1, 0, 1), repeat=2)],
            id="seidel",
        ),
        pytest.param(
            _L,
            [
                ("l", [i, k], "l", ["i", "j"], ["k"], And((lt(j, i), between("k", Int(0), j)))),
                ("l", [j, k], "l", ["i", "j"], ["k"], And((lt(j, i), between("k", Int(0), j)))),
                ("l", [j, j], "l", ["i", "j"], [], lt(j, i)),
                ("l", [i, k], "l", ["i", "j"], ["k"], And((Compare("==", i, j), between("k", Int(0), i)))),
            ],
            id="cholesky",
        ),
        pytest.param(
            {"hs": (["t", "h"], box(t=T, h=H)), "cs": (["t", "h"], box(t=T, h=H)), "z": (["t", "g"], _GATES)},
            [
                ("hs", [_U, k], "z", ["t", "g"], ["k"], between("k", Int(0), H)),
                ("z", [t, Name("h")], "cs", ["t", "h"], [], TRUE),
                ("z", [t, Add(Name("h"), H)], "cs", ["t", "h"], [], TRUE),
                ("cs", [_U, Name("h")], "cs", ["t", "h"], [], TRUE),
                ("cs", [t, Name("h")], "hs", ["t", "h"], [], TRUE),
                ("z", [t, Add(Name("h"), Scale(3, H))], "hs", ["t", "h"], [], TRUE),
            ],
            id="LSTM",
        ),
        pytest.param(
            _F,
            [
                *(("hz", [_U, plus(i, d), j], "ey", _A, [], TRUE) for d in (0, -1)),
                *(("hz", [_U, i, plus(j, d)], "ex", _A, [], TRUE) for d in (0, -1)),
                *(("ex", [t, i, plus(j, d)], "hz", _A, [], TRUE) for d in (0, 1)),
                *(("ey", [t, plus(i, d), j], "hz", _A, [], TRUE) for d in (0, 1)),
                *((name, [_U, i, j], name, _A, [], TRUE) for name in _F),
            ],
            id="fdtd-2d",
        ),
        pytest.param(
            {"d": (["k", "i", "j"], box(k=N, i=N, j=N))},
            [("d", [plus(k, -1), *at], "d", ["k", "i", "j"], [], TRUE) for at in ((i, j), (i, k), (k, j))],
            id="Floyd–Warshall",
        ),
        pytest.param(
            {"n": (["i", "j"], And((_IJ, le(i, j))))},
            [
                ("n", [plus(i, 1), j], "n", ["i", "j"], [], TRUE),
                ("n", [i, plus(j, -1)], "n", ["i", "j"], [], TRUE),
                ("n", [i, k], "n", ["i", "j"], ["k"], between("k", i, j)),
                ("n", [plus(k, 1), j], "n", ["i", "j"], ["k"], between("k", i, j)),
            ],
            id="nussinov",
        ),
        pytest.param(
            {"a": (["i"], box(i=N)), "b": (["u"], box(u=N))},
            [("b", [plus(i, 1)], "a", ["i"], [], TRUE), ("a", [plus(Name("u"), -2)], "b", ["u"], [], TRUE)],
            id="two tensors out of step",
        ),
        pytest.param(
            {name: (_APART, box(u=N, v=T, w=N)) if name in "qm" else (_ITJ, _TIJ) for name in "pqabcmdz"},
            [
                ("d", [i, t, j], "p", _ITJ, [], TRUE),
                ("m", list(map(Name, _APART)), "q", _APART, [], TRUE),
                *((source, [i, plus(t, 1), k], target, _ITJ, ["k"], box(k=N)) for source, target in ("pa", "zb", "qc")),
                ("z", list(map(Name, _APART)), "m", _APART, [], TRUE),
                *((source, [i, t, j], target, _ITJ, [], TRUE) for source, target in ("ad", "bd", "cd", "dz")),
            ],
            id="a backward sweep through tensors whose axes have names of their own",
        ),
    ],
)
def test_recurrences_are_well_founded(nodes: dict[str, tuple[list[str], Cond]], edges: list) -> None:  # type: ignore[type-arg]
    assert isinstance(sets.well_founded(["T", "N", "H"], TRUE, nodes, edges), Proven)


def test_the_ranking_is_named() -> None:
    verdict = sets.well_founded(["N"], TRUE, _Y, [("y", [plus(i, 1)], "y", ["i"], [], TRUE)])
    assert verdict == Proven("y by (-i)")


def test_an_element_that_reads_itself_is_shown() -> None:
    verdict = sets.well_founded(["N"], TRUE, _Y, [("y", [i], "y", ["i"], [], le(Int(2), i))])
    assert verdict == Refuted({"i": 2}, {"N": 3}, (("y", (2,)),))


def test_a_cycle_of_two_elements_is_shown() -> None:
    even, odd = Compare("==", Mod(i, 2), Int(0)), Compare("==", Mod(i, 2), Int(1))
    edges = [("y", [plus(i, 1)], "y", ["i"], [], even), ("y", [plus(i, -1)], "y", ["i"], [], odd)]
    assert sets.well_founded(["N"], TRUE, _Y, edges) == Refuted({"i": 0}, {"N": 2}, (("y", (0,)), ("y", (1,))))


def test_a_cycle_through_two_tensors_is_shown() -> None:
    nodes = {"a": (["i"], box(i=N)), "b": (["u"], box(u=N))}
    edges = [("b", [plus(i, 1)], "a", ["i"], [], TRUE), ("a", [plus(Name("u"), -1)], "b", ["u"], [], TRUE)]
    assert sets.well_founded(["N"], TRUE, nodes, edges) == Refuted({"i": 0}, {"N": 2}, (("a", (0,)), ("b", (1,))))


def test_a_distance_that_grows_with_the_size_ranks_nothing() -> None:
    """The last element reads the first, and the first the last, however far apart they are."""
    verdict = sets.well_founded(["N"], TRUE, _Y, [("y", [Add(plus(N, -1), Scale(-1, i))], "y", ["i"], [], TRUE)])
    assert verdict == Refuted({"i": 0}, {"N": 1}, (("y", (0,)),))
    apart = And((lt(Int(1), N), Or((Compare("==", i, Int(0)), Compare("==", i, plus(N, -1))))))
    verdict = sets.well_founded(["N"], TRUE, _Y, [("y", [Add(plus(N, -1), Scale(-1, i))], "y", ["i"], [], apart)])
    assert verdict == Refuted({"i": 0}, {"N": 2}, (("y", (0,)), ("y", (1,))))


def test_a_data_dependent_self_reference_is_unknown() -> None:
    assert isinstance(sets.well_founded(["N"], TRUE, _Y, [("y", [ANYWHERE], "y", ["i"], [], TRUE)]), Unknown)


@pytest.mark.parametrize(("least", "end", "proven"), [(None, i, True), (plus(i, 1), N, True), (plus(i, -3), plus(i, 1), False)])
def test_a_data_dependent_self_reference_is_well_founded_where_all_that_it_may_be_comes_earlier(
    least: Expr | None, end: Expr, proven: bool
) -> None:
    verdict = sets.well_founded(["N"], TRUE, _Y, [("y", [Within(least, end)], "y", ["i"], [], TRUE)])
    assert isinstance(verdict, Proven if proven else Unknown)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=1, max_size=3))
def test_verdicts_on_uniform_recurrences_agree_with_a_search_for_cycles(offsets: list[tuple[int, int]]) -> None:
    edges = [("l", [plus(i, a), plus(j, b)], "l", ["i", "j"], [], TRUE) for a, b in offsets]
    verdict = sets.well_founded(["N"], TRUE, _L, edges)
    cyclic = any(has_cycle(offsets, n) for n in (1, 2, 3, 5))
    if isinstance(verdict, Refuted):
        assert has_cycle(offsets, verdict.params["N"])
    elif isinstance(verdict, Proven):
        assert not cyclic


def has_cycle(offsets: list[tuple[int, int]], n: int) -> bool:
    """Whether following offsets inside an n by n square can return to its start; by removing elements that depend on nothing left."""
    left = set(product(range(n), repeat=2))
    while True:
        free = {p for p in left if not any((p[0] + a, p[1] + b) in left for a, b in offsets)}
        if not free:
            return bool(left)
        left -= free


_names = st.sampled_from(["i", "j", "N"]).map(Name)
_exprs: st.SearchStrategy[Expr] = st.recursive(
    st.one_of(_names, st.integers(-5, 5).map(Int)),
    lambda e: st.one_of(
        st.builds(Add, e, e),
        st.builds(Scale, st.integers(-3, 3), e),
        st.builds(Floor, e, st.integers(1, 4)),
        st.builds(Mod, e, st.integers(1, 4)),
        st.builds(Min, e, e),
        st.builds(Max, e, e),
    ),
    max_leaves=5,
)
_conds: st.SearchStrategy[Cond] = st.recursive(
    st.builds(Compare, st.sampled_from(["<", "<=", "==", "!=", ">=", ">"]), _exprs, _exprs),
    lambda c: st.one_of(
        st.builds(Not, c), st.lists(c, max_size=3).map(lambda x: And(tuple(x))), st.lists(c, max_size=3).map(lambda x: Or(tuple(x)))
    ),
    max_leaves=3,
)
_POINTS = [{"i": a, "j": b, "N": c} for a, b, c in product((-3, 0, 1, 5), (-2, 0, 4), (0, 3))]


@settings(max_examples=80, deadline=None)
@given(_conds)
def test_a_condition_survives_the_way_to_isl_and_back(cond: Cond) -> None:
    frame = Frame(("N",), ("i", "j"))
    again = frame.cond(frame.set(cond))
    assert [holds(again, p) for p in _POINTS] == [holds(cond, p) for p in _POINTS]


@settings(max_examples=80, deadline=None)
@given(_exprs)
def test_an_expression_survives_the_way_to_isl_and_back(expr: Expr) -> None:
    again = Frame(("N",), ("i", "j")).piecewise(Frame(("N",), ("i", "j")).pw_aff(expr))
    if again is not None:
        assert [evaluate(again, p) for p in _POINTS] == [evaluate(expr, p) for p in _POINTS]


@settings(max_examples=80, deadline=None)
@given(_exprs, _exprs, st.integers(1, 4))
def test_arithmetic_on_expressions_keeps_their_values(a: Expr, b: Expr, factor: int) -> None:
    for p in _POINTS:
        x, y = evaluate(a, p), evaluate(b, p)
        assert evaluate(plus_of(a, b), p) == x + y and evaluate(affine.sub(a, b), p) == x - y
        assert evaluate(affine.scale(factor, a), p) == factor * x and evaluate(affine.floor(a, factor), p) == x // factor
        assert evaluate(affine.substitute(a, {"i": b}), p) == evaluate(a, {**p, "i": y})


def plus_of(a: Expr, b: Expr) -> Expr:
    return affine.substitute(Add(a, b), {})


def test_expressions_read_like_arithmetic() -> None:
    assert show(affine.sub(Add(Scale(8, i), N), Add(j, Int(3)))) == "8*i + N - j - 3"
    assert show(Floor(Add(N, Int(7)), 8)) == "(N + 7) // 8"
    assert show_cond(Or((And((lt(i, N), Not(Compare("==", j, Int(0))))), FALSE))) == "(i < N and not (j == 0)) or false"


def test_a_split_puts_factor_times_outer_plus_inner() -> None:
    n = nest(MATMUL, "C").split("i", 8, "io", "ii")
    assert n.loops == ("io", "ii", "j", "k") and show(n.iter_exprs()["i"]) == "8*io + ii"
    assert n.extent("ii") == 8 and n.extent("io") is None
    assert [show(e) for e in n.range("io") or ()] == ["0", "(M + 7) // 8"]


def test_fusing_undoes_a_split() -> None:
    scop = one(("N",), ("i",), box(i=N))
    n = nest(scop, "S").split("i", 4, "io", "ii").fuse("io", "ii", "f")
    assert n.iter_exprs() == {"i": Name("f")} and show_cond(n.domain) == "f >= 0 and f < N"


def test_fusing_starts_where_the_inner_loop_does() -> None:
    scop = one(("N",), ("i",), box(i=N))
    n = nest(scop, "S").split("i", 4, "io", "ii").shift("ii", 3).fuse("io", "ii", "f")
    assert points_of(n, {"N": 6}) == [(f,) for f in range(6)]
    assert [evaluate(n.iter_exprs()["i"], {"N": 6, "f": f}) for f in range(6)] == list(range(6))


def test_a_reversed_loop_covers_the_same_range() -> None:
    n = nest(one(("N",), ("i",), box(i=N)), "S").reverse("i")
    assert show(n.iter_exprs()["i"]) == "N - i - 1" and [show(e) for e in n.range("i") or ()] == ["0", "N"]


def test_an_inserted_loop_has_one_iteration() -> None:
    n = nest(MATMUL, "C.init").insert(2, "k", Add(i, Int(1)))
    assert sorted(points_of(n, {"M": 2, "N": 1, "K": 3})) == [(0, 0, 1), (1, 0, 2)]


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("has no loop `z`", lambda n: n.split("z", 2, "a", "b")),
        ("two loops would be called `j`", lambda n: n.split("i", 2, "j", "ii")),
        ("is not the loop directly inside", lambda n: n.fuse("i", "k", "f")),
        ("the extent of `j` is not a constant", lambda n: n.fuse("i", "j", "f")),
        ("does not name the loops", lambda n: n.reorder(["i", "j"])),
        ("cannot be skewed by itself", lambda n: n.skew("i", "i")),
        ("the factor 0 is not positive", lambda n: n.split("i", 0, "a", "b")),
        ("there is a loop `j` already", lambda n: n.rename("i", "j")),
        ("may use only the loops outside it", lambda n: n.insert(0, "z", Name("i"))),
    ],
)
def test_impossible_transformations_say_why(reason: str, change: object) -> None:
    with pytest.raises(NestError, match=reason.replace("(", r"\(")):
        change(nest(MATMUL, "C"))  # type: ignore[operator]


def test_peeling_keeps_every_instance_once() -> None:
    scop = one(("N",), ("i", "j"), box(i=N, j=Int(3)))
    whole = nest(scop, "S")
    parts = [whole.restrict(lt(i, Int(2))).placed("head"), whole.restrict(le(Int(2), i)).placed("tail")]
    points = [p for part in parts for p in points_of(part, {"N": 5})]
    assert sorted(points) == instances(scop, scop.statements[0], {"N": 5}, reach=8)


def test_dividing_a_remainder_keeps_its_value() -> None:
    assert [evaluate(affine.floor(Mod(i, 2), 2), {"i": v}) for v in (-3, 0, 1)] == [0, 0, 0]


def test_a_reversed_tile_loop_runs_over_negated_values_rather_than_divide() -> None:
    n = nest(MATMUL, "C").split("i", 8, "io", "ii").reverse("io")
    assert show(n.iter_exprs()["i"]) == "ii - 8*io" and "//" not in show_cond(n.domain)
