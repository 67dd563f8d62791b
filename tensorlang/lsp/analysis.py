"""What is known of a text while it is written: its declarations, and what is wrong with each.

A text is rarely right as a whole while somebody types. So declarations that cannot be read, or that name what is not there, are set aside
with their mistakes, and all others are checked as in a file without them. What a check found is kept by the text of the declaration and of
all that it uses: after an edit only what may have changed is checked again. Places are kept relative to declarations, which move.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from polyhedral.once import once
from tensorlang.bounded_cache import BoundedCache
from tensorlang.check.definition import Examined, Representative, examining, representative, unreachable_in, without_repetition
from tensorlang.check.laws import check_laws
from tensorlang.check.lint import UNUSED_DECLARATION, warnings_in
from tensorlang.check.module import Module, files_by, load_module, prelude
from tensorlang.check.trials import Attributes
from tensorlang.check.uses import Imports
from tensorlang.check.walk import descendants
from tensorlang.diagnostics import CompileError, Diagnostic, Label, Source, Span, error
from tensorlang.lsp.uses import EditorReader, Lost, Trees, lost_with, without_names_at
from tensorlang.policy.prove import prove_schedules
from tensorlang.policy.uncalled import check_schedules
from tensorlang.runtime.library import installed_roles, with_roles
from tensorlang.syntax import nodes as sx
from tensorlang.syntax import scanner
from tensorlang.syntax.parse import MAX_BYTES, parse_parts
from tensorlang.syntax.printer import show as show_syntax
from tensorlang.tensor.nodes import Program

KEPT = 4096
"""Results of checks that are kept, of all files together."""
KEPT_TEXTS = 64
"""Texts whose last syntax tree is kept."""
EARLY_SECONDS = 0.1
"""A first step of a check that took longer is not waited for before anything is said."""


class Superseded(Exception):
    """The text has changed while it was analysed."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The words of one declaration, read or not: what it declares, by its head, and where."""

    kind: str
    """`use`, `op`, `fn`, `reducer`, `schedule`, `tactic`, `instruction`, or "" for what is none."""
    name: str
    span: Span


class Analysis:
    """One version of a text. `diagnostics` is complete once `Analyser.analyse` has returned it."""

    def __init__(self, source: Source, file: sx.File, loaded: Loaded, chunks: Sequence[Chunk], reader: EditorReader) -> None:
        self.source, self.file, self.chunks, self.reader = source, file, tuple(chunks), reader
        self.module, self.imports = loaded.module, loaded.imports
        self.diagnostics: tuple[Diagnostic, ...] = ()
        self.partly: tuple[Examined, ...] = ()
        self._representatives: dict[str, Representative | None] = {}

    def representative(self, name: str) -> Representative | None:
        """Return an operator with its sizes as symbols, or None where it is not right for any choice that was tried."""
        if name not in self._representatives:
            self._representatives[name] = representative(self.module, name) if name in self.module.operators else None
        return self._representatives[name]

    def program(self, name: str) -> Program | None:
        """Return the program of `representative`."""
        found = self.representative(name)
        return found.program if found is not None else None

    def program_of(self, operator: sx.Operator) -> Program | None:
        """Return the program of an operator, of this file or a used one, whatever it is called here."""
        name = next((n for n, known in self.module.operators.items() if known is operator), None)
        return self.program(name) if name is not None else None

    def tree(self, source: Source) -> sx.File:
        """Return the syntax tree of a text that declares what is known here."""
        return self.file if source.name == self.source.name else self.reader.trees.of(source)

    def place(self, diagnostic: Diagnostic) -> Span | None:
        """Return the main place of a diagnostic: the first that lies in this text."""
        return first_place_in(diagnostic, self.source)

    def declaration_at(self, offset: int) -> sx.Declaration | None:
        """Return the declaration that was read around a character."""
        return next((d for d in self.file.declarations if d.span.start <= offset <= d.span.end), None)

    def chunk_at(self, offset: int) -> Chunk | None:
        """Return the words of the declaration, read or not, in which a character lies: the last one that begins before it."""
        found = [c for c in self.chunks if c.span.start <= offset]
        return found[-1] if found else None

    @once
    def comments(self) -> Mapping[int, str]:
        """The comment right above each declaration, by where that begins."""
        return {d.span.start: comment_above(self.file, d) for d in self.file.declarations}

    def covering(self, offset: int) -> list[Diagnostic]:
        """Return what is wrong at a character, by the main place of each."""
        return [d for d in self.diagnostics if (span := self.place(d)) is not None and span.start <= offset <= span.end]


