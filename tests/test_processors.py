"""The closing lines of a run of the tests say for which processors code ran and for which it was read."""

from __future__ import annotations

import pytest
from processors import RAN, READ, Observer, summary

from codegen.llvm.target import host, lacking, named


def report(file: str, *notes: tuple[str, str]) -> pytest.TestReport:
    return pytest.TestReport(f"{file}::test_it", (file, 1, "test_it"), {}, "passed", None, "call", user_properties=list(notes))


def test_what_ran_and_what_was_read_is_told_with_the_reason() -> None:
    done = [
        report("a.py", (RAN, "host"), (READ, "x86-64-v4: avx512f")),
        report("a.py", (RAN, "host")),
        report("b.py", (READ, "aarch64: aarch64")),
    ]
    assert list(summary(done))[1:] == [
        "ran here:  code for this machine, loaded by 2 tests",
        "read only: code for aarch64, as text and as loops in their interpreter: this machine lacks aarch64",
        "           1 in b.py",
        "read only: code for x86-64-v4, as text and as loops in their interpreter: this machine lacks avx512f",
        "           1 in a.py",
    ]
    assert list(summary([report("a.py")])) == []


def test_what_a_test_emits_for_a_processor_that_is_not_here_is_noted() -> None:
    seen = Observer()
    other = named("aarch64" if host().is_x86 else "x86-64")
    seen("tensorlang.emit", (other,))
    seen("tensorlang.emit", (host(),))
    assert list(seen.notes()) == [(READ, f"{other.name}: {', '.join(lacking(other.needs, host()))}")]
    seen("tensorlang.load", (host().needs,))
    assert (RAN, "host") in list(seen.notes())
    seen.forget()
    assert list(seen.notes()) == []
