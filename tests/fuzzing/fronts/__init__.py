"""The fronts by name."""

from __future__ import annotations

from collections.abc import Callable

from fuzzing.front import Front
from fuzzing.fronts.files import Files
from fuzzing.fronts.schedules import Schedules

FRONTS: dict[str, Callable[[], Front]] = {
    "schedules": Schedules,
    "files": Files,
}
