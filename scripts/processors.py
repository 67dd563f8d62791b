"""Runs what is compiled for other processors under emulators: whether it computes what this machine computes, and how many instructions it
takes. With `--write` the results go into docs/benchmarks/data/processors.json, by target and by what was run.

python scripts/processors.py                            every target, the cases of ONNX, the light models, the counts
python scripts/processors.py --targets aarch64 --only cases --every 7 --names relu
python scripts/processors.py --only kernels --write     the counts alone, into the file

Needs qemu-user (Debian: `qemu-user-static`, or `--qemu FOLDER`) and the packages `ziglang` (compiler and C library of every target) and
`wasmtime`. What runs is what `tl.compile(model, target=…)` made, called by a few lines of C. Counts are of instructions, of one run, as
QEMU translates them; an emulator has no times to tell.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "onnx")]

import numpy as np  # noqa: E402

import tensorlang as tl  # noqa: E402
from codegen.llvm.jit import compile_object  # noqa: E402
from codegen.llvm.program import emit_program  # noqa: E402
from codegen.llvm.target import Target, named  # noqa: E402
from codegen.llvm.wasm import PAGE, linked  # noqa: E402
from tensorlang.backends.cpu.model import Specialised  # noqa: E402

PAGE_OF_DATA = ROOT / "docs" / "benchmarks" / "data" / "processors.json"
QEMU = {
    "x86_64": ("qemu-x86_64-static", ("-cpu", "max")),
    "aarch64": ("qemu-aarch64-static", ("-cpu", "max")),
    "riscv64": ("qemu-riscv64-static", ("-cpu", "rv64,v=true,vlen={bits}")),
}
ZIG = {"x86_64": "x86_64-linux-musl", "aarch64": "aarch64-linux-musl", "riscv64": "riscv64-linux-musl"}
TARGETS = ("x86-64-v3", "aarch64", "aarch64-v8.2", "aarch64-v8.6", "riscv64gcv", "riscv64gcv-256", "wasm32", "wasm32-relaxed")
MODELS = ("squeezenet11", "mobilenet_v2", "light_shufflenet", "light_squeezenet", "minilm_l6")
KERNELS = (
    ("product 96 x 96 x 96", "MatMul", [(96, 96), (96, 96)], {}),
    ("product 97 x 101 x 89", "MatMul", [(97, 101), (101, 89)], {}),
    ("convolution 3 x 3, 32 to 32 channels, 28 x 28", "Conv", [(1, 32, 28, 28), (32, 32, 3, 3)], {"pads": [1, 1, 1, 1]}),
    ("depthwise convolution 3 x 3, 32 channels, 28 x 28", "Conv", [(1, 32, 28, 28), (32, 1, 3, 3)], {"pads": [1, 1, 1, 1], "group": 32}),
    ("softmax of 64 rows of 256", "Softmax", [(64, 256)], {}),
    ("normalisation of 64 rows of 256", "LayerNormalization", [(64, 256), (256,), (256,)], {}),
)
"""Operators whose instructions are counted: name, ONNX's name, shapes of the input and of the weights, attributes."""
TOLERANCE = 2e-4
"""Of the largest element of a result: sums are taken in another order."""
BATCH = 40
"""Cases that are linked into one program."""

Array = np.ndarray[Any, Any]

