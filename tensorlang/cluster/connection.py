"""The connection of this process to a Ray cluster."""

from __future__ import annotations

import logging
from typing import Any

from tensorlang.diagnostics import error


def connected(address: str | None) -> Any:
    """Return the module `ray`, connected to the cluster at `address`: "auto" for the one that this machine belongs to, None for the one
    that this process is connected to, or, where there is none, one of this machine alone.

    Raises CompileError C0146 where Ray is not installed, or there is no such cluster."""
    if address is not None and (not isinstance(address, str) or not address.strip()):
        raise error("C0146", f"`cluster` is {address!r}", help='give an address: "auto", "host:6379" or "ray://host:10001"')
    try:
        import ray
    except ImportError:
        raise error("C0146", "Ray is not installed, which connects machines", help="pip install 'tensorlang[ray]'") from None
    if ray.is_initialized():
        return ray
    try:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, OSError, RuntimeError, ValueError) as problem:
        why = (str(problem).strip() or type(problem).__name__).splitlines()[0]
        title = f"there is no Ray cluster at `{address}`"
        raise error(
            "C0146", title, notes=(why,), help="begin one: `ray start --head`, and `ray start --address=…` on each other machine"
        ) from None
    return ray
