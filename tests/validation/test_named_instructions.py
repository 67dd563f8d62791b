"""Instructions that a file names for LLVM: taken where they compute their equations, refused with the numbers that show it where not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import assert_blocks_print

import tensorlang as tl
from codegen.dtypes import f32, i16, i32, u16
from codegen.intrinsics import Intrinsic, is_name
from codegen.llvm import intrinsics
from codegen.llvm.target import host, named
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.schedule.instructions import declared
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program
from tensorlang.validation import intrinsics as trial

PAIRS = """instruction pairs(a: i16[2], b: i16[4, 2]) -> (d: i32[4]) for sse2 llvm "llvm.x86.sse2.pmadd.wd" {
    d[l] = sum(r in 0..2) i32(a[r]) * i32(b[l, r])
}
op product(x: i16[M, K], w: i16[K, N]) -> (y: i32[M, N]) {
    y[i, j] = sum(k) i32(x[i, k]) * i32(w[k, j])
}
schedule product for cpu {
    split j by 4 -> jo, jv
    split k by 2 -> ko, kr
    pack w as [jo, ko, jv, kr]
    order i, jo, ko, jv, kr
    tensorize jv, kr with pairs
}
"""
ADDED = """instruction multiply_add(a: f32, b: f32[4], c: f32[4]) -> (d: f32[4]) for fma llvm "llvm.fma.v4f32" {
    d[l] = c[l] + a * b[l]
}
op product(x: f32[M, K], w: f32[K, N]) -> (y: f32[M, N]) {
    y[i, j] = sum(k) x[i, k] * w[k, j]
}
schedule product for cpu {
    split j by 4 -> jo, jv
    order i, jo, k, jv
    tensorize jv with multiply_add
}
"""
BYTES = (
    PAIRS.replace("a: i16[2], b: i16[4, 2]) -> (d: i32[4]) for sse2", "a: u8[2], b: i8[8, 2]) -> (d: i16[8]) for ssse3")
    .replace("llvm.x86.sse2.pmadd.wd", "llvm.x86.ssse3.pmadd.ub.sw.128")
    .replace("x: i16", "x: u8")
    .replace("w: i16", "w: i8")
    .replace("y: i32", "y: i16")
    .replace("i32(", "i16(")
    .replace("j by 4", "j by 8")
)
FMA = Intrinsic("llvm.fma.v4f32", ("fma",), ("a", "b", "c"), f32, f32, f32, 4, 1)
MADD = Intrinsic("llvm.x86.sse2.pmadd.wd", ("sse2",), ("a", "b"), i16, i16, i32, 4, 2)
DOCUMENT = Path(__file__).parents[2] / "docs" / "instructions.md"
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n\n```text\n(?P<output>.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path))
    yield
    trial.difference.cache_clear()


def bits(*shape: int, dtype: Any) -> Any:
    limits = np.iinfo(dtype)
    return np.random.default_rng(0).integers(limits.min, limits.max, shape, dtype, endpoint=True)


def text_of(program: str, *arrays: Any) -> str:
    """Return the LLVM IR of `product`."""
    found: dict[str, str] = {}
    tl.parse(program, threads=1).product.stages(*arrays, dump=found.__setitem__)
    return found["llvm"]


def refusal(program: str, *arrays: Any) -> tuple[str, str, str]:
    """Return the code, the title and the notes of the only diagnostic."""
    with pytest.raises(CompileError) as refused:
        tl.parse(program, threads=1).product(*arrays)
    (diagnostic,) = refused.value.diagnostics
    return diagnostic.code, diagnostic.title, "\n".join(diagnostic.notes)


def program_of(text: str) -> Program:
    """Return the equation of the instruction that a text names for LLVM."""
    module = load_module(parse(Source("page.tl", text)))
    return next(i.program for i in declared(module) if i.llvm is not None)


WORDS = bits(5, 19, dtype=np.int16), bits(19, 22, dtype=np.int16)
FLOATS = WORDS[0].astype(np.float32), WORDS[1].astype(np.float32)


def test_pairs_of_words_come_by_the_instruction_of_the_file_and_wrap_as_integers_do() -> None:
    assert "call <4 x i32> @llvm.x86.sse2.pmadd.wd(<8 x i16>" in text_of(PAIRS, *WORDS)
    x, w = WORDS
    np.testing.assert_array_equal(tl.parse(PAIRS).product(x, w), x.astype(np.int32) @ w.astype(np.int32))
    least = np.full((3, 8), -32768, np.int16)
    np.testing.assert_array_equal(tl.parse(PAIRS).product(least, least.T.copy()), np.full((3, 3), 0, np.int32))


def test_an_instruction_may_take_what_is_added_to_among_its_operands() -> None:
    added = PAIRS.replace("b: i16[4, 2])", "b: i16[4, 2], c: i32[4])").replace("d[l] = sum", "d[l] = c[l] + sum")
    code, title, _ = refusal(added, *WORDS)
    assert (code, title) == (
        "S0226",
        "LLVM has no instruction `llvm.x86.sse2.pmadd.wd` without effects that takes <8 x i16>, <8 x i16>, <4 x i32>",
    )


def test_a_multiply_add_of_floats_comes_by_the_instruction_of_the_file() -> None:
    fused = ADDED.replace("llvm.fma", "llvm.fmuladd")  # which the emitter never writes by itself
    assert "call <4 x float> @llvm.fmuladd.v4f32(" in text_of(fused, *FLOATS)
    x, w = FLOATS
    np.testing.assert_allclose(tl.parse(fused).product(x, w), x @ w, rtol=1e-5)


@pytest.mark.parametrize(
    ("a", "b"), [("a: i16[2]", "b: i16[4, 2]"), ("a: i16[4, 2]", "b: i16[2]"), ("a: i16[4, 2]", "b: i16[4, 2]"), ("a: i16[2]", "b: i16[2]")]
)
def test_operands_may_be_those_of_a_lane_or_of_all(a: str, b: str) -> None:
    text = PAIRS.replace("a: i16[2], b: i16[4, 2]", f"{a}, {b}")
    text = text.replace("a[r]", "a[l, r]" if "4" in a else "a[r]").replace("b[l, r]", "b[l, r]" if "4" in b else "b[r]")
    assert trial.difference(program_of(text), MADD) is None
    wrong = trial.difference(program_of(text.replace("i16", "u16")), replace(MADD, a=u16, b=u16))
    assert wrong is not None and wrong.startswith("of a = (")


def test_an_instruction_of_the_table_is_called_as_the_table_has_it() -> None:
    bytes_ = """instruction four(c: i32[8], a: u8[4], b: i8[8, 4]) -> (d: i32[8])
    for avx512vnni, avx512vl llvm "llvm.x86.avx512.vpdpbusd.256" {
    d[l] = c[l] + sum(r in 0..4) i32(a[r]) * i32(b[l, r])
}
op product(x: u8[M, K], w: i8[K, N]) -> (y: i32[M, N]) {
    y[i, j] = sum(k) i32(x[i, k]) * i32(w[k, j])
}
schedule product for cpu {
    split j by 8 -> jo, jv
    split k by 4 -> ko, kr
    pack w as [jo, ko, jv, kr]
    order i, jo, ko, jv, kr
    tensorize jv, kr with four
}
"""
    x, w = bits(5, 19, dtype=np.uint8), bits(19, 21, dtype=np.int8)
    np.testing.assert_array_equal(tl.parse(bytes_).product(x, w), x.astype(np.int32) @ w.astype(np.int32))


def test_sums_that_saturate_are_not_sums_that_wrap() -> None:
    code, title, why = refusal(BYTES, bits(3, 8, dtype=np.uint8), bits(8, 16, dtype=np.int8))
    assert (code, title) == ("S0227", "`llvm.x86.ssse3.pmadd.ub.sw.128` does not compute what `pairs` says")
    assert why == "of a = (255, 255), b = (-128, -128) the equation makes 256, and this machine -32768"


def test_operands_in_another_order_than_that_of_llvm_are_found_by_their_results() -> None:
    code, _, why = refusal(ADDED.replace("a: f32, b: f32[4], c: f32[4]", "c: f32[4], a: f32, b: f32[4]"), *FLOATS)
    assert code == "S0227"
    assert re.fullmatch(r"of c = .*, a = .*, b = .* the equation makes .*, and this machine .*", why)


@pytest.mark.parametrize("name", ["llvm.maxnum.v4f32", "llvm.x86.sse2.pmadd.wd", "llvm.fma.v8f32", "llvm.fma", "llvm.x86.fma.vfmadd.ps"])
def test_a_name_that_llvm_does_not_have_for_these_operands_is_refused(name: str) -> None:
    assert refusal(ADDED.replace("llvm.fma.v4f32", name), *FLOATS)[0] == "S0226"


def test_the_features_have_to_bring_the_instruction() -> None:
    code, title, _ = refusal(ADDED.replace("for fma", "for sse2"), *FLOATS)
    assert (code, title) == ("S0228", "`llvm.fma.v4f32` is no instruction of processors with sse2 alone")
    wide = PAIRS.replace("sse2.pmadd", "avx2.pmadd").replace("[4, 2]", "[8, 2]").replace("i32[4]", "i32[8]").replace("j by 4", "j by 8")
    assert refusal(wide, *WORDS)[0] == "S0228"


def test_a_target_without_the_features_computes_the_same_by_other_instructions() -> None:
    assert intrinsics.lacks(FMA, named("x86-64")) == ("fma",)
    assert intrinsics.lacks(MADD, named("aarch64")) == ("aarch64",)
    elsewhere = trial.Named(program_of(ADDED), FMA)
    assert trial.usable((elsewhere,), named("x86-64")) == ()
    assert trial.usable((elsewhere,), named("x86-64-v3")) == (FMA,)


def test_what_this_machine_cannot_try_is_refused_for_those_that_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "host", lambda: named("x86-64"))
    with pytest.raises(CompileError, match="cannot be tried on this machine, which lacks fma") as refused:
        trial.usable((trial.Named(program_of(ADDED), FMA),), named("x86-64-v3"))
    assert [d.code for d in refused.value.diagnostics] == ["S0228"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "llvm",
        "llvm.",
        "fma",
        "llvm.fma.v4f32)",
        "llvm.x86 .a",
        'llvm."a"',
        "llvm.a\n",
        "llvm.ä",
        "llvm..a",
        "xllvm.a",
        "llvm." + "a" * 100,
    ],
)
def test_nothing_but_names_reaches_the_text_of_a_module(name: str) -> None:
    assert not is_name(name)
    assert not intrinsics.is_valid(replace(FMA, name=name))


def test_a_text_that_is_no_name_is_refused_where_it_is_declared() -> None:
    with pytest.raises(CompileError) as refused:
        tl.parse(ADDED.replace("llvm.fma.v4f32", 'llvm.fma(\\") ret'))
    assert [d.code for d in refused.value.diagnostics] == ["T0157"]
    with pytest.raises(CompileError, match="not supported yet: an intrinsic of LLVM for processors other than x86"):
        tl.parse(ADDED.replace("for fma", "for neon"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("f32[4]", "f32[L]"), "LLVM's instruction has a number of lanes, and `l` of the declaration has any extent"),
        (("a: f32,", "a: f32[4],"), "not supported yet"),
        (("c[l] + a * b[l]", "c[l] - a * b[l]"), "not supported yet"),
        (("f32[4]", "f32[1]"), "the declaration has one"),
    ],
)
def test_declarations_that_loops_have_no_place_for_are_refused(change: tuple[str, str], why: str) -> None:
    text = ADDED.replace(*change).replace("c[l] + a * b[l]", "c[l] + a[l] * b[l]" if "a: f32[4]" in change[1] else "c[l] + a * b[l]")
    text = text.replace("b: f32[4]", "b: f32[5]") if change[1] == "a: f32[4]," else text
    code, title, _ = refusal(text, *FLOATS)
    assert code == "S0215" and why in title


def test_every_nan_is_as_good_as_another_and_zeros_have_signs() -> None:
    quiet, other = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    assert trial._unlike(np.array([quiet]), np.array([other])) is None
    assert trial._unlike(np.array([1.0, 0.0]), np.array([1.0, -0.0])) == 1


def test_an_instruction_is_tried_once() -> None:
    found = trial.Named(program_of(PAIRS), MADD)
    before = trial.difference.cache_info().misses
    for _ in range(3):
        assert trial.usable((found,), host()) == (MADD,)
    assert trial.difference.cache_info().misses == before + 1


def test_the_blocks_of_the_document_print_what_stands_below(update_golden: bool) -> None:
    assert len(assert_blocks_print(DOCUMENT, BLOCK, update=update_golden)) == 2
