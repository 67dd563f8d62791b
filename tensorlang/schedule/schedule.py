"""A schedule as a value: the directives a person would write in a `.tl` file, built from Python or parsed, never edited in place.

    Schedule("linear").tile("y", ("i", "j"), (8, 32), into=("io", "jo", "ii", "ji")).vectorize("ji")

Both ways of writing give the same `Directive` nodes; `str(schedule)` prints them in the language. What each directive means, the loops
before and after, and when it is refused stand in docs/schedules.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tensorlang.check.places import Spread
from tensorlang.diagnostics import CompileError, Source, Span, error
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

MOST_DIRECTIVES = 10_000
"""Directives of a schedule, those of tactics each time they are called: so many take seconds."""


def too_many(span: Span) -> CompileError:
    """Return the refusal of a schedule at the directive that is one too many."""
    notes = (f"the limit is {MOST_DIRECTIVES}; those of a tactic count each time it is called",)
    return error(
        "S0107", "this schedule has too many directives", span, "one too many", notes=notes, help="leave out those that undo others"
    )


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction as declared: what it computes, and the features that a processor needs to have it."""

    program: Program
    needs: tuple[str, ...] = ()
    places: Mapping[str, Spread] = field(default_factory=dict)
    """Operand → which thread holds what of it, where threads run the instruction together."""
    llvm: str | None = None
    """LLVM's name for it, where the declaration gives one."""

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def on_device(self) -> bool:
        """Tell whether a graphics processor has it: the lanes of a warp run it together."""
        return any(need.startswith("sm_") for need in self.needs)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Directives for one operator on one target. Knob values have been put in their place. `instructions`: what `tensorize` may name."""

    operator: str
    target: str = "cpu"
    directives: tuple[syntax.Directive, ...] = ()
    instructions: tuple[Instruction, ...] = field(default=(), compare=False, repr=False)

    def then(self, directive: syntax.Directive | str) -> Schedule:
        """Return this schedule with one more directive at its end, which may be written as in a file."""
        return replace(self, directives=(*self.directives, _written(directive) if isinstance(directive, str) else directive))

    def split(self, loop: str, by: int, into: Sequence[str]) -> Schedule:
        return self.then(_directive("split", [loop], [("by", [by])], into))

    def tile(self, tensor: str, loops: Sequence[str], by: Sequence[int], into: Sequence[str]) -> Schedule:
        operand = syntax.Apply(tensor, tuple(syntax.Id(name) for name in loops))
        sizes = syntax.TupleOf(tuple(syntax.Number(str(n)) for n in by))
        return self.then(syntax.Directive("tile", (operand,), (syntax.Phrase("by", (sizes,)),), tuple(into)))

    def order(self, *loops: str) -> Schedule:
        return self.then(_directive("order", loops))

    def fuse(self, outer: str, inner: str, into: str) -> Schedule:
        return self.then(_directive("fuse", [outer, inner], [], [into]))

    def distribute(self, *what: str, at: str | Sequence[str] | None = None, into: Sequence[str] = ()) -> Schedule:
        """Give each clause of a tensor loops of its own, all of them or those from `at` inwards; or, with `into`, give statements as trees
        print them, or sums by their ranges, loops of their own in the place of each loop of `at`."""
        loops = [at] if isinstance(at, str) else at
        return self.then(_directive("distribute", what, [("at", loops)] if loops else [], into))

    def together(self, *tensors: str, into: Sequence[str]) -> Schedule:
        """Make one loop each of the outermost loops of `tensors`, as many as `into` names."""
        return self.then(_directive("together", tensors, [], into))

    def skew(self, loop: str, by: str, factor: int = 1) -> Schedule:
        amount: syntax.Expr = syntax.Id(by)
        if factor != 1:
            amount = syntax.Binary("*", _number(factor), amount)
        return self.then(syntax.Directive("skew", (syntax.Id(loop),), (syntax.Phrase("by", (amount,)),)))

    def shift(self, loop: str, by: int) -> Schedule:
        return self.then(_directive("shift", [loop], [("by", [by])]))

    def reverse(self, loop: str) -> Schedule:
        return self.then(_directive("reverse", [loop]))

    def affine(self, tensor: str, to: Sequence[str], into: Sequence[str]) -> Schedule:
        """Put loops in the place of others of `tensor` that they are expressions over: `to=("t + i", "t - i"), into=("a", "b")`."""
        return self.then(f"affine {tensor} ({', '.join(to)}) -> {', '.join(into)}")

    def peel(self, loop: str, by: int) -> Schedule:
        return self.then(_directive("peel", [loop], [("by", [by])]))

    def cut(self, loop: str, at: str | int | Sequence[str | int], into: Sequence[str] = ()) -> Schedule:
        """Run the iterations before each point, and from the last on, in loops of their own: `at` is over sizes and other loops."""
        points = [at] if isinstance(at, str | int) else at
        return self.then(f"cut {loop} at {', '.join(map(str, points))}" + (f" -> {', '.join(into)}" if into else ""))

    def partition(self, *loops: str) -> Schedule:
        """Split `loops` where everything is decided that they may decide about the edges of arrays, whatever code that takes."""
        return self.then(_directive("partition", loops))

    def unroll(self, *loops: str) -> Schedule:
        return self.then(_directive("unroll", loops))

    def vectorize(self, *loops: str) -> Schedule:
        return self.then(_directive("vectorize", loops))

    def tensorize(self, *loops: str, by: Instruction | None = None) -> Schedule:
        """Put an instruction in the place of loops: those of its axes, then that of its sum. Without `by`, any that fits."""
        known = self if by is None or by in self.instructions else replace(self, instructions=(*self.instructions, by))
        return known.then(_directive("tensorize", loops, [("with", [by.name])] if by is not None else []))

    def parallel(self, *loops: str) -> Schedule:
        return self.then(_directive("parallel", loops))

    def bind(self, *loops: str, to: str | Sequence[str]) -> Schedule:
        """Give the iterations of `loops` to the blocks or threads of a graphics processor: `block.x`, `thread.y`, `warp`, `lane`, …"""
        return self.then(_directive("bind", loops, [("to", [to] if isinstance(to, str) else list(to))]))

    def hoist(self, *axes: str) -> Schedule:
        """Compute tensors once where they do not differ along axes, `p.t`."""
        return self.then(_directive("hoist", axes))

    def scan(self, *axes: str, to: Sequence[int] = ()) -> Schedule:
        """Compute reductions whose terms grow along axes, `y.i`, as running ones; in stretches of the lengths `to`, one for each level."""
        return self.then(_directive("scan", axes, [("to", to)] if to else []))

    def compose(self, binder: str, by: Sequence[int] = ()) -> Schedule:
        """Make reductions over windows, `y.k`, of those over shorter ones, of as many terms as `by` says."""
        return self.then(_directive("compose", [binder], [("by", by)] if by else []))

    def tabulate(self, *tensors: str) -> Schedule:
        """Compute tensors that are functions of a byte once for each of its values, and look their elements up."""
        return self.then(_directive("tabulate", tensors))

    def narrow(self, *binders: str) -> Schedule:
        """Go through the values alone that conditions leave names in reductions, `y.j`."""
        return self.then(_directive("narrow", binders))

    def bisect(self, *binders: str) -> Schedule:
        """Find which terms of reductions over names, `y.j`, pass conditions by binary search, where data ascend along these."""
        return self.then(_directive("bisect", binders))

    def lift(self, *tensors: str) -> Schedule:
        """Give the reductions of the equations of tensors, or what recurrences make without themselves, tensors of their own."""
        return self.then(_directive("lift", tensors))

    def factorize(self, *tensors: str) -> Schedule:
        """Combine the factors of what the equations of tensors reduce two at a time, and reduce what no other factor has at once."""
        return self.then(_directive("factorize", tensors))

    def unfold(self, *tensors: str, over: Sequence[str], into: str) -> Schedule:
        """Write the factors of a sum over several names as rows of matrices, and the sum as one over `into`."""
        return self.then(_directive("unfold", tensors, [("in", over)], [into]))

    def raster(self, rows: str, columns: str, by: int, into: tuple[str, str]) -> Schedule:
        """Go through tiles column after column in stripes of `by` rows."""
        return self.then(_directive("raster", [rows, columns], [("by", [by])], into))

    def cluster(self, loop: str, by: int) -> Schedule:
        """Let `by` neighbours along a loop over blocks run as one cluster."""
        return self.then(_directive("cluster", [loop], [("by", [by])]))

    def multicast(self, *tensors: str, at: str) -> Schedule:
        """Let the blocks of a cluster along the loop `at` share their copies of tensors."""
        return self.then(_directive("multicast", [*tensors], [("at", [at])]))

    def persistent(self, loop: str, by: int) -> Schedule:
        """Let at most `by` blocks take turns with the places of the grid that `loop` is part of."""
        return self.then(_directive("persistent", [loop], [("by", [by])]))

    def split_k(self, binder: str, by: int) -> Schedule:
        """Let `by` blocks share each sum over `binder`."""
        return self.then(_directive("split_k", [binder], [("by", [by])]))

    def predicate(self, *loops: str, by: Literal["guard", "zfill"]) -> Schedule:
        """End loops early at the edges, or go on over zeros."""
        return self.then(_directive("predicate", loops, [("with", [by])]))

    def specialize(self, loop: str, registers: tuple[int, int] | None = None) -> Schedule:
        """Let a thread beside the others ask for the boxes of `loop`; `registers`: of a thread there, and of the others."""
        dealt = [("with", [syntax.Apply("registers", tuple(syntax.Number(str(n)) for n in registers))])] if registers else []
        return self.then(_directive("specialize", [loop], dealt))

    def stages(self, loop: str, by: int) -> Schedule:
        """Keep what is copied in `loop` for `by` of its iterations at a time: copies run `by - 1` iterations ahead."""
        return self.then(_directive("stages", [loop], [("by", [by])]))

    def stream(self, *tensors: str) -> Schedule:
        """Write tensors past the caches."""
        return self.then(_directive("stream", tensors))

    def prefetch(self, tensor: str, at: str, by: int, within: Sequence[str] = ()) -> Schedule:
        """Ask in loop `at` for what it reads of `tensor` `by` iterations later, a share in each iteration of the loops `within`."""
        shared: list[tuple[str, Sequence[object]]] = [("in", within)] if within else []
        return self.then(_directive("prefetch", [tensor], [("at", [at]), ("by", [by]), *shared]))

    def at(self, tensor: str, loop: str, of: str | None = None) -> Schedule:
        """Compute `tensor` inside loop `loop`, of the stage `of` when the loop's name alone is not unique."""
        return self.then(_directive("at", [tensor], [*([("in", [of])] if of else []), ("at", [loop])]))

    def root(self, tensor: str) -> Schedule:
        return self.then(_directive("root", [tensor]))

    def inline(self, *tensors: str) -> Schedule:
        return self.then(_directive("inline", tensors))

    def store_at(self, tensor: str, loop: str) -> Schedule:
        return self.then(_directive("store_at", [tensor], [("at", [loop])]))

    def pack(self, tensor: str, as_: Sequence[str] = (), at: str | None = None, in_: str | None = None) -> Schedule:
        """Copy `tensor`, or what is read of it along the axis `in_` of an equation, into a buffer arranged as `as_` (loops of its reader or
        expressions over its axes), inside loop `at` or at the root."""
        phrases: list[tuple[str, Sequence[object]]] = [(word, [name]) for word, name in (("in", in_), ("at", at)) if name]
        if as_:
            phrases.append(("as", [_layout(as_)]))
        return self.then(_directive("pack", [tensor], phrases))

    def cache(self, tensor: str, place: str, as_: Sequence[str] = (), at: str | None = None, pad: int = 0, swizzle: int = 0) -> Schedule:
        """Keep `tensor` in `shared` memory or in `registers` of the threads of a block: a copy made in loop `at`, arranged as `as_`, with
        `pad` elements more in each row, or its columns exchanged within `swizzle` bytes; without `at`, the tensor's own sums."""
        phrases: list[tuple[str, Sequence[object]]] = [("in", [place]), *([("at", [at])] if at else [])]
        if as_:
            phrases.append(("as", [_layout(as_)]))
        made = _directive("cache", [tensor], phrases)
        for word, count in (("pad", pad), ("swizzle", swizzle)):
            if count:
                made = replace(made, phrases=(*made.phrases, syntax.Phrase("with", (syntax.Apply(word, (_number(count),)),))))
        return self.then(made)

    def layout(self, tensor: str, as_: Sequence[str | syntax.Expr]) -> Schedule:
        return self.then(_directive("layout", [tensor], [("as", [_layout(as_)])]))

    def fold(self, tensor: str, axis: str, by: int) -> Schedule:
        return self.then(_directive("fold", [tensor], [("at", [axis]), ("by", [by])]))

    def trim(self, *loops: str) -> Schedule:
        """Leave out iterations of `loops` in which nobody needs anything."""
        return self.then(_directive("trim", loops))

    def flatten(self) -> Schedule:
        """Merge neighbouring axes that every access walks together; later directives name the merged axes (`h_w`)."""
        return self.then(_directive("flatten", []))

    def store(self, result: str, *, together_with: str) -> Schedule:
        """Store a result where another one is computed; what else reads it computes it again."""
        return self.then(_directive("store", [result], [("with", [together_with])]))

    def rfactor(self, binder: str, by: int, *, chunked: bool = False) -> Schedule:
        return self.then(_directive("rfactor", [binder], [("to" if chunked else "by", [by])]))

    def trust(self, reason: str) -> Schedule:
        """Accept what the proof does not decide, for a reason that goes on record."""
        return self.then(syntax.Directive("trust", (syntax.Text(reason),)))

    def derive(self, *tensors: str) -> Schedule:
        """Let what is not said be derived, of `tensors` or of all: the last directive."""
        return self.then(_directive("derive", tensors))

    def block(self, binder: str, by: int) -> Schedule:
        """Cut the sum over `binder` at multiples of `by`: the terms of whole blocks, and the rest."""
        return self.then(_directive("block", [binder], [("by", [by])]))

    def __str__(self) -> str:
        return show(syntax.Schedule(self.operator, self.target, (), self.directives))


