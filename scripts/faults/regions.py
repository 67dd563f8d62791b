"""Faults in which cells parts of loops access."""

from __future__ import annotations

from faults.fault import REGION, Fault

NEEDED = ("tests/polyhedral/test_polyhedral_needed.py",)

FAULTS = (
    Fault(
        "footprint-one-short",
        "polyhedral/region.py",
        "return origin, integer(greatest) + 1",
        "return origin, integer(greatest)",
        "a box lacks its last cells",
        REGION,
    ),
    Fault(
        "origin-without-constant",
        "polyhedral/region.py",
        "affine.add(box.origin[axis], Int(-form.constant))",
        "box.origin[axis]",
        "a producer counts from a shifted origin",
        REGION,
    ),
    Fault(
        "footprint-of-one-consumer",
        "polyhedral/region.py",
        "for name in placements:\n        nest = schedule.nests[name]\n        points = nest.points.intersect_params(nest.context) if",
        "for name in placements[:1]:\n        nest = schedule.nests[name]\n        points = nest.points.intersect_params(nest.context) if",
        "a box has room for what its first reader touches",
        REGION,
    ),
    Fault(
        "what-is-asked-for-alone",
        "polyhedral/needed.py",
        "reached = first.union(first.apply(closure))",
        "reached = first.apply(closure)",
        "what is asked for is not needed itself",
        NEEDED,
    ),
    Fault(
        "closure-believed",
        "polyhedral/needed.py",
        "if not reached.apply(relation).intersect(inside).is_subset(reached):",
        "if False:",
        "a closure that lacks something is believed",
        NEEDED,
        equivalent="isl's closure is exact or too large, never too small; the check is a second lock",
    ),
)
