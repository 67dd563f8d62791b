"""Files of operators for nodes of models, by the domains that these name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import TypeAlias

from tensorlang.check.module import Module, reached
from tensorlang.diagnostics import error
from tensorlang.operators import load
from tensorlang.runtime.externs import kernels_in
from tensorlang.runtime.operator import Operators, module_for

CustomOperators: TypeAlias = str | os.PathLike[str] | Operators | Mapping[str, str | os.PathLike[str] | Operators]
"""Operators for nodes of domains that are not ONNX's: a file or what was read from one, or several by domain."""


def modules_by_domain(operators: CustomOperators, target: str) -> dict[str, Module]:
    """Return the files of operators by domain, `*` for all, with the kernels that they have on a target. Raises CompileError C0119 for what
    is none, and the mistakes of a file."""
    given = operators if isinstance(operators, Mapping) else {"*": operators}
    found: dict[str, Module] = {}
    for domain, each in given.items():
        if domain in ("", "ai.onnx"):
            title = "operators of ONNX itself cannot be replaced"
            raise error("C0119", title, help="give operators for domains of your own: `operators={'my.domain': 'my.tl'}`")
        if not isinstance(each, (str, os.PathLike, Operators)):
            help = "give the path of a `.tl` file, or what `tl.load` returns"
            raise error("C0119", f"`operators` holds a {type(each).__name__}", help=help)
        found[domain] = module_for(each if isinstance(each, Operators) else load(each), target)
    return found


def module_digest(modules: Mapping[str, Module]) -> bytes:
    """Return a digest of all that operators of modules mean, kernels among it."""
    digest = hashlib.sha256()
    for domain, module in sorted(modules.items()):
        named = sorted(module.offered)
        meaning = [(name, repr(module.operators[name]), repr(reached(module, name))) for name in named]
        digest.update(repr((domain, module.mode, meaning, kernels_in(module))).encode("utf-8", "surrogatepass"))
    return digest.digest()
