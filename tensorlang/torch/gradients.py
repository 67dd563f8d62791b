"""How an operator of torch made of one of ours is differentiated: by another operator of ours.

    op softmax(x: T[M, N]) -> (y: T[M, N])                 backward:  op softmax_back(y: T[M, N], d_y: T[M, N]) -> (d_x: T[M, N])

The operator of the derivative takes tensors of the first one, results of it, and cotangents of the results, all by their names, and
returns gradients, `d_` and the name of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch._library.autograd import Info, make_autograd_impl
from torch.autograd import forward_ad

from codegen.dtypes import DTYPES
from tensorlang.diagnostics import CompileError, error
from tensorlang.runtime.gradient import GradientOperator
from tensorlang.runtime.operator import Operator
from tensorlang.syntax import nodes as sx

OF = "d_"
"""What names of gradients and cotangents begin with."""
FEW = 3
"""For how many tensors the gradients by some of them are registered before any is asked for, a millisecond for each choice of these."""


Register = Callable[[Operator, str], Any]
"""Registers an operator under the name of the first one and an ending, and returns torch's operator."""


@dataclass(slots=True)
class Derivative:
    """`of(names)` computes the gradients by tensors of `forward`; it reads the values `read`."""

    forward: sx.Operator
    of: Callable[[tuple[str, ...]], Operator]
    read: tuple[str, ...]
    named: tuple[str, ...]
    """The tensors of which graphs that torch keeps on disk may name the gradients."""
    follows: bool
    """Whether `of` follows from equations, so that its own derivatives do, too."""
    _known: dict[tuple[str, ...], tuple[sx.Operator, Any, Mapping[str, str]]] = field(default_factory=dict)
    """What computes the gradients by some tensors; also by the names of all that it returns."""

    def register(self, library: Any, overload: Any, register: Register) -> None:
        """Tell torch how an operator of `library` is differentiated."""
        forward = self.forward
        tensors = [p.name for p in forward.params if p.kind == "tensor"]
        results = [p.name for p in forward.results]

        def setup(ctx: Any, inputs: tuple[Any, ...], named: Mapping[str, Any], output: Any) -> None:
            outputs = output if isinstance(output, tuple) else (output,)
            values = dict(zip(tensors, inputs, strict=False)) | dict(zip(results, outputs, strict=True))
            ctx.kept = [name for name in self.read if values.get(name) is not None]
            ctx.save_for_backward(*(values[name] for name in ctx.kept))
            ctx.numbers = {name: given for name, given in named.items() if given is not None}
            ctx.outputs = [(o.shape, o.dtype, o.device) for o in outputs]

        def backward(ctx: Any, cotangents: tuple[torch.Tensor | None, ...], needed_of: tuple[bool, ...]) -> tuple[Any, ...]:
            given = dict(zip(ctx.kept, ctx.saved_tensors, strict=True))
            given_in_order = tensors[: len(needed_of)]  # what is left out at the end, torch leaves out here, too
            wanted = tuple(name for name, needed in zip(given_in_order, needed_of, strict=True) if needed)
            declared, overload, called = self._overload(wanted, register)
            for name, cotangent, (shape, dtype, device) in zip(results, cotangents, ctx.outputs, strict=True):
                if name in called:  # integers have no derivatives
                    given[called[name]] = torch.zeros(shape, dtype=dtype, device=device) if cotangent is None else cotangent
            read = [given.get(p.name) for p in declared.params if p.kind == "tensor"]
            numbers = {p.name: ctx.numbers[p.name] for p in declared.params if p.kind != "tensor" and p.name in ctx.numbers}
            found = overload(*read, **numbers)
            names = [p.name for p in declared.results]
            gradients = dict(zip(names, found if isinstance(found, tuple) else (found,), strict=True))
            return tuple(gradients.get(called[name]) if name in wanted else None for name in given_in_order)

        _register(library, overload, _differentiated_call(overload, setup, backward))
        for wanted in _subsets(self.named):
            self._overload(wanted, register)

    def differentiated(self, gradients: Operator) -> Derivative | None:
        """Return how the `gradients` that `of` has returned are differentiated in turn; None where they are not."""
        try:
            found = differentiated(gradients, None, self.follows)
        except CompileError:
            return None
        return found and replace(found, named=())

    def _overload(self, wanted: tuple[str, ...], register: Register) -> tuple[sx.Operator, Any, Mapping[str, str]]:
        """Return the declaration of what computes the gradients by some tensors, that itself, and what it calls the derivatives by these
        and by results."""
        found = self._known.get(wanted)
        if found is None:
            operator = self.of(wanted)
            names = tuple(p.name for p in operator.declaration.results)
            called = operator.names if isinstance(operator, GradientOperator) else self._usual_names()
            found = self._known.get(names) or (operator.declaration, register(operator, "_".join(("backward", *names))), called)
            self._known[wanted] = self._known[names] = found
        return found

    def _usual_names(self) -> dict[str, str]:
        return {p.name: OF + p.name for p in (*self.forward.params, *self.forward.results)}


def refuse_gradients(library: Any, overload: Any) -> None:
    """Let whoever asks for gradients of an operator of `library` be told that it has none: C0141."""

    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        help = "register it with `autograd=True`, or with `backward=` an operator that computes them"
        raise error("C0141", f"`{overload._schema.name}` was registered without gradients", help=help)

    _register(library, overload, make_autograd_impl(overload, Info(backward, None)))


