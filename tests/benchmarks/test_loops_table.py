"""benchmarks/loops.py: rows of machine code by what its loop does, measured where a device has run it; the page has every family."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import gpu_cases
import loops


def test_a_row_counts_what_moves_data_for_each_product() -> None:
    found = Counter({"HMMA.16816.F32.BF16": 64, "LDSM.16.M88.4": 16, "LDGSTS.E.BYPASS.128": 8, "IADD3": 40})
    assert loops.row("name", found, "") == ("name", "64 HMMA", "2.0", "16", "", "", "", "8", "", "", "128", "")
    assert loops.shared_bytes({"HGMMA.64x128x16.F32.BF16": 1}) == (64 + 128) * 16 * 2 / 4
    assert loops.shared_bytes({"LDS.128": 1, "STS": 1, "LDS.U16": 1}) == 512 + 128 + 64
    assert loops.row("name", Counter({"FFMA": 4, "LDG.E.128": 9}), "3 GB/s")[1:3] == ("", "13 in all")


def test_what_a_device_measured_stands_beside_it_and_a_dry_run_does_not() -> None:
    line = {"name": "time matmul", "status": "ok", "row": ["1", "2 TFLOP/s", "", "", "", ""]}
    lines = "\n".join(map(json.dumps, (line, {**line, "name": "time other", "dry": True}, {"name": "doctor", "status": "ok"})))
    assert loops.rates(lines) == {"matmul": "2 TFLOP/s"}


def test_the_page_has_every_family_and_each_is_measured() -> None:
    page = loops.PAGE.read_text("utf-8")
    assert all(f"| {name} " in page for name in loops.FAMILIES)
    assert set(loops.FAMILIES) <= {c.name for c in gpu_cases.cases()} | {a.name for a in gpu_cases.attentions()}
