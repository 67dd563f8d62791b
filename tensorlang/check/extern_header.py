"""How a kernel for an extern operator is declared in C.

    int32_t topk_f32(float *y, int64_t *at, const float *x, int64_t D_rank, const int64_t *D, int64_t N, int64_t k);

Results come first, then parameters, all of them C-contiguous, `each` of several as how many there are and the address of their addresses;
then sizes in the order in which parameters first mention them, a pack as its length and its address; then attributes. What is returned is a
status: 0 where all is right.
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen.gpu.names import Identifiers
from tensorlang.check.extern_calls import attributes_of, check_signature, sizes_of
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.printer import header

C_TYPES = {
    "f64": "double",
    "f32": "float",
    "bool": "uint8_t",
    **dict.fromkeys(("i4", "i2"), "int8_t"),
    **dict.fromkeys(("u4", "u2"), "uint8_t"),
    **{f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("f16", "bf16"), "uint16_t"),
    **dict.fromkeys(("f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f4e2m1"), "uint8_t"),
}


def c_header(operator: sx.Operator) -> str:
    """Return the declaration of a kernel for an extern operator, with what it has to keep to. Raises CompileError T0166 for a signature
    that no kernel is called by yet."""
    check_signature(operator)
    name = Identifiers()("_".join((operator.name, *(g.name for g in operator.generics))))
    parts = ",\n".join(f"    {text}" for text in _parameters(operator))
    return f"#include <stdint.h>\n\n/* {_comment(header(operator))}\n{_notes(operator)} */\nint32_t {name}(\n{parts});\n"


def _parameters(operator: sx.Operator) -> Iterator[str]:
    name_of = Identifiers()
    for result in operator.results:
        yield from _pointer(result, _type(operator, result), name_of)
    for param in operator.params:
        if param.kind == "tensor":
            yield from _pointer(param, f"const {_type(operator, param)}", name_of)
    for name, pack in sizes_of(operator):
        rank = f"int64_t {name_of(f'{name}_rank')}, const int64_t *" if pack else "int64_t "
        yield f"{rank}{name_of(name)}"
    for param, kind in attributes_of(operator):
        yield f"{'double' if kind == 'float' else 'int64_t'} {name_of(param.name)}"


def _pointer(param: sx.Param, type: str, name_of: Identifiers) -> Iterator[str]:
    if param.each:
        yield f"int64_t {name_of(f'{param.name}_count')}, {type} *const *{name_of(param.name)}"
    else:
        yield f"{type} *{name_of(param.name)}"


def _type(operator: sx.Operator, param: sx.Param) -> str:
    assert isinstance(param.type, sx.TensorType)
    return C_TYPES.get(param.type.dtype, "void")


def _notes(operator: sx.Operator) -> str:
    lines = ["Every tensor is C-contiguous; write every element of the results, read nothing else. Return 0, or a status of your own."]
    if any(p.kind == "tensor" and p.default is not None for p in operator.params):
        lines.append("A parameter that a call leaves out is a null pointer.")
    if any(p.each for p in (*operator.params, *operator.results)):
        lines.append("Of each of several tensors there are so many pointers, and sizes of `each` dimension as many as tensors.")
    if operator.generics:
        names = ", ".join(g.name for g in operator.generics)
        lines.append(f"One function for each choice of {names}, named by it: f32, i64, …; pointers are to elements of that type.")
    return "\n".join(f"   {line}" for line in lines)


def _comment(text: str) -> str:
    return " ".join(text.split()).replace("*/", "* /")
