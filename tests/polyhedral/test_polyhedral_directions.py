"""Along which loops dependences point: by enumeration of small recurrences, in every order of the loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product

from hypothesis import given, settings
from hypothesis import strategies as st
from polyhedral_programs import HEAT, box, i, in_sequence, instances, j, nest, plus

from polyhedral.affine import evaluate, holds
from polyhedral.directions import MOST_SKEW, Distances, distances_of
from polyhedral.expr import TRUE, And, Compare, Cond, Int
from polyhedral.model import Access, Leaf, Loop, Scop, Statement, Tensor
from polyhedral.schedule import Schedule

SIZE = 5
Vector = tuple[int, ...]
Step = tuple[int, int]


def recurrence(first: Sequence[Step], second: Sequence[Step]) -> Scop:
    """Return `a[i, j]` in two pieces, below and from row 2 on, each of which reads the elements that are so many steps away."""
    whole = box(i=Int(SIZE), j=Int(SIZE))

    def statement(name: str, where: Cond, steps: Sequence[Step]) -> Statement:
        inside = [And((Compare("<=", Int(0), e), Compare("<", e, Int(SIZE)))) for s in steps for e in (plus(i, s[0]), plus(j, s[1]))]
        reads = tuple(Access("a", (plus(i, di), plus(j, dj))) for di, dj in steps)
        return Statement(name, ("i", "j"), And((whole, where, *inside)), Access("a", (i, j)), reads)

    low, high = Compare("<", i, Int(2)), Compare("<=", Int(2), i)
    tensors = (Tensor("a", (Int(SIZE), Int(SIZE))),)
    return Scop((), TRUE, tensors, frozenset(), (statement("low", low, first), statement("high", high, second)))


def together(scop: Scop) -> Schedule:
    """Return both pieces in the same loops."""
    body = (Loop("i", (Loop("j", tuple(Leaf(s.name) for s in scop.statements)),)),)
    return Schedule(scop, {s.name: nest(scop, s.name) for s in scop.statements}, body)


def pairs(scop: Scop) -> Iterator[tuple[int, int, Vector]]:
    """Yield (part of the source, part of the target, distance) for each element that is read and defined."""
    made = {p: (k, p) for k, s in enumerate(scop.statements) for p in instances(scop, s, {})}
    for part, target in enumerate(scop.statements):
        for point in instances(scop, target, {}):
            at = dict(zip(target.iters, point, strict=True))
            for access in target.reads:
                source = made.get(tuple(evaluate(e, at) for e in access.index if e is not None))
                if source is not None:
                    yield source[0], part, tuple(b - a for a, b in zip(source[1], point, strict=True))


def of(vector: Vector, order: Sequence[str]) -> Vector:
    return tuple(vector["ij".index(loop)] for loop in order)


steps = st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), max_size=3)


@given(steps, steps)
def test_orders_free_loops_and_separation_are_those_of_the_distances_that_there_are(first: list[Step], second: list[Step]) -> None:
    scop = recurrence(first, second)
    found = distances_of(together(scop), {"low": 0, "high": 1})
    there = list(pairs(scop))
    for order in permutations("ij"):
        vectors = [(p, q, of(v, order)) for p, q, v in there]
        legal = all(v >= (0, 0) for _, _, v in vectors)
        assert found.is_legal(order) == legal
        for separate in (None, 0, 1, 2):
            outside = 2 if separate is None else separate
            carrying = {order[k] for p, q, v in vectors for k in range(2) if (p == q or k < outside) and not any(v[:k]) and v[k]}
            assert found.free(order, separate) == tuple(loop for loop in order if loop not in carrying)
            if legal:
                carried = [(order[k], v[k]) for p, q, v in vectors for k in range(2) if (p == q or k < outside) and not any(v[:k]) and v[k]]
                assert found.least_distances(order, separate) == {a: min(n for b, n in carried if a == b) for a, _ in carried}
        fits = [d for d in range(3) if not any(p > q and not any(v[:d]) for p, q, v in vectors)]
        assert found.separable(order) == (fits[0] if fits else None)


@settings(max_examples=30)
@given(steps, steps, st.booleans())
def test_a_wavefront_is_the_least_skew_along_which_all_distances_point_forwards(
    first: list[Step], second: list[Step], separate: bool
) -> None:
    scop = recurrence(first, second)
    found = distances_of(together(scop), {"low": 0, "high": 1})
    there = [v for p, q, v in pairs(scop) if any(v) and (p == q or not separate)]
    for skewed, along in permutations("ij"):
        fits = [f for f in range(1, MOST_SKEW + 1) if all(of(v, skewed)[0] + f * of(v, along)[0] > 0 for v in there)]
        assert found.wavefront((), skewed, along, separate) == next(iter(fits), None)
    every = [v for _, _, v in pairs(scop) if any(v)]
    for factors in product(range(3), repeat=2):
        forwards = all(factors[0] * v[0] + factors[1] * v[1] > 0 for v in every)
        assert found.is_wavefront(dict(zip("ij", factors, strict=True))) == forwards


@settings(max_examples=30)
@given(steps, steps)
def test_a_skew_for_tiles_is_the_least_that_leaves_no_distance_backwards(first: list[Step], second: list[Step]) -> None:
    scop = recurrence(first, second)
    found = distances_of(together(scop), {"low": 0, "high": 1})
    there = [v for _, _, v in pairs(scop)]
    for skewed, along in permutations("ij"):
        forwards = all(of(v, along)[0] >= 0 for v in there)
        fits = [f for f in range(MOST_SKEW + 1) if all(of(v, skewed)[0] + f * of(v, along)[0] >= 0 for v in there)]
        assert found.permutable_skew(skewed, along) == (next(iter(fits), None) if forwards else None)


@settings(max_examples=60, deadline=None)
@given(steps, steps)
def test_offsets_are_the_first_with_which_no_distance_of_parts_points_backwards(first: list[Step], second: list[Step]) -> None:
    scop = recurrence(first, second)
    there = set(pairs(scop))
    found = distances_of(together(scop), {"low": 0, "high": 1}).permutable_offsets("j", "i")
    if any(v[0] < 0 for _, _, v in there):
        assert found is None
        return

    def fits(factor: int, behind: Sequence[int]) -> bool:
        return all(v[1] + factor * v[0] + behind[target] - behind[source] >= 0 for source, target, v in there)

    known = [(f, b) for f in range(MOST_SKEW + 1) for b in product(range(2 * SIZE), repeat=2) if min(b) == 0 and fits(f, b)]
    factor = min((f for f, _ in known), default=None)
    if factor is None:
        assert found is None
    else:
        assert found is not None and found[0] == factor
        assert [found[1].get(p, 0) for p in (0, 1)] == [min(b[p] for f, b in known if f == factor) for p in (0, 1)]


def test_a_wavefront_is_one_of_the_distances_that_loops_outside_leave() -> None:
    found = distances_of(together(recurrence([], [(-1, 1), (0, -1)])), {"low": 0, "high": 1})
    assert (found.wavefront((), "j", "i", False), found.wavefront((), "i", "j", False)) == (2, None)
    steps_of_heat = distances_of(in_sequence(HEAT, *(nest(HEAT, s.name) for s in HEAT.statements)), {"step": 0})
    assert steps_of_heat.wavefront(("i",), "t", "t", True) is None


def test_statements_are_compared_along_the_loops_that_all_of_them_have() -> None:
    found = distances_of(in_sequence(HEAT, *(nest(HEAT, s.name) for s in HEAT.statements)), {"step": 0})
    assert isinstance(found, Distances)
    assert found.loops == ("t", "i")
    assert (found.free(("t", "i")), found.is_legal(("i", "t"))) == (("i",), False)


def test_enumeration_agrees_with_the_domains() -> None:
    scop = recurrence([(-1, 0)], [(0, -1)])
    for statement, point in product(scop.statements, product(range(SIZE), range(SIZE))):
        at = dict(zip("ij", point, strict=True))
        assert holds(statement.domain, at) == (point in instances(scop, statement, {}))
