"""Values that take long to make and depend on texts alone, kept on disk beside the compiled kernels.

    library = stored("library", texts, lambda: load_module(...))

The key is the texts, the compiler and the interpreter; a damaged entry is a miss. Entries are pickles: whoever can write to the cache can
also replace the machine code in it, so they are trusted alike.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable, Iterable
from typing import TypeVar

from codegen.store import Cache
from tensorlang.digest import compiler_digest

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
            value: T = pickle.loads(found)
            return value
        except (pickle.UnpicklingError, AttributeError, ImportError, EOFError, TypeError, IndexError):
            pass  # written by other classes under the same names: made anew below
    made = make()
    store.put(key, pickle.dumps(made, protocol=pickle.HIGHEST_PROTOCOL))
    return made
