"""A model as a module of WebAssembly, with what a page has to know to call it.

run(table)    the exported function; `table` is the address of 64-bit words, one for each base
bases         outputs, inputs, weights, numbers, arena: what of the module's memory each word is the address of
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.llvm.jit import compile_object
from codegen.llvm.program import emit_program
from codegen.llvm.wasm import linked
from tensorlang.backends.cpu.executable import Executable
from tensorlang.diagnostics import InternalError
from tensorlang.graph.edit import size_bytes


@dataclass(frozen=True, slots=True)
class Base:
    """A word of the table: what it is (`output`, `input`, `weights` or `arena`), how it is called, and the bytes at its address."""

    kind: str
    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class WasmModule:
    """Code, and the weights to copy to where the base `weights` lies."""

    code: bytes
    weights: bytes
    bases: tuple[Base, ...]


def wasm_module(executable: Executable) -> WasmModule:
    """Return a model of known shapes, compiled for WebAssembly, as a module."""
    parts, target = executable.parts, executable.toolchain.target
    if not target.is_wasm or parts.numbers:
        raise InternalError("link", f"a model for `{target.name}` is no module of WebAssembly, or its sizes are open")
    objects = {made.symbol: made.object for made in parts.artifacts}
    entry = compile_object(emit_program(parts.entry, target), target)
    values, graph = parts.graph.values, parts.graph
    bases = (
        *(Base("output", name, size_bytes(values[value])) for value, name in zip(graph.outputs, parts.names, strict=True)),
        *(Base("input", name, size_bytes(values[name])) for name in graph.inputs),
        Base("weights", "", parts.constants.nbytes),
        Base("arena", "", parts.plan.arena_bytes),
    )
    return WasmModule(linked([entry, *objects.values()], [parts.entry.name]), parts.constants.tobytes(), bases)
