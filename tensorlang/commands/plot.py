"""`tensorlang plot`: a picture of the iterations of an operator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tensorlang.diagnostics import error
from tensorlang.shell import options
from tensorlang.shell.loading import operator_of
from tensorlang.shell.reporting import say
from tensorlang.targets import HOST, TARGETS, serves


@click.command(short_help="Draw the iterations of an operator.")
@options.file("a .tl file")
@click.argument("arguments", nargs=-1, help="[OPERATOR] size=number attribute=number …; sizes that are not given are 8")
@options.output("an .svg file (default: standard output)")
@click.option("--tensor", default=None, help="whose instances to draw (default: a recurrence, else the first result)")
@click.option("--axes", default=None, help="rows and columns, with a comma between (default: the first two)")
@click.option("--plain", is_flag=True, help="without the schedule: loops as the operator is written")
@click.option("--target", default=HOST, type=click.Choice([*TARGETS]), help="whose schedule of the file")
@options.as_json
def plot(
    file: Path,
    arguments: Sequence[str],
    output: Path | None,
    tensor: str | None,
    axes: str | None,
    plain: bool,
    target: str,
    as_json: bool,
) -> None:
    """Draw the iterations of an operator under the schedule of the file: points, tiles, dependences, order, threads, lanes."""
    from tensorlang.picture.plot import plotted

    operator, values = operator_of(file, arguments, None)
    own = operator.module.schedules[: operator.module.declared_schedules]
    written = next((s for s in own if s.role is None and s.operator == operator.name and serves(s.target, target)), None)
    wrong = next((n for n, v in values.items() if not isinstance(v, int) or v < 0), None)
    if wrong is not None:
        raise error("C0211", f"`{wrong}` is no size", help="give whole numbers: `N=16`")
    picture = plotted(operator.module, operator.name, None if plain else written, tensor, axes.split(",") if axes else (), values, "")
    if output is not None:
        picture.save(output)
    data = {"operator": operator.name, "output": None if output is None else str(output)}
    say(data | ({"svg": picture.svg} if output is None else {}), "" if output is not None else picture.svg.rstrip("\n"), as_json)
