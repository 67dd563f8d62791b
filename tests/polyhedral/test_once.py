"""What is computed once is there afterwards, and nobody waits for another who computes it."""

from __future__ import annotations

import os
import threading

import pytest

from polyhedral.once import once


class Counted:
    def __init__(self, ready: threading.Event | None = None) -> None:
        self.times, self.ready, self.begun = 0, ready, threading.Event()

    @once
    def value(self) -> int:
        """Return 7."""
        self.begun.set()
        self.times += 1
        if self.ready is not None:
            self.ready.wait()
        return 7


def test_it_is_computed_once() -> None:
    counted = Counted()
    assert [counted.value, counted.value, counted.times] == [7, 7, 1]
    assert Counted.value.__doc__ == "Return 7."


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forks beside threads, which is what this is about
def test_a_child_that_is_forked_meanwhile_computes_it_too() -> None:
    ready = threading.Event()
    other = Counted(ready)
    thread = threading.Thread(target=lambda: other.value)
    thread.start()
    other.begun.wait()
    child = os.fork()
    if child == 0:
        os._exit(Counted().value)
    status = os.waitpid(child, 0)[1]
    ready.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 7
