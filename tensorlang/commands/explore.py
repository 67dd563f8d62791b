"""`tensorlang explore`: a page on which schedules are edited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tensorlang.diagnostics import error
from tensorlang.shell import options
from tensorlang.shell.loading import no_operator
from tensorlang.shell.reporting import say

if TYPE_CHECKING:
    from tensorlang.explorer.explorer import Explorer
    from tensorlang.explorer.subject import Subject


@click.command(short_help="Edit schedules in a browser.")
@options.file("a .tl file")
@click.argument("arguments", nargs=-1, help="[OPERATOR] size=number …; what is compiled and measured has these sizes")
@click.option("--export", type=options.PATH, default=None, help="write one file to be read without a server, and serve nothing")
@click.option("--measure", is_flag=True, help="measure what is exported")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="on this machine (default: any that is free)")
@click.option("--open", "opens", is_flag=True, help="open the page in a browser")
@options.threads
@options.as_json
def explore(
    file: Path,
    arguments: Sequence[str],
    export: Path | None,
    measure: bool,
    port: int,
    opens: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Show an operator's source, schedule, loop tree, picture, code and measured time side by side on a page of this machine alone, until
    an interrupt. A directive that is edited is proven at once; the two instances that refute one are in the picture."""
    from tensorlang.explorer.explorer import Explorer
    from tensorlang.explorer.subject import checked_sizes, subject_of
    from tensorlang.shell.arguments import parsed
    from tensorlang.syntax import parse as syntax

    if file.suffix != ".tl":
        raise error("C0103", "not supported yet: exploring a model", help="explore the operators of a `.tl` file")
    if measure and export is None:
        raise error("C0211", "`--measure` is about what is exported", help="the page has a button for it")
    rest = list(arguments)
    name = rest.pop(0) if rest and "=" not in rest[0] else None
    sizes = checked_sizes(parsed(rest))

    def subject() -> Subject:
        found = subject_of(syntax.load(file), sizes, threads)
        if name is None:
            return found
        if name not in found.operators:
            raise no_operator(file, name, found.operators)
        return replace(found, operators={name: found.operators[name]})

    explorer = Explorer(subject(), subject)
    if export is not None:
        _export(explorer, export, measure, as_json)
    else:
        _serve(explorer, port, opens, as_json)


def _export(explorer: Explorer, path: Path, measure: bool, as_json: bool) -> None:
    from tensorlang.explorer.export import exported
    from tensorlang.shell.files import write_text
    from tensorlang.shell.progress import Bar

    try:
        with Bar() as bar:
            text = exported(explorer, measure=measure, progress=bar)
    finally:
        explorer.end()
    write_text(path, text)
    size = len(text.encode())
    say({"operators": list(explorer.subject.operators), "output": str(path), "bytes": size}, f"{path}: {size} bytes", as_json)


def _serve(explorer: Explorer, port: int, opens: bool, as_json: bool) -> None:
    """Serve until an interrupt. Raises CompileError C0231 without the server's package."""
    try:
        from tensorlang.explorer.server import serve
    except ModuleNotFoundError as missing:
        if missing.name != "waitress":
            raise
        raise error("C0231", "the package `waitress` is not installed", help="pip install 'tensorlang[explore]'") from None

    def ready(address: str) -> None:
        name = explorer.subject.source.name
        say({"file": name, "address": address}, f"exploring `{name}` at {address} (an interrupt ends it)", as_json)
        if opens:
            click.launch(address)

    serve(explorer, port, ready)
