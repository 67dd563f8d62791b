"""scripts/device.py: each step is a process with a time of its own, what becomes of it is written down as it comes, and the steps are those
of the benchmarks and tests, run here on a stand-in for the driver."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "scripts"))
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import device
import ladder
import told

from codegen.store import Cache

ROOT = Path(__file__).parents[1]


def runner(tmp_path: Path, limit: float = 60) -> device.Runner:
    return device.Runner({"PATH": "/usr/bin:/bin"}, time.monotonic() + limit, tmp_path)


def says(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", text]


WITHOUT_CORE = "import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); "
"""What a child does before it aborts, which otherwise may leave a file of its memory behind."""
READY = "import sys, time; print('@ready', flush=True); sys.stdin.readline(); "


@pytest.mark.parametrize(
    ("text", "status", "detail"),
    [
        ("print('noise'); " + READY + """print('noise'); print('@done {"status": "ok"}')""", "ok", ""),
        (READY + "time.sleep(60)", "hung", "not done after 0.3 s on the device"),
        (READY + "sys.exit(3)", "crashed", "the process ended with 3"),
        (f"{WITHOUT_CORE}os.abort()", "crashed", "the process ended with -6"),
        ("""print('@done {"status": "error", "detail": "why"}')""", "error", "why"),
    ],
)
def test_what_becomes_of_a_step_is_its_own(tmp_path: Path, text: str, status: str, detail: str) -> None:
    found = runner(tmp_path).outcome("a step", says(text), seconds=0.3, alone=True)
    assert (found["status"], found.get("detail", "")) == (status, detail)


def test_a_step_that_hangs_says_where_it_was(tmp_path: Path) -> None:
    text = "import faulthandler; faulthandler.enable()\ndef turning():\n while True: pass\n" + READY + "turning()"
    found = runner(tmp_path).outcome("a step", says(text), seconds=0.3, alone=True)
    assert found["status"] == "hung" and "in turning" in found["log"]


def test_a_step_that_the_limit_ends_is_not_taken_for_one_that_crashed_and_keeps_its_log(tmp_path: Path) -> None:
    running, log = runner(tmp_path), tmp_path / "a-step.log"
    text = "import sys; print('so far', file=sys.stderr, flush=True); " + READY + "time.sleep(60)"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(running.outcome, "a step", says(text), 60, False)
        while not (log.is_file() and log.read_text("utf-8")):
            time.sleep(0.05)
        running.stop()
        found = waiting.result()
    assert (found["status"], found["log"]) == ("unreached", "so far\n")


def test_at_the_limit_nothing_more_is_reached(tmp_path: Path) -> None:
    late = runner(tmp_path, limit=0.5)
    assert late.outcome("a step", says(READY + "time.sleep(60)"), seconds=60, alone=False)["status"] == "unreached"
    assert late.outcome("another", says(READY), seconds=60, alone=False)["status"] == "unreached"


def listing(tmp_path: Path, seconds: float) -> Path:
    """Return a ladder of three steps, the second of which hangs, that takes some time to list them."""
    steps = [{"name": n, "group": "right", "seconds": 60, "alone": False} for n in ("quick", "endless", "never")]
    fake = tmp_path / "fake.py"
    fake.write_text(
        f"""import json, sys, time
if sys.argv[1] == "list":
    time.sleep({seconds})
    print(*(json.dumps(step) for step in {steps!r}), sep="\\n")
    sys.exit()
print("@ready", flush=True)
sys.stdin.readline()
time.sleep(60 if sys.argv[2] == "endless" else 0)
print("@done", json.dumps({{"status": "ok"}}), flush=True)
""",
        "utf-8",
    )
    return fake


def options(tmp_path: Path) -> list[str]:
    return ["--jobs", "1", "--out", str(tmp_path / "out"), "--prepared", str(tmp_path / "no"), "--wheels", str(tmp_path)]


def test_the_limit_counts_from_the_start_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines: list[float] = []
    monkeypatch.setattr(device, "LADDER", listing(tmp_path, 1.0))
    monkeypatch.setattr(device, "_climbed", lambda chosen, runner, arguments: deadlines.append(runner.deadline) or 0)
    begun = time.monotonic()
    assert device.main([*options(tmp_path), "--limit", "100"]) == 0
    assert deadlines[0] <= begun + 100 - device.GRACE + 0.9


def test_what_was_reached_before_a_step_that_hangs_is_kept_and_what_was_not_is_left_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "LADDER", listing(tmp_path, 0.0))
    chosen = [
        json.loads(line)
        for line in subprocess.run(
            [sys.executable, str(device.LADDER), "list"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
    ]
    arguments = device._arguments(options(tmp_path))
    arguments.out.mkdir()
    running = runner(tmp_path)
    results = tmp_path / "out" / "device.jsonl"

    def stop_after_the_first() -> None:
        while not (results.is_file() and results.read_text("utf-8")):
            time.sleep(0.05)
        running.stop()

    monkeypatch.setattr(device.signal, "signal", lambda number, handler: None)
    threading.Thread(target=stop_after_the_first, daemon=True).start()
    assert device._climbed(chosen, running, arguments) == 1
    results.write_text(results.read_text("utf-8") + '{"name": "ne', "utf-8")
    assert list(device._held(results)) == ["quick"]
    assert "1 ok, 2 unreached" in (tmp_path / "out" / "device.md").read_text("utf-8")


HARMFUL = """
import os, resource, time, pytest

