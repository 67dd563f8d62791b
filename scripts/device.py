"""Runs what a device has to show, from harmless to risky, within a limit: what it is, that kernels are right, how fast they are.

    python3 scripts/device.py --limit 560 --out DIR       the whole ladder (benchmarks/ladder.py); DIR/device.jsonl, DIR/device.md
    python3 scripts/device.py --only right tests time     groups, or beginnings of names;  --list prints them
    python3 scripts/device.py --resume                    the rest, after what DIR/device.jsonl already holds
    python3 scripts/device.py --dry-run                   on a stand-in for the driver: times mean nothing
    python3 scripts/device.py --prepare cuda:sm_90a       makes machine code, without a device, in the folder of --prepared

Each step is a process of its own with a time of its own: one that hangs, or that loses the device to its process, costs itself alone and
is named. While one step has the device, the next ones are made ready on the other processors. Every result is written as it comes; the
table is printed at the end, at the limit and on interruption.

Nothing but Python's library is needed here. `--wheels DIR` (`wheels` beside this repository's folders, where there is one) holds wheels
of packages that this Python lacks, or has too old: they are unpacked and come first. `--prepared DIR` holds machine code for any NVRTC of
the same major version.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
LADDER = ROOT / "benchmarks" / "ladder.py"
READY_SECONDS = 240
"""What a step may take before it needs the device."""
GRACE = 8
"""Seconds kept of the limit for ending what runs and printing the table."""
TAIL = 3000

Outcome = dict[str, Any]


class Turns:
    """Whose turn it is on the device: one step that is to be alone there, or any number of others."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._there = 0
        self._alone = False

    @contextmanager
    def taken(self, alone: bool) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not (alone and self._there))
            self._there += 1
            self._alone = alone
        try:
            yield
        finally:
            with self._changed:
                self._there -= 1
                self._alone = False
                self._changed.notify_all()


@dataclass
class Runner:
    """Runs commands that say `@ready`, wait for a line and say `@done` with an outcome. `deadline`: of all of them, by `time.monotonic`."""

    environment: dict[str, str]
    deadline: float
    logs: Path
    turns: Turns = field(default_factory=Turns)
    _running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _over: bool = False

    def outcome(self, name: str, command: Sequence[str], seconds: float, alone: bool) -> Outcome:
        """Return what a command has to say, or what became of it: `hung` after so many seconds on the device, `crashed`, or `unreached`
        when the time for everything was up."""
        started = time.monotonic()
        if self._left() <= 0:
            return {"status": "unreached"}
        log = self.logs / ("".join(c if c.isalnum() else "-" for c in name) + ".log")
        with open(log, "w+", encoding="utf-8") as said:
            pipe = subprocess.PIPE
            child = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=said, bufsize=0, env=self.environment, cwd=ROOT, start_new_session=True
            )
            self._running.add(child)
            try:
                found = self._followed(child, seconds, alone, started)
            finally:
                self._running.discard(child)
                _end(child)
            if found["status"] != "ok":
                found.setdefault("log", _tail(said))
        return found

    def _followed(self, child: subprocess.Popen[bytes], seconds: float, alone: bool, started: float) -> Outcome:
        assert child.stdin is not None
        said = bytearray()
        first = self._line(child, said, READY_SECONDS)
        prepared = round(time.monotonic() - started, 1)
        if first is None or first.startswith("@done"):
            return {**self._read(first, child, f"not ready after {READY_SECONDS} s"), "prepared": prepared}
        with self.turns.taken(alone):
            begun = time.monotonic()
            if self._left() <= 0:
                return {"status": "unreached"}
            with suppress(BrokenPipeError):
                child.stdin.write(b"go\n")
            last = self._line(child, said, seconds)
            found = self._read(last, child, f"not done after {seconds:g} s on the device")
            return {**found, "prepared": prepared, "seconds": round(time.monotonic() - begun, 1)}

    def _read(self, line: str | None, child: subprocess.Popen[bytes], late: str) -> Outcome:
        if line is not None and line.startswith("@done "):
            return dict(json.loads(line.removeprefix("@done ")))
        if line is None and self._left() <= 0:
            return {"status": "unreached"}
        if line is None:
            return {"status": "hung", "detail": late}
        return {"status": "crashed", "detail": f"the process ended with {child.wait()}"}

    def _line(self, child: subprocess.Popen[bytes], said: bytearray, seconds: float) -> str | None:
        """Return the next line that begins with `@`, "" when the process has ended, None when it has not said one in time. `said`: what
        it has written and nobody has read."""
        assert child.stdout is not None
        end = min(time.monotonic() + seconds, self.deadline)
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while True:
                while b"\n" in said:
                    line, _, rest = bytes(said).partition(b"\n")
                    said[:] = rest
                    if line.startswith(b"@"):
                        return line.decode("utf-8", "replace")
                left = end - time.monotonic()
                if left <= 0 or self._over:
                    return None
                if selector.select(min(left, 0.5)):
                    more = os.read(child.stdout.fileno(), 1 << 16)
                    if not more:
                        return ""
                    said += more

    def _left(self) -> float:
        return 0.0 if self._over else self.deadline - time.monotonic()

    def stop(self) -> None:
        """End everything that runs; what has not run is not started any more."""
        self._over = True
        for child in list(self._running):
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started. One that waits for a device in the kernel outlives that, and is not waited for."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        child.wait(10)
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()


