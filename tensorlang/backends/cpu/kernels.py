"""The kernels of a model compiled: found in the cache, or made, by several processes when there are many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from codegen.llvm.target import Target
from codegen.store import Cache
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu.driver import compile_kernel, machine_of, stored_kernel
from tensorlang.check.module import Module
from tensorlang.policy.cpu.winograd_cost import tiles as fastest_tiles
from tensorlang.runtime.jobs import Job
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
    return compiled([replace(job, rules=rules and replace(rules, at=job.at)) for job in jobs], target, threads, store, progress)


def compiled(jobs: Sequence[Job], target: Target, threads: int, store: Cache | None, progress: Progress) -> list[Artifact]:
    """Return the artifacts of `jobs`, in order: from the store, or compiled, by other processes too when there are many."""
    tasks = [KernelTask(job, target, threads) for job in jobs]
    return all_made(tasks, store, default_threads(), lambda count: progress("compiling kernels", count, len(jobs)))


@dataclass(frozen=True, slots=True)
class KernelTask:
    """A kernel to be compiled, perhaps by another process (`tensorlang.worker.Task`)."""

    job: Job
    target: Target
    threads: int

    def stored(self, store: Cache) -> Artifact | None:
        job = self.job
        return stored_kernel(
            job.program, self.target, store, layouts=job.layouts, constants=job.constants, threads=self.threads, rules=job.rules
        )

    def __call__(self, store: Cache | None) -> Artifact:
        job = self.job
        return compile_kernel(
            job.program, self.target, rules=job.rules, layouts=job.layouts, constants=job.constants, threads=self.threads, store=store
        )


def tiles_of(convolution: Convolution, target: Target, threads: int) -> tuple[int, ...] | None:
    """Return the tiles by which a convolution is computed fastest by minimal filtering, or None when plain sums are faster."""
    return fastest_tiles(convolution, machine_of(target, threads))
