"""What webhooks receive and answer through a gateway, as Kubernetes' clients and webhooks see it."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.gateway.serving import Answer, Gateway, gateway
from tests.webhook_server import WebhookServer, allow, deny

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
META = "meta.k8s.io/v1"


@asynccontextmanager
async def reviewed(hooks: WebhookServer) -> AsyncIterator[Gateway]:
    """A gateway whose ConfigMaps are reviewed at the path v."""
    bundle = base64.b64encode(hooks.ca_bundle).decode()
    webhook = {
        "name": "v.example.com",
        "clientConfig": {"url": hooks.url("v"), "caBundle": bundle},
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    async with gateway() as served:
        created = await served.ask("POST", CONFIGURATIONS, {"metadata": {"name": "v"}, "webhooks": [webhook]})
        assert created.code == 201, created.json
        for _ in range(200):  # until the configuration has reached the cache
            if not hooks.reviews:
                await create(served, "?dryRun=All")
                await asyncio.sleep(0.01)
        hooks.reviews.clear()
        yield served


async def create(served: Gateway, query: str = "", **more: Any) -> Answer:
    return await served.ask("POST", f"{CONFIG_MAPS}{query}", {"metadata": {"name": "a"}, "data": {"x": "y"}}, **more)


@pytest.fixture
async def hooks() -> AsyncIterator[WebhookServer]:
    server = WebhookServer()
    server.answers = {"v": allow}
    async with server.run():
        yield server


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {}),
        ("?fieldManager=me", {"fieldManager": "me"}),
        ("?fieldValidation=Strict&dryRun=All", {"fieldValidation": "Strict", "dryRun": ["All"]}),
    ],
)
async def test_webhook_sees_options_that_the_client_has_sent(
    hooks: WebhookServer, query: str, expected: dict[str, Any]
) -> None:
    """The manager that the server derives from the user agent, and defaults, are not among them."""
    async with reviewed(hooks) as served:
        created = await create(served, query, agent="tool/1.0")
        assert created.code == 201, created.json
        patched = await served.ask("PATCH", f"{CONFIG_MAPS}/a{query}", {"data": {"a": "b"}}, content_type=MERGE, agent="tool/1")
        assert patched.code == (404 if "dryRun" in query else 200)
        managers = {entry["manager"] for entry in created.json["metadata"]["managedFields"]}
    assert managers == {expected.get("fieldManager", "tool")}
    kinds = ["CreateOptions"] if "dryRun" in query else ["CreateOptions", "UpdateOptions"]
    seen = [request["options"] for request in hooks.requests("v")]
    assert seen == [{"kind": kind, "apiVersion": META} | expected for kind in kinds]


async def test_options_of_an_apply_are_those_of_its_operation(hooks: WebhookServer) -> None:
    body = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}})
    async with reviewed(hooks) as served:
        for _ in range(2):
            applied = await served.ask(
                "PATCH", f"{CONFIG_MAPS}/a?fieldManager=me&force=true", body.replace('"b"', '"c"'), content_type=APPLY
            )
            assert applied.code in (200, 201)
            body = body.replace('"a": "b"', '"a": "d"')
    (request, *_) = hooks.requests("v")
    assert (request["operation"], request["options"]) == (
        "CREATE",
        {"kind": "CreateOptions", "apiVersion": META, "fieldManager": "me"},
    )


async def test_denial_can_name_the_seconds_after_which_to_retry(hooks: WebhookServer) -> None:
    async with reviewed(hooks) as served:
        hooks.answers = {"v": deny(code=429, message="slowly", details={"retryAfterSeconds": 7})}
        denied = await create(served)
    assert (denied.code, denied.retry_after) == (429, "7")
    assert denied.json["details"] == {"retryAfterSeconds": 7}
