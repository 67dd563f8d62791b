"""Runs the cases that come with ONNX (`onnx.backend.test`) through `stdlib.onnx.backend`, and writes docs/onnx-coverage.md: how many pass,
and what becomes of the others.

python scripts/onnx_coverage.py                  runs all cases in two processes, and writes the page
python scripts/onnx_coverage.py --only NAME …    runs those whose names contain one of these, and prints what becomes of each
python scripts/onnx_coverage.py --results FILE   also writes one line a case there: name, operator, what became of it, why
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import SkipTest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PAGE = ROOT / "docs" / "onnx-coverage.md"
SECONDS = 120
"""No case takes longer."""
PASS, REFUSED, WRONG, ERROR, CRASH = "pass", "refused", "wrong", "error", "crash"
MEANING = {
    PASS: "every output has the type, the shape and the elements that the suite asks for",
    REFUSED: "a coded error says what is not supported",
    WRONG: "an output differs",
    ERROR: "something else is raised",
    CRASH: "the process ends, or the case takes more than two minutes",
}

REASONS = {
    "test_bernoulli": "what is drawn at random is not what the suite's own generator draws: ONNX leaves the numbers open, with a seed, too",
    "test_dft_inverse": "results are compared to within 1e-7 where f32 rounds sums of numbers as large as 10; against f64 the suite's "
    "err by 1.5e-6, these by 4.4e-7 and onnxruntime's, which differ in 20 places, by 1.9e-5",
    "test_attention_4d_causal_fp16": "2 of 192 results in f16 round to the neighbour of the suite's; against f64 the suite's err by "
    "4.9e-4, these by 4.0e-4 and onnxruntime's, of which 1 differs, by 3.9e-4",
    "test_loop16_seq_none": "the suite compares the items of a sequence by their lengths, which those without a dimension have not",
}
"""Why cases whose names begin so differ, where that is known."""


@dataclass(frozen=True)
class Result:
    """What became of a case: one of the words above, and why, which for a refusal begins with the code."""

    name: str
    kind: str
    operator: str
    outcome: str
    why: str = ""


# ---------------------------------------------------------------- one process


def work(wanted: Sequence[str]) -> None:
    """Run the cases of these names, printing a line of JSON for each before and after it runs."""
    os.environ.setdefault("ONNX_MODELS", tempfile.mkdtemp())
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    items = cases()
    for key in wanted:
        print(json.dumps({"begins": key}), file=out, flush=True)
        print(json.dumps(asdict(tried(key, *items[key]))), file=out, flush=True)


def cases() -> dict[str, tuple[str, Any]]:
    """Return all cases by name: their kinds, and what runs them."""
    from onnx.backend.test import BackendTest

    import stdlib.onnx.backend as backend

    found = BackendTest(backend, __name__)._test_items
    return {
        f"{kind} {name.removesuffix('_cpu')}": (kind.removesuffix("Model"), item)
        for kind, named in found.items()
        for name, item in sorted(named.items())
        if name.endswith("_cpu")
    }


def tried(key: str, kind: str, item: Any) -> Result:
    """Run a case."""
    from tensorlang.diagnostics import CompileError

    outcome, why = PASS, ""
    signal.alarm(SECONDS)
    try:
        item.func(None)
    except SkipTest as skipped:
        outcome, why = ERROR, f"skipped: {skipped}"
    except CompileError as problem:
        first = problem.diagnostics[0]
        outcome, why = REFUSED, f"{first.code} {first.notes[0] if first.code == 'O010' and first.notes else first.title}"
    except AssertionError as problem:
        outcome, why = WRONG, " ".join(str(problem).split())[:120]
    except Exception as problem:
        outcome, why = ERROR, f"{type(problem).__name__}: {' '.join(str(problem).split())[:120]}"
    signal.alarm(0)
    return Result(key.partition(" ")[2], kind, _operator(item), outcome, why)


def _operator(item: Any) -> str:
    """Return what a case is for: the operator of its first node that is no constant."""
    model = item.proto[0]
    nodes = [] if model is None else [n.op_type for n in model.graph.node if n.op_type != "Constant"]
    return nodes[0] if nodes else ""


# ---------------------------------------------------------------- all processes


def run(names: Sequence[str]) -> Iterator[Result]:
    """Yield the result of each case, run in a process of its own kind: whoever takes it down loses that case alone."""
    left = list(names)
    while left:
        begun = ""
        child = [sys.executable, __file__, "--work", "-"]
        with subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n".join(left))
            process.stdin.close()
            for line in process.stdout:
                told = json.loads(line)
                if "begins" in told:
                    begun = told["begins"]
                else:
                    left.remove(begun)
                    yield Result(**told)
                    begun = ""
        if begun:
            left.remove(begun)
            yield Result(begun.partition(" ")[2], begun.partition(" ")[0].removesuffix("Model"), "", CRASH, "the process ended")
        elif left:
            raise SystemExit("a process ended before it ran its first case")


def all_results(names: Sequence[str], processes: int) -> list[Result]:
    """Return the results of all cases, run in so many processes, in order of their names."""
    done: list[Result] = []

    def part(k: int) -> None:
        for result in run(names[k::processes]):
            done.append(result)
            if len(done) % 100 == 0:
                print(f"{len(done)} of {len(names)}", file=sys.stderr)

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(part, range(processes)))
    return sorted(done, key=lambda r: (r.kind, r.name))


# ---------------------------------------------------------------- the page


def page(results: Sequence[Result], version: str) -> str:
    """Return the text of the page."""
    counts = Counter(r.outcome for r in results)
    kinds = sorted({r.kind for r in results})
    lines = [
        "# Coverage of ONNX",
        "",
        f"What becomes of the {len(results)} cases that come with onnx {version} (`onnx.backend.test`), each imported, compiled for this",
        "machine's processor and run through `stdlib.onnx.backend`. Written by `python scripts/onnx_coverage.py`; the numbers are those",
        "of the day it last ran.",
        "",
        f"| | {' | '.join(kinds)} | all | |",
        f"|---|{'---|' * (len(kinds) + 2)}",
    ]
    for outcome, meaning in MEANING.items():
        each = [sum(r.outcome == outcome and r.kind == kind for r in results) for kind in kinds]
        lines.append(f"| {outcome} | {' | '.join(map(str, each))} | {counts[outcome]} | {meaning} |")
    lines += ["", "Refusals by their code (`tensorlang explain CODE` tells of each):", "", "| code | cases |", "|---|---|"]
    codes = Counter(r.why.partition(" ")[0] for r in results if r.outcome == REFUSED)
    lines += [f"| {code} | {count} |" for code, count in codes.most_common()]
    lines += [
        "",
        "## Cases that do not pass, by operator",
        "",
        "| operator | cases | pass | what becomes of the others |",
        "|---|---|---|---|",
    ]
    lines += _by_operator(results)
    lines += ["", "## Why results differ", "", "| cases | why |", "|---|---|"]
    lines += _reasons(results)
    return "\n".join([*lines, ""])


def _by_operator(results: Sequence[Result]) -> Iterator[str]:
    own = {result.name: result.operator for result in results}
    groups: Mapping[str, list[Result]] = defaultdict(list)
    for result in results:
        groups[own.get(result.name.partition("_expanded")[0], result.operator) or "models"].append(result)
    for operator in sorted(groups):
        group = groups[operator]
        others = Counter(f"{r.outcome} ({r.why.partition(' ')[0]})" if r.outcome == REFUSED else r.outcome for r in group)
        passed = others.pop(PASS, 0)
        if others:
            told = ", ".join(f"{count} {what}" for what, count in others.most_common())
            yield f"| {operator} | {len(group)} | {passed} | {told} |"


def _reasons(results: Sequence[Result]) -> Iterator[str]:
    left = [r for r in results if r.outcome in (WRONG, ERROR)]
    for start, why in REASONS.items():
        if found := [r for r in left if r.name.startswith(start)]:
            yield f"| {len(found)} of `{start}` | {why} |"
            left = [r for r in left if r not in found]
    yield from (f"| `{r.name}` | not known yet: {r.why} |" for r in left)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(sys.stdin.read().split("\n"))
        return 0
    warnings.simplefilter("ignore")
    import onnx

    names = [name for name in cases() if not options.only or any(part in name for part in options.only)]
    results = all_results(names, options.processes)
    if options.results:
        options.results.write_text("".join(f"{r.name}\t{r.kind}\t{r.operator}\t{r.outcome}\t{r.why}\n" for r in results), "utf-8")
    if options.only:
        print("\n".join(f"{r.outcome:8}{r.name}  {r.why}" for r in results))
    else:
        PAGE.write_text(page(results, onnx.__version__), "utf-8")
    print(", ".join(f"{count} {outcome}" for outcome, count in Counter(r.outcome for r in results).most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
