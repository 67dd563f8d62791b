"""Products on a graphics processor: which roles serve them, that they compute what the interpreter does in every order of threads, and that
the machine code reads sixteen bytes at a time and reads little for what it multiplies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from batch import Made, difference, library, made
from batch import named as by_name
from device_programs import called, chosen, kernels_of, normal, taken
from executors import Executor, Library
from usual_device import USUAL, derive_device

from codegen.cuda.arch import named
from codegen.cuda.compile import compiled, source
from codegen.cuda.sass import count, opcodes
from stdlib.library import roles
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.policy.select import search
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

ARCHITECTURES = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120")
"""One of each kind of limits and instructions: `sm_86` is like `sm_89`, but for numbers of blocks far above those that matter here."""
Array = np.ndarray[Any, Any]

OWN = load_module(
    parse(
        Source(
            "own.tl",
            """op nn(a: f32[M, K], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[i, k] * b[k, j] }
op nt(a: f32[M, K], b: f32[N, K]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[i, k] * b[j, k] }
op tn(a: f32[K, M], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[k, i] * b[k, j] }
op turned(a: f32[M, K], b: f32[N, K]) -> (y: f32[N, M]) { y[j, i] = sum(k) a[i, k] * b[j, k] }
op heads(a: f32[S, H, D], b: f32[T, H, D]) -> (y: f32[H, S, T]) { y[h, i, j] = 0.125 * sum(k) a[i, h, k] * b[j, h, k] }
op layer(a: f32[M, K], b: f32[K, N], bias: f32[N], r: f32[M, N]) -> (y: f32[M, N]) {
    y[i, j] = max(0.0, r[i, j] + bias[j] + sum(k) a[i, k] * b[k, j])
}
op last(x: f32[N, H, W, C], w: f32[F, R, S, C], attr lo: int = 1, attr step: int = 1)
    -> (y: f32[N, (H + 2*lo - R)//step + 1, (W + 2*lo - S)//step + 1, F]) {
    y[n, h, v, f] = sum(r, s, c) x[n, step*h + r - lo, step*v + s - lo, c | 0] * w[f, r, s, c]
}
op both(a: f32[M, K, L], b: f32[K, L, N]) -> (y: f32[M, N]) { y[i, j] = sum(k, l) a[i, k, l] * b[k, l, j] }
""",
        )
    )
)


def program(operator: str, *arrays: Array, **attrs: object) -> Program:
    return called(operator, *arrays, module=OWN if operator in OWN.operators else None, **attrs)


CASES = [
    ("nn", (normal(64, 32), normal(32, 64)), {}),
    ("nn", (normal(33, 20), normal(20, 17)), {}),
    ("nn", (normal(5, 7), normal(7, 130)), {}),
    ("nn", (normal(70, 100), normal(100, 36)), {}),
    ("nt", (normal(40, 24), normal(68, 24)), {}),
    ("tn", (normal(24, 40), normal(24, 68)), {}),
    ("turned", (normal(40, 24), normal(68, 24)), {}),
    ("heads", (normal(19, 3, 16), normal(21, 3, 16)), {}),
    ("layer", (normal(37, 48), normal(48, 44), normal(44), normal(37, 44)), {}),
    ("both", (normal(20, 3, 16), normal(3, 16, 20)), {}),
    ("matmul", (normal(2, 3, 18, 33), normal(3, 33, 40)), {}),
    ("conv", (normal(1, 8, 14, 14), normal(12, 8, 3, 3)), {"lo": (1, 1), "hi": (1, 1)}),
    ("conv", (normal(2, 6, 9, 11), normal(5, 6, 3, 3)), {"stride": (2, 2), "lo": (1, 0), "hi": (0, 2)}),
    ("conv", (normal(1, 3, 30, 30), normal(8, 3, 7, 7)), {"stride": (2, 2), "lo": (3, 3), "hi": (3, 3)}),
    ("conv", (normal(1, 12, 10, 10), normal(8, 6, 3, 3)), {"dilation": (2, 2), "lo": (2, 2), "hi": (2, 2), "group": 2}),
    ("conv", (normal(1, 16, 13, 13), normal(8, 16, 1, 1)), {"stride": (2, 2)}),
    ("conv", (normal(1, 16, 7, 7), normal(20, 16, 3, 3)), {"lo": (1, 1), "hi": (1, 1)}),
    ("conv", (normal(2, 8, 40), normal(8, 8, 5)), {"lo": (2,), "hi": (2,)}),
    ("nn", (normal(20, 512), normal(512, 24)), {}),
    ("conv", (normal(1, 128, 6, 6), normal(16, 128, 3, 3)), {"lo": (1, 1), "hi": (1, 1)}),
    ("conv", (normal(1, 4, 6, 7, 8), normal(8, 4, 3, 3, 3)), {"lo": (1, 1, 1), "hi": (1, 1, 1)}),
    ("last", (normal(1, 9, 11, 16), normal(24, 3, 3, 16)), {}),
    ("last", (normal(2, 14, 14, 3), normal(20, 3, 3, 3)), {"step": 2}),
    ("last", (normal(1, 12, 12, 8), normal(16, 3, 3, 8)), {"lo": 0}),
    ("conv", (normal(2, 3, 32, 48), normal(20, 3, 16, 16)), {"stride": (16, 16)}),
    ("conv", (normal(1, 3, 22, 30), normal(12, 3, 4, 4)), {"stride": (4, 5), "lo": (1, 0), "hi": (0, 2)}),
    ("conv", (normal(2, 3, 70), normal(24, 3, 14)), {"stride": (14,)}),
    ("conv", (normal(1, 2, 40, 33), normal(9, 2, 8, 5)), {"stride": (8, 3)}),
]


@dataclass(frozen=True)
class Case:
    made: Made
    taken: list[str]
    arrays: Mapping[str, Array]


def test_windows_that_do_not_overlap_are_copied_in_parts() -> None:
    patches = program("conv", sized(1, 3, 64, 64), sized(768, 3, 16, 16), stride=(16, 16))
    found = search(roles(), None, patches, {}, "cuda", USUAL).chosen
    assert found is not None and found.origin.startswith("schedule role convolution")
    assert show(found.schedule.directives[0]) == "split y.r.0 by 1 -> co, ci"
    overlapping = program("conv", sized(1, 3, 64, 64), sized(768, 3, 16, 16), stride=(8, 8))
    assert search(roles(), None, overlapping, {}, "cuda", USUAL).chosen is None
    assert kernels_of(overlapping, derive_device(overlapping)).kernels


@pytest.fixture(scope="module")
def cases(executor: Executor) -> tuple[list[Case], Library]:
    found = []
    for number, (operator, arrays, attrs) in enumerate(CASES):
        p = program(operator, *arrays, **attrs)
        picked = chosen(p)
        found.append(Case(made(p, f"{operator}_{number}", picked.schedule), taken(picked), by_name(p, arrays)))
    return found, library((c.made for c in found), executor)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{c[0]}-{'-'.join('x'.join(map(str, a.shape)) for a in c[1])}" for c in CASES])
def test_a_role_serves_each_product_and_computes_what_the_interpreter_does(cases, number):
    case = cases[0][number]
    role = {"conv": "convolution", "last": "unfolded"}.get(CASES[number][0], "contraction")
    assert case.taken in ([role], [role, "pointwise"], ["pointwise", role])
    assert difference(case.made, case.arrays, {}, cases[1], close=2e-4) == ""


def sized(*shape: int) -> Array:
    """Return an array of which only the shape matters."""
    return np.broadcast_to(np.float32(0), shape)


def test_a_long_sum_of_few_results_is_cut_into_parts_that_a_second_launch_adds_up():
    p = program("layer", sized(128, 3072), sized(3072, 768), sized(768), sized(128, 768))
    schedule = chosen(p).schedule
    assert [show(d) for d in schedule.directives[:2]] == ["rfactor k to 384", "layout y.part as [k.out, i, j]"]
    assert len(kernels_of(p, schedule).kernels) == 2
    whole = program("layer", sized(2048, 512), sized(512, 2048), sized(2048), sized(2048, 2048))
    assert len(kernels_of(whole, chosen(whole).schedule).kernels) == 1


LARGE = {
    "nn": ("nn", (sized(2048, 512), sized(512, 2048)), (16, 2)),
    "nt": ("nt", (sized(2048, 512), sized(2048, 512)), (16, 0)),
    "tn": ("tn", (sized(512, 2048), sized(512, 2048)), (16, 4)),
    "skinny": ("layer", (sized(128, 768), sized(768, 768), sized(768), sized(128, 768)), (8, 2)),
}
"""How many products a thread adds up for each 16 bytes that it reads from shared memory, at least, and how many copies the device makes."""


@pytest.mark.parametrize("case", LARGE)
def test_what_is_multiplied_is_read_sixteen_bytes_at_a_time_and_used_often(case):
    operator, arrays, (ratio, copies) = LARGE[case]
    p = program(operator, *arrays)
    of_kernels = opcodes(compiled(source(kernels_of(p, chosen(p).schedule)), named("cuda:sm_90a")).cubin)
    found = max(of_kernels.values(), key=lambda c: count(c, "FFMA"))
    products, reads = count(found, "FFMA"), count(found, "LDS.128")
    assert products >= ratio * reads - 1
    assert count(found, "LDS") - reads <= 8
    assert count(found, "LDGSTS.128") >= copies
    assert count(found, "LDG") == count(found, "LDG.128")
    assert count(found, "STG") == count(found, "STG.128") > 0
    assert count(found, "BAR") <= 2


@pytest.mark.parametrize("case", LARGE)
def test_nothing_spills_on_any_generation_of_devices(case):
    operator, arrays, _ = LARGE[case]
    p = program(operator, *arrays)
    kernels = kernels_of(p, chosen(p).schedule)
    for name in ARCHITECTURES:
        for kernel, used in compiled(source(kernels), named(f"cuda:{name}")).usage.items():
            assert (used.spill_store_bytes, used.spill_load_bytes, used.stack_bytes) == (0, 0, 0), (name, kernel)
            assert used.registers <= 128
