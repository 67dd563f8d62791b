"""`tensorlang lsp`: the language server."""

from __future__ import annotations

import click

from tensorlang.diagnostics import error


@click.command(short_help="Serve an editor over standard input and output.")
def lsp() -> None:
    """Serve an editor: the language server, over standard input and output."""
    try:
        from tensorlang.lsp.server import serve
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise error("C0231", "the package `pygls` is not installed", help="pip install 'tensorlang[lsp]'") from None
    serve()
