"""Count how many refused schedules are told a cure that is proven: of the golden ones, and of random ones.

    python scripts/cures.py                            the refusals of tests/golden/bad_schedules
    python scripts/cures.py --random 200 --seed 0      and so many refusals of random schedules (the fuzzer's front `schedules`)
    python scripts/cures.py --show                     each with what cures it

A cure is *constructive* where it does more than leave out the directive that is blamed, and *applicable* where it is an edit of the text.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from cure_share import Share, golden_refusals, random_refusals  # noqa: E402  # the path has to be set first


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, default=0, help="refusals of random schedules")
    parser.add_argument("--seed", type=int, default=0, help="the first number of a random schedule")
    parser.add_argument("--show", action="store_true", help="print each refusal with what cures it")
    arguments = parser.parse_args()
    print(told("golden", golden_refusals(), arguments.show))
    if arguments.random:
        print(told("random", random_refusals(arguments.seed, arguments.random), arguments.show))
    return 0


def told(kind: str, found: Iterator[Share], show: bool) -> str:
    """Return the counts of refusals of one kind, which are printed one by one where that is wanted."""
    counts: Counter[str] = Counter()
    for one in found:
        counts.update(["refused", *(["cured"] if one.cured else []), *(["constructive"] if one.constructive else [])])
        counts.update(["applicable"] if one.applicable else [])
        if show:
            print(f"{one.name}: {one.code}: {one.cure or '-'}")
    total = max(1, counts["refused"])
    shares = ", ".join(f"{word} {counts[word]} ({100 * counts[word] / total:.0f} %)" for word in ("cured", "constructive", "applicable"))
    return f"{kind}: {counts['refused']} refused, {shares}"


if __name__ == "__main__":
    raise SystemExit(main())
