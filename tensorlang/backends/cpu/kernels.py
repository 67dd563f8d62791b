"""The kernels of a model compiled: found in the cache, or made, by several processes when there are many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from codegen.llvm.target import Target
from codegen.log import log_of
from codegen.store import Cache
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu.driver import compile_kernel, machine_of, stored_kernel
from tensorlang.check.module import Module
from tensorlang.diagnostics import CompileError, Source, error
from tensorlang.policy.cpu.winograd_cost import tiles as fastest_tiles
from tensorlang.policy.select import read
from tensorlang.runtime.jobs import Job
from tensorlang.runtime.library import empty_module, rules_of
from tensorlang.runtime.protocol import Progress
from tensorlang.runtime.schedule_book import ScheduleBook
from tensorlang.runtime.threads import default_threads
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.parse import parse
from tensorlang.tensor.winograd import Convolution
from tensorlang.worker import all_made

FROM_BOOK = "tuned"
"""The origin of schedules that a file had."""
_log = log_of("compile")


def compiled_with(
    roles: Sequence[Module],
    jobs: Sequence[Job],
    target: Target,
    threads: int,
    store: Cache | None,
    progress: Progress,
    book: ScheduleBook | None = None,
) -> list[Artifact]:
    """Return what `compiled` does, under the schedules that `book` has for kernels, else those of the roles that `roles` state where one
    applies. A schedule of the book that is refused is told to the log."""
    rules = rules_of(tuple(roles)) if roles else None
    wanted = [replace(job, rules=rules and replace(rules, at=job.at)) for job in jobs]
    if book is None:
        return compiled(wanted, target, threads, store, progress)
    written = [book.schedule_of(job) for job in jobs]
    made = compiled(wanted, target, threads, store, progress, written)
    for job, text, artifact in zip(jobs, written, made, strict=True):
        if text is not None and artifact.origin != FROM_BOOK:
            _log.warning("kernel `%s`: its schedule from the file is not used: %s", job.program.name, artifact.tried[-1])
    return made


def compiled(
    jobs: Sequence[Job],
    target: Target,
    threads: int,
    store: Cache | None,
    progress: Progress,
    written: Sequence[str | None] | None = None,
) -> list[Artifact]:
    """Return the artifacts of `jobs`, in order: from the store, or compiled, by other processes too when there are many. `written`: a
    schedule for each, as text, or None."""
    texts = written if written is not None else [None] * len(jobs)
    tasks = [KernelTask(job, target, threads, text) for job, text in zip(jobs, texts, strict=True)]
    return all_made(tasks, store, default_threads(), lambda count: progress("compiling kernels", count, len(jobs)))


@dataclass(frozen=True, slots=True)
class KernelTask:
    """A kernel to be compiled, perhaps by another process (`tensorlang.worker.Task`), under the schedule `written` where that is legal."""

    job: Job
    target: Target
    threads: int
    written: str | None = None

    def stored(self, store: Cache) -> Artifact | None:
        job = self.job
        if self.written is not None:  # its key is that of the directives, which are to be read
            return None
        return stored_kernel(
            job.program,
            self.target,
            store,
            layouts=job.layouts,
            constants=job.constants,
            threads=self.threads,
            rules=job.rules,
            forms=job.forms,
        )

    def __call__(self, store: Cache | None) -> Artifact:
        if self.written is None:
            return self._compiled(store)
        try:
            made = self._compiled(store, self._read(self.written))
        except CompileError as refused:
            return self._own(store, refused.diagnostics[0].title)
        return replace(made, origin=FROM_BOOK) if not made.trusted else self._own(store, f"nobody asked here to trust it: {made.trusted}")

    def _own(self, store: Cache | None, why: str) -> Artifact:
        """Return the kernel without the schedule that is written, and why that is so."""
        own = self._compiled(store)
        return replace(own, tried=(*own.tried, why))

    def _compiled(self, store: Cache | None, schedule: Schedule | None = None) -> Artifact:
        job, rules = self.job, self.job.rules if schedule is None else None
        return compile_kernel(
            job.program,
            self.target,
            schedule=schedule,
            rules=rules,
            layouts=job.layouts,
            constants=job.constants,
            threads=self.threads,
            store=store,
            forms=job.forms,
        )

    def _read(self, text: str) -> Schedule:
        """Return a schedule for the kernel that is written down, whatever kernel it names."""
        module = self.job.rules.module if self.job.rules is not None else empty_module()
        found = [d for d in parse(Source("<schedules>", text)).declarations if isinstance(d, sx.Schedule)]
        if len(found) != 1:
            raise error("S0604", f"one schedule is expected, {len(found)} are written")
        return read(module, found[0], self.job.program).schedule


def tiles_of(convolution: Convolution, target: Target, threads: int) -> tuple[int, ...] | None:
    """Return the tiles by which a convolution is computed fastest by minimal filtering, or None when plain sums are faster."""
    return fastest_tiles(convolution, machine_of(target, threads))
