"""Operators of a `.tl` file, called with arrays.

    ops = tl.load("my_ops.tl")
    y = ops.linear(x, w, b)              positional arguments are the tensors, in order; attributes, sizes and tensors may be named
    ops.conv2d(x, w, stride=2)
    ops.linear(x, w, b, out=y)           writes into `y`
    again = ops.linear.prepared(x, w, b) for many calls on the same arrays: again()

With static sizes a call is compiled once for each combination of dtypes, shapes and attributes, with all sizes known. With symbolic sizes,
once for each combination of dtypes, ranks and attributes (and each schedule that sizes choose among those the file states). By itself, an
operator does the first for two shapes and the second from the third on (`specialization`). All code is kept on disk.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

from codegen.errors import InternalError as InternalErrorOfCode
from codegen.forks import Lock
from polyhedral import affine
from polyhedral.record import recording
from tensorlang.absent import operator_told
from tensorlang.check.definition import representative_program
from tensorlang.check.extern_header import c_header
from tensorlang.check.foreign import nearest
from tensorlang.check.instantiate import ArgType, bound, instantiate
from tensorlang.check.lint import hidden_terms, warnings_in
from tensorlang.check.modes import Mode
from tensorlang.check.module import Module, load_module
from tensorlang.check.packs import dimension_names
from tensorlang.check.values import Idx, Packed, Value
from tensorlang.diagnostics import (
    CompileError,
    CompileWarning,
    Diagnostic,
    InternalError,
    RunError,
    Source,
    error,
    exception,
    render,
    trimmed,
    warn_of_fault,
)
from tensorlang.externs import Externs
from tensorlang.frames import contiguous_frames
from tensorlang.garbage import fewer_collections
from tensorlang.graph.externs import trusted_call
from tensorlang.planning import Dump, Rules, ScheduleRequest, by_parts
from tensorlang.policy.complete import DERIVE
from tensorlang.policy.select import applicable, at_sizes, read, where
from tensorlang.policy.uncalled import check_heads, check_written
from tensorlang.room import no_room, within_room
from tensorlang.runtime.arguments import Call, check_arrays, no_argument, results_given, sizes_given, sorted_out, whole_size
from tensorlang.runtime.call_cache import CallCache, enter
from tensorlang.runtime.externs import Has, extern_named, has_none, with_externs, without_externs, without_offered
from tensorlang.runtime.library import with_roles
from tensorlang.runtime.limits import Explained
from tensorlang.runtime.out_of_range import with_element
from tensorlang.runtime.proofs import shown_proofs
from tensorlang.runtime.protocol import AnySizes, Ready, Roles, Timer, Tools, installed_roles
from tensorlang.runtime.saving import save_options
from tensorlang.runtime.specialization import Sizes, Specialization, ones
from tensorlang.runtime.work import Roofline
from tensorlang.schedule.cases import by_sizes, case_of, has_cases
from tensorlang.schedule.check import verdict_of
from tensorlang.schedule.guards import facts, guard_env
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import header, show
from tensorlang.syntax.summary import documentation
from tensorlang.targets import serves
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.prove import prove
from tensorlang.tensor.segments import segments
from tensorlang.tensor.size_cases import decided_by_sizes
from tensorlang.tensor.widths import LARGEST

_LOG = logging.getLogger("tensorlang")


@dataclass(eq=False)
class Operator:
    """An operator; call it with arrays. `tools` are those of the target that it is compiled for."""

    name: str
    module: Module
    tools: Tools
    roles: Roles = installed_roles
    given: Schedule | sx.Schedule | None = None
    knobs: Mapping[str, int] = field(default_factory=dict)
    sizes: Sizes = "static"
    _made: dict[tuple[object, ...], Ready] = field(default_factory=dict, repr=False)
    _variants: dict[tuple[object, ...], list[AnySizes]] = field(default_factory=dict, repr=False)
    _specializations: dict[tuple[object, ...], Specialization] = field(default_factory=dict, repr=False)
    _calls: CallCache = field(init=False, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def __post_init__(self) -> None:
        declared = self.module.operators.get(self.name)
        self._calls = CallCache(declared)
        self._takes_out = declared is not None and any(p.name == "out" for p in declared.params)
        if declared is not None:
            self.__doc__, self.__name__, self.__qualname__ = documentation(declared), self.name, self.name
            self.__annotations__: dict[str, object] = {}

    def __repr__(self) -> str:
        return f"<{self.signature}>"

    def _repr_html_(self) -> str:
        from tensorlang.html import operator_html

        latest = next(reversed(self._made.values()), None)
        loops = latest.loops if latest is not None else ""
        return operator_html(self.signature, self.__doc__ or "", show(self.declaration), loops)

    @property
    def __signature__(self) -> Signature:
        """What editors show while a call is written: tensors by position, attributes, sizes and `out` by name."""
        kinds = {"tensor": Parameter.POSITIONAL_OR_KEYWORD}
        shown = ((p, kinds.get(p.kind, Parameter.KEYWORD_ONLY)) for p in self.declaration.params)
        params = [Parameter(p.name, kind, default=_Shown(show(p.default)) if p.default else Parameter.empty) for p, kind in shown]
        if not self._takes_out:
            params.append(Parameter("out", Parameter.KEYWORD_ONLY, default=None))
        required = [p for p in params if p.kind is Parameter.POSITIONAL_OR_KEYWORD and p.default is Parameter.empty]
        return Signature([*required, *(p for p in sorted(params, key=lambda p: p.kind) if p not in required)])

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """Return the result as a new array, or a tuple when the operator has several. On a device, an array that lies there makes the
        results lie there, too.

        With `out=y` the result is written into `y`, of its type and shape, row-major and writable, which shares no memory with what is
        read; several results take a tuple, or arrays by name: `out={"lo": a, "hi": b}`. Where an operator has a parameter `out`, that
        name means the parameter.

        Raises RunError for arguments that do not fit, R0301 to R0305, R0307 and R0309 for `out`, R0321 to R0323 for the device;
        CompileError for a schedule that is refused."""
        try:
            found: Any = NotImplemented
            if not named:
                if (direct := self._calls.positional) is not None:
                    found = direct(*args)
            elif (settled := self._calls.settled) is not None and settled.serves(named):
                found = settled.quick(*args)
            elif (into := self._calls.positional_writes) is not None and len(named) == 1 and not self._takes_out and len(args) == into[0]:
                out = named.get("out")
                found = into[1](*out, *args) if type(out) is tuple else into[1](out, *args)
            if found is not NotImplemented and type(found) is not int:
                return found
            return self._called(args, named)
        except MemoryError as problem:
            __tracebackhide__ = True
            raise no_room(self.name, problem=problem) from None
        except RunError as refused:
            __tracebackhide__ = True
            raise self._with_element(refused, args, named).with_traceback(None) from refused.__cause__
        except CompileError as refused:
            __tracebackhide__ = True
            raise refused.with_traceback(None) from refused.__cause__

    if not TYPE_CHECKING:  # which is to know the attributes that there are

        def __getattr__(self, name: str) -> Never:
            """Raise AttributeError: what other libraries call methods of functions is told as what it is here."""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{operator_told(name)}", name=name, obj=self)

    def _with_element(self, refused: RunError, args: tuple[Any, ...], named: dict[str, Any]) -> RunError:
        """Return what a call is refused for, with the element of the data where that is at fault."""
        if refused.diagnostics[0].code != "R0306":
            return refused
        call = sorted_out(self.declaration, args, named)
        return with_element(refused, self._checked(call, symbolic=False), call.arrays)

    def _called(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Return the result of a call. `out` is taken out of `named`."""
        out = self._out(named)
        found = self._calls.result(args, named) if out is None else self._calls.written(args, named, out)
        if found is not NotImplemented:
            return found
        call = self.call(*args, **named)
        made = self.compiled(call)
        if made.direct is not None:
            self._calls.remember(args, named, made.direct)
        return made(call.arrays) if out is None else made.into(call.arrays, results_given(self.name, out, made.outputs))

    def _out(self, named: dict[str, Any]) -> Any:
        """Return what is given to write into, and take it out of `named`; None where nothing is."""
        return named.pop("out") if "out" in named and not self._takes_out else None

    @trimmed
    def prepared(self, /, *args: Any, **named: Any) -> Callable[[], Any]:
        """Return the call with these arrays for good: a function that computes from what they hold when it is called, writes into `out` (or
        arrays of its own), and returns what a call does. It looks at nothing and makes nothing, so it is for many calls in a row; it is
        called once at a time. Raises RunError as a call does, and R0307 for arrays that it would have to copy."""
        out = self._out(named)
        check_arrays(self.declaration, args, named)
        call = self.call(*args, **named)
        made = self.compiled(call)
        with within_room(self.name):
            again = made.prepared(call.arrays, None if out is None else results_given(self.name, out, made.outputs))

        def run() -> Any:
            try:
                return again()
            except RunError as refused:
                __tracebackhide__ = True
                raise self._with_element(refused, args, named).with_traceback(None) from refused.__cause__

        return run

    def call(self, /, *args: Any, **named: Any) -> Call:
        """Return the arguments of a call by what they are. Raises RunError for arguments that do not fit."""
        self.tools.load_compiler()
        lying: dict[int, tuple[Any, Any]] = {}

        def described(value: Any) -> Any:
            found = self.tools.described(value)
            if found is not value:
                lying[id(found)] = found, value
            return found

        call = sorted_out(self.declaration, tuple(map(described, args)), {name: described(value) for name, value in named.items()})
        return replace(call, arrays=tuple(lying[id(a)][1] if id(a) in lying else a for a in call.arrays)) if lying else call

    @trimmed
    def seconds(self, repeats: int = 10, /, *args: Any, **named: Any) -> float:
        """Return the seconds of a call, the mean of `repeats` in a row; on a device by its clock, without copies from and to the host.
        Raises as a call does."""
        return self.timer(*args, **named)(repeats)

    @trimmed
    def timer(self, /, *args: Any, **named: Any) -> Timer:
        """Return `seconds` of these arguments as a function of `repeats`, for measuring in turns: they are copied to a device once. Raises
        as a call does."""
        call = self.call(*args, **named)
        return self.compiled(call).timer(call.arrays)

    def __reduce__(self) -> tuple[Callable[..., Operator], tuple[object, ...]]:
        """Pickled is what the operator was made of; what was compiled stays in the cache."""
        return Operator, (self.name, self.module, self.tools, self.roles, self.given, dict(self.knobs), self.sizes)

    @property
    def scheduled_for(self) -> str:
        """The target whose schedules serve the operator."""
        return self.tools.schedules_for

    @property
    def declaration(self) -> sx.Operator:
        return self.module.operators[self.name]

    @property
    def c_header(self) -> str:
        """How a kernel for this extern operator is declared in C. Raises CompileError C0113 for an operator that is not extern, T0166 for a
        signature that no kernel is called by yet."""
        return c_header(extern_named(self.module, self.name))

    @property
    def signature(self) -> str:
        """The operator's header, as the file writes it."""
        return header(self.declaration)

    @trimmed
    def schedule(self, schedule: Schedule | str | None, **knobs: int) -> Operator:
        """Return the same operator under another schedule: a `Schedule`, the text of one, or None for the file's own or a derived one.

        Raises CompileError when the text cannot be read; whether it is legal is proven when the operator is called."""
        if not isinstance(schedule, (str, Schedule)) and schedule is not None:
            raise error("S0604", f"a schedule is expected, not {schedule!r}", help="pass the text of one, a `Schedule`, or None")
        given = self._read(schedule, knobs) if isinstance(schedule, str) else schedule
        return self._under(given, knobs)

    def _under(self, given: Schedule | sx.Schedule | None, knobs: Mapping[str, int]) -> Operator:
        return Operator(self.name, self.module, self.tools, self.roles, given, knobs, self.sizes)

    def compiled_by(self, tools: Tools) -> Operator:
        """Return the same operator for the target of `tools`."""
        sizes = "static" if tools.on_device else self.sizes
        return Operator(self.name, self.module, tools, self.roles, self.given, self.knobs, sizes)

    @trimmed
    def gradient(self, /, *by: str) -> Operator:
        """Return an operator that takes the parameters of this one and, for each result `y`, the derivative `d_y` of a number by it, and
        returns the derivatives of that number by the tensor parameters named `by`: one, or a tuple of several.

        Raises CompileError T0180 for what is not differentiable, here or when it is called for types that show it."""
        from tensorlang.runtime.gradient import GradientOperator

        return GradientOperator(self, by)

    @trimmed
    def explain(self, /, *args: Any, **named: Any) -> str:
        """Return what limits it, the schedule, the loops or launches, what was proven, and the time against what the machine could do."""
        return self.explained(self.call(*args, **named)).text

    def explained(self, call: Call, roles: bool = False) -> Explained:
        """Return what `explain` says of a call, and what limits it one by one. `roles`: name the schedules of roles, too, that are not for
        it."""
        return self.compiled(call).explain(self._checked(call, symbolic=False), call.arrays, roles)

    @trimmed
    def proofs(self, /, *args: Any, **named: Any) -> str:
        """Return what is proven of the kernel for arguments like these, each statement as sets and maps of isl. Proves it once more."""
        call = sorted_out(self.declaration, args, named)
        with recording() as meaning:
            program = self._program(call)
        plans = [self.tools.planned(part, request) for part, request in self._parts(program, call)]
        with recording() as order:
            for plan in plans:
                verdict_of(plan)
        trusted = [f"trusted: {plan.trusted}" for plan in plans if plan.trusted]
        return "\n".join((shown_proofs(program, meaning, order), *trusted, *map(trusted_call, program.externs)))

    @trimmed
    def roofline(self, /, *args: Any, **named: Any) -> Roofline:
        """Return what there is to do for arguments like these, and how fast the machine could do it."""
        program = self._checked(sorted_out(self.declaration, args, named), symbolic=False)
        return self.tools.roofline([part for part in segments(program) if isinstance(part, Program)])

    @trimmed
    def program(self, /, *args: Any, **named: Any) -> Program:
        """Return the operator as tensor IR for arguments like these."""
        return self._program(sorted_out(self.declaration, args, named))

    @trimmed
    def meaning(self, /, *args: Any, **named: Any) -> Program:
        """Return the operator as tensor IR for arguments like these, its extern operators being their bodies, whatever kernels stand for
        them: what the interpreter runs. Raises CompileError T0143 for one that has no body."""
        program = self._meant(sorted_out(self.declaration, args, named))
        prove(program)
        return program

    def _meant(self, call: Call) -> Program:
        return instantiate(without_externs(self.module), self.name, call.types, call.attrs, call.sizes)

    @trimmed
    def scheduled_program(self, /, *args: Any, **named: Any) -> Program:
        """Return the operator as tensor IR for arguments like these, its reductions factor by factor where its schedule says so."""
        call = sorted_out(self.declaration, args, named)
        program = self._program(call)
        plans = [self.tools.planned(part, request) for part, request in self._parts(program, call)]
        return program if len(plans) != 1 or plans[0].factorized is None else plans[0].factorized

    @trimmed
    def stages(self, /, *args: Any, dump: Dump, requested: Sequence[str] = (), **named: Any) -> Any:
        """Compile without the cache, telling `dump` every stage: schedule, loops, and what the target has after that; of what takes other
        programs only the stages in `requested`. Return what was made."""
        call = sorted_out(self.declaration, args, named)
        made = None
        for part, request in self._parts(self._program(call), call):
            made = self.tools.shown(part, self.name, request, dump, requested)
        return made

    def symbolic_program(self, given: Mapping[str, Any]) -> Program:
        """Return the operator as tensor IR without the arrays of a call: sizes stay symbols, element types and lengths of packs are the
        first that fit. `given` are attributes and sizes that are known.

        Raises CompileError for what is wrong with it, R0312 for other names, R0314 for a size that is none, C0212 where arrays are
        needed."""
        attrs, sizes = self._told(given)
        program = representative_program(self.module, self.name, attrs, sizes)
        if program is None:
            help = "give it arrays: `x=f32[4,5]`; `tensorlang check` says what is wrong with it"
            raise error("C0212", f"`{self.name}` cannot be shown without the arrays of a call", help=help)
        prove(program)
        return program

    def symbolic_stages(self, given: Mapping[str, Any], dump: Dump, requested: Sequence[str] = ()) -> Any:
        """Do as `stages` for `symbolic_program`."""
        program, (attrs, sizes) = self.symbolic_program(given), self._told(given)
        named = {p.name: sizes.get(p.name, p.name) for p in self.declaration.params if p.kind == "size"}
        made = None
        for part, request in self._parts(program, Call((), attrs, named, ()), sizes):
            made = self.tools.shown(part, self.name, request, dump, requested)
        return made

    def _told(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
        """Return the attributes and the sizes among named values."""
        params = {p.name: p for p in self.declaration.params}
        sizes = [name for name, pack in dimension_names(self.declaration) if not pack]
        for name in given:
            if name not in sizes and (name not in params or params[name].kind == "tensor"):
                raise no_argument(self.declaration, name, [*params, *(s for s in sizes if s not in params)])
        attrs = {n: v for n, v in given.items() if n in params and params[n].kind == "attr"}
        return attrs, {n: whole_size(self.declaration, n, v) for n, v in given.items() if n not in attrs}

    @trimmed
    def save(
        self,
        folder: str | os.PathLike[str],
        arguments: Mapping[str, Any],
        *,
        targets: str | Sequence[str] | None = None,
        symbolic: bool = False,
        max: Mapping[str, int] | None = None,
        library: str | None = None,
        threads: int | None = None,
    ) -> Path:
        """Write the operator as a library for arguments like these, by their names, into a folder, which `tensorlang.load_model` and
        programs in C read, and return that. With `symbolic`, for arguments of any sizes, which `max` limits where memory has to be there
        for them.

        `targets`: kinds of processors of one family (`"x86-64-v3"`), of which the best is taken where it runs, None for the one that it is
        compiled for; `library`: what names in C
        begin with; `threads`: for how many it is made at most. Raises CompileError C0131 for what has no library yet, C0123 and C0132 for
        limits, C0107 and C0133 for the other arguments, C0133 for a folder that holds something else, and as a call does."""
        call = sorted_out(self.declaration, (), dict(arguments))
        sizes_given(self.declaration, call)
        at, _, fixed = self._at(call)
        program = self._checked(call, symbolic=symbolic, static=fixed, ahead=True)
        if symbolic and not program.sizes and dimension_names(self.declaration):
            title = f"not supported yet: a library of `{self.name}` for any sizes, each of which has to be a number"
            raise error("C0131", title, help="build it for these sizes: leave `--symbolic`, or `symbolic=True`, out")
        limits = _limits(program, max or {})
        options = save_options(self.name, library, self.tools.name if targets is None else targets, limits, threads=threads)
        return self.tools.save_operator(program, self._request(program, call, at if symbolic else None), Path(folder), options)

    def compiled(self, call: Call) -> Ready:
        """Return the code for a call."""
        key = call.key
        with self._lock:
            found = self._made.get(key)
            if found is None:
                found = self._compiled(call)
                enter(self._made, key, found)
            return found

    def _compiled(self, call: Call) -> Ready:
        match self.sizes:
            case "symbolic":
                return self._sized(call)
            case "auto" if not self.tools.on_device:  # where kernels of open sizes are for those who ask for them
                return self._adapted(call)
            case _:
                return self._compile(call)

    def _program(self, call: Call) -> Program:
        return self._checked(call, self.sizes == "symbolic")

    def instantiated(
        self, types: Sequence[ArgType | tuple[ArgType, ...] | None], attrs: Mapping[str, object], sizes: Mapping[str, Any]
    ) -> Program:
        """Return the proven program for arguments of these types. Raises CompileError R02xx where they do not fit."""
        return self._checked(Call(tuple(types), dict(attrs), dict(sizes), ()), symbolic=False)

    def _checked(self, call: Call, symbolic: bool, static: frozenset[str] = frozenset(), ahead: bool = False) -> Program:
        """Return the proven program of a call; `ahead`: for a library, which has no kernels that packages offer."""
        module = without_offered(self.module) if ahead else self.module
        program = instantiate(module, self.name, call.types, call.attrs, call.sizes, symbolic=symbolic, static=static)
        prove(program)
        return program

    def _parts(self, program: Program, call: Call, at: Mapping[str, int] | None = None) -> list[tuple[Program, ScheduleRequest]]:
        """Return what is compiled of a program, and the schedule of each part."""
        return by_parts(program, self._request(program, call, at))

    def _sized(self, call: Call) -> Ready:
        """Return the kernel for any sizes as a function of arrays of the sizes at hand. Raises CompileError R02xx as for known sizes."""
        sizes, schedule, fixed = self._at(call)
        found = self._variants.setdefault((*call.kind, schedule), [])
        fitting = next((v for v in found if v.fits(sizes, call.arrays)), None)
        if fitting is None:
            program = self._in_case(self._checked(call, symbolic=True, static=fixed), sizes, schedule)
            fitting = self.tools.with_any_sizes(program, self.name, self._request(program, call, sizes), sizes)
            if not fitting.fits(sizes, call.arrays):
                self._checked(call, symbolic=False)
                raise InternalError("sizes", f"`{self.name}` compiled for any sizes does not fit {sizes}")
            found.append(fitting)
        return fitting.at(sizes)

    def _adapted(self, call: Call) -> Ready:
        """Return a kernel of known sizes for the first shapes of a kind, and one that leaves open what has differed for those after them.

        Raises CompileError R02xx as for known sizes."""
        sizes_given(self.declaration, call)
        sizes, schedule, fixed = self._at(call)
        group = (*call.kind, schedule, *ones(sizes, call.arrays))
        variants = self._variants.setdefault(group, [])
        fitting = next((v for v in variants if v.fits(sizes, call.arrays)), None)
        if fitting is None:
            record = self._specializations.setdefault(group, Specialization())
            record.note(sizes)
            fitting = self._opened(call, sizes, record, fixed, schedule) if record.opens else None
            if fitting is None:
                found = self._compile(call)
                record.plain |= found.is_plain
                return found
            variants.append(fitting)
        return fitting.at(sizes)

    def _in_case(self, program: Program, sizes: Mapping[str, int], schedule: tuple[object, ...]) -> Program:
        """Return a program for the side of conditions on sizes that these are on, where that decides what is computed; as it is where
        somebody wrote a schedule for it."""
        if self.given is not None or schedule[0] is not None:
            return program
        return decided_by_sizes(program, lambda condition: bool(affine.holds(condition, sizes)))[0]

    def _opened(
        self, call: Call, sizes: Mapping[str, int], record: Specialization, fixed: frozenset[str], schedule: tuple[object, ...]
    ) -> AnySizes | None:
        """Return a kernel that leaves open the sizes that have differed but for those that are `fixed`, or None where that cannot be
        compiled and proven."""
        open_ = ", ".join(f"`{name}`" for name in sorted(record.dynamic))
        try:
            program = self._checked(call, symbolic=True, static=record.fixed(sizes) | fixed)
            program = self._in_case(program, sizes, schedule)
            made = self.tools.with_any_sizes(program, self.name, self._request(program, call, sizes), sizes)
        except CompileError as refused:
            _LOG.info("`%s` is compiled for each combination of %s: %s", self.name, open_, refused.diagnostics[0].title)
        except (InternalError, InternalErrorOfCode) as broken:
            _LOG.warning("`%s` is compiled for each combination of %s: %s", self.name, open_, broken)
            warn_of_fault(f"`{self.name}` is compiled for each combination of {open_}: {broken}")
        else:
            if made.fits(sizes, call.arrays) and (record.plain or not made.is_plain):
                _LOG.info("`%s` is compiled for any %s", self.name, open_)
                return made
            why = "its schedule would be a plainer one" if made.is_plain else "one kernel does not fit all"
            _LOG.info("`%s` is compiled for each combination of %s: %s", self.name, open_, why)
        record.refused = True
        return None

    def _at(self, call: Call) -> tuple[dict[str, int], tuple[object, ...], frozenset[str]]:
        """Return the sizes of a call, which of the file's schedules of this operator they choose, with its case, and the sizes that are
        numbers in that."""
        values = bound(self.module, self.name, call.types, call.attrs, call.sizes)
        sizes = _sizes_in(values)
        open_ = [name for name, size in sizes.items() if size is None]
        if open_:
            raise exception(Diagnostic("R0313", f"`{self.name}` is not given {', '.join(f'`{n}`' for n in open_)}"))
        at = facts(values, {})
        schedule = applicable(self.module, self.name, self.scheduled_for, at) if self.given is None else None
        written = (
            self.given if isinstance(self.given, sx.Schedule) else next((s for s in self.module.schedules if where(s) == schedule), None)
        )
        case, fixed = case_of(written.body, at) if written is not None else ((), frozenset())
        return {name: size for name, size in sizes.items() if size is not None}, (schedule, *case), fixed & sizes.keys()

    @contiguous_frames
    def _compile(self, call: Call) -> Ready:
        sizes_given(self.declaration, call)
        with fewer_collections():
            program = self._program(call)
            return self.tools.compiled(program, self.name, self._request(program, call))

    def _request(self, program: Program, call: Call, at: Mapping[str, int] | None = None) -> ScheduleRequest:
        """Return the schedule that a call is to run under, or what chooses it: `at` these sizes where the program leaves some open."""
        match self.given:
            case None:
                module = with_roles(self.module, self.roles())
                if at is None and program.sizes:
                    at = self._at(call)[0]
                return ScheduleRequest(
                    rules=Rules(module, self.name, call.attrs, _named(program, call.sizes), self.knobs, at, self.scheduled_for)
                )
            case sx.Schedule() as written:
                return ScheduleRequest(self._written(written, program, call, at), self._rest(written.body))
            case schedule:
                schedule = at_sizes(self.module, schedule, program, call.attrs, _named(program, call.sizes))
                return ScheduleRequest(schedule, self._rest(schedule.directives), knobs=self.knobs)

    def _rest(self, body: Sequence[sx.Directive | sx.Knobs]) -> Rules | None:
        """Return what chooses the rest of a schedule that leaves some of it to derive."""
        partial = any(isinstance(d, sx.Directive) and d.name == DERIVE for d in body)
        return Rules(with_roles(self.module, self.roles()), target=self.scheduled_for) if partial else None

    def _written(self, written: sx.Schedule, program: Program, call: Call, at: Mapping[str, int] | None) -> Schedule:
        sizes = _named(program, call.sizes)
        if at is None and program.sizes and any(isinstance(d, sx.Directive) and has_cases(d) for d in written.body):
            at = self._at(call)[0]
        choose = by_sizes(guard_env(self.module, self.name, program, call.attrs, sizes, at or {}))
        return read(self.module, written, program, self.knobs, attrs=call.attrs, sizes=sizes, choose=choose).schedule

    def _read(self, text: str, knobs: Mapping[str, int]) -> sx.Schedule:
        target = self.scheduled_for
        body = text if text.lstrip().startswith("schedule") else f"schedule {self.name} for {target} {{\n{text}\n}}"
        source = Source("<schedule>", body, skipped=0 if body is text else 1)
        found = [d for d in _declared_in(source, sx.Schedule) if isinstance(d, sx.Schedule)]
        if len(found) != 1:
            raise error("S0604", f"one schedule is expected, {len(found)} are written")
        if found[0].guards:
            help = "leave its guard out, or write it into the file of the operator, where schedules are chosen by their guards"
            raise error("S0604", "a schedule that is given serves all calls, whatever its guard says", found[0].guards[0].span, help=help)
        if found[0].operator != self.name or not serves(found[0].target, target):
            title = f"this schedule is for `{found[0].operator}` on `{found[0].target}`, not for `{self.name}` on `{target}`"
            raise error("S0604", title, found[0].span, help=f"write `schedule {self.name} for {target} {{ … }}`, or its directives alone")
        check_written(self.module, found[0], knobs)
        return replace(found[0], target=target)


def _declared_in(source: Source, *kinds: type[sx.Declaration]) -> tuple[sx.Declaration, ...]:
    """Return what a text of schedules declares. Raises CompileError S0604 for what is of none of these kinds."""
    found = parse(source).declarations
    for strange in (d for d in found if not isinstance(d, kinds)):
        what = " and ".join(f"{kind.__name__.lower()}s" for kind in kinds)
        raise error("S0604", f"{what} are expected alone", strange.span, help="declare it in the file of the operator")
    return found


class _Shown(str):
    """A default, as the language writes it."""

    def __repr__(self) -> str:
        return str(self)


class Operators:
    """The operators of a file, as attributes: `ops.linear`."""

    def __init__(
        self,
        source: Source,
        tools: Tools,
        mode: Mode = "reduce",
        *,
        roles: Roles = installed_roles,
        sizes: Sizes = "static",
        externs: Externs | None = None,
        schedules: Source | None = None,
    ) -> None:
        """`tools` are those of a target; `mode` is that of operators which state none; `roles` returns modules whose schedules of roles
        serve where the file has no better ones; `sizes` says for which sizes operators are compiled; `externs` are the kernels that stand
        for extern operators; `schedules` are asked before those of the file.

        Raises CompileError with every mistake that is found without knowing types, S0604 for `schedules` with anything else in them."""
        file = parse(source)
        given = sx.File(() if schedules is None else _declared_in(schedules, sx.Schedule, sx.Tactic))
        module = load_module(replace(file, declarations=(*given.declarations, *file.declarations)))
        self._plain, self._externs = replace(module, mode=mode), externs
        check_heads(self._plain)
        module = module_for(self, tools.schedules_for, tools.has)
        for found in (*warnings_in(given), *warnings_in(file), *hidden_terms(file, module)):
            warnings.warn(f"\n{render(found)}", CompileWarning, stacklevel=5)
        self._operators = {name: Operator(name, module, tools, roles, sizes=sizes) for name in sorted(module.offered)}

    def __getattr__(self, name: str) -> Operator:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._operators:
            raise AttributeError(self._absent(name))
        return self._operators[name]

    def _absent(self, name: str) -> str:
        """Return what to say of a name that no operator has."""
        close, few = nearest(name, self._operators), [f"`{n}`" for n in self._operators][:8]
        more = ", …" if len(self._operators) > len(few) else ""
        hint = f"did you mean `{close}`?" if close else f"there are {', '.join(few)}{more}" if few else "there are none"
        return f"there is no operator `{name}`; {hint}"

    def __getitem__(self, name: str) -> Operator:
        if name not in self._operators:
            raise KeyError(self._absent(name))
        return self._operators[name]

    def __call__(self, *_given: object, **_named: object) -> Never:
        """Raise TypeError: what is called is one of the operators."""
        name = next(iter(self._operators), "NAME")
        raise TypeError(f"operators are called by their names, as `ops.{name}(…)`; there are {', '.join(self._operators) or 'none'}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._operators)

    def __len__(self) -> int:
        return len(self._operators)

    def __dir__(self) -> list[str]:
        return sorted(self._operators)

    def _ipython_key_completions_(self) -> list[str]:
        """Return what notebooks propose behind `ops["`."""
        return sorted(self._operators)

    def __repr__(self) -> str:
        return "\n".join(operator.signature for operator in self._operators.values())


def module_for(operators: Operators, target: str, has: Has = has_none) -> Module:
    """Return the file of operators with the kernels that stand for its extern ones on a target."""
    return with_externs(operators._plain, operators._externs, target, has)


def _limits(program: Program, most: Mapping[str, int]) -> dict[str, int]:
    """Return limits of sizes that a program leaves open. Raises CompileError C0123."""
    for name, limit in most.items():
        if name not in program.sizes:
            there = ", ".join(f"`{n}`" for n in program.sizes) or "none"
            raise error("C0123", f"there is no open size `{name}` to limit", notes=(f"`{program.name}` leaves open: {there}",))
        if isinstance(limit, bool) or not isinstance(limit, int) or not 0 <= limit <= LARGEST:
            raise error("C0123", f"the limit of `{name}` is {limit!r}", help="give a whole number, 0 or more")
    return dict(most)


def _sizes_in(values: Mapping[str, Value]) -> dict[str, int | None]:
    """Return the sizes among the values of an operator's parameters, elements of packs as `D.0`; None for those nothing tells."""
    out: dict[str, int | None] = {}
    for name, value in values.items():
        items = {f"{name}.{k}": item for k, item in enumerate(value.items)} if isinstance(value, Packed) else {name: value}
        out |= {key: affine.constant(item.expr) for key, item in items.items() if isinstance(item, Idx)}
    return out


def _named(program: Program, sizes: Mapping[str, Any]) -> dict[str, object]:
    """Return the sizes that a call gives as `program` has them: those that it leaves open by name."""
    return {
        name: (name if name in program.sizes else value)
        if not isinstance(value, tuple | list)
        else tuple(f"{name}.{k}" if f"{name}.{k}" in program.sizes else v for k, v in enumerate(value))
        for name, value in sizes.items()
    }
