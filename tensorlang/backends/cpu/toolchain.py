"""What compiles operators and models for processors, by the name of a kind of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from pickle import PicklingError
from time import perf_counter
from typing import TYPE_CHECKING, Any

from codegen.forks import import_whole
from codegen.llvm import pool
from codegen.llvm.scratch import Scratch
from codegen.llvm.target import LEVEL, LevelError, Target, TargetError, host, named, runs_here
from codegen.store import Cache
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu.executable import Workers, assembled
from tensorlang.diagnostics import error
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.passes.memory.layout import prefer_derived
from tensorlang.graph.precisions import F32, Precision, chosen
from tensorlang.runtime.bundle import BundleKey, kept
from tensorlang.runtime.feeds import as_array
from tensorlang.runtime.kernel_log import log_cases, log_kernel
from tensorlang.runtime.protocol import AnySizes, Progress, Ready, Roles, installed_roles
from tensorlang.runtime.threads import default_threads
from tensorlang.runtime.work import Roofline
from tensorlang.schedule.layout import Layout
from tensorlang.targets import HOST
from tensorlang.tensor.nodes import Program
from tensorlang.validation.budget import validation_budget

if TYPE_CHECKING:
    from tensorlang.backends.cpu.model import Specialised
    from tensorlang.backends.cpu.open_sizes import OpenExecutable
    from tensorlang.graph.options import Options
    from tensorlang.graph.pass_manager import Pipeline
    from tensorlang.planning import Dump, ScheduleRequest
    from tensorlang.runtime.jobs import Job
    from tensorlang.runtime.saving import SaveOptions
    from tensorlang.runtime.schedule_book import ScheduleBook
    from tensorlang.schedule.plan import Plan
    from tensorlang.tensor.winograd import Convolution


@dataclass(frozen=True, slots=True)
class Toolchain:
    """How kernels become native code (`tensorlang.runtime.protocol.Tools`). The compiler is imported where something is compiled."""

    target: Target
    threads: int
    store: Cache | None
    roles: Roles = installed_roles
    """What states schedules of roles for kernels of models."""
    winograd: bool = True
    """Whether convolutions of models may be computed by minimal filtering."""
    precision: Precision = F32
    """What contractions of models multiply in."""
    made: Callable[[], Toolchain] | None = field(default=None, compare=False, repr=False)
    """Makes the same toolchain in another process."""
    ahead: bool = False
    """Whether its code is to run in other processes than this one."""
    schedules: ScheduleBook | None = None
    """Schedules for kernels of models, where somebody has some."""

    @property
    def pool_threads(self) -> int | None:
        """How many threads there are at most where its code runs elsewhere: those it is made for; None in this process."""
        return self.threads if self.ahead else None

    @property
    def options(self) -> tuple[object, ...]:
        """Return all that code of this toolchain depends on besides what it is made from, and whether it has to be validated."""
        written = self.schedules.digest if self.schedules is not None else ""
        return self.target, self.threads, self.winograd, self.precision.used, self.precision.least, bool(validation_budget()), written

    def __reduce__(self) -> tuple[Callable[[], Toolchain], tuple[()]]:
        if self.made is None:
            raise PicklingError("a toolchain put together by hand cannot be pickled: make one with `toolchain(…)`")
        return self.made, ()

    def compile(self, jobs: Sequence[Job], progress: Progress) -> Sequence[Artifact]:
        """Return the compiled kernels of jobs, in order."""
        from tensorlang.backends.cpu.kernels import compiled_with

        made = compiled_with(self.roles(), jobs, self.target, self.threads, self.store, progress, self.schedules)
        for job, artifact in zip(jobs, made, strict=True):
            log_cases(job.program.name, artifact.cases)
        return made

    def preferred_layouts(self, graph: Graph) -> Callable[[Kernel], Mapping[str, Layout]]:
        """Return what tells the layouts that a kernel of the graph would like."""
        from tensorlang.backends.cpu.driver import preferred_layouts

        def derive(
            program: Program, constants: frozenset[str], fixed: frozenset[str], layouts: Mapping[str, Layout], at: Mapping[str, int]
        ) -> Mapping[str, Layout]:
            return preferred_layouts(program, self.target, constants, layouts, self.threads, fixed, at)

        return prefer_derived(derive)(graph)

    def tiles(self, found: Convolution) -> tuple[int, ...] | None:
        """Return the tiles by which to compute a convolution by minimal filtering, None for plain sums."""
        from tensorlang.backends.cpu.kernels import tiles_of

        return tiles_of(found, self.target, self.threads) if self.winograd else None

    @property
    def name(self) -> str:
        return HOST if self.target == host() else self.target.name

    @property
    def schedules_for(self) -> str:
        return HOST

    def has(self, feature: str) -> bool:
        return feature in self.target.needs.features

    @property
    def on_device(self) -> bool:
        return False

    @property
    def combinations(self) -> int:
        return 64

    @property
    def passes(self) -> Pipeline:
        from tensorlang.graph.pipeline import PROCESSOR

        return PROCESSOR

    @property
    def model_stages(self) -> tuple[str, ...]:
        return ()

    def graph_options(self) -> Options:
        from tensorlang.backends.cpu.build import options_of

        return options_of(self)

    def described(self, value: Any) -> Any:
        return value

    def shape_of(self, value: object, name: str) -> tuple[int, ...]:
        shape: tuple[int, ...] = as_array(value, name).shape
        return shape

    def load_compiler(self) -> None:
        import_whole("ml_dtypes", *(f"tensorlang.backends.cpu.{name}" for name in ("driver", "ready", "sized")))

    def compiled(self, program: Program, name: str, request: ScheduleRequest) -> Ready:
        if program.externs:
            from tensorlang.backends.cpu.composite import composite

            return composite(program, self, request).at({})
        from tensorlang.backends.cpu.ready import Compiled, native_of

        made = self.kernel(program, request, self.store)
        return Compiled(program, made, native_of(program, made, self), self.threads, self.target)

    def with_any_sizes(self, program: Program, name: str, request: ScheduleRequest, sizes: Mapping[str, int]) -> AnySizes:
        if program.externs:
            from tensorlang.backends.cpu.composite import composite

            return composite(program, self, request, sizes)
        from tensorlang.backends.cpu.sized import variant

        return variant(program, request, sizes, self)

    def shown(self, program: Program, name: str, request: ScheduleRequest, dump: Dump, stages: Sequence[str]) -> Artifact:
        return self.kernel(program, request, None, dump)

    def kernel(self, program: Program, request: ScheduleRequest, store: Cache | None, dump: Dump | None = None) -> Artifact:
        """Return the kernel of a program under the schedule that is wanted. Raises CompileError for one that is refused."""
        from tensorlang.backends.cpu.driver import compile_kernel

        start = perf_counter()
        made = compile_kernel(
            program,
            self.target,
            schedule=request.schedule,
            rules=request.rules,
            knobs=request.knobs,
            threads=self.threads,
            store=store,
            dump=dump,
        )
        log_kernel(program, "found in the cache" if made.cached else "compiled", made.origin, perf_counter() - start, self)
        log_cases(program.name, made.cases)
        return made

    def planned(self, program: Program, request: ScheduleRequest) -> Plan:
        from tensorlang.backends.cpu.driver import machine_of, plan_kernel

        machine = machine_of(self.target, self.threads)
        return plan_kernel(program, machine, request.schedule, request.knobs, rules=request.rules).plan

    def roofline(self, programs: Sequence[Program]) -> Roofline:
        from tensorlang.backends.cpu.roofline import roofline_of

        return roofline_of(programs, self.threads, self.target)

    def workers(self, threads: int) -> Workers:
        return Workers(pool.Pool(threads) if self.threads > 1 and runs_here(self.target) else None, Scratch())

    def kept(self, key: str, shared: dict[str, Any] | None) -> Specialised | None:
        import_whole("tensorlang.backends.cpu.model")
        from tensorlang.backends.cpu.model import Specialised

        found = kept(key, self.store)
        if found is None:
            return None
        parts, block = found
        return Specialised(assembled(replace(parts, constants=block), self))

    def kept_open_sizes(self, key: str) -> OpenExecutable | None:
        import_whole("tensorlang.backends.cpu.open_sizes")
        from tensorlang.backends.cpu.open_sizes import open_executable

        found = kept(key, self.store)
        if found is None:
            return None
        made, block = found
        return open_executable(replace(made, parts=replace(made.parts, constants=block)), self)

    def save_operator(self, program: Program, request: ScheduleRequest, folder: Path, options: SaveOptions) -> Path:
        from tensorlang.backends.cpu.saving import save_operator

        return save_operator(self, program, request, folder, options)

    def save_model(self, load: Callable[[], Graph], progress: Progress, folder: Path, options: SaveOptions) -> Path:
        from tensorlang.backends.cpu.saving import save_model

        return save_model(self, load, progress, folder, options)

    def built_open_sizes(
        self, loaded: Graph, progress: Progress, key: BundleKey | None, shared: Mapping[str, str] | None = None
    ) -> OpenExecutable:
        import_whole("tensorlang.backends.cpu.open_sizes", *_BUILDING)
        from tensorlang.backends.cpu.open_sizes import built_open

        return built_open(loaded, self, progress, key, shared or {})

    def built(self, loaded: Graph, progress: Progress, key: BundleKey | None, shared: dict[str, Any] | None) -> Specialised:
        import_whole(*_BUILDING)
        from tensorlang.backends.cpu.build import built
        from tensorlang.backends.cpu.model import Specialised

        return Specialised(built(loaded, self, progress, key))


_BUILDING = ("ml_dtypes", *(f"tensorlang.backends.cpu.{name}" for name in ("build", "driver", "kernels", "model")))
"""What compiles models."""


def toolchain(
    target: str = HOST,
    threads: int | None = None,
    *,
    cache: bool = True,
    roles: Roles = installed_roles,
    winograd: bool = True,
    precision: str = "f32",
    force_precision: bool = False,
    schedules: object = None,
) -> Toolchain:
    """Return the toolchain for a target by name (`cpu` is this machine) and a number of threads (None: `$TENSORLANG_THREADS`, or as many as
    this process may use; for another machine, one). Kernels of models have the schedules of roles that the modules of `roles` state, or
    derived ones. `winograd`: convolutions of models may be computed by minimal filtering, those in f32. `precision`: what their
    contractions are asked to multiply in, `force_precision`: also where that does not pay. `schedules`: a book of schedules for kernels of
    models, or the path of one.

    Raises CompileError C0101 for a target that is not known, C0102 for a level that this machine cannot stand for, C0103 for a precision
    that is not known, C0107 for `threads` that are no number of them, C0108 for `winograd` or `force_precision` that is neither True nor
    False, C0109 for `$TENSORLANG_THREADS` that is no number of threads, C0145 for `schedules` that are none."""
    check_options(threads, winograd, force_precision)
    machine = target_named(target)
    count = _threads_of(machine, threads)
    store = Cache() if cache else None
    multiplied = chosen(precision, machine, force_precision)
    book = _book_of(schedules)
    made = partial(
        toolchain,
        target,
        threads,
        cache=cache,
        roles=roles,
        winograd=winograd,
        precision=precision,
        force_precision=force_precision,
        schedules=book,
    )
    return Toolchain(machine, count, store, roles, winograd and multiplied.used != "bf16", multiplied, made, schedules=book)


def _book_of(schedules: object) -> ScheduleBook | None:
    if schedules is None:
        return None
    from tensorlang.runtime.schedule_book import schedule_book

    return schedule_book(schedules)


def check_options(threads: object, winograd: object, force_precision: object) -> None:
    """Raise CompileError C0107 for what is no number of threads, C0108 for what is neither True nor False."""
    if threads is not None and (not isinstance(threads, Integral) or isinstance(threads, bool) or threads < 1):
        raise error("C0107", f"`threads` is {threads!r}", help="give a whole number from 1, or `None` for all processors")
    for name, given in (("winograd", winograd), ("force_precision", force_precision)):
        if not isinstance(given, bool):
            raise error("C0108", f"`{name}` is {given!r}", help="it is `True` or `False`")


def _threads_of(machine: Target, asked: int | None) -> int:
    """Return for how many threads to compile: what this machine has says nothing about another."""
    if machine.is_wasm:
        return 1
    if not runs_here(machine):
        return 1 if asked is None else int(asked)
    return default_threads() if asked is None else min(int(asked), pool.available_threads())


def target_named(name: str) -> Target:
    """Return the target called `name`. Raises CompileError C0101 when there is none, C0102 for a level that this machine cannot stand
    for."""
    try:
        return named("host" if name == HOST else name)
    except LevelError as problem:
        raise error(
            "C0102", str(problem), help=f"name a level that this machine has, or unset `{LEVEL}`: `tensorlang doctor` tells what it has"
        ) from None
    except TargetError as problem:
        raise error("C0101", str(problem), help="`cpu` is this machine, `cuda` its GPU") from None
