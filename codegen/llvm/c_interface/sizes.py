"""How a function looks at the sizes that it is told, and at what they ask of arrays and of memory."""

from __future__ import annotations

from collections.abc import Mapping

from codegen.llvm.c_interface.description import FIRST_OWN, LARGEST, Argument, Code, Codes, Interface, Level, error_texts
from codegen.llvm.c_interface.text import MINIMA, Function
from codegen.llvm.target import Target
from codegen.loops.nodes import Int


def sizes_checked(f: Function, of: Interface, codes: Codes, base: str) -> dict[str, str]:
    """Return the sizes that a structure begins with, by name, checked."""
    env: dict[str, str] = {}
    for k, size in enumerate(of.sizes):
        value = f.word(base, k)
        f.require(f.new(f"icmp ule i64 {value}, {size.most}"), codes.sizes + k)
        env[size.name] = value
    for k, condition in enumerate(of.conditions):
        f.require(f.truth(condition.holds, env), codes.conditions + k)
    return env


def bytes_of(f: Function, argument: Argument, env: Mapping[str, str]) -> str:
    """Return how many bytes an array has; the function returns `ROOM` where that is more than any memory."""
    count: str | int = 1
    for extent in argument.extents:
        if isinstance(extent, Int) and isinstance(count, int):
            count *= extent.value
            continue
        value = f.index(extent, env)
        f.require(f.new(f"icmp ule i64 {value}, {LARGEST}"), Code.ROOM)
        divisor = f.new(f"select i1 {f.new(f'icmp eq i64 {value}, 0')}, i64 1, i64 {value}")
        # By a division: a product of 128 bits is a function of a library, which WebAssembly has not.
        most = f.new(f"udiv i64 {LARGEST}, {divisor}")
        f.require(f.new(f"icmp ule i64 {count}, {most}"), Code.ROOM)
        count = f.new(f"mul i64 {count}, {value}")
    if isinstance(count, int):
        return str(count * argument.dtype.size_bytes)
    return f.new(f"mul i64 {count}, {argument.dtype.size_bytes}")


def room_required(f: Function, level: Level, env: Mapping[str, str]) -> None:
    """Return `ROOM` from the function where the arena is too small for these sizes."""
    if level.room is not None:
        f.require(f.new(f"icmp ule i64 {f.index(level.room, env)}, {level.arena_bytes}"), Code.ROOM)


def _extents_put(f: Function, of: Interface, env: Mapping[str, str]) -> int:
    """Write the extents of all arrays, whose sizes are looked at, to `%extents`. Return how many there are."""
    extents = []
    for argument in of.arguments:
        bytes_of(f, argument, env)
        extents += [f.index(extent, env) for extent in argument.extents]
    for k, extent in enumerate(extents):
        f.put("%extents", k, f"i64 {extent}")
    return len(extents)


def extents_ir(of: Interface, codes: Codes) -> str:
    """Return the function that tells the extents of all arrays for some sizes."""
    f = Function()
    pointers = [*(["%sizes"] if of.sizes else []), *(["%extents"] if any(a.extents for a in of.arguments) else [])]
    for pointer in pointers:
        f.require(f.new(f"icmp ne ptr {pointer}, null"), Code.NULL_ARGUMENT)
    _extents_put(f, of, sizes_checked(f, of, codes, "%sizes"))
    f.add("ret i32 0")
    return f"define i32 @{of.name}_extents(ptr %sizes, ptr %extents) nounwind {{\nentry:\n" + "\n".join(f.lines) + "\n}\n"


def sizes_ir(of: Interface, target: Target) -> str:
    """Return the function of a module of WebAssembly that looks at sizes, as LLVM IR, for an interface of one level:

        i32 sizes(ptr sizes, ptr extents)      the extents of all arrays for some sizes, and behind them the numbers that its entry is told

    What it refuses is a result of `size_texts`."""
    f, codes, [level] = Function(), Codes(of), of.levels
    env = sizes_checked(f, of, codes, "%sizes")
    first = _extents_put(f, of, env)
    for k, number in enumerate(level.numbers, start=first):
        f.put("%extents", k, f"i64 {f.index(number, env)}")
    room_required(f, level, env)
    f.add("ret i32 0")
    head = f'target triple = "{target.triple}"\n{MINIMA}\ndefine i32 @sizes(ptr %sizes, ptr %extents) nounwind {{\nentry:\n'
    return head + "\n".join(f.lines) + "\n}\n"


def size_texts(of: Interface) -> dict[int, str]:
    """Return what each result of `sizes_ir` means that refuses sizes."""
    refused = range(FIRST_OWN, Codes(of).arguments)
    return {code: text for code, text in error_texts(of).items() if code == Code.ROOM or code in refused}
