"""Helpers of the checker's tests: load text, run an operator on NumPy arrays through the checker and the interpreter."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from codegen.dtypes import from_numpy
from tensorlang.check.definition import check_operator
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import Module, load_module
from tensorlang.diagnostics import CompileError, Diagnostic, Source
from tensorlang.syntax.parse import parse
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.prove import prove
from tensorlang.tensor.verify import verify

PROGRAMS = Path(__file__).parent.parent / "programs"


def load(text: str) -> Module:
    return load_module(parse(Source("test.tl", text)))


@cache
def load_file(name: str) -> Module:
    return load_module(parse(Source(name, (PROGRAMS / name).read_text("utf-8"))))


def type_of(array: Any) -> ArgType:
    array = np.asarray(array)
    dtype = from_numpy(array.dtype)
    assert dtype is not None
    return ArgType(dtype, array.shape)


def types_of(args: tuple[Any, ...]) -> list[Any]:
    return [None if a is None else tuple(type_of(b) for b in a) if isinstance(a, tuple) else type_of(a) for a in args]


def program_of(module: Module, name: str, *args: Any, sizes: dict[str, Any] | None = None, symbolic: bool = False, **attrs: Any) -> Program:
    """Return the verified and proven program for these arrays."""
    program = verify(instantiate(module, name, types_of(args), attrs, sizes, symbolic=symbolic))
    prove(program)
    return program


def run(module: Module, name: str, *args: Any, sizes: dict[str, Any] | None = None, **attrs: Any) -> Any:
    """Return what the operator computes for these arrays (a tuple when it has several results), by the interpreter."""
    program = program_of(module, name, *args, sizes=sizes, **attrs)
    flat = [b for a in args if a is not None for b in (a if isinstance(a, tuple) else (a,))]
    arrays = dict(zip((p.name for p in program.params), map(np.asarray, flat), strict=True))
    results = interpret(program, {}, arrays)
    values = tuple(results[r] for r in program.results)
    return values[0] if len(values) == 1 else values


def mistakes(text: str) -> list[Diagnostic]:
    """Return every diagnostic of a text: from loading it or from checking its operators."""
    try:
        module = load(text)
        return [d for name in module.operators if name in module.declared for d in check_operator(module, name)]
    except CompileError as problem:
        return list(problem.diagnostics)
