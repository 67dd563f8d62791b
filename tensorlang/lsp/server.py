"""The language server over standard input and output: `tensorlang lsp`.

Texts are analysed on one thread of their own, as proofs are answered by a library that serves one thread. An edit waits
`DEBOUNCE_SECONDS` for the next one, and an analysis that an edit overtakes ends between two checks. A question about a text is answered
once the version that the editor has is analysed. A text is analysed again when a file that it uses changes, in the editor or on the disk.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Never, TypeVar, cast
from urllib.parse import unquote, urlsplit

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from codegen.forks import import_whole
from tensorlang import __version__
from tensorlang.check.lint import UNUSED
from tensorlang.diagnostics import CompileError, Diagnostic, Edit, Source, Span
from tensorlang.lsp.analysis import Analyser, Analysis, Superseded, refusals
from tensorlang.lsp.completion import Sort, completions
from tensorlang.lsp.hover import hover
from tensorlang.lsp.names import declared_name, meaning, name_span, word_at
from tensorlang.lsp.places import Encoding, Places
from tensorlang.lsp.uses import missing_lines
from tensorlang.runtime.library import installed_roles, with_roles
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.format import fmt

DEBOUNCE_SECONDS = 0.02
IDLE_SECONDS = 5.0
"""After so long without an edit everything unreachable is collected: among all that is kept that takes longer than an edit may."""
NAME = "tensorlang"
_NEEDED_LATER = ("polyhedral.sets", "tensorlang.check.laws", "tensorlang.syntax.modules")
"""What checking imports when it first comes to need it: nobody who types is to wait for that."""

T = TypeVar("T")

_ITEM_KINDS: dict[Sort, types.CompletionItemKind] = {
    "keyword": types.CompletionItemKind.Keyword,
    "operator": types.CompletionItemKind.Function,
    "function": types.CompletionItemKind.Function,
    "reducer": types.CompletionItemKind.Operator,
    "directive": types.CompletionItemKind.Method,
    "tactic": types.CompletionItemKind.Module,
    "loop": types.CompletionItemKind.Variable,
    "tensor": types.CompletionItemKind.Field,
    "type": types.CompletionItemKind.TypeParameter,
    "constant": types.CompletionItemKind.Constant,
    "name": types.CompletionItemKind.Text,
    "module": types.CompletionItemKind.Module,
    "file": types.CompletionItemKind.File,
}

_SYMBOL_KINDS = {
    sx.Use: types.SymbolKind.Namespace,
    sx.Operator: types.SymbolKind.Function,
    sx.ScalarFunction: types.SymbolKind.Function,
    sx.Reducer: types.SymbolKind.Operator,
    sx.Schedule: types.SymbolKind.Event,
    sx.Tactic: types.SymbolKind.Module,
}


@dataclass(slots=True)
class Document:
    """What the server has of an open text: its last analysis with the version that was analysed."""

    path: str | None = None
    """The real path of a text that is a file."""
    analysis: Analysis | None = None
    version: int | None = None
    newest: int = 0
    """Counts changes: an analysis that was begun for an earlier one is stale."""
    waiting: asyncio.Task[None] | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Server(LanguageServer):
    """A language server with what it knows of each open text."""

    def __init__(self) -> None:
        super().__init__(NAME, __version__, text_document_sync_kind=types.TextDocumentSyncKind.Incremental)
        self.analyser = Analyser()
        self.worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="analysis")
        self.documents: dict[str, Document] = {}
        self._idle: asyncio.TimerHandle | None = None

    async def on_worker(self, run: Callable[[], T]) -> T:
        """Return what `run` returns on the thread that proofs are made on."""
        return await asyncio.get_running_loop().run_in_executor(self.worker, run)

    def places(self, text: str) -> Places:
        """Return the places of a text in the units that the editor counts in."""
        encoding = self.server_capabilities.position_encoding
        return Places(text, cast(Encoding, str(getattr(encoding, "value", encoding) or "utf-16")))

    def text(self, uri: str) -> tuple[str, int | None]:
        """Return an open text as the editor has it, and its version."""
        document = self.workspace.get_text_document(uri)
        return document.source, document.version

    # ---- analysing

    def changed(self, uri: str) -> None:
        """Have a text analysed a moment later, unless it changes again before, and those that use it."""
        document = self.documents.setdefault(uri, Document(path_of(uri)))
        self._analyse(uri, document)
        if document.path is not None:
            self.used_changed({document.path})

    def used_changed(self, paths: set[str]) -> None:
        """Have the texts analysed again that use one of some files, real paths."""
        for uri, document in self.documents.items():
            if document.analysis is not None and document.path not in paths and not paths.isdisjoint(document.analysis.reader.probed):
                self._analyse(uri, document)

    def _analyse(self, uri: str, document: Document) -> None:
        document.newest += 1
        document.done.clear()
        if self._idle is not None:
            self._idle.cancel()
        if document.waiting is not None and not document.waiting.done():
            document.waiting.cancel()
        document.waiting = asyncio.get_running_loop().create_task(self._analyse_soon(uri, document, document.newest))

    async def _analyse_soon(self, uri: str, document: Document, count: int) -> None:
        await asyncio.sleep(DEBOUNCE_SECONDS)
        text, version = self.text(uri)
        source = Source(name_of(uri), text, folder=folder_of(uri))
        texts = self.texts()

        def stale() -> bool:
            return document.newest != count

        try:
            loop = asyncio.get_running_loop()

            def early(partial: Analysis) -> None:
                loop.call_soon_threadsafe(self._publish_early, uri, document, count, version, partial)

            analysis = await self.on_worker(lambda: self.analyser.analyse(source, stale, texts, early))
        except Superseded:
            return
        except Exception as problem:  # a defect of ours: the editor goes on without us
            self.report(problem)
            document.analysis = None
            document.done.set()
            return
        if stale() or uri not in self.documents:
            return
        document.analysis, document.version = analysis, version
        now = self.texts()
        if any(now.get(path) != texts.get(path) for path in analysis.reader.probed):
            self._analyse(uri, document)  # a used file has changed meanwhile
            return
        document.done.set()
        found = self.published(uri, analysis)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, version))
        await self.collect_garbage()

    async def collect_garbage(self) -> None:
        """Collect what an analysis leaves behind, and all that is unreachable once nobody types. Nothing else does: `serve` sees to it."""
        await self.on_worker(lambda: gc.collect(1))
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, lambda: self.worker.submit(gc.collect))

    def _publish_early(self, uri: str, document: Document, count: int, version: int | None, partial: Analysis) -> None:
        """Show what is known of a text while the rest of it is checked."""
        if document.newest == count and self.documents.get(uri) is document and not document.done.is_set():
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, self.published(uri, partial), version))

    def texts(self) -> dict[str, str]:
        """Return the texts of the open files by their real paths."""
        return {document.path: self.text(uri)[0] for uri, document in self.documents.items() if document.path is not None}

    def report(self, problem: Exception) -> None:
        """Tell the editor's log of a defect."""
        detail = "".join(traceback.format_exception(problem))
        self.window_log_message(types.LogMessageParams(types.MessageType.Error, f"tensorlang: internal error\n{detail}"))

    def closed(self, uri: str) -> None:
        """Forget a text, and take its diagnostics away."""
        document = self.documents.pop(uri, None)
        if document is not None:
            document.newest += 1
            document.done.set()
            if document.path is not None:
                self.used_changed({document.path})
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    async def current(self, uri: str) -> Analysis | None:
        """Return the analysis of a text as the editor has it, once there is one; None when it was closed, or a defect of ours kept it
        from being analysed."""
        while True:
            document = self.documents.get(uri)
            if document is None:
                return None
            await asyncio.wait_for(document.done.wait(), timeout=60)
            if self.documents.get(uri) is document and document.done.is_set():
                return document.analysis

    # ---- what editors are told

    def published(self, uri: str, analysis: Analysis) -> list[types.Diagnostic]:
        """Return what is wrong with a text, and what of it was not checked in full."""
        places = self.places(analysis.source.text)
        found = [self.diagnostic(uri, analysis, places, d) for d in analysis.diagnostics]
        for examined in analysis.partly:
            where = name_span(analysis.module.operators[examined.operator])
            found.append(types.Diagnostic(span_range(places, where), str(examined), types.DiagnosticSeverity.Information, source=NAME))
        return found

    def diagnostic(self, uri: str, analysis: Analysis, places: Places, diagnostic: Diagnostic) -> types.Diagnostic:
        """Return a diagnostic as editors show it: at its first place in this text, its other places, also those in used files, beside."""
        main = next((label for label in diagnostic.labels if label.span.source.name == analysis.source.name), None)
        where = span_range(places, main.span) if main is not None else types.Range(types.Position(0, 0), types.Position(0, 0))
        related = [
            types.DiagnosticRelatedInformation(location, label.text or diagnostic.title)
            for label in diagnostic.labels
            if label is not main and (location := self.location(label.span, analysis, uri)) is not None
        ]
        text = f"{diagnostic.title}: {main.text}" if main is not None and main.text else diagnostic.title
        if main is not None and main is not diagnostic.labels[0]:
            text = f"in `{Path(diagnostic.labels[0].span.source.name).name}`: {diagnostic.title}"
        lines = [text, *(f"note: {note}" for note in diagnostic.notes), *([f"help: {diagnostic.help}"] if diagnostic.help else [])]
        severity = types.DiagnosticSeverity.Warning if diagnostic.severity == "warning" else types.DiagnosticSeverity.Error
        tags = [types.DiagnosticTag.Unnecessary] if diagnostic.code in UNUSED else None
        text = "\n".join(lines)
        return types.Diagnostic(where, text, severity, diagnostic.code, source=NAME, related_information=related, tags=tags)

    def location(self, span: Span, analysis: Analysis, uri: str) -> types.Location | None:
        """Return a span of the analysed text or of another file as the editor addresses it."""
        if span.source.name == analysis.source.name:
            return types.Location(uri, span_range(self.places(analysis.source.text), span))
        path = file_with(span)
        if path is None:
            return None
        opened = next((address for address, document in self.documents.items() if document.path == os.path.realpath(path)), None)
        return types.Location(opened or path.as_uri(), span_range(self.places(span.source.text), span))


