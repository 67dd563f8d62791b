"""Every barrier is needed: without it two threads of a block meet in a cell, and the proof names them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from device_programs import called, normal
from usual_device import device_loops, plan_for_device

from codegen.loops.nodes import Barrier, For, Function, If, Stmt
from stdlib.library import roles
from tensorlang.lower.barriers import Exposed, exposed
from tensorlang.planning import Rules

FAMILIES = {
    "product": ("matmul", (normal(100, 70), normal(70, 130)), {}),
    "batch of products": ("matmul", (normal(3, 33, 20), normal(3, 20, 17)), {}),
    "linear layer": ("gemm_nt", (normal(128, 64), normal(96, 64), normal(96)), {}),
    "convolution": ("conv", (normal(1, 5, 12, 12), normal(7, 5, 3, 3)), {"lo": (1, 1), "hi": (1, 1)}),
    "strided convolution": ("conv", (normal(2, 3, 30, 30), normal(20, 3, 7, 7)), {"lo": (3, 3), "hi": (3, 3), "stride": (2, 2)}),
    "product of warps": ("gemm_nt", (normal(130, 128).astype(np.float16), normal(96, 128).astype(np.float16)), {}),
    "products of warps, across": ("matmul", (normal(2, 40, 72).astype(np.float16), normal(2, 72, 48).astype(np.float16)), {}),
    "softmax": ("softmax", (normal(6, 5000),), {"axis": 1}),
    "layer norm": ("layer_norm", (normal(6, 3000), normal(3000), normal(3000)), {"axis": 1}),
    "transposition": ("transpose", (normal(64, 96),), {"perm": (1, 0)}),
}


def without_each_barrier(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    """Yield the block once for each of its barriers, without it."""
    for k, stmt in enumerate(body):
        match stmt:
            case Barrier():
                yield (*body[:k], *body[k + 1 :])
            case For():
                yield from ((*body[:k], replace(stmt, body=inner), *body[k + 1 :]) for inner in without_each_barrier(stmt.body))
            case If():
                yield from ((*body[:k], replace(stmt, then=inner), *body[k + 1 :]) for inner in without_each_barrier(stmt.then))
            case _:
                pass


def loops_of(family: str) -> Function:
    operator, arrays, attrs = FAMILIES[family]
    return device_loops(plan_for_device(called(operator, *arrays, **attrs), rules=Rules(roles())).plan, "kernel").function


@pytest.mark.parametrize("family", FAMILIES)
def test_without_any_one_of_its_barriers_two_threads_meet_in_a_cell(family):
    function = loops_of(family)
    assert exposed(function) is None
    fewer = list(without_each_barrier(function.body))
    assert fewer
    for body in fewer:
        found = exposed(replace(function, body=body))
        assert isinstance(found, Exposed)
        first, second = found.threads
        assert first != second
        assert f"threads {first} and {second} share `{found.memory}[" in str(found)
