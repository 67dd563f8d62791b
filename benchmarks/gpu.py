"""Operators and models on a GPU, next to torch there: medians of CUDA graphs launched again and again on random data that lies there.

    python benchmarks/gpu.py                                  everything; writes docs/benchmarks/gpu-DEVICE.md
    python benchmarks/gpu.py --seconds 0.3 matmul conv        those whose names begin so, printed only
    python benchmarks/gpu.py --no-models | --no-operators
    python benchmarks/gpu.py --compile-only --target cuda:sm_90a     no device: every kernel becomes machine code, spills are an error

Models are `resnet50`, or `resnet50@32` at another batch. Ours and torch's run in turns in one process; torch's is eager code and, of
models, torch.compile's too (max-autotune), each as one CUDA graph. f32 is f32 on both sides (no tf32). In 16 bits torch's weights and
values are of that type, ours keep f32 sums between products. Attention is a model whose inputs are f32 and rounded first, so ours does
more than torch's; torch's is the faster of its own choice and cuDNN's. Where the target has products of four warps, two large
matrix products are measured without them, too ("by warps").
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness import ROOT, Array, table, version  # isort: skip
from gpu_cases import Attention, Case, attentions, cases, families  # isort: skip
from inputs import random_inputs, set_batch  # isort: skip
from torch_models import torch_model  # isort: skip

import numpy as np
import onnx

import tensorlang
from codegen.cuda.device import devices, driver_version
from codegen.cuda.errors import Unavailable
from stdlib import models
from tensorlang.backends.cuda.machine import arch_of
from tensorlang.backends.gpu.tools import Built
from tensorlang.diagnostics import CompileError, render
from tensorlang.runtime.model import CompiledModel
from tensorlang.runtime.operator import Operator
from tensorlang.shell.measure import largest_difference, measured_on_device
from tensorlang.shell.peers import DeviceRun, torch_on_device

HERE = Path(__file__).parent
OURS = "tensorlang"
TUNED = "max-autotune-no-cudagraphs"
"""As torch.compile tunes most; its calls become one CUDA graph like all others."""
PRECISIONS = ("f32", "bf16", "f16")
BATCHES = {"resnet50": (32,), "bert_base": (32,)}
"""Models that are measured at other batches, too."""


ATTENTIONS = {a.name: a for a in attentions()}


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of each contender for one piece of work, ours first; `differences`: of torch's results from ours, relative to the largest; of
    all results, ours too, from those computed in f32 step by step, where these are there to be asked."""

    name: str
    flops: float
    moved: float
    seconds: dict[str, float]
    differences: dict[str, float]


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code: 1 when something that is needed is not here, or kernels spill."""
    arguments = arguments_of(argv)
    chosen = [c for c in (families() if arguments.families else cases()) if _is_chosen(c.name, arguments)]
    every = [name for n in models.names() for name in (n, *(f"{n}@{batch}" for batch in BATCHES.get(n, ())))]
    named = [f"{n} {p}" for n in every for p in arguments.precisions if _is_chosen(n, arguments)]
    named += [a.name for a in ATTENTIONS.values() if _is_chosen(a.name, arguments) and not arguments.families]
    chosen, named = ([] if arguments.no_operators else chosen), ([] if arguments.no_models else named)
    try:
        if arguments.compile_only:
            return _compiled(chosen, named, arguments)
        found = devices()[0]
        rows = [*_operators(chosen, arguments), *_models(named, arguments)]
    except Unavailable as problem:
        print(f"error: {problem.what}; {problem.remedy}. `--compile-only` makes every kernel without a device.", file=sys.stderr)
        return 1
    except CompileError as problem:
        print("\n\n".join(map(render, problem.diagnostics)), file=sys.stderr)
        return 1
    text = _report(rows)
    print(text)
    if not arguments.names:
        head = _described(found.name, found.arch.name if found.arch is not None else "", arguments)
        name = "".join(c if c.isalnum() else "-" for c in found.name.lower()).strip("-")
        (ROOT / "docs" / "benchmarks" / f"gpu-{name}.md").write_text(f"# {found.name}\n\n{head}\n\n{text}\n", "utf-8")
    return 0


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return what the command line says; `ready_operator` and `ready_model` take it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="beginnings of names (default: all)")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long to measure each row")
    parser.add_argument("--target", default="cuda", help="what to compile for: cuda, cuda:sm_90a, …")
    parser.add_argument("--tuned", default=TUNED, help="the mode of torch.compile")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=["f32", "bf16"], help="of models")
    parser.add_argument("--compile-only", action="store_true", help="make machine code of everything, run nothing")
    parser.add_argument("--families", action="store_true", help="one small operator of each family instead")
    parser.add_argument("--no-operators", action="store_true")
    parser.add_argument("--no-models", action="store_true")
    parser.add_argument("--no-torch", action="store_true", help="ours alone")
    return parser.parse_args(argv)


def _is_chosen(name: str, arguments: argparse.Namespace) -> bool:
    return not arguments.names or name.startswith(tuple(arguments.names))


# ---------------------------------------------------------------- machine code alone


def _compiled(chosen: Sequence[Case], named: Sequence[str], arguments: argparse.Namespace) -> int:
    """Compile everything, print what kernels use, and return 1 when any spills."""
    lines, spilled = [], 0
    for name, built, seconds in _all_built(chosen, named, arguments):
        used = list(built.usage.values())
        spills = sum(u.spill_store_bytes + u.spill_load_bytes for u in used)
        spilled += spills
        shared = max(k.shared_bytes for m in built.model.kernels.values() for k in m.launched.kernels)
        calls, distinct = len(built.model.calls), len(built.model.kernels)
        most, stack = max(u.registers for u in used), max(u.stack_bytes for u in used)
        lines.append((name, calls, distinct, len(used), f"{seconds:.1f}", most, shared, stack, spills))
        print(*lines[-1], sep="  ", file=sys.stderr, flush=True)
    print(table(("", "kernels", "distinct", "launched", "s", "registers", "shared", "stack", "spilled"), lines))
    return 1 if spilled else 0


def _all_built(chosen: Sequence[Case], named: Sequence[str], arguments: argparse.Namespace) -> Iterator[tuple[str, Built, float]]:
    """Yield each operator and model compiled, with the seconds that took."""
    for case in chosen:
        start = time.perf_counter()
        operator = operator_of(case, arguments)
        built = operator.compiled(operator.call(*case.stand_ins(), **case.attributes)).built
        yield case.name, built, time.perf_counter() - start
    for name in named:
        start = time.perf_counter()
        model = model_of(name, arguments)
        yield name, model.made.built, time.perf_counter() - start


def operator_of(case: Case, arguments: argparse.Namespace) -> Operator:
    """Return the operator of a case, for the architecture without products of four warps where it asks for that."""
    target = arguments.target
    if case.by_warps:
        arch = arch_of(target)
        assert arch is not None
        target = arch.target.removesuffix("a")
    text = (HERE / "gpu.tl").read_text("utf-8")
    operator = tensorlang.parse(text + case.schedule, target=target)[case.operator]
    return operator


def _source(name: str) -> tuple[onnx.ModelProto, str]:
    """Return a model and its precision by the name of a row: `resnet50@32 bf16`, or that of attention."""
    if name in ATTENTIONS:
        return ATTENTIONS[name].model(), ATTENTIONS[name].dtype
    which, precision = name.split()
    which, _, batch = which.partition("@")
    model = models.load(which)
    if batch:
        set_batch(model, int(batch))
    return model, precision


def inputs_of(name: str) -> dict[str, Array]:
    """Return random inputs of the model, or attention, of a row."""
    return random_inputs(_source(name)[0])


def model_of(name: str, arguments: argparse.Namespace) -> CompiledModel:
    source, precision = _source(name)
    model = tensorlang.compile(source, arguments.target, precision)
    return model


# ---------------------------------------------------------------- measuring


def _operators(chosen: Sequence[Case], arguments: argparse.Namespace) -> Iterator[Row]:
    for case in chosen:
        yield ready_operator(case, arguments)()


def ready_operator(case: Case, arguments: argparse.Namespace) -> Callable[[], Row]:
    """Compile an operator and make its arguments, and return what measures it: only that needs the device."""
    torch = None if arguments.no_torch else imported_torch()
    operator, arrays = operator_of(case, arguments), case.arrays()
    operator.compiled(operator.call(*arrays, **case.attributes))

    def measure() -> Row:
        runs = {OURS: DeviceRun(operator.timer(*arrays, **case.attributes), partial(_results, operator, arrays, case.attributes))}
        if torch is not None and _sees_a_device(torch):
            runs["torch"] = torch_on_device(torch, case.torch(torch), [tensor(torch, a) for a in arrays])
        return _measured(case.name, case.flops, case.moved, runs, arguments.seconds)

    return measure


def _results(operator: Operator, arrays: Sequence[Array], attributes: dict[str, int]) -> list[Array]:
    return [np.asarray(operator(*arrays, **attributes)).astype(np.float32)]


def _models(named: Sequence[str], arguments: argparse.Namespace) -> Iterator[Row]:
    for name in named:
        yield ready_model(name, arguments)()


def ready_model(name: str, arguments: argparse.Namespace) -> Callable[[], Row]:
    """Compile a model, or attention, and return what measures it: only that needs the device."""
    torch = None if arguments.no_torch else imported_torch()
    (source, precision), model = _source(name), model_of(name, arguments)
    feeds = random_inputs(source)

    def measure() -> Row:
        runs = {OURS: DeviceRun(model.timer(feeds), lambda: list(model.run(feeds).values()))}
        reference = None
        if torch is not None and _sees_a_device(torch):
            dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[precision]
            if name in ATTENTIONS:
                runs |= _attentions(torch, ATTENTIONS[name], feeds, dtype)
                reference = partial(_attention_in_steps, torch, ATTENTIONS[name], feeds, dtype)
            else:
                call = torch_model(torch, source, dtype, "cuda")
                runs["torch"] = torch_on_device(torch, call, list(feeds.values()))
                runs["torch.compile"] = torch_on_device(torch, torch.compile(call, mode=arguments.tuned), list(feeds.values()))
        flops = ATTENTIONS[name].flops if name in ATTENTIONS else model.roofline().work.flops
        return _measured(name, flops, 0.0, runs, arguments.seconds, reference)

    return measure


def _attention_in_steps(torch: Any, case: Attention, feeds: Mapping[str, Array], dtype: Any) -> list[Array]:
    """Return attention of what is rounded to `dtype`, in f32 from there on, with scores and weights in memory."""
    q, k, v = (torch.as_tensor(a).to(dtype).cuda().float() for a in feeds.values())
    scores = torch.matmul(q, k.transpose(-1, -2)) * case.size**-0.5
    if case.causal:
        scores += torch.full(scores.shape[-2:], -torch.inf, device="cuda").triu(1)
    return [torch.matmul(torch.softmax(scores, -1), v).cpu().numpy()]


def _attentions(torch: Any, case: Attention, feeds: Mapping[str, Array], dtype: Any) -> dict[str, DeviceRun]:
    """Return torch's attention by its own choice of kernels and by cuDNN's."""
    tensors = [torch.as_tensor(a).to(dtype) for a in feeds.values()]
    own = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=case.causal)

    def by_cudnn(*arrays: Any) -> Any:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
            return own(*arrays)

    return {"torch": torch_on_device(torch, own, tensors), "torch, cuDNN": torch_on_device(torch, by_cudnn, tensors)}


def _measured(
    name: str,
    flops: float,
    moved: float,
    runs: dict[str, DeviceRun],
    seconds: float,
    reference: Callable[[], Sequence[Array]] | None = None,
) -> Row:
    ours = [np.asarray(r) for r in runs[OURS].results()]
    expected = ours if reference is None else reference()
    found = {n: ours if n == OURS else run.results() for n, run in runs.items() if n != OURS or reference is not None}
    differences = {n: largest_difference(results, expected) for n, results in found.items()}
    timings = measured_on_device({n: run.seconds for n, run in runs.items()}, seconds)
    row = Row(name, flops, moved, {t.name: t.median_seconds for t in timings}, differences)
    print(line(row), sep="  ", file=sys.stderr, flush=True)
    return row


def imported_torch() -> Any:
    """Return torch, or None where it is not installed."""
    return None if importlib.util.find_spec("torch") is None else importlib.import_module("torch")


def _sees_a_device(torch: Any) -> bool:
    if not torch.cuda.is_available():
        print("torch sees no device: ours is measured alone", file=sys.stderr)
        return False
    return True


def tensor(torch: Any, array: Array) -> Any:
    """Return an array as torch has it, bf16 by its bits."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


