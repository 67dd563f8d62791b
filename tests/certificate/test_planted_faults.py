"""Faults planted in the loops of real kernels: the checker rejects every one that changes what the kernel does.

Whether a fault changes something is not the checker's to say: the interpreter of the loop IR, which has no part in the checker, runs the
loops with and without it, at several sizes where they are open, and with data that checks let in and others.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from kernels import NAMES, checker, kernel, text_of, with_loops
from kinds_of_fault import KINDS

from codegen.errors import InternalError
from codegen.loops.interp import evaluate_index, run
from codegen.loops.nodes import Function
from codegen.loops.parser import parse

AT_LEAST, AT_MOST = 4, 60
"""How many faults of a kind are planted; more where none of the first is caught."""
Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_fault_is_rejected(kind: str) -> None:
    caught = 0
    for planted, (name, text) in enumerate(fault for fault in _faults(kind) if _is_read(fault[1])):
        if _is_accepted(name, text):
            assert _is_harmless(kernel(name)[1], text), f"accepted: {name}\n{text}"
        else:
            caught += 1
        if planted + 1 >= AT_LEAST and caught:
            return
    assert caught, "no fault of this kind was caught"


def _faults(kind: str) -> Iterator[tuple[str, str]]:
    """Yield kernels with a fault of a kind, one from each kernel in turn."""
    chosen = random.Random(kind)
    places = {name: [t for t in dict.fromkeys(KINDS[kind](kernel(name)[1])) if t != kernel(name)[1]] for name in NAMES}
    for texts in places.values():
        chosen.shuffle(texts)
    turns = [(name, texts[k]) for k in range(AT_MOST) for name, texts in places.items() if k < len(texts)]
    first = [t for t in turns if places[t[0]][0] == t[1]]
    chosen.shuffle(first)
    yield from [*first, *turns[len(first) :]][:AT_MOST]


def _is_read(loops: str) -> bool:
    try:
        parse(loops)
    except InternalError:
        return False
    return True


def _is_accepted(name: str, loops: str) -> bool:
    try:
        return any("NOT" not in line for line in checker().check(with_loops(text_of(name), loops)))
    except checker().Rejected:
        return False


def _is_harmless(loops: str, faulty: str) -> bool:
    """Tell whether two functions do the same, with no access that the interpreter objects to."""
    one, other = parse(loops), parse(faulty)
    sizes = [dict.fromkeys(one.sizes, n) for n in (1, 2, 5, 8, 9, 19)] if one.sizes else [{}]
    return all(_outcome(one, at, seed) == _outcome(other, at, seed) for at in sizes for seed in range(6))


def _outcome(function: Function, sizes: Mapping[str, int], seed: int) -> object:
    """Return what a run returns and writes; whole numbers, so that sums are the same in any order."""
    numbers = np.random.default_rng(seed)
    arrays = {}
    for p in function.params:
        shape = tuple(evaluate_index(e, sizes) for e in p.shape)
        arrays[p.name] = numbers.integers(-1 if seed % 2 else 0, 4 + seed, shape).astype(p.dtype.numpy)
    try:
        code = run(function, sizes, arrays)
    except InternalError as fault:
        return str(fault)
    return code, [] if code else [arrays[n].tolist() for n in sorted(function.written)]
