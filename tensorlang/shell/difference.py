"""How far the results of two compilers are apart, and the first node of a model where they depart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.dtypes import from_numpy
from tensorlang.graph.taken_apart import TakenApart, TakenNode

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """How a value differs from what a peer makes of it. `error`: the largest difference, as a share of the peer's largest element, inf
    where one of two elements is no number or type or shape differ; `at`: where that is, with both elements."""

    name: str
    type: str
    error: float
    limit: float
    at: str = ""

    @property
    def departs(self) -> bool:
        return self.error > self.limit


def difference(name: str, found: Any, expected: Any, tolerance: float) -> Difference:
    """Return how a value differs. Numbers of 16 bits may be eight roundings apart, whatever the tolerance; NaN and infinities are alike."""
    a, b = np.asarray(found), np.asarray(expected)
    kind, limit = f"{a.dtype}{list(a.shape)}", max(tolerance, _of_rounding(a.dtype))
    if a.dtype != b.dtype or a.shape != b.shape:
        return Difference(name, kind, np.inf, limit, f"the peer's is {b.dtype}{list(b.shape)}")
    if a.dtype == object or not a.size:
        return Difference(name, kind, 0.0 if np.array_equal(a, b) else np.inf, limit, "" if np.array_equal(a, b) else "strings differ")
    x, y = (np.asarray(value, np.complex128 if value.dtype.kind == "c" else np.float64).reshape(-1) for value in (a, b))
    finite = np.isfinite(x) & np.isfinite(y)
    alike = finite | (x == y) | (np.isnan(x) & np.isnan(y))
    apart = np.abs(np.where(finite, x, 0) - np.where(finite, y, 0))
    largest = float(np.abs(np.where(np.isfinite(y), y, 0)).max())
    error = apart / (largest or 1.0)
    error[~alike] = np.inf
    worst = int(error.argmax())
    place = ", ".join(map(str, np.unravel_index(worst, a.shape)))
    at = f"[{place}] is {a.reshape(-1)[worst]}, the peer's {b.reshape(-1)[worst]}" if error[worst] else ""
    return Difference(name, kind, float(error[worst]), limit, at)


def _of_rounding(dtype: np.dtype[Any]) -> float:
    known = from_numpy(dtype)
    return 8 * 2.0 ** -{"f16": 10, "bf16": 7}.get(known.name, 1000) if known is not None else 0.0


def differences(found: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float) -> list[Difference]:
    """Return how each value differs, in order."""
    return [difference(name, found[name], expected[name], tolerance) for name in found]


def first_departing(apart: TakenApart, values: Sequence[Difference]) -> TakenNode | None:
    """Return the first node one of whose values departs; those before it make what the peer makes."""
    departing = {value.name for value in values if value.departs}
    return next((node for node in apart.nodes if departing.intersection(node.outputs)), None)


def table(values: Sequence[Difference]) -> str:
    """Return a line for each value."""
    width = max((len(value.name) for value in values), default=0)
    lines = [f"{value.name:{width}}  {value.error:8.1e}  {'departs' if value.departs else 'ok':7}  {value.type}" for value in values]
    return "\n".join(f"{line}  {value.at}" if value.departs else line for line, value in zip(lines, values, strict=True))


def as_data(value: Difference) -> dict[str, Any]:
    """Return a difference for JSON."""
    error = value.error if np.isfinite(value.error) else None
    return {"name": value.name, "type": value.type, "error": error, "departs": value.departs, "at": value.at}
