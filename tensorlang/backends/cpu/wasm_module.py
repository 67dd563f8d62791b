"""A model or an operator as modules of WebAssembly, one for each level of instructions, with what JavaScript needs to call them.

NAME-wasm32.wasm      the code: `run(table)`, where `table` is the address of 64-bit words, one for each base or number, and where sizes are
                      open, `sizes(sizes, extents)`, which looks at them (`codegen.llvm.c_interface.sizes.sizes_ir`)
NAME-wasm32.weights   the weights, copied into the module's memory; levels that read the same share the file
NAME.js               loads the first level that an engine has, places the arrays, and turns results that refuse into errors
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files as files_of
from typing import Any

from codegen.llvm.c_interface.description import Argument
from codegen.llvm.c_interface.sizes import size_texts, sizes_ir
from codegen.llvm.jit import compile_object
from codegen.llvm.program import code_bits, emit_program
from codegen.llvm.wasm import linked
from tensorlang.backends.cpu.library_signature import shape_of
from tensorlang.backends.cpu.native_library import Compiled, interface_of


def module_files(name: str, levels: Sequence[Compiled]) -> dict[str, bytes]:
    """Return the files of a library for WebAssembly, by their names."""
    found: dict[str, bytes] = {}
    about = [_level(name, level, found) for level in levels]
    first = levels[0]
    described = {
        "name": name,
        "sizes": [size.name for size in first.sizes],
        "inputs": _described(first.inputs),
        "outputs": _described(first.outputs),
        "levels": about,
    }
    template = (files_of("tensorlang.backends.cpu") / "wasm_module.js").read_text("utf-8")
    found[f"{name}.js"] = template.replace("/*ABOUT*/ null", json.dumps(described, ensure_ascii=True)).encode()
    return found


def _level(name: str, level: Compiled, found: dict[str, bytes]) -> dict[str, Any]:
    """Put the files of a level into `found`. Return what JavaScript is told of it."""
    of = interface_of(name, [level], [level.entry], [None])
    texts = [emit_program(level.entry, level.target), *([sizes_ir(of, level.target)] if level.sizes else [])]
    objects = [*(compile_object(text, level.target) for text in texts), *level.objects.values()]
    code = f"{name}-{level.target.name}.wasm"
    found[code] = linked(objects, [level.entry.name, *(["sizes"] if level.sizes else [])])
    held = None if level.weights is None else level.weights.tobytes()
    return {
        "target": level.target.name,
        "code": code,
        "weights": _kept(f"{name}-{level.target.name}.weights", held, found),
        "weightsBytes": held if held is None else len(held),
        "numbers": len(level.numbers),
        "arenaBytes": level.arena_bytes,
        "refused": size_texts(of) if level.sizes else {},
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


def _described(arguments: Sequence[Argument]) -> list[Mapping[str, Any]]:
    return [{"name": a.name, "dtype": a.dtype.name, "bytes": a.dtype.size_bytes, "shape": shape_of(a)} for a in arguments]
