"""Functions that nobody here compiled, as kernels: `i32 f(ptr…, i64…, double…)`, called by what it is told when it is compiled.

    library_function(path, "f")        the address of a function of a shared library
    text_function(text, "f", …)        of one of LLVM IR, compiled
    thunk(call, target)                LLVM IR of a kernel that calls one

A kernel takes its buffers from an array of addresses; the thunk passes them on one by one, and behind them the numbers of the call, which
are constants in it, or stand behind the addresses where only the call tells them (`Argument`). A status other than 0 becomes the kernel's
code, in as many bits as codes have: statuses beyond are cut to the nearest.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from codegen.llvm import stamp
from codegen.llvm.jit import CompileError, Library, kept_object, load, parsed
from codegen.llvm.target import Target
from codegen.store import Cache


@dataclass(frozen=True, slots=True)
class Argument:
    """An i64 that the kernel is told behind its buffers, as number `at` of its arguments; of `count`, so many from there on."""

    at: int
    count: int | None = None


Numbers = int | float | tuple[int, ...] | Argument
"""A number that a function is passed: an i64, a double, or several i64 as their count and their address."""


class ForeignError(Exception):
    """There is no such function, or it is not of the type that it is called by; the message says which."""


@dataclass(frozen=True, slots=True)
class Buffers:
    """Several buffers as one parameter: how many there are, and where their addresses stand, those of `first` and `count - 1` behind it."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class ForeignCall:
    """A call of the function that is imported as `imported`: `buffers` are numbers of the buffers of the kernel that stand for its
    pointers, None for a null pointer; `code_bits`: in how many bits its status is told. `right`: what it returns where all is right, which
    is what its statuses are counted from."""

    imported: str
    buffers: tuple[int | Buffers | None, ...]
    numbers: tuple[Numbers, ...] = ()
    code_bits: int = 16
    right: int = 0

    @property
    def types(self) -> tuple[str, ...]:
        """Return the types of the function's parameters as LLVM writes them."""
        pointers = (("i64", "ptr") if isinstance(buffer, Buffers) else ("ptr",) for buffer in self.buffers)
        return (*(t for types in pointers for t in types), *(t for n in self.numbers for t in _types(n)))


def _types(number: Numbers) -> tuple[str, ...]:
    match number:
        case tuple() | Argument(count=int()):
            return ("i64", "ptr")
        case float():
            return ("double",)
        case _:
            return ("i64",)


# ---------------------------------------------------------------- calls


def thunk(call: ForeignCall, target: Target) -> tuple[str, str]:
    """Return the name of a kernel that makes a call, and its LLVM IR."""
    digest = hashlib.sha256(repr(call).encode()).hexdigest()
    name = f"tl_extern_{digest[:24]}"
    constants: list[str] = []
    lines = ["entry:"]
    passed: list[str] = []
    for buffer in call.buffers:
        if buffer is None:
            passed.append("ptr null")
            continue
        if isinstance(buffer, Buffers):
            lines.append(f"  %g{buffer.first} = getelementptr i64, ptr %args, i64 {buffer.first}")
            passed += [f"i64 {buffer.count}", f"ptr %g{buffer.first}"]
            continue
        lines += [f"  %p{buffer} = getelementptr i64, ptr %args, i64 {buffer}", f"  %a{buffer} = load ptr, ptr %p{buffer}, align 8"]
        passed.append(f"ptr %a{buffer}")
    for k, number in enumerate(call.numbers):
        if isinstance(number, Argument):
            lines.append(f"  %np{k} = getelementptr i64, ptr %args, i64 {number.at}")
            if number.count is None:
                lines.append(f"  %n{k} = load i64, ptr %np{k}, align 8")
            passed += [f"i64 %n{k}"] if number.count is None else [f"i64 {number.count}", f"ptr %np{k}"]
        elif isinstance(number, tuple):
            items = ", ".join(f"i64 {n}" for n in number or (0,))
            constants.append(f"@{name}.{k} = private unnamed_addr constant [{len(number) or 1} x i64] [{items}]")
            passed += [f"i64 {len(number)}", f"ptr @{name}.{k}"]
        elif isinstance(number, float):
            passed.append(f"double 0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}")
        else:
            passed.append(f"i64 {number}")
    least, most = -(1 << (call.code_bits - 1)), (1 << (call.code_bits - 1)) - 1
    lines += [
        f"  %returned = call i32 @{call.imported}({', '.join(passed)})",
        f"  %status = sub i32 %returned, {call.right}",
        f"  %low = icmp slt i32 %status, {least}",
        f"  %raised = select i1 %low, i32 {least}, i32 %status",
        f"  %high = icmp sgt i32 %raised, {most}",
        f"  %cut = select i1 %high, i32 {most}, i32 %raised",
        f"  %code = and i32 %cut, {(1 << call.code_bits) - 1}",
        "  ret i32 %code",
    ]
    head = f'{stamp.line(target)}target triple = "{target.triple}"\n\ndeclare i32 @{call.imported}({", ".join(call.types)})\n'
    body = "\n".join(lines)
    return name, "\n".join([head, *constants, f"define i32 @{name}(ptr %args, ptr %workspace) nounwind {{\n{body}\n}}\n"])


