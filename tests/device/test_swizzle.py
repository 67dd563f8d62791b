"""Copies whose columns are exchanged by rows: a bijection that tells banks apart, the same on both sides, and nothing to proofs."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from batch import Made, difference, library, made, named
from executors import Executor, Library
from hypothesis import given
from hypothesis import strategies as st

from codegen.dtypes import DTYPES
from codegen.errors import InternalError
from codegen.gpu import emulator
from codegen.loops import nodes as loops
from codegen.loops.parser import parse as parse_loops
from codegen.loops.printer import show
from codegen.loops.swizzle import COLUMN_BYTES, SPANS, STRETCH_BYTES, swizzle
from codegen.loops.verify import verify
from codegen.loops.walk import walk
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.lower.barriers import exposed
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import shape_of

OWN = load_module(
    parse(
        Source(
            "own.tl",
            """op product[D: float](a: D[M, K], b: D[K, N]) -> (c: f32[M, N]) {
    c[i, j] = sum(k) f32(a[i, k]) * f32(b[k, j])
}

op turned[D](x: D[M, N]) -> (y: D[N, M]) {
    y[j, i] = x[i, j]
}
""",
        )
    )
)


def program_of(operator: str, dtype: str, *shapes: tuple[int, ...]) -> Program:
    return instantiate(OWN, operator, [ArgType(DTYPES[dtype], shape) for shape in shapes], {}, {})


def product(dtype: str, m: int, k: int, n: int) -> Program:
    return program_of("product", dtype, (m, k), (k, n))


def tiled(program: Program, a: int, b: int, *, stages: int = 2, depth: int = 16) -> Schedule:
    """Return a product's schedule with tiles of its operands swizzled within `a` and `b` bytes, each thread's part in vectors."""
    return (
        Schedule(program.name, "cuda")
        .tile("c", ("i", "j"), (32, 64), into=("io", "jo", "ib", "jb"))
        .split("ib", 4, ("it", "ii"))
        .split("jb", 4, ("jt", "ji"))
        .split("k", depth, ("ko", "ki"))
        .order("io", "jo", "ko", "it", "jt", "ki", "ii", "ji")
        .cache("a", "shared", ["i", "k"], at="ko", swizzle=a)
        .cache("b", "shared", ["k", "j"], at="ko", swizzle=b)
        .stages("ko", by=stages)
        .bind("io", "jo", to=("block.y", "block.x"))
        .bind("it", "jt", to=("thread.y", "thread.x"))
        .unroll("ii")
        .vectorize("ji")
    )


def turning(program: Program, span: int) -> Schedule:
    return (
        Schedule(program.name, "cuda")
        .tile("y", ("j", "i"), (32, 32), into=("jo", "io", "jt", "it"))
        .order("jo", "io", "jt", "it")
        .cache("x", "shared", ["j", "i"], at="io", swizzle=span)
        .bind("jo", "io", to=("block.y", "block.x"))
        .bind("jt", "it", to=("thread.y", "thread.x"))
    )


def normal(dtype: str, *shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(DTYPES[dtype].numpy)


# ---------------------------------------------------------------- where cells lie


@given(
    st.sampled_from(("f32", "f16", "i8", "f64")),
    st.sampled_from(SPANS),
    st.integers(1, 5),
    st.integers(1, 20),
)
def test_every_cell_has_a_place_of_its_own_and_stays_in_its_stretch(dtype, span, times, rows):
    size = DTYPES[dtype].size_bytes
    row = times * span // size
    buffer = loops.Buffer("s", DTYPES[dtype], (loops.Int(rows), loops.Int(row)), "shared", swizzle=span)
    found = swizzle(buffer)
    assert found is not None
    places = [found.place(n) for n in range(rows * row)]
    assert sorted(places) == list(range(rows * row))
    assert all(n * size // span == place * size // span for n, place in enumerate(places))
    assert all(n * size % COLUMN_BYTES == place * size % COLUMN_BYTES for n, place in enumerate(places))


@given(st.sampled_from(("f32", "bf16", "i8")), st.sampled_from(SPANS), st.integers(0, 1 << 14))
def test_rows_as_long_as_the_swizzle_are_exchanged_as_hardware_does(dtype, span, cell):
    size = DTYPES[dtype].size_bytes
    buffer = loops.Buffer("s", DTYPES[dtype], (loops.Int(1 << 15), loops.Int(span // size)), "shared", swizzle=span)
    found = swizzle(buffer)
    assert found is not None
    address, bits = cell * size, {32: 1, 64: 3, 128: 7}[span]
    assert found.place(cell) * size == address ^ (((address >> 7) & bits) << 4)


@pytest.mark.parametrize("row", [STRETCH_BYTES, 2 * STRETCH_BYTES])
def test_eight_rows_of_one_column_lie_in_all_banks(row):
    found = swizzle(loops.Buffer("s", DTYPES["bf16"], (loops.Int(8), loops.Int(row // 2)), "shared", swizzle=128))
    assert found is not None
    for column in range(row // COLUMN_BYTES):
        cells = (found.place(r * row // 2 + column * 8) * 2 % STRETCH_BYTES for r in range(8))
        assert sorted(cells) == list(range(0, STRETCH_BYTES, COLUMN_BYTES))


# ---------------------------------------------------------------- the same on both sides

CASES: dict[str, tuple[Program, Schedule]] = {
    f"{dtype} {m}x{k}x{n}, {a} and {b} bytes, {stages} stages": (p := product(dtype, m, k, n), tiled(p, a, b, stages=stages, depth=depth))
    for dtype, m, k, n, a, b, stages, depth in [
        ("f32", 64, 64, 128, 64, 128, 2, 16),
        ("f32", 45, 37, 70, 32, 64, 3, 16),
        ("f32", 33, 20, 65, 128, 32, 1, 32),
        ("f16", 64, 64, 64, 64, 128, 3, 32),
        ("f16", 40, 50, 60, 32, 32, 2, 16),
        ("f64", 32, 32, 64, 128, 128, 1, 16),
    ]
}
CASES |= {
    f"{dtype} turned within {span} bytes": (p := program_of("turned", dtype, (m, n)), turning(p, span))
    for dtype, m, n, span in [("f32", 64, 64, 128), ("f32", 50, 43, 64), ("i8", 64, 70, 32), ("f32", 20, 19, 128)]
}


@pytest.fixture(scope="module")
def compiled(executor: Executor) -> tuple[dict[str, Made], Library]:
    found = {name: made(program, f"swizzled_{k}", schedule) for k, (name, (program, schedule)) in enumerate(CASES.items())}
    return found, library(found.values(), executor)


def inputs(program: Program) -> dict[str, np.ndarray]:
    return named(program, [normal(p.dtype.name, *shape_of(p, {})) for p in program.params])


@pytest.mark.parametrize("name", CASES)
def test_swizzled_copies_are_right_in_every_order(name, compiled):
    found, kernels = compiled
    assert " ^ " in found[name].kernels.text
    each = found[name]
    assert difference(each, inputs(each.program), {}, kernels, seeds=emulator.SEEDS, close=1e-4) == ""


def test_a_swizzle_on_one_side_alone_is_noticed(compiled):
    name = next(iter(CASES))
    each = compiled[0][name]
    (kernel,) = each.kernels.kernels
    store, load = "a_pack + (", "fma_f32(a_pack["
    for start in (store, load):
        first = kernel.text.index(" ^ (", kernel.text.index(start))
        last = next(k for k in range(first + 4, len(kernel.text)) if kernel.text.count("(", first, k) == kernel.text.count(")", first, k))
        wrong = replace(kernel, text=kernel.text[:first] + kernel.text[last:])
        worse = replace(each, kernels=replace(each.kernels, kernels=(wrong,)))
        try:
            assert difference(worse, inputs(each.program), {}, library([worse]), close=1e-4)
        except emulator.EmulatorError as caught:
            assert "nobody has written" in str(caught) or "race" in str(caught)


def test_sixteen_bytes_stay_together(compiled):
    text = compiled[0][next(iter(CASES))].kernels.text
    assert re.search(r"tl_copy_async_16\(b_pack \+ \(.* \^ ", text)
    assert re.search(r"tl_load_f32x4\(b_pack \+ \(.* \^ ", text)


def test_rows_are_filled_up_to_what_is_exchanged():
    program = product("f32", 33, 20, 65)
    buffers = {
        s.buffer.name: s.buffer
        for s in walk(*made(program, "filled", tiled(program, 128, 64)).lowered.function.body)
        if isinstance(s, loops.Alloc)
    }
    assert buffers["a_pack"].shape[-1] == loops.Int(32) and buffers["a_pack"].swizzle == 128


# ---------------------------------------------------------------- loops

SWIZZLED = """func kernel()(x: f32[8, 32], out y: f32[8, 32]) {
    for one in 0 .. 1 block.x {
        alloc s: f32[8, 32] shared align 64 swizzle 128
        for t in 0 .. 32 thread 32 {
            for i in 0 .. 8 {
                s[i, t] = x[i, t]
            }
        }
        barrier
        for t in 0 .. 32 thread 32 {
            for i in 0 .. 8 {
                y[i, t] = s[i, 31 - t]
            }
        }
    }
}
"""


def test_swizzles_are_read_and_written_the_same_way():
    assert show(parse_loops(SWIZZLED)) == SWIZZLED
    verify(parse_loops(SWIZZLED))


def test_proofs_see_cells_and_not_where_they_lie():
    assert exposed(parse_loops(SWIZZLED)) is None
    assert exposed(parse_loops(SWIZZLED.replace("        barrier\n", ""))) is not None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("swizzle 128", "swizzle 48", "32, 64 or 128 bytes, not 48"),
        ("s: f32[8, 32]", "s: f32[8, 24]", "96 bytes, which is no multiple of 128"),
        ("shared align", "stack align", "not in shared memory"),
    ],
)
def test_rows_that_do_not_fit_a_swizzle_are_no_loops(old, new, message):
    with pytest.raises(InternalError, match=message):
        verify(parse_loops(SWIZZLED.replace(old, new)))
