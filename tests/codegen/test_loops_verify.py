from dataclasses import replace

import pytest

from codegen.dtypes import bf16, bool_, f32, i32, u32
from codegen.errors import InternalError
from codegen.loops.nodes import Alloc, Buffer, Const, For, Function, Int, Store, Var
from codegen.loops.notes import Kept
from codegen.loops.parser import parse, parse_expr
from codegen.loops.verify import Env, dtype_of, verify

HEADER = "func f(N)(a: f32[N, 8], h: bf16[N], k: i32[N], out c: f32[N, 8])"
GOOD = """
for i in 0 .. N parallel {
    alloc acc: f32[8] registers
    for j in 0 .. 8 vector 8 {
        acc[j] = 0.0_f32
    }
    for p in 0 .. N {
        let x = f32(h[p])
        for j in 0 .. 8 vector 8 {
            acc[j] = fma(x, a[p, j], acc[j])
        }
    }
    for j in 0 .. 8 vector 8 {
        c[i, j] = select(k[i] == 0_i32 and x_is(), acc[j], a[value(k[i]), j])
        c[i, 0] = c[i, 0] + acc[j]
    }
    require index(i) >= 0_i64 else 3
    prefetch a[i + 1, 0] locality 3
}
""".replace(" and x_is()", "")

BAD = {
    "a value that nobody binds": ("c[0, 0] = x", "value `x` is not bound"),
    "a loop variable outside its loop": ("for i in 0 .. N {} c[i, 0] = 0.0_f32", "index variable `i` is not bound"),
    "a buffer that nobody allocates": ("d[0] = 0.0_f32", "buffer `d` is not bound"),
    "a value outside its block": ("for i in 0 .. N { let x = 0.0_f32 } c[0, 0] = x", "value `x` is not bound"),
    "too few subscripts": ("c[0] = 0.0_f32", "`c` has rank 2 and is accessed with 1 subscripts"),
    "two types in one sum": ("c[0, 0] = a[0, 0] + f64(a[0, 0])", r"`a\[0, 0\] \+ f64\(a\[0, 0\]\)` mixes f32 and f64"),
    "arithmetic on narrow floats": ("let x = h[0] + h[0]", "computes in bf16; cast to f32 first"),
    "an order of narrow floats": ("let x = h[0] < h[0]", "computes in bf16; cast to f32 first"),
    "division of integers as floats": ("let x = k[0] / k[0]", "not defined for i32"),
    "a sum of booleans": ("let x = true + false", "not defined for bool"),
    "an elementary function of integers": ("let x = exp(k[0])", "not defined for i32"),
    "an elementary function that does not exist": ("let x = frob(a[0, 0])", "unknown function `frob`"),
    "too many arguments": ("let x = exp(a[0, 0], a[0, 0])", "`exp` takes 1 arguments, not 2"),
    "a store of another type": ("c[0, 0] = 1_i32", "stores i32 into f32"),
    "a store to a parameter that is only read": ("a[0, 0] = 1.0_f32", "not marked as written"),
    "a condition that is no truth value": ("if k[0] {}", "needs bool, not i32"),
    "a float as an index": ("c[value(a[0, 0]), 0] = 1.0_f32", "has type f32"),
    "an unrolled loop without extent": ("for i in 0 .. 4 unroll {}", "has no extent"),
    "a vector loop without extent": ("for i in 0 .. 4 vector {}", "has no extent"),
    "more iterations than the extent": ("for i in 0 .. 9 vector 8 {}", "runs more often than its extent 8"),
    "a stack buffer of unknown size": ("alloc t: f32[N] stack", "has an extent that is not constant"),
    "a register buffer of unknown size": ("alloc t: f32[N] registers", "has an extent that is not constant"),
    "a register whose address varies": (
        "alloc t: f32[8] registers for i in 0 .. 8 { t[i] = 0.0_f32 }",
        r"`t\[i\]` is in registers at an address that unrolling does not make constant",
    ),
    "a loop variable that shadows a size": ("for N in 0 .. 8 {}", "`N` shadows another `N`"),
    "a value that shadows a buffer": ("let a = 0.0_f32", "`a` shadows another `a`"),
    "a nested loop that shadows its parent": ("for i in 0 .. 8 { for i in 0 .. 8 {} }", "`i` shadows another `i`"),
    "a store of all lanes to one address": (
        "for i in 0 .. 8 vector 8 { c[0, 0] = a[0, i] }",
        "writes one address from all lanes and is no reduction",
    ),
    "a reduction that reads its result twice": (
        "for i in 0 .. 8 vector 8 { c[0, 0] = c[0, 0] + c[0, 0]*a[0, i] }",
        "is no reduction",
    ),
    "a difference that is no reduction": ("for i in 0 .. 8 vector 8 { c[0, 0] = a[0, i] - c[0, 0] }", "is no reduction"),
    "a division by zero": ("c[N // 0, 0] = 0.0_f32", "division by 0"),
    "a constant outside its type": ("k2[0] = 300_i8", "buffer `k2` is not bound|300 is no value"),
    "a return code of zero": ("require true else 0", "not positive"),
    "a locality that does not exist": ("prefetch a[0, 0] locality 4", "locality outside"),
    "an allocation of a parameter": ("alloc t: f32[4]", "allocates a parameter"),
    "two notes of one kind": ("for i in 0 .. 4 (stages 2, stages 3) {}", "two notes of one kind"),
    "a note about buffers on a loop": ("for i in 0 .. 4 (kept shared) {}", "`kept shared` is about one"),
    "a note about loops on a buffer": ("alloc t: f32[4] stack (cluster 2)", "`cluster 2` is about one"),
    "two rows that begin in no parameter": ("alloc t: f32[2, 8] heap (begins u)", "`u` is no parameter with room for one"),
    "two rows that begin in a smaller parameter": ("alloc t: f32[2, 9, N] heap (begins c)", "`c` is no parameter with room for one"),
    "an odd alignment": ("alloc t: f32[4] stack align 3", "no power of two"),
}


