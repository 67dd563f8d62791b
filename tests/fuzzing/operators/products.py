"""Products: Gemm, MatMul, Einsum."""

from __future__ import annotations

from fuzzing.network import NetDrawing, Rule
from fuzzing.operators import draw


def _gemm(d: NetDrawing) -> None:
    m, k, n = draw.shape(d, 3, (1, 2, 3, 5, 8, 9))
    dtype = d.random.choice(("f32", "f32", "f16", "f64", "i32", "i64", "bf16"))
    ta, tb = d.random.choice((0, 1)), d.random.choice((0, 1))
    a, b = draw.value(d, dtype, (k, m) if ta else (m, k)), draw.value(d, dtype, (n, k) if tb else (k, n))
    c = draw.value(d, dtype, d.random.choice(((n,), (1, n), (m, 1), (m, n), (), (1,)))) if d.random.random() < 0.7 or d.opset < 11 else ""
    attrs = {**draw.maybe(d, 0.3, alpha=d.random.choice((2.0, -1.0, 0.0))), **draw.maybe(d, 0.3, beta=d.random.choice((2.0, 0.0, -1.0)))}
    d.add("Gemm", [a, b, c], **({"transA": ta} if ta else {}), **({"transB": tb} if tb else {}), **attrs)


def _matmuls(d: NetDrawing) -> None:
    m, k, n = draw.shape(d, 3, (1, 2, 3, 5, 9))
    dtype = d.random.choice(("f32", "f32", "f16", "f64", "i32", "i64", "u32", "u64", "bf16"))
    batch = draw.shape(d, d.random.choice((0, 0, 1, 2)), (1, 2, 3))
    other = draw.broadcast(d, batch) if batch else ()
    a = draw.value(d, dtype, d.random.choice(((*batch, m, k), (*batch, m, k), (k,))))
    b = draw.value(d, dtype, d.random.choice(((*other, k, n), (*other, k, n), (k,))))
    d.add("MatMul", [a, b])


def _einsum(d: NetDrawing) -> None:
    sizes = {c: d.random.choice((1, 2, 3, 4)) for c in "abcde"}
    equation = d.random.choice(_EQUATIONS)
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    dtype = d.random.choice(("f32", "f32", "f64", "f16", "i32"))
    shapes = []
    for term in terms:
        lead = (2,) * term.count("...")
        shapes.append((*lead, *(sizes[c] for c in term.replace("...", ""))))
    d.add("Einsum", [draw.value(d, dtype, s) for s in shapes], equation=equation)


_EQUATIONS = (
    *(
        "ab,bc->ac",
        "ab,bc",
        "abc,acd->abd",
        "ab->ba",
        "ab->a",
        "ab->",
        "aab->ab",
        "aa->",
        "aa->a",
        "ab,ab->ab",
        "a,b->ab",
        "...ab,...bc->...ac",
    ),
    *(
        "...a->...",
        "ab , cb -> ac",
        "abcd,abed->abce",
        "abc,cd,de->abe",
        "...ab->...ba",
        "ab,ab,ab->a",
        "a...,a...->...",
        "abc->cb",
        "...,...->...",
    ),
)


RULES: tuple[Rule, ...] = (
    _gemm,
    _gemm,
    _matmuls,
    _matmuls,
    _einsum,
)
