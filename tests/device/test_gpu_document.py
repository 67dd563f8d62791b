"""docs/gpu.md: its blocks run in their order, as on a machine without a driver, and print what stands below them."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import Mock

import pytest
from pages import assert_blocks_print

from codegen.cuda.errors import Unavailable
from stdlib.onnx import Importer
from tensorlang import api

PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
PART = re.compile(r"^```python\n(?P<code>.*?)^```\n\n```text\n(?P<output>.*?)^```", re.MULTILINE | re.DOTALL)


def test_every_block_runs_and_prints_what_stands_below_it(update_golden: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path))
    monkeypatch.setattr(api, "installed_importers", lambda: (Importer(),))
    install = "install NVIDIA's driver, on a machine with one of its GPUs"
    monkeypatch.setattr("codegen.cuda.device.Device", Mock(side_effect=Unavailable("there is no CUDA driver", install)))
    parts = assert_blocks_print(PAGE, PART, update=update_golden)
    assert len(parts) == PAGE.read_text("utf-8").count("```python") > 4
