"""What other packages offer, found by the metadata they are installed with: importers of models, schedules of roles."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from tensorlang.digest import digest_of_folders

IMPORTERS = "tensorlang.importers"
"""The entry-point group under which packages offer importers of models."""

SCHEDULES = "tensorlang.schedules"
"""The entry-point group under which packages offer schedules of roles."""


@cache
def offers_digest() -> str:
    """Return a digest of the packages that installed importers and schedules come from, without importing them."""
    points = [point for group in (IMPORTERS, SCHEDULES) for point in entry_points(group=group)]
    packages = sorted({point.value.split(":")[0].split(".")[0] for point in points})
    found = [spec for name in packages if (spec := find_spec(name)) is not None]
    return digest_of_folders(Path(folder) for spec in found for folder in spec.submodule_search_locations or ())
