"""The standard library is right where it is defined: every operator checks, with proofs, for symbolic sizes and packs of length 0 to 3."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from stdlib.library import checked, library, sources
from stdlib.onnx.table import TABLE
from tensorlang.check.definition import check_operator
from tensorlang.diagnostics import render


@pytest.mark.parametrize("name", sorted(library().declared))
def test_an_operator_is_right_where_it_is_defined(name: str) -> None:
    assert [render(problem) for problem in check_operator(library(), name)] == []


def test_comments_name_operators_that_onnx_has_and_the_importer_serves() -> None:
    named = [n for s in sources() for line in re.findall(r"^# .*ONNX .*", s.text, re.M) for n in re.findall(r"([A-Z]\w+) \(\d", line)]
    assert len(named) > 100
    assert [name for name in named if name not in TABLE] == []


def test_the_library_is_what_its_files_declare_though_each_is_read_when_it_is_asked_for() -> None:
    assert library() is library()
    there, whole = library(), checked(sources())
    modules = ("defining_modules", "reducer_modules")
    for name in (f.name for f in fields(whole)):
        lazy, read = getattr(there, name), getattr(whole, name)
        assert (sorted(lazy) == sorted(read)) if name in modules else (dict(lazy) == read if isinstance(read, dict) else lazy == read), name
