"""The library's schedules for graphics processors: which operators they serve, what they compute in every order of threads, and that the
machine code moves 16 bytes at a time, loads each element once and keeps the rest in registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from batch import Made, difference, library, made
from batch import named as by_name
from device_programs import called, chosen, kernels_of, normal, taken
from executors import Executor, Library
from usual_device import USUAL, plan_for_device

from codegen.cuda.arch import named
from codegen.cuda.compile import compiled, source
from codegen.cuda.sass import count, opcodes
from stdlib.library import roles
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.planning import Rules
from tensorlang.policy.select import search
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120")
SHARED_BYTES = 48 * 1024
REGISTERS = 128
Array = np.ndarray[Any, Any]
bf16, f16, f32 = ml_dtypes.bfloat16, np.float16, np.float32

OWN = load_module(
    parse(
        Source(
            "own.tl",
            """op total[T](x: T[N]) -> (y: T[]) {
    y = sum(i) x[i]
}

op greatest[T](x: T[M, N]) -> (y: T[M]) {
    y[i] = max(j) x[i, j]
}

op columns[T](x: T[M, N]) -> (y: T[N]) {
    y[j] = sum(i) x[i, j]
}

op scaled[T](x: T[N], s: T[N]) -> (y: T[N]) {
    y[i] = x[i] * s[i]
}

op rows_of[T](x: T[M, N], at: i64[K]) -> (y: T[K, N]) {
    y[k, j] = x[at[k], j]
}

op add_norm[T](x: T[M, N], r: T[M, N], g: T[N], b: T[N]) -> (s: T[M, N], y: T[M, N]) {
    s[i, j] = T(f32(x[i, j]) + f32(r[i, j]))
    mean[i] = (sum(j) f32(s[i, j])) / f32(N)
    inv[i] = 1.0 / sqrt((sum(j) (let d = f32(s[i, j]) - mean[i] in d * d)) / f32(N) + 1e-5)
    y[i, j] = T((f32(s[i, j]) - mean[i]) * inv[i] * f32(g[j]) + f32(b[j]))
}

op add_rms_norm[T](x: T[M, N], r: T[M, N], g: T[N]) -> (s: T[M, N], y: T[M, N]) {
    s[i, j] = T(f32(x[i, j]) + f32(r[i, j]))
    inv[i] = 1.0 / sqrt((sum(j) f32(s[i, j]) * f32(s[i, j])) / f32(N) + 1e-5)
    y[i, j] = T(f32(s[i, j]) * inv[i] * f32(g[j]))
}

