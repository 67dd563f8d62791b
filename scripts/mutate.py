"""Plant the faults of `scripts/faults`, one at a time, and see whether anything notices.

    python scripts/mutate.py --list
    python scripts/mutate.py --only order-backwards scan-last-iteration
    python scripts/mutate.py --report docs/mutation.md

Works on a copy of the repository, with the Python that runs it. The tests of all chosen faults have to pass there first. Then each fault is
planted, its nearest tests run until one fails, and the file is put back. `--report` keeps the rows of faults that were not chosen. Exits
with 1 when a fault survives that is not argued to change nothing, or one is caught that is.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parent.parent
MARK = "<!-- What follows is written by scripts/mutate.py --report. -->"
LARGEST = 24 << 30
"""Bytes of addresses that the tests of one fault may ask for: a loop that no longer ends fills a machine quickly."""
ENVIRONMENT = {"HYPOTHESIS_PROFILE": "first", "COLUMNS": "400", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """`by`: what noticed the fault, "" when nothing did; `where`: the test in which that was."""

    by: str
    where: str
    seconds: float


def main() -> int:
    arguments = _arguments()
    unknown = set(arguments.only) - {f.name for f in FAULTS}
    if unknown:
        raise SystemExit(f"no such fault: {', '.join(sorted(unknown))}")
    chosen = [f for f in FAULTS if not arguments.only or f.name in arguments.only]
    if arguments.list:
        for fault in chosen:
            print(f"{fault.name:28} {fault.file:38} {fault.breaks}")
        return 0
    found: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        copy = copied(Path(scratch) / "tree")
        if not arguments.trust:
            before = _run(copy, sorted({test for fault in chosen for test in fault.tests}), arguments.limit * 10)
            if before.by:
                raise SystemExit(f"without any fault, {before.where} fails: {before.by}")
            print(f"without any fault, all tests pass in {before.seconds:.0f} s", flush=True)
        for fault in chosen:
            found[fault.name] = outcome = _tried(copy, fault, arguments.limit)
            print(f"{fault.name:28} {outcome.seconds:4.0f} s  {_told(fault, outcome)}", flush=True)
            if arguments.report is not None:
                report(arguments.report, {f.name: row(f, found[f.name]) for f in chosen if f.name in found})
    return 1 if any(bool(found[f.name].by) == bool(f.equivalent) for f in chosen) else 0


# ---------------------------------------------------------------- one fault


def planted(text: str, fault: Fault) -> str:
    """Return `text`, that of the fault's file, with the fault in it. Raises ValueError where it has no place, or several."""
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.name}: {fault.file} has {text.count(fault.old)} places that read {fault.old!r}")
    return text.replace(fault.old, fault.new)


def copied(to: Path) -> Path:
    """Return a copy of the files of the repository."""
    names = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in (n for n in names.decode().split("\0") if n and (ROOT / n).is_file()):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, to / name)
    packages = [str(to / p) for p in ("polyhedral", "codegen", "tensorlang", "stdlib", "tests")]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *packages], check=True)
    return to


def _tried(copy: Path, fault: Fault, limit: float) -> Outcome:
    path = copy / fault.file
    right = path.read_text("utf-8")
    kept = Path(importlib.util.cache_from_source(str(path)))
    try:
        kept.unlink(missing_ok=True)  # times of files are too coarse to tell two texts of one length apart
        path.write_text(planted(right, fault), "utf-8")
        return _run(copy, fault.tests, limit)
    finally:
        path.write_text(right, "utf-8")


