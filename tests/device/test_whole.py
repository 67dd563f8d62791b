"""Tiles at the edges are computed whole, on zeros, where nobody sees it; elsewhere they stay as they are."""

from __future__ import annotations

import numpy as np
import pytest
from batch import Made, difference, library, made, named
from executors import Executor, Library

from codegen.dtypes import from_numpy
from codegen.gpu import emulator
from codegen.loops import nodes as loops
from codegen.loops.interp import run as interpreted
from codegen.loops.parser import parse as parse_loops
from codegen.loops.printer import show
from codegen.loops.walk import walk
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.lower.edge_tiles import whole
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

op shifted(a: i8[M, K], b: i8[K, N]) -> (c: i32[M, N]) {
    c[i, j] = sum(k) (i32(a[i, k]) - 3) * (i32(b[k, j]) - 5)
}

op greatest(a: f32[M, K], b: f32[K, N]) -> (c: f32[M, N]) {
    c[i, j] = max(k) a[i, k] * b[k, j]
}

op finished(a: f32[M, K], b: f32[K, N], d: f32[N]) -> (c: f32[M, N]) {
    s[i, j] = sum(k) a[i, k] * b[k, j]
    c[i, j] = max(s[i, j] + d[j], 0.0)
}

op beside(x: f32[K]) -> (y: f32[64]) {
    y[i] = if i < K then x[i] else 1.0
}
""",
        )
    )
)


def program_of(operator: str, *arrays: np.ndarray) -> Program:
    types = [ArgType(dtype, a.shape) for a in arrays if (dtype := from_numpy(a.dtype)) is not None]
    return instantiate(OWN, operator, types, {}, {})


def tiled(program: Program, stages: int = 1, copied: tuple[str, ...] = ("a", "b")) -> Schedule:
    """Return a product's schedule: tiles of 16 by 32, copied 8 of the sum at a time, 4 by 2 sums for each thread."""
    sums = "s" if program.name == "finished" else "c"
    s = Schedule(program.name, "cuda").tile(sums, ("i", "j"), (16, 32), into=("io", "jo", "ib", "jb"))
    s = s.split(f"{sums}.ib", 4, ("it", "ii")).split(f"{sums}.jb", 2, ("jt", "ji")).split(f"{sums}.k", 8, ("ko", "ki"))
    s = s.order(*(f"{sums}.{loop}" for loop in ("io", "jo", "ko", "it", "jt", "ki", "ii", "ji")))
    s = s.bind(f"{sums}.io", f"{sums}.jo", to=("block.y", "block.x")).bind(f"{sums}.it", f"{sums}.jt", to=("thread.y", "thread.x"))
    if "a" in copied:
        s = s.cache("a", "shared", ["k", "i"], at=f"{sums}.ko", pad=4)
    if "b" in copied:
        s = s.cache("b", "shared", ["k", "j"], at=f"{sums}.ko")
    s = s.unroll(f"{sums}.ii").vectorize(f"{sums}.ji")
    if program.name == "finished":
        s = s.split("c.i", 4, ("c.it", "c.ii")).split("c.j", 64, ("c.jo", "c.jt")).bind("c.it", "c.jt", to=("block.y", "thread.x"))
    return s if stages == 1 else s.stages(f"{sums}.ko", by=stages)


