"""The command line: `tensorlang check | fmt | list | show | explain | certify | run | diff | build | bench | tune | cache | doctor | lsp |
plot | explore`.

Exit codes: 0 all is well, 1 diagnostics (on standard error, or as JSON on standard output with --json), 2 wrong usage, 130 interrupted.
What goes wrong inside the compiler is one line and a report in a file, never a traceback.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from tensorlang import __version__
from tensorlang.commands.bench import bench
from tensorlang.commands.build import build
from tensorlang.commands.cache import cache
from tensorlang.commands.certify import certify
from tensorlang.commands.check import check
from tensorlang.commands.completion import install_completion, show_completion
from tensorlang.commands.diff import diff
from tensorlang.commands.doctor import doctor
from tensorlang.commands.explain import explain
from tensorlang.commands.explore import explore
from tensorlang.commands.fmt import fmt
from tensorlang.commands.listing import list_operators
from tensorlang.commands.lsp import lsp
from tensorlang.commands.plot import plot
from tensorlang.commands.run import run
from tensorlang.commands.show import show
from tensorlang.commands.tune import tune
from tensorlang.diagnostics import CompileError, CompileWarning, Diagnostic
from tensorlang.frames import contiguous_frames
from tensorlang.shell.interrupted import interrupted
from tensorlang.shell.reporting import internal, quiet_pipes, report_diagnostics

PROGRAM = "tensorlang"

_ELSEWHERE = {
    "help": "it is an option, `tensorlang --help`, also of each command",
    "version": "it is an option, `tensorlang --version`",
    "completion": "it is an option, `tensorlang --install-completion`",
    **dict.fromkeys(("test", "lint", "validate", "verify"), "`tensorlang check` looks for mistakes"),
    **dict.fromkeys(("format",), "it is called `fmt`"),
    "compile": "files are compiled when they run, `tensorlang run`; `tensorlang build` makes libraries",
    **dict.fromkeys(("compare", "bisect"), "`tensorlang diff MODEL --bisect` compares a model with a peer"),
    **dict.fromkeys(("profile", "time", "benchmark"), "`tensorlang bench` measures, `tensorlang explain MODEL --measure` by kernels"),
    **dict.fromkeys(("info", "env"), "`tensorlang doctor` tells of this machine"),
    **dict.fromkeys(("ls", "ops"), "it is called `list`"),
}
"""What other programs call commands → what to write."""


class _Program(click.Group):
    """Commands in the order in which they are needed, ended by an interrupt, and in silence by a reader that has gone."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as unknown:
            if args[0] in _ELSEWHERE:
                raise click.UsageError(f"No such command {args[0]!r}: {_ELSEWHERE[args[0]]}", ctx) from unknown
            if args[0].endswith((".tl", ".onnx")):
                command = "check" if args[0].endswith(".tl") else "run"
                told = f"{args[0]!r} is a file, and a command comes first: `{PROGRAM} {command} {args[0]}`"
                raise click.UsageError(told, ctx) from unknown
            raise

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with quiet_pipes():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(interrupted()) from None


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s", help="print the version and exit")
@click.option("--color", "colour", default="auto", help="colours of messages: auto, always, never; anywhere on the line")
@install_completion
@show_completion
def command_line(colour: str) -> None:
    """A tensor compiler."""


app = command_line


for _command in (check, fmt, list_operators, run, diff, build, bench, tune, show, explain, plot, explore, certify, cache, doctor, lsp):
    app.add_command(_command)


def main() -> None:
    """Run the command line and exit."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
    sys.exit(_guarded(sys.argv[1:]))


def _takes_arguments(ctx: click.Context | None) -> bool:
    """Tell whether a command takes arrays and numbers by name."""
    return ctx is not None and any(p.name == "arguments" for p in ctx.command.params)


@contiguous_frames
def _guarded(argv: Sequence[str]) -> int:
    """Return the exit code of a command line, having reported whatever went wrong."""
    from tensorlang.shell.colour import colour_chosen

    as_json = "--json" in argv
    warnings.simplefilter("ignore", CompileWarning)  # `check` shows them
    try:
        argv = colour_chosen(argv)
        with quiet_pipes():
            code = app(list(argv), prog_name=PROGRAM, standalone_mode=False)
        return int(code or 0)
    except click.ClickException as misused:
        if isinstance(misused, click.NoSuchOption) and not misused.possibilities and _takes_arguments(misused.ctx):
            name = misused.option_name.lstrip("-")
            told = f"{misused.message}. What an operator or a model is given has no dashes: `{name}=f32[4,5]`, `{name}=data.npy`"
            misused = click.UsageError(told, misused.ctx)
        misused.show()
        return misused.exit_code
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except CompileError as problem:
        report_diagnostics([_on_the_command_line(d) for d in problem.diagnostics], as_json)
        return 1
    except (KeyboardInterrupt, click.Abort):
        return interrupted()
    except MemoryError as problem:
        detail = (str(problem),) if str(problem) else ()
        report_diagnostics([Diagnostic("C0204", "there is not enough memory", notes=detail, help="use smaller arrays")], as_json)
        return 1
    except Exception as problem:
        report_diagnostics([internal(problem)], as_json)
        return 1


def _on_the_command_line(problem: Diagnostic) -> Diagnostic:
    """Return a diagnostic of a call as one of a command, whose arguments are written in another way."""
    missing = re.fullmatch(r"`\w+` is not given (.*)", problem.title)
    if problem.code != "R0313" or missing is None:
        return problem
    names = re.findall(r"`(\w+)`", missing[1])
    declared = [label.span.source.text[label.span.start : label.span.end] for label in problem.labels]
    are_sizes = all(text.startswith("size ") for text in declared)
    values = " ".join(f"{name}=8" for name in names) if are_sizes else " ".join(map("{}={}".format, names, map(_random, declared)))
    kinds = "sizes are numbers" if are_sizes else "a type for random numbers, or a file: `x=image.npy`"
    return replace(problem, help=f"write `{values}`: {kinds}")


def _random(declared: str) -> str:
    """Return how random numbers are asked for where a parameter is declared so, `x: f32[M, 3]`: four along each size, as `f32[4,3]`."""
    found = re.search(r": (\w+)(?:\[(.*?)\])?", declared, re.DOTALL)
    dtype, dims = (found[1], found[2]) if found is not None else ("", "N")
    lengths = [
        dim if dim.isdecimal() else "4" if re.fullmatch(r"\w+(\.\.)?", dim) else "8" for dim in re.split(r"\s*,\s*", dims or "") if dim
    ]
    return f"{dtype if re.fullmatch('[a-z]+[0-9]*', dtype) else 'f32'}[{','.join(lengths)}]"
