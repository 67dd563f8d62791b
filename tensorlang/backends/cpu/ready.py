"""A program as native code that can be called, and what there is to tell about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from codegen.llvm.call import Callable as Native
from codegen.llvm.call import Port
from codegen.llvm.emit import emit, for_target
from codegen.llvm.emitted import Emitted
from codegen.llvm.inner_loops import inner_loops_of
from codegen.llvm.jit import assembly
from codegen.llvm.pool import pool_imports
from codegen.llvm.program import KernelCall, Number, Slot, emit_program, failed_call
from codegen.llvm.program import Program as Entry
from codegen.llvm.target import Target, runs_here
from codegen.loops.parser import parse as parse_loops
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu.executable import object_of, workspace_threads
from tensorlang.backends.cpu.limits import Kernel as KernelUnderStudy
from tensorlang.backends.cpu.limits import cycles_of, limits_of, roofline_limit
from tensorlang.backends.cpu.loading import failure_on, loaded, not_measured
from tensorlang.backends.cpu.roofline import Bound, bound_of, ceilings_for
from tensorlang.backends.cpu.toolchain import Toolchain
from tensorlang.diagnostics import CompileError, Diagnostic, RunError, Source
from tensorlang.graph.programs import result_tensors
from tensorlang.policy.select import read
from tensorlang.runtime.feeds import check_disjoint, in_place, named_arrays, row_major
from tensorlang.runtime.library import empty_module
from tensorlang.runtime.limits import Explained, Limit, case_lines, cycles_lines, limit_lines, proven_lines, tried_lines
from tensorlang.runtime.protocol import Timer
from tensorlang.runtime.report import bytes_text
from tensorlang.runtime.timing import best_time, mean_time
from tensorlang.runtime.work import Work, work_of
from tensorlang.schedule.apply import outline
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program, Tensor
from tensorlang.tensor.walk import caller_shape

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A program as native code."""

    program: Program
    artifact: Artifact
    native: Native
    threads: int
    target: Target
    sizes: Mapping[str, int] = field(default_factory=dict)
    """The sizes of the loops that are open in them, and numbers here."""

    @property
    def outputs(self) -> Sequence[Port]:
        return self.native.outputs

    @property
    def direct(self) -> Native:
        return self.native

    def __call__(self, arrays: Sequence[Array]) -> Any:
        return self.native(*(row_major(a) for a in arrays))

    @property
    def loops(self) -> str:
        return self.artifact.loops

    @property
    def is_plain(self) -> bool:
        return self.artifact.is_plain

    def into(self, arrays: Sequence[Array], results: Mapping[str, object]) -> Any:
        return written_into(self.native, arrays, results)

    def prepared(self, arrays: Sequence[Array], results: Mapping[str, object] | None) -> Callable[[], Any]:
        return prepared_on(self.native, arrays, results)

    def timer(self, arrays: Sequence[Array]) -> Timer:
        given = [row_major(a) for a in arrays]
        return lambda repeats: mean_time(lambda: self.native(*given), repeats)

    def explain(self, program: Program, arrays: Sequence[Array], roles: bool = False) -> Explained:
        """Return the report of one signature: what limits it, schedule, loops, compile time, and, where this machine runs it, the measured
        time with the work it stands for."""
        given = [row_major(a) for a in arrays]
        artifact, work = self.artifact, work_of(program)
        compiled = ", ".join(f"{stage} {ms:.1f} ms" for stage, ms in artifact.times_ms.items())
        kernel = self._looked_into(program)
        first, measured = self._measured(program, work, given)
        limits = (first, *limits_of(kernel))
        cycles = cycles_of(kernel, self.target.cpu) if self.target.is_x86 else ()
        text = "\n".join(
            [
                *limit_lines(limits),
                *cycles_lines(cycles),
                "",
                artifact.schedule,
                "",
                f"schedule   {artifact.origin}",
                *tried_lines(artifact.tried, roles),
                *case_lines(artifact.cases),
                *(f"\n# {case.range}\n{case.schedule}" for case in artifact.cases[:-1]),
                "",
                artifact.loops.rstrip(),
                "",
                *proven_lines(f"the order keeps {_dependences(program)}", artifact.trusted),
                f"compiled   {compiled}{' (from the cache)' if artifact.cached else ''}",
                *measured,
            ]
        )
        return Explained(text, limits, cycles, artifact.cases)

    def _measured(self, program: Program, work: Work, arrays: Sequence[Array]) -> tuple[Limit, list[str]]:
        """Return what the roofline says of a run, and the lines about its time."""
        if not runs_here(self.target):
            amount = f"{work.flops:.3g} operations, {bytes_text(work.moved_bytes)} in and out"
            return Limit("roofline", f"{amount}, {not_measured(self.target)}"), [f"time       {not_measured(self.target)}"]
        seconds = best_time(lambda: self.native(*arrays))
        bound = bound_of(work, ceilings_for(program, self.threads, self.target))
        lines = [f"time       {_seconds(seconds)}", *_rates(work, seconds), _roofline(bound, work, seconds)]
        return roofline_limit(bound, work, seconds), lines

    def _looked_into(self, program: Program) -> KernelUnderStudy:
        """Return the kernel with what emission and LLVM tell of it. `program` is the one with sizes that are numbers."""
        function, record = for_target(parse_loops(self.artifact.loops), self.target), Emitted()  # reads as they are emitted
        text = emit(function, self.target, record=record)
        # What a file's own instructions were put in for is other code than this.
        inner = () if " tensorize " in self.artifact.schedule else inner_loops_of(assembly(text, self.target, comments=True))
        lanes = self.target.vector_bits // 32
        scheduled, named = _scheduled(program, self.artifact.schedule)
        return KernelUnderStudy(scheduled, named, function, record, inner, lanes, self.threads, self.sizes)


