"""What the tests share: `--update-golden`, the fixture `golden`, and this folder on the import path.

Properties are tried on the same examples in every run. `HYPOTHESIS_PROFILE=explore pytest …` draws new ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("steady", derandomize=True, database=None, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected texts; read the diff afterwards")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def golden(update_golden: bool) -> Callable[[Path, str], None]:
    """Return `golden(path, text)`: the text is what the file says; `--update-golden` writes the file instead."""

    def check(path: Path, text: str) -> None:
        if update_golden:
            path.write_text(text, "utf-8")
        assert path.exists(), f"{path} is missing: run once with --update-golden and read what it wrote"
        assert text == path.read_text("utf-8")

    return check
