"""The reduction that a program of loops means: `y += x[i]`, `y[ids[i]] = x[i]` and `y = x[i]` as one equation each, with the names that
stand there. All is read off the text of one line and of the declaration around it; what cannot be told so is left alone (None)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tensorlang.diagnostics import Span

_WORDS = frozenset(["if", "then", "else", "and", "or", "not", "let", "in", "for", "otherwise", "from", "true", "false"])
_CLAUSE = re.compile(r"\s*(?:(?:strict |fast )?op\b[^{]*\{)?\s*(\w+)\s*(\[.*?\])?\s*(\+=|-=|\*=|/=|%=|=)(?!=)(.*)")
_REDUCES = re.compile(
    r"\b(?:sum|prod|mean|any|all|argmax|argmin|first|last|only)\s*\("
    r"|\b\w+\s*\(\s*\w+(?:\s+in\b[^()]*)?(?:,[^()]*)?\)\s*(?!(?:and|or|then|else|for|in)\b)[\w(]"
)
"""A reduction, or the call of what is one."""


@dataclass(frozen=True, slots=True)
class Written:
    """A clause as it is written on one line: `slots` is None where no brackets stand behind the name; `tail` is what follows `for`."""

    name: str
    slots: tuple[str, ...] | None
    sign: str
    value: str
    tail: str
    header: str
    others: bool
    """Other lines of the declaration define the same tensor."""

    @property
    def indices(self) -> list[str]:
        """Names that stand alone in the brackets on the left."""
        return [slot for slot in self.slots or () if re.fullmatch(r"[A-Za-z_]\w*", slot)]

    def bound(self, name: str) -> bool:
        """Tell whether something else than this clause gives a name a meaning: the head of the declaration, or an equation of it."""
        return re.search(rf"\b{re.escape(name)}\b", self.header) is not None

    def free(self, text: str) -> list[str]:
        """Return the indices of a text that nothing binds, in their order."""
        bracketed = [name for slots in brackets(text) for name in names_in(slots)]
        return [n for n in dict.fromkeys(bracketed) if n not in self.indices and not self.bound(n)]

    def type_of_result(self) -> str | None:
        """Return the element type that the declaration gives to what is defined."""
        found = re.search(rf"->.*\b{re.escape(self.name)}\s*:\s*(\w+)", self.header, re.DOTALL)
        return found[1] if found is not None else None

    def cast(self, value: str) -> str | None:
        """Return a value that has a type: a number alone has none."""
        if not re.fullmatch(r"[0-9.]+(?:e[+-]?[0-9]+)?", value):
            return value
        type_ = self.type_of_result()
        return f"{type_}({value})" if type_ is not None else None


def clause_at(span: Span) -> Written | None:
    """Return the clause on the line where a span begins; None where it is not on one line."""
    text = span.source.text
    begin, end = text.rfind("\n", 0, span.start) + 1, text.find("\n", span.start)
    line = re.sub(r"(\s|^)(#|//).*", "", text[begin : end if end >= 0 else len(text)]).rstrip()
    if line.count("}") > line.count("{") or ("{" in line and line.endswith("}")):
        line = line[: line.rindex("}")].rstrip()
    found = _CLAUSE.fullmatch(line)
    if found is None or (any(line.count(a) != line.count(b) for a, b in ("()", "[]")) and "{" not in line):
        return None
    value, _, tail = found[4].partition(" for ")
    if not value.strip() or "otherwise" in value or "=" in re.sub(r"[<>=!]=", "", value) or re.search(r"[|:?@{}]", value):
        return None
    heads = [m.start() for m in re.finditer(r"^\s*(?:(?:strict|fast)\s+)?op\b", text[: begin + len(line)], re.MULTILINE)]
    if not heads:
        return None
    head = text[heads[-1] :]
    slots = tuple(s.strip() for s in split(found[2][1:-1])) if found[2] else None
    header, _, body = head.partition("{")
    body = re.split(r"^\s*}|^(?:op|fn|schedule)\b", body, maxsplit=1, flags=re.MULTILINE)[0]
    equations = re.findall(rf"^\s*{re.escape(found[1])}\s*(?:\[.*?\])?\s*[-+*/%]?=(?!=)", body, re.MULTILINE)
    return Written(found[1], slots, found[3], value.strip(), tail.strip(), header, len(equations) > 1)


def split(text: str) -> list[str]:
    """Return what commas separate that stand in no brackets."""
    out: list[str] = []
    depth = begin = 0
    for position, sign in enumerate(text):
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and not depth:
            out.append(text[begin:position])
            begin = position + 1
    return [*out, text[begin:]]


def brackets(text: str) -> list[str]:
    """Return what stands in the outer brackets of a text."""
    out: list[str] = []
    depth = begin = 0
    for position, sign in enumerate(text):
        if sign == "[":
            begin = position + 1 if not depth else begin
            depth += 1
        elif sign == "]":
            depth -= 1
            if not depth:
                out.append(text[begin:position])
    return out


def names_in(text: str) -> list[str]:
    """Return the names in a text that are neither indexed nor called."""
    return [m[0] for m in re.finditer(r"(?<![\w.])[A-Za-z_]\w*(?!\w|\s*[\[(])", text) if m[0] not in _WORDS]


def reduction(clause: Written) -> str | None:
    """Return the equation that an accumulation means: `y += x[i]`, `h[ids[i]] += 1`, `s = s + x[i]`, or a sum that names no index."""
    sign, value = clause.sign, clause.value
    if sign == "=":
        target = clause.name + (f"[{', '.join(clause.slots)}]" if clause.slots is not None else "")
        own = re.escape(target).replace(r",\ ", r",\s*")
        if (itself := re.fullmatch(rf"{own}\s*([+*])\s*(.*)|(.*?)\s*([+*])\s*{own}", value)) is not None:
            sign, value = f"{itself[1] or itself[4]}=", (itself[2] or itself[3]).strip()
    reducer = {"+=": "sum", "*=": "prod", "=": "sum"}.get(sign)
    if reducer is None or re.search(rf"\b{re.escape(clause.name)}\b", value) or _REDUCES.search(value):
        return None
    return _folded(clause, reducer, value)


def scattered(clause: Written, data: str) -> str | None:
    """Return the equation that a write to places that data decides means, `y[ids[i]] = x[i]`; `data`: the slot that is no index."""
    if clause.sign != "=" or _REDUCES.search(clause.value) or re.search(rf"\b{re.escape(clause.name)}\b", clause.value):
        return None
    return _folded(clause, "last", clause.value, data)


def _folded(clause: Written, reducer: str, value: str, data: str | None = None) -> str | None:
    kept: list[str] = []
    conditions: list[str] = []
    ranges: list[str] = []
    taken = {*re.findall(r"\w+", " ".join([clause.header, value, clause.name, *(clause.slots or ())]))}
    bound = clause.free(value)
    for slot in clause.slots or ():
        if "[" not in slot and slot != data:
            if not re.fullmatch(r"[A-Za-z_]\w*|[0-9]+", slot):
                return None
            kept.append(slot)
            continue
        letter = next((n for n in "abcdeuvw" if n not in taken), None)
        if letter is None:
            return None
        taken.add(letter)
        kept.append(letter)
        conditions.append(f"{slot} == {letter}")
        if clause.type_of_result() is None:  # no declaration tells its shape
            promised = re.search(rf"\b{re.escape(slot.partition('[')[0])}\s*:\s*\w+(?:\[[^\]]*\])?\s*in\s+([^,)]+)", clause.header)
            ranges.append(f"{letter} in {promised[1].strip() if promised is not None and slot.endswith(']') else '0..…'}")
        bound += [name for name in clause.free(slot) if name not in bound]
    tail = ranges
    summed = {*bound}
    for condition in split(clause.tail) if clause.tail else ():
        member = re.fullmatch(r"\s*(\w+)\s+in\s+(.*)", condition)
        if member is not None and member[1] in bound:
            bound[bound.index(member[1])] = condition.strip()
        elif {*re.findall(r"\w+", condition)} & summed:
            conditions.append(condition.strip())
        else:
            tail.append(condition.strip())
    target = clause.name + (f"[{', '.join(kept)}]" if clause.slots is not None else "")
    ending = f" for {', '.join(tail)}" if tail else ""
    if not bound:
        if reducer != "last" or not conditions or clause.tail:
            return None
        return f"{target} = if {' and '.join(conditions)} then {value} else {_zero(clause)}{ending}"
    start = [f"from {_zero(clause)}"] if reducer == "last" else []
    body = clause.cast(value)
    if body is None:
        return None
    if re.search(r"\s(?:[-+<>]|[=!<>]=|//?|%|and|or)\s|^(?:-|not\b|if\b)", _outside(body)):
        body = f"({body})"
    return f"{target} = {reducer}({', '.join([*bound, *conditions, *start])}) {body}{ending}"


def _zero(clause: Written) -> str:
    return "false" if clause.type_of_result() == "bool" else "0"


def _outside(text: str) -> str:
    """Return what stands in no brackets of a text."""
    out: list[str] = []
    depth = 0
    for sign in text:
        depth += sign in "(["
        out.append(sign if not depth else "")
        depth -= sign in ")]"
    return "".join(out)


def beside_the_left(clause: Written, name: str) -> bool:
    """Tell whether a name stands beside indices of the left side in each of its brackets, or there are none: `y[i] = x[i, j]` leaves a
    sum out, where in `y[i] = x[j]` another index is likely to be meant."""
    places = [{*names_in(slots)} for slots in brackets(clause.value)]
    return not clause.indices or all({*clause.indices} & place for place in places if name in place)
