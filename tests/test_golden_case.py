"""Golden cases: what goes in stays, what comes out is compared or renewed, and a file that is no case is told so."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_case import WrongCase, cases, expected, renew, source


@pytest.fixture
def case(tmp_path: Path) -> Path:
    path = tmp_path / "case.tl"
    path.write_text("in\n---\nout\n", "utf-8")
    return path


def test_a_case_is_what_goes_in_and_what_comes_out(case: Path) -> None:
    assert (source(case), expected(case)) == ("in\n", "out\n")


def test_what_goes_in_stays_when_a_case_is_renewed(case: Path) -> None:
    renew(case, "other\nlines\n")
    assert case.read_text("utf-8") == "in\n---\nother\nlines\n"


def test_a_new_case_is_what_goes_in_and_the_line(case: Path) -> None:
    case.write_text("in\n\n---\n", "utf-8")
    renew(case, "out\n")
    assert case.read_text("utf-8") == "in\n\n---\nout\n"


def test_what_comes_out_may_hold_the_line_too(case: Path) -> None:
    renew(case, "a\n---\nb\n")
    assert (source(case), expected(case)) == ("in\n", "a\n---\nb\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("in\nout\n", "case.tl: no line `---`"),
        ("in\n --- \nout\n", "case.tl: no line `---`"),
        ("", "case.tl: no line `---`"),
        ("---\nout\n", "case.tl: nothing stands above `---`"),
        ("\n \n---\nout\n", "case.tl: nothing stands above `---`"),
    ],
)
def test_a_file_that_is_no_case_is_refused_and_left_alone(case: Path, text: str, why: str) -> None:
    case.write_text(text, "utf-8")
    for use in (source, expected, lambda path: renew(path, "new\n")):
        with pytest.raises(WrongCase, match=why):
            use(case)
    assert case.read_text("utf-8") == text


def test_a_case_from_which_nothing_comes_out_says_how_to_get_it(case: Path) -> None:
    case.write_text("in\n---\n\n", "utf-8")
    with pytest.raises(WrongCase, match=r"case.tl: nothing stands below `---`: run once with --update-golden"):
        expected(case)


def test_a_folder_without_cases_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(WrongCase, match="holds no file"):
        cases(tmp_path)


def test_the_fixture_compares_what_comes_out(case: Path, pytestconfig: pytest.Config, golden_case) -> None:
    if pytestconfig.getoption("--update-golden"):
        golden_case(case, "other\n")
        assert expected(case) == "other\n"
    else:
        with pytest.raises(AssertionError):
            golden_case(case, "other\n")
        golden_case(case, "out\n")
        assert case.read_text("utf-8") == "in\n---\nout\n"
