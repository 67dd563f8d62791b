"""The kernels of `examples/polybench` as schedules are derived for them, in double precision, about the suite's LARGE sizes.

    python benchmarks/polybench.py                           all of them, 1 and 2 threads
    python benchmarks/polybench.py lu adi --threads 1        those whose names begin so
    python benchmarks/polybench.py --against gcc=gcc.json    beside what others take: `{"gemm": seconds, ...}`, measured at `SIZES`
    python benchmarks/polybench.py --memory                  what a call takes of memory beside its arguments and results, each in a process

Every run finds its arguments in memory: as the suite's programs do, caches are filled with something else before it. Results are checked
against plain NumPy where that takes seconds rather than minutes. Time steps are fewer than the suite's, and so are the rows of kernels that
take it ten seconds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from types import ModuleType
from typing import Any

from harness import ROOT, Array, Run, error_of, table, urgent, with_threads, write  # isort: skip

import numpy as np

import tensorlang
from codegen.llvm.pool import available_threads

SIZES: Mapping[str, Mapping[str, int]] = {
    "covariance": {"m": 1200, "n": 1400},
    "correlation": {"m": 1200, "n": 1400},
    "gemm": {"ni": 1000, "nj": 1100, "nk": 1200},
    "two_products": {"ni": 800, "nj": 900, "nk": 1100, "nl": 1200},
    "three_products": {"ni": 800, "nj": 900, "nk": 1000, "nl": 1100, "nm": 1200},
    "atax": {"m": 1900, "n": 2100},
    "bicg": {"m": 1900, "n": 2100},
    "doitgen": {"nq": 140, "nr": 150, "np": 160},
    "mvt": {"n": 2000},
    "gemver": {"n": 2000},
    "gesummv": {"n": 1300},
    "symm": {"m": 1000, "n": 1200},
    "syrk": {"m": 1000, "n": 1200},
    "syr2k": {"m": 1000, "n": 1200},
    "trmm": {"m": 1000, "n": 1200},
    "cholesky": {"n": 2000},
    "lu": {"n": 2000},
    "ludcmp": {"n": 2000},
    "trisolv": {"n": 2000},
    "durbin": {"n": 2000},
    "gramschmidt": {"m": 1000, "n": 1200},
    "floyd_warshall": {"n": 1400},
    "nussinov": {"n": 1500},
    "deriche": {"w": 4096, "h": 2160},
    "jacobi_1d": {"steps": 500, "n": 2000},
    "jacobi_2d": {"steps": 100, "n": 1300},
    "heat_3d": {"steps": 100, "n": 120},
    "seidel_2d": {"steps": 50, "n": 2000},
    "fdtd_2d": {"steps": 100, "m": 1000, "n": 1200},
    "adi": {"steps": 50, "n": 1000},
}
UNCHECKED = ("nussinov", "seidel_2d", "adi")
"""Whose reference takes minutes."""
FLUSHED_BYTES = 96 * 1024 * 1024
TOLERANCE = 1e-7
SEED = 11


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("kernels", nargs="*", help="beginnings of names (default: all)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to measure each kernel on each number of threads")
    parser.add_argument("--against", nargs="*", default=[], metavar="NAME=FILE", help="seconds of others, by kernel")
    parser.add_argument("--urgent", action="store_true", help="measure before all other work of the machine; needs the right to")
    parser.add_argument("--unchecked", action="store_true", help="compare nothing with NumPy")
    parser.add_argument("--memory", action="store_true", help="measure memory and no time, on the most threads that are asked for")
    parser.add_argument("--out", help="write <out>.json and <out>.md")
    given = parser.parse_args(argv)
    if given.urgent and not urgent():
        parser.error("--urgent needs the right to raise priorities")
    counts = [t for t in given.threads if t <= available_threads()]
    others = {name: json.loads(Path(path).read_text("utf-8")) for name, _, path in (a.partition("=") for a in given.against)}
    if given.memory:
        return memory([n for n in SIZES if not given.kernels or n.startswith(tuple(given.kernels))], counts[-1], given.out)
    references = _references()
    operators, results = {count: _operators(references.FILES, count) for count in counts}, []
    for name in (n for n in SIZES if not given.kernels or n.startswith(tuple(given.kernels))):
        reference = None if given.unchecked or name in UNCHECKED else getattr(references, name)
        found: dict[str, Any] = {
            "name": name,
            **measure({c: operators[c][name] for c in counts}, arguments(name), given.seconds, reference),
        }
        found |= {other: seconds[name] for other, seconds in others.items() if name in seconds}
        results.append(found)
        print(*_row(found, counts, tuple(others)), file=sys.stderr, flush=True)
    write(given.out, "PolyBench", results, _report(results, counts, tuple(others)))
    return 0


def measure(
    operators: Mapping[int, Callable[..., Any]], given: Mapping[str, Any], seconds: float, reference: Callable[..., Any] | None
) -> dict[str, Any]:
    """Return the median and the best seconds of a call on each number of threads, those until the first result, and the largest error."""
    other = np.ones(FLUSHED_BYTES // 8)
    found: dict[str, Any] = {}
    for count, operator in operators.items():
        start = time.perf_counter()
        result = operator(**given)
        found[f"first_{count}"] = time.perf_counter() - start
        outs = result if isinstance(result, tuple) else (result,)
        run = with_threads(count, _into(operator, given, outs))
        run()
        taken, end = list[float](), time.perf_counter() + seconds
        while len(taken) < 3 or (time.perf_counter() < end and len(taken) < 100):
            other += 1.0
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
        found[f"seconds_{count}"] = median(taken)
        found[f"best_{count}"] = min(taken)
        if reference is not None:
            expected = reference(**given)
            pairs = zip(outs, expected if isinstance(expected, tuple) else (expected,), strict=True)
            found["error"] = max(found.get("error", 0.0), *(error_of(np.asarray(one), wanted) for one, wanted in pairs))
    return found


def memory(names: Sequence[str], threads: int, out: str | None) -> int:
    """Print, and write, what calls take of memory; return 0."""
    results = [_apart(name, threads) for name in names]
    rows = [[r["name"], *(f"{r[k] / 1e6:.2f}" for k in ("inputs", "results", "more")), f"{_share(r):.2f}"] for r in results]
    lines = [table(["kernel", "inputs MB", "results MB", "more MB", "in all"], rows), ""]
    lines.append(
        f"more: resident memory at most while a call runs on {threads} threads, less what it was before; in all: over inputs and results."
    )
    write(out, "PolyBench, memory", results, "\n".join(lines))
    return 0


def _share(r: Mapping[str, Any]) -> Any:
    known = r["inputs"] + r["results"]
    return (known + r["more"]) / known


def _apart(name: str, threads: int) -> dict[str, Any]:
    """Return the bytes of a kernel's arguments and results, and those that a call takes beside them, measured in a process of its own."""
    code = f"import polybench; print(polybench.json.dumps(polybench.peak({name!r}, {threads})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    print(name, f"{found['more'] / 1e6:.2f}", file=sys.stderr, flush=True)
    return found


