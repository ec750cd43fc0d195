"""OpenAPI documents, generated from the descriptors of the API's messages: v3 with one document per group and version, and v2.

A document is generated on first use. The index contains its hash, so that clients can cache it indefinitely. The hash of a
document with custom kinds is that of the versions of their definitions, so the index needs none of these documents. The
extensions for patches (merge keys, list types) are those of pinnace.api.schema.

Source: https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-interface-definition
"""

import asyncio
import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pinnace.api import codec
from pinnace.api.apiextensions_v1_pb2 import JSONSchemaProps
from pinnace.api.codec import fields_of
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.meta_v1_pb2 import FieldsV1, ListMeta, MicroTime, ObjectMeta, Time
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.runtime_v1_pb2 import RawExtension
from pinnace.api.schema import META_PACKAGE, load_extensions
from pinnace.api.schema import schema_name as kubernetes_name
from pinnace.apiextensions.kinds import CustomVersion
from pinnace.apiextensions.openapi import schema_name as custom_schema_name
from pinnace.apiextensions.openapi import schemas_v2, schemas_v3
from pinnace.gateway import api_resources, openapi_protobuf
from pinnace.gateway.api_resources import ELECTIONS, ApiResource
from pinnace.gateway.custom_resources import BUILT_IN, ServedResources
from pinnace.gateway.elections import STATUS_SCHEMA
from pinnace.gateway.http import JSON, ApiStatus, PageNotFound, Request, Response, dump_json
from pinnace.gateway.media_types import PROTOBUF, YAML, parse_accept
from pinnace.runtime.build import build_version

