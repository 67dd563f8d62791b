"""An operator that calls kernels which are not in the language: what lies between the calls is compiled part by part, all of it one native
call.

    bases    results, params, numbers, scratch

Sizes may be open. What differs from one combination of them to the next is told with a call, as numbers: sizes, those that kernels are
told, and where in the scratch memory each value in between and each workspace begins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from codegen.llvm.call import Callable as Native
from codegen.llvm.call import Port
from codegen.llvm.jit import Library
from codegen.llvm.pool import pool_imports
from codegen.llvm.program import KernelCall, Number, Slot, code_bits, emit_program, failed_call
from codegen.llvm.program import Program as Entry
from codegen.llvm.scratch import Scratch
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu import extern
from tensorlang.backends.cpu.executable import least_times, object_of, workspace_threads
from tensorlang.backends.cpu.loading import failure_on, loaded
from tensorlang.backends.cpu.ready import prepared_on, refusal_of, written_into
from tensorlang.backends.cpu.toolchain import Toolchain
from tensorlang.diagnostics import InternalError
from tensorlang.graph.externs import graph_of, trusted_call
from tensorlang.graph.nodes import Graph
from tensorlang.graph.plan import Arena, Plan, planned
from tensorlang.graph.programs import result_tensors
from tensorlang.graph.verify import verify
from tensorlang.planning import ScheduleRequest, by_parts
from tensorlang.room import check_room
from tensorlang.runtime.any_sizes import checked_numbers, serves
from tensorlang.runtime.feeds import row_major
from tensorlang.runtime.limits import Explained, proven_lines
from tensorlang.runtime.protocol import Timer
from tensorlang.runtime.report import us
from tensorlang.runtime.timing import mean_time
from tensorlang.tensor.nodes import ExternCall, Program
from tensorlang.tensor.segments import segments
from tensorlang.tensor.walk import caller_shape, substitute_sizes

Array = np.ndarray[Any, Any]
Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Part:
    """What lies between calls of kernels, compiled."""

    program: Program
    artifact: Artifact

    @property
    def threads(self) -> int:
        """For how many threads it needs scratch memory."""
        return workspace_threads(self.artifact)

    @property
    def workspace_name(self) -> str:
        return f"scratch of {self.program.name}"

    def workspace_bytes(self, sizes: Sizes) -> int:
        return self.artifact.workspace_bytes(self.threads, (*sizes.values(),) if self.artifact.sizes else ())


Step = Part | ExternCall


@dataclass(frozen=True, slots=True)
class _Numbering:
    """Which base a tensor, a number or a place in the scratch memory is: results and params come first, then numbers, then that memory."""

    program: Program
    steps: tuple[Step, ...]
    sizes: tuple[Affine, ...]
    """What numbers are told of sizes: those of the program, and what kernels that are not in the language are told."""
    places: tuple[str, ...]
    """What lies in the scratch memory: values in between by their names, and workspaces (`Part.workspace_name`)."""

    @property
    def tensors(self) -> tuple[str, ...]:
        return (*self.program.results, *(p.name for p in self.program.params))

    @property
    def scratch(self) -> int:
        return len(self.tensors) + len(self.sizes) + len(self.places)

    def size(self, size: Affine) -> int | Number:
        known = affine.constant(size)
        return Number(len(self.tensors) + self.sizes.index(size)) if known is None else known

    def slot(self, name: str) -> Slot:
        if name in self.tensors:
            return Slot(self.tensors.index(name))
        return Slot(self.scratch, shift=Number(len(self.tensors) + len(self.sizes) + self.places.index(name)))


def _numbering(program: Program, steps: tuple[Step, ...]) -> _Numbering:
    told = [size for step in steps if isinstance(step, ExternCall) for size in extern.open_sizes(step)]
    sizes = tuple(dict.fromkeys((*map(Name, program.sizes), *(size for size in told if affine.constant(size) is None))))
    given = {*program.results, *(p.name for p in program.params)}
    made = [name for step in steps for name in _made(step) if name not in given]
    return _Numbering(program, steps, sizes, (*made, *(step.workspace_name for step in steps if isinstance(step, Part))))


def _made(step: Step) -> tuple[str, ...]:
    return step.program.results if isinstance(step, Part) else tuple(t.name for t in step.results)


def _entry(numbering: _Numbering, tools: Toolchain) -> Entry:
    """Return the entry point that makes all steps in order."""
    steps, slot = numbering.steps, numbering.slot
    calls: list[KernelCall] = []
    for step in steps:
        match step:
            case Part(program, artifact):
                sizes = tuple(map(numbering.size, map(Name, program.sizes))) if artifact.sizes else ()
                calls.append(KernelCall(artifact.symbol, tuple(map(slot, artifact.params)), sizes, slot(step.workspace_name)))
            case ExternCall():
                names = (*(t.name for t in step.results), *(name for name in step.arguments if name is not None))
                symbol = extern.symbol_of(step, len(steps), tools.target)
                calls.append(KernelCall(symbol, tuple(map(slot, names)), tuple(map(numbering.size, extern.open_sizes(step)))))
    if any(len(step.artifact.requirements) >> code_bits(len(calls)) for step in steps if isinstance(step, Part)):
        raise InternalError("link", f"a kernel of {len(calls)} checks more than what its result has bits for")
    return Entry(tuple(calls), threads=tools.threads)


@dataclass(eq=False)
class AnySizesComposite:
    """Such an operator compiled (`tensorlang.runtime.protocol.AnySizes`). `fixed` are the sizes that are numbers in `program`."""

    program: Program
    steps: tuple[Step, ...]
    fixed: Sizes
    tools: Toolchain
    numbering: _Numbering = field(init=False)
    entry: Entry = field(init=False)
    library: Library = field(init=False)
    scratch: Scratch = field(init=False, default_factory=Scratch)
    """What calls at all sizes share."""

    def __post_init__(self) -> None:
        self.numbering = _numbering(self.program, self.steps)
        self.entry = _entry(self.numbering, self.tools)
        self.library = self.linked(timed=False)

    @property
    def is_plain(self) -> bool:
        return any(step.artifact.is_plain for step in self.steps if isinstance(step, Part))

    def fits(self, sizes: Sizes, arrays: Sequence[Array]) -> bool:
        """Tell whether this is the code for arrays that bind the operator's sizes to `sizes`."""
        return serves(self.program, self.fixed, sizes, arrays)

    def at(self, sizes: Sizes) -> Composite:
        """Return the native code for arrays of these sizes. Raises RunError R0315 as `Variant.at` does."""
        program, numbering = self.program, self.numbering
        known = dict(zip(program.sizes, checked_numbers(program, sizes), strict=True))
        graph = verify(graph_of(substitute_sizes(program, {name: affine.to_expr(value) for name, value in known.items()})))
        for value in graph.values.values():
            check_room(program.name, prod(value.shape) * value.dtype.size_bytes)
        plan = planned(graph, {s.program.name: s.workspace_bytes(known) for s in self.steps if isinstance(s, Part)})
        numbers = [affine.evaluate(size, known) for size in numbering.sizes]
        numbers += [_offset(plan, name) for name in numbering.places]
        ports = ([Port(t.name, t.dtype, caller_shape(t, known)) for t in of] for of in (program.params, result_tensors(program)))
        check_room(program.name, plan.arena_bytes)
        inputs, outputs = ports
        address = self.library.address(self.entry.name)
        failure = failure_on(self.tools.target, partial(_refusal, program, self.steps))
        native = Native(
            address,
            inputs,
            outputs,
            numbers=numbers,
            scratch_bytes=max(1, plan.arena_bytes),
            scratch=self.scratch,
            failure=failure,
        )
        return Composite(self, native, tuple(numbers), plan.arena_bytes, graph)

    def linked(self, timed: bool) -> Library:
        """Return the entry point with all that it calls, loaded. Raises CompileError C0114 to C0116 for kernels that are not to be had."""
        tools, calls = self.tools, [step for step in self.steps if isinstance(step, ExternCall)]
        objects = {step.artifact.symbol: step.artifact.object for step in self.steps if isinstance(step, Part)}
        for call in calls:
            symbol = extern.symbol_of(call, len(self.steps), tools.target)
            objects.setdefault(symbol, extern.object_of(call, len(self.steps), tools.target, tools.store))
        imports = {**pool_imports(), **extern.imports_of(calls, tools.target, tools.store)}
        text = emit_program(self.entry, tools.target, timed=timed)
        linked = (object_of(text, tools), *objects.values())
        digest = hashlib.sha256()
        for part in (*linked, repr(sorted(imports.items())).encode()):
            digest.update(f"{len(part)} ".encode() + part)
        with _LOCK:
            if digest.digest() not in _KEPT:
                _KEPT[digest.digest()] = loaded(linked, imports, self.entry.name, tools.target)
            return _KEPT[digest.digest()]


