"""Several kernels in one native call: the calls of a whole model, in order.

    i32 run(ptr bases)                       call every kernel; stop at the first that does not return 0
    i32 run_timed(ptr bases, ptr times)      the same; times[k] is how many nanoseconds call k took

`bases` is an array of addresses (inputs, outputs, arena, weights ...). A slot of a call names one of them and a byte offset, so the plan of
buffers is compiled in. A result other than 0 is `call << 16 | code`: which call failed, counted from 0, and the code it returned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from codegen.llvm.target import Target

BEGIN = "tl_begin"


@dataclass(frozen=True, slots=True)
class Slot:
    """The buffer at `offset` bytes from base number `base`."""

    base: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Number:
    """The i64 that stands in the place of base number `base`: a size that the caller tells."""

    base: int


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One call: the kernel's buffers in the order of its parameters, its sizes, and its workspace."""

    symbol: str
    buffers: tuple[Slot, ...]
    sizes: tuple[int | Number, ...] = ()
    workspace: Slot | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """A straight line of calls. With more than one of `threads`, parallel loops use so many, and sleeping workers are woken first."""

    calls: tuple[KernelCall, ...]
    name: str = "run"
    threads: int = 1


def emit_program(program: Program, target: Target, *, timed: bool = False) -> str:
    """Return the LLVM IR of the entry point, `<name>` or `<name>_timed`; the kernels are linked to it by name."""
    symbols = sorted({call.symbol for call in program.calls})
    declared = [f"declare i32 @{_quoted(symbol)}(ptr, ptr)" for symbol in symbols]
    body: list[str] = []
    if program.threads > 1:
        declared.append(f"declare void @{BEGIN}(i64)")
        body.append(f"  call void @{BEGIN}(i64 {program.threads})")
    slots = max((len(call.buffers) + len(call.sizes) for call in program.calls), default=0)
    bases = sorted({slot.base for call in program.calls for slot in _slots(call)})
    for base in bases:
        body.append(f"  %bp{base} = getelementptr ptr, ptr %bases, i64 {base}")
        body.append(f"  %b{base} = load ptr, ptr %bp{base}, align 8")
    if timed:
        declared.append("declare i32 @clock_gettime(i32, ptr)")
        body.append("  %t0 = call i64 @now(ptr %clock)")
    for number, call in enumerate(program.calls):
        body += _call(number, call, timed)
    body += ["  ret i32 0", *_failures(len(program.calls))]
    parameters = "ptr %bases, ptr %times" if timed else "ptr %bases"
    entry = ["entry:", f"  %args = alloca [{max(slots, 1)} x i64], align 8"]
    if timed:
        entry.append("  %clock = alloca [2 x i64], align 8")
    name = _quoted(program.name + ("_timed" if timed else ""))
    text = "\n".join([*entry, *body])
    clock = _NOW if timed else ""
    head = f'target triple = "{target.triple}"\n\n' + "\n".join(declared)
    return f"{head}\n{clock}\ndefine i32 @{name}({parameters}) nounwind {{\n{text}\n}}\n"


def failed_call(result: int) -> tuple[int, int]:
    """Return (number of the call, its code) for a result of `run` other than 0."""
    return (result >> 16) & 0xFFFF, result & 0xFFFF


_NOW = """
define internal i64 @now(ptr %clock) nounwind {
entry:
  %r = call i32 @clock_gettime(i32 1, ptr %clock)
  %s = load i64, ptr %clock, align 8
  %np = getelementptr i64, ptr %clock, i64 1
  %n = load i64, ptr %np, align 8
  %s9 = mul i64 %s, 1000000000
  %t = add i64 %s9, %n
  ret i64 %t
}
"""


def _slots(call: KernelCall) -> tuple[Slot, ...]:
    return call.buffers if call.workspace is None else (*call.buffers, call.workspace)


def _call(number: int, call: KernelCall, timed: bool) -> list[str]:
    lines: list[str] = []
    for i, slot in enumerate(call.buffers):
        lines += _address(f"c{number}.a{i}", slot)
        lines += _argument(number, i, f"ptr %c{number}.a{i}")
    for i, size in enumerate(call.sizes, start=len(call.buffers)):
        if isinstance(size, Number):
            name = f"%c{number}.s{i}"
            lines += [f"  {name}.p = getelementptr i64, ptr %bases, i64 {size.base}", f"  {name} = load i64, ptr {name}.p, align 8"]
            lines += _argument(number, i, f"i64 {name}")
        else:
            lines += _argument(number, i, f"i64 {size}")
    workspace = "null"
    if call.workspace is not None:
        lines += _address(f"c{number}.w", call.workspace)
        workspace = f"%c{number}.w"
    lines.append(f"  %c{number}.r = call i32 @{_quoted(call.symbol)}(ptr %args, ptr {workspace})")
    if timed:
        lines += [
            f"  %t{number + 1} = call i64 @now(ptr %clock)",
            f"  %c{number}.d = sub i64 %t{number + 1}, %t{number}",
            f"  %c{number}.t = getelementptr i64, ptr %times, i64 {number}",
            f"  store i64 %c{number}.d, ptr %c{number}.t, align 8",
        ]
    lines.append(f"  %c{number}.ok = icmp eq i32 %c{number}.r, 0")
    lines.append(f"  br i1 %c{number}.ok, label %after{number}, label %failed{number}")
    lines.append(f"after{number}:")
    return lines


def _failures(count: int) -> list[str]:
    lines: list[str] = []
    for number in range(count):
        code = f"  %c{number}.code = or i32 %c{number}.r, {number << 16}"
        lines += [f"failed{number}:", code, f"  ret i32 %c{number}.code"]
    return lines


def _address(name: str, slot: Slot) -> list[str]:
    return [f"  %{name} = getelementptr i8, ptr %b{slot.base}, i64 {slot.offset}"]


def _argument(number: int, index: int, typed: str) -> list[str]:
    pointer = f"%c{number}.p{index}"
    return [f"  {pointer} = getelementptr i64, ptr %args, i64 {index}", f"  store {typed}, ptr {pointer}, align 8"]


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_.]+", name) else '"' + name.replace('"', "_").replace("\\", "_") + '"'
