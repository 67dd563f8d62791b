"""The form that all directives have, and what schedules of other tools call them: TVM, Halide, Exo, Triton, OpenMP."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches
from functools import cache

FORMS = {
    "affine": "write `affine TENSOR (EXPRESSION, …) -> LOOP, …`, over its loops and sizes: `affine s (t + i, t - i) -> a, b`",
    "assume": "write `assume CONDITION, …`, of comparisons between sizes: `assume N % 8 == 0`",
    "at": "write `at TENSOR in READER at LOOP`, or `at TENSOR at LOOP` when the loop's name is unique",
    "bind": "write `bind LOOP, … to block.x | … | block.z | thread.x | … | thread.z | thread | warp | warp.x | … | lane | lane.x | …, …`",
    "bisect": "write `bisect TENSOR.BINDER, …`, of names in reductions whose conditions compare what is read along them",
    "block": "write `block BINDER by COUNT`",
    "cache": "write `cache TENSOR in shared at LOOP as [DIM, …]` `with pad (N)` or `with swizzle (N)`, or `cache TENSOR in registers`",
    "cluster": "write `cluster LOOP by COUNT`, about a loop that is bound to blocks",
    "compose": "write `compose TENSOR.BINDER by COUNT, …`, of windows of a reduction, or `compose TENSOR.BINDER` for one of several",
    "cut": "write `cut LOOP at POINT, … -> PART, …`, or without names for parts that are shaped alike",
    "derive": "write `derive` alone as the last line, or `derive TENSOR, …`: what is not said of them is derived",
    "distribute": "write `distribute TENSOR` or `distribute TENSOR at LOOP` for all its clauses, or "
    "`distribute STATEMENT, … at LOOP, … -> LOOP, …`, where a sum is called by its range",
    "factorize": "write `factorize TENSOR, …`, of equations that reduce what several factors are combined to",
    "flatten": "write `flatten` alone, before the directives that name loops",
    "fold": "write `fold TENSOR at AXIS by COUNT`",
    "fuse": "write `fuse OUTER, INNER -> LOOP`",
    "hoist": "write `hoist TENSOR.AXIS, …`, of axes along which all elements of a tensor are the same",
    "inline": "write `inline TENSOR, …`",
    "layout": "write `layout TENSOR as [DIM, …]`",
    "lift": "write `lift TENSOR, …`, of equations whose reductions, or terms of a recurrence, get tensors of their own",
    "multicast": "write `multicast TENSOR, … at LOOP`, about a loop over blocks of a cluster",
    "narrow": "write `narrow TENSOR.BINDER, …`, of names in reductions of a tensor that conditions keep within a band",
    "order": "write `order LOOP, LOOP, …`, outermost first, or `order STATEMENT, STATEMENT, …`",
    "pack": "write `pack TENSOR as [DIM, …]`, `pack TENSOR at LOOP as [DIM, …]` or `pack TENSOR at LOOP -> LOOP, …`, "
    "and `pack TENSOR in AXIS …` for what is read along that",
    "parallel": "write `parallel LOOP, …`, or `parallel TENSOR` for its outer loops",
    "partition": "write `partition LOOP, …`",
    "peel": "write `peel LOOP by COUNT`",
    "persistent": "write `persistent LOOP by COUNT`, about a loop that is bound to blocks",
    "predicate": "write `predicate LOOP, … with guard` or `predicate LOOP, … with zfill`",
    "prefetch": "write `prefetch TENSOR at LOOP by DISTANCE`, or `prefetch TENSOR at LOOP by DISTANCE in INNER, …`",
    "raster": "write `raster ROWS, COLUMNS by COUNT -> GROUP, ROW`",
    "reverse": "write `reverse LOOP`",
    "rfactor": "write `rfactor BINDER by COUNT`, or `rfactor BINDER to LENGTH` for stretches",
    "root": "write `root TENSOR`",
    "scan": "write `scan TENSOR.AXIS, …`, of axes along which reductions of a tensor grow by a few terms, or "
    "`scan TENSOR.AXIS to LENGTH, …` for stretches, and stretches of these",
    "shift": "write `shift LOOP by NUMBER`",
    "skew": "write `skew LOOP by OTHER` or `skew LOOP by 2*OTHER`",
    "specialize": "write `specialize CONDITION, …` for cases of sizes, `specialize LOOP` or `specialize LOOP with registers (FEW, MANY)`",
    "split": "write `split LOOP by FACTOR -> OUTER, INNER`",
    "split_k": "write `split_k BINDER by COUNT`",
    "stages": "write `stages LOOP by COUNT` or `stages LOOP by COUNT with tma`",
    "store": "write `store TENSOR with RESULT`",
    "store_at": "write `store_at TENSOR at LOOP`",
    "stream": "write `stream TENSOR, …`",
    "tabulate": "write `tabulate TENSOR, …`, of functions of one byte",
    "tensorize": "write `tensorize LOOP, LOOP with INSTRUCTION`",
    "tile": "write `tile TENSOR (I, J) by (P, Q) -> IO, JO, II, JI`",
    "together": "write `together TENSOR, TENSOR, … -> LOOP, …`, or `together LOOP, LOOP, … -> LOOP` for loops of statements of one tensor",
    "trim": "write `trim LOOP, …`",
    "trust": 'write `trust "REASON"`: why what the proof does not decide is right',
    "unfold": "write `unfold TENSOR, … in BINDER, … -> NAME`",
    "unroll": "write `unroll LOOP, …`",
    "vectorize": "write `vectorize LOOP`",
}
"""How each directive is written."""

_INTRODUCING = frozenset(("by", "at", "in", "as", "with", "to", "fold", "stages", "->"))
GENERAL_FORM = "`NAME operands (by|at|in|as|with|to|fold|stages operands) -> names for pattern if condition`"
"""What is common to the lines of all directives."""

ELSEWHERE = {
    "vectorise": "vectorize", "simd": "vectorize", "vec": "vectorize", "parallelize": "parallel", "parallelise": "parallel",
    "prange": "parallel", "omp": "parallel", "threads": "bind", "gpu_blocks": "bind", "gpu_threads": "bind", "gpu_tile": "bind",
    "reorder": "order", "interchange": "order", "permute": "order", "strip_mine": "split", "stripmine": "split", "divide_loop": "split",
    "factor": "split", "unroll_loop": "unroll", "merge": "fuse", "collapse": "fuse", "coalesce": "fuse", "compute_at": "at",
    "reverse_compute_at": "at", "compute_root": "root", "compute_inline": "inline", "inline_proc": "inline", "cache_read": "cache",
    "cache_write": "cache", "shared": "cache", "stage_mem": "cache", "set_memory": "cache", "store_in": "cache", "double_buffer": "stages",
    "num_stages": "stages", "software_pipeline": "stages", "pipeline": "stages", "buffer_bind": "bind", "num_warps": "bind",
    "async_copy": "stages", "cp_async": "stages", "memcpy_async": "stages", "tma": "stages", "__shared__": "cache", "smem": "cache",
    "shared_memory": "cache", "local": "cache", "scratchpad": "cache", "launch_bounds": "bind", "grid": "bind",
    "program_id": "bind", "thread_block": "bind", "blockDim": "bind", "gridDim": "bind",
    "unroll_and_jam": "unroll", "unroll_jam": "unroll",
    "licm": "hoist", "prefix": "scan", "running": "scan", "incremental": "scan", "invariant": "hoist", "precompute": "at",
    "rolling": "compose", "separable": "compose", "compute": "at", "memoize": "at", "realize": "at", "hoist_storage": "store_at",
    "lookup": "tabulate", "lut": "tabulate", "wavefront": "skew",
    "blocks": "bind", "decompose_reduction": "rfactor", "storage_align": "layout", "transform_layout": "layout", "pad": "layout",
    "warp_specialize": "specialize", "specialise": "specialize", "tensor_core": "tensorize", "tensorise": "tensorize", "mma": "tensorize",
    "replace": "tensorize", "fission": "distribute", "loop_distribute": "distribute", "compute_with": "together", "fuse_at": "together",
    "shift_loop": "shift", "cut_loop": "cut", "loop_partition": "partition", "sliding": "fold", "fold_storage": "fold",
    "nontemporal": "stream", "swizzle": "raster", "map_domain": "affine", "set_schedule": "affine", "add_unit_loop": "affine",
}  # fmt: skip
"""What another tool calls it → the directive that does it here, or what comes nearest."""

_SAME = """vectorise simd parallelize parallelise prange reorder interchange permute unroll_loop collapse compute_root compute_inline
    specialise tensorise"""
SAME = {other: ELSEWHERE[other] for other in _SAME.split()}
"""Those of `ELSEWHERE` that are written as ours are."""


_WRITTEN = re.compile(r"`([^`]*)`")


@cache
def phrases_of(name: str) -> frozenset[str]:
    """Return the words that introduce phrases of a directive, `->` for the names that it gives among them."""
    return frozenset(word for text in _WRITTEN.findall(FORMS[name]) for word in text.split() if word in _INTRODUCING)


def directive_called(name: str, directives: Collection[str]) -> str | None:
    """Return which of the directives is most likely meant by a name that may be none; None where nothing is like it."""
    if name in directives:
        return name
    lower = name.rsplit(".", 1)[-1].lower()
    close = get_close_matches(lower, directives, 1, 0.7)
    return ELSEWHERE.get(lower) or (lower if lower in directives else close[0] if close else None)


_BLOCK = "how many threads a block has follows from the loops that are bound to them: `bind ii to thread.x`, `ii` of so many iterations"
_GRID = "how many blocks there are follows from the loops that are bound to them: `bind io to block.x`"
SAID = {
    **dict.fromkeys(("num_warps", "launch_bounds", "num_threads", "block_size", "thread_block", "blockdim", "workgroup_size"), _BLOCK),
    **dict.fromkeys(("grid", "griddim", "num_blocks", "program_id"), _GRID),
}
"""What other tools say that follows from something else here → from what."""


def form_called(name: str) -> str:
    """Return how the directive is written that is most likely meant by a name: its own form, or that of all."""
    if name.lower() in SAID:
        return SAID[name.lower()]
    meant = directive_called(name, FORMS)
    if meant is None:
        return f"a directive is written {GENERAL_FORM}"
    if meant == name:
        return FORMS[meant]
    return f"it is called `{meant}` here: {FORMS[meant]}" if name.lower() in SAME else f"`{meant}` comes nearest: {FORMS[meant]}"
