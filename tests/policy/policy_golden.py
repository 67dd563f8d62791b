"""What the policy chooses for a program on a machine, as text: layouts, what the program is rewritten to, and directives.

What goes into a golden case is an operator `f` with its sizes; what comes out is what each machine runs it under. Parameters that are
called `w` hold weights, which never change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from scheduled_programs import argument
from usual_device import plan_for_device

from codegen.cuda.arch import named
from codegen.dtypes import DType, bf16, i8, i16, u8
from stdlib.library import library, roles
from tensorlang.backends.cpu.driver import plan_kernel
from tensorlang.backends.cuda.machine import like
from tensorlang.backends.hip.vendor import AMD
from tensorlang.check.instantiate import instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.graph.printer import show_layout
from tensorlang.planning import Rules, Scheduled
from tensorlang.policy.cpu.layouts import derive_layouts
from tensorlang.policy.cpu.winograd_cost import tiles
from tensorlang.policy.gpu.attention import blocks
from tensorlang.policy.gpu.layouts import derive_device_layouts
from tensorlang.policy.machine import GpuMachine, Machine
from tensorlang.runtime.library import rules_of
from tensorlang.schedule.layout import Layout
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.online import online
from tensorlang.tensor.winograd import by_filtering, convolution

GOLDEN = Path(__file__).parent / "golden"
BYTES: frozenset[tuple[DType, DType]] = frozenset({(u8, i8), (i8, u8), (i8, i8), (u8, u8)})
TABLES = frozenset({(2, 256), (4, 256), (8, 256)})
CPUS = {
    "avx2": Machine(
        32, 16, threads=1, l2_bytes=1 << 20, dots=BYTES | {(i16, i16)}, tables=frozenset({(4, 32)}), cache_bytes=32 << 20, target="cpu"
    ),
    "avx512": Machine(64, 32, threads=8, l2_bytes=1 << 20, dots=BYTES | {(i16, i16)}, tables=TABLES, cache_bytes=32 << 20, target="cpu"),
    "amx": Machine(
        64,
        32,
        threads=32,
        target="cpu",
        l2_bytes=1 << 20,
        dots=BYTES | {(bf16, bf16), (i16, i16)},
        tiles=BYTES | {(bf16, bf16)},
        tables=TABLES | {(1, 256)},
        cache_bytes=32 << 20,
    ),
    "neon": Machine(16, 32, threads=4, target="cpu", l2_bytes=1 << 20, dots=BYTES, cache_bytes=32 << 20),
    "rvv": Machine(16, 32, threads=4, target="cpu", l2_bytes=512 << 10, cache_bytes=4 << 20),
    "wasm": Machine(16, 16, threads=1, target="cpu", l2_bytes=512 << 10, dots=BYTES | {(i16, i16)}, cache_bytes=4 << 20),
}
DEVICES: dict[str, GpuMachine] = {
    **{name: like(named(f"cuda:{name}")) for name in ("sm_80", "sm_90a")},
    "gfx90a": AMD.machine(AMD.arch("hip:gfx90a")),
}


def chosen(text: str) -> str:
    """Return what each machine runs an operator under; machines that agree stand together."""
    program = _program(text)
    weights = frozenset(p.name for p in program.params if p.name == "w")
    agreed: dict[str, list[str]] = {}
    for name, machine in CPUS.items():
        agreed.setdefault(_on_cpu(program, machine, weights), []).append(name)
    passed = online(program, blocks)
    how = "# in one pass over the keys\n" if passed is not None else ""
    for name, device in DEVICES.items():
        agreed.setdefault(_on_device(passed or program, device, weights, how), []).append(name)
    return "\n".join(f"# {', '.join(names)}: {choice}" for choice, names in agreed.items())


def _program(text: str) -> Program:
    module = load_module(parse(Source("golden.tl", text)), [library()])
    return instantiate(module, "f", [argument(p, {}) for p in module.operators["f"].params], {})


@cache
def _rules(target: str) -> Rules:
    return replace(rules_of((roles(),)), target=target)


def _on_cpu(program: Program, machine: Machine, weights: frozenset[str]) -> str:
    found = convolution(program) if weights else None
    outputs = tiles(found, machine) if found is not None else None
    how = ""
    if found is not None and outputs is not None:
        program, how = by_filtering(found, outputs), f"# by filtering, {' x '.join(map(str, outputs))} results at a time\n"
    layouts = derive_layouts(program, machine, {}, weights)
    return _told(how, layouts, plan_kernel(program, machine, layouts=layouts, constants=weights, rules=_rules("cpu")))


def _on_device(program: Program, machine: GpuMachine, weights: frozenset[str], how: str) -> str:
    layouts = derive_device_layouts(program, machine, weights)
    return _told(how, layouts, plan_for_device(program, rules=_rules(machine.target), layouts=layouts, machine=machine))


def _told(how: str, layouts: Mapping[str, Layout], made: Scheduled) -> str:
    """Return what is chosen on a machine. Where in the library a schedule stands is left out: it moves with any line above it."""
    origin = re.sub(r" \([^()]*:\d+\)", "", made.origin)
    stored = "".join(f"# {tensor} is stored as {show_layout(layout)}\n" for tensor, layout in sorted(layouts.items()))
    return f"{origin}\n{how}{stored}{made.schedule}\n"
