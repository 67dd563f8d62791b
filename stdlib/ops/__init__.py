"""Kernels for the library's extern operators; what they have to compute is what the operators' bodies say."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from codegen.llvm.sorting import FEATURES, sorted_places, sorted_rows
from tensorlang.externs import LLVMText, llvm_ir


@cache
def kernels() -> Mapping[str, Mapping[str, LLVMText]]:
    """Return the kernels for processors, by modules and operators."""
    texts = {
        "_in_order_32": sorted_rows("tl_in_order_32", 32),
        "_in_order_64": sorted_rows("tl_in_order_64", 64),
        "_places_32": sorted_places("tl_places_32"),
    }
    return {"sort": {name: llvm_ir(text, f"tl{name}", needs=FEATURES) for name, text in texts.items()}}
