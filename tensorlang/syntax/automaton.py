"""The LALR(1) automaton of grammar.lark: its tables, stored beside the grammar, and the stack machine that runs them.

    tables      the tables of the grammar: those of grammar.json, or made anew (a fifth of a second) where that is of another grammar
    Automaton   a run over tokens that are shifted one by one, with the values that reductions build

grammar.json is written by `python scripts/tables.py`; it spares every process the import of lark and the analysis of the grammar.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

from tensorlang.diagnostics import InternalError

GRAMMAR = Path(__file__).with_name("grammar.lark")
END = "$END"
"""The terminal that follows the last token."""
_START = "declaration"


@dataclass(frozen=True, slots=True)
class Rule:
    """A production: what it makes (`origin`), how many symbols it takes, the name of its semantic action. A `skips_single` one with a
    single child is that child; the values at `inlined` are lists, whose elements are children."""

    origin: str
    size: int
    action: str
    skips_single: bool
    inlined: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tables:
    """For each state what a symbol leads to: a state n >= 0 to go to, or the rule -n - 1 to reduce by. A run starts in state 0 and has read
    a declaration when it reaches `accepting`."""

    rules: tuple[Rule, ...]
    rows: tuple[Mapping[str, int], ...]
    accepting: int


class Terminal(Protocol):
    """What is shifted: a token of a type."""

    @property
    def type(self) -> str: ...


Builder = Callable[[list[Any]], Any]


class NotAcceptedError(Exception):
    """A token is none of those that may follow."""


class Automaton:
    """A run. `builders`: the semantic action of each rule."""

    def __init__(self, tables: Tables, builders: Sequence[Builder]) -> None:
        self._tables, self._builders = tables, builders
        self._states: list[int] = [0]
        self._values: list[Any] = []

    def shift(self, token: Terminal) -> None:
        """Take a token. Raises NotAcceptedError."""
        target = self._reduced(token.type)
        self._states.append(target)
        self._values.append(token)

    def finished(self) -> Any:
        """Return the value of everything shifted. Raises NotAcceptedError where more has to follow."""
        self._reduced(END)
        return self._values[-1]

    def accepted(self) -> frozenset[str]:
        """Return the terminals that may follow."""
        here = self._tables.rows[self._states[-1]]
        return frozenset(symbol for symbol in here if _is_terminal(symbol) and self._may_follow(symbol))

    def _reduced(self, terminal: str) -> int:
        """Reduce what a terminal ends, and return the state it leads to."""
        rows, rules, states, values = self._tables.rows, self._tables.rules, self._states, self._values
        while True:
            action = rows[states[-1]].get(terminal)
            if action is None:
                raise NotAcceptedError
            if action >= 0:
                return action
            rule = rules[-action - 1]
            children = values[len(values) - rule.size :]
            del states[len(states) - rule.size :], values[len(values) - rule.size :]
            values.append(self._builders[-action - 1](children))
            states.append(rows[states[-1]][rule.origin])
            if terminal == END and states[-1] == self._tables.accepting:
                return self._tables.accepting

    def _may_follow(self, terminal: str) -> bool:
        tables, states = self._tables, list(self._states)
        while (action := tables.rows[states[-1]].get(terminal)) is not None:
            if action >= 0:
                return True
            rule = tables.rules[-action - 1]
            del states[len(states) - rule.size :]
            states.append(tables.rows[states[-1]][rule.origin])
            if terminal == END and states[-1] == tables.accepting:
                return True
        return False


def builders(tables: Tables, actions: object) -> tuple[Builder, ...]:
    """Return how values are made, rule by rule: by the method of `actions` that the rule names; without one the value is a list of
    its children."""
    return tuple(_builder(rule, getattr(actions, rule.action, _listed)) for rule in tables.rules)


def _listed(children: list[Any]) -> list[Any]:
    return children


def _builder(rule: Rule, method: Builder) -> Builder:
    """Return `method` behind what the rule says of its children."""
    if rule.inlined:
        inner, inlined = method, rule.inlined

        def method(children: list[Any]) -> Any:
            flat: list[Any] = []
            for k, child in enumerate(children):
                if k in inlined:
                    flat += child
                else:
                    flat.append(child)
            return inner(flat)

    if not rule.skips_single:
        return method
    several = method
    return lambda children: children[0] if len(children) == 1 else several(children)


# ---------------------------------------------------------------- the tables


@cache
def tables() -> Tables:
    """Return the tables of grammar.lark."""
    grammar = GRAMMAR.read_text("utf-8")
    try:
        stored = json.loads(GRAMMAR.with_suffix(".json").read_text("utf-8"))
    except (OSError, ValueError):
        stored = None
    is_current = isinstance(stored, dict) and stored.get("checksum") == _checksum(grammar)
    return _read(stored) if is_current else analysed(grammar)


def written(grammar: str) -> str:
    """Return the text of grammar.json for a grammar: a line for each rule and for each state."""
    made = analysed(grammar)
    rules = [json.dumps([r.origin, r.size, r.action, int(r.skips_single), *r.inlined]) for r in made.rules]
    rows = [json.dumps(_grouped(row)) for row in made.rows]
    head = f'"checksum": "{_checksum(grammar)}",\n"accepting": {made.accepting}'
    return f"{{{head},\n{_block('rules', rules)},\n{_block('rows', rows)}}}\n"


def _block(name: str, lines: Sequence[str]) -> str:
    return f'"{name}": [\n' + ",\n".join(lines) + "\n]"


def _grouped(row: Mapping[str, int]) -> dict[str, str]:
    """Return a row by actions: the symbols of each, with spaces between."""
    symbols: dict[str, list[str]] = {}
    for symbol, action in row.items():
        symbols.setdefault(str(action), []).append(symbol)
    return {action: " ".join(found) for action, found in symbols.items()}


def _read(stored: Mapping[str, Any]) -> Tables:
    rules = tuple(Rule(origin, size, action, bool(bare), tuple(rest)) for origin, size, action, bare, *rest in stored["rules"])
    rows = tuple({symbol: int(action) for action, symbols in row.items() for symbol in symbols.split()} for row in stored["rows"])
    return Tables(rules, rows, stored["accepting"])


def _checksum(grammar: str) -> str:
    """Return what tells grammars apart whose tables are not each other's."""
    return f"{len(grammar)}-{crc32(grammar.encode()):08x}"


