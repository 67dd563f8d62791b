"""The types of the names that `__init__.py` imports when they are used."""

from tensorlang.api import build as build
from tensorlang.api import compile as compile
from tensorlang.cluster.batches import map_batches as map_batches
from tensorlang.diagnostics import CompileError as CompileError
from tensorlang.diagnostics import CompileWarning as CompileWarning
from tensorlang.diagnostics import RunError as RunError
from tensorlang.extern_check import check_extern as check_extern
from tensorlang.externs import c_symbol as c_symbol
from tensorlang.externs import cuda_source as cuda_source
from tensorlang.externs import llvm_ir as llvm_ir
from tensorlang.externs import python_function as python_function
from tensorlang.operators import load as load
from tensorlang.operators import parse as parse
from tensorlang.packages import std as std
from tensorlang.packages import use as use
from tensorlang.picture.plot import plot as plot
from tensorlang.runtime.dlpack import dlpack as dlpack
from tensorlang.runtime.model import CompiledModel as CompiledModel
from tensorlang.runtime.operator import Operator as Operator
from tensorlang.runtime.operator import Operators as Operators
from tensorlang.saved.errors import SavedError as SavedError
from tensorlang.saved.loading import Saved as Saved
from tensorlang.saved.loading import load_model as load_model
from tensorlang.saved.serving import Server as Server
from tensorlang.saved.serving import serve as serve
from tensorlang.schedule.schedule import Schedule as Schedule
from tensorlang.tuning.tune import tune as tune

__version__: str

def load_ipython_extension(ipython: object) -> None: ...
def unload_ipython_extension(ipython: object) -> None: ...

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
