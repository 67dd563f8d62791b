"""The fronts by name."""

from __future__ import annotations

from collections.abc import Callable

from fuzzing.front import Front
from fuzzing.fronts.cuda import Cuda
from fuzzing.fronts.derived import Derived
from fuzzing.fronts.files import Files
from fuzzing.fronts.language import Language
from fuzzing.fronts.models import Models, Seldom
from fuzzing.fronts.open_operators import OpenOperators
from fuzzing.fronts.open_sizes import OpenSizes
from fuzzing.fronts.schedules import Schedules

FRONTS: dict[str, Callable[[], Front]] = {
    "language": Language,
    "operators": OpenOperators,
    "derived": Derived,
    "schedules": Schedules,
    "models": Models,
    "seldom": Seldom,
    "sizes": OpenSizes,
    "files": Files,
    "cuda": Cuda,
}