def first_place_in(diagnostic: Diagnostic, source: Source) -> Span | None:
    """Return the first place of a diagnostic that lies in a text: what is wrong in a used file is said of the `use`."""
    return next((label.span for label in diagnostic.labels if label.span.source.name == source.name), None)


def shown_at_use(diagnostic: Diagnostic, analysis: Analysis) -> Diagnostic:
    """Return a diagnostic that has a place in the text: what lies in used files only is labelled at the `use` that leads there."""
    if not diagnostic.labels or analysis.place(diagnostic) is not None:
        return diagnostic
    wrong = diagnostic.labels[0].span.source.name
    for found in analysis.imports.names:
        if wrong in _sources(found.used.module):
            use = next(d for d in analysis.file.declarations if isinstance(d, sx.Use) and _inside(found.use.span, d))
            return replace(diagnostic, labels=(*diagnostic.labels, Label(use.place.span, "used here")))
    return diagnostic


def _sources(module: Module) -> set[str]:
    """Return the names of the texts that a file's operators, functions and reducers stand in, and those of the files that these use."""
    pending, met, found = [module], set[int](), set[str]()
    while pending:
        current = pending.pop()
        if id(current) in met:
            continue
        met.add(id(current))
        for names in (current.operators, current.functions, current.reducers):
            found |= {declaration.span.source.name for declaration in names.values()}
        pending += [*current.defining_modules.values(), *current.reducer_modules.values()]
    return found


def comment_above(file: sx.File, declaration: sx.Declaration) -> str:
    """Return the lines of comments right above a declaration, without their signs."""
    text, at, found = declaration.span.source.text, declaration.span.start, list[str]()
    own = {c.offset: c.text for c in file.comments if not c.inline}
    at = text.rfind("\n", 0, at)
    while at >= 0:
        start = text.rfind("\n", 0, at) + 1
        line = text[start:at]
        offset = start + len(line) - len(line.lstrip())
        if offset not in own:
            break
        found.append(own[offset].lstrip("#").removeprefix(" "))
        at = start - 1
    return "\n".join(reversed(found))


def chunks_of(source: Source, file: sx.File, *, whole: bool) -> list[Chunk]:
    """Return the declarations of a text by their heads, also of those that cannot be read; `whole`: all of them were."""
    if whole:
        return [_read_chunk(declaration) for declaration in file.declarations]
    return [_chunk(source, lexemes) for lexemes in scanner.split(scanner.scan(source).lexemes, source.text) if _words(lexemes)]


def _read_chunk(declaration: sx.Declaration) -> Chunk:
    match declaration:
        case sx.Use():
            return Chunk("use", "", declaration.span)
        case sx.Operator(name, needs=needs):
            kind = "instruction" if needs else "op"
        case sx.ScalarFunction(name):
            kind = "fn"
        case sx.Reducer(name):
            kind = "reducer"
        case sx.Schedule(name):
            kind = "schedule"
        case sx.Tactic(name):
            kind = "tactic"
    return Chunk(kind, name, declaration.span)


def _words(lexemes: Sequence[scanner.Token]) -> list[scanner.Token]:
    return [t for t in lexemes if t.type != "NEWLINE"]


_HEADS = frozenset(("use", "op", "fn", "reducer", "schedule", "tactic", "instruction"))


def _chunk(source: Source, lexemes: Sequence[scanner.Token]) -> Chunk:
    words = _words(lexemes)
    span = Span(source, words[0].start, words[-1].end)
    head = next((k for k, t in enumerate(words[:3]) if t.value in _HEADS), None)
    if head is None or words[head].value == "use":
        return Chunk("" if head is None else "use", "", span)
    at = head + 2 if words[head].value == "schedule" and [t.value for t in words[head + 1 : head + 2]] == ["role"] else head + 1
    name = words[at].value.strip("`") if at < len(words) else ""
    return Chunk(words[head].value, name, span)


# ---------------------------------------------------------------- analysing


@dataclass(frozen=True, slots=True)
class _Found:
    """What a check said, its places relative to the declarations (by name and kind) in which they lie."""

    diagnostics: tuple[tuple[Diagnostic, tuple[str | None, ...]], ...]
    examined: Examined | None = None


