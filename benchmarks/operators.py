"""Single operators in turns with every peer that is installed (onnxruntime, OpenVINO, PyTorch, NumPy, numba).

    python benchmarks/operators.py                         everything, 1 and 2 threads
    python benchmarks/operators.py --quick softmax         those whose names begin with softmax
    python benchmarks/operators.py --sample 40 --seed 7    forty rows drawn from everything
    python benchmarks/operators.py --of drawn users        only these: `chosen` (cases.py), `drawn` (drawn_cases.py), `mixed`
                                                           (drawn_mixed.py), `others` (drawn_others.py), `users` (users.py)
    python benchmarks/operators.py --target x86-64-v3      with the instructions of that level alone, ours and what peers can be limited to

`chosen` rows stand beside the multiply-add ceiling or the speed of a copy. `drawn` rows are nodes of ONNX, every operator with shapes of
real models and with odd ones, and `--seed` draws others. Of `mixed` rows types, ranks, axes and attributes are drawn, too; `others`, which
are among them, are of kinds that `drawn` has not. `users` rows are operators of the language that no library has. Kernels write into arrays
that exist already, ours and theirs; where weights are known beforehand both sides get a model of one node. Nothing is scheduled by hand.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import (  # isort: skip
    Array,
    Run,
    Timing,
    aligned,
    available_threads,
    ceiling,
    copy_ceiling,
    error_of,
    mark,
    paired,
    pool_imports,
    ratio,
    table,
    urgent,
    with_threads,
    write,
)
from cases import Case, cases, torch  # isort: skip
from drawn_cases import KINDS, Drawn, Kind, drawn  # isort: skip
from drawn_mixed import MIXED  # isort: skip
from drawn_others import OTHERS  # isort: skip
from torch_models import torch_model  # isort: skip
from users import User, loop_of, users  # isort: skip

import numpy as np
import onnx
from onnx import helper

import tensorlang
from codegen.llvm.jit import load
from tensorlang.runtime.operator import Operator, sorted_out
from tensorlang.shell.peers import PEERS, Peer, Task, peers

HERE = Path(__file__).parent
SEED = 7
SHORT = 20e-6
"""Seconds below which a row is mostly the call of an operator: such rows have means of their own."""
FLOAT = onnx.TensorProto.FLOAT
LIMITS = {
    "x86-64-v3": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Haswell", "NUMBA_CPU_NAME": "haswell"}
}
"""How peers are told to keep to a level. onnxruntime cannot be told, so its rows say nothing of a smaller machine."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: `ready(threads)` returns our run, which returns its results, and the task of the peers."""

    name: str
    group: str
    ready: Callable[[int], tuple[Run, Callable[[], list[Array]], Task]]
    flops: float = 0.0
    moved: float = 0.0


def main() -> None:
    arguments = _arguments()
    _limit(arguments.target)
    seconds = 0.5 if arguments.quick else arguments.seconds
    chosen = [s for s in subjects(arguments.of, arguments.seed) if not arguments.cases or s.name.startswith(tuple(arguments.cases))]
    if arguments.sample:
        order = np.random.default_rng(arguments.seed).permutation(len(chosen))
        chosen = [chosen[k] for k in sorted(order[: arguments.sample])]
    results = []
    for count in (t for t in arguments.threads if t <= available_threads()):
        peak = ceiling(count)
        for subject in chosen:
            found = measure(subject, count, peak, seconds, arguments.urgent, peers(arguments.peers))
            results.append(found)
            print(*_row(found), sep="  ", file=sys.stderr, flush=True)
    write(arguments.out, "Operators", results, _report(results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("cases", nargs="*", help="beginnings of names (default: all)")
    parser.add_argument("--of", nargs="+", choices=sorted(SOURCES), default=list(SOURCES), help="which rows (default: all)")
    parser.add_argument("--sample", type=int, help="how many rows to draw (default: all)")
    parser.add_argument("--seed", type=int, default=SEED, help="what is drawn")
    parser.add_argument("--threads", type=_counts, default=(1, 2), help="numbers of threads, with commas between")
    parser.add_argument("--target", choices=sorted(LIMITS), help="a level of instructions to keep to")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to measure each case")
    parser.add_argument("--quick", action="store_true", help="half a second each")
    parser.add_argument("--urgent", action="store_true", help="measure before all other work of the machine; needs the right to")
    parser.add_argument("--peers", nargs="+", help="names (default: all that are installed)")
    parser.add_argument("--out", help="write <out>.json and <out>.md")
    return parser.parse_args()


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(","))


def _limit(level: str | None) -> None:
    """Begin this process again with what limits everybody to a level: libraries look at it when they are imported."""
    if level is not None and os.environ.get("TENSORLANG_LEVEL") != level:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **LIMITS[level], "TENSORLANG_LEVEL": level})


