"""`tensorlang tune`: schedules that are faster than those of an operator, or of a model's kernels, found by trying."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tensorlang.shell import options
from tensorlang.shell.loading import model_of, operator_of
from tensorlang.shell.options import ModelOptions
from tensorlang.shell.reporting import say
from tensorlang.targets import HOST


@click.command(short_help="Look for a faster schedule.")
@options.file()
@options.arguments
@click.option("--seconds", type=click.FloatRange(min=0.1), default=60.0, help="how long to look; an interrupt ends it early")
@click.option("--seed", type=int, default=0, help="what is tried first")
@click.option("--cluster", default=None, help="the address of a Ray cluster on whose machines to try: auto, host:6379")
@options.output("a file for what was found: a schedule, or for a model those of its kernels")
@options.threads
@options.of_models
@options.as_json
def tune(
    file: Path,
    arguments: Sequence[str],
    seconds: float,
    seed: int,
    cluster: str | None,
    output: Path | None,
    threads: int | None,
    model_options: ModelOptions,
    as_json: bool,
) -> None:
    """Try schedules for some time: each is proven, its results are compared with those of the own schedule, and it is measured beside that
    in a process of its own. What became of each is kept beside the cache, so that the next search goes on."""
    from tensorlang.shell.files import check_can_write, write_text
    from tensorlang.shell.progress import Bar
    from tensorlang.tuning.tune import Tuned, TunedModel, tuned_text
    from tensorlang.tuning.tune import tune as tuned

    if output is not None:
        check_can_write(output)
    found: Tuned | TunedModel
    if file.suffix == ".tl":
        operator, values = operator_of(file, arguments, threads, HOST, options=model_options)
        with Bar() as bar:
            found = tuned(operator, seconds=seconds, seed=seed, progress=bar, cluster=cluster, **values)
    else:
        model, feeds = model_of(file, arguments, threads, model_options, HOST, None)
        with Bar() as bar:
            found = tuned(model, feeds, seconds=seconds, seed=seed, progress=bar, cluster=cluster)
    if output is not None and isinstance(found, Tuned):
        write_text(output, f"{found.text}\n")
    elif output is not None and isinstance(found, TunedModel):
        found.save(output)
    about = {"machine": found.machine, "ratio": found.ratio, "outcomes": dict(found.outcomes), "known": found.known}
    if isinstance(found, Tuned):
        about |= {"operator": operator.name, "schedule": found.schedule}
    else:
        about |= {"kernels": [{"kernel": k.kernel, "ratio": k.ratio, "schedule": k.schedule} for k in found.kernels]}
    say({**about, "interrupted": found.interrupted, "output": str(output) if output else None}, tuned_text(found), as_json)
