"""What the compiler is, as a digest of its source: nothing that it made outlives it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path


@cache
def compiler_digest() -> str:
    """Return a digest of the compiler, its grammars and preludes included, so that no kernel outlives the compiler that made it."""
    root = Path(__file__).parent.parent
    return digest_of_folders((root / package for package in ("codegen", "polyhedral", "tensorlang")), (".py", ".tl", ".lark", ".h", ".ll"))


def digest_of_folders(folders: Iterable[Path], suffixes: tuple[str, ...] = (".py", ".tl")) -> str:
    """Return a digest of the Python and operator files below `folders`."""
    digest = hashlib.sha256()
    for folder in folders:
        inside = (os.path.join(root, name) for root, _, names in os.walk(folder) for name in names if name.endswith(suffixes))
        for path in sorted(inside):
            with open(path, "rb") as file:
                digest.update(file.read())
    return digest.hexdigest()
