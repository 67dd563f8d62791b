"""Operators of the language as operators of torch.

    blur = tensorlang.torch.custom_op(ops.blur)        y = blur(x, radius=2)

Tensors are the positional arguments, attributes and sizes go by name; what has a default may be left out. The operator is known to torch
by its schema and by a kernel for types alone, so graphs with it are captured, exported and differentiated as those of torch's own.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tensorlang.backends.registry import tools_for
from tensorlang.diagnostics import error, trimmed
from tensorlang.runtime.operator import Operator
from tensorlang.syntax import nodes as sx
from tensorlang.torch.gradients import Derivative, differentiated, refuse_gradients
from tensorlang.torch.shapes import Argument, ResultTypes
from tensorlang.torch.tensors import TORCH_DTYPES, array_of, dtype_of, tensor_of

NAMESPACE = "tensorlang"
"""Where operators are registered that are given no namespace: `torch.ops.tensorlang.blur`."""

_KINDS = {"int": "int", "float": "float", "bool": "bool"}
"""What attributes are in schemas; functions and element types are named by texts."""


@dataclass(slots=True)
class Registered:
    """An operator of the language under a name of torch's, by which it is found again: `torch.ops.tensorlang.blur`."""

    operator: Operator
    overload: Any
    library: Any
    meaning: object
    versions: dict[str, Operator] = field(default_factory=dict)
    """The operator for the targets that it is called on."""

    def on(self, target: str) -> Operator:
        """Return the operator for `cpu` or `cuda`."""
        found = self.versions.get(target)
        if found is None:
            found = self.versions.setdefault(target, self.operator.compiled_by(tools_for(target, None)))
        return found


_REGISTERED: dict[str, Registered] = {}
"""What was registered, by the qualified names: torch keeps operators as long as the process runs."""


@trimmed
def custom_op(operator: Operator, name: str | None = None, *, backward: Operator | None = None, autograd: bool = False) -> Any:
    """Return `operator` as one of torch's, `torch.ops.tensorlang.<its name>.default` or what `name="mine::blur"` says: called with tensors,
    it works under `torch.compile`, in `torch.export`, and on tensors of the host and of CUDA's devices.

    With `autograd` it can be differentiated, as often as there are derivatives, by what `operator.gradient` returns. Or `backward` says
    how: an operator whose tensors are named as those of `operator`, as its results, and as `d_<result>` for the cotangents of these; its
    results, `d_<tensor>`, are the gradients, of the tensors that have some.

    Raises CompileError C0140 for what is no operator or cannot have such a name, C0141 for a `backward` that does not fit, T0180 for what
    is not differentiable."""
    if not isinstance(operator, Operator):
        raise error(
            "C0140", f"a `{type(operator).__name__}` is no operator", help="pass one of a file: `custom_op(tl.load('mine.tl').blur)`"
        )
    namespace, short = _names(operator, name)
    qualified = f"{namespace}::{short}"
    meaning = _meaning(operator), _meaning(backward), autograd
    known = _REGISTERED.get(qualified)
    if known is not None and known.meaning == meaning:
        return known.overload
    if known is not None or _is_taken(namespace, short):
        raise error("C0140", f"torch has an operator `{qualified}` already", help=f'give another name: `name="{namespace}::{short}2"`')
    made = differentiated(operator, backward, autograd)
    return _register(operator, namespace, short, meaning, made)


def registered(overload: object) -> Operator | None:
    """Return the operator that one of torch's was made of, None for any other."""
    return next((r.operator for r in _REGISTERED.values() if r.overload is overload), None)


def _names(operator: Operator, name: str | None) -> tuple[str, str]:
    given = f"{NAMESPACE}::{operator.name}" if name is None else name
    namespace, _, short = given.partition("::") if isinstance(given, str) else ("", "", "")
    if not all(part.isidentifier() and not keyword.iskeyword(part) for part in (namespace, short)):
        raise error("C0140", f"an operator of torch cannot be called {given!r}", help='give a namespace and a name: `name="mine::blur"`')
    return namespace, short


def _is_taken(namespace: str, short: str) -> bool:
    return hasattr(getattr(torch.ops, namespace), short)


def _meaning(operator: object) -> object:
    """Return what tells whether two operators are one: what a pickle holds of them, without what was compiled."""
    if not isinstance(operator, Operator):
        return operator
    return operator.name, operator.module, operator.tools, repr(operator.given), tuple(sorted(operator.knobs.items())), operator.sizes


