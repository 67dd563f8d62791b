"""Let contractions multiply less than f32, in one of three encodings.

    narrow storage      bf16, f16          operands are kept in the narrow type, and multiplied in it
    rounded             tf32               operands are kept in f32, and rounded when they are multiplied
    parts               bf16x3, bf16x6     operands are sums of bf16 numbers, whose largest products are added up

Sums are f32 in all of them. `products` says which contractions that can be; the narrow storage of `narrow_storage` takes them where it can
keep both operands, parts (`split_bf16`) where they can lie one after another.
"""

from __future__ import annotations

from tensorlang.graph.nodes import Graph
from tensorlang.graph.passes.precision.narrow_storage import narrow_storage
from tensorlang.graph.passes.precision.round_to_tf32 import round_to_tf32
from tensorlang.graph.passes.precision.split_bf16 import split_bf16, splittable
from tensorlang.graph.precisions import Precision
from tensorlang.tensor.nodes import Program


def lower_precision(graph: Graph, precision: Precision) -> Graph:
    """Return the graph with contractions that multiply in the precision, where they can."""
    if precision.multiplied is not None:
        return narrow_storage(graph, precision.multiplied)
    if precision.rounded:
        return round_to_tf32(graph)
    return split_bf16(graph, precision.parts, precision.least) if precision.parts else graph


def lowers(program: Program, precision: Precision) -> bool:
    """Tell whether a contraction of the program is to be made of parts: it is then no longer one of f32."""
    return bool(precision.parts) and any(not p.refusal for p in splittable(program, precision.least))