def _register(library: Any, overload: Any, call: Callable[..., Any]) -> None:
    """Have torch call an operator so, given the keys of its dispatcher, where something may be differentiated. Whoever asks for forward
    mode is told that there is none (C0141): torch itself would take what comes out for a constant."""

    def checked(keys: Any, *args: Any, **named: Any) -> Any:
        in_forward_mode = forward_ad._current_level >= 0
        if in_forward_mode and any(isinstance(a, torch.Tensor) and forward_ad.unpack_dual(a).tangent is not None for a in args):
            help = "ask for gradients instead: `torch.func.vjp`, `torch.func.jacrev`"
            raise error("C0141", f"`{overload._schema.name}` has no forward mode", help=help)
        return call(keys, *args, **named)

    library.impl(overload._opname, checked, "Autograd", with_keyset=True)


def _differentiated_call(overload: Any, setup: Callable[..., None], backward: Callable[..., tuple[Any, ...]]) -> Callable[..., Any]:
    """Return what calls an operator that has gradients, and what those of torch's own do in C++: a node that stands above the levels of
    `torch.func`, which the functions of `torch.library` refuse."""

    class Call(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, keys: Any, named: Mapping[str, Any], *args: Any) -> Any:
            with torch.enable_grad():  # of this level nothing is noted below, and levels around it note what they need
                found = below(keys, *args, **named)
            setup(ctx, args, named, found)
            return found

        @staticmethod
        def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[Any, ...]:
            return None, None, *backward(ctx, cotangents, ctx.needs_input_grad[2:])

    noted = super(torch.autograd.Function, Call).apply

    def below(keys: Any, *args: Any, **named: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return overload.redispatch(keys & torch._C._after_autograd_keyset, *args, **named)

    def call(keys: Any, *args: Any, **named: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args):
            with enable_single_level_autograd_function():
                return noted(keys, named, *args)
        return below(keys, *args, **named)

    return call


def differentiated(operator: Operator, backward: Operator | None, autograd: bool) -> Derivative | None:
    """Return how `operator` is differentiated: by `backward`, or with `autograd` by what its equations say; None where neither is asked
    for. Raises CompileError C0141 for a `backward` that does not fit."""
    forward = operator.declaration
    if backward is None and not autograd:
        return None
    if backward is not None and autograd:
        raise error("C0141", "both `backward` and `autograd` are given", help="leave one of them out")
    several = [p.name for p in forward.params if p.each]
    if several:
        title = f"`{operator.name}` takes any number of tensors as `{several[0]}`, of which no gradients are returned"
        raise error("C0141", title, help="register it without `backward` and `autograd`")
    tensors = tuple(p.name for p in forward.params if p.kind == "tensor")
    if backward is None:
        floats = [p.name for p in forward.params if p.name in tensors and _may_be_float(forward, p)]
        if not floats:
            raise error("C0141", f"`{operator.name}` cannot be differentiated: it takes no floats", help="leave `autograd` out")
        operator.gradient(*floats)
        return Derivative(forward, lambda names: operator.gradient(*names), tensors, tuple(floats), follows=True)
    if not isinstance(backward, Operator):
        raise error("C0141", f"`backward` is a `{type(backward).__name__}`", help="pass an operator: `backward=ops.blur_back`")
    _check_names(forward, backward.declaration)
    known = {*tensors, *(p.name for p in forward.results)}
    read = tuple(p.name for p in backward.declaration.params if p.name in known)
    return Derivative(forward, lambda _: backward, read, tensors, follows=False)


def _subsets(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield which of a few tensors gradients may be asked for; of many, all."""
    for count in range(1 if len(names) <= FEW else len(names), len(names) + 1):
        yield from combinations(names, count)


def _may_be_float(declared: sx.Operator, param: sx.Param) -> bool:
    """Tell whether a tensor may have elements of a float type."""
    dtype = param.type.dtype if isinstance(param.type, sx.TensorType) else ""
    if dtype in DTYPES:
        return DTYPES[dtype].is_float
    classes = {generic.name: generic.bound for generic in declared.generics}
    return classes.get(dtype) in (None, "num", "float")


def _check_names(forward: sx.Operator, back: sx.Operator) -> None:
    """Raise CompileError C0141 for names in `back` that mean nothing of `forward`."""
    tensors = [p.name for p in forward.params if p.kind == "tensor"]
    results = [p.name for p in forward.results]
    known = {*(p.name for p in forward.params), *results, *(OF + name for name in results)}
    strange = [p for p in back.params if p.name not in known]
    if strange:
        title = f"`{back.name}` takes `{strange[0].name}`, which `{forward.name}` does not have"
        help = (
            f"take tensors, attributes and results of `{forward.name}` by their names, and cotangents as {_listed(OF + r for r in results)}"
        )
        raise error("C0141", title, strange[0].span, help=help)
    wrong = [p for p in back.results if p.name.removeprefix(OF) not in tensors or not p.name.startswith(OF)]
    if wrong:
        title = f"`{back.name}` returns `{wrong[0].name}`, which is no gradient of `{forward.name}`"
        raise error("C0141", title, wrong[0].span, help=f"return some of {_listed(OF + t for t in tensors)}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