def analysed(grammar: str) -> Tables:
    """Return the tables of a grammar in lark's notation, made by lark; states are numbered as a walk from the first one meets them."""
    import lark
    from lark.parsers.lalr_analysis import Shift

    class NoLexer(lark.lexer.Lexer):  # tokens come from scanner.py
        def __init__(self, conf: object) -> None:
            pass

        def lex(self, *_: object) -> Any:
            raise InternalError("parse", "the parser asked for a token of its own")

    parser = lark.Lark(grammar, start=_START, parser="lalr", lexer=NoLexer, keep_all_tokens=True, maybe_placeholders=False)
    found = parser.parser.parser._parse_table
    order = _walked(found.start_states[_START], lambda s: {k: a for k, (kind, a) in found.states[s].items() if kind is Shift})
    number = {state: k for k, state in enumerate(order)}
    productions = sorted({a for row in found.states.values() for kind, a in row.values() if kind is not Shift}, key=_order)
    index = {rule: -k - 1 for k, rule in enumerate(productions)}
    rows = tuple({k: number[a] if kind is Shift else index[a] for k, (kind, a) in sorted(found.states[s].items())} for s in order)
    return Tables(tuple(map(_rule, productions)), rows, number[found.end_states[_START]])


def _walked(first: int, follow: Callable[[int], Mapping[str, int]]) -> list[int]:
    order, seen = [first], {first}
    for state in order:
        for _, target in sorted(follow(state).items()):
            if target not in seen:
                seen.add(target)
                order.append(target)
    return order


def _order(production: Any) -> tuple[str, list[str]]:
    return str(production.origin.name), [symbol.name for symbol in production.expansion]


def _rule(production: Any) -> Rule:
    inlined = tuple(k for k, symbol in enumerate(production.expansion) if not symbol.is_term and symbol.name.startswith("_"))
    name = str(production.origin.name)
    skips_single = production.options.expand1 and not production.alias
    return Rule(name, len(production.expansion), str(production.alias or name), skips_single, inlined)


def _is_terminal(symbol: str) -> bool:
    return symbol.isupper()
