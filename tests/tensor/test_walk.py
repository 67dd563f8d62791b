"""Traversal, substitution without capture, renaming, facts, components."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from strategies_tensor import Case, cases, cumsum, definition, heat, read, softmax, tensor, total

from codegen.dtypes import f16, f32, i64
from polyhedral.expr import TRUE, Int
from polyhedral.expr import Name as N
from tensorlang.tensor import affine
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Binary, Compare, Const, Dynamic, Holds, IndexValue, Let, Name, Program, Read, Reduce, Select, Unary
from tensorlang.tensor.verify import verify
from tensorlang.tensor.walk import (
    Fresh,
    caller_shape,
    components,
    dtype_of,
    facts,
    fresh_for,
    index_names,
    negative_facts,
    program_names,
    reads,
    refresh,
    rename_program,
    substitute,
    substitute_names,
    substitute_sizes,
    types_of,
    value_names,
    visits,
)

SUM = total(Binary("*", read("x", "i", "k"), read("w", "k")), f32, ("k", 0, N("n")))


def test_substitution_reaches_indices_bounds_conditions_and_data_dependent_slots() -> None:
    e = Select(Holds(affine.compare("<", "i", 3)), Read("x", (Dynamic(read("ids", "i"), Int(0), N("i")),)), IndexValue(N("i")))
    to = affine.add("j", 1)
    expected = Select(Holds(affine.compare("<", to, 3)), Read("x", (Dynamic(read("ids", to), Int(0), to),)), IndexValue(to))
    assert substitute(e, {"i": to}) == expected


def test_a_binder_does_not_capture_what_is_substituted() -> None:
    moved = substitute(SUM, {"i": N("k")})
    assert isinstance(moved, Reduce) and moved.binders[0].name == "k_1"
    assert moved.body[0] == Binary("*", read("x", "k", "k_1"), read("w", "k_1"))
    assert substitute(SUM, {"k": N("q")}) == SUM


def test_values_are_substituted_without_capture() -> None:
    inner = total(Binary("*", Name("v"), read("w", "k")), f32, ("k", 0, N("n")))
    moved = substitute_names(inner, {"v": read("w", "k")})
    assert isinstance(moved, Reduce) and moved.body[0] == Binary("*", read("w", "k"), read("w", "k_1"))
    let = Let("a", Const(1.0, f32), Binary("+", Name("a"), Name("b")))
    assert substitute_names(let, {"b": Name("a")}) == Let("a_1", Const(1.0, f32), Binary("+", Name("a_1"), Name("a")))


def test_a_refreshed_copy_shares_no_bound_name() -> None:
    e = Let("v", SUM, Binary("+", Name("v"), Name("v")))
    copy = refresh(e, Fresh({"v", "k"}))
    assert isinstance(copy, Let) and copy.name == "v_1" and isinstance(copy.value, Reduce) and copy.value.binders[0].name == "k_1"
    assert copy.body == Binary("+", Name("v_1"), Name("v_1"))


def test_free_names_are_those_that_nothing_inside_binds() -> None:
    assert index_names(SUM) == {"i", "n"}
    assert value_names(Let("v", Name("u"), Name("v"))) == {"u"}
    assert [r.tensor for r in reads(SUM)] == ["x", "w"]


def test_conditions_tell_what_holds_on_either_side() -> None:
    low, high = affine.compare(">=", "i", 1), affine.compare("<", "i", "n")
    data = Compare("<", read("x", "i"), Const(0.0, f32))
    assert facts(Binary("and", Holds(low), data)) == low and negative_facts(Binary("and", Holds(low), data)) == TRUE
    assert facts(Binary("or", Holds(low), data)) == TRUE
    assert negative_facts(Binary("or", Holds(low), Unary("not", Holds(high)))) == affine.conj(affine.negate(low), high)


def test_a_visit_knows_ranges_and_conditions_around_a_node() -> None:
    guarded = total(Select(Holds(affine.compare(">", "k", 0)), read("x", "k"), Const(0.0, f32)), f32, ("k", 0, N("n")))
    visit = next(v for v in visits(guarded, TRUE, ("i",)) if isinstance(v.node, Read))
    assert visit.scope == ("i", "k")
    assert visit.known == affine.conj(affine.within("k", 0, "n"), affine.compare(">", "k", 0))


def test_producers_come_before_their_readers_and_cycles_stay_together() -> None:
    assert [[d.tensors[0].name for d in group] for group in components(softmax())] == [["m"], ["e"], ["s"], ["y"]]
    shuffled = replace(softmax(), definitions=softmax().definitions[::-1])
    assert [d.tensors[0].name for group in components(shuffled) for d in group] == ["m", "e", "s", "y"]
    a, b = tensor("a", f32, "n"), tensor("b", f32, "n")
    mutual = Program("p", ("n",), (), ("a",), (definition(a, ("i",), read("b", "i")), definition(b, ("i",), read("a", "i"))))
    assert [len(group) for group in components(mutual)] == [2]


def test_values_are_computed_in_f32_for_narrow_floats() -> None:
    types = types_of(Program("p", (), (tensor("h", f16, 3), tensor("k", i64, 3)), (), ()))
    assert dtype_of(read("h", 0), types) == f32 and dtype_of(read("k", 0), types) == i64


def test_a_grouped_tensor_shows_products_of_its_axes() -> None:
    assert caller_shape(replace(tensor("x", f32, 2, "n", 4), grouping=(2, 1, 0)), {"n": 3}) == (6, 4, 1)


@given(cases())
@settings(max_examples=30, deadline=None)
def test_a_renamed_program_computes_the_same(case: Case) -> None:
    to = {name: f"{name}'" for name in program_names(case.program)}
    renamed = verify(rename_program(case.program, to))
    before = interpret(case.program, case.sizes, case.arrays)
    after = interpret(renamed, {to[s]: v for s, v in case.sizes.items()}, {to[a]: v for a, v in case.arrays.items()})
    assert {to[n]: a.tobytes() for n, a in before.items()} == {n: a.tobytes() for n, a in after.items()}


@given(cases())
@settings(max_examples=30, deadline=None)
def test_sizes_that_became_numbers_compute_the_same(case: Case) -> None:
    fixed = verify(substitute_sizes(case.program, {s: Int(v) for s, v in case.sizes.items()}))
    assert fixed.sizes == ()
    before, after = interpret(case.program, case.sizes, case.arrays), interpret(fixed, {}, case.arrays)
    assert {n: a.tobytes() for n, a in before.items()} == {n: a.tobytes() for n, a in after.items()}


def test_fresh_names_are_counted() -> None:
    fresh = fresh_for(cumsum())
    assert [fresh("y"), fresh("y"), fresh("z")] == ["y_1", "y_2", "z"]
    assert {"s", "t", "i", "n", "T"} <= program_names(heat())
