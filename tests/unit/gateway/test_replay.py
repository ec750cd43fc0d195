"""Replayed requests with the recorded responses of kube-apiserver 1.36: code, media type, warnings and body.

tests/clients/data/kubernetes-replay-1.36.jsonl has the requests with the responses. managedFields, and the descriptions of a
table's columns, are left out. UIDs, resource versions and times are not compared. Null values, empty resources of containers
and an empty status are treated as absent: protobuf distinguishes absent messages from empty ones, and an update with them
would be a change. `replay_differences` has the accepted differences with their
reasons; an accepted difference that does not occur fails the test, too. managedFields are compared after server-side applies
only: other objects have none.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway.http import ANONYMOUS
from tests.unit.gateway.replay_differences import ACCEPTED
from tests.unit.gateway.serving import ADMIN, Answer, gateway

DATA = Path(__file__).parents[2] / "clients/data/kubernetes-replay-1.36.jsonl"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
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
BETWEEN: Mapping[str, Sequence[tuple[str, str, str, Any]]] = {
    "merge patch label": [("PATCH", f"{_PODS}/a", MERGE, {"spec": {"containers": [{"name": "c", "image": "i:2"}]}})],
    "status by main resource is ignored": [("PATCH", f"{_PODS}/a/status", MERGE, {"status": _STATUS})],
    "update takes ownership": [("PATCH", f"{_DEPLOYMENTS}/web?fieldManager=carol", APPLY, _WEB)],
}
"""Requests that precede an exchange and that the data do not contain, by the name of the exchange."""
_VARYING = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"^gen-\w{5}$"), "gen-XXXXX"),
    (re.compile(r"^\d+s$"), "AGE"),
)
_VOLATILE = {"resourceVersion": "RV"}
_DROPPED = ("managedFields", "description")


class Exchange(NamedTuple):
    name: str
    request: dict[str, Any]
    response: dict[str, Any]


def exchanges() -> list[Exchange]:
    return [Exchange(**json.loads(line)) for line in DATA.read_text().splitlines()]


def plain(value: Any) -> Any:
    """The value without the parts that differ between two runs."""
    match value:
        case dict():
            return {
                key: _VOLATILE[key] if key in _VOLATILE and each else plain(each)
                for key, each in value.items()
                if key not in _DROPPED and each is not None and (key, each) not in (("resources", {}), ("status", {}))
            }
        case list():
            return [plain(each) for each in value]
        case str():
            for pattern, text in _VARYING:
                value = pattern.sub(text, value)
            return value
    return value


def differences(expected: Any, found: Any, path: str = "") -> Iterator[str]:
    """The paths at which two JSON values differ, including fields that only one of them has."""
    match expected, found:
        case dict(), dict():
            for key in sorted({*expected, *found}):
                where = f"{path}.{key}" if path else key
                if key in expected and key in found:
                    yield from differences(expected[key], found[key], where)
                else:
                    yield where
        case list(), list() if len(expected) == len(found):
            for index, pair in enumerate(zip(expected, found, strict=True)):
                yield from differences(*pair, f"{path}[{index}]")
        case _ if expected != found:
            yield path


def owners(obj: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The managedFields, sorted by manager, without times."""
    entries = sorted(obj["metadata"]["managedFields"], key=lambda each: each["manager"])
    return [plain(each) for each in entries]


def shown(answer: Answer) -> dict[str, Any]:
    """The response in the format of the data."""
    text = answer.body.decode()
    try:
        body: Any = json.loads(text)
    except ValueError:
        body = [json.loads(line) for line in text.splitlines()] if text.startswith('{"type"') else text
    return {
        "code": answer.code, "contentType": answer.content_type, "warnings": answer.warnings, "retryAfter": answer.retry_after,
        "body": body,
    }  # fmt: skip


def wanted(response: dict[str, Any]) -> dict[str, Any]:
    body = response["body"]
    if isinstance(body, str) and body.startswith('{"type"'):
        body = [json.loads(line) for line in body.splitlines()]
    warnings = [json.loads(each.removeprefix("299 - ")) for each in response["warnings"]]
    return response | {"body": body, "warnings": warnings}


async def test_responses_match_kube_apiserver() -> None:
    found: dict[str, list[str]] = {}
    details: list[str] = []
    async with gateway() as served:
        for each in exchanges():
            for method, path, content_type, body in BETWEEN.get(each.name, ()):
                done = await served.ask(method, path, body, content_type=content_type)
                assert done.code in (200, 201), done.body
            request = each.request
            answer = await served.ask(
                request["method"],
                request["path"],
                request["body"],
                accept=request["accept"].removesuffix(";anonymous"),
                content_type=request["contentType"] or "",
                user=ANONYMOUS if request["accept"].endswith(";anonymous") else ADMIN,
            )
            expected, got = plain(wanted(each.response)), plain(shown(answer))
            if request["contentType"] == APPLY and answer.code < 400:
                assert owners(answer.json) == owners(each.response["body"]), each.name
            if paths := list(differences(expected, got)):
                found[each.name] = paths
                if paths != list(ACCEPTED.get(each.name, ((), ""))[0]):
                    details.append(f"{each.name}: {paths}\n  expected {json.dumps(expected)}\n  got      {json.dumps(got)}")
    assert not details, "\n".join(details)
    assert {name: paths for name, (paths, _) in ACCEPTED.items()} == {name: tuple(paths) for name, paths in found.items()}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_difference_has_a_reason_and_a_request(name: str) -> None:
    assert ACCEPTED[name][1] and name in {each.name for each in exchanges()}
