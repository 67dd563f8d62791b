"""Faults in which elements may share a cell, and where elements are stored."""

from __future__ import annotations

from faults.fault import Fault

STORED = ("tests/polyhedral/test_polyhedral_region.py", "tests/schedule/test_storage_verdicts.py")
LAYOUTS = ("tests/schedule/test_storage.py",)

FAULTS = (
    Fault(
        "alive-while-read",
        "polyhedral/storage.py",
        "needed = isl.Map.lex_lt(clock).apply_range(accesses)",
        "needed = isl.Map.lex_lt(clock).apply_range(writes)",
        "a value is needed until it is written, not until it is read",
        STORED,
    ),
    Fault(
        "results-die",
        "polyhedral/storage.py",
        "if tensor in self.outputs:",
        "if tensor in ():",
        "results may be overwritten after their last reader",
        STORED,
    ),
    Fault(
        "fold-one-short",
        "polyhedral/storage.py",
        "else 1 + max(min(known), ",
        "else max(1, min(known), ",
        "a fold has one cell too few",
        STORED,
    ),
    Fault(
        "fold-of-one-end",
        "polyhedral/storage.py",
        "*(abs(integer(e)) for e in ends))",
        "*(abs(integer(e)) for e in ends[1:]))",
        "distances of a backward loop do not count",
        STORED,
    ),
    Fault(
        "no-aliases",
        "polyhedral/storage.py",
        "if self._cells(lost).buffer != self._cells(other).buffer:\n                    continue\n                if self._is_in_turns",
        "if lost != other:\n                    continue\n                if self._is_in_turns",
        "tensors in one buffer never meet",
        STORED,
    ),
    Fault(
        "owner-at-once",
        "polyhedral/storage.py",
        "or depth < self.storage.get(first, 0)",
        "or depth <= self.storage.get(first, 0)",
        "a cell outside a parallel loop counts as its iterations' own",
        STORED,
    ),
    Fault(
        "at-once-in-order",
        "polyhedral/storage.py",
        "for order in (isl.Map.order_lt, isl.Map.order_gt):",
        "for order in (isl.Map.order_lt,):",
        "parallel iterations are taken to run in their order",
        STORED,
        equivalent="the other order is a value that is read after its cell was written (refused before, as in a serial loop) or a "
        "dependence that the parallel loop carries (refused by legality, which comes first)",
    ),
    Fault(
        "turns-that-are-none",
        "polyhedral/storage.py",
        "if self.schedule.before(second, first):",
        "if self.schedule.before(first, second):",
        "what is read after it is overwritten in the same iteration is taken to come before",
        STORED,
    ),
    Fault(
        "results-outlived",
        "polyhedral/storage.py",
        "return (lost not in self.outputs and ",
        "return (lost is not None and ",
        "a result may be overwritten by another tensor after its last reader",
        STORED,
    ),
    Fault(
        "inputs-outlived",
        "polyhedral/storage.py",
        "lost not in self.schedule.scop.inputs and _is_never(",
        "lost is not None and _is_never(",
        "what nobody writes is taken not to be there before what shares its cells is written",
        STORED,
    ),
    Fault(
        "layouts-of-one-more",
        "tensorlang/schedule/storage.py",
        "return low is not None and high is not None and low >= 0 and high < divisor",
        "return low is not None and high is not None and low >= 0 and high <= divisor",
        "an index that reaches the divisor counts as below it",
        LAYOUTS,
    ),
    Fault(
        "column-major",
        "tensorlang/schedule/storage.py",
        "for k in reversed(members):\n        extent",
        "for k in members:\n        extent",
        "axes of a dimension are numbered from the wrong end",
        LAYOUTS,
    ),
    Fault(
        "blocks-across-groups",
        "tensorlang/schedule/storage.py",
        "extent is None or (extent % block and any(s != 1 for s in outer)):",
        "extent is None:",
        "blocks cross from one group of channels to the next",
        LAYOUTS,
    ),
    Fault(
        "fold-factor-without-lanes",
        "polyhedral/storage.py",
        "together = [_furthest(self._at_once(tensor, tensor, pairs), pairs, dim, most) for pairs in sides]",
        "together = [0, 0]",
        "a fold is derived that lanes of a vector overwrite",
        ("tests/polyhedral/test_polyhedral_region.py",),
    ),
    Fault(
        "threads-write-over-what-others-read",
        "polyhedral/storage.py",
        "met = threads if node.mark in AT_ONCE else lanes",
        "met = lanes",
        "a thread writes the value that another one reads there",
        STORED,
    ),
    Fault(
        "copies-as-roughly-known",
        "polyhedral/storage.py",
        "direct = direct.union(ahead.subtract(behind))",
        "direct = direct.union(ahead)",
        "every later element is a copy",
        STORED,
    ),
    Fault(
        "copies-under-any-condition",
        "tensorlang/tensor/scop.py",
        "case Select(cond, then, orelse) if is_of_indices(cond):",
        "case Select(cond, then, orelse):",
        "what data decide to copy is a copy",
        ("tests/policy/test_recurrences_derived.py",),
    ),
)
