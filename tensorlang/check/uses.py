"""What the `use` lines of a file bring: declarations of other files, each with the file whose names it speaks in.

A file is read and checked once, whoever uses it; files that use each other are refused. What a used file uses itself stays with it, and so
does what begins with `_`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tensorlang.check.problems import did_you_mean, error, labelled
from tensorlang.check.types import BUILTINS
from tensorlang.diagnostics import CompileError, Diagnostic, Label, Source, Span
from tensorlang.syntax import modules, parse
from tensorlang.syntax import nodes as sx

if TYPE_CHECKING:
    from tensorlang.check.module import Module

Named: TypeAlias = sx.Operator | sx.ScalarFunction | sx.Reducer | sx.Tactic
"""What is used by its name."""

MAX_DEPTH = 64
"""How many files may stand between a file and one that it uses."""


@dataclass(frozen=True, slots=True)
class Used:
    """A file that is used: `stem` is short for it in names that are made up."""

    key: str
    stem: str
    file: sx.File
    module: Module

    def exports(self) -> dict[str, list[Named]]:
        """Return what other files may use, by name: an operator or function, a reducer and a tactic may share one."""
        found: dict[str, list[Named]] = {}
        for declaration in self.file.declarations:
            if isinstance(declaration, Named) and not declaration.name.startswith("_"):
                found.setdefault(declaration.name, []).append(declaration)
        return found


@dataclass(frozen=True, slots=True)
class Import:
    """A declaration of another file under the name it has here."""

    name: str
    declaration: Named
    used: Used
    use: sx.Node

    @property
    def space(self) -> str:
        return space_of(self.declaration)


@dataclass(frozen=True, slots=True)
class Imports:
    """All that the `use` lines of a file bring. `whole`: files whose schedules of roles serve here too."""

    names: tuple[Import, ...] = ()
    whole: tuple[Used, ...] = ()


def space_of(declaration: Named) -> str:
    """Return which names a declaration's must differ from."""
    return {"Reducer": "reducer", "Tactic": "tactic"}.get(type(declaration).__name__, "operator or function")


def place_of(declaration: sx.Node) -> Span:
    """Return where a declaration states its name."""
    return declaration.name_span if isinstance(declaration, sx.Operator) and declaration.name_span.end else declaration.span


class Reader:
    """How used files are read: from the disk. What has texts of its own, as an editor does, says so in a class below this one."""

    def opened(self, path: Path) -> Source | None:
        """Return the text that stands for a file, or None for the one on the disk."""
        return None

    def parsed(self, source: Source) -> sx.File:
        """Return the syntax tree of a used file. Raises CompileError with P codes."""
        return parse.parse(source)