def _function(body: str) -> Function:
    return parse(f"{HEADER} {{ {body} }}")


def test_a_function_that_keeps_the_rules_passes() -> None:
    verify(_function(GOOD))


@pytest.mark.parametrize(("body", "message"), BAD.values(), ids=BAD.keys())
def test_a_function_is_refused_for(body: str, message: str) -> None:
    with pytest.raises(InternalError, match=message) as caught:
        verify(_function(body))
    assert caught.value.stage == "verify loops"


def test_constants_must_be_values_of_their_type() -> None:
    with pytest.raises(InternalError, match="300 is no value of type i8"):
        verify(_function("let x = 300_i8"))


@pytest.mark.parametrize("value", ["c[0, 0] + a[0, i]", "min(a[0, i], c[0, 0])", "fma(a[0, i], a[1, i], c[0, 0])", "c[0, 0] - a[0, i]"])
def test_reductions_over_lanes_are_accepted(value: str) -> None:
    verify(_function(f"for i in 0 .. 8 vector 8 {{ c[0, 0] = {value} }}"))


def test_addresses_that_depend_on_the_lane_through_a_value_are_no_uniform_stores() -> None:
    verify(_function("for i in 0 .. 8 vector 8 { let x = k[i] c[value(x), 0] = a[0, i] }"))
    with pytest.raises(InternalError, match="no reduction"):
        verify(_function("for i in 0 .. 8 vector 8 { let x = k[0] c[value(x), 0] = a[0, i] }"))


def test_headers_are_checked() -> None:
    function = _function("")
    for wrong, message in [
        (replace(function, sizes=("N", "N")), "declared twice"),
        (replace(function, written=frozenset(("d",))), "no parameter"),
        (replace(function, params=(Buffer("a", f32, (Var("M"),)),), written=frozenset()), "`M` is not bound"),
        (replace(function, params=(Buffer("a", f32, (Int(1),), notes=(Kept("shared"),)),), written=frozenset()), "the caller's"),
        (replace(function, params=(Buffer("a", f32, (Int(1),), "stack"),), written=frozenset()), "lies in stack"),
    ]:
        with pytest.raises(InternalError, match=message):
            verify(wrong)


def test_siblings_may_use_one_name() -> None:
    block = (Alloc(Buffer("t", f32, (Int(1),), "stack")), Store("t", (Int(0),), Const(0.0, f32)))
    verify(Function("f", (), (), (For("i", Int(0), Int(4), block), For("i", Int(0), Int(4), block))))


def test_every_value_has_a_type() -> None:
    env = Env.of(_function("")).with_value("x", i32)
    for text, dtype in [
        ("a[0, 0] + 1.0_f32", f32),
        ("a[0, 0] < 1.0_f32", bool_),
        ("bf16(a[0, 0])", bf16),
        ("isnan(a[0, 0])", bool_),
        ("bits(a[0, 0])", u32),
        ("select(true, x, 3_i32)", i32),
        ("fma(a[0, 0], a[0, 0], a[0, 0])", f32),
    ]:
        assert dtype_of(parse_expr(text), env) == dtype
