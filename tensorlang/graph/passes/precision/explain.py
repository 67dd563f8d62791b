"""What contractions multiply, and why some stay f32, in words."""

from __future__ import annotations

from collections.abc import Iterable

from tensorlang.graph.passes.precision.products import products
from tensorlang.graph.passes.precision.split_bf16 import splittable
from tensorlang.graph.precisions import Precision
from tensorlang.tensor.contraction import contractions
from tensorlang.tensor.nodes import Program, SplitProduct


def product_precisions(program: Program, precision: Precision) -> tuple[str, ...]:
    """Return what each contraction of a program that went through `lower_precision` multiplies, and why others stay f32; nothing where
    operands are kept in a narrow type, which their types say."""
    if not (precision.rounded or precision.parts):
        return ()
    rounded = [c for _, c in contractions(program) if all(f.rounding == "round_tf32" for f in c.factors)]
    split = [i.operands for i in program.idioms if isinstance(i, SplitProduct)]
    taken = split if precision.parts else {c.reduce: c.tensors for c in rounded}.values()
    left = splittable(program, precision.least) if precision.parts else products(program)
    return (
        *(f"products of {_named(tensors)} are {precision.used}" for tensors in taken),
        *(f"products of {_named(p.tensors)} stay f32: {p.refusal}" for p in left),
    )


def _named(tensors: Iterable[str]) -> str:
    return " and ".join(f"`{name}`" for name in tensors)
