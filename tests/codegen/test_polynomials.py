"""Polynomials are what their terms say: every operation agrees with arithmetic on values."""

from __future__ import annotations

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from codegen.polynomials import ONE, ZERO, Poly, atom_poly, number

ATOMS = ("a", "b", "c")
MONOMIALS = st.lists(st.sampled_from(ATOMS), max_size=3).map(lambda atoms: tuple(sorted(atoms)))
POLYS = st.dictionaries(MONOMIALS, st.integers(-6, 6), max_size=5).map(Poly)
POINTS = st.fixed_dictionaries({atom: st.integers(-7, 7) | st.sampled_from((2**63 - 1, -(2**63))) for atom in ATOMS})


def value(p: Poly[str], at: dict[str, int]) -> int:
    return sum(c * prod(at[a] for a in m) for m, c in p.terms.items())


@given(POLYS, POLYS, st.integers(-4, 4), POINTS)
def test_arithmetic_is_that_of_the_values(p: Poly[str], q: Poly[str], factor: int, at: dict[str, int]) -> None:
    x, y = value(p, at), value(q, at)
    assert value(p + q, at) == x + y and value(p - q, at) == x - y and value(p.plus(q, factor), at) == x + factor * y
    assert value(p * q, at) == value(q.times(p), at) == x * y and value(p.scaled(factor), at) == factor * x
    assert p * q == q * p and hash(p * q) == hash(q * p) and p - p == ZERO and p * ONE == p
    assert all(c for made in (p + q, p - q, p * q, p.plus(q, factor), p.scaled(factor)) for c in made.terms.values())
    assert p.constant is None or p.constant == p.offset == x


@given(POLYS, POLYS, POINTS)
def test_division_leaves_a_rest_that_the_divisor_does_not_divide(p: Poly[str], divisor: Poly[str], at: dict[str, int]) -> None:
    quotient, rest = p.divided(divisor)
    assert value(p, at) == value(divisor, at) * value(quotient, at) + value(rest, at)
    again = rest.divided(divisor)
    assert again == (ZERO, rest)


@given(POLYS, st.integers(1, 9), POINTS)
def test_division_by_a_number_leaves_an_offset_below_it(p: Poly[str], divisor: int, at: dict[str, int]) -> None:
    quotient, rest = p.divided(number(divisor))
    assert value(p, at) == divisor * value(quotient, at) + value(rest, at) and 0 <= rest.offset < divisor
    assert p.multiple_of() == 0 or value(p, at) % p.multiple_of() == 0


@given(POLYS, st.sampled_from(ATOMS), POINTS)
def test_an_atom_is_split_off_with_its_factor(p: Poly[str], atom: str, at: dict[str, int]) -> None:
    parts = p.split(atom)
    assert (parts is None) == any(m.count(atom) > 1 for m in p.terms)
    if parts is not None:
        factor, rest = parts
        assert factor * atom_poly(atom) + rest == p and atom not in factor.atoms() | rest.atoms()
    for monomial, c in p.terms.items():
        assert value(p.without(monomial), at) == value(p, at) - c * prod(at[a] for a in monomial)


def test_a_product_is_divided_by_one_of_its_atoms() -> None:
    n, i = atom_poly("n"), atom_poly("i")
    assert (n * n + n * i + i + number(5)).divided(n) == (n + i, i + number(5))
    assert (n.scaled(6) + number(7)).divided(n.scaled(4)) == (ZERO, n.scaled(6) + number(7))
    assert (n.scaled(8) + number(7)).divided(n.scaled(4)) == (number(2), number(7))
