"""What is known where a node stands."""

from __future__ import annotations

from strategies_tensor import read, total

from codegen.dtypes import f32
from polyhedral.expr import TRUE
from polyhedral.expr import Name as N
from tensorlang.tensor import affine
from tensorlang.tensor.known import facts, negative_facts, visits
from tensorlang.tensor.nodes import Binary, Compare, Const, Holds, Read, Select, Unary


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
