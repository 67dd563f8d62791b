"""Operators of files and texts in the language, called with arrays.

ops = tl.load("my_ops.tl")          ops.linear(x, w, b)
ops = tl.parse("op relu(...) …")
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from tensorlang.check.modes import MODES, Mode
from tensorlang.diagnostics import Source, error
from tensorlang.runtime.operator import Operators
from tensorlang.runtime.toolchain import toolchain
from tensorlang.syntax import parse as syntax


def load(
    path: str | os.PathLike[str], *, threads: int | None = None, mode: Mode = "reduce", sizes: Literal["static", "symbolic"] = "static"
) -> Operators:
    """Return the operators of a `.tl` file; those that state no mode are compiled in `mode`: `strict`, `reduce` or `fast`. With `static`
    sizes each combination of shapes is compiled on its own; with `symbolic` ones a kernel serves all shapes.

    Raises CompileError for a file that cannot be read or has mistakes, C0104 for a mode that is none, C0105 for other `sizes`."""
    if not isinstance(path, (str, os.PathLike)):
        raise error("P020", f"a path is expected, not {type(path).__name__}", help="the text of a program is read by `tensorlang.parse`")
    return Operators(syntax.load(Path(path)), toolchain(threads=threads), known(mode), symbolic=_are_symbolic(sizes))


def parse(text: str, *, threads: int | None = None, mode: Mode = "reduce", sizes: Literal["static", "symbolic"] = "static") -> Operators:
    """Return the operators of a text, as `load` does. Raises CompileError for mistakes."""
    if not isinstance(text, str):
        raise error("P024", f"the text of a program is expected, not {type(text).__name__}", help="a file is read by `tensorlang.load`")
    return Operators(Source("<text>", text), toolchain(threads=threads), known(mode), symbolic=_are_symbolic(sizes))


def _are_symbolic(sizes: str) -> bool:
    if sizes not in ("static", "symbolic"):
        raise error("C0105", f"sizes cannot be `{sizes}`", help="they are `static` or `symbolic`")
    return sizes == "symbolic"


def known(mode: str) -> Mode:
    """Return `mode` if it is one. Raises CompileError C0104."""
    found = next((m for m in MODES if m == mode), None)
    if found is None:
        raise error("C0104", f"there is no mode `{mode}`", help="the modes are `strict`, `reduce` and `fast`")
    return found
