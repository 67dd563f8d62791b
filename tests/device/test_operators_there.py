"""Operators that are called: arrays of the host and of the device, by both protocols, from several threads. On a GPU where there is one,
and everywhere on a stand-in for the driver whose launches the emulator runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "gpu"))

from emulated_cuda import EmulatedCuda

import tensorlang as tl
from codegen.cuda.arrays import DeviceArray
from codegen.cuda.device import devices
from codegen.dtypes import f32

OPERATORS = """
op scale(x: f32[N]) -> (y: f32[N]) { y[i] = 3.0 * x[i] + 1.0 }
op product(a: f32[M, K], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[i, k] * b[k, j] }
op softmax(x: f32[M, N]) -> (y: f32[M, N]) {
    m[i]    = max(j) x[i, j]
    e[i, j] = exp(x[i, j] - m[i])
    y[i, j] = e[i, j] / sum(k) e[i, k]
}
"""
RANDOM = np.random.default_rng(11)
LINE = RANDOM.standard_normal(1003).astype(np.float32)
A, B = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((17, 40), (40, 33)))


class ByInterface:
    """An array on the device that speaks one protocol alone."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


@pytest.fixture(params=["stand-in", pytest.param("device", marks=pytest.mark.gpu)])
def ops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path_factory.getbasetemp() / "operators-there"))
    if request.param == "stand-in":
        EmulatedCuda().install(monkeypatch)
    found = devices()[0].arch
    assert found is not None
    yield tl.parse(OPERATORS, target=found.target)


def close(found: Any, expected: np.ndarray[Any, Any]) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-5)


def test_arrays_of_the_host_give_arrays_of_the_host_the_second_time_by_a_graph(ops: Any) -> None:
    for _ in range(3):
        found = ops.product(A, B)
        assert isinstance(found, np.ndarray)
        close(found, A @ B)


def test_arrays_of_the_device_are_read_where_they_lie_and_give_such_arrays(ops: Any) -> None:
    there = placed(ops, LINE)
    for form in (there, ByInterface(there)):
        for _ in range(2):
            found = ops.scale(form)
            assert not isinstance(found, np.ndarray)
            close(found, 3 * LINE + 1)
    chain = ops.softmax(ops.product(placed(ops, A), B))
    scores = np.exp(A @ B - (A @ B).max(1, keepdims=True))
    close(chain, scores / scores.sum(1, keepdims=True))


def test_two_threads_that_call_the_same_operators_get_what_one_gets(ops: Any) -> None:
    def work(number: int) -> list[np.ndarray[Any, Any]]:
        return [np.asarray(ops.scale(LINE + number)) if k % 2 else np.asarray(ops.product(A + number, B)) for k in range(6)]

    with ThreadPoolExecutor(2) as pool:
        for number, found in enumerate(pool.map(work, range(2))):
            for k, each in enumerate(found):
                np.testing.assert_allclose(each, 3 * (LINE + number) + 1 if k % 2 else (A + number) @ B, rtol=1e-4, atol=1e-4)


def placed(ops: Any, array: np.ndarray[Any, Any]) -> Any:
    """Return an array on the device of the operators."""
    device = ops.scale.tools.opened()
    memory = device.allocate(array.nbytes)
    device.upload(memory.address, array)
    return DeviceArray(device, memory, array.shape, f32)


def test_results_of_a_device_in_arrays_that_are_given_are_not_supported_yet(ops: Any) -> None:
    for call in (ops.scale, ops.scale.prepared):
        with pytest.raises(tl.RunError, match="not supported yet: results of a device") as refused:
            call(LINE, out=np.empty_like(LINE))
        assert refused.value.diagnostics[0].code == "R0307"
    again = ops.scale.prepared(x=LINE)
    close(again(), 3 * LINE + 1)
