"""Compiled code of these tests is kept apart from the user's cache."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path_factory.getbasetemp() / "objects"
    monkeypatch.setenv("TENSORLANG_CACHE", str(directory))
    return directory
