"""What a library takes and returns as its manifest says it, and the number by which code, header and manifest know each other."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.llvm.c_interface.description import Argument, Interface, Size
from codegen.loops.nodes import Int, Var
from codegen.loops.printer import show_index
from tensorlang.saved import package


def shape_of(argument: Argument) -> tuple[int | str, ...]:
    """Return the extents of an array: numbers, and formulas as people write them."""
    return tuple(e.value if isinstance(e, Int) else e.name if isinstance(e, Var) else show_index(e) for e in argument.extents)


def tensors(arguments: Sequence[Argument]) -> tuple[package.Tensor, ...]:
    """Return arrays as a manifest has them."""
    return tuple(package.Tensor(a.name, a.dtype.name, shape_of(a)) for a in arguments)


def sizes(told: Sequence[Size]) -> tuple[package.Size, ...]:
    """Return the sizes that runs tell as a manifest has them."""
    return tuple(package.Size(size.name, size.most) for size in told)


def identity(of: Interface) -> int:
    """Return 64 bits that tell what is to be known of a library to call it."""
    return package.identity_of(of.name, sizes(of.sizes), tensors(of.inputs), tensors(of.outputs))
