"""Interpreter = kernels in the emulator for the programs of `tests/programs`, under the schedules that nobody wrote: with no elements,
with one, and with sizes that are no multiples of blocks, warps and vectors; sizes known when compiling and not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pytest
from batch import Made, difference, library, made, named
from executors import Executor, Library
from operators_at_sizes import EXAMPLES, arguments, sizes_of
from usual_device import USUAL

from tensorlang.backends.hip.vendor import AMD
from tensorlang.check.instantiate import instantiate
from tensorlang.policy.machine import GpuMachine

Array = np.ndarray[Any, Any]
KNOWN = (0, 1, 7)
SYMBOLIC = (5, 0, 1)


@dataclass(frozen=True)
class Case:
    made: Made
    arrays: Mapping[str, Array]
    sizes: Mapping[str, int]


def case(name: str, n: int, machine: GpuMachine = USUAL) -> Case:
    example = EXAMPLES[name]
    n = max(n, example.least)
    types, arrays = arguments(example.inputs(n))
    program = instantiate(example.module, example.operator, types, example.attrs, example.sizes(n))
    return Case(made(program, f"{name}_{n}", machine=machine), named(program, arrays), {})


def cases_of_any_sizes(name: str) -> Iterator[tuple[tuple[str, int], Case]]:
    """Yield the cases of an operator at each size, whose programs, where they are the same, are made kernels once."""
    example, kernels = EXAMPLES[name], dict[str, Made]()
    for n in SYMBOLIC:
        at = max(n, example.least)
        types, arrays = arguments(example.inputs(at))
        program = instantiate(example.module, example.operator, types, example.attrs, example.sizes(at), symbolic=True)
        of = kernels[text] if (text := repr(program)) in kernels else kernels.setdefault(text, made(program, f"{name}_any_{at}"))
        yield (name, n), Case(of, named(program, arrays), sizes_of(program, arrays, example.sizes(at)))


@pytest.fixture(scope="module")
def known(executor: Executor) -> tuple[dict[tuple[str, int], Case], Library]:
    cases = {(name, n): case(name, n) for name in EXAMPLES for n in KNOWN}
    return cases, library((c.made for c in cases.values()), executor)


@pytest.fixture(scope="module")
def symbolic(executor: Executor) -> tuple[dict[tuple[str, int], Case], Library]:
    cases = dict(chain.from_iterable(cases_of_any_sizes(name) for name, example in EXAMPLES.items() if example.symbolic))
    return cases, library({c.made.kernels.name: c.made for c in cases.values()}.values(), executor)


@pytest.mark.parametrize("n", KNOWN)
@pytest.mark.parametrize("name", EXAMPLES)
def test_sizes_known_when_compiling(known, name: str, n: int) -> None:
    cases, compiled = known
    tried = cases[name, n]
    assert difference(tried.made, tried.arrays, tried.sizes, compiled, close=2e-4) == ""


@pytest.mark.parametrize("name", [name for name, example in EXAMPLES.items() if example.symbolic])
def test_one_set_of_kernels_for_all_sizes(symbolic, name: str) -> None:
    cases, compiled = symbolic
    for n in SYMBOLIC:
        tried = cases[name, n]
        assert difference(tried.made, tried.arrays, tried.sizes, compiled, close=2e-4) == ""


@pytest.fixture(scope="module")
def wide() -> tuple[dict[str, Case], Library]:
    machine = AMD.machine(AMD.arch("hip:gfx90a"))
    cases = {name: case(name, 7, machine=machine) for name in EXAMPLES}
    return cases, library(c.made for c in cases.values())


@pytest.mark.parametrize("name", EXAMPLES)
def test_warps_of_64_threads(wide: tuple[dict[str, Case], Library], name: str) -> None:
    cases, compiled = wide
    tried = cases[name]
    assert {k.warp for k in tried.made.kernels.kernels} <= {64}
    assert difference(tried.made, tried.arrays, tried.sizes, compiled, close=2e-4) == ""