# ---------------------------------------------------------------- reporting


def line(row: Row) -> tuple[str, ...]:
    """Return the cells of a row: name, microseconds, rate, torch's, torch.compile's, the ratio, the difference."""
    ours, others = row.seconds[OURS], {n: s for n, s in row.seconds.items() if n != OURS}
    rate = f"{row.flops / ours * 1e-12:.1f} TFLOP/s" if row.flops else f"{row.moved / ours * 1e-9:.0f} GB/s"
    best = min(others.values(), default=None)
    eager = min((s for n, s in others.items() if n != "torch.compile"), default=None)
    times = [f"{s * 1e6:.1f}" if s is not None else "" for s in (ours, eager, others.get("torch.compile"))]
    difference = f"{row.differences.get(OURS, max(row.differences.values())):.1g}" if row.differences else ""
    return (row.name, times[0], rate, *times[1:], f"{best / ours:.2f}" if best is not None else "", difference)


def _report(rows: Sequence[Row]) -> str:
    return table(("", "us", "rate", "torch, us", "torch.compile, us", "ratio", "difference"), [line(row) for row in rows])


def _described(name: str, arch: str, arguments: argparse.Namespace) -> str:
    major, minor = driver_version()
    versions = ", ".join(f"{p} {v}" for p in ("torch", "cuda-core", "cuda-bindings") if (v := version(p)))
    command = "python benchmarks/gpu.py" + (f" --seconds {arguments.seconds:g}" if arguments.seconds != 1.0 else "")
    return (
        f"{time.strftime('%Y-%m-%d')}; {name} ({arch}), CUDA {major}.{minor}, {versions}; `{command}`.\n\n"
        "Medians by the device's clock, of CUDA graphs on data that lies there. ratio: the best of torch's times over ours; above 1 ours\n"
        "is faster. difference: the largest between results, relative to the largest value; of attention, of ours from what f32 gives."
    )


if __name__ == "__main__":
    sys.exit(main())
