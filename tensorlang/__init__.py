"""A tensor compiler: operators as equations, schedules proven against exact dependences, native code."""

from tensorlang.api import compile, load, parse
from tensorlang.diagnostics import CompileError, RunError
from tensorlang.runtime.model import CompiledModel
from tensorlang.runtime.operator import Operator, Operators
from tensorlang.schedule.schedule import Schedule

__version__ = "0.1.0"
__all__ = ["CompileError", "CompiledModel", "Operator", "Operators", "RunError", "Schedule", "compile", "load", "parse"]
