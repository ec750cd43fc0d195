"""Lists, gets and watches with resourceVersion, resourceVersionMatch and limit: the responses of kube-apiserver 1.36."""

import asyncio

import pytest

from pinnace.apiserver.cacher import cacher
from tests.unit.gateway.serving import gateway

FUTURE = 10**12
PODS = "/api/v1/namespaces/default/pods"
TOO_LARGE = [
    f"{PODS}?resourceVersion={FUTURE}",
    f"{PODS}?resourceVersion={FUTURE}&resourceVersionMatch=NotOlderThan",
    f"{PODS}?resourceVersion={FUTURE}&resourceVersionMatch=Exact",
    f"{PODS}?resourceVersion={FUTURE}&limit=1",
    f"{PODS}/a?resourceVersion={FUTURE}",
    f"{PODS}?watch=1&resourceVersion={FUTURE}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    f"/api/v1/replicationcontrollers?resourceVersion={FUTURE}",
    f"/apis/events.k8s.io/v1/events?resourceVersion={FUTURE}",
]


def test_wait_for_a_future_revision_is_that_of_kubernetes() -> None:
    assert cacher.FUTURE_TIMEOUT == 3.0


async def test_read_at_future_revision_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cacher, "FUTURE_TIMEOUT", 0.01)
    async with gateway() as served:
        for target in TOO_LARGE:
            answer = await served.ask("GET", target)
            current = answer.json["message"].rpartition(" ")[2]
            assert current.isdigit()
            message = f"Timeout: Too large resource version: {FUTURE}, current: {current}"
            causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
            assert answer.json == {
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                "reason": "Timeout", "details": {"causes": causes, "retryAfterSeconds": 1}, "code": 504,
            }, target  # fmt: skip
            assert answer.code == 504 and answer.retry_after == "1"


@pytest.mark.parametrize("query", ["", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"])
async def test_watch_from_future_revision_ends_with_an_error(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is longer than the time in which an error is the status of the response."""
    monkeypatch.setattr(cacher, "FUTURE_TIMEOUT", 0.5)
    async with gateway() as served:
        answer = await served.ask("GET", f"{PODS}?watch=1&resourceVersion={FUTURE}{query}")
        assert answer.code == 200
        (event,) = answer.lines
        assert (event["type"], event["object"]["code"]) == ("ERROR", 504)
        assert event["object"]["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_list_at_resource_version_zero_ignores_the_limit() -> None:
    async with gateway() as served:
        for name in ("a", "b", "c"):
            body = {"metadata": {"name": name}}
            assert (await served.ask("POST", "/api/v1/namespaces/default/configmaps", body)).code == 201
        home = "/api/v1/namespaces/default/configmaps"
        for match in ("", "&resourceVersionMatch=NotOlderThan"):
            whole = (await served.ask("GET", f"{home}?limit=1&resourceVersion=0{match}")).json
            assert len(whole["items"]) == 3 and "continue" not in whole["metadata"]
        page = (await served.ask("GET", f"{home}?limit=1")).json
        rest = (await served.ask("GET", f"{home}?limit=1&resourceVersion=0&continue={page['metadata']['continue']}")).json
        assert [len(item["items"]) for item in (page, rest)] == [1, 1]


_UNLESS = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
_CONTINUE = "Forbidden: resourceVersionMatch is forbidden when continue is provided"
_ZERO = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
_LIST_UNKNOWN = 'Unsupported value: "Newest": supported values: "Exact", "NotOlderThan", ""'
_WATCH_UNKNOWN = 'Unsupported value: "Exact": supported values: "NotOlderThan"'
_WATCH_ALONE = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
_WATCH_NEEDS = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
_MATCH = "resourceVersionMatch"


@pytest.mark.parametrize(
    ("query", "errors"),
    [
        ("resourceVersionMatch=Exact", [(_MATCH, _UNLESS)]),
        ("resourceVersionMatch=Exact&resourceVersion=0", [(_MATCH, _ZERO)]),
        ("resourceVersionMatch=Newest&resourceVersion=1", [(_MATCH, _LIST_UNKNOWN)]),
        ("resourceVersionMatch=Newest", [(_MATCH, _UNLESS), (_MATCH, _LIST_UNKNOWN)]),
        ("resourceVersionMatch=Exact&resourceVersion=1&continue=x", [(_MATCH, _CONTINUE)]),
        ("sendInitialEvents=true", [("sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list")]),
        ("watch=1&sendInitialEvents=true", [(_MATCH, _WATCH_NEEDS)]),
        ("watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1", [(_MATCH, _WATCH_ALONE)]),
        ("watch=1&resourceVersionMatch=Exact&resourceVersion=1", [(_MATCH, _WATCH_ALONE), (_MATCH, _WATCH_UNKNOWN)]),
    ],
)
async def test_invalid_list_options_are_unprocessable(query: str, errors: list[tuple[str, str]]) -> None:
    async with gateway() as served:
        for path in (PODS, "/api/v1/replicationcontrollers", "/apis/pinnace.io/v1/elections"):
            answer = await served.ask("GET", f"{path}?{query}")
            assert answer.code == 422, path
            texts = [f"{field}: {message}" for field, message in errors]
            joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
            assert answer.json["message"] == f'ListOptions.meta.k8s.io "" is invalid: {joined}'
            details = answer.json["details"]
            assert (details["group"], details["kind"]) == ("meta.k8s.io", "ListOptions")
            assert [(detail["field"], detail["message"]) for detail in details["causes"]] == errors


async def test_integers_of_queries_are_those_of_go() -> None:
    async with gateway() as served:
        for value, problem in (
            ("1_0", "invalid syntax"),
            (" 1", "invalid syntax"),
            ("%D9%A3", "invalid syntax"),
            ("9" * 20, "value out of range"),
            ("9" * 5000, "value out of range"),
        ):
            async with asyncio.timeout(10):
                answer = await served.ask("GET", f"{PODS}?limit={value}")
            assert answer.code == 400 and answer.json["message"].endswith(f": {problem}"), value[:32]
