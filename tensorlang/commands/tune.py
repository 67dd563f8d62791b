"""`tensorlang tune`: schedules that are faster than an operator's own, found by trying."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tensorlang.diagnostics import error
from tensorlang.shell import options
from tensorlang.shell.loading import operator_of
from tensorlang.shell.reporting import say
from tensorlang.targets import HOST


@click.command(short_help="Look for a faster schedule.")
@options.file("a .tl file")
@options.arguments
@click.option("--seconds", type=click.FloatRange(min=0.1), default=60.0, help="how long to look; an interrupt ends it early")
@click.option("--seed", type=int, default=0, help="what is tried first")
@options.output("a file for the schedule that was found")
@options.threads
@options.as_json
def tune(file: Path, arguments: Sequence[str], seconds: float, seed: int, output: Path | None, threads: int | None, as_json: bool) -> None:
    """Try schedules of an operator for some time: each is proven, its results are compared with those of the operator's own schedule, and
    it is measured beside that in a process of its own. What became of each is kept beside the cache, so that the next search goes on."""
    from tensorlang.shell.progress import Bar
    from tensorlang.shell.tuning import tune as tuned
    from tensorlang.shell.tuning import tuned_text

    if file.suffix != ".tl":
        raise error("C0103", "not supported yet: tuning a model", help="tune the operators of a `.tl` file")
    operator, values = operator_of(file, arguments, threads, HOST)
    with Bar() as bar:
        found = tuned(operator, seconds=seconds, seed=seed, progress=bar, **values)
    if output is not None:
        output.write_text(f"{found.text}\n", "utf-8")
    about = {"operator": operator.name, "ratio": found.ratio, "schedule": found.schedule, "outcomes": dict(found.outcomes)}
    say({**about, "known": found.known, "interrupted": found.interrupted}, tuned_text(found), as_json)
