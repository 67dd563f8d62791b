"""The products of warpgroups that kernels name, written for each of them: `codegen/cuda/prelude/wgmma.h` says what they are.

There are some hundred, each with up to 128 registers, so that only those in use are put before kernels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"\btl_wgmma_m64n(\d+)k(\d+)_(bf16|f16|tf32|s8|u8)((?:_register_a)?(?:_transposed_a)?(?:_transposed_b)?)\b")
_K = {"bf16": 16, "f16": 16, "tf32": 8, "s8": 32, "u8": 32}
_EMULATED = {"bf16": "Bf16", "f16": "F16", "tf32": "Tf32", "s8": "S8", "u8": "U8"}


@dataclass(frozen=True, slots=True, order=True)
class Product:
    """One of them: `columns` is N."""

    name: str
    columns: int
    kind: str
    register_a: bool
    transposed_a: bool
    transposed_b: bool

    @property
    def of_integers(self) -> bool:
        return self.kind in ("s8", "u8")


def columns_allowed(kind: str) -> tuple[int, ...]:
    """Return the numbers of columns that products of these elements have."""
    return (8, 16, 24, *range(32, 257, 16)) if kind in ("s8", "u8") else tuple(range(8, 257, 8))


def named(kernels: str) -> tuple[Product, ...]:
    """Return the products that `kernels` name and that exist, each once."""
    found = set()
    for match in _NAME.finditer(kernels):
        columns, k, kind, variant = int(match[1]), int(match[2]), match[3], match[4]
        product = Product(match[0], columns, kind, "register_a" in variant, "transposed_a" in variant, "transposed_b" in variant)
        turned = product.transposed_a or product.transposed_b
        if k == _K[kind] and columns in columns_allowed(kind) and not (turned and kind not in ("bf16", "f16")):
            found.add(product)
    return tuple(sorted(found))


def for_emulator(product: Product) -> str:
    """Return the macro for the emulator."""
    kind = _EMULATED[product.kind]
    a = "a, 0" if product.register_a else "nullptr, a"
    turned = f"{str(product.transposed_a).lower()}, {str(product.transposed_b).lower()}"
    return (
        f'#define {product.name}(d, a, b, adds) TL_WGMMA({kind}, {kind}, {product.columns}, d, {a}, b, {turned}, adds, "{product.name}")\n'
    )
