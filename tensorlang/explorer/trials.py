"""What takes longer than a verdict: the code of a schedule, its time beside that of the derived one, and other schedules to look at.

Explorers have it done by another process (`python -m tensorlang.explorer.trials`), which is told a subject, then questions; an answer is
JSON, an `error` with diagnostics in it where something goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from polyhedral.expr import Int
from tensorlang.diagnostics import CompileError, InternalError, error
from tensorlang.explorer.subject import Subject, check_room, checked_sizes, directives_of, usual_sizes
from tensorlang.explorer.verdicts import message_data
from tensorlang.runtime.operator import Operator
from tensorlang.shell.answering import answer_questions
from tensorlang.shell.arguments import random_array
from tensorlang.shell.measure import Timing, measured
from tensorlang.shell.reporting import internal
from tensorlang.shell.variants import LEAST_GAIN, variants
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import shape_of, substitute_sizes

Kind: TypeAlias = Literal["code", "time", "candidates"]
MOST_TEXT = 200_000
"""Characters of a form that are shown."""
MOST_CANDIDATES = 60
SECONDS = 0.6
"""For which two schedules are measured in turns."""
FORMS = ("loops", "llvm", "asm")


@dataclass(frozen=True, slots=True)
class Question:
    """`directives` are those of a schedule for the operator `name`; None: the derived one."""

    kind: Kind
    name: str
    directives: str | None
    sizes: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule to look at: what it is called, how it differs from the derived one, and its directives."""

    name: str
    change: str
    directives: str


def answer(subject: Subject, question: Question) -> dict[str, Any]:
    """Return the answer to a question as JSON has it."""
    try:
        sizes = {**usual_sizes(subject, question.name), **checked_sizes(question.sizes)}
        match question.kind:
            case "code":
                return code_of(subject, question.name, question.directives, sizes)
            case "time":
                return times_of(subject, question.name, question.directives, sizes)
            case "candidates":
                found = candidates(subject, question.name, sizes)
                return {"candidates": [{"name": c.name, "change": c.change, "directives": c.directives} for c in found]}
    except CompileError as refused:
        return {"error": [message_data(d) for d in refused.diagnostics]}
    except MemoryError:
        return {"error": [message_data(error("C0204", "there is not enough memory", help="give smaller sizes").diagnostics[0])]}
    except (InternalError, RecursionError) as defect:
        return {"error": [message_data(internal(defect))]}


def code_of(subject: Subject, name: str, directives: str | None, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return the forms of an operator at known sizes, and the directives that it runs under."""
    operator, texts = _under(subject, name, directives), dict[str, str]()
    _, arguments = _call(operator, sizes)
    operator.stages(dump=texts.__setitem__, requested=("schedule", *FORMS), **arguments)
    forms = {form: _shortened(texts[form]) for form in FORMS if form in texts}
    return {"forms": forms, "directives": directives_of(texts.get("schedule", "")), "sizes": dict(sizes)}


def times_of(subject: Subject, name: str, directives: str | None, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return how long a run takes under directives, and under the derived schedule, measured in turns on random arrays."""
    derived, own = subject.operators[name], _under(subject, name, directives)
    _, arguments = _call(own, sizes)
    runs: dict[str, Callable[[], object]] = {"this": own.prepared(**arguments), "derived": derived.prepared(**arguments)}
    times = {t.name: t for t in measured(runs, SECONDS)}
    return {
        "seconds": times["this"].best_seconds,
        "derived_seconds": times["derived"].best_seconds,
        "told": _told(times["this"], times["derived"]),
        "sizes": dict(sizes),
    }


def candidates(subject: Subject, name: str, sizes: Mapping[str, int]) -> list[Candidate]:
    """Return schedules to look at: that of the file, none, the derived one, and those near it, each of which a verdict is still to be
    found for."""
    operator = subject.operators[name]
    program, arguments = _call(operator, sizes)
    texts: dict[str, str] = {}
    operator.stages(dump=texts.__setitem__, requested=("schedule",), **arguments)
    derived = directives_of(texts.get("schedule", ""))
    return [*_stated(subject, name, derived), *_near(program, derived)][:MOST_CANDIDATES]


def _stated(subject: Subject, name: str, derived: str) -> Iterator[Candidate]:
    if name in subject.own:
        yield Candidate("the file's", "", subject.own[name])
    yield Candidate("derived", "", derived)
    yield Candidate("as written", "no directives", "")


def _near(program: Program, derived: str) -> Iterator[Candidate]:
    lines = derived.split("\n") if derived else []
    for number, variant in enumerate(variants(program, lines), 1):
        yield Candidate(f"near {number}", variant.change.replace("`", ""), "\n".join(variant.lines))


def _under(subject: Subject, name: str, directives: str | None) -> Operator:
    operator = subject.operators[name]
    return operator if directives is None else operator.schedule(directives)


def _call(operator: Operator, sizes: Mapping[str, int]) -> tuple[Program, dict[str, Any]]:
    """Return an operator at known sizes, and arguments with random arrays. Raises CompileError C0204 where it is too large to be tried."""
    program = operator.symbolic_program(sizes)
    program = substitute_sizes(program, {n: Int(sizes[n]) for n in program.sizes if n in sizes})
    check_room(program)
    declared = {p.name for p in operator.declaration.params}
    arrays = {p.name: _random(p.dtype, shape_of(p, {})) for p in program.params}
    return program, {**arrays, **{n: v for n, v in sizes.items() if n in declared}}


def _random(dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    array = random_array(dtype, shape)
    return np.minimum(array, 1) if dtype.is_integer else array


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}\n… {len(text) - MOST_TEXT} characters more"


def _told(this: Timing, derived: Timing) -> str:
    ratio = this.best_seconds / derived.best_seconds
    same, faster = 1 / LEAST_GAIN <= ratio <= LEAST_GAIN, ratio < 1
    beside = "as fast as" if same else f"{1 / ratio:.3g} times as fast as" if faster else f"{ratio:.3g} times as long as"
    return f"{_seconds(this.best_seconds)}, {beside} the derived schedule ({_seconds(derived.best_seconds)})"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.2f} ms" if value >= 1e-3 else f"{value * 1e6:.1f} µs"


def main() -> None:
    def answerer(subject: Any) -> tuple[str, Callable[[Any], object]]:
        return "ready", lambda question: answer(subject, question)

    answer_questions(answerer)


if __name__ == "__main__":
    main()