@dataclass
class Uses:
    """The files that one program uses, directly or through others."""

    load: Callable[[sx.File, Uses], Module]
    reader: Reader = field(default_factory=Reader)
    _found: dict[str, Used] = field(default_factory=dict)
    _broken: set[str] = field(default_factory=set)
    _open: list[tuple[str, sx.Use]] = field(default_factory=list)
    """The files that are being read, each with the `use` in it that is being followed."""

    def of(self, file: sx.File) -> Imports:
        """Return what a file's `use` lines bring.

        Raises CompileError with T0190 (no such file or module), T0191 (it has no such name), T0192 (files use each other), T0193 (a
        relative path in a text that lies nowhere), P014 (too many files one inside the other), and with what is wrong with the files."""
        problems: list[Diagnostic] = []
        names: list[Import] = []
        whole: list[Used] = []
        failed = False
        for use in (d for d in file.declarations if isinstance(d, sx.Use)):
            try:
                self._open.append((_key_of(file, use), use))
                if len(self._open) > MAX_DEPTH:
                    title = f"files are used through more than {MAX_DEPTH} others"
                    raise error("P014", title, use.span, "one more here", help="use the file that declares what is needed")
                found, everything = self._brought(use)
                names += found
                whole += everything
            except CompileError as problem:  # without a word where the file's mistakes were told before
                failed = True
                problems += problem.diagnostics
            finally:
                self._open.pop()
        if failed:
            raise CompileError(*problems)
        return Imports(tuple(names), tuple(whole))

    def _brought(self, use: sx.Use) -> tuple[list[Import], list[Used]]:
        if isinstance(use.place, sx.Text):
            path = path_of(use.place)
            files = [self._file(use, os.path.realpath(path), path.stem, lambda: _source(use, path, self.reader))]
            return _named(use, files, use.names)
        place = _place(use, use.place.name)
        if place.name is not None and use.names:
            title = f"`{use.place.name}` is one name, not a module"
            raise error("T0190", title, use.place.span, "used here", help=f"write `use {place.title} ({place.name}, …)`")
        if place.name is not None:
            names: tuple[sx.UsedName, ...] = (sx.UsedName(place.name, use.alias, span=use.place.span),)
            use = replace(use, alias=None)
        else:
            names = use.names
        wanted = place.modules if not names else tuple(m for m in place.modules if any(m in place.having(n.name) for n in names))
        return _named(use, [self._module(use, m) for m in wanted], names, place)

    def _module(self, use: sx.Use, module: modules.Module) -> Used:
        return self._file(use, os.path.realpath(module.path), module.title, lambda: module.source(self.reader.opened))

    def _file(self, use: sx.Use, key: str, stem: str, read: Callable[[], Source]) -> Used:
        """Return a file, read and checked. Raises CompileError for its mistakes, which are told once."""
        self._refuse_cycle(key)
        if key in self._broken:
            raise CompileError
        if key not in self._found:
            try:
                file = self.reader.parsed(read())
                self._found[key] = Used(key, stem, file, self.load(file, self))
            except CompileError as problem:
                self._broken.add(key)
                raise CompileError(*(_used_at(use, d) for d in problem.diagnostics)) from None
        return self._found[key]

    def _refuse_cycle(self, key: str) -> None:
        start = next((k for k, (opened, _) in enumerate(self._open) if opened == key), None)
        if start is None:
            return
        round_trip = [use for _, use in self._open[start:]]
        shown = " → ".join(f"`{use.span.source.name}`" for use in (*round_trip, round_trip[0]))
        title = f"{shown.split(' → ')[0]} uses itself" if len(round_trip) == 1 else "files use each other"
        labels = [(use.place.span, "uses the next" if use is not round_trip[-1] else "uses the first") for use in round_trip]
        help = "move what they share into a file of its own, and let each use that"
        raise labelled("T0192", title, labels if len(round_trip) > 1 else [(round_trip[0].place.span, "here")], notes=(shown,), help=help)


def _key_of(file: sx.File, use: sx.Use) -> str:
    """Return the key of a file: where it lies, or for a text nothing that any path is."""
    source = use.span.source
    return os.path.realpath(Path(source.folder, Path(source.name).name)) if source.folder is not None else f"\0{source.name}"


def _used_at(use: sx.Use, problem: Diagnostic) -> Diagnostic:
    """Return the problem of a used file with the place that uses it."""
    if any(label.span == use.place.span for label in problem.labels):
        return problem
    return replace(problem, labels=(*problem.labels, Label(use.place.span, "used here")))


# ---------------------------------------------------------------- files and modules


def path_of(place: sx.Text) -> Path:
    """Return the path that a `use` writes. Raises CompileError T0190 for what is none, T0193 for one relative to nothing."""
    written, folder = place.value, place.span.source.folder
    if not written.isprintable() or not written.endswith(".tl") or written.endswith("/.tl"):
        close = (
            f'write `use "{written}.tl"`'
            if "." not in Path(written).name and re.fullmatch(r"[\w.][\w./-]*\w", written)
            else "the name of a file ends in `.tl`"
        )
        if written.endswith(".py"):
            close = "only `.tl` files are used; a function of Python may stand for an `extern op`: `tl.load(…, externs={'f': f})`"
        raise error("T0190", "this is not the path of a `.tl` file", place.span, "used here", help=close)
    if os.path.isabs(written):
        return Path(written)
    if folder is None:
        help = 'say where it lies: `tl.parse(text, base="folder")`, or write the text to a file and load that'
        raise error("T0193", f"`{written}` is relative to a text that lies in no folder", place.span, "used here", help=help)
    return Path(os.path.normpath(os.path.join(folder, written)))


def _source(use: sx.Use, path: Path, reader: Reader) -> Source:
    """Return the text of a file. Raises CompileError T0190 when there is none, P020 to P023 when it cannot be read."""
    opened = reader.opened(path)
    if opened is None and not os.path.isfile(path) and not os.path.isdir(path):
        there = [p.name for p in path.parent.glob("*.tl")] if os.path.isdir(path.parent) else []
        near = parse.nearest_file(path.name, there)
        close = f"did you mean `{near}`?" if near is not None else "paths are relative to the file that they stand in"
        title = f"`{path}` is not an ordinary file" if os.path.exists(path) else f"there is no file `{path}`"
        raise error("T0190", title, use.place.span, "used here", help=close)
    source, outer = opened or parse.load(path), use.place.span.source
    if os.path.isabs(outer.folder or "") and not os.path.isabs(outer.name) and not outer.name.startswith("<"):  # shown by another name
        shown = os.path.join(os.path.dirname(outer.name), os.path.relpath(path, outer.folder))
        return replace(source, name=os.path.normpath(shown))
    return source