def values(operator: str, m: int, k: int, n: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    if operator == "shifted":
        return [rng.integers(-9, 9, shape).astype(np.int8) for shape in ((m, k), (k, n))]
    shapes: list[tuple[int, ...]] = [(m, k), (k, n), *([(n,)] if operator == "finished" else [])]
    return [(rng.standard_normal(shape) - (2 if operator == "greatest" else 0)).astype(np.float32) for shape in shapes]


# ---------------------------------------------------------------- kernels

CASES = [
    (operator, sizes, stages, copied)
    for operator, sizes, stages, copied in [
        ("product", (17, 21, 35), 1, ("a", "b")),
        ("product", (17, 21, 35), 3, ("a", "b")),
        ("product", (3, 5, 4), 2, ("a", "b")),
        ("product", (30, 20, 36), 2, ("a", "b")),
        ("product", (17, 21, 35), 2, ("a",)),
        ("shifted", (17, 21, 35), 1, ("a", "b")),
        ("greatest", (17, 21, 35), 2, ("a", "b")),
        ("finished", (19, 12, 33), 2, ("a", "b")),
    ]
]


@pytest.fixture(scope="module")
def compiled(executor: Executor) -> tuple[list[Made], Library]:
    found = []
    for k, (operator, (m, depth, n), stages, copied) in enumerate(CASES):
        program = program_of(operator, *values(operator, m, depth, n))
        found.append(made(program, f"whole_{k}", tiled(program, stages, copied)))
    return found, library(found, executor)


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda k: f"{CASES[k][0]} {CASES[k][1:]}")
def test_tiles_at_the_edges_are_right_in_every_order(number, compiled):
    found, kernels = compiled
    operator, sizes, _, _ = CASES[number]
    each = found[number]
    arrays = named(each.program, values(operator, *sizes))
    assert difference(each, arrays, {}, kernels, seeds=emulator.SEEDS, close=1e-4) == ""


def test_what_is_infinite_at_the_edge_stays_at_its_place(compiled):
    found, kernels = compiled
    a, b = values("product", 17, 21, 35)
    a[16], b[20], b[:, 34] = np.inf, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        assert difference(found[0], named(found[0].program, (a, b)), {}, kernels, close=1e-4) == ""


def bounds(each: Made) -> set[str]:
    """Return the loops around the sums whose bounds are no constants."""
    found: set[str] = set()

    def visit(body: tuple[loops.Stmt, ...], around: tuple[loops.For, ...]) -> None:
        for s in body:
            match s:
                case loops.For():
                    visit(s.body, (*around, s))
                case loops.If():
                    visit(s.then, around)
                case loops.Store(buffer, _, value) if "acc" in buffer and any(isinstance(n, loops.Load) for n in walk(value)):
                    found.update(loop.var for loop in around if not isinstance(loop.hi, loops.Int))
                case _:
                    pass

    visit(each.lowered.function.body, ())
    return found


def test_only_loops_that_add_nothing_for_zeros_run_to_their_ends(compiled):
    kept = {(CASES[k][0], CASES[k][3]): bounds(each) for k, each in enumerate(compiled[0])}
    assert kept["product", ("a", "b")] == set()
    assert kept["finished", ("a", "b")] == set()
    assert kept["shifted", ("a", "b")] == {"c_ki"}
    assert kept["greatest", ("a", "b")] == {"c_ki"}
    assert kept["product", ("a",)] == {"c_it", "c_jt", "c_ki", "c_ii", "c_ji"}


def test_strict_sums_are_not_added_to():
    a, b = values("product", 17, 21, 35)
    program = program_of("product", a, b)
    function = show(whole(parse_loops(EDGE), strict=True))
    assert "for k in 0 .. min(8, K - 8*ko)" in function and "for i in 0 .. 16 thread.x 16" in function
    assert program.mode == "reduce"


def test_copies_at_the_edges_are_filled_with_zeros_by_the_device(compiled):
    texts = [each.kernels.text for each in compiled[0]]
    assert "tl_copy_async_zfill_4(" in texts[1]
    assert "tl_copy_async_zfill_16(" in texts[3]


def test_what_is_not_chosen_is_not_read_with_its_neighbours(executor: Executor):
    programs = [program_of("beside", np.zeros(k, np.float32)) for k in (5, 8, 30)]
    found = [
        made(p, f"beside_{k}", Schedule("beside", "cuda").split("i", 4, ("it", "iv")).bind("it", to="thread.x").vectorize("iv"))
        for k, p in enumerate(programs)
    ]
    kernels = library(found, executor)
    assert "tl_load_f32x4" in found[1].kernels.text
    for each in found:
        x = np.random.default_rng(0).standard_normal(shape_of(each.program.params[0], {})).astype(np.float32)
        assert difference(each, named(each.program, (x,)), {}, kernels) == ""


# ---------------------------------------------------------------- loops

