"""Custom resources through a gateway and an API server: kinds that come, change and go at run time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest

from pinnace.gateway.http import User
from tests.storage.memory import MemoryStorage
from tests.unit.gateway.serving import Answer, Gateway, gateway

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
SPEC = {
    "type": "object",
    "properties": {
        "size": {"type": "integer"},
        "color": {"type": "string", "default": "red"},
        "replicas": {"type": "integer"},
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"spec": SPEC, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
}


def make_version(name: str = "v1", *, storage: bool = True, schema: Mapping[str, Any] = SCHEMA, **more: Any) -> dict[str, Any]:
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}, **more}


def make_definition(
    *versions: Mapping[str, Any], plural: str = "widgets", kind: str = "Widget", scope: str = "Namespaced", **names: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": scope,
            "names": {"plural": plural, "kind": kind, **names},
            "versions": list(versions) or [make_version()],
        },
    }


def path_of(plural: str = "widgets", version: str = "v1", namespace: str = "default") -> str:
    return f"/apis/example.com/{version}/" + (f"namespaces/{namespace}/{plural}" if namespace else plural)


WIDGETS = path_of()


def widget(name: str = "a", version: str = "v1", kind: str = "Widget", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": f"example.com/{version}", "kind": kind, "metadata": {"name": name}, "spec": {"size": 1}, **fields}


async def until(ask: Callable[[], Awaitable[Answer]], is_reached: Callable[[Answer], bool]) -> Answer:
    """Ask until the answer is the expected one. The deadline is that of the test."""
    async with asyncio.timeout(20):
        while True:
            answer = await ask()
            if is_reached(answer):
                return answer
            await asyncio.sleep(0.01)


def condition(answer: Answer, kind: str) -> dict[str, Any]:
    conditions = answer.json.get("status", {}).get("conditions") or []
    return next((item for item in conditions if item["type"] == kind), {})


async def define(served: Gateway, definition: dict[str, Any]) -> None:
    """Create a definition, and wait until it is established."""
    answer = await served.ask("POST", DEFINITIONS, definition)
    assert answer.code == 201, answer.body
    path = f"{DEFINITIONS}/{definition['metadata']['name']}"
    await until(lambda: served.ask("GET", path), lambda answer: condition(answer, "Established").get("status") == "True")


async def undefine(served: Gateway, name: str = "widgets.example.com") -> None:
    assert (await served.ask("DELETE", f"{DEFINITIONS}/{name}")).code == 200
    await until(lambda: served.ask("GET", f"{DEFINITIONS}/{name}"), lambda answer: answer.code == 404)


@pytest.fixture
async def served() -> AsyncIterator[Gateway]:
    async with gateway() as result:
        yield result


async def test_every_verb_of_custom_objects(served: Gateway) -> None:
    await define(served, make_definition(make_version(subresources={"status": {}})))
    created = await served.ask("POST", WIDGETS, widget(status={"ready": True}))
    assert created.code == 201 and created.json["spec"] == {"color": "red", "size": 1} and "status" not in created.json
    assert (await served.ask("GET", f"{WIDGETS}/a")).json == created.json
    listed = (await served.ask("GET", path_of(namespace=""))).json
    assert (listed["kind"], [item["metadata"]["name"] for item in listed["items"]]) == ("WidgetList", ["a"])
    patched = await served.ask("PATCH", f"{WIDGETS}/a", {"spec": {"size": 2}}, content_type=MERGE)
    assert patched.json["spec"]["size"] == patched.json["metadata"]["generation"] == 2
    status = await served.ask(
        "PATCH", f"{WIDGETS}/a/status", {"status": {"ready": True}, "spec": {"size": 9}}, content_type=MERGE
    )
    assert (status.json["spec"]["size"], status.json["status"], status.json["metadata"]["generation"]) == (
        2,
        {"ready": True},
        2,
    )
    updated = await served.ask("PUT", f"{WIDGETS}/a", status.json | {"spec": {"size": 3}, "status": {}})
    assert updated.json["spec"] == {"color": "red", "size": 3} and updated.json["status"] == {"ready": True}
    applied = await served.ask("PATCH", f"{WIDGETS}/b?fieldManager=me", widget("b"), content_type=APPLY)
    assert applied.code == 201
    assert (await served.ask("DELETE", f"{WIDGETS}/a")).json["status"] == "Success"
    assert [item["metadata"]["name"] for item in (await served.ask("DELETE", WIDGETS)).json["items"]] == ["b"]
    assert (await served.ask("GET", WIDGETS)).json["items"] == []


async def test_cluster_scoped_kind(served: Gateway) -> None:
    await define(served, make_definition(scope="Cluster"))
    path = path_of(namespace="")
    assert (await served.ask("POST", path, widget())).json["metadata"].get("namespace") is None
    assert (await served.ask("GET", f"{path}/a")).code == 200
    assert (await served.ask("GET", f"{WIDGETS}/a")).code == 404
    await undefine(served)


async def test_create_without_namespace_in_path_is_not_found(served: Gateway) -> None:
    await define(served, make_definition())
    assert (await served.ask("POST", path_of(namespace=""), widget())).code in (404, 405)


async def test_dry_run_stores_nothing(served: Gateway) -> None:
    await define(served, make_definition())
    assert (await served.ask("POST", f"{WIDGETS}?dryRun=All", widget())).code == 201
    assert (await served.ask("GET", f"{WIDGETS}/a")).code == 404


async def test_strategic_patches_are_neither_served_nor_listed(served: Gateway) -> None:
    """kubectl apply sends a strategic patch if the OpenAPI document lists it."""
    await define(served, make_definition())
    await served.ask("POST", WIDGETS, widget())
    refused = await served.ask("PATCH", f"{WIDGETS}/a", {"spec": {}}, content_type="application/strategic-merge-patch+json")
    accepted = ["application/json-patch+json", "application/merge-patch+json", APPLY]
    assert refused.code == 415 and refused.json["message"].endswith(f"include: {', '.join(accepted)}")
    paths = (await served.ask("GET", "/openapi/v3/apis/example.com/v1")).json["paths"]
    path = paths[path_of(namespace="{namespace}") + "/{name}"]
    assert list(path["patch"]["requestBody"]["content"]) == accepted


async def test_selectors(served: Gateway) -> None:
    await define(served, make_definition(make_version(selectableFields=[{"jsonPath": ".spec.color"}])))
    for name, color in (("a", "red"), ("b", "blue")):
        body = widget(name, spec={"color": color})
        body["metadata"]["labels"] = {"color": color}
        assert (await served.ask("POST", WIDGETS, body)).code == 201

    async def names(query: str) -> list[str]:
        items = (await served.ask("GET", f"{WIDGETS}?{query}")).json["items"]
        return [item["metadata"]["name"] for item in items]

    assert await names("labelSelector=color%3Dblue") == ["b"]
    assert await names("fieldSelector=spec.color%3Dred") == ["a"]
    assert await names("fieldSelector=metadata.name%3Db") == ["b"]
    refused = await served.ask("GET", f"{WIDGETS}?fieldSelector=spec.size%3D1")
    assert (refused.code, refused.json["message"]) == (400, "field label not supported: spec.size")


async def test_storage_version_switch_keeps_objects_readable_in_all_versions(served: Gateway) -> None:
    old = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    both = [make_version("v1alpha1", schema=old), make_version("v1", storage=False)]
    await define(served, make_definition(*both))
    assert (await served.ask("POST", path_of(version="v1alpha1"), widget("old", "v1alpha1"))).code == 201
    assert (await served.ask("GET", f"{WIDGETS}/old")).json["apiVersion"] == "example.com/v1"
    both[0]["storage"], both[1]["storage"] = False, True
    switched = await served.ask("PATCH", f"{DEFINITIONS}/widgets.example.com", {"spec": {"versions": both}}, content_type=MERGE)
    assert switched.json["status"]["storedVersions"] == ["v1alpha1", "v1"]
    assert (await served.ask("POST", WIDGETS, widget("new"))).code == 201
    for version in ("v1", "v1alpha1"):
        items = (await served.ask("GET", path_of(version=version))).json["items"]
        assert [(item["apiVersion"], item["metadata"]["name"]) for item in items] == [
            (f"example.com/{version}", "new"),
            (f"example.com/{version}", "old"),
        ]
    before = (await served.ask("GET", f"{WIDGETS}/old")).json
    again = (await served.ask("PUT", f"{WIDGETS}/old", before)).json
    assert again["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"], "the object is stored as v1"
    third = (await served.ask("PUT", f"{WIDGETS}/old", again)).json
    assert third["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]
    await undefine(served)


async def test_default_added_later_appears_in_older_objects(served: Gateway) -> None:
    plain = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    await define(served, make_definition(make_version(schema=plain)))
    assert "color" not in (await served.ask("POST", WIDGETS, widget())).json["spec"]
    versions = {"spec": {"versions": [make_version()]}}
    assert (await served.ask("PATCH", f"{DEFINITIONS}/widgets.example.com", versions, content_type=MERGE)).code == 200
    answer = await until(lambda: served.ask("GET", f"{WIDGETS}/a"), lambda answer: "color" in answer.json["spec"])
    assert answer.json["spec"]["color"] == "red"


async def test_second_definition_of_a_name_is_not_established(served: Gateway) -> None:
    await define(served, make_definition(shortNames=["wd"]))
    rival = make_definition(plural="gadgets", kind="Gadget", shortNames=["wd"])
    assert (await served.ask("POST", DEFINITIONS, rival)).code == 201
    path = f"{DEFINITIONS}/gadgets.example.com"
    refused = await until(lambda: served.ask("GET", path), lambda answer: bool(condition(answer, "NamesAccepted")))
    assert condition(refused, "NamesAccepted")["reason"] == "ShortNamesConflict"
    assert condition(refused, "Established")["status"] == "False"
    assert (await served.ask("GET", path_of("gadgets"))).code == 404
    await undefine(served)
    accepted = await until(lambda: served.ask("GET", path), lambda answer: condition(answer, "Established")["status"] == "True")
    assert accepted.json["status"]["acceptedNames"]["shortNames"] == ["wd"]


async def test_objects_with_finalizers_delay_the_deletion_of_their_definition(served: Gateway) -> None:
    await define(served, make_definition())
    body = widget()
    body["metadata"]["finalizers"] = ["example.com/wait"]
    assert (await served.ask("POST", WIDGETS, body)).code == 201
    deleted = await served.ask("DELETE", f"{DEFINITIONS}/widgets.example.com")
    assert deleted.json["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert condition(deleted, "Terminating")["reason"] == "InstanceDeletionPending"
    answer = await until(
        lambda: served.ask("GET", f"{WIDGETS}/a"), lambda answer: "deletionTimestamp" in answer.json["metadata"]
    )
    assert answer.json["metadata"]["finalizers"] == ["example.com/wait"]
    refused = await served.ask("POST", WIDGETS, widget("b"))
    assert (refused.code, refused.json["reason"]) == (405, "MethodNotAllowed")
    assert (await served.ask("PATCH", f"{WIDGETS}/a", {"metadata": {"finalizers": None}}, content_type=MERGE)).code == 200
    await until(lambda: served.ask("GET", f"{DEFINITIONS}/widgets.example.com"), lambda answer: answer.code == 404)


async def test_definitions_are_removed_by_two_api_servers_at_the_same_time() -> None:
    """The API server that came second failed at a definition that no longer existed, and ended."""
    storage = MemoryStorage()
    async with gateway(storage=storage) as served, gateway(storage=storage):
        for _ in range(5):
            kinds = [(f"things{number}", f"Thing{number}") for number in range(5)]
            await asyncio.gather(*(define(served, make_definition(plural=plural, kind=kind)) for plural, kind in kinds))
            await asyncio.gather(*(undefine(served, f"{plural}.example.com") for plural, _ in kinds))


async def test_watch_from_before_a_recreation_is_expired(served: Gateway) -> None:
    await define(served, make_definition())
    version = (await served.ask("GET", WIDGETS)).json["metadata"]["resourceVersion"]
    await undefine(served)
    await define(served, make_definition())
    expired = await served.ask("GET", f"{WIDGETS}?watch=1&resourceVersion={version}&timeoutSeconds=1")
    assert expired.code == 410 or expired.lines[0]["object"]["code"] == 410


async def test_watch_reports_changes_of_objects(served: Gateway) -> None:
    await define(served, make_definition())
    version = (await served.ask("GET", WIDGETS)).json["metadata"]["resourceVersion"]
    await served.ask("POST", WIDGETS, widget())
    await served.ask("PATCH", f"{WIDGETS}/a", {"spec": {"size": 2}}, content_type=MERGE)
    await served.ask("DELETE", f"{WIDGETS}/a")
    events = (await served.ask("GET", f"{WIDGETS}?watch=1&resourceVersion={version}&timeoutSeconds=1")).lines
    sizes = [(event["type"], event["object"]["spec"]["size"]) for event in events]
    assert sizes == [("ADDED", 1), ("MODIFIED", 2), ("DELETED", 2)]
    assert {event["object"]["apiVersion"] for event in events} == {"example.com/v1"}


async def test_discovery_follows_definitions(served: Gateway) -> None:
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    assert (await served.ask("GET", "/apis/example.com")).code == 404
    await define(served, make_definition(shortNames=["wd"], categories=["all"]))
    (resource,) = (await served.ask("GET", "/apis/example.com/v1")).json["resources"]
    assert (resource["name"], resource["shortNames"], resource["categories"]) == ("widgets", ["wd"], ["all"])
    groups = (await served.ask("GET", "/apis", accept=aggregated)).json["items"]
    assert groups[-1]["metadata"]["name"] == "example.com"
    assert "apis/example.com/v1" in (await served.ask("GET", "/openapi/v3")).json["paths"]
    schemas = (await served.ask("GET", "/openapi/v3/apis/example.com/v1")).json["components"]["schemas"]
    assert schemas["com.example.v1.Widget"]["properties"]["spec"]["properties"]["color"]["default"] == "red"
    assert "com.example.v1.Widget" in (await served.ask("GET", "/openapi/v2")).json["definitions"]
    await undefine(served)
    await until(lambda: served.ask("GET", "/apis/example.com"), lambda answer: answer.code == 404)
    assert "apis/example.com/v1" not in (await served.ask("GET", "/openapi/v3")).json["paths"]


async def test_custom_kinds_need_permissions(served: Gateway) -> None:
    await define(served, make_definition())
    user = User("ann", ("system:authenticated",))
    refused = await served.ask("GET", WIDGETS, user=user)
    assert refused.code == 403 and 'cannot list resource "widgets" in API group "example.com"' in refused.json["message"]
    rule = {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get", "list", "create"]}
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    role = {"metadata": {"name": "widgets"}, "rules": [rule]}
    assert (await served.ask("POST", f"{roles}/roles", role)).code == 201
    subject = {"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "Role", "name": "widgets", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "widgets"}, "subjects": [subject], "roleRef": reference}
    assert (await served.ask("POST", f"{roles}/rolebindings", binding)).code == 201
    assert (await served.ask("POST", WIDGETS, widget(), user=user)).code == 201
    assert (await served.ask("DELETE", f"{WIDGETS}/a", user=user)).code == 403


async def test_deprecated_version_has_a_warning(served: Gateway) -> None:
    versions = make_version("v1alpha1", storage=False, deprecated=True), make_version()
    await define(served, make_definition(*versions))
    warning = "example.com/v1alpha1 Widget is deprecated"
    assert (await served.ask("GET", path_of(version="v1alpha1"))).warnings == [warning]
    assert (await served.ask("GET", WIDGETS)).warnings == []


async def test_protobuf_alone_is_not_acceptable(served: Gateway) -> None:
    await define(served, make_definition())
    protobuf = "application/vnd.kubernetes.protobuf"
    for path in (WIDGETS, DEFINITIONS):
        assert (await served.ask("GET", path, accept=protobuf)).code == 406
        assert (await served.ask("GET", path, accept=f"{protobuf},application/json")).content_type == "application/json"


async def test_quota_counts_custom_objects(served: Gateway) -> None:
    await define(served, make_definition())
    quotas = "/api/v1/namespaces/default/resourcequotas"
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/widgets.example.com": "2"}}}
    assert (await served.ask("POST", WIDGETS, widget("a"))).code == 201
    assert (await served.ask("POST", quotas, quota)).code == 201
    assert (await served.ask("POST", WIDGETS, widget("b"))).code == 201
    refused = await served.ask("POST", WIDGETS, widget("c"))
    assert refused.code == 403 and refused.json["message"] == (
        'widgets.example.com "c" is forbidden: exceeded quota: q, requested: count/widgets.example.com=1, '
        "used: count/widgets.example.com=2, limited: count/widgets.example.com=2"
    )
    assert (await served.ask("DELETE", f"{WIDGETS}/a")).code == 200
    used = await until(
        lambda: served.ask("GET", f"{quotas}/q"),
        lambda answer: answer.json["status"]["used"]["count/widgets.example.com"] == "1",
    )
    assert used.json["status"]["hard"] == {"count/widgets.example.com": "2"}


async def test_namespace_with_custom_objects_is_not_empty(served: Gateway) -> None:
    await define(served, make_definition())
    assert (await served.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})).code == 201
    path = path_of(namespace="team")
    assert (await served.ask("POST", path, widget())).code == 201
    ending = await served.ask("DELETE", "/api/v1/namespaces/team")
    assert ending.json["status"]["phase"] == "Terminating"
    refused = await served.ask("POST", path, widget("b"))
    assert refused.code == 403 and refused.json["message"] == (
        'widgets.example.com "b" is forbidden: unable to create new content in namespace team because it is being terminated'
    )
    assert (await served.ask("DELETE", f"{path}/a")).code == 200
    assert (await served.ask("DELETE", "/api/v1/namespaces/team")).code == 200
    assert (await served.ask("GET", "/api/v1/namespaces/team")).code == 404


async def test_schemas_of_definitions_are_decoded_as_in_kubernetes(served: Gateway) -> None:
    schema = {"type": "object", "nope": 1, "properties": {"a": {"type": "string", "maxlength": 1}}}
    definition, prefix = make_definition(make_version(schema=schema)), "spec.versions[0].schema.openAPIV3Schema"
    cannot = 'CustomResourceDefinition in version "v1" cannot be handled as a CustomResourceDefinition: '
    unknown = [f'unknown field "{prefix}.nope"', f'unknown field "{prefix}.properties.a.maxlength"']
    strict = await served.ask("POST", f"{DEFINITIONS}?fieldValidation=Strict", definition)
    assert (strict.code, strict.json["message"]) == (400, f"{cannot}strict decoding error: {', '.join(unknown)}")
    warned = await served.ask("POST", f"{DEFINITIONS}?dryRun=All", definition)
    assert warned.code == 201 and all(any(field in text for text in warned.warnings) for field in unknown)
    schema["properties"] = {"a": {"type": "string", "maxLength": "x"}}
    refused = await served.ask("POST", DEFINITIONS, make_definition(make_version(schema=schema)))
    assert refused.code == 400
    assert refused.json["message"].startswith(f"{cannot}json: cannot unmarshal string into Go struct field JSONSchemaProps")


async def test_violations_of_rules_that_remain_are_warnings(served: Gateway) -> None:
    """Ratcheting: a new rule refuses no update of an older object that violates it, if the update does not change that part."""
    await define(served, make_definition())
    assert (await served.ask("POST", WIDGETS, widget())).code == 201
    rules = [{"rule": "self.size > 1", "message": "too small"}]
    stricter = make_definition(
        make_version(schema={**SCHEMA, "properties": {"spec": SPEC | {"x-kubernetes-validations": rules}}})
    )
    patched = await served.ask("PATCH", f"{DEFINITIONS}/widgets.example.com", {"spec": stricter["spec"]}, content_type=MERGE)
    assert patched.code == 200, patched.body
    label = {"metadata": {"labels": {"a": "b"}}}
    answer = await until(
        lambda: served.ask("PATCH", f"{WIDGETS}/a", label, content_type=MERGE), lambda answer: bool(answer.warnings)
    )
    assert (answer.code, [text for text in answer.warnings if "too small" in text][:1]) == (200, answer.warnings[:1])
    refused = await served.ask("PATCH", f"{WIDGETS}/a", {"spec": {"size": 0}}, content_type=MERGE)
    assert refused.code == 422 and "too small" in refused.json["message"]
