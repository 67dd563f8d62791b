"""`tensorlang list`: the operators of files and of installed modules."""

from __future__ import annotations

import click

from tensorlang.shell import options
from tensorlang.shell.reporting import say


@click.command(name="list", short_help="List the operators of a file or a module.")
@click.argument("what", required=False, default=None, metavar="FILE|MODULE", help="a .tl file, or a module such as `std.norm`")
@options.as_json
def list_operators(what: str | None, as_json: bool) -> None:
    """List the operators of a file or of a module with their signatures; without an argument, the modules that can be used."""
    from tensorlang.shell.listing import listed

    found = listed(what)
    text = ("\n" if what is None else "\n\n").join("\n".join(part.lines(briefly=what is None)) for part in found)
    say({"modules": [part.as_data() for part in found]}, text, as_json)
