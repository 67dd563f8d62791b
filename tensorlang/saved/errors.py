"""The one error of saved models: a code, what is wrong, and what to do about it."""

from __future__ import annotations


class SavedError(ValueError):
    """A folder that cannot be loaded, or a run that cannot go on. `code` is explained in the pages about errors."""

    def __init__(self, code: str, title: str, help: str = "") -> None:
        self.code, self.title, self.help = code, title, help
        super().__init__(f"error[{code}]: {title}" + (f"\n = help: {help}" if help else ""))

    def __reduce__(self) -> tuple[type[SavedError], tuple[str, str, str]]:
        return SavedError, (self.code, self.title, self.help)
