"""Runs what a device has to show, from harmless to risky, within a limit: what it is, that kernels are right, how fast they are.

    python3 scripts/device.py --limit 560 --out DIR       the whole ladder (benchmarks/ladder.py): DIR/device.jsonl, .md and .log
    python3 scripts/device.py --only right tests time     groups, or beginnings of names;  --list prints them
    python3 scripts/device.py --resume                    the rest, after what DIR/device.jsonl already holds
    python3 scripts/device.py --dry-run                   on a stand-in for the driver: times mean nothing
    python3 scripts/device.py --prepare cuda:sm_90a       makes machine code, without a device, in the folder of --prepared

Each step is a process of its own with a time of its own: one that hangs, or that loses the device to its process, costs itself alone and
is named. While one step has the device, the next ones are made ready on the other processors. Every result is written as it comes, and the
log of each step that is not all right; the table is printed at the end, at the limit and on interruption.

Nothing but Python's library is needed here. `--wheels DIR` (`wheels` beside this repository's folders, where there is one) holds wheels
of packages that this Python lacks, or has too old: they are unpacked and come first. `--prepared DIR` holds machine code for any NVRTC of
the same major version.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
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
SLOWER = 10
"""How many times longer a step may take on the stand-in."""
TAIL = 3000
"""Characters of a step's log that its result has."""
WHOLE = 100_000
"""Those that DIR/device.log has."""

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
                if found["status"] == "hung":
                    _asked_where(child)
            finally:
                self._running.discard(child)
                _end(child, self.deadline)
            if found["status"] not in ("ok", "absent"):
                found["log"] = _tail(said)
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
        if self._left() <= 0:  # it was ended
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
            _kill(child)


