"""What commands write: results on standard output, as text or as JSON, and diagnostics on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tensorlang.diagnostics import Diagnostic, InternalError, Span, error


def say(data: Mapping[str, Any], text: str, as_json: bool) -> None:
    """Write a result: `data` for programs, `text`, which may be empty, for people."""
    if as_json:
        sys.stdout.write(f"{json.dumps(data)}\n")
    elif text:
        sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def report_diagnostics(diagnostics: Sequence[Diagnostic], as_json: bool) -> None:
    """Write diagnostics: for programs on standard output, for people on standard error."""
    from tensorlang.shell.colour import write_diagnostics

    if as_json:
        say({"diagnostics": [as_data(d) for d in diagnostics]}, "", as_json)
    else:
        write_diagnostics(diagnostics, sys.stderr)


def as_data(diagnostic: Diagnostic) -> dict[str, Any]:
    """Return a diagnostic as JSON has it."""
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "title": diagnostic.title,
        "labels": [{**_place(label.span), "text": label.text} for label in diagnostic.labels],
        "notes": list(diagnostic.notes),
        "help": diagnostic.help,
        "edits": [{**_place(edit.span), "text": edit.text} for edit in diagnostic.edits],
    }


def _place(span: Span) -> dict[str, Any]:
    line, column = span.source.location(span.start)
    return {"file": span.source.name, "line": line, "column": column, "length": span.end - span.start}


def once(found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Return mistakes of files that several others use once each."""
    places = {(d.code, d.title, d.labels[:1]): d for d in reversed(found)}
    return [d for d in found if places[d.code, d.title, d.labels[:1]] is d]


def internal(problem: Exception) -> Diagnostic:
    """Return one line about a defect of ours, its details written to a file."""
    import tempfile
    import traceback

    stage = f" in stage `{problem.stage}`" if isinstance(problem, InternalError) else ""
    handle, path = tempfile.mkstemp(prefix="tensorlang-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as report:
        report.write(f"{' '.join(sys.argv)}\n\n{''.join(traceback.format_exception(problem))}")
    return Diagnostic("C0001", f"internal error{stage}; a report is in {path}", help="please send the report to the maintainers")


@contextmanager
def quiet_pipes() -> Iterator[None]:
    """Let a reader that has seen enough (`| head`) end the program without a message."""
    try:
        yield
        if not sys.stdout.closed:  # the language server closes it with the connection
            sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        raise SystemExit(0) from None
    except OSError as problem:
        if problem.filename is not None:  # a file of ours, not standard output
            raise
        _discard_output()
        raise error("C0203", f"cannot write to standard output: {(problem.strerror or str(problem)).lower()}") from None


def _discard_output() -> None:
    """Let what is written to standard output from here on, at exit too, vanish."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
