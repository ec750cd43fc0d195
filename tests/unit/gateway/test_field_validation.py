"""Unknown fields in requests: fieldValidation, warnings, and statuses of exported objects."""

from typing import Any

import pytest

from pinnace.gateway.http import Response
from pinnace.gateway.server import response_head
from tests.unit.gateway.serving import gateway

PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"


def pod(**parts: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "nginx"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": containers}} | parts


@pytest.mark.parametrize(
    ("query", "code", "warnings"),
    [
        ("", 200, ['unknown field "spec.bogus"']),
        ("?fieldValidation=Warn", 200, ['unknown field "spec.bogus"']),
        ("?fieldValidation=Ignore", 200, []),
        ("?fieldValidation=Strict", 400, []),
    ],
)
async def test_unknown_fields_of_a_patch(query: str, code: int, warnings: list[str]) -> None:
    """`kubectl apply --validate=warn` patches an object that exists."""
    async with gateway() as served:
        assert (await served.ask("POST", PODS, pod())).code == 201
        patch = {"metadata": {"labels": {"b": "c"}}, "spec": {"bogus": 1}}
        answer = await served.ask("PATCH", f"{PODS}/a{query}", patch, content_type=MERGE)
        assert (answer.code, answer.warnings) == (code, warnings)
        if code == 400:
            assert answer.json["message"].endswith('strict decoding error: unknown field "spec.bogus"')
        else:
            assert answer.json["metadata"]["labels"] == {"b": "c"}


@pytest.mark.parametrize(
    ("api_version", "kind", "message"),
    [
        (
            "apps/v1",
            "Deployment",
            'Deployment in version "v1" cannot be handled as a Pod: converting (v1.Deployment) to (core.Pod): '
            "unknown conversion",
        ),
        (
            "apps/v1",
            "Pod",
            'Pod in version "v1" cannot be handled as a Pod: no kind "Pod" is registered for version "apps/v1" in scheme '
            '"pkg/api/legacyscheme/scheme.go:30"',
        ),
    ],
)
async def test_object_of_another_type_is_refused(api_version: str, kind: str, message: str) -> None:
    async with gateway() as served:
        answer = await served.ask("POST", PODS, pod(apiVersion=api_version, kind=kind))
        assert (answer.code, answer.json["message"]) == (400, message)


@pytest.mark.parametrize(
    ("field", "value", "found"), [("apiVersion", ["v1"], "array"), ("kind", {"a": 1}, "object"), ("kind", 1, "number")]
)
async def test_type_that_is_no_text_is_refused(field: str, value: Any, found: str) -> None:
    async with gateway() as served:
        answer = await served.ask("POST", PODS, pod(**{field: value}))
        assert answer.code == 400
        assert f"json: cannot unmarshal {found} into Go struct field .{field} of type string" in answer.json["message"]


async def test_unknown_fields_of_a_status_are_reset() -> None:
    """An exported object has the status of another version (kubernetes#90066). Unknown fields of the spec remain errors."""
    async with gateway() as served:
        strict = f"{PODS}?fieldValidation=Strict"
        exported = pod(status={"phase": "Running", "resourceClaimStatuses": [{"name": "x"}]})
        created = await served.ask("POST", strict, exported)
        assert (created.code, created.warnings, created.json["status"]["phase"]) == (201, [], "Pending")
        patch = {"status": {"resourceClaimStatuses": [{"name": "x"}]}, "metadata": {"labels": {"b": "c"}}}
        patched = await served.ask("PATCH", f"{PODS}/a?fieldValidation=Strict", patch, content_type=MERGE)
        assert (patched.code, patched.warnings, patched.json["metadata"]["labels"]) == (200, [], {"b": "c"})
        refused = await served.ask("POST", strict, pod(spec={"containers": [], "bogus": 1}))
        assert refused.code == 400 and 'unknown field "spec.bogus"' in refused.json["message"]


def test_each_warning_has_a_header() -> None:
    head = response_head(Response(200, b""), ["first", 'the "second"'], 0, chunked=True, keep_alive=True, compressed=False)
    warnings = [line for line in head.decode().splitlines() if line.startswith("Warning")]
    assert warnings == ['Warning: 299 - "first"', 'Warning: 299 - "the \\"second\\""']
