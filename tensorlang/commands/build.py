"""`tensorlang build`: a model or an operator as a library, for Python without the compiler and for C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tensorlang.diagnostics import error
from tensorlang.shell import options
from tensorlang.shell.options import ModelOptions
from tensorlang.shell.reporting import say


@click.command(short_help="Compile ahead of time, into a folder.")
@options.file()
@options.arguments
@click.option("--output", "-o", type=options.PATH, required=True, help="the folder to make, or to replace")
@click.option("--target", "targets", multiple=True, help="x86-64-v3, aarch64, wasm32, host (default), …; several levels make one library")
@click.option("--symbolic", is_flag=True, help="an operator for arguments of any sizes")
@click.option("--max", "limits", multiple=True, help="the limit of a size that stays open: seq=512")
@click.option("--name", "library", default=None, help="what names in C begin with (default: the file's or the operator's)")
@click.option("--inside", is_flag=True, help="put the weights into the code")
@options.operators
@options.of_models
@options.threads
@options.as_json
def build(
    file: Path,
    arguments: Sequence[str],
    output: Path,
    targets: Sequence[str],
    symbolic: bool,
    limits: Sequence[str],
    library: str | None,
    inside: bool,
    operators: Path | None,
    model_options: ModelOptions,
    threads: int | None,
    as_json: bool,
) -> None:
    """Compile a model or an operator into a folder: code and weights, a header for C, files for linkers and CMake, and for
    `tensorlang.load_model`. Values of arguments are types (`x=f32[1,3,224,224]`) or arrays; sizes of a model that no argument tells stay
    open, up to a limit."""
    wanted = {"targets": tuple(targets) or ("host",), "max": _limits(limits), "library": library, "threads": threads}
    if file.suffix == ".tl":
        if inside:
            raise error("C0133", "`--inside` is about the weights of a model, and an operator has none", help="leave it out")
        folder = _operator(file, arguments, output, operators, model_options, symbolic, wanted)
    else:
        if symbolic:
            raise error("C0133", "`--symbolic` is for operators", help="sizes of a model stay open by themselves: limit them with `--max`")
        wanted["weights"] = "inside" if inside else "beside"
        folder = _model(file, arguments, output, operators, model_options, wanted)
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    text = "\n".join(f"{size:>12,}  {folder / name}" for name, size in files.items())
    say({"folder": str(folder), "files": files}, text, as_json)


def _operator(
    file: Path,
    arguments: Sequence[str],
    output: Path,
    operators: Path | None,
    model_options: ModelOptions,
    symbolic: bool,
    wanted: Mapping[str, Any],
) -> Path:
    """Build an operator; `wanted` is what `Operator.save` is told besides."""
    from tensorlang.shell.loading import operator_of

    operator, values = operator_of(file, arguments, wanted["threads"], options=model_options, operators=operators)
    return operator.save(output, values, symbolic=symbolic, **wanted)


def _model(
    file: Path, arguments: Sequence[str], output: Path, operators: Path | None, model_options: ModelOptions, wanted: Mapping[str, Any]
) -> Path:
    """Build a model; `wanted` is what `tensorlang.build` is told besides."""
    import numpy as np

    from tensorlang.api import build as build_model
    from tensorlang.shell.arguments import parsed
    from tensorlang.shell.loading import custom_operators
    from tensorlang.shell.progress import Bar
    from tensorlang.targets import HOST

    shapes = {name: value.shape for name, value in parsed(arguments).items() if isinstance(value, np.ndarray)}
    chosen = {name: value for name, value in model_options.chosen().items() if name != "online"}
    with Bar() as bar:
        return build_model(
            str(file),
            output,
            shapes=shapes or None,
            progress=bar,
            operators=custom_operators(operators, (), HOST),
            **wanted,
            **chosen,
        )


def _limits(given: Sequence[str]) -> dict[str, int]:
    """Return limits by the names of sizes. Raises CompileError C0211 for what is none."""
    found: dict[str, int] = {}
    for text in given:
        name, equals, value = text.rpartition("=")
        if not equals or not name or not (value.isascii() and value.isdigit()):
            raise error("C0211", f"`{text}` limits no size", help="write `--max seq=512`")
        found[name] = int(value)
    return found
