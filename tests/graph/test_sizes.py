"""Sizes of models that stay open: arithmetic, comparisons, programs, and what is known whatever the sizes are."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.dtypes import DTYPES
from polyhedral import affine
from polyhedral.expr import Name
from tensorlang.graph.nodes import Graph, Kernel, Value
from tensorlang.graph.sizes import (
    Extent,
    OpenSize,
    Size,
    Symbols,
    chosen,
    evaluate,
    is_least,
    is_one,
    is_proven_least,
    larger,
    maximum,
    minimum,
    range_of,
    same,
    smaller,
    symbol_name,
    to_expr,
    value_at,
    with_sizes,
)
from tensorlang.runtime.jobs import job_of
from tensorlang.tensor.nodes import Const, Definition, Piece, Program, Tensor

NAMES = ("size.batch", "size.seq", "size.past")
NUMBERS = st.integers(0, 40)
SAMPLES = st.tuples(NUMBERS, NUMBERS, NUMBERS)
"""Values of the symbols."""


def symbols(values: tuple[int, ...] = (3, 7, 11), chooses: bool = False) -> Symbols:
    return Symbols(dict(zip(NAMES, values, strict=True)), chooses=chooses)


def trees(*more: str) -> st.SearchStrategy[Any]:
    """Expressions as nested tuples: a name, a number, or an operator and what it is applied to, an arithmetic one or one of `more`.
    Divisors are positive numbers."""
    leaves = st.one_of(st.sampled_from(NAMES), st.integers(-5, 9))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["add", "sub", "mul", *more]), inner, inner),
            st.tuples(st.sampled_from(["floordiv", "mod"]), inner, st.integers(1, 6)),
        ),
        max_leaves=8,
    )


def built(tree: Any, leaf: Any) -> Any:
    if isinstance(tree, str):
        return leaf(tree)
    if isinstance(tree, int):
        return tree
    op, a, b = tree
    found = {"min": minimum, "max": maximum}.get(op) or getattr(operator, op)
    return found(built(a, leaf), built(b, leaf))


@given(trees(), SAMPLES)
def test_arithmetic_of_sizes_is_that_of_the_integers_they_stand_for(tree: Any, values: tuple[int, ...]) -> None:
    known = dict(zip(NAMES, values, strict=True))
    found = symbols()
    made = built(tree, found.symbol)
    assert value_at(made, known) == built(tree, known.__getitem__)
    assert not found.assumed


@given(trees(), SAMPLES)
def test_a_size_written_into_a_program_and_read_back_is_the_same(tree: Any, values: tuple[int, ...]) -> None:
    known, found = dict(zip(NAMES, values, strict=True)), symbols()
    made = built(tree, found.symbol)
    e = to_expr(made)
    everything = {**known, **{name: evaluate(formula, known) for name, formula in found.products.items()}}
    assert affine.evaluate(e, everything) == value_at(made, known)
    assert same(found.size(e), made)


@given(trees(), SAMPLES)
def test_ranges_hold_what_expressions_come_to(tree: Any, values: tuple[int, ...]) -> None:
    made = built(tree, symbols().symbol)
    if isinstance(made, Size):
        low, high = range_of(made.formula)
        assert low <= value_at(made, dict(zip(NAMES, values, strict=True))) <= high


@given(trees(), trees(), SAMPLES, st.sampled_from(["lt", "le", "eq", "ne", "ge", "gt"]))
def test_a_comparison_is_right_wherever_what_was_assumed_holds(a: Any, b: Any, values: tuple[int, ...], relation: str) -> None:
    known, found = dict(zip(NAMES, values, strict=True)), symbols()
    decided = getattr(operator, relation)(built(a, found.symbol), built(b, found.symbol))
    assert all(condition.holds(found.samples) for condition in found.assumed)
    if all(condition.holds(known) for condition in found.assumed):
        assert decided == getattr(operator, relation)(built(a, known.__getitem__), built(b, known.__getitem__))


@given(trees(), trees(), SAMPLES)
def test_the_larger_and_the_smaller_are_right_wherever_what_was_assumed_holds(a: Any, b: Any, values: tuple[int, ...]) -> None:
    known, found = dict(zip(NAMES, values, strict=True)), symbols()
    first, second = built(a, found.symbol), built(b, found.symbol)
    low, high = smaller(first, second), larger(first, second)
    if all(condition.holds(known) for condition in found.assumed):
        pair = [built(t, known.__getitem__) for t in (a, b)]
        assert [value_at(low, known), value_at(high, known)] == sorted(pair)


@given(trees("min", "max"), SAMPLES, SAMPLES)
def test_the_larger_of_two_may_be_a_size_of_its_own(tree: Any, values: tuple[int, ...], others: tuple[int, ...]) -> None:
    found = symbols(chooses=True)
    made = built(tree, found.symbol)
    for numbers in (values, others):
        known = dict(zip(NAMES, numbers, strict=True))
        if isinstance(made, Size) and all(condition.holds(known) for condition in found.assumed):
            low, high = range_of(made.formula)
            assert low <= value_at(made, known) == with_sizes(made, known) == built(tree, known.__getitem__) <= high


@given(trees("min", "max"), trees("min", "max"), SAMPLES, st.sampled_from(["lt", "le", "eq", "ne", "ge", "gt"]))
def test_a_comparison_of_choices_is_right_wherever_what_was_assumed_holds(a: Any, b: Any, values: tuple[int, ...], relation: str) -> None:
    known, found = dict(zip(NAMES, values, strict=True)), symbols(chooses=True)
    first, second = built(a, found.symbol), built(b, found.symbol)
    decided = [getattr(operator, relation)(*pair) for pair in ((first, second), (second, first), (first, second))]
    if all(condition.holds(known) for condition in found.assumed):
        x, y = (built(t, known.__getitem__) for t in (a, b))
        assert decided == [getattr(operator, relation)(*pair) for pair in ((x, y), (y, x), (x, y))]


def test_the_smaller_of_two_sizes_is_assumed_only_where_the_samples_are_equal() -> None:
    found = symbols((3, 7, 7), chooses=True)
    batch, seq, past = (found.symbol(name) for name in NAMES)
    assert str(minimum(batch, seq)) == "min(batch, seq)"
    assert seq - minimum(batch, seq) >= 0
    assert minimum(minimum(batch, seq), batch + 1) == minimum(batch, seq)
    assert not found.assumed
    assert same(minimum(seq, past), seq)
    assert [str(c) for c in found.assumed] == ["past >= seq"]


def test_kernels_are_told_that_the_smaller_of_two_sizes_is_no_larger_than_either() -> None:
    found = symbols(chooses=True)
    batch, seq = found.symbol("size.batch"), found.symbol("size.seq")
    name = found.name_of(minimum(batch, seq - batch + 40).expression)
    assert affine.compare(">=", affine.sub(Name("size.batch"), Name(name)), 0) in found.conditions((name, "size.batch"))
    assert not any(affine.name_set(c) - {"size.batch", "size.seq"} for c in found.conditions(("size.batch", "size.seq")))


def test_kernels_are_told_of_their_extents_that_none_is_below_0() -> None:
    found = symbols(chooses=True)
    batch, seq = (found.symbol(name) for name in NAMES[:2])
    assert batch >= 1 and seq >= 1
    length = minimum(batch, seq) - 1
    fill = Definition((Tensor("y", DTYPES["f32"], (length.expression,)),), ("i",), (Piece(Const(0.0, DTYPES["f32"])),))
    kernel = Kernel("k", Program("fill", tuple(affine.name_set(length.expression)), (), ("y",), (fill,)), (), ("y",))
    graph = Graph("g", (), ("y",), {"y": Value("y", DTYPES["f32"], (length,))}, {}, (kernel,), found)
    assert job_of(graph, kernel).program.context == affine.compare(">=", length.expression, 0)


@pytest.mark.parametrize("which", [minimum, maximum])
def test_kernels_are_told_that_the_smaller_of_two_sizes_is_no_smaller_than_what_neither_is_smaller_than(which: Any) -> None:
    found = symbols((3, 7, 40), chooses=True)
    batch, seq, past = (found.symbol(name) for name in NAMES)
    assert (minimum(seq, 30) >= batch) if which is minimum else (maximum(seq, 5) <= past)
    made, beside = (which(batch + seq, minimum(seq, 30)), batch) if which is minimum else (which(past - 2, maximum(seq, 5)), past)
    name, other = found.name_of(made.expression), found.name_of(beside.expression)
    told = affine.sub(Name(name), Name(other)) if which is minimum else affine.sub(Name(other), Name(name))
    assert affine.compare(">=", told, 0) in found.conditions((name, other))


def test_what_holds_for_all_sizes_assumes_nothing() -> None:
    found = symbols()
    batch, seq = found.symbol("size.batch"), found.symbol("size.seq")
    assert batch >= 0
    assert batch + 1 > 0
    assert batch * seq + 3 == 3 + seq * batch
    assert (2 * batch + 6) % 2 == 0
    assert batch != -1
    assert larger(batch, 0) is batch
    assert smaller(batch, batch + 1) is batch
    assert not is_one(batch)
    assert not found.assumed


def test_what_holds_for_some_sizes_is_assumed_as_it_is_for_the_samples() -> None:
    found = symbols()
    assert found.symbol("size.batch") != 1
    assert found.symbol("size.seq") > 4
    assert [str(condition) for condition in found.assumed] == ["batch != 1", "seq > 4"]


def test_quotients_of_quotients_are_one_quotient() -> None:
    height = symbols().symbol("size.past")
    assert str(((height - 1) // 2 + 1 - 1) // 2 + 1) == "((past + 3)//4)"


@pytest.mark.parametrize("use", [range, np.zeros, lambda n: [0] * n, lambda n: (1, 2, 3)[n], float, int])
def test_a_size_is_refused_where_a_number_is_needed(use: Any) -> None:
    with pytest.raises(OpenSize, match="`seq` is open where a number is needed") as refused:
        use(symbols().symbol("size.seq"))
    assert refused.value.names == {"size.seq"}


def test_division_by_a_size_assumes_that_it_is_not_zero() -> None:
    found = symbols()
    made = 12 // found.symbol("size.batch")
    assert [str(condition) for condition in found.assumed] == ["batch > 0"]
    assert value_at(made, {"size.batch": 5, "size.seq": 0, "size.past": 0}) == 2
    with pytest.raises(ZeroDivisionError):
        found.symbol("size.batch") // 0


def test_products_of_sizes_are_symbols_of_their_own_in_programs() -> None:
    found = symbols()
    e = to_expr(found.symbol("size.batch") * found.symbol("size.seq") * 4)
    assert affine.name_set(e) == {"size.batch_seq"}
    assert to_expr(found.symbol("size.seq") * found.symbol("size.batch") * 4) == e
    assert str(found.size(e)) == "4*batch*seq"


def test_symbols_of_programs_are_none_below_zero() -> None:
    known = symbols()
    batch, seq = known.symbol("size.batch"), known.symbol("size.seq")
    to_expr((batch * seq - 2) // batch)
    assert [str(c) for c in known.assumed if c.relation == ">="] == ["((batch*seq - 2)//batch) >= 0"]
    with pytest.raises(OpenSize, match="is below 0"):
        to_expr((2 - batch * seq) // batch)


def test_kernels_are_told_what_was_assumed_of_quotients_of_their_sizes() -> None:
    known = symbols((3, 70, 11))
    assert (known.symbol("size.seq") + 15) // 40 - 2 >= 0
    assert list(known.conditions(("size.seq",)))
    assert not list(known.conditions(("size.batch",)))


def test_kernels_are_told_what_was_assumed_of_products_that_are_their_sizes() -> None:
    known = symbols()
    rows = known.symbol("size.batch") * known.symbol("size.seq")
    name = known.name_of(rows.expression)
    assert rows >= 1
    assert list(known.conditions((name,))) == [affine.compare(">=", affine.sub(Name(name), affine.to_expr(1)), 0)]
    assert not list(known.conditions(("size.batch", "size.seq")))


def test_names_of_dimensions_become_names_of_programs_that_differ() -> None:
    taken: dict[str, object] = {}
    for declared in ("batch size", "batch-size", "batch_size", ""):
        taken[symbol_name(declared, taken)] = None
    assert list(taken) == ["size.batch_size", "size.batch_size_2", "size.batch_size_3", "size.n"]


def test_choices_between_choices_take_steps_in_proportion_to_their_number() -> None:
    """Each is part of the next one twice, as the bounds of slices of slices are: written out they would double each time."""
    symbols = Symbols({"n": 7, "k": 3})
    size: Extent = symbols.symbol("n")
    k = symbols.symbol("k")
    for turn in range(50):
        size = chosen("max", size - k, size // 2 + turn, symbols)
    assert is_least(size) and not is_proven_least(size - 100)
    assert len(str(size)) < 5000