def peak(name: str, threads: int) -> dict[str, Any]:
    """Return the bytes of a kernel's arguments and results, and by how many the memory that is resident while its code runs for the first
    time exceeds at most what was resident before, arguments and results among it."""
    operator: Any = _operators(_references().FILES, threads)[name]
    given = arguments(name)
    call = operator.call(**given)
    compiled = operator.compiled(call)
    outs = tuple(np.ones(port.shape, port.dtype.numpy) for port in compiled.outputs)
    Path("/proc/self/clear_refs").write_text("5")  # the most so far is what is resident now
    before = _status("VmRSS")
    _into(operator, given, outs)()
    inputs = sum(a.nbytes for a in given.values() if isinstance(a, np.ndarray))
    more = max(0, _status("VmHWM") - before)
    return {"name": name, "inputs": inputs, "results": sum(o.nbytes for o in outs), "more": more}


def _status(key: str) -> int:
    """Return one of the sizes that the system tells of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def _into(operator: Callable[..., Any], given: Mapping[str, Any], outs: tuple[Array, ...]) -> Run:
    """Return a call that writes into arrays that exist already."""
    return lambda: operator(**given, out=outs if len(outs) > 1 else outs[0])


def arguments(name: str) -> dict[str, Any]:
    """Return arguments of the kernel of that name at its size in `SIZES`."""
    z = SIZES[name]
    rng = np.random.default_rng(SEED)
    real: Callable[..., Array] = rng.standard_normal
    n, m = z.get("n", 0), z.get("m", 0)
    vectors: Callable[..., dict[str, Array]] = lambda *names: {v: real(n) for v in names}  # noqa: E731
    match name:
        case "covariance" | "correlation":
            return {"x": real((n, m))}
        case "gemm":
            return {"a": real((z["ni"], z["nk"])), "b": real((z["nk"], z["nj"])), "c": real((z["ni"], z["nj"]))}
        case "two_products":
            shapes = {"a": ("ni", "nk"), "b": ("nk", "nj"), "c": ("nj", "nl"), "d": ("ni", "nl")}
            return {x: real((z[r], z[c])) for x, (r, c) in shapes.items()}
        case "three_products":
            shapes = {"a": ("ni", "nk"), "b": ("nk", "nj"), "c": ("nj", "nm"), "d": ("nm", "nl")}
            return {x: real((z[r], z[c])) for x, (r, c) in shapes.items()}
        case "atax":
            return {"a": real((m, n)), "x": real(n)}
        case "bicg":
            return {"a": real((n, m)), "p": real(m), "r": real(n)}
        case "doitgen":
            return {"a": real((z["nr"], z["nq"], z["np"])), "c": real((z["np"], z["np"]))}
        case "mvt":
            return {"a": real((n, n)), **vectors("x1", "x2", "y1", "y2")}
        case "gemver":
            return {"a": real((n, n)), **vectors("u1", "v1", "u2", "v2", "y", "z")}
        case "gesummv":
            return {"a": real((n, n)), "b": real((n, n)), "x": real(n)}
        case "symm":
            return {"a": real((m, m)), "b": real((m, n)), "c": real((m, n))}
        case "syrk":
            return {"a": real((n, m)), "c": real((n, n))}
        case "syr2k":
            return {"a": real((n, m)), "b": real((n, m)), "c": real((n, n))}
        case "trmm":
            return {"a": real((m, m)), "b": real((m, n))}
        case "cholesky":
            around = real((n, n))
            return {"a": around @ around.T + n * np.eye(n)}
        case "lu":
            return {"a": real((n, n)) + 2 * n * np.eye(n)}
        case "ludcmp":
            return {"a": real((n, n)) + 2 * n * np.eye(n), "b": real(n)}
        case "trisolv":
            return {"l": real((n, n)) + 2 * n * np.eye(n), "b": real(n)}
        case "durbin":
            return {"r": real(n) / (4 * n)}
        case "gramschmidt":
            # As many rows as columns at least: what is orthogonal to all of a space is nothing but rounding.
            return {"a": real((max(m, n), min(m, n)))}
        case "floyd_warshall":
            return {"w": rng.integers(1, 99, (n, n)).astype(np.int32)}
        case "nussinov":
            return {"seq": rng.integers(0, 4, n).astype(np.int32)}
        case "deriche":
            return {"x": real((z["w"], z["h"]))}
        case "jacobi_1d":
            return {"a": real(n), "steps": z["steps"]}
        case "heat_3d":
            return {"a": real((n, n, n)), "steps": z["steps"]}
        case "fdtd_2d":
            return {"ex0": real((m, n)), "ey0": real((m, n)), "hz0": real((m, n)), "f": real(z["steps"]), "steps": z["steps"]}
        case "jacobi_2d" | "seidel_2d" | "adi":
            return {"a": real((n, n)), "steps": z["steps"]}
        case _:
            raise ValueError(f"no arguments for {name}")


def _operators(files: Sequence[str], threads: int) -> dict[str, Callable[..., Any]]:
    """Return the operators of all files by name, compiled for so many threads."""
    loaded = [tensorlang.load(ROOT / "examples" / "polybench" / f"{file}.tl", threads=threads) for file in files]
    return {name: getattr(ops, name) for ops in loaded for name in dir(ops)}


def _references() -> ModuleType:
    path = ROOT / "examples" / "polybench" / "references.py"
    spec = importlib.util.spec_from_file_location("polybench_references", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _row(r: Mapping[str, Any], counts: Sequence[int], others: Sequence[str]) -> list[str]:
    ours = [f"{r[f'best_{count}'] * 1e3:.2f}" for count in counts]
    first = r[f"best_{counts[0]}"]
    theirs = [f"{r[o] * 1e3:.2f} ({r[o] / first:.2f})" if o in r else "" for o in others]
    scaling = f"{first / r[f'best_{counts[-1]}']:.2f}" if len(counts) > 1 else ""
    return [r["name"], *ours, scaling, *theirs, f"{r[f'first_{counts[0]}']:.2f}", f"{r['error']:.1e}" if "error" in r else ""]


def _report(results: Sequence[Mapping[str, Any]], counts: Sequence[int], others: Sequence[str]) -> str:
    head = ["kernel", *(f"ours, {count}" for count in counts), "scaling", *others, "first s", "error"]
    lines = [table(head, [_row(r, counts, others) for r in results]), ""]
    lines.append("Best times in ms; in brackets the time of others over ours on the fewest threads, above 1 we are faster.")
    for other in others:
        ratios = [r[other] / r[f"best_{counts[0]}"] for r in results if other in r]
        if ratios:
            lines.append(f"{other}: geometric mean {geometric_mean(ratios):.2f}, lowest {min(ratios):.2f}.")
    wrong = [r["name"] for r in results if r.get("error", 0.0) > TOLERANCE]
    lines += [f"Wrong: {', '.join(wrong)}."] if wrong else []
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
