"""Several kernels in one native call: the calls of a whole model, in order.

    i32 run(ptr bases)                       call every kernel; stop at the first that does not return 0
    i32 run_timed(ptr bases, ptr times)      the same; call k ran from times[2 k] to times[2 k + 1]

`bases` is an array of addresses (inputs, outputs, arena, weights ...). A slot of a call names one of them and a byte offset, so the plan of
buffers is compiled in. A result other than 0 is `call << 16 | code`: which call failed, counted from 0, and the code it returned. (The code
has fewer bits in a program of more than 32 767 calls.) Times are nanoseconds of the monotonic clock; a call that is made again and again
began with the first of them, and took as long as all of them together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from codegen.llvm.builder import quoted
from codegen.llvm.calls import Call, Repetition, address, call_count, kernel_calls, loaded_bases, loaded_number, slots_of, with_numbers
from codegen.llvm.calls import KernelCall as KernelCall
from codegen.llvm.calls import Number as Number
from codegen.llvm.calls import Slot as Slot
from codegen.llvm.repetition import COPY, repetition_ir
from codegen.llvm.signals import ASK
from codegen.llvm.target import Target

BEGIN = "tl_begin"


@dataclass(frozen=True, slots=True)
class Program:
    """A straight line of calls. With more than one of `threads`, parallel loops use so many, and sleeping workers are woken first."""

    calls: tuple[Call, ...]
    name: str = "run"
    threads: int = 1

    @property
    def kernel_calls(self) -> tuple[KernelCall, ...]:
        """The calls of kernels by their numbers, those of repetitions among them."""
        return tuple(kernel_calls(self.calls))


def emit_program(program: Program, target: Target, *, timed: bool = False, asks_signals: bool = False) -> str:
    """Return the LLVM IR of the entry point, `<name>` or `<name>_timed`; the kernels are linked to it by name. `asks_signals`: signals
    may stop what is made again and again, in a process of Python (`signals.py`).

    The calls of a long program are cut into sections, each a function of its own: what LLVM does to a function takes more than twice as
    long for one that is twice as long."""
    kernels = program.kernel_calls
    declared = [f"declare i32 @{quoted(symbol)}(ptr, ptr)" for symbol in sorted({call.symbol for call in kernels})]
    woken = program.threads > 1
    if woken:
        declared.append(f"declare void @{BEGIN}(i64)")
    repeats = any(isinstance(call, Repetition) for call in program.calls)
    asks = asks_signals and repeats
    if timed or asks:
        declared.append("declare i32 @clock_gettime(i32, ptr)")
    name = program.name + ("_timed" if timed else "")
    wake = [f"  call void @{BEGIN}(i64 {program.threads})"] if woken else []
    functions = _Emission(code_bits(len(kernels)), timed, asks).sequence(program.calls, 0, name, wake)
    head = f'target triple = "{target.triple}"\n\n' + "\n".join(declared)
    helpers = [NOW if timed or asks else "", *([COPY] if repeats else []), *([ASK] if asks else [])]
    return "\n".join([head, *helpers, *functions])


MOST_STORED = 1024
"""How many addresses and results the calls of a section have at most, unless it is one call."""


def sections(calls: Sequence[Call]) -> tuple[range, ...]:
    """Return the positions of the calls of each section, in order."""
    starts, stored = [0], 0
    for position, call in enumerate(calls):
        size = len(call.buffers) + len(call.sizes) + 2 if isinstance(call, KernelCall) else 2
        if stored and stored + size > MOST_STORED:
            starts.append(position)
            stored = 0
        stored += size
    return tuple(range(a, b) for a, b in pairwise([*starts, len(calls)]))


def failed_call(result: int, calls: int = 1) -> tuple[int, int]:
    """Return (number of the call, its code) for a result of `run` other than 0, in a program of so many calls."""
    bits = code_bits(calls)
    return result >> bits, result & ((1 << bits) - 1)


def code_bits(calls: int) -> int:
    """Return in how many bits the code of a call stands in a program of so many calls: 16, unless there are very many."""
    return 31 - max(15, calls.bit_length())


@dataclass(frozen=True, slots=True)
class _Emission:
    """What all functions of an entry point agree on."""

    bits: int
    timed: bool
    asks: bool

    def sequence(self, calls: Sequence[Call], start: int, name: str, wake: list[str], linkage: str = "", again: bool = False) -> list[str]:
        """Return the functions that make calls, numbered from `start` on, in order; `name` is the last of them. `again`: they are made
        more than once."""
        numbered = [(k, number, call) for k, (number, call) in enumerate(with_numbers(calls, start))]
        cuts = sections(calls)
        inner = [text for k, number, call in numbered for text in self._repeated(number, call, _name_of(name, k), again)]
        if len(cuts) == 1:
            return [*inner, self._function(numbered, name, name, wake, linkage, again)]
        names = [f"{name}.{k}" for k in range(len(cuts))]
        functions = [
            self._function([numbered[k] for k in cut], own, name, [], "internal ", again) for own, cut in zip(names, cuts, strict=True)
        ]
        return [_functions_of(names, name), *inner, *functions, _in_turn(len(names), name, wake, self.timed, linkage)]

    def _repeated(self, number: int, call: Call, own: str, again: bool) -> list[str]:
        """Return the functions of a call that is a repetition: what it repeats, and `own`, which runs it."""
        if isinstance(call, KernelCall):
            return []
        numbers = None if not self.timed or again else range(number, number + call_count(call))
        body = self.sequence(call.calls, number, f"{own}.turn", [], "internal ", again=True)
        return [*body, repetition_ir(call, own, f"{own}.turn", _parameters(self.timed), numbers, self.asks)]

    def _function(self, numbered: Sequence[tuple[int, int, Call]], name: str, of: str, first: list[str], linkage: str, again: bool) -> str:
        """Return the function of some of the calls of the sequence `of`, by their positions and numbers, which begins with the instructions
        `first`."""
        kernels = [call for _, _, call in numbered if isinstance(call, KernelCall)]
        slots = max((len(call.buffers) + len(call.sizes) for call in kernels), default=0)
        body = ["entry:", f"  %args = alloca [{max(slots, 1)} x i64], align 8"]
        if self.timed:
            body.append("  %clock = alloca [2 x i64], align 8")
        readers = Counter(base for call in kernels for base in {slot.base for slot in slots_of(call)})
        body += [*first, *loaded_bases(slot for call in kernels for slot in slots_of(call) if readers[slot.base] > 1)]
        if self.timed:
            body.append(f"  %t{numbered[0][1] if numbered else 0} = call i64 @now(ptr %clock)")
        for k, number, call in numbered:
            if isinstance(call, KernelCall):  # what it alone counts from is in no register while others run
                body += [*loaded_bases(slot for slot in slots_of(call) if readers[slot.base] == 1), *self._call(number, call, again)]
            else:
                body += self._repetition(k, number, call, of)
        body += ["  ret i32 0", *_failures([number for _, number, call in numbered if isinstance(call, KernelCall)], self.bits)]
        text = "\n".join(body)
        return f"define {linkage}i32 @{quoted(name)}({_parameters(self.timed)}) nounwind {{\n{text}\n}}\n"

    def _call(self, number: int, call: KernelCall, again: bool) -> list[str]:
        lines: list[str] = []
        for i, slot in enumerate(call.buffers):
            lines += address(f"c{number}.a{i}", slot)
            lines += _argument(number, i, f"ptr %c{number}.a{i}")
        for i, size in enumerate(call.sizes, start=len(call.buffers)):
            if isinstance(size, Number):
                name = f"%c{number}.s{i}"
                lines += loaded_number(name, size)
                lines += _argument(number, i, f"i64 {name}")
            else:
                lines += _argument(number, i, f"i64 {size}")
        workspace = "null"
        if call.workspace is not None:
            lines += address(f"c{number}.w", call.workspace)
            workspace = f"%c{number}.w"
        lines.append(f"  %c{number}.r = call i32 @{quoted(call.symbol)}(ptr %args, ptr {workspace})")
        if self.timed:
            lines += [f"  %t{number + 1} = call i64 @now(ptr %clock)", *_noted(number, again)]
        lines.append(f"  %c{number}.ok = icmp eq i32 %c{number}.r, 0")
        lines.append(f"  br i1 %c{number}.ok, label %after{number}, label %failed{number}")
        lines.append(f"after{number}:")
        return lines

    def _repetition(self, position: int, number: int, call: Repetition, of: str) -> list[str]:
        arguments, count = _parameters(self.timed), call_count(call)
        return [
            f"  %r{position} = call i32 @{quoted(_name_of(of, position))}({arguments})",
            *([f"  %t{number + count} = call i64 @now(ptr %clock)"] if self.timed and count else []),
            f"  %r{position}.ok = icmp eq i32 %r{position}, 0",
            f"  br i1 %r{position}.ok, label %ran{position}, label %stopped{position}",
            f"stopped{position}:",
            f"  ret i32 %r{position}",
            f"ran{position}:",
        ]


def _name_of(sequence: str, position: int) -> str:
    """Return the name of the function of a repetition among the calls of a sequence. It may repeat no calls, only count: its number is
    that of the call behind it then."""
    return f"{sequence}.again{position}"


def _noted(number: int, again: bool) -> list[str]:
    """Return the instructions that store when a call began and ended; of one that is made `again`, how long it took is added."""
    lines = [f"  %c{number}.e = getelementptr i64, ptr %times, i64 {2 * number + 1}"]
    if again:
        return [
            *lines,
            f"  %c{number}.took = sub i64 %t{number + 1}, %t{number}",
            f"  %c{number}.so = load i64, ptr %c{number}.e, align 8",
            f"  %c{number}.far = add i64 %c{number}.so, %c{number}.took",
            f"  store i64 %c{number}.far, ptr %c{number}.e, align 8",
        ]
    return [
        f"  %c{number}.b = getelementptr i64, ptr %times, i64 {2 * number}",
        f"  store i64 %t{number}, ptr %c{number}.b, align 8",
        *lines,
        f"  store i64 %t{number + 1}, ptr %c{number}.e, align 8",
    ]


def _parameters(timed: bool) -> str:
    return "ptr %bases, ptr %times" if timed else "ptr %bases"


def _functions_of(names: list[str], name: str) -> str:
    table = ", ".join(f"ptr @{quoted(own)}" for own in names)
    return f"@{quoted(f'{name}.sections')} = internal constant [{len(names)} x ptr] [{table}]\n"


def _in_turn(count: int, name: str, first: list[str], timed: bool, linkage: str) -> str:
    """Return the entry point that calls the sections in order until one does not return 0."""
    arguments = _parameters(timed)
    lines = [
        f"define {linkage}i32 @{quoted(name)}({arguments}) nounwind {{",
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


def _failures(numbers: Sequence[int], bits: int) -> list[str]:
    lines: list[str] = []
    for number in numbers:
        code = f"  %c{number}.code = or i32 %c{number}.r, {number << bits}"
        lines += [f"failed{number}:", code, f"  ret i32 %c{number}.code"]
    return lines


def _argument(number: int, index: int, typed: str) -> list[str]:
    pointer = f"%c{number}.p{index}"
    return [f"  {pointer} = getelementptr i64, ptr %args, i64 {index}", f"  store {typed}, ptr {pointer}, align 8"]