def subjects(sources: Sequence[str], seed: int) -> Iterator[Subject]:
    """Yield what there is to measure."""
    for source in sources:
        yield from SOURCES[source](seed)


def _chosen(_: int) -> Iterator[Subject]:
    for case in cases():
        yield Subject(case.name, "chosen", lambda count, case=case: _of_case(case, count), case.flops, case.moved)


def _drawn(seed: int, kinds: Mapping[str, Kind] = KINDS) -> Iterator[Subject]:
    for found in drawn(seed, kinds=kinds):
        yield Subject(found.name, found.group, lambda count, found=found: _of_drawn(found, count))


def _users(seed: int) -> Iterator[Subject]:
    for user in users():
        yield Subject(user.name, "users", lambda count, user=user: _of_user(user, seed, count))


SOURCES = {
    "chosen": _chosen,
    "drawn": _drawn,
    "mixed": lambda seed: _drawn(seed, MIXED | OTHERS),
    "others": lambda seed: _drawn(seed, OTHERS),
    "users": _users,
}


def measure(subject: Subject, count: int, peak: float, seconds: float, first: bool, against: Sequence[Peer]) -> dict[str, Any]:
    """Return the timings of a subject, its largest error, and what share of the ceiling it reaches. What fails is part of the result."""
    found: dict[str, Any] = {"case": subject.name, "group": subject.group, "threads": count}
    start = time.perf_counter()
    try:
        ours, results, task = subject.ready(count)
        ours()
    except Exception as problem:  # a row that fails is a row
        return found | {"failed": f"{type(problem).__name__}: {str(problem).splitlines()[0] if str(problem) else ''}"}
    found["first_result_s"] = time.perf_counter() - start
    contenders = {"tensorlang": ours, **_others(task, count, against)}
    errors = [_error(results(), run()) for name, run in contenders.items() if name in _EXACT]
    if first:
        urgent()
    timings = paired(contenders, seconds)
    own = timings[0]
    found |= {
        "error": max(errors, default=0.0),
        "timings": [asdict(t) for t in timings],
        "ratios": {t.name: ratio(own, t) for t in timings[1:]},
    }
    work = subject.flops or subject.moved
    if not work:
        return found
    bound = peak if subject.flops else copy_ceiling(int(subject.moved / 2)) * count
    unit = "GFLOP/s" if subject.flops else "GB/s"
    return found | {"rate": work / own.median, "unit": unit, "ceiling": bound, "share": work / own.median / bound}


def _others(task: Task, count: int, against: Sequence[Peer]) -> dict[str, Run]:
    """Return the runs of the peers that can do a task; who finds out when it runs that it cannot is left out, too."""
    found: dict[str, Run] = {}
    for peer in against:
        try:
            run = peer.run(task, count)
            if run is not None:
                run()
                found[peer.name] = run
        except Exception as problem:  # peers raise what they like
            print(f"    {peer.name}: {str(problem).splitlines()[0][:120]}", file=sys.stderr)
    loop = task.calls.get("numba")
    if loop is not None:
        given, places = [*task.inputs.values()], [np.empty_like(a) for a in task.results]
        found["numba"] = lambda: [loop(*given, *places), places][1]  # type: ignore[list-item]
        found["numba"]()
    return found


def _error(ours: Sequence[Array], theirs: Sequence[Array]) -> float:
    """Return the largest error over all results, relative to the largest element; inf where shapes differ."""
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(ours, theirs, strict=False)]
    return max((error_of(a.astype(np.float64), b.astype(np.float64)) if a.shape == b.shape else np.inf for a, b in pairs), default=0.0)


# ---------------------------------------------------------------- the contenders


def _of_case(case: Case, count: int) -> tuple[Run, Callable[[], list[Array]], Task]:
    rng = np.random.default_rng(SEED)
    arrays = [_filled(shape, rng) for shape in case.shapes]
    if case.rows is not None:
        arrays.append(rng.integers(0, case.shapes[0][0], case.rows))
    output = {"y": _filled(case.result, None)}
    return _ours(case, arrays, output, count), lambda: [*output.values()], _task(case, arrays)


