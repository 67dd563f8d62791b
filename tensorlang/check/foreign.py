"""What other languages and libraries call things: NumPy, PyTorch, C, einsum, TVM, Halide, Triton.

`CALLED` names what is called otherwise here and is otherwise the same; `SAID` says how a thing is said that has no name here."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from tensorlang.check.types import ELSEWHERE

CALLED = {
    "absolute": "abs", "fabs": "abs", "amax": "max", "fmax": "max", "maximum": "max", "reduce_max": "max", "amin": "min", "fmin": "min",
    "minimum": "min", "reduce_min": "min", "reduce_sum": "sum", "product": "prod", "reduce_prod": "prod", "power": "pow",
    "clip": "clamp", "arccos": "acos", "arcsin": "asin", "arctan": "atan", "arctan2": "atan2", "arccosh": "acosh", "arcsinh": "asinh",
    "arctanh": "atanh", "ceiling": "ceil", "rint": "round", "logistic": "sigmoid", "left_shift": "shl", "right_shift": "shr",
    "bitwise_and": "bitand", "bitwise_or": "bitor", "bitwise_xor": "bitxor", "bitwise_not": "bitnot", "invert": "bitnot",
    "fix": "trunc", "remainder": "fmod", "average": "mean", "avg": "mean", "square": "sq", "True": "true", "False": "false",
    "Inf": "inf", "infinity": "inf", "NaN": "nan", "NAN": "nan", "M_PI": "pi", "INFINITY": "inf",
}  # fmt: skip
"""Another name → ours."""

_IF = "write `if c then a else b`"
_SIZE = "a size has a name: it is what stands in the type, as `N` in `x: f32[N]`"
_COUNT = "an index is its own value, and its range follows it: `y[i] = f32(i) for i in 0..N`"
_PRODUCT = "a product of tensors is a sum over the index that they share: `y[i, j] = sum(k) a[i, k] * b[k, j]`"
_MADE = "no tensor is made before it is defined: `y[i] = 0`"
_ORDER = "write the indices in another order: `y[i, j] = x[j, i]`"
_PARTS = "each part has a clause: `y[i] = a[i] for i in 0..M` and `y[M + i] = b[i] for i in 0..N`"
_PLACE = "clauses say what an element is, `y[i] = x[i]`; which thread computes it is said by a schedule, `bind i to thread.x`"
_RUNNING = "a running sum is a recurrence: `y[0] = x[0]` and `y[i] = y[i - 1] + x[i] for i in 1..N`"
_REPEATED = "a dimension is repeated by leaving its index out: `y[i, j] = x[j]`"
_CAST = "a cast is a call of the type: `f32(x[i])`"
_ELEMENT = "an equation says what an element is: `y[i] = x[i]`"
_NOTHING = "there is no empty value: write the number that is meant, `0`, or `nan`"
_RANGE = "a reduction names its indices and their ranges itself: `sum(k in 0..K) a[i, k] * b[k, j]`"
_RANDOM = "nothing is random here: let the caller pass an array of random numbers"
_CONSTANT = "what the caller chooses is an attribute, `attr n: int`; how large blocks are says a schedule: `split i by 64 -> io, ii`"
_COMPLEX = "there are no complex numbers: take the real and the imaginary parts as two tensors"
_SPREAD = "write what it is: `m = mean(k) x[k]`, then `mean(k) ((x[k] - m) * (x[k] - m))`, and `sqrt` of it"
_NORM = "write what it is: `sqrt(sum(k) x[k] * x[k])`"
_NUMBER = "filter what is counted: `sum(k, x[k] > 0) i64(1)`"
_SHAPED = "the type of a tensor is that of its elements with its dimensions: `f32[M, N]`"
_LAST = "the last element is named by the size: `x[N - 1]`; in a range the end is excluded, `0..N`"
_PACKED = "write the indices in another order, `y[b, h, c] = x[b, c, h]`; several that make one dimension as `y[b, (h, w)]`"
_GROUPS = "a dimension of several sizes is declared so, `x: T[(A, B)]`, and indexed `x[(a, b)]` or `x[i]`"

SAID_OF_TYPES = {
    **dict.fromkeys(("complex", "complex64", "complex128", "cfloat", "cdouble", "c64", "c128"), _COMPLEX),
    **dict.fromkeys(("constexpr",), _CONSTANT),
    **dict.fromkeys(("Tensor", "tensor", "ndarray", "NDArray", "Array", "array", "Buffer", "memref", "Matrix", "Vector"), _SHAPED),
    **dict.fromkeys(("str", "string", "String", "object"), "elements are numbers; a text is an attribute: `attr mode: str`"),
}  # fmt: skip
"""What element types of others are said by here."""

SAID = {
    **dict.fromkeys(("where", "select", "if_then_else", "ifelse", "cond"), _IF),
    **dict.fromkeys(("len", "size", "numel", "shape", "ndim", "dim"), _SIZE),
    **dict.fromkeys(("range", "arange", "iota", "linspace", "grid"), _COUNT),
    **dict.fromkeys(("matmul", "dot", "mm", "bmm", "einsum", "tensordot", "gemm", "outer", "inner", "vdot"), _PRODUCT),
    **dict.fromkeys(("zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "array", "tensor"), _MADE),
    **dict.fromkeys(("transpose", "permute", "swapaxes", "permute_dims", "moveaxis"), _ORDER),
    **dict.fromkeys(("concat", "concatenate", "cat", "stack", "hstack", "vstack"), _PARTS),
    **dict.fromkeys(("program_id", "get_global_id", "get_local_id", "thread_axis", "thread_id", "block_id"), _PLACE),
    **dict.fromkeys(("threadIdx", "blockIdx", "blockDim", "gridDim"), _PLACE),
    **dict.fromkeys(("cumsum", "cumprod", "scan", "accumulate"), _RUNNING),
    **dict.fromkeys(("expand_dims", "unsqueeze", "broadcast_to", "expand", "tile", "repeat", "squeeze"), _REPEATED),
    **dict.fromkeys(("astype", "cast", "convert", "to", "static_cast", "bitcast"), _CAST),
    **dict.fromkeys(("compute", "placeholder", "load", "store", "lambda", "vectorize", "map"), _ELEMENT),
    **dict.fromkeys(("RDom", "reduce_axis", "reduction_domain"), _RANGE),
    **dict.fromkeys(("rand", "randn", "random", "rand_like", "randn_like", "uniform", "normal", "dropout", "philox"), _RANDOM),
    **dict.fromkeys(("constexpr",), _CONSTANT),
    **dict.fromkeys(("None", "newaxis", "null", "NULL", "nullptr", "nil", "undefined"), _NOTHING),
    **dict.fromkeys(("std", "var", "variance", "stddev"), _SPREAD),
    **dict.fromkeys(("norm", "l2norm", "vecnorm"), _NORM),
    **dict.fromkeys(("count", "count_nonzero", "countif"), _NUMBER),
    **dict.fromkeys(("reshape", "view", "flatten", "ravel"), _GROUPS),
    **dict.fromkeys(("rearrange", "reduce", "pack", "unpack"), _PACKED),
    **dict.fromkeys(("end", "END", "lastindex"), _LAST),
}  # fmt: skip
"""What is said without a name here → how."""


def native_name(name: str, choices: Iterable[str]) -> str | None:
    """Return what a name of another language is called here, if it surely is one of `choices`: `maximum`, `expf`, `EXP`, `True`."""
    choices = set(choices)
    lower = {other.lower(): other for other in sorted(choices)}
    for other in (name, name[:-1] if name.endswith("f") else name):
        for candidate in (CALLED.get(other), ELSEWHERE.get(other), lower.get(other.lower()) if len(other) > 1 else None):
            if candidate in choices:
                return candidate
    return None


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice that is most like `name`, whatever is written in capitals; None where none is much like it."""
    names = {other.lower(): other for other in sorted(set(choices)) if len(other) > 1 or len(name) > 1}
    close = get_close_matches(name.lower(), names, n=1, cutoff=0.65)
    return names[close[0]] if close else None
