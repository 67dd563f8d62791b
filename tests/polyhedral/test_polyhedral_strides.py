"""Loops whose values lie some apart count these one by one: the same instances in the same order, and no iteration that does nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from polyhedral_programs import HEAT, N, box, executed, i, in_sequence, j, le, lt, nest, one, plus, timeline, under

from polyhedral import loops
from polyhedral.affine import evaluate
from polyhedral.expr import Add, And, Compare, Int, Mod, Name, Scale
from polyhedral.model import Access, Leaf, Mark, Scop, Statement, Tensor
from polyhedral.nest import Nest
from polyhedral.scan import scan
from polyhedral.schedule import Schedule
from polyhedral.strides import counted

Instance = tuple[str, tuple[int, ...]]


def instances_of(schedule: Schedule, events: list[tuple[str, tuple[int, ...]]], sizes: Mapping[str, int]) -> list[Instance]:
    """Return the instances that run at the loop values of some events."""
    found = []
    for placement, at in events:
        of = schedule.nests[placement]
        values = {**sizes, **dict(zip(of.loops, at, strict=True))}
        found.append((of.statement, tuple(evaluate(e, values) for e in of.iter_exprs().values())))
    return found


def check_counted(schedule: Schedule, sizes: Mapping[str, int]) -> Schedule:
    made = counted(schedule)
    expected = instances_of(schedule, timeline(schedule, sizes), sizes)
    for fixed in ({}, sizes):
        program = scan(made, sizes=fixed)
        assert instances_of(made, executed(made, program, sizes), sizes) == expected, loops.show(program)
    return made


def diamonds(mark: Mark = "serial") -> Schedule:
    """Return steps of a stencil in tiles of t + i and t - i."""
    step: Nest = nest(HEAT, "step").mapped(["t", "i"], {"p": Add(Name("t"), i), "q": Add(Name("t"), Scale(-1, i))})
    tiled = step.split("p", 4, "po", "pi").split("q", 4, "qo", "qi").reorder(["po", "qo", "pi", "qi"])
    return in_sequence(HEAT, tiled, marks={"qi": mark})


@pytest.mark.parametrize("n", [3, 4, 9, 14])
@pytest.mark.parametrize("mark", ["serial", "vector", "unroll"])
def test_diamonds_run_every_instance_in_their_order(n: int, mark: Mark) -> None:
    check_counted(diamonds(mark), {"T": 5, "N": n})


def test_of_diamonds_no_iteration_asks_for_its_parity() -> None:
    assert "% 2" in loops.show(scan(diamonds())) and "% 2" not in loops.show(scan(counted(diamonds())))


def test_tiles_keep_a_constant_length() -> None:
    assert "unroll qi in 0 .. 2" in loops.show(scan(counted(diamonds("unroll")), sizes={"T": 40, "N": 200}))


def test_a_loop_with_another_step_in_each_of_its_statements_stays() -> None:
    def domain(rest: int) -> And:
        return And((box(i=N), Compare("==", Mod(i, 2), Int(rest))))

    names = ("A", "B")
    statements = tuple(Statement(name, ("i",), domain(k), Access(name, (i,))) for k, name in enumerate(names))
    scop = Scop(("N",), le(Int(0), N), tuple(Tensor(name, (N,)) for name in names), frozenset(), statements)
    schedule = Schedule(scop, {name: nest(scop, name) for name in names}, under(["i"], tuple(map(Leaf, names))))
    assert counted(schedule).nests == schedule.nests
    inner = one(("N",), ("i", "j"), And((box(i=N, j=N), Compare("==", Mod(plus(Add(i, j), 1), 3), Int(0)))))
    made = check_counted(in_sequence(inner, nest(inner, "S")), {"N": 8})
    assert "if" not in loops.show(scan(made))


@settings(max_examples=15, deadline=None)
@given(st.tuples(*[st.integers(-3, 3)] * 4), st.integers(1, 5), st.sampled_from(["serial", "vector"]))
def test_changes_of_variables_keep_instances_and_their_order(factors: tuple[int, int, int, int], split: int, mark: Mark) -> None:
    a, b, c, d = factors
    assume(a * d != b * c)
    scop = one(("N",), ("i", "j"), And((box(i=N), le(Int(0), j), lt(j, plus(N, 1)))))
    new = {"p": Add(Scale(a, i), Scale(b, j)), "q": Add(Scale(c, i), Scale(d, j))}
    mapped = nest(scop, "S").mapped(["i", "j"], new).split("q", split, "qo", "qi")
    check_counted(in_sequence(scop, mapped, marks={"qi": mark}), {"N": 4})
