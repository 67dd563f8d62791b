"""A model or an operator as modules of WebAssembly, one for each level of instructions, with what JavaScript needs to call them.

NAME-wasm32.wasm      the code: `run(table)`, where `table` is the address of 64-bit words, one for each base
NAME-wasm32.weights   the weights, copied into the module's memory; levels that read the same share the file
NAME.js               loads the first level that an engine has, places the arrays, and turns results that refuse into errors
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files as files_of
from math import prod
from typing import Any

from codegen.llvm.c_interface import Argument
from codegen.llvm.jit import compile_object
from codegen.llvm.program import code_bits, emit_program
from codegen.llvm.wasm import linked
from codegen.loops.nodes import Int
from tensorlang.backends.cpu.native_library import Compiled
from tensorlang.diagnostics import error


def module_files(name: str, levels: Sequence[Compiled]) -> dict[str, bytes]:
    """Return the files of a library for WebAssembly, by their names. Raises CompileError C0131 for open sizes."""
    found: dict[str, bytes] = {}
    about = [_level(name, level, found) for level in levels]
    first = levels[0]
    described = {"name": name, "inputs": _described(first.inputs), "outputs": _described(first.outputs), "levels": about}
    template = (files_of("tensorlang.backends.cpu") / "wasm_module.js").read_text("utf-8")
    found[f"{name}.js"] = template.replace("/*ABOUT*/ null", json.dumps(described, ensure_ascii=True)).encode()
    return found


def _level(name: str, level: Compiled, found: dict[str, bytes]) -> dict[str, Any]:
    """Put the files of a level into `found`. Return what JavaScript is told of it."""
    if level.sizes or level.numbers:
        title = "not supported yet: modules of WebAssembly with open sizes"
        raise error("C0131", title, help="fix the sizes: `shapes={…}`, or the shapes of all inputs on the command line")
    entry = compile_object(emit_program(level.entry, level.target), level.target)
    objects = [entry, *level.objects.values()]
    code = f"{name}-{level.target.name}.wasm"
    found[code] = linked(objects, [level.entry.name])
    held = None if level.weights is None else level.weights.tobytes()
    weights = _kept(f"{name}-{level.target.name}.weights", held, found)
    bases = [_bytes(a) for a in (*level.outputs, *level.inputs)]
    bases += [*([] if held is None else [len(held)]), level.arena_bytes]
    return {
        "target": level.target.name,
        "code": code,
        "weights": weights,
        "bases": bases,
        "checks": level.checks,
        "bits": code_bits(len(level.entry.kernel_calls)),
    }


def _kept(file: str, weights: bytes | None, found: dict[str, bytes]) -> str:
    """Return the file that holds the weights, "" where there are none; it is a new one where no other holds the same."""
    if weights is None or len(weights) <= 1:
        return ""
    same = next((name for name, data in found.items() if data == weights), file)
    found[same] = weights
    return same


def _shape(argument: Argument) -> list[int]:
    return [extent.value for extent in argument.extents if isinstance(extent, Int)]


def _bytes(argument: Argument) -> int:
    return prod(_shape(argument)) * argument.dtype.size_bytes


def _described(arguments: Sequence[Argument]) -> list[Mapping[str, Any]]:
    return [{"name": a.name, "dtype": a.dtype.name, "shape": _shape(a)} for a in arguments]
