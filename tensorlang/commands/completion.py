"""`tensorlang --install-completion` and `--show-completion`: commands, options and files completed by the shell.

    bash, zsh   the script lies in the user's data directory, and the shell's own file of settings reads it
    fish        the script lies where fish looks for completions

A shell asks the program itself what may follow, so completions are those of the version that is installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tensorlang.diagnostics import error
from tensorlang.shell.files import write_error

F = TypeVar("F", bound=Callable[..., Any])

_PROGRAM = "tensorlang"
_VARIABLE = "_TENSORLANG_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
_THIS = "this"
"""The value of an option without a shell's name."""


def _show(context: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell is not None and not context.resilient_parsing:
        click.echo(script(context.command, _named(shell)), nl=False)
        context.exit()


def _install(context: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell is not None and not context.resilient_parsing:
        name = _named(shell)
        where = installed(script(context.command, name), name)
        click.echo(f"completions for {name} are in {where}; they work in shells that start from now on")
        context.exit()


def _option(name: str, callback: Callable[..., None], help: str) -> Callable[[F], F]:
    """Return an option that does something and ends the program; it may be given a shell."""
    return click.option(
        name,
        metavar="[SHELL]",
        is_flag=False,
        flag_value=_THIS,
        expose_value=False,
        is_eager=True,
        callback=callback,
        help=help,
    )


install_completion = _option(
    "--install-completion", _install, f"let a shell complete commands: {', '.join(SHELLS)} (default: the one of $SHELL)"
)
show_completion = _option("--show-completion", _show, "print what --install-completion installs")


def _named(shell: str) -> str:
    """Return which shell is meant. Raises CompileError C0211 for one that has no completions here."""
    name = Path(os.environ.get("SHELL", "")).name if shell == _THIS else shell
    if name not in SHELLS:
        said = f"`{name}`" if name else "unknown: $SHELL is not set"
        raise error("C0211", f"the shell is {said}", help=f"there are completions for {', '.join(f'`{s}`' for s in SHELLS)}; name one")
    return name


def script(command: click.Command, shell: str) -> str:
    """Return what a shell has to read to complete commands."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None, shell
    return f"{made(command, {}, _PROGRAM, _VARIABLE).source().strip()}\n"


def installed(text: str, shell: str) -> Path:
    """Write a script to where `shell` reads it, and return that place. Raises CompileError C0203 where nothing can be written."""
    from tensorlang.shell.files import write_text

    home = Path.home()
    if shell == "fish":
        place = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "fish" / "completions" / f"{_PROGRAM}.fish"
    else:
        place = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / _PROGRAM / f"completion.{shell}"
    _make(place.parent)
    write_text(place, text)
    if shell != "fish":
        _read_by(home / f".{shell}rc", f'source "{place}"')
    return place


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise write_error(folder, problem) from None


def _read_by(settings: Path, line: str) -> None:
    """Append a line to a shell's settings that does not stand there yet."""
    try:
        before = settings.read_bytes() if settings.exists() else b""
        if line.encode() not in before.splitlines():
            with settings.open("ab") as file:
                file.write((b"" if not before or before.endswith(b"\n") else b"\n") + f"{line}\n".encode())
    except OSError as problem:
        raise write_error(settings, problem) from None
