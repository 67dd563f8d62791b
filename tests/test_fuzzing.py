"""The fuzzer (`scripts/fuzz.py`): its fronts draw and try cases; what goes wrong in a child is told, cut down, and written as a test."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzzing import server
from fuzzing.campaign import Campaign, indented
from fuzzing.front import Front, Outcome
from fuzzing.fronts import FRONTS
from fuzzing.fronts.language import Case, Language
from fuzzing.program import (
    Arith,
    Bin,
    Clause,
    Const,
    Data,
    Define,
    Evaluation,
    If,
    Int,
    Param,
    Program,
    Read,
    Reduce,
    Relation,
    Slot,
    Value,
    Var,
)
from fuzzing.server import alone
from fuzzing.shrink import shrunk, without_some

from tensorlang.backends.cpu import driver
from tensorlang.diagnostics import error


class Toy:
    """A front whose cases are tuples of words that say what happens."""

    name = "toy"
    seconds = 0.5
    batch = 3
    share = 1.0

    def prepare(self) -> None: ...

    def draw(self, seed: int) -> Any:
        words = ("fine", "raise", "kill", "spin", "refuse", "allocate", "fine")
        return ("fine", words[seed % len(words)], "fine")

    def run(self, case: Any) -> Outcome:
        for word in case:
            match word:
                case "raise":
                    raise KeyError(word)
                case "kill":
                    os.kill(os.getpid(), signal.SIGSEGV)
                case "spin":
                    while True:
                        pass
                case "refuse":
                    raise error("T0101", "refused")
                case "allocate":
                    np.zeros(1 << 40, np.uint8).fill(1)
        return Outcome("ok")

    def smaller(self, case: Any) -> Iterator[Any]:
        yield from without_some(case)

    def show(self, case: Any) -> str:
        return " ".join(case)

    def test(self, case: Any) -> str:
        return f"import math\nassert {case!r} is math"


def campaign(front: Front, cases: int, first: int = 0, **options: Any) -> Campaign:
    made = Campaign([front], jobs=2, first=first, cases=cases, quiet=True, **options)
    made.run()
    return made


class Growing(Toy):
    """A front that needs more memory while cases are drawn."""

    def draw(self, seed: int) -> Any:
        self.kept = np.zeros(1 << 26, np.uint8)
        return super().draw(seed)


def test_a_finding_of_a_front_that_grows_is_cut_down() -> None:
    (finding,) = campaign(Growing(), 1, first=1).findings
    assert (finding["kind"], finding["case"]) == ("crash", "raise")


def test_whatever_ends_a_case_is_its_outcome_and_the_next_ones_run() -> None:
    counts = campaign(Toy(), 7, cut=False).counts["toy"]
    assert dict(counts.kinds) == {"ok": 2, "crash": 2, "signal": 1, "timeout": 1, "refused": 1}
    assert {label for kind, label in counts.labels if kind == "crash"} >= {"KeyError in tests/test_fuzzing.py:run"}
    assert any(label.startswith("SIGSEGV") for kind, label in counts.labels if kind == "signal")


def test_a_finding_is_cut_down_and_written_as_a_test(tmp_path: Path) -> None:
    found = campaign(Toy(), 3, out=tmp_path).findings
    assert {(f["kind"], f["case"]) for f in found} == {("crash", "raise"), ("signal", "kill")}
    assert (tmp_path / "findings.jsonl").read_text().count("\n") == 2
    written = (tmp_path / "test_toy_1.py").read_text()
    assert "import math\n\n\ndef test_toy_1() -> None:\n    assert ('raise',) is math" in written


def test_texts_of_several_lines_stay_as_they_are_in_a_test() -> None:
    assert indented(['f("""a', "b", '""")', "c"]) == ['    f("""a', "b", '""")', "    c"]


def test_what_cannot_be_cut_down_is_told_as_it_is() -> None:
    class Whole(Toy):
        def smaller(self, case: Any) -> Iterator[Any]:
            os.kill(os.getpid(), signal.SIGKILL)
            yield from ()

    (found,) = campaign(Whole(), 1, first=1).findings
    assert (found["kind"], found["note"]) == ("crash", "cutting it down did not end")


def test_a_case_that_waits_is_ended_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PATIENCE", 0.0)

    class Sleepy(Toy):
        seconds = 0.05

        def run(self, case: Any) -> Outcome:
            time.sleep(60)
            return Outcome("ok")

    assert alone(Sleepy(), ()).kind == "timeout"


def test_cutting_down_ends_with_nothing_left_to_leave_out() -> None:
    tried: list[tuple[int, ...]] = []

    def same(case: tuple[int, ...]) -> bool:
        tried.append(case)
        return {3, 17} <= set(case)

    assert shrunk(tuple(range(20)), without_some, same, 10.0) == (3, 17)
    assert len(tried) < 100


SMOKE = {"language": 6, "derived": 1, "schedules": 2, "models": 4, "seldom": 3, "files": 60, "cuda": 1, "sizes": 2, "operators": 1}


@pytest.mark.parametrize("name", sorted(FRONTS))
def test_a_front_tries_its_cases(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path))
    counts = campaign(FRONTS[name](), SMOKE[name], first=10, cut=False).counts[name]
    assert counts.cases == SMOKE[name]
    assert counts.kinds["ok"] >= SMOKE[name] // 6, counts
    assert not {kind for kind in ("wrong", "crash", "signal", "timeout") if counts.kinds[kind]}, counts


def test_cases_are_the_same_for_the_same_number() -> None:
    for make in FRONTS.values():
        front, again = make(), make()
        for number in (3, 4):
            assert front.show(front.draw(number)) == again.show(again.draw(number))


def test_a_fault_of_the_compiler_is_found_and_cut_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    emit = driver.emit
    monkeypatch.setattr(driver, "emit", lambda *given: re.sub(r"\bfmul\b", "fadd", emit(*given)))
    (found,) = campaign(Products(), 1, out=tmp_path).findings
    assert (found["kind"], found["label"]) == ("wrong", "another value")
    equations = [line for line in found["case"].splitlines() if line.startswith("    ")]
    assert len(equations) <= 2 and equations[-1].count("*") == 1 and len(equations[-1]) < 50
    assert "operator = tl.parse(" in (tmp_path / "test_language_0.py").read_text()


class Products(Language):
    """Two results and a tensor between, with a product somewhere inside."""

    def draw(self, seed: int) -> Any:
        n, i = Var("N"), Var("i")
        x, w = (Read(name, (i,), "f32") for name in ("x", "w"))
        two = Const(2, "f32")
        product = If(Relation("<", i, Int(3)), Bin("-", Bin("*", Read("t", (i,), "f32"), w, "f32"), two, "f32"), x, "f32")

        def define(name: str, value: Value, declared: bool) -> Define:
            return Define((name,), ("f32",), (n,), (Clause((Slot("i"),), (value,), (("i", Int(0), n),)),), declared)

        defines = (define("t", Bin("max", x, two, "f32"), False), define("y", product, True), define("z", Bin("+", x, w, "f32"), True))
        program = Program((Param("x", "f32", (n,)), Param("w", "f32", (n,))), ("y", "z"), defines, "reduce", (Relation(">=", n, Int(1)),))
        return Case(program, ({"N": 5}, {"N": 4}), True, 7, False, 1)


def test_the_evaluator_takes_the_side_of_an_if_that_holds_and_folds_from_the_left() -> None:
    i, n = Var("i"), Var("N")
    before = Read("y", (Arith("-", i, Int(1)),), "i8", Const(100, "i8"))
    total = Reduce("sum", (("k", Int(0), n),), (), None, Read("x", (Var("k"),), "i8"), "i8")
    clause = Clause((Slot("i"),), (Bin("+", before, total, "i8"),), (("i", Int(0), n),))
    program = Program((Param("x", "i8", (n,)),), ("y",), (Define(("y",), ("i8",), (n,), (clause,), True),))
    found = Evaluation(program, {"N": 3}, {"x": np.array([10, 20, 30], np.int8)}).array("y")
    assert found.tolist() == [-96, -36, 24], "bytes wrap"


def test_the_evaluator_compares_what_is_read_as_the_value_that_it_is() -> None:
    read = Data(Read("x", (Var("i"),), "u64"))
    value = If(Relation(">=", read, Int(0)), Const(1, "i8"), Const(0, "i8"), "i8")
    define = Define(("y",), ("i8",), (Var("N"),), (Clause((Slot("i"),), (value,), (("i", Int(0), Var("N")),)),), True)
    program = Program((Param("x", "u64", (Var("N"),)),), ("y",), (define,))
    assert Evaluation(program, {"N": 2}, {"x": np.array([0, 2**64 - 1], np.uint64)}).array("y").tolist() == [1, 1]
