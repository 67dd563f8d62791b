"""Nodes that are keys of many dictionaries go through the tree below them once to be hashed, and are what they were but for that."""

from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import dataclass, fields, replace

import pytest

from codegen.hashing import HashedOnce, hashed_once
from codegen.loops.nodes import Add, FloorDiv, Int, Max, Min, Mod, Mul, Var


class Counted:
    """A leaf that counts how often it is hashed."""

    def __init__(self) -> None:
        self.hashed = 0

    def __hash__(self) -> int:
        self.hashed += 1
        return 7


@hashed_once
@dataclass(frozen=True, slots=True)
class Pair(HashedOnce):
    left: object
    right: object


def test_the_tree_below_a_node_is_hashed_once() -> None:
    leaf = Counted()
    below = Pair(leaf, 1)
    above = Pair(below, 2)
    assert [hash(above) for _ in range(3)] == [hash(above)] * 3
    assert hash(below) == hash(Pair(leaf, 1)) and leaf.hashed == 2


@pytest.mark.parametrize("kind", [Add, Mul, FloorDiv, Mod, Min, Max])
def test_indices_are_equal_as_their_parts_are_whichever_was_hashed(kind: type[Add]) -> None:
    made = kind(Add(Var("i"), Int(1)), Int(3))
    same, other = kind(Add(Var("i"), Int(1)), Int(3)), kind(Add(Var("i"), Int(2)), Int(3))
    assert {made: 1}[same] == 1 and made == same != other and repr(made) == repr(same)
    assert [f.name for f in fields(made)] == ["lhs", "rhs"]
    for copied in (pickle.loads(pickle.dumps(made)), deepcopy(made), replace(made)):
        assert copied == made and hash(copied) == hash(made)
    assert hash(kind(made.lhs, Int(4))) == hash(kind(Add(Var("i"), Int(1)), Int(4)))
