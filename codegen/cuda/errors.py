"""What is missing on this machine."""

from __future__ import annotations


class Unavailable(Exception):
    """Something that CUDA needs is not here: `what` says what, `remedy` what to do about it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}: {remedy}")
        self.what = what
        self.remedy = remedy