_SPECIAL: Mapping[str, tuple[str, dict[str, Any]]] = {
    Quantity.DESCRIPTOR.full_name: ("io.k8s.apimachinery.pkg.api.resource.Quantity", {"type": "string"}),
    IntOrString.DESCRIPTOR.full_name: (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        {"type": "string", "format": "int-or-string"},
    ),
    Time.DESCRIPTOR.full_name: (f"{META_PACKAGE}.Time", {"type": "string", "format": "date-time"}),
    MicroTime.DESCRIPTOR.full_name: (f"{META_PACKAGE}.MicroTime", {"type": "string", "format": "date-time"}),
    FieldsV1.DESCRIPTOR.full_name: (f"{META_PACKAGE}.FieldsV1", {"type": "object"}),
    JSONSchemaProps.DESCRIPTOR.full_name: (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
        {"type": "object"},
    ),
    RawExtension.DESCRIPTOR.full_name: ("io.k8s.apimachinery.pkg.runtime.RawExtension", {"type": "object"}),
}
"""The names and schemas of messages that are a single JSON value."""
_PRIMITIVES = {
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.TYPE_INT64: {"type": "integer", "format": "int64"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "format": "byte"},
}
_ELECTION_PACKAGE = "io.pinnace.v1"
_DEFINITIONS = "#/definitions/"
"""The prefix of references in v2."""
_BODY_TYPES = (JSON, YAML, PROTOBUF)
_PATCH_TYPES = (
    "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)  # fmt: skip
_WRITES = ("dryRun", "fieldManager", "fieldValidation")
_LISTS = (
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "resourceVersionMatch",
    "sendInitialEvents", "timeoutSeconds", "watch",
)  # fmt: skip
_DELETES = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
_TYPES = {
    "force": "boolean",
    "allowWatchBookmarks": "boolean", "sendInitialEvents": "boolean", "watch": "boolean", "orphanDependents": "boolean",
    "limit": "integer", "timeoutSeconds": "integer", "gracePeriodSeconds": "integer",
}  # fmt: skip
_NEEDED = {
    "list": "list", "post": "create", "deletecollection": "deletecollection", "get": "get", "put": "update", "patch": "patch",
    "delete": "delete",
}  # fmt: skip
"""The required verb of each action."""


def schema_name(descriptor: Descriptor) -> str:
    """Return the name of a schema, for example "io.k8s.api.core.v1.Pod" for pinnace.core.v1.Pod."""
    if descriptor.full_name in _SPECIAL:
        return _SPECIAL[descriptor.full_name][0]
    return kubernetes_name(descriptor)


class _SchemaRegistry:
    """The schemas that a document refers to. `prefix`: the prefix of references."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.found: dict[str, dict[str, Any]] = {}

    def add_message_schema(
        self, descriptor: Descriptor, kind: ApiResource | None = None, *, of_list: bool = False
    ) -> dict[str, str]:
        """Add the schema of a message and of the messages that it uses. Return a reference to it."""
        name = schema_name(descriptor)
        if name not in self.found:
            self.found[name] = {}
            self.found[name] = self._build_schema(descriptor, kind, of_list)
        elif kind is not None:
            _add_group_version_kind(self.found[name], kind, of_list)
        return {"$ref": f"{self._prefix}{name}"}

    def add_custom_schemas(self, custom: CustomVersion) -> tuple[dict[str, str], dict[str, str]]:
        """Add the schemas of a version of a custom kind. Return references to an object and to a list."""
        crd = codec.to_dict(custom.kind.definition)  # not kept: a process may have thousands of large definitions
        schemas = schemas_v2 if self._prefix == _DEFINITIONS else schemas_v3
        self.found |= schemas(crd, custom.name)
        for message in (ObjectMeta, ListMeta):
            self.add_message_schema(_find_descriptor(message))
        name = custom_schema_name(crd, custom.name)
        return {"$ref": f"{self._prefix}{name}"}, {"$ref": f"{self._prefix}{name}List"}

    def add_election_schemas(self) -> tuple[dict[str, str], dict[str, str]]:
        """Add the schemas of elections, which are no stored objects. Return references to an election and to a list."""
        name, metadata = f"{_ELECTION_PACKAGE}.Election", self.add_message_schema(_find_descriptor(ObjectMeta))
        properties: dict[str, Any] = {"metadata": metadata, "status": STATUS_SCHEMA}
        self.found[name] = {"type": "object", "description": "An election of a leader.", "properties": properties}
        _add_group_version_kind(self.found[name], ELECTIONS, False)
        single = {"$ref": f"{self._prefix}{name}"}
        properties = {
            "metadata": self.add_message_schema(_find_descriptor(ListMeta)),
            "items": {"type": "array", "items": single},
        }
        self.found[f"{name}List"] = {"type": "object", "description": "A list of elections.", "properties": properties}
        _add_group_version_kind(self.found[f"{name}List"], ELECTIONS, True)
        return single, {"$ref": f"{self._prefix}{name}List"}

    def _build_schema(self, descriptor: Descriptor, kind: ApiResource | None, of_list: bool) -> dict[str, Any]:
        if descriptor.full_name in _SPECIAL:
            return dict(_SPECIAL[descriptor.full_name][1])
        extended = load_extensions().get(schema_name(descriptor), {})
        properties: dict[str, Any] = {}
        required = []
        for name, field in fields_of(descriptor).items():
            described = codec.field_description(field.descriptor)
            result = self._build_property(field.descriptor, field.value)
            if described.text:
                wrapped = "$ref" in result and self._prefix != _DEFINITIONS  # v3 ignores keys next to $ref
                result = {"description": described.text} | ({"allOf": [result]} if wrapped else result)
            properties[name] = result | extended.get("properties", {}).get(name, {})
            if described.required:
                required.append(name)
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if text := codec.message_description(descriptor):
            schema["description"] = text
        if required:
            schema["required"] = required
        schema |= {name: value for name, value in extended.items() if name != "properties"}
        if kind is not None:
            _add_group_version_kind(schema, kind, of_list)
        return schema

    def _build_property(self, field: FieldDescriptor, value: FieldDescriptor | None) -> dict[str, Any]:
        if value is not None:
            return {"type": "object", "additionalProperties": self._build_value_schema(value)}
        result = self._build_value_schema(field)
        return {"type": "array", "items": result} if field.is_repeated else result

    def _build_value_schema(self, field: FieldDescriptor) -> dict[str, Any]:
        if field.message_type is not None:
            return dict(self.add_message_schema(field.message_type))
        return dict(_PRIMITIVES[field.type])


def _add_group_version_kind(schema: dict[str, Any], kind: ApiResource, of_list: bool) -> None:
    """Add apiVersion, kind and the group, version and kind of a resource to a schema."""
    properties = schema["properties"]
    for name in ("apiVersion", "kind"):
        properties.setdefault(name, {"type": "string"})
    marks = schema.setdefault("x-kubernetes-group-version-kind", [])
    mark = _group_version_kind(kind, f"{kind.kind}List" if of_list else kind.kind)
    if mark not in marks:
        marks.append(mark)


def _group_version_kind(resource: ApiResource, kind: str) -> dict[str, str]:
    return {"group": resource.group, "kind": kind, "version": resource.version}


class _Operation(NamedTuple):
    method: str
    action: str
    parameters: tuple[str, ...]
    body: bool = False


_COLLECTION = (
    _Operation("get", "list", _LISTS),
    _Operation("post", "post", _WRITES, body=True),
    _Operation("delete", "deletecollection", (*_LISTS[:-1], *_DELETES)),
)
_OBJECT = (
    _Operation("get", "get", ()),
    _Operation("put", "put", _WRITES, body=True),
    _Operation("patch", "patch", (*_WRITES, "force")),
    _Operation("delete", "delete", _DELETES),
)


class OpenApi:
    """The documents. Those of a group and version with custom kinds are made again after a change of a definition of its group,
    and v2 after each change."""

    def __init__(self, served: ServedResources = BUILT_IN) -> None:
        self._served = served
        self._state = -1
        self._sources: dict[str, tuple[Any, ...]] = {}
        self._made: dict[str, tuple[tuple[Any, ...], bytes, str]] = {}
        """By name: what the document was made of, the document, and its hash."""
        self._names: dict[str, tuple[str, str]] = {}
        self._v2 = self._v2_protobuf = b""
        self._lock = threading.Lock()

    @property
    def paths(self) -> list[str]:
        self._update()
        return ["/openapi/v2", "/openapi/v3", *(f"/openapi/v3/{name}" for name in self._names)]

    def _update(self) -> None:
        """Follow the definitions. Called in the event loop."""
        if self._state == self._served.custom.version:
            return
        self._state = self._served.custom.version
        self._names = {
            (f"apis/{group}/{version}" if group else f"api/{version}"): (group, version)
            for group, versions in self._served.versions_by_group().items()
            for version in versions
        }
        self._sources = {name: tuple(self._served.resources_in_version(*named)) for name, named in self._names.items()}
        self._made = {name: made for name, made in self._made.items() if _are_identical(made[0], self._sources.get(name, ()))}
        self._v2 = self._v2_protobuf = b""

    async def respond(self, request: Request) -> Response:
        """Return a document. Raises ApiStatus: 404 for an unknown document, 406 for an unsupported media type. Documents are
        made in a thread at their first request, which takes up to a second."""
        self._update()
        return await asyncio.to_thread(self._respond, request)

    def _respond(self, request: Request) -> Response:
        path = request.path.rstrip("/")
        if path == "/openapi/v2":
            return self._respond_v2(request)
        if path == "/openapi/v3":
            return Response(200, dump_json(self.index()))
        name = path.removeprefix("/openapi/v3/")
        if name not in self._names:
            raise PageNotFound
        digest = self._hash_document(name)
        headers = {"ETag": f'"{digest}"', "Vary": "Accept"}
        if request.param("hash") == digest:
            headers["Cache-Control"] = "public, immutable"
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(304, b"", JSON, headers)
        return Response(200, self._build_document(name)[0], JSON, headers, is_static=True)

    def index(self) -> dict[str, Any]:
        return {
            "paths": {
                name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={self._hash_document(name)}"} for name in self._names
            }
        }

    def _hash_document(self, name: str) -> str:
        """Return the hash of the document of a group and version. It is the same at every gateway of this build."""
        sources = self._sources[name]
        definitions = [resource.custom.kind.definition.metadata for resource in sources if resource.custom is not None]
        if not definitions:
            return self._build_document(name)[1]
        made_of = [build_version(), name, *(f"{definition.uid} {definition.resourceVersion}" for definition in definitions)]
        return hashlib.sha256("\n".join(made_of).encode()).hexdigest().upper()

    def _build_document(self, name: str) -> tuple[bytes, str]:
        """Return the document of a group and version, and its hash."""
        with self._lock:
            if name not in self._made:
                sources = self._sources[name]
                body = dump_json(document_v3(sources))
                self._made[name] = sources, body, hashlib.sha256(body).hexdigest().upper()
            return self._made[name][1:]

    def _all_resources(self) -> list[ApiResource]:
        return [*api_resources.SERVED, *list(self._served.custom.resources())]

    def _respond_v2(self, request: Request) -> Response:
        accepted = parse_accept(request.headers.get("accept", "")) or parse_accept(JSON)
        for clause in accepted:
            if clause.media_type in (JSON, "*/*", "application/*"):
                with self._lock:
                    self._v2 = self._v2 or dump_json(document_v2(self._all_resources()))
                return Response(200, self._v2, is_static=True)
            if clause.media_type in openapi_protobuf.MEDIA_TYPES:
                with self._lock:
                    self._v2_protobuf = self._v2_protobuf or openapi_protobuf.encode_openapi(document_v2(self._all_resources()))
                return Response(200, self._v2_protobuf, openapi_protobuf.MEDIA_TYPES[1], is_static=True)
        message = f"only the following media types are accepted: {', '.join((JSON, *openapi_protobuf.MEDIA_TYPES))}"
        raise ApiStatus(406, "NotAcceptable", message)


def _are_identical(made: Sequence[object], present: Sequence[object]) -> bool:
    return len(made) == len(present) and all(map(is_, made, present))


def document_v3(resources: Iterable[ApiResource]) -> dict[str, Any]:
    """Return the document of the resources of a group and version."""
    schemas = _SchemaRegistry("#/components/schemas/")
    paths = dict(_build_paths(resources, schemas, _operation_v3))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {"schemas": schemas.found},
    }


def document_v2(resources: Iterable[ApiResource]) -> dict[str, Any]:
    schemas = _SchemaRegistry(_DEFINITIONS)
    paths = dict(_build_paths(resources, schemas, _operation_v2))
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "definitions": schemas.found,
    }


def _build_paths(
    resources: Iterable[ApiResource], schemas: _SchemaRegistry, render: Any
) -> Iterator[tuple[str, dict[str, Any]]]:
    for resource in resources:
        if resource is ELECTIONS:
            single, whole = schemas.add_election_schemas()
        elif resource.custom is not None:
            single, whole = schemas.add_custom_schemas(resource.custom)
        elif resource.resource is None:
            continue
        else:
            single = schemas.add_message_schema(resource.resource.message.DESCRIPTOR, resource)
            whole = schemas.add_message_schema(_find_descriptor(resource.resource.list_message), resource, of_list=True)
        root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        home = f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"
        yield (
            home,
            {
                op.method: render(resource, op, whole if op.action == "list" else single, single)
                for op in _served_operations(resource, _COLLECTION)
            },
        )
        yield (
            f"{home}/{{name}}",
            {op.method: render(resource, op, single, single) for op in _served_operations(resource, _OBJECT)},
        )
        if resource.namespaced:
            yield f"{root}/{resource.plural}", {"get": render(resource, _COLLECTION[0], whole, single)}
        if "status" in resource.subresources:
            operations = [op for op in _OBJECT if op.action != "delete"]
            yield f"{home}/{{name}}/status", {op.method: render(resource, op, single, single) for op in operations}


def _served_operations(resource: ApiResource, operations: Iterable[_Operation]) -> list[_Operation]:
    return [op for op in operations if _NEEDED[op.action] in resource.verbs]


def _patch_types(resource: ApiResource) -> tuple[str, ...]:
    """Return the media types of patches of a resource. kubectl apply sends a strategic patch only where it is listed."""
    return _PATCH_TYPES if resource.custom is None else tuple(name for name in _PATCH_TYPES if "strategic" not in name)


def _operation_v3(resource: ApiResource, op: _Operation, answer: dict[str, str], body: dict[str, str]) -> dict[str, Any]:
    content = {media_type: {"schema": answer} for media_type in _BODY_TYPES}
    result: dict[str, Any] = {
        "tags": [_operation_tag(resource)],
        "operationId": _operation_id(resource, op),
        "parameters": [{"name": name, "in": "query", "schema": {"type": _TYPES.get(name, "string")}} for name in op.parameters],
        "responses": {"200": {"description": "OK", "content": content}, "401": {"description": "Unauthorized"}},
        "x-kubernetes-action": op.action,
        "x-kubernetes-group-version-kind": _group_version_kind(resource, resource.kind),
    }
    if op.body:
        result["requestBody"] = {"content": {media_type: {"schema": body} for media_type in _BODY_TYPES}, "required": True}
    if op.action == "patch":
        result["requestBody"] = {
            "content": {media_type: {"schema": {"type": "object"}} for media_type in _patch_types(resource)},
            "required": True,
        }
    return result


def _operation_v2(resource: ApiResource, op: _Operation, answer: dict[str, str], body: dict[str, str]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "query", "type": _TYPES.get(name, "string"), "uniqueItems": True} for name in op.parameters
    ]
    if op.body or op.action == "patch":
        schema: dict[str, Any] = dict(body) if op.body else {"type": "object"}
        parameters.insert(0, {"name": "body", "in": "body", "required": True, "schema": schema})
    return {
        "consumes": list(_patch_types(resource) if op.action == "patch" else ("*/*",)),
        "produces": list(_BODY_TYPES),
        "schemes": ["https"],
        "tags": [_operation_tag(resource)],
        "operationId": _operation_id(resource, op),
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "schema": answer}, "401": {"description": "Unauthorized"}},
        "x-kubernetes-action": op.action,
        "x-kubernetes-group-version-kind": _group_version_kind(resource, resource.kind),
    }


def _find_descriptor(message: Any) -> Descriptor:
    descriptor: Descriptor = message.DESCRIPTOR
    return descriptor


def _operation_tag(resource: ApiResource) -> str:
    return f"{resource.group.partition('.')[0] or 'core'}_{resource.version}"


def _operation_id(resource: ApiResource, op: _Operation) -> str:
    group = "".join(part.title() for part in (resource.group.partition(".")[0] or "core").split("-"))
    scope = "Namespaced" if resource.namespaced else ""
    return f"{op.action}{group}{resource.version.title()}{scope}{resource.kind}"
