"""The product's toolchain: the driver, its cache on disk, and the layouts it would like."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Integral
from typing import Any

from codegen.llvm import pool
from codegen.llvm.target import LEVEL, LevelError, Target, TargetError, named, runs_here
from codegen.store import Cache
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu.executable import Toolchain
from tensorlang.diagnostics import error
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.passes.memory.layout import RowMajor
from tensorlang.graph.precisions import chosen
from tensorlang.graph.programs import program_key
from tensorlang.runtime.protocol import Progress, Roles, installed_roles
from tensorlang.schedule.layout import Layout

HOST = "cpu"


def toolchain(
    target: str = HOST,
    threads: int | None = None,
    *,
    cache: bool = True,
    roles: Roles = installed_roles,
    winograd: bool = True,
    precision: str = "f32",
    insist: bool = False,
) -> Toolchain:
    """Return the toolchain for a target by name (`cpu` is this machine) and a number of threads (None: all that are allowed). Kernels of
    models have the schedules of roles that the modules of `roles` state for them, or derived ones. `winograd`: convolutions of models may
    be computed by minimal filtering, those in f32. `precision`: what their contractions are asked to multiply in, `insist`: also where
    that does not pay.

    Raises CompileError C0101 for a target that is not known, C0102 for one that this machine cannot run, C0103 for a precision that is
    not known, C0107 for `threads` that are no number of them, C0108 for `winograd` or `insist` that is neither True nor False."""
    check_options(threads, winograd, insist)
    machine = target_named(target)
    count = pool.available_threads() if threads is None else min(int(threads), pool.available_threads())
    store = Cache() if cache else None
    multiplied = chosen(precision, machine, insist)
    asked, winograd = winograd, winograd and multiplied.used != "bf16"

    def compile_all(jobs: Sequence[Any], progress: Progress) -> Sequence[Artifact]:
        from tensorlang.backends.cpu.kernels import compiled_with

        return compiled_with(roles(), jobs, machine, count, store, progress)

    def wishes(graph: Graph) -> Callable[[Kernel], Mapping[str, Layout]]:
        fixed, known = RowMajor.of(graph), dict[object, Mapping[str, Layout]]()

        def of(kernel: Kernel) -> Mapping[str, Layout]:
            constant = frozenset(p.name for p, v in zip(kernel.program.params, kernel.inputs, strict=True) if v in graph.constants)
            key = program_key(kernel.program), constant, fixed.names(kernel)
            if key not in known:
                from tensorlang.backends.cpu.driver import wanted_layouts

                known[key] = wanted_layouts(kernel.program, machine, constant, threads=count, fixed=key[2])
            return known[key]

        return of

    def tiles(found: Any) -> tuple[int, ...] | None:
        from tensorlang.backends.cpu.kernels import tiles_of

        return tiles_of(found, machine, count) if winograd else None

    made = partial(toolchain, target, threads, cache=cache, roles=roles, winograd=asked, precision=precision, insist=insist)
    return Toolchain(machine, count, store, compile_all, wishes, tiles, winograd, multiplied, made)


def check_options(threads: object, winograd: object, insist: object) -> None:
    """Raise CompileError C0107 for what is no number of threads, C0108 for what is neither True nor False."""
    if threads is not None and (not isinstance(threads, Integral) or isinstance(threads, bool) or threads < 1):
        raise error("C0107", f"`threads` is {threads!r}", help="give a whole number from 1, or `None` for all processors")
    for name, given in (("winograd", winograd), ("insist", insist)):
        if not isinstance(given, bool):
            raise error("C0108", f"`{name}` is {given!r}", help="it is `True` or `False`")


def target_named(name: str) -> Target:
    """Return the target called `name`. Raises CompileError C0101 when there is none, C0102 when this machine cannot run its code."""
    try:
        target = named("host" if name == HOST else name)
        if not runs_here(target):
            raise error("C0102", f"this machine cannot run code for `{name}`", help="compile for `cpu`, which is this machine")
        return target
    except LevelError as problem:
        raise error(
            "C0102", str(problem), help=f"name a level that this machine has, or unset `{LEVEL}`: `tensorlang doctor` tells what it has"
        ) from None
    except TargetError as problem:
        raise error("C0101", str(problem), help="`cpu` is this machine, `cuda` its GPU") from None
