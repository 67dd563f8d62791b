"""What other packages offer, found by the metadata they are installed with: importers of models, operators for their
nodes, schedules of roles, `.tl` modules."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codegen.forks import import_whole

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

IMPORTERS = "tensorlang.importers"
"""The entry-point group under which packages offer importers of models."""

SCHEDULES = "tensorlang.schedules"
"""The entry-point group under which packages offer schedules of roles."""

MODULES = "tensorlang.modules"
"""The entry-point group under which packages offer `.tl` modules for other files to use."""


ONNX_OPERATORS = "tensorlang.onnx_operators"
"""The entry-point group under which packages offer operators for nodes of models (`tensorlang.custom_operators`)."""


def offered(group: str) -> tuple[tuple[str, Callable[[], Any]], ...]:
    """Return the names of what installed packages offer under an entry-point group, and what imports each, in order of their names."""
    return tuple((point.name, partial(_load, point)) for point in sorted(_points(group), key=lambda p: p.name))


def installed(group: str) -> tuple[Any, ...]:
    """Return what installed packages offer under an entry-point group: what each point makes, in order of their names."""
    return tuple(load()() for _, load in offered(group))


def module_folders() -> dict[str, tuple[str, Path]]:
    """Return the folders of `.tl` files that installed packages offer, by the words that `use` begins with, and each folder's name.

    [project.entry-points."tensorlang.modules"]
    acme = "acme.kernels"           `use acme.filters` is acme/kernels/filters.tl

    No code of theirs runs: the folder is found beside the package."""
    found: dict[str, tuple[str, Path]] = {}
    for point in sorted(_points(MODULES), key=lambda p: p.name):
        package, *inside = point.value.split(".")
        try:
            spec = find_spec(package)
        except (ImportError, ValueError):
            continue
        for root in (spec.submodule_search_locations or ()) if spec is not None else ():
            folder = Path(root, *inside)
            if folder.is_dir():
                found.setdefault(point.name, ("/".join((package, *inside)), folder))
    return found


def module_kernels(folder: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the kernels that a package offers for the extern operators of its `.tl` modules: what the function `kernels` returns of the
    Python package which the folder is, by modules and operators; none where there is no such function."""
    made = getattr(import_module(folder.replace("/", ".")), "kernels", dict)
    found: Mapping[str, Mapping[str, Any]] = made()
    return found


@cache
def offers_digest() -> str:
    """Return a digest of the packages that installed importers, schedules, modules and operators come from, without importing
    them."""
    from tensorlang.digest import digest_of_folders

    points = [point for group in (IMPORTERS, SCHEDULES, MODULES, ONNX_OPERATORS) for point in _points(group)]
    packages = sorted({point.value.split(":")[0].split(".")[0] for point in points})
    found = [spec for name in packages if (spec := find_spec(name)) is not None]
    return digest_of_folders(Path(folder) for spec in found for folder in spec.submodule_search_locations or ())


def _load(point: EntryPoint) -> Any:
    """Return what an entry point stands for, its module imported as a fork allows it."""
    import_whole(point.module)
    return point.load()


def _points(group: str) -> Sequence[EntryPoint]:
    """Return the entry points of a group; a program that asks for none does not wait for the metadata."""
    return tuple(_all_points(tuple((folder, _changed(folder)) for folder in sys.path)).select(group=group))


@lru_cache(maxsize=1)
def _all_points(folders: tuple[tuple[str, int], ...]) -> Any:
    """Return the entry points of what is installed in folders as they are since they last changed."""
    import_whole("importlib.metadata")
    from importlib.metadata import entry_points

    return entry_points()


def _changed(folder: str) -> int:
    try:
        return os.stat(folder or os.curdir).st_mtime_ns
    except OSError:
        return 0
