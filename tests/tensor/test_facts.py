"""What is known where a node stands."""

from __future__ import annotations

from strategies_tensor import read, total

from codegen.dtypes import bool_, f32
from polyhedral import affine
from polyhedral.expr import FALSE, TRUE
from polyhedral.expr import Name as N
from tensorlang.tensor.facts import Place, facts, follows, negative_facts, visits
from tensorlang.tensor.nodes import Binary, Compare, Const, Holds, Let, Name, Read, Select, Unary


def test_conditions_tell_what_holds_on_either_side() -> None:
    low, high = affine.compare(">=", "i", 1), affine.compare("<", "i", "n")
    data = Compare("<", read("x", "i"), Const(0.0, f32))
    assert facts(Binary("and", Holds(low), data)) == low and negative_facts(Binary("and", Holds(low), data)) == TRUE
    assert facts(Binary("or", Holds(low), data)) == TRUE
    assert negative_facts(Binary("or", Holds(low), Unary("not", Holds(high)))) == affine.conj(affine.negate(low), high)


def test_a_visit_knows_ranges_and_conditions_around_a_node() -> None:
    guarded = total(Select(Holds(affine.compare(">", "k", 0)), read("x", "k"), Const(0.0, f32)), f32, ("k", 0, N("n")))
    place = next(place for node, place in visits(guarded, Place(scope=("i",))) if isinstance(node, Read))
    assert place.scope == ("i", "k")
    assert place.ranges == affine.within("k", 0, "n")
    assert place.context == affine.conj(place.ranges, affine.compare(">", "k", 0))
    assert place.condition() == Holds(affine.compare(">", "k", 0))


def test_what_follows_a_lazy_operator_stands_on_one_side_of_it() -> None:
    high = affine.compare(">=", "i", 1)
    for op, known in (("and", high), ("or", affine.negate(high))):
        e = Binary(op, Holds(high), Compare("<", read("x", "i"), Const(0.0, f32)))
        assert next(place for node, place in visits(e, Place()) if isinstance(node, Read)).context == known


def test_a_condition_is_one_of_what_stands_around_without_lets() -> None:
    positive = Compare(">", Name("v"), Const(0.0, f32))
    late = Binary("and", Unary("not", positive), Holds(affine.compare(">", "i", 0)))
    e = Let("v", read("x", "i"), Select(late, read("y", "i"), Const(0.0, f32)))
    place = next(place for node, place in visits(e, Place()) if node == read("y", "i"))
    assert place.condition() == Binary("and", Unary("not", Compare(">", read("x", "i"), Const(0.0, f32))), late.rhs)


def test_a_condition_follows_from_those_around() -> None:
    one, two = (Compare("<", read(name, "i"), Const(0.0, f32)) for name in "xy")
    place = Place().where(one).unless(two)
    assert follows(Binary("and", one, Unary("not", two)), place) and follows(Binary("or", two, one), place)
    assert not follows(two, place)


def test_nothing_is_evaluated_where_a_constant_condition_is_false() -> None:
    assert (facts(Const(False, bool_)), negative_facts(Const(False, bool_))) == (FALSE, TRUE)
    assert (facts(Const(True, bool_)), negative_facts(Const(True, bool_))) == (TRUE, FALSE)
