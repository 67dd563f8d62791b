"""Makes the library that the programs here link: `python examples/ahead_of_time/build.py FOLDER`.

`tensorlang build examples/ahead_of_time/blur.tl image=f32[64,64] --symbolic --max H=4096 --max W=4096 --threads 2 -o FOLDER` is the same.
"""

import sys
from pathlib import Path

import numpy as np

import tensorlang as tl

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "blur")
blur = tl.load(Path(__file__).parent / "blur.tl").blur
image = np.zeros((64, 64), np.float32)
targets = ("x86-64-v4", "x86-64-v3", "x86-64-v2")
blur.save(folder, {"image": image}, symbolic=True, max={"H": 4096, "W": 4096}, targets=targets, threads=2)
for path in sorted(folder.iterdir()):
    print(f"{path.stat().st_size:>10,}  {path}")
