"""Content negotiation and representations of objects: JSON, YAML, protobuf, tables, and metadata only.

    Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json  --> Format(JSON, "Table", "v1")

Protobuf objects are wrapped in an envelope: the bytes "k8s\\0", followed by runtime.Unknown with the type and bytes of the
object.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import yaml

from pinnace.api.go_json import go_syntax_message
from pinnace.api.wire import KUBERNETES_MAGIC, kubernetes_envelope
from pinnace.gateway.api_resources import ApiResource
from pinnace.gateway.http import JSON, ApiStatus, Request, bad_request
from pinnace.gateway.wire import WireError, last_bytes_field

YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
APPLY = "application/apply-patch+yaml"
MAGIC = KUBERNETES_MAGIC
envelope = kubernetes_envelope
TABLE = "Table"
METADATA = "PartialObjectMetadata"
METADATA_LIST = "PartialObjectMetadataList"
_METADATA_CLAUSE = f"as={METADATA}"
_META_GROUP = "meta.k8s.io"
_META_VERSIONS = ("v1", "v1beta1")
SERVED_TYPES = (JSON, YAML, PROTOBUF)
_ANY = ("*/*", "application/*")
_SERVED_TEXT = ", ".join(
    (JSON, YAML, PROTOBUF, f"{JSON};as=Table;v=v1;g=meta.k8s.io", f"{JSON};as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
)
_SUMMARY = 30
"""Bytes of a body that a message quotes."""
MAX_DEPTH = 500
"""The maximum nesting of a JSON or YAML body."""


class ResponseFormat(NamedTuple):
    """The format of a response. `transform`: "", Table, PartialObjectMetadata or PartialObjectMetadataList in `version`."""

    media_type: str
    transform: str = ""
    version: str = "v1"


@dataclass(frozen=True, slots=True)
class MediaRange:
    """A media range of an Accept header."""

    media_type: str
    parameters: Mapping[str, str]
    quality: float


def parse_accept(accept: str) -> list[MediaRange]:
    """Return the media ranges of an Accept header by descending quality."""
    result = []
    for part in accept.split(","):
        media_type, *parameters = (piece.strip() for piece in part.split(";"))
        if not media_type:
            continue
        pairs = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        try:
            quality = float(pairs.pop("q", "1"))
        except ValueError:
            quality = 0.0
        result.append(MediaRange(media_type.lower(), pairs, quality))
    return sorted(result, key=lambda clause: -clause.quality)  # a stable sort keeps the order of equal qualities


MAX_KEPT, MAX_KEPT_SIZE = 256, 512
"""The maximum number of Accept headers whose format is kept, and their maximum size in characters."""


def negotiate(accept: str, transforms: tuple[str, ...] = (TABLE, METADATA, METADATA_LIST)) -> ResponseFormat:
    """Return the first requested format that is served. Raises ApiStatus (406)."""
    return (_kept if len(accept) <= MAX_KEPT_SIZE else _negotiate)(accept, transforms)


def negotiate_for(
    request: Request, resource: ApiResource, transforms: tuple[str, ...] = (TABLE, METADATA, METADATA_LIST)
) -> ResponseFormat:
    """Return the format of a response with objects of a resource. Raises ApiStatus (406)."""
    accept = request.headers.get("accept", "")
    return (negotiate if resource.has_protobuf else negotiate_json)(accept, transforms)


def negotiate_json(accept: str, transforms: tuple[str, ...] = (TABLE, METADATA, METADATA_LIST)) -> ResponseFormat:
    """Return the first requested format, for objects that have no protobuf form. Raises ApiStatus (406)."""
    others = [clause for clause in accept.split(",") if PROTOBUF not in clause or _METADATA_CLAUSE in clause]
    if accept and not others:
        raise _not_acceptable(SERVED_TYPES)
    try:
        return negotiate(",".join(others), transforms)
    except ApiStatus:
        raise _not_acceptable(SERVED_TYPES) from None


def _not_acceptable(served: Iterable[str]) -> ApiStatus:
    message = f"only the following media types are accepted: {', '.join(served)}"
    return ApiStatus(406, "NotAcceptable", message)


def _negotiate(accept: str, transforms: tuple[str, ...]) -> ResponseFormat:
    if not accept:
        return ResponseFormat(JSON)
    for clause in parse_accept(accept):
        if clause.quality <= 0:
            continue
        transform, version = clause.parameters.get("as", ""), clause.parameters.get("v", "v1")
        if transform and (
            transform not in transforms or clause.parameters.get("g") != _META_GROUP or version not in _META_VERSIONS
        ):
            continue
        if clause.media_type in _ANY:
            return ResponseFormat(JSON)
        if clause.media_type in SERVED_TYPES and not (transform and clause.media_type == PROTOBUF and transform == TABLE):
            return ResponseFormat(clause.media_type, transform, version)
    if any(clause.media_type in (*SERVED_TYPES, *_ANY) for clause in parse_accept(accept)):
        message = f"only the following media types are accepted: {_SERVED_TEXT}"
    else:
        message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(SERVED_TYPES)}"
    raise ApiStatus(406, "NotAcceptable", message, {})


_kept = lru_cache(MAX_KEPT)(_negotiate)


def error_format(accept: str) -> str:
    """Return the requested media type for a Status, or JSON if it is not served."""
    try:
        return negotiate(accept).media_type
    except ApiStatus:
        return JSON


def parse_content_type(content_type: str, accepted: tuple[str, ...] = SERVED_TYPES) -> str:
    """Return the media type of a request body. Raises ApiStatus (415)."""
    media_type = content_type.partition(";")[0].strip().lower() or JSON
    if media_type not in accepted:
        raise unsupported_media_type(accepted)
    return media_type


def unsupported_media_type(accepted: Iterable[str]) -> ApiStatus:
    """Return a 415 for the body of a create or update."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiStatus(415, "UnsupportedMediaType", message, {})


