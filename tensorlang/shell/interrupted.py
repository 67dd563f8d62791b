"""What a program says that is interrupted."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""The exit code of a program that SIGINT ends."""


def interrupted() -> int:
    """Say that the program was interrupted, on standard error, and return its exit code."""
    if sys.stderr is not None:
        sys.stderr.write("tensorlang: interrupted\n")
    return INTERRUPTED
