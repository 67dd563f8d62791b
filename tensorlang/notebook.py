"""Operators in a cell of a notebook: `%load_ext tensorlang`, then `%%tensorlang` above a program in the language.

    %%tensorlang --threads 2
    op double(x: f32[N]) -> (y: f32[N]) { y[i] = 2 * x[i] }

The operators of the cell become functions by their names: `double(x)`. IPython is not imported: it hands itself over.
"""

from __future__ import annotations

import os
import shlex
from typing import Any

from tensorlang.check.definition import check_module
from tensorlang.diagnostics import CompileError, Source, error
from tensorlang.operators import checked_mode, operators_of
from tensorlang.runtime.specialization import checked_sizes
from tensorlang.targets import HOST

MAGIC = "tensorlang"
_OPTIONS = {"--target": "target", "--threads": "threads", "-t": "threads", "--mode": "mode", "--sizes": "sizes"}


def load(shell: Any) -> None:
    """Give an `InteractiveShell` of IPython the cell magic."""

    def tensorlang(line: str, cell: str) -> None:
        """Compile the operators of this cell: %%tensorlang [--target T] [--threads N] [--mode M] [--sizes S]"""
        try:
            shell.push(operators_in(line, cell))
        except CompileError as refused:
            lines = str(refused).split("\n")
            refused._render_traceback_ = lambda: lines  # type: ignore[attr-defined]  # what IPython shows in place of a traceback
            raise refused.with_traceback(None) from None

    shell.register_magic_function(tensorlang, magic_kind="cell", magic_name=MAGIC)


def unload(shell: Any) -> None:
    """Take the cell magic away again."""
    shell.magics_manager.magics["cell"].pop(MAGIC, None)


def operators_in(line: str, cell: str) -> dict[str, Any]:
    """Return the operators of a cell by name. `line` has options; lines of the cell are counted from the one of the magic.

    Files that the cell uses lie in the working folder. Raises CompileError as `tensorlang.parse` does, C0211 for an option that is none."""
    options = _options(line)
    threads = _count(options["threads"]) if "threads" in options else None
    source = Source("<cell>", f"\n{cell}", os.getcwd())
    mode, sizes = checked_mode(options.get("mode", "reduce")), checked_sizes(options.get("sizes", "auto"))
    found = operators_of(source, options.get("target", HOST), threads, mode, sizes)
    operators = {name: found[name] for name in found}
    mistakes = check_module(next(iter(operators.values())).module) if operators else ()
    if mistakes:
        raise CompileError(*mistakes)
    return operators


def _options(line: str) -> dict[str, str]:
    try:
        words = [part for word in shlex.split(line) for part in (word.split("=", 1) if word.startswith("--") else [word])]
    except ValueError as problem:
        raise error("C0211", f"the line of the magic cannot be read: {problem}") from None
    found: dict[str, str] = {}
    for name, value in zip(words[::2], [*words[1::2], None], strict=False):
        if name not in _OPTIONS or value is None:
            what = f"`{name}` is no option of `%%tensorlang`" if name not in _OPTIONS else f"`{name}` is given no value"
            raise error("C0211", what, help="write `%%tensorlang --target cpu --threads 2 --mode strict --sizes static`")
        found[_OPTIONS[name]] = value
    return found


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise error("C0107", f"`threads` is `{text}`", help="give a whole number from 1")
    return int(text)
