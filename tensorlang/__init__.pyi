"""The types of the names that `__init__.py` imports when they are used."""

from tensorlang.api import compile as compile
from tensorlang.diagnostics import CompileError as CompileError
from tensorlang.diagnostics import CompileWarning as CompileWarning
from tensorlang.diagnostics import RunError as RunError
from tensorlang.operators import load as load
from tensorlang.operators import parse as parse
from tensorlang.packages import std as std
from tensorlang.packages import use as use
from tensorlang.picture.plot import plot as plot
from tensorlang.runtime.dlpack import dlpack as dlpack
from tensorlang.runtime.model import CompiledModel as CompiledModel
from tensorlang.runtime.operator import Operator as Operator
from tensorlang.runtime.operator import Operators as Operators
from tensorlang.schedule.schedule import Schedule as Schedule

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
    "Schedule",
    "compile",
    "dlpack",
    "load",
    "parse",
    "plot",
    "std",
    "use",
]
