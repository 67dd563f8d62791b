"""The kernels of a model compiled: found in the cache, or made, by several processes when there are many."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from codegen.llvm import pool
from codegen.llvm.target import Target
from codegen.store import Cache
from tensorlang.artifact import Artifact
from tensorlang.check.module import Module
from tensorlang.driver import machine_of, stored_kernel
from tensorlang.runtime.build import Job
from tensorlang.runtime.executable import Progress
from tensorlang.runtime.library import rules_of
from tensorlang.runtime.worker import made_of, started
from tensorlang.schedule.filtering import tiles as worthwhile
from tensorlang.tensor.winograd import Convolution

WORTH_A_PROCESS = 10
"""How many kernels another process must have to compile before starting it pays."""


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


def tiles_of(convolution: Convolution, target: Target, threads: int) -> tuple[int, ...] | None:
    """Return the tiles by which a convolution is computed fastest by minimal filtering, or None when plain sums are faster."""
    return worthwhile(convolution, machine_of(target, threads))


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
