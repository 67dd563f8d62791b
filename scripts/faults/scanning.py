"""Faults in the loops that visit the points of a schedule."""

from __future__ import annotations

from faults.fault import LEGALITY, SETS, Fault

SCAN = ("tests/polyhedral/test_polyhedral_scan.py",)

FAULTS = (
    Fault(
        "scan-last-iteration",
        "polyhedral/scan.py",
        "return affine.floor(affine.from_terms(terms, constant + factor), factor)",
        "return affine.floor(affine.from_terms(terms, constant), factor)",
        "loops stop one iteration early",
        SCAN,
    ),
    Fault(
        "scan-first-iteration",
        "polyhedral/scan.py",
        "factor - 1 - constant), factor)",
        "factor - constant), factor)",
        "loops may start one iteration late",
        SCAN,
    ),
    Fault(
        "leaf-without-guard",
        "polyhedral/scan.py",
        "if context.is_subset(domain):",
        "if not context.is_disjoint(domain):",
        "statements run at points between their own",
        SCAN,
    ),
    Fault(
        "loop-without-guards",
        "polyhedral/scan.py",
        "needed = [g for g in bounds.guards if not self._implied(g, step, bounds, around)]",
        "needed: list[isl.BasicSet] = []",
        "conditions on outer loops are left to the leaves",
        SCAN,
        equivalent="a leaf's guard is what its context lacks of its domain: a condition that no loop has is asked for there, at more cost",
    ),
    Fault(
        "best-case-of-tiles",
        "polyhedral/scan.py",
        "constant += factor * (low if factor > 0 else high)",
        "constant += factor * (high if factor > 0 else low)",
        "tiles count as full where their best point is inside",
        SCAN,
    ),
    Fault(
        "tiles-overlap",
        "polyhedral/scan.py",
        "for n, f in cut.coefficients), -cut.constant - 1)",
        "for n, f in cut.coefficients), -cut.constant)",
        "full and partial tiles share an iteration",
        SCAN,
    ),
    Fault(
        "tiles-out-of-order",
        "polyhedral/scan.py",
        "after = [*part, *after]",
        "after = [*after, *part]",
        "parts behind the full tiles run in the wrong order",
        SCAN,
    ),
    Fault(
        "pieces-out-of-order",
        "polyhedral/scan.py",
        "if not any(_reaches_past(p, q, depth) for q in pieces if q is not p)), None)",
        "), None)",
        "convex pieces of a domain run in any order",
        SCAN,
    ),
    Fault(
        "pieces-with-divisions",
        "polyhedral/scan.py",
        "if len(pieces) > MAX_PIECES or any(b.dim(DT.div) for b in basics):",
        "if len(pieces) > MAX_PIECES:",
        "pieces that only divisions tell apart become loops that overlap",
        SCAN,
    ),
    Fault(
        "split-one-too-many",
        "polyhedral/nest.py",
        "zero, last = val(0), val(extent - 1)",
        "zero, last = val(0), val(extent)",
        "tiles of a split overlap",
        SETS + SCAN,
    ),
    Fault(
        "fuse-from-zero",
        "polyhedral/nest.py",
        "inner: Add(Mod(Name(name), extent), Int(low))}",
        "inner: Mod(Name(name), extent)}",
        "a fused loop forgets where its inner loop began",
        SETS + SCAN + LEGALITY,
    ),
)
