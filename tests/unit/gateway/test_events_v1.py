"""Events through events.k8s.io/v1: its fields, rules, numbers and selectors, and the same events through v1."""

import json
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor

from pinnace.api.codec import field_description, from_dict, to_dict
from pinnace.api.conversion import conversion_of, conversion_to, renamed_fields
from pinnace.api.events_v1_pb2 import Event, EventList, EventSeries
from pinnace.api.resources import EVENTS, EVENTS_V1, PODS
from pinnace.api.wire import kubernetes_envelope
from pinnace.gateway.api_resources import resources_in_version
from pinnace.gateway.http import User
from pinnace.gateway.media_types import PROTOBUF, YAML, unwrap_protobuf
from pinnace.gateway.openapi import document_v3
from tests.unit.gateway.serving import Gateway, gateway

V1 = "/api/v1/namespaces/default/events"
EVENTS_K8S_IO = "/apis/events.k8s.io/v1/namespaces/default/events"
TIME = "2026-01-31T12:00:00.123456Z"
APPLY = "application/apply-patch+yaml"
EVENT: dict[str, Any] = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "a"},
    "eventTime": TIME,
    "reportingController": "kueue.x-k8s.io/manager",
    "reportingInstance": "kueue-0",
    "action": "Admit",
    "reason": "Admitted",
    "regarding": {"kind": "Pod", "namespace": "default", "name": "p", "uid": "u"},
    "related": {"kind": "Node", "name": "n"},
    "note": "Admitted by the queue",
    "type": "Normal",
}
STORED: dict[str, Any] = {
    "eventTime": TIME,
    "reportingComponent": "kueue.x-k8s.io/manager",
    "reportingInstance": "kueue-0",
    "action": "Admit",
    "reason": "Admitted",
    "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p", "uid": "u"},
    "related": {"kind": "Node", "name": "n"},
    "message": "Admitted by the queue",
    "type": "Normal",
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
}
SERVED = {name: value for name, value in EVENT.items() if name not in ("apiVersion", "kind", "metadata")}
OLD: dict[str, Any] = {
    "metadata": {"name": "old"},
    "involvedObject": {"kind": "Node", "name": "n"},
    "reason": "Ready",
    "message": "The node is ready",
    "source": {"component": "kubelet", "host": "n"},
    "firstTimestamp": "2026-01-31T12:00:00Z",
    "lastTimestamp": "2026-01-31T12:00:01Z",
    "count": 3,
    "type": "Normal",
}


