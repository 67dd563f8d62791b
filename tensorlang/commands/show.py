"""`tensorlang show`: one form of an operator or a model on the way from text to machine code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from tensorlang.absent import no_stage
from tensorlang.diagnostics import error
from tensorlang.shell import options
from tensorlang.shell.loading import operator_of
from tensorlang.shell.options import ModelOptions
from tensorlang.shell.reporting import say

STAGES = (
    *("syntax", "extern", "tensor", "scop", "schedule", "loops", "llvm", "asm"),
    *("cuda", "hip", "source", "sass", "launches", "graph", "passes"),
)
"""What can be shown of something."""


@click.command()
@options.file("a .tl file, or a model that an installed importer reads; `passes` needs none", required=False)
@options.arguments
@click.option("--stage", "-s", type=click.Choice(STAGES), default=None, help="which form (default: syntax of a file, graph of a model)")
@options.threads
@options.of_models
@options.target
@options.as_json
@options.externs
def show(
    file: Path | None,
    arguments: Sequence[str],
    stage: str | None,
    threads: int | None,
    model_options: ModelOptions,
    target: str,
    as_json: bool,
    externs: Sequence[str],
) -> None:
    """Show a form on the way from text to machine code.

    An operator that is given no arrays is shown for sizes that stay symbols.

    `--stage passes` shows the passes over the graphs of models in order: of a model, which of them change it and how many kernels are
    there before and after, and without one what each does."""
    if file is None:
        named, text = stage, _passes(stage, target)
    elif file.suffix == ".tl":
        named, text = stage or "syntax", _form_of_operator(file, arguments, stage or "syntax", threads, target, externs, model_options)
    else:
        named, text = _form_of_model(file, arguments, stage, target, threads, model_options.chosen())
    data = {"file": None if file is None else str(file), "stage": named, "target": target, "text": text}
    say(data, text.rstrip(), as_json)


def _form_of_operator(
    file: Path, arguments: Sequence[str], stage: str, threads: int | None, target: str, externs: Sequence[str], options: ModelOptions
) -> str:
    """Return a form of an operator. Raises CompileError C0212 for one that its target has not."""
    from tensorlang.syntax import nodes as sx
    from tensorlang.syntax import parse as syntax
    from tensorlang.syntax.printer import show as show_syntax

    if stage == "syntax" and not arguments and options == ModelOptions():
        return show_syntax(syntax.parse(syntax.load(file)))
    operator, values = operator_of(file, arguments, threads, target, externs=externs, options=options)
    if stage == "syntax":
        from tensorlang.runtime.arguments import no_argument

        params = [p.name for p in operator.declaration.params]
        for strange in (name for name in values if name not in params):
            raise no_argument(operator.declaration, strange, params)
        module, name = operator.module, operator.name
        scheduled = [s for s in module.schedules[: module.declared_schedules] if s.operator == name and s.role is None]
        return show_syntax(sx.File((operator.declaration, *scheduled)))
    if stage == "extern":
        return operator.c_header
    is_symbolic = not any(p.name in values for p in operator.declaration.params if p.kind == "tensor")
    if stage == "tensor":
        from tensorlang.tensor.printer import show as show_program

        return show_program(operator.symbolic_program(values) if is_symbolic else operator.program(**values))
    texts: dict[str, str] = {}
    if is_symbolic:
        operator.symbolic_stages(values, texts.__setitem__, (stage,))
    else:
        operator.stages(dump=texts.__setitem__, requested=(stage,), **values)
    if stage not in texts:
        raise no_stage(stage, "an operator", ["syntax", "extern", "tensor", *texts])
    return texts[stage]


def _form_of_model(
    file: Path, arguments: Sequence[str], stage: str | None, target: str, threads: int | None, chosen: Mapping[str, Any]
) -> tuple[str, str]:
    """Return a model's graph, the passes over that, or what its target makes of it: launches, the text of kernels, machine code; with the
    stage's name. Arrays and types among the arguments tell the shapes that the model leaves open."""
    from tensorlang.api import compile as compile_model
    from tensorlang.api import importer_of
    from tensorlang.backends.registry import tools_for
    from tensorlang.graph.pass_listing import traced
    from tensorlang.graph.pass_manager import steps
    from tensorlang.graph.printer import show as show_graph
    from tensorlang.runtime.jobs import optimised
    from tensorlang.shell.arguments import parsed
    from tensorlang.shell.loading import shapes_of, with_fed
    from tensorlang.shell.progress import Bar

    tools, values = tools_for(target, threads, **chosen), parsed(arguments)
    shapes = shapes_of(values)
    load = partial(importer_of(str(file)).load, str(file), shapes)
    name = stage or (*tools.model_stages, "graph")[0]
    match name:
        case "graph":
            return name, show_graph(optimised(with_fed(file, values, load), tools))
        case "passes":
            return name, traced(steps(with_fed(file, values, load), tools.passes, tools.graph_options()))
        case _ if name in tools.model_stages:
            with Bar() as bar:
                made = partial(compile_model, str(file), target, threads=threads, shapes=shapes, progress=bar, **chosen)
                return name, with_fed(file, values, made).text(name)
        case _:
            raise no_stage(name, "a model", ["graph", "passes", *tools.model_stages])


def _passes(stage: str | None, target: str) -> str:
    """Return the passes over graphs for a target, with what they do."""
    from tensorlang.backends.registry import tools_for
    from tensorlang.graph.pass_listing import listed

    if stage != "passes":
        raise error("C0211", "there is no file to show", help="name a `.tl` file or a model; `--stage passes` alone needs none")
    return listed(tools_for(target).passes)
