"""Equations as texts, and loops as texts that may compute them."""

from __future__ import annotations

from functools import cache

from codegen.dtypes import DTYPES
from codegen.loops.nodes import Function
from codegen.loops.parser import parse as parse_loops
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import InternalError, Source
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program
from tensorlang.validation.kernel import Layouts, Outcome, validate


@cache
def equation(text: str, **sizes: int) -> Program:
    """Return the operator of a text, whose tensors have element types; sizes stay open where none is given."""
    module = load_module(parse(Source("example.tl", text)))
    name = next(iter(module.declared))
    arguments = [_argument(p, sizes) for p in module.operators[name].params if p.kind == "tensor"]
    return instantiate(module, name, arguments, symbolic=not sizes)


def _argument(param: sx.Param, sizes: dict[str, int]) -> ArgType:
    assert isinstance(param.type, sx.TensorType)
    dims = [sizes.get(d.name, d.name) if isinstance(d, sx.Id) else int(d.text) for d in param.type.dims or ()]
    return ArgType(DTYPES[param.type.dtype], tuple(dims))


def compared(program: Program, loops: str | Function, layouts: Layouts | None = None) -> Outcome:
    """Return what validating loops says, whose buffers are the parameters and results in order."""
    function = parse_loops(loops) if isinstance(loops, str) else loops
    return validate(program, function, (*(p.name for p in program.params), *program.results), layouts)


def fault(program: Program, loops: str | Function, layouts: Layouts | None = None) -> str:
    """Return what validating says of wrong loops, "" when it finds nothing wrong with them."""
    try:
        compared(program, loops, layouts)
    except InternalError as wrong:
        return wrong.detail.partition("\n\n")[0]
    return ""