RUNNER = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
extern int (*const entries[])(void **);
static void take(void *to, size_t size) { if (size && fread(to, 1, size, stdin) != size) exit(9); }
int main(void) {
    int32_t head[3];
    while (fread(head, 4, 3, stdin) == 3) {
        int bases = head[1], outputs = head[2];
        void **base = calloc(bases + 1, sizeof(void *));
        int64_t *sizes = calloc(bases + 1, 8);
        for (int k = 0; k < bases; k++) {
            int64_t about[2];
            take(about, 16);
            sizes[k] = about[0];
            base[k] = aligned_alloc(64, (about[0] + 127) / 64 * 64);
            if (about[1]) take(base[k], about[0]);
        }
        int32_t code = entries[head[0]](base);
        fwrite(&code, 4, 1, stdout);
        for (int k = 0; k < outputs; k++) fwrite(base[k], 1, sizes[k], stdout);
        for (int k = 0; k < bases; k++) free(base[k]);
        free(base); free(sizes);
    }
    return 0;
}
"""


@dataclass(frozen=True)
class Case:
    """A model with its inputs, compiled for a target, and what this machine computes of it."""

    name: str
    entry: str
    objects: Mapping[str, bytes]
    bases: tuple[Array | int, ...]
    """Of inputs and constants their bytes, of what is written the number of bytes; outputs first."""
    expected: tuple[Array, ...]


class LeftOut(Exception):
    """A case that is of no use here."""


def compiled(name: str, model: Any, inputs: Mapping[str, Array], expected: Sequence[Array], target: str, number: int) -> Case:
    """Return a model as a case. `number` tells its entry point from others."""
    made = tl.compile(model, target=target, threads=1)
    runs = made._for(inputs) if made._static is None else made._known()
    if not isinstance(runs, Specialised):
        raise LeftOut("its shapes depend on data")
    parts = runs.executable.parts
    entry = replace(parts.entry, name=f"run{number}")
    machine = named(target)
    objects = {entry.name: compile_object(emit_program(entry, machine), machine)}
    objects |= {a.symbol: a.object for a in parts.artifacts}
    graph = parts.graph
    fed = [np.ascontiguousarray(inputs[n]) for n in graph.inputs]
    bases = (*(a.nbytes for a in expected), *fed, parts.constants, *parts.numbers, parts.arena_bytes)
    return Case(name, entry.name, objects, bases, tuple(expected))


def cases(target: str, options: argparse.Namespace) -> Iterator[Case]:
    """Yield what is to run."""
    for number, (name, model, inputs) in enumerate(_models(options)):
        try:
            own = tl.compile(model)
            results = own.run(inputs)
            if not all(isinstance(a, np.ndarray) for a in results.values()):
                raise LeftOut("it makes sequences")
            expected = [np.ascontiguousarray(a) for a in results.values()]
            yield compiled(name, model, inputs, expected, target, number)
        except (tl.CompileError, tl.RunError, LeftOut) as problem:  # a case that is refused here is refused everywhere
            if options.verbose:
                print(f"left out: {name}: {str(problem).splitlines()[0]}")


def _models(options: argparse.Namespace) -> Iterator[tuple[str, Any, dict[str, Array]]]:
    from onnx_evaluate import suite

    from stdlib import models

    if options.only in ("cases", "all"):
        for k, (name, case) in enumerate(suite().items()):
            if k % options.every == 0 and (options.names is None or re.search(options.names, name)):
                arrays = case.data_sets[0][0]
                if all(isinstance(a, np.ndarray) for a in arrays):
                    yield name, *fixed(case.model, {v.name: a for v, a in zip(case.model.graph.input, arrays, strict=False)})
    if options.only in ("kernels", "all"):
        yield from kernels()
    if options.only in ("models", "all"):
        for name in options.models:
            model = models.load(name)
            yield name, model, inputs_of(model)


def kernels() -> Iterator[tuple[str, Any, dict[str, Array]]]:
    """Yield the models of one operator whose instructions are counted."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    for name, kind, shapes, attributes in KERNELS:
        arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        names = ["x", *(f"w{k}" for k in range(1, len(arrays)))]
        known = [numpy_helper.from_array(a, n) for a, n in zip(arrays[1:], names[1:], strict=True)]
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shapes[0])
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        node = helper.make_node(kind, names, ["y"], **attributes)
        graph = helper.make_graph([node], "kernel", [given], [result], known)
        yield name, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), {"x": arrays[0]}


def fixed(model: Any, inputs: Mapping[str, Array]) -> tuple[Any, dict[str, Array]]:
    """Return a model with those inputs as constants that shapes may depend on, and the others."""
    from onnx import ModelProto, numpy_helper

    known = {name: a for k, (name, a) in enumerate(inputs.items()) if k and a.dtype == np.int64 and a.ndim <= 1}
    found = ModelProto()
    found.CopyFrom(model)
    found.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in known.items())
    kept = [value for value in found.graph.input if value.name not in known]
    del found.graph.input[:]
    found.graph.input.extend(kept)
    return found, {name: a for name, a in inputs.items() if name not in known}


