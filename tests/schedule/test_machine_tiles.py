"""Contractions in the tiles of processors that multiply whole tiles: schedules, loops, and what their instructions compute.

Code for such processors runs here with a model of their registers; it has not been run on one."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scheduled_programs import assert_same, declared, legal, loops, written
from tile_model import run_here, run_modelled

from codegen.dtypes import DType, bf16, i8, u8
from codegen.llvm.dot import rate
from codegen.llvm.emit import emit
from codegen.llvm.jit import assembly
from codegen.llvm.permission import permitted
from codegen.llvm.target import named
from codegen.llvm.tile_forms import tile_pairs
from codegen.llvm.tiles import has_all
from codegen.loops.nodes import Alloc, For, Function
from codegen.loops.parser import parse as parse_loops
from codegen.loops.printer import show
from codegen.loops.tiles import tiled, without_tiles
from codegen.loops.walk import walk
from stdlib.library import roles
from tensorlang.backends.cpu.driver import loops_of, machine_of, plan_kernel
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.graph.precisions import chosen
from tensorlang.runtime.library import rules_of
from tensorlang.schedule.check import proven
from tensorlang.syntax.parse import parse
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program

AMX = named("x86-64-amx")
MATMUL = """op f(x: bf16[M, K], w: bf16[K, N], b: f32[N]) -> (y: f32[M, N]) {
    y[i, j] = max(b[j] + sum(k) f32(x[i, k]) * f32(w[k, j]), 0.0)
}
"""
BYTES = """op f(x: {a}[M, K], w: {b}[K, N]) -> (y: i32[M, N]) {{
    y[i, j] = sum(k) i32(x[i, k]) * i32(w[k, j])
}}
"""
WINDOW = """op f(x: bf16[1, 9, 14, 16], w: bf16[3, 3, 16, 32]) -> (y: f32[1, 9, 14, 32]) {
    y[n, p, q, f] = sum(c, r, s) f32(x[n, p + r - 1, q + s - 1, c | 0]) * f32(w[r, s, c, f])
}
"""
BATCH = """op f(x: bf16[B, M, K], w: bf16[B, K, N]) -> (y: f32[B, M, N]) {
    y[b, i, j] = sum(k) f32(x[b, i, k]) * f32(w[b, k, j])
}
"""
Arrays = dict[str, np.ndarray[Any, Any]]


def compiled(text: str, threads: int = 1, **sizes: int) -> tuple[Program, Function]:
    """Return an operator and its loops for a processor with tiles, under the library's schedules."""
    program = declared(load_module(parse(Source("tiles.tl", text))), "f", **sizes)
    plan = plan_kernel(program, machine_of(AMX, threads), rules=rules_of((roles(),))).plan
    return program, loops_of(plan, "kernel", None, threads).function


def arguments(program: Program) -> Arrays:
    rng = np.random.default_rng(3)
    out: Arrays = {}
    for p in program.params:
        shape = tuple(n.value for n in p.shape)  # type: ignore[union-attr]
        info = np.iinfo(p.dtype.numpy) if not p.dtype.is_float else None
        values = rng.integers(info.min, info.max, shape) if info is not None else rng.standard_normal(shape)
        out[p.name] = values.astype(p.dtype.numpy)
    return out


def results(program: Program) -> Arrays:
    [tensor] = (t for d in program.definitions for t in d.tensors if t.name == "y")
    return {"y": np.zeros(tuple(n.value for n in tensor.shape), tensor.dtype.numpy)}  # type: ignore[union-attr]


def products(function: Function) -> int:
    return sum(isinstance(s, For) and s.kind == "tile" and "dot(" in show(replace(function, body=(s,))) for s in walk(*function.body)) // 3


def assert_computes(text: str, threads: int = 1, **sizes: int) -> None:
    """Assert that code in tiles, in a model of them, and the same without tiles on this machine compute what the operator says."""
    program, function = compiled(text, threads, **sizes)
    given = arguments(program)
    want = interpret(program, {}, given)["y"]
    scale = np.abs(want).max() if want.dtype.kind == "f" else 0
    tiles, here = results(program), results(program)
    model = run_modelled(function, {**given, **tiles}, threads)
    run_here(function, {**given, **here}, threads)
    assert sum(n for name, n in model.count.items() if name.startswith("tdp")) > 0
    for got in (tiles["y"], here["y"]):
        assert np.abs(got.astype(np.float64) - want).max() <= 1e-6 * scale


