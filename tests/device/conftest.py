"""Where kernels run: the fixture `executor` is the emulator, and a GPU where there is one."""

from __future__ import annotations

import pytest
from executors import EXECUTORS, Executor


@pytest.fixture(params=["emulator", pytest.param("device", marks=pytest.mark.gpu)])
def executor(request: pytest.FixtureRequest) -> Executor:
    return EXECUTORS[request.param]()
