"""Values that take long to make and depend on texts alone, kept on disk beside the compiled kernels.

    library = stored("library", texts, lambda: load_module(...))

The key is the texts, the compiler and the interpreter; a damaged entry is a miss. Entries are data
(`tensorlang.serialization`): to read one runs nothing.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable
from typing import TypeVar

from codegen.store import Cache
from tensorlang.digest import compiler_digest
from tensorlang.serialization import FlatError, from_flat, to_flat

T = TypeVar("T")


def stored(name: str, texts: Iterable[str], make: Callable[[], T], cache: Cache | None = None) -> T:
    """Return what `make` returns, from disk if it was made before of the same texts."""
    store = cache or Cache()
    digest = hashlib.sha256()
    for part in (name, compiler_digest(), sys.version, *texts):
        digest.update(f"{len(part)} ".encode())
        digest.update(part.encode())
    key = digest.hexdigest()
    found = store.get(key)
    if found is not None:
        try:
            value: T = from_flat(found)
            return value
        except FlatError:
            pass  # written by other classes under the same names: made anew below
    made = make()
    store.put(key, to_flat(made))
    return made
