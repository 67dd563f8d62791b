"""What contractions multiply, and why some stay f32, in words."""

from __future__ import annotations

from collections.abc import Iterable

from codegen.dtypes import bf16
from tensorlang.graph.passes.precision.products import products
from tensorlang.graph.passes.precision.split_bf16 import splittable
from tensorlang.graph.precisions import Precision
from tensorlang.tensor import walk
from tensorlang.tensor.contraction import Contraction, contractions
from tensorlang.tensor.nodes import Program


def told(program: Program, precision: Precision) -> tuple[str, ...]:
    """Return what each contraction of a program that went through `lower_precision` multiplies, and why others stay f32; nothing where
    operands are kept in a narrow type, which their types say."""
    if not (precision.rounded or precision.parts):
        return ()
    types = {t.name: t.dtype for t in walk.tensors(program)}

    def is_lowered(found: Contraction) -> bool:
        if precision.rounded:
            return all(f.rounding == "round_tf32" for f in found.factors)
        return all(types[name] == bf16 for name in found.tensors)

    taken = {c.reduce: c for _, c in contractions(program) if is_lowered(c)}
    left = splittable(program, precision.least) if precision.parts else products(program)
    return (
        *(f"products of {_named(c.tensors)} are {precision.used}" for c in taken.values()),
        *(f"products of {_named(p.tensors)} stay f32: {p.refusal}" for p in left),
    )


def _named(tensors: Iterable[str]) -> str:
    return " and ".join(f"`{name}`" for name in tensors)
