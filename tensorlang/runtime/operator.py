"""Operators of a `.tl` file, called with arrays.

    ops = tl.load("my_ops.tl")
    y = ops.linear(x, w, b)              positional arguments are the tensors, in order; attributes, sizes and tensors may be named
    ops.conv2d(x, w, stride=2)

A call is compiled once for each combination of dtypes, shapes and attributes, with all sizes known, and kept on disk. Of operators with
symbolic sizes, once for each combination of dtypes, ranks and attributes (and each schedule that sizes choose among those the file states).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from codegen.dtypes import DTYPES, from_numpy
from codegen.forks import Lock
from codegen.llvm.call import ArgumentError, Port
from codegen.llvm.call import Callable as Native
from codegen.llvm.jit import load
from codegen.llvm.pool import pool_imports
from codegen.llvm.program import KernelCall, Slot, emit_program, failed_call
from codegen.llvm.program import Program as Entry
from codegen.store import Cache
from polyhedral.record import recording
from tensorlang.artifact import Artifact
from tensorlang.check.instantiate import ArgType, bound, instantiate
from tensorlang.check.modes import Mode
from tensorlang.check.module import Module, load_module
from tensorlang.diagnostics import Diagnostic, InternalError, Label, RunError, Source, error
from tensorlang.driver import Dump, Rules, compile_kernel, machine_of, plan_kernel
from tensorlang.graph.programs import result_tensors
from tensorlang.policy.select import applicable, read
from tensorlang.policy.uncalled import check_written
from tensorlang.room import no_room
from tensorlang.runtime.executable import Toolchain, object_of, workspace_threads
from tensorlang.runtime.feeds import as_array, row_major
from tensorlang.runtime.library import Roles, installed_roles, with_roles
from tensorlang.runtime.proofs import shown_proofs
from tensorlang.runtime.roofline import Bound, bound_of, ceilings_for, roofline_of
from tensorlang.runtime.sized import Variant, sizes_in, variant
from tensorlang.runtime.toolchain import toolchain
from tensorlang.runtime.work import Roofline, Work, work_of
from tensorlang.schedule.check import verdict_of
from tensorlang.schedule.guards import facts
from tensorlang.schedule.plan import Plan
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import header
from tensorlang.tensor.nodes import Program, Tensor
from tensorlang.tensor.prove import prove
from tensorlang.tensor.walk import caller_shape
from tensorlang.tensor.widths import LARGEST

Array = np.ndarray[Any, Any]
TARGET = "cpu"


@dataclass(frozen=True, slots=True)
class Call:
    """One call, sorted out: what instantiation needs, and the arrays in the order of the program's parameters."""

    types: tuple[ArgType | tuple[ArgType, ...] | None, ...]
    attrs: dict[str, object]
    sizes: dict[str, Any]
    arrays: tuple[Array, ...]

    @property
    def kind(self) -> tuple[object, ...]:
        """Return what is the same for calls that differ in sizes alone."""
        return (*(tuple(map(_kind, t)) if isinstance(t, tuple) else _kind(t) for t in self.types), repr(sorted(self.attrs.items())))

    @property
    def key(self) -> tuple[object, ...]:
        return (self.types, *(repr(sorted(d.items())) for d in (self.attrs, self.sizes)))


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """An operator for one signature."""

    program: Program
    artifact: Artifact
    native: Native


def _kind(t: ArgType | None) -> tuple[object, int] | None:
    return None if t is None else (t.dtype, len(t.shape))


KEPT_SHAPES = 512
"""For how many combinations of shapes an operator with symbolic sizes keeps what its sizes are."""


