"""`tensorlang bench`: an operator or a model next to everything installed that can do the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensorlang.shell import options
from tensorlang.shell.loading import check_options_of_operators, inputs_of, model_of, operator_of
from tensorlang.shell.options import ModelOptions
from tensorlang.shell.reporting import say

if TYPE_CHECKING:
    from tensorlang.runtime.protocol import Tools
    from tensorlang.shell.bench import Comparison
    from tensorlang.shell.peers import Peer


@click.command(short_help="Measure next to every installed peer.")
@click.argument("what", metavar="FILE|OPERATOR", help="a .tl file, a model, or the name of a library operator")
@options.arguments
@click.option("--peers", "against", default=None, help="names with commas between, or `none` (default: all installed)")
@options.of_models
@click.option("--seconds", type=click.FloatRange(min=0.01), default=3.0, help="how long to measure")
@click.option("--memory/--no-memory", default=True, help="peak memory of a model, each contender in its own process")
@options.threads
@options.as_json
@options.target
def bench(
    what: str,
    arguments: Sequence[str],
    against: str | None,
    model_options: ModelOptions,
    seconds: float,
    memory: bool,
    threads: int | None,
    as_json: bool,
    target: str,
) -> None:
    """Measure an operator or a model next to every installed peer, in turns. Inputs of a model that are not given are random."""
    from tensorlang.backends.registry import is_device
    from tensorlang.shell.bench import as_data, as_text
    from tensorlang.shell.peers import peers

    chosen = peers(None if against is None else [] if against == "none" else against.split(","))
    if is_device(target):
        found = _on_device(what, arguments, target, model_options, chosen, seconds)
    else:
        found = _on_host(what, arguments, target, model_options, chosen, seconds, threads, memory)
    say(as_data(found), as_text(found), as_json)


def _on_host(
    what: str,
    arguments: Sequence[str],
    target: str,
    model_options: ModelOptions,
    chosen: Sequence[Peer],
    seconds: float,
    threads: int | None,
    memory: bool,
) -> Comparison:
    """Return a model, an operator of a file or one of a library, on this processor, next to `chosen`."""
    from tensorlang.backends.registry import tools_for
    from tensorlang.shell.arguments import parsed
    from tensorlang.shell.bench import bench_model, bench_operator, with_memory
    from tensorlang.shell.peers import Task

    file = Path(what)
    if file.suffix == ".tl":
        operator, values = operator_of(file, arguments, threads, target, options=model_options)
        return bench_operator(operator, values, Task({}), operator.tools.threads, (), seconds)
    tools = tools_for(target, threads, **model_options.chosen())
    if not file.suffix and not file.exists():
        return _library(what, parsed(arguments), tools, model_options, chosen, seconds)
    model, values = model_of(file, arguments, threads, model_options, target)
    inputs = inputs_of(model, values)
    found = bench_model(model, Task(inputs, what), tools.threads, tools.precision.used, chosen, seconds)
    return with_memory(found, file, inputs, model_options.chosen()) if memory else found


def _on_device(
    what: str, arguments: Sequence[str], target: str, model_options: ModelOptions, chosen: Sequence[Peer], seconds: float
) -> Comparison:
    """Return a model, an operator of a file or one of a library, on a GPU, next to those of `chosen` that can do it there."""
    import numpy as np

    from tensorlang.backends.registry import tools_for
    from tensorlang.runtime.feeds import results_of
    from tensorlang.runtime.operator import Operator
    from tensorlang.shell.arguments import parsed
    from tensorlang.shell.bench import bench_on_device
    from tensorlang.shell.installed_operators import library_with
    from tensorlang.shell.peers import DeviceRun, Task

    file = Path(what)
    if file.suffix != ".tl" and (file.suffix or file.exists()):
        model, values = model_of(file, arguments, None, model_options, target)
        inputs = inputs_of(model, values)
        run = DeviceRun(model.timer(inputs), lambda: [np.asarray(r) for r in model.run(inputs).values()])
        return bench_on_device(run, Task(inputs, what), model.roofline(inputs), model_options.precision, chosen, seconds)
    if file.suffix == ".tl":
        operator, values = operator_of(file, arguments, None, target, options=model_options)
        task = Task({})
    else:
        check_options_of_operators(model_options, takes_schedules=False)
        library, values = library_with(what), parsed(arguments)
        operator = Operator(what, library.module(), tools_for(target))
        arrays = {n: np.asarray(v, order="C") for n, v in values.items() if isinstance(v, np.ndarray)}
        task = library.task(what, arrays, {n: v for n, v in values.items() if n not in arrays}, ())
    run = DeviceRun(operator.timer(**values), lambda: results_of(operator(**values)))
    return bench_on_device(run, task, operator.roofline(**values), "f32", chosen, seconds)


def _library(
    name: str, values: dict[str, Any], tools: Tools, model_options: ModelOptions, chosen: Sequence[Peer], seconds: float
) -> Comparison:
    """Return a library operator next to `chosen`; where its weights are part of a model, ours is compiled from that model too."""
    import numpy as np

    from tensorlang.api import compile as compile_model
    from tensorlang.runtime.feeds import results_of
    from tensorlang.runtime.operator import Operator
    from tensorlang.shell.bench import bench_model, bench_operator
    from tensorlang.shell.installed_operators import library_with

    library = library_with(name)
    operator = Operator(name, library.module(), tools)
    arrays = {n: np.asarray(v, order="C") for n, v in values.items() if isinstance(v, np.ndarray)}
    attributes = {n: v for n, v in values.items() if n not in arrays}
    task = library.task(name, arrays, attributes, tuple(results_of(operator(**values))))
    if not task.weights:
        check_options_of_operators(model_options, takes_schedules=False)
        return bench_operator(operator, values, task, tools.threads, chosen, seconds)
    model = compile_model(task.model, threads=tools.threads, **model_options.chosen())
    return bench_model(model, task, tools.threads, tools.precision.used, chosen, seconds)
