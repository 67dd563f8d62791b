"""A tensor compiler: operators as equations, schedules proven against exact dependences, native code.

    import tensorlang as tl

    ops = tl.load("my_ops.tl")          ops.linear(x, w, b)             operators, called with arrays
    ops = tl.parse("op relu(...) …")
    tl.std.softmax(x)                   tl.use("std.norm")              operators of the standard library and of installed packages
    model = tl.compile("net.onnx")      model.run({"input": image})     models, by whichever importer reads them

Names are imported when they are first used: a program that runs models does not wait for the language. `__init__.pyi` has their types.
"""

from importlib import import_module

from tensorlang.installation import require

require()

from codegen.forks import import_whole  # noqa: E402  `codegen` is known to be ours

__version__ = "0.1.0"
__all__ = [
    "CompileError",
    "CompileWarning",
    "CompiledModel",
    "Operator",
    "Operators",
    "RunError",
    "Saved",
    "SavedError",
    "Schedule",
    "Server",
    "build",
    "c_symbol",
    "check_extern",
    "compile",
    "cuda_source",
    "dlpack",
    "llvm_ir",
    "load",
    "load_model",
    "map_batches",
    "parse",
    "plot",
    "python_function",
    "serve",
    "std",
    "tune",
    "use",
]

_PLACES = {
    "CompileError": "tensorlang.diagnostics",
    "CompileWarning": "tensorlang.diagnostics",
    "CompiledModel": "tensorlang.runtime.model",
    "Operator": "tensorlang.runtime.operator",
    "Operators": "tensorlang.runtime.operator",
    "RunError": "tensorlang.diagnostics",
    "Saved": "tensorlang.saved.loading",
    "SavedError": "tensorlang.saved.errors",
    "Schedule": "tensorlang.schedule.schedule",
    "build": "tensorlang.api",
    "c_symbol": "tensorlang.externs",
    "check_extern": "tensorlang.extern_check",
    "compile": "tensorlang.api",
    "cuda_source": "tensorlang.externs",
    "dlpack": "tensorlang.runtime.dlpack",
    "llvm_ir": "tensorlang.externs",
    "load": "tensorlang.operators",
    "load_model": "tensorlang.saved.loading",
    "map_batches": "tensorlang.cluster.batches",
    "parse": "tensorlang.operators",
    "python_function": "tensorlang.externs",
    "std": "tensorlang.packages",
    "tune": "tensorlang.tuning.tune",
    "use": "tensorlang.packages",
    "plot": "tensorlang.picture.plot",
    "serve": "tensorlang.saved.serving",
    "Server": "tensorlang.saved.serving",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{import_module('tensorlang.absent').told(name, __all__)}")
    import_whole(_PLACES[name])
    found = getattr(import_module(_PLACES[name]), name)
    globals()[name] = found
    return found


def load_ipython_extension(ipython: object) -> None:
    """Answer `%load_ext tensorlang` in IPython."""
    import_module("tensorlang.notebook").load(ipython)


def unload_ipython_extension(ipython: object) -> None:
    """Answer `%unload_ext tensorlang` in IPython."""
    import_module("tensorlang.notebook").unload(ipython)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
