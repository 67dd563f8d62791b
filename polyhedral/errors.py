"""Refusals that a caller turns into messages."""

from __future__ import annotations


class NestError(Exception):
    """A loop transformation was asked for that this nest cannot express; the reason reads as the rest of a sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ScheduleError(Exception):
    """A schedule's tree and nests do not fit together."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
