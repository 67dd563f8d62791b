"""Operators for nodes of models, by the domains that these name.

    operators={"my.domain": "mine.tl"}                 files: a node's operator is the one of its name
    ops={"my.domain::Blur": ops.blur}                  single operators, whatever they are called
    ops={"my.domain::Blur": {1: ops.blur, 3: ops.b3}}  from version 1 of the domain on, and from version 3 on

    [project.entry-points."tensorlang.onnx_operators"]
    mine = "my_package:operators"                      a function that returns either, for all models

What is given comes first, single operators before files, then what importers know of themselves, and last what packages offer.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from tensorlang.check.module import Module, reached
from tensorlang.diagnostics import CompileError, error
from tensorlang.operators import load
from tensorlang.plugins import ONNX_OPERATORS, offered
from tensorlang.runtime.custom_nodes import EVERY_DOMAIN, ONNX_DOMAINS, Custom, Found
from tensorlang.runtime.externs import has_python_functions, kernels_in
from tensorlang.runtime.gradient import GradientOperator
from tensorlang.runtime.operator import Operator, Operators, module_for

File: TypeAlias = str | os.PathLike[str] | Operators
CustomOperators: TypeAlias = File | Mapping[str, File]
"""Operators for nodes of domains that are not ONNX's: a file or what was read from one, or several by domain."""
NamedOperators: TypeAlias = Mapping[str, Operator | Mapping[int, Operator]]
"""Operators for nodes by `domain::Name`; of several versions by the first version of the domain that each is for."""


def custom_operators(operators: CustomOperators | None, ops: NamedOperators | None, target: str) -> Custom | None:
    """Return the operators that are given for nodes of models, with the kernels that they have on a target, and those that packages offer;
    None where there are none. Raises CompileError C0119 for what is none, and the mistakes of a file."""
    packages = _installed(target)
    if operators is None and ops is None and packages is None:
        return None
    files = modules_by_domain(operators, target) if operators is not None else {}
    return Custom(files, dict(_named(ops, target)) if ops is not None else {}, packages)


def modules_by_domain(operators: object, target: str) -> dict[str, Module]:
    """Return the files of operators by domain, `*` for all, with the kernels that they have on a target. Raises CompileError C0119 for what
    is none, and the mistakes of a file."""
    given = operators if isinstance(operators, Mapping) else {EVERY_DOMAIN: operators}
    found: dict[str, Module] = {}
    for domain, each in given.items():
        _check_domain(domain)
        if not isinstance(each, (str, os.PathLike, Operators)):
            help = "give the path of a `.tl` file, or what `tl.load` returns"
            if isinstance(each, Operator):
                help = f"give one operator by the name of its nodes: `ops={{'{domain}::{each.name}': …}}`"
            raise error("C0119", f"`operators` holds a {type(each).__name__}", help=help)
        found[domain] = module_for(each if isinstance(each, Operators) else load(each), target)
    return found


def _check_domain(domain: object) -> None:
    if domain in ONNX_DOMAINS:
        title = "operators of ONNX itself cannot be replaced"
        raise error("C0119", title, help="give operators for domains of your own: `operators={'my.domain': 'my.tl'}`")


def _named(ops: object, target: str) -> Iterator[tuple[tuple[str, str], Mapping[int, Found]]]:
    if not isinstance(ops, Mapping):
        raise error(
            "C0119", f"`ops` is a {type(ops).__name__}", help="give operators by `domain::Name`: `ops={'my.domain::Blur': ops.blur}`"
        )
    for key, given in ops.items():
        domain, separator, op = key.rpartition("::") if isinstance(key, str) else ("", "", "")
        if not separator or not op:
            raise error("C0119", f"`ops` has the key {key!r}", help="it is a domain and the name of an operator: `'my.domain::Blur'`")
        _check_domain(domain)
        several = given if isinstance(given, Mapping) else {1: given}
        if not several:
            raise error("C0119", f"`ops` has no operator for `{key}`", help="give one: `{1: ops.blur}`")
        yield (domain, op), {_version(key, since): _found(key, each, target) for since, each in several.items()}