@dataclass(eq=False)
class Operator:
    """An operator; call it with arrays."""

    name: str
    module: Module
    tools: Toolchain
    roles: Roles = installed_roles
    given: Schedule | sx.Schedule | None = None
    knobs: Mapping[str, int] = field(default_factory=dict)
    symbolic: bool = False
    _made: dict[tuple[object, ...], Compiled] = field(default_factory=dict, repr=False)
    _variants: dict[tuple[object, ...], list[Variant]] = field(default_factory=dict, repr=False)
    _shapes: dict[tuple[object, ...], Native] = field(default_factory=dict, repr=False)
    _last: Native | None = field(default=None, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """Return the result as a new array, or a tuple when the operator has several.

        Raises RunError for arguments that do not fit, CompileError for a schedule that is refused."""
        if self._last is not None and not named:
            try:
                return self._last(*args)
            except ArgumentError:
                pass  # another signature, or arrays of another kind: sorted out below
            except MemoryError:
                raise no_room(self.name) from None
        try:
            return self._called(args, named)
        except MemoryError:
            raise no_room(self.name) from None

    def _called(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Return the result of a call that is not like the last."""
        if self._shapes and not named:
            found = self._shapes.get(tuple(map(_shape, args)))
            if found is not None:
                self._last = found
                return found(*args)
        call = sorted_out(self.declaration, args, named)
        made = self.compiled(call)
        if not named and all(isinstance(a, np.ndarray) for a in args):
            self._last = made.native
            if self.symbolic:
                _remember(self._shapes, tuple(map(_shape, args)), made.native)
        return made.native(*(row_major(a) for a in call.arrays))

    def __reduce__(self) -> tuple[Callable[..., Operator], tuple[object, ...]]:
        """Pickled is what the operator was made of; what was compiled stays in the cache."""
        return Operator, (self.name, self.module, self.tools, self.roles, self.given, dict(self.knobs), self.symbolic)

    @property
    def scheduled_for(self) -> str:
        """The target whose schedules serve the operator."""
        return TARGET

    @property
    def declaration(self) -> sx.Operator:
        return self.module.operators[self.name]

    @property
    def signature(self) -> str:
        """The operator's header, as the file writes it."""
        return header(self.declaration)

    def schedule(self, schedule: Schedule | str | None, **knobs: int) -> Operator:
        """Return the same operator under another schedule: a `Schedule`, the text of one, or None for the file's own or a derived one.

        Raises CompileError when the text cannot be read; whether it is legal is proven when the operator is called."""
        if not isinstance(schedule, (str, Schedule)) and schedule is not None:
            raise error("S0604", f"a schedule is expected, not {schedule!r}", help="pass the text of one, a `Schedule`, or None")
        given = self._read(schedule, knobs) if isinstance(schedule, str) else schedule
        return self._under(given, knobs)

    def _under(self, given: Schedule | sx.Schedule | None, knobs: Mapping[str, int]) -> Operator:
        return Operator(self.name, self.module, self.tools, self.roles, given, knobs, self.symbolic)

    def explain(self, /, *args: Any, **named: Any) -> str:
        """Return what is computed, the schedule, the loops, what was proven, and the time against what this machine could do."""
        call = sorted_out(self.declaration, args, named)
        made = self.compiled(call)
        known = replace(made, program=self._checked(call, symbolic=False)) if self.symbolic else made
        return explain(known, [row_major(a) for a in call.arrays], self.tools.threads)

    def proofs(self, /, *args: Any, **named: Any) -> str:
        """Return what is proven of the kernel for arguments like these, each statement as sets and maps of isl. Proves it once more."""
        call = sorted_out(self.declaration, args, named)
        with recording() as meaning:
            program = self._program(call)
        plan = self._plan(program, call)
        with recording() as order:
            verdict_of(plan)
        return shown_proofs(program, meaning, order)

    def roofline(self, /, *args: Any, **named: Any) -> Roofline:
        """Return what there is to do for arguments like these, and how fast this machine could do it."""
        return roofline_of([self._checked(sorted_out(self.declaration, args, named), symbolic=False)], self.tools.threads)

    def program(self, /, *args: Any, **named: Any) -> Program:
        """Return the operator as tensor IR for arguments like these."""
        return self._program(sorted_out(self.declaration, args, named))

    def stages(self, /, *args: Any, dump: Dump, **named: Any) -> Artifact:
        """Compile without the cache, telling `dump` every stage: schedule, loops, llvm, asm."""
        call = sorted_out(self.declaration, args, named)
        return self._artifact(self._program(call), call, self._at(call)[0] if self.symbolic else None, dump=dump)

    def compiled(self, call: Call) -> Compiled:
        """Return the native code for a call."""
        key = call.key
        with self._lock:
            if key not in self._made:
                _remember(self._made, key, self._sized(call) if self.symbolic else self._compile(call))
            return self._made[key]

    def _program(self, call: Call) -> Program:
        return self._checked(call, self.symbolic)

    def _checked(self, call: Call, symbolic: bool) -> Program:
        program = instantiate(self.module, self.name, call.types, call.attrs, call.sizes, symbolic=symbolic)
        prove(program)
        return program

    def _sized(self, call: Call) -> Compiled:
        """Return the kernel for any sizes as a function of arrays of the sizes at hand. Raises CompileError R02xx as for known sizes."""
        sizes, schedule = self._at(call)
        found = self._variants.setdefault((*call.kind, schedule), [])
        fitting = next((v for v in found if v.fits(sizes, call.arrays)), None)
        if fitting is None:
            fitting = self._variant(call, sizes)
            if not fitting.fits(sizes, call.arrays):
                self._checked(call, symbolic=False)
                raise InternalError("sizes", f"`{self.name}` compiled for any sizes does not fit {sizes}")
            found.append(fitting)
        return Compiled(fitting.program, fitting.artifact, fitting.at(sizes))

    def _at(self, call: Call) -> tuple[dict[str, int], str | None]:
        """Return the sizes of a call, and which of the file's schedules of this operator they choose."""
        values = bound(self.module, self.name, call.types, call.attrs, call.sizes)
        sizes = sizes_in(values)
        open_ = [name for name, size in sizes.items() if size is None]
        if open_:
            raise RunError(Diagnostic("R0313", f"`{self.name}` is not given {', '.join(f'`{n}`' for n in open_)}"))
        schedule = applicable(self.module, self.name, TARGET, facts(values, {})) if self.given is None else None
        return {name: size for name, size in sizes.items() if size is not None}, schedule

    def _variant(self, call: Call, sizes: Mapping[str, int]) -> Variant:
        program = self._program(call)
        artifact = self._artifact(program, call, sizes, store=self.tools.store)
        return variant(program, artifact, sizes, self.tools, lambda code: _refusal(program, artifact, code))

    def _compile(self, call: Call) -> Compiled:
        sizes_given(self.declaration, call)
        program = self._program(call)
        artifact = self._artifact(program, call, store=self.tools.store)
        return Compiled(program, artifact, native_of(program, artifact, self.tools))

    def _artifact(
        self,
        program: Program,
        call: Call,
        at: Mapping[str, int] | None = None,
        *,
        store: Cache | None = None,
        dump: Dump | None = None,
    ) -> Artifact:
        target, threads = self.tools.target, self.tools.threads
        match self.given:
            case None:
                module = with_roles(self.module, self.roles())
                rules = Rules(module, self.name, call.attrs, _named(program, call.sizes), self.knobs, at, TARGET)
                return compile_kernel(program, target, rules=rules, threads=threads, store=store, dump=dump)
            case sx.Schedule() as written:
                schedule = self._written(written, program, call)
                return compile_kernel(program, target, schedule=schedule, threads=threads, store=store, dump=dump)
            case schedule:
                return compile_kernel(program, target, schedule=schedule, knobs=self.knobs, threads=threads, store=store, dump=dump)

    def _plan(self, program: Program, call: Call) -> Plan:
        """Return the proven plan of the schedule that serves a call."""
        machine = machine_of(self.tools.target, self.tools.threads)
        match self.given:
            case None:
                at = self._at(call)[0] if self.symbolic else None
                rules = Rules(
                    with_roles(self.module, self.roles()), self.name, call.attrs, _named(program, call.sizes), self.knobs, at, TARGET
                )
                return plan_kernel(program, machine, rules=rules).plan
            case sx.Schedule() as written:
                return plan_kernel(program, machine, self._written(written, program, call)).plan
            case schedule:
                return plan_kernel(program, machine, schedule, self.knobs).plan

    def _written(self, written: sx.Schedule, program: Program, call: Call) -> Schedule:
        return read(self.module, written, program, self.knobs, attrs=call.attrs, sizes=_named(program, call.sizes)).schedule

    def _read(self, text: str, knobs: Mapping[str, int]) -> sx.Schedule:
        target = self.scheduled_for
        body = text if text.lstrip().startswith("schedule") else f"schedule {self.name} for {target} {{\n{text}\n}}"
        found = [d for d in parse(Source("<schedule>", body)).declarations if isinstance(d, sx.Schedule)]
        if len(found) != 1:
            raise error("S0604", f"one schedule is expected, {len(found)} are written")
        if (found[0].operator, found[0].target) != (self.name, target):
            title = f"this schedule is for `{found[0].operator}` on `{found[0].target}`, not for `{self.name}` on `{target}`"
            raise error("S0604", title, found[0].span, help=f"write `schedule {self.name} for {target} {{ … }}`, or its directives alone")
        check_written(self.module, found[0], knobs)
        return found[0]


class Operators:
    """The operators of a file, as attributes: `ops.linear`."""

    def __init__(
        self,
        source: Source,
        tools: Toolchain | None = None,
        mode: Mode = "reduce",
        *,
        roles: Roles = installed_roles,
        symbolic: bool = False,
        kind: Callable[..., Operator] = Operator,
    ) -> None:
        """`mode` is that of operators which state none; `roles` returns modules whose schedules of roles serve where the file has no
        better ones; with `symbolic`, operators are compiled for any sizes; `kind` makes operators for another target than this machine.

        Raises CompileError with every mistake that is found without knowing types."""
        module = replace(load_module(parse(source)), mode=mode)
        tools = tools or toolchain()
        self._operators = {name: kind(name, module, tools, roles, symbolic=symbolic) for name in sorted(module.own)}

    def __getattr__(self, name: str) -> Operator:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._operators:
            close = get_close_matches(name, self._operators, 1)
            hint = f"; did you mean `{close[0]}`?" if close else ""
            raise AttributeError(f"there is no operator `{name}`{hint}")
        return self._operators[name]

    def __getitem__(self, name: str) -> Operator:
        return self._operators[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._operators)

    def __len__(self) -> int:
        return len(self._operators)

    def __dir__(self) -> list[str]:
        return sorted(self._operators)

    def __repr__(self) -> str:
        return "\n".join(operator.signature for operator in self._operators.values())


def _shape(value: Any) -> tuple[object, ...] | None:
    return (value.dtype, value.shape) if type(value) is np.ndarray else None


def _remember(known: dict[tuple[object, ...], Any], key: tuple[object, ...], value: object) -> None:
    """Enter a value, in place of the oldest when there are too many."""
    if len(known) >= KEPT_SHAPES:
        known.pop(next(iter(known)))
    known[key] = value


def _named(program: Program, sizes: Mapping[str, Any]) -> dict[str, object]:
    """Return the sizes that a call gives as `program` has them: those that it leaves open by name."""
    return {
        name: (name if name in program.sizes else value)
        if not isinstance(value, tuple | list)
        else tuple(f"{name}.{k}" if f"{name}.{k}" in program.sizes else v for k, v in enumerate(value))
        for name, value in sizes.items()
    }


# ---------------------------------------------------------------- arguments


def sorted_out(operator: sx.Operator, args: tuple[Any, ...], named: Mapping[str, Any]) -> Call:
    """Return the arguments of a call by what they are. Raises RunError R0311 to R0313 or R0305."""
    params = {p.name: p for p in operator.params}
    tensors = [p for p in operator.params if p.kind == "tensor"]
    if len(args) > len(tensors):
        title = f"`{operator.name}` takes {len(tensors)} tensors and is given {len(args)}"
        raise RunError(Diagnostic("R0311", title, help="attributes are named: `stride=2`"))
    given: dict[str, Any] = {p.name: a for p, a in zip(tensors, args, strict=False)}
    for name, value in named.items():
        if name not in params:
            close = get_close_matches(name, params, 1)
            there = f"it has {', '.join(f'`{p}`' for p in params)}"
            raise RunError(
                Diagnostic(
                    "R0312", f"`{operator.name}` has no `{name}`", notes=(there,), help=f"did you mean `{close[0]}`?" if close else None
                )
            )
        if name in given:
            raise RunError(Diagnostic("R0312", f"`{operator.name}` is given `{name}` twice"))
        given[name] = value
    missing = [p.name for p in tensors if given.get(p.name) is None and p.default is None]
    if missing:
        raise RunError(Diagnostic("R0313", f"`{operator.name}` is not given {', '.join(f'`{m}`' for m in missing)}"))
    arrays: list[Array] = []
    types = tuple(_types(p, given.get(p.name), arrays) for p in tensors)
    attrs = {n: v for n, v in given.items() if params[n].kind == "attr"}
    sizes = {n: _size(operator, params[n], v) for n, v in given.items() if params[n].kind == "size"}
    return Call(types, attrs, sizes, tuple(arrays))


def sizes_given(operator: sx.Operator, call: Call) -> None:
    """Raise RunError R0313 when a size is missing: code can be shown without it, not run."""
    missing = [p.name for p in operator.params if p.kind == "size" and p.name not in call.sizes]
    if missing:
        title = f"`{operator.name}` is not given {', '.join(f'`{m}`' for m in missing)}"
        raise RunError(Diagnostic("R0313", title, help=f"a size is a whole number: `{missing[0]}=8`"))


def _size(operator: sx.Operator, param: sx.Param, value: Any) -> int | tuple[int, ...]:
    """Return a size, or those of a pack. Raises RunError R0314 for what is no whole number."""
    if param.pack and isinstance(value, (tuple, list)):
        return tuple(_whole(operator, param, item) for item in value)
    return _whole(operator, param, value)


def _whole(operator: sx.Operator, param: sx.Param, value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        title = f"`{operator.name}`: size `{param.name}` is {value!r}, which is no whole number"
        raise RunError(Diagnostic("R0314", title, (Label(param.span, "declared here"),), help="pass an int"))
    if abs(int(value)) > LARGEST:
        title = f"`{operator.name}`: size `{param.name}` is too large"
        raise RunError(Diagnostic("R0314", title, (Label(param.span, "declared here"),), help="sizes stay below 2**48"))
    return int(value)


def _types(param: sx.Param, value: Any, arrays: list[Array]) -> ArgType | tuple[ArgType, ...] | None:
    """Return the type of a tensor argument, appending its arrays to `arrays`."""
    if value is None:
        return None
    if param.each:
        items = value if isinstance(value, (tuple, list)) else (value,)
        return tuple(_type(param, item, arrays) for item in items)
    return _type(param, value, arrays)


def _type(param: sx.Param, value: Any, arrays: list[Array]) -> ArgType:
    array = as_array(value, param.name)
    if isinstance(value, (int, float, list, tuple)):
        array = _as_declared(array, param)
    dtype = from_numpy(array.dtype)
    if dtype is None:
        raise RunError(Diagnostic("R0303", f"`{param.name}` has the element type {array.dtype}, which the language does not have"))
    arrays.append(array)
    return ArgType(dtype, tuple(array.shape))


def _as_declared(array: Array, param: sx.Param) -> Array:
    """Return an array made of Python numbers in the type a parameter names, or in f32 where any float will do."""
    wanted = param.type.dtype if isinstance(param.type, sx.TensorType) else ""
    found = DTYPES.get(wanted)
    if found is not None:
        return array.astype(found.numpy)
    return array.astype(np.float32) if array.dtype == np.float64 else array


# ---------------------------------------------------------------- native code


def native_of(program: Program, artifact: Artifact, tools: Toolchain) -> Native:
    """Return the artifact as a function of arrays in the order of the program's parameters."""
    results = result_tensors(program)
    names = [*program.results, *(p.name for p in program.params)]
    scratch = artifact.workspace_bytes(workspace_threads(artifact))
    slots = tuple(Slot(names.index(name)) for name in artifact.params)
    call = KernelCall(artifact.symbol, slots, (), Slot(len(names)) if scratch else None)
    entry = Entry((call,), threads=tools.threads if " parallel" in artifact.loops else 1)
    library = load([object_of(emit_program(entry, tools.target), tools), artifact.object], pool_imports())
    native = Native(
        library.address(entry.name),
        [_port(p) for p in program.params],
        [_port(r) for r in results],
        scratch_bytes=scratch,
        failure=lambda code: _refusal(program, artifact, code),
    )
    _KEPT.append(library)
    return native


_KEPT: list[object] = []
"""Loaded code stays for the life of the process: a native function may be held by anyone."""


def _refusal(program: Program, artifact: Artifact, result: int) -> RunError:
    _, code = failed_call(result)
    known = artifact.requirements[code - 1] if 0 < code <= len(artifact.requirements) else None
    what = "these sizes" if known is not None and not known.tensor else "this data"
    found = f"check {code} failed" if known is None else known.text
    return RunError(Diagnostic("R0306", f"`{program.name}` cannot go on with {what}", notes=(found,)))


def _port(tensor: Tensor) -> Port:
    return Port(tensor.name, tensor.dtype, caller_shape(tensor, {}))


# ---------------------------------------------------------------- explaining


def explain(made: Compiled, arrays: list[Array], threads: int) -> str:
    """Return the report of one signature: schedule, loops, compile time, and the measured time with the work it stands for."""
    seconds = best_time(lambda: made.native(*arrays))
    artifact = made.artifact
    compiled = ", ".join(f"{stage} {ms:.1f} ms" for stage, ms in artifact.times_ms.items())
    work = work_of(made.program)
    return "\n".join(
        [
            artifact.schedule,
            "",
            f"schedule   {artifact.origin}",
            *(f"           not {tried}" for tried in artifact.tried),
            "",
            artifact.loops.rstrip(),
            "",
            f"proven     every read is in bounds, every element is defined once, the order keeps {_dependences(made.program)}",
            f"compiled   {compiled}{' (from the cache)' if artifact.cached else ''}",
            f"time       {_seconds(seconds)}",
            *_rates(work, seconds),
            _roofline(bound_of(work, ceilings_for(made.program, threads)), work, seconds),
        ]
    )


def best_time(run: Callable[[], object], budget: float = 0.2) -> float:
    """Return the shortest of many runs in seconds, within about `budget` seconds."""
    run()
    best, spent = float("inf"), 0.0
    while spent < budget:
        start = time.perf_counter()
        run()
        taken = time.perf_counter() - start
        best, spent = min(best, taken), spent + taken
    return best


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
