"""The syntax tree of a `.tl` file, as written: packs, generics, attributes and calls unresolved.

Every node remembers its span; spans take no part in equality, so `parse(show(file)) == file`. Comments are kept by `File.comments` for
`fmt`. docs/language.md has the grammar and the meaning; this is its shape:

    file     ::= (Use | Operator | ScalarFunction | Reducer | Schedule | Tactic)*
    clause   ::= target,+ "=" expr [for tail | otherwise]
    expr     ::= Number | Text | Id | Index | Apply | Unary | Binary | Chain | Compare | Member
               | IfElse | LetIn | TupleOf | Pack | Reduction

`Index` is `name[slots]`, `Apply` is `name(args)` or `name[slots](args)`: reads, operator calls, function calls and casts look alike and
the checker decides (rule S6). What the grammar can tell is a reduction (a call followed by its body) is a `Reduction`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tensorlang.diagnostics import NOWHERE, Span


@dataclass(frozen=True, slots=True)
class Node:
    """Remembers where the user wrote it. Nodes are equal wherever they were written."""

    span: Span = field(default=NOWHERE, kw_only=True, compare=False, repr=False)


# ---------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Number(Node):
    """As written: `1`, `2.5`, `1e-5`. `is_float` when it has a dot or an exponent."""

    text: str

    @property
    def is_float(self) -> bool:
        return any(c in self.text for c in ".eE")


@dataclass(frozen=True, slots=True)
class Text(Node):
    value: str


@dataclass(frozen=True, slots=True)
class Id(Node):
    """A name; in schedules possibly dotted (`y.init`, `p.e.j`, `d.0`)."""

    name: str


@dataclass(frozen=True, slots=True)
class Pack(Node):
    """`expr..`: the expression once per position of the packs it mentions. With `range`: `r.. in a..b` (a binder)."""

    value: Expr


@dataclass(frozen=True, slots=True)
class TupleOf(Node):
    """`(a, b)`: a tuple value, or the index of a composite dimension."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Index(Node):
    """`name[slots | mode]`. `mode`: an expression, or Id clamp | wrap | reflect | skip."""

    name: str
    slots: tuple[Expr, ...]
    mode: Expr | None = None


@dataclass(frozen=True, slots=True)
class Keyword(Node):
    """`name = value` among arguments."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Apply(Node):
    """`name(args)` or `name[slots](args)`: call of an operator, function, cast."""

    name: str
    args: tuple[Expr | Keyword, ...]
    slots: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Range(Node):
    """`lo..hi`, hi excluded."""

    lo: Expr
    hi: Expr


@dataclass(frozen=True, slots=True)
class Member(Node):
    """`value in lo..hi`: a condition, or a binder with its range when `value` is an Id or a Pack of one."""

    value: Expr
    range: Range


@dataclass(frozen=True, slots=True)
class From(Node):
    """`from init` among the binders of a reduction."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Reduction(Node):
    """`R[acc](binders) body`. `binders` holds Id, Pack, Member, conditions, From."""

    reducer: str
    acc: tuple[Expr, ...]
    binders: tuple[Expr | From, ...]
    body: Expr


@dataclass(frozen=True, slots=True)
class Unary(Node):
    op: Literal["-", "+", "not"]
    value: Expr


@dataclass(frozen=True, slots=True)
class Binary(Node):
    op: Literal["+", "-", "*", "/", "//", "%", "and", "or"]
    lhs: Expr
    rhs: Expr


@dataclass(frozen=True, slots=True)
class Chain(Node):
    """`first op a op b …`: more than `LONGEST_NEST` operators of one level, which bind from left to right. Fewer nest as `Binary`; so many
    would be as deep as they are long, and every pass recurses over the tree."""

    first: Expr
    rest: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Link(Node):
    """An operator of a chain and its right side; the span reaches from the start of the chain to the end of `rhs`."""

    op: Literal["+", "-", "*", "/", "//", "%", "and", "or"]
    rhs: Expr


LONGEST_NEST = 32

LONGEST_CHAIN = 10_000
"""Operators of one level, one after the other: so many take seconds, and the time grows faster than they do."""


