"""Recorded answers of kube-apiserver 1.36.2, which the gateway must give (tests/data/kubernetes-{golden,kinds}-1.36.jsonl).

The requests are replayed in order. Code, media type, warnings, Retry-After and body are compared to the letter; only UIDs,
resource versions, times and generated names vary. tests/golden_differences.py has the accepted differences with their reasons.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.golden_differences import ACCEPTED, KINDS_ACCEPTED

_DATA = Path(__file__).parent / "data"
AGENT = "golden/1.0"
"""The user agent, from which the name of the field manager is taken."""
ANONYMOUS = ";anonymous"
"""The end of the media type of a request without credentials."""
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_PODS = "/api/v1/namespaces/golden/pods"
_DEPLOYMENTS = "/apis/apps/v1/namespaces/golden/deployments"
_STATUS = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
_ENV = {"name": "c", "env": [{"name": "C", "value": "3"}]}
_WEB = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {"template": {"spec": {"containers": [_ENV]}}},
}
_SET_STATUS = "/apis/apps/v1/namespaces/golden-kinds/statefulsets/db/status?fieldManager=kube-controller-manager"
_OBSERVED = {"currentRevision": "db-74bdc768fb", "updateRevision": "db-74bdc768fb", "collisionCount": 0}
_BETWEEN: Mapping[str, Sequence[tuple[str, str, str, Any]]] = {
    "merge patch label": [("PATCH", f"{_PODS}/a", _MERGE, {"spec": {"containers": [{"name": "c", "image": "i:2"}]}})],
    "status by main resource is ignored": [("PATCH", f"{_PODS}/a/status", _MERGE, {"status": _STATUS})],
    "sts: allowed update": [("PATCH", _SET_STATUS, _MERGE, {"status": {**_OBSERVED, "observedGeneration": 1}})],
    "sts: delete foreground": [("PATCH", _SET_STATUS, _MERGE, {"status": {"observedGeneration": 2}})],
    "update takes ownership": [("PATCH", f"{_DEPLOYMENTS}/web?fieldManager=carol", _APPLY, _WEB)],
}
"""Requests that precede an exchange and that the data do not contain, by the name of the exchange."""
_VARYING = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"^gen-\w{5}$"), "gen-XXXXX"),
    (re.compile(r"^\d+s$"), "AGE"),
    (re.compile(r"^eyJ[\w-]+\.[\w-]+\.[\w-]+$"), "TOKEN"),
    (re.compile(r"^https://kubernetes\.default\.svc\.cluster\.local$"), "ISSUER"),
    (re.compile(r"^10\.96\.0\.1$"), "IP"),
)


_RETRIED = ("crd: established",)
"""Requests about a state that the server reaches soon after the previous request."""
_RETRIES, _RETRY_DELAY = 100, 0.05

_NAMED = {"resourceVersion": "RV", "storageVersionHash": "HASH", "targetPort": "PORT"}


class Answer(NamedTuple):
    code: int
    content_type: str
    body: bytes
    warnings: list[str]
    retry_after: str | None = None


Send = Callable[[str, str, str, str, Any], Awaitable[Answer]]
"""Sends a request: method, path, media type of the body, accepted media types (with ANONYMOUS at the end, or not), body."""


class Exchange(NamedTuple):
    name: str
    request: dict[str, Any]
    response: dict[str, Any]


class Recording(NamedTuple):
    """A file of exchanges, with the accepted differences."""

    file: str
    accepted: Mapping[str, tuple[Sequence[str], str]]

    def exchanges(self) -> list[Exchange]:
        lines = (_DATA / self.file).read_text().splitlines()
        return [Exchange(**json.loads(line)) for line in lines]


BUILT_IN = Recording("kubernetes-golden-1.36.jsonl", ACCEPTED)
KINDS = Recording("kubernetes-kinds-1.36.jsonl", KINDS_ACCEPTED)
RECORDINGS = (BUILT_IN, KINDS)


def normalize(value: Any) -> Any:
    """Replace what differs between two runs."""
    match value:
        case dict():
            return {key: _NAMED[key] if key in _NAMED and item else normalize(item) for key, item in value.items()}
        case list():
            return [normalize(item) for item in value]
        case str():
            for pattern, text in _VARYING:
                value = pattern.sub(text, value)
    return value


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    """The paths at which two JSON values differ, including fields that only one of them has."""
    match expected, actual:
        case dict(), dict():
            for key in sorted({*expected, *actual}):
                where = f"{path}.{key}" if path else key
                if key in expected and key in actual:
                    yield from differences(expected[key], actual[key], where)
                else:
                    yield where
        case list(), list() if len(expected) == len(actual):
            for index, pair in enumerate(zip(expected, actual, strict=True)):
                yield from differences(*pair, f"{path}[{index}]")
        case _ if expected != actual:
            yield path


def _parsed(body: Any) -> Any:
    """JSON, a list of the events of a watch, or text."""
    if not isinstance(body, str):
        return body
    try:
        return json.loads(body)
    except ValueError:
        return [json.loads(line) for line in body.splitlines()] if body.startswith('{"type"') else body


def _recorded(response: dict[str, Any]) -> dict[str, Any]:
    warnings = [json.loads(warning.removeprefix("299 - ")) for warning in response["warnings"]]
    return response | {"body": _parsed(response["body"]), "warnings": warnings}


def _document(answer: Answer) -> dict[str, Any]:
    """The answer in the form of the data."""
    return {
        "code": answer.code, "contentType": answer.content_type, "warnings": answer.warnings, "retryAfter": answer.retry_after,
        "body": _parsed(answer.body.decode()),
    }  # fmt: skip


async def replay(send: Send, recording: Recording = BUILT_IN) -> None:
    """Send all requests and compare the answers. An accepted difference that does not occur fails, too."""
    accepted = recording.accepted
    occurred: dict[str, list[str]] = {}
    details: list[str] = []
    for name, request, response in recording.exchanges():
        for method, path, content_type, body in _BETWEEN.get(name, ()):
            answer = await send(method, path, content_type, "application/json", body)
            assert answer.code in (200, 201), answer.body
        for attempt in range(_RETRIES):
            answer = await send(
                request["method"], request["path"], request["contentType"] or "", request["accept"], request["body"]
            )
            expected, actual = normalize(_recorded(response)), normalize(_document(answer))
            paths = list(differences(expected, actual))
            if name not in _RETRIED or not paths or attempt == _RETRIES - 1:
                break
            await asyncio.sleep(_RETRY_DELAY)
        if paths:
            occurred[name] = paths
        if paths != list(accepted.get(name, ((), ""))[0]):
            details.append(f"{name}: {paths}\n  expected {json.dumps(expected)}\n  actual   {json.dumps(actual)}")
    assert not details, "\n".join(details)
    assert {name: tuple(paths) for name, paths in occurred.items()} == {name: paths for name, (paths, _) in accepted.items()}
