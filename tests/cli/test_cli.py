"""The command line: what it prints, what it exits with, and that it never shows a traceback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run

import tensorlang
from codegen.llvm.target import this_machine
from tensorlang.cli import command_line
from tensorlang.runtime.operator import Operator
from tensorlang.runtime.work import Roofline, Work
from tensorlang.shell import checking
from tensorlang.shell.bench import Comparison, Contender, as_text
from tensorlang.shell.measure import Timing

TEXT = "op scale[T: float](x: T[N], attr by: float = 2.0) -> (y: T[N]) { y[i] = x[i] * by }\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path_factory.getbasetemp() / "objects"))


@pytest.mark.parametrize("command", ["run", "explain", "show", "bench", "tune", "build"])
@pytest.mark.parametrize(
    ("schedules", "code", "place"),
    [
        ("schedule scale for cpu {\n    split z by 8 -> io, ii\n}", "S0103", "given.tl:2:11"),
        ("schedule shrink for cpu { }", "S0501", "given.tl:1:10"),
        ("schedule scale for cpu { }\nop f(x: f32) -> (y: f32) { y = x }", "S0604", "given.tl:2:1"),
        ("", "C0213", "given.tl"),
    ],
)
def test_schedules_that_are_given_for_an_operator_are_refused_at_their_lines(
    capsys: Any, file: Path, command: str, schedules: str, code: str, place: str
) -> None:
    given = file.with_name("given.tl")
    given.write_text(schedules)
    more = {"show": ["--stage", "loops"], "build": ["-o", str(file.with_name("made"))]}.get(command, [])
    found = run(capsys, command, file, "x=f32[8]", "-t", "1", "--schedules", given, *more)
    assert (found[0], found[1]) == (1, "") and code in found[2] and place in found[2]


def test_schedules_that_are_given_for_an_operator_are_asked_before_those_of_its_file(capsys: Any, file: Path) -> None:
    file.write_text(f"{TEXT}schedule scale for cpu {{ unroll i }}\n")
    given = file.with_name("given.tl")
    given.write_text("tactic by_parts(i) { split i by 3 -> io, ii }\nschedule scale for cpu(N >= 8) { by_parts(i) }\n")
    shown = [run(capsys, "show", file, f"x=f32[{n}]", "-t", "1", "--schedules", given, "--stage", "loops")[1] for n in (8, 7)]
    assert "for y_io in" in shown[0] and "unroll 7" in shown[1]
    assert "unroll i" in run(capsys, "show", file, "scale", "--schedules", given, "--stage", "syntax")[1]


@pytest.mark.parametrize(("line", "code"), [("schedule shrink for cpu { }", "S0501"), ("schedule scale for abacus { }", "S0513")])
def test_a_schedule_of_a_file_that_is_for_nothing_is_refused_when_the_file_is_loaded(capsys: Any, file: Path, line: str, code: str) -> None:
    file.write_text(TEXT + line)
    found = run(capsys, "run", file, "x=f32[8]", "-t", "1")
    assert (found[0], found[1]) == (1, "") and code in found[2] and "ops.tl:2:" in found[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ops.tl"
    path.write_text(TEXT)
    return path


@pytest.fixture
def tl(capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs a command line and returns exit code, standard output and standard error."""
    return partial(run, capsys)


