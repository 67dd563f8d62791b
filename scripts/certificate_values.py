"""Runs equations and loops on terms for `check_certificate.py`, at given sizes.

A float is what was computed, as a fingerprint of 61 bits: of an input element, of a constant, or of an operation and its operands' terms.
Integers and booleans are computed. What a store combines into its own element, and what a reduction combines, is joined so that order
and grouping leave no trace, as far as the mode allows.
"""

from __future__ import annotations

import json
import random
import re
import zlib
from itertools import product
from typing import Any

from certificate_loops import BITS, FLOATS, Ast, Buffer, Rejected, limits, type_of, update_of

PRIME, WORK = 2**61 - 1, 400_000
INTEGER = ("+", "-", "*", "//", "%", "min", "max", "&", "|", "^", "<<", ">>")


NEUTRAL = {("+", 0.0), ("*", 1.0), ("max", -float("inf")), ("min", float("inf"))}
ROOTS = {"max": (17, pow(17, -1, PRIME - 1)), "min": (19, pow(19, -1, PRIME - 1))}


def term(*key: Any) -> int:
    return hash(key) & PRIME


def number(value: str) -> int:
    return term(1, zlib.crc32(value.encode()), len(value))


START = {op: number(value.hex()) for op, value in NEUTRAL}


def joined(op: str, a: int, b: int) -> int:
    """Return what stands for `a op b` in a sum, product or extreme that may be regrouped: the order of operands is forgotten, no more."""
    if a == START[op] or b == START[op]:
        return b if a == START[op] else a
    if op in ROOTS:
        power, root = ROOTS[op]
        return pow(pow(a, power, PRIME) + pow(b, power, PRIME), root, PRIME)
    return (a + b) % PRIME if op == "+" else a * b % PRIME


