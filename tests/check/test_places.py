"""Where the operands of an instruction lie that the lanes of a warp run together: each element in one place, each place full."""

from __future__ import annotations

import pytest

from stdlib.library import roles
from tensorlang.check.module import load_module
from tensorlang.check.places import spread_of
from tensorlang.diagnostics import CompileError, Source
from tensorlang.syntax.parse import parse

TEXT = """instruction dot(c: f32[16, 8], a: bf16[16, 16], b: bf16[8, 16]) -> (d: f32[16, 8]) for sm_80
    where c[m, n] in warp(4 * (m % 8) + n // 2, 2 * (m // 8) + n % 2),
        a[m, k] in warp(4 * (m % 8) + k % 8 // 2, k % 2 + 2 * (m // 8) + 4 * (k // 8)),
        b[n, k] in warp(4*n + k % 8 // 2, k % 2 + 2 * (k // 8)) {
    d[m, n] = c[m, n] + sum(k in 0..16) f32(a[m, k]) * f32(b[n, k])
}
"""


def loaded(text: str) -> None:
    load_module(parse(Source("own.tl", text)))


def test_operands_of_every_instruction_of_the_library_lie_with_one_lane_each():
    for operator in roles().instructions.values():
        for name, spread in spread_of(operator).items():
            extents = [int(getattr(d, "text", 24)) for d in next(p for p in operator.params if p.name == name).type.dims]
            places = {spread.at(i, j) for i in range(extents[0]) for j in range(extents[1])}
            assert len(places) == extents[0] * extents[1]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("2 * (m // 8) + n % 2)", "n % 2)", r"`c\[0, 0\]` and `c\[8, 0\]` are both element 0 of thread 0"),
        ("2 * (m // 8) + n % 2)", "4 * (m // 8) + n % 2)", r"`c\[8, 0\]` is element 4 of thread 0, and 32 threads have 4 elements each"),
        ("warp(4*n +", "warp(4*n + 1 +", r"`b\[7, 6\]` is element 0 of thread 32"),
        ("warp(4*n +", "warp(n*n +", r"`n \* n` is no sum, multiple, quotient or remainder of indices"),
        ("b[n, k] in", "b[n, n] in", r"`b\[n, n\]` is no element of an operand"),
        ("b[n, k] in", "a[n, k] in", "`a` has a place already"),
        ("b[n, k] in", "d[n, k] in", "`d` is no operand of `dot`"),
        ("a: bf16[16, 16]", "a: bf16[16, 10000000000000000000000]", "`a` has more than 65536 elements"),
        ("b[n, k] in warp", "b[n, k] in team", "there are no threads `team`"),
        (",\n        b[n, k] in warp(4*n + k % 8 // 2, k % 2 + 2 * (k // 8))", "", "`b` has no place"),
    ],
)
def test_operands_that_are_not_held_once_each_are_refused(before, after, message):
    loaded(TEXT)
    with pytest.raises(CompileError, match=message) as refused:
        loaded(TEXT.replace(before, after))
    assert [d.code for d in refused.value.diagnostics] == ["T0155"]
