"""Products of four warps that go on while the next ones begin.

    for k {                                        for k {
        for g warpgroup 2 {                            for g warpgroup 2 {
            mma … c[…], a_s[k % 4, …], …                   mma … c[…], a_s[k % 4, …], …
            commit products                   →        }
            wait 0 products                            commit products
        }                                              wait 1 products
    }                                              }
                                                   wait 0 products

The products of an iteration are done when those of the next have begun: so what it multiplies is overwritten one iteration later, and there
is one stage ahead less. Nothing is proven here: `tensorlang.lower.barriers` refuses operands that are written, and sums that are touched,
before their products are done.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from codegen.gpu import matrix
from codegen.gpu.geometry import WARPGROUP
from codegen.loops.nodes import THREADS, Commit, For, Load, Mma, Stmt, Store, Wait
from codegen.loops.walk import walk

PENDING = 1
"""Groups of products under way when the next iteration begins."""
DONE = Wait(0, "products")


def in_flight(body: tuple[Stmt, ...], threads: int, staged: Set[str]) -> tuple[Stmt, ...] | None:
    """Return the body of a loop with its products under way at its end, or None where they are not all begun in one place, with sums that
    nothing else touches, and operands that the loop does not write but in stages."""
    at = [k for k, s in enumerate(body) if _sums(s)]
    if len(at) != 1 or threads % WARPGROUP:
        return None
    begun, sums = _begun(body[at[0]]), _sums(body[at[0]])
    before, after = body[: at[0]], body[at[0] + 1 :]
    if begun is None or any(isinstance(n, Load | Store) and n.buffer in sums for n in walk(*before, *after)):
        return None
    operands = {o.buffer for n in walk(begun) if isinstance(n, Mma) for o in (n.rows, n.columns)}
    if (operands & {n.buffer for n in walk(*body) if isinstance(n, Store)}) - staged:
        return None
    return (*before, begun, Commit("products"), Wait(PENDING, "products"), *after)


def _sums(s: Stmt) -> frozenset[str]:
    """Return what products of four warps in `s` add to."""
    return frozenset(n.sums.buffer for n in walk(s) if isinstance(n, Mma) and matrix.named(n.name).warps > 1)


def _begun(s: Stmt) -> Stmt | None:
    """Return a nest over threads whose products are waited for without that, or None where it is none."""
    match s:
        case For(kind=kind, body=(*products, Commit("products"), last)) if kind in THREADS and last == DONE:
            return replace(s, body=tuple(products))
        case For(kind=kind, body=(inner,)) if kind in THREADS:
            begun = _begun(inner)
            return None if begun is None else replace(s, body=(begun,))
        case _:
            return None
