"""Traversal, substitution without capture, components."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from strategies_tensor import Case, cases, cumsum, definition, heat, read, softmax, tensor, total

from codegen.dtypes import f32
from polyhedral import affine
from polyhedral.expr import Int
from polyhedral.expr import Name as N
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Binary, Const, Dynamic, Holds, IndexValue, Let, Name, Program, Read, Reduce, Select
from tensorlang.tensor.verify import verify
from tensorlang.tensor.walk import (
    Fresh,
    caller_shape,
    components,
    fresh_for,
    index_names,
    program_names,
    reads,
    refresh,
    substitute,
    substitute_names,
    substitute_sizes,
    value_names,
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


def test_producers_come_before_their_readers_and_cycles_stay_together() -> None:
    assert [[d.tensors[0].name for d in group] for group in components(softmax())] == [["m"], ["e"], ["s"], ["y"]]
    shuffled = replace(softmax(), definitions=softmax().definitions[::-1])
    assert [d.tensors[0].name for group in components(shuffled) for d in group] == ["m", "e", "s", "y"]
    a, b = tensor("a", f32, "n"), tensor("b", f32, "n")
    mutual = Program("p", ("n",), (), ("a",), (definition(a, ("i",), read("b", "i")), definition(b, ("i",), read("a", "i"))))
    assert [len(group) for group in components(mutual)] == [2]


def test_a_grouped_tensor_shows_products_of_its_axes() -> None:
    assert caller_shape(replace(tensor("x", f32, 2, "n", 4), grouping=(2, 1, 0)), {"n": 3}) == (6, 4, 1)


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
