"""What an object of LLVM's depends on, as the key that it is kept under."""

from __future__ import annotations

from collections.abc import Iterable

import llvmlite
import llvmlite.binding as llvm

from codegen.llvm.target import Target
from codegen.store import key_of

VERSION = 2
"""Part of every key: raised whenever the emitted code changes its meaning or its calling convention."""


def cache_key(parts: Iterable[str | bytes], target: Target) -> str:
    """Return the key of an object that depends on `parts`, on the target, and on the compiler."""
    return key_of((f"{VERSION} {llvmlite.__version__} {llvm.llvm_version_info}", repr(target), *parts))
