"""From loop IR to native code: `emit` prints LLVM IR, `compile_object` and `load` make it callable, `pool` runs parallel loops."""

from codegen.llvm.cache import Cache, cache_key
from codegen.llvm.call import ArgumentError, Callable, Port
from codegen.llvm.emit import emit
from codegen.llvm.jit import CompileError, Library, assembly, compile_object, load
from codegen.llvm.pool import available_threads, pool_imports, set_threads, threads
from codegen.llvm.program import KernelCall, Program, Slot, emit_program, failed_call
from codegen.llvm.state import EmitError
from codegen.llvm.target import Target, TargetError, host, named
from codegen.llvm.workspace import workspace_bytes

__all__ = [
    "ArgumentError",
    "Cache",
    "Callable",
    "CompileError",
    "EmitError",
    "KernelCall",
    "Library",
    "Port",
    "Program",
    "Slot",
    "Target",
    "TargetError",
    "assembly",
    "available_threads",
    "cache_key",
    "compile_object",
    "emit",
    "emit_program",
    "failed_call",
    "host",
    "load",
    "named",
    "pool_imports",
    "set_threads",
    "threads",
    "workspace_bytes",
]
