"""What the tests share: `--update-golden`, the fixture `golden`, and this folder on the import path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


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
