"""What an explorer is about: the operators of a file, their schedules apart, and the sizes at which each is drawn and run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from polyhedral import affine
from tensorlang.check.definition import Representative, representative
from tensorlang.diagnostics import Source, error
from tensorlang.operators import operators_of
from tensorlang.runtime.operator import Operator
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show
from tensorlang.targets import HOST
from tensorlang.tensor.nodes import Program

MOST_SIZE = 2**20
MOST_DRAWN = 64
"""What a size is at most, and at most in a picture."""
_WORK = 26
"""The logarithm of the points that an operator has at the sizes that nobody has told."""


@dataclass(frozen=True, slots=True)
class Subject:
    """`source` is the text of the file; `own` the directives that it states for its operators on processors, by their names.
    `operators` are those of the same text without these schedules."""

    source: Source
    operators: Mapping[str, Operator]
    own: Mapping[str, str]
    given: Mapping[str, int]
    """Sizes that were told."""
    threads: int | None = None


def subject_of(source: Source, given: Mapping[str, int], threads: int | None = None) -> Subject:
    """Return the subject that the text of a file is. Raises CompileError for its mistakes, C0213 where it has no operators."""
    schedules = [d for d in parse(source).declarations if isinstance(d, sx.Schedule) and d.role is None and d.target == HOST]
    text = source.text
    for schedule in schedules:
        span = schedule.span
        text = text[: span.start] + "".join(c if c == "\n" else " " for c in text[span.start : span.end]) + text[span.end :]
    ops = operators_of(replace(source, text=text), HOST, threads)
    if not len(ops):
        raise error("C0213", f"`{source.name}` has no operators", help="declare one: `op NAME(…) -> (…) { … }`")
    own: dict[str, str] = {}
    for schedule in schedules:
        own.setdefault(schedule.operator, directives_of(show(schedule)))
    return Subject(source, {name: ops[name] for name in ops}, own, given, threads)


def directives_of(schedule: str) -> str:
    """Return the lines within the braces of a schedule as it is printed."""
    lines = schedule.split("\n}", 1)[0].split("\n")[1:]
    return "\n".join(line.removeprefix("    ") for line in lines)


def program_of(subject: Subject, name: str, given: Mapping[str, int] | None = None) -> Program:
    """Return the program of `representative_of`."""
    return representative_of(subject, name, given).program


def representative_of(subject: Subject, name: str, given: Mapping[str, int] | None = None) -> Representative:
    """Return an operator with its sizes as symbols, but those that are `given`. Raises CompileError C0241 where it has mistakes."""
    operator = subject.operators[name]
    attrs = {p.name for p in operator.declaration.params if p.kind == "attr"}
    known = {**(given or {})}
    told = {n: v for n, v in {**subject.given, **known}.items() if n in attrs}
    sizes = {n: v for n, v in known.items() if n not in attrs}
    found = representative(operator.module, name, told, sizes)
    if found is None:
        raise error("C0241", f"`{name}` has mistakes, or needs attributes that nobody can guess", help="`tensorlang check` says which")
    return found


def usual_sizes(subject: Subject, name: str) -> dict[str, int]:
    """Return the sizes, and the attributes without a default, at which an operator is run unless told: powers of two with little work."""
    program = program_of(subject, name)
    iterators = max((len(d.axes) for d in program.definitions), default=1) + 1
    usual = 2 ** max(2, min(8, _WORK // iterators))
    attrs = [p.name for p in subject.operators[name].declaration.params if p.kind == "attr" and p.default is None]
    return {n: subject.given.get(n, 8 if n in attrs else usual) for n in [*program.sizes, *attrs]}


def drawn_sizes(program: Program, least: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return sizes for a picture: eight, or more where `least` says so or where the operator allows no eight."""
    for usual in (8, 4, 12, 3, 16):
        found = {n: max(usual, (least or {}).get(n, 0)) for n in program.sizes}
        if affine.holds(program.context, found):
            return found
    return {n: (least or {}).get(n, 8) for n in program.sizes}


def checked_sizes(given: Mapping[str, object]) -> dict[str, int]:
    """Return sizes that somebody gives. Raises CompileError C0211 for what is none, or too large to be tried."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_SIZE:
            raise error("C0211", f"`{name}` is no size", help=f"give whole numbers from 0 to {MOST_SIZE}: `{name}=64`")
    return {name: value for name, value in given.items() if isinstance(value, int)}


MOST_ELEMENTS = 2**27


def check_room(program: Program) -> None:
    """Raise CompileError C0204 where the tensors of a program of known sizes have more elements than are tried."""
    shapes = [tensor.shape for d in program.definitions for tensor in d.tensors] + [p.shape for p in program.params]
    count = sum(math.prod(affine.evaluate(extent, {}) for extent in shape) for shape in shapes)
    if count > MOST_ELEMENTS:
        raise error("C0204", f"tensors of {count} elements are more than are tried", help="give smaller sizes")
