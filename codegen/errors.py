"""What the code generators raise.

InternalError    a mistake of ours
Unfit            what a schedule asks for and cannot have
ArgumentError    what native code is called with and does not take
"""

from __future__ import annotations

from codegen.loops.notes import Note


class InternalError(Exception):
    """A broken invariant. `stage` names the step that noticed, `detail` says what is wrong and where in the IR."""

    def __init__(self, stage: str, detail: str) -> None:
        super().__init__(stage, detail)
        self.stage, self.detail = stage, detail

    def __str__(self) -> str:
        return f"{self.stage}: {self.detail}"


class Unfit(Exception):
    """Loops that cannot run on blocks and threads as a schedule binds them. `names` are loops and buffers of the IR that are to blame,
    `note` is what asks for it (`codegen.loops.notes`), where one note does."""

    def __init__(self, reason: str, *names: str, note: Note | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.names = names
        self.note = note


class ArgumentError(TypeError):
    """The arrays given do not fit; the message says which one and why."""
