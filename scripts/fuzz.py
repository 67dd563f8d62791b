"""Try random programs, schedules, models and files until told to stop; cut what goes wrong down to a test.

    python scripts/fuzz.py --minutes 60 --out /tmp/found                 all fronts, on every processor
    python scripts/fuzz.py --cases 5000 --front files --seed 100000      the cases 100000 to 104999 of one front
    python scripts/fuzz.py --replay language:4711                        one case again: what it is, how it fares, the smallest like it

fronts   language    operators as text, compiled without a schedule, static and for any sizes, against an evaluator of their elements
         operators   operators as text, compiled once for any sizes, for sizes past vectors and tiles, against those compiled for each
         derived     programs of several equations, each under schedules derived for machines with the smallest caches, or completed
         schedules   random directives on families of programs: whatever is accepted computes what the operator says, natively too
         models      random ONNX graphs of mixed types, operators of many versions, against onnx's reference evaluator and onnxruntime
         seldom      the same with operators that few models have: com.microsoft, ai.onnx.ml, control flow, sequences, sampling, spectra
         sizes       random ONNX graphs whose sizes stay open, for several combinations of sizes with zero and one, against onnxruntime
         files       broken `.tl` texts, schedules, ONNX bytes, folders of models and caches: success or a coded diagnostic, in time
         cuda        random binds, their kernels run by the emulator on this processor (where there is a C++ compiler)

A case is a function of its front and number alone. Each is tried in a child of its own (cheap ones share one) with limits to its time and
memory. Compiled code runs with a page that nobody may touch right behind or right before every array and its scratch memory. Nothing ends a
run early but its limits; Ctrl-C prints the table.

With several fronts, `--cases` counts all of them, and time decides who has how many. `--out DIR` gets `findings.jsonl` and a test per
finding, to be put where it belongs. Exits with 1 when anything was found.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # threads of a parent do not live in its children

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / folder) for folder in (".", "device", "onnx"))]

from fuzzing.campaign import CUTTING, Campaign  # noqa: E402  # the path has to be set first
from fuzzing.front import Front, tried  # noqa: E402
from fuzzing.fronts import FRONTS  # noqa: E402
from fuzzing.server import alone  # noqa: E402
from fuzzing.shrink import shrunk  # noqa: E402


def main() -> int:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="tensorlang-fuzz-") as folder:
        os.environ["TENSORLANG_CACHE"] = folder
        if arguments.replay:
            name, _, seed = arguments.replay.partition(":")
            return replay(FRONTS[name](), int(seed), arguments.here)
        fronts = [FRONTS[name]() for name in arguments.front or FRONTS]
        campaign = Campaign(
            fronts,
            jobs=arguments.jobs,
            first=arguments.seed,
            minutes=arguments.minutes if arguments.minutes or arguments.cases else 1.0,
            cases=arguments.cases,
            out=arguments.out,
            cut=not arguments.no_shrink,
        )
        campaign.run()
        print(campaign.table())
        return 1 if campaign.findings else 0


def replay(front: Front, seed: int, here: bool) -> int:
    """Show a case, how it fares, and the smallest like it. `here`: in this process, for a debugger."""
    front.prepare()
    case = front.draw(seed)
    print(front.show(case))
    outcome = tried(front, case) if here else alone(front, case)
    print(f"---- {outcome.kind} {outcome.label}\n{outcome.text}")
    if outcome.found and not here:
        smallest = shrunk(case, front.smaller, lambda c: alone(front, c).like(outcome), CUTTING)
        print(f"---- the smallest like it\n{front.show(smallest)}\n{alone(front, smallest).text}\n---- as a test\n{front.test(smallest)}")
    return 1 if outcome.found else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="stop after this time (1 where no limit is given)")
    parser.add_argument("--cases", type=int, help="stop after so many cases")
    parser.add_argument("--front", action="append", choices=sorted(FRONTS), help="try this front alone; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first case of each front")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many cases at a time")
    parser.add_argument("--out", type=Path, help="a folder for findings and tests")
    parser.add_argument("--no-shrink", action="store_true", help="do not cut cases down")
    parser.add_argument("--replay", metavar="FRONT:SEED", help="try one case again")
    parser.add_argument("--here", action="store_true", help="replay in this process")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
