"""docs/gpu.md: its blocks run in their order, as on a machine without a driver, and print what stands below them."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from codegen.cuda.errors import Unavailable
from stdlib.onnx import Importer
from tensorlang import api

PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
PART = re.compile(r"^```python\n(?P<code>.*?)^```\n\n```text\n(?P<output>.*?)^```", re.MULTILINE | re.DOTALL)


def test_every_block_runs_and_prints_what_stands_below_it(update_golden: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path))
    monkeypatch.setattr(api, "installed_importers", lambda: (Importer(),))
    install = "install NVIDIA's driver, on a machine with one of its GPUs"
    monkeypatch.setattr("tensorlang.device.machine._device", Mock(side_effect=Unavailable("there is no CUDA driver", install)))
    page = PAGE.read_text("utf-8")
    parts = list(PART.finditer(page))
    assert len(parts) == page.count("```python") > 4
    names: dict[str, Any] = {}
    printed = []
    for part in parts:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(part["code"], "gpu.md", "exec"), names)
        printed.append(out.getvalue())
    if update_golden:
        for part, text in reversed(list(zip(parts, printed, strict=True))):
            page = page[: part.start("output")] + text + page[part.end("output") :]
        PAGE.write_text(page, "utf-8")
    else:
        assert printed == [part["output"] for part in parts]
