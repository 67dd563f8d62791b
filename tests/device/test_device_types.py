"""Every element type in kernels: the interpreter's bits, for sums, casts, reductions by one thread and by many, and saturation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from batch import Made, difference, library, made, named
from executors import Executor, Library
from samples import CHAINS, NUMBERS, TYPES, samples

import tensorlang as tl
from codegen.dtypes import DTYPES, DType

Array = np.ndarray[Any, Any]
Cases = dict[str, tuple[Made, tuple[Array, ...]]]


def cases() -> Iterator[tuple[str, str, tuple[Array, ...]]]:
    for d in NUMBERS:
        yield f"elementwise_{d}", elementwise(d), (samples(d), samples(d)[::-1].copy())
        for name, shape in (("short", (5, 37)), ("long", (3, 300))):
            yield f"{name}_{d}", reductions(d), (np.random.default_rng(1).integers(0, 4, shape).astype(d.numpy),)
    for d in TYPES:
        yield f"casts_{d}", casts(d, TYPES, "{to}(x[i])"), (samples(d),)
        yield f"saturating_{d}", casts(d, NUMBERS, "sat[{to}](x[i])"), (samples(d),)
        yield f"chains_{d}", chains(d), (samples(d),)
    for length in (37, 300):
        yield f"truths_{length}", TRUTHS, (samples(DTYPES["bool"], 3 * length).reshape(3, length),)


TRUTHS = (
    "op f(x: bool[M, N]) -> (a: bool[M], b: bool[M], c: i32) {\na[i] = any(j) x[i, j]\nb[i] = all(j) x[i, j]\nc = sum(i, j) i32(x[i, j])\n}"
)


def elementwise(d: DType) -> str:
    lines = ("s[i] = a[i] + b[i]", "d[i] = a[i] - b[i]", "p[i] = a[i] * b[i]", "m[i] = max(a[i], b[i])", "l[i] = a[i] < b[i]")
    results = ", ".join(f"{r}: {d}[N]" for r in "sdpm")
    return f"op f(a: {d}[N], b: {d}[N]) -> ({results}, l: bool[N]) {{\n" + "\n".join(lines) + "\n}"


def reductions(d: DType) -> str:
    lines = ("s[i] = sum(j) x[i, j]", "h[i] = max(j) x[i, j]", "l[i] = min(j) x[i, j]", "a[i] = argmax(j) x[i, j]")
    results = ", ".join(f"{r}: {d}[M]" for r in "shl")
    return f"op f(x: {d}[M, N]) -> ({results}, a: i64[M]) where N >= 1 {{\n" + "\n".join(lines) + "\n}"


def casts(source: DType, targets: list[DType], cast: str) -> str:
    results = ", ".join(f"r_{d}: {d}[N]" for d in targets)
    lines = "\n".join(f"r_{d}[i] = {cast.format(to=d)}" for d in targets)
    return f"op f(x: {source}[N]) -> ({results}) {{\n{lines}\n}}"


def chains(source: DType) -> str:
    results = ", ".join(f"r{k}: {t}[N]" for k, t in enumerate(CHAINS))
    lines = "\n".join(f"r{k}[i] = {chain}" for k, chain in enumerate(CHAINS.values()))
    return f"op f(x: {source}[N]) -> ({results}) {{\n{lines}\n}}"


@pytest.fixture(scope="module")
def compiled(executor: Executor) -> tuple[Cases, Library]:
    found = {name: (made(tl.parse(text).f.program(*arrays), name), arrays) for name, text, arrays in cases()}
    return found, library((m for m, _ in found.values()), executor)


@pytest.mark.parametrize("name", [name for name, _, _ in cases()])
def test_kernels_give_the_bits_of_the_interpreter(compiled: tuple[Cases, Library], name: str) -> None:
    each, arrays = compiled[0][name]
    assert difference(each, named(each.program, arrays), {}, compiled[1], seeds=(0, 4)) == ""
