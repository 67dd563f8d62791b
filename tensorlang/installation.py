"""What keeps tensorlang from working, said when it is imported: another platform, a foreign module by the name of one of its packages."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec

SIBLINGS = ("codegen", "polyhedral", "stdlib")
"""The packages that are installed beside `tensorlang`."""

MACHINES = ("x86_64", "aarch64")
"""The processors that tensorlang runs on, as Linux calls them."""


SETTINGS = ("CACHE", "CACHE_SIZE", "COMPLETE", "LEVEL", "PREPARED", "THREADS", "VALIDATE")
"""What `TENSORLANG_…` of the environment may be."""


def require() -> None:
    """Raise ImportError, whose first line says what is wrong, where tensorlang cannot run. What the environment sets and nothing reads is
    told to the log."""
    for told in wrong_settings(os.environ):
        import logging

        logging.getLogger("tensorlang").warning("%s", told)
    problem = wrong_platform(sys.platform, _machine(), sys.maxsize.bit_length() + 1) or next(filter(None, map(shadowed, SIBLINGS)), "")
    if problem:
        raise ImportError(problem)


def wrong_settings(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the variables of an environment that are meant for tensorlang, for those that nobody else refuses."""
    for name in environment:
        own = name.removeprefix("TENSORLANG_")
        if own != name and own not in SETTINGS:
            from difflib import get_close_matches

            close = get_close_matches(own, SETTINGS, 1)
            known = f"did you mean `TENSORLANG_{close[0]}`?" if close else f"there are {', '.join(f'TENSORLANG_{s}' for s in SETTINGS)}"
            yield f"the environment sets `{name}`, which nothing reads; {known}"
    if not (validate := environment.get("TENSORLANG_VALIDATE", "0")).isdecimal() and validate:
        yield f"`TENSORLANG_VALIDATE` is `{validate}`, and nothing is validated; set it to 1, or to a number of operations"


def wrong_platform(system: str, machine: str, bits: int) -> str:
    """Return why tensorlang does not run on a platform, "" where it does."""
    if system == "linux" and machine in MACHINES and bits == 64:
        return ""
    return f"tensorlang runs on Linux on x86-64 and AArch64, in 64 bits: this is Python of {bits} bits for {system} on {machine}"


def shadowed(name: str) -> str:
    """Return which foreign module is found where tensorlang looks for its package `name`, "" where it is its own."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = _places(name)
    if any(os.path.realpath(place) == os.path.realpath(os.path.join(here, name)) for place in found):
        return ""
    if not found:
        return f"tensorlang is not installed in full: its package `{name}` is missing\nIt belongs into {here}: install tensorlang again."
    return (
        f"tensorlang needs its own package `{name}`, but `import {name}` finds {found[0]}\n"
        f"Rename that, or take the folder it lies in off the path of imports: {os.path.dirname(found[0])}"
    )


def _places(name: str) -> list[str]:
    """Return the folders of the package that `import name` finds, or the file of the module."""
    try:
        spec = find_spec(name)
    except ValueError:  # a module that somebody made by hand
        return [str(getattr(sys.modules[name], "__file__", None) or f"a module `{name}` that no file belongs to")]
    if spec is None:
        return []
    return list(spec.submodule_search_locations or ()) or [str(spec.origin)]


def _machine() -> str:
    if hasattr(os, "uname"):
        return os.uname().machine
    import platform

    return platform.machine()
