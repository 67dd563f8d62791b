"""How large the folder of a cache may grow, and what goes when it is larger: what was not used for longest.

    <directory>/<two digits>/<key>.o     an entry of `codegen.store`                     key: 64 hexadecimal digits
    <directory>/models/<key>/            a compiled model: the files `parts` and `constants`
    <directory>/.size                    as many bytes as the entries have pages of 4 KiB: an estimate that never is far too low
    <directory>/.lock                    locked by the process that removes entries

Any number of processes write, read and remove at once, and each may be killed at any time. Whoever writes an entry makes `.size` longer
first; whoever finds it longer than the limit allows counts what is there, removes entries and sets `.size` right. Locks end with their
process. A reader that has an entry open keeps it; another one misses. What is unlike the above is not ours: it is neither counted nor
removed, and no link is followed, so nothing outside the folder is.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from codegen.log import log_of

LIMIT = "TENSORLANG_CACHE_SIZE"
DEFAULT_LIMIT_BYTES = 5 << 30
MODELS = "models"
PARTS = ("parts", "constants")
"""The files of a model that is kept."""
NEW, OLD = ".new-", ".old-"
"""How names begin of what is being written, and of what is being removed."""

_SIZE, _LOCK = ".size", ".lock"
_PAGE = 4096
_KEY = re.compile(r"[0-9a-f]{64}")
_SHELF = re.compile(r"[0-9a-f]{2}")
_UNITS = {"": 0, "b": 0, "k": 1, "kb": 1, "kib": 1, "m": 2, "mb": 2, "mib": 2, "g": 3, "gb": 3, "gib": 3, "t": 4, "tb": 4, "tib": 4}
_LEFT = 0.9
"""The share of the limit that is left when entries are removed, so that it is not done again soon."""
_UNTOUCHED_SECONDS = 3600.0
"""How long nobody has written to a temporary file before it is taken for one that its process left behind."""
_log = log_of("cache")


@dataclass(frozen=True, slots=True)
class Entry:
    """`kind`: "objects", "models", or "unfinished" for what a process writes, or left behind. `size_bytes` are those on disk, `used` is
    when it was written or read last, in seconds as `time.time` counts them."""

    kind: str
    folder: str
    name: str
    size_bytes: int
    used: float


@dataclass(frozen=True, slots=True)
class Usage:
    """How many entries, and how many bytes on disk."""

    entries: int = 0
    size_bytes: int = 0

    def with_entry(self, entry: Entry) -> Usage:
        return Usage(self.entries + 1, self.size_bytes + entry.size_bytes)


def limit_bytes() -> int:
    """Return how large the cache may be: `$TENSORLANG_CACHE_SIZE`, or 5 GiB. Warns of a size that is none, once."""
    given = os.environ.get(LIMIT, "")
    return DEFAULT_LIMIT_BYTES if not given else _given_limit(given)


@cache
def _given_limit(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as problem:
        warnings.warn(f"{LIMIT} is not used: {problem}", stacklevel=4)
        return DEFAULT_LIMIT_BYTES


def parse_size(text: str) -> int:
    """Return a number of bytes: "500 MiB", "2G", "0"; K, M, G and T are powers of 1024. Raises ValueError for what is none."""
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*([a-zA-Z]*)\s*", text, re.ASCII)
    if found is None or found[2].lower() not in _UNITS:
        raise ValueError(f"`{text}` is no size: write a number of bytes, or as `500MiB`, `5GiB`")
    return int(float(found[1]) * 1024 ** _UNITS[found[2].lower()])


def usage(directory: Path) -> dict[str, Usage]:
    """Return what there is of each kind of entry."""
    found = {"objects": Usage(), "models": Usage(), "unfinished": Usage()}
    for entry in entries(directory):
        found[entry.kind] = found[entry.kind].with_entry(entry)
    return found


def make_room(directory: Path, size_bytes: int) -> bool:
    """Tell whether an entry of so many bytes may be written, and let others see it coming: remove entries where there would be too much.

    Does nothing but count unless the limit is reached. What cannot be counted or removed stays."""
    limit = limit_bytes()
    if size_bytes > limit:
        return False
    try:
        if _counted(directory, size_bytes) * _PAGE > limit:
            prune(directory, int(limit * _LEFT), wait=False, pending_bytes=size_bytes)
    except OSError as problem:
        _log.debug("the size of %s is not known: %s", directory, problem)
    return True


def prune(directory: Path, limit: int, *, wait: bool = True, pending_bytes: int = 0) -> Usage:
    """Remove what was not used for longest until what is left takes `limit` bytes at most, with the `pending_bytes` of an entry to
    come. Return what was removed.

    Without `wait`, leave it to another process that is at it. Raises OSError where the folder cannot be read."""
    with _opened(directory) as root, _locked(root, wait) as mine:
        if not mine:
            return Usage()
        before = _pages(root)
        found = sorted(entries(directory), key=lambda e: (e.kind != "unfinished", e.used, e.name))
        left, removed = sum(e.size_bytes for e in found) + pending_bytes, Usage()
        for entry in found:
            if (left > limit or entry.kind == "unfinished") and _removed(root, entry):
                left -= entry.size_bytes
                removed = removed.with_entry(entry)
        _set_size(root, left + max(0, _pages(root) - before) * _PAGE)  # others wrote meanwhile
    if removed.entries:
        _log.info("removed %d entries of %d bytes from the cache in %s", removed.entries, removed.size_bytes, directory)
    return removed


def entries(directory: Path) -> Iterator[Entry]:
    """Yield what a cache has in its folder, and nothing else that may lie there."""
    try:
        with _opened(directory) as root:
            for name in sorted(os.listdir(root)):
                if _SHELF.fullmatch(name) or name == MODELS:
                    yield from _on_shelf(root, name)
    except OSError:
        return


def is_in_use(folder: int) -> bool:
    """Tell whether the process that writes what lies in an open folder is still there (`lock_folder`)."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(folder, fcntl.LOCK_UN)
    return False