def inputs_of(model: Any) -> dict[str, Array]:
    """Return inputs for a model: one of each open size, drawn from a seed."""
    rng = np.random.default_rng(0)
    given = {i.name for i in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        if value.name not in given:
            shape = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
            is_float = value.type.tensor_type.elem_type == 1
            found[value.name] = rng.standard_normal(shape).astype(np.float32) if is_float else np.ones(shape, np.int64)
    return found


# ---------------------------------------------------------------- running


class Emulated:
    """A processor of QEMU, as programs of one process."""

    def __init__(self, target: Target, folder: Path, qemu: Path | None) -> None:
        self.target, self.folder = target, folder
        name, flags = QEMU[target.family]
        found = shutil.which(name, path=None if qemu is None else str(qemu)) or shutil.which(name.removesuffix("-static"))
        if found is None:
            raise SystemExit(f"there is no {name}: install qemu-user-static, or name its folder by --qemu")
        self.command = [found, *(flag.format(bits=target.vector_bits) for flag in flags)]

    def run(self, batch: Sequence[Case]) -> list[tuple[int, list[bytes]]]:
        """Return the code and the outputs of each case; no outputs where the emulator itself breaks off."""
        program = self.built(batch)
        done = subprocess.run([*self.command, str(program)], input=_asked(enumerate(batch)), capture_output=True)
        if not done.returncode:
            return _answers(batch, done.stdout)
        return [self._alone(program, number, case) for number, case in enumerate(batch)]

    def _alone(self, program: Path, number: int, case: Case) -> tuple[int, list[bytes]]:
        done = subprocess.run([*self.command, str(program)], input=_asked([(number, case)]), capture_output=True)
        return (done.returncode, []) if done.returncode else _answers([case], done.stdout)[0]

    def built(self, batch: Sequence[Case]) -> Path:
        """Return a program that runs the cases which it is told."""
        objects = {symbol: data for case in batch for symbol, data in case.objects.items()}
        files = []
        for symbol, data in objects.items():
            files.append(self.folder / f"{symbol}.o")
            files[-1].write_bytes(data)
        declared = "".join(f"extern int {case.entry}(void **);\n" for case in batch)
        table = ", ".join(case.entry for case in batch)
        source = self.folder / "runner.c"
        source.write_text(f"{RUNNER}\n{declared}int (*const entries[])(void **) = {{ {table} }};\n")
        program = self.folder / "runner"
        zig = [sys.executable, "-m", "ziglang", "cc", "-target", ZIG[self.target.family], "-O1", "-static", "-fno-sanitize=all"]
        subprocess.run([*zig, str(source), *map(str, files), "-o", str(program)], check=True)
        for file in files:
            file.unlink()
        return program

    def instructions(self, case: Case) -> int:
        """Return how many instructions a run takes: those of two runs less those of one."""
        program = self.built([case])
        return self._counted(program, [case, case]) - self._counted(program, [case])

    def _counted(self, program: Path, batch: Sequence[Case]) -> int:
        log = self.folder / "log"
        asked = _asked((0, case) for case in batch)
        flags = ("-d", "in_asm,exec,nochain", "-D", str(log))
        subprocess.run([*self.command, *flags, str(program)], input=asked, capture_output=True, check=True)
        sizes: Counter[str] = Counter()
        runs: Counter[str] = Counter()
        block = ""
        with log.open(errors="replace") as lines:
            for line in lines:
                if line.startswith("Trace "):
                    runs[line.split("/")[1]] += 1
                elif line.startswith("IN:"):
                    block = ""
                elif line.startswith("0x"):
                    at = f"{int(line.split(':')[0], 16):016x}"
                    if not block:
                        block, sizes[at] = at, 0
                    sizes[block] += 1
        log.unlink()
        return sum(count * sizes[block] for block, count in runs.items())


class Engine:
    """A processor of WebAssembly: `wasmtime`."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def run(self, batch: Sequence[Case]) -> list[tuple[int, list[bytes]]]:
        return [self._run(case) for case in batch]

    def _run(self, case: Case, fuel: bool = False) -> tuple[int, list[bytes]]:
        import math

        import wasmtime

        config = wasmtime.Config()
        config.consume_fuel = fuel
        engine = wasmtime.Engine(config)
        store, module = wasmtime.Store(engine), wasmtime.Module(engine, linked(list(case.objects.values()), [case.entry]))
        if fuel:
            store.set_fuel(1 << 60)
        linker = wasmtime.Linker(engine)
        for wanted in module.imports:
            own = getattr(math, wanted.name, None) or getattr(math, wanted.name.removesuffix("f"), None)
            if own is None:
                raise SystemExit(f"{case.name} calls `{wanted.name}`, which is not at hand")
            linker.define_func("env", wanted.name, wanted.type, _careful(own))
        exports = linker.instantiate(store, module).exports(store)
        memory, at = exports["memory"], exports["__heap_base"].value(store)
        places, starts = [], []
        for base in case.bases:
            starts.append(at := -(-at // 64) * 64)
            at += _size(base) + 64
        table = -(-at // 64) * 64
        memory.grow(store, max(0, -(-(table + 8 * len(starts)) // PAGE) - memory.size(store)))
        for start, base in zip(starts, case.bases, strict=True):
            if not isinstance(base, int):
                memory.write(store, base.tobytes(), start)
        memory.write(store, struct.pack(f"<{len(starts)}q", *starts), table)
        code = exports[case.entry](store, table)
        places = [bytes(memory.read(store, s, s + a.nbytes)) for s, a in zip(starts, case.expected, strict=False)]
        self.spent = (1 << 60) - store.get_fuel() if fuel else 0
        return code, places

    def instructions(self, case: Case) -> int:
        """Return the fuel that a run takes: an instruction of WebAssembly takes one."""
        self._run(case, fuel=True)
        return self.spent


def _careful(own: Any) -> Any:
    def call(*args: float) -> float:
        try:
            return float(own(*args))
        except (ValueError, OverflowError):
            return float("nan")

    return call


def _size(base: Array | int) -> int:
    return base if isinstance(base, int) else base.nbytes


def _asked(batch: Iterable[tuple[int, Case]]) -> bytes:
    parts = []
    for number, case in batch:
        parts.append(struct.pack("<3i", number, len(case.bases), len(case.expected)))
        for base in case.bases:
            parts.append(struct.pack("<2q", _size(base), not isinstance(base, int)))
            if not isinstance(base, int):
                parts.append(base.tobytes())
    return b"".join(parts)


def _answers(batch: Sequence[Case], told: bytes) -> list[tuple[int, list[bytes]]]:
    found, at = [], 0
    for case in batch:
        (code,), at = struct.unpack_from("<i", told, at), at + 4
        arrays = []
        for array in case.expected:
            arrays.append(told[at : at + array.nbytes])
            at += array.nbytes
        found.append((code, arrays))
    return found


def difference(actual: bytes, expected: Array) -> float:
    """Return how far a result is off, as a share of its largest element; infinity where it is another one."""
    if not expected.size:
        return 0.0
    found = np.frombuffer(actual, expected.dtype).reshape(expected.shape)
    if expected.dtype.kind in "biu" or expected.dtype.kind in "OSU":
        return 0.0 if np.array_equal(found, expected) else float("inf")
    a, b = (x.astype(np.float64) for x in (found, expected))
    if not np.array_equal(np.isnan(a), np.isnan(b)) or not np.array_equal(a[np.isinf(b)], b[np.isinf(b)]):
        return float("inf")
    fine = np.isfinite(b)
    if not np.isfinite(a[fine]).all():
        return float("inf")
    return float(np.abs(a[fine] - b[fine]).max(initial=0.0) / max(1e-30, np.abs(b[fine]).max(initial=0.0)))


def check(target: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run the cases of a target. Return how many were right, which were not, and how many instructions the counted ones take."""
    machine = named(target)
    emulator = Engine(machine) if machine.is_wasm else Emulated(machine, folder, options.qemu)
    wrong: list[str] = []
    broken: list[str] = []
    counts: dict[str, int] = {}
    total, worst = 0, 0.0
    for batch in _batches(cases(target, options)):
        for case, (code, arrays) in zip(batch, emulator.run(batch), strict=True):
            total += 1
            if code and not arrays:
                broken.append(case.name)
                print(f"{target}: the emulator broke off: {case.name}", flush=True)
                continue
            off = max((difference(a, e) for a, e in zip(arrays, case.expected, strict=True)), default=0.0)
            if code or not off <= (TOLERANCE if case.expected[0].dtype.itemsize >= 4 else 1e-2):
                wrong.append(f"{case.name}: {f'code {code}' if code else off}")
                print(f"{target}: wrong: {wrong[-1]}", flush=True)
            else:
                worst = max(worst, off)
            if any(case.name == name for name, *_ in KERNELS):
                counts[case.name] = emulator.instructions(case)
        print(f"{target}: {total} cases, {len(wrong)} wrong, at most {worst:.1e} off", flush=True)
    result = {"right": total - len(wrong) - len(broken), "wrong": wrong, "emulator broke off": broken, "worst": worst}
    return {**result, "instructions": counts} if counts else result


def _batches(found: Iterator[Case]) -> Iterator[list[Case]]:
    batch: list[Case] = []
    for case in found:
        batch.append(case)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def versions(options: argparse.Namespace) -> dict[str, str]:
    """Return the versions of what ran the code."""
    emulator = Emulated(named("aarch64"), Path(), options.qemu).command[0]
    told = subprocess.run([emulator, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return {"qemu": told.removeprefix("qemu-aarch64 version "), **{name: version(name) for name in ("wasmtime", "ziglang", "llvmlite")}}


def main() -> int:
    """Return 0 where everything was right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="*", default=TARGETS)
    parser.add_argument("--only", choices=("cases", "kernels", "models", "all"), default="all")
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--every", type=int, default=1, help="take one of so many cases")
    parser.add_argument("--names", help="cases whose names contain this expression")
    parser.add_argument("--qemu", type=Path)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE_OF_DATA.relative_to(ROOT)}")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for target in options.targets:
            found[target] = check(target, options, Path(folder))
    if options.write:
        data = json.loads(PAGE_OF_DATA.read_text()) if PAGE_OF_DATA.exists() else {"targets": {}}
        data |= {"date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}", "versions": versions(options)}
        for target, result in found.items():
            data["targets"].setdefault(target, {})[options.only] = result
        PAGE_OF_DATA.write_text(json.dumps(data, indent=1) + "\n")
    return int(any(each["wrong"] for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
