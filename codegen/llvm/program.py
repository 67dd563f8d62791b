"""Several kernels in one native call: the calls of a whole model, in order.

    i32 run(ptr bases)                       call every kernel; stop at the first that does not return 0
    i32 run_timed(ptr bases, ptr times)      the same; call k ran from times[2 k] to times[2 k + 1]

`bases` is an array of addresses (inputs, outputs, arena, weights ...). A slot of a call names one of them and a byte offset, so the plan of
buffers is compiled in. A result other than 0 is `call << 16 | code`: which call failed, counted from 0, and the code it returned. (The code
has fewer bits in a program of more than 32 767 calls.) Times are nanoseconds of the monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from codegen.llvm.builder import quoted
from codegen.llvm.target import Target

BEGIN = "tl_begin"


@dataclass(frozen=True, slots=True)
class Slot:
    """The buffer at `offset` bytes from base number `base`, and as many more as `shift` says where that is given."""

    base: int
    offset: int = 0
    shift: Number | None = None


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
    """Return the LLVM IR of the entry point, `<name>` or `<name>_timed`; the kernels are linked to it by name.

    The calls of a long program are cut into sections, each a function of its own: what LLVM does to a function takes more than twice as
    long for one that is twice as long."""
    symbols = sorted({call.symbol for call in program.calls})
    declared = [f"declare i32 @{quoted(symbol)}(ptr, ptr)" for symbol in symbols]
    woken = program.threads > 1
    if woken:
        declared.append(f"declare void @{BEGIN}(i64)")
    if timed:
        declared.append("declare i32 @clock_gettime(i32, ptr)")
    name = program.name + ("_timed" if timed else "")
    wake = [f"  call void @{BEGIN}(i64 {program.threads})"] if woken else []
    cuts = sections(program)
    if len(cuts) == 1:
        functions = [_function(program, cuts[0], f"@{quoted(name)}", wake, timed)]
    else:
        names = [f"@{quoted(f'{name}.{k}')}" for k in range(len(cuts))]
        functions = [_function(program, cut, own, [], timed, linkage="internal ") for own, cut in zip(names, cuts, strict=True)]
        functions = [_functions_of(names, name), *functions, _in_turn(len(names), name, wake, timed)]
    head = f'target triple = "{target.triple}"\n\n' + "\n".join(declared)
    clock = NOW if timed else ""
    return "\n".join([head, clock, *functions])


MOST_STORED = 1024
"""How many addresses and results the calls of a section have at most, unless it is one call."""


def sections(program: Program) -> tuple[range, ...]:
    """Return the numbers of the calls of each section, in order."""
    starts, stored = [0], 0
    for number, call in enumerate(program.calls):
        size = len(call.buffers) + len(call.sizes) + 2
        if stored and stored + size > MOST_STORED:
            starts.append(number)
            stored = 0
        stored += size
    return tuple(range(a, b) for a, b in pairwise([*starts, len(program.calls)]))


def failed_call(result: int, calls: int = 1) -> tuple[int, int]:
    """Return (number of the call, its code) for a result of `run` other than 0, in a program of so many calls."""
    bits = code_bits(calls)
    return result >> bits, result & ((1 << bits) - 1)


def code_bits(calls: int) -> int:
    """Return in how many bits the code of a call stands in a program of so many calls: 16, unless there are very many."""
    return 31 - max(15, calls.bit_length())


def _function(program: Program, numbers: range, name: str, first: list[str], timed: bool, linkage: str = "") -> str:
    """Return the function of some of the calls, which begins with the instructions `first`."""
    calls = [program.calls[number] for number in numbers]
    slots = max((len(call.buffers) + len(call.sizes) for call in calls), default=0)
    body = ["entry:", f"  %args = alloca [{max(slots, 1)} x i64], align 8"]
    if timed:
        body.append("  %clock = alloca [2 x i64], align 8")
    body += first
    for base in sorted({slot.base for call in calls for slot in _slots(call)}):
        body.append(f"  %bp{base} = getelementptr i64, ptr %bases, i64 {base}")
        body.append(f"  %b{base} = load ptr, ptr %bp{base}, align 8")
    if timed:
        body.append(f"  %t{numbers.start} = call i64 @now(ptr %clock)")
    for number, call in zip(numbers, calls, strict=True):
        body += _call(number, call, timed)
    body += ["  ret i32 0", *_failures(numbers, code_bits(len(program.calls)))]
    text = "\n".join(body)
    return f"define {linkage}i32 {name}({_parameters(timed)}) nounwind {{\n{text}\n}}\n"


def _parameters(timed: bool) -> str:
    return "ptr %bases, ptr %times" if timed else "ptr %bases"


def _functions_of(names: list[str], name: str) -> str:
    table = ", ".join(f"ptr {own}" for own in names)
    return f"@{quoted(f'{name}.sections')} = internal constant [{len(names)} x ptr] [{table}]\n"


def _in_turn(count: int, name: str, first: list[str], timed: bool) -> str:
    """Return the entry point that calls the sections in order until one does not return 0."""
    arguments = _parameters(timed)
    lines = [
        f"define i32 @{quoted(name)}({arguments}) nounwind {{",
        "entry:",
        *first,
        "  br label %next",
        "next:",
        "  %k = phi i64 [ 0, %entry ], [ %following, %fine ]",
        f"  %where = getelementptr ptr, ptr @{quoted(f'{name}.sections')}, i64 %k",
        "  %section = load ptr, ptr %where, align 8",
        f"  %r = call i32 %section({arguments})",
        "  %ok = icmp eq i32 %r, 0",
        "  br i1 %ok, label %fine, label %done",
        "fine:",
        "  %following = add i64 %k, 1",
        f"  %more = icmp ult i64 %following, {count}",
        "  br i1 %more, label %next, label %done",
        "done:",
        "  ret i32 %r",
        "}",
    ]
    return "\n".join([*lines, ""])


NOW = """
; The time in nanoseconds. Needs `clock_gettime` declared.
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
            lines += _number(name, size)
            lines += _argument(number, i, f"i64 {name}")
        else:
            lines += _argument(number, i, f"i64 {size}")
    workspace = "null"
    if call.workspace is not None:
        lines += _address(f"c{number}.w", call.workspace)
        workspace = f"%c{number}.w"
    lines.append(f"  %c{number}.r = call i32 @{quoted(call.symbol)}(ptr %args, ptr {workspace})")
    if timed:
        lines += [
            f"  %t{number + 1} = call i64 @now(ptr %clock)",
            f"  %c{number}.b = getelementptr i64, ptr %times, i64 {2 * number}",
            f"  store i64 %t{number}, ptr %c{number}.b, align 8",
            f"  %c{number}.e = getelementptr i64, ptr %times, i64 {2 * number + 1}",
            f"  store i64 %t{number + 1}, ptr %c{number}.e, align 8",
        ]
    lines.append(f"  %c{number}.ok = icmp eq i32 %c{number}.r, 0")
    lines.append(f"  br i1 %c{number}.ok, label %after{number}, label %failed{number}")
    lines.append(f"after{number}:")
    return lines


def _failures(numbers: range, bits: int) -> list[str]:
    lines: list[str] = []
    for number in numbers:
        code = f"  %c{number}.code = or i32 %c{number}.r, {number << bits}"
        lines += [f"failed{number}:", code, f"  ret i32 %c{number}.code"]
    return lines


def _address(name: str, slot: Slot) -> list[str]:
    base, lines = f"%b{slot.base}", list[str]()
    if slot.shift is not None:
        lines = [*_number(f"%{name}.n", slot.shift), f"  %{name}.b = getelementptr i8, ptr {base}, i64 %{name}.n"]
        base = f"%{name}.b"
    return [*lines, f"  %{name} = getelementptr i8, ptr {base}, i64 {slot.offset}"]


def _number(name: str, number: Number) -> list[str]:
    return [f"  {name}.p = getelementptr i64, ptr %bases, i64 {number.base}", f"  {name} = load i64, ptr {name}.p, align 8"]


def _argument(number: int, index: int, typed: str) -> list[str]:
    pointer = f"%c{number}.p{index}"
    return [f"  {pointer} = getelementptr i64, ptr %args, i64 {index}", f"  store {typed}, ptr {pointer}, align 8"]
