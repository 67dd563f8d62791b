"""`tensorlang fmt`: the one layout of files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tensorlang.shell import options
from tensorlang.shell.reporting import say


@click.command()
@options.files(".tl files")
@click.option("--check", is_flag=True, help="change nothing; exit with 1 if a file would change")
@options.as_json
def fmt(files: Sequence[Path], check: bool, as_json: bool) -> None:
    """Lay files out in the canonical way."""
    from tensorlang.shell.files import write_text
    from tensorlang.syntax import format as formatter
    from tensorlang.syntax import parse as syntax

    changed = []
    for path in files:
        source = syntax.load(path)
        text = formatter.fmt(source)
        if text != source.text:
            changed.append(str(path))
            if not check:
                write_text(path, text)
    verb = "would change" if check else "changed"
    say({verb.replace(" ", "_"): changed}, "\n".join(f"{verb} {path}" for path in changed), as_json)
    if check and changed:
        raise SystemExit(1)
