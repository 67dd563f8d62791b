"""The fronts by name."""

from __future__ import annotations

from collections.abc import Callable

from fuzzing.front import Front
from fuzzing.fronts.files import Files
from fuzzing.fronts.language import Language
from fuzzing.fronts.schedules import Schedules

FRONTS: dict[str, Callable[[], Front]] = {
    "language": Language,
    "schedules": Schedules,
    "files": Files,
}
