"""Faults to plant in the text of loops: each kind takes a function's text and yields texts with one fault each.

They are mechanical and know nothing of what a kernel computes, so some change nothing; `test_planted_faults.py` tells these apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

Kind = Callable[[str], Iterator[str]]


def each(pattern: str, *replacements: str | Callable[[re.Match[str]], str], where: str = "") -> Kind:
    """Return the kind of fault that rewrites one place that `pattern` matches, on a line that `where` matches."""

    def plant(text: str) -> Iterator[str]:
        lines = text.splitlines(keepends=True)
        for k, line in enumerate(lines):
            for match in re.finditer(pattern, line) if k and re.search(where, line) and "prefetch" not in line else ():
                for new in replacements:
                    changed = match.expand(new) if isinstance(new, str) else new(match)
                    yield "".join([*lines[:k], line[: match.start()] + changed + line[match.end() :], *lines[k + 1 :]])

    return plant


def in_header(pattern: str, new: str) -> Kind:
    def plant(text: str) -> Iterator[str]:
        head, rest = text.split("\n", 1)
        for match in re.finditer(pattern, head):
            yield head[: match.start()] + match.expand(new) + head[match.end() :] + "\n" + rest

    return plant


def _end(lines: list[str], start: int) -> int:
    """Return where the statement that begins at `start` ends."""
    depth, k = 0, start
    while True:
        depth += lines[k].count("{") - lines[k].count("}")
        k += 1
        if depth <= 0:
            return k


def statements(pattern: str, change: Callable[[list[str]], list[str]]) -> Kind:
    """Return the kind of fault that replaces one whole statement whose first line `pattern` matches."""

    def plant(text: str) -> Iterator[str]:
        lines = text.splitlines(keepends=True)
        for k, line in enumerate(lines):
            if k and re.match(r"\s*" + pattern, line):
                end = _end(lines, k)
                yield "".join([*lines[:k], *change(lines[k:end]), *lines[end:]])

    return plant


def swapped_neighbours(text: str) -> Iterator[str]:
    lines = text.splitlines(keepends=True)
    for k, line in enumerate(lines[:-1]):
        if k and not line.strip().startswith("}"):
            middle = _end(lines, k)
            if middle < len(lines) and not lines[middle].strip().startswith("}"):
                end = _end(lines, middle)
                yield "".join([*lines[:k], *lines[middle:end], *lines[k:middle], *lines[end:]])


def allocated_outside(text: str) -> Iterator[str]:
    """Yield texts in which iterations share what each had for itself."""
    lines = text.splitlines(keepends=True)
    for k, line in enumerate(lines):
        loops = [j for j in range(1, k) if lines[j].lstrip().startswith("for ") and _end(lines, j) > k]
        if line.lstrip().startswith("alloc ") and loops:
            yield "".join([*lines[: loops[0]], line, *lines[loops[0] : k], *lines[k + 1 :]])


def another_buffer(text: str) -> Iterator[str]:
    """Yield texts in which one access goes to another buffer."""
    names = sorted(set(re.findall(r"\b(\w+): \w+\[", text)))
    for name in names:
        for other in (o for o in names if o != name):
            yield from each(rf"\b{name}\[", f"{other}[", where=r"(=|require|prefetch) ")(text)


def another_variable(text: str) -> Iterator[str]:
    variables = sorted(set(re.findall(r"for (\w+) in", text)))
    for name in variables:
        for other in (o for o in variables if o != name):
            yield from each(rf"\b{name}\b(?=[^=]*\] = )", other, where=r"\] = ")(text)


def _twice(lines: list[str]) -> list[str]:
    return lines + lines


def _gone(lines: list[str]) -> list[str]:
    return []


_INT = r"(?<![\w.])(\d+)(?![\w.])"
_OPERAND = r"(\w+(?:\[[^\]]*\])?|\w+\([^()]*\))"
KINDS: dict[str, Kind] = {
    "a loop begins one later": each(r" in (.+) \.\.", r" in \1 + 1 .."),
    "a loop begins one earlier": each(r" in (.+) \.\.", r" in \1 - 1 .."),
    "a loop ends one later": each(r" \.\. (.+?)( \w+ \d+| \w+|) \{", r" .. \1 + 1\2 {"),
    "a loop ends one earlier": each(r" \.\. (.+?)( \w+ \d+| \w+|) \{", r" .. \1 - 1\2 {"),
    "the bounds of a loop are swapped": each(r" in (.+) \.\. (.+?)( \w+ \d+| \w+|) \{", r" in \2 .. \1\3 {"),
    "`min` is dropped from a bound": each(r"\bmin\((\w+), ([^()]*)\)", r"\1", where=r"\.\."),
    "`min` in a bound forgets the tile": each(r"\bmin\((\w+), ([^()]*)\)", r"\2", where=r"\.\."),
    "a loop has fewer lanes or copies than iterations": each(r"(vector|unroll) (\d+) \{", lambda m: f"{m[1]} {int(m[2]) - 1} {{"),
    "a loop is marked parallel": each(r"( serial \d+)? \{", " parallel {", where=r"^\s*for (?!.*(parallel|unroll|vector))"),
    "a loop is marked vector": each(r" serial (\d+) \{", r" vector \1 {"),
    "unrolled copies are marked vector": each(r" unroll (\d+) \{", r" vector \1 {"),
    "lanes are marked parallel": each(r" vector (\d+) \{", r" parallel \1 {"),
    "a loop is dropped": statements("for ", _gone),
    "a loop runs twice": statements("for ", _twice),
    "a guard is dropped": each(r"if .* \{", "if true {"),
    "a guard is negated": each(r"if (.*) \{", r"if not (\1) {"),
    "a guard never holds": each(r"if .* \{", "if false {"),
    "a relation lets one more in": each(r" (<|>) ", r" \1= "),
    "a relation lets one less in": each(r" (<|>)= ", r" \1 "),
    "a relation is turned around": each(r" (<=?|>=?) ", lambda m: f" {m[1].translate(str.maketrans('<>', '><'))} "),
    "an equality is negated": each(" == ", " != "),
    "a `require` is dropped": statements("require ", _gone),
    "a `require` lets one more in below": each(r">= 0_i64", ">= -1_i64", where="require"),
    "a `require` lets one more in above": each(r"< (\S+?)( else|\))", r"<= \1\2", where="require"),
    "a `require` is satisfied by one half": each(" and ", " or ", where="require"),
    "a `require` refuses what is right": each(r">= 0_i64", ">= 1_i64", where="require"),
    "a `require` that fails reports success": each(r"else \d+", "else 0", where="require"),
    "subscripts are swapped": each(r"\[([^\[\],]+), ([^\[\],]+)\]", r"[\2, \1]", where=r" = |require"),
    "a subscript is one more": each(r"(?<!\w\[)(?<=[\w)\]])\]", " + 1]", where=r" = "),
    "a subscript is one less": each(r"(?<!\w\[)(?<=[\w)\]])\]", " - 1]", where=r" = "),
    "a subscript names another loop": another_variable,
    "another buffer is accessed": another_buffer,
    "an initial value is not stored": statements(r"[^=]*\] = (-?inf|-?\d\S*|true|false)\n", _gone),
    "an initial value is another": each(r"(?<=\] = )(-?inf_f32|0\.0_f32|0_i64)$", "1.0_f32", "0.0_f32", "-inf_f32", "3_i64"),
    "a store is dropped": statements(r"[^=]*\] = ", _gone),
    "an update is made twice": statements(r"[^=]*\] = .*(fma|\+|max)", _twice),
    "operands of `-` or `/` are swapped": each(rf"{_OPERAND} (-|/) {_OPERAND}(?=$|\))", r"\3 \2 \1", where=r"\] = |let "),
    "`+` is `-`": each(r"(?<=\]) \+ (?=\w)", " - ", where=r"\] = "),
    "`-` or `/` is `+`": each(r" (-|/) (?=\w+\[)", " + "),
    "`max` and `min` are exchanged": each(r"\b(max|min)\(", lambda m: "min(" if m[1] == "max" else "max(", where=r"\] = "),
    "a product is a sum": each(r"fma\(([^()]*\]), ([^()]*\]), (.*)\)$", r"\1 + \2 + \3"),
    "a product loses its sum": each(r"fma\(([^()]*\]), ([^()]*\]), (.*)\)$", r"\1 * \2"),
    "another function is called": each(r"\bexp\(", "exp2("),
    "the sides of a `select` are exchanged": each(r"select\((\w+), (.*), (\w+)\)$", r"select(\1, \3, \2)"),
    "a `select` takes what it should only sometimes": each(r"select\(.*, (.*\]), 0\.0_f32\)", r"\1"),
    "a buffer is too small": each(rf"{_INT}(?=[^\[]*\])", lambda m: str(int(m[1]) - 1), where="alloc"),
    "a buffer has a negative extent": each(r"\[([^\]]+)\]", r"[-1*(\1)]", where="alloc"),
    "iterations share a buffer": allocated_outside,
    "statements are exchanged": swapped_neighbours,
    "a tile has another stride": each(r"(\d+)\*", lambda m: f"{int(m[1]) + 1}*", lambda m: f"{int(m[1]) - 1}*"),
    "a number in a subscript is another": each(rf"(?<=[+-] ){_INT}", lambda m: str(int(m[1]) + 1), where=r"\] = "),
    "a divisor is another": each(r"(//|%) (\d+)", lambda m: f"{m[1]} {int(m[2]) + 1}"),
    "a constant in an expression is another": each(r"\b(\d\.\d)_f32(?=\W)", "7.5_f32"),
    "a cast is dropped": each(r"\b(f32|f16|i64)\(([^()]*)\)", r"\2"),
    "an argument has another type": in_header(r": f32\[", ": f64["),
    "an argument has another shape": in_header(r"\[([^\],]+)([,\]])", r"[\1 + 1\2"),
    "an argument has another name": in_header(r"\b(\w+): (?=\w+\[)", r"\1x: "),
    "an argument is there twice": in_header(r"(\w+: \w+\[[^\]]*\] align \d+), ", r"\1, \1, "),
    "a result is not marked": in_header("out ", ""),
}
