"""Sets everything up and runs the main job: ResNet-50 from an ONNX file, compiled, checked, measured and explained.

python3 scripts/demo.py
"""

from __future__ import annotations

import sys

from environment import run

if __name__ == "__main__":
    sys.exit(run("examples/07_resnet50.py", *sys.argv[1:]))
