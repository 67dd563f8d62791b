"""Which names of a file other files use that lie near it: in its folder and those in it, in the folder above and those in that.

A file is a library where another one says `use` of it. What uses it from further away, nobody can tell.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Container, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path

from tensorlang.syntax import nodes as sx

MOST_FOLDERS = 200
"""How many folders are looked into."""
_LARGEST = 1 << 20
_USE = re.compile(r'^[ \t]*use[ \t]+"([^"\n]+)"[ \t]*(?:\(([^)]*)\))?', re.MULTILINE)


class AllNames(Container[str]):
    """All names: of a file that is used as a whole."""

    def __contains__(self, name: object) -> bool:
        return True


def names_used_by_others(file: sx.File) -> Container[str]:
    """Return the names of a file that other files near it use; none where it lies nowhere."""
    source = file.span.source
    if source.folder is None:
        return frozenset()
    path = os.path.realpath(os.path.join(source.folder, os.path.basename(source.name)))
    return _names(path, tuple(_files_near(path)))


@lru_cache(maxsize=64)
def _names(path: str, near: tuple[tuple[str, int], ...]) -> Container[str]:
    """Return which names of a file those `near` it use, each told by its path and when it was changed."""
    found: set[str] = set()
    for other, _ in near:
        for used, names in _USE.findall(_text(other)):
            if os.path.realpath(os.path.join(os.path.dirname(other), used)) != path:
                continue
            if not names:
                return AllNames()
            found |= {part.split()[0] for part in names.split(",") if part.split()}
    return frozenset(found)


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, ValueError):
        return ""


def _files_near(path: str) -> Iterator[tuple[str, int]]:
    """Yield the `.tl` files near one, each with the time of its last change."""
    folder = os.path.dirname(path)
    seen = {path}
    for place in islice(_folders_near(folder), MOST_FOLDERS):
        for entry in _entries(place):
            if not entry.name.endswith(".tl") or (other := os.path.realpath(entry.path)) in seen:
                continue
            seen.add(other)
            try:
                found = entry.stat()
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode) and found.st_size < _LARGEST:
                yield other, found.st_mtime_ns


def _folders_near(folder: str) -> Iterator[str]:
    above = os.path.dirname(folder)
    for place in dict.fromkeys((folder, above)):
        yield place
        yield from (e.path for e in _entries(place) if not e.name.startswith(".") and e.path != folder and _is_folder(e))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """Return what lies in a folder, in order of names; nothing where that is not to be told."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []
