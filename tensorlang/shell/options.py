"""Arguments and options that several commands have, each with the words that help and the reference say of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from tensorlang.options import DEVICE_PRECISIONS
from tensorlang.targets import HOST

F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)


def file(help: str = "a .tl file, or a model that an installed importer reads", *, required: bool = True) -> Callable[[F], F]:
    """Return the argument for one file."""
    return click.argument("file", type=PATH, required=required, help=help)


def files(help: str) -> Callable[[F], F]:
    """Return the argument for one file or several."""
    return click.argument("files", type=PATH, nargs=-1, required=True, help=help)


arguments = click.argument("arguments", nargs=-1, help="[OPERATOR] name=value …; values are files, types like f32[4,5], numbers")
as_json = click.option("--json", "as_json", is_flag=True, help="write JSON on standard output")
target = click.option("--target", default=HOST, help="what to compile for: cpu, aarch64, wasm32, cuda, cuda:sm_90a, hip:gfx90a, …")
threads = click.option(
    "--threads", "-t", type=click.IntRange(min=1), default=None, help="threads to use (default: $TENSORLANG_THREADS, or all)"
)


externs = click.option("--extern", "externs", multiple=True, help="a kernel for an extern operator: NAME=LIBRARY:FUNCTION, or a .ll file")
operators = click.option("--operators", type=PATH, default=None, help="a .tl file with operators for a model's nodes of other domains")


def output(help: str) -> Callable[[F], F]:
    """Return the option for the file that a command writes."""
    return click.option("--output", "-o", type=PATH, default=None, help=help)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How contractions, convolutions and attention of models are computed."""

    precision: str = "f32"
    winograd: bool = True
    online: bool = True
    force_precision: bool = False
    schedules: Path | None = None

    def chosen(self) -> dict[str, Any]:
        """Return them as `tensorlang.compile` takes them."""
        found = {"precision": self.precision, "winograd": self.winograd, "online": self.online, "force_precision": self.force_precision}
        return found if self.schedules is None else {**found, "schedules": self.schedules}


_OF_MODELS = (
    click.option("--precision", default="f32", help=f"what contractions of models multiply in: {', '.join(DEVICE_PRECISIONS)}"),
    click.option("--winograd/--no-winograd", default=True, help="let convolutions of models be computed by minimal filtering"),
    click.option("--online/--no-online", default=True, help="let attention of models go through the keys once, on a GPU"),
    click.option("--force-precision", is_flag=True, help="take the precision that is asked for also where f32 is as fast"),
    click.option(
        "--schedules", type=PATH, default=None, help="a file with schedules for a model's kernels, or for operators, as `tune` writes it"
    ),
)


def of_models(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of models, as one argument `model_options`."""

    @wraps(command)
    def collected(
        *args: Any, precision: str, winograd: bool, online: bool, force_precision: bool, schedules: Path | None, **named: Any
    ) -> None:
        command(*args, model_options=ModelOptions(precision, winograd, online, force_precision, schedules), **named)

    for option in reversed(_OF_MODELS):
        collected = option(collected)
    return collected
