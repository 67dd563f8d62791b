"""What code needs of a processor, written where the code is: LLVM IR text begins with it, object files end with it.

    ; needs x86-64-v3: x86_64 avx,avx2,…        the target it was made for, its family, its features

Text without such a line runs on every processor of its family. To linkers, what follows an object is nothing.
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
    return data + line(target).encode()


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