@dataclass(frozen=True, slots=True)
class Compare(Node):
    """`a < b` or the chain `a < b <= c`: ops has one fewer element than items."""

    items: tuple[Expr, ...]
    ops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IfElse(Node):
    cond: Expr
    then: Expr
    orelse: Expr


@dataclass(frozen=True, slots=True)
class LetIn(Node):
    name: str
    value: Expr
    body: Expr


Expr: TypeAlias = (
    Number | Text | Id | Pack | TupleOf | Index | Apply | Member | Reduction | Unary | Binary | Chain | Compare | IfElse | LetIn | Keyword
)

# ---------------------------------------------------------------- declarations


@dataclass(frozen=True, slots=True)
class Generic(Node):
    """`T: float` in `op f[T: float]`; `bound` is a type class (`float`, `int`, `num`, `int8`…) or None."""

    name: str
    bound: str | None = None


@dataclass(frozen=True, slots=True)
class Broadcast(Node):
    """`broadcast D..` or `broadcast N` among dimensions."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Each(Node):
    """`each N` among dimensions, or `each x` after `for`."""

    name: str


@dataclass(frozen=True, slots=True)
class TensorType(Node):
    """`T[dims]`; `dims` None is a scalar. A dim is an Expr, Pack, Broadcast, Each, or TupleOf (a composite dimension)."""

    dtype: str
    dims: tuple[Expr | Broadcast | Each, ...] | None


@dataclass(frozen=True, slots=True)
class Param(Node):
    """`x: T[M, K] in 0..V = 0`, `each x: …` (kind tensor), `attr stride..: int = 1`, `attr f: fn = tanh`, `size n in 0..N`.

    `pack` marks `name..`. `type` is a TensorType for tensors; for attributes the Id of `int float bool str fn` or a dtype name."""

    kind: Literal["tensor", "attr", "size"]
    name: str
    type: TensorType | Id | None = None
    each: bool = False
    pack: bool = False
    range: Range | None = None
    default: Expr | None = None


@dataclass(frozen=True, slots=True)
class Target(Node):
    """The left of a clause: `y`, `y: T[M]`, `y[i, j]`, `_` (name "_"). `slots` None means the whole tensor."""

    name: str
    slots: tuple[Expr, ...] | None = None
    type: TensorType | None = None


@dataclass(frozen=True, slots=True)
class Clause(Node):
    """`targets = value [for conds | otherwise]`. `conds`: Member and Compare conditions, Pack, Each; empty without a `for`."""

    targets: tuple[Target, ...]
    value: Expr
    conds: tuple[Expr | Each, ...] = ()
    otherwise: bool = False


Mode: TypeAlias = Literal["strict", "reduce", "fast"]
"""How exact the arithmetic of an operator is, the strictest first."""


@dataclass(frozen=True, slots=True)
class Place(Node):
    """`element in scope(lane, register)`: which thread of a `warp` has an element of an operand, and which of its elements that is."""

    element: Index
    scope: str
    lane: Expr
    register: Expr


@dataclass(frozen=True, slots=True)
class Operator(Node):
    name: str
    generics: tuple[Generic, ...]
    params: tuple[Param, ...]
    results: tuple[Param, ...]
    where: tuple[Expr, ...]
    clauses: tuple[Clause, ...]
    extern: bool = False
    mode: Mode | None = None
    """`strict op`, `reduce op`, `fast op`; None leaves it to the caller."""
    needs: tuple[str, ...] = ()
    """`instruction name(…) -> (…) for avx512bf16 { … }`: the features of processors that have it as one instruction."""
    places: tuple[Place, ...] = ()
    """Of an instruction that several threads run together: who holds what of its operands."""
    llvm: str | None = None
    """`for avx2 llvm "llvm.x86.avx2.pmadd.wd"`: the name LLVM has for it, where the file says so itself."""
    name_span: Span = field(default=NOWHERE, kw_only=True, compare=False, repr=False)
    doc: str = field(default="", kw_only=True, compare=False, repr=False)
    """The comment right above it, without its `#`."""


@dataclass(frozen=True, slots=True)
class ScalarFunction(Node):
    """`fn f[T: float](x: T, n) = expr`. Parameters are (name, type name or None)."""

    name: str
    generics: tuple[Generic, ...]
    params: tuple[tuple[str, str | None], ...]
    value: Expr
    doc: str = field(default="", kw_only=True, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Reducer(Node):
    """`[ordered] reducer name[generics] left right from identity = combine [lift v at i = e] [yield (..) = e]`.

    `left`, `right`: the component names. `identity` may be Id `none`. `lift`: (value name, index name or None, expr)."""

    name: str
    generics: tuple[Generic, ...]
    left: tuple[str, ...]
    right: tuple[str, ...]
    identity: Expr
    combine: Expr
    ordered: bool = False
    lift: tuple[str, str | None, Expr] | None = None
    project: tuple[tuple[str, ...], Expr] | None = None
    """`yield (v, i) = i` as (names, expr)."""
    doc: str = field(default="", kw_only=True, compare=False, repr=False)


# ---------------------------------------------------------------- schedules


@dataclass(frozen=True, slots=True)
class Phrase(Node):
    """A preposition and its operands: `by (8, 32)`, `at ko`, `as [jo, ki, ji]`, `in shared`, `stages 2`."""

    preposition: str
    operands: tuple[Expr | Layout, ...]


@dataclass(frozen=True, slots=True)
class Layout(Node):
    """`[n, c // 16, h + 1, w + 1, c % 16]` as an operand."""

    dims: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Role(Node):
    """`role contraction(y, a, b; batch.., i.., j.., k..)`: groups of parameter names, each possibly a pack (name ends in `..`)."""

    name: str
    groups: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Directive(Node):
    """`NAME operands (by|at|in|as|with|to|… operands)* [-> names] [for pattern] [if condition]`. Tactic calls look the same with an Apply
    operand-less name."""

    name: str
    operands: tuple[Expr | Layout, ...] = ()
    phrases: tuple[Phrase, ...] = ()
    results: tuple[str, ...] = ()
    call: bool = False
    """`gemm(s, q, k, i, j, e)`: a call of a tactic; operands are its arguments."""
    condition: Expr | None = None
    """The directive is left out where this does not hold."""
    pattern: Role | None = None
    """The directive is given once for each equation of this role, whose names stand for the tensors and loops of that."""


@dataclass(frozen=True, slots=True)
class Knob(Node):
    name: str
    choices: tuple[Expr, ...]
    """The first choice is the default."""


@dataclass(frozen=True, slots=True)
class Knobs(Node):
    knobs: tuple[Knob, ...]


@dataclass(frozen=True, slots=True)
class Schedule(Node):
    """`schedule OPERATOR for TARGET(guards) { … }` or `schedule role NAME(...) for …`."""

    operator: str
    target: str
    guards: tuple[Expr, ...]
    body: tuple[Directive | Knobs, ...]
    role: Role | None = None


@dataclass(frozen=True, slots=True)
class Tactic(Node):
    name: str
    params: tuple[str, ...]
    body: tuple[Directive | Knobs, ...]
    doc: str = field(default="", kw_only=True, compare=False, repr=False)


# ---------------------------------------------------------------- other files


@dataclass(frozen=True, slots=True)
class UsedName(Node):
    """`rms_norm as rms` among the names of a `use`; `alias` None keeps the name."""

    name: str
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Use(Node):
    """`use "norm.tl"`, `use std.norm (softmax, rms_norm as rms)`, `use "norm.tl" as n`.

    `place` is a Text for a file, relative to the one it stands in, and an Id for a module of an installed package. Without `names` and
    `alias` everything is used under its own name."""

    place: Text | Id
    names: tuple[UsedName, ...] = ()
    alias: str | None = None


Declaration: TypeAlias = Use | Operator | ScalarFunction | Reducer | Schedule | Tactic


@dataclass(frozen=True, slots=True)
class Comment:
    """`# text` at an offset; `inline` when something stands before it on its line."""

    text: str
    offset: int
    inline: bool


@dataclass(frozen=True, slots=True)
class File(Node):
    declarations: tuple[Declaration, ...]
    comments: tuple[Comment, ...] = field(default=(), compare=False)