def _scheduled(program: Program, schedule: str) -> tuple[Program, frozenset[str]]:
    """Return a program as the text of its schedule rewrites it, and the loops that it has then by their full names; as it is where the
    schedule names instructions of its file."""
    (written,) = (d for d in parse(Source("", schedule)).declarations if isinstance(d, sx.Schedule))
    try:
        found = outline(program, read(empty_module(), written, program).schedule)
    except CompileError:
        return program, frozenset()
    return found.program, frozenset(loop for loops in found.loops.values() for loop in loops)


def written_into(native: Native, arrays: Sequence[Array], results: Mapping[str, object]) -> Any:
    """Return what native code makes of arrays, written into those of `results` (`Ready.into`)."""
    places = in_place(results, native.outputs, "output")
    inputs = [row_major(a) for a in arrays]
    check_disjoint(named_arrays(native.inputs, inputs), named_arrays(native.outputs, places))
    native.into(places, inputs)
    return _given(results, native)


def prepared_on(native: Native, arrays: Sequence[Array], results: Mapping[str, object] | None) -> Callable[[], Any]:
    """Return the call of native code on these arrays for good (`Ready.prepared`)."""
    if results is None:
        results = {p.name: np.empty(p.shape, p.dtype.numpy) for p in native.outputs}
    inputs = in_place(named_arrays(native.inputs, arrays), native.inputs, "input")
    places = in_place(results, native.outputs, "output")
    check_disjoint(named_arrays(native.inputs, inputs), named_arrays(native.outputs, places))
    again, found = native.bound(inputs, places), _given(results, native)

    def run() -> Any:
        again()
        return found

    return run


def _given(results: Mapping[str, object], native: Native) -> Any:
    """Return the arrays of `results` as a call returns results, whatever library they are of."""
    found = [results[port.name] for port in native.outputs]
    return found[0] if len(found) == 1 else tuple(found)


def native_of(program: Program, artifact: Artifact, tools: Toolchain) -> Native:
    """Return the artifact as a function of arrays in the order of the program's parameters."""
    scratch = artifact.workspace_bytes(workspace_threads(artifact, tools.pool_threads))
    return Native(
        linked(program, artifact, tools, scratch=bool(scratch)),
        [_port(p) for p in program.params],
        [_port(r) for r in result_tensors(program)],
        scratch_bytes=scratch,
        failure=failure_on(tools.target, partial(refusal_of, program, artifact)),
    )


def linked(program: Program, artifact: Artifact, tools: Toolchain, *, numbers: int = 0, scratch: bool) -> int:
    """Return the address of a loaded entry point that calls a kernel: its bases are results, params, so many sizes and scratch memory."""
    entry = entry_of(program, artifact, tools, numbers=numbers, scratch=scratch)
    objects = (object_of(emit_program(entry, tools.target), tools), artifact.object)
    library = loaded(objects, pool_imports(), entry.name, tools.target)
    _KEPT.append(library)
    return library.address(entry.name)


def entry_of(program: Program, artifact: Artifact, tools: Toolchain, *, numbers: int, scratch: bool) -> Entry:
    """Return the entry point that calls a kernel: its bases are results, params, so many sizes and scratch memory."""
    names = [*program.results, *(p.name for p in program.params)]
    sizes = tuple(Number(len(names) + k) for k in range(numbers))
    slots = tuple(Slot(names.index(name)) for name in artifact.params)
    call = KernelCall(artifact.symbol, slots, sizes, Slot(len(names) + numbers) if scratch else None)
    return Entry((call,), threads=tools.threads if " parallel" in artifact.loops else 1)


_KEPT: list[object] = []
"""Loaded code stays for the life of the process: a native function may be held by anyone."""


def refusal_of(program: Program, artifact: Artifact, result: int) -> RunError:
    """Return the error for a call that stopped with `result`."""
    _, code = failed_call(result)
    known = artifact.requirements[code - 1] if 0 < code <= len(artifact.requirements) else None
    what = "these sizes" if known is not None and not known.tensor else "this data"
    found = f"check {code} failed" if known is None else known.text
    return RunError(Diagnostic("R0306", f"`{program.name}` cannot go on with {what}", notes=(found,)))


def _port(tensor: Tensor) -> Port:
    return Port(tensor.name, tensor.dtype, caller_shape(tensor, {}))


def _dependences(program: Program) -> str:
    count = len(program.definitions)
    return f"all dependences among {count} tensors" if count > 1 else "all dependences"


def _rates(work: Work, seconds: float) -> Iterator[str]:
    if work.flops:
        yield f"work       {work.flops:.3g} operations, {work.flops / seconds * 1e-9:.1f} G/s"
    yield f"memory     {work.moved_bytes:.3g} bytes in and out, {work.moved_bytes / seconds * 1e-9:.1f} GB/s"


def _roofline(bound: Bound, work: Work, seconds: float) -> str:
    return (
        f"roofline   {work.intensity:.3g} operations a byte, bound by {bound.by}: at best {_seconds(bound.seconds)}, "
        f"reached {bound.seconds / seconds:.0%}"
    )


def _seconds(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
