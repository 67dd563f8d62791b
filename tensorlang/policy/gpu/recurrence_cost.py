"""What the forms of a recurrence take on a graphics processor, in terms of a sum that a thread adds up one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tensorlang.policy.deriver import Deriver, device_of
from tensorlang.policy.gpu.access import ENOUGH, is_by_threads, is_shared, shared_by, terms_of
from tensorlang.policy.groups import FusionGroup
from tensorlang.schedule.shape import OPEN_EXTENT, bounded_extents, extents
from tensorlang.tensor.nodes import Definition, Reduce
from tensorlang.tensor.walk import reduces

LAUNCHED = 4096
"""Elements that one block computes before the next launch could begin."""
ELEMENT = 16
"""Terms of a sum that take as long as what else is done for an element."""
BARRIER = 4
"""Terms that take as long as threads of a block wait for each other."""


def points_of(definition: Definition, axes: Sequence[str]) -> int:
    """Return how many points some axes have."""
    sizes = extents(definition)
    return prod(OPEN_EXTENT if sizes[a] is None else sizes[a] or 0 for a in axes)


def terms_of_element(definition: Definition) -> int:
    """Return the terms that a thread takes for an element."""
    terms = terms_of(definition, len(definition.axes))
    return ELEMENT + (OPEN_EXTENT if terms is None else terms)


def shared_terms(d: Deriver, definition: Definition) -> tuple[int, int]:
    """Return the terms that a block takes for an element whose sums its threads share, and how many threads these are."""
    found = max((bounded_extents(definition)[r.binders[-1].name] or OPEN_EXTENT for r in _sums(definition)), default=1)
    team = shared_by(device_of(d), found)
    terms = terms_of_element(definition) - ELEMENT
    return 2 * BARRIER + ELEMENT + -(-terms // team) + team.bit_length(), team


def block_terms(d: Deriver, definition: Definition, free: Sequence[str]) -> float:
    """Return what one block takes for a tensor, whose threads share the innermost loop that carries nothing, or sums where none does."""
    wide = [a for a in free if extents(definition)[a] != 1]
    if not wide and is_shared(d, definition, len(definition.axes)):
        return points_of(definition, definition.axes) * shared_terms(d, definition)[0]
    inner = points_of(definition, wide[-1:])
    steps = points_of(definition, definition.axes) // max(1, inner)
    return steps * (BARRIER + -(-inner // d.machine.threads) * terms_of_element(definition))


def _sums(definition: Definition) -> list[Reduce]:
    return [r for p in definition.pieces for r in reduces(p.value) if r.binders]


def rounds(points: int, team: int) -> int:
    """Return how many times a device has as many threads as it runs at once, where so many share each point."""
    return max(1, -(-points * team // ENOUGH))


def launch_terms(d: Deriver, member: Definition, points: int, walked: int) -> float:
    """Return what a launch takes that computes so many points, and in each so many elements one after the other."""
    before = LAUNCHED * ELEMENT / d.machine.threads
    if walked == 1 and has_blocks(d, member, points):
        terms, team = shared_terms(d, member)
        return before + rounds(points, team) * terms
    return before + walked * rounds(points, 1) * terms_of_element(member)


def has_blocks(d: Deriver, member: Definition, points: int) -> bool:
    """Tell whether blocks compute the elements of a launch, whose threads share sums, rather than threads by themselves."""
    whole = FusionGroup(member, (member,), len(member.axes))
    return is_shared(d, member, len(member.axes)) and not is_by_threads(d, whole, points)
