"""NVIDIA's packages as they are installed, over a driver in which kernels do nothing (driver.cpp): what `codegen.cuda.device` asks of them,
they ask of the driver in a way that it takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PROGRAM = """
import numpy as np
from codegen.cuda.arrays import DeviceArray, view_of
from codegen.cuda.compile import Compiled
from codegen.cuda.device import Device
from codegen.dtypes import bf16, f32
from codegen.gpu.program import Kernel, Launch, Program, TensorMap
from codegen.loops.nodes import Int, Var

device = Device()
tiles = TensorMap("tiles", "x", bf16, (Var("N"), Int(64)), (Int(72),), (16, 64), 128, Int(8))
kernel = Kernel("tiled", "", ("y",), ("N",), (32, 1, 1), shared_bytes=65536, maps=(tiles,))
program = Program("p", ("x", "y"), ("N",), (kernel,), (Launch("tiled", (Int(4), Int(1), Int(1))),))
code = device.load(program, Compiled("sm_90a", b"\\x7fELF", {}))
x, y = device.allocate(100 * 144), device.allocate(4096)
device.upload(x.address, np.full(7200, 0x3F80, np.uint16))
device.clear(y.address, 4096)
device.copy(y.address, x.address, 16)
works = [code.work({"N": 99}, {"x": x.address, "y": y.address}) for _ in range(8)]
device.run(works[:1])
graph = device.captured(works[:1])
graph.launch()
assert device.seconds(graph, 2) == 0.75e-3
assert device.mark().is_done
found = np.ones(1024, np.float32)
device.download(y.address, found)
assert found[:4].view(np.uint16).tolist() == [0x3F80] * 8 and not found[4:].any()
assert view_of(DeviceArray(device, y, (1024,), f32), device).address == y.address
other = device.on(1)
other.follow(device.mark())
other.wait()
print(device.name, device.arch.name)
"""
MAP = "mapped type 1 (64, 99) by 144 in boxes of (64, 16), interleave 0, swizzle 3, promotion 2, beyond 0"
LAUNCH = "tiled (4, 1, 1) (32, 1, 1) 65536 with memory, a map, 99"


def test_the_packages_ask_of_the_driver_what_it_takes(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    assert compiler is not None
    driver = tmp_path / "libcuda.so.1"
    subprocess.run([compiler, "-std=c++17", "-shared", "-fPIC", "-o", driver, HERE / "driver.cpp", "-ldl"], check=True)
    known = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "DRIVER": str(driver), "PYTHONPATH": str(HERE.parents[1])}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, env=known)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line for line in done.stdout.splitlines() if line != "launched a graph"]
    assert sorted(said) == sorted(
        ["tiled may have attribute 8 = 65536", *[MAP] * 8, f"launched {LAUNCH}", f"captured {LAUNCH}", "idle sm_90a"]
    )
    assert done.stdout.splitlines().count("launched a graph") == 3
