"""What the code generators raise when they find a mistake of ours; users never cause it."""

from __future__ import annotations


class InternalError(Exception):
    """A broken invariant. `stage` names the step that noticed, `detail` says what is wrong and where in the IR."""

    def __init__(self, stage: str, detail: str) -> None:
        super().__init__(f"{stage}: {detail}")
        self.stage = stage
        self.detail = detail
