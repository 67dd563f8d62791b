"""The standard library: the operators of `ops/*.tl`, parsed and checked once and kept on disk."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from tensorlang.check.module import Module, load_module
from tensorlang.diagnostics import Source
from tensorlang.runtime.stored import stored
from tensorlang.syntax.nodes import File, Use
from tensorlang.syntax.parse import parse


@cache
def library() -> Module:
    """Return every operator, function, instruction and schedule of the standard library as one module."""
    return stored("library", (source.text for source in sources()), lambda: _parsed(sources()))


@cache
def roles() -> Module:
    """Return the library's schedules of roles and its instructions alone: those that serve operators of any file."""
    return stored("roles", (source.text for source in _roles()), lambda: _parsed(_roles()))


def _parsed(sources: tuple[Source, ...]) -> Module:
    """Return one module of all that the files declare; what they use of each other is in it anyway."""
    declarations = (declaration for source in sources for declaration in parse(source).declarations)
    return load_module(File(tuple(d for d in declarations if not isinstance(d, Use))))


def sources() -> tuple[Source, ...]:
    """Return the library's files: operators in the order of their names, then the schedules of roles and instructions."""
    return (*_files("ops"), *_roles())


def _roles() -> tuple[Source, ...]:
    names = [f"schedules/{name}.tl" for name in ("roles", "gpu", "cuda")]
    # Of instructions that compute the same the first is the one whose name schedules show.
    names += [f"instructions/{name}.tl" for name in ("cuda", "x86", "arm")]
    return tuple(Source(f"stdlib/{name}", (files("stdlib") / name).read_text("utf-8")) for name in names)


def _files(folder: str) -> tuple[Source, ...]:
    entries = sorted((e for e in (files("stdlib") / folder).iterdir() if e.name.endswith(".tl")), key=lambda e: e.name)
    return tuple(Source(f"stdlib/{folder}/{e.name}", e.read_text("utf-8")) for e in entries)
