"""Kernels held against what their operators say: in results, in memory, in what they return."""

from __future__ import annotations

from typing import Any

import extern_kernels as kernels
import numpy as np
import pytest

import tensorlang as tl

SCALE = "extern op scale[T: float](x: T[N], attr by: float) -> (y: T[N]) { y[i] = x[i] * by }\n"
BARE = "extern op scale[T: float](x: T[N], attr by: float) -> (y: T[N])\n"
RIGHT = kernels.scale() + kernels.scale("scale_f64", "f64")


def given(text: str, name: str = "scale_{T}") -> dict[str, Any]:
    return {"scale": tl.llvm_ir(text, name)}


def refused(*args: Any, **named: Any) -> tuple[str, str]:
    with pytest.raises(tl.CompileError) as found:
        tl.check_extern(*args, **named)
    [problem] = found.value.diagnostics
    assert problem.help
    return problem.code, str(found.value)


def test_a_kernel_that_computes_its_body_is_right_on_every_sample() -> None:
    assert tl.check_extern(tl.parse(SCALE, externs=given(RIGHT)).scale, trials=20) == 20


def test_a_kernel_without_a_body_is_checked_against_a_function() -> None:
    operator = tl.parse(BARE, externs=given(RIGHT)).scale
    assert tl.check_extern(operator, against=lambda x, by, T=None: x * by) == 32
    assert refused(operator, against=lambda x, by, T=None: x + by)[0] == "C0120"
    assert refused(operator, against=lambda x, by, T=None: x[:0])[0] in ("C0120", "C0121")
    assert refused(operator)[0] == "C0121"


def test_arguments_say_what_samples_are_like() -> None:
    operator = tl.parse(SCALE, externs=given(RIGHT)).scale
    assert tl.check_extern(operator, np.arange(50, dtype=np.float32)[::2], by=3, trials=3) == 3


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("fmul float %v, %f", "fadd float %v, %f", "and should be"),
        ("store float %w, ptr %yp", "", "unwritten"),
        ("store float %w, ptr %yp", "store float %w, ptr %yp\n  store float 0.0, ptr %xp", "it changes bytes of `x`"),
        ("ptr %y, i64 %i\n", "ptr %y, i64 %next0\n", "it changes bytes around `y`"),
        ("ret i32 0", "ret i32 4", "returned the status 4"),
    ],
)
def test_every_wrong_kernel_is_found(old: str, new: str, said: str) -> None:
    text = kernels.scale().replace(old, new)
    if "%next0" in new:
        text = text.replace("  %xp =", "  %next0 = add i64 %i, 1\n  %xp =")
    assert text != kernels.scale()
    code, message = refused(tl.parse(SCALE, externs=given(text)).scale)
    assert code in ("C0120", "R0316") and said in message


def test_data_stays_in_declared_ranges() -> None:
    text = "extern op pick(x: f32[N], at: i64[K] in 0..N) -> (y: f32[K]) { y[k] = x[at[k]] }"
    assert tl.check_extern(tl.parse(text, externs={"pick": tl.llvm_ir(kernels.pick(), "pick")}).pick) == 32


def test_several_results_and_integers_are_compared() -> None:
    text = "extern op ends(x: f32[N], z: f32[N]) -> (low: f32[N], high: f32[N]) {\n low[i] = min(x[i], z[i])\n high[i] = max(x[i], z[i])\n}"
    assert tl.check_extern(tl.parse(text, externs={"ends": tl.llvm_ir(kernels.ends(), "ends")}).ends) == 32
    wrong = text.replace("high[i] = max", "high[i] = 0 * x[i] + min")
    code, message = refused(tl.parse(wrong, externs={"ends": tl.llvm_ir(kernels.ends(), "ends")}).ends)
    assert code == "C0120" and "`high[" in message
    text = "extern op copies(x: u8[A, B]) -> (y: u8[A, B]) { y[a, b] = x[a, b] }"
    count = kernels.copies(8).replace("i64 %n)", "i64 %a, i64 %b)").replace("entry:\n", "entry:\n  %n = mul i64 %a, %b\n")
    assert tl.check_extern(tl.parse(text, externs={"copies": tl.llvm_ir(count, "copies")}).copies) == 32


def test_what_there_is_nothing_to_check_of_is_said() -> None:
    assert refused(tl.parse(SCALE).scale)[0] == "C0121"
    assert refused(3)[0] == "C0121"
    assert refused(tl.parse("op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }").f)[0] == "C0113"
    assert refused(tl.parse(SCALE, externs=given("", "g_{T}")).scale)[0] == "C0116"
    odd = "extern op scale(x: f32[N * N]) -> (y: f32[N * N]) where N > 1000 { y[i] = x[i] }"
    assert refused(tl.parse(odd, externs=given(kernels.copies(32), "copies")).scale)[0] in ("C0121", "R0213")