@pytest.mark.parametrize("what", ["fine", "dies", "also fine", "fails", "hangs", "the last"])
@pytest.mark.gpu
def test_it(what):
    if what == "dies":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.abort()
    if what == "hangs":
        time.sleep(60)
    assert what != "fails", "CUDA_ERROR_INVALID_VALUE"
"""


def test_a_test_that_hangs_or_loses_the_device_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tests" / "device"
    folder.mkdir(parents=True)
    (folder / "test_harm.py").write_text(HARMFUL, "utf-8")
    monkeypatch.setattr(ladder, "ROOT", tmp_path)
    found = ladder._tested(ladder.Step("tests harm", "tests", 30), ladder.Options("cuda:sm_90a", 0.1, "default"))
    assert found["status"] == "hung" and found["detail"].startswith("3 of 6 passed; ")
    dies, hangs = found["figures"]["ended early"]
    assert "[dies]: the process ended with -6" in dies and "[hangs]: not done after 10 s" in hangs
    ((name, why),) = found["figures"]["failed"].items()
    assert name.endswith("test_it[fails]") and "CUDA_ERROR_INVALID_VALUE" in why


def test_what_is_told_of_tests_outlives_a_line_that_is_not_whole(tmp_path: Path) -> None:
    file = tmp_path / "told"
    file.write_text('{"there": 2}\n{"begun": "a"}\n{"ended": "a", "passed": true, "why": ""}\n{"begun": "b"}\n{"ended": "b", "pas', "utf-8")
    found = told.read(file)
    assert (found.there, found.passed, found.unfinished) == (2, {"a"}, ("b",))


def test_the_steps_go_from_what_harms_nothing_to_what_may_hang_and_have_names_of_their_own() -> None:
    steps = list(ladder.steps())
    groups = list(dict.fromkeys(step.group for step in steps))
    assert groups == ["doctor", "ceilings", "right", "tests", "time", "attention", "variants", "profiles", "models", "sanitize"]
    assert len({step.name for step in steps}) == len(steps)
    marked = {
        p.stem.removeprefix("test_")
        for p in (ROOT / "tests" / "device").glob("test_*.py")
        if re.search(r"\bexecutor\b", p.read_text("utf-8"))
    }
    assert marked | {"operators_there"} == set(ladder.MODULES)
    families = {step.name for step in steps if step.group == "right"}
    assert families >= set(ladder.SANITIZED)


def test_what_was_carried_along_is_read_though_others_could_write_it_where_it_came_from(tmp_path: Path) -> None:
    carried = tmp_path / "carried"
    Cache(carried).put("ab", b"code")
    for path in (carried, *carried.rglob("*")):
        path.chmod(0o777)
    (tmp_path / "wheels").mkdir()
    for name, module in (("some-1-py3-none-any", "some_package"), ("other-1-cp38-cp38-manylinux_2_17_x86_64", "of_another_python")):
        with zipfile.ZipFile(tmp_path / "wheels" / f"{name}.whl", "w") as wheel:
            wheel.writestr(f"{module}.py", "x = 1\n")
    arguments = argparse.Namespace(wheels=tmp_path / "wheels", prepared=carried, dry_run=False)
    known = device.environment(arguments, tmp_path / "own")
    assert Cache(carried).get("ab") is None
    assert Cache(Path(known["TENSORLANG_PREPARED"])).get("ab") == b"code"
    site = Path(known["PYTHONPATH"].split(":")[0])
    assert (site / "some_package.py").is_file() and not (site / "of_another_python.py").exists()
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
