"""Names are made of words with one meaning each: those of the glossary, of a standard, and plain English as programmers write it.

What is looked at: modules, directives and their keywords, public functions, classes, methods, their parameters, and fields. A word that
none of the lists holds is either a term, and gets an entry in `docs/glossary.md`, or belongs to a standard (`words/standards.txt`), or is
plain English (`words/plain.txt`), or home-made, and the field has another for it.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from pages import glossary

from tensorlang.schedule.directives.table import DIRECTIVES
from tensorlang.syntax.scanner import PREPOSITIONS

ROOT = Path(__file__).parents[1]
WORDS = Path(__file__).parent / "words"
PACKAGES = ("codegen", "polyhedral", "stdlib", "tensorlang")
ONE_CLASS = ("Box", "Cluster", "Device", "Stage")
"""Terms that say one thing: no two classes bear one of these names."""


def split(name: str) -> list[str]:
    """Return the words of a name in snake or camel case, in small letters; digits and single letters are none."""
    found = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return [word.lower() for word in found if len(word) > 1]


def names(tree: ast.Module) -> Iterator[str]:
    """Yield the public names that a module declares: functions with their parameters, classes with their fields and methods."""
    for node in tree.body:
        yield from _declared(node, in_class=False)


def _declared(node: ast.stmt, *, in_class: bool) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name, args=args) | ast.AsyncFunctionDef(name=name, args=args) if not name.startswith("_"):
            yield name
            yield from (a.arg for a in [*args.posonlyargs, *args.args, *args.kwonlyargs])
        case ast.ClassDef(name=name, body=body) if not name.startswith("_"):
            yield name
            for inner in body:
                yield from _declared(inner, in_class=True)
        case ast.AnnAssign(target=ast.Name(id=name)) if in_class and not name.startswith("_"):
            yield name


@cache
def modules() -> dict[str, ast.Module]:
    """Return the modules of the compiler by their path."""
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in files}


@cache
def allowed() -> frozenset[str]:
    """Return every word that a name may have."""
    standards = [line.partition(":")[2] for line in lines("standards.txt")]
    return frozenset(word for text in [*glossary(), *standards, *lines("plain.txt")] for word in re.findall(r"\w+", text.lower()))


def lines(file: str) -> list[str]:
    return [line for line in (WORDS / file).read_text("utf-8").splitlines() if line and not line.startswith("#")]


def unfamiliar(used: Iterable[str]) -> set[str]:
    """Return the words in names that are in no list, in none of their forms."""
    return {word for name in used for word in split(name) if not bases(word) & allowed()}


def bases(word: str) -> set[str]:
    """Return a word and what it may be a plural, a third person, a participle or a gerund of."""
    found = {word}
    for ending in ("s", "es", "d", "ed", "ing"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) > 2:
            found |= {stem, f"{stem}e"} if ending in ("ed", "ing") else {stem}
            found |= {stem[:-1]} if ending in ("ed", "ing") and stem[-1] == stem[-2] else set()
    return found


def found() -> dict[str, set[str]]:
    """Return the words of each file that are in no list."""
    words = {path: unfamiliar([Path(path).stem, *names(tree)]) for path, tree in modules().items()}
    return {path: each for path, each in words.items() if each}


def test_every_word_of_a_name_is_a_term_or_plain() -> None:
    assert found() == {}, "use the field's word, or explain the term in docs/glossary.md"


def test_every_word_of_a_directive_is_a_term_or_plain() -> None:
    assert unfamiliar([*DIRECTIVES, *PREPOSITIONS]) == set()


def test_a_cluster_a_box_a_stage_and_a_device_are_one_thing_each() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name in ONE_CLASS:
                places[node.name].add(path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_the_list_of_plain_words_is_sorted_and_says_each_once() -> None:
    assert lines("plain.txt") == sorted(set(lines("plain.txt")))


def test_a_name_is_split_into_its_words() -> None:
    assert split("load_x4") == ["load"]
    assert split("TensorMap") == ["tensor", "map"]
    assert split("IRText") == ["ir", "text"]
    assert split("_private_bf16") == ["private", "bf"]


def test_a_word_has_the_forms_of_its_base() -> None:
    assert {"map", "tile", "launch", "index"} <= bases("mapped") | bases("tiling") | bases("launches") | bases("indexes")
    assert "use" in bases("used") and "copy" not in bases("cop") and bases("as") == {"as"}


def test_parameters_and_fields_are_names_and_private_ones_are_nobodys_business() -> None:
    text = "class A:\n    size: int\n    _own: int\n    def read(self, at): ...\ndef f(x, *, y): ...\ndef _g(z): ...\nw: int = 3\n"
    assert list(names(ast.parse(text))) == ["A", "size", "read", "self", "at", "f", "x", "y"]


def test_a_word_that_is_in_no_list_is_found() -> None:
    assert unfamiliar(["plan_widgets", "Gizmo"]) == {"widgets", "gizmo"}
