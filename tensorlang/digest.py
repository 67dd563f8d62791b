"""What the compiler is, as a digest of its source: nothing that it made outlives it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path


@cache
def compiler_digest() -> str:
    """Return a digest of the compiler, its grammars and preludes included, so that no kernel outlives the compiler that made it."""
    root = Path(__file__).parent.parent
    return digest_of_folders((root / package for package in ("codegen", "polyhedral", "tensorlang")), (".py", ".tl", ".lark", ".h"))


def digest_of_folders(folders: Iterable[Path], suffixes: tuple[str, ...] = (".py", ".tl")) -> str:
    """Return a digest of the Python and operator files below `folders`."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.suffix in suffixes):
            digest.update(path.read_bytes())
    return digest.hexdigest()
