"""What compilers made, on disk, so that a second process starts in milliseconds.

    <directory>/<first two digits of the key>/<key>.o      magic, SHA-256 of key and entry, the entry

A key hashes everything the entry depends on. An entry is written under a temporary name and renamed, so that readers, in this process or
another, see all of it or nothing. What is damaged, or stored under another key, is a miss. A directory that cannot be written to is
reported once and then not used. What was not used for longest goes when there is too much (`codegen.eviction`).

Entries run as machine code, so they are this user's alone: directories are made for nobody else, one that is another user's or that others
can write to is reported and not used, and a file is read if it is a regular one of this user's that nobody else can write to.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import time
import warnings
from collections.abc import Iterable
from pathlib import Path

import platformdirs

from codegen.eviction import NEW, make_room
from codegen.log import log_of

_MAGIC = b"tlo2"
_ENVIRONMENT = "TENSORLANG_CACHE"
_USED_SECONDS = 60.0
_log = log_of("cache")
_warned: set[Path] = set()


def default_directory() -> Path:
    """Return where entries live unless the caller says otherwise: `$TENSORLANG_CACHE`, or the user's cache directory."""
    chosen = os.environ.get(_ENVIRONMENT)
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("tensorlang", appauthor=False)) / "objects"


def key_of(parts: Iterable[str | bytes]) -> str:
    """Return the key of what depends on `parts`, in this order."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def private_opener(path: str, flags: int) -> int:
    """Open a file, for `open(..., opener=private_opener)`, if nobody but this user can have written it. Raises OSError for any other, for
    links and for what is no regular file; waits for nobody."""
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is no file")
        _check_owner(path, found)
    except BaseException:
        os.close(handle)
        raise
    return handle


def private_creator(path: str, flags: int) -> int:
    """Make a file, for `open(..., opener=private_creator)`, that nobody but this user can read or write."""
    return os.open(path, flags, 0o600)


def private_directory(path: Path) -> None:
    """Make a directory, and those above it, for this user alone where they do not exist. Raises OSError when others may write to it."""
    if not path.is_dir():
        if not path.parent.is_dir():
            private_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    _check_owner(path, path.stat())


def _check_owner(path: str | Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise NotPrivateError(f"{path} belongs to another user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NotPrivateError(f"{path} can be written by others: `chmod go-w` it")


def mark_used(place: int | Path) -> None:
    """Let a file or a folder of the cache, by its path or open, be one that was used now, where that can be written down. What was used a
    minute ago is not written to again."""
    try:
        if time.time() - os.stat(place).st_mtime > _USED_SECONDS:
            os.utime(place)
    except OSError:
        return


class NotPrivateError(PermissionError):
    """Others than this user may have written something that is about to be trusted."""


class Cache:
    """A directory of entries. `problem` says why nothing is kept any more, or is None."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or default_directory()
        self.problem: str | None = None

    def get(self, key: str) -> bytes | None:
        """Return what is stored under `key`, or None when there is none that is whole."""
        try:
            with open(self._path(key), "rb", opener=private_opener) as file:
                data = file.read()
                mark_used(file.fileno())
        except OSError:
            _log.debug("miss %s", key)
            return None
        head, body = data[: len(_MAGIC) + 32], data[len(_MAGIC) + 32 :]
        whole = head == _head(key, body)
        _log.debug("hit %s" if whole else "miss %s: the entry is damaged", key)
        return body if whole else None

    def put(self, key: str, data: bytes) -> str | None:
        """Store `data` under `key`. Return what is wrong with the directory, the first time that something is; a process is warned once of
        each directory."""
        if self.problem is not None:
            return None
        try:
            self._write(self._path(key), _head(key, data) + data)
        except OSError as error:
            self.problem = f"cannot write to the cache in {self.directory}: {error.strerror or error}"
            if self.directory not in _warned:
                _warned.add(self.directory)
                unsafe = isinstance(error, NotPrivateError)
                warnings.warn(f"the cache is not used: {error}" if unsafe else f"compiled code is not kept: {self.problem}", stacklevel=2)
            return self.problem
        return None

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / f"{key}.o"

    def _write(self, path: Path, data: bytes) -> None:
        private_directory(self.directory)
        if not make_room(self.directory, len(data)):
            return
        private_directory(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=NEW)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def _head(key: str, body: bytes) -> bytes:
    """Return what an entry with `body` under `key` begins with."""
    digest = hashlib.sha256(key.encode())
    digest.update(body)
    return _MAGIC + digest.digest()
