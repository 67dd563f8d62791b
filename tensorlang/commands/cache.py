"""`tensorlang cache`: where compiled code is kept, how much of it there is, and how to have less of it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensorlang.diagnostics import error
from tensorlang.shell import options
from tensorlang.shell.reporting import say

if TYPE_CHECKING:
    from codegen.eviction import Usage


@click.command()
@click.option("--clear", is_flag=True, help="remove all entries")
@click.option("--prune", metavar="SIZE", default=None, help="remove what was not used for longest: 500MiB, 2G, …")
@options.as_json
def cache(clear: bool, prune: str | None, as_json: bool) -> None:
    """Show where compiled code is kept, or remove some.

    The folder is that of TENSORLANG_CACHE, or the user's cache. What was not used for longest goes when there is more than
    TENSORLANG_CACHE_SIZE, 5GiB unless that says otherwise. Nothing but entries of the cache is ever removed, and other processes may use
    them meanwhile."""
    from codegen.eviction import limit_bytes, parse_size, usage
    from codegen.store import default_directory

    if clear and prune is not None:
        raise error("C0211", "`--clear` removes all that `--prune` would leave", help="give one of them")
    try:
        left = 0 if clear else None if prune is None else parse_size(prune)
    except ValueError as problem:
        raise error("C0211", f"`--prune`: {problem}") from None
    directory = default_directory()
    removed = None if left is None else _pruned(directory, left)
    found, limit = usage(directory), limit_bytes()
    data: dict[str, Any] = {"path": str(directory), "limit_bytes": limit, "kinds": {kind: asdict(u) for kind, u in found.items()}}
    first = [] if removed is None else [f"removed {_told(removed)}"]
    say(data | {"removed": None if removed is None else asdict(removed)}, "\n".join([*first, *_lines(directory, found, limit)]), as_json)


def _pruned(directory: Path, left: int) -> Usage:
    """Return what was removed. Raises CompileError C0203."""
    from codegen.eviction import Usage, prune

    if not directory.is_dir():
        return Usage()
    try:
        return prune(directory, left)
    except OSError as problem:
        raise error("C0203", f"cannot change the cache in `{directory}`: {(problem.strerror or str(problem)).lower()}") from None


def _lines(directory: Path, found: dict[str, Usage], limit: int) -> list[str]:
    from codegen.eviction import Usage
    from tensorlang.runtime.report import bytes_text

    total = Usage(sum(u.entries for u in found.values()), sum(u.size_bytes for u in found.values()))
    rows = [f"{kind:12}{_told(used)}" for kind, used in found.items() if used.entries or kind != "unfinished"]
    return [str(directory), *rows, f"{'in all':12}{_told(total)} of {bytes_text(limit)}"]


def _told(used: Usage) -> str:
    from tensorlang.runtime.report import bytes_text

    return f"{used.entries} {'entry' if used.entries == 1 else 'entries'}, {bytes_text(used.size_bytes)}"
