"""What is wrong with a model. Everything the importer refuses ends in one CompileError with these codes.

O001  the file is not a model            O007  the same name, attribute or version is wrong for the operator's definition
O002  names and order of the graph       O010  operators, versions or attributes that are not supported yet
O003  tensors that contradict themselves O011  dimensions of inputs that are not known
O004  data outside the model file        O012  values that do not fit an operator
O005  attributes                         O013  arguments that must be constant
O006  versions                           O014  values that are too large
"""

from __future__ import annotations

from tensorlang.diagnostics import Diagnostic
from tensorlang.graph.data_dependent import HostCall


class Refusal(Exception):
    """One problem, to be collected with others: raised inside the importer and never seen outside it."""

    def __init__(self, code: str, title: str, *notes: str, help: str | None = None) -> None:
        super().__init__(title)
        self.diagnostic = Diagnostic(code, title, (), notes, help)


class Unknown(Refusal):
    """The elements of a value decide a shape, and are not known yet: `value` is its name in the graph."""

    def __init__(self, value: str, title: str, *notes: str) -> None:
        super().__init__("O013", title, *notes)
        self.value = value


class Hosted(Unknown):
    """A value is computed by code of the host, between two stages of the model: `call` says from what."""

    def __init__(self, call: HostCall, title: str) -> None:
        super().__init__(call.stem, title)
        self.call = call


class NotFixed(Exception):
    """Why a graph of a node is not run as it is in each turn of a loop. Nobody sees it but the rule of that node."""


class OtherKind(NotFixed):
    """A turn of a loop hands on another number of values than it takes, or values of another type or with more or fewer axes."""


class Unsupported(Exception):
    """A sentence about something that is valid and that the importer does not know yet. Collected over the whole model."""


def quoted(name: str) -> str:
    """Return a name from a model as it can be shown: on one line, of bounded length, without control characters."""
    short = name if len(name) <= 80 else name[:77] + "…"
    return "`" + short.encode("unicode_escape").decode("ascii").replace("`", "'") + "`" if not short.isprintable() else f"`{short}`"
