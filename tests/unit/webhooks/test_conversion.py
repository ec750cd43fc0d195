"""The conversion of custom objects by the webhook of their definition, through a gateway.

In version v1, a gadget has `spec.size`; in v2, the storage version, it has `spec.dimensions.size`."""

import asyncio
import base64
import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tests.unit.gateway.serving import ADMIN, Gateway, gateway
from tests.webhook_server import WebhookServer

GROUP = "golden.example"
V1 = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
DIMENSIONS = {"type": "object", "properties": {"size": {"type": "integer", "minimum": 0}}}
V2 = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"dimensions": DIMENSIONS}}}}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def objects(version: str, name: str = "") -> str:
    return f"/apis/{GROUP}/{version}/namespaces/default/gadgets{'/' + name if name else ''}"


def gadget(name: str, size: int, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": {"name": name, **metadata}, "spec": {"size": size}}


def definition(hooks: WebhookServer) -> dict[str, Any]:
    config = {"url": hooks.url("convert"), "caBundle": base64.b64encode(hooks.ca_bundle).decode()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "scope": "Namespaced",
            "versions": [
                {"name": "v1", "served": True, "storage": False, "schema": {"openAPIV3Schema": V1}},
                {"name": "v2", "served": True, "storage": True, "schema": {"openAPIV3Schema": V2}},
            ],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1"]},
            },
        },
    }


def convert(form: dict[str, Any], api_version: str) -> dict[str, Any]:
    form = copy.deepcopy(form)
    size = form["spec"]["size"] if form["apiVersion"].endswith("/v1") else form["spec"]["dimensions"]["size"]
    form["spec"] = {"size": size} if api_version.endswith("/v1") else {"dimensions": {"size": size}}
    form["apiVersion"] = api_version
    return form


