"""Einstein's notation as a text, `einsum("mk,kn->mn", a, b)`, told as the equation that it stands for."""

from __future__ import annotations

import re

_CALL = re.compile(r"einsum\(\s*[\"']\s*([A-Za-z,\s]*?)\s*(?:->\s*([A-Za-z]*)\s*)?[\"']\s*,\s*([\w\s,]+?)\s*\)")


def equation(line: str) -> str | None:
    """Return the equation that a line of a program means by a call of `einsum`, `y[m, n] = sum(k) a[m, k] * b[k, n]`; None where it
    calls none, or not with as many operands as its text has."""
    found = _CALL.search(line)
    if found is None:
        return None
    terms = ["".join(term.split()) for term in found[1].split(",")]
    operands = [name.strip() for name in found[3].split(",")]
    if len(terms) != len(operands) or not all(terms):
        return None
    letters = "".join(terms)
    result = found[2] if found[2] is not None else "".join(sorted(n for n in set(letters) if letters.count(n) == 1))
    target = re.search(r"(\w+)(?:\[[^\]]*\])?\s*=\s*[\w.]*$", line[: found.start()])
    summed = dict.fromkeys(n for n in letters if n not in result)
    product = " * ".join(f"{name}[{', '.join(term)}]" for name, term in zip(operands, terms, strict=True))
    name = target[1] if target is not None else "y"
    left = f"{name}[{', '.join(result)}]" if result else name
    return f"{left} = sum({', '.join(summed)}) {product}" if summed else f"{left} = {product}"
