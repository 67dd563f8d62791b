"""Programs with other names."""

from __future__ import annotations

from hypothesis import given, settings
from strategies_tensor import Case, cases

from tensorlang.tensor.interp import interpret
from tensorlang.tensor.renaming import rename_program
from tensorlang.tensor.verify import verify
from tensorlang.tensor.walk import (
    program_names,
)


@given(cases())
@settings(max_examples=30, deadline=None)
def test_a_renamed_program_computes_the_same(case: Case) -> None:
    to = {name: f"{name}'" for name in program_names(case.program)}
    renamed = verify(rename_program(case.program, to))
    before = interpret(case.program, case.sizes, case.arrays)
    after = interpret(renamed, {to[s]: v for s, v in case.sizes.items()}, {to[a]: v for a, v in case.arrays.items()})
    assert {to[n]: a.tobytes() for n, a in before.items()} == {n: a.tobytes() for n, a in after.items()}
