"""Channels in blocks: how many lie side by side in values of the domain com.microsoft.nchwc.

    shape [n, c, h, w]   in memory [n, c/b, h, w, b]

onnxruntime takes b for the processor that it optimises a model on, and writes it nowhere. It follows from how channels are filled up to
whole blocks; where all of them fill both kinds of blocks, it is that of this machine, as in onnxruntime.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stdlib.onnx.model import Array, Block, Node

NCHWC = "com.microsoft.nchwc"
"""The domain of what onnxruntime writes for one processor, of which there is one version and no definition in the package `onnx`."""
_SHORT, _LONG = 8, 16
"""Blocks on processors with AVX; on those with AVX-512 and on those of ARM."""


def block_length(nodes: Sequence[Node], initializers: Mapping[str, Array]) -> int:
    """Return how many channels a block of a model of these nodes has; 0 where the model has no blocks."""
    parts = list(_parts(nodes, initializers))
    if not any(node.domain == NCHWC for inside, _ in parts for node in inside):
        return 0
    found: set[int] = set()
    for inside, arrays in parts:
        makers = {name: node for node in inside for name in node.outputs}
        for node in inside:
            if node.domain == NCHWC:
                found |= _told_by(node, makers, arrays)
    return min(found, default=_of_this_machine())


def _parts(nodes: Sequence[Node], arrays: Mapping[str, Array]) -> Iterator[tuple[Sequence[Node], Mapping[str, Array]]]:
    """Yield the nodes of a graph and of the graphs inside of them, with the initialisers that they see."""
    yield nodes, arrays
    for node in nodes:
        for attribute in node.attributes.values():
            if isinstance(attribute, Block):
                yield from _parts(attribute.nodes, {**arrays, **attribute.initializers})


def _told_by(node: Node, makers: Mapping[str, Node], arrays: Mapping[str, Array]) -> set[int]:
    """Return the lengths of blocks that a node allows and no other: 8 channels are half a long block, and no short one is left empty."""
    filled = _channels(node, makers, arrays)
    if filled is None:
        return set()
    if filled % _LONG:
        return {_SHORT}
    used = node.attributes.get("channels")
    return {_LONG} if isinstance(used, int) and filled - used >= _SHORT else set()


def _channels(node: Node, makers: Mapping[str, Node], arrays: Mapping[str, Array]) -> int | None:
    """Return how many channels a node's value has, or for a node that takes blocks apart the value that it reads: as many as there are
    filters. None where no weights tell."""
    seen: set[str] = set()
    while node.op != "Conv":
        before = makers.get(node.inputs[0]) if node.inputs else None
        if before is None or before.domain != NCHWC or before.op == "ReorderInput" or before.label in seen:
            return None
        seen.add(before.label)
        node = before
    weights = arrays.get(node.inputs[1]) if len(node.inputs) > 1 else None
    return weights.shape[0] if weights is not None and weights.ndim == 4 else None


def _of_this_machine() -> int:
    from codegen.llvm.target import this_machine

    machine = this_machine()
    return _LONG if machine.has("avx512f") or machine.family == "aarch64" else _SHORT
