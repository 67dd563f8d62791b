"""Kernels that are not in the language, on graphics processors: a function of CUDA C, and the launch that calls it.

    __global__ void scale(float *y, const float *x, long long n, double by)     what the user wrote, compiled as a function of the device
    TL_KERNEL(256, 0) tl_0(TL_OUT(tl_f32) p0, TL_IN(tl_f32) p1) {               the launch: every thread of the grid calls it
        scale((float*)TL_RAW(p0), (const float*)TL_RAW(p1), 5ll, 2.0);
    }

Its parameters are those of a kernel for processors (`tensorlang.check.extern_header`), and what it returns is nothing. Whether the function
takes them the compiler of the device says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import prod

from codegen.dtypes import DType
from codegen.errors import InternalError as InternalErrorOfCode
from codegen.gpu.program import Kernel as DeviceFunction
from codegen.gpu.program import Launch
from codegen.gpu.program import Program as Launched
from codegen.loops.nodes import Int
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from tensorlang.backends.gpu.model import Call, DeviceKernel
from tensorlang.check.extern_header import C_TYPES
from tensorlang.diagnostics import CompileError, Diagnostic, InternalError, Label
from tensorlang.externs import CUDASource
from tensorlang.graph.nodes import Extern, Graph
from tensorlang.tensor.nodes import ExternCall
from tensorlang.tensor.walk import caller_shape

MOST_LINES = 6
"""So many lines of what the compiler says are told."""


def extern_kernel(graph: Graph, node: Extern, name: str) -> DeviceKernel:
    """Return the launch that makes the call of a node; its params are results, then what is given of the arguments."""
    call, source = node.call, _source(node.call)
    values = [graph.values[value] for value in (*node.outputs, *node.inputs)]
    params = tuple(f"p{k}" for k in range(len(values)))
    declared = ", ".join(
        f"TL_{'OUT' if k < len(node.outputs) else 'IN'}(tl_{value.dtype.name}) {param}"
        for k, (value, param) in enumerate(zip(values, params, strict=True))
    )
    kernel = f"{name}_0"
    dtypes = [value.dtype for value in values]
    body = "\n".join((*_groups(call, params, dtypes), f"    {call.symbol}({', '.join(_arguments(call, params, dtypes))});"))
    text = "\n".join(
        (
            f'#line 1 "{call.symbol}"',
            _of_device(source.text.rstrip()),
            f"TL_KERNEL({source.threads}, 0) {kernel}({declared}) {{",
            body,
            "}",
        )
    )
    elements = max((prod(caller_shape(t, {})) for t in call.results), default=0)
    blocks = source.blocks if source.blocks is not None and elements else -(-elements // source.threads)
    function = DeviceFunction(kernel, text + "\n", params, (), (source.threads, 1, 1))
    launched = Launched(name, params, (), (function,), (Launch(kernel, (Int(blocks), Int(1), Int(1))),))
    return DeviceKernel(launched, (), f"extern {call.operator}", "trusted")


def extern_call(node: Extern, name: str, made: DeviceKernel) -> Call:
    """Return the call of a node with the values that its launch reads and writes."""
    return Call(node, name, dict(zip(made.launched.params, (*node.outputs, *node.inputs), strict=True)))


_KERNEL_WORDS = re.compile(r"\b__global__\b|\b__launch_bounds__\s*\([^()]*\)")


def _of_device(text: str) -> str:
    """Return CUDA C with its kernels as functions of the device, line by line."""
    return _KERNEL_WORDS.sub(lambda found: "__device__" if found[0] == "__global__" else "\n" * found[0].count("\n"), text)


def refused_text(call: ExternCall, problem: InternalErrorOfCode) -> CompileError:
    """Return C0116 for text that the compiler of the device does not take."""
    said = [line.strip() for line in str(problem).splitlines() if "error" in line and "NVRTC_ERROR" not in line]
    title = f"the kernel for extern `{call.operator}` cannot be called"
    labels = (Label(call.span, "declared here"),) if call.span.end else ()
    notes = (f"{call.kernel} does not compile", *said[:MOST_LINES])
    help = "`tensorlang show FILE OP --stage extern` prints how it is declared; in CUDA C it returns `void`"
    return CompileError(Diagnostic("C0116", title, labels, notes, help))


def _source(call: ExternCall) -> CUDASource:
    if not isinstance(call.kernel, CUDASource):
        raise InternalError("extern", f"`{call.operator}` has no kernel for graphics processors")
    return call.kernel


def _groups(call: ExternCall, params: Sequence[str], dtypes: Sequence[DType]) -> Iterator[str]:
    """Yield the arrays that a call is passed the addresses of: those of `each` of several tensors, and packs of sizes."""
    for begin, count in _several(call):
        const = "" if begin < len(call.results) else "const "
        type = f"{const}{_type(dtypes[begin])}" if count else "void"
        items = ", ".join(f"({type}*)TL_RAW({param})" for param in params[begin : begin + count]) or "0"
        yield f"    {type}* const g{begin}[] = {{{items}}};"
    for k, size in enumerate(call.sizes):
        if isinstance(size, tuple):
            yield f"    const long long s{k}[] = {{{', '.join(map(_whole, size)) or '0'}}};"


def _several(call: ExternCall) -> Iterator[tuple[int, int]]:
    """Yield where the tensors of `each` of several begin among the params, and how many there are."""
    begin = 0
    for count in call.counts:
        if count is not None:
            yield begin, count
        begin += 1 if count is None else count


def _arguments(call: ExternCall, params: Sequence[str], dtypes: Sequence[DType]) -> Iterator[str]:
    flat: list[int | None] = list(range(len(call.results)))
    places = iter(range(len(call.results), len(params)))
    flat += [None if argument is None else next(places) for argument in call.arguments]
    begin = 0
    for count in call.counts or (None,) * len(flat):
        if count is not None:
            yield from (f"{count}ll", f"g{begin}")
            begin += count
            continue
        place = flat[begin]
        begin += 1
        if place is None:
            yield "nullptr"
        else:
            yield f"({'' if place < len(call.results) else 'const '}{_type(dtypes[place])}*)TL_RAW({params[place]})"
    for k, size in enumerate(call.sizes):
        yield from (f"{len(size)}ll", f"s{k}") if isinstance(size, tuple) else (f"{_whole(size)}ll",)
    for number in call.attributes:
        yield _double(number) if isinstance(number, float) else f"{number}ll"


_WORDS = {
    "int8_t": "signed char",
    "int16_t": "short",
    "int32_t": "int",
    "int64_t": "long long",
    "uint8_t": "unsigned char",
    "uint16_t": "unsigned short",
    "uint32_t": "unsigned int",
    "uint64_t": "unsigned long long",
}
"""What CUDA C calls integers without a header."""


def _type(dtype: DType) -> str:
    name = C_TYPES[dtype.name]
    return _WORDS.get(name, name)


def _double(number: float) -> str:
    text = float.hex(number)
    return {"inf": "(1.0 / 0.0)", "-inf": "(-1.0 / 0.0)", "nan": "(0.0 / 0.0)"}.get(text, text)


def _whole(size: Affine) -> str:
    number = affine.constant(size)
    if number is None:
        raise InternalError("extern", f"a size of a kernel is open: {size}")
    return str(number)