op means[T](x: T[C, H, W]) -> (y: T[C, H // 2, W // 2]) {
    y[c, h, w] = 0.25 * sum(r in 0..2, s in 0..2) x[c, 2*h + r, 2*w + s]
}
""",
        )
    )
)


def program(operator: str, *arrays: Array, **attrs: object) -> Program:
    return called(operator, *arrays, module=OWN if operator in OWN.operators else None, **attrs)


CASES = [
    ("softmax", (normal(12, 500),), {"axis": 1}, ["row_reduction"]),
    ("softmax", (normal(5, 1003),), {"axis": 1}, ["row_reduction"]),
    ("softmax", (normal(2, 3, 4, 40),), {"axis": 3}, ["row_reduction"]),
    ("softmax", (normal(200, 33),), {"axis": 1}, ["row_reduction"]),
    ("softmax", (normal(3, 5000),), {"axis": 1}, ["row_reduction"]),
    ("softmax", (normal(7, 264, dtype=f16),), {"axis": 1}, ["row_reduction"]),
    ("layer_norm", (normal(6, 200), normal(200), normal(200)), {"axis": 1}, ["row_reduction"]),
    ("layer_norm", (normal(3, 2000, dtype=f16), normal(2000, dtype=f16), normal(2000, dtype=f16)), {"axis": 1}, ["row_reduction"]),
    ("add_norm", (normal(6, 200), normal(6, 200), normal(200), normal(200)), {}, ["row_reduction"]),
    ("add_norm", tuple(normal(*s, dtype=bf16) for s in ((5, 768), (5, 768), (768,), (768,))), {}, ["row_reduction"]),
    ("add_rms_norm", (normal(3, 2048), normal(3, 2048), normal(2048)), {}, ["row_reduction"]),
    ("add_rms_norm", tuple(normal(*s, dtype=f16) for s in ((4, 1031), (4, 1031), (1031,))), {}, ["row_reduction"]),
    ("greatest", (normal(7, 300),), {}, ["reduction"]),
    ("greatest", (normal(300, 36),), {}, ["reduction"]),
    ("greatest", (normal(4, 5001),), {}, ["reduction"]),
    ("total", (normal(1000),), {}, ["reduction"]),
    ("total", (normal(50_000),), {}, ["reduction"]),
    ("columns", (normal(3000, 36),), {}, ["pointwise", "reduction"]),
    ("columns", (normal(20, 300),), {}, ["pointwise"]),
    ("scaled", (normal(1001), normal(1001)), {}, ["pointwise"]),
    ("scaled", (normal(5003, dtype=f16), normal(5003, dtype=f16)), {}, ["pointwise"]),
    ("add", (normal(8, 1, 64), normal(7, 1)), {}, ["pointwise"]),
    ("add", (normal(3, 5, 7), normal(5, 1)), {}, ["pointwise"]),
    ("rows_of", (normal(20, 36), np.array([3, 19, 0, 3, 7])), {}, ["pointwise"]),
    ("gather", (normal(20, 36), np.array([3, -19, 0, -1, 7])), {"axis": 0}, ["pointwise"]),
    ("means", (normal(3, 14, 22),), {}, ["pointwise"]),
    ("transpose", (normal(130, 200),), {"perm": (1, 0)}, ["pointwise"]),
    ("transpose", (normal(131, 65),), {"perm": (1, 0)}, ["pointwise"]),
    ("transpose", (normal(3, 72, 104, dtype=f16),), {"perm": (0, 2, 1)}, ["pointwise"]),
    ("transpose", (normal(5, 7, 9),), {"perm": (2, 0, 1)}, ["pointwise"]),
    ("transpose", (normal(2, 30, 4, 16),), {"perm": (0, 2, 1, 3)}, ["pointwise"]),
]


@dataclass(frozen=True)
class Case:
    made: Made
    taken: list[str]
    arrays: Mapping[str, Array]


@pytest.fixture(scope="module")
def cases(executor: Executor) -> tuple[list[Case], Library]:
    found = []
    for number, (operator, arrays, attrs, _) in enumerate(CASES):
        p = program(operator, *arrays, **attrs)
        picked = chosen(p)
        found.append(Case(made(p, f"{operator}_{number}", picked.schedule), taken(picked), by_name(p, arrays)))
    return found, library((c.made for c in found), executor)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{c[0]}-{'x'.join(map(str, c[1][0].shape))}" for c in CASES])
def test_a_role_serves_each_family_and_computes_what_the_interpreter_does(cases, number):
    case = cases[0][number]
    assert case.taken == CASES[number][3]
    close = 2e-4 if next(iter(case.arrays.values())).dtype == f32 else 1e-2
    assert difference(case.made, case.arrays, {}, cases[1], close=close) == ""


WIDE = {
    "sum of two": ("add", (normal(64, 1024), normal(64, 1024)), {}, (2, 1)),
    "product of halves": ("scaled", (normal(4096, dtype=f16), normal(4096, dtype=f16)), {}, (2, 1)),
    "softmax": ("softmax", (normal(12, 512),), {"axis": 1}, (4, 4)),
    "softmax of halves": ("softmax", (normal(12, 512, dtype=f16),), {"axis": 1}, (2, 2)),
    "softmax of long rows": ("softmax", (normal(12, 4096),), {"axis": 1}, (4, 4)),
    "layer norm": ("layer_norm", (normal(64, 768), normal(768), normal(768)), {"axis": 1}, (18, 6)),
    "sum and layer norm": ("add_norm", (normal(64, 768), normal(64, 768), normal(768), normal(768)), {}, (24, 12)),
    "sum and rms norm of bf16": ("add_rms_norm", tuple(normal(*s, dtype=bf16) for s in ((64, 1024), (64, 1024), (1024,))), {}, (6, 4)),
    "transposition": ("transpose", (normal(512, 1024),), {"perm": (1, 0)}, (4, 4)),
}
"""What is loaded, and what is stored, by one thread, 16 bytes at a time: every element once."""


@pytest.mark.parametrize("case", WIDE)
def test_every_access_to_memory_is_sixteen_bytes_wide_and_every_element_is_loaded_once(case):
    operator, arrays, attrs, (loads, stores) = WIDE[case]
    p = program(operator, *arrays, **attrs)
    made = compiled(source(kernels_of(p, chosen(p).schedule)), named("cuda:sm_90a"))
    (found,) = opcodes(made.cubin).values()
    assert [count(found, o) for o in ("LDG", "LDG.128", "STG", "STG.128")] == [loads, loads, stores, stores]


@pytest.mark.parametrize("case", WIDE)
def test_nothing_spills_on_any_generation_of_devices(case):
    operator, arrays, attrs, _ = WIDE[case]
    p = program(operator, *arrays, **attrs)
    kernels = kernels_of(p, chosen(p).schedule)
    for name in ARCHITECTURES:
        for kernel, used in compiled(source(kernels), named(f"cuda:{name}")).usage.items():
            assert (used.spill_store_bytes, used.spill_load_bytes, used.stack_bytes) == (0, 0, 0), (name, kernel)
            assert used.registers <= REGISTERS
            assert used.shared_bytes <= SHARED_BYTES


def test_spread_is_about_the_threads_of_a_processor() -> None:
    module = load_module(parse(Source("mine.tl", "schedule role pointwise(y, p..; i.., j.., k.., x..) for cuda {\n    spread i..\n}\n")))
    with pytest.raises(CompileError) as refused:
        search(module, None, program("columns", normal(20, 300)), {}, "cuda", USUAL)
    assert str(refused.value).splitlines()[0] == "error[S0102]: `spread` is about the threads of a processor"


def test_a_schedule_of_the_user_comes_before_those_of_the_library() -> None:
    body = "{\n    split j by 32 -> jo, ji\n    bind jo, ji to block.x, thread.x\n}\n"
    own = load_module(parse(Source("mine.tl", f"schedule role pointwise(y, p..; i.., j, k.., x..) for cuda {body}")), [roles()])
    p = program("columns", normal(20, 300))
    scheduled = plan_for_device(p, rules=Rules(own))
    assert scheduled.origin == "schedule role pointwise for cuda (mine.tl:1)"
    assert [show(d) for d in scheduled.schedule.directives] == ["split y.j by 32 -> jo, ji", "bind y.jo, y.ji to block.x, thread.x"]
    assert plan_for_device(p, rules=Rules(roles())).origin.startswith("schedule role pointwise for gpu (stdlib/schedules/gpu.tl:")
    assert plan_for_device(p).origin == "derived"
