"""What people are told of attention that goes through the keys once (`tensorlang.tensor.online`)."""

from __future__ import annotations

from polyhedral import affine
from tensorlang.tensor.idioms import online_of
from tensorlang.tensor.nodes import Program


def passes(program: Program) -> tuple[str, ...]:
    """Return that the pass was shown to be the same, and how it rounds; nothing for what is no such pass."""
    online = online_of(program)
    if online is None:
        return ()
    *_, count, keys = (affine.constant(n) for n in online.scores.tensors[0].shape)
    return (
        f"one pass over {count} block{'s' * (count != 1)} of {keys} keys, shown to be the same of real numbers; "
        "a sum is scaled and rounded once more for each block in which the largest score grows",
    )
