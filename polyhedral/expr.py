"""Quasi-affine integer expressions and conditions: the neutral form in which others hand sets and maps to this package.

    expr ::= Int | Name | Add | Scale | Floor | Mod | Min | Max
    cond ::= Compare | And | Or | Not                              And(()) is true, Or(()) is false

Division rounds towards minus infinity, as in isl and Python; divisors are positive integers. A `Name` is an iterator or a parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Int:
    value: int


@dataclass(frozen=True, slots=True)
class Name:
    name: str


@dataclass(frozen=True, slots=True)
class Add:
    lhs: Expr
    rhs: Expr


@dataclass(frozen=True, slots=True)
class Scale:
    factor: int
    value: Expr


@dataclass(frozen=True, slots=True)
class Floor:
    """`value // divisor`, divisor > 0."""

    value: Expr
    divisor: int


@dataclass(frozen=True, slots=True)
class Mod:
    """`value % divisor` in [0, divisor), divisor > 0."""

    value: Expr
    divisor: int


@dataclass(frozen=True, slots=True)
class Min:
    lhs: Expr
    rhs: Expr


@dataclass(frozen=True, slots=True)
class Max:
    lhs: Expr
    rhs: Expr


Expr: TypeAlias = Int | Name | Add | Scale | Floor | Mod | Min | Max


@dataclass(frozen=True, slots=True)
class Compare:
    op: Literal["<", "<=", "==", "!=", ">=", ">"]
    lhs: Expr
    rhs: Expr


@dataclass(frozen=True, slots=True)
class And:
    conds: tuple[Cond, ...]


@dataclass(frozen=True, slots=True)
class Or:
    conds: tuple[Cond, ...]


@dataclass(frozen=True, slots=True)
class Not:
    cond: Cond


Cond: TypeAlias = Compare | And | Or | Not

TRUE: Cond = And(())
FALSE: Cond = Or(())
