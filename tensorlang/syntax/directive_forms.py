"""The form that all directives have, and what schedules of other tools call them: TVM, Halide, Exo, Triton, OpenMP."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

GENERAL_FORM = "`NAME operands (by|at|in|as|with|to|fold|stages operands) -> names if condition`"
"""What is common to the lines of all directives; the `shape` of each tells more (`tensorlang.schedule.directives.kind`)."""

ELSEWHERE = {
    "vectorise": "vectorize", "simd": "vectorize", "vec": "vectorize", "parallelize": "parallel", "parallelise": "parallel",
    "prange": "parallel", "omp": "parallel", "threads": "bind", "gpu_blocks": "bind", "gpu_threads": "bind", "gpu_tile": "bind",
    "reorder": "order", "interchange": "order", "permute": "order", "strip_mine": "split", "stripmine": "split", "divide_loop": "split",
    "factor": "split", "unroll_loop": "unroll", "merge": "fuse", "collapse": "fuse", "coalesce": "fuse", "compute_at": "at",
    "reverse_compute_at": "at", "compute_root": "root", "compute_inline": "inline", "inline_proc": "inline", "cache_read": "cache",
    "cache_write": "cache", "shared": "cache", "stage_mem": "cache", "set_memory": "cache", "store_in": "cache", "double_buffer": "stages",
    "num_stages": "stages", "software_pipeline": "stages", "pipeline": "stages", "buffer_bind": "bind", "num_warps": "bind",
    "blocks": "bind", "decompose_reduction": "rfactor", "storage_align": "layout", "transform_layout": "layout", "pad": "layout",
    "warp_specialize": "specialize", "specialise": "specialize", "tensor_core": "tensorize", "tensorise": "tensorize", "mma": "tensorize",
    "replace": "tensorize", "fission": "distribute", "loop_distribute": "distribute", "compute_with": "together", "fuse_at": "together",
    "shift_loop": "shift", "cut_loop": "peel", "sliding": "fold", "fold_storage": "fold", "nontemporal": "stream", "swizzle": "raster",
}  # fmt: skip
"""What another tool calls it → the directive that does it here, or what comes nearest."""

_SAME = """vectorise simd parallelize parallelise prange reorder interchange permute unroll_loop collapse compute_root compute_inline
    specialise tensorise"""
SAME = {other: ELSEWHERE[other] for other in _SAME.split()}
"""Those of `ELSEWHERE` that are written as ours are."""


def directive_called(name: str, directives: Collection[str]) -> str | None:
    """Return which of the directives is most likely meant by a name that may be none; None where nothing is like it."""
    if name in directives:
        return name
    lower = name.rsplit(".", 1)[-1].lower()
    close = get_close_matches(lower, directives, 1, 0.7)
    return ELSEWHERE.get(lower) or (lower if lower in directives else close[0] if close else None)
