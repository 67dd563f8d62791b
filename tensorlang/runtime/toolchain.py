"""The product's toolchain: the driver, its cache on disk, and the layouts it would like."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from codegen.llvm import pool
from codegen.llvm.cache import Cache
from codegen.llvm.target import Target, TargetError, named, runs_here
from tensorlang.diagnostics import error
from tensorlang.driver import Artifact, machine_of, stored_kernel, wanted_layouts
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.runtime.executable import Job, Progress, Toolchain
from tensorlang.runtime.library import Roles, installed_roles, rules_of
from tensorlang.runtime.worker import made_of, started
from tensorlang.schedule.filtering import tiles as worthwhile
from tensorlang.schedule.layout import Layout
from tensorlang.tensor.winograd import Convolution

HOST = "cpu"
WORTH_A_PROCESS = 10
"""How many kernels another process must have to compile before starting it pays."""


def toolchain(
    target: str = HOST, threads: int | None = None, *, cache: bool = True, roles: Roles = installed_roles, winograd: bool = True
) -> Toolchain:
    """Return the toolchain for a target by name (`cpu` is this machine) and a number of threads (None: all that are allowed). Kernels of
    models have the schedules of roles that the modules of `roles` state for them, or derived ones. `winograd`: convolutions of models may
    be computed by minimal filtering.

    Raises CompileError C0101 for a target that is not known, C0102 for one that this machine cannot run."""
    machine = target_named(target)
    if not runs_here(machine):
        raise error("C0102", f"this machine cannot run code for `{target}`", help="compile for `cpu`, which is this machine")
    count = max(1, min(threads or pool.available_threads(), pool.available_threads()))
    store = Cache() if cache else None

    def compile_all(jobs: Sequence[Job], progress: Progress) -> Sequence[Artifact]:
        offered = roles()
        rules = rules_of(offered) if offered else None
        return compiled([replace(job, rules=rules) for job in jobs], machine, count, store, progress)

    def wishes(graph: Graph, kernel: Kernel) -> Mapping[str, Layout]:
        constant = frozenset(p.name for p, v in zip(kernel.program.params, kernel.inputs, strict=True) if v in graph.constants)
        return wanted_layouts(kernel.program, machine, constant, threads=count)

    def tiles(found: Convolution) -> tuple[int, ...] | None:
        return worthwhile(found, machine_of(machine, count)) if winograd else None

    return Toolchain(machine, count, store, compile_all, wishes, tiles, winograd)


def target_named(name: str) -> Target:
    """Return the target called `name`. Raises CompileError C0101."""
    try:
        return named("host" if name == HOST else name)
    except TargetError as problem:
        raise error("C0101", str(problem), help="`cpu` is this machine") from None


def compiled(jobs: Sequence[Job], target: Target, threads: int, store: Cache | None, progress: Progress) -> list[Artifact]:
    """Return the artifacts of `jobs`, in order: from the store, or compiled, by other processes too when there are many."""
    found = [_stored(job, target, threads, store) for job in jobs]
    missing = [k for k, artifact in enumerate(found) if artifact is None]
    processes = min(pool.available_threads(), len(missing) // WORTH_A_PROCESS) if store is not None else 1
    shares = [missing[k :: max(1, processes)] for k in range(max(1, processes))]
    done = len(jobs) - len(missing)
    with _helpers([[jobs[k] for k in share] for share in shares[1:]], target, threads, store):
        for share in shares:
            for k in share:
                progress("compiling kernels", done, len(jobs))
                # What another process has compiled meanwhile, the driver finds in the store; the rest of its share is compiled here.
                found[k] = made_of(jobs[k], target, threads, store)
                done += 1
    progress("compiling kernels", done, len(jobs))
    return [artifact for artifact in found if artifact is not None]


@contextmanager
def _helpers(shares: Sequence[Sequence[Job]], target: Target, threads: int, store: Cache | None) -> Iterator[None]:
    """Have other processes compile `shares` from their ends, so that they and we meet in the middle; end them when we are through."""
    processes: list[subprocess.Popen[bytes]] = []
    for share in shares:
        process = started(share[::-1], target, threads, store) if store is not None else None
        if process is not None:
            processes.append(process)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _stored(job: Job, target: Target, threads: int, store: Cache | None) -> Artifact | None:
    if store is None:
        return None
    return stored_kernel(job.program, target, store, layouts=job.layouts, constants=job.constants, threads=threads, rules=job.rules)
