"""Which loops over lanes are loads and stores of neighbours at once."""

from __future__ import annotations

from collections.abc import Mapping

from codegen.gpu.expressions import Printer, is_half_byte
from codegen.loops.indices import affine
from codegen.loops.nodes import Add, Buffer, For, Index, Int, Let, Mul, Store, Var
from codegen.loops.walk import free_vars, loads

BYTES = 16
"""What one thread loads or stores at once at most."""


def width(loop: For, lanes: int, p: Printer, buffers: Mapping[str, Buffer]) -> int:
    """Return how many neighbours an access of `loop` takes at once; 1: there is none."""
    if loop.lo != Int(0) or p.algebra.simplify(loop.hi) != Int(lanes) or not all(isinstance(s, Store | Let) for s in loop.body):
        return 1
    accesses = [(buffers[n.buffer], n.index) for n in loads(*loop.body) if n.buffer in buffers]
    accesses += [(buffers[s.buffer], s.index) for s in loop.body if isinstance(s, Store)]
    best = 1
    for buffer, index in accesses:
        n = BYTES // buffer.dtype.size_bytes
        while n > 1 and (lanes % n or not contiguous(buffer, index, loop.var, n, p)):
            n //= 2
        best = max(best, n)
    return best


def contiguous(buffer: Buffer, index: tuple[Index, ...], var: str, lanes: int, p: Printer) -> bool:
    """Tell whether `lanes` iterations of `var` touch neighbours from a multiple of `lanes` on."""
    if is_half_byte(buffer.dtype) or buffer.space in ("registers", "stack") or lanes * buffer.dtype.size_bytes > BYTES or not index:
        return False
    if any(var in free_vars(e) for e in index[:-1]):
        return False
    total: Index = Int(0)
    for extent, at in zip(buffer.shape, index, strict=True):
        total = Add(Mul(total, extent), at)
    form = affine(p.algebra.simplify(total))
    if form is None:
        return False
    terms = dict(form[0])
    if terms.pop(Var(var), 0) != 1 or any(var in free_vars(atom) for atom in terms):
        return False
    return form[1] % lanes == 0 and all(scale % lanes == 0 for scale in terms.values())
