"""Compiled models and operators in folders, run without the compiler: NumPy and the standard library are all that is imported here.

The package `tensorlang-runtime` is these modules under the name `tensorlang_runtime` (`scripts/runtime_package.py`).
"""

from .errors import SavedError
from .loading import Saved, load_model
from .serving import Server, serve

__all__ = ["Saved", "SavedError", "Server", "load_model", "serve"]
