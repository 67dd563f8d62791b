"""The kernels of a model compiled: found in the cache, or made, by several processes when there are many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from codegen.llvm.target import Target
from codegen.store import Cache
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu.build import Job
from tensorlang.backends.cpu.driver import compile_kernel, machine_of, stored_kernel
from tensorlang.check.module import Module
from tensorlang.policy.cpu.winograd_cost import tiles as fastest_tiles
from tensorlang.runtime.library import rules_of
from tensorlang.runtime.protocol import Progress
from tensorlang.runtime.threads import default_threads
from tensorlang.tensor.winograd import Convolution
from tensorlang.worker import all_made


def compiled_with(
    roles: Sequence[Module], jobs: Sequence[Job], target: Target, threads: int, store: Cache | None, progress: Progress
) -> list[Artifact]:
    """Return what `compiled` does, with schedules of the roles that `roles` state where one applies."""
    rules = rules_of(tuple(roles)) if roles else None
    return compiled([replace(job, rules=rules) for job in jobs], target, threads, store, progress)


def compiled(jobs: Sequence[Job], target: Target, threads: int, store: Cache | None, progress: Progress) -> list[Artifact]:
    """Return the artifacts of `jobs`, in order: from the store, or compiled, by other processes too when there are many."""
    found = [_stored(job, target, threads, store) for job in jobs]
    missing = [k for k, artifact in enumerate(found) if artifact is None]
    there = len(jobs) - len(missing)
    tasks = [partial(made_of, jobs[k], target, threads) for k in missing]
    made = all_made(tasks, store, default_threads(), lambda count: progress("compiling kernels", there + count, len(jobs)))
    for k, artifact in zip(missing, made, strict=True):
        found[k] = artifact
    return [artifact for artifact in found if artifact is not None]


def made_of(job: Job, target: Target, threads: int, store: Cache | None) -> Artifact:
    """Return the compiled kernel of `job`."""
    return compile_kernel(job.program, target, rules=job.rules, layouts=job.layouts, constants=job.constants, threads=threads, store=store)


def tiles_of(convolution: Convolution, target: Target, threads: int) -> tuple[int, ...] | None:
    """Return the tiles by which a convolution is computed fastest by minimal filtering, or None when plain sums are faster."""
    return fastest_tiles(convolution, machine_of(target, threads))


def _stored(job: Job, target: Target, threads: int, store: Cache | None) -> Artifact | None:
    if store is None:
        return None
    return stored_kernel(job.program, target, store, layouts=job.layouts, constants=job.constants, threads=threads, rules=job.rules)
