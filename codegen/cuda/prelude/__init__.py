"""The vocabulary of kernel text for NVRTC and nvcc: `cuda.h`, which says what each name means.

What few kernels use stands in files of their own, and comes before those alone: NVRTC reads the prelude for every program.
"""

from __future__ import annotations

import functools
import re
from importlib import resources

from codegen.gpu import prelude
from codegen.gpu.prelude.wgmma import Product, named

_PARTS = (
    ("matrix.h", re.compile(r"\btl_(mma|ldmatrix|pack|round|low|high)_")),
    ("barriers.h", re.compile(r"\btl_(mbarrier|named_barrier|cluster|async_fence)|\bTL_(CLUSTER|MORE_REGISTERS|FEWER_REGISTERS)\b")),
    ("bulk.h", re.compile(r"\btl_tma_|\bTL_(TENSOR_MAP|TMA)")),
    ("wgmma.h", re.compile(r"\btl_(wgmma_|descriptor)")),
)
"""Files, and the names that they are for."""


def before(kernels: str) -> str:
    """Return the text to put before `kernels`. It includes nothing."""
    parts = tuple(name for name, names in _PARTS if names.search(kernels))
    return _text(parts) + "".join(map(_product, named(kernels)))


@functools.cache
def _text(parts: tuple[str, ...]) -> str:
    folder = resources.files(__name__)
    return "".join(prelude.expanded(folder.joinpath(name).read_text("utf-8")) for name in ("cuda.h", *parts))


def _product(product: Product) -> str:
    """Return the function of a product of warpgroups."""
    n = product.columns // 2
    a = "%" + str(n) if not product.register_a else "{" + ",".join(f"%{n + i}" for i in range(4)) + "}"
    b = n + (4 if product.register_a else 1)
    inputs = [f'"r"(a[{i}])' for i in range(4)] if product.register_a else ['"l"(a)']
    scale = "" if product.of_integers else ", 1, 1"
    if product.kind in ("bf16", "f16"):
        scale += ("" if product.register_a else f", {int(product.transposed_a)}") + f", {int(product.transposed_b)}"
    sums = "s32" if product.of_integers else "f32"
    shape = product.name.removeprefix("tl_wgmma_").split("_")[0]
    c, element = ("r", "tl_i32") if product.of_integers else ("f", "tl_f32")
    registers = ",".join(f"%{i}" for i in range(n))
    outputs = ", ".join(f'"+{c}"(d[{i}])' for i in range(n))
    operand = "const tl_u32* a" if product.register_a else "tl_u64 a"
    what = f"wgmma.mma_async.sync.aligned.{shape}.{sums}.{product.kind}.{product.kind}"
    return (
        f"TL_FUNCTION void {product.name}({element}* d, {operand}, tl_u64 b, int adds) {{\n"
        f'    asm volatile("{{\\n.reg .pred adds;\\nsetp.ne.b32 adds, %{b + 1}, 0;\\n"\n'
        f'        "{what} {{{registers}}}, {a}, %{b}, adds{scale};\\n}}"\n'
        f'        : {outputs}\n        : {", ".join(inputs)}, "l"(b), "r"(adds));\n}}\n'
    )