def answer(request: dict[str, Any]) -> dict[str, Any]:
    converted = [convert(form, request["desiredAPIVersion"]) for form in request["objects"]]
    return {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": converted}


class World:
    def __init__(self, served: Gateway, hooks: WebhookServer) -> None:
        self.served = served
        self.hooks = hooks
        self.respond: Callable[[dict[str, Any]], dict[str, Any]] = answer
        self.hangs = False
        hooks.raw["convert"] = self._handle

    async def _handle(self, request: web.Request, review: dict[str, Any]) -> web.StreamResponse:
        if self.hangs:
            await asyncio.Event().wait()
        return web.json_response(
            {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": self.respond(review["request"])}
        )

    async def ask(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> tuple[int, Any]:
        response = await self.served.ask(method, path, body, user=ADMIN, content_type=content_type)
        return response[0], json.loads(response[2])

    async def create(self, name: str, size: int) -> Any:
        code, created = await self.ask("POST", objects("v1"), gadget(name, size))
        assert code == 201, created
        return created

    @property
    def reviews(self) -> list[dict[str, Any]]:
        return self.hooks.requests("convert")


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    hooks = WebhookServer()
    async with gateway() as served, hooks.run():
        running = World(served, hooks)
        code, created = await running.ask("POST", DEFINITIONS, definition(hooks))
        assert code == 201, created
        yield running


async def test_objects_are_stored_in_the_storage_version_and_served_in_each_version() -> None:
    async with world() as running:
        created = await running.create("a", 3)
        assert created["spec"] == {"size": 3} and created["apiVersion"] == f"{GROUP}/v1"
        code, stored = await running.ask("GET", objects("v2", "a"))
        assert (code, stored["spec"], stored["apiVersion"]) == (200, {"dimensions": {"size": 3}}, f"{GROUP}/v2")
        stored["spec"]["dimensions"]["size"] = 5
        assert (await running.ask("PUT", objects("v2", "a"), stored))[0] == 200
        code, updated = await running.ask("GET", objects("v1", "a"))
        assert updated["spec"] == {"size": 5}
        assert updated["metadata"]["uid"] == created["metadata"]["uid"]


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        ("application/merge-patch+json", {"spec": {"size": 8}}),
        ("application/json-patch+json", [{"op": "replace", "path": "/spec/size", "value": 8}]),
        ("application/apply-patch+yaml", gadget("a", 8)),
    ],
)
async def test_patches_apply_to_the_version_of_their_request(content_type: str, patch: Any) -> None:
    async with world() as running:
        await running.create("a", 3)
        query = "?fieldManager=tests&force=true" if "apply" in content_type else ""
        code, patched = await running.ask("PATCH", objects("v1", "a") + query, patch, content_type)
        assert (code, patched.get("spec")) == (200, {"size": 8}), patched
        assert (await running.ask("GET", objects("v2", "a")))[1]["spec"] == {"dimensions": {"size": 8}}


async def test_list_is_converted_in_one_review_and_not_again() -> None:
    async with world() as running:
        for number in range(5):
            await running.create(f"a{number}", number)
        running.hooks.reviews.clear()
        code, page = await running.ask("GET", objects("v1"))
        assert (code, [item["spec"]["size"] for item in page["items"]]) == (200, [0, 1, 2, 3, 4])
        assert len(running.reviews) <= 1
        running.hooks.reviews.clear()
        await running.ask("GET", objects("v1"))
        await running.ask("GET", objects("v2"))
        assert running.reviews == []


async def test_watch_events_are_in_the_version() -> None:
    async with world() as running:
        await running.create("a", 3)
        watched = await running.served.ask("GET", f"{objects('v1')}?watch=true&timeoutSeconds=1")
        added = [event["object"]["spec"] for event in watched.lines if event["type"] == "ADDED"]
        assert (watched.code, added) == (200, [{"size": 3}])


async def test_watch_fails_with_the_error_of_the_conversion() -> None:
    async with world() as running:
        await running.create("a", 3)
        await running.ask("PATCH", objects("v2", "a"), {"spec": {"dimensions": {"size": 4}}}, "application/merge-patch+json")
        running.respond = with_message
        watched = await running.served.ask("GET", f"{objects('v1')}?watch=true&timeoutSeconds=1")
        assert watched.code == 500 and "failed: no gadgets today" in watched.json["message"]


def with_message(request: dict[str, Any]) -> dict[str, Any]:
    return {"uid": request["uid"], "result": {"status": "Failed", "message": "no gadgets today"}}


def with_another_uid(request: dict[str, Any]) -> dict[str, Any]:
    return answer(request) | {"uid": "other"}


def with_nothing(request: dict[str, Any]) -> dict[str, Any]:
    return answer(request) | {"convertedObjects": []}


def in_another_version(request: dict[str, Any]) -> dict[str, Any]:
    return answer(request) | {"convertedObjects": request["objects"]}


def with_another_name(request: dict[str, Any]) -> dict[str, Any]:
    changed = answer(request)
    changed["convertedObjects"][0]["metadata"]["name"] = "other"
    return changed


def with_a_bad_label(request: dict[str, Any]) -> dict[str, Any]:
    changed = answer(request)
    changed["convertedObjects"][0]["metadata"]["labels"] = {"a": 1}
    return changed


@pytest.mark.parametrize(
    ("respond", "message"),
    [
        (with_message, "failed: no gadgets today"),
        (with_another_uid, "failed: expected response.uid="),
        (with_nothing, "returned 0 objects, expected 1"),
        (
            in_another_version,
            f"returned invalid object at index 0: invalid groupVersion (expected {GROUP}/v1, received",
        ),
        (with_another_name, "returned invalid object: must have the same name: a != other"),
        (with_a_bad_label, "returned invalid metadata: metadata.labels[a] must be a string, but is int in converted object"),
    ],
)
async def test_invalid_conversion_fails_the_read_with_kubernetes_message(
    respond: Callable[[dict[str, Any]], dict[str, Any]], message: str
) -> None:
    async with world() as running:
        code, created = await running.ask(
            "POST", objects("v2"), gadget("a", 3) | {"apiVersion": f"{GROUP}/v2", "spec": {"dimensions": {"size": 3}}}
        )
        assert code == 201, created
        running.respond = respond
        code, status = await running.ask("GET", objects("v1", "a"))
        assert (code, status.get("reason", "")) == (500, "")
        assert status["message"].startswith(f"conversion webhook for {GROUP}/v2, Kind=Gadget {message}")
        assert (await running.ask("GET", objects("v2", "a")))[0] == 200


async def test_conversion_can_change_labels_but_no_other_metadata() -> None:
    def respond(request: dict[str, Any]) -> dict[str, Any]:
        changed = answer(request)
        for form in changed["convertedObjects"]:
            form["metadata"] |= {"labels": {"converted": "yes"}, "finalizers": ["example.com/other"]}
        return changed

    async with world() as running:
        running.respond = respond
        created = await running.create("a", 3)
        assert created["metadata"]["labels"] == {"converted": "yes"}
        assert "finalizers" not in created["metadata"]


async def test_hanging_webhook_delays_nobody_else() -> None:
    async with world() as running:
        await running.create("a", 3)
        running.hangs = True
        waiting = [asyncio.create_task(running.ask("POST", objects("v1"), gadget(f"b{number}", 1))) for number in range(50)]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            assert (await running.ask("GET", objects("v2", "a")))[0] == 200
            assert (await running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}}))[0] == 201
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_objects_are_deleted_through_either_version() -> None:
    async with world() as running:
        for version in ("v1", "v2"):
            await running.create("a", 3)
            assert (await running.ask("DELETE", objects(version, "a")))[0] == 200
            assert (await running.ask("GET", objects(version, "a")))[0] == 404
