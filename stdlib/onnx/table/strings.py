"""Strings. In graphs they are numbers that stand for them, equal where the strings are: what only moves or compares elements is compiled as
for integers. What looks into a string is computed by the host, between two stages of the model."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from codegen.dtypes import DTYPES, DType
from stdlib.onnx.model import Array, Node
from stdlib.onnx.site import Result, Site
from stdlib.onnx.table.entry import Entry, microsoft
from tensorlang.diagnostics import CompileError
from tensorlang.graph.nodes import Value

_MOVES = frozenset(
    (
        "Compress", "Concat", "ConcatFromSequence", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity",
        "OneHot", "Optional", "OptionalGetElement", "Pad", "Reshape", "ReverseSequence", "Scatter", "ScatterElements", "ScatterND",
        "SequenceAt", "SequenceConstruct", "SequenceErase", "SequenceInsert", "Slice", "SpaceToDepth", "Split", "SplitToSequence",
        "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where", "ArrayFeatureExtractor",
    )
)  # fmt: skip
"""Operators whose results are strings where their arguments are."""
_TAKES = frozenset(
    (
        "Cast", "CastLike", "CastMap", "CategoryMapper", "DictVectorizer", "Equal", "If", "LabelEncoder",
        "Loop", "OneHotEncoder", "OptionalHasElement",
        "RegexFullMatch", "Scan", "SequenceLength", "SequenceMap", "Shape", "Size", "StringConcat", "StringNormalizer",
        "StringSplit", "TfIdfVectorizer", "Tokenizer", "Unique",
    )
)  # fmt: skip
"""Others that take strings, and what they return says each itself."""


def moves_text(node: Node) -> bool:
    """Tell whether what a node returns are strings where its arguments are."""
    return node.op in _MOVES


def takes_text(node: Node) -> bool:
    """Tell whether a node may be given strings."""
    return node.op in _MOVES or node.op in _TAKES or node.custom


def _strings(items: Sequence[str], shape: Sequence[int]) -> Array:
    made = np.empty(len(items), object)
    made[:] = items
    return made.reshape(tuple(shape))


def _text(n: Site, k: int) -> Value:
    value = n.arg(k)
    if not n.is_text(value):
        raise n.wrong(f"input {k} holds no strings")
    return value


def concat(n: Site) -> Result:
    def joined(a: Array, b: Array) -> tuple[Array]:
        a, b = np.broadcast_arrays(a, b)
        return (_strings([x + y for x, y in zip(a.flat, b.flat, strict=True)], a.shape),)

    return n.hosted(joined, _text(n, 0), _text(n, 1))


def normalise(n: Site) -> Result:
    """Strings that are stop words go; if none is left, there is an empty one."""
    case = n.text("case_change_action", "NONE", ("NONE", "LOWER", "UPPER"))
    exact = n.flag("is_case_sensitive")
    given = n.node.attributes.get("stopwords", ())
    words = {str(w) if exact else str(w).lower() for w in given} if isinstance(given, tuple) else set()
    x = _text(n, 0)
    if not (len(x.shape) == 1 or (len(x.shape) == 2 and x.shape[0] == 1)):
        raise n.wrong(f"the shape {list(x.shape)} is neither [C] nor [1, C]")

    def kept(array: Array) -> tuple[Array]:
        found = [t for t in array.flat if (t if exact else t.lower()) not in words] or [""]
        changed = [t.lower() if case == "LOWER" else t.upper() if case == "UPPER" else t for t in found]
        return (_strings(changed, (len(changed),) if array.ndim == 1 else (1, len(changed))),)

    return n.hosted(kept, x)


def split(n: Site) -> Result:
    """The parts of each string along a new axis, empty strings after them, and how many there are."""
    delimiter, most = n.text("delimiter", "") or None, n.integer("maxsplit", -1) if n.has("maxsplit") else -1

    def parts(array: Array) -> tuple[Array, Array]:
        rows = [t.split(delimiter, most) for t in array.flat]
        width = max((len(row) for row in rows), default=0)
        padded = [part for row in rows for part in (*row, *[""] * (width - len(row)))]
        return _strings(padded, (*array.shape, width)), np.array([len(row) for row in rows], np.int64).reshape(array.shape)

    return n.hosted(parts, _text(n, 0))


_BEYOND_RE2 = re.compile(r"\(\?(=|!|<=|<!|>|P=|\()|(?<!\\)(\\\\)*\\[1-9]|[*+?}]\+")
_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": r"\t ", "digit": "0-9", "lower": "a-z", "punct": r"!-/:-@\[-`{-~", "space": r"\t-\r ",
    "upper": "A-Z", "word": r"\w", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
"""The classes of characters that RE2 has in brackets, and Python's expressions do not."""


