"""What `prefetch TENSOR at LOOP by DISTANCE` may ask for.

    for k:                              for k:
        c[i, j] += a[i, k] * b[k, j]        ask for the box of b that iteration k + DISTANCE reads
                                            c[i, j] += a[i, k] * b[k, j]

    for j:                              for j:
        for i, k:                           for i, k:
            …                                   ask for a share of what iteration j + DISTANCE reads                 … in k
                                                …

The box has to be known, to move with the loop, and to lie in a block that a later iteration reads, too. Shares need loops whose iterations
are counted when compiling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from polyhedral import affine
from polyhedral.errors import NestError
from polyhedral.model import Loop
from polyhedral.nest import Nest
from polyhedral.region import footprint
from polyhedral.schedule import Schedule as Placed
from tensorlang.diagnostics import CompileError, error
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind, Placement, idle_message
from tensorlang.schedule.plan import Prefetch
from tensorlang.schedule.state import State, loop_of
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import FORMS
from tensorlang.tensor.walk import tensor_table


def prefetch_directive(state: State, directive: syntax.Directive) -> None:
    """Note what to ask for. A packed tensor is read from its copy, except where the copy is made."""
    name = operands.only_name(directive)
    known = tensor_table(state.program)
    if name not in known:
        raise error("S0105", f"`{name}` is no tensor of this operator", directive.span, help=f"tensors: {', '.join(sorted(known))}")
    stage, loop = loop_of(state, directive, operands.name(directive, operands.the(directive, "at")))
    distance = operands.number(directive, operands.the(directive, "by"), state.knobs)
    if distance < 0:
        operands.bad(directive, f"{distance} iterations later is earlier")
    within = operands.names(directive, operands.phrase(directive, "in") or (), at_least=0)
    shared = tuple(loop_of(state, directive, inner)[1] for inner in within)
    copy = state.copies.get(name, name)
    if distance:
        state.prefetches.append(Prefetch(name if stage.name == copy else copy, loop, distance, shared, span=directive.span))
    else:
        state.idle.append(idle_message(directive, "what is read at once is not ahead"))


def _check(state: State, placement: Placement) -> None:
    """Find the loops that share prefetches. Raises CompileError S0217 as `_checked` does."""
    state.prefetches = [_checked(prefetch, placement.placed, placement.depth) for prefetch in state.prefetches]


def _checked(prefetch: Prefetch, placed: Placed, depth: Mapping[str, int]) -> Prefetch:
    """Return the prefetch with the loops that share it. Raises CompileError S0217 where nothing that the loop reads later can be asked
    for."""
    tensor, loop = prefetch.tensor, prefetch.loop
    paths = {p: place.loops for p, place in placed.places.items() if any(node.name == loop for node in place.loops)}
    readers = [p for p in paths if any(a.tensor == tensor for a in placed.statements[placed.nests[p].statement].reads)]
    if not readers:
        raise _refused(prefetch, f"nothing inside `{loop}` reads `{tensor}`")
    for reader in readers:
        names = [node.name for node in paths[reader]]
        outer = names.index(loop) + 1
        vector = next((node for node in paths[reader][:outer] if node.mark in ("vector", "tensor")), None)
        if vector is not None:
            raise _refused(prefetch, f"`{vector.name}` runs as {_as(vector)}", "prefetch at a loop around it")
        if depth.get(tensor, 0) >= outer:
            raise _refused(prefetch, f"each iteration of `{loop}` has a `{tensor}` of its own", f"`store_at {tensor}` at a loop outside")
        accesses = [a for a in placed.statements[placed.nests[reader].statement].reads if a.tensor == tensor]
        if not all(access.is_exact for access in accesses):
            raise _refused(prefetch, f"`{tensor}` is read at indices from data")
        try:
            box = footprint(placed, tensor, [reader], outer)
        except NestError as unknown:
            raise _refused(prefetch, unknown.reason) from None
        if not any(loop in affine.names(side) for side in box.origin):
            raise _refused(prefetch, f"what is read of `{tensor}` does not move with `{loop}`", "prefetch at a loop that it is indexed by")
    return replace(prefetch, shares=_shares(prefetch, placed, readers)) if prefetch.shared else prefetch


def _shares(prefetch: Prefetch, placed: Placed, readers: Sequence[str]) -> tuple[tuple[str, int, int], ...]:
    """Return the loops inside the prefetch's loop down to the innermost that shares it, the same around all readers, and how they count."""
    found: list[tuple[tuple[str, int, int], ...]] = []
    for reader in readers:
        path = placed.places[reader].loops
        names = [node.name for node in path]
        outer, last = names.index(prefetch.loop), max((names.index(n) for n in prefetch.shared if n in names), default=-1)
        if last <= outer:
            raise _refused(prefetch, f"no loop that is to share it runs inside `{prefetch.loop}`")
        lanes = next((node for node in path[: last + 1] if node.mark in ("vector", "tensor")), None)
        if lanes is not None:
            raise _refused(prefetch, f"`{lanes.name}` runs as {_as(lanes)}", "share it in a loop around it")
        found.append(tuple(_shared(prefetch, placed.nests[reader], n) for n in names[outer + 1 : last + 1]))
        if not any(count for _, _, count in found[-1]):
            raise _refused(prefetch, f"how often `{found[-1][0][0]}` runs is only known at run time")
    if len(set(found)) != 1:
        raise _refused(prefetch, f"what reads `{prefetch.tensor}` runs in different loops", "share it in a loop around all of it")
    return found[0]


def _shared(prefetch: Prefetch, nest: Nest, loop: str) -> tuple[str, int, int]:
    """Return a loop, its first value and how many it has; 0 where that is open, and what is asked for is asked for in the first of them."""
    ends = nest.ends(loop)
    if ends is not None:
        return loop, ends[0], ends[1] - ends[0] + 1
    reach = nest.range(loop)
    first = None if reach is None else affine.constant(reach[0])
    if first is None:
        raise _refused(prefetch, f"where `{loop}` begins is only known at run time")
    return loop, first, 0


def _as(loop: Loop) -> str:
    return "lanes of one vector" if loop.mark == "vector" else "part of an instruction"


def _refused(prefetch: Prefetch, why: str, help: str | None = None) -> CompileError:
    return error("S0217", f"nothing to prefetch: {why}", prefetch.span, help=help)


PREFETCH = Kind(
    "prefetch",
    FORMS["prefetch"],
    prefetch_directive,
    target="cpu",
    check=_check,
    about_reads=True,
)
