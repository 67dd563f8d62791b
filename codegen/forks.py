"""Locks and forks. A fork copies all locks and one thread: what another thread holds, nobody in the child would ever release.

`Lock` guards what a child may begin anew: nobody holds it there. `lock_at_fork` is for what must not be copied halfway, such as the
inside of LLVM: a fork waits until nobody is there.
`import_whole` imports modules in that way.
"""

from __future__ import annotations

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

    def release() -> None:
        guard.__exit__(None, None, None)

    os.register_at_fork(before=guard.__enter__, after_in_parent=release, after_in_child=release)


_IMPORTING = threading.Lock()
_IMPORTED: set[str] = set()


def import_whole(*modules: str) -> None:
    """Import modules while nobody forks: a child would wait forever for one that another thread was importing."""
    if _IMPORTED.issuperset(modules):
        return
    with _IMPORTING:
        for name in modules:
            import_module(name)
        _IMPORTED.update(modules)


lock_at_fork(_IMPORTING)
