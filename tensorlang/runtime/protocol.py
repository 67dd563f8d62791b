"""What operators and models ask of the back end that they were compiled by; each folder of `tensorlang/backends` answers in its own way.

Tools       what the name of a target and its options come to: programs and graphs become code by them
Ready       a program that can be called, for one combination of types and shapes
Direct      its native code, for arrays of NumPy in the host's memory
AnySizes    one that serves all shapes
Runs        a model that can be run, for one combination of shapes
Workers     threads of its own
OpenRuns    one whose sizes are open
BoundRuns   one that runs on arrays with room for larger sizes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from codegen.store import Cache
from tensorlang.diagnostics import RunError
from tensorlang.graph.nodes import Buffer, Graph, Value
from tensorlang.graph.precisions import Precision
from tensorlang.graph.sizes import Symbols
from tensorlang.runtime.feeds import Place
from tensorlang.runtime.limits import Explained
from tensorlang.runtime.profile import Profile
from tensorlang.runtime.work import Roofline
from tensorlang.tensor.nodes import Program

if TYPE_CHECKING:  # the compiler itself, which running what is kept does without
    from tensorlang.graph.options import Options
    from tensorlang.graph.pass_manager import Pipeline
    from tensorlang.planning import Dump, ScheduleRequest
    from tensorlang.runtime.bundle import BundleKey
    from tensorlang.runtime.saving import SaveOptions
    from tensorlang.schedule.plan import Plan

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""
Roles: TypeAlias = Callable[[], tuple[Any, ...]]
"""Modules (`tensorlang.check.module.Module`) that state schedules for roles of equations, when they are needed."""
Timer: TypeAlias = Callable[[int], float]
"""Returns the seconds of a run, the mean of so many in a row."""


def quiet(what: str, done: int, total: int) -> None:
    """Do nothing with progress."""


def installed_roles() -> tuple[Any, ...]:
    """Return the modules of installed libraries that state schedules for roles."""
    from tensorlang.runtime import library

    return library.installed_roles()


class Direct(Protocol):
    """Native code for NumPy's arrays of one combination of types and shapes, in the order of the program's params."""

    @property
    def inputs(self) -> Sequence[Place]: ...

    @property
    def outputs(self) -> Sequence[Place]: ...

    @property
    def quick(self) -> Callable[..., Any] | None:
        """The code as a built-in function, which returns `NotImplemented` for arrays that are not just as expected, and a number where
        the code fails."""
        ...

    def quick_for_numbers(self, named: Sequence[bool]) -> Callable[..., Any] | None:
        """Return the same for callers that have numbers, too, for inputs without axes: those that Python has for the inputs whose element
        types are `named` where they are declared, NumPy's scalars of just the type for others."""
        ...

    @property
    def writes(self) -> Callable[..., Any] | None:
        """The same for arrays to write into, which come first, and those to read."""
        ...

    def failed(self, code: int) -> BaseException:
        """Return the exception for the number of a failure."""
        ...

    def __call__(self, *arrays: Any) -> Any:
        """Return the result, or a tuple where there are several; arrays that are not dense are copied. Raises RunError."""
        ...


class Ready(Protocol):
    """A program for arguments of one combination of types and shapes, in the order of its params."""

    @property
    def outputs(self) -> Sequence[Place]:
        """Its results."""
        ...

    @property
    def loops(self) -> str:
        """Its loops, or the text of its kernels, for people."""
        ...

    @property
    def direct(self) -> Direct | None:
        """Its native code, if that is for arrays of the host."""
        ...

    @property
    def is_plain(self) -> bool:
        """Whether its schedule is a plainer one than what would be derived first."""
        ...

    def __call__(self, arrays: Sequence[Any]) -> Any:
        """Return the result, or a tuple where there are several. Raises RunError."""
        ...

    def into(self, arrays: Sequence[Any], results: Mapping[str, object]) -> Any:
        """Return what a call returns, written into the arrays of `results`. Raises RunError as a call does, R0301 to R0305 and R0307 for
        results that do not fit."""
        ...

    def prepared(self, arrays: Sequence[Any], results: Mapping[str, object] | None) -> Callable[[], Any]:
        """Return the call on these arrays for good, writing into those of `results` or some of its own. Raises RunError as `into` does, and
        R0307 for arrays that it would have to copy."""
        ...

    def explain(self, program: Program, arrays: Sequence[Any], roles: bool = False) -> Explained:
        """Return what limits it, the schedule, what was proven, and the time. `program` is the one that was compiled, its sizes known;
        `roles`: name the schedules of roles, too, that are not for it."""
        ...

    def timer(self, arrays: Sequence[Any]) -> Timer:
        """Return what measures a call with these arrays, whose copies from and to a device are left out."""
        ...