def _run(copy: Path, tests: Sequence[str], limit: float) -> Outcome:
    """Return what the first failing one of `tests` says."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=short", "-rfE", *tests]
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cache-", dir=copy.parent) as cache:
        environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(copy), "XDG_CACHE_HOME": cache, "TMPDIR": cache}
        with subprocess.Popen(
            command,
            cwd=copy,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=_modestly,
        ) as process:
            try:
                text, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                text, _ = process.communicate()
                return Outcome("the time limit", _last(text) or tests[0], time.monotonic() - start)
    return verdict(text, process.returncode, tests, time.monotonic() - start)


def _modestly() -> None:
    os.nice(5)
    resource.setrlimit(resource.RLIMIT_AS, (LARGEST, LARGEST))


def verdict(text: str, status: int, tests: Sequence[str], seconds: float) -> Outcome:
    """Return what pytest's output and exit status say: a verifier of ours, a coded refusal, a test, or a process that died."""
    if status == 0:
        return Outcome("", "", seconds)
    if status < 0 or "Fatal Python error" in text:
        return Outcome("a crash", _last(text) or tests[0], seconds)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)(?:.*?) - (.*)$|^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    if failed is None:
        raise SystemExit(f"pytest ended with {status}:\n{text[-2000:]}")
    where, why = (failed[1] or failed[3]).split("[")[0], failed[2] or ""
    stage = re.match(r"(?:\w+\.)*InternalError: (\w+(?: \w+)?):", why) or re.search(
        r"^E +(?:\w+\.)*InternalError: (\w+(?: \w+)?):", text, re.M
    )
    refused = re.match(r"(?:\w+\.)*CompileError: error\[(\w+)\]", why) or re.search(
        r"^E +(?:\w+\.)*CompileError: error\[(\w+)\]", text, re.M
    )
    if stage is not None:
        return Outcome(f"the verifier `{stage[1]}`", where, seconds)
    return Outcome(f"refusal {refused[1]}" if refused is not None else "a test", where, seconds)


def _last(text: str) -> str:
    """Return the test that the traceback of a process that died names."""
    found = re.findall(r'File ".*?/(tests/[\w/]*test_\w+\.py)", line \d+ in (test_\w+)', text)
    return "::".join(found[0]) if found else ""


def _told(fault: Fault, outcome: Outcome) -> str:
    if outcome.by:
        return f"caught by {outcome.by} in {outcome.where}" + (", though argued to change nothing" if fault.equivalent else "")
    return "survives, as argued" if fault.equivalent else "SURVIVES"


# ---------------------------------------------------------------- the table


def row(fault: Fault, outcome: Outcome) -> str:
    """Return the line of a fault in the report."""
    tests = ", ".join(f"`{_short(test)}`" for test in fault.tests)
    if outcome.by:
        caught = f"{outcome.by}: `{_short(outcome.where)}`"
    else:
        caught = f"equivalent: {fault.equivalent}" if fault.equivalent else "**survives**"
    return f"| {fault.name} | `{fault.file}` | {fault.breaks} | {tests} | {caught} | {outcome.seconds:.0f} |"


def _short(test: str) -> str:
    return test.removeprefix("tests/")


def report(path: Path, rows: Mapping[str, str]) -> None:
    """Write the table, with the rows there are of other faults that still exist, and its figures behind the mark in `path`."""
    before, _, after = path.read_text("utf-8").partition(MARK) if path.exists() else ("", "", "")
    known = {line.split(" | ")[0].removeprefix("| "): line for line in after.splitlines() if line.startswith("| ")}
    lines = [line for f in FAULTS if (line := {**known, **rows}.get(f.name)) is not None]
    head = "| Fault | Place | What it breaks | Tests run | Caught by | Seconds |\n|---|---|---|---|---|---|"
    path.write_text("\n".join([f"{before}{MARK}", "", figures(lines), "", head, *lines, ""]), "utf-8")


def figures(lines: Sequence[str]) -> str:
    """Return how many faults were caught, and by what, as Markdown."""
    caught = [line.split(" | ")[4].split(":")[0] for line in lines]
    kinds = Counter(
        "an internal verifier" if c.startswith("the verifier") else "a refusal" if c.startswith("refusal") else c for c in caught
    )
    missed, same = kinds.pop("**survives**", 0), kinds.pop("equivalent", 0)
    by = ", ".join(f"{count} by {kind}" for kind, count in kinds.most_common())
    return f"{len(lines)} faults: {sum(kinds.values())} caught ({by}), {same} equivalent, {missed} survive."


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--list", action="store_true", help="print the faults and run nothing")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="plant these alone")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the table into this Markdown file, behind its mark")
    parser.add_argument("--limit", type=float, default=180, help="seconds for the tests of one fault")
    parser.add_argument("--trust", action="store_true", help="do not run the tests without faults first")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
