"""Makes `.venv`, the environment in which everything of this repository runs. Needs nothing but Python 3.11 and a package registry.

    python3 scripts/environment.py [test | dev]

Importing it gives `prepared(extra)`, which other scripts begin with.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
PYTEST = ("-m", "pytest", "-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart", "0")
"""How the tests run: a process runs all tests of a file, so that what they share is made once, and long files come first, as
`tests/conftest.py` orders them, so that no process waits for another's at the end. A process that dies ends the run: begun again, it would
leave the scheduler of files waiting without end."""
_APART = {
    "tests of the standard library": ("tests/stdlib",),
    "tests of PyTorch": ("tests/pytorch", "tests/benchmarks", "tests/cli/test_peers.py"),
}
WHOLE = {
    "tests": (*PYTEST, *(f"--ignore={path}" for paths in _APART.values() for path in paths)),
    **{name: (*PYTEST, *paths) for name, paths in _APART.items()},
}
"""All tests. Loaded kernels, of which those of the standard library are thousands, and PyTorch's libraries and threads stay in a process
that has loaded them, so these have processes of their own. Each process imports all test modules of its run: those that import PyTorch
are in the one run."""
HOME = ROOT / ".venv"


@functools.cache
def prepared(extra: str = "test") -> Path:
    """Return the interpreter of `.venv`, with this repository and what its `extra` needs installed. Exits with a message if it cannot.

    Does nothing when the environment is already made from the pyproject.toml there is."""
    python = HOME / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    marks = [HOME / f"installed-{name}" for name in dict.fromkeys((extra, "dev"))]  # `dev` has all that the others have
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + str(ROOT).encode()).hexdigest()
    if any(mark.is_file() and mark.read_text() == wanted for mark in marks) and _works(python):
        return python
    if sys.version_info < (3, 11):
        raise SystemExit(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}: run `python3.11 {sys.argv[0]}`")
    if not _works(python):
        print(f"making {HOME}", flush=True)
        _make()
    print(f"installing tensorlang[{extra}] and what it needs (a minute or two)", flush=True)
    # What is imported is compiled then: a tenth of all that there is.
    install = ("pip", "install", "--disable-pip-version-check", "--quiet", "--no-compile")
    _run([str(python), "-m", *install, "--editable", f"{ROOT}[{extra}]"])
    marks[0].write_text(wanted)
    return python


def run(*arguments: str, extra: str = "test", variables: Mapping[str, str] | None = None, output: IO[str] | None = None) -> int:
    """Return the exit status of `.venv`'s Python with `arguments`, in the root of the repository, with `variables` in its environment; what
    it prints goes to `output`, unless given this process's own. It may keep what it made of the source: tests start hundreds of processes,
    which else compile the same modules again."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | dict(variables or {})
    try:
        return subprocess.run(
            [str(prepared(extra)), *arguments], cwd=ROOT, env=environment, stdout=output, stderr=output, check=False
        ).returncode
    except KeyboardInterrupt:
        return 130


def _works(python: Path) -> bool:
    return python.is_file() and subprocess.run([str(python), "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0


def _make() -> None:
    shutil.rmtree(HOME, ignore_errors=True)
    try:
        venv.create(HOME, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        hint = "some systems ship Python without `venv`: install the package python3-venv"
        raise SystemExit(f"cannot make {HOME}: {problem}\n{hint}") from None


def _run(command: list[str]) -> None:
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise SystemExit(f"failed: {' '.join(command)}")


if __name__ == "__main__":
    prepared(sys.argv[1] if len(sys.argv) > 1 else "test")
    print(f"ready: {HOME}")
