"""Operators that installed packages offer for measuring by name.

[project.entry-points."tensorlang.operators"]
mine = "my_package:Library"        a class without arguments that is an `OperatorLibrary`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from tensorlang.check.foreign import nearest
from tensorlang.check.module import Module
from tensorlang.diagnostics import error
from tensorlang.plugins import installed
from tensorlang.shell.peers import Task

OPERATORS = "tensorlang.operators"
"""The entry-point group under which packages offer libraries of operators."""

Array = np.ndarray[Any, Any]


class OperatorLibrary(Protocol):
    """Operators, and how other libraries compute them."""

    def module(self) -> Module:
        """Return the operators."""
        ...

    def task(self, name: str, arrays: Mapping[str, Array], attributes: Mapping[str, Any], results: tuple[Array, ...]) -> Task:
        """Return what peers are to do where ours calls the operator `name`."""
        ...


def installed_operators() -> tuple[OperatorLibrary, ...]:
    """Return the libraries that installed packages offer, in order of their names."""
    return installed(OPERATORS)


def library_with(name: str) -> OperatorLibrary:
    """Return the first library that has the operator `name`. Raises CompileError C0213."""
    offered = installed_operators()
    for library in offered:
        if name in library.module().operators:
            return library
    near = nearest(name, {known for library in offered for known in library.module().operators})
    help = "give a `.tl` file, a model, or an operator of an installed library" if offered else "install tensorlang as a package"
    help = f"did you mean `{near}`?" if near is not None else help
    raise error("C0213", f"there is no file and no operator `{name}`", help=help)
