"""The pages of docs/reference are what the service and the command are, and their links and examples hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.service.faces import served, web
from tools.reference.__main__ import FOLDER, PAGES, main, pages, stale
from tools.reference.examples import BODIES
from tools.reference.page import anchor, folded, number, paragraphs, prose, table
from tools.reference.rest import face

HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\((#[^)]+)\)")


def test_the_committed_pages_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert stale() == []
    assert main(["--check"]) == 0
    assert f"{len(PAGES)} pages" in capsys.readouterr().out


def test_a_page_that_was_edited_is_missing_or_is_not_ours_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0
    (tmp_path / "rest.md").write_text("another text")
    (tmp_path / "grpc.md").unlink()
    (tmp_path / "old.md").write_text("a page that nothing makes any more")
    assert main(["--check"], tmp_path) == 1
    assert "grpc.md, old.md, rest.md; run `make reference`" in capsys.readouterr().out
    assert main(["--chekc"], tmp_path) == 2


@pytest.mark.parametrize("name", sorted(PAGES))
def test_each_link_within_a_page_leads_to_one_heading(name: str) -> None:
    text = (FOLDER / name).read_text()
    headings = [anchor(heading) for heading in HEADING.findall(text)]
    assert set(LINK.findall(text)) - set(headings) == set()
    assert len(headings) == len(set(headings))


def test_every_call_message_and_setting_is_there() -> None:
    """Of what has a comment the comment too."""
    found = pages()
    for words in ("`WatchPlans`", "### SyncAnswer", "| optional `double` |", "map of `string` to `string`", "reporter"):
        assert words in found["grpc.md"]
    for words in ("## PUT /v1/streams/{stream}", "### ReportHistogram", "`FAILED_PRECONDITION`", "2^62"):
        assert words in found["rest.md"]
    assert "`UNSKEW_TLS_CLIENT_CA`" in found["settings.md"]
    assert "--tokens`" not in found["settings.md"]
    assert "## unskew whatif" in found["cli.md"]


def test_the_examples_are_answered_by_the_service() -> None:
    """In their order, as a reader would try them; each operation that takes a body has one."""
    with served("engine") as service, web(service) as rest:
        used = set()
        for (verb, method), bodies in BODIES.items():
            path = next(r.path for r in face().app.routes if r.name == verb and method in getattr(r, "methods", ()))
            for body in bodies:
                target = re.sub(r"{stream[^}]*}", "clicks", path)
                answer = rest.request(method, target, json=body)
                assert answer.status_code in (200, 201), (verb, answer.text)
            used.add((target, method))
        document = rest.get("/openapi.json").json()
    wanted = {
        (path.replace("{stream}", "clicks"), method.upper())
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if "requestBody" in operation
    }
    assert used == wanted


def test_words_become_markdown() -> None:
    """Of which GitHub makes what was meant."""
    assert paragraphs(" a\n b\n\n   1. x < y\n      z\n\n c") == "a b\n\n```text\n1. x < y\n   z\n```\n\nc"
    assert anchor("GET /v1/streams/{stream}") == "#get-v1streamsstream"
    assert prose("a ``b``\n  c <d> `<e>`") == "a `b` c &lt;d> `<e>`"
    assert table(("a", "b", "c"), [("1", "", "x|y"), ("2", "", "")]) == (
        "| a | c |\n| --- | --- |\n| 1 | x\\|y |\n| 2 |  |"
    )
    assert [number(n) for n in (2**64, 2**63 - 1, 65_535, 4_000_000, 0.5)] == [
        "2^64",
        "2^63 - 1",
        "65535",
        "4,000,000",
        "0.5",
    ]
    assert folded({"a": [1, 2]}) == '{"a": [1, 2]}'
    assert folded({"a": [1, 2]}, most=10) == '{\n  "a": [\n    1,\n    2\n  ]\n}'
