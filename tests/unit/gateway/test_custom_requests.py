"""Refused and unusual requests for custom objects, with the answers of kube-apiserver 1.36."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.gateway.serving import Gateway, gateway
from tests.unit.gateway.test_custom_resources import DEFINITIONS, MERGE, WIDGETS, define, make_definition, widget

DRY = f"{WIDGETS}?dryRun=All"
RESOURCES = "widgets.example.com"
UNRECOGNIZED = "the object provided is unrecognized (must be of type Widget): "
HANDLED = 'Widget in version "v1" cannot be handled as a Widget: '
META = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
PREFER = (
    "prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers"
)


@pytest.fixture
async def served() -> AsyncIterator[Gateway]:
    async with gateway() as started:
        await define(started, make_definition())
        yield started


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            {"kind": "Widget", "metadata": {"name": "a"}},
            "the API version in the data () does not match the expected API version (example.com/v1)",
            id="no apiVersion",
        ),
        pytest.param(
            '{"apiVersion":"example.com/v1"}',
            UNRECOGNIZED
            + 'Object \'Kind\' is missing in \'{"apiVersion":"example.com/v1"}\' ({"apiVersion":"example.com/v1" ...)',
            id="no kind",
        ),
        pytest.param(
            "[]",
            f"{UNRECOGNIZED}couldn't get version/kind; json parse error: "
            f"json: cannot unmarshal array into Go value of type {META} (5b5d)",
            id="array",
        ),
        pytest.param(
            {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "labels": {"a": 1}}},
            f"{HANDLED}json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
            id="label that is a number",
        ),
        pytest.param(
            {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": "a"},
            f"{HANDLED}json: cannot unmarshal string into Go value of type v1.ObjectMeta",
            id="metadata that is text",
        ),
    ],
)
async def test_body_of_another_type_is_refused(served: Gateway, body: Any, message: str) -> None:
    answer = await served.ask("POST", DRY, body)
    assert (answer.code, answer.json["reason"], answer.json["message"]) == (400, "BadRequest", message)


async def test_duplicate_fields_are_named_by_their_paths(served: Gateway) -> None:
    body = (
        '{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1,"size":2,"l":[{"b":1,"b":2}]}}'
    )
    answer = await served.ask("POST", f"{WIDGETS}?fieldValidation=Strict", body)
    assert answer.json["message"] == (
        f'{HANDLED}strict decoding error: duplicate field "spec.size", duplicate field "spec.l[0].b", unknown field "spec.l"'
    )


async def test_finalizer_without_domain_is_a_warning(served: Gateway) -> None:
    metadata = {"name": "a", "finalizers": ["example.com/x", "orphan", "plain"]}
    created = await served.ask("POST", WIDGETS, widget(metadata=metadata))
    assert (created.code, created.warnings) == (201, [f'metadata.finalizers: "plain": {PREFER}'])
    changed = await served.ask("PATCH", f"{WIDGETS}/a", {"spec": {"size": 2}}, content_type=MERGE)
    assert (changed.code, changed.warnings) == (200, [])
    more = {"metadata": {"finalizers": [*metadata["finalizers"], "other"]}}
    added = await served.ask("PATCH", f"{WIDGETS}/a", more, content_type=MERGE)
    assert (added.code, added.warnings) == (200, [f'metadata.finalizers: "other": {PREFER}'])


@pytest.mark.parametrize(
    ("metadata", "code", "message"),
    [
        pytest.param(
            {"namespace": "other"}, 400,
            "the namespace of the provided object does not match the namespace sent on the request", id="namespace",
        ),
        pytest.param(
            {"uid": "x"}, 422,
            'Widget.example.com "a" is invalid: metadata.uid: Invalid value: "x": field is immutable', id="uid",
        ),
    ],
)  # fmt: skip
async def test_patch_of_the_identity_is_refused(served: Gateway, metadata: dict[str, str], code: int, message: str) -> None:
    assert (await served.ask("POST", WIDGETS, widget())).code == 201
    answer = await served.ask("PATCH", f"{WIDGETS}/a", {"metadata": metadata}, content_type=MERGE)
    assert (answer.code, answer.json["message"]) == (code, message)


async def test_subresources_have_only_their_own_verbs(served: Gateway) -> None:
    await define(
        served,
        make_definition(
            {**make_definition()["spec"]["versions"][0], "subresources": {"status": {}}}, plural="boxes", kind="Box"
        ),
    )
    path = WIDGETS.replace("widgets", "boxes")
    answer = await served.ask("POST", f"{path}/a/status", widget(kind="Box"))
    assert (answer.code, answer.json["message"]) == (405, 'create is not supported on resources of kind "boxes.example.com"')
    assert answer.json["details"] == {"group": "example.com", "kind": "boxes"}
    answer = await served.ask("GET", f"{path}/a/nothing")
    assert (answer.code, answer.json["message"]) == (404, 'boxes.example.com "a" not found')
    assert answer.json["details"] == {"name": "a", "group": "example.com", "kind": "boxes"}


async def test_whole_numbers_are_written_without_fraction(served: Gateway) -> None:
    spec = '{"size":1.0,"replicas":1e16,"color":"1.0]"}'
    body = f'{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"name":"a"}},"spec":{spec}}}'
    answer = await served.ask("POST", WIDGETS, body)
    assert answer.code == 201, answer.body
    assert b'"size":1}' in answer.body and b'"replicas":10000000000000000,' in answer.body and b'"1.0]"' in answer.body


async def test_definition_is_not_replaced_without_its_version(served: Gateway) -> None:
    answer = await served.ask("PUT", f"{DEFINITIONS}/{RESOURCES}", make_definition())
    assert answer.code == 422
    assert answer.json["message"] == (
        f'customresourcedefinitions.apiextensions.k8s.io "{RESOURCES}" is invalid: '
        "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    )


async def test_hash_of_openapi_changes_with_a_definition_of_its_group_only(served: Gateway) -> None:
    other = make_definition() | {"metadata": {"name": "widgets.other.com"}}
    other["spec"] = other["spec"] | {"group": "other.com"}
    await define(served, other)

    async def hashes() -> dict[str, str]:
        paths = (await served.ask("GET", "/openapi/v3")).json["paths"]
        return {name: paths[name]["serverRelativeURL"] for name in ("apis/example.com/v1", "apis/other.com/v1")}

    for group in ("example.com", "other.com"):
        assert (await served.ask("GET", f"/apis/{group}/v1/widgets")).code == 200
    before = await hashes()
    assert before == await hashes()
    changed = await served.ask(
        "PATCH", f"{DEFINITIONS}/{RESOURCES}", {"spec": {"names": {"shortNames": ["w"]}}}, content_type=MERGE
    )
    assert changed.code == 200
    after = await hashes()
    for _ in range(200):
        if after["apis/example.com/v1"] != before["apis/example.com/v1"]:
            break
        after = await hashes()
    assert after["apis/example.com/v1"] != before["apis/example.com/v1"]
    assert after["apis/other.com/v1"] == before["apis/other.com/v1"]
    document = await served.ask("GET", after["apis/example.com/v1"])
    assert document.code == 200 and "/apis/example.com/v1/widgets" in document.json["paths"]
