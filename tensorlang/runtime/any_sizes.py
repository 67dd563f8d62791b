"""What a program of open sizes serves, wherever its code runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from polyhedral import affine
from tensorlang.room import no_room
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import caller_shape
from tensorlang.tensor.widths import LARGEST

Sizes: TypeAlias = Mapping[str, int]


def serves(program: Program, fixed: Sizes, sizes: Sizes, arrays: Sequence[Any]) -> bool:
    """Tell whether code of a program, of which `fixed` are sizes that are numbers in it, is for arrays that bind sizes to `sizes`."""
    if any(sizes[name] != value for name, value in fixed.items()) or not affine.holds(program.context, sizes):
        return False
    return all(caller_shape(p, sizes) == a.shape for p, a in zip(program.params, arrays, strict=True))


def checked_numbers(program: Program, sizes: Sizes) -> list[int]:
    """Return the open sizes of a program. Raises RunError R0315 for one beyond what proofs are about."""
    numbers = [sizes[name] for name in program.sizes]
    if max(numbers, default=0) > LARGEST:
        raise no_room(program.name)
    return numbers