def _asked_where(child: subprocess.Popen[bytes]) -> None:
    """Have a process of Python write into its log where it is, which ends it."""
    with suppress(ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
        resource.prlimit(child.pid, resource.RLIMIT_CORE, (0, 0))  # and no file of its memory
        child.send_signal(signal.SIGABRT)
        child.wait(2)


def _end(child: subprocess.Popen[bytes], deadline: float) -> None:
    """Kill a process and all that it started, and wait until it has gone. One that waits for a device in the kernel outlives that: it is
    waited for ten seconds, and not beyond half of what is kept of the limit."""
    _kill(child)
    with suppress(subprocess.TimeoutExpired):
        child.wait(max(0.2, min(10, deadline + GRACE / 2 - time.monotonic())))
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()


def _kill(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def _tail(said: IO[str]) -> str:
    """Return the end of a log, without the names of a thousand modules that a process of Python ends with when it is killed."""
    said.flush()
    said.seek(0)
    return "".join(line for line in said if not line.startswith("Extension modules:"))[-WHOLE:]


# ---------------------------------------------------------------- what the processes find


def environment(arguments: argparse.Namespace, folder: Path) -> dict[str, str]:
    """Return the environment of the steps: packages that were carried along come first, what was prepared is copied to where this user
    alone may write (caches take nothing else)."""
    site = folder / "site"
    site.mkdir(parents=True)
    for wheel in sorted(wheel for wheel in arguments.wheels.glob("*.whl") if _is_for_this_python(wheel.name)):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(site)
    _declare(site)
    paths = [str(site), str(ROOT), str(ROOT / "tests" / "gpu"), os.environ.get("PYTHONPATH", "")]
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p), "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
    if arguments.prepared.is_dir():
        kept = _copied(arguments.prepared.resolve(), folder / "prepared")
        found["TENSORLANG_PREPARED"] = str(kept)
        if not arguments.dry_run:  # which keeps libraries of the emulator, too
            found["TENSORLANG_CACHE"] = str(kept)
    return found


def _is_for_this_python(wheel: str) -> bool:
    """Tell from the tags in a wheel's name whether this Python can import what is in it: of its own version, or of any."""
    *_, pythons, interfaces, _ = wheel.removesuffix(".whl").split("-")
    own = f"cp{sys.version_info.major}{sys.version_info.minor}"
    later = any(int(tag[3:] or 0) <= sys.version_info.minor for tag in pythons.split(".") if re.fullmatch(r"cp3\d*", tag))
    return own in pythons.split(".") or "py3" in pythons.split(".") or (interfaces == "abi3" and later)


def _declare(site: Path) -> None:
    """Let the importers and operators of this repository be found as if it were installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    said = re.search(r'^__version__ = "(.+)"$', (ROOT / "tensorlang" / "__init__.py").read_text("utf-8"), re.MULTILINE)
    version = said[1] if said else "0"
    folder = site / f"{project['name']}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n", "utf-8")
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
    """Make the machine code of every step, in the folder of `--prepared`; tests run on the stand-in for that. Return how many steps could
    not be made ready."""
    kept = arguments.prepared.resolve()
    known = {**environment(arguments, folder), "TENSORLANG_PREPARED": str(kept)}
    known["TENSORLANG_CACHE"] = os.environ.get("TENSORLANG_CACHE", "")
    failed = 0
    for step in steps:
        begun = time.monotonic()
        own = known if step["group"] == "tests" else {**known, "TENSORLANG_CACHE": str(kept)}  # libraries of the emulator stay here
        done = subprocess.run([sys.executable, str(LADDER), "ready", step["name"], "--target", target], env=own, cwd=ROOT, check=False)
        failed += done.returncode != 0
        status = "ready" if done.returncode == 0 else "FAILED"
        print(f"{status:6} {time.monotonic() - begun:6.1f} s  {step['name']}", file=sys.stderr, flush=True)
    shutil.rmtree(kept / "models", ignore_errors=True)  # weights, which the steps make again
    files = _entries(kept)
    size = sum(path.stat().st_size for path in files)
    print(f"{len(steps) - failed} of {len(steps)} steps are ready; {kept} has {len(files)} entries, {size / 2**20:.1f} MiB")
    return failed


def _entries(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


# ---------------------------------------------------------------- the whole ladder


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 when every step that was asked for is all right, or stands for something that is not installed."""
    started = time.monotonic()
    arguments = _arguments(argv)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core of a process with a device is large, and takes long to write
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
        return _climbed(chosen, Runner(known, started + arguments.limit - GRACE, logs), arguments)


def _is_chosen(step: Outcome, only: Sequence[str]) -> bool:
    return not only or step["group"] in only or step["name"].startswith(tuple(only))


def _climbed(chosen: Sequence[Outcome], runner: Runner, arguments: argparse.Namespace) -> int:
    """Run the steps, writing down each result as it comes, and return the exit code."""
    kept = Path(runner.environment.get("TENSORLANG_PREPARED", os.devnull))
    prepared = _entries(kept)
    results, logs = arguments.out / "device.jsonl", arguments.out / "device.log"
    held = _held(results) if arguments.resume else {}
    if held.get("doctor", {}).get("status", "ok") != "ok":
        del held["doctor"]
    if not arguments.resume:
        logs.unlink(missing_ok=True)
    results.write_text("".join(json.dumps(record) + "\n" for record in held.values()), "utf-8")
    writing = threading.Lock()

    def one(step: Outcome, target: str) -> None:
        seconds = step["seconds"] * (SLOWER if arguments.dry_run else 1)
        command = [sys.executable, str(LADDER), "run", step["name"], "--target", target, "--measured", str(arguments.measured)]
        command += ["--tuned", arguments.tuned, "--seconds", str(seconds), *(["--dry-run"] if arguments.dry_run else [])]
        found = runner.outcome(step["name"], command, seconds, step["alone"])
        record = {"name": step["name"], "group": step["group"], **found, **({"dry": True} if arguments.dry_run else {})}
        log = record.get("log", "")
        with writing, open(results, "a", encoding="utf-8") as file, open(logs, "a", encoding="utf-8") as whole:
            if log:  # of what the limit ended, too
                print(f"==== {step['name']}: {record['status']}", log, sep="\n", file=whole)
                record["log"] = log[-TAIL:]
            if record["status"] == "unreached":
                return
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
    text += f"\n\n{len(prepared)} entries were prepared, {len(_entries(kept) - prepared)} more were made here"
    (arguments.out / "device.md").write_text(text + "\n", "utf-8")
    print(text)
    return 0 if all(held.get(s["name"], {}).get("status") in ("ok", "absent") for s in chosen) else 1


def _held(results: Path) -> dict[str, Outcome]:
    """Return the results that are written down, by the names of their steps."""
    if not results.is_file():
        return {}
    found = {}
    for line in results.read_text("utf-8").splitlines():
        with suppress(json.JSONDecodeError):  # the last one may not be whole
            record = json.loads(line)
            found[record["name"]] = record
    return found


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
