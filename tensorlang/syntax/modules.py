"""The `.tl` modules that installed packages offer: where each lies, and what it declares, without parsing it.

use std.norm                the file norm.tl of the package that offers `std`
use std                     all its files
use std.norm.softmax        what norm.tl declares as `softmax`; `std.softmax` where only one file declares that
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tensorlang.diagnostics import Source
from tensorlang.plugins import module_folders, module_kernels
from tensorlang.syntax.parse import load
from tensorlang.syntax.scanner import NAME, scan, split

KINDS = ("op", "instruction", "fn", "reducer", "tactic")
"""What can be used by name."""
_BEFORE = frozenset(("extern", "strict", "reduce", "fast", "ordered"))


@dataclass(frozen=True, slots=True)
class Module:
    """A file that a package offers: `title` is what `use` calls it, `shown` what messages call it."""

    title: str
    path: Path
    shown: str

    def source(self, opened: Callable[[Path], Source | None] = lambda _: None) -> Source:
        """Return its text: what `opened` says of its path, else the file. Raises CompileError P020 to P023."""
        return replace(opened(self.path) or load(self.path), name=self.shown)

    def names(self) -> Mapping[str, str]:
        """Return what other files may use of it, and of which kind each is."""
        return {name: kind for name, kind in declared(self.source()).items() if not name.startswith("_")}


@dataclass(frozen=True, slots=True)
class Place:
    """What a path of words leads to: a module, or all those of a package, and perhaps a name that they are to have."""

    title: str
    modules: tuple[Module, ...]
    name: str | None = None

    def having(self, name: str) -> tuple[Module, ...]:
        """Return the modules that declare `name`."""
        return self.modules if len(self.modules) == 1 else tuple(m for m in self.modules if name in m.names())


def packages() -> tuple[str, ...]:
    """Return the words that paths may begin with."""
    return tuple(module_folders())


def modules() -> tuple[Module, ...]:
    """Return every module that is offered, subfolders included."""
    return tuple(m for title, (shown, folder) in module_folders().items() for m in _below(title, shown, folder))


def declaring(name: str) -> str | None:
    """Return the module of an installed package that declares a name which is no module itself, of the standard library where it does."""
    if "." in name or name in packages():
        return None
    found = sorted((m.title for m in modules() if name in m.names()), key=lambda title: (not title.startswith("std."), title))
    return found[0] if found else None


@lru_cache(maxsize=64)
def kernels(source: Source) -> Mapping[str, Any]:
    """Return the kernels that a package offers for the extern operators of a text, by their names; none unless it is that of a module."""
    for shown, folder in module_folders().values():
        name = source.name.removeprefix(f"{shown}/").removesuffix(".tl")
        path = folder / f"{name}.tl"
        if source.name == f"{shown}/{name}.tl" and path.is_file() and load(path).text == source.text:
            return module_kernels(shown).get(name, {})
    return {}


def find(path: str) -> Place | None:
    """Return what `use path` means, or None when no package offers it."""
    folders = module_folders()
    words = path.split(".")
    if not all(re.fullmatch(NAME, word) for word in words):
        return None
    for taken in range(len(words), 0, -1):
        title = ".".join(words[:taken])
        if title in folders:
            shown, folder = folders[title]
            return _inside(title, shown, folder, words[taken:])
    return None


def _inside(title: str, shown: str, folder: Path, words: list[str]) -> Place | None:
    match words:
        case []:
            return Place(title, tuple(_directly(title, shown, folder)))
        case [word, *rest] if (folder / f"{word}.tl").is_file() and len(rest) <= 1:
            module = Module(f"{title}.{word}", folder / f"{word}.tl", f"{shown}/{word}.tl")
            return Place(module.title, (module,), *rest)
        case [word, *rest] if (folder / word).is_dir():
            return _inside(f"{title}.{word}", f"{shown}/{word}", folder / word, rest)
        case [word]:
            return Place(title, tuple(_directly(title, shown, folder)), word)
        case _:
            return None


def _directly(title: str, shown: str, folder: Path) -> Iterator[Module]:
    for path in sorted(folder.glob("*.tl")):
        if re.fullmatch(NAME, path.stem):
            yield Module(f"{title}.{path.stem}", path, f"{shown}/{path.name}")


def _below(title: str, shown: str, folder: Path) -> Iterator[Module]:
    yield from _directly(title, shown, folder)
    for inner in sorted(p for p in folder.iterdir() if p.is_dir() and re.fullmatch(NAME, p.name) and not p.name.startswith("_")):
        yield from _below(f"{title}.{inner.name}", f"{shown}/{inner.name}", inner)


@lru_cache(maxsize=1024)
def declared(source: Source) -> Mapping[str, str]:
    """Return the names that a text declares and of which kind each is, as far as its first words tell."""
    found: dict[str, str] = {}
    for lexemes in split(scan(source).lexemes, source.text):
        words = [token for token in lexemes if token.type != "NEWLINE"]
        while words and words[0].value in _BEFORE:
            words.pop(0)
        if len(words) > 1 and words[0].value in KINDS and words[1].type == "NAME":
            found.setdefault(words[1].value.strip("`"), words[0].value)
    return found
