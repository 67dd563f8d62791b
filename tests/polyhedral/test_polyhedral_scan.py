"""The scanned loops visit exactly the points of the schedule, in its order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polyhedral_programs import (
    HEAT,
    MATMUL,
    N,
    box,
    executed,
    i,
    in_sequence,
    instances,
    j,
    le,
    lt,
    nest,
    one,
    plus,
    run,
    timeline,
    under,
)
from work_done import calls_made

from polyhedral import loops
from polyhedral.affine import evaluate, holds
from polyhedral.errors import NestError
from polyhedral.expr import TRUE, Add, And, Compare, Cond, Expr, Floor, Int, Mod, Name, Not, Or, Scale
from polyhedral.loops import For, If, Node
from polyhedral.model import Access, Leaf, Mark, Scop, Statement, Tensor, Tree
from polyhedral.nest import Nest
from polyhedral.scan import scan
from polyhedral.schedule import Schedule


def check_scan(schedule: Schedule, sizes: Mapping[str, int]) -> None:
    """Set and order agree, with symbolic and with fixed sizes, with and without full tiles separated."""
    expected = timeline(schedule, sizes)
    for fixed in ({}, sizes):
        for separate in (True, False):
            program = scan(schedule, sizes=fixed, separate=separate)
            assert executed(schedule, program, sizes) == expected, loops.show(program)


def extents(nodes: tuple[Node, ...], name: str) -> list[int | None]:
    found: list[int | None] = []
    for node in nodes:
        match node:
            case For(_, _, _, _, extent, body):
                found += ([extent] if node.name == name else []) + extents(body, name)
            case If(_, body):
                found += extents(body, name)
    return found


def matmul(mi: int = 4, ni: int = 8) -> Schedule:
    marks: dict[str, Mark] = {"ii": "unroll", "ji": "vector"}
    c = nest(MATMUL, "C").split("i", mi, "io", "ii").split("j", ni, "jo", "ji").reorder(["io", "jo", "k", "ii", "ji"])
    init = nest(MATMUL, "C.init").split("i", mi, "io", "ii").split("j", ni, "jo", "ji").reorder(["io", "jo", "ii", "ji"])
    inner = (*under(["ii", "ji"], (Leaf("C.init"),), marks), *under(["k", "ii", "ji"], (Leaf("C"),), marks))
    return Schedule(MATMUL, {"C": c, "C.init": init}, under(["io", "jo"], inner))


@pytest.mark.parametrize("m", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("n", [0, 1, 8, 17])
def test_a_tiled_matmul_runs_every_instance_once_for_sizes_with_and_without_tails(m: int, n: int) -> None:
    check_scan(matmul(), {"M": m, "N": n, "K": 2})


def test_full_tiles_of_a_tiled_matmul_have_constant_trip_counts() -> None:
    program = scan(matmul())
    assert extents(program, "ii") == [4] * 4 + [None] * 4
    assert extents(program, "ji").count(8) == 4


def test_static_sizes_make_every_trip_count_constant_even_in_remainders() -> None:
    program = scan(matmul(), sizes={"M": 1001, "N": 1001, "K": 7})
    assert None not in extents(program, "ii") + extents(program, "ji") + extents(program, "io")


def test_divisible_sizes_have_no_remainder() -> None:
    def copies(nodes: Sequence[Node]) -> int:
        return sum(1 if isinstance(n, loops.Run) else copies(n.body) for n in nodes)

    assert copies(scan(matmul(), sizes={"M": 1024, "N": 1024, "K": 7})) == 2


def test_two_levels_of_tiles_pin_the_outer_tile_in_the_remainder() -> None:
    n = nest(MATMUL, "C.init").split("i", 8, "io", "ii").split("io", 2, "ioo", "ioi").reorder(["ioo", "j", "ioi", "ii"])
    schedule = in_sequence(MATMUL, nest(MATMUL, "C"), n, marks={"ii": "unroll"})
    program = scan(schedule, sizes={"M": 37, "N": 3, "K": 1})
    assert None not in extents(program, "ii")
    check_scan(schedule, {"M": 37, "N": 3, "K": 1})


@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize("n", [3, 4, 9, 17])
def test_skewed_tiles_of_a_stencil(steps: int, n: int) -> None:
    step = nest(HEAT, "step").skew("i", "t").split("t", 4, "to", "ti").split("i", 8, "io", "ii").reorder(["to", "io", "ti", "ii"])
    check_scan(in_sequence(HEAT, nest(HEAT, "edge"), step, marks={"ii": "vector"}), {"T": steps, "N": n})


@pytest.mark.parametrize(("rows", "length"), [(18, 22), (22, 18), (17, 31), (31, 17)])
@pytest.mark.parametrize("shifted", [0, 1])
def test_tiles_that_several_conditions_cut_at_their_end_run_in_order(rows: int, length: int, shifted: int) -> None:
    """Where the second row of a tile ends before the first, tiles stop being full at one condition, and go on to the other."""
    ends = And((lt(Add(i, Scale(8, j if shifted else plus(Scale(-1, j), 1))), N), lt(i, Name("M"))))
    scop = one(("N", "M"), ("i", "j"), And((le(Int(0), i), box(j=Int(2)), ends)))
    tiled = nest(scop, "S").split("i", 4, "io", "ii")
    check_scan(in_sequence(scop, tiled, marks={"ii": "unroll", "j": "unroll"}), {"N": length, "M": rows})


def triangle() -> Scop:
    return one(("N",), ("i", "j"), And((box(i=N), le(Int(0), j), le(j, i))))


@pytest.mark.parametrize("n", [0, 1, 5, 8, 13])
def test_triangles_tiled_in_both_dimensions(n: int) -> None:
    nests = nest(triangle(), "S").split("i", 4, "io", "ii").split("j", 4, "jo", "ji").reorder(["io", "jo", "ii", "ji"])
    check_scan(in_sequence(triangle(), nests, marks={"ii": "unroll", "ji": "vector"}), {"N": n})


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
def test_padding_as_a_domain_becomes_bounds_of_the_reduction_loop(n: int) -> None:
    r = Name("r")
    scop = one(("N",), ("i", "r"), And((box(i=N, r=Int(3)), le(Int(0), plus(Add(i, r), -1)), lt(plus(Add(i, r), -1), N))))
    program = scan(in_sequence(scop, nest(scop, "S")))
    assert "if" not in loops.show(program)
    check_scan(in_sequence(scop, nest(scop, "S").split("i", 4, "io", "ii"), marks={"ii": "vector"}), {"N": n})


def test_guards_stand_where_statements_of_one_loop_differ() -> None:
    scop = two((Int(0), N), (Int(1), plus(N, -1)))
    schedule = fused(scop)
    assert loops.show(scan(schedule)) == "for i in 0 .. N {\n    A\n    if i >= 1 and i < N - 1 {\n        B\n    }\n}\n"
    for n in (0, 1, 2, 3, 6):
        check_scan(schedule, {"N": n})


def two(a: tuple[object, object], b: tuple[object, object]) -> Scop:
    def domain(ends: tuple[object, object]) -> Cond:
        return And((le(ends[0], i), lt(i, ends[1])))  # type: ignore[arg-type]

    tensors = (Tensor("A", (N,)), Tensor("B", (N,)))
    return Scop(
        ("N",),
        TRUE,
        tensors,
        frozenset(),
        (Statement("A", ("i",), domain(a), Access("A", (i,))), Statement("B", ("i",), domain(b), Access("B", (i,)))),
    )


def fused(scop: Scop) -> Schedule:
    return Schedule(scop, {s.name: nest(scop, s.name) for s in scop.statements}, under(["i"], tuple(Leaf(s.name) for s in scop.statements)))


@pytest.mark.parametrize("n", [0, 1, 4, 7])
def test_a_fused_loop_over_disjoint_ranges(n: int) -> None:
    check_scan(fused(two((Int(0), N), (Add(N, Int(2)), Add(Scale(2, N), Int(3))))), {"N": n})


def test_a_domain_with_holes_runs_only_its_points() -> None:
    hole = And((box(i=N, j=N), Not(And((le(Int(2), i), lt(i, Int(4)), le(Int(1), j), lt(j, Int(3)))))))
    scop = one(("N",), ("i", "j"), hole)
    for n in (0, 1, 3, 5, 6):
        check_scan(in_sequence(scop, nest(scop, "S")), {"N": n})
        check_scan(
            in_sequence(scop, nest(scop, "S").split("j", 2, "jo", "ji").reorder(["jo", "i", "ji"]), marks={"ji": "vector"}), {"N": n}
        )


@pytest.mark.parametrize("n", [0, 1, 4, 7, 9])
def test_a_vector_of_which_one_lane_is_left_out_that_loops_around_decide_is_one_loop(n: int) -> None:
    scop = one(("N",), ("i", "j"), And((box(i=N, j=N), Compare("!=", i, j))))
    schedule = in_sequence(scop, nest(scop, "S").split("j", 4, "jo", "ji"), marks={"ji": "vector"})
    check_scan(schedule, {"N": n})
    assert extents(scan(schedule, sizes={"N": 8}), "ji") == [4]
    assert "!=" in loops.show(scan(schedule, sizes={"N": 8}))


def test_boundary_clauses_do_not_walk_the_interior() -> None:
    sizes = {"T": 5, "N": 50}
    program = scan(in_sequence(HEAT, nest(HEAT, "edge")))
    assert iterations(program, sizes) == 6 + 50 + 2 * 5
    check_scan(in_sequence(HEAT, nest(HEAT, "edge"), nest(HEAT, "step")), sizes)


def iterations(nodes: tuple[Node, ...], values: Mapping[str, int]) -> int:
    """Return how many times any loop goes round."""
    total = 0
    for node in nodes:
        match node:
            case For(name, lo, hi, _, _, body):
                total += sum(1 + iterations(body, {**values, name: v}) for v in range(evaluate(lo, values), evaluate(hi, values)))
            case If(cond, body) if holds(cond, values):
                total += iterations(body, values)
    return total


@pytest.mark.parametrize(
    ("extent", "context", "lanes"),
    [
        (Scale(8, Floor(Add(N, Int(7)), 8)), TRUE, [16, 8]),
        (Scale(16, Floor(Add(N, Int(15)), 16)), TRUE, [16]),
        (Add(N, Scale(-1, Mod(N, 8))), TRUE, [16, 8]),
        (Scale(5, Floor(Add(Floor(N, 4), Int(2)), 3)), TRUE, [16, None]),
        (Scale(3, Floor(N, 8)), Compare("==", Mod(N, 8), Int(3)), [16, None]),
    ],
)
def test_full_tiles_of_an_extent_that_holds_a_quotient_of_a_size_ask_nothing(extent: Expr, context: Cond, lanes: list[int | None]) -> None:
    scop = one(("N",), ("i",), box(i=extent), context)
    schedule = in_sequence(scop, nest(scop, "S").split("i", 16, "io", "ii"), marks={"ii": "vector"})
    program = scan(schedule)
    assert extents(program, "ii") == lanes
    assert "if" not in loops.show(program)
    for n in (3, 11, 35) if context != TRUE else (0, 1, 15, 16, 17, 40):
        check_scan(schedule, {"N": n})


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9])
def test_a_strided_domain(n: int) -> None:
    from_two = Compare("==", Add(i, Scale(-2, Name("q"))), Int(0))
    scop = one(("N",), ("i", "q"), And((box(i=N, q=N), from_two)))
    check_scan(in_sequence(scop, nest(scop, "S")), {"N": n})
    check_scan(in_sequence(scop, nest(scop, "S").reorder(["q", "i"])), {"N": n})


def test_index_set_splitting_places_a_statement_twice() -> None:
    scop = one(("N",), ("i",), box(i=N))
    first = nest(scop, "S").restrict(lt(i, Int(5))).placed("head")
    rest = nest(scop, "S").restrict(le(Int(5), i)).split("i", 4, "io", "ii").placed("rest")
    for n in (0, 3, 5, 6, 14):
        check_scan(in_sequence(scop, first, rest, marks={"ii": "vector"}), {"N": n})


def test_a_parallel_loop_is_guarded_inside_instead_of_peeled() -> None:
    schedule = in_sequence(
        MATMUL, nest(MATMUL, "C"), nest(MATMUL, "C.init").split("i", 4, "io", "ii"), marks={"io": "parallel", "ii": "unroll"}
    )
    program = scan(schedule)
    assert [n.mark for n in program if isinstance(n, For) and n.name == "io"] == ["parallel"]
    assert 4 in extents(program, "ii")
    for m in (0, 3, 4, 9):
        check_scan(schedule, {"M": m, "N": 2, "K": 1})


def test_names_may_be_keywords_and_odd_strings() -> None:
    scop = Scop(
        ("for", "max"),
        TRUE,
        (Tensor("exists", (Name("for"),)),),
        frozenset(),
        (
            Statement(
                "and", ("y.0'", "mod"), box(**{"y.0'": Name("for"), "mod": Name("max")}), Access("exists", (Name("y.0'"), Name("mod")))
            ),
        ),
    )
    n = nest(scop, "and").split("y.0'", 4, "min", "floor")
    check_scan(in_sequence(scop, n, marks={"floor": "vector"}), {"for": 6, "max": 2})


def test_scanning_tiled_static_kernels_is_little_work() -> None:
    schedule = matmul(8, 16)
    assert calls_made(lambda: scan(schedule, sizes={"M": 1001, "N": 1001, "K": 1001})) < 20_000


_constants = st.integers(-3, 6)


@st.composite
def domains(draw: st.DrawFn) -> Cond:
    """A bounded set of (i, j), perhaps not a box, perhaps a union."""
    base = box(i=N, j=draw(st.sampled_from([N, Int(5), Add(N, Int(2))])))
    extra = draw(st.lists(_clauses(), max_size=2))
    return And((base, *extra)) if draw(st.booleans()) or not extra else And((base, Or(tuple(extra))))


@st.composite
def _clauses(draw: st.DrawFn) -> Cond:
    a, b, c = draw(st.integers(-2, 2)), draw(st.integers(-2, 2)), draw(_constants)
    form = Add(Add(Scale(a, i), Scale(b, j)), Int(c))
    return Compare(
        draw(st.sampled_from([">=", "<=", "!=", "=="])) if draw(st.booleans()) else ">=", form, draw(st.sampled_from([Int(0), N]))
    )


@st.composite
def transformed(draw: st.DrawFn, n: Nest) -> Nest:
    for step in range(draw(st.integers(0, 3))):
        loop = draw(st.sampled_from(n.loops))
        other = draw(st.sampled_from(n.loops))
        try:
            match draw(st.sampled_from(["split", "skew", "reorder", "reverse", "shift", "fuse"])):
                case "split" if len(n.loops) < 4:
                    n = n.split(loop, draw(st.integers(1, 4)), f"{loop}o{step}", f"{loop}i{step}")
                case "skew":
                    n = n.skew(loop, other, draw(st.sampled_from([1, 2, -1])))
                case "reorder":
                    n = n.reorder(draw(st.permutations(n.loops)))
                case "reverse":
                    n = n.reverse(loop)
                case "shift":
                    n = n.shift(loop, draw(_constants))
                case "fuse" if len(n.loops) > 1:
                    n = n.fuse(n.loops[0], n.loops[1], f"f{step}")
                case _:
                    pass
        except NestError:
            pass
    return n


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_nests_run_exactly_their_points_in_order(data: st.DataObject) -> None:
    scop = one(("N",), ("i", "j"), data.draw(domains()))
    n = data.draw(transformed(nest(scop, "S")))
    marks: dict[str, Mark] = {name: data.draw(st.sampled_from(["serial", "vector", "unroll", "parallel"])) for name in n.loops}
    schedule = in_sequence(scop, n, marks=marks)
    sizes = {"N": data.draw(st.integers(0, 7))}
    check_scan(schedule, sizes)
    seen = run(schedule, scan(schedule), sizes)
    assert sorted(p for _, p in seen) == sorted(instances(scop, scop.statements[0], sizes, reach=12))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_random_fused_trees_interleave_their_statements_in_order(data: st.DataObject) -> None:
    parts = [one(("N",), ("i", "j"), data.draw(domains())) for _ in range(3)]
    statements = tuple(Statement(f"S{k}", ("i", "j"), p.statements[0].domain, Access(f"S{k}", (i, j))) for k, p in enumerate(parts))
    scop = Scop(("N",), TRUE, tuple(Tensor(s.name, (Int(99), Int(99))) for s in statements), frozenset(), statements)
    nests = {s.name: nest(scop, s.name) for s in statements}
    if data.draw(st.booleans()):
        nests = {n: v.split("i", 3, "io", "i") for n, v in nests.items()}
    shared = data.draw(st.integers(0, len(nests["S0"].loops) - 1))
    loops_of = nests["S0"].loops
    inner: tuple[Tree, ...] = tuple(node for s in statements for node in under(loops_of[shared:], (Leaf(s.name),), {"j": "vector"}))
    check_scan(Schedule(scop, nests, under(loops_of[:shared], inner, {"i": "unroll"})), {"N": data.draw(st.integers(0, 6))})


def test_pieces_that_only_divisions_tell_apart_stay_in_one_loop() -> None:
    scop = one(("N",), ("i", "j"), And((box(i=N, j=Int(5)), Compare("!=", j, N))))
    fused_loops = nest(scop, "S").fuse("i", "j", "f").split("f", 1, "fo", "fi")
    for n in range(7):
        check_scan(in_sequence(scop, fused_loops), {"N": n})
