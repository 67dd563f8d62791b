"""Loops split at edges visit the same iterations in the same order, whatever the sizes, and ask nothing inside."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bits import assert_same_bits
from golden_case import cases, source
from hypothesis import given, settings
from hypothesis import strategies as st
from llvm_run import check, run_native
from loops_strategies import running_functions

from codegen.llvm.target import host
from codegen.loops.interp import run
from codegen.loops.nodes import For, Function, If, Max, Min, Mod, Stmt
from codegen.loops.notes import Partitioned
from codegen.loops.parser import parse
from codegen.loops.partition import LONG_NODES, MOST_GROWTH, idle_notes, partition
from codegen.loops.printer import show
from codegen.loops.simplify import simplify
from codegen.loops.verify import verify
from codegen.loops.walk import free_vars, map_stmt, walk


def split(function: Function) -> Function:
    return simplify(partition(simplify(function)))


def asked_everywhere(function: Function) -> Function:
    """Return the function with the note that asks for a split on every loop that has none."""

    def stmt(s: Stmt) -> Stmt:
        new = map_stmt(s, lambda i: i, lambda e: e, stmt)
        return replace(new, notes=(Partitioned(),)) if isinstance(new, For) and not new.notes else new

    return replace(function, body=tuple(map(stmt, function.body)))


@pytest.mark.parametrize("path", cases("loops_partition", "loops"), ids=lambda path: path.stem)
def test_partition_by_example(path: Path, golden_case: Callable[[Path, str], None]) -> None:
    function = parse(source(path))
    verify(function)
    parted = split(function)
    verify(parted)
    golden_case(path, show(parted))


SIZES = (0, 1, 2, 3, 15, 16, 17, 31, 32, 50, 100)
AT_SIZES = [(path, n) for path in cases("loops_partition", "loops") for n in (SIZES if parse(source(path)).sizes else (1,))]
"""Each case at all sizes, one of known sizes once."""


@pytest.mark.parametrize(("path", "size"), AT_SIZES, ids=lambda value: getattr(value, "stem", value))
def test_split_loops_compute_the_same_bits(path: Path, size: int) -> None:
    function = parse(source(path))
    computed = []
    for f in (function, split(function)):
        arrays = {}
        for p in f.params:
            shape = tuple(e.value if hasattr(e, "value") else size for e in p.shape)
            arrays[p.name] = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        assert run(f, dict.fromkeys(f.sizes, size), arrays) == 0
        computed.append(arrays["y"])
    assert_same_bits(*computed)


@settings(max_examples=200, deadline=None)
@given(running_functions(), st.integers(0, 5), st.booleans())
def test_split_functions_compute_the_same_bits(function: Function, n: int, asked: bool) -> None:
    parted = split(asked_everywhere(function) if asked else function)
    verify(parted)
    results = []
    for f in (function, parted):
        arrays = {name: np.linspace(-2, 3, size, dtype=np.float32) for name, size in (("a", 8), ("c", 8), ("n", n))}
        assert run(f, {"N": n}, arrays) == 0
        results.append(arrays["c"])
    assert_same_bits(*results)


@st.composite
def edges(draw: st.DrawFn) -> tuple[Function, dict[str, int]]:
    """A row of vectors, read at indices that are brought into it in some way, perhaps under a condition; of an open size or a known one."""
    length = draw(st.integers(1, 70))
    is_open = draw(st.booleans())
    n = "N" if is_open else str(length)
    lanes = draw(st.sampled_from([1, 4, 8, 16]))
    kind = draw(st.sampled_from(["serial", "parallel"]))

    def read(at: str) -> str:
        stride, shift = draw(st.sampled_from([1, 1, 1, 2, -1])), draw(st.integers(-6, 6))
        here = f"{stride}*({at}) + {shift}"
        match draw(st.sampled_from(["clamp", "wrap", "zero", "select"])):
            case "clamp":
                return f"x[max(0, min({n} - 1, {here}))]"
            case "wrap":
                return f"x[({here}) % {n}]"
            case "zero":
                return f"select(index({here}) >= 0_i64 and index({here}) < index({n}), x[{here}], 0.0_f32)"
            case _:
                op, bound = draw(st.sampled_from(["<", ">=", "==", "!="])), draw(st.integers(-2, 70))
                return f"select(index({here}) {op} {bound}_i64, x[({at}) // 2], x[{at}])"

    def row(at: str, extent: str) -> str:
        return f"for jv in 0 .. {extent} vector {lanes} {{ y[{at}] = {' + '.join(read(at) for _ in range(draw(st.integers(1, 3))))} }}"

    whole, rest = row(f"{lanes}*jo + jv", str(lanes)), row(f"{lanes}*({n} // {lanes}) + jv", f"{n} % {lanes}")
    head = f"func f({'N' if is_open else ''})(x: f32[{n}], out y: f32[{n}])"
    function = parse(f"{head} {{ for jo in 0 .. {n} // {lanes} {kind} {{ {whole} }} {rest} }}")
    return asked_everywhere(function) if draw(st.booleans()) else function, {"N": length} if is_open else {}


@settings(max_examples=150, deadline=None)
@given(edges())
def test_rows_with_edges_compute_the_same_bits_in_the_interpreter(case: tuple[Function, dict[str, int]]) -> None:
    function, sizes = case
    assert_same_bits(_row(function, sizes, run), _row(split(function), sizes, run))


@settings(max_examples=25, deadline=None)
@given(edges())
def test_rows_with_edges_compute_the_same_bits_natively(case: tuple[Function, dict[str, int]]) -> None:
    function, sizes = case
    native = _row(split(function), sizes, lambda f, known, arrays: run_native(f, known, arrays, host(), threads=1))
    assert_same_bits(native, _row(function, sizes, run))


def _row(function: Function, sizes: dict[str, int], how: Callable[[Function, dict[str, int], dict[str, np.ndarray]], int]) -> np.ndarray:
    shape = function.params[0].shape[0]
    length = sizes.get("N", getattr(shape, "value", 0))
    arrays = {"x": np.linspace(-3, 5, length, dtype=np.float32), "y": np.zeros(length, np.float32)}
    assert how(function, sizes, arrays) == 0
    return arrays["y"]


@pytest.mark.parametrize("name", ["clamped_rows", "open_sizes", "clamped_sum", "mirrored", "wrapped"])
def test_a_loop_between_the_edges_asks_nothing(name: str) -> None:
    path = next(p for p in cases("loops_partition", "loops") if p.stem == name)
    before, after = (
        [n for n in walk(*f.body) if isinstance(n, For) and n.var == "jo"] for f in (parse(source(path)), split(parse(source(path))))
    )
    assert all(_asks(loop) for loop in before)
    assert not all(_asks(loop) for loop in after)


def _asks(loop: For) -> bool:
    return any(isinstance(n, Min | Max | Mod) and "jv" in free_vars(n) for n in walk(*loop.body))


def test_a_loop_that_is_asked_for_loses_its_note_where_it_is_split_and_keeps_it_elsewhere() -> None:
    function = parse(
        "func f()(x: f32[40], out y: f32[40, 8]) { for i in 0 .. 40 (partition) {"
        " for j in 0 .. 8 (partition) { y[i, j] = x[max(0, i - 1)] } } }"
    )
    split_once = partition(function)
    assert [(n.var, n.note(Partitioned) is None) for n in walk(*split_once.body) if isinstance(n, For)].count(("i", True)) == 2
    (note,) = idle_notes(function, split_once)
    assert {n.var for n in walk(*split_once.body) if isinstance(n, For) and n.note(Partitioned) is not None} == {"j"} and str(
        note
    ) == "partition"


BEFORE = "select(index(i + 2*k) >= 3_i64, y[max(0, i + 2*k - 3)], 0.0_f32)"
BEHIND = "select(index(i + k) < 99_i64, x[min(99, i + k)], 0.0_f32)"


@pytest.mark.parametrize(("term", "parts"), [(BEFORE, 2), (f"{BEFORE} + {BEHIND}", 3), (BEHIND, 1)])
def test_a_loop_around_short_sums_falls_into_ranges_where_iterations_hand_elements_on(term: str, parts: int) -> None:
    terms = f"for k in 0 .. 2 {{ s[0] = s[0] + {term} }}"
    loop = f"for i in 0 .. 100 {{ alloc s: f32[1] registers\ns[0] = 0.0_f32\n{terms}\ny[i] = s[0] }}"
    body = split(parse(f"func f()(x: f32[100], out y: f32[100]) {{ {loop} }}")).body
    assert len(body) == parts
    assert all(isinstance(s, For) for s in body)


@pytest.mark.parametrize(("depth", "around"), [(6, True), (9, False)])
def test_code_that_would_grow_beyond_measure_is_split_in_its_inner_loops_alone(depth: int, around: bool) -> None:
    reads = " + ".join(f"select(index(l{k}) >= 1_i64, x[l{k} - 1], 0.0_f32)" for k in range(depth))
    text = f"y[{', '.join(f'l{k}' for k in range(depth))}] = {reads}"
    for k in reversed(range(depth)):
        text = f"for l{k} in 0 .. 9 {{ {text} }}"
    function = parse(f"func f()(x: f32[9], out y: f32[{', '.join('9' * depth)}]) {{ {text} }}")
    parted = partition(simplify(function))
    before, after = (sum(1 for _ in walk(*f.body)) for f in (function, parted))
    assert MOST_GROWTH * before < after <= LONG_NODES
    (outermost,) = parted.body
    assert isinstance(outermost, For) and around == isinstance(outermost.body[0], If)


def test_questions_that_are_answered_are_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = " and ".join(f"index({i}) >= 1_i64 and index({i}) < 63_i64" for i in "ij")
    text = f"for i in 0 .. 64 {{ for j in 0 .. 64 {{ y[i, j] = select({inside}, x[i - 1, j - 1], 0.0_f32) }} }}"
    function = simplify(parse(f"func f()(x: f32[64, 64], out y: f32[64, 64]) {{ {text} }}"))
    parted = partition(function)
    split, left = (sum(1 for _ in walk(*f.body)) for f in (parted, simplify(parted)))
    assert left < split
    monkeypatch.setattr("codegen.loops.partition.MOST_NODES", left)
    assert partition(function) == parted


def test_a_function_that_is_long_already_is_split_where_it_grows_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = " + ".join(f"select(index(i) >= {k}_i64, x[i - {k}], 0.0_f32)" for k in range(1, 9))
    function = simplify(parse(f"func f()(x: f32[64], out y: f32[64]) {{ for i in 0 .. 64 {{ y[i] = {terms} }} }}"))
    parted = partition(function)
    assert parted != function
    monkeypatch.setattr("codegen.loops.partition.MOST_NODES", 1)
    assert partition(function) == parted
    monkeypatch.setattr("codegen.loops.partition.MOST_LONGER", 1)
    assert partition(function) == function


@pytest.mark.parametrize(("chunks", "lanes", "parts"), [(7, 16, 2), (2, 16, 2), (3, 4, 1), (7, 1, 1)])
def test_a_sum_in_lanes_that_follow_each_other_has_as_many_terms_as_lanes_in_all_iterations(chunks: int, lanes: int, parts: int) -> None:
    """Short ones are asked about the edges term by term."""
    text = f"""func f()(x: f32[300], out y: f32[{lanes}]) {{
        alloc acc: f32[{lanes}] registers
        for v in 0 .. {lanes} vector {lanes} {{ acc[v] = 0.0_f32 }}
        for o in 0 .. {chunks} {{ for v in 0 .. {lanes} vector {lanes} {{
            acc[v] = acc[v] + select(index({lanes}*o + v - 1) >= 0_i64, x[{lanes}*o + v - 1], 0.0_f32)
        }} }}
        for v in 0 .. {lanes} vector {lanes} {{ y[v] = acc[v] }}
    }}"""
    function = split(parse(text))
    assert show(function).count("x[") == parts
    check(show(function), targets=[host()], x=np.arange(300, dtype=np.float32), y=np.zeros(lanes, np.float32))
