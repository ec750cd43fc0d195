"""The OpenAPI v2 document as protobuf, converted from the JSON document. kubectl before 1.27 requires it.

Only fields that the gateway's documents use are supported. Extensions are encoded as JSON text, which is valid YAML.

Source: https://github.com/google/gnostic-models/blob/main/openapiv2/OpenAPIv2.proto
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pinnace.api.wire import field

MEDIA_TYPES = (
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
)
"""Responses use the second media type, as in Kubernetes, because the first one is not valid."""
Encode = Callable[[Any], bytes]
_METHODS = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}


def encode_openapi(document: Mapping[str, Any]) -> bytes:
    """Encode a document with operations and schemas."""
    info = document["info"]
    return b"".join((
        _encode_text(1, document["swagger"]),
        field(2, _encode_text(1, info["title"]) + _encode_text(2, info["version"])),
        field(8, _encode_named_values(2, document["paths"], _encode_path)),
        field(9, _encode_named_values(1, document["definitions"], _encode_schema)),
    ))  # fmt: skip


def _encode_text(number: int, value: str | None) -> bytes:
    return field(number, value.encode()) if value else b""


def _encode_texts(number: int, values: Iterable[str]) -> bytes:
    return b"".join(field(number, value.encode()) for value in values)


def _encode_true(number: int, value: object) -> bytes:
    """Encode a true boolean; false is omitted. `number` is at most 15."""
    return bytes((number << 3, 1)) if value else b""


def _encode_named_values(number: int, values: Mapping[str, Any], encode_value: Encode) -> bytes:
    """Encode a list of name and value pairs."""
    return b"".join(field(number, _encode_text(1, name) + field(2, encode_value(value))) for name, value in values.items())


def _encode_extensions(number: int, found: Mapping[str, Any]) -> bytes:
    return b"".join(
        field(number, _encode_text(1, name) + field(2, _encode_text(2, json.dumps(value))))
        for name, value in found.items()
        if name.startswith("x-")
    )


def _encode_path(item: Mapping[str, Any]) -> bytes:
    return b"".join(field(_METHODS[method], _encode_operation(operation)) for method, operation in item.items())


def _encode_operation(found: Mapping[str, Any]) -> bytes:
    return b"".join((
        _encode_texts(1, found["tags"]),
        _encode_text(5, found["operationId"]),
        _encode_texts(6, found["produces"]),
        _encode_texts(7, found["consumes"]),
        *(field(8, field(1, _encode_parameter(item))) for item in found["parameters"]),
        field(9, _encode_named_values(1, found["responses"], lambda response: field(1, _encode_response(response)))),
        _encode_texts(10, found["schemes"]),
        _encode_extensions(13, found),
    ))  # fmt: skip


def _encode_parameter(found: Mapping[str, Any]) -> bytes:
    if found["in"] == "body":
        body = (
            _encode_text(2, found["name"])
            + _encode_text(3, "body")
            + _encode_true(4, found.get("required"))
            + field(5, _encode_schema(found["schema"]))
        )
        return field(1, body)
    query = (
        _encode_true(1, found.get("required"))
        + _encode_text(2, "query")
        + _encode_text(4, found["name"])
        + _encode_text(6, found["type"])
    )
    return field(2, field(3, query))


def _encode_response(found: Mapping[str, Any]) -> bytes:
    schema = field(2, field(1, _encode_schema(found["schema"]))) if "schema" in found else b""
    return _encode_text(1, found["description"]) + schema


def _encode_schema(found: Mapping[str, Any]) -> bytes:
    parts = [
        _encode_text(1, found.get("$ref")),
        _encode_text(2, found.get("format")),
        _encode_text(4, found.get("description")),
        _encode_texts(19, found.get("required", ())),
    ]
    if "additionalProperties" in found:
        parts.append(field(21, field(1, _encode_schema(found["additionalProperties"]))))
    if "type" in found:
        parts.append(field(22, _encode_text(1, found["type"])))
    if "items" in found:
        parts.append(field(23, field(1, _encode_schema(found["items"]))))
    parts += [field(24, _encode_schema(item)) for item in found.get("allOf", ())]
    if "properties" in found:
        parts.append(field(25, _encode_named_values(1, found["properties"], _encode_schema)))
    return b"".join((*parts, _encode_extensions(31, found)))
