"""Loops whose results one side of a condition alone needs run there, where nobody else sees what they write."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits

from codegen.loops.interp import run
from codegen.loops.nodes import For, If
from codegen.loops.parser import parse
from codegen.loops.sink import sink_loops
from codegen.loops.verify import verify

TEXT = """
func f(K)(x: f32[K, 4], ids: i64[K], out y: f32[8], out z: f32[8]) {
    for k in 0 .. K {
        alloc s: f32[1] registers
        s[0] = 0.0_f32
        for j in 0 .. 4 {
            s[0] = s[0] + x[k, j]
        }
        if CONDITION {
            y[value(ids[k])] = y[value(ids[k])] + s[0]
        }
    }
}
"""


def moved(text: str) -> bool:
    before = parse(text)
    after = sink_loops(before)
    verify(after)
    rng = np.random.default_rng(3)
    given = {"x": rng.standard_normal((9, 4), np.float32), "ids": rng.integers(0, 8, 9)}
    results = [{n: np.ones(8, np.float32) for n in "yz"} for _ in range(2)]
    for f, written in zip((before, after), results, strict=True):
        assert run(f, {"K": 9}, {**given, **written}) == 0
    for name in "yz":
        assert_same_bits(results[0][name], results[1][name])
    loop = after.body[0]
    assert isinstance(loop, For)
    return len(loop.body) == 1 and isinstance(loop.body[0], If)


def test_a_loop_for_a_condition_alone_runs_under_it() -> None:
    assert moved(TEXT.replace("CONDITION", "ids[k] < 5_i64"))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(TEXT.replace("CONDITION", "ids[k] < 5_i64 and 0.0_f32 < s[0]"), id="what the condition asks for"),
        pytest.param(TEXT.replace("CONDITION", "ids[k] < 5_i64").replace("    }\n}\n", "    z[1] = s[0]\n    }\n}\n"), id="read elsewhere"),
        pytest.param(
            TEXT.replace("CONDITION", "ids[k] < 5_i64").replace("s[0] = s[0] + x[k, j]", "s[0] = s[0] + x[k, j]\n z[j] = s[0]"),
            id="written for others",
        ),
        pytest.param(TEXT.replace("CONDITION", "ids[k] < 5_i64").replace("for j", "require ids[k] >= 0_i64 else 1\n for j"), id="required"),
        pytest.param(
            TEXT.replace("        }\n    }", "        } else { z[0] = s[0] }\n    }").replace("CONDITION", "ids[k] < 5_i64"),
            id="both sides",
        ),
    ],
)
def test_what_somebody_else_sees_stays(text: str) -> None:
    assert not moved(text)