@pytest.mark.parametrize(
    "sizes",
    [
        {"M": 32, "K": 64, "N": 32},
        {"M": 33, "K": 70, "N": 50},
        {"M": 28, "K": 96, "N": 40},
        {"M": 14, "K": 16, "N": 16},
        {"M": 37, "K": 40, "N": 33},
    ],
)
def test_products_of_tiles_compute_the_product_at_odd_sizes_too(sizes: dict[str, int]) -> None:
    assert_computes(MATMUL, **sizes)


@pytest.mark.parametrize(("a", "b"), [("u8", "i8"), ("i8", "u8"), ("i8", "i8"), ("u8", "u8")])
def test_products_of_bytes_are_exact(a: str, b: str) -> None:
    assert_computes(BYTES.format(a=a, b=b), M=20, K=100, N=40)


def test_convolutions_and_batches_are_products_of_tiles() -> None:
    assert_computes(WINDOW, M=1)
    assert_computes(BATCH, B=3, M=16, K=32, N=32)


@pytest.mark.parametrize("text", [MATMUL, BATCH])
def test_every_thread_configures_its_own_tiles(text: str) -> None:
    program, function = compiled(text, 2, B=4, M=256, K=32, N=64) if text == BATCH else compiled(text, 2, M=512, K=32, N=128)
    assert any(isinstance(s, For) and s.kind == "parallel" for s in walk(*function.body))
    given, found = arguments(program), results(program)
    run_modelled(function, {**given, **found}, 2)
    want = np.matmul(given["x"].astype(np.float64), given["w"].astype(np.float64))
    want = np.maximum(want + given["b"], 0) if "b" in given else want
    assert np.abs(found["y"] - want).max() <= 1e-5


def test_four_tiles_of_sums_stay_in_registers_and_operands_are_loaded_once_a_step() -> None:
    _, function = compiled(MATMUL, M=64, K=256, N=64)
    [sums] = {s.buffer.shape for s in walk(*function.body) if isinstance(s, Alloc) and s.buffer.space == "tiles"}
    assert [n.value for n in sums] == [2, 2, 16, 16]  # type: ignore[union-attr]
    ir = emit(function, AMX)
    text = assembly(ir, AMX)
    steps = [line.split()[0] for line in text.splitlines() if re.match(r"\s+(tdp|tile|ldtile)", line)]
    assert steps.count("tdpbf16ps") == 4 and steps.count("tileloadd") == 4 + 4 and steps.count("tilestored") == 4
    assert steps[0] == "ldtilecfg" and steps[-1] == "tilerelease"
    assert text.count("tmm") == ir.count("@llvm.x86.tileloadd64(i8 ") + ir.count("@llvm.x86.tilestored64(i8 ") + 3 * 4  # nothing is spilled


def test_the_configuration_says_how_large_tiles_are() -> None:
    _, function = compiled(MATMUL, M=28, K=96, N=32)
    [data] = set(re.findall(r"constant \[64 x i8\] c\"([^\"]*)\"", emit(function, AMX)))
    numbers = [int(byte, 16) for byte in data.split("\\")[1:]]
    assert numbers[:16] == [1] + [0] * 15
    assert numbers[16:32:2] == [64] * 8 and numbers[48:56] == [14] * 6 + [16] * 2


def test_a_processor_without_tiles_has_vectors() -> None:
    _, function = compiled(MATMUL, M=32, K=64, N=32)
    assert products(function) and has_all(function, AMX.features) and not has_all(function, named("x86-64-v4").features)
    plain = without_tiles(function)
    assert not products(plain) and "tiles" not in show(plain)
    assert "llvm.x86.tile" not in emit(function, named("x86-64-v4"))


def test_loops_over_tiles_are_read_as_they_are_printed_and_mean_what_they_meant() -> None:
    program, function = compiled(MATMUL, M=16, K=32, N=16)
    assert parse_loops(show(function)) == function
    plan = plan_kernel(program, machine_of(AMX, 1), rules=rules_of((roles(),))).plan
    assert_same(program, plan, {})