def _of_drawn(found: Drawn, count: int) -> tuple[Run, Callable[[], list[Array]], Task]:
    made = found.model()
    data = made.SerializeToString()
    inside = len(found.arrays) - found.weights
    feeds = {f"x{k}": _copied(a) for k, a in enumerate(found.arrays[:inside])}
    model = tensorlang.compile(data, threads=count)
    output = {name: _copied(np.asarray(a)) for name, a in model.run(feeds).items()}
    calls = {}
    if torch is not None:
        try:
            call = torch_model(torch, made, torch.float32, "cpu")
            calls["torch"] = lambda *given: [y.contiguous() for y in call(*given[:inside])]  # views move nothing
        except NotImplementedError:
            pass
    task = Task(feeds, data, calls, (), tuple(output.values()))
    return with_threads(count, model.prepared(feeds, output)), lambda: [*output.values()], task


def _of_user(user: User, seed: int, count: int) -> tuple[Run, Callable[[], list[Array]], Task]:
    arrays = [_copied(a) for a in user.arrays(seed)]
    operator = tensorlang.load(HERE / "users.tl", threads=count)[user.name]
    called = operator(*arrays)
    output = tuple(_copied(np.asarray(a)) for a in (called if isinstance(called, tuple) else (called,)))
    run = operator.prepared(*arrays, out=output if isinstance(called, tuple) else output[0])
    calls = user.calls()
    calls = {name: (lambda *given, call=call: _whole(call(*given[: len(arrays)]))) for name, call in calls.items()}
    loop = loop_of(user)
    task = Task({f"x{k}": a for k, a in enumerate(arrays)}, None, calls | ({"numba": loop} if loop else {}), (), output)
    return with_threads(count, run), lambda: [*output], task


def _whole(found: object) -> object:
    return found[0] if isinstance(found, tuple) else found


