"""Extern operators as calls of kernels: what is known of one is its signature.

    extern op topk[T: num](x: T[D.., N], size k in 0..N) -> (y: T[D.., k], at: i64[D.., k])

A kernel takes whole tensors. An argument whose dimensions the caller composes otherwise is copied, and so is a parameter of declared range,
which whatever reads it checks.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from codegen.dtypes import DType
from polyhedral import expr as px
from tensorlang.check.binder import dims_of
from tensorlang.check.bindings import Binding
from tensorlang.check.modes import mode_of
from tensorlang.check.module import Module
from tensorlang.check.packs import dimension_names
from tensorlang.check.problems import error
from tensorlang.check.values import Idx, Num, Packed, Tensor, Value
from tensorlang.diagnostics import CompileError
from tensorlang.externs import CSymbol, CUDASource, LLVMText, named_for, types_in
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.walk import Fresh, fresh_for


def is_opaque(module: Module, operator: sx.Operator) -> bool:
    """Tell whether calls of an operator are calls of a kernel: one stands for it, or it has no body to compile."""
    return operator.extern and (operator.name in module.externs or not operator.clauses)


def extern_program(module: Module, binding: Binding) -> ir.Program:
    """Return an extern operator as the call of its kernel. Raises CompileError T0166 for a signature that no kernel is called by yet,
    T0167 for a range that is not known of an argument."""
    operator = binding.operator
    check_signature(operator)
    results = tuple(ir_tensor(t, t.dtype) for t in binding.all_tensors() if t.name in binding.result_names and t.dtype is not None)
    kernel = module.externs.get(operator.name)
    symbol = ""
    if isinstance(kernel, CSymbol | LLVMText | CUDASource):
        symbol = named_for(kernel.symbol, {name: str(dtype) for name, dtype in binding.dtypes.items()})
    given = {p.name for p in binding.parameters}
    call = ir.ExternCall(
        operator.name,
        tuple(p.name if p.name in given else None for p in operator.params if p.kind == "tensor"),
        results,
        tuple(_size(binding.values[name]) for name, _ in sizes_of(operator)),
        tuple(_number(binding.values[p.name], kind) for p, kind in attributes_of(operator)),
        kernel,
        symbol,
        span=operator.span,
    )
    program = ir.Program(
        operator.name,
        binding.sizes,
        binding.parameters,
        binding.result_names,
        (),
        binding.context,
        mode_of(module, operator),
        span=operator.span,
        externs=(call,),
    )
    return with_copied_arguments(program, {p.name for p in operator.params if p.range is not None and _is_checked(binding, p)})


def _is_checked(binding: Binding, param: sx.Param) -> bool:
    """Tell whether a range is declared of a tensor that is given. Raises T0167 where the caller does not know it of its argument."""
    found = next((p for p in binding.parameters if p.name == param.name), None)
    if found is not None and found.declared_range is None:
        raise error(
            "T0167",
            f"not supported yet: nothing says that the argument for `{param.name}` of extern `{binding.operator.name}` lies in its range",
            param.span,
            "its range is declared here",
            help="pass a parameter with the same range; or declare none, and let the kernel return a status other than 0",
        )
    return found is not None


def with_copied_arguments(program: ir.Program, names: Set[str]) -> ir.Program:
    """Return the program with its kernels reading copies of these parameters."""
    copied = [p for p in program.params if p.name in names and any(p.name in call.reads for call in program.externs)]
    if not copied:
        return program
    fresh = fresh_for(program)
    made = {p.name: fresh(f"{p.name}.whole") for p in copied}
    externs = tuple(replace(c, arguments=tuple(a and made.get(a, a) for a in c.arguments)) for c in program.externs)
    definitions = tuple(_copy(p, made[p.name], fresh) for p in copied)
    return replace(program, definitions=(*program.definitions, *definitions), externs=externs)


def _copy(param: ir.Tensor, name: str, fresh: Fresh) -> ir.Definition:
    axes = tuple(fresh(f"a{k}") for k in range(len(param.shape)))
    value = ir.Read(param.name, tuple(map(px.Name, axes)), span=param.span)
    copy = replace(param, name=name, declared_range=None)
    return ir.Definition((copy,), axes, (ir.Piece(value, span=param.span),), span=param.span)


def ir_tensor(tensor: Tensor, dtype: DType) -> ir.Tensor:
    """Return the tensor as the IR declares it."""
    shape: list[px.Expr] = []
    for dim in tensor.dims:
        shape += dim.sizes
    grouping = tuple(len(d.sizes) for d in tensor.dims) if any(d.composite for d in tensor.dims) else ()
    return ir.Tensor(tensor.name, dtype, tuple(shape), grouping)


# ---------------------------------------------------------------- signatures


def sizes_of(operator: sx.Operator) -> tuple[tuple[str, bool], ...]:
    """Return the sizes that a kernel is told, in the order in which the parameters first mention them, and whether each is a pack."""
    found: dict[str, bool] = {}
    for name, pack in dimension_names(operator):
        found.setdefault(name, pack)
    return tuple(found.items())


def attributes_of(operator: sx.Operator) -> tuple[tuple[sx.Param, str], ...]:
    """Return the attributes that a kernel is told, in order, and the type of each: `int`, `float`, `bool`, or what it is not told yet."""
    attrs = (p for p in operator.params if p.kind == "attr")
    return tuple((p, p.type.name if isinstance(p.type, sx.Id) else "int") for p in attrs)


def check_signature(operator: sx.Operator) -> None:
    """Raise CompileError T0166 for an operator whose signature no kernel is called by yet."""
    kinds = {p.name: kind for p, kind in attributes_of(operator)}
    for param in (*operator.params, *operator.results):
        kind = kinds.get(param.name, "int") if param.kind == "attr" else "int"
        what = (
            "`each` parameters and results"
            if param.each
            else "packs of attributes"
            if param.pack and param.kind == "attr"
            else f"attributes of type `{kind}`"
            if kind not in ("int", "float", "bool")
            else "dimensions that broadcast"
            if any(isinstance(dim, sx.Broadcast) for dim in dims_of(param))
            else ""
        )
        if what:
            raise error(
                "T0166",
                f"not supported yet: {what} of extern operators, as `{param.name}` of `{operator.name}`",
                param.span,
                "declared here",
                help="kernels take tensors, sizes, whole numbers, floats and truth values",
            )


def check_kernel(operator: sx.Operator, symbol: str) -> None:
    """Raise CompileError C0118 for a function whose name does not tell the element types of a generic operator, or tells others."""
    types = {g.name for g in operator.generics}
    named = set(types_in(symbol))
    if named == types:
        return
    wrong, missing = sorted(named - types), sorted(types - named)
    told = f"`{symbol}` names {', '.join(f'`{t}`' for t in wrong)}, which is no element type of it"
    untold = f"`{symbol}` is one function, and {', '.join(f'`{t}`' for t in missing)} may be several types"
    raise _misnamed(operator, told if wrong else untold, "".join(f"_{{{t}}}" for t in sorted(types)))


def _misnamed(operator: sx.Operator, why: str, ending: str) -> CompileError:
    help = f"name a function for each type: `{operator.name}{ending}`" if ending else "name the one function"
    at = operator.name_span if operator.name_span.end else operator.span
    return error("C0118", f"the kernel for extern `{operator.name}` is named wrongly", at, "for this operator", notes=(why,), help=help)


def _size(found: Value) -> px.Expr | tuple[px.Expr, ...]:
    if isinstance(found, Packed):
        return tuple(item.expr for item in found.items if isinstance(item, Idx))
    assert isinstance(found, Idx)
    return found.expr


def _number(found: Value, kind: str) -> int | float:
    assert isinstance(found, Num)
    return float(found.value) if kind == "float" else int(found.value)
