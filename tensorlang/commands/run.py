"""`tensorlang run`: an operator or a model, on arrays from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tensorlang.shell import options
from tensorlang.shell.loading import custom_operators, model_of, operator_of
from tensorlang.shell.options import ModelOptions
from tensorlang.shell.reporting import say


@click.command()
@options.file()
@options.arguments
@options.output("an .npy or .npz file for the results")
@options.threads
@options.of_models
@options.as_json
@options.target
@options.externs
@options.operators
def run(
    file: Path,
    arguments: Sequence[str],
    output: Path | None,
    threads: int | None,
    model_options: ModelOptions,
    as_json: bool,
    target: str,
    externs: Sequence[str],
    operators: Path | None,
) -> None:
    """Run an operator or a model on arrays from files."""
    import numpy as np

    from tensorlang.shell.files import write_arrays

    if file.suffix == ".tl":
        operator, values = operator_of(file, arguments, threads, target, externs=externs, options=model_options, operators=operators)
        found = operator(**values)
        names = [p.name for p in operator.declaration.results]
        flat = found if isinstance(found, tuple) else (found,)
        results = dict(zip(names if len(names) == len(flat) else [f"result{k}" for k in range(len(flat))], flat, strict=True))
    else:
        model, values = model_of(file, arguments, threads, model_options, target, custom_operators(operators, externs, target))
        results = model.run(values)
    if output is not None:
        write_arrays(output, results)
    shapes = {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in results.items()}
    text = "\n".join(
        f"{name}: {a.dtype}{list(a.shape)}" + ("" if output else f"\n{np.array2string(a, threshold=64)}") for name, a in results.items()
    )
    say({"results": shapes, "output": str(output) if output else None}, text, as_json)
