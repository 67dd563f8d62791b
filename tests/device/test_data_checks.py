"""What a launch checks of the data holds for those after it: they do nothing where it did not."""

from __future__ import annotations

import numpy as np
import pytest
from device_programs import called, chosen, kernels_of, normal

from codegen.gpu import emulator


@pytest.mark.parametrize("wild", [20, -21, 10**12, -(2**63)])
def test_nothing_is_read_at_an_index_that_an_earlier_launch_refused(wild: int) -> None:
    x, ids = normal(20, 36), np.array([3, wild, 0, -20, 19])
    program = called("gather", x, ids, axis=0)
    kernels = kernels_of(program, chosen(program).schedule)
    assert [kernel.checks for kernel in kernels.kernels] == [True, True]
    assert "if (tl_failed(status)) return;" in kernels.kernels[1].text
    arrays = {"x": x, "ids": ids, "y": np.zeros((5, 36), np.float32)}
    assert emulator.run(kernels, {}, arrays, outputs=("y",)) == 1


def test_launches_before_any_check_are_not_told_of_one() -> None:
    program = called("softmax", normal(20, 36), axis=1)
    assert not any(kernel.checks for kernel in kernels_of(program, chosen(program).schedule).kernels)
