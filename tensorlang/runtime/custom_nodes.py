"""The operators that there are for nodes of a model that ONNX does not know: found by domain, name and version.

Custom.find("my.domain", "Blur", 2)     the operator of a file, or None
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensorlang.check.module import Module
from tensorlang.check.problems import did_you_mean

EVERY_DOMAIN = "*"
"""Stands for all domains but ONNX's."""

ONNX_DOMAINS = frozenset(("", "ai.onnx"))
"""The names of ONNX's own domain."""


@dataclass(frozen=True, slots=True)
class Found:
    """The operator of a file that a node is."""

    module: Module
    name: str


@dataclass(frozen=True, slots=True)
class Custom:
    """The operators that there are for nodes of a model, for one target. `installed` are those that packages offer."""

    files: Mapping[str, Module] = field(default_factory=dict)
    named: Mapping[tuple[str, str], Mapping[int, Found]] = field(default_factory=dict)
    installed: Custom | None = None

    def find(self, domain: str, op: str, version: int) -> Found | None:
        """Return the operator for nodes `domain::op` of a model that imports a version of the domain, packages left out."""
        fitting = [since for since in self.named.get((domain, op), ()) if since <= version]
        if fitting:
            return self.named[domain, op][max(fitting)]
        modules = (self.files.get(key) for key in (domain, EVERY_DOMAIN)) if domain not in ONNX_DOMAINS else ()
        return next((Found(module, op) for module in modules if module is not None and op in module.offered), None)

    def how(self, domain: str, op: str, version: int) -> str:
        """Return what to do about a node that nothing is there for."""
        everything = [self, *([self.installed] if self.installed is not None else [])]
        since = sorted({number for each in everything for number in each.named.get((domain, op), ())})
        if since:
            versions = ", ".join(map(str, since))
            return f"`{domain}::{op}` is given from version {versions} on, and the model imports version {version}: give it for that one"
        close = [f"{d}::{o}" for each in everything for d, o in each.named]
        files = [m for each in everything for key, m in each.files.items() if key in (domain, EVERY_DOMAIN)]
        close += [f"{domain}::{name}" for module in files for name in module.offered]
        give = f"give an operator for it: `tl.compile(model, ops={{'{domain}::{op}': ops.f}})`, or a file with `operators='mine.tl'`"
        return did_you_mean(f"{domain}::{op}", close, give) or give
