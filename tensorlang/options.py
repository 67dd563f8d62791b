"""Words of options that the command line names before anything is loaded."""

from __future__ import annotations

DEVICE_PRECISIONS = ("f32", "bf16", "f16", "tf32", "bf16x3", "bf16x6")
"""What contractions of models multiply in on graphics processors (`tensorlang.graph.precisions`)."""
