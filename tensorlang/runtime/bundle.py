"""Whole compiled models on disk, so that another process starts without importing the model again.

    <cache>/models/<key>/  parts       the plan, the kernels and their objects: a digest, then a pickle
                           constants   the block of packed weights

The key is the model's own bytes, the shapes asked for, the threads, the target and the compiler with its importers. A bundle is written
under a temporary name and renamed; one that is damaged is a miss, one that cannot be written is done without. The folder is kept below
`LIMIT_BYTES` by removing what was not used for longest.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from codegen.llvm.cache import Cache
from tensorlang.driver import compiler_digest
from tensorlang.runtime.executable import Executable, Toolchain, aligned_block, assembled

LIMIT_BYTES = 8 << 30


def bundle_key(content: bytes, importers: str, shapes: Mapping[str, tuple[int, ...]] | None, tools: Toolchain) -> str:
    """Return the key of a model by a digest of its bytes; `importers` is a digest of whatever turns it into a graph."""
    digest = hashlib.sha256()
    for part in (compiler_digest(), importers, sys.version, repr(tools.target), str(tools.threads), repr(sorted((shapes or {}).items()))):
        digest.update(f"{len(part)} {part}".encode())
    digest.update(content)
    return digest.hexdigest()


def digest_of_folders(folders: Iterable[Path]) -> str:
    """Return a digest of the Python and operator files below `folders`."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".tl")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def load_bundle(key: str, tools: Toolchain) -> Executable | None:
    """Return the model stored under `key`, or None when there is none that is whole."""
    if tools.store is None:
        return None
    folder = _folder(tools.store) / key
    try:
        data = (folder / "parts").read_bytes()
        if hashlib.sha256(data[32:]).digest() != data[:32]:
            return None
        parts, size, checksum = pickle.loads(data[32:])
        block = aligned_block(size)
        with open(folder / "constants", "rb") as file:
            complete = file.readinto(block[:size].data) == size and not file.read(1)
        if not complete or zlib.crc32(block[:size].data) != checksum:
            return None
        os.utime(folder)
    except (OSError, ValueError, pickle.UnpicklingError, AttributeError, ImportError, EOFError, TypeError, IndexError):
        return None
    return assembled(replace(parts, constants=block), tools)


def store_bundle(key: str, executable: Executable) -> None:
    """Keep a model under `key`, as far as the disk allows."""
    tools = executable.toolchain
    if tools.store is None or tools.store.problem is not None:
        return
    root = _folder(tools.store)
    parts = executable.parts
    size = parts.constants.nbytes if executable.graph.constants else 0
    if size > LIMIT_BYTES // 2:
        return
    empty = replace(parts, constants=np.empty(0, np.uint8), graph=replace(parts.graph, constants={}))
    body = pickle.dumps((empty, size, zlib.crc32(parts.constants.data) if size else 0), protocol=pickle.HIGHEST_PROTOCOL)
    try:
        root.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=root, prefix=".new-"))
    except OSError:
        return
    try:
        (temporary / "parts").write_bytes(hashlib.sha256(body).digest() + body)
        (temporary / "constants").write_bytes(parts.constants[:size].data)
        shutil.rmtree(root / key, ignore_errors=True)
        os.rename(temporary, root / key)
    except OSError:
        pass  # the disk is full, or another process has stored the same model first
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _trim(root)


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
