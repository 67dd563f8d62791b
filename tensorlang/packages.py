"""Operators of installed packages, called with arrays: `tl.std.softmax(x)`, `tl.use("std.norm").layer_norm(x, g)`.

`dir` reads no more than names; a module is parsed when something of it is asked for, and an operator compiled when it is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from tensorlang.check.modes import Mode
from tensorlang.diagnostics import error, trimmed
from tensorlang.operators import operators_of
from tensorlang.runtime.operator import Operator, Operators
from tensorlang.runtime.specialization import Sizes, checked_sizes
from tensorlang.syntax import modules
from tensorlang.syntax.parse import parse
from tensorlang.syntax.summary import entries, purpose
from tensorlang.targets import HOST


class Package:
    # What a package offers, or one module of it, as attributes; `__doc__` of an instance lists it.

    def __init__(self, title: str, **options: Any) -> None:
        self.__name__ = title
        self._options = options
        self._made: dict[str, Operators] = {}
        self._named: Operator | None = None  # the operator that the module is called like

    def __getattr__(self, name: str) -> Any:
        """Return the module (`Package`) or the `Operator` called so, which is an attribute from then on."""
        if name.startswith("_"):
            raise AttributeError(name)
        place = _place(self.__name__)
        title = f"{self.__name__}.{name}"
        if (below := modules.find(title)) is not None and below.name is None:
            inner = self.__dict__[name] = Package(title, **self._options)
            return inner
        for module in place.modules:
            if module.names().get(name) == "op":
                operator = self.__dict__[name] = self._operators(module)[name]
                return operator
        own = self.__name__.rpartition(".")[2]
        if own in self and hasattr(Operator, name):  # `tl.std.sort.explain`: of the operator that the module is called like
            return getattr(self[own], name)
        close = get_close_matches(name, dir(self), 1)
        hint = f"; did you mean `{close[0]}`?" if close else ""
        raise AttributeError(f"`{self.__name__}` has no operator `{name}`{hint}")

    def __getitem__(self, name: str) -> Operator:
        """Return the operator `name`, in place of a module of that name."""
        for module in _place(self.__name__).modules:
            if module.names().get(name) == "op":
                return self._operators(module)[name]
        raise KeyError(name)

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """Return what the operator gives that a module is called like: `tl.std.conv(x, w)`."""
        if self._named is None:
            name = self.__name__.rpartition(".")[2]
            if name not in self:
                raise TypeError(f"`{self.__name__}` is a module, and none of its operators is called `{name}`")
            self._named = self[name]
        return self._named(*args, **named)

    def __contains__(self, name: object) -> bool:
        return name in list(self)

    def __iter__(self) -> Iterator[str]:
        """Yield the names of operators."""
        return iter(sorted({name for m in _place(self.__name__).modules for name, kind in m.names().items() if kind == "op"}))

    def __dir__(self) -> list[str]:
        below = {
            m.title.removeprefix(f"{self.__name__}.").split(".")[0] for m in modules.modules() if m.title.startswith(f"{self.__name__}.")
        }
        return sorted({*self, *below})

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def __repr__(self) -> str:
        return f"<operators of {self.__name__}: {', '.join(self)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _package, (self.__name__, self._options)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """Every operator with its signature and the first line of its comment, module by module."""
        return "\n".join(text for module in _place(self.__name__).modules for text in _listed(module))

    def _operators(self, module: modules.Module) -> Operators:
        if module.title not in self._made:
            self._made[module.title] = operators_of(module.source(), **self._options)
        return self._made[module.title]


def _package(title: str, options: dict[str, Any]) -> Package:
    return Package(title, **options)


def _place(title: str) -> modules.Place:
    found = modules.find(title)
    if found is None or found.name is not None:
        help = "install tensorlang as a package: modules are found by its metadata" if not modules.packages() else None
        close = get_close_matches(title, [*modules.packages(), *(m.title for m in modules.modules())], 1)
        raise error("C0214", f"no installed package offers `{title}`", help=f"did you mean `{close[0]}`?" if close else help)
    return found


def _listed(module: modules.Module) -> Iterator[str]:
    """Yield the lines that say what a module has."""
    file = parse(module.source())
    yield module.title + (f": {told}" if (told := purpose(file)) else "")
    yield ""
    for entry in entries(file):
        yield f"    {entry.signature}"
        yield from (f"        {line}" for line in entry.doc.split("\n")[:1] if line)
    yield ""


@trimmed
def use(
    module: str,
    *,
    target: str = HOST,
    threads: int | None = None,
    mode: Mode = "reduce",
    sizes: Sizes = "auto",
) -> Package:
    """Return the operators of an installed package, `std`, or of one module of it, `std.norm`, as attributes; the options are those of
    `load`.

    Raises CompileError C0214 when no package offers it."""
    if not isinstance(module, str):
        raise error("C0214", f"a module is named by a text, not by {type(module).__name__}", help='write `tl.use("std.norm")`')
    _place(module)
    return Package(module, target=target, threads=threads, mode=mode, sizes=checked_sizes(sizes))


std = Package("std", target=HOST, threads=None, sizes="auto")
