"""What the compiler does, told to Python's `logging` under the name `tensorlang`. Nothing is shown unless a program asks for it.

tensorlang           INFO    why an operator is compiled for any sizes, or for each combination of them
tensorlang.compile   INFO    what was compiled, for which types and shapes, why, and how long that took; models found on disk
tensorlang.cache     DEBUG   hits and misses; INFO what was evicted
tensorlang.threads   DEBUG   the threads of parallel loops, when they are there

logging.basicConfig(); logging.getLogger("tensorlang").setLevel("INFO")
"""

from __future__ import annotations

import logging

logging.getLogger("tensorlang").addHandler(logging.NullHandler())


def log_of(part: str) -> logging.Logger:
    """Return where one part of the compiler writes its log."""
    return logging.getLogger(f"tensorlang.{part}")