def fields(document: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an event without its type and metadata."""
    return {name: value for name, value in document.items() if name not in ("apiVersion", "kind", "metadata")}


async def create(served: Gateway, document: dict[str, Any] = EVENT, path: str = EVENTS_K8S_IO) -> dict[str, Any]:
    answer = await served.ask("POST", path, document)
    assert answer.code == 201, answer.body
    created: dict[str, Any] = answer.json
    return created


async def test_event_is_shown_in_both_versions() -> None:
    async with gateway() as served:
        created = await create(served)
        assert (created["apiVersion"], created["kind"]) == ("events.k8s.io/v1", "Event")
        assert fields(created) == SERVED | {
            "deprecatedSource": {}, "deprecatedFirstTimestamp": None, "deprecatedLastTimestamp": None
        }  # fmt: skip
        assert (await served.ask("GET", f"{EVENTS_K8S_IO}/a")).json == created
        stored = (await served.ask("GET", f"{V1}/a")).json
        assert stored["apiVersion"] == "v1" and fields(stored) == STORED
        await create(served, OLD, V1)
        old = fields((await served.ask("GET", f"{EVENTS_K8S_IO}/old")).json)
        assert old == {
            "regarding": OLD["involvedObject"],
            "reason": "Ready",
            "note": "The node is ready",
            "eventTime": None,
            "deprecatedSource": OLD["source"],
            "deprecatedFirstTimestamp": OLD["firstTimestamp"],
            "deprecatedLastTimestamp": OLD["lastTimestamp"],
            "deprecatedCount": 3,
            "type": "Normal",
        }


async def test_protobuf_has_the_numbers_of_the_version() -> None:
    async with gateway() as served:
        body = kubernetes_envelope("events.k8s.io/v1", "Event", from_dict(Event, EVENT).SerializeToString())
        answer = await served.ask("POST", EVENTS_K8S_IO, body, accept=PROTOBUF, content_type=PROTOBUF)
        assert answer.code == 201, answer.body
        result = unwrap_protobuf(answer.body)
        assert (result.api_version, result.kind) == ("events.k8s.io/v1", "Event")
        event = Event.FromString(result.data)
        assert (event.note, event.regarding.name, event.reportingController) == (
            "Admitted by the queue", "p", "kueue.x-k8s.io/manager",
        )  # fmt: skip
        page = unwrap_protobuf((await served.ask("GET", EVENTS_K8S_IO, accept=PROTOBUF)).body)
        assert page.kind == "EventList"
        items = EventList.FromString(page.data)
        assert [item.note for item in items.items] == [event.note] and items.metadata.resourceVersion


async def test_lists_and_watches_are_in_the_version() -> None:
    async with gateway() as served:
        created = await create(served)
        listed = (await served.ask("GET", EVENTS_K8S_IO)).json
        assert (listed["kind"], listed["apiVersion"]) == ("EventList", "events.k8s.io/v1")
        assert [fields(item) for item in listed["items"]] == [fields(created)]
        assert [fields(item) for item in (await served.ask("GET", V1)).json["items"]] == [STORED]
        query = "watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        lines = (await served.ask("GET", f"{EVENTS_K8S_IO}?{query}")).lines
        assert [line["type"] for line in lines] == ["ADDED", "BOOKMARK"]
        assert lines[0]["object"] == created and lines[1]["object"]["apiVersion"] == "events.k8s.io/v1"
        text = (await served.ask("GET", f"{EVENTS_K8S_IO}/a", accept=YAML)).body.decode()
        assert "note: Admitted by the queue" in text


async def test_tables_print_the_event_and_include_the_version() -> None:
    async with gateway() as served:
        await create(served)
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
        tables = [(await served.ask("GET", f"{path}?includeObject=Object", accept=accept)).json for path in (EVENTS_K8S_IO, V1)]
        rows = [table["rows"][0] for table in tables]
        assert rows[0]["cells"] == rows[1]["cells"] and "Admitted by the queue" in rows[0]["cells"]
        assert [("note" in row["object"], "message" in row["object"]) for row in rows] == [(True, False), (False, True)]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("regarding.kind=Pod", ["a"]),
        ("regarding.kind=Node,regarding.name=n", ["old"]),
        ("regarding.uid=u,regarding.namespace=default", ["a"]),
        ("reportingController=kueue.x-k8s.io/manager", ["a"]),
        ("reason!=Ready,type=Normal", ["a"]),
        ("metadata.name=old", ["old"]),
    ],
)
async def test_field_selectors_are_those_of_the_version(selector: str, names: list[str]) -> None:
    async with gateway() as served:
        await create(served)
        await create(served, OLD, V1)
        result = (await served.ask("GET", f"{EVENTS_K8S_IO}?fieldSelector={selector}")).json
        assert [item["metadata"]["name"] for item in result["items"]] == names
        lines = (await served.ask("GET", f"{EVENTS_K8S_IO}?watch=1&timeoutSeconds=1&fieldSelector={selector}")).lines
        assert [line["object"]["metadata"]["name"] for line in lines] == names


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (EVENTS_K8S_IO, "involvedObject.kind"),
        (EVENTS_K8S_IO, "reportingComponent"),
        (EVENTS_K8S_IO, "source"),
        (V1, "regarding.kind"),
        (V1, "reportingController"),
    ],
)
async def test_fields_of_the_other_version_cannot_be_selected(path: str, field: str) -> None:
    async with gateway() as served:
        answer = await served.ask("GET", f"{path}?fieldSelector={field}=x")
        assert (answer.code, answer.json["message"]) == (400, f"field label not supported: {field}")
        assert (await served.ask("DELETE", f"{path}?fieldSelector={field}=x")).code == 400


@pytest.mark.parametrize("kind", ["merge-patch+json", "strategic-merge-patch+json", "json-patch+json"])
async def test_patches_have_the_field_names_of_the_version(kind: str) -> None:
    """The recorders of client-go patch the series of an event."""
    async with gateway() as served:
        await create(served)
        series = {"count": 2, "lastObservedTime": "2026-01-31T12:00:05.000000Z"}
        patch: Any = {"series": series}
        if kind == "json-patch+json":
            patch = [
                {"op": "test", "path": "/note", "value": EVENT["note"]},
                {"op": "add", "path": "/series", "value": series},
            ]
        answer = await served.ask("PATCH", f"{EVENTS_K8S_IO}/a", patch, content_type=f"application/{kind}")
        assert answer.code == 200 and answer.json["series"] == series
        assert (await served.ask("GET", f"{V1}/a")).json["series"] == series
        stored_name = [{"op": "test", "path": "/message", "value": "x"}] if kind == "json-patch+json" else {"message": "x"}
        target = f"{EVENTS_K8S_IO}/a?fieldValidation=Strict"
        assert (await served.ask("PATCH", target, stored_name, content_type=f"application/{kind}")).code in (400, 422)


async def test_updates_of_the_version_change_only_the_series() -> None:
    async with gateway() as served:
        created = await create(served)
        refused = await served.ask("PUT", f"{EVENTS_K8S_IO}/a", created | {"note": "other"})
        assert (refused.code, refused.json["message"]) == (
            422,
            'Event.events.k8s.io "a" is invalid: message: Invalid value: "other": field is immutable',
        )
        assert (
            await served.ask("PUT", f"{V1}/a", (await served.ask("GET", f"{V1}/a")).json | {"message": "other"})
        ).code == 200


async def test_rules_are_those_of_the_version() -> None:
    async with gateway() as served:
        refused = await served.ask("POST", EVENTS_K8S_IO, {"metadata": {"name": "b"}, "note": "x", "deprecatedCount": 1})
        assert refused.code == 422
        causes = [(item["field"], item["message"]) for item in refused.json["details"]["causes"]]
        assert causes == [
            ("eventTime", "Required value"),
            ("type", 'Invalid value: "": has invalid value: '),
            ("count", 'Invalid value: "": needs to be unset'),
        ]
        assert refused.json["details"]["group"] == "events.k8s.io"
        legacy = {"metadata": {"name": "b"}, "message": "x", "count": 1}
        assert (await served.ask("POST", V1, legacy)).code == 201
        unknown = await served.ask("POST", f"{EVENTS_K8S_IO}?fieldValidation=Strict", EVENT | {"message": "x"})
        assert (unknown.code, unknown.json["message"]) == (
            400,
            'Event in version "v1" cannot be handled as a Event: strict decoding error: unknown field "message"',
        )


async def test_applied_fields_have_the_names_of_the_version() -> None:
    async with gateway() as served:
        target = f"{EVENTS_K8S_IO}/a?fieldManager=alice"
        applied = await served.ask("PATCH", target, EVENT, content_type=APPLY)
        assert applied.code == 201, applied.body
        entry = applied.json["metadata"]["managedFields"][0]
        assert entry["apiVersion"] == "events.k8s.io/v1" and "f:note" in entry["fieldsV1"]
        assert (await served.ask("GET", f"{V1}/a")).json["metadata"]["managedFields"][0] == entry
        again = await served.ask("PATCH", target, EVENT, content_type=APPLY)
        assert (again.code, again.json) == (200, applied.json)

        stored = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "message": "mine"}
        conflict = await served.ask("PATCH", f"{V1}/a?fieldManager=bob", stored, content_type=APPLY)
        assert conflict.code == 409
        assert [item["field"] for item in conflict.json["details"]["causes"]] == [".message"]
        forced = await served.ask("PATCH", f"{V1}/a?fieldManager=bob&force=true", stored, content_type=APPLY)
        owners = {item["manager"]: item for item in forced.json["metadata"]["managedFields"]}
        assert owners["bob"]["fieldsV1"] == {"f:message": {}} and owners["bob"]["apiVersion"] == "v1"
        assert "f:note" not in owners["alice"]["fieldsV1"] and owners["alice"]["apiVersion"] == "events.k8s.io/v1"
        wrong = await served.ask("PATCH", target, EVENT | {"message": "x"}, content_type=APPLY)
        assert wrong.code == 500 and "(/a; events.k8s.io/v1, Kind=Event): .message: field not declared" in wrong.json["message"]


async def test_delete_returns_the_version() -> None:
    async with gateway() as served:
        created = await create(served)
        deleted = await served.ask("DELETE", f"{EVENTS_K8S_IO}/a")
        assert deleted.json["details"] == {
            "name": "a", "group": "events.k8s.io", "kind": "events", "uid": created["metadata"]["uid"],
        }  # fmt: skip
        await create(served)
        await create(served, OLD, V1)
        assert (await served.ask("DELETE", f"{EVENTS_K8S_IO}?fieldSelector=regarding.kind=Pod")).code == 200
        assert [item["metadata"]["name"] for item in (await served.ask("GET", V1)).json["items"]] == ["old"]


async def test_permissions_are_those_of_the_group() -> None:
    user = User("recorder", ("system:authenticated",))
    async with gateway() as served:
        rule = {"verbs": ["create", "patch"], "apiGroups": ["events.k8s.io"], "resources": ["events"]}
        role = {"metadata": {"name": "recorder"}, "rules": [rule]}
        binding = {
            "metadata": {"name": "recorder"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "recorder"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "recorder"}],
        }
        for plural, obj in (("clusterroles", role), ("clusterrolebindings", binding)):
            assert (await served.ask("POST", f"/apis/rbac.authorization.k8s.io/v1/{plural}", obj)).code == 201
        assert (await served.ask("POST", EVENTS_K8S_IO, EVENT, user=user)).code == 201
        refused = await served.ask("POST", V1, OLD, user=user)
        assert refused.code == 403 and 'in API group ""' in refused.json["message"]
        refused = await served.ask("GET", EVENTS_K8S_IO, user=user)
        assert refused.code == 403
        assert refused.json["message"].endswith(
            'cannot list resource "events" in API group "events.k8s.io" in the namespace "default"'
        )


def test_openapi_has_the_schema_of_the_version() -> None:
    document = document_v3(resources_in_version("events.k8s.io", "v1"))
    schemas = document["components"]["schemas"]
    schema = schemas["io.k8s.api.events.v1.Event"]
    assert schema["required"] == ["eventTime"]
    assert {"note", "regarding", "deprecatedCount"} <= schema["properties"].keys()
    assert "message" not in schema["properties"] and "io.k8s.api.core.v1.Event" not in schemas
    assert schema["x-kubernetes-group-version-kind"] == [{"group": "events.k8s.io", "kind": "Event", "version": "v1"}]
    assert schemas["io.k8s.api.events.v1.EventSeries"]["required"] == ["count", "lastObservedTime"]
    assert "io.k8s.api.events.v1.EventList" in schemas
    core = json.dumps(document_v3(resources_in_version("", "v1")))
    assert "events.k8s.io" not in core


def test_conversion_keeps_all_fields() -> None:
    def everything(descriptor: Descriptor, message: Any) -> Any:
        for number, field in enumerate(descriptor.fields, 1):
            if field.message_type is not None:
                getattr(message, field.name).SetInParent()
            else:
                setattr(message, field.name, number if field.type == field.TYPE_INT32 else f"text {number}")
        return message

    conversion = conversion_of(EVENTS_V1)
    for served, stored in ((EVENTS_V1, EVENTS), (EVENTS, EVENTS_V1)):
        obj = everything(served.message.DESCRIPTOR, served.message())
        convert, back = conversion.to_stored, conversion.to_served
        if served is EVENTS:
            convert, back = back, convert
        assert type(convert(obj)) is stored.message and back(convert(obj)) == obj
        assert len(to_dict(convert(obj))) == len(to_dict(obj))


def test_patch_through_a_version_keeps_unknown_fields() -> None:
    stored = EVENTS.message.FromString(from_dict(EVENTS, OLD).SerializeToString() + b"\xfa\x06\x03new")
    conversion = conversion_of(EVENTS_V1)
    changed = conversion.to_served(stored)
    changed.note = "changed"
    result = conversion.to_stored(changed, stored)
    assert result.message == "changed" and b"\xfa\x06\x03new" in result.SerializeToString()


def test_only_events_have_two_versions() -> None:
    assert conversion_of(PODS).is_identity and conversion_to(PODS, "v2") is None
    assert renamed_fields(EVENTS, "v1", "v1") == {} and renamed_fields(PODS, "v1", "events.k8s.io/v1") is None
    names = renamed_fields(EVENTS, "v1", "events.k8s.io/v1")
    assert names is not None and names["message"] == "note"


@pytest.mark.parametrize("message", [Event, EventSeries])
def test_required_fields_are_those_of_kubernetes(message: Any) -> None:
    required = {field.json_name for field in message.DESCRIPTOR.fields if field_description(field).required}
    assert required == ({"eventTime"} if message is Event else {"count", "lastObservedTime"})
