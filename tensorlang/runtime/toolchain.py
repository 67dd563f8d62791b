"""The product's toolchain: the driver, its cache on disk, and the layouts it would like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen.llvm import pool
from codegen.llvm.cache import Cache
from codegen.llvm.target import Target, TargetError, named, runs_here
from tensorlang.diagnostics import error
from tensorlang.driver import Artifact, compile_kernel, wanted_layouts
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.runtime.executable import Job, Progress, Toolchain
from tensorlang.schedule.layout import Layout

HOST = "cpu"


def toolchain(target: str = HOST, threads: int | None = None, *, cache: bool = True) -> Toolchain:
    """Return the toolchain for a target by name (`cpu` is this machine) and a number of threads (None: all that are allowed).

    Raises CompileError C0101 for a target that is not known, C0102 for one that this machine cannot run."""
    machine = target_named(target)
    if not runs_here(machine):
        raise error("C0102", f"this machine cannot run code for `{target}`", help="compile for `cpu`, which is this machine")
    count = max(1, min(threads or pool.available_threads(), pool.available_threads()))
    store = Cache() if cache else None

    def compile_all(jobs: Sequence[Job], progress: Progress) -> Sequence[Artifact]:
        made = []
        for k, job in enumerate(jobs):
            progress("compiling kernels", k, len(jobs))
            made.append(compile_kernel(job.program, machine, layouts=job.layouts, constants=job.constants, threads=count, store=store))
        progress("compiling kernels", len(jobs), len(jobs))
        return made

    def wishes(graph: Graph, kernel: Kernel) -> Mapping[str, Layout]:
        constant = frozenset(p.name for p, v in zip(kernel.program.params, kernel.inputs, strict=True) if v in graph.constants)
        return wanted_layouts(kernel.program, machine, constant, threads=count)

    return Toolchain(machine, count, store, compile_all, wishes)


def target_named(name: str) -> Target:
    """Return the target called `name`. Raises CompileError C0101."""
    try:
        return named("host" if name == HOST else name)
    except TargetError as problem:
        raise error("C0101", str(problem), help="`cpu` is this machine") from None
