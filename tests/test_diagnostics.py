"""Diagnostics as people read them: one box a file, each line once, what is at fault under `^` and what belongs to it under `-`."""

from __future__ import annotations

import pickle

import pytest

from tensorlang.diagnostics import CompileError, Diagnostic, Label, RunError, RunTypeError, Source, Span, exception, render, trimmed

FIRST = Source("a.tl", "one = two + three\nfour\nfive\nsix = seven\n")
SECOND = Source("b.tl", "\t漢字 = 1\n")


def label(source: Source, word: str, text: str = "") -> Label:
    start = source.text.index(word)
    return Label(Span(source, start, start + len(word)), text)


def shown(*labels: Label) -> str:
    return render(Diagnostic("T0101", "title", labels, ("note",), "help"))


def test_labels_of_one_line_hang_below_it_from_right_to_left() -> None:
    assert shown(label(FIRST, "two", "this"), label(FIRST, "one", "and this"), label(FIRST, "three", "here")) == (
        "error[T0101]: title\n"
        " --> a.tl:1:7\n"
        "  |\n"
        "1 | one = two + three\n"
        "  | ---   ^^^   ----- here\n"
        "  | |     |\n"
        "  | |     this\n"
        "  | and this\n"
        "  = note: note\n"
        "  = help: help"
    )


def test_lines_stand_in_their_order_and_what_is_left_out_between_is_marked() -> None:
    assert shown(label(FIRST, "six"), label(FIRST, "two", "this"), label(FIRST, "four")).splitlines()[1:] == [
        " --> a.tl:4:1",
        "  |",
        "1 | one = two + three",
        "  |       --- this",
        "2 | four",
        "  | ----",
        "...",
        "4 | six = seven",
        "  | ^^^",
        "  = note: note",
        "  = help: help",
    ]


def test_a_label_that_covers_another_has_signs_of_its_own() -> None:
    assert shown(label(FIRST, "two", "the operand"), label(FIRST, "two + three", "the sum")).splitlines()[3:6] == [
        "1 | one = two + three",
        "  |       ^^^ the operand",
        "  |       ----------- the sum",
    ]


def test_another_file_has_a_box_of_its_own_and_wide_characters_take_two_columns() -> None:
    assert shown(label(FIRST, "four", "a"), label(SECOND, "= 1", "b")).splitlines()[5:9] == [
        " ::: b.tl:1:5",
        "  |",
        "1 | \t漢字 = 1",
        "  | \t     --- b",
    ]


def test_lines_are_counted_from_the_first_that_the_author_wrote() -> None:
    wrapped = Source("<schedule>", "schedule f for cpu {\nparalel i\n}", skipped=1)
    assert shown(label(wrapped, "paralel")).splitlines()[1:4] == [" --> <schedule>:1:1", "  |", "1 | paralel i"]
    assert wrapped.location(0) == (1, 1)


def test_codes_of_calls_are_run_errors_and_those_of_types_type_errors_too() -> None:
    call, kind, program = (exception(Diagnostic(code, "title")) for code in ("R0202", "R0204", "T0101"))
    assert isinstance(call, RunError) and isinstance(call, ValueError) and not isinstance(call, TypeError)
    assert isinstance(kind, RunTypeError) and isinstance(kind, RunError) and isinstance(kind, TypeError)
    assert type(program) is CompileError


def test_a_traceback_ends_with_the_command_that_explains_the_code() -> None:
    problem = CompileError(Diagnostic("T0101", "title"), Diagnostic("T0102", "title"))
    again = pickle.loads(pickle.dumps(problem))
    assert again.__notes__ == problem.__notes__ == ["more about this: `tensorlang explain T0101`, `tensorlang explain T0102`"]
    assert str(again) == str(problem) == "error[T0101]: title\n\nerror[T0102]: title"


def test_a_traceback_ends_at_the_function_of_the_api() -> None:
    def inside() -> None:
        raise CompileError(Diagnostic("T0101", "title"))

    @trimmed
    def api() -> None:
        inside()

    with pytest.raises(CompileError) as refused:
        api()
    assert "inside" not in [frame.name for frame in refused.traceback]
    assert refused.value.__cause__ is None and refused.value.__suppress_context__
