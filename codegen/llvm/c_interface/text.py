"""The text of a function in LLVM IR that takes sizes and pointers, and refuses by a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from codegen.errors import InternalError
from codegen.loops.nodes import (
    Add,
    Binary,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Index,
    IndexValue,
    Int,
    Max,
    Min,
    Mod,
    Mul,
    Unary,
    ValueIndex,
    Var,
)

MINIMA = "declare i64 @llvm.smin.i64(i64, i64)\ndeclare i64 @llvm.smax.i64(i64, i64)"
_RELATIONS = {"<": "slt", "<=": "sle", "==": "eq", "!=": "ne", ">=": "sge", ">": "sgt"}


@dataclass(slots=True)
class Function:
    """The lines of a function, with names for what it computes."""

    lines: list[str] = field(default_factory=list)
    _count: int = 0

    def new(self, operation: str) -> str:
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {operation}")
        return name

    def label(self) -> str:
        self._count += 1
        return f"l{self._count}"

    def add(self, line: str) -> None:
        self.lines.append("  " + line)

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def require(self, condition: str, code: int) -> None:
        """Return `code` from the function unless `condition` holds."""
        good, bad = self.label(), self.label()
        self.add(f"br i1 {condition}, label %{good}, label %{bad}")
        self.begin(bad)
        self.add(f"ret i32 {code}")
        self.begin(good)

    def word(self, base: str, k: int, kind: str = "i64") -> str:
        """Return field number k of a structure of fields of 8 bytes."""
        return self.new(f"load {kind}, ptr {self.place(base, k)}, align 8")

    def place(self, base: str, k: int) -> str:
        return self.new(f"getelementptr i64, ptr {base}, i64 {k}")

    def put(self, base: str, k: int, value: str) -> None:
        self.add(f"store {value}, ptr {self.place(base, k)}, align 8")

    def index(self, e: Index, env: Mapping[str, str]) -> str:
        """Return an index expression over named sizes, an i64."""
        match e:
            case Int(value):
                return str(value)
            case Var(name):
                return env[name]
            case Add(lhs, rhs):
                return self.new(f"add i64 {self.index(lhs, env)}, {self.index(rhs, env)}")
            case Mul(lhs, rhs):
                return self.new(f"mul i64 {self.index(lhs, env)}, {self.index(rhs, env)}")
            case Min(lhs, rhs):
                return self.new(f"call i64 @llvm.smin.i64(i64 {self.index(lhs, env)}, i64 {self.index(rhs, env)})")
            case Max(lhs, rhs):
                return self.new(f"call i64 @llvm.smax.i64(i64 {self.index(lhs, env)}, i64 {self.index(rhs, env)})")
            case FloorDiv(lhs, rhs):
                return self._divided(self.index(lhs, env), self.index(rhs, env))
            case Mod(lhs, rhs):
                a, b = self.index(lhs, env), self.index(rhs, env)
                whole = self.new(f"mul i64 {self._divided(a, b)}, {b}")
                return self.new(f"sub i64 {a}, {whole}")
            case ValueIndex():
                raise InternalError("link", "a size that depends on elements")
            case _:
                assert_never(e)

    def _divided(self, a: str, b: str) -> str:
        """Return a / b rounded down, for b > 0."""
        quotient = self.new(f"sdiv i64 {a}, {b}")
        back = self.new(f"mul i64 {quotient}, {b}")
        above = self.new(f"icmp sgt i64 {back}, {a}")
        return self.new(f"sub i64 {quotient}, {self.new(f'zext i1 {above} to i64')}")

    def truth(self, e: Expr, env: Mapping[str, str]) -> str:
        """Return a condition on sizes, an i1."""
        match e:
            case Const(value, _):
                return "true" if value else "false"
            case Compare(op, IndexValue(lhs), IndexValue(rhs)):
                return self.new(f"icmp {_RELATIONS[op]} i64 {self.index(lhs, env)}, {self.index(rhs, env)}")
            case Binary("and" | "or" as op, lhs, rhs):
                return self.new(f"{op} i1 {self.truth(lhs, env)}, {self.truth(rhs, env)}")
            case Unary("not", value):
                return self.new(f"xor i1 {self.truth(value, env)}, true")
            case _:
                raise InternalError("link", f"a condition on sizes has {type(e).__name__}")


def unless(f: Function, condition: str, lines: Sequence[str]) -> None:
    """Run the lines, of which the last returns, unless `condition` holds."""
    good, bad = f.label(), f.label()
    f.add(f"br i1 {condition}, label %{good}, label %{bad}")
    f.begin(bad)
    for line in lines:
        f.add(line)
    f.begin(good)


def by_level(f: Function, level: str, values: Sequence[int]) -> str:
    """Return that one of `values`, each an i64, whose number is `level`."""
    found = str(values[0])
    for k, value in enumerate(values[1:], start=1):
        found = f.new(f"select i1 {f.new(f'icmp eq i64 {level}, {k}')}, i64 {value}, i64 {found}")
    return found


def by_level_pointer(f: Function, level: str, names: Sequence[str]) -> str:
    """Return the address of that global of `names` whose number is `level`."""
    found = f"@{names[0]}"
    for k, name in enumerate(names[1:], start=1):
        found = f.new(f"select i1 {f.new(f'icmp eq i64 {level}, {k}')}, ptr @{name}, ptr {found}")
    return found


def signed(word: int) -> int:
    """Return 64 bits as LLVM writes them: a number with a sign."""
    return word - 2**64 if word >= 2**63 else word
