"""`tensorlang build`: a model or an operator as a library, for Python without the compiler and for C."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
    most, wanted = _limits(limits), tuple(targets) or ("host",)
    if file.suffix == ".tl":
        folder = _operator(file, arguments, output, wanted, symbolic, most, library, threads, inside)
    else:
        folder = _model(file, arguments, output, wanted, symbolic, most, library, threads, inside, operators, model_options)
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    text = "\n".join(f"{size:>12,}  {folder / name}" for name, size in files.items())
    say({"folder": str(folder), "files": files}, text, as_json)


def _operator(
    file: Path,
    arguments: Sequence[str],
    output: Path,
    targets: Sequence[str],
    symbolic: bool,
    most: dict[str, int],
    library: str | None,
    threads: int | None,
    inside: bool,
) -> Path:
    from tensorlang.shell.loading import operator_of

    if inside:
        raise error("C0133", "`--inside` is about the weights of a model, and an operator has none", help="leave it out")
    operator, values = operator_of(file, arguments, threads)
    return operator.save(output, values, targets=targets, symbolic=symbolic, max=most, library=library, threads=threads)


def _model(
    file: Path,
    arguments: Sequence[str],
    output: Path,
    targets: Sequence[str],
    symbolic: bool,
    most: dict[str, int],
    library: str | None,
    threads: int | None,
    inside: bool,
    operators: Path | None,
    model_options: ModelOptions,
) -> Path:
    import numpy as np

    from tensorlang.api import build as build_model
    from tensorlang.shell.arguments import parsed
    from tensorlang.shell.loading import custom_operators
    from tensorlang.shell.progress import Bar
    from tensorlang.targets import HOST

    if symbolic:
        raise error("C0133", "`--symbolic` is for operators", help="sizes of a model stay open by themselves: limit them with `--max`")
    shapes = {name: value.shape for name, value in parsed(arguments).items() if isinstance(value, np.ndarray)}
    chosen = {name: value for name, value in model_options.chosen().items() if name != "online"}
    with Bar() as bar:
        return build_model(
            str(file),
            output,
            targets=targets,
            threads=threads,
            shapes=shapes or None,
            max=most,
            library=library,
            weights="inside" if inside else "beside",
            progress=bar,
            operators=custom_operators(operators, (), HOST),
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
