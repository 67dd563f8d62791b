"""The steps of scripts/device.py, from harmless to risky, each made ready without a device and then done on it.

    python benchmarks/ladder.py list                     a JSON line for each: name, group, seconds on the device, alone there or not
    python benchmarks/ladder.py ready NAME               all that needs no device: machine code is made, and kept where it is asked to be
    python benchmarks/ladder.py run NAME                 says `@ready`, waits for a line, does it on the device, says `@done` and JSON

Results are `status` (`ok`; `wrong`, `error`, `lost`; `absent` where something is not installed), a `detail` in words, and `figures`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from harness import ROOT, version  # isort: skip
import gpu  # isort: skip
import sanitize  # isort: skip
from gpu_cases import Case, attentions, cases, families, variants  # isort: skip

sys.path.append(str(ROOT / "tests" / "gpu"))

import pytest

from codegen.cuda.compile import compilable, nvrtc_version
from codegen.cuda.device import devices, driver_version
from codegen.cuda.errors import LASTING, Unavailable
from tensorlang.diagnostics import CompileError, RunError, render
from tensorlang.shell.peers import torch_on_device

Outcome = dict[str, Any]
Act = Callable[[], Outcome]
"""Does on the device what was made ready."""

PACKAGES = ("cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc", "numpy", "islpy", "lark", "llvmlite", "onnx", "torch", "triton")

MODULES = (
    "grids",
    "derived",
    "guarded_loads",
    "whole",
    "rows_of_any_length",
    "finished_products",
    "swizzle",
    "device_types",
    "device_differential",
    "random_binds",
    "stages",
    "roles",
    "products",
    "windowed",
    "matrix",
    "tf32",
    "split_products",
    "warp_convolutions",
    "attention",
    "attention_forms",
    "operators_there",
    "device_models",
    "warpgroups",
    "boxes",
    "box_shapes",
    "specialize",
    "warpgroup_roles",
    "clusters",
)
"""Of tests/device, those that run kernels: of threads, then of warps (mma.sync, cp.async), whole models, then of four warps (wgmma), with
bulk copies (TMA), threads beside others, clusters."""

TIMED = (
    "copy",
    "add_relu",
    "total",
    "transpose",
    "softmax",
    "layer_norm",
    "linear bf16",
    "matmul f32 4096",
    "matmul f32 8192",
    "matmul tf32",
    "matmul i8",
    "matmul bf16 4096",
    "matmul bf16 8192",
    "conv bf16",
)
MODELS = ("resnet50 bf16", "bert_base bf16", "resnet50@32 bf16", "bert_base@32 bf16")
SANITIZED = (
    "add_relu f32 1003",
    "softmax f32 37x300",
    "matmul f32 130x72x100",
    "matmul bf16 256x128x256",
    "matmul bf16 200x192x136 along sums",
    "conv bf16 16->24 3x3/2 13x13 @1",
)
LENGTHS = (1024, 4096)


@dataclass(frozen=True, slots=True)
class Step:
    """`seconds`: what it may take on the device before it counts as hung; `alone`: nothing else may run there meanwhile."""

    name: str
    group: str
    seconds: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """`target`: what to compile for; `measured`: seconds for each row of a table; `tuned`: the mode of torch.compile; `dry`: on a stand-in
    for the driver, in which times mean nothing."""

    target: str
    measured: float
    tuned: str
    dry: bool = False

    def arguments(self) -> argparse.Namespace:
        """Return them as benchmarks/gpu.py takes them."""
        given = ["--target", self.target, "--seconds", str(self.measured), "--tuned", self.tuned]
        return gpu.arguments_of([*given, *(["--no-torch"] if self.dry else [])])


def steps() -> Iterator[Step]:
    """Yield all of them, in their order."""
    yield Step("doctor", "doctor", 60)
    yield Step("ceilings", "ceilings", 60, alone=True)
    yield from (Step(case.name, "right", 60) for case in families())
    yield from (Step(f"tests {name}", "tests", 240) for name in MODULES)
    yield from (Step(f"time {case.name}", "time", 60, alone=True) for case in cases() if case.name.startswith(TIMED))
    yield from (Step(f"time {a.name}", "attention", 60, alone=True) for a in attentions() if a.length in LENGTHS)
    yield from (Step(f"time {case.name}", "variants", 60, alone=True) for case in variants())
    yield from (Step(f"time {name}", "models", 180, alone=True) for name in MODELS)
    yield from (Step(f"{tool} {name}", "sanitize", 150) for tool in ("memcheck", "racecheck") for name in SANITIZED)


def ready(step: Step, options: Options) -> Act:
    """Do what of a step needs no device, and return the rest."""
    name = step.name.removeprefix("time ")
    match step.group:
        case "doctor":
            return partial(_doctor, options)
        case "right":
            run = sanitize.ready(_case(families(), name), options.target)
            return lambda: {"status": "wrong" if run() else "ok"}
        case "ceilings":
            return _ceilings(options)
        case "tests":
            return partial(_tested, step, options)
        case "time" | "variants":
            case = _case([*cases(), *variants()], name)
            measure = gpu.ready_operator(case.smaller() if options.dry and not case.schedule else case, options.arguments())
        case "attention":
            measure = gpu.ready_model(name, options.arguments())
        case "models":
            measure = gpu.ready_model(name, options.arguments())
        case _:
            tool, _, name = step.name.partition(" ")
            return partial(_sanitized, tool, _case(families(), name), step.seconds, options)
    return lambda: _row(measure(), _FAR.get(step.group, 0.05), options.dry)


def _case(among: Any, name: str) -> Case:
    return next(case for case in among if case.name == name)


def _row(row: gpu.Row, far: float, dry: bool) -> Outcome:
    """Return a row that was measured, without its figures where nothing was."""
    if dry:
        return {"status": "ok"}
    _, *texts = gpu.line(row)
    bad = {name: d for name, d in row.differences.items() if not d <= far}
    detail = ", ".join(f"{name} differs by {d:.2g}" for name, d in bad.items())
    return {"status": "wrong" if bad else "ok", "detail": detail, "figures": asdict(row), "row": texts}


_FAR = {"models": 0.2}
"""Results that differ by more (0.05 where nothing is said), relative to the largest, are not those of the same computation: one product in
16 bits gives 1e-2, in tf32 1e-3, and a network has fifty of them."""


def _doctor(options: Options) -> Outcome:
    found = devices()[0]
    target = options.target if found.arch is None else found.arch.target
    figures: Outcome = {
        "device": found.name,
        "capability": ".".join(map(str, found.capability)),
        "target": target,
        "driver": ".".join(map(str, driver_version())),
        "python": platform.python_version(),
        "packages": {p: v for p in PACKAGES if (v := version(p))},
    }
    try:
        figures |= {"nvrtc": ".".join(map(str, nvrtc_version())), "compiles for": list(compilable())}
    except Unavailable as problem:
        figures["nvrtc"] = problem.what
    figures["tools"] = [tool for tool in ("compute-sanitizer", "nvdisasm", "ncu", "g++") if shutil.which(tool)]
    detail = f"{found.name} ({figures['capability']}), CUDA {figures['driver']}, NVRTC {figures['nvrtc']}"
    return {"status": "ok" if found.arch is not None else "wrong", "detail": detail, "figures": figures}


def _ceilings(options: Options) -> Act:
    """Measure what the library reaches: a copy far beyond the caches, products of large matrices of random numbers."""
    names = ("copy f32 268435456", "matmul bf16 8192x8192x8192", "matmul f32 8192x8192x8192")
    chosen = [(case, [] if options.dry else case.arrays()) for case in cases() if case.name in names]

    def act() -> Outcome:
        torch = None if options.dry else gpu.imported_torch()
        if torch is None or not torch.cuda.is_available():
            return {"status": "absent", "detail": "torch is not here, or sees no device"}
        figures = {}
        for case, arrays in chosen:
            run = torch_on_device(torch, case.torch(torch), [gpu.tensor(torch, a) for a in arrays])
            seconds = min(run.seconds(10) for _ in range(5))
            figures[case.name] = f"{case.flops / seconds * 1e-12:.0f} TFLOP/s" if case.flops else f"{case.moved / seconds * 1e-9:.0f} GB/s"
        return {"status": "ok", "detail": "; ".join(f"{name}: {rate}" for name, rate in figures.items()), "figures": figures}

    return act


def _tested(step: Step, options: Options) -> Outcome:
    """Run the tests of a module that are marked `gpu`: one process, which ends at an error that costs it the device."""
    path = ROOT / "tests" / "device" / f"test_{step.name.removeprefix('tests ')}.py"
    how = ["-m", "gpu", "-q", "-rf", "--tb=short", "-p", "no:cacheprovider", "-o", "filterwarnings="]
    limits = ["-o", f"faulthandler_timeout={step.seconds / 3:g}", "-o", "faulthandler_exit_on_timeout=true"]
    stand_in = ["-p", "emulated_cuda"] if options.dry else []
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *how, *limits, *stand_in, str(path)], capture_output=True, text=True, check=False
    )
    print(done.stdout[-20000:], done.stderr[-5000:], sep="\n", file=sys.stderr)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR", "E   "))]
    lost = any(name in done.stdout for name in LASTING)
    detail = "; ".join([*failed[:4], *lines[-1:]])
    return {"status": "ok" if done.returncode == 0 else "lost" if lost else "wrong", "detail": detail[:1000]}


def _sanitized(tool: str, case: Case, seconds: float, options: Options) -> Outcome:
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None or options.dry:
        return {"status": "absent", "detail": "there is no `compute-sanitizer`"}
    code = sanitize.sanitized(sanitizer, tool, case, options.target, 0.9 * seconds)
    return {"status": "ok" if code == 0 else "wrong", "detail": "" if code == 0 else f"exit code {code}: its last lines are in the log"}


# ---------------------------------------------------------------- a step in a process of its own


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("list", "ready", "run"))
    parser.add_argument("name", nargs="?")
    parser.add_argument("--target", default="cuda:sm_90a")
    parser.add_argument("--measured", type=float, default=0.3)
    parser.add_argument("--tuned", default="default")
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args(argv)
    if given.what == "list":
        for step in steps():
            print(json.dumps(asdict(step)))
        return 0
    options = Options(given.target, given.measured, given.tuned, given.dry_run)
    step = next(step for step in steps() if step.name == given.name)
    if given.what == "ready":
        if step.group in ("right", "time", "variants", "attention", "models"):
            ready(step, replace(options, dry=False))
        return 0
    if step.group in ("right", "tests"):
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"  # the call that fails is the one that is named
    if options.dry and step.group != "tests":
        _stand_in(runs=step.group == "right")
    try:
        act = ready(step, options)
        print("@ready", flush=True)
        sys.stdin.readline()
        outcome = act()
    except (CompileError, RunError) as problem:
        outcome = _failed("\n".join(map(render, problem.diagnostics)) if isinstance(problem, CompileError) else str(problem))
    except Exception as problem:
        outcome = _failed(f"{type(problem).__name__}: {problem}")
    print("@done", json.dumps(outcome), flush=True)
    return 0


def _failed(why: str) -> Outcome:
    return {"status": "lost" if any(name in why for name in LASTING) else "error", "detail": why[:1000]}


def _stand_in(runs: bool) -> None:
    """Let a stand-in for the driver answer: its kernels are run by the emulator, or not at all."""
    from emulated_cuda import EmulatedCuda  # what stands beside the tests is not there where only steps are run

    EmulatedCuda(runs=runs).install(pytest.MonkeyPatch())


if __name__ == "__main__":
    sys.exit(main())
