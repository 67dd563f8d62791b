"""What is missing on this machine, and what the driver refuses."""

from __future__ import annotations


class Unavailable(Exception):
    """Something that CUDA needs is not here: `what` says what, `remedy` what to do about it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}: {remedy}")
        self.what = what
        self.remedy = remedy


class DeviceError(Exception):
    """The driver refused or failed: what was asked for, and what it says."""


class ArrayError(Exception):
    """An array that cannot be taken as it is; the text says why, and what to do."""


LASTING = tuple(
    f"CUDA_ERROR_{name}"
    for name in (
        "ILLEGAL_ADDRESS",
        "ILLEGAL_INSTRUCTION",
        "MISALIGNED_ADDRESS",
        "INVALID_ADDRESS_SPACE",
        "INVALID_PC",
        "HARDWARE_STACK_ERROR",
        "LAUNCH_FAILED",
        "LAUNCH_TIMEOUT",
    )
)
"""What the driver calls errors after which a process can do nothing more on its device; each later call is answered so, too."""
