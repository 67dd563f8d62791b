"""Operators of files and texts in the language, called with arrays.

ops = tl.load("my_ops.tl")          ops.linear(x, w, b)
ops = tl.parse("op relu(...) …")
"""

from __future__ import annotations

import os
from pathlib import Path

from tensorlang.backends.registry import tools_for
from tensorlang.check.modes import MODES, Mode
from tensorlang.diagnostics import Source, error, trimmed
from tensorlang.externs import Externs
from tensorlang.runtime.operator import Operators
from tensorlang.runtime.specialization import Sizes, checked_sizes
from tensorlang.syntax import parse as syntax
from tensorlang.targets import HOST


@trimmed
def load(
    path: str | os.PathLike[str],
    *,
    target: str = HOST,
    threads: int | None = None,
    mode: Mode = "reduce",
    sizes: Sizes = "auto",
    externs: Externs | None = None,
) -> Operators:
    """Return the operators of a `.tl` file; those that state no mode are compiled in `mode`: `strict`, `reduce` or `fast`. With `static`
    sizes each combination of shapes is compiled on its own; with `symbolic` ones a kernel serves all shapes. With `auto`, the first two
    combinations are compiled on their own, and a kernel serves those that come after them, with the sizes that have differed left open;
    where that cannot be proven, or on a GPU, all are compiled on their own. `target` "cuda" or "cuda:sm_90a" is a GPU, with its schedules.
    `externs` gives kernels for extern operators, by their names: `tl.c_symbol`, `tl.llvm_ir`.

    Raises CompileError for a file that cannot be read or has mistakes, C0101 for a target that is none, C0104 for a mode that is none,
    C0105 for other `sizes`, C0113 for kernels that stand for nothing."""
    if not isinstance(path, (str, os.PathLike)):
        raise error("P020", f"a path is expected, not {type(path).__name__}", help="the text of a program is read by `tensorlang.parse`")
    return operators_of(syntax.load(Path(path)), target, threads, mode, checked_sizes(sizes), externs)


@trimmed
def parse(
    text: str,
    *,
    target: str = HOST,
    threads: int | None = None,
    mode: Mode = "reduce",
    sizes: Sizes = "auto",
    base: str | os.PathLike[str] | None = None,
    externs: Externs | None = None,
) -> Operators:
    """Return the operators of a text, as `load` does. The files that it uses by a relative path lie in the folder `base`.

    Raises CompileError for mistakes, T0193 for a relative path without `base`."""
    if not isinstance(text, str):
        raise error("P024", f"the text of a program is expected, not {type(text).__name__}", help="a file is read by `tensorlang.load`")
    if text.endswith(".tl") and "\n" not in text:
        raise error("P024", f"the text of a program is expected, not the path `{text}`", help="a file is read by `tensorlang.load`")
    if base is not None and not isinstance(base, (str, os.PathLike)):
        raise error("P020", f"`base` is a folder, not {type(base).__name__}", help="pass the path of a folder")
    folder = None if base is None else os.fspath(base)
    return operators_of(Source("<text>", text, folder), target, threads, mode, checked_sizes(sizes), externs)


def operators_of(
    source: Source,
    target: str,
    threads: int | None,
    mode: Mode = "reduce",
    sizes: Sizes = "static",
    externs: Externs | None = None,
    schedules: Source | None = None,
) -> Operators:
    """Return the operators of a source for `target`: `cpu`, `cuda`, or a kind of either. The schedules of `schedules` are asked before its
    own. Raises CompileError C0101 for another target."""
    return Operators(source, tools_for(target, threads), checked_mode(mode), sizes=sizes, externs=externs, schedules=schedules)


def checked_mode(mode: str) -> Mode:
    """Return `mode` if it is one. Raises CompileError C0104."""
    found = next((m for m in MODES if m == mode), None)
    if found is None:
        raise error("C0104", f"there is no mode `{mode}`", help="the modes are `strict`, `reduce` and `fast`")
    return found
