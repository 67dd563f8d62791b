"""Indices as a text, `einsum("mk,kn->mn", a, b)` and `rearrange(x, "b c h -> b h c")`, told as the equation that they stand for."""

from __future__ import annotations

import re

_CALL = re.compile(r"einsum\(\s*[\"']\s*([A-Za-z,\s]*?)\s*(?:->\s*([A-Za-z]*)\s*)?[\"']\s*,\s*([\w\s,]+?)\s*\)")
_EINOPS = re.compile(
    r"""\b(rearrange|reduce|repeat)\(\s*(\w+)\s*,\s*["']([^"']*?)->([^"']*)["']\s*(?:,\s*["']?(sum|prod|mean|max|min)\b)?"""
)
CALLS = frozenset(["einsum", "rearrange", "reduce", "repeat"])
"""What is called with such a text."""


def equation(line: str) -> str | None:
    """Return the equation that a line of a program means by a call of `einsum`, `y[m, n] = sum(k) a[m, k] * b[k, n]`, or of einops; None
    where it calls none, or not with as many operands as its text has."""
    return _sum_of_products(line) or _rearranged(line)


def _target(line: str, call: int) -> str:
    """Return what an equation defines whose right side begins with the call at `call`."""
    target = re.search(r"(\w+)(?:\[[^\]]*\])?\s*=\s*[\w.]*$", line[:call])
    return target[1] if target is not None else "y"


def _rearranged(line: str) -> str | None:
    found = _EINOPS.search(line)
    if found is None or re.search(r"[^\w\s()]", found[3] + found[4]):
        return None
    left, right = (re.sub(r"\s+", ", ", re.sub(r"\(\s*|\s*\)", lambda m: m[0].strip(), side.strip())) for side in (found[3], found[4]))
    left, right = (re.sub(r"\b1\b", "0", side) for side in (left, right))
    lost = [name for name in re.findall(r"[A-Za-z_]\w*", left) if name not in re.findall(r"\w+", right)]
    if lost and found[5] is None:
        return None
    name = _target(line, found.start())
    reduced = f"{found[5]}({', '.join(lost)}) " if lost else ""
    return f"{name}{f'[{right}]' if right else ''} = {reduced}{found[2]}[{left}]"


def _sum_of_products(line: str) -> str | None:
    found = _CALL.search(line)
    if found is None:
        return None
    terms = ["".join(term.split()) for term in found[1].split(",")]
    operands = [name.strip() for name in found[3].split(",")]
    if len(terms) != len(operands) or not all(terms):
        return None
    letters = "".join(terms)
    result = found[2] if found[2] is not None else "".join(sorted(n for n in set(letters) if letters.count(n) == 1))
    summed = dict.fromkeys(n for n in letters if n not in result)
    product = " * ".join(f"{name}[{', '.join(term)}]" for name, term in zip(operands, terms, strict=True))
    name = _target(line, found.start())
    left = f"{name}[{', '.join(result)}]" if result else name
    return f"{left} = sum({', '.join(summed)}) {product}" if summed else f"{left} = {product}"
