"""What a precision comes to on a target."""

from __future__ import annotations

import pytest

from codegen.dtypes import bf16, f16, i8, u8
from codegen.llvm.dot import rate
from codegen.llvm.target import host, named
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.diagnostics import CompileError
from tensorlang.graph.precisions import PARTS, TILE, Precision, chosen, chosen_on, profitable_precision

V4 = "+avx512f,+avx512vl"


@pytest.mark.parametrize(
    ("features", "bits", "times"),
    [
        (V4, 512, 0),
        (f"{V4},+avx512bf16", 512, 2),
        ("+avx512f,+avx512bf16", 256, 0),
        (f"{V4},+avx512bf16", 256, 2),
        (f"{V4},+avx512bf16,+amx-tile,+amx-bf16", 512, 16),
    ],
)
def test_the_rate_of_products_is_that_of_the_instructions_there_are(features: str, bits: int, times: int) -> None:
    assert rate(features, bits, bf16, bf16) == times


def test_bytes_come_four_to_a_lane() -> None:
    assert rate(f"{V4},+avx512vnni", 512, u8, i8) == 4


@pytest.mark.parametrize(("name", "parts"), PARTS.items())
def test_sums_of_products_of_parts_are_taken_where_there_is_something_to_win(name: str, parts: int) -> None:
    for times in range(parts + 1):
        found = profitable_precision(name, times)
        assert (found.requested, found.used, found.parts) == (name, "f32", 0)
        assert {0: "have no instruction", 1: "are as fast as those of f32"}.get(times, f"run {times} times") in found.reason
    assert profitable_precision(name, parts + 1) == profitable_precision(name, parts + 0.5) == Precision(name, name, least=TILE)
    unknown = profitable_precision(name, None)
    assert unknown.used == "f32" and "not documented here" in unknown.reason


@pytest.mark.parametrize(("name", "parts"), PARTS.items())
def test_whoever_insists_has_the_parts_wherever_they_can_be(name: str, parts: int) -> None:
    found = chosen(name, host(), force_precision=True)
    assert found == Precision(name, name) and (found.parts, found.least) == (parts, 1)


@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3", "x86-64-v4", "aarch64", "host"])
def test_every_precision_comes_to_something_on_every_target(target: str) -> None:
    assert [chosen(p, named(target)).used for p in ("f32", "bf16", "bf16x3", "bf16x6")] == ["f32", "bf16", "f32", "f32"]


def test_what_is_used_as_it_was_asked_for_needs_no_reason() -> None:
    assert chosen("bf16", host()) == Precision("bf16", "bf16")
    with pytest.raises(CompileError, match="C0103"):
        chosen("f17", host())


def test_a_graphics_processor_has_f16_too() -> None:
    assert [chosen_on(p, 16, force_precision=True).multiplied for p in ("f32", "bf16", "f16", "bf16x3")] == [None, bf16, f16, None]
    assert [chosen_on("bf16x6", rate).used for rate in (16, 4, None)] == ["bf16x6", "f32", "f32"]
    for refused in (lambda: chosen("f16", host()), lambda: chosen_on("f17", 16)):
        with pytest.raises(CompileError, match="C0103"):
            refused()


def test_tf32_is_for_graphics_processors_that_have_it() -> None:
    assert chosen_on("tf32", 16) == Precision("tf32", "tf32") == chosen_on("tf32", None) and chosen_on("tf32", 16).rounded
    assert chosen_on("tf32", 0).used == "f32" and "no instruction" in chosen_on("tf32", 0).reason
    with pytest.raises(CompileError, match="not supported yet on a processor: precision `tf32`") as refused:
        chosen("tf32", host())
    assert 'target="cuda"' in str(refused.value)


def test_minimal_filtering_is_for_what_is_computed_in_f32() -> None:
    found = {p: toolchain(threads=1, cache=False, precision=p).winograd for p in ("f32", "bf16", "bf16x3", "bf16x6")}
    assert found == {"f32": True, "bf16": False, "bf16x3": True, "bf16x6": True}
