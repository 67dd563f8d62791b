"""Where kernels run: the fixture `executor` is the emulator, and a GPU where there is one.

An error that ends a process's use of its device (an address that is not there, a trap) would fail every later test of the process under
the same name: the session ends at the test that met it.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest
from executors import EXECUTORS, Executor

from codegen.cuda.errors import LASTING


@pytest.fixture(scope="session", params=["emulator", pytest.param("device", marks=pytest.mark.gpu)])
def executor(request: pytest.FixtureRequest) -> Executor:
    return EXECUTORS[request.param]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    said = "" if call.excinfo is None else str(call.excinfo.value)
    if item.get_closest_marker("gpu") is not None and any(name in said for name in LASTING):
        item.session.shouldfail = f"the device is lost to this process since {item.nodeid}"
    return report
