"""isl's own loop generator visits the same points in the same order as the scanner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import islpy as isl
import pytest
from polyhedral_programs import HEAT, MATMUL, N, box, executed, i, in_sequence, j, le, nest, one

from polyhedral.expr import And, Int
from polyhedral.model import Scop
from polyhedral.nest import Nest
from polyhedral.scan import scan

TYPES = isl.ast_node_type


def isl_order(n: Nest, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    """Return the points in the order of the loops that isl generates for the identity schedule."""
    domain = n.points.intersect_params(n.context).set_tuple_name("S")
    identity = isl.UnionMap.from_map(
        isl.Map.identity(domain.get_space().map_from_set()).intersect_domain(domain).reset_tuple_id(isl.dim_type.out)
    )
    tree = isl.AstBuild.from_context(n.context).node_from_schedule_map(identity)
    return list(_walk(tree, dict(sizes)))


def _walk(node: isl.AstNode, values: dict[str, int]) -> Iterator[tuple[int, ...]]:
    match node.get_type():
        case TYPES.block:
            children = node.block_get_children()
            for position in range(children.n_ast_node()):
                yield from _walk(children.get_at(position), values)
        case TYPES.if_:
            if _value(node.if_get_cond(), values):
                yield from _walk(node.if_get_then(), values)
            elif node.if_has_else():
                yield from _walk(node.if_get_else(), values)
        case TYPES.for_:
            name = node.for_get_iterator().to_C_str()
            at = {**values, name: _value(node.for_get_init(), values)}
            while node.for_is_degenerate() or _value(node.for_get_cond(), at):
                yield from _walk(node.for_get_body(), at)
                if node.for_is_degenerate():
                    break
                at[name] += _value(node.for_get_inc(), at)
        case TYPES.user:
            call = node.user_get_expr()
            yield tuple(_value(call.get_op_arg(k), values) for k in range(1, call.get_op_n_arg()))


def _value(expr: isl.AstExpr, values: Mapping[str, int]) -> int:
    """Evaluate the C text of an expression; isl divides with `/` only where the result is exact or the dividend is not negative."""
    text = expr.to_C_str().replace("&&", " and ").replace("||", " or ").replace("/", "//")
    assert "?" not in text
    return int(eval(text, {"floord": lambda a, b: a // b, "min": min, "max": max}, dict(values)))


def triangle() -> Scop:
    return one(("N",), ("i", "j"), And((box(i=N), le(Int(0), j), le(j, i))))


NESTS = {
    "tiled matmul": nest(MATMUL, "C").split("i", 4, "io", "ii").split("j", 3, "jo", "ji").reorder(["io", "jo", "k", "ii", "ji"]),
    "skewed tiles of heat": nest(HEAT, "step")
    .skew("i", "t")
    .split("t", 2, "to", "ti")
    .split("i", 4, "io", "ii")
    .reorder(["to", "io", "ti", "ii"]),
    "a tiled triangle": nest(triangle(), "S").split("i", 4, "io", "ii").split("j", 4, "jo", "ji").reorder(["io", "jo", "ii", "ji"]),
    "a reversed and skewed triangle": nest(triangle(), "S").reverse("i").skew("j", "i").reorder(["j", "i"]),
    "fused loops": nest(one(("N",), ("i", "j"), box(i=N, j=Int(3))), "S").fuse("i", "j", "f"),
}
SCOPS = {"tiled matmul": MATMUL, "skewed tiles of heat": HEAT, "fused loops": one(("N",), ("i", "j"), box(i=N, j=Int(3)))}


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.parametrize("n", [3, 9])
def test_the_scanner_agrees_with_isl(name: str, n: int) -> None:
    sizes = {"N": n, "M": 5, "K": 2, "T": 3}
    schedule = in_sequence(SCOPS.get(name, triangle()), NESTS[name])
    mine = [point for _, point in executed(schedule, scan(schedule), sizes)]
    assert mine == isl_order(NESTS[name], sizes)
    assert mine
