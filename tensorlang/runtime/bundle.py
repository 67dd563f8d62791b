"""Whole compiled models on disk, so that another process starts without importing the model again.

    <cache>/models/<key>/  parts       the plan, the kernels and their objects: a digest, then a pickle
                           constants   the block of packed weights, which is mapped

The key is the model's own bytes, the shapes asked for, the threads, the target and the compiler with its importers. A bundle is written
under a temporary name and renamed; one that is damaged, or another model's, is a miss, one that cannot be written is done without. The
folder is kept below `LIMIT_BYTES` by removing what was not used for longest.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import sys
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from io import RawIOBase
from pathlib import Path
from typing import Any

import numpy as np

from codegen.store import Cache
from tensorlang.digest import compiler_digest
from tensorlang.mapped import contents
from tensorlang.runtime.constants import Places, Weights, in_memory, pieces
from tensorlang.runtime.executable import Executable, Parts, Toolchain, assembled

Array = np.ndarray[Any, Any]

LIMIT_BYTES = 8 << 30


def bundle_key(content: bytes, importers: str, shapes: Mapping[str, tuple[int, ...]] | None, tools: Toolchain) -> str:
    """Return the key of a model by a digest of its bytes; `importers` is a digest of whatever turns it into a graph."""
    digest = hashlib.sha256()
    for part in (
        compiler_digest(),
        importers,
        sys.version,
        repr(tools.target),
        str(tools.threads),
        str(tools.winograd),
        tools.precision.used,
        str(tools.precision.least),
        repr(sorted((shapes or {}).items())),
    ):
        digest.update(f"{len(part)} {part}".encode())
    digest.update(content)
    return digest.hexdigest()


def load_bundle(key: str, tools: Toolchain) -> Executable | None:
    """Return the model stored under `key`, or None when there is none that is whole."""
    if tools.store is None:
        return None
    folder = _folder(tools.store) / key
    try:
        data = (folder / "parts").read_bytes()
        if _digest(key, data[32:]) != data[:32]:
            return None
        parts, size, checksum = pickle.loads(data[32:])
        block = _mapped(folder / "constants", size)
        if block is None or zlib.crc32(block.data) != checksum:
            return None
        os.utime(folder)
    except (OSError, ValueError, pickle.UnpicklingError, AttributeError, ImportError, EOFError, TypeError, IndexError):
        return None
    return assembled(replace(parts, constants=block), tools)


def _mapped(path: Path, size: int) -> Array | None:
    """Return the `size` bytes of the file, which are shared with all who map it, or None when it has not that many."""
    found = contents(path, soon=True)
    return np.frombuffer(found, np.uint8) if len(found) == size else None


class Draft:
    """A model on its way to the disk: `place` puts its constants into a file, `finish` the rest beside it, and then others find it."""

    def __init__(self, key: str, tools: Toolchain) -> None:
        self._key, self._tools = key, tools
        self._folder: Path | None = None
        self._size = self._checksum = 0

    def place(self, weights: Weights, places: Places) -> Array:
        """Return the block of constants: mapped from the file that is kept, so that they are in memory once; in memory where the disk does
        not have them."""
        store = self._tools.store
        if store is None or store.problem is not None or places.size > LIMIT_BYTES // 2:
            return in_memory(weights, places)
        try:
            root = _folder(store)
            root.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(dir=root, prefix=".new-"))
            with open(self._folder / "constants", "wb", buffering=0) as file:
                for piece in pieces(weights):
                    _write(file, piece)
                    self._checksum = zlib.crc32(piece, self._checksum)
            self._size = places.size
            file_bytes = contents(self._folder / "constants")
        except OSError:
            self.drop()
            return in_memory(weights, places)
        weights.arrays.clear()  # before the pages of the file are here too
        return np.frombuffer(file_bytes, np.uint8) if places.size else np.empty(1, np.uint8)

    def finish(self, parts: Parts) -> None:
        """Keep the model, as far as the disk allows."""
        if self._folder is None or self._tools.store is None:
            return
        root = _folder(self._tools.store)
        body = pickle.dumps((replace(parts, constants=_NOTHING), self._size, self._checksum), protocol=pickle.HIGHEST_PROTOCOL)
        try:
            (self._folder / "parts").write_bytes(_digest(self._key, body) + body)
            shutil.rmtree(root / self._key, ignore_errors=True)
            os.rename(self._folder, root / self._key)
        except OSError:
            pass  # the disk is full, or another process has stored the same model first
        finally:
            self.drop()
        _trim(root)

    def drop(self) -> None:
        """Remove what is not finished. A block that is mapped stays as it is."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


_NOTHING = np.empty(0, np.uint8)


def _write(file: RawIOBase, data: memoryview) -> None:
    while data:
        data = data[file.write(data) or 0 :]


def _digest(key: str, body: bytes) -> bytes:
    """Return what a bundle's parts begin with: no other bytes, and none of another key."""
    digest = hashlib.sha256(key.encode())
    digest.update(body)
    return digest.digest()


def _folder(store: Cache) -> Path:
    return store.directory / "models"


def _trim(root: Path) -> None:
    """Remove the bundles that were not used for longest until the rest fits the limit."""
    try:
        found = sorted(((p.stat().st_mtime, p) for p in root.iterdir() if not p.name.startswith(".")), reverse=True)
        total = 0
        for _, path in found:
            total += sum(f.stat().st_size for f in path.iterdir())
            if total > LIMIT_BYTES:
                shutil.rmtree(path, ignore_errors=True)
    except OSError:
        pass  # another process trims at the same time
