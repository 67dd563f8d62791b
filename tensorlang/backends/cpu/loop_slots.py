"""What the entry point of a model is told of a loop: where its values lie, and where those of its body do in each turn.

value of the body     the number of the turn, whether another one follows     memory of the loop
                      what is carried, read and written; rows                 bases of their own, which are others in each turn
                      what else the body reads                                where it lies outside
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from codegen.llvm.calls import Call, Carried, Number, Repetition, Rows, Slot
from tensorlang.graph.nodes import Extern, Graph, Join, Kernel, Loop, Part, View


@dataclass(frozen=True, slots=True)
class LoopSlots:
    """The memory of a loop: `value` tells where a value of the graph around it lies, `size_bytes`, `row_bytes` and `rows` what is known of
    one; `iteration`, `next_condition` and `scratch` lie in the scratch memory of the loop."""

    value: Callable[[str], Slot]
    iteration: Slot
    next_condition: Slot | None
    scratch: tuple[Slot, ...]
    size_bytes: Callable[[str], int | Number]
    row_bytes: Callable[[str], int | Number]
    rows: Callable[[str], int | Number]

    def of_body(self, loop: Loop, bases: tuple[Slot, ...]) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
        """Return where the outputs and the inputs of the body lie. `bases` are those of a turn (`loop_bases`)."""
        pairs, rows = bases[: 2 * loop.carried], bases[2 * loop.carried :]
        made = (*pairs[1::2], *rows[len(loop.sources) :])
        given = (self.iteration, *pairs[::2], *rows[: len(loop.sources)], *map(self.value, loop.captured))
        return ((*([self.next_condition] if self.next_condition is not None else []), *made), given)

    def repetition(self, loop: Loop, calls: tuple[Call, ...], first_base: int) -> Repetition:
        """Return the calls of the body, which run again and again."""
        by_row = (*loop.sources, *loop.rows)
        carried = zip(loop.initial, loop.outputs[1:], self.scratch, strict=False)
        scanned = (Rows(self.value(v), self.row_bytes(v), False, back) for v, back in zip(loop.sources, loop.scanned, strict=True))
        made = (Rows(self.value(v), self.row_bytes(v), True, back) for v, back in zip(loop.rows, loop.made, strict=True))
        return Repetition(
            calls,
            first_base,
            self.iteration,
            self.value(loop.outputs[0]),
            None if loop.limit is None else self.value(loop.limit),
            self.rows(by_row[0]) if by_row else None,
            None if loop.condition is None else self.value(loop.condition),
            self.next_condition,
            tuple(Carried(self.value(v), self.value(result), other, self.size_bytes(result)) for v, result, other in carried),
            (*scanned, *made),
        )


def calls_of(
    graph: Graph, kernel: Callable[[Kernel], Call], extern: Callable[[Extern], Call], loop: Callable[[Loop], Call]
) -> tuple[Call, ...]:
    """Return what is called for the nodes of a graph, or of the body of a loop, in their order."""
    found: list[Call] = []
    for node in graph.nodes:
        match node:
            case Kernel():
                found.append(kernel(node))
            case Extern():
                found.append(extern(node))
            case Loop():
                found.append(loop(node))
            case View() | Join() | Part():
                pass  # nothing runs
            case _:
                assert_never(node)
    return tuple(found)


def loop_bases(loop: Loop) -> int:
    """Return how many bases are others in each turn: two for each value that is carried, one for each that has rows."""
    return 2 * loop.carried + len(loop.sources) + len(loop.rows)
