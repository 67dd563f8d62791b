"""Builds and runs the programs of `examples/ahead_of_time` in C, C++ and Rust, by hand and by CMake, with whatever of these is installed.

python scripts/ahead_of_time.py        exit code 1 when a program fails or prints something else
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from environment import ROOT, prepared

EXAMPLES = ROOT / "examples" / "ahead_of_time"
IN_C = "478 x 638, sum 97435998"
IN_CPP = "475398\n960498\n1445598\n1930698\nthe size `H` is not between 0 and 4096"
IN_RUST = "sum 97435998\nthese sizes are not served: `W >= 2` has to hold"


def called(*arguments: str | Path, **environment: str) -> str:
    """Return what a program prints. Raises CalledProcessError when it fails."""
    words = [str(a) for a in arguments]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | environment).stdout.strip()


def runs(folder: Path) -> dict[str, bool]:
    """Return for each way to build a program that there are tools for whether it printed what it should."""
    library = folder / "blur"
    called(prepared(), EXAMPLES / "build.py", library, PYTHONPATH=str(ROOT))
    found: dict[str, bool] = {}
    if shutil.which("cc"):
        called("cc", f"-I{library}", EXAMPLES / "main.c", library / "libblur.a", "-lpthread", "-o", folder / "c")
        found["C"] = called(folder / "c").startswith(IN_C)
    if shutil.which("c++"):
        called("c++", "-std=c++17", f"-I{library}", EXAMPLES / "main.cpp", library / "libblur.a", "-lpthread", "-o", folder / "cpp")
        found["C++"] = called(folder / "cpp") == IN_CPP
    if shutil.which("rustc"):
        known = re.search(r"_INTERFACE UINT64_C\(0x(\w+)\)", (library / "blur.h").read_text("utf-8"))
        assert known is not None, "the header says which interface it is of"
        called("rustc", "-O", "-L", library, EXAMPLES / "main.rs", "-o", folder / "rust", BLUR_INTERFACE=known[1])
        found["Rust"] = called(folder / "rust") == IN_RUST
    if shutil.which("cmake"):
        called("cmake", "-S", EXAMPLES, "-B", folder / "build", f"-Dblur_DIR={library}")
        called("cmake", "--build", folder / "build")
        printed = {name: called(folder / "build" / f"blur_{name}") for name in ("c", "shared", "cpp")}
        found["CMake"] = printed["cpp"] == IN_CPP and all(printed[name].startswith(IN_C) for name in ("c", "shared"))
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        results = runs(Path(made))
    for name, right in results.items():
        print(f"{name:6}  {'right' if right else 'WRONG'}")
    sys.exit(0 if all(results.values()) else 1)
