"""Faults in barriers, waits and signals."""

from __future__ import annotations

from faults.fault import Fault

WAITS = ("tests/polyhedral/test_polyhedral_threads.py", "tests/device/test_waits.py")
HANDOVER = ("tests/polyhedral/test_polyhedral_threads.py", "tests/device/test_handover.py")

FAULTS = (
    Fault(
        "threads-at-one-time",
        "polyhedral/threads.py",
        "return met.intersect(isl.Map.lex_le(space.domain())).coalesce()",
        "return met.intersect(isl.Map.lex_lt(space.domain())).coalesce()",
        "threads that touch a cell at the same time do not meet",
        WAITS,
    ),
    Fault(
        "threads-that-both-write",
        "polyhedral/threads.py",
        "first.memory == second.memory and (first.writes or second.writes)",
        "first.memory == second.memory and (first.writes and second.writes)",
        "a read and a write do not meet",
        WAITS,
    ),
    Fault(
        "threads-in-order",
        "polyhedral/threads.py",
        "return same.order_lt(DT.in_, 0, DT.out, 0).union(same.order_gt(DT.in_, 0, DT.out, 0))",
        "return same.order_lt(DT.in_, 0, DT.out, 0)",
        "a thread meets only those of higher numbers",
        WAITS,
    ),
    Fault(
        "waits-one-group-more",
        "polyhedral/waits.py",
        "below = isl.Map.lex_lt(groups.get_space().range())",
        "below = isl.Map.lex_le(groups.get_space().range())",
        "a wait ends a group that is still under way",
        WAITS,
    ),
    Fault(
        "waits-before-it-began",
        "polyhedral/waits.py",
        "return found.intersect(isl.Map.lex_lt(found.get_space().domain()))",
        "return found",
        "a wait ends what begins after it",
        WAITS,
    ),
    Fault(
        "reclaimed-before-released",
        "polyhedral/waits.py",
        "enough = isl.Map.lex_le(given.get_space().range())",
        "enough = isl.Map.lex_ge(given.get_space().range())",
        "a smaller number than was released is enough",
        HANDOVER,
    ),
    Fault(
        "pending-groups",
        "tensorlang/lower/barriers.py",
        "ended = affine.add(count, sets.Int(-pending))",
        "ended = count",
        "a wait that leaves groups under way ends them all",
        WAITS,
    ),
    Fault(
        "released-unseen",
        "polyhedral/signals.py",
        'yield from _early(s.empty, s.released, s.awaited, "released, and not waited for before")',
        "yield from ()",
        "a place may be given back before what lies in it came",
        HANDOVER,
    ),
    Fault(
        "numbers-left-out",
        "polyhedral/signals.py",
        'numbers.apply(isl.Map("{ [n] -> [n + 1] }"))',
        "numbers",
        "numbers may be left out",
        HANDOVER,
    ),
)
