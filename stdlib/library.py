"""The standard library: the operators of `ops/*.tl`, and the schedules of roles and instructions that serve operators of any file.

A model names a tenth of the operators. So a file of operators is parsed when the first of its names is asked for; what the library
declares is right, which its tests say. Roles and instructions are parsed and checked once and kept on disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Generic, TypeVar

from tensorlang.check.module import Module, load_module
from tensorlang.diagnostics import Source
from tensorlang.runtime.stored import stored
from tensorlang.syntax.nodes import Declaration, File, Operator, ScalarFunction, Use
from tensorlang.syntax.parse import parse

D = TypeVar("D", Operator, ScalarFunction)

_DECLARED = re.compile(r"^(?:extern )?(op|fn) (\w+)", re.MULTILINE)


@cache
def library() -> Module:
    """Return every operator, function, instruction and schedule of the standard library as one module."""
    found = [(kind, name, source) for source in _files("ops") for kind, name in _DECLARED.findall(source.text)]
    rest = roles()
    operators = _Unread(Operator, rest.operators, {name: source for kind, name, source in found if kind == "op"})
    functions = _Unread(ScalarFunction, rest.functions, {name: source for kind, name, source in found if kind == "fn"})
    declared = rest.declared | {name for kind, name, _ in found if kind == "op"}
    return replace(rest, operators=operators, functions=functions, declared=declared, offered=declared)


@cache
def roles() -> Module:
    """Return the library's schedules of roles and its instructions alone: those that serve operators of any file."""
    return stored("roles", (source.text for source in _roles()), lambda: checked(_roles()))


def checked(sources: tuple[Source, ...]) -> Module:
    """Return one module of all that the files declare; what they use of each other is in it anyway. Raises CompileError."""
    declarations = (declaration for source in sources for declaration in parse(source).declarations)
    return load_module(File(tuple(d for d in declarations if not isinstance(d, Use))))


def sources() -> tuple[Source, ...]:
    """Return the library's files: operators in the order of their names, then the schedules of roles and instructions."""
    return (*_files("ops"), *_roles())


@dataclass(frozen=True)
class _Unread(Mapping[str, D], Generic[D]):
    """Declarations of one kind by their names: some that are there, and those of files that are read when one of them is asked for."""

    kind: type[D]
    there: Mapping[str, D]
    files: Mapping[str, Source]

    def __getitem__(self, name: str) -> D:
        source = self.files.get(name)
        if source is None:
            return self.there[name]
        found = _read(source)[name]
        assert isinstance(found, self.kind)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self.files or name in self.there

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self.there), **dict.fromkeys(self.files)})

    def __len__(self) -> int:
        return sum(1 for _ in self)


@cache
def _read(source: Source) -> Mapping[str, Declaration]:
    """Return the declarations of a file by their names."""
    return {d.name: d for d in parse(source).declarations if isinstance(d, Operator | ScalarFunction)}


def _roles() -> tuple[Source, ...]:
    names = [f"schedules/{name}.tl" for name in ("roles", "gpu", "cuda")]
    # Of instructions that compute the same the first is the one whose name schedules show.
    names += [f"instructions/{name}.tl" for name in ("cuda", "x86", "arm")]
    return tuple(Source(f"stdlib/{name}", (files("stdlib") / name).read_text("utf-8")) for name in names)


def _files(folder: str) -> tuple[Source, ...]:
    entries = sorted((e for e in (files("stdlib") / folder).iterdir() if e.name.endswith(".tl")), key=lambda e: e.name)
    return tuple(Source(f"stdlib/{folder}/{e.name}", e.read_text("utf-8")) for e in entries)
