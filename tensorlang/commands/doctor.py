"""`tensorlang doctor`: a check-up of the installation and the machine."""

from __future__ import annotations

from dataclasses import asdict

import click

from tensorlang.shell import options
from tensorlang.shell.reporting import say


@click.command()
@options.as_json
def doctor(as_json: bool) -> None:
    """Check this installation and this machine."""
    from tensorlang.shell.doctor import findings

    found = []
    for finding in findings():
        found.append(finding)
        if not as_json:
            click.echo(f"{'ok ' if finding.fine else 'BAD'}  {finding.what:14} {finding.found}")
    say({"findings": [asdict(f) for f in found]}, "", as_json)
    if not all(f.fine for f in found):
        raise SystemExit(1)
