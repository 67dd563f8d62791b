"""Random numbers. They follow from a seed and the number of the element alone (Philox): every run of a model draws the same.

The seed is the attribute `seed`, its 32 bits as a float; a node without one has that of its name, so that several draw apart. Whoever wants
others in each run makes them an input of the model. In a loop a node without one draws others in each turn.
"""

from __future__ import annotations

from math import prod

import numpy as np

from codegen.dtypes import DTYPES, DType
from stdlib.onnx.site import Rule, Site
from stdlib.onnx.table.elementwise import cast, iteration_of, seed_of_name
from stdlib.onnx.table.entry import Entry
from stdlib.onnx.tensors import element_type
from tensorlang.graph.nodes import Value


def seed_of(n: Site) -> int:
    """Return 32 bits that stand for the seed of a node."""
    if not n.has("seed"):
        return seed_of_name(n)
    return int(np.float32(n.real("seed", 0.0)).view(np.uint32))


def _dtype(n: Site, default: DType) -> DType:
    dtype = element_type(n.integer("dtype", 1), "the result") if n.has("dtype") else default
    if not dtype.is_float or dtype.bits < 16:
        raise n.unsupported(f"random numbers of type {dtype}")
    return dtype


def drawn(operator: str, like: bool, first: tuple[str, float], second: tuple[str, float]) -> Rule:
    """Numbers in the shape of an input (`like`) or of an attribute, from a distribution with two parameters."""

    def rule(n: Site) -> Value:
        shape = n.arg(0).shape if like else n.integers("shape", low=0)
        dtype = _dtype(n, n.arg(0).dtype if like else DTYPES["f32"])
        numbers = {name: n.real(attribute, default) for name, (attribute, default) in zip(_NAMES[operator], (first, second), strict=True)}
        if not prod(shape):
            return n.filled(shape, dtype)
        flat = n.filled((prod(shape),), DTYPES["f32"])
        y = n.op(operator, flat, iteration_of(n), seed=seed_of(n), **numbers)
        return n.view(cast(n, y, dtype), shape)

    return rule


_NAMES = {"uniform": ("low", "high"), "normal": ("mean", "scale")}


def bernoulli(n: Site) -> Value:
    """1 with the probability that an element is, else 0."""
    p = n.arg(0)
    dtype = element_type(n.integer("dtype", 1), "the result") if n.has("dtype") else p.dtype
    if not prod(p.shape):
        return n.filled(p.shape, dtype)
    u = n.op("uniform", n.filled((prod(p.shape),), DTYPES["f32"]), iteration_of(n), seed=seed_of(n), low=0.0, high=1.0)
    return cast(n, n.op("less", n.view(u, p.shape), cast(n, p, DTYPES["f32"])), dtype)


def multinomial(n: Site) -> Value:
    x, count = n.arg(0), n.integer("sample_size", 1, low=1)
    if len(x.shape) != 2 or not x.shape[1]:
        raise n.wrong(f"the shape {list(x.shape)} is not that of rows of classes")
    dtype = element_type(n.integer("dtype", 6), "the result")
    if dtype not in (DTYPES["i32"], DTYPES["i64"]):
        raise n.unsupported(f"classes of type {dtype}")
    return cast(n, n.op("multinomial", x, iteration_of(n), seed=seed_of(n), count=count), dtype)


_UNIFORM = (("low", 0.0), ("high", 1.0))
_NORMAL = (("mean", 0.0), ("scale", 1.0))

RULES = (
    Entry("RandomUniform", 1, 22, drawn("uniform", False, *_UNIFORM)),
    Entry("RandomUniformLike", 1, 22, drawn("uniform", True, *_UNIFORM)),
    Entry("RandomNormal", 1, 22, drawn("normal", False, *_NORMAL)),
    Entry("RandomNormalLike", 1, 22, drawn("normal", True, *_NORMAL)),
    Entry("Bernoulli", 15, 22, bernoulli),
    Entry("Multinomial", 7, 22, multinomial),
)
