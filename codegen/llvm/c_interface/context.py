"""What the block of a context begins with, and the options from which it is made: fields of 8 bytes each."""

from __future__ import annotations

from enum import IntEnum

MAGIC = 0x74656E736F726C61
"""What a context that was made, and not destroyed, begins with."""
ALIGN = 128
CONTEXT_BYTES = 128


class Field(IntEnum):
    """The fields of a context, by number."""

    MAGIC = 0
    LEVEL = 1
    WEIGHTS = 2
    ARENA = 3
    BUSY = 4
    BLOCK = 5
    MAPPED = 6
    MAPPED_BYTES = 7
    ENTRY = 8
    POOL = 9


class Option(IntEnum):
    """The options of `create`, by number."""

    HEADER = 0
    THREADS = 1
    PINNED = 2
    WEIGHTS = 3
    WEIGHTS_BYTES = 4
    PATH = 5
    PARALLEL_FOR = 6
    USER = 7
