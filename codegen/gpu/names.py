"""Names of the loop IR as C identifiers: nothing a user wrote reaches the text as it is."""

from __future__ import annotations

import re

from codegen.fresh_names import Fresh

_C = """
    alignas alignof and asm auto bool break case catch char class const constexpr continue default delete do double else enum explicit
    export extern false float for friend goto if inline int long mutable namespace new noexcept not nullptr operator or private
    protected public register return short signed sizeof static static_assert struct switch template this throw true try typedef
    typename union unsigned using virtual void volatile wchar_t while xor thread shared status blockIdx threadIdx blockDim gridDim
    min max abs main restrict typeof decltype requires concept typeid static_cast const_cast dynamic_cast reinterpret_cast thread_local
    constinit consteval co_await co_return co_yield char8_t char16_t char32_t and_eq bitand bitor compl not_eq or_eq xor_eq linux unix NULL
"""
TAKEN = frozenset(_C.split())


class Identifiers:
    """A table from names to C identifiers, each its own: letters, digits and `_`, no word of C, nothing that a prelude defines."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self.fresh = Fresh(set(TAKEN))
        """Identifiers that nothing else has."""

    def __call__(self, name: str) -> str:
        """Return the identifier of `name`, the same each time."""
        if name not in self._known:
            plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
            if re.match(r"[0-9]|_|tl_|TL_|$", plain):
                plain = "x" + plain
            self._known[name] = self.fresh(plain)
        return self._known[name]
