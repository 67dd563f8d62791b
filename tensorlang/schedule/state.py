"""What directives change, and how they find the stages and loops they name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from polyhedral.expr import TRUE
from polyhedral.model import Scop
from tensorlang.diagnostics import Span, error
from tensorlang.schedule.annotations import Annotations
from tensorlang.schedule.plan import Prefetch, Requirement, Stage, Storage, full
from tensorlang.schedule.schedule import Instruction
from tensorlang.syntax import nodes as syntax
from tensorlang.tensor.nodes import Program


@dataclass(frozen=True, slots=True)
class Request:
    """A `tensorize` directive: loops in the order of the instruction's axes and binders, and the instructions that will do."""

    stage: Stage
    loops: tuple[str, ...]
    chosen: tuple[Instruction, ...]
    directive: syntax.Directive


@dataclass(slots=True)
class State:
    """What directives change."""

    program: Program
    knobs: Mapping[str, int]
    factorized: Program | None = None
    """What `factorize`, `compose` and `tabulate` made of the program: what it computes is no longer composed as the equations say."""
    stages: dict[str, Stage] = field(default_factory=dict)
    """First tensor of each stage → stage."""
    copies: dict[str, str] = field(default_factory=dict)
    """Packed tensor → its copy, the last where it has several."""
    packed: dict[syntax.Directive, str] = field(default_factory=dict)
    """Directive that packs → the copy that it makes."""
    unfolded: set[str] = field(default_factory=set)
    """Tensors that are rows of windows, written out."""
    numbered: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    """Tensor whose sums are of such rows → its axes in groups, each numbered as one."""
    layouts: dict[str, Storage] = field(default_factory=dict)
    folds: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    peels: list[tuple[str, syntax.Directive]] = field(default_factory=list)
    """Stages with a loop that is peeled, and who said so."""
    prefetches: list[Prefetch] = field(default_factory=list)
    requirements: list[Requirement] = field(default_factory=list)
    about_loops: Annotations = field(default_factory=Annotations)
    about_tensors: Annotations = field(default_factory=Annotations)
    trust: str | None = None
    """Why to accept what cannot be decided; None: it is refused."""
    idle: list[str] = field(default_factory=list)
    """A sentence for each directive of which it is known already that it changes nothing."""
    instructions: tuple[Instruction, ...] = ()
    tensorized: list[Request] = field(default_factory=list)
    scop: Scop = field(default_factory=lambda: Scop((), TRUE, (), frozenset(), ()))
    target: str = "cpu"
    stored: dict[str, Storage] = field(default_factory=dict)
    """Tensors that the caller stores in a layout."""


def put(state: State, stage: Stage) -> Stage:
    """Put `stage` in the place of the one of its name, and return it."""
    state.stages[stage.name] = stage
    return stage


def stage_of(state: State, directive: syntax.Directive, name: str) -> Stage:
    """Return the stage that defines tensor `name`."""
    for stage in state.stages.values():
        if any(t.name == name for d in stage.definitions for t in d.tensors):
            return stage
    known = sorted(t.name for s in state.stages.values() for d in s.definitions for t in d.tensors)
    params = {p.name for p in state.program.params}
    why = "is an input: it has no loops" if name in params else "is no tensor of this operator"
    near = get_close_matches(name, known, 1)
    help = f"did you mean `{near[0]}`?" if near and name not in params else f"tensors with loops: {', '.join(known)}"
    raise error("S0105", f"`{name}` {why}", directive.span, help=help)


def statement_of(state: State, name: str) -> tuple[Stage, str] | None:
    """Return the statement called `name`, as trees print it or without the number of the only clause: `y.0.acc`, `y.acc`; None: none is."""
    for stage in state.stages.values():
        for definition in stage.definitions:
            tensor = definition.tensors[0].name
            alone = len(definition.pieces) == 1 and name.startswith(f"{tensor}.")
            called = {name, f"{tensor}.0.{name[len(tensor) + 1 :]}"} if alone else {name}
            found = next((s.name for s in stage.statements if s.name in called), None)
            if found is not None:
                return stage, found
    return None


def loop_of(state: State, directive: syntax.Directive, name: str, outside: Stage | None = None) -> tuple[Stage, str]:
    """Return the loop called `name`, in full or by its last part where that is unique: one that is not of the stage `outside` before one
    that is."""
    for stage in state.stages.values():
        if name in stage.loops:
            return stage, name
    found = [(s, loop) for s in state.stages.values() if not s.synthetic for loop in s.loops if s.local(loop) == name]
    found = found or [(s, loop) for s in state.stages.values() for loop in s.loops if s.local(loop) == name]
    found = [(s, loop) for s, loop in found if s is not outside] or found
    found = found or _shared_loops(state, name)
    if len(found) == 1:
        return found[0]
    if found:
        raise error(
            "S0104",
            f"`{name}` could be {' or '.join(f'`{loop}`' for _, loop in found)}",
            directive.span,
            help="write the full name",
        )
    loops = [loop for s in state.stages.values() for loop in s.loops]
    near = get_close_matches(name, loops, 1, 0.8)
    whose, _, last = name.rpartition(".")
    own = statement_of(state, whose) if whose else None
    mean = f"did you mean `{near[0]}`? " if near else ""
    if own is not None and full(own[0].name, last) in own[0].loops:
        mean = f"`distribute {whose} at {last} -> NAME` gives it a loop of its own; "
    raise error(
        "S0103", f"there is no loop `{name}` at this point", _within(directive, name), help=f"{mean}the loops are now {', '.join(loops)}"
    )


def _shared_loops(state: State, name: str) -> list[tuple[Stage, str]]:
    """Return the loops that `T.i` may be where tensor T shares loops that are named after another: `u.i` of `together u, T -> i`."""
    tensor, _, last = name.rpartition(".")
    mine = [(s, info) for s in state.stages.values() for info in s.statements if tensor in {t.name for t in info.definition.tensors}]
    return list({loop: (s, loop) for s, i in mine for loop in s.loops if i.name in s.members[loop] and s.local(loop) == last}.values())


def _within(directive: syntax.Directive, name: str) -> Span:
    """Return where a directive says a name, or all of it where the name is not written so."""
    span = directive.span
    found = re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", span.source.text[span.start : span.end])
    return span if found is None else Span(span.source, span.start + found.start(), span.start + found.end())


def fresh_loop(state: State, directive: syntax.Directive, stage: Stage, name: str, gone: tuple[str, ...] = ()) -> str:
    """Return the full name of a loop that is made in the place of those that are `gone`; `name` may be that.

    Raises CompileError S0106 where it is taken."""
    owner = (stage.owner(gone[0]) if gone else None) or stage.name
    loop = name if name.startswith(f"{owner}.") else full(owner, name)
    if loop in stage.loops and loop not in gone:
        raise error("S0106", f"`{stage.name}` has a loop `{name}` already", directive.span, help="choose another name")
    return loop
