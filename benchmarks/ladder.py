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
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from harness import ROOT, version  # isort: skip
import gpu  # isort: skip
import sanitize  # isort: skip
import told  # isort: skip
from gpu_cases import Case, attentions, cases, families, variants  # isort: skip

sys.path.append(str(ROOT / "tests" / "gpu"))

import pytest

from codegen.cuda.compile import Compiled, compilable, nvrtc_version, source
from codegen.cuda.device import Code, Device, devices, driver_version
from codegen.cuda.errors import LASTING, Unavailable
from codegen.gpu.program import Program
from codegen.store import key_of
from tensorlang.diagnostics import CompileError, RunError, render
from tensorlang.digest import compiler_digest
from tensorlang.shell.peers import torch_on_device

HERE = Path(__file__).parent
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
    "any_sizes_there",
    "device_models",
    "open_models_there",
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
    yield from (Step(f"kernels of {name}", "profiles", 60, alone=True) for name in MODELS)
    yield from (Step(f"time {name}", "models", 180, alone=True) for name in MODELS)
    yield from (Step(f"{tool} {name}", "sanitize", 150) for tool in ("memcheck", "racecheck") for name in SANITIZED)


def ready(step: Step, options: Options) -> Act:
    """Do what of a step needs no device, and return the rest."""
    name = step.name.removeprefix("time ").removeprefix("kernels of ")
    match step.group:
        case "doctor":
            return partial(_doctor, options)
        case "right":
            run = sanitize.ready(_case(families(), name), options.target)
            return lambda: (
                {"status": "wrong", "detail": "not what the interpreter says; how far off is in the log"} if run() else {"status": "ok"}
            )
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
        case "profiles":
            return _profiled(name, options)
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
    wrong = gpu.OURS in bad if gpu.OURS in row.differences else bool(bad)
    return {"status": "wrong" if wrong else "ok", "detail": detail, "figures": asdict(row), "row": texts}


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
    figures |= {"compiler": compiler_digest()[:12], **_card()}
    figures["tools"] = [tool for tool in ("compute-sanitizer", "nvdisasm", "ncu", "g++") if shutil.which(tool)]
    detail = f"{found.name} ({figures['capability']}), CUDA {figures['driver']}, NVRTC {figures['nvrtc']}"
    return {"status": "ok" if found.arch is not None else "wrong", "detail": detail, "figures": figures}


