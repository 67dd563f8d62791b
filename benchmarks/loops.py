"""What the machine code of each family of kernels does in its loop, instruction by instruction; needs no GPU.

    python benchmarks/loops.py                                       every family; writes docs/benchmarks/gpu-loops.md (`--print` does not)
    python benchmarks/loops.py --measured results/device.jsonl       with what scripts/device.py measured, beside it
    python benchmarks/loops.py matmul softmax                        those whose names begin so, printed only

The loop is the shortest one with most of a kernel's products, of matrices or of numbers, the longest one where it has none, all of the
kernel where it has no loop. A product is one instruction. Of what products of four warps read of shared memory, a quarter is a warp's.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness import ROOT, table  # isort: skip
import gpu  # isort: skip
from gpu_cases import attentions, cases  # isort: skip

from codegen.cuda.sass import assembly, count, loop
from tensorlang.backends.gpu.tools import Built

PAGE = ROOT / "docs" / "benchmarks" / "gpu-loops.md"
TARGET = "cuda:sm_90a"
MATRICES = ("HGMMA", "IGMMA", "HMMA", "IMMA")
FAMILIES = (
    "add_relu f32 134217728",
    "transpose f32 8192x8192",
    "transpose f32 8191x8193",
    "softmax f32 4096x1024",
    "layer_norm f32 65536x768",
    "matmul f32 4096x4096x4096",
    "matmul tf32 4096x4096x4096 along sums",
    "matmul bf16 4096x4096x4096",
    "matmul bf16 4096x4096x4096 along sums, by warps",
    "matmul bf16 4096x4096x4096 along sums",
    "matmul bf16 8192x8192x8192 along sums",
    "matmul i8 4096x4096x4096 along sums",
    "conv bf16 64->64 3x3/1 56x56 @32",
    "conv bf16 256->256 3x3/1 14x14 @32",
    "attention bf16 16x4096x64 causal",
    "attention bf16 16x4096x128",
)
HEADS = ("", "products", "instructions of a product", "LDSM", "LDS", "STS", "LDG", "LDGSTS", "UTMALDG", "BAR", "shared bytes", "measured")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="beginnings of names (default: all)")
    parser.add_argument("--print", action="store_true", help="print the table, write nothing")
    parser.add_argument("--measured", type=Path, help="lines that scripts/device.py wrote")
    given = parser.parse_args(argv)
    measured = rates(given.measured.read_text("utf-8")) if given.measured else {}
    chosen = [name for name in FAMILIES if not given.names or name.startswith(tuple(given.names))]
    text = table(HEADS, [row(name, busiest(built(name)), measured.get(name, "")) for name in chosen])
    if given.print or given.names:
        print(text)
    else:
        PAGE.write_text(f"{head()}\n\n{text}\n", "utf-8")
    return 0


def head() -> str:
    """Return what stands before the table, with the day on which it was made."""
    return f"""# Loops of kernels, instruction by instruction

{time.strftime("%Y-%m-%d")}, `python benchmarks/loops.py`: the machine code that NVRTC generates for `{TARGET}`, in the innermost
hot loop of one kernel of each family. products: the instruction that multiplies, and how often it occurs; then the number of instructions
per product, and how often the instructions that move data occur. Code for tiles at the edge of a tensor, which stands next to the code for
interior tiles, counts as well. shared bytes: shared memory that a warp reads and writes per product. measured: by `scripts/device.py`,
of the kernel as it was then (tiles may be others by now); empty if no device has run it."""


def rates(lines: str) -> dict[str, str]:
    """Return the rates that were measured on a device, by the names of families."""
    found = [json.loads(line) for line in lines.splitlines()]
    return {r["name"].removeprefix("time "): r["row"][1] for r in found if r.get("row") and r["status"] == "ok" and not r.get("dry")}


def built(name: str) -> Built:
    """Return an operator or attention, compiled."""
    arguments = gpu.arguments_of(["--target", TARGET])
    if name in {a.name for a in attentions()}:
        return gpu.model_of(name, arguments).made.built
    case = next(c for c in cases() if c.name == name)
    operator = gpu.operator_of(case, arguments)
    return operator.compiled(operator.call(*case.stand_ins(), **case.attributes)).built


def busiest(made: Built) -> Counter[str]:
    """Return the loop with the most products of all kernels, or the longest."""
    loops = [loop(text, is_product) for code in made.code for text in assembly(code.cubin).values()]
    return max(loops, key=lambda found: (sum(n for o, n in found.items() if is_product(o)), found.total()))


def is_product(opcode: str) -> bool:
    return opcode.split(".")[0] in (*MATRICES, "FFMA")


def row(name: str, found: Counter[str], measured: str) -> tuple[str, ...]:
    kind, products = max(((kind, count(found, kind)) for kind in MATRICES), key=lambda item: item[1])
    if not products and 2 * count(found, "FFMA") > found.total():
        kind, products = "FFMA", count(found, "FFMA")
    moved = [str(count(found, opcode) or "") for opcode in HEADS[3:10]]
    if not products:
        return (name, "", f"{found.total()} in all", *moved, "", measured)
    return (name, f"{products} {kind}", f"{found.total() / products:.1f}", *moved, f"{shared_bytes(found) / products:.0f}", measured)


def shared_bytes(found: Mapping[str, int]) -> float:
    """Return what a warp reads and writes of shared memory by these instructions."""
    return sum(n * _bytes(opcode) for opcode, n in found.items())


def _bytes(opcode: str) -> float:
    name, *modifiers = opcode.split(".")
    if name in ("LDS", "STS"):
        return 32 * next((int(m) // 8 for m in modifiers if m in ("64", "128")), 2 if "U16" in modifiers else 4)
    if name == "LDSM":
        return 128 * next((int(m) for m in modifiers if m in ("2", "4")), 1)
    if name in ("HGMMA", "IGMMA") and (shape := re.match(r"(\d+)x(\d+)x(\d+)", modifiers[0])):
        rows, columns, depth = map(int, shape.groups())
        return (rows + columns) * depth * (1 if name == "IGMMA" else 2) / 4
    return 0.0


if __name__ == "__main__":
    sys.exit(main())