def _copied(array: Array) -> Array:
    """Return a copy that begins at a cache line."""
    place = aligned(array.nbytes // 4 + 1).view(np.uint8)[: array.nbytes].view(array.dtype).reshape(array.shape)
    place[...] = array
    return place


def _ours(case: Case, arrays: list[Array], output: dict[str, Array], count: int) -> Run:
    """Return our run; it writes into `output["y"]`."""
    if not case.operator:
        model = tensorlang.compile(_model(case, arrays).SerializeToString(), threads=count)
        feeds = {f"x{k}": a for k, a in enumerate(arrays[: len(arrays) - case.constants])}
        return with_threads(count, model.prepared(feeds, output))
    operators = tensorlang.load(HERE / "operators.tl", threads=count)
    return with_threads(count, kernel(operators[case.operator], arrays, output["y"]))


def kernel(operator: Operator, arrays: list[Array], output: Array) -> Run:
    """Return the operator's native code as a function without arguments that writes into `output`."""
    made = operator.compiled(sorted_out(operator.declaration, tuple(arrays), {}))
    bound = {p.name: a for p, a in zip(made.program.params, arrays, strict=True)} | {made.program.results[0]: output}
    library = load([made.artifact.object], pool_imports())
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(library.address(made.artifact.symbol))
    block = (ctypes.c_int64 * len(made.artifact.params))(*(bound[name].ctypes.data for name in made.artifact.params))
    workspace = aligned(made.artifact.workspace_bytes(available_threads()) // 4 + 16)
    addresses = (ctypes.addressof(block), workspace.ctypes.data)

    def run(kept: object = (library, arrays, output, workspace, block)) -> None:
        if entry(*addresses):
            raise RuntimeError(f"`{operator.name}` refused its data")

    return run


def _task(case: Case, arrays: list[Array]) -> Task:
    """Return what the peers are to do; those that read models write into an array that exists already."""
    inside = len(arrays) - case.constants
    feeds = {f"x{k}": a for k, a in enumerate(arrays[:inside])}
    calls = {name: call for name, call in (("numpy", case.numpy), ("torch", case.torch)) if call is not None}
    model = _model(case, arrays).SerializeToString() if case.node else None
    return Task(feeds, model, calls, tuple(arrays[inside:]), (_filled(case.result, None),))


def _model(case: Case, arrays: list[Array]) -> onnx.ModelProto:
    assert case.node is not None
    kind, attributes = case.node
    variable = len(arrays) - case.constants
    kinds = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in arrays]
    inputs = [helper.make_tensor_value_info(f"x{k}", kinds[k], list(a.shape)) for k, a in enumerate(arrays[:variable])]
    weights = [onnx.numpy_helper.from_array(a, f"x{k}") for k, a in enumerate(arrays) if k >= variable]
    node = helper.make_node(kind, [f"x{k}" for k in range(len(arrays))], ["y"], **attributes)
    output = helper.make_tensor_value_info("y", FLOAT, list(case.result))
    graph = helper.make_graph([node], case.name.replace(" ", "_"), inputs, [output], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _filled(shape: tuple[int, ...], rng: np.random.Generator | None) -> Array:
    """Return an aligned array of random numbers, or of zeros; its pages exist."""
    count = int(np.prod(shape))
    array = aligned(count)
    array[:] = 0.0 if rng is None else rng.standard_normal(count, dtype=np.float32)
    return array.reshape(shape)


# ---------------------------------------------------------------- reporting

_PEERS = (*(p.name for p in PEERS), "numba")
_EXACT = (*(p.name for p in PEERS if p.precision == "f32"), "numba")
"""Results of these are compared with ours, and the best of these is what a ratio is taken to."""


def _row(found: Mapping[str, Any]) -> list[str]:
    if "failed" in found:
        return [found["case"], str(found["threads"]), found["failed"], *[""] * (len(_PEERS) + 4)]
    ours, *others = (Timing(**t) for t in found["timings"])
    said = {t.name: f"{ratio(ours, t):.2f}{mark(t)}" for t in others}
    best = _best(found)
    return [
        found["case"],
        str(found["threads"]),
        f"{ours.median * 1e6:.1f}{mark(ours)}",
        f"{found['rate'] / 1e9:.1f} {found['unit']}" if "rate" in found else "–",
        f"{100 * found['share']:.0f} %" if "rate" in found else "–",
        *(said.get(p, "–") for p in _PEERS),
        "–" if best is None else f"{best:.2f}",
        f"{found['error']:.0e}",
    ]


def _best(found: Mapping[str, Any]) -> float | None:
    """Return the ratio to the best f32 peer."""
    return min((v for name, v in found.get("ratios", {}).items() if name in _EXACT), default=None)


def _report(results: list[dict[str, Any]]) -> str:
    peaks = {r["threads"]: r["ceiling"] for r in results if r.get("unit") == "GFLOP/s"}
    said = ", ".join(f"{peak / 1e9:.0f} GFLOP/s on {count} thread{'s' * (count > 1)}" for count, peak in peaks.items())
    head = ("operator", "threads", "median us", "rate", "of ceiling", *_PEERS, "best f32", "error")
    return (
        f"{table(head, map(_row, results))}\n\n{_means(results)}\n"
        "Columns of peers: their median over ours, above 1 we are faster. ~ more than half of the runs were disturbed by other work.\n"
        f"Ceilings: multiply-adds {said or 'not needed'}; else the best copy of as many bytes on one thread, times the threads."
    )


def _means(results: list[dict[str, Any]]) -> str:
    """Return a table of geometric means of the ratios to the best f32 peer: for each number of threads and group, of rows below and above
    `SHORT` apart."""
    rows = []
    groups = [*Counter(r["group"] for r in results), ""]
    for count in sorted({r["threads"] for r in results}):
        for group in groups:
            some = [r for r in results if r["threads"] == count and group in ("", r["group"])]
            short, long = ([_best(r) for r in some if _is_short(r) is want] for want in (True, False))
            rows.append([group or "all", str(count), *_mean(long), *_mean(short), str(sum("failed" in r for r in some))])
    head = ("group", "threads")
    for which in (f"from {SHORT * 1e6:.0f} us", "shorter"):
        head += (f"rows {which}", "mean", "lowest", "at least 1")
    return table((*head, "failed"), rows)


def _is_short(found: Mapping[str, Any]) -> bool | None:
    """Tell whether a row takes less than `SHORT`; None of one that failed."""
    return found["timings"][0]["median"] < SHORT if "timings" in found else None


def _mean(ratios: Sequence[float | None]) -> list[str]:
    known = np.array([r for r in ratios if r is not None])
    if not known.size:
        return ["0", "–", "–", "–"]
    return [str(known.size), f"{np.exp(np.mean(np.log(known))):.2f}", f"{known.min():.2f}", f"{np.mean(known >= 1.0):.0%}"]


if __name__ == "__main__":
    main()
