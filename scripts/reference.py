"""Writes docs/reference: the Python names, the commands and the directives, each from what the source says of them.

python scripts/reference.py            writes the pages
python scripts/reference.py --check    exits with 1 if a page is not what would be written
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tensorlang as tl  # noqa: E402
from tensorlang.cli import app  # noqa: E402
from tensorlang.picture.plot import Picture  # noqa: E402
from tensorlang.schedule.directives.table import TABLE  # noqa: E402

FOLDER = ROOT / "docs" / "reference"
GENERATED = "Generated from the source: `python scripts/reference.py`.\n"


# ---------------------------------------------------------------- Python


def api() -> str:
    """Return the page of the Python names."""
    functions = [name for name in tl.__all__ if inspect.isfunction(getattr(tl, name))]
    classes = [name for name in tl.__all__ if inspect.isclass(getattr(tl, name))]
    parts = ["# Python", "", f"What `import tensorlang as tl` offers. {GENERATED}", "## Functions", ""]
    for name in functions:
        parts += _function(f"tl.{name}", getattr(tl, name), 3)
    parts += ["## Classes", ""]
    for made in (*(getattr(tl, name) for name in classes), Picture):
        parts += _class(made)
    return "\n".join(parts)


def _function(name: str, function: Any, level: int) -> list[str]:
    signature = _wrapped(name, inspect.signature(function))
    return [f"{'#' * level} {name.split('.')[-1]}", "", "```python", signature, "```", "", _words(function), ""]


_BEFORE_KEYWORDS = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL)
"""Kinds of parameters behind which no star stands before those that are given by name."""


def _wrapped(name: str, signature: inspect.Signature) -> str:
    """Return a signature, a parameter a line where it is long."""
    parts: list[str] = []
    given = [p for p in signature.parameters.values() if p.name != "self"]
    for k, parameter in enumerate(given):
        if parameter.kind is parameter.KEYWORD_ONLY and (k == 0 or given[k - 1].kind not in _BEFORE_KEYWORDS):
            parts.append("*")
        parts.append(_parameter_of(parameter))
    result = "" if signature.return_annotation is signature.empty else f" -> {_plain(signature.return_annotation)}"
    line = f"{name}({', '.join(parts)}){result}"
    return line if len(line) <= 100 else "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){result}"])


def _parameter_of(parameter: inspect.Parameter) -> str:
    sign = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    default = parameter.default
    shown = "" if default is parameter.empty else f" = {getattr(default, '__name__', None) or repr(default)}"
    return f"{sign}{parameter.name}: {_plain(parameter.annotation)}{shown}"


def _plain(annotation: Any) -> str:
    """Return a type as it is written in the source."""
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _class(made: type) -> list[str]:
    parts = [f"### {made.__name__}", "", _words(made), ""]
    for name, member in sorted(vars(made).items(), key=lambda item: _line(item[1])):
        if name.startswith("_") and name != "__call__":
            continue
        if isinstance(member, property):
            parts += [f"#### {made.__name__}.{name}", "", _words(member.fget), ""]
        elif inspect.isfunction(member) and inspect.getdoc(member):
            title = made.__name__.lower() if name == "__call__" else f"{made.__name__.lower()}.{name}"
            parts += [f"#### {made.__name__}.{name}" if name != "__call__" else f"#### {made.__name__}(…)", ""]
            parts += ["```python", _wrapped(title, inspect.signature(member)), "```", "", _words(member), ""]
    return parts


def _line(member: Any) -> int:
    code = getattr(getattr(member, "fget", member), "__code__", None)
    return code.co_firstlineno if code is not None else 0


def _words(thing: Any) -> str:
    """Return the documentation of a thing, its paragraphs as they are."""
    return inspect.getdoc(thing) or ""


# ---------------------------------------------------------------- commands


def commands() -> str:
    """Return the page of the command line."""
    parts = ["# Command line", "", "`tensorlang COMMAND …`. Exit codes: 0 all is well, 1 diagnostics, 2 wrong usage.", GENERATED]
    for name, command in app.commands.items():
        parts += [f"## {name}", "", inspect.cleandoc(command.help or ""), "", "| | |", "|---|---|", *map(_parameter, command.params), ""]
    parts = [part for k, part in enumerate(parts) if not (part in ("| | |", "|---|---|") and _is_empty(parts, k))]
    return "\n".join(parts)


def _is_empty(parts: list[str], at: int) -> bool:
    """Tell whether the table that begins around a line has no rows."""
    return next(part for part in parts[at:] if part not in ("| | |", "|---|---|")) == ""


def _parameter(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        shown = f"`{parameter.metavar or parameter.name.upper()}{' …' if parameter.nargs == -1 else ''}`"
    else:
        shown = ", ".join(f"`{o}`" for o in (*parameter.opts, *parameter.secondary_opts))
    default = parameter.default
    plain = isinstance(default, (str, int, float)) and not isinstance(default, bool) and default != ""
    said = (getattr(parameter, "help", None) or "") + (f" (default: {default})" if plain else "")
    return f"| {shown.replace('|', chr(92) + '|')} | {said.replace('|', chr(92) + '|')} |"


# ---------------------------------------------------------------- directives


def directives() -> str:
    """Return the page of the directives: how each is written, and where it is told."""
    parts = [
        "# Directives",
        "",
        "How each is written. The name leads to what it means, to the loops before and after, and to why it may be refused.",
        GENERATED,
    ]
    return "\n".join([*parts, *(f"- {where}: {TABLE[name].shape.removeprefix('write ')}" for name, where in _places()), ""])


def _places() -> Iterator[tuple[str, str]]:
    found: dict[str, str] = {}
    for page in sorted((ROOT / "docs" / "schedules").glob("*.md")):
        for heading in re.findall(r"^## (.*)$", page.read_text("utf-8"), re.MULTILINE):
            for word in heading.split(", "):
                if word in TABLE and page.stem != "pictures":
                    found[word] = f"[`{word}`](../schedules/{page.name}#{heading.replace(', ', '-')})"
    yield from sorted(found.items())


PAGES = {"api.md": api, "commands.md": commands, "directives.md": directives}


def main(arguments: list[str]) -> int:
    old = []
    for name, make in PAGES.items():
        path, text = FOLDER / name, make()
        if "--check" not in arguments:
            path.write_text(text, "utf-8")
        elif path.read_text("utf-8") != text:
            old.append(name)
            print(f"docs/reference/{name} is out of date: run `python scripts/reference.py`", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