class Analyser:
    """Analyses texts, one at a time, and remembers what it found out."""

    def __init__(self) -> None:
        self._kept: BoundedCache[tuple[object, ...], _Found] = BoundedCache(KEPT)
        self._checked: BoundedCache[str, bool] = BoundedCache(KEPT)
        self._files: BoundedCache[tuple[str, str | None], sx.File] = BoundedCache(KEPT_TEXTS)
        self.last: BoundedCache[tuple[str, str], _Found] = BoundedCache(KEPT)
        """What was said last of a declaration: by the name of its text, and its own."""
        self.right: BoundedCache[tuple[str, str], list[Attributes]] = BoundedCache(KEPT)
        """For which attributes an operator was right when it was checked last: by the name of its text, and its own."""
        self.seconds: BoundedCache[str, float] = BoundedCache(KEPT)
        """How long the first step of the last check of a declaration took."""
        self._trees = Trees()
        self.checks = 0
        """How many checks were made, rather than remembered."""

    def warm(self) -> None:
        """Read what every text needs, before there is one."""
        prelude()
        installed_roles()

    def analyse(
        self,
        source: Source,
        stale: Callable[[], bool] = lambda: False,
        texts: Mapping[str, str] | None = None,
        early: Callable[[Analysis], None] | None = None,
    ) -> Analysis:
        """Return what there is to say about a text. `texts` stand for files that it may use, by their real paths; `early` is told what is
        known before checks that take long, and once what was edited has passed the first step of its check.

        Raises Superseded once `stale` says that nobody wants to know any more."""
        reader = EditorReader(texts or {}, self._trees)
        if len(source.text.encode("utf-8", "replace")) > MAX_BYTES:
            analysis = Analysis(source, sx.File(()), Loaded(load_module(sx.File(()))), (), reader)
            notes = (f"a file may have {MAX_BYTES} bytes",)
            analysis.diagnostics = error("P022", "this file is too large", Span(source, 0, 0), notes=notes).diagnostics
            return analysis
        file, problems = parse_parts(source, self._files.get((source.name, source.folder)))
        self._files.enter((source.name, source.folder), file)
        chunks = chunks_of(source, file, whole=not problems)
        if stale():
            raise Superseded
        unread = Lost(frozenset(_unread(chunks, file)), all=_misses_use(chunks, file))
        loaded = _loaded(source, file, unread, reader)
        analysis = Analysis(source, file, loaded, chunks, reader)
        checked = _Checks(self, analysis, stale, loaded.used_key)
        odd = [d for d in warnings_in(file) if not problems or d.code != UNUSED_DECLARATION]  # what cannot be read may use it

        def with_checks(said: Sequence[Diagnostic], analysis: Analysis) -> Analysis:
            found = without_repetition([placed_in(d, source) for d in (*problems, *loaded.problems, *said, *odd)])
            analysis.diagnostics = tuple(shown_at_use(diagnostic, analysis) for diagnostic in found)
            return analysis

        def tell(said: Sequence[Diagnostic]) -> None:
            if early is not None:
                early(with_checks(said, Analysis(source, file, loaded, chunks, reader)))

        with_checks(checked.run(tell if early is not None else None), analysis)
        analysis.partly = tuple(checked.partly)
        return analysis

    def knows(self, key: tuple[object, ...]) -> bool:
        """Tell whether a check needs not be made."""
        return key in self._kept

    def has_checked(self, text: str) -> bool:
        """Tell whether a declaration of such a text was checked lately."""
        return text in self._checked

    def remembered(self, key: tuple[object, ...]) -> _Found:
        """Return what a check said that `knows` tells of."""
        self._kept.move_to_end(key)
        return self._kept[key]

    def keep(self, key: tuple[object, ...], text: str, found: _Found) -> None:
        """Keep what a check of a declaration said, and of which text."""
        self.checks += 1
        self._kept.enter(key, found)
        self._checked.enter(text, True)


def _unread(chunks: Iterable[Chunk], file: sx.File) -> set[str]:
    """Return the names whose declarations could not be read."""
    read = {d.span.start for d in file.declarations}
    return {c.name for c in chunks if c.name and c.kind not in ("", "schedule") and c.span.start not in read}


