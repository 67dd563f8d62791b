"""What an editor knows of used files: their texts where these are open, the names they offer, and the `use` line that a name lacks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tensorlang.bounded_cache import BoundedCache
from tensorlang.check.uses import Reader, modules_with, path_of
from tensorlang.diagnostics import CompileError, Diagnostic, Edit, Source, Span
from tensorlang.syntax import modules, parse
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.scanner import NAME

KEPT_FILES = 256
"""Syntax trees of used files that are kept."""

_PATH = re.compile(rf"{NAME}(?:\.{NAME})*")


class Trees:
    """The syntax trees of used files, kept from one analysis to the next."""

    def __init__(self) -> None:
        self._kept: BoundedCache[tuple[str, str | None, str], sx.File] = BoundedCache(KEPT_FILES)

    def of(self, source: Source) -> sx.File:
        """Return the tree of a text. Raises CompileError with P codes."""
        key = (source.name, source.folder, source.text)
        return self._kept.used(key, lambda: parse.parse(source))


@dataclass
class EditorReader(Reader):
    """Reads used files for one analysis: `texts` are those that are open, by the real path of each."""

    texts: Mapping[str, str] = field(default_factory=dict)
    trees: Trees = field(default_factory=Trees)
    probed: set[str] = field(default_factory=set)
    """The real paths of all files that were looked for, found or not."""
    sources: dict[str, Source] = field(default_factory=dict)
    """What was read, by the names of messages."""

    def opened(self, path: Path) -> Source | None:
        real = os.path.realpath(path)
        self.probed.add(real)
        text = self.texts.get(real)
        return Source(str(path), text, folder=str(path.parent)) if text is not None else None

    def parsed(self, source: Source) -> sx.File:
        self.sources[source.name] = source
        return self.trees.of(source)

    def offered(self, place: sx.Text | sx.Id) -> Mapping[str, str]:
        """Return the names that a `use` of a file or module may ask for, and of which kind each is; none where nothing can be read."""
        try:
            if isinstance(place, sx.Text):
                path = path_of(place)
                found = modules.declared(self.opened(path) or parse.load(path))
            else:
                at = modules.find(place.name)
                found = {n: k for m in (at.modules if at is not None and at.name is None else ()) for n, k in m.names().items()}
        except CompileError:
            return {}
        return {name: kind for name, kind in found.items() if not name.startswith("_")}


def file_of(use: sx.Use) -> Path | None:
    """Return the one file that a `use` names, there or not; None for a package of several and for what no package offers."""
    if isinstance(use.place, sx.Text):
        try:
            return path_of(use.place)
        except CompileError:
            return None
    found = modules.find(use.place.name)
    return found.modules[0].path if found is not None and len(found.modules) == 1 else None


@dataclass(frozen=True, slots=True)
class Lost:
    """The names that a file lacks because a `use` that would bring them is wrong. `all`: any name may be among them."""

    names: frozenset[str] = frozenset()
    prefixes: frozenset[str] = frozenset()
    all: bool = False

    def __or__(self, other: Lost) -> Lost:
        return Lost(self.names | other.names, self.prefixes | other.prefixes, self.all or other.all)

    def explains(self, problem: Diagnostic) -> bool:
        """Tell whether a diagnostic only says that one of the names is missing."""
        if any(f"`{name}`" in problem.title for name in self.names) or any(f"`{prefix}." in problem.title for prefix in self.prefixes):
            return True
        return self.all and problem.code == "T0101"


def lost_with(use: sx.Use) -> Lost:
    """Return the names that a file lacks without one of its `use` lines."""
    if use.names:
        return Lost(frozenset(n.alias or n.name for n in use.names))
    last = use.place.name.rpartition(".")[2] if isinstance(use.place, sx.Id) else None
    if use.alias is not None:
        return Lost(frozenset((use.alias,)) if last else frozenset(), frozenset((use.alias,)))
    found = modules.find(use.place.name) if isinstance(use.place, sx.Id) else None
    return Lost(frozenset((last,))) if last and found is not None and found.name is not None else Lost(all=True)


def without_names_at(use: sx.Use, spans: set[tuple[int, int]]) -> sx.Use | None:
    """Return a `use` without those of its names that stand at some places; None where no name stands there or none remains."""
    kept = tuple(n for n in use.names if (n.span.start, n.span.end) not in spans)
    return _with_names(use, kept) if kept and len(kept) < len(use.names) else None


def _with_names(use: sx.Use, names: tuple[sx.UsedName, ...]) -> sx.Use:
    return sx.Use(use.place, names, use.alias, span=use.span)


# ---------------------------------------------------------------- the line that is missing


def missing_lines(file: sx.File, source: Source, problem: Diagnostic) -> Iterator[tuple[str, tuple[Edit, ...]]]:
    """Yield each way to bring an unknown name that an installed package has: what it does, and the edits of the text."""
    named = _PATH.match(source.text, problem.labels[0].span.start)
    if problem.code != "T0101" or named is None or not (problem.help or "").startswith("write `use "):
        return
    last = named.group().rpartition(".")[2]
    for title in modules_with(last):
        edits = [_brings(file, source, title, last)]
        if named.group() != last:
            edits.append(Edit(Span(source, named.start(), named.end()), last))
        yield f"write `use {title} ({last})`", tuple(edits)


def _brings(file: sx.File, source: Source, title: str, name: str) -> Edit:
    """Return the edit that lets a file use a name of a module: one more name in its `use` of that, or a line of its own."""
    uses = [d for d in file.declarations if isinstance(d, sx.Use)]
    for use in uses:
        if use.names and isinstance(use.place, sx.Id) and use.place.name == title:
            return Edit(Span(source, use.names[-1].span.end, use.names[-1].span.end), f", {name}")
    if uses:
        at = uses[-1].span.end
        return Edit(Span(source, at, at), f"\nuse {title} ({name})")
    at = _first_line(file, source)
    return Edit(Span(source, at, at), f"use {title} ({name})\n\n")


def _first_line(file: sx.File, source: Source) -> int:
    """Return where the first declaration begins, with the comments right above it."""
    first = min((d.span.start for d in file.declarations), default=0)
    at = source.text.rfind("\n", 0, first) + 1
    while at > 0 and source.text[source.text.rfind("\n", 0, at - 1) + 1 : at].lstrip().startswith("#"):
        at = source.text.rfind("\n", 0, at - 1) + 1
    return at


# ---------------------------------------------------------------- completion


def modules_after(written: str) -> Iterator[tuple[str, str]]:
    """Yield the words that may follow a path, which ends in a dot or is empty, each with the module or package that it leads to."""
    seen = set()
    for title in (*modules.packages(), *(m.title for m in modules.modules())):
        word = title.removeprefix(written).partition(".")[0]
        if title.startswith(written) and word and word not in seen:
            seen.add(word)
            yield word, f"{written}{word}"


def files_after(folder: str | None, written: str) -> Iterator[str]:
    """Yield the names of `.tl` files and folders that may follow the path `written` of a `use`, which ends in `/` or is empty."""
    if folder is None:
        return
    try:
        found = sorted(os.scandir(os.path.join(folder, written)), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in found:
        if entry.is_dir() and not entry.name.startswith("."):
            yield f"{entry.name}/"
        elif entry.name.endswith(".tl"):
            yield entry.name
