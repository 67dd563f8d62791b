"""Whole compiled models on disk, so that another process starts without importing the model again.

    <cache>/models/<key>/  parts       the plan, the kernels and their machine code: a digest, then data (`tensorlang.serialization`)
                           constants   the block of packed weights, which is mapped

The key is the model's own bytes, the shapes asked for, the target with its options and the compiler with its importers. A bundle is written
under a temporary name and renamed; one that is damaged, or another model's, is a miss, one that cannot be written is done without. What
was not used for longest goes when the cache is too large (`codegen.eviction`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from typing import Any

import numpy as np

from codegen.eviction import MODELS, NEW, limit_bytes, lock_folder, make_room
from codegen.store import Cache, key_of, mark_used, private_creator, private_directory, private_opener
from tensorlang.digest import compiler_digest
from tensorlang.memory_map import contents
from tensorlang.runtime.constants import Places, Weights, in_memory, pieces
from tensorlang.runtime.signature import OpenModel
from tensorlang.serialization import FlatError, from_flat, to_flat

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class BundleKey:
    """What a compiled model is kept under: `name` in the cache, and `check`, which raises CompileError O015 when the model is not any more
    what the name was made of."""

    name: str
    check: Callable[[], None]


def bundle_key(content: bytes, importers: str, shapes: Mapping[str, tuple[int, ...]] | None, options: Sequence[object]) -> str:
    """Return the key of a model by a digest of its bytes; `importers` is a digest of whatever turns it into a graph, `options` are all
    that the code depends on besides."""
    digest = hashlib.sha256()
    for part in (compiler_digest(), importers, sys.version, repr(sorted((shapes or {}).items())), *map(str, options)):
        digest.update(f"{len(part)} {part}".encode())
    digest.update(content)
    return digest.hexdigest()


def kept(key: str, store: Cache | None) -> tuple[Any, Array] | None:
    """Return the parts stored under `key` and the block of their constants, or None when there is nothing that is whole."""
    if store is None:
        return None
    folder = _folder(store) / key
    try:
        with open(folder / "parts", "rb", opener=private_opener) as file:
            data = file.read()
        if _digest(key, data[32:]) != data[:32]:
            return None
        parts, size, checksum = from_flat(data[32:])
        block = _mapped(folder / "constants", size)
        if block is None or zlib.crc32(block.data) != checksum:
            return None
        mark_used(folder)
    except (OSError, ValueError, TypeError):
        return None
    return parts, block


def kept_open(key: str, store: Cache | None) -> OpenModel | None:
    """Return what is known of the model of open shapes that `key` is the name of, or None."""
    data = store.get(_open_key(key)) if store is not None else None
    try:
        found = from_flat(data) if data is not None else None
    except FlatError:  # written by other classes under the same names
        return None
    return found if isinstance(found, OpenModel) else None


def keep_open(key: BundleKey, store: Cache | None, model: OpenModel) -> None:
    """Let another process find what is known of a model of open shapes. Raises CompileError O015."""
    key.check()
    if store is not None:
        store.put(_open_key(key.name), to_flat(model))


def _open_key(key: str) -> str:
    return key_of(("open model", key))


def _mapped(path: Path, size: int) -> Array | None:
    """Return the `size` bytes of the file, which are shared with all who map it, or None when it has not that many."""
    found = contents(path, soon=True, opener=private_opener)
    return np.frombuffer(found, np.uint8) if len(found) == size else None


class Draft:
    """A model on its way to the disk: `place` puts its constants into a file, `finish` the rest beside it, and then others find it. What is
    not finished when the context is left is removed."""

    def __init__(self, key: BundleKey, store: Cache | None) -> None:
        self._key, self._check, self._store = key.name, key.check, store
        self._folder: Path | None = None
        self._held = -1
        """The open folder, which tells other processes that this one is at it."""
        self._size = self._checksum = 0

    def __enter__(self) -> Draft:
        return self

    def __exit__(self, *problem: object) -> None:
        self._drop()

    def place(self, weights: Weights, places: Places) -> Array:
        """Return the block of constants: mapped from the file that is kept, so that they are in memory once; in memory where the disk does
        not have them."""
        store = self._store
        if store is None or store.problem is not None or places.size > limit_bytes() // 2:
            return in_memory(weights, places)
        try:
            root = _folder(store)
            private_directory(store.directory)
            make_room(store.directory, places.size)
            private_directory(root)
            self._folder = Path(tempfile.mkdtemp(dir=root, prefix=NEW))
            self._held = lock_folder(self._folder)
            with open(self._folder / "constants", "wb", buffering=0, opener=private_creator) as file:
                for piece in pieces(weights):
                    _write(file, piece)
                    self._checksum = zlib.crc32(piece, self._checksum)
            self._size = places.size
            file_bytes = contents(self._folder / "constants")
        except OSError:
            self._drop()
            return in_memory(weights, places)
        weights.arrays.clear()  # before the pages of the file are here too
        return np.frombuffer(file_bytes, np.uint8) if places.size else np.empty(1, np.uint8)

    def finish(self, parts: object) -> None:
        """Keep the model, whose `parts` are all but its constants, as far as the disk allows. Raises CompileError O015 when what it was
        read from changed meanwhile."""
        self._check()
        if self._folder is None or self._store is None:
            return
        root = _folder(self._store)
        body = to_flat((parts, self._size, self._checksum))
        try:
            make_room(self._store.directory, len(body))
            with open(self._folder / "parts", "wb", opener=private_creator) as file:
                file.write(_digest(self._key, body) + body)
            shutil.rmtree(root / self._key, ignore_errors=True)
            os.rename(self._folder, root / self._key)
        except OSError:
            pass  # the disk is full, or another process has stored the same model first
        finally:
            self._drop()

    def _drop(self) -> None:
        """Remove what is not finished. A block that is mapped stays as it is."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


def _write(file: RawIOBase, data: memoryview) -> None:
    while data:
        data = data[file.write(data) or 0 :]


def _digest(key: str, body: bytes) -> bytes:
    """Return what a bundle's parts begin with: no other bytes, and none of another key."""
    digest = hashlib.sha256(key.encode())
    digest.update(body)
    return digest.digest()


def _folder(store: Cache) -> Path:
    return store.directory / MODELS
