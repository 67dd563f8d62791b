"""Shells complete commands: what is printed and installed, and what the program answers when a shell asks."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import run


@pytest.fixture
def tl(capsys: pytest.CaptureFixture[str]) -> Any:
    return partial(run, capsys)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(tl: Any, shell: str) -> None:
    code, out, err = tl("--show-completion", shell)
    assert (code, err) == (0, "") and "_TENSORLANG_COMPLETE" in out and f"{shell}_complete" in out


def test_the_shell_is_the_one_of_the_user_unless_one_is_named(tl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    assert tl("--show-completion")[1].startswith("#compdef tensorlang")
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    code, out, err = tl("--show-completion")
    assert (code, out) == (1, "") and err.startswith("error[C0211]: the shell is `tcsh`\n = help: there are completions for `bash`")
    monkeypatch.delenv("SHELL")
    assert tl("--show-completion")[2].startswith("error[C0211]: the shell is unknown")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_script_is_installed_once_behind_what_the_settings_say(tl: Any, home: Path, shell: str) -> None:
    settings = home / f".{shell}rc"
    settings.write_bytes(b"alias l=ls # \xff")
    for _ in range(2):
        code, out, _ = tl("--install-completion", shell)
        assert code == 0 and str(home / ".local/share/tensorlang") in out
    script = home / ".local" / "share" / "tensorlang" / f"completion.{shell}"
    assert settings.read_bytes() == b'alias l=ls # \xff\nsource "%s"\n' % os.fsencode(script)
    assert script.read_text() == tl("--show-completion", shell)[1]


def test_fish_finds_its_script_by_itself(tl: Any, home: Path) -> None:
    assert tl("--install-completion", "fish")[0] == 0
    assert [p.name for p in home.iterdir()] == [".config"]
    assert (home / ".config" / "fish" / "completions" / "tensorlang.fish").read_text() == tl("--show-completion", "fish")[1]


def test_a_home_that_cannot_be_written_is_one_diagnostic(tl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    code, _, err = tl("--install-completion", "bash")
    assert code == 1 and err.startswith("error[C0203]: cannot write ")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("tensorlang ch", "check"), ("tensorlang check --fi", "--fix"), ("tensorlang show a.tl --stage lo", "loops")],
)
def test_the_program_answers_what_may_follow(typed: str, offered: str) -> None:
    words = typed.split()
    asked = {"_TENSORLANG_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run([sys.executable, "-m", "tensorlang"], env=os.environ | asked, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert offered in [line.partition(",")[2] for line in done.stdout.splitlines()]
