"""scripts/device.py: each step is a process with a time of its own, what becomes of it is written down as it comes, and the steps are those
of the benchmarks and tests, run here on a stand-in for the driver."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "scripts"))
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import device
import ladder

from codegen.store import Cache

ROOT = Path(__file__).parents[1]


def runner(tmp_path: Path, limit: float = 60) -> device.Runner:
    return device.Runner({"PATH": "/usr/bin:/bin"}, time.monotonic() + limit, tmp_path)


def says(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", text]


READY = "import sys, time; print('@ready', flush=True); sys.stdin.readline(); "


@pytest.mark.parametrize(
    ("text", "status", "detail"),
    [
        ("print('noise'); " + READY + """print('noise'); print('@done {"status": "ok"}')""", "ok", ""),
        (READY + "time.sleep(60)", "hung", "not done after 0.3 s on the device"),
        (READY + "sys.exit(3)", "crashed", "the process ended with 3"),
        ("import os; os.abort()", "crashed", "the process ended with -6"),
        ("""print('@done {"status": "error", "detail": "why"}')""", "error", "why"),
    ],
)
def test_what_becomes_of_a_step_is_its_own(tmp_path: Path, text: str, status: str, detail: str) -> None:
    found = runner(tmp_path).outcome("a step", says(text), seconds=0.3, alone=True)
    assert (found["status"], found.get("detail", "")) == (status, detail)


def test_at_the_limit_nothing_more_is_reached(tmp_path: Path) -> None:
    late = runner(tmp_path, limit=0.5)
    assert late.outcome("a step", says(READY + "time.sleep(60)"), seconds=60, alone=False)["status"] == "unreached"
    assert late.outcome("another", says(READY), seconds=60, alone=False)["status"] == "unreached"


def test_the_steps_go_from_what_harms_nothing_to_what_may_hang_and_have_names_of_their_own() -> None:
    steps = list(ladder.steps())
    groups = list(dict.fromkeys(step.group for step in steps))
    assert groups == ["doctor", "ceilings", "right", "tests", "time", "attention", "variants", "models", "sanitize"]
    assert len({step.name for step in steps}) == len(steps)
    marked = {p.stem.removeprefix("test_") for p in (ROOT / "tests" / "device").glob("test_*.py") if "executor" in p.read_text("utf-8")}
    assert marked | {"operators_there"} == set(ladder.MODULES)
    families = {step.name for step in steps if step.group == "right"}
    assert families >= set(ladder.SANITIZED)


def test_what_was_carried_along_is_read_though_others_could_write_it_where_it_came_from(tmp_path: Path) -> None:
    carried = tmp_path / "carried"
    Cache(carried).put("ab", b"code")
    for path in (carried, *carried.rglob("*")):
        path.chmod(0o777)
    (tmp_path / "wheels").mkdir()
    with zipfile.ZipFile(tmp_path / "wheels" / "some-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("some_package.py", "x = 1\n")
    arguments = argparse.Namespace(wheels=tmp_path / "wheels", prepared=carried, dry_run=False)
    known = device.environment(arguments, tmp_path / "own")
    assert Cache(carried).get("ab") is None
    assert Cache(Path(known["TENSORLANG_PREPARED"])).get("ab") == b"code"
    site = Path(known["PYTHONPATH"].split(":")[0])
    assert (site / "some_package.py").is_file()
    assert "stdlib.onnx:Importer" in next(site.glob("tensorlang-*.dist-info/entry_points.txt")).read_text("utf-8")


def test_a_dry_run_writes_each_result_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "device.py"), "--dry-run", "--out", str(tmp_path), "--measured", "0.01"]

    def run(*only: str) -> tuple[str, list[str]]:
        done = subprocess.run([*command, *only], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, [json.loads(line)["name"] for line in (tmp_path / "device.jsonl").read_text("utf-8").splitlines()]

    _, names = run("--only", "doctor")
    assert names == ["doctor"]
    table, names = run("--only", "doctor", "add_relu", "time softmax f32 1536", "--resume")
    assert names[0] == "doctor" and set(names[1:]) == {"add_relu f32 1003", "time softmax f32 1536x128"}
    assert "| add_relu f32 1003 | ok |" in table and "3 ok" in table
