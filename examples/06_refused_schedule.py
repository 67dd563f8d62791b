"""Schedules that would compute something else, what the compiler says about each, and one that is right.

In the operator every element needs one from the row above, to the right. Exchanging the loops would read it before it is written; after a
skew the same exchange is fine.
"""

from __future__ import annotations

import numpy as np

import tensorlang as tl

ops = tl.parse("""
op wave(x: f64[N, N]) -> (h: f64[N, N]) {
    h[i, j] = x[i, j] + h[i - 1, j + 1]   for i in 1..N, j in 0..N-1
    h[i, j] = x[i, j]                     otherwise
}
""")
REFUSED = {
    "exchanged": "order h.j, h.i",
    "rows on threads": "parallel h.i",
    "backwards": "reverse h.i",
    "a loop that is not there": "vectorize k",
}
x = np.random.default_rng(0).standard_normal((40, 40))

for name, text in REFUSED.items():
    print(f"---- {name}: {text}")
    try:
        ops.wave.schedule(text)(x)
    except tl.CompileError as problem:
        print(problem, "\n")
    else:
        raise SystemExit(f"accepted: {text}")

print("---- columns on lanes: every row needs the row above alone")
expected = x.copy()
for i in range(1, 40):
    expected[i, :-1] += expected[i - 1, 1:]
np.testing.assert_allclose(ops.wave.schedule("vectorize h.j")(x), expected, rtol=1e-12)
print("accepted, and right")
