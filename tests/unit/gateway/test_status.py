"""A Status has the same fields as JSON and as protobuf."""

from collections.abc import Iterator
from typing import Any

import pytest

from pinnace.api import resources
from pinnace.api.codec import to_dict
from pinnace.api.meta_v1_pb2 import Status
from pinnace.api.status import APPLY_CONFLICT, UNTYPED, Code, Refusal, Violation
from pinnace.client.errors import OutcomeUnknown, Timeout, from_refusal
from pinnace.gateway import api_resources, http
from pinnace.gateway.errors import convert_error, invalid_object, invalid_options
from pinnace.gateway.http import ApiStatus, success_status_object
from pinnace.gateway.media_types import PROTOBUF, unsupported_media_type, unwrap_protobuf
from pinnace.gateway.status import encode_status
from tests.unit.gateway.serving import gateway

PODS = api_resources.api_resource_of(resources.PODS)
DEPLOYMENTS = api_resources.api_resource_of(resources.DEPLOYMENTS)
_REASONS = {
    Code.NOT_FOUND: ("NamespaceNotFound",),
    Code.ABORTED: ("Conflict", "UIDMismatch", APPLY_CONFLICT),
    Code.INVALID_ARGUMENT: ("Invalid", "BadRequest", UNTYPED, "ResourceVersionTooLarge"),
    Code.RESOURCE_EXHAUSTED: ("DisruptionBudget", "RequestTooLarge", "OutOfSpace"),
    Code.UNAVAILABLE: ("TooManyRequests", "CacheBehind"),
}
_VIOLATIONS = (Violation("spec.replicas", "Invalid value: -1"), Violation("", "Required value"))


def decoded(envelope: bytes) -> dict[str, Any]:
    unwrapped = unwrap_protobuf(envelope)
    head = {"kind": unwrapped.kind, "apiVersion": unwrapped.api_version}
    return head | to_dict(Status.FromString(unwrapped.data))


def errors() -> Iterator[ApiStatus]:
    for code in Code:
        for reason in ("", *_REASONS.get(code, ())):
            for violations in ((), _VIOLATIONS):
                refusal = Refusal(code, reason, 'namespaces "x": an error', violations, retry_after=1.0)
                for resource, name in ((None, ""), (PODS, "a"), (DEPLOYMENTS, "")):
                    yield convert_error(from_refusal(refusal), resource, name)
    for error in (OutcomeUnknown, Timeout):
        yield convert_error(error(Refusal(Code.UNAVAILABLE, "", "an error")), PODS, "a")
    yield from (http.bad_request("x"), http.path_not_found(), http.method_not_allowed(), http.unauthorized())
    yield http.not_found("deployments.apps", "web")
    yield invalid_options("CreateOptions", "dryRun", "Unsupported value")
    yield invalid_object(DEPLOYMENTS, "web", _VIOLATIONS)
    yield unsupported_media_type(("application/json",))
    yield ApiStatus(409, "Conflict", "über", {"name": "a", "kind": "pods", "uid": "u"}, retry_after=0)


def test_protobuf_of_an_error_has_the_fields_of_its_json() -> None:
    for status in errors():
        document = status.document
        if document.get("details", {}).get("retryAfterSeconds") == 0:
            del document["details"]["retryAfterSeconds"]  # 0 is absent in protobuf
        assert decoded(encode_status(document)) == document


def test_protobuf_of_a_success_has_the_fields_of_its_json() -> None:
    for document in (
        success_status_object(),
        success_status_object(code=201),
        success_status_object({"name": "a", "group": "apps", "kind": "deployments", "uid": "u"}),
    ):
        assert decoded(encode_status(document)) == document


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/api/v1/namespaces/default/pods/nobody"),
        ("GET", "/apis/apps/v1/namespaces/default/deployments/nobody"),
        ("GET", "/apis/apps/v1/widgets"),
        ("PUT", "/api/v1/namespaces/default/pods"),
        ("GET", "/api/v1/pods?limit=x"),
        ("GET", "/api/v1/pods?resourceVersionMatch=Exact"),
        ("GET", "/api/v1/pods?continue=x"),
        ("GET", "/api/v1/pods?watch=1&sendInitialEvents=true"),
        ("DELETE", "/api/v1/namespaces/default"),
        ("DELETE", "/api/v1/namespaces/default/configmaps"),
        ("DELETE", "/api/v1/namespaces/default/configmaps/a?dryRun=All"),
    ],
)
async def test_status_is_negotiated(method: str, target: str) -> None:
    async with gateway() as served:
        configmap = {"metadata": {"name": "a"}}
        assert (await served.ask("POST", "/api/v1/namespaces/default/configmaps", configmap)).code == 201
        text = await served.ask(method, target)
        binary = await served.ask(method, target, accept=PROTOBUF)
        assert (binary.code, binary.content_type) == (text.code, PROTOBUF)
        assert text.json["kind"] == "Status" and decoded(binary.body) == text.json


@pytest.mark.parametrize(
    "path", ["/api/", "/api/v1/", "/apis/", "/apis/apps/", "/apis/apps/v1/", "/openapi/v2/", "/openapi/v3/", "/version/"]
)
async def test_discovery_accepts_a_trailing_slash(path: str) -> None:
    async with gateway() as served:
        slash, plain = await served.ask("GET", path), await served.ask("GET", path.rstrip("/"))
        assert slash.code == 200 and slash == plain