def _written(directive: str) -> syntax.Directive:
    """Return the directive that a line of a schedule is. Raises CompileError for text that is none, ValueError for more than one."""
    from tensorlang.syntax.parse import parse

    (schedule,) = parse(Source("directive", f"schedule operator for cpu {{\n{directive}\n}}\n")).declarations
    match schedule:
        case syntax.Schedule(body=(syntax.Directive() as one,)):
            return one
        case _:
            raise ValueError(f"`{directive}` is not one directive")


def _number(value: int) -> syntax.Expr:
    return syntax.Unary("-", syntax.Number(str(-value))) if value < 0 else syntax.Number(str(value))


def _operand(value: object) -> syntax.Expr | syntax.Layout:
    match value:
        case int():
            return _number(value)
        case str():
            return syntax.Id(value)
        case syntax.Layout():
            return value
        case _:
            raise TypeError(f"a directive's operand is a name or an integer, not {value!r}")


def _directive(
    name: str, operands: Sequence[object], phrases: Sequence[tuple[str, Sequence[object]]] = (), results: Sequence[str] = ()
) -> syntax.Directive:
    return syntax.Directive(
        name,
        tuple(_operand(o) for o in operands),
        tuple(syntax.Phrase(preposition, tuple(_operand(o) for o in values)) for preposition, values in phrases),
        tuple(results),
    )


def _layout(dims: Sequence[str | syntax.Expr]) -> syntax.Layout:
    """Return the layout whose dimensions are expressions, or written as `jo`, `c // 16`, `c % 16`, `h + 1`."""
    return syntax.Layout(tuple(_dimension(dim) if isinstance(dim, str) else dim for dim in dims))


def _dimension(text: str) -> syntax.Expr:
    words = text.split()
    match words:
        case [name]:
            return syntax.Id(name)
        case [name, ("//" | "%" | "+" | "-" | "*") as op, number]:
            return syntax.Binary(op, syntax.Id(name), syntax.Number(number))
        case _:
            raise ValueError(f"`{text}` is no layout dimension: write a name, or `name op number`")
