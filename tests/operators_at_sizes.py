"""Operators to try at any size, of the programs of `tests/programs`: each with arguments for a size n."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from codegen.dtypes import from_numpy
from polyhedral import affine
from polyhedral.expr import Name
from tensorlang.check.instantiate import ArgType
from tensorlang.check.module import Module, load_module
from tensorlang.diagnostics import Source
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program

PROGRAMS = Path(__file__).parent / "programs"
TOUR = load_module(parse(Source("tour", (PROGRAMS / "tour_operators.tl").read_text("utf-8"))))
OTHERS = load_module(
    parse(
        Source(
            "others",
            """
op norm[T: float](x: T[N]) -> (y: T) {
    t[i] = x[i] * 2
    y    = sum(i) t[i] * t[i]
}
""",
        )
    )
)
LIBRARY = load_module(parse(Source("library", (PROGRAMS / "library_operators.tl").read_text("utf-8"))))

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Example:
    """`inputs(n)` gives the arguments for a size n; `attrs` and `sizes` may depend on it as well."""

    module: Module
    operator: str
    inputs: Callable[[int], tuple[Any, ...]]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    sizes: Callable[[int], Mapping[str, Any]] = lambda n: {}
    least: int = 0
    symbolic: bool = True


def f32(*shape: int, low: int = -3, high: int = 4) -> Array:
    return np.random.default_rng(sum(shape)).integers(low, high, shape).astype(np.float32)


def whole(dtype: Any, high: int, *shape: int) -> Array:
    return np.random.default_rng(1).integers(0, max(high, 1), shape).astype(dtype)


def spd(n: int) -> Array:
    a = f32(n, n)
    return (a @ a.T + 40 * np.eye(n)).astype(np.float32)


EXAMPLES = {
    "linear": Example(TOUR, "linear", lambda n: (f32(n, 2 * n + 1), f32(3 * n, 2 * n + 1), f32(3 * n))),
    "conv2d": Example(TOUR, "conv2d", lambda n: (f32(1, 2, n + 2, n + 3), f32(n, 2, 3, 3)), {"stride": 2, "pad": 1}),
    "softmax": Example(TOUR, "softmax", lambda n: (f32(2, n, n + 1),)),
    "attention": Example(TOUR, "attention", lambda n: (f32(1, 2, n, 5), f32(1, 2, n + 1, 5), f32(1, 2, n + 1, 5)), {"scale": 0.5}),
    "cumsum": Example(TOUR, "cumsum", lambda n: (f32(n),)),
    "heat": Example(TOUR, "heat", lambda n: (f32(n, n),), {"steps": 3}),
    "cholesky": Example(TOUR, "cholesky", lambda n: (spd(n),)),
    "norm": Example(OTHERS, "norm", lambda n: (f32(n),)),
    "conv": Example(
        LIBRARY, "conv", lambda n: (f32(1, 4, n + 2, n + 2), f32(6, 2, 3, 3), f32(6)),
        {"group": 2, "stride": (2, 1), "dilation": (1, 1), "lo": (1, 1), "hi": (1, 0)},
    ),
    "conv_transpose": Example(
        LIBRARY, "conv_transpose", lambda n: (f32(1, 4, n, n), f32(4, 3, 3, 3)),
        {"stride": (2, 2), "dilation": (1, 1), "lo": (1, 1)}, lambda n: {"O": (2 * n + 1, 2 * n + 1)},
    ),
    "max_pool": Example(
        LIBRARY, "max_pool", lambda n: (f32(1, 3, 2 * n + 1, 2 * n + 1),),
        {"kernel": (3, 3), "stride": (2, 2), "dilation": (1, 1), "lo": (1, 1)}, lambda n: {"O": (n + 1, n + 1)},
    ),
    "layer_norm": Example(LIBRARY, "layer_norm", lambda n: (f32(n, 3, n + 1), f32(n + 1), f32(n + 1)), {"axis": 2}),
    "gather": Example(LIBRARY, "gather", lambda n: (f32(n, 5), whole(np.int64, n, n, 2)), {"axis": 0}),
    "scatter_nd": Example(LIBRARY, "scatter_nd", lambda n: (f32(n, 4), whole(np.int64, n, n, 1), f32(n, 4))),
    "slice": Example(
        LIBRARY, "slice", lambda n: (f32(2 * n + 1, 7),), {"step": (-2, 1)}, lambda n: {"start": (2 * n, 2), "n": (n, 4)}, symbolic=False
    ),
    "concat": Example(LIBRARY, "concat", lambda n: ((f32(3, n), f32(3, 2 * n + 1), f32(3, 2)),), {"axis": 1}),
    "split": Example(LIBRARY, "split", lambda n: (f32(3, 2 * n + 3),), {"axis": 1}, lambda n: {"N": (n, n + 1, 2)}),
    "resize_linear": Example(
        LIBRARY, "resize_linear", lambda n: (f32(1, 2, n, n), np.array([2, 2], np.float32)), {}, lambda n: {"O": (2 * n, 2 * n)}, least=1
    ),
    "lstm": Example(
        LIBRARY, "lstm",
        lambda n: (f32(n, 2, 3), f32(20, 3), f32(20, 5), f32(20), f32(2, 5), f32(2, 5), whole(np.int32, n + 1, 2)),
    ),
    "softmax_inside": Example(LIBRARY, "softmax", lambda n: (f32(2, n + 1, n).astype(np.float16),), {"axis": 1}),
    "qlinear_matmul": Example(
        LIBRARY, "qlinear_matmul",
        lambda n: (
            whole(np.uint8, 256, n, 2 * n + 1), whole(np.int8, 127, 2 * n + 1, 5), np.array([3], np.uint8), np.array([1] * 5, np.int8),
            np.array([0.5], np.float32), np.array([0.25] * 5, np.float32), np.float32(2), np.uint8(128),
        ),
    ),
    "transpose": Example(LIBRARY, "transpose", lambda n: (f32(n, 3, n + 1),), {"perm": (2, 0, 1)}),
    "add": Example(LIBRARY, "add", lambda n: (f32(n, 1, 5), f32(n + 1, 1))),
    "flatten": Example(LIBRARY, "flatten", lambda n: (f32(2, n, 3),), {"axis": 2}),
    "cumsum_backwards": Example(LIBRARY, "cumsum", lambda n: (f32(n),), {"exclusive": True, "reverse": True}),
    "topk": Example(LIBRARY, "topk", lambda n: (f32(3, n),), {}, lambda n: {"k": n // 2}, least=1),
}  # fmt: skip


def arguments(inputs: tuple[Any, ...]) -> tuple[list[Any], list[Array]]:
    """Return the types of the arguments, and the arrays one after the other."""
    types: list[Any] = []
    arrays: list[Array] = []
    for given in inputs:
        each = given if isinstance(given, tuple) else (given,)
        found = [ArgType(from_numpy(np.asarray(a).dtype), np.asarray(a).shape) for a in each]
        types.append(tuple(found) if isinstance(given, tuple) else found[0])
        arrays += [np.asarray(a) for a in each]
    return types, arrays


def sizes_of(program: Program, arrays: list[Array], given: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes that the arrays have, from dimensions that are a size each or a size times a number, and those given."""
    known: dict[str, int] = {}
    for name, value in given.items():
        known |= {f"{name}.{k}": v for k, v in enumerate(value)} if isinstance(value, tuple) else {name: value}
    for param, array in zip(program.params, arrays, strict=True):
        start = 0
        for count, extent in zip(param.grouping or (1,) * len(param.shape), array.shape, strict=True):
            parts, start = param.shape[start : start + count], start + count
            rest = [p for p in parts if affine.constant(p) is None]
            number = int(np.prod([affine.constant(p) for p in parts if affine.constant(p) is not None], initial=1))
            if len(rest) == 1 and isinstance(rest[0], Name):
                known.setdefault(rest[0].name, extent // number)
    return {s: known[s] for s in program.sizes}
