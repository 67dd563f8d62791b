"""Extern operators as calls of kernels: what is known of one is its signature.

    extern op topk[T: num](x: T[D.., N], size k in 0..N) -> (y: T[D.., k], at: i64[D.., k])

A kernel takes whole tensors. An argument whose dimensions the caller composes otherwise is copied, and so is a parameter of declared range,
which whatever reads it checks.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence, Set
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
from tensorlang.diagnostics import CompileError, Span
from tensorlang.externs import CSymbol, CUDASource, Kernel, LLVMText, PythonFunction, named_for, types_in
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.printer import header
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
    given_types: tuple[ir.Tensor, ...] = ()
    if isinstance(kernel, PythonFunction):
        symbol, given_types = kernel.symbol, binding.parameters
    elif isinstance(kernel, CSymbol | LLVMText | CUDASource):
        symbol = named_for(kernel.symbol, {name: str(dtype) for name, dtype in binding.dtypes.items()})
    tensors = [p for p in operator.params if p.kind == "tensor"]
    given = {p.name for p in binding.parameters}
    arguments = {p.name: members_of(p, [t.name for t in binding.parameters]) for p in tensors}
    counts = [len(members_of(r, binding.result_names)) if r.each else None for r in operator.results]
    counts += [len(arguments[p.name]) if p.each else None for p in tensors]
    call = ir.ExternCall(
        operator.name,
        tuple(name if name in given else None for p in tensors for name in arguments[p.name]),
        results,
        tuple(_size(binding.values[name]) for name, _ in sizes_of(operator)),
        tuple(_number(binding.values[p.name], kind, isinstance(kernel, PythonFunction)) for p, kind in attributes_of(operator)),
        kernel,
        symbol,
        tuple(counts) if any(count is not None for count in counts) else (),
        _signature(operator),
        given_types,
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
    ranged = [p for p in operator.params if p.kind == "tensor" and p.range is not None]
    return with_copied_arguments(program, {name for p in ranged for name in _checked(binding, p)})


def members_of(param: sx.Param, names: Sequence[str]) -> tuple[str, ...]:
    """Return the tensors of a program that a declared one is: itself, or all of `each`, in order."""
    if not param.each:
        return (param.name,)
    head = f"{param.name}."
    return tuple(name for name in names if name.startswith(head) and name[len(head) :].isdigit())


def _signature(operator: sx.Operator) -> ir.ExternSignature:
    plain = tuple(replace(p, range=None) if p.kind == "tensor" else p for p in operator.params)
    told = {p.name for p in operator.params if p.kind == "size"}
    return ir.ExternSignature(
        header(replace(operator, params=plain)),
        tuple(None if p.each else p.name for p in operator.params if p.kind == "tensor"),
        tuple(name if name in told else None for name, _ in sizes_of(operator)),
        tuple(p.name for p, _ in attributes_of(operator)),
    )


def _checked(binding: Binding, param: sx.Param) -> tuple[str, ...]:
    """Return the tensors that are given for a parameter of declared range. Raises T0167 where the caller does not know it of one."""
    members = members_of(param, [p.name for p in binding.parameters])
    found = [p for p in binding.parameters if p.name in members]
    if any(p.declared_range is None for p in found):
        raise error(
            "T0167",
            f"not supported yet: nothing says that the argument for `{param.name}` of extern `{binding.operator.name}` lies in its range",
            param.span,
            "its range is declared here",
            help="pass a parameter with the same range; or declare none, and let the kernel return a status other than 0",
        )
    return tuple(p.name for p in found)


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
            "packs of attributes"
            if (param.pack or param.each) and param.kind == "attr"
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
                help="kernels take tensors, several of `each` as well, sizes, whole numbers, floats and truth values",
            )


def check_kernel(operator: sx.Operator, kernel: Kernel) -> None:
    """Raise CompileError C0118 for a function whose name does not tell the element types of a generic operator, or tells others, C0117 for
    one of Python that does not take what the operator has."""
    if isinstance(kernel, PythonFunction):
        _check_parameters(operator, kernel)
    else:
        _check_name(operator, kernel.symbol)


def _check_parameters(operator: sx.Operator, kernel: PythonFunction) -> None:
    try:
        known = inspect.signature(kernel.function)
    except (TypeError, ValueError):  # a function of C may not tell
        return
    tensors = [p.name for p in operator.params if p.kind == "tensor"]
    names = [*(p.name for p in operator.params if p.kind != "tensor"), *(["out"] if kernel.out else [])]
    try:
        known.bind(*tensors, **dict.fromkeys(names))
    except TypeError as problem:
        called = f"{kernel.symbol}({', '.join([*tensors, *(f'{name}=…' for name in names)])})"
        notes = (f"it is called as `{called}`: {problem}", f"its parameters are `{known}`")
        help = "tensors are passed in order, attributes and sizes by name; `lambda …: f(…)` passes them on otherwise"
        at = _name_span(operator)
        raise error("C0117", f"{kernel} cannot stand for `{operator.name}`", at, "declared here", notes=notes, help=help) from None


def _check_name(operator: sx.Operator, symbol: str) -> None:
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
    title = f"the kernel for extern `{operator.name}` is named wrongly"
    return error("C0118", title, _name_span(operator), "for this operator", notes=(why,), help=help)


def _name_span(operator: sx.Operator) -> Span:
    return operator.name_span if operator.name_span.end else operator.span


def _size(found: Value) -> px.Expr | tuple[px.Expr, ...]:
    if isinstance(found, Packed):
        return tuple(item.expr for item in found.items if isinstance(item, Idx))
    assert isinstance(found, Idx)
    return found.expr


def _number(found: Value, kind: str, of_python: bool) -> int | float:
    assert isinstance(found, Num)
    if kind == "bool" and of_python:
        return bool(found.value)
    return float(found.value) if kind == "float" else int(found.value)