def test_a_file_without_operators_is_told_how_to_declare_one(tl: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.tl").write_text("")
    code, _, err = tl("run", tmp_path / "empty.tl", "x=f32[8]")
    assert (code, err.splitlines()[1:2]) == (1, [" = help: declare one: `op NAME(…) -> (…) { … }`"])


def test_a_target_that_is_not_there_is_told_which_there_are(tl: Any, file: Path) -> None:
    code, _, err = tl("show", file, "--stage", "loops", "--target", "tpu")
    assert (code, err.splitlines()[-3]) == (1, " = help: `cpu` is this machine, `cuda` its GPU")


def test_check_accepts_a_right_file(tl: Any, file: Path) -> None:
    assert tl("check", file) == (0, "1 file checked, no mistakes\n", "")


def test_check_says_for_which_values_of_attributes_it_checked(tl: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.tl"
    path.write_text(
        "op f(x: f32[N], attr steps: int) -> (y: f32[N]) where steps >= 4 { y[i] = x[i] * steps }\n"
        "op g(x: f32[N], attr k: int) -> (y: f32[N]) where k * k == 7 { y[i] = x[i] * k }\n"
        "op h(q: f32[H], k: f32[G]) -> (y: f32[H]) where G >= 1, H % G == 0 { y[i] = q[i] * k[i // (H // G)] }\n"
    )
    assert tl("check", path) == (
        0,
        f"{path}: `f` is checked for steps = 4 alone, and for other values where it is called\n"
        f"{path}: `g` is not checked where it is defined: no values that were tried for `k` fit"
        " (`g`: `k * k == 7` does not hold)\n"
        f"{path}: `h` is checked for G = 3, H = 3 alone, and for other values where it is called\n"
        "1 file checked, no mistakes; 2 checked for some values alone; 1 not checked\n",
        "",
    )


def test_check_finds_mistakes_of_operators_whose_attributes_have_no_default(tl: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.tl"
    path.write_text("op f(x: f64[N], attr steps: int, attr how: str) -> (y: f32[N]) { y[i] = x[i] }\n")
    code, out, err = tl("check", path)
    assert (code, out) == (1, "") and err.startswith("error[T0150]")


def test_check_reports_every_file_with_code_and_place(tl: Any, tmp_path: Path, file: Path) -> None:
    for name, text in (("a.tl", "op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i + 1] }\n"), ("b.tl", "op g(")):
        (tmp_path / name).write_text(text)
    code, out, err = tl("check", tmp_path / "a.tl", file, tmp_path / "b.tl")
    assert (code, out) == (1, "")
    assert "a.tl:1:" in err and "b.tl:1:" in err
    assert err.count("error[") == 2


def test_check_reports_what_schedules_name_and_is_not_there(tl: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.tl"
    path.write_text(
        "op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }\nschedule g for cpu { vectorize i }\nschedule f for cpu(M > 1) { tuned() }\n"
    )
    code, _, err = tl("check", path)
    assert code == 1 and "error[S0501]" in err and "error[S0505]" in err


def test_check_speaks_json(tl: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.tl"
    path.write_text("op f(x: f32[N]) -> (y: f32[N]) { y[i] = z[i] }\n")
    code, out, err = tl("check", path, "--json")
    assert (code, err) == (1, "")
    [found] = json.loads(out)["diagnostics"]
    assert found["code"].startswith("T")
    assert found["labels"][0]["line"] == 1


def test_fmt_lays_out_in_place_and_checks_without_changing(tl: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.tl"
    path.write_text("op   f(x:f32[N])->(y:f32[N]){y[i]=x[i]}")
    before = path.read_text()
    assert tl("fmt", "--check", path)[0] == 1
    assert path.read_text() == before
    assert tl("fmt", path)[0] == 0
    assert path.read_text() != before
    assert tl("fmt", "--check", path) == (0, "", "")
    assert [p.name for p in tmp_path.iterdir()] == ["a.tl"]


@pytest.mark.parametrize(
    ("stage", "part"),
    [
        ("syntax", "attr by: float"),
        ("tensor", "x[i] * 3.0"),
        ("schedule", "schedule scale for cpu"),
        ("loops", "func tl_"),
        ("llvm", "define"),
        ("asm", ".text"),
    ],
)
def test_show_prints_each_stage(tl: Any, file: Path, stage: str, part: str) -> None:
    code, out, _ = tl("show", file, "scale", "x=f32[40]", "by=3.0", "--stage", stage)
    assert code == 0
    assert part in out


def test_run_reads_arrays_and_writes_them_whole(tl: Any, file: Path, tmp_path: Path) -> None:
    x = np.arange(5, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    code, out, _ = tl("run", file, "scale", f"x={tmp_path / 'x.npy'}", "by=4.0", "-o", tmp_path / "y.npy")
    assert (code, out) == (0, "y: float32[5]\n")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x * 4, strict=True)
    np.savez(tmp_path / "all.npz", x=x)
    assert tl("run", file, tmp_path / "all.npz", "-o", tmp_path / "y.npz", "--json")[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y"], x * 2)


def test_explain_and_bench_take_random_arrays(tl: Any, file: Path) -> None:
    code, out, _ = tl("explain", file, "x=f64[33]")
    assert code == 0
    assert "proven" in out and "time" in out
    code, out, _ = tl("bench", file, "x=f32[8]", "--seconds", "0.05", "--json")
    assert code == 0
    assert json.loads(out)["timings"][0]["best_seconds"] < 0.01


def test_doctor_finds_this_machine_fit_to_compile(tl: Any) -> None:
    code, out, _ = tl("doctor", "--json")
    found = {f["what"]: f for f in json.loads(out)["findings"]}
    assert found["compiled code"]["fine"], found["compiled code"]
    assert re.match(r"NVRTC 13\.\d+, for sm_75, sm_80, ", found["cuda compiler"]["found"])
    assert found["cuda driver"]["fine"]  # there need not be one
    assert code == (0 if all(f["fine"] for f in found.values()) else 1)


def at_level(level: str, *argv: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tensorlang", *map(str, argv)]
    return subprocess.run(command, env=os.environ | {"TENSORLANG_LEVEL": level}, capture_output=True, text=True)


def test_a_level_makes_a_smaller_machine_of_this_one(file: Path, tmp_path: Path) -> None:
    least = "x86-64" if this_machine().is_x86 else "aarch64"
    done = at_level(least, "run", file, "x=f32[5]", "--output", tmp_path / "y.npy")
    assert done.returncode == 0, done.stderr
    found = {f["what"]: f for f in json.loads(at_level(least, "doctor", "--json").stdout)["findings"]}
    assert "vectors of 128 bits" in found["processor"]["found"] and "TENSORLANG_LEVEL keeps" in found["processor"]["found"]
    assert found["compiled code"]["fine"]


def test_a_level_that_this_machine_lacks_is_refused(file: Path) -> None:
    done = at_level("x86-65", "run", file, "x=f32[5]")
    assert done.returncode == 1
    assert done.stderr.startswith("error[C0102]: `TENSORLANG_LEVEL` is `x86-65`; levels of ")


@pytest.mark.parametrize(
    ("argv", "code", "part"),
    [
        (["run", "FILE", "nothing", "x=f32[3]"], 1, "C0213"),
        (["run", "FILE", "x"], 1, "C0213"),
        (["run", "FILE", "scale", "y"], 1, "C0211"),
        (["run", "FILE", "x=f32[3]", "bye=1"], 1, "did you mean `by`"),
        (["run", "FILE", "x=missing.npy"], 1, "C0201"),
        (["run", "FILE", "x=FILE.npy"], 1, "C0201"),
        (["run", "FILE", "x=f32[3]", "-o", "y.txt"], 1, "C0202"),
        (["run", "FILE", "x=f32[3]", "-o", "/nowhere/at/all/y.npy"], 1, "C0203"),
        (["run", "model.xyz"], 1, "O0001"),
        (["check", "missing.tl"], 1, "P020"),
        (["show", "FILE", "x=f32[3]", "--stage", "graph"], 1, "C0212"),
        (["show", "FILE", "--stage", "nonsense"], 2, "Invalid value"),
        (["bench", "FILE", "--peers", "nobody"], 1, "C0221"),
        (["bench", "nothing_like_it", "x=f32[3]"], 1, "C0213"),
        (["frobnicate"], 2, "No such command"),
        (["scale.tl"], 2, "a command comes first: `tensorlang check scale.tl`"),
        (["explain", "0391"], 1, "there is no code `0391`"),
        (["bench", "matmull"], 1, "did you mean `matmul`?"),
        (["show", "FILE", "scales"], 1, "did you mean `scale`?"),
        (["show", "FILE", "scale", "bye=3"], 1, "did you mean `by`?"),
        *(([command], 2, "Missing argument") for command in ("certify", "check", "diff", "explore", "fmt", "plot", "run", "tune")),
        (["plot", "f.tl", "--target", "foo"], 2, "'foo' is not one of 'cpu', 'cuda', 'hip'"),
        (["explain"], 1, "there is nothing to explain"),
    ],
)
def test_mistakes_are_told_apart_by_exit_code(tl: Any, file: Path, argv: list[str], code: int, part: str) -> None:
    found, out, err = tl(*(a.replace("FILE", str(file)) for a in argv))
    assert found == code
    assert part in err
    assert out == ""


def test_one_operator_of_a_file_is_shown_with_its_schedules(tl: Any, tmp_path: Path) -> None:
    own = "op f(x: f32[N]) -> (y: f32[N]) {\n    y[i] = x[i]\n}\nschedule f for cpu {\n    parallel i\n}"
    (tmp_path / "two.tl").write_text(f"{own}\n{own.replace('op f', 'op g').replace('schedule f', 'schedule g')}\n")
    assert tl("show", tmp_path / "two.tl", "f")[1].strip() == own


def test_an_array_file_that_is_none_is_refused(tl: Any, file: Path, tmp_path: Path) -> None:
    for name, data in (("a.npy", b"nonsense"), ("b.npz", b"PK\x03\x04 broken"), ("c.npy", b"")):
        (tmp_path / name).write_bytes(data)
        code, _, err = tl("run", file, f"x={tmp_path / name}")
        assert code == 1
        assert "C0202" in err


def test_a_pickle_is_never_loaded(tl: Any, file: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    code, _, err = tl("run", file, f"x={tmp_path / 'a.npy'}")
    assert code == 1
    assert "C0202" in err


def test_a_defect_of_ours_is_one_line_and_a_report(tl: Any, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise ZeroDivisionError("deep inside")

    monkeypatch.setattr(checking, "checked", broken)
    code, out, err = tl("check", file)
    assert (code, out) == (1, "")
    assert err.startswith("error[C0001]: internal error; a report is in ")
    report = Path(err.splitlines()[0].rpartition(" ")[2])
    assert "deep inside" in report.read_text()
    report.unlink()


ODD = "op f(x: f32[K], m: f32) -> (y: f32) {\n    y = sum(k) x[k] - m\n}\n"


def test_warnings_are_shown_and_are_mistakes_only_where_that_is_asked_for(tl: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.tl"
    path.write_text(ODD)
    code, out, err = tl("check", path)
    assert (code, out) == (0, "1 file checked, no mistakes; 1 warning\n") and err.startswith("warning[W0105]: ")
    assert tl("check", "--no-warnings", path) == (0, "1 file checked, no mistakes\n", "")
    code, out, err = tl("check", "--strict", path)
    assert (code, out) == (1, "") and err.startswith("error[W0105]: ")
    (told,) = json.loads(tl("check", "--json", path)[1])["diagnostics"]
    assert (told["code"], told["severity"]) == ("W0105", "warning")


def test_fix_changes_what_is_plainly_meant_and_diff_only_shows_it(tl: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.tl"
    text = "// adds\nop f(x: float32[N], b: f32[N]) -> (y: f32[N]) {\n    y = x + b; // like NumPy\n}\n"
    path.write_text(text)
    code, out, err = tl("check", "--diff", path)
    assert (code, err) == (0, "") and "+    y[i] = x[i] + b[i] # like NumPy\n" in out and path.read_text() == text
    code, out, err = tl("check", "--fix", path)
    assert (code, out) == (0, "1 file checked, no mistakes\n") and "fixed" in err
    assert path.read_text() == "# adds\nop f(x: f32[N], b: f32[N]) -> (y: f32[N]) {\n    y[i] = x[i] + b[i] # like NumPy\n}\n"


def test_edits_stand_in_json(tl: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.tl"
    path.write_text("fn f(x) = x && true\n")
    (told,) = json.loads(tl("check", "--json", path)[1])["diagnostics"]
    assert told["edits"] == [{"file": str(path), "line": 1, "column": 13, "length": 2, "text": "and"}]


def test_explain_prints_the_page_of_a_code(tl: Any) -> None:
    code, out, err = tl("explain", "T0301")
    assert (code, err) == (0, "") and out.startswith("T0301: ") and "```tl" in out
    code, out, err = tl("explain", "T0391")
    assert (code, out) == (1, "") and err.startswith("error[C0215]: there is no code `T0391`\n = help: did you mean `T0301`")


def test_messages_end_with_the_command_that_explains_them(tl: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.tl"
    path.write_text("fn f(x) = x && true\n")
    assert tl("check", path)[2].splitlines()[-1] == "more about this: `tensorlang explain P003`"


def test_colours_are_for_terminals_and_for_those_who_ask(tl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tl"
    path.write_text("fn f(x) = x && true\n")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert "\x1b[" not in tl("check", path)[2]
    coloured = tl("check", path, "--color=always")[2]
    assert "\x1b[1;31merror[P003]" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == tl("--color", "never", "check", path)[2]
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in tl("check", path)[2]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in tl("check", path)[2]
    code, _, err = tl("check", path, "--color", "blue")
    assert code == 1 and err.startswith("error[C0211]: `--color` is `blue`")


def test_the_version_and_short_help(tl: Any) -> None:
    assert tl("--version") == (0, f"tensorlang {tensorlang.__version__}\n", "")
    assert tl("check", "-h")[0] == 0
    assert tl("-h")[1] == tl("--help")[1]


def test_help_names_the_commands_in_the_order_of_their_use(tl: Any) -> None:
    lines = [line for line in tl("--help")[1].partition("Commands:")[2].splitlines() if line.strip()]
    assert [line.split()[0] for line in lines] == [
        "check",
        "fmt",
        "list",
        "run",
        "diff",
        "build",
        "bench",
        "tune",
        "show",
        "explain",
        "plot",
        "explore",
        "certify",
        "cache",
        "doctor",
        "lsp",
    ]
    assert not any(line.endswith("...") for line in lines)


def test_the_package_is_the_program() -> None:
    done = subprocess.run([sys.executable, "-m", "tensorlang", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"tensorlang {tensorlang.__version__}\n")


def test_a_word_that_is_nearly_a_command_is_told_which(tl: Any) -> None:
    code, _, err = tl("bnch")
    assert code == 2 and "Did you mean 'bench'?" in err


@pytest.mark.parametrize("stage", ["tensor", "schedule", "loops", "llvm", "asm"])
def test_an_operator_without_arrays_is_shown_for_any_sizes(tl: Any, file: Path, stage: str) -> None:
    code, out, err = tl("show", file, "-s", stage)
    assert (code, err) == (0, "")
    if stage == "loops":
        assert "(N)(x: f32[N] align 4, out y: f32[N] align 4)" in out and "N // 16" in out


def test_sizes_and_attributes_may_be_known_without_arrays(tl: Any, file: Path) -> None:
    code, out, _ = tl("show", file, "-s", "tensor", "N=5", "by=3.0")
    assert code == 0 and "x: f32[5]" in out and "3.0" in out
    said = tl("show", file, "-s", "loops", "M=5")[2]
    assert said.startswith("error[R0312]: `scale` has no `M`\n") and "note: it has `x`, `by`, `N`\n" in said
    assert "error[R0314]" in tl("show", file, "-s", "loops", "N=many")[2]


def test_what_has_no_form_without_arrays_says_so(tl: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.tl"
    path.write_text("op f(x: f32[N], attr k: int) -> (y: f32[N]) where k * k == 7 { y[i] = x[i] * k }\n")
    code, out, err = tl("show", path, "-s", "loops")
    assert (code, out) == (1, "") and err.startswith("error[C0212]: `f` cannot be shown without the arrays of a call")


def test_every_command_has_an_answer_for_programs() -> None:
    without = {name for name, command in command_line.commands.items() if "as_json" not in {p.name for p in command.params}}
    assert without == {"lsp"}  # which speaks JSON-RPC


def test_commands_speak_json_where_they_say_something(tl: Any, file: Path, tmp_path: Path) -> None:
    found = json.loads(tl("show", file, "-s", "loops", "--json")[1])
    assert (found["file"], found["stage"], found["target"]) == (str(file), "loops", "cpu") and found["text"].startswith("func ")
    found = json.loads(tl("show", "--stage", "passes", "--json")[1])
    assert found["file"] is None and found["text"]
    found = json.loads(tl("explain", "T0301", "--json")[1])
    assert found["code"] == "T0301" and found["title"] and "```tl" in found["text"]
    found = json.loads(tl("explain", file, "x=f32[33]", "--json")[1])
    assert found["operator"] == "scale" and "proven" in found["text"]
    found = json.loads(tl("plot", file, "--json")[1])
    assert found["output"] is None and found["svg"].startswith("<svg")
    found = json.loads(tl("plot", file, "-o", tmp_path / "a.svg", "--json")[1])
    assert found == {"operator": "scale", "output": str(tmp_path / "a.svg")}
    found = json.loads(tl("certify", file, "x=f32[8]", "--json")[1])
    assert (found["operator"], found["symbolic"], found["output"]) == ("scale", False, None) and found["certificate"]


def test_doctor_names_what_a_report_of_a_mistake_has_to_name(tl: Any) -> None:
    found = {f["what"]: f["found"] for f in json.loads(tl("doctor", "--json")[1])["findings"]}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert found["tensorlang"].startswith(tensorlang.__version__)
    assert commit.returncode or f"(commit {commit.stdout.strip()}" in found["tensorlang"]
    assert "Linux" in found["system"] and "libc" in found["system"]
    assert {"model", "processor", "python", "threads"} <= set(found)


def comparison(ours: float, *others: float) -> Comparison:
    timings = [Timing("tensorlang", ours, ours, 3, 0.0)]
    timings += [Timing(f"some-peer-default{k}", seconds, seconds, 3, 0.5) for k, seconds in enumerate(others)]
    contenders = [Contender(t, "" if t is timings[0] else "2026.12.1", "f32", None if t is timings[0] else 1e-7, 1234.0) for t in timings]
    return Comparison(tuple(contenders), Roofline(Work(10**9, 8, 8), ours / 2), 1)


@pytest.mark.parametrize(
    ("ours", "peers", "said"),
    [
        (2.0, [1.0, 4.0], "tensorlang is 2.00x slower than some-peer-default0, the fastest peer in f32"),
        (1.0, [1.3, 4.0], "tensorlang is 1.30x faster than some-peer-default0, the fastest peer in f32"),
        (1.0, [1.001], "tensorlang is as fast as some-peer-default0, the fastest peer in f32"),
        (1e-3, [10.0], "tensorlang is 10000x faster than some-peer-default0, the fastest peer in f32"),
    ],
)
def test_a_comparison_says_who_is_faster_within_100_columns(ours: float, peers: list[float], said: str) -> None:
    head, first, *rest = as_text(comparison(ours, *peers)).splitlines()
    assert all(len(line) <= 100 for line in (head, first, *rest))
    assert head.split("  ")[-1].strip() == "MiB" and first.split()[0] == "tensorlang"
    assert said in rest
    assert ("slower" if peers[0] > ours * 1.01 else "faster" if peers[0] < ours else "as fast") in rest[0]
    assert rest[-1].startswith("runs that other work disturbed: some-peer-default0 50%")


def test_what_is_measured_is_the_prepared_call(tl: Any, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[object] = []
    monkeypatch.setattr(Operator, "__call__", lambda self, *args, **named: called.append(args))
    assert tl("bench", file, "x=f32[8]", "by=3.0", "--seconds", "0.02")[0] == 0
    assert called == []