def _pattern(n: Site, pattern: str) -> re.Pattern[str]:
    """Return a regular expression of RE2, whose classes are those of ASCII."""
    if _BEYOND_RE2.search(pattern):
        raise n.wrong(f"the pattern {pattern!r} looks around or back, which RE2 does not")
    python = re.sub(r"\[:(\w+):\]", lambda found: _CLASSES.get(found[1], found[0]), pattern)
    if "[:" in python:
        raise n.unsupported(f"the pattern {pattern!r}")
    try:
        return re.compile(python, re.ASCII)
    except (re.error, OverflowError, RecursionError) as problem:
        raise n.wrong(f"the pattern {pattern!r} is none: {problem}") from problem


def ranks(n: Site, x: Value) -> Value:
    """Return for each string how many other ones come before it."""

    def counted(array: Array) -> tuple[Array]:
        places = {text: k for k, text in enumerate(sorted(set(array.flat)))}
        return (np.array([places[text] for text in array.flat], np.int64).reshape(array.shape),)

    (found,) = n.hosted(counted, x)
    return found


def full_match(n: Site) -> Result:
    compiled = _pattern(n, n.text("pattern", ""))

    def matches(array: Array) -> tuple[Array]:
        return (np.array([compiled.fullmatch(t) is not None for t in array.flat], np.bool_).reshape(array.shape),)

    return n.hosted(matches, _text(n, 0))


def tokens(n: Site) -> Result:
    """The words of each string along a new axis: what matches an expression, or is left between separators. Tokenizer of onnxruntime."""
    separators, expression = n.node.attributes.get("separators", ()), n.text("tokenexp", "")
    marked, filler, shortest = n.flag("mark"), n.text("pad_value", ""), n.integer("mincharnum", 1, low=1)
    given = [str(separator) for separator in separators] if isinstance(separators, tuple) else []
    x = _text(n, 0)
    if len(x.shape) not in (1, 2) or bool(given) == bool(expression):
        raise n.wrong(f"strings of the shape {list(x.shape)}, {len(given)} separators and the expression {expression!r}")
    single = expression == "." or given == [""]
    between = [] if single else [_pattern(n, separator) for separator in given]
    word = _pattern(n, expression) if expression and not single else None

    def of_one(text: str) -> list[str]:
        if single:
            return list(text)
        if word is not None:
            return [text[at:end] for at, end in _longest_matches(word, text) if end - at >= shortest]
        parts = [text]
        for separator in between:
            parts = [part for whole in parts for part in _parts(separator, whole) if len(part) >= shortest]
        return parts

    def split_up(array: Array) -> tuple[Array]:
        rows = [of_one(text) for text in array.flat]
        width = max(map(len, rows), default=0)
        if marked and width:
            rows, width = [["\x02", *row, "\x03"] for row in rows], width + 2
        padded = [part for row in rows for part in (*row, *[filler] * (width - len(row)))]
        return (_strings(padded, (*array.shape, width)),)

    return n.hosted(split_up, x)


