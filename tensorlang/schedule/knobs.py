"""What is chosen for the knobs of a schedule, `knobs mr in {6, 8}`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tensorlang.check.problems import did_you_mean
from tensorlang.diagnostics import CompileError, error
from tensorlang.schedule.expand import Pick
from tensorlang.syntax import nodes as sx


def picker(given: Mapping[str, int], declared: list[str], default: Callable[[str, tuple[int, ...]], int | None] | None) -> Pick:
    """Return the choice among a knob's values: the caller's, or the default's, or the first."""

    def pick(knob: sx.Knob, values: tuple[int, ...]) -> int:
        declared.append(knob.name)
        if knob.name in given:
            if given[knob.name] not in values:
                raise error(
                    "S0507",
                    f"{given[knob.name]} is not among the values of knob `{knob.name}`",
                    knob.span,
                    help=f"they are {', '.join(map(str, values))}",
                )
            return given[knob.name]
        chosen = default(knob.name, values) if default else None
        return values[0] if chosen is None else chosen

    return pick


def no_knob(name: str, declared: Sequence[str], written: sx.Schedule | None) -> CompileError:
    known = ", ".join(f"`{k}`" for k in declared) or "none"
    if written is None:
        return error("S0508", f"there is no knob `{name}`", help="no schedule with knobs applies here")
    return error(
        "S0508",
        f"the schedule of `{written.operator}` has no knob `{name}`",
        written.span,
        help=did_you_mean(name, declared, f"its knobs are {known}"),
    )
