"""Operators for a graphics processor, called like others: NumPy's arrays give NumPy's, an array on the device gives arrays on the device.

    ops = tl.load("my_ops.tl", target="cuda")
    y = ops.linear(x, w, b)              x, w, b of torch or CuPy are read where they lie

The file's schedules `for cuda` apply, then those of roles, then derived ones. Compiling needs no device; the first call does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from codegen.cuda.arch import TARGET
from codegen.cuda.errors import Unavailable
from tensorlang.check.instantiate import instantiate
from tensorlang.device.build import device_kernel, single
from tensorlang.device.machine import missing
from tensorlang.diagnostics import RunError, error
from tensorlang.driver import Dump, Rules
from tensorlang.runtime.device import Built, DeviceTools, OnDevice, answered, coded, device_tools, on_device
from tensorlang.runtime.device_roofline import roofline_on
from tensorlang.runtime.device_text import launched, us
from tensorlang.runtime.feeds import row_major
from tensorlang.runtime.library import with_roles
from tensorlang.runtime.operator import Call, Operator, sizes_given, sorted_out
from tensorlang.runtime.work import Roofline, work_of
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as sx
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.prove import prove


def for_device(target: str) -> Callable[..., Operator]:
    """Return what makes operators for `cuda` or `cuda:sm_XX`. Raises CompileError C0101."""
    return partial(DeviceOperator, device=device_tools(target))


@dataclass(eq=False)
class DeviceOperator(Operator):
    """An operator on a device; `tools` are for this machine, and `device` says what is compiled for."""

    device: DeviceTools = field(default_factory=lambda: device_tools(TARGET), kw_only=True)
    _there: dict[tuple[object, ...], OnDevice] = field(default_factory=dict, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.symbolic:
            raise error("C0105", f"not supported yet: symbolic sizes for `{TARGET}`", help="leave `sizes` at `static`")

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """Return the result, or a tuple when the operator has several.

        Raises RunError for arguments that do not fit, R0321 without a device; CompileError for a schedule that is refused."""
        given = list(self._stand_ins((*args, *named.values())))
        stands = [stand for _, stand in given]
        call = sorted_out(self.declaration, tuple(stands[: len(args)]), dict(zip(named, stands[len(args) :], strict=True)))
        sizes_given(self.declaration, call)
        originals = {id(stand): value for value, stand in given}
        arrays = [originals[id(a)] if on_device(originals.get(id(a))) else row_major(a) for a in call.arrays]
        found = self._run(call, arrays)
        return found[0] if len(found) == 1 else found

    def seconds(self, repeats: int = 10, /, *args: Any, **named: Any) -> float:
        """Return the seconds of a call on the device, the mean of `repeats` launches of its graph between two events; copies from and to
        the host are left out. Raises as a call does."""
        return self.timer(*args, **named)(repeats)

    def timer(self, /, *args: Any, **named: Any) -> Callable[[int], float]:
        """Return `seconds` of these arguments as a function of `repeats`, for measuring in turns: they are copied to the device once, and
        launches are captured once. Raises as a call does."""
        call = sorted_out(self.declaration, args, named)
        sizes_given(self.declaration, call)
        return self.on_device(call).timer_of([row_major(a) for a in call.arrays])

    def __reduce__(self) -> tuple[Callable[..., Operator], tuple[object, ...]]:
        return _again, (self.name, self.module, self.tools, self.roles, self.given, dict(self.knobs), self.device)

    @property
    def scheduled_for(self) -> str:
        return TARGET

    def explain(self, /, *args: Any, **named: Any) -> str:
        """Return the schedule, the launches and what they use, what there is to do; and the time, where there is a device."""
        call = sorted_out(self.declaration, args, named)
        there = self.on_device(call)
        (made,), (node,) = there.built.model.kernels.values(), [c.node for c in there.built.model.calls]
        work = work_of(node.program)
        return "\n".join(
            [
                made.schedule,
                "",
                f"schedule   {made.origin}",
                *(f"           not {tried}" for tried in made.tried),
                *(f"launch     {line}" for line in launched(made.launched, there.built.usage, self.device.arch)),
                "proven     every read is in bounds, every element is defined once, the order and the barriers keep all dependences",
                f"work       {work.flops:.3g} operations, {work.moved_bytes:.3g} bytes in and out",
                *self._bounds(node.program),
                f"time       {self._time(there, call)}",
            ]
        )

    def roofline(self, /, *args: Any, **named: Any) -> Roofline:
        """Return what there is to do for arguments like these, and how fast a device of this kind could do it."""
        return roofline_on([self._program(sorted_out(self.declaration, args, named))], self.device.arch)

    def stages(self, /, *args: Any, dump: Dump, **named: Any) -> Any:
        """Compile without the cache, telling `dump` every stage: schedule, loops, cuda, launches. Return the launches and their code."""
        call = sorted_out(self.declaration, args, named)
        program = self._program(call)
        made = device_kernel(
            program, self.name, self._schedule(program, call), dump, self._rules(program, call), machine=self.device.machine
        )
        built = coded(single(program, made), self.device)
        dump("launches", "\n".join(launched(made.launched, built.usage, self.device.arch)))
        return built

    def on_device(self, call: Call) -> OnDevice:
        """Return the launches for a call, compiled."""
        with self._lock:
            if call.key not in self._there:
                self._there[call.key] = OnDevice(self._built(call), self.device)
            return self._there[call.key]

    def _built(self, call: Call) -> Built:
        program = self._program(call)
        made = device_kernel(
            program, self.name, self._schedule(program, call), rules=self._rules(program, call), machine=self.device.machine
        )
        return coded(single(program, made), self.device)

    def _run(self, call: Call, arrays: list[object]) -> tuple[Any, ...]:
        return self.on_device(call).results(arrays)

    def _program(self, call: Call) -> Program:
        program = instantiate(self.module, self.name, call.types, call.attrs, call.sizes, symbolic=False)
        prove(program)
        return program

    def _schedule(self, program: Program, call: Call) -> Schedule | None:
        return self._written(self.given, program, call) if isinstance(self.given, sx.Schedule) else self.given

    def _rules(self, program: Program, call: Call) -> Rules:
        return Rules(with_roles(self.module, self.roles()), self.name, call.attrs, call.sizes, self.knobs, None, TARGET)

    def _under(self, given: Schedule | sx.Schedule | None, knobs: Mapping[str, int]) -> Operator:
        return DeviceOperator(self.name, self.module, self.tools, self.roles, given, knobs, device=self.device)

    def _stand_ins(self, values: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
        """Yield each value with itself, or, where it lies on a device, with an array that has its type and shape and no memory."""
        for value in values:
            if not on_device(value):
                yield value, value
                continue
            with answered():
                from codegen.cuda.arrays import view_of

                view = view_of(value, self.device.opened())
            yield value, np.broadcast_to(np.zeros((), view.dtype.numpy), view.shape)

    def _bounds(self, program: Program) -> Iterator[str]:
        bound = roofline_on([program], self.device.arch)
        if bound.seconds:
            yield f"roofline   {bound.work.intensity:.3g} operations a byte: at best {us(bound.seconds)}"

    def _time(self, there: OnDevice, call: Call) -> str:
        try:
            return us(sum(there.times([row_major(a) for a in call.arrays])))
        except RunError as problem:
            return f"not measured: {problem.diagnostics[0].title}"


def assembly_of(built: Built) -> str:
    """Return the machine code of all kernels as text. Raises CompileError C0112 when there is no disassembler."""
    try:
        from codegen.cuda.sass import assembly

        texts = [text for code in built.code for text in assembly(code.cubin).items()]
    except Unavailable as problem:
        raise missing(problem) from None
    return "\n".join(f"{name}:\n{text}" for name, text in texts)


def _again(name: str, module: Any, tools: Any, roles: Any, given: Any, knobs: Any, device: DeviceTools) -> Operator:
    return DeviceOperator(name, module, tools, roles, given, knobs, device=device)
