"""Tables, which clients print without knowledge of the kind, and objects with metadata only.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pinnace.api.conversion import conversion_of
from pinnace.api.json_codec import to_json
from pinnace.api.ownership import show_owners, take_owners
from pinnace.api.resources import Object, Resource
from pinnace.apiextensions.columns import cells
from pinnace.apiextensions.kinds import CustomVersion
from pinnace.gateway.api_resources import ApiResource
from pinnace.gateway.http import ApiStatus, Request, dump_json
from pinnace.printers import COLUMNS
from pinnace.printers.columns import Columns, format_age

ROW_END, METADATA_END, TABLE_END = b"}}}", b"}}", b"}}}]}"
"""The end of the JSON of a row, of an object with metadata only, and of a one-row Table, after the last field of metadata."""
INCLUDES = ("", "None", "Metadata", "Object")
_PLAIN: Columns[Any] = Columns(
    ("NAME", "AGE"), (), lambda obj, now: (obj.metadata.name, format_age(obj.metadata.creationTimestamp, now))
)


_NAMES = {
    "IP": "IP",
    "INTERNAL-IP": "Internal-IP",
    "EXTERNAL-IP": "External-IP",
    "CLUSTER-IP": "Cluster-IP",
    "OS-IMAGE": "OS-Image",
    "MINPODS": "MinPods",
    "MAXPODS": "MaxPods",
    "PARAMKIND": "ParamKind",
    "PARAMREF": "ParamRef",
    "POLICYNAME": "PolicyName",
}
"""Column names that are not in title case."""


_NAME_DEFINITION: dict[str, Any] = {
    "name": "Name",
    "type": "string",
    "format": "name",
    "description": (
        "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a "
        "client to request the generation of an appropriate name automatically. Name is primarily intended for creation "
        "idempotence and configuration definition. Cannot be updated. More info: "
        "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
    ),
    "priority": 0,
}
"""The first column of custom kinds, with Kubernetes' description."""
_INTEGERS: Mapping[str, Collection[str]] = {
    "cronjobs": ("ACTIVE",),
    "csinodes": ("DRIVERS",),
    "daemonsets": ("DESIRED", "CURRENT", "READY", "UP-TO-DATE", "AVAILABLE"),
    "mutatingadmissionpolicies": ("MUTATIONS",),
    "mutatingwebhookconfigurations": ("WEBHOOKS",),
    "poddisruptionbudgets": ("ALLOWED DISRUPTIONS",),
    "priorityclasses": ("VALUE",),
    "replicasets": ("DESIRED", "CURRENT", "READY"),
    "validatingadmissionpolicies": ("VALIDATIONS",),
    "validatingwebhookconfigurations": ("WEBHOOKS",),
}
"""Columns of the type integer, by plural."""
_TYPES: Mapping[str, str] = {"CREATED AT": "date", "SUSPEND": "boolean"}
"""Types of other columns that are not strings. The cells are strings nevertheless."""
_NUMBERS: Mapping[str, Collection[str]] = {
    **_INTEGERS,
    "configmaps": ("DATA",),
    "deployments": ("UP-TO-DATE", "AVAILABLE"),
    "events": ("COUNT",),
    "horizontalpodautoscalers": ("MAXPODS", "REPLICAS"),
    "secrets": ("DATA",),
}
"""Columns whose cells are numbers, by plural. Kubernetes declares some of them as strings."""


def columns_of(resource: ApiResource) -> Columns[Any]:
    return COLUMNS.get(resource.plural, _PLAIN)


def read_include_object(request: Request) -> str:
    """Return the query parameter. Raises ApiStatus (400)."""
    value = request.param("includeObject")
    if value not in INCLUDES:
        message = f'Table option includeObject must be one of None, Metadata, Object, not "{value[:32]}"'
        raise ApiStatus(400, "BadRequest", message)
    return value or "Metadata"


def render_table(
    resource: ApiResource,
    objects: Iterable[Object],
    list_meta: Mapping[str, Any],
    now: float,
    *,
    version: str,
    include: str,
    definitions: bool = True,
) -> dict[str, Any]:
    """Return a Table of objects in the version of the resource. `list_meta`: the metadata of the list or of the single object.
    `definitions`: include the column definitions, once per watch."""
    result: dict[str, Any] = {"kind": "Table", "apiVersion": f"meta.k8s.io/{version}", "metadata": dict(list_meta)}
    result["columnDefinitions"] = _column_definitions(resource) if definitions else None
    result["rows"] = [render_row(resource, obj, now, version, include) for obj in objects]
    return result


def decode_for(resource: Resource[Any], data: bytes, include: str) -> tuple[Any, str]:
    """Decode an object for a row that includes a part of it, or for its metadata only. Return it, and the JSON of its
    managedFields if they are not in the object, for `with_owners`. Raises DecodeError."""
    obj: Any = resource.message
    obj = obj.FromString(data)
    if include == "Metadata":
        return obj, take_owners(resource, obj)
    if include == "Object":
        show_owners(resource, obj)
    return obj, ""


def with_owners(document: Mapping[str, Any], owners: str, end: bytes) -> bytes:
    """Return compact JSON of a document. `owners`: the JSON of managedFields, which become the last field of the metadata at
    the end of the document; "": none. `end`: the end of the JSON after the last field of these metadata."""
    text = dump_json(document)[:-1]
    return b'%b,"managedFields":%b%b' % (text.removesuffix(end), owners.encode(), end) if owners else text


def render_row(resource: ApiResource, obj: Object, now: float, version: str, include: str) -> dict[str, Any]:
    """Return a row of a Table."""
    if resource.custom is not None:
        return _custom_row(resource.custom, obj, now, version, include)
    columns = columns_of(resource)
    stored = conversion_of(resource.resource).to_stored(obj) if resource.resource is not None else obj
    numbers, headers = _NUMBERS.get(resource.plural, ()), (*columns.headers, *columns.wide)
    cells = zip(headers, columns.row(stored, now), strict=True)
    result: dict[str, Any] = {"cells": [int(cell) if header in numbers else cell for header, cell in cells]}
    if include == "Metadata":
        result["object"] = partial_metadata(obj, version)
    elif include == "Object":
        result["object"] = {"kind": resource.kind, "apiVersion": resource.api_version} | json.loads(to_json(obj))  # type: ignore[arg-type]  # a message here: dictionaries are served by custom_resources
    return result


def _custom_row(custom: CustomVersion, obj: Any, now: float, version: str, include: str) -> dict[str, Any]:
    form = custom.to_served(obj)
    result: dict[str, Any] = {"cells": [obj.metadata.name, *cells(custom.columns, form, now)]}
    if include == "Metadata":
        result["object"] = partial_metadata(obj, version)
    elif include == "Object":
        result["object"] = form
    return result


def partial_metadata(obj: Object, version: str) -> dict[str, Any]:
    metadata = json.loads(to_json(obj.metadata))
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": metadata}


def _column_definitions(resource: ApiResource) -> list[dict[str, Any]]:
    if resource.custom is not None:
        return [_NAME_DEFINITION, *(dict(column.definition) for column in resource.custom.columns)]
    columns = columns_of(resource)
    integers = _INTEGERS.get(resource.plural, ())
    names = [*((name, 0) for name in columns.headers), *((name, 1) for name in columns.wide)]
    return [
        {
            "name": _NAMES.get(name, name.title()),
            "type": "integer" if name in integers else _TYPES.get(name, "string"),
            "format": "name" if name == "NAME" else "",
            "description": "",
            "priority": priority,
        }
        for name, priority in names
    ]
