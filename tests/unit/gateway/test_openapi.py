"""OpenAPI v2: the protobuf form has the same content as the JSON form."""

import json
from typing import Any

import pytest

from pinnace.gateway.api_resources import SERVED, resources_in_version
from pinnace.gateway.http import ApiStatus, Request
from pinnace.gateway.openapi import OpenApi, document_v2, document_v3
from pinnace.gateway.openapi_protobuf import MEDIA_TYPES
from pinnace.gateway.wire import iterate_fields


def body(accept: str) -> bytes:
    result = OpenApi()._respond(Request("GET", "/openapi/v2", {}, {"accept": accept})).body
    assert isinstance(result, bytes)
    return result


@pytest.fixture(scope="module")
def document() -> Any:
    return json.loads(body("application/json"))


def named(data: bytes, number: int) -> dict[str, bytes]:
    """The pairs of name and value in a field."""
    pairs = [dict(iterate_fields(value)) for each, value in iterate_fields(data) if each == number and isinstance(value, bytes)]
    return {pair[1].decode(): pair[2] for pair in pairs if isinstance(pair[1], bytes) and isinstance(pair[2], bytes)}


def one(data: bytes, number: int) -> bytes:
    value = dict(iterate_fields(data)).get(number, b"")
    assert isinstance(value, bytes)
    return value


@pytest.mark.parametrize("accept", MEDIA_TYPES)
def test_every_schema_and_path_is_in_protobuf(document: Any, accept: str) -> None:
    encoded = body(accept)
    definitions = named(one(encoded, 9), 1)
    assert definitions.keys() == document["definitions"].keys()
    assert named(one(encoded, 8), 2).keys() == document["paths"].keys()
    for name, schema in document["definitions"].items():
        properties = named(one(definitions[name], 25), 1)
        assert properties.keys() == schema.get("properties", {}).keys()
        for key, described in schema.get("properties", {}).items():
            assert one(properties[key], 1).decode() == described.get("$ref", "")


def test_references_are_not_in_all_of(document: Any) -> None:
    """kubectl 1.20 does not support allOf: `kubectl apply` panicked."""
    metadata = document["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]["metadata"]
    assert metadata["$ref"] == "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    assert "allOf" not in json.dumps(document["definitions"])


def test_content_type_can_be_parsed_by_clients() -> None:
    result = OpenApi()._respond(Request("GET", "/openapi/v2", {}, {"accept": MEDIA_TYPES[0]}))
    assert "@" not in result.content_type
    with pytest.raises(ApiStatus, match="only the following"):
        OpenApi()._respond(Request("GET", "/openapi/v2", {}, {"accept": "text/html"}))


def test_elections_have_a_schema_for_kubectl_explain() -> None:
    document = document_v3(resources_in_version("pinnace.io", "v1"))
    result = document["components"]["schemas"]["io.pinnace.v1.Election"]
    assert result["x-kubernetes-group-version-kind"] == [{"group": "pinnace.io", "kind": "Election", "version": "v1"}]
    assert result["properties"]["status"]["properties"]["terms"]["items"]["properties"]["token"]["type"] == "integer"
    assert result["properties"]["metadata"]["$ref"].rpartition("/")[2] in document["components"]["schemas"]
    assert set(document["paths"]["/apis/pinnace.io/v1/elections/{name}"]) == {"get"}
    assert "io.pinnace.v1.Election" in document_v2(SERVED)["definitions"]