def _register(operator: Operator, namespace: str, short: str, meaning: object, derivative: Derivative | None) -> Any:
    """Return an operator as one of torch's that is differentiated as `derivative` says, and refuses to be without one."""
    qualified = f"{namespace}::{short}"
    library = torch.library.Library(namespace, "FRAGMENT")
    try:
        library.define(f"{short}{schema(operator.declaration)}", tags=(torch.Tag.pt2_compliant_tag,))
    except RuntimeError as refused:
        raise error("C0140", f"torch takes no operator like `{operator.name}`", notes=(str(refused).split("\n")[0],)) from None
    overload = getattr(getattr(torch.ops, namespace), short).default
    made = Registered(operator, overload, library, meaning)
    made.versions["cuda" if operator.tools.on_device else "cpu"] = operator
    takes_tensors = any(p.kind == "tensor" for p in operator.declaration.params)
    library.impl(short, _kernel(made, "cpu"), "CPU" if takes_tensors else "CompositeExplicitAutograd")
    if takes_tensors:
        library.impl(short, _kernel(made, "cuda"), "CUDA")
    torch.library.register_fake(qualified, _fake(operator), lib=library)
    if derivative is None:
        refuse_gradients(library, overload)
    else:
        then = derivative.differentiated
        derivative.register(library, overload, lambda of, ending: _register(of, namespace, f"{short}_{ending}", None, then(of)))
    _REGISTERED[qualified] = made
    return overload


# ---------------------------------------------------------------- the schema


def schema(declared: sx.Operator) -> str:
    """Return the arguments and results of an operator as torch writes them: `(Tensor x, Tensor? b=None, *, int? radius=None) -> Tensor`."""
    tensors = [p for p in declared.params if p.kind == "tensor"]
    last = max((k for k, p in enumerate(tensors) if p.default is None), default=-1)
    shown = [_tensor(p, k > last) for k, p in enumerate(tensors)]
    named = [_number(p) for p in declared.params if p.kind != "tensor"]
    arguments = ", ".join([*shown, *(["*", *named] if named else [])])
    results = ", ".join("Tensor" for _ in declared.results)
    return f"({arguments}) -> {results}" if len(declared.results) == 1 else f"({arguments}) -> ({results})"


def _tensor(param: sx.Param, may_be_left_out: bool) -> str:
    if param.each:
        return f"Tensor[] {param.name}"
    if param.default is None:
        return f"Tensor {param.name}"
    return f"Tensor? {param.name}{'=None' if may_be_left_out else ''}"


def _number(param: sx.Param) -> str:
    declared = param.type.name if isinstance(param.type, sx.Id) else "int"
    kind = "SymInt" if param.kind == "size" else _KINDS.get(declared, "str")
    listed = f"{kind}[]" if param.pack else kind
    return f"{listed} {param.name}" if param.default is None else f"{listed}? {param.name}=None"


# ---------------------------------------------------------------- kernels


def _kernel(made: Registered, target: str) -> Callable[..., Any]:
    """Return what torch calls with tensors of the host, or of a device."""
    convert, back = (array_of, tensor_of) if target == "cpu" else (_as_it_is, torch.from_dlpack)

    def run(*args: Any, **named: Any) -> Any:
        operator = made.versions.get(target) or made.on(target)
        arrays = [convert(a) if isinstance(a, torch.Tensor) else [convert(t) for t in a] if isinstance(a, list) else a for a in args]
        given = {n: convert(v) if isinstance(v, torch.Tensor) else v for n, v in named.items() if v is not None} if named else named
        found = operator(*arrays, **given)
        return tuple(map(back, found)) if isinstance(found, tuple) else back(found)

    return run


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_neg().contiguous()


def _fake(operator: Operator) -> Callable[..., Any]:
    """Return what computes the types of the results alone."""
    types, params = ResultTypes(operator), operator.declaration.params
    tensors = [p.name for p in params if p.kind == "tensor"]
    attributes, sizes = ({p.name for p in params if p.kind == kind} for kind in ("attr", "size"))

    def run(*args: Any, **named: Any) -> Any:
        given = dict(zip(tensors, args, strict=False)) | named
        present = {name: value for name, value in given.items() if value is not None}
        first = next((t for v in given.values() for t in (v if isinstance(v, list) else [v]) if isinstance(t, torch.Tensor)), None)
        found = types(
            [_type(given.get(name), name) for name in tensors],
            {name: present[name] for name in attributes & present.keys()},
            {name: present[name] for name in sizes & present.keys()},
        )
        device = "cpu" if first is None else first.device
        made = tuple(torch.empty(shape, dtype=TORCH_DTYPES[dtype.name], device=device) for dtype, shape in found)
        return made if len(made) > 1 else made[0]

    return run


def _type(value: Any, name: str) -> Argument:
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        return dtype_of(value.dtype, f"`{name}`"), tuple(value.shape)
    return tuple((dtype_of(t.dtype, f"`{name}`"), tuple(t.shape)) for t in value)
