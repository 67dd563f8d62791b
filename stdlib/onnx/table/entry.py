"""A row of the table."""

from __future__ import annotations

from dataclasses import dataclass

from stdlib.onnx.problems import Unsupported, quoted
from stdlib.onnx.site import Result, Rule, Site


@dataclass(frozen=True, slots=True)
class Entry:
    """`rule` serves `op` of a domain in every version of its definition from `first` to `last`."""

    op: str
    first: int
    last: int
    rule: Rule
    domain: str = ""


MICROSOFT = "com.microsoft"
"""The domain of what onnxruntime adds, of which there is one version and no definition in the package `onnx`."""


def microsoft(op: str, rule: Rule) -> Entry:
    """Return a row for an operator of onnxruntime."""
    return undefined(op, rule, MICROSOFT)


def undefined(op: str, rule: Rule, domain: str = "") -> Entry:
    """Return a row for an operator that ONNX does not define: what its rule leaves unread is refused."""

    def whole(n: Site) -> Result:
        made = rule(n)
        n.nothing_unread()
        return made

    return Entry(op, 1, 1, whole, domain)


def elsewhere(op: str, why: str, domain: str = "", last: int = 1 << 10) -> Entry:
    """Return a row for an operator that is not computed here, with what it does and what to do instead."""

    def refused(n: Site) -> Result:
        raise Unsupported(f"node {quoted(n.node.label)}: operator {op}, which {why}")

    return Entry(op, 1, last, refused, domain)
