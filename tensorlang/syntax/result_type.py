"""The type that a result most likely has, where a declaration gives it none, and the indices that a read most likely lacks: told by
equations and by the types of the parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tensorlang.syntax.accumulated import Written, split

_DECLARED = re.compile(r"(?<!attr )\b(\w+)\s*:\s*(\w+)(?:\[([^\]]*)\])?")


def type_of_result(declaration: str, name: str) -> str:
    """Return a type for the result `name` of a declaration, whose text begins at its head; `…` stands for what cannot be told."""
    head, _, body = declaration.partition("{")
    body = re.split(r"^\s*}|^(?:op|fn|schedule)\b", body, maxsplit=1, flags=re.MULTILINE)[0]
    params = {m[1]: (m[2], m[3]) for m in _DECLARED.finditer(head.partition("->")[0])}
    types = {type_ for type_, _ in params.values()}
    element = types.pop() if len(types) == 1 else "f32" if "f32" in types or not types else "T"
    target = re.search(rf"(?:^|[{{\n])\s*{re.escape(name)}\s*(?:\[([^\]]*)\])?\s*=(?!=)", body)
    if target is None:
        shapes = {dims for type_, dims in params.values() if dims is not None}
        return f"{element}[{shapes.pop() if len(shapes) == 1 else '…'}]"
    if target[1] is None:
        return element
    sizes = _sizes({name: dims for name, (_, dims) in params.items()}, body)
    return f"{element}[{', '.join(sizes.get(slot.strip(), '…') for slot in split(target[1]))}]"


def _sizes(shapes: Mapping[str, str | None], text: str) -> dict[str, str]:
    """Return the sizes of the dimensions in which indices stand, as they are written."""
    sizes: dict[str, str] = {}
    for read in re.finditer(r"\b(\w+)\[([^\[\]]*)\]", text):
        dims = shapes.get(read[1])
        slots, extents = split(read[2].partition("|")[0]), split(dims or "")
        if dims is not None and len(slots) == len(extents):
            for slot, extent in zip(slots, extents, strict=True):
                sizes.setdefault(slot.strip(), extent.strip())
    return sizes


def completed(clause: Written, name: str, slots: list[str]) -> list[str] | None:
    """Return the indices that a read lacks, those of its clause which run over the dimensions that are left; None where there are none."""
    shapes = {m[1]: m[3] for m in _DECLARED.finditer(clause.header)}
    left = f"{clause.name}[{', '.join(clause.slots or ())}] {clause.value}"
    sizes, dims = _sizes(shapes, left), [dim.strip() for dim in split(shapes.get(name) or "")]
    binders = re.findall(r"\b\w+\(([\w\s,]+)\)\s*[\w(]", clause.value)
    bound = [*clause.indices, *(name for listed in binders for name in re.findall(r"\w+", listed))]
    out = list(slots)
    for dim in dims[len(slots) :]:
        found = next((index for index in bound if sizes.get(index) == dim and index not in out), None)
        if found is None:
            return None
        out.append(found)
    return out
