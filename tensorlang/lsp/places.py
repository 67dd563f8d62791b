"""Places in a text: character offsets here, lines with columns counted in the units of the editor there.

Editors count columns in UTF-16 units unless they agree on another encoding, so a letter beyond the basic plane is two of them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Literal, TypeAlias

Encoding: TypeAlias = Literal["utf-8", "utf-16", "utf-32"]

_END = re.compile(r"\r\n|\n|\r")
_UNIT_BYTES = {"utf-8": 1, "utf-16": 2, "utf-32": 4}
_CODEC = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}


class Places:
    """The lines of one text."""

    def __init__(self, text: str, encoding: Encoding = "utf-16") -> None:
        self.text, self.encoding = text, encoding
        self._starts = [0, *(end.end() for end in _END.finditer(text))]

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column, both counted from zero, of a character; what lies outside the text becomes its end."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._starts, offset) - 1
        return line, self._units(self.text[self._starts[line] : offset])

    def offset(self, line: int, column: int) -> int:
        """Return the character at line and column; a column behind the end of its line is that end."""
        if line < 0:
            return 0
        if line >= len(self._starts):
            return len(self.text)
        start = self._starts[line]
        stop = self._starts[line + 1] if line + 1 < len(self._starts) else len(self.text)
        content = self.text[start:stop].rstrip("\r\n")
        if content.isascii():
            return start + max(0, min(column, len(content)))
        units = 0
        for k, character in enumerate(content):
            if units >= column:
                return start + k
            units += self._units(character)
        return start + len(content)

    def _units(self, text: str) -> int:
        if text.isascii():
            return len(text)
        return len(text.encode(_CODEC[self.encoding], "surrogatepass")) // _UNIT_BYTES[self.encoding]
