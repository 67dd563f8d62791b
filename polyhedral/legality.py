"""Legality of schedules: the checks, and what to try when one fails."""

from __future__ import annotations

from polyhedral.advice import suggest_skew
from polyhedral.order import (
    Fault,
    Instance,
    Storage,
    Verdict,
    Violation,
    check,
    distances,
    parallel_loops,
)

__all__ = [
    "Fault",
    "Instance",
    "Storage",
    "Verdict",
    "Violation",
    "check",
    "distances",
    "parallel_loops",
    "suggest_skew",
]