def _misses_use(chunks: Iterable[Chunk], file: sx.File) -> bool:
    """Tell whether a `use` could not be read: nobody knows what it would bring."""
    read = {d.span.start for d in file.declarations}
    return any(c.kind == "use" and c.span.start not in read for c in chunks)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The names of the declarations that name nothing unknown, what the `use` lines among them bring, and what is wrong with the others.

    `used_key` tells apart all that the names of other files may mean."""

    module: Module
    imports: Imports = field(default_factory=Imports)
    problems: tuple[Diagnostic, ...] = ()
    used_key: str = ""


def _loaded(source: Source, file: sx.File, missing: Lost, reader: EditorReader) -> Loaded:
    """Return what a file's declarations name, without those that name something unknown; what they only miss because its declaration or
    `use` was set aside is no mistake of theirs."""
    kept, problems, lost = list(file.declarations), list[Diagnostic](), missing
    while True:
        uses = files_by(reader)
        readable = sx.File(tuple(kept))
        try:
            module = load_module(readable, uses=uses)
            return Loaded(module, uses.of(readable), tuple(problems), _used_key(readable, reader))
        except CompileError as problem:
            places = [place for p in problem.diagnostics if (place := first_place_in(p, source)) is not None]
            problems += [p for p in problem.diagnostics if not lost.explains(p)]
            left = [remaining for d in kept if (remaining := _without(d, places)) is not None]
            if len(left) == len(kept) and all(a is b for a, b in zip(left, kept, strict=True)):
                return Loaded(load_module(sx.File(())), problems=tuple(problems))
            lost |= _lost(kept, left)
            kept = left


def _without(declaration: sx.Declaration, places: Sequence[Span]) -> sx.Declaration | None:
    """Return what is right of a declaration: all, nothing, or a `use` without those of its names that are wrong."""
    wrong = [place for place in places if _inside(place, declaration)]
    if wrong and isinstance(declaration, sx.Use):
        return without_names_at(declaration, {(place.start, place.end) for place in wrong})
    return None if wrong else declaration


def _lost(before: Sequence[sx.Declaration], after: Sequence[sx.Declaration]) -> Lost:
    """Return the names that are known before and not after declarations were set aside."""
    remaining = {(type(d), d.name) for d in after if not isinstance(d, sx.Schedule | sx.Use)}
    own = {d.name for d in before if not isinstance(d, sx.Schedule | sx.Use) and (type(d), d.name) not in remaining}
    found = Lost(frozenset(own))
    for use in (d for d in before if isinstance(d, sx.Use)):
        same = next((d for d in after if isinstance(d, sx.Use) and d.span == use.span), None)
        if same is None:
            found |= lost_with(use)
        elif same.names != use.names:
            found |= Lost(lost_with(use).names - lost_with(same).names)
    return found


def _used_key(file: sx.File, reader: EditorReader) -> str:
    """Return a digest of the `use` lines of a file and of the texts that these lead to; "" for a file without any."""
    uses = [show_syntax(d) for d in file.declarations if isinstance(d, sx.Use)]
    if not uses:
        return ""
    texts = [part for name in sorted(reader.sources) for part in (name, reader.sources[name].text)]
    return hashlib.sha256("\0".join((*uses, *texts)).encode("utf-8", "surrogatepass")).hexdigest()


def _inside(span: Span | None, declaration: sx.Node) -> bool:
    return span is not None and declaration.span.start <= span.start and span.end <= declaration.span.end


Steps = Generator[_Found, None, _Found]
"""A check, which yields what it is likely to find."""


@dataclass(frozen=True, slots=True)
class _Task:
    """A check of one declaration; `key`: under which its places are found where it has no name of its own."""

    kind: str
    title: str
    declaration: sx.Declaration
    steps: Callable[[], Steps]
    key: str = ""


def _text(declaration: sx.Declaration) -> str:
    return declaration.span.source.text[declaration.span.start : declaration.span.end]


class _Checks:
    """The checks of one text, each of what may have changed only."""

    def __init__(self, analyser: Analyser, analysis: Analysis, stale: Callable[[], bool], used_key: str) -> None:
        self.used_key, self.used_names = used_key, {found.name for found in analysis.imports.names}
        self.analyser, self.analysis, self.module, self.stale = analyser, analysis, analysis.module, stale
        self.served = with_roles(self.module, installed_roles())
        self.partly: list[Examined] = []
        self.own: dict[str, sx.Declaration] = {}
        for declaration in analysis.file.declarations:
            if not isinstance(declaration, sx.Schedule):
                self.own.setdefault(_id(declaration), declaration)
        self._texts: dict[str, str] = {}
        self._uses: dict[str, frozenset[str]] = {}

    def run(self, early: Callable[[list[Diagnostic]], None] | None = None) -> list[Diagnostic]:
        """Return what all checks say. What was edited is checked before what uses it, and `early` is told what is known once the first
        step of that is done, and before a first step that took long last time: of declarations that are not checked yet, what was said
        of them last."""
        tasks, found = [*self._tasks()], dict[int, _Found]()
        keys = [(task.kind, self._closure(task.declaration)) for task in tasks]
        for k, key in enumerate(keys):
            if self.analyser.knows(key):
                found[k] = self.analyser.remembered(key)
        waiting = [k for k in range(len(tasks)) if k not in found]
        edited = [k for k in waiting if not self.analyser.has_checked(_text(tasks[k].declaration))]
        begun: dict[int, Steps] = {}
        likely: dict[int, _Found] = {}

        def tell() -> None:
            if early is not None:
                early([*self._said(tasks, {**self._before(tasks), **likely, **found})])

        def advance(k: int, steps: Steps) -> bool:
            if self.stale():
                raise Superseded
            try:
                likely[k] = next(steps)
            except StopIteration as end:
                found[k] = end.value
                self.analyser.keep(keys[k], _text(tasks[k].declaration), found[k])
                return False
            return True

        for k in edited:
            if self.analyser.seconds.get(tasks[k].title, 0.0) > EARLY_SECONDS:
                tell()
            began, steps = time.monotonic(), tasks[k].steps()
            if advance(k, steps):
                begun[k] = steps
            self.analyser.seconds.enter(tasks[k].title, time.monotonic() - began)
        if edited and len(found) < len(tasks):
            tell()
        for k in (*begun, *(k for k in waiting if k not in edited)):
            steps = begun.get(k) or tasks[k].steps()
            while advance(k, steps):
                pass
        self.partly += [f.examined for k in sorted(found) if (f := found[k]).examined and (f.examined.assumed or f.examined.unchecked)]
        for k, task in enumerate(tasks):
            self.analyser.last.enter((self.analysis.source.name, task.title), found[k])
        return [*self._said(tasks, found)]

    def _tasks(self) -> Iterator[_Task]:
        for name in self.module.operators:
            if name in self.module.declared:
                yield _Task("op", f"op {name}", self.module.operators[name], lambda name=name: self._examining(name))  # type: ignore[misc]
        for name in self.module.reducers:
            if name in self.module.declared_reducers:
                laws = lambda name=name: self._at_once(lambda: check_laws(self.module, name))  # noqa: E731
                yield _Task("reducer", f"reducer {name}", self.module.reducers[name], laws)
        for number, schedule in enumerate(self.module.schedules[: self.module.declared_schedules]):
            key = f"schedule {schedule.span.start}"
            self.own[key] = schedule
            proof = lambda schedule=schedule: self._at_once(lambda: self.refusals(schedule))  # noqa: E731
            yield _Task("schedule", f"schedule {schedule.operator} {number}", schedule, proof, key)

    def _before(self, tasks: Sequence[_Task]) -> dict[int, _Found]:
        """Return what was said last of the declarations that are still there."""
        last, name = self.analyser.last, self.analysis.source.name
        return {k: last[name, task.title] for k, task in enumerate(tasks) if (name, task.title) in last}

    def _said(self, tasks: Sequence[_Task], found: Mapping[int, _Found]) -> Iterator[Diagnostic]:
        for k in sorted(found):
            yield from self._placed(found[k], tasks[k].key)

    def refusals(self, schedule: sx.Schedule) -> list[Diagnostic]:
        return refusals(self.served, schedule)

    def _at_once(self, check: Callable[[], Iterable[Diagnostic]]) -> Steps:
        """Do a check that has one step."""
        return self._relative(check())
        yield

    def _examining(self, name: str) -> Steps:
        right = self.analyser.right.used((self.analysis.source.name, name), list)
        steps = examining(self.module, name, right)
        while True:
            try:
                yield self._relative(next(steps))
            except StopIteration as end:
                found: Examined = end.value
                break
        odd = [] if found.problems else unreachable_in(self.module, name)
        return replace(self._relative([*found.problems, *odd]), examined=replace(found, problems=()))

    # ---- what a declaration depends on

    def _closure(self, declaration: sx.Declaration) -> tuple[str, ...]:
        """Return the texts of a declaration and of all of the file that it uses, directly or through others, and the key of what other
        files bring if it depends on that: by its names, or as a schedule beside theirs."""
        pending, seen, texts = [declaration], set[int](), list[str]()
        beyond = isinstance(declaration, sx.Schedule)
        while pending:
            current = pending.pop()
            if id(current) in seen:
                continue
            seen.add(id(current))
            texts.append(current.span.source.text[current.span.start : current.span.end])
            beyond = beyond or not self.used_names.isdisjoint(self._used(current))
            pending += [self.own[other] for name in sorted(self._used(current)) for other in _ids(name) if other in self.own]
        return (*texts, self.used_key) if beyond else tuple(texts)

    def _used(self, declaration: sx.Declaration) -> frozenset[str]:
        key = f"{declaration.span.start}"
        if key not in self._uses:
            self._uses[key] = frozenset(_mentioned(declaration))
        return self._uses[key]

    # ---- places that move

    def _relative(self, diagnostics: Iterable[Diagnostic]) -> _Found:
        """Return diagnostics with places relative to the declarations of the file in which they lie."""
        found = []
        for diagnostic in diagnostics:
            homes = tuple(self._home(span) for span in spans_of(diagnostic))
            found.append((moved(diagnostic, [-self._start(home, "") for home in homes]), homes))
        return _Found(tuple(found))

    def _placed(self, found: _Found, schedule: str = "") -> Iterator[Diagnostic]:
        for diagnostic, homes in found.diagnostics:
            yield moved(diagnostic, [self._start(home, schedule) for home in homes], self.analysis.source)

    def _home(self, span: Span) -> str | None:
        if span.source.name != self.analysis.source.name:
            return None
        return next((key for key, d in self.own.items() if _inside(span, d)), None)

    def _start(self, home: str | None, schedule: str) -> int:
        if home is None:
            return 0
        key = schedule if home.startswith("schedule ") and schedule else home
        return self.own[key].span.start if key in self.own else 0


def refusals(served: Module, schedule: sx.Schedule, *, replaying: bool = False) -> list[Diagnostic]:
    """Return why one schedule of a module is refused; with `replaying`, also what it would have computed."""
    others = tuple(s for s in served.schedules[served.declared_schedules :])
    alone = replace(served, schedules=(schedule, *others), declared_schedules=1)
    return check_schedules(alone) or prove_schedules(alone, replaying=replaying)


def spans_of(diagnostic: Diagnostic) -> list[Span]:
    """Return every place that a diagnostic names: its labels', then its edits'."""
    return [*(label.span for label in diagnostic.labels), *(edit.span for edit in getattr(diagnostic, "edits", ()))]


def moved(diagnostic: Diagnostic, by: Sequence[int], source: Source | None = None) -> Diagnostic:
    """Return a diagnostic with its places, in the order of `spans_of`, moved by so many characters, those that move into `source`."""

    def shift(span: Span, count: int) -> Span:
        if not count and (source is None or span.source.name != source.name):
            return span
        return Span(source or span.source, span.start + count, span.end + count)

    count = len(diagnostic.labels)
    labels = tuple(Label(shift(label.span, k), label.text) for label, k in zip(diagnostic.labels, by, strict=False))
    edits = getattr(diagnostic, "edits", ())
    if not edits:
        return replace(diagnostic, labels=labels)
    shifted = tuple(replace(edit, span=shift(edit.span, k)) for edit, k in zip(edits, by[count:], strict=True))
    changed: Any = replace
    moved_with_edits: Diagnostic = changed(diagnostic, labels=labels, edits=shifted)
    return moved_with_edits


def placed_in(diagnostic: Diagnostic, source: Source) -> Diagnostic:
    """Return a diagnostic whose places in earlier versions of a text are in this one: nothing in front of them has changed."""
    return moved(diagnostic, [0] * len(spans_of(diagnostic)), source)


def _id(declaration: sx.Declaration) -> str:
    match declaration:
        case sx.Reducer():
            return f"reducer {declaration.name}"
        case sx.Tactic():
            return f"tactic {declaration.name}"
        case sx.Schedule():
            return f"schedule {declaration.span.start}"
        case sx.Use():
            return f"use {declaration.span.start}"
        case _:
            return f"op {declaration.name}"


def _ids(name: str) -> tuple[str, ...]:
    return f"op {name}", f"reducer {name}", f"tactic {name}"


def _mentioned(declaration: sx.Declaration) -> Iterator[str]:
    """Yield every name in a declaration that may be another one's."""
    if isinstance(declaration, sx.Schedule):
        yield declaration.operator
    for node in descendants(declaration):
        match node:
            case sx.Apply(name) | sx.Id(name) | sx.Index(name):
                yield name
            case sx.Reduction(reducer):
                yield reducer
            case sx.Directive(name):
                yield name
            case _:
                pass