def _tail(said: IO[str]) -> str:
    said.flush()
    said.seek(0)
    return said.read()[-TAIL:]


# ---------------------------------------------------------------- what the processes find


def environment(arguments: argparse.Namespace, folder: Path) -> dict[str, str]:
    """Return the environment of the steps: packages that were carried along come first, what was prepared is copied to where this user
    alone may write (caches take nothing else)."""
    site = folder / "site"
    site.mkdir(parents=True)
    for wheel in sorted(arguments.wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(site)
    _declare(site)
    paths = [str(site), str(ROOT), str(ROOT / "tests" / "gpu"), os.environ.get("PYTHONPATH", "")]
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p), "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
    if arguments.prepared.is_dir() and not arguments.dry_run:
        kept = _copied(arguments.prepared, folder / "prepared")
        found |= {"TENSORLANG_PREPARED": str(kept), "TENSORLANG_CACHE": str(kept)}
    return found


def _declare(site: Path) -> None:
    """Let the importers and operators of this repository be found as if it were installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    folder = site / f"{project['name']}-{project['version']}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", "utf-8")
    groups = [f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in points.items()) for group, points in project["entry-points"].items()]
    (folder / "entry_points.txt").write_text("\n".join(groups), "utf-8")


def _copied(source: Path, target: Path) -> Path:
    """Copy files into folders that nobody else may write to."""
    before = os.umask(0o077)
    try:
        target.mkdir()
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
    finally:
        os.umask(before)
    return target


def prepare(target: str, steps: Sequence[Outcome], arguments: argparse.Namespace, folder: Path) -> int:
    """Make the machine code of every step, in the folder of `--prepared`. Return how many steps could not be made ready."""
    kept = arguments.prepared.resolve()
    known = {**environment(arguments, folder), "TENSORLANG_PREPARED": str(kept), "TENSORLANG_CACHE": str(kept)}
    failed = 0
    for step in steps:
        done = subprocess.run([sys.executable, str(LADDER), "ready", step["name"], "--target", target], env=known, cwd=ROOT, check=False)
        failed += done.returncode != 0
        print(f"{'ready' if done.returncode == 0 else 'FAILED'}  {step['name']}", file=sys.stderr, flush=True)
    for large in ("models", "emulator"):  # weights, which the steps make again; libraries for this processor
        shutil.rmtree(kept / large, ignore_errors=True)
    size = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
    print(f"{len(steps) - failed} of {len(steps)} steps are ready; {kept} has {size / 2**20:.1f} MiB")
    return failed


# ---------------------------------------------------------------- the whole ladder


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 when every step that was asked for is all right, or stands for something that is not installed."""
    arguments = _arguments(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tensorlang-device-") as name:
        folder = Path(name)
        known = environment(arguments, folder)
        listed = subprocess.run([sys.executable, str(LADDER), "list"], env=known, cwd=ROOT, capture_output=True, text=True, check=False)
        if listed.returncode:
            print(listed.stderr, file=sys.stderr)
            print(f"error: the steps cannot be listed; wheels of what is missing go into {arguments.wheels}", file=sys.stderr)
            return 1
        every: list[Outcome] = [json.loads(line) for line in listed.stdout.splitlines() if line.startswith("{")]
        chosen = [s for s in every if _is_chosen(s, arguments.only)]
        if arguments.list:
            print(*(f"{s['group']:10} {s['seconds']:4} s  {s['name']}" for s in chosen), sep="\n")
            return 0
        if arguments.prepare:
            return 1 if prepare(arguments.prepare, chosen, arguments, folder / "other") else 0
        logs = folder / "logs"
        logs.mkdir()
        return _climbed(chosen, Runner(known, time.monotonic() + arguments.limit - GRACE, logs), arguments)


def _is_chosen(step: Outcome, only: Sequence[str]) -> bool:
    return not only or step["group"] in only or step["name"].startswith(tuple(only))


def _climbed(chosen: Sequence[Outcome], runner: Runner, arguments: argparse.Namespace) -> int:
    """Run the steps, writing down each result as it comes, and return the exit code."""
    results = arguments.out / "device.jsonl"
    held = _held(results) if arguments.resume else {}
    if not arguments.resume:
        results.unlink(missing_ok=True)
    writing = threading.Lock()

    def one(step: Outcome, target: str) -> None:
        command = [sys.executable, str(LADDER), "run", step["name"], "--target", target, "--measured", str(arguments.measured)]
        command += ["--tuned", arguments.tuned, *(["--dry-run"] if arguments.dry_run else [])]
        found = runner.outcome(step["name"], command, step["seconds"], step["alone"])
        if found["status"] == "unreached":
            return
        record = {"name": step["name"], "group": step["group"], **found, **({"dry": True} if arguments.dry_run else {})}
        with writing, open(results, "a", encoding="utf-8") as file:
            held[step["name"]] = record
            print(json.dumps(record), file=file, flush=True)
            print(f"{record['status']:8} {record.get('seconds', ''):>6} {step['name']}  {_short(record)}", file=sys.stderr, flush=True)

    def stopped(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stopped)
    pool = ThreadPoolExecutor(arguments.jobs)
    try:
        first = next((s for s in chosen if s["name"] == "doctor" and s["name"] not in held), None)
        if first is not None:
            one(first, arguments.target)
        found = held.get("doctor", {"status": "ok"})
        if found["status"] != "ok":
            print("the device does not answer: nothing else is run", file=sys.stderr)
            chosen = [s for s in chosen if s["name"] == "doctor"]
        target = found.get("figures", {}).get("target", arguments.target)
        waiting = [pool.submit(one, step, target) for step in chosen if step["name"] not in held]
        for future in waiting:
            future.result()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    finally:
        runner.stop()
        pool.shutdown(cancel_futures=True)
    text = table([held.get(s["name"], {"name": s["name"], "status": "unreached"}) for s in chosen])
    (arguments.out / "device.md").write_text(text + "\n", "utf-8")
    print(text)
    return 0 if all(held.get(s["name"], {}).get("status") in ("ok", "absent") for s in chosen) else 1


def _held(results: Path) -> dict[str, Outcome]:
    if not results.is_file():
        return {}
    lines = [json.loads(line) for line in results.read_text("utf-8").splitlines() if line.endswith("}")]
    return {line["name"]: line for line in lines}


def _short(record: Outcome) -> str:
    row = record.get("row") or []
    return " | ".join([*filter(None, row), record.get("detail", "").splitlines()[0] if record.get("detail") else ""])[:160]


def table(records: Sequence[Outcome]) -> str:
    """Return the results as a table, and after it what is not all right, each with its last words."""
    heads = ("", "", "s", "us", "rate", "torch, us", "torch.compile, us", "ratio", "difference", "")
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for record in records:
        row = [*(record.get("row") or []), *[""] * 6][:6]
        detail = (record.get("detail") or "").splitlines()[:1]
        cells = (record["name"], record["status"], record.get("seconds", ""), *row, *(detail or [""]))
        lines.append("| " + " | ".join(str(c).replace("|", "/") for c in cells) + " |")
    counts = {status: sum(r["status"] == status for r in records) for status in dict.fromkeys(r["status"] for r in records)}
    lines += ["", ", ".join(f"{n} {status}" for status, n in counts.items())]
    for record in records:
        if record["status"] not in ("ok", "absent", "unreached"):
            lines += ["", f"{record['name']}: {record['status']}", record.get("detail", ""), record.get("log", "")[-1200:]]
    return "\n".join(lines)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--limit", type=float, default=560.0, help="seconds for all of it")
    parser.add_argument("--out", type=Path, default=ROOT / "device-results", help="where results go")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="groups, or beginnings of names (default: all)")
    parser.add_argument("--resume", action="store_true", help="leave out what the results already hold")
    parser.add_argument("--list", action="store_true", help="print the steps, run nothing")
    parser.add_argument("--dry-run", action="store_true", help="on a stand-in for the driver")
    parser.add_argument("--prepare", metavar="TARGET", help="make machine code for it, run nothing")
    parser.add_argument("--prepared", type=Path, default=ROOT / "prepared", help="where machine code made beforehand is")
    parser.add_argument("--wheels", type=Path, default=ROOT / "wheels", help="where wheels of missing packages are")
    parser.add_argument("--target", default="cuda:sm_90a", help="what to compile for where the first step does not say")
    parser.add_argument("--jobs", type=int, default=max(2, min(8, (os.cpu_count() or 2) // 2)), help="steps under way at a time")
    parser.add_argument("--measured", type=float, default=0.3, help="seconds for each row that is measured")
    parser.add_argument("--tuned", default="default", help="the mode of torch.compile")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
