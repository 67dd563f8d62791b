"""Try random schedules on random programs: whatever is accepted computes what the operator says, whatever is refused would not.

    python scripts/fuzz_schedules.py --count 3000 --seed 1

Prints every finding with the smallest schedule that shows it, progress now and then, and a summary. Exits with 1 when an accepted schedule
computed something else or anything crashed.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from schedule_trial import Outcome, minimal, trial  # noqa: E402  # the path has to be set first
from strategies_schedule import Case, scheduled  # noqa: E402

BAD = ("different", "crash")


def main() -> int:
    arguments = _arguments()
    counts: Counter[str] = Counter()
    slow: list[tuple[float, str]] = []
    start = time.monotonic()

    @seeded(arguments.seed)
    @settings(max_examples=arguments.count, phases=[Phase.generate], deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(scheduled(), st.integers(0, 2**16))
    def one(case: Case, seed: int) -> None:
        if arguments.seconds and time.monotonic() - start > arguments.seconds:
            return
        counts["trials"] += 1
        natively = arguments.native > 0 and counts["trials"] % arguments.native == 0
        began = time.monotonic()
        outcome = attempt(case, seed, natively)
        slow.append((time.monotonic() - began, str(case)))
        counts[outcome.kind] += 1
        counts["native"] += natively and outcome.kind == "accepted"
        if outcome.kind in BAD or (outcome.kind == "silent" and arguments.silent):
            smallest = minimal(case, seed, outcome.kind, natively=natively)
            again = attempt(smallest, seed, natively)
            print(f"---- {outcome.kind} (seed {seed})\n{smallest}\n{again.text}\n", flush=True)
        if counts["trials"] % 100 == 0:
            print(f"{time.monotonic() - start:6.0f} s  {_summary(counts)}", flush=True)

    one()
    print(_summary(counts))
    if arguments.slow:
        for seconds, text in sorted(slow)[-arguments.slow :]:
            print(f"{seconds:.1f} s\n{text}\n")
    return 1 if any(counts[kind] for kind in BAD) else 0


def attempt(case: Case, seed: int, natively: bool) -> Outcome:
    try:
        return trial(case, seed, natively=natively)
    except Exception:
        return Outcome("crash", traceback.format_exc(limit=-6))


def _summary(counts: Counter[str]) -> str:
    kinds = ("trials", "accepted", "native", "replayed", "silent", "unknown", "impossible", "different", "crash")
    return "  ".join(f"{kind} {counts[kind]}" for kind in kinds)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--native", type=int, default=5, help="run every n-th accepted schedule natively too; 0: none")
    parser.add_argument("--seconds", type=float, default=0, help="stop after this time")
    parser.add_argument("--silent", action="store_true", help="print refusals that no run shows")
    parser.add_argument("--slow", type=int, default=0, help="print the slowest n cases")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