def _parts(separator: re.Pattern[str], text: str) -> list[str]:
    """Return what is left of a string between separators."""
    found = _longest_matches(separator, text)
    starts, ends = [0, *(end if end > at else end + 1 for at, end in found)], [*(at for at, _ in found), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def _longest_matches(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    """Return where matches begin and end, the first first, and of several that begin at a place the longest."""
    found, start = [], 0
    greedy = _is_greedy(pattern)
    while start <= len(text):
        match = pattern.search(text, start)
        if match is None:
            break
        at, end = match.span()
        if not greedy:
            end = next(last for last in range(len(text), end - 1, -1) if last == end or pattern.fullmatch(text, at, last))
        found.append((at, end))
        start = max(end, at + 1)
    return found


_ONE_CHARACTER = re.compile(r"(\\[dDsSwW\\.+*?()\[\]{}|^$-]|\[(\\.|[^\]\\])(\\.|[^\]\\])*\]|[^\\.+*?()\[\]{}|^$])")


def _is_greedy(pattern: re.Pattern[str]) -> bool:
    """Tell whether an expression is so simple, characters of which the last may be repeated, that the first match is the longest."""
    rest = pattern.pattern
    while found := _ONE_CHARACTER.match(rest):
        rest = rest[found.end() :]
    return rest in ("", "+", "*", "?")


def to_numbers(n: Site, x: Value, dtype: DType) -> Value:
    """Return the numbers that strings write."""

    def read(array: Array) -> tuple[Array]:
        found = [_number(n, t, dtype) for t in array.flat]
        wide = np.array(found, np.float64 if dtype.is_float else np.int64 if dtype.kind == "int" else np.uint64)
        return (wide.astype(dtype.numpy).reshape(array.shape),)

    (found,) = n.hosted(read, x)
    return found


def _number(n: Site, text: str, dtype: DType) -> float | int:
    try:
        if dtype.kind == "bool":
            return int(text) != 0
        return float(text) if dtype.is_float else int(text)
    except ValueError:
        raise CompileError(n.wrong(f"{text!r} is no number of {dtype}").diagnostic) from None


def to_strings(n: Site, x: Value) -> Value:
    """Return numbers as they are written, with as many digits as tell them apart."""

    def written(array: Array) -> tuple[Array]:
        return (_strings([str(item) for item in array.reshape(-1)], array.shape),)

    (found,) = n.hosted(written, x)
    return found


def tf_idf(n: Site) -> Value:
    """How often each of some sequences of elements occurs in a row, where up to `max_skip_count` elements may stand between two."""
    x = n.arg(0)
    if len(x.shape) not in (1, 2):
        raise n.wrong(f"the shape {list(x.shape)} is neither [C] nor [B, C]")
    rows = x if len(x.shape) == 2 else n.view(x, (1, *x.shape))
    wanted = n.node.attributes.get("pool_strings" if n.is_text(x) else "pool_int64s", ())
    pool = n.constant(np.array(wanted, object if n.is_text(x) else np.int64)) if wanted else None
    starts, places = n.integers("ngram_counts", low=0), n.integers("ngram_indexes", low=0)
    shortest, longest = n.integer("min_gram_length", 1, low=1), n.integer("max_gram_length", 1, low=1)
    skips, mode = n.integer("max_skip_count", 0, low=0), n.text("mode", "TF", ("TF", "IDF", "TFIDF"))
    size = max(places, default=-1) + 1
    if pool is None or not size:
        raise n.wrong("there is nothing to count")
    table = n.array(pool)
    assert table is not None
    ends = (*starts[1:], len(table))
    if list(starts) != sorted(starts) or starts[-1:] > (len(table),):
        raise n.wrong(f"the counts {list(starts)} for {len(table)} elements")
    total = n.filled((rows.shape[0], size), DTYPES["i64"])
    before = 0
    for length, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        count = (end - start) // length
        if before + count > len(places):
            raise n.wrong(f"{len(places)} places for {before + count} sequences")
        if count and shortest <= length <= longest and rows.shape[1]:
            grams = table[start : start + count * length].reshape(count, length)
            at = n.constant(np.array(places[before : before + count], np.int64))
            for skip in range(1, 2 if length == 1 else skips + 2):
                found = n.op("count_sequences", rows, n.constant(grams.astype(x.dtype.numpy)), step=skip)
                total = n.op("add_at", total, at, found)
        before += count
    y = n.op("cast_f32", total)
    if mode == "IDF":
        y = n.op("minimum", y, n.filled((), y.dtype, 1))
    weights = n.node.attributes.get("weights", ())
    if mode != "TF" and isinstance(weights, tuple) and weights:
        if len(weights) != size:
            raise n.wrong(f"{len(weights)} weights for {size} results")
        y = n.op("mul", y, n.constant(np.array(weights, np.float32)))
    return y if len(x.shape) == 2 else n.view(y, (size,))


RULES = (
    Entry("StringConcat", 20, 20, concat),
    Entry("StringNormalizer", 10, 10, normalise),
    Entry("StringSplit", 20, 20, split),
    Entry("RegexFullMatch", 20, 20, full_match),
    Entry("TfIdfVectorizer", 9, 9, tf_idf),
    microsoft("Tokenizer", tokens),
)
