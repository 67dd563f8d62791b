"""What code needs of a processor, written where the code is: LLVM IR text begins with it, object files end with it.

    ; needs x86-64-v3: x86_64 avx,avx2,…        the target it was made for, its family, its features

Text without such a line runs on every processor of its family. To linkers, what follows an object is nothing; an object of WebAssembly
ends with a custom section, which is nothing to them either.
"""

from __future__ import annotations

from functools import cache

from codegen.errors import InternalError
from codegen.llvm.target import Needs, Target

_MARK = "; needs "


def line(target: Target) -> str:
    """Return the line that text for `target` begins with."""
    needs = target.needs
    return f"{_MARK}{needs.target}: {needs.family} {','.join(sorted(needs.features))}\n"


def of_text(ir_text: str) -> Needs | None:
    """Return what LLVM IR text needs, or None where it does not say."""
    return _read(ir_text[: ir_text.index("\n")]) if ir_text.startswith(_MARK) else None


def on_object(data: bytes, target: Target) -> bytes:
    """Return an object file with what it needs, being compiled for `target`."""
    text = line(target).encode()
    return data + (custom_section("needs", text) if target.is_wasm else text)


def custom_section(name: str, content: bytes) -> bytes:
    """Return a section of WebAssembly that engines and linkers pass over."""
    title = unsigned(len(name)) + name.encode()
    return b"\0" + unsigned(len(title) + len(content)) + title + content


def unsigned(number: int) -> bytes:
    """Return a number in the encoding that WebAssembly has for it, seven bits a byte (LEB128)."""
    low, rest = number & 0x7F, number >> 7
    return bytes((low | 0x80,)) + unsigned(rest) if rest else bytes((low,))


def of_object(data: bytes) -> Needs:
    """Return what an object needs. Raises InternalError for what `on_object` did not return."""
    start = data.rfind(_MARK.encode())
    if start < 0:
        raise InternalError("load", "an object does not say which processor it needs")
    return _read(data[start:].decode().rstrip("\n"))


@cache
def _read(text: str) -> Needs:
    name, rest = text.removeprefix(_MARK).split(": ")
    family, _, features = rest.partition(" ")
    return Needs(name, family, frozenset(features.split(",")))
