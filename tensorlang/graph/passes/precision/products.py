"""Which contractions multiply less than f32, where that is asked for: one answer for every encoding.

Left alone, with a reason, are contractions of few elements along every index that both operands have, or of an odd number of them,
contractions under a filter, products inside products (attention), and `strict` kernels. Not looked at are products of what is computed on
the way, of one tensor with itself, and of anything but f32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from codegen.dtypes import DType, bf16, f16, f32
from tensorlang.tensor import walk
from tensorlang.tensor.contraction import Contraction, Factor, contractions
from tensorlang.tensor.nodes import Definition, Program

LEAST = 8
"""How many products along an index that both operands have are worth an instruction that adds up several."""


@dataclass(frozen=True, slots=True)
class Product:
    """A contraction of f32 in `definition`. `refusal` says why it stays as it is; without one, `binders` are indices of both operands that
    products may be added up along, the longest first."""

    definition: Definition
    contraction: Contraction
    binders: tuple[str, ...] = ()
    refusal: str = ""

    @property
    def tensors(self) -> tuple[str, str]:
        return self.contraction.tensors


def products(program: Program) -> tuple[Product, ...]:
    """Return the contractions of f32 in the program, each once, and why those that stay do."""
    types = {t.name: t.dtype for t in walk.tensors(program)}
    params = {p.name for p in program.params}
    found = [Product(d, c) for d, c in contractions(program) if is_of_floats(c, types)]
    inner = any(set(p.tensors) - params for p in found)
    once = {p.contraction.reduce: p for p in reversed(found) if {types[t] for t in p.tensors} == {f32}}
    return tuple(_judged(program, p, inner) for p in reversed(once.values()))


def is_of_floats(found: Contraction, types: Mapping[str, DType]) -> bool:
    """Tell whether it sums products of elements of two tensors in f32, which may be kept in less. `types`: of the program's tensors."""
    if found.reduce.reducer.dtypes != (f32,) or found.tensors[0] == found.tensors[1]:
        return False
    return all(_is_element(f) and types[f.read.tensor] in (f32, bf16, f16) for f in found.factors)


def _is_element(found: Factor) -> bool:
    """Tell whether a factor is an element of f32, or one widened to it, perhaps with a number around."""
    plain = not found.rounding and found.zero is None and set(found.casts) <= {f32} and not found.is_indexed_by_data
    return plain and (found.outside is None or not any(True for _ in walk.reads(found.outside)))


def _judged(program: Program, found: Product, inner: bool) -> Product:
    c = found.contraction
    if inner:
        return replace(found, refusal="one product is inside another")
    if program.mode == "strict":
        return replace(found, refusal="the operator is strict")
    if c.reduce.filter is not None:
        return replace(found, refusal="data decides what is summed")
    counts = {name: c.extent(name) or 0 for name in c.shared}
    if not counts:
        return replace(found, refusal="no index of the sum goes along one axis of both")
    paired = sorted((n for n, count in counts.items() if count >= LEAST and count % 2 == 0), key=lambda n: -counts[n])
    if not paired:
        longest = max(counts, key=lambda name: counts[name])
        return replace(found, refusal=f"{counts[longest]} products along `{longest}` are no pairs that are worth it")
    return replace(found, binders=tuple(paired))