def status_of(code: int, bits: int) -> int:
    """Return the status that a kernel's code stands for."""
    return code - (1 << bits) if code >> (bits - 1) else code


# ---------------------------------------------------------------- functions


@cache
def _opened(path: str) -> ctypes.CDLL:
    return ctypes.CDLL(path or None)


def library_function(path: str, symbol: str) -> int:
    """Return the address of a function of a shared library, of what the process has loaded where `path` is "". The library stays loaded.

    Raises OSError where it cannot be loaded, ForeignError where there is no such function."""
    try:
        found = getattr(_opened(path), symbol)
    except AttributeError:
        raise ForeignError(f"there is no `{symbol}` in it") from None
    return int(ctypes.cast(found, ctypes.c_void_p).value or 0)


def text_function(text: str, symbol: str, types: Sequence[str], target: Target, store: Cache | None) -> int:
    """Return the address of a function of LLVM IR, compiled for `target` and loaded for good. Raises ForeignError where it has no function
    that is called by such types, or is no LLVM IR."""
    _checked(text, symbol, tuple(types), target)
    try:
        return _loaded(text, target, store).address(symbol)
    except (RuntimeError, KeyError) as problem:
        raise ForeignError(f"it cannot be linked: {_told(problem)}") from None


_LOADED: dict[tuple[str, Target], Library] = {}


def _loaded(text: str, target: Target, store: Cache | None) -> Library:
    key = text, target
    if key not in _LOADED:
        _LOADED[key] = load([kept_object("foreign", stamp.line(target) + text, target, store)])
    return _LOADED[key]


def _checked(text: str, symbol: str, types: tuple[str, ...], target: Target) -> None:
    """Raise ForeignError for text that is no LLVM IR for the target, or has no such function."""
    try:
        module = parsed(stamp.line(target) + text, target)
    except CompileError as problem:
        raise ForeignError(f"it is no LLVM IR: {_told(problem)}") from None
    family = target.triple.split("-")[0]
    if module.triple and module.triple.split("-")[0] != family:
        raise ForeignError(f"it is for `{module.triple}`, and the target is `{family}`")
    found = {f.name: f for f in module.functions if not f.is_declaration}
    if symbol not in found:
        there = ", ".join(f"`{name}`" for name in found) or "no function"
        raise ForeignError(f"there is no `{symbol}` in it; it defines {there}")
    function: Any = found[symbol]
    if function.linkage in (llvm.Linkage.internal, llvm.Linkage.private):
        raise ForeignError(f"`{symbol}` is internal to it")
    mine = tuple(str(a.type) for a in function.arguments)
    wanted = f"i32 ({', '.join(types)})"
    given = f"{_result(function)} ({', '.join(mine)})"
    if given != wanted:
        raise ForeignError(f"`{symbol}` is `{given}`, and is called as `{wanted}`")


def _result(function: Any) -> str:
    """Return the type of what a function returns, as the text of its definition says it."""
    words = str(function).split(f"@{function.name}(", 1)[0].split()
    return words[-1] if words else ""


def _told(problem: Exception) -> str:
    """Return what LLVM says, in one line."""
    text = str(problem.args[0] if isinstance(problem, KeyError) else problem)
    return ": ".join(line.strip() for line in text.splitlines()[:2]) or "LLVM refused it"