class AnySizes(Protocol):
    """A program whose sizes are open, compiled."""

    @property
    def is_plain(self) -> bool:
        """As for `Ready`."""
        ...

    def fits(self, sizes: Mapping[str, int], arrays: Sequence[Any]) -> bool:
        """Tell whether this is the code for arrays that bind the operator's sizes to `sizes`."""
        ...

    def at(self, sizes: Mapping[str, int]) -> Ready:
        """Return it for arrays of these sizes. Raises RunError R0315."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """How many bytes a model's weights take, laid out as its kernels read them, and the arena of its values in between, which each thread
    that runs the model has one of."""

    weights_bytes: int
    arena_bytes: int


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """What a compiled model is, in numbers. `kernels` counts those of a run."""

    name: str
    kernels: int
    memory: MemoryUse
    weights: object = None
    """What holds the weights: the same where several combinations of shapes share them."""
    arena: object = None
    """What holds values in between: the same where several combinations share that."""


def memory_of(models: Sequence[ModelSummary]) -> MemoryUse:
    """Return what models take together: what several share counts once, an arena as the largest needs it."""
    weights, arenas = dict[int, int](), dict[int, int]()
    for found in models:
        weights[id(found if found.weights is None else found.weights)] = found.memory.weights_bytes
        arena = id(found if found.arena is None else found.arena)
        arenas[arena] = max(found.memory.arena_bytes, arenas.get(arena, 0))
    return MemoryUse(sum(weights.values()), sum(arenas.values()))


class Runs(Protocol):
    """A model for one combination of input shapes, wherever it runs. `outputs` are the model's names, in order."""

    @property
    def summary(self) -> ModelSummary: ...

    @property
    def inputs(self) -> tuple[Value, ...]: ...

    @property
    def outputs(self) -> tuple[Value, ...]: ...

    @property
    def quick(self) -> Callable[[Mapping[str, object]], Any]:
        """Return `run` as a built-in function, which returns something else than a dictionary for feeds that `run` has to look at."""
        ...

    def on(self, workers: Workers | None) -> Runs:
        """Return it with the same code and weights, its parallel loops on these threads and values in between in their memory; on threads
        that all models share and in memory of its own for None."""
        ...

    def run(self, feeds: Mapping[str, object], stream: object = None) -> dict[str, Any]: ...

    def with_element(self, refused: RunError, feeds: Mapping[str, object]) -> RunError:
        """Return what a run with `feeds` was refused for (R0306), with the element of the data that is at fault where it can be found."""
        ...

    def prepared(self, feeds: Mapping[str, object], results: Mapping[str, object] | None) -> Callable[[], dict[str, Any]]: ...

    def timer(self, feeds: Mapping[str, object]) -> Timer: ...

    def explain(self, feeds: Mapping[str, object] | None) -> str: ...

    def profile(self, feeds: Mapping[str, object]) -> Profile: ...

    def roofline(self) -> Roofline: ...

    def text(self, stage: str) -> str:
        """Return a stage of the model's code, one of `Tools.model_stages`."""
        ...


class Workers(Protocol):
    """What a model has of its own to run on: threads, which begin with the first parallel loop and end with this object, and memory for
    values in between, which all combinations of shapes share."""

    def entered(self) -> AbstractContextManager[None]:
        """Have the parallel loops that the calling thread comes to meanwhile on these threads."""
        ...


