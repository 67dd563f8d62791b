"""Faults in proofs of programs."""

from __future__ import annotations

from faults.fault import DATA, PROVE, Fault

KNOWN = ("tests/tensor/test_facts.py", "tests/tensor/test_prove.py")

FAULTS = (
    Fault(
        "prove-plain-reads",
        "tensorlang/tensor/prove.py",
        'return affine.compare(">=", slot, 0) in facts and affine.compare("<", slot, extent) in facts',
        'return affine.compare(">=", slot, 0) in facts',
        "an index that is not negative needs no proof",
        PROVE,
    ),
    Fault(
        "prove-neighbouring-clauses",
        "tensorlang/tensor/clause_coverage.py",
        "for b in (*lacking[n + 1 :], *having):",
        "for b in (*lacking[n + 2 :], *having):",
        "clauses next to each other may overlap",
        PROVE,
    ),
    Fault(
        "prove-declared-end",
        "tensorlang/tensor/prove.py",
        'affine.compare("<=", slot.hi, extent))',
        'affine.compare("<=", slot.lo, extent))',
        "a declared range may end beyond the axis",
        PROVE,
    ),
    Fault(
        "prove-size-zero",
        "tensorlang/tensor/prove.py",
        'positive = (affine.compare(">=", size, 0) for size in self.program.sizes)',
        'positive = (affine.compare(">=", size, 1) for size in self.program.sizes)',
        "nothing is proven of size 0",
        PROVE,
    ),
    Fault(
        "prove-first-point",
        "tensorlang/tensor/prove.py",
        "yield affine.ceil_div(affine.neg(affine.from_terms(coefficients, const)), k)",
        "yield affine.ceil_div(affine.neg(affine.from_terms(coefficients, const + 1)), k)",
        "the first point of a reduction may lie outside it",
        PROVE,
        equivalent="the point is only tried: a wrong one is not proven to be inside, and the reduction is refused",
    ),
    Fault(
        "known-or",
        "tensorlang/tensor/facts.py",
        "return affine.disj(facts(lhs), facts(rhs))",
        "return affine.conj(facts(lhs), facts(rhs))",
        "where `a or b` holds, both do",
        KNOWN,
    ),
    Fault(
        "known-other-side",
        "tensorlang/tensor/facts.py",
        "orelse=f(orelse, place.unless(cond))",
        "orelse=f(orelse, place.where(cond))",
        "the other side of a condition is taken to stand under it",
        KNOWN,
    ),
    Fault(
        "known-lazy-or",
        "tensorlang/tensor/facts.py",
        "rhs=f(rhs, place.unless(lhs))",
        "rhs=f(rhs, place.where(lhs))",
        "what follows `or` is taken to stand under what is before it",
        KNOWN,
    ),
    Fault(
        "known-of-data-on-the-other-side",
        "tensorlang/tensor/facts.py",
        "given=(*self.given, otherwise)",
        "given=(*self.given, condition)",
        "a reduction on the other side of a condition on data runs where it holds",
        (*KNOWN, *DATA),
    ),
    Fault(
        "scop-outside-of-the-filter",
        "tensorlang/tensor/scop.py",
        "else Place(possible(reduce.filter, declared)).where(reduce.filter)",
        "else Place().unless(reduce.filter)",
        "a reduction reads where its filter leaves out",
        ("tests/tensor/test_scop_text.py", "tests/lower/test_differential.py"),
    ),
    Fault(
        "scop-any-order",
        "tensorlang/tensor/scop.py",
        'return not reducer.commutative or (mode == "strict" and not exact)',
        'return mode == "strict" and not exact',
        "reducers that do not commute may be reordered",
        ("tests/schedule/test_known_failures.py",),
    ),
    Fault(
        "known-asked-for-twice",
        "tensorlang/tensor/facts.py",
        "return affine.disj(*(p.context for p in places))",
        "return affine.conj(*(p.context for p in places))",
        "a reduction that two sides ask for is computed for neither",
        ("tests/tensor/test_scop_text.py", "tests/lower/test_differential.py"),
    ),
)
