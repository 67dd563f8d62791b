"""The standard library: the operators of `ops/*.tl`, parsed and checked once and kept on disk."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from tensorlang.check.module import Module, load_module
from tensorlang.diagnostics import Source
from tensorlang.runtime.stored import stored
from tensorlang.syntax.nodes import File
from tensorlang.syntax.parse import parse


@cache
def library() -> Module:
    """Return every operator, function and schedule of the standard library as one module."""
    return stored("library", (source.text for source in sources()), _parsed)


@cache
def roles() -> Module:
    """Return the library's schedules of roles alone: those that serve operators of any file."""
    source = _roles()
    return stored("roles", (source.text,), lambda: load_module(parse(source)))


def _parsed() -> Module:
    parsed = [parse(source) for source in sources()]
    return load_module(File(tuple(declaration for file in parsed for declaration in file.declarations)))


def sources() -> tuple[Source, ...]:
    """Return the library's files: operators in the order of their names, then the schedules of roles."""
    folder = files("stdlib") / "ops"
    entries = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".tl")), key=lambda entry: entry.name)
    operators = (Source(f"stdlib/ops/{entry.name}", entry.read_text("utf-8")) for entry in entries)
    return (*operators, _roles())


def _roles() -> Source:
    return Source("stdlib/schedules/roles.tl", (files("stdlib") / "schedules" / "roles.tl").read_text("utf-8"))