LOOPS = """func f()(a: {a}[40, 64], b: {b}[16, 32, 2], out c: {c}[40, 32]) {{
    for m in 0 .. {m} unroll {m} {{
        for n in 0 .. {n} vector 16 {{
            for p in 0 .. {p} tensor {p} {{ c[{row}, n] = dot(2, a[{left}], b[p, {right}, 0], c[{row}, n]) }}
        }}
    }}
}}"""
USUAL = {"a": "bf16", "b": "bf16", "c": "f32", "m": "16", "n": "16", "p": "16", "row": "m", "left": "m, 2*p", "right": "n"}


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"row": "m + 3", "left": "2*m + 1, 2*p + 6"}, True),
        ({"m": "7", "p": "9"}, True),
        ({"m": "17"}, False),
        ({"left": "m, 4*p"}, False),
        ({"left": "m + n, 2*p"}, False),
        ({"left": "m, 2*(p // 2)"}, False),
        ({"right": "15 - n"}, False),
        ({"right": "2*n"}, False),
        ({"row": "0"}, False),
        ({"a": "i16", "b": "i16", "c": "i32"}, False),
    ],
)
def test_only_loops_that_are_a_product_of_tiles_are_marked(change: dict[str, str], fits: bool) -> None:
    assert bool(products(tiled(parse_loops(LOOPS.format(**{**USUAL, **change}))))) == fits


TILED = """schedule f for cpu {
    split i by 4 -> io, ii
    split j by 4 -> jo, jv
    split k by 8 -> ko, ki
    split ki by 2 -> kp, kr
    pack w as [jo, ko, kp, jv, kr]
    order io, jo, ko, ii, jv, kp, kr
    tensorize ii, jv, kp, kr with tile
}
"""
TILE = """instruction tile(c: f32[M, N], a: bf16[M, P, 2], b: bf16[P, N, 2]) -> (d: f32[M, N]) for amx_bf16 {
    d[m, n] = c[m, n] + sum(p in 0..P, r in 0..2) f32(a[m, p, r]) * f32(b[p, n, r])
}
"""
PLAIN = """op f(x: bf16[M, K], w: bf16[K, N]) -> (y: f32[M, N]) {
    y[i, j] = sum(k) f32(x[i, k]) * f32(w[k, j])
}
"""


def test_a_schedule_puts_an_instruction_for_tiles_where_it_computes_the_same() -> None:
    found, plan = legal(TILE + PLAIN + TILED)
    assert products(loops(plan)) == 1
    for sizes in ({"M": 8, "N": 8, "K": 16}, {"M": 5, "N": 7, "K": 11}):
        assert_same(found.program, plan, sizes)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("i by 4", "i by 20"), "`y.ii` has 20 iterations, the instruction at most 16"),
        (("kp, jv, kr]", "jv, kp, kr]"), "elements of `w` along `y.jv` are not next to each other"),
        (("ii, jv, kp, kr\n", "jv, ii, kp, kr\n"), "they are not the innermost loops, in this order"),
        (("ii, jv, kp, kr with", "jv, kp, kr with"), "it has 4 loops"),
        (("ki by 2", "ki by 4"), "`y.kr` has 4 iterations, the instruction 2"),
    ],
)
def test_loops_that_are_no_tile_are_refused(change: tuple[str, str], why: str) -> None:
    found = written(TILE + PLAIN + TILED.replace(*change))
    with pytest.raises(CompileError) as error:
        proven(found.program, found.schedule)
    assert error.value.diagnostics[0].title.endswith(f"cannot become `tile`: {why}")


def test_the_rate_of_tiles_decides_about_sums_of_products_of_parts() -> None:
    assert rate(AMX.features, 512, bf16, bf16) == 16 and rate(AMX.features, 512, u8, i8) == 32
    for name in ("bf16x3", "bf16x6"):
        found = chosen(name, AMX)
        assert (found.used, found.least, found.reason) == (name, 16, "")


def test_tiles_are_used_where_the_operating_system_permits_it() -> None:
    features = "+avx2,+amx-tile,-amx-fp16,+amx-bf16"
    assert permitted(features, lambda: True) == features
    assert permitted(features, lambda: False) == "+avx2,-amx-tile,-amx-fp16,-amx-bf16"
    assert permitted("+avx2", lambda: False) == "+avx2"
    none: frozenset[tuple[DType, DType]] = frozenset()
    assert tile_pairs("+avx2,-amx-tile") == none and tile_pairs("+amx-tile,+amx-bf16") == {(bf16, bf16)}