def unsupported_patch_type() -> ApiStatus:
    """Return a 415 for a patch. Kubernetes checks the types of patches before it reads the request."""
    return ApiStatus(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


class UnwrappedObject(NamedTuple):
    api_version: str
    kind: str
    data: bytes


def unwrap_protobuf(body: bytes) -> UnwrappedObject:
    """Unwrap the object of a protobuf body. Raises ApiStatus (400)."""
    if not body.startswith(MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        unknown = body[len(MAGIC) :]
        type_meta = last_bytes_field(unknown, 1)
        return UnwrappedObject(
            last_bytes_field(type_meta, 1).decode(), last_bytes_field(type_meta, 2).decode(), last_bytes_field(unknown, 2)
        )
    except (WireError, UnicodeDecodeError) as error:
        raise bad_request(f"unable to decode the protobuf envelope: {error}") from None


def unrecognized_object(body: bytes, kind: str, problem: str) -> ApiStatus:
    """Return a 400 for a body that is not an object of the kind. The message quotes the beginning of the body: JSON as text,
    other data in hexadecimal."""
    beginning = body[:_SUMMARY]
    shown = beginning.decode(errors="replace") if body.startswith(b"{") else beginning.hex()
    summary = shown + " ..." * (len(body) > _SUMMARY) if body else "<empty>"
    return bad_request(f"the object provided is unrecognized (must be of type {kind}): {problem} ({summary})")


def parse_body(body: bytes, media_type: str, on_duplicate: Callable[[str], None] | None = None, *, kind: str = "JSON") -> Any:
    """Parse a JSON or YAML body. `on_duplicate` is called with the path of each duplicate key of an object. `kind`: the
    expected kind, for messages. Raises ApiStatus (400)."""
    if media_type == YAML:
        return _parse_yaml(body)
    hook, duplicates = None, False
    if on_duplicate is not None:

        def hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            nonlocal duplicates
            result = dict(pairs)
            duplicates = duplicates or len(result) != len(pairs)
            return result

    try:
        data = json.loads(body, object_pairs_hook=hook)
        if duplicates and on_duplicate is not None:
            for path in _find_duplicates(json.loads(body, object_pairs_hook=_Pairs), ""):
                on_duplicate(path)
        return data
    except RecursionError:
        raise bad_request("the body is nested too deeply") from None
    except json.JSONDecodeError as error:
        problem = f"couldn't get version/kind; json parse error: {go_syntax_message(error)}"
        raise unrecognized_object(body, kind, problem) from None
    except ValueError as error:
        raise unrecognized_object(body, kind, str(error)) from None


class _Pairs(list[tuple[str, Any]]):
    """The keys and values of an object with duplicates."""


def _find_duplicates(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of duplicate keys, for example "spec.ports[0].name", in the order of the document."""
    if isinstance(value, _Pairs):
        seen = set[str]()
        for key, item in value:
            at = f"{path}.{key}" if path else key
            if key in seen:
                yield at
            seen.add(key)
            yield from _find_duplicates(item, at)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_duplicates(item, f"{path}[{index}]")


def _parse_yaml(body: bytes) -> Any:
    from pinnace.api.documents import DocumentError, parse

    try:
        documents = list(parse(body.decode()))
    except (DocumentError, UnicodeDecodeError) as error:
        raise bad_request(f"error converting YAML to JSON: {error}") from None
    if len(documents) != 1:
        raise bad_request(f"expected one YAML document, got {len(documents)}")
    return documents[0].data


def to_yaml(document: Any) -> bytes:
    text: str = yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return text.encode()


def json_to_yaml(text: bytes) -> bytes:
    """Convert JSON to YAML. Called in a worker process if it is large."""
    return to_yaml(json.loads(text))
