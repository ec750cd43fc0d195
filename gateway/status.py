"""A Status as a response: the same fields as JSON, YAML and protobuf."""

from collections.abc import Mapping
from typing import Any

from pinnace.api.codec import from_dict
from pinnace.api.meta_v1_pb2 import Status
from pinnace.gateway.http import JSON, Response, dump_json
from pinnace.gateway.media_types import PROTOBUF, YAML, ResponseFormat, envelope, to_yaml


def encode_status(document: Mapping[str, Any]) -> bytes:
    """Return the JSON document of a Status as protobuf with its envelope."""
    fields = {name: value for name, value in document.items() if name not in ("apiVersion", "kind")}
    return envelope("v1", "Status", from_dict(Status, fields).SerializeToString())


def status_response(document: Mapping[str, Any], form: ResponseFormat, code: int = 200) -> Response:
    """Return a response with the JSON document of a Status."""
    if form.media_type == PROTOBUF:
        return Response(code, encode_status(document), PROTOBUF)
    if form.media_type == YAML:
        return Response(code, to_yaml(document), YAML)
    return Response(code, dump_json(document), JSON)