def _place(use: sx.Use, path: str) -> modules.Place:
    """Return what a path of words means. Raises CompileError T0190."""
    found = modules.find(path)
    if found is not None and (found.name is None or any(found.name in m.names() for m in found.modules)):
        return found
    prefixes = modules.packages()
    first, last = path.partition(".")[0], path.rpartition(".")[2]
    known = [*prefixes, *(m.title for m in modules.modules())]
    beside = Path(use.place.span.source.folder or "/", f"{path}.tl")
    if use.place.span.source.folder is not None and beside.is_file():
        help: str | None = f'write `use "{path}.tl"`: a file is named by its path'
    elif not prefixes:
        help = "install tensorlang as a package: modules are found by its metadata"
    elif (declaring := modules_with(path)) and "." not in path:
        help = f"`{path}` is declared by a module: write `use {declaring[0]} ({path})`"
    elif first not in {p.split(".")[0] for p in prefixes}:
        help = did_you_mean(path, known, f'installed packages offer {_listed(prefixes)}; a file is named by its path: `use "{first}.tl"`')
    elif found is not None and _is_everywhere(last):
        help = f"`{last}` is known in every file: leave this line out"
    else:
        below = [m.title for m in modules.modules() if m.title.split(".")[0] == first]
        inside = {f"{m.title}.{name}" for m in modules.modules() if m.title.split(".")[0] == first for name in m.names()}
        help = did_you_mean(path, [*known, *inside], f"there are {_listed(below)}")
    raise error("T0190", f"there is no module `{path}`", use.place.span, "used here", help=help)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# ---------------------------------------------------------------- names


def _named(
    use: sx.Use, files: list[Used], names: tuple[sx.UsedName, ...], place: modules.Place | None = None
) -> tuple[list[Import], list[Used]]:
    """Return the imports that a `use` asks for, and the files that it uses as a whole."""
    exports = [(used, used.exports()) for used in files]
    if not names:
        prefix = f"{use.alias}." if use.alias is not None else ""
        return [Import(f"{prefix}{n}", d, used, use) for used, found in exports for n, ds in found.items() for d in ds], files
    out: list[Import] = []
    problems: list[Diagnostic] = []
    for name in names:
        found = [Import(name.alias or name.name, d, used, name) for used, own in exports for d in own.get(name.name, ())]
        if not found:
            problems += _no_name(use, name, files, place).diagnostics
        elif len({i.used.key for i in found}) > 1:
            several = _listed(f"use {i.used.stem} ({name.name})" for i in found)
            title = f"several modules of `{place.title if place else ''}` have `{name.name}`"
            problems += error("T0102", title, name.span, "used here", help=f"say which: {several}").diagnostics
        out += found
    if problems:
        raise CompileError(*problems)
    return out, []


def _no_name(use: sx.Use, name: sx.UsedName, files: list[Used], place: modules.Place | None) -> CompileError:
    known: list[str] = [n for used in files for n in used.exports()]
    if place is not None and len(place.modules) > 1:
        known = [n for m in place.modules for n in m.names()]
    title = place.title if place is not None else files[0].file.span.source.name
    hidden = any(getattr(d, "name", None) == name.name for used in files for d in used.file.declarations)
    help = did_you_mean(name.name, known, f"it has {_listed(sorted(known))}" if 0 < len(known) <= 12 else None)
    if hidden and name.name.startswith("_"):
        help = "what begins with `_` stays in its file: give it another name there"
    elif place is not None and _is_everywhere(name.name):
        help = f"`{name.name}` is known in every file: leave it out"
    elif place is not None and (elsewhere := modules_with(name.name)):
        help = f"write `use {elsewhere[0]} ({name.name})`"
    return error("T0191", f"`{title}` has no `{name.name}`", name.span, "used here", help=help)


def _is_everywhere(name: str) -> bool:
    """Whether every file knows a function or reducer of this name."""
    from tensorlang.check.module import prelude  # which reads a file itself

    return name in BUILTINS or name in prelude().functions or name in prelude().reducers


