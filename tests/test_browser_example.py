"""The page of examples/browser: what it is given runs, in an engine without a browser."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated import run_module
from onnx.reference import ReferenceEvaluator

FOLDER = Path(__file__).parents[1] / "examples" / "browser"


@pytest.fixture(scope="module")
def build() -> Any:
    spec = spec_from_file_location("browser_build", FOLDER / "build.py")
    assert spec is not None and spec.loader is not None
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    found.TARGETS = ("wasm32-relaxed",)
    return found


def test_the_module_of_the_page_computes_what_the_model_means(build: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    filters = {"first": rng.normal(0, 0.2, (4, 1, 5, 5)), "second": rng.normal(0, 0.1, (8, 4, 3, 3))}
    model = build.network(filters, rng.normal(0, 0.1, (8 * 49, 10)), rng.normal(0, 0.1, 10))
    image, _ = build.digits(1, seed=4)
    expected = ReferenceEvaluator(model).run(None, {"image": image})[0]
    folder = build.compiled(model, tmp_path / "digits")
    found = run_module(folder, "digits", build.TARGETS[0], {"image": image})
    np.testing.assert_allclose(found["shares"], expected, atol=1e-6)


def test_the_page_has_a_place_for_each_thing_that_it_is_given() -> None:
    text = (FOLDER / "page.html").read_text("utf-8")
    assert all(text.count(f"/*{name}*/ null") == 1 for name in ("FILES", "KNOWN", "STROKES"))