class Run:
    """Equations and loops as Python functions, at given sizes and with given elements of integer arguments."""

    def __init__(self, certificate: dict[str, Any], params: tuple[Buffer, ...], sizes: dict[str, int], seed: int) -> None:
        self.certificate, self.strict, self.sizes = certificate, certificate["mode"] == "strict", sizes
        self.types: dict[str, str] = {}
        self.idents: dict[str, str] = {}
        self.calls: dict[str, str] = {}
        self.exact: dict[str, set[int]] = {}
        self.left, self.random, self.seed, self.decides = WORK, random.Random(seed), seed, False
        self.names: dict[str, Any] = {self.ident(n): v for n, v in sizes.items()}
        self.names |= {
            "term": term,
            "joined": joined,
            "rounded": self.rounded,
            "wrap": wrap,
            "spend": self.spend,
            "fold": fold,
            "Rejected": Rejected,
        }
        self.names |= {"divided": lambda a, b: a // b if b else 0, "rest": lambda a, b: a % b if b else 0}
        self.equal = json.dumps(certificate["definitions"])
        self.given = {t["name"]: self.elements(t) for t in certificate["params"]}
        self.outs = {p.name: p for p in params if not p.given}

    def ident(self, name: str) -> str:
        return self.idents.setdefault(name, f"n{len(self.idents)}")

    def rounded(self, dtype: str, a: int) -> int:
        known = self.exact.setdefault(dtype, set())
        if a not in known:
            known.add(a := term(2, zlib.crc32(dtype.encode()), a))
        return a

    def spend(self, lo: int, hi: int) -> range:
        self.left -= max(hi - lo, 0)
        if self.left < 0:
            raise TooMuch
        return range(lo, hi)

    def number(self, e: Ast) -> int:
        return int(eval(self.code(e), self.names))

    def box(self, shape: Ast) -> Any:
        return product(*(range(self.number(e)) for e in shape))

    def elements(self, t: dict[str, Any]) -> dict[Ast, int]:
        """Return an argument's elements: terms of their own, or integers in their range, or that of what they index."""
        dtype, self.types[t["name"]] = t["dtype"], t["dtype"]
        cells, low, high = self.box(t["shape"]), 0, 1
        if dtype in FLOATS:
            found = {c: term(3, zlib.crc32(t["name"].encode()), self.seed, *c) for c in cells}
            some = [number(v) for v in re.findall(r'"(-?0x[^"]+)"', self.equal)] + list(found.values())[:3] if self.seed else []
            found = {c: self.random.choice(some) if some and self.random.random() < 0.3 else v for c, v in found.items()}
            self.exact.setdefault(dtype, set()).update(found.values())
            return found
        if dtype in BITS:
            low, high, self.decides = *limits(dtype), True
        if t["range"]:
            low, high = self.number(t["range"][0]), self.number(t["range"][1]) - 1
        elif t["indexes"]:
            low, high = 0, min(self.number(e) for e in t["indexes"]) - 1
        return {c: self.random.randint(low, max(low, high)) if dtype != "bool" else self.random.random() < 0.5 for c in cells}

    def type_of(self, e: Ast) -> str:
        return type_of(e, self.types)

    def code(self, e: Ast) -> str:
        """Return Python text for the value of `e`: a term of a float, a number of an integer."""
        dtype, code = self.type_of(e), self.code
        tag = f"{zlib.crc32(f'{e[0]} {e[1] if isinstance(e[1], str) else 0} {dtype}'.encode())}"
        match e:
            case ("int", int(n)):
                return f"({n})"
            case ("const", _, value):
                return str(number(str(value))) if dtype in FLOATS else f"({int(value)})" if dtype != "bool" else str(bool(value))
            case ("name", name):
                return self.ident(name)
            case ("index" | "value", a):
                return code(a)
            case ("load", name, index):
                at = "".join(f"{code(i)}, " for i in index)
                return f"{self.calls[name].format(at)}" if name in self.calls else f"{self.ident(name)}[({at})]"
            case ("select", c, a, b) if self.type_of(a) == self.type_of(b):
                return f"({code(a)} if {code(c)} else {code(b)})"
            case ("not", a):
                return f"(not {code(a)})"
            case ("cmp", "<" | "<=" | "==" | "!=" | ">=" | ">" as op, a, b) if self.type_of(a) == self.type_of(b):
                self.decides |= self.type_of(a) in FLOATS
                return f"({code(a)} {op} {code(b)})"
            case ("cast", _, saturate, a):
                return self.cast(dtype, saturate, code(a), self.type_of(a))
            case ("let", name, value, body):
                self.types[name] = self.type_of(value)
                return f"(lambda {self.ident(name)}: {code(body)})({code(value)})"
            case ("tuple", items):
                return f"({''.join(f'{code(i)}, ' for i in items)})"
            case ("item", a, int(k)):
                return f"{code(a)}[{k}]"
            case ("fold", spec):
                return self.fold(spec) + ("" if len(spec["dtypes"]) > 1 else "[0]")
            case ("bin", "and" | "or" as op, a, b):
                return f"({code(a)} {op} {code(b)})"
            case ("bin", op, a, b) if op in INTEGER and self.type_of(a) == self.type_of(b) and dtype not in FLOATS:
                call = {"min": "min", "max": "max", "//": "divided", "%": "rest"}.get(op)
                text = f"{call}({code(a)}, {code(b)})" if call else f"({code(a)} {op} {code(b)})"
                return f"wrap('{dtype}', {text})" if dtype in BITS and dtype != "ix" else text
            case ("bin", "+" | "*" | "min" | "max", a, b) if self.type_of(a) == self.type_of(b):
                return f"term({tag}, *sorted(({code(a)}, {code(b)})))"
            case ("bin", "-" | "/" | "//" | "%", a, b) if self.type_of(a) == self.type_of(b):
                return f"term({tag}, {code(a)}, {code(b)})"
            case ("neg" | "abs" | "bitnot" as op, a) if dtype not in FLOATS:
                return f"wrap('{dtype}', {({'neg': '-', 'abs': 'abs', 'bitnot': '~'})[op]}({code(a)}))"
            case ("neg" | "abs", a):
                return f"term({tag}, {code(a)})"
            case ("fma", a, b, c) if not self.strict:
                return code(("bin", "+", ("bin", "*", a, b), c))
            case ("call", "isnan" | "isinf", args):
                return f"(term({tag}, {code(args[0])}) % 2 == 1)"
            case ("fma", *args) | ("call", _, args) if {*map(self.type_of, args)} == {dtype}:
                return f"term({tag}, {', '.join(map(code, args))})"
            case ("dot", ("int", count), a, b, c) if dtype in BITS:
                for r in range(count):
                    x, y = (("cast", dtype, False, (*z[:2], (*z[2][:-1], ("bin", "+", z[2][-1], ("int", r))))) for z in (a, b))
                    c = ("bin", "+", c, ("bin", "*", x, y))
                return code(c)
        raise Rejected(f"`{e[0]} {e[1]}` is given what it does not take, or is not known")

    def cast(self, dtype: str, saturate: bool, a: str, source: str) -> str:
        if dtype in FLOATS and source in FLOATS:
            return a if dtype == source or FLOATS[dtype] > FLOATS[source] else f"rounded('{dtype}', {a})"
        if dtype in FLOATS:
            return f"term({zlib.crc32(dtype.encode())}, {a} % 2**64)"
        if dtype == "bool":
            return f"({a} != {START['+'] if source in FLOATS else 0})"
        a = f"({a} % 3)" if source in FLOATS else f"int({a})"
        low, high = limits(dtype)
        return f"min(max({a}, {low}), {high})" if saturate else f"wrap('{dtype}', {a})"

    def fold(self, spec: dict[str, Any]) -> str:
        left, right = ([self.ident(n) for n in spec[side]] for side in ("left", "right"))
        for n, dtype in zip((*spec["left"], *spec["right"]), spec["dtypes"] * 2, strict=True):
            self.types[n] = dtype
        loops = " ".join(f"for {self.ident(n)} in spend({self.code(lo)}, {self.code(hi)})" for n, lo, hi in spec["binders"])
        tuple_of = lambda items: f"({''.join(f'{self.code(i)}, ' for i in items)})"  # noqa: E731
        op, combined = spec["op"], tuple_of(spec["combine"])
        if op in START and spec["dtypes"][0] in FLOATS and (op in ROOTS or not self.strict):
            combined = f"(joined('{op}', {left[0]}, {right[0]}), )"
        start = tuple_of(spec["init"]) if spec["init"] else tuple_of(spec["identity"]) if spec["identity"] else None
        wanted = " and ".join(self.code(c) for c in (spec["where"], spec["filter"]) if c)
        return f"fold(lambda {', '.join([*left, *right])}: {combined}, {start}, ({tuple_of(spec['body'])} {loops} if {wanted}))"

    # ------------------------------------------------ the two

    def equations(self) -> dict[str, dict[Ast, int]]:
        """Return the elements of all results."""
        lines: list[str] = []
        definitions = self.certificate["definitions"]
        for k, d in enumerate(definitions):
            for position, t in enumerate(d["tensors"]):
                self.types[t["name"]] = t["dtype"]
                self.calls[t["name"]] = f"f{k}({{}})" + (f"[{position}]" if len(d["tensors"]) > 1 else "")
        self.names |= {self.ident(name): cells for name, cells in self.given.items()}
        for k, d in enumerate(definitions):
            axes = "".join(f"{self.ident(a)}, " for a in d["axes"])
            inside = [
                ("cmp", op, ("name", a), e)
                for a, n in zip(d["axes"], d["tensors"][0]["shape"], strict=True)
                for op, e in ((">=", ("int", 0)), ("<", n))
            ]
            lines += [f"memo{k} = {{}}", f"def f{k}({axes}):", f"    if ({axes}) in memo{k}: return memo{k}[({axes})]"]
            lines += [f"    if not ({' and '.join(map(self.code, inside)) or True}): raise KeyError"]
            for guard, value in d["pieces"]:
                lines += [
                    f"    if {self.code(guard)}:",
                    f"        memo{k}[({axes})] = {self.code(value)}",
                    f"        return memo{k}[({axes})]",
                ]
        exec("\n".join(lines), self.names)
        shapes = {t["name"]: t["shape"] for d in definitions for t in d["tensors"]}
        return {
            n: {c: eval(self.calls[n].format("*c"), self.names, {"c": c}) for c in self.box(shapes[n])} for n in self.certificate["results"]
        }

    def loops(self, body: Ast) -> dict[str, dict[Ast, int]] | int:
        """Return the elements of all results, or which requirement failed."""
        self.calls, found = {}, {name: {} for name in self.outs}
        self.types |= {p.name: p.dtype for p in self.outs.values()}
        self.names |= {self.ident(name): cells for name, cells in (*self.given.items(), *found.items())}
        exec("\n".join(["def run():", "    pass", *self.block(body, "    ")]), self.names)
        return self.names["run"]() or found

    def block(self, body: Ast, indent: str) -> list[str]:
        lines = [f"{indent}pass"]
        for s in body:
            match s:
                case ("for", var, lo, hi, _, _, inner):
                    self.types[var] = "ix"
                    lines += [
                        f"{indent}for {self.ident(var)} in spend({self.code(lo)}, {self.code(hi)}):",
                        *self.block(inner, f"{indent}    "),
                    ]
                case ("if", cond, then, orelse):
                    lines += [f"{indent}if {self.code(cond)}:", *self.block(then, f"{indent}    ")]
                    lines += [f"{indent}else:", *self.block(orelse, f"{indent}    ")]
                case ("let", name, value):
                    self.types[name] = self.type_of(value)
                    lines.append(f"{indent}{self.ident(name)} = {self.code(value)}")
                case ("alloc", buffer):
                    self.types[buffer.name] = buffer.dtype
                    lines.append(f"{indent}{self.ident(buffer.name)} = {{}}")
                case ("require", cond, code):
                    lines.append(f"{indent}if not {self.code(cond)}: return {code}")
                case ("store", name, index, value):
                    here, update, checked = self.code(("load", name, index)), update_of(s), self.code(value)
                    if update is not None and self.types[name] in FLOATS and update[0] in START and (update[0] in ROOTS or not self.strict):
                        checked = f"joined('{update[0]}', {here}, {self.code(update[1])})"
                    lines.append(f"{indent}{here} = {checked}")
        return lines


class TooMuch(Exception):
    """Running would take too long."""


def wrap(dtype: str, n: int) -> int:
    low, high = limits(dtype)
    return n if low <= n <= high else (n - low) % (high - low + 1) + low


def fold(combine: Any, start: Any, items: Any) -> Any:
    for item in items:
        start = item if start is None else combine(*start, *item)
    return start