def _version(key: str, since: object) -> int:
    if not isinstance(since, int) or isinstance(since, bool) or since < 1:
        title = f"`ops` gives an operator for version {since!r} of `{key}`"
        raise error("C0119", title, help="versions are whole numbers from 1: `{1: ops.blur, 3: ops.sharper_blur}`")
    return since


def _found(key: str, given: object, target: str) -> Found:
    if not isinstance(given, Operator):
        help = "give an operator of a file: `ops = tl.load('mine.tl')`, then `ops.blur`; a whole file goes to `operators`"
        raise error("C0119", f"`ops` holds a {type(given).__name__} for `{key}`", help=help)
    if isinstance(given, GradientOperator):
        title = f"not supported yet: a gradient, `{given.name}`, as the operator of nodes `{key}`"
        raise error("C0119", title, help=f"give its equations as an operator of a file: `{given.forward.name}.gradient(…).text()`")
    if given.scheduled_for != target and kernels_in(given.module):
        title = f"the kernels of `{given.name}`, given for `{key}`, are for `{given.scheduled_for}`, not for `{target}`"
        raise error("C0119", title, help=f"load its file for the same target: `tl.load(…, target='{target}')`")
    return Found(given.module, given.name)


# ---------------------------------------------------------------- packages


def _installed(target: str) -> Custom | None:
    """Return what installed packages offer, None where none does. Raises CompileError C0119 for what cannot be used."""
    files: dict[str, Module] = {}
    named: dict[tuple[str, str], Mapping[int, Found]] = {}
    points = offered(ONNX_OPERATORS)
    for package, make in points:
        given = _made(package, make)
        try:
            single = {key: value for key, value in given.items() if isinstance(key, str) and "::" in key}
            named |= {key: found for key, found in _named(single, target) if key not in named}
            whole = {key: value for key, value in given.items() if key not in single}
            files |= {domain: module for domain, module in modules_by_domain(whole, target).items() if domain not in files}
        except CompileError as refused:
            raise refused_package(package, refused.diagnostics[0].title) from None
    return Custom(files, named) if points else None


def _made(package: str, make: Callable[[], Callable[[], object]]) -> Mapping[str, object]:
    try:
        given = make()()
    except Exception as problem:
        raise refused_package(package, f"{type(problem).__name__}: {problem}") from None
    if not isinstance(given, Mapping):
        raise refused_package(package, f"it returns a {type(given).__name__}, no dictionary")
    return given


def refused_package(package: str, why: str) -> CompileError:
    """Return what is said of a package whose operators cannot be used."""
    title = f"the operators for models that the package `{package}` offers cannot be used"
    return error("C0119", title, notes=(why,), help="mend the package, or uninstall it")


# ---------------------------------------------------------------- what they mean


def custom_digest(custom: Custom) -> bytes:
    """Return a digest of all that the operators mean, kernels among it."""
    digest = hashlib.sha256()
    for domain, module in sorted(custom.files.items()):
        digest.update(_text((domain, _meaning(module, tuple(sorted(module.offered))))))
    for (domain, op), versions in sorted(custom.named.items()):
        given = [(since, found.name, _meaning(found.module, (found.name,))) for since, found in sorted(versions.items())]
        digest.update(_text((domain, op, given)))
    if custom.installed is not None:
        digest.update(custom_digest(custom.installed))
    return digest.digest()


def are_told(custom: Custom) -> bool:
    """Tell whether texts say all that the operators mean. A function of Python is another one in another process."""
    modules = [*custom.files.values(), *(found.module for versions in custom.named.values() for found in versions.values())]
    told = not any(has_python_functions(module) for module in modules)
    return told and (custom.installed is None or are_told(custom.installed))


def _meaning(module: Module, names: tuple[str, ...]) -> object:
    operators = [(name, repr(module.operators[name]), repr(reached(module, name))) for name in names]
    return module.mode, operators, kernels_in(module)


def _text(meaning: object) -> bytes:
    return repr(meaning).encode("utf-8", "surrogatepass")
