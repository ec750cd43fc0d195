"""What the process that explains has written, and how it may end."""

import json
from base64 import b64encode
from typing import Any

import pytest

from pinnace.api.status import Code, Refusal, encode
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.verbs.why import parse_explanation
from pinnace.client.errors import Forbidden

BUG = "the explanation failed: "


def failure(said: bytes, complaints: bytes = b"") -> tuple[str, ExitCode]:
    with pytest.raises(Failure) as failed:
        parse_explanation(said, complaints)
    return failed.value.report.lines[0], failed.value.report.code


def unexplained(kind: str, **more: str) -> bytes:
    return json.dumps({"unexplained": {"error": "no", "kind": kind, **more}}).encode()


def test_explanation() -> None:
    explanation = parse_explanation(
        b'{"explanation": {"pod": "default/a", "scheduler": "s", "nodes": 3, "news": []}}', b"a warning"
    )
    assert (explanation.pod, explanation.nodes, explanation.ranking) == ("default/a", 3, ())


@pytest.mark.parametrize(
    ("kind", "code"),
    [("usage", ExitCode.USAGE), ("too slow", ExitCode.UNAVAILABLE)],
)
def test_why_there_is_none(kind: str, code: ExitCode) -> None:
    assert failure(unexplained(kind)) == ("no", code)


def test_why_reports_a_refused_call() -> None:
    refusal = Refusal(Code.PERMISSION_DENIED, "Forbidden", "you may not list nodes", metadata=(("hint", "ask for it"),))
    status = b64encode(encode(refusal).SerializeToString()).decode()
    with pytest.raises(Forbidden) as refused:
        parse_explanation(unexplained("refused", status=status), b"")
    assert refused.value.refusal == refusal


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([], "expected an object"),
        ({}, "no output"),
        ({"explanation": {"pod": "default/a"}}, "explanation.scheduler: missing field"),
        ({"explanation": {"pod": "default/a", "scheduler": "s", "nodes": "3"}}, "explanation.nodes: expected a whole number"),
        (
            {"unexplained": {"error": "no", "kind": "mood"}},
            "unexplained.kind: expected one of usage, refused, too slow",
        ),
    ],
)
def test_answer_of_another_shape(answer: Any, message: str) -> None:
    assert failure(json.dumps(answer).encode()) == (BUG + message, ExitCode.SERVER)


def test_missing_answer_is_reported() -> None:
    assert failure(b"", b"Traceback:\n  ...\nMemoryError\n") == (f"{BUG}MemoryError", ExitCode.SERVER)
    assert failure(b"") == (f"{BUG}no output", ExitCode.SERVER)
