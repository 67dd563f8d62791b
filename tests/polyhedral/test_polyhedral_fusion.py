"""Producers computed at a loop of their consumers: everything read was computed in the same iteration, in a private copy."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from polyhedral_programs import MATMUL, M, N, box, executed, i, in_sequence, instances, j, le, lt, nest, plus, under

from polyhedral.affine import evaluate, holds
from polyhedral.expr import TRUE, And, Compare, Cond, Expr, Int, Name, Or, Scale
from polyhedral.legality import Violation, check
from polyhedral.model import Access, Leaf, Mark, Scop, Statement, Tensor
from polyhedral.region import footprint, place_at
from polyhedral.scan import scan
from polyhedral.schedule import Schedule
from polyhedral.verdict import Proven


def values_are_there(
    schedule: Schedule, private: Mapping[str, int], sizes: Mapping[str, int], fixed: Mapping[str, int] | None = None
) -> None:
    """Run the scanned loops; each read must find its element complete, within one iteration of the loops that own the copy."""
    program = scan(schedule, sizes=fixed)
    updates = {s.write.tensor: s for s in schedule.scop.statements if s.role == "update"}
    written: dict[tuple[str, tuple[int, ...], tuple[int, ...]], int] = {}
    for placement, point in executed(schedule, program, sizes):
        at = {**sizes, **dict(zip(schedule.nests[placement].loops, point, strict=True))}
        at |= {name: evaluate(e, at) for name, e in schedule.nests[placement].iter_exprs().items()}
        statement = schedule.statements[schedule.nests[placement].statement]
        for access in statement.reads:
            if access.tensor in private and holds(access.when, at):
                element = _element(access, at)
                key = (access.tensor, point[: private[access.tensor]], element)
                assert key in written, (placement, point, access)
                assert written[key] == _updates(updates.get(access.tensor), element, sizes)
        if statement.write.tensor in private:
            key = (statement.write.tensor, point[: private[statement.write.tensor]], _element(statement.write, at))
            if statement.role == "update":
                written[key] += 1
            else:
                written[key] = 0


def _element(access: Access, at: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(e, at) for e in access.index if e is not None)


def _updates(update: Statement | None, element: tuple[int, ...], sizes: Mapping[str, int]) -> int:
    """Return how many updates an element gets in all."""
    if update is None:
        return 0
    points = instances(Scop((), TRUE, (), frozenset(), ()), update, sizes, reach=9)
    return sum(_element(update.write, {**sizes, **dict(zip(update.iters, p, strict=True))}) == element for p in points)


def relu_of_matmul() -> Scop:
    tensors = (*MATMUL.tensors, Tensor("D", (M, N)))
    return Scop(
        MATMUL.params,
        TRUE,
        tensors,
        MATMUL.inputs,
        (*MATMUL.statements, Statement("D", ("i", "j"), box(i=M, j=N), Access("D", (i, j)), (Access("C", (i, j)),))),
    )


def test_a_matmul_computed_at_the_tiles_of_its_activation() -> None:
    scop = relu_of_matmul()
    d = nest(scop, "D").split("i", 4, "io", "ii").split("j", 3, "jo", "ji").reorder(["io", "jo", "ii", "ji"])
    base = in_sequence(scop, nest(scop, "C.init"), nest(scop, "C"), d)
    init, update = place_at(base, ["C.init", "C"], ["C"], ["D"], 2)
    assert update.loops == ("io", "jo", "i", "j", "k")
    marks: dict[str, Mark] = {"i": "unroll", "j": "vector", "ii": "unroll", "ji": "vector", "io": "parallel"}
    update = update.reorder(["io", "jo", "k", "i", "j"])
    inner = (
        *under(["i", "j"], (Leaf("C.init"),), marks),
        *under(["k", "i", "j"], (Leaf("C"),), marks),
        *under(["ii", "ji"], (Leaf("D"),), marks),
    )
    schedule = Schedule(scop, {"C.init": init, "C": update, "D": d}, under(["io", "jo"], inner, marks))
    assert isinstance(check(schedule, storage={"C": 2}, outputs=["D"]), Proven)
    assert footprint(schedule, "C", ["C.init", "C", "D"], 2).extent == (4, 3)
    for m, n in ((1, 1), (4, 3), (5, 7)):
        values_are_there(schedule, {"C": 2}, {"M": m, "N": n, "K": 2})


@st.composite
def chains(draw: st.DrawFn) -> Scop:
    """a -> b -> c, each reading a few neighbours of the one before, inside its bounds or a clause of them."""
    a = Statement("a", ("i", "j"), box(i=N, j=N), Access("a", (i, j)))
    b = Statement("b", ("i", "j"), box(i=N, j=N), Access("b", (i, j)), draw(_reads("a")))
    c = Statement("c", ("i", "j"), draw(_domains()), Access("c", (i, j)), draw(_reads("b")))
    tensors = tuple(Tensor(n, (N, N)) for n in "abc")
    return Scop(("N",), TRUE, tensors, frozenset(), (a, b, c))


def _domains() -> st.SearchStrategy[Cond]:
    whole = box(i=N, j=N)
    hole = And((whole, Or((lt(i, Int(1)), lt(Int(2), j)))))
    return st.sampled_from([whole, And((whole, le(j, i))), And((box(i=plus(N, -2), j=N),)), hole, And((whole, Compare("!=", i, j)))])


@st.composite
def _reads(draw: st.DrawFn, tensor: str) -> tuple[Access, ...]:
    scale = draw(st.sampled_from([1, 1, 2]))
    result = []
    for a, b in draw(st.lists(st.tuples(st.integers(-1, 1), st.integers(-1, 2)), min_size=1, max_size=2)):
        index: tuple[Expr, Expr] = (plus(Scale(scale, i), a), plus(j, b))
        if draw(st.booleans()):
            index = (index[1], index[0])
        result.append(Access(tensor, index, And(tuple(g for e in index for g in (le(Int(0), e), lt(e, N))))))
    return tuple(result)


@settings(max_examples=40, deadline=None)
@given(chains(), st.integers(1, 4), st.integers(1, 3), st.integers(0, 4), st.integers(0, 4), st.integers(0, 7), st.booleans())
def test_random_chains_computed_at_tiles_find_their_values(
    scop: Scop, fi: int, fj: int, at_c: int, at_b: int, n: int, vector: bool
) -> None:
    c = nest(scop, "c").split("i", fi, "io", "ii").split("j", fj, "jo", "ji").reorder(["io", "jo", "ii", "ji"])
    base = in_sequence(scop, nest(scop, "a"), nest(scop, "b"), c)
    (b,) = place_at(base, ["b"], ["b"], ["c"], at_c, {"b": {"i": "bi", "j": "bj"}})
    at_b = min(at_b, at_c)
    marks: dict[str, Mark] = {"ji": "vector", "bj": "vector", "aj": "unroll"} if vector else {}
    fused = Schedule(scop, {"a": nest(scop, "a"), "b": b, "c": c}, _tree(0, at_c, marks))
    (a,) = place_at(fused, ["a"], ["a"], ["b"], at_b, {"a": {"i": "ai", "j": "aj"}})
    schedule = Schedule(scop, {"a": a, "b": b, "c": c}, _tree(at_b, at_c, marks, a_placed=True))
    private = {"a": at_b, "b": at_c}
    verdict = check(schedule, storage=private, outputs=["c"])
    assert isinstance(verdict, Proven), verdict
    values_are_there(schedule, private, {"N": n})
    values_are_there(schedule, private, {"N": n}, fixed={"N": n})
    for tensor, users, depth in (("b", ["b", "c"], at_c), ("a", ["a", "b"], at_b)):
        _inside_footprint(schedule, tensor, users, depth, {"N": n})


def _tree(at_b: int, at_c: int, marks: Mapping[str, Mark], a_placed: bool = False) -> tuple:  # type: ignore[type-arg]
    shared = ["io", "jo", "ii", "ji"]
    a = under(["ai", "aj"] if a_placed else ["i", "j"], (Leaf("a"),), marks)
    at_c_body = (*under(["bi", "bj"], (Leaf("b"),), marks), *under(shared[at_c:], (Leaf("c"),), marks))
    at_b_body = (*(a if a_placed else ()), *under(shared[at_b:at_c], at_c_body, marks))
    return (*(() if a_placed else a), *under(shared[:at_b], at_b_body, marks))


def _inside_footprint(schedule: Schedule, tensor: str, placements: list[str], depth: int, sizes: Mapping[str, int]) -> None:
    found = footprint(schedule, tensor, placements, depth)
    for placement, point in executed(schedule, scan(schedule), sizes):
        at = {**sizes, **dict(zip(schedule.nests[placement].loops, point, strict=True))}
        origin = [evaluate(e, at) for e in found.origin] if placement in placements else []
        at |= {name: evaluate(e, at) for name, e in schedule.nests[placement].iter_exprs().items()}
        statement = schedule.statements[schedule.nests[placement].statement]
        for access in (statement.write, *statement.reads):
            if placement in placements and access.tensor == tensor and holds(access.when, at):
                for low, size, x in zip(origin, found.extent, _element(access, at), strict=True):
                    assert low <= x < low + (size if isinstance(size, int) else evaluate(size, at))


@settings(max_examples=40, deadline=None)
@given(chains(), st.integers(1, 3), st.integers(1, 3), st.integers(0, 4), st.integers(0, 4), st.booleans(), st.booleans())
def test_recomputation_is_accepted_exactly_when_every_read_finds_its_value(
    scop: Scop, fi: int, fj: int, at: int, private: int, swapped: bool, short: bool
) -> None:
    c = nest(scop, "c").split("i", fi, "io", "ii").split("j", fj, "jo", "ji").reorder(["io", "jo", "ii", "ji"])
    base = in_sequence(scop, nest(scop, "a"), nest(scop, "b"), c)
    (b,) = place_at(base, ["b"], ["b"], ["c"], at, {"b": {"i": "bi", "j": "bj"}})
    b = b.restrict(le(Name("bi"), Int(2))) if short else b
    shared = ["io", "jo", "ii", "ji"]
    parts = [under(["bi", "bj"], (Leaf("b"),)), under(shared[at:], (Leaf("c"),))]
    first, second = reversed(parts) if swapped else parts
    tree = (*under(["i", "j"], (Leaf("a"),)), *under(shared[:at], (*first, *second)))
    schedule = Schedule(scop, {"a": nest(scop, "a"), "b": b, "c": c}, tree)
    storage = {"b": min(private, at)}
    verdict = check(schedule, storage=storage, outputs=["c"])
    failing = next((n for n in range(6) if not _finds_values(schedule, storage, {"N": n})), None)
    if isinstance(verdict, Violation):
        assert verdict.params["N"] > 5 or (failing is not None and failing <= verdict.params["N"])
    else:
        assert isinstance(verdict, Proven) and failing is None


def _finds_values(schedule: Schedule, private: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
    try:
        values_are_there(schedule, private, sizes)
    except AssertionError:
        return False
    return True
