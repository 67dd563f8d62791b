"""What commands import: none waits for what it does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("cuda", "islpy", "lark", "llvmlite", "ml_dtypes", "numpy", "onnx", "pygls", "rich")
TEXT = """op scale(x: f32[N], attr by: float = 2.0) -> (y: f32[N]) {
    y[i] = x[i] * by + sqrt(x[i])
}
"""


def imported(*argv: str | Path) -> set[str]:
    """Return which of the packages that take long to import a command imports."""
    script = f"""
import sys
from tensorlang.cli import _guarded
assert _guarded({[str(a) for a in argv]!r}) == 0
print("imported:", *(n for n in {HEAVY!r} if n in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].removeprefix("imported:").split())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.tl"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize(
    "argv", [["--help"], ["--version"], ["check", "FILE"], ["check", "FILE", "--json"], ["fmt", "FILE"], ["list", "FILE"], ["show", "FILE"]]
)
def test_commands_that_only_read_text_import_nothing_heavy(argv: list[str], file: Path) -> None:
    assert imported(*(file if a == "FILE" else a for a in argv)) == set()


def test_only_what_has_to_be_proven_waits_for_isl(tmp_path: Path) -> None:
    path = tmp_path / "b.tl"
    path.write_text("op f(x: f32[N]) -> (y: f32[N]) where N >= 2 {\n    y[i] = x[i + 1] for i < N - 1\n    y[i] = 0 otherwise\n}\n")
    assert imported("check", path) == {"islpy"}


def test_the_laws_of_a_reducer_are_tested_on_arrays(tmp_path: Path) -> None:
    path = tmp_path / "c.tl"
    path.write_text("reducer total a b from 0 = a + b\n\nop f(x: f32[N]) -> (y: f32) {\n    y = total(i) x[i]\n}\n")
    assert "numpy" in imported("check", path)


@pytest.mark.parametrize("moment", ["click", "tensorlang.commands.show", "tensorlang.check.module"])
def test_an_interrupt_at_any_time_ends_in_one_line(moment: str, file: Path) -> None:
    """The moment is the import of a module: of the first that the command line needs, of one of its own, of one while a command runs."""
    script = f"""
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {moment!r}:
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)  # who started the tests may ignore it
sys.meta_path.insert(0, Interrupting())
sys.argv[1:] = ["check", {str(file)!r}]
from tensorlang.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tensorlang: interrupted\n")
