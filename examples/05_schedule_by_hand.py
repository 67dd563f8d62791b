"""A matrix product under schedules of growing effort: the loops before and after, and the time of each.

A schedule never changes what is computed: each is proven legal before it is compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorlang as tl
from tensorlang.runtime.timing import best_time

N = 384
ops = tl.parse(
    "op matmul(a: f32[M, K], b: f32[K, N]) -> (c: f32[M, N]) { c[i, j] = sum(k) a[i, k] * b[k, j] }",
    threads=1,
)
STEPS = {
    "as written": "order c.i, c.j",
    "lanes along j": "split c.j by 16 -> jo, ji\norder c.i, jo, k, ji\nvectorize ji",
    "register tiles": """
        tile c (i, j) by (8, 32) -> io, jo, ii, ji
        order jo, io, k, ii, ji
        unroll ii
        vectorize ji
    """,
    "register tiles, b packed": """
        tile c (i, j) by (8, 32) -> io, jo, ii, ji
        order jo, io, k, ii, ji
        pack b as [jo, k, ji]
        unroll ii
        vectorize ji
    """,
}

random = np.random.default_rng(0)
a, b = (random.standard_normal((N, N), dtype=np.float32) for _ in range(2))


def loops(operator: tl.Operator, *arrays: Any) -> str:
    """Return the loops that are compiled for these arrays."""
    found: dict[str, str] = {}
    operator.stages(*arrays, dump=found.__setitem__)
    return found["loops"]


for name in ("as written", "lanes along j"):
    print(f"---- {name}\n{loops(ops.matmul.schedule(STEPS[name]), a, b)}")

for name, text in STEPS.items():
    scheduled = ops.matmul.schedule(text)
    np.testing.assert_allclose(scheduled(a, b), a @ b, rtol=1e-3, atol=1e-3)
    seconds = best_time(lambda run=scheduled: run(a, b))
    print(f"{name:26} {seconds * 1e3:8.3f} ms {2 * N**3 / seconds * 1e-9:8.1f} GFLOP/s")
seconds = best_time(lambda: ops.matmul(a, b))
print(f"{'derived by the compiler':26} {seconds * 1e3:8.3f} ms {2 * N**3 / seconds * 1e-9:8.1f} GFLOP/s")