def _card() -> Outcome:
    """Return the state of the first card, as `nvidia-smi` prints it: it is read and never set."""
    asked = ("clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit", "temperature.gpu", "memory.total", "memory.used")
    asked += ("utilization.gpu", "compute_mode", "mig.mode.current", "ecc.mode.current")
    command = ["nvidia-smi", f"--query-gpu={','.join(asked)}", "--format=csv,noheader", "--id=0"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return {"card": dict(zip(asked, (part.strip() for part in said.split(",")), strict=False))}


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


def _profiled(name: str, options: Options) -> Act:
    """Compile a model, and return what measures each of its kernels."""
    model, feeds = gpu.model_of(name, options.arguments()), gpu.inputs_of(name)

    def act() -> Outcome:
        text = model.explain(None if options.dry else feeds)
        print(text, file=sys.stderr)
        return {"status": "ok", "figures": {"kernels measured": text}}

    return act


def _tested(step: Step, options: Options) -> Outcome:
    """Run the tests of a module that are marked `gpu`. A test that hangs, or that costs its process the device, costs itself alone: another
    process goes on after it."""
    path = ROOT / "tests" / "device" / f"test_{step.name.removeprefix('tests ')}.py"
    how = ["-m", "gpu", "-v", "--tb=short", "--color=no", "-p", "no:cacheprovider", "-o", "filterwarnings=", "-o", "addopts="]
    command = [sys.executable, "-m", "pytest", *how, "-p", "told", *(["-p", "emulated_cuda"] if options.dry else []), str(path)]
    end, early = time.monotonic() + 0.95 * step.seconds, list[str]()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "told"
        while True:
            before = told.read(file)
            how_it_ended = _one_process(command, file, end, step.seconds / 3)
            found = told.read(file)
            if how_it_ended:
                early.append(f"{found.unfinished[-1] if found.unfinished else path.name}: {how_it_ended}")
            if len(found.begun) in (len(before.begun), found.there) or time.monotonic() > end or len(early) == _MOST_PROCESSES:
                return _outcome_of_tests(found, early)


_EMULATED_SECONDS = 3600
"""What the tests of a module may take on the stand-in."""
_MOST_PROCESSES = 6


def _one_process(command: Sequence[str], file: Path, end: float, longest: float) -> str:
    """Run pytest until `end`, or until a test takes longer than so many seconds. Return why it could not go on with the tests, "" when
    it could."""
    paths = os.pathsep.join([str(HERE), str(ROOT / "tests" / "gpu"), os.environ.get("PYTHONPATH", "")])
    known = {**os.environ, told.FILE: str(file), "PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # whatever plugins are there
    before = told.read(file).failed
    child = subprocess.Popen(command, stdout=sys.stderr, stderr=sys.stderr, stdin=subprocess.DEVNULL, cwd=ROOT, env=known)
    since, size = time.monotonic(), 0
    while child.poll() is None:
        time.sleep(0.05)
        if file.is_file() and file.stat().st_size != size:
            since, size = time.monotonic(), file.stat().st_size
        if time.monotonic() > min(end, since + longest):
            with suppress(OSError):
                resource.prlimit(child.pid, resource.RLIMIT_CORE, (0, 0))  # no file of its memory
            child.send_signal(signal.SIGABRT)  # it prints where it is
            with suppress(subprocess.TimeoutExpired):
                child.wait(3)
            child.kill()
            return "not done when the time of the step was up" if time.monotonic() > end else f"not done after {longest:g} s"
    if child.returncode < 0:
        return f"the process ended with {child.returncode}"
    lost = [error for name, why in told.read(file).failed.items() if name not in before for error in LASTING if error in why]
    return lost[-1] if lost else ""


def _outcome_of_tests(found: told.Told, early: Sequence[str]) -> Outcome:
    """Return `lost` where a process lost the device or died, `hung` where one was ended, `wrong` where tests failed or were not run."""
    failed = [*early, *(f"{name}: {why.splitlines()[-1] if why else ''}" for name, why in found.failed.items())]
    unseen = found.there - len(found.begun)
    counts = f"{len(found.passed)} of {found.there} passed" + (f", {unseen} not begun" if unseen else "")
    status = "ok" if found.there and len(found.passed) == found.there else "wrong"
    if early:
        status = "hung" if any("not done" in line for line in early) else "lost"
    figures = {"passed": len(found.passed), "there": found.there, "ended early": list(early), "failed": dict(found.failed)}
    return {"status": status, "detail": "; ".join([counts, *(line[:220] for line in failed[:4])]), "figures": figures}


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
    parser.add_argument("--seconds", type=int, default=0, help="what the step may take on the device, instead of what is listed")
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args(argv)
    if given.what == "list":
        for step in steps():
            print(json.dumps(asdict(step)))
        return 0
    options = Options(given.target, given.measured, given.tuned, given.dry_run)
    step = next(step for step in steps() if step.name == given.name)
    if given.seconds:
        step = replace(step, seconds=given.seconds)
    if given.what == "ready":
        if step.group in ("right", "time", "variants", "attention", "models", "profiles"):
            ready(step, replace(options, dry=False))
        if step.group == "tests":
            outcome = _tested(replace(step, seconds=_EMULATED_SECONDS), replace(options, dry=True))
            print(outcome["detail"], file=sys.stderr)
            return 0 if outcome["status"] == "ok" else 1
        return 0
    if step.group in ("right", "tests"):
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"  # the call that fails is the one that is named
    if options.dry and step.group != "tests":
        _stand_in(runs=step.group == "right")
    loaded = _kept_loads()
    try:
        act = ready(step, options)
        print("@ready", flush=True)
        if not sys.stdin.readline():
            return 1  # whoever would have said so is gone
        outcome = act()
    except (CompileError, RunError) as problem:
        outcome = _failed("\n".join(map(render, problem.diagnostics)) if isinstance(problem, CompileError) else str(problem))
    except Exception as problem:
        outcome = _failed(f"{type(problem).__name__}: {problem}")
    if outcome["status"] not in ("ok", "absent"):
        outcome["kernels"] = loaded
    print("@done", json.dumps(outcome), flush=True)
    return 0


def _failed(why: str) -> Outcome:
    traceback.print_exc()
    return {"status": "lost" if any(name in why for name in LASTING) else "error", "detail": why[:1000]}


def _kept_loads() -> dict[str, str]:
    """Return what fills, from now on, with the names of kernels that this process loads, and digests of their sources; each is said, too,
    for the case that the process does not come to its end."""
    found: dict[str, str] = {}
    load = Device.load

    def loading(device: Device, program: Program, compiled: Compiled) -> Code:
        digest = key_of((source(program),))[:16]
        for kernel in program.kernels:
            found[kernel.name] = digest
            print(f"loading `{kernel.name}` of source {digest}, {compiled.usage.get(kernel.name)}", file=sys.stderr, flush=True)
        return load(device, program, compiled)

    Device.load = loading  # type: ignore[method-assign]
    return found


def _stand_in(runs: bool) -> None:
    """Let a stand-in for the driver answer: its kernels are run by the emulator, or not at all."""
    from emulated_cuda import EmulatedCuda  # what stands beside the tests is not there where only steps are run

    EmulatedCuda(runs=runs).install(pytest.MonkeyPatch())


if __name__ == "__main__":
    sys.exit(main())
