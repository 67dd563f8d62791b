"""Shared libraries made without a compiler or a linker: LLVM's code for functions that refer to nothing else.

path.write_bytes(shared_library("define i32 @f(ptr %y) { ret i32 0 }"))
"""

from __future__ import annotations

from codegen.elf import shared
from codegen.elf.objects import GLOBAL, merged, parse
from codegen.llvm.jit import compile_object
from codegen.llvm.target import host


def shared_library(text: str) -> bytes:
    """Return a shared library of the functions that LLVM IR text defines."""
    target = host()
    made = parse(compile_object(f'target triple = "{target.triple}"\n{text}', target))
    functions = [s.name for s in made.symbols if s.binding == GLOBAL and s.section is not None]
    return shared.shared_library(merged([made], functions), functions, "libfunctions.so")