class OpenRuns(Protocol):
    """A model whose sizes are open, wherever it runs."""

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The inputs, whose extents may be sizes."""
        ...

    @property
    def kernels(self) -> int:
        """How many kernels it runs."""
        ...

    @property
    def symbols(self) -> Symbols:
        """The sizes that are open, and what was assumed of them."""
        ...

    def at(self, sizes: Mapping[str, int]) -> Runs:
        """Return the model for these values of its symbols, for which what was assumed holds; other names are ignored. Raises RunError
        R0315 where no machine has the memory."""
        ...


class BoundRuns(OpenRuns, Protocol):
    """One that is bound to arrays."""

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The outputs, as the inputs."""
        ...

    @property
    def buffers(self) -> Sequence[Buffer]:
        """The inputs that outputs are written behind."""
        ...

    def bound(self, most: Mapping[str, int], inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[[Mapping[str, int]], None]:
        """Return the model on these arrays for good: a function of the values of its symbols, none of which is above that in `most`. It
        looks at nothing. The function raises RunError R0306; this one R0315 where no machine has the memory."""
        ...


class Tools(Protocol):
    """What compiles programs and graphs for a target."""

    @property
    def name(self) -> str:
        """The target, as people name it."""
        ...

    @property
    def schedules_for(self) -> str:
        """What schedules are `for` that serve here."""
        ...

    def has(self, feature: str) -> bool:
        """Tell whether the processor that code is for has a feature, by LLVM's name for it."""
        ...

    @property
    def store(self) -> Cache | None:
        """The cache on disk, if there is one."""
        ...

    @property
    def threads(self) -> int:
        """How many threads of this machine are used, to run on a processor or to compile for something else."""
        ...

    @property
    def precision(self) -> Precision:
        """What contractions of models multiply in."""
        ...

    @property
    def options(self) -> tuple[object, ...]:
        """All that code depends on besides what it is made from, and whether it has to be validated."""
        ...

    @property
    def on_device(self) -> bool:
        """Whether code runs on a device with memory of its own."""
        ...

    @property
    def combinations(self) -> int:
        """For how many combinations of shapes at most code of a model stays in memory."""
        ...

    @property
    def passes(self) -> Pipeline:
        """The passes over graphs."""
        ...

    @property
    def model_stages(self) -> tuple[str, ...]:
        """Names of what `Runs.text` returns."""
        ...

    def graph_options(self) -> Options:
        """Return what is decided here of the passes over graphs."""
        ...

    def described(self, value: Any) -> Any:
        """Return `value`, or, where that lies on a device, an array that has its type and shape and no memory."""
        ...

    def shape_of(self, value: object, name: str) -> tuple[int, ...]:
        """Return the shape of an input. Raises RunError R0305 for what is no array."""
        ...

    def load_compiler(self) -> None:
        """Import what compiles operators, so that a process may be forked while it does."""
        ...

    def compiled(self, program: Program, name: str, request: ScheduleRequest) -> Ready:
        """Return a program compiled, from the cache where it is there. Raises CompileError for a schedule that is refused."""
        ...

    def with_any_sizes(self, program: Program, name: str, request: ScheduleRequest, sizes: Mapping[str, int]) -> AnySizes:
        """Return a program of open sizes compiled; `sizes` are those of the call that it is needed for. Raises CompileError, C0105 where
        that is not supported yet."""
        ...

    def shown(self, program: Program, name: str, request: ScheduleRequest, dump: Dump, stages: Sequence[str]) -> Any:
        """Compile without the cache, telling `dump` every stage, and of those that take further programs the ones in `stages`. Return
        what was made."""
        ...

    def planned(self, program: Program, request: ScheduleRequest) -> Plan:
        """Return the proven plan of a program. Raises CompileError."""
        ...

    def roofline(self, programs: Sequence[Program]) -> Roofline:
        """Return what programs have to do one after the other, and how fast that could be."""
        ...

    def workers(self, threads: int) -> Workers | None:
        """Return so many threads for a model of its own, and memory for values in between; None where its code has no use for either."""
        ...

    def kept(self, key: str, shared: dict[str, Any] | None) -> Runs | None:
        """Return the model that is kept under `key`, or None. `shared` is the same for all shapes of a model, None where there is one."""
        ...

    def kept_open_sizes(self, key: str) -> OpenRuns | None:
        """Return the model of open sizes that is kept under `key`, or None."""
        ...

    def built_open_sizes(
        self, loaded: Graph, progress: Progress, key: BundleKey | None, shared: Mapping[str, str] | None = None
    ) -> BoundRuns:
        """Return an imported graph of open sizes compiled, and keep it under `key` where that is given. `shared[output]` is the input that
        an output is written behind, in one buffer. Raises CompileError, and OpenSize where a number is needed."""
        ...

    def built(self, loaded: Graph, progress: Progress, key: BundleKey | None, shared: dict[str, Any] | None) -> Runs:
        """Return an imported graph compiled, and keep it under `key` where that is given. Raises CompileError."""
        ...

    def save_operator(self, program: Program, request: ScheduleRequest, folder: Path, options: SaveOptions) -> Path:
        """Write an operator, compiled for the targets that the options name, as a library into a folder; return that. Raises CompileError
        C0131 to C0133, C0203."""
        ...

    def save_model(self, load: Callable[[], Graph], progress: Progress, folder: Path, options: SaveOptions) -> Path:
        """Write a model, which `load` imports, as `save_operator` does."""
        ...
