"""Kernels for the library's extern operators; what they have to compute is what the operators' bodies say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from codegen.llvm.sorting import FEATURES, sorted_places, sorted_rows
from tensorlang.externs import LLVMText, llvm_ir


@cache
def kernels() -> Mapping[str, Mapping[str, Sequence[LLVMText]]]:
    """Return the kernels for processors, by modules and operators, those for the widest vectors first."""
    texts = {
        "_in_order_32": {width: sorted_rows("tl_in_order_32", 32, width) for width in FEATURES},
        "_in_order_64": {width: sorted_rows("tl_in_order_64", 64, width) for width in FEATURES},
        "_places_32": {512: sorted_places("tl_places_32")},
    }
    made = {name: [llvm_ir(text, f"tl{name}", needs=FEATURES[w]) for w, text in found.items()] for name, found in texts.items()}
    return {"sort": made}