def lock_folder(folder: Path) -> int:
    """Return a handle of a folder that says, as long as it is open in this process, that something is being written there. Raises
    OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


# ---------------------------------------------------------------- what is there


@contextmanager
def _opened(path: str | Path, parent: int | None = None) -> Iterator[int]:
    """Open a folder; one inside another must be no link."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | (os.O_NOFOLLOW if parent is not None else 0), dir_fd=parent)
    try:
        yield handle
    finally:
        os.close(handle)


def _on_shelf(root: int, folder: str) -> Iterator[Entry]:
    try:
        with _opened(folder, root) as shelf:
            for name in os.listdir(shelf):
                try:
                    found = _model(shelf, folder, name) if folder == MODELS else _object(shelf, folder, name)
                except OSError:  # it is gone meanwhile
                    continue
                if found is not None:
                    yield found
    except OSError:
        return


def _object(shelf: int, folder: str, name: str) -> Entry | None:
    whole = name.endswith(".o") and _KEY.fullmatch(name[:-2]) is not None
    if not whole and not name.startswith(NEW):
        return None
    found = os.stat(name, dir_fd=shelf, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):
        return None
    return Entry("objects" if whole else "unfinished", folder, name, _on_disk(found), found.st_mtime)


def _model(models: int, folder: str, name: str) -> Entry | None:
    whole = _KEY.fullmatch(name) is not None
    if not whole and not name.startswith((NEW, OLD)):
        return None
    with _opened(name, models) as bundle:
        size = sum(_on_disk(os.stat(part, dir_fd=bundle, follow_symlinks=False)) for part in os.listdir(bundle) if part in PARTS)
        return Entry("models" if whole else "unfinished", folder, name, size, os.fstat(bundle).st_mtime)


def _on_disk(found: os.stat_result) -> int:
    return -(-found.st_size // _PAGE) * _PAGE if stat.S_ISREG(found.st_mode) else 0


# ---------------------------------------------------------------- removal


def _removed(root: int, entry: Entry) -> bool:
    """Remove an entry. Return whether it is gone by that."""
    try:
        with _opened(entry.folder, root) as shelf:
            if entry.folder == MODELS:
                return _removed_model(shelf, entry)
            if entry.kind == "unfinished" and time.time() - entry.used < _UNTOUCHED_SECONDS:
                return False
            os.unlink(entry.name, dir_fd=shelf)
            return True
    except OSError:
        return False


def _removed_model(models: int, entry: Entry) -> bool:
    name = entry.name
    with _opened(name, models) as bundle:
        if entry.kind == "unfinished" and name.startswith(NEW) and is_in_use(bundle):
            return False
        if entry.kind == "models":  # from here on nobody finds half of it
            name = f"{OLD}{entry.name}-{os.getpid()}"
            os.rename(entry.name, name, src_dir_fd=models, dst_dir_fd=models)
        for part in PARTS:
            try:
                os.unlink(part, dir_fd=bundle)
            except FileNotFoundError:
                continue
    os.rmdir(name, dir_fd=models)
    return True


@contextmanager
def _locked(root: int, wait: bool) -> Iterator[bool]:
    """Tell whether this process may remove entries now: alone, where the system has locks."""
    handle = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=root)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(handle)


# ---------------------------------------------------------------- the size


def _counted(directory: Path, size_bytes: int) -> int:
    """Add an entry to the size. Return how many pages there are then."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW
    with _opened(directory) as root:
        try:
            handle = os.open(_SIZE, flags, dir_fd=root)
        except FileNotFoundError:
            _set_size(root, sum(e.size_bytes for e in entries(directory)))
            handle = os.open(_SIZE, flags, dir_fd=root)
        try:
            os.write(handle, bytes(-(-size_bytes // _PAGE)))
            return os.fstat(handle).st_size
        finally:
            os.close(handle)


def _pages(root: int) -> int:
    try:
        return os.stat(_SIZE, dir_fd=root, follow_symlinks=False).st_size
    except OSError:
        return 0


def _set_size(root: int, size_bytes: int) -> None:
    handle = os.open(_SIZE, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=root)
    try:
        os.ftruncate(handle, -(-size_bytes // _PAGE))
    finally:
        os.close(handle)
