"""Locks and forks. A fork copies all locks and one thread: what another thread holds, nobody in the child would ever release.

`Lock` guards what a child may begin anew: nobody holds it there. `lock_at_fork` is for what must not be copied halfway, such as the
inside of LLVM: a fork waits until nobody is there.
`import_whole` imports modules in that way.
"""

from __future__ import annotations

import logging  # noqa: F401  what is registered first is taken last, and modules that are imported take its lock
import os
import threading
from importlib import import_module
from typing import Protocol
from weakref import WeakSet


class Lock:
    """A lock for `with`. In the child of a fork nobody holds it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        self._lock = threading.Lock()


_locks: WeakSet[Lock] = WeakSet()


def _renew_all() -> None:
    for lock in list(_locks):
        lock._renew()


os.register_at_fork(after_in_child=_renew_all)


class Guard(Protocol):
    """What `with` takes."""

    def __enter__(self) -> object: ...

    def __exit__(self, kind: None, value: None, trace: None, /) -> object: ...


def lock_at_fork(guard: Guard) -> None:
    """Have whoever forks hold `guard` meanwhile. Guards are taken last registered first, so one that is held while another is taken is
    registered after it."""
    _guards.append(guard)


_guards: list[Guard] = []
_held: list[Guard] = []
"""Those that the thread which forks holds."""


def _before_fork() -> None:
    _IMPORTS.wait()  # before all guards, and the lock of `logging`: an import may take them
    for guard in reversed(_guards):
        guard.__enter__()
        _held.append(guard)


def _after_fork() -> None:
    while _held:
        _held.pop().__exit__(None, None, None)
    _IMPORTS.go_on()


def _after_fork_in_child() -> None:
    _IMPORTS.keep_own()
    _after_fork()


class _Imports:
    """How many imports there are, in all threads. Whoever forks waits until there is none, but inside of an import for none: others may
    wait for what it imports. Imports wait for no other import, so one that another module makes never waits for the first."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._count = 0
        self._own = threading.local()

    @property
    def running(self) -> int:
        """How many imports this thread is in."""
        found: int = getattr(self._own, "count", 0)
        return found

    def __enter__(self) -> None:
        with self._changed:
            self._count += 1
        self._own.count = self.running + 1

    def __exit__(self, *_: object) -> None:
        self._own.count = self.running - 1
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until no other thread imports, unless this one does, and let none begin before `go_on`."""
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._count or self.running)

    def go_on(self) -> None:
        self._changed.release()

    def keep_own(self) -> None:
        """Forget the imports of other threads, which are not there in the child of a fork."""
        self._count = self.running


_IMPORTS = _Imports()
_IMPORTED: set[str] = set()


def import_whole(*modules: str) -> None:
    """Import modules while nobody forks: a child would wait forever for one that another thread was importing."""
    if _IMPORTED.issuperset(modules):
        return
    with _IMPORTS:
        for name in modules:
            import_module(name)
        _IMPORTED.update(modules)


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
