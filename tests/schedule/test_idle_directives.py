"""A directive that was applied and changes nothing is named by `explain`: nobody has to find out from the loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scheduled_programs import written

import tensorlang as tl
from tensorlang.schedule.apply import apply

CLUSTER = Path(__file__).parents[1] / "golden" / "schedules" / "cluster.tl"

PRODUCT = "op f(a: f32[8, 8], b: f32[8, 8]) -> (c: f32[8, 8]) { c[i, j] = sum(k) a[i, k] * b[k, j] }"
COPIED = "split k by {} -> ko, ki\norder ko, i, j, ki\npack b at ko as [k, j]\n"
PIECES = "op f(x: f32[8]) -> (y: f32[8]) {\n    y[i] = x[i] for i < 4\n    y[i] = 0 otherwise\n}"


def explained(text: str, schedule: str) -> list[str]:
    operator = tl.parse(text, threads=1).f.schedule(schedule)
    arrays = [np.ones((8, 8), np.float32)] * 2 if text == PRODUCT else [np.ones(8, np.float32)]
    return [line for line in operator.explain(*arrays).splitlines() if line.startswith("# ")]


@pytest.mark.parametrize(
    ("text", "schedule", "said"),
    [
        (PRODUCT, COPIED.format(8) + "stages ko by 2", ["# `stages ko by 2` changes nothing: `c.ko` runs once, so nothing runs ahead"]),
        (PRODUCT, COPIED.format(4) + "stages ko by 1", ["# `stages ko by 1` changes nothing: one stage is none ahead"]),
        (PRODUCT, COPIED.format(4) + "stages ko by 2", []),
        (PRODUCT, "distribute c", ["# `distribute c` changes nothing: `c` has one piece"]),
        (PIECES, "distribute y", []),
    ],
)
def test_what_changes_nothing_is_said(text: str, schedule: str, said: list[str]) -> None:
    assert explained(text, schedule) == said


def test_a_cluster_of_one_block_is_none() -> None:
    found = written(CLUSTER.read_text("utf-8"), "cluster.tl")
    assert apply(found.program, found.schedule).idle == ()
    alone = "\n".join(line.replace("by 2", "by 1") for line in CLUSTER.read_text("utf-8").splitlines() if "multicast" not in line)
    found = written(alone, "cluster.tl")
    assert [line.split(" changes")[0] for line in apply(found.program, found.schedule).idle] == ["`cluster jo by 1`"]
