"""Shared libraries made without a compiler or a linker: LLVM's code for functions that refer to nothing, in the smallest file that loads.

path.write_bytes(shared_library("define i32 @f(ptr %y) { ret i32 0 }"))
"""

from __future__ import annotations

import struct

from codegen.llvm.jit import compile_object
from codegen.llvm.target import host

_PAGE = 1 << 16
_HEADER, _SEGMENT, _SYMBOL = 64, 56, 24


def shared_library(text: str) -> bytes:
    """Return a shared library (ELF, 64 bits) of the functions that LLVM IR text defines; they call nothing and have no constants."""
    target = host()
    machine, code, functions = _functions(compile_object(f'target triple = "{target.triple}"\n{text}', target))
    names = b"\0" + b"".join(name + b"\0" for name in functions)
    symbols_at = _HEADER + 4 * _SEGMENT
    hash_at = symbols_at + _SYMBOL * (1 + len(functions))
    names_at = hash_at + 4 * (4 + len(functions))
    code_at = -(-(names_at + len(names)) // 64) * 64
    end = code_at + len(code)
    dynamic_at = -(-end // _PAGE) * _PAGE
    dynamic = b"".join(
        struct.pack("<qQ", tag, value)
        for tag, value in ((4, hash_at), (5, names_at), (6, symbols_at), (10, len(names)), (11, _SYMBOL), (0, 0))
    )
    symbols = bytes(_SYMBOL)
    for name, (offset, size) in functions.items():
        symbols += struct.pack("<IBBHQQ", names.index(b"\0" + name + b"\0") + 1, 0x12, 0, 1, code_at + offset, size)
    chain = [0, *range(2, len(functions) + 1), 0]
    table = struct.pack(f"<{3 + len(chain)}I", 1, len(functions) + 1, 1, *chain)
    head = struct.pack("<4s5B7xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 0, 3, machine, 1, 0, _HEADER, 0, 0, _HEADER, _SEGMENT, 4, 64, 0, 0)
    segments = _segment(1, 5, 0, end, _PAGE) + _segment(1, 6, dynamic_at, len(dynamic), _PAGE)
    segments += _segment(2, 6, dynamic_at, len(dynamic), 8) + _segment(0x6474E551, 6, 0, 0, 16)
    read_only = (head + segments + symbols + table + names).ljust(code_at, b"\0") + code
    return read_only.ljust(dynamic_at, b"\0") + dynamic


def _segment(kind: int, flags: int, at: int, size: int, align: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, flags, at, at, at, size, size, align)


def _functions(data: bytes) -> tuple[int, bytes, dict[bytes, tuple[int, int]]]:
    """Return the machine, the code and the functions of an object: where in the code each begins, and its size."""
    machine = struct.unpack_from("<H", data, 18)[0]
    table, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + k * size) for k in range(count)]
    symbols = next(s for s in sections if s[1] == 2)
    strings = sections[symbols[6]]
    found: dict[bytes, tuple[int, int]] = {}
    homes = set()
    for at in range(symbols[4], symbols[4] + symbols[5], _SYMBOL):
        name, info, _, home, value, length = struct.unpack_from("<IBBHQQ", data, at)
        if info == 0x12:
            start = strings[4] + name
            found[data[start : data.index(b"\0", start)]] = value, length
            homes.add(home)
    [home] = homes
    assert not any(s[1] in (4, 9) and s[7] == home for s in sections), "the functions refer to something"
    return machine, data[sections[home][4] : sections[home][4] + sections[home][5]], found
