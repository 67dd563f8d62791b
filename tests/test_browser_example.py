"""The page of examples/browser: what it is given runs, in an engine without a browser."""

from __future__ import annotations

import base64
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated import run_module

import tensorlang as tl
from tensorlang.backends.cpu.wasm_module import Base, WasmModule

FOLDER = Path(__file__).parents[1] / "examples" / "browser"


@pytest.fixture(scope="module")
def build() -> Any:
    spec = spec_from_file_location("browser_build", FOLDER / "build.py")
    assert spec is not None and spec.loader is not None
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    found.TARGETS = ("wasm32-relaxed",)
    return found


def test_the_module_of_the_page_computes_what_the_model_computes_here(build: Any) -> None:
    rng = np.random.default_rng(3)
    filters = {"first": rng.normal(0, 0.2, (12, 1, 5, 5)), "second": rng.normal(0, 0.1, (24, 12, 3, 3))}
    model = build.network(filters, rng.normal(0, 0.1, (24 * 49, 10)), rng.normal(0, 0.1, 10))
    image, _ = build.digits(1, seed=4)
    expected = tl.compile(model)(image)
    for target, given in build.compiled(model).items():
        bases = tuple(Base(base["kind"], base["name"], base["bytes"]) for base in given["bases"])
        module = WasmModule(base64.b64decode(given["code"]), base64.b64decode(given["weights"]), bases)
        assert [(base.kind, base.name) for base in bases] == [("output", "shares"), ("input", "image"), ("weights", ""), ("arena", "")]
        found = np.frombuffer(run_module(module, {"image": image}), np.float32)
        np.testing.assert_allclose(found, expected[0], atol=1e-6, err_msg=target)


def test_the_page_has_a_place_for_each_thing_that_it_is_given() -> None:
    text = (FOLDER / "page.html").read_text("utf-8")
    assert all(text.count(f"/*{name}*/ null") == 1 for name in ("MODULES", "KNOWN", "STROKES"))