def modules_with(name: str) -> list[str]:
    """Return the modules of installed packages that declare `name`, those of the standard library first."""
    return sorted((m.title for m in modules.modules() if name in m.names()), key=lambda title: (not title.startswith("std."), title))


def lines_for(name: str) -> str | None:
    """Return what to write so that a name means something that an installed package has, or None."""
    *path, last = name.split(".")
    found = modules_with(last)
    if path and ".".join(path) not in (*found, *modules.packages()):
        return None
    if not found:
        return None
    call = f", and call `{last}(…)`" if path else ""
    others = f"; {_listed(found[1:])} {'have' if len(found) > 2 else 'has'} one too" if len(found) > 1 else ""
    return f"write `use {found[0]} ({last})` at the top of the file{call}{others}"


# ---------------------------------------------------------------- schedules


@dataclass
class ImportedSchedules:
    """Schedules of used files, with the tactics and instructions that they need, in names that mean these here.

    `tactics` and `instructions` begin as those that the file itself sees."""

    tactics: dict[str, sx.Tactic]
    instructions: dict[str, sx.Operator]
    schedules: list[sx.Schedule] = field(default_factory=list)
    hidden: dict[str, Module] = field(default_factory=dict)
    """In whose names the instructions speak that nothing but a schedule needs."""
    _known: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """The name here of what a file has under a kind and a name."""

    def take(self, imports: Imports) -> None:
        """Add what the imports bring."""
        for found in imports.names:
            self._known.setdefault((found.used.key, found.space, found.declaration.name), found.name)
        for found in imports.names:
            if isinstance(found.declaration, sx.Tactic):
                self.tactics[found.name] = self._tactic(found.used, found.declaration, found.name)
            elif isinstance(found.declaration, sx.Operator) and found.declaration.needs:
                self.instructions[found.name] = replace(found.declaration, name=found.name)
        operators = {(i.used.key, i.declaration.name): i for i in imports.names if isinstance(i.declaration, sx.Operator)}
        for (_, name), found in operators.items():
            for schedule in _own_schedules(found.used):
                if schedule.role is None and schedule.operator == name:
                    self._add(found.used, replace(schedule, operator=found.name))
        for used in {used.key: used for used in imports.whole}.values():
            for schedule in _own_schedules(used):
                if schedule.role is not None:
                    self._add(used, schedule)

    def _add(self, used: Used, schedule: sx.Schedule) -> None:
        self.schedules.append(replace(schedule, body=self._body(used, schedule.body)))

    def _tactic(self, used: Used, tactic: sx.Tactic, name: str) -> sx.Tactic:
        return replace(tactic, name=name, body=self._body(used, tactic.body))

    def _body(self, used: Used, body: tuple[sx.Directive | sx.Knobs, ...]) -> tuple[sx.Directive | sx.Knobs, ...]:
        return tuple(self._directive(used, part) if isinstance(part, sx.Directive) else part for part in body)

    def _directive(self, used: Used, part: sx.Directive) -> sx.Directive:
        if part.call and part.name in used.module.tactics:
            return replace(part, name=self._name_of(used, "tactic", part.name))
        if part.name == "tensorize":
            phrases = tuple(replace(p, operands=tuple(self._operand(used, o) for o in p.operands)) for p in part.phrases)
            return replace(part, phrases=phrases)
        return part

    def _operand(self, used: Used, operand: sx.Expr | sx.Layout) -> sx.Expr | sx.Layout:
        if isinstance(operand, sx.Id) and operand.name in used.module.instructions:
            return replace(operand, name=self._name_of(used, "operator or function", operand.name))
        return operand

    def _name_of(self, used: Used, space: str, name: str) -> str:
        """Return what a tactic or an instruction that `used` sees is called here; it is brought along if it is not here yet."""
        key = (used.key, space, name)
        if key not in self._known:
            taken: Mapping[str, object] = self.tactics if space == "tactic" else self.instructions
            short = re.sub(r"\W", "_", used.stem.rpartition(".")[2])
            here = next(n for k in range(len(taken) + 1) if (n := f"{short}{k or ''}.{name}") not in taken)
            self._known[key] = here  # known before its body is read, which may call it
            if space == "tactic":
                self.tactics[here] = used.module.tactics[name]
                self.tactics[here] = self._tactic(used, used.module.tactics[name], here)
            else:
                self.instructions[here] = replace(used.module.instructions[name], name=here)
                self.hidden[here] = used.module.defining_module(name)
        return self._known[key]


def _own_schedules(used: Used) -> tuple[sx.Schedule, ...]:
    return used.module.schedules[: used.module.declared_schedules]
