"""The explorer: verdicts on schedules as they are edited, a page that loads nothing, and a server that answers its own page alone."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tensorlang.diagnostics import CompileError, Source
from tensorlang.explorer.application import MOST_BYTES, Application
from tensorlang.explorer.explorer import Explorer
from tensorlang.explorer.page import page
from tensorlang.explorer.subject import Subject, checked_sizes, subject_of, usual_sizes
from tensorlang.explorer.trials import Question, answer

TEXT = """op product(a: f32[M, K], b: f32[K, N]) -> (c: f32[M, N]) {
    c[i, j] = sum(k) a[i, k] * b[k, j]   # </script><script>alert(1)</script>
}
schedule product for cpu {
    split j by 4 -> jo, ji
}
"""
HOST = "127.0.0.1:8000"
AT = {"M": 8, "K": 4, "N": 8}


@pytest.fixture(scope="module")
def subject() -> Subject:
    return subject_of(Source("<b>.tl", TEXT), {})


@pytest.fixture
def application(subject: Subject) -> Application:
    return Application(Explorer(subject), "token", frozenset((HOST,)))


def asked(application: Application, path: str, question: object = None, **changed: Any) -> tuple[str, dict[str, str], bytes]:
    """Return the status, the headers and the body of a request; what is `changed` is of its environment."""
    body = b"" if question is None else json.dumps(question).encode()
    path, _, query = path.partition("?")
    environ = {"REQUEST_METHOD": "GET" if question is None else "POST", "PATH_INFO": path, "QUERY_STRING": query, "HTTP_HOST": HOST}
    environ |= {"HTTP_X_EXPLORER_TOKEN": "token", "CONTENT_LENGTH": str(len(body)), **changed}
    told: list[Any] = []
    found = b"".join(application({**environ, "wsgi.input": io.BytesIO(body)}, lambda *head: told.append(head)))
    return told[0][0], dict(told[0][1]), found


def verdict(application: Application, directives: str) -> dict[str, Any]:
    _, _, body = asked(application, "/verdict", {"operator": "product", "directives": directives})
    found: dict[str, Any] = json.loads(body)
    return found


def test_a_legal_schedule_is_proven_with_its_tree_and_its_picture(application: Application) -> None:
    found = verdict(application, "split j by 4 -> jo, ji")
    assert (found["outcome"], found["messages"]) == ("proven", [])
    assert (
        "c.jo {" in found["tree"] and found["picture"].startswith("<svg") and 'stroke="#c62828" stroke-width="2.5"' not in found["picture"]
    )


def test_a_refused_schedule_has_its_witness_in_the_picture_and_a_cure(application: Application) -> None:
    found = verdict(application, "order k, i, j\nparallel k")
    assert found["outcome"] == "refused" and found["messages"][0]["range"] == {"start": 14, "end": 24}
    assert found["picture"].count('stroke="#c62828" stroke-width="2.5"') == 2 and "M = 8" in found["drawn"]
    _, _, body = asked(application, "/cure", {"operator": "product", "directives": "order k, i, j\nparallel k"})
    assert json.loads(body)["cure"]["edits"] == [{"start": 14, "end": 24, "text": "parallel i"}]


def test_a_page_that_is_loaded_again_shows_the_file_as_it_is_now(subject: Subject) -> None:
    texts = [TEXT.replace("product", "other"), "op broken("]
    application = Application(Explorer(subject, lambda: subject_of(Source("f.tl", texts[0]), {})), "token", frozenset((HOST,)))
    assert "other" in asked(application, "/?token=token")[2].decode()
    assert asked(application, "/verdict", {"operator": "product", "directives": ""})[0].startswith("400")
    texts.pop(0)
    assert [(o["name"], o["error"][0]["code"]) for o in application.explorer.about()["operators"]] == [("other", "P005")]


def test_what_is_no_directive_is_said_to_be_none(application: Application) -> None:
    found = verdict(application, "splitt j by 4")
    assert (found["outcome"], found["messages"][0]["range"]) == ("unreadable", {"start": 0, "end": 6})


def test_code_candidates_and_times_are_of_the_sizes_that_are_asked_for(subject: Subject) -> None:
    code = answer(subject, Question("code", "product", "order k, i, j", AT))
    assert "f32[8, 4]" in code["forms"]["loops"] and code["directives"] == "order k, i, j"
    found = answer(subject, Question("candidates", "product", None, AT))["candidates"]
    assert found[0]["directives"] == subject.own["product"] and [c["name"] for c in found][1:3] == ["derived", "as written"]
    assert answer(subject, Question("code", "product", "parallel k", AT))["error"][0]["code"] == "S0302"
    assert answer(subject, Question("time", "product", "", {"M": 2**20, "K": 4, "N": 2**20}))["error"][0]["code"] == "C0204"


def test_usual_sizes_are_little_work_and_strange_ones_are_refused(subject: Subject) -> None:
    assert usual_sizes(subject, "product") == {"M": 256, "K": 256, "N": 256}
    for value in (-1, True, "8", 2**40):
        with pytest.raises(CompileError, match="is no size"):
            checked_sizes({"M": value})


def test_the_page_escapes_names_and_texts_and_loads_nothing(application: Application) -> None:
    status, headers, body = asked(application, "/?token=token")
    text = body.decode()
    assert status == "200 OK" and "<b>.tl" not in text and "<script>alert" not in text
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert not re.search(r"(?:src|href)=\"(?!data:)", text)
    assert page(application.explorer.about(), answers={})[0].count("connect-src &#x27;none&#x27;") == 1


@pytest.mark.parametrize(
    ("path", "question", "changed", "status"),
    [
        ("/?token=wrong", None, {}, "403"),
        ("/", None, {}, "403"),
        ("/?token=token", None, {"HTTP_HOST": "evil.example:8000"}, "403"),
        ("/../../etc/passwd?token=token", None, {}, "404"),
        ("/verdict", {"operator": "product", "directives": ""}, {"HTTP_X_EXPLORER_TOKEN": "é"}, "403"),
        ("/verdict", {"operator": "other", "directives": ""}, {}, "400"),
        ("/verdict", {"operator": "product", "directives": 3}, {}, "400"),
        ("/verdict", [1], {}, "400"),
        ("/verdict", {"operator": "product", "directives": "#" * 70_000}, {}, "413"),
        ("/verdict", {"operator": "product"}, {"CONTENT_LENGTH": str(MOST_BYTES + 1)}, "413"),
        ("/verdict", {"operator": "product"}, {"CONTENT_LENGTH": "x"}, "413"),
    ],
)
def test_other_requests_are_refused(application: Application, path: str, question: object, changed: dict[str, Any], status: str) -> None:
    assert asked(application, path, question, **changed)[0].startswith(status)


def test_files_of_the_page_are_part_of_the_package() -> None:
    patterns = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    assert all(f'"*.{ending}"' in patterns for ending in ("js", "css", "html"))
