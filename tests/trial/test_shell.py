"""What people type by mistake at the command line: exit code 1, one diagnostic, nothing left behind."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tensorlang.cli import _guarded
from tensorlang.shell.files import whole

TENSORLANG = [sys.executable, "-m", "tensorlang"]
TEXT = "op f(x: f32[N]) -> (y: f32[N]) {\n    y[i] = x[i]\n}\n"


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "f.tl"
    path.write_text(TEXT)
    return str(path)


@pytest.mark.parametrize(
    ("argument", "code"),
    [("x=f32[-1]", "C0211"), ("x=f99[1]", "C0211"), ("=3", "C0211"), ("x=f32[99999999999999]", "C0204")],
)
def test_a_value_that_is_none_is_one_diagnostic(program: str, argument: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _guarded(["run", program, argument]) == 1
    assert f"error[{code}]" in capsys.readouterr().err


def test_an_argument_given_twice_is_refused(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _guarded(["run", program, "x=f32[2]", "x=f32[3]"]) == 1
    assert "`x` is given twice" in capsys.readouterr().err


def test_formatting_through_a_link_changes_the_file_it_leads_to(tmp_path: Path) -> None:
    there, link = tmp_path / "there.tl", tmp_path / "link.tl"
    there.write_text(TEXT.replace("    ", " "))
    link.symlink_to(there)
    assert _guarded(["fmt", str(link)]) == 0
    assert link.is_symlink()
    assert there.read_text() == TEXT


def test_a_write_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        whole(tmp_path / "out.npz", interrupted)
    assert os.listdir(tmp_path) == []


def test_what_a_terminal_would_obey_is_shown_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.tl"
    path.write_text("op f(`\x1b[31m`: f32[N]) -> (y: f32[N]) {\n    y[i] = `\x1b[31m`[j]\n}\n")
    assert _guarded(["check", str(path)]) == 1
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert r"\x1b[31m" in shown


def test_standard_output_that_is_full_is_one_diagnostic(program: str) -> None:
    for extra in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            found = subprocess.run([*TENSORLANG, "check", program, *extra], stdout=full, stderr=subprocess.PIPE, text=True)
        assert found.returncode == 1
        assert "Traceback" not in found.stderr
        if not extra:
            assert "error[C0203]: cannot write to standard output" in found.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_change_no_exit_code(program: str, closed: str) -> None:
    command = shlex.join([*TENSORLANG, "check", program])
    found = subprocess.run(f"{command} {closed}", shell=True, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")


def _interruptible() -> None:
    """Undo what a shell does to commands in the background: interrupts pass them by."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _seconds_of_processor(pid: int) -> float:
    times = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def test_an_interrupt_ends_a_command_with_one_line(program: str, tmp_path: Path) -> None:
    started = subprocess.Popen(
        [*TENSORLANG, "bench", program, "x=f32[8]", "--seconds", "60"],
        env=os.environ | {"TENSORLANG_CACHE": str(tmp_path / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_interruptible,
    )
    while not any(path.stat().st_size for path in (tmp_path / "cache").rglob("*") if path.is_file()):  # until it has compiled
        assert started.poll() is None
        time.sleep(0.1)
    compiled = _seconds_of_processor(started.pid)
    while _seconds_of_processor(started.pid) < compiled + 0.5:  # by then it measures, however busy the machine
        assert started.poll() is None
        time.sleep(0.1)
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=20)
    assert (started.returncode, out, err) == (130, "", "tensorlang: interrupted\n")