_KEPT: dict[bytes, Library] = {}
"""Loaded code, by its content, which stays for the life of the process: a native function may be held by anyone."""
_LOCK = Lock()


def _offset(plan: Plan, name: str) -> int:
    """Return where in the scratch memory a value or a workspace begins."""
    place = plan.places.get(name)
    if place is None:
        return plan.workspaces.get(name.removeprefix("scratch of "), 0)
    if not isinstance(place, Arena):
        raise InternalError("link", f"`{name}` lies in between, and is placed at {place}")
    return place.offset


def _refusal(program: Program, steps: Sequence[Step], result: int) -> BaseException:
    """Return the error for a run that stopped with `result`."""
    number, code = failed_call(result, len(steps))
    step = steps[number]
    return refusal_of(program, step.artifact, code) if isinstance(step, Part) else extern.status_error(step, code, len(steps))


@dataclass(frozen=True, slots=True, eq=False)
class Composite:
    """Such an operator as native code for arrays of one combination of shapes (`tensorlang.runtime.protocol.Ready`)."""

    made: AnySizesComposite
    native: Native
    numbers: tuple[int, ...]
    scratch_bytes: int
    graph: Graph

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """Return what was compiled of the language, in order."""
        return tuple(step.artifact for step in self.made.steps if isinstance(step, Part))

    @property
    def outputs(self) -> Sequence[Port]:
        return self.native.outputs

    @property
    def loops(self) -> str:
        return "\n".join(made.loops for made in self.artifacts)

    @property
    def direct(self) -> Native:
        return self.native

    @property
    def is_plain(self) -> bool:
        return self.made.is_plain

    def __call__(self, arrays: Sequence[Array]) -> Any:
        return self.native(*(row_major(a) for a in arrays))

    def into(self, arrays: Sequence[Array], results: Mapping[str, object]) -> Any:
        return written_into(self.native, arrays, results)

    def prepared(self, arrays: Sequence[Array], results: Mapping[str, object] | None) -> Callable[[], Any]:
        return prepared_on(self.native, arrays, results)

    def timer(self, arrays: Sequence[Array]) -> Timer:
        given = [row_major(a) for a in arrays]
        return lambda repeats: mean_time(lambda: self.native(*given), repeats)

    def explain(self, program: Program, arrays: Sequence[Array], roles: bool = False) -> Explained:
        """Return the report of one signature: for each part its schedule and its loops, the kernels that are trusted, and the times."""
        lines: list[str] = []
        for step, taken in zip(self.made.steps, self._timed(arrays), strict=True):
            match step:
                case Part(part, found):
                    lines += [f"part {part.name}, took {us(taken)}", "", found.schedule, "", f"schedule   {found.origin}", ""]
                    lines += [found.loops.rstrip(), ""]
                    lines += [*proven_lines("the order keeps all dependences of this part", found.trusted), ""]
                case ExternCall():
                    lines += [f"extern {step.operator}, took {us(taken)}", ""]
        calls = [step for step in self.made.steps if isinstance(step, ExternCall)]
        return Explained("\n".join((*lines, *dict.fromkeys(map(trusted_call, calls)))))

    def _timed(self, arrays: Sequence[Array]) -> list[float]:
        """Run a few times and return the fewest seconds that each step took."""
        library, entry = self.made.linked(timed=True), self.made.entry
        return least_times(self.native.timed(library.address(f"{entry.name}_timed"), len(entry.calls), arrays))


def composite(program: Program, tools: Toolchain, request: ScheduleRequest, sizes: Sizes | None = None) -> AnySizesComposite:
    """Return a program that calls such kernels, compiled; `sizes` are all of the operator's at the call it is made for.

    Raises CompileError for a schedule that is refused, S0605 where it reaches across a call, C0114 to C0116 for kernels that are not to be
    had."""
    wanted = {part.name: own for part, own in by_parts(program, request)}
    steps = tuple(_part(step, tools, wanted[step.name]) if isinstance(step, Program) else step for step in segments(program))
    fixed = {name: value for name, value in (sizes or {}).items() if name not in program.sizes}
    return AnySizesComposite(program, steps, fixed, tools)


def _part(program: Program, tools: Toolchain, request: ScheduleRequest) -> Part:
    made = tools.kernel(program, request, tools.store)
    return Part(program, made if request.schedule is None else replace(made, origin=request.origin))
