"""Kernels put in the place of extern operators: which of those that are given serves a target, and whose operator each stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tensorlang.check.extern_calls import check_kernel, check_signature
from tensorlang.check.module import Module
from tensorlang.check.problems import did_you_mean
from tensorlang.diagnostics import error
from tensorlang.externs import Externs, Kernel, LLVMText, PythonFunction, kernels_of
from tensorlang.syntax import modules
from tensorlang.syntax import nodes as sx

Has: TypeAlias = Callable[[str], bool]
"""Tells whether the processor has a feature."""


def has_none(feature: str) -> bool:
    """Tell that a processor has nothing that not all have."""
    return False


def with_externs(module: Module, externs: Externs | None, target: str, has: Has = has_none) -> Module:
    """Return the module with these kernels in the place of its extern operators, and of those of files that it uses; for those of an
    installed package, with what that package offers. An operator that has none for `target` is compiled from its body.

    Raises CompileError C0113 for what stands for no extern operator, T0166 for a signature that
    no kernel is called by, C0117 for a function of Python that does not take what the operator has, C0118 for a function named wrongly."""
    chosen: list[tuple[sx.Operator, Kernel]] = []
    for name, kernels in kernels_of(externs).items():
        operator = extern_named(module, name)
        check_signature(operator)
        found = _for_target(kernels, target, has)
        if found is not None:
            check_kernel(operator, found)
            chosen.append((operator, found))
    given = {id(operator) for operator, _ in chosen}
    for operator in _declared(module):
        if operator.extern and id(operator) not in given:
            found = _for_target(_offered(operator), target, has)
            chosen += [(operator, found)] if found is not None else []
    return _replaced(module, chosen, {}) if chosen else module


def without_externs(module: Module) -> Module:
    """Return the module, and those that it reaches, with no kernels: every operator is its body."""
    return _without(module, lambda operator, kernel: True, {})


def without_offered(module: Module) -> Module:
    """Return the module, and those that it reaches, without the kernels that packages offer: what a program gives itself stays."""
    return _without(module, lambda operator, kernel: kernel in _offered(operator), {})


def _without(module: Module, left_out: Callable[[sx.Operator, Kernel], bool], known: dict[int, Module]) -> Module:
    if id(module) not in known:
        files = {name: _without(file, left_out, known) for name, file in module.defining_modules.items()}
        kept = {name: kernel for name, kernel in module.externs.items() if not left_out(module.operators[name], kernel)}
        same = len(kept) == len(module.externs) and all(file is module.defining_modules[name] for name, file in files.items())
        known[id(module)] = module if same else replace(module, externs=kept, defining_modules=files)
    return known[id(module)]


def extern_named(module: Module, name: str) -> sx.Operator:
    """Return the extern operator that is called `name` here, or in a file that is used. Raises CompileError C0113 where there is none, or
    are several."""
    known = _declared(module)
    found = [module.operators[name]] if name in module.operators else [o for o in known if o.name == name]
    if not found:
        names = sorted({o.name for o in known if o.extern})
        raise error(
            "C0113", f"there is no operator `{name}` for a kernel to stand for", help=did_you_mean(name, names, "declare it: `extern op …`")
        )
    if len(found) > 1:
        raise error("C0113", f"several files that are used declare `{name}`", help="use the one that is meant by name: `use … (… as …)`")
    if not found[0].extern:
        at = found[0].name_span if found[0].name_span.end else found[0].span
        help = f"declare it so: `extern op {found[0].name}(…)`"
        raise error("C0113", f"no kernel can stand for `{name}`, which is not extern", at, "declared here", help=help)
    return found[0]


def kernels_in(module: Module) -> tuple[tuple[str, str], ...]:
    """Return the kernels of a module and of those that it reaches, as texts that tell which they are."""
    return tuple((name, repr(kernel)) for m in _reached(module, set()) for name, kernel in sorted(m.externs.items()))


def has_python_functions(module: Module) -> bool:
    """Tell whether functions of Python stand for operators of a module, or of those that it reaches."""
    return any(isinstance(kernel, PythonFunction) for m in _reached(module, set()) for kernel in m.externs.values())


def _for_target(kernels: Sequence[Kernel], target: str, has: Has) -> Kernel | None:
    served = (k for k in kernels if k.target == target)
    return next((k for k in served if not isinstance(k, LLVMText) or all(map(has, k.needs))), None)


def _offered(operator: sx.Operator) -> Sequence[Kernel]:
    """Return the kernels that the package offers whose module declares an operator."""
    return kernels_of(modules.kernels(operator.span.source)).get(operator.name, ())


def _declared(module: Module) -> list[sx.Operator]:
    """Return the operators of all files that a module reaches."""
    return [m.operators[name] for m in _reached(module, set()) for name in sorted(m.declared)]


def _reached(module: Module, seen: set[int]) -> Iterator[Module]:
    if id(module) not in seen:
        seen.add(id(module))
        yield module
        for home in module.defining_modules.values():
            yield from _reached(home, seen)


def _replaced(module: Module, chosen: Sequence[tuple[sx.Operator, Kernel]], known: dict[int, Module]) -> Module:
    """Return the module, and those that it reaches, with the kernels that stand for operators of theirs."""
    if id(module) not in known:
        own: Mapping[str, Kernel] = {o.name: k for o, k in chosen if o.name in module.declared and module.operators[o.name] is o}
        homes = {name: _replaced(home, chosen, known) for name, home in module.defining_modules.items()}
        same = not own and all(home is module.defining_modules[name] for name, home in homes.items())
        known[id(module)] = module if same else replace(module, externs={**module.externs, **own}, defining_modules=homes)
    return known[id(module)]
