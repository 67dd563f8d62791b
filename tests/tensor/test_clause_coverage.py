"""Clauses told apart by the numbers in their guards: what slabs say agrees with every single element."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polyhedral import affine, sets
from polyhedral.expr import Cond, Name
from tensorlang.check.definition import check_module
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Diagnostic, Source
from tensorlang.syntax.parse import parse
from tensorlang.tensor import prove as prover
from tensorlang.tensor.clause_coverage import overlapping, slab, together

AXES = ("i", "j")
RANGE = range(-1, 7)

numbers = st.integers(0, 6)
sides = st.builds(
    affine.compare,
    st.sampled_from(["==", "<", "<=", ">", ">="]),
    st.sampled_from([Name("i"), Name("j"), affine.add(Name("i"), Name("N")), affine.sub(Name("N"), Name("j"))]),
    numbers,
)
odd = st.sampled_from([affine.compare("==", affine.mod(Name("i"), 2), 0), affine.compare("<", Name("i"), Name("j"))])
guards = st.lists(st.lists(st.one_of(sides, sides, odd), max_size=4).map(lambda conds: affine.conj(*conds)), max_size=7)


def holds(cond: Cond, i: int, j: int) -> bool:
    return affine.holds(cond, {"i": i, "j": j, "N": 3})


@given(guards)
def test_pairs_that_are_not_asked_about_share_no_element(conds: list[Cond]) -> None:
    found = [slab(c, AXES) for c in conds]
    pairs = list(overlapping(found))
    assert len(pairs) == len(set(pairs)) and all(a < b for a, b in pairs)
    for a, first in enumerate(conds):
        for b in range(a + 1, len(conds)):
            if (a, b) not in pairs:
                assert not any(holds(first, i, j) and holds(conds[b], i, j) for i in RANGE for j in RANGE)


@given(guards)
def test_slabs_side_by_side_cover_what_the_guards_cover(conds: list[Cond]) -> None:
    joined = together(conds, [slab(c, AXES) for c in conds])
    assert len(joined) <= len(conds)
    for i in RANGE:
        for j in RANGE:
            assert any(holds(c, i, j) for c in joined) == any(holds(c, i, j) for c in conds)


def clauses(count: int, guard: str = "i == {k}") -> str:
    body = "\n".join(f" y[i] = x[i] + {k}   for {guard.format(k=k)}" for k in range(count))
    return f"op f(x: f32[N]) -> (y: f32[{count}]) where N >= {count} {{\n{body}\n}}"


def mistakes(text: str) -> list[Diagnostic]:
    return check_module(load_module(parse(Source("test.tl", text))))


def test_a_hundred_clauses_for_single_elements_leave_no_pair_to_prove(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(sets, "disjoint", None)
    assert mistakes(clauses(100)) == []


def test_elements_twice_and_not_at_all_are_named_among_many() -> None:
    found = mistakes(clauses(100).replace(" for i == 57", " for i == 58"))
    assert [(d.code, d.title.partition(" when")[0]) for d in found] == [
        ("T0302", "`y[58]` is defined twice"),
        ("T0303", "`y[57]` is not defined"),
    ]
    assert len(found[1].labels) == prover.MOST_LABELS


def test_clauses_that_only_proofs_tell_apart_are_refused_beyond_a_budget(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(prover, "MOST_CLAUSES", 40)
    (found,) = mistakes(clauses(10, "i % 10 == {k}"))
    assert found.code == "T0307" and "more than 40 pairs" in found.notes[0]
