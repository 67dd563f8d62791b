"""Which rule serves which operator in which versions: one table, put together from the modules of this folder."""

from __future__ import annotations

from stdlib.onnx.channel_blocks import NCHWC
from stdlib.onnx.model import Node
from stdlib.onnx.problems import Unsupported, quoted
from stdlib.onnx.site import Rule
from stdlib.onnx.table import (
    attend,
    contract,
    control,
    einsum,
    elementwise,
    features,
    indexing,
    legacy,
    linear_attention,
    maps,
    microsoft,
    microsoft_attention,
    microsoft_blocked,
    microsoft_branches,
    microsoft_experts,
    microsoft_moving,
    microsoft_ngrams,
    microsoft_packed,
    microsoft_quantised,
    moving,
    normalise,
    pooling,
    quantised,
    random,
    recurrent,
    reducing,
    resizing,
    sampling,
    sequences,
    shapes,
    spectral,
    strings,
    support_vectors,
    training,
    trees,
)
from stdlib.onnx.table.entry import MICROSOFT, Entry

TABLE: dict[str, tuple[Entry, ...]] = {}
for _module in (
    attend,
    elementwise,
    contract,
    einsum,
    pooling,
    normalise,
    reducing,
    moving,
    indexing,
    maps,
    resizing,
    recurrent,
    linear_attention,
    quantised,
    shapes,
    control,
    sequences,
    sampling,
    random,
    spectral,
    strings,
    training,
    features,
    support_vectors,
    trees,
    legacy,
    microsoft,
    microsoft_attention,
    microsoft_blocked,
    microsoft_branches,
    microsoft_experts,
    microsoft_moving,
    microsoft_ngrams,
    microsoft_packed,
    microsoft_quantised,
):
    for _entry in _module.RULES:
        TABLE[_entry.op] = (*TABLE.get(_entry.op, ()), _entry)


def rule_for(node: Node) -> Rule:
    """Return the rule for a node. Raises Unsupported when there is none for its operator or version."""
    entries = [entry for entry in TABLE.get(node.op, ()) if entry.domain == node.domain]
    for entry in entries:
        if entry.first <= node.since <= entry.last or node.domain in (MICROSOFT, NCHWC):
            return entry.rule
    if entries:
        known = ", ".join(f"{e.first} to {e.last}" for e in entries)
        raise Unsupported(f"node {quoted(node.label)}: version {node.since} of {node.op} (known: {known})")
    domain = f" of the domain {quoted(node.domain)}" if node.domain else ""
    raise Unsupported(f"node {quoted(node.label)}: operator {node.op}{domain}")