EDGE = """func kernel(M, K)(a: f32[M, K], b: f32[K], out y: f32[M]) {
    for io in 0 .. (M + 15) // 16 block.x {
        alloc acc: f32[16] stack
        for i in 0 .. min(16, M - 16*io) thread.x 16 {
            acc[i] = 0.0_f32
        }
        for ko in 0 .. (K + 7) // 8 {
            alloc a_s: f32[16, 8] shared
            alloc b_s: f32[8] shared
            for i in 0 .. min(16, M - 16*io) {
                for k in 0 .. min(8, K - 8*ko) {
                    a_s[i, k] = a[16*io + i, 8*ko + k]
                }
            }
            for k in 0 .. min(8, K - 8*ko) {
                b_s[k] = b[8*ko + k]
            }
            for i in 0 .. min(16, M - 16*io) thread.x 16 {
                for k in 0 .. min(8, K - 8*ko) {
                    acc[i] = fma(a_s[i, k], b_s[k], acc[i])
                }
            }
        }
        for i in 0 .. min(16, M - 16*io) thread.x 16 {
            y[16*io + i] = acc[i]
        }
    }
}
"""


def ran(function: loops.Function, m: int, k: int) -> np.ndarray:
    rng = np.random.default_rng(m)
    a, b, y = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal(k).astype(np.float32), np.zeros(m, np.float32)
    assert interpreted(function, {"M": m, "K": k}, {"a": a, "b": b, "y": y}) == 0
    return y


def widened(text: str) -> dict[str, int]:
    """Return how many loops over each variable there are that run to their ends."""
    loops_ = [n for n in walk(*whole(parse_loops(text)).body) if isinstance(n, loops.For)]
    return {v: sum(loop.var == v and isinstance(loop.hi, loops.Int) for loop in loops_) for v in ("i", "k")}


@pytest.mark.parametrize(("m", "k"), [(16, 8), (17, 9), (1, 1), (40, 23)])
def test_widened_loops_compute_the_same(m, k):
    function = parse_loops(EDGE)
    assert widened(EDGE) == {"i": 3, "k": 3}
    np.testing.assert_array_equal(ran(whole(function), m, k), ran(function, m, k))


def test_stores_that_are_seen_keep_their_conditions():
    both = EDGE.replace("                    acc[i] = fma", "                    y[16*io + i] = 1.0_f32\n                    acc[i] = fma")
    text = show(whole(parse_loops(both)))
    assert "if index(i) < index(min(16, M - 16*io)) and index(k) < index(min(8, K - 8*ko))" in text
    np.testing.assert_array_equal(ran(whole(parse_loops(both)), 17, 9), ran(parse_loops(both), 17, 9))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("acc[i] = fma(a_s[i, k], b_s[k], acc[i])", "acc[i] = acc[i] + exp(a_s[i, k]) * b_s[k]", {"i": 3, "k": 2}),
        ("acc[i] = fma(a_s[i, k], b_s[k], acc[i])", "acc[i] = max(acc[i], a_s[i, k])", {"i": 3, "k": 1}),
        ("acc[i] = fma(a_s[i, k], b_s[k], acc[i])", "acc[i] = fma(a_s[i, k], b[8*ko + k], acc[i])", {"i": 0, "k": 0}),
        ("b_s[k] = b[8*ko + k]", "b_s[7 - k] = b[8*ko + k]", {"i": 0, "k": 0}),
        ("a_s: f32[16, 8]", "a_s: f32[15, 8]", {"i": 3, "k": 3}),
        ("acc[i] = 0.0_f32", "acc[i] = a[16*io + i, 0]", {"i": 3, "k": 3}),
    ],
    ids=[
        "a function of zero",
        "a maximum",
        "a factor from memory",
        "copies that do not begin at 0",
        "too little room, which is made",
        "sums that begin with data",
    ],
)
def test_what_is_not_proven_harmless_stays(old, new, expected):
    found = widened(EDGE.replace(old, new))
    assert found == expected


def test_cells_that_are_used_again_are_not_written_beyond_the_edge():
    """A tile whose cells the next one goes on with: the edge of one is the middle of the other."""
    text = EDGE.replace("a_s[i, k] = ", "a_s[(i + ko) % 16, k] = ").replace("fma(a_s[i, k]", "fma(a_s[(i + ko) % 16, k]")
    assert widened(text) == {"i": 0, "k": 0}