def name_of(uri: str) -> str:
    """Return how a text is called in messages: its path, or what stands in its address where it is no file."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else uri


def path_of(uri: str) -> str | None:
    """Return the real path of a text, or None where it is no file."""
    return os.path.realpath(name_of(uri)) if urlsplit(uri).scheme == "file" else None


def folder_of(uri: str) -> str | None:
    """Return where files lie that a text uses by relative paths; None for a text that lies nowhere."""
    return str(Path(name_of(uri)).parent) if urlsplit(uri).scheme == "file" else None


def span_range(places: Places, span: Span) -> types.Range:
    """Return a span as the editor counts."""
    (line, column), (last, end) = places.position(span.start), places.position(span.end)
    return types.Range(types.Position(line, column), types.Position(last, end))


def file_with(span: Span) -> Path | None:
    """Return the file that a span lies in: one that is used, or one of a library."""
    name, folder = span.source.name, span.source.folder
    root = Path(__file__).parents[1]
    tried = [Path(folder, Path(name).name)] if folder is not None else []
    found = next((p for p in (*tried, Path(name), root / name, root.parent / name) if p.is_file()), None)
    return found.resolve() if found is not None else None


def make_server() -> Server:
    """Return a server that answers what editors ask."""
    server = Server()

    @server.feature(types.INITIALIZED)
    async def initialized(_: types.InitializedParams) -> None:
        workspace = server.client_capabilities.workspace
        watched = workspace.did_change_watched_files if workspace is not None else None
        if watched is not None and watched.dynamic_registration:
            options = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher("**/*.tl")])
            wanted = types.Registration("files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
            server.client_register_capability(types.RegistrationParams([wanted]))
        await server.on_worker(server.analyser.warm)

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def watched_changed(params: types.DidChangeWatchedFilesParams) -> None:
        server.used_changed({path for change in params.changes if (path := path_of(change.uri)) is not None})

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: types.DidOpenTextDocumentParams) -> None:
        server.changed(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: types.DidChangeTextDocumentParams) -> None:
        server.changed(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(params: types.DidCloseTextDocumentParams) -> None:
        server.closed(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hovered(params: types.HoverParams) -> types.Hover | None:
        found = await _word(params)
        if found is None:
            return None
        analysis, places, word = found

        def replayed(schedule: sx.Schedule) -> list[Diagnostic]:
            return refusals(with_roles(analysis.module, installed_roles()), schedule, replaying=True)

        text = await server.on_worker(lambda: hover(analysis, word, replayed))
        if text is None:
            return None
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text), span_range(places, word.span))

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    async def defined(params: types.DefinitionParams) -> types.Location | None:
        found = await _word(params)
        if found is None:
            return None
        analysis, _, word = found
        meant = meaning(analysis, word)
        if meant is None or meant.where is None:
            return None
        return server.location(meant.where, analysis, params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    async def symbols(params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        analysis = await server.current(params.text_document.uri)
        if analysis is None:
            return []
        places = server.places(analysis.source.text)
        return [_symbol(places, d) for d in analysis.file.declarations]

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=[".", " ", "("]))
    async def completed(params: types.CompletionParams) -> list[types.CompletionItem]:
        uri = params.text_document.uri
        analysis = await server.current(uri)
        if analysis is None:
            return []
        text = analysis.source.text
        offset = server.places(text).offset(params.position.line, params.position.character)
        items = await server.on_worker(lambda: completions(analysis, text, offset))
        return [types.CompletionItem(item.text, kind=_ITEM_KINDS[item.sort], detail=item.detail or None) for item in items]

    @server.feature(types.TEXT_DOCUMENT_FORMATTING)
    async def formatted(params: types.DocumentFormattingParams) -> list[types.TextEdit]:
        text, _ = server.text(params.text_document.uri)
        try:
            laid_out = await server.on_worker(lambda: fmt(Source(name_of(params.text_document.uri), text)))
        except CompileError:
            return []  # what cannot be read is left as it is; its diagnostics say why
        if laid_out == text:
            return []
        return [types.TextEdit(span_range(server.places(text), Span(Source("", text), 0, len(text))), laid_out)]

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix]))
    async def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        uri = params.text_document.uri
        analysis = await server.current(uri)
        if analysis is None:
            return []
        places = server.places(analysis.source.text)
        start = places.offset(params.range.start.line, params.range.start.character)
        end = places.offset(params.range.end.line, params.range.end.character)
        near = [d for d in analysis.diagnostics if (at := analysis.place(d)) is not None and at.start <= end and start <= at.end]
        return [action for d in near for action in cures(server, uri, analysis, places, d)]

    async def _word(params: Any) -> Any:
        analysis = await server.current(params.text_document.uri)
        if analysis is None:
            return None
        places = server.places(analysis.source.text)
        word = word_at(analysis, places.offset(params.position.line, params.position.character))
        return (analysis, places, word) if word is not None else None

    return server


def cures(server: Server, uri: str, analysis: Analysis, places: Places, diagnostic: Diagnostic) -> list[types.CodeAction]:
    """Return the help of a diagnostic as changes of the text: its edits, where all of them are in this text, and the `use` lines that bring
    an unknown name. The first is preferred."""
    found: list[tuple[str, tuple[Edit, ...]]] = []
    if diagnostic.edits and all(edit.span.source.name == analysis.source.name for edit in diagnostic.edits):
        found.append((diagnostic.help or f"cure {diagnostic.code}", diagnostic.edits))
    if diagnostic.labels and diagnostic.labels[0].span.source.name == analysis.source.name:
        found += missing_lines(analysis.file, analysis.source, diagnostic)
    if not found:
        return []
    shown = server.diagnostic(uri, analysis, places, diagnostic)
    actions = []
    for position, (title, edits) in enumerate(found):
        changes: dict[str, Any] = {uri: [types.TextEdit(span_range(places, edit.span), edit.text) for edit in edits]}
        change = types.WorkspaceEdit(changes)
        actions.append(types.CodeAction(title, types.CodeActionKind.QuickFix, [shown], is_preferred=position == 0, edit=change))
    return actions


def _symbol(places: Places, declaration: sx.Declaration) -> types.DocumentSymbol:
    name = declared_name(declaration)
    detail = f"schedule for {declaration.target}" if isinstance(declaration, sx.Schedule) else ""
    whole, selected = span_range(places, declaration.span), span_range(places, name_span(declaration))
    children = []
    if isinstance(declaration, sx.Use):
        detail = f"as {declaration.alias}" if declaration.alias is not None else ""
        for used in declaration.names:
            where = span_range(places, used.span)
            about = f"{used.name} of {name}" if used.alias is not None else None
            children.append(types.DocumentSymbol(used.alias or used.name, types.SymbolKind.Function, where, where, about))
    if isinstance(declaration, sx.Operator):
        for param in (*declaration.params, *declaration.results):
            where = span_range(places, param.span)
            children.append(types.DocumentSymbol(param.name, types.SymbolKind.Field, where, where))
    return types.DocumentSymbol(name, _SYMBOL_KINDS[type(declaration)], whole, selected, detail or None, children=children)


def serve() -> Never:
    """Serve an editor over standard input and output until it ends the connection, then end the process: what is being analysed is not
    waited for, and what was kept of texts is not taken apart object by object. Garbage is collected between analyses, not within."""
    gc.disable()
    import_whole(*_NEEDED_LATER)
    make_server().start_io()
    sys.stderr.flush()
    os._exit(0)
