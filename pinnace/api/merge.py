"""JSON merge patches, the identity of list items, and the annotation with the last applied configuration.

All functions take and return dictionaries, and do not modify their arguments.
"""

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

LAST_APPLIED = "pinnace.io/last-applied-configuration"

_IDENTITY: Mapping[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "drivers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "hostIPs": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port", "protocol"),
    "schedulingGates": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
"""The fields that identify the items of a list, by the name of the list: Kubernetes' patchMergeKey and listMapKeys. A node's
taints have neither."""
DEFAULTS = {"protocol": "TCP"}
"""The defaults of absent or empty identity fields."""

Data = Mapping[str, Any]
Key = tuple[str, ...]


def key_of(name: str, item: Any) -> Key | None:
    """Return the identity of an item of the list `name`, or None if its items have no identity."""
    if name not in _IDENTITY or not isinstance(item, Mapping):
        return None
    return tuple(str(item.get(field) or DEFAULTS.get(field)) for field in _IDENTITY[name])


def merge_json(live: Data, patch: Data) -> dict[str, Any]:
    """Apply a JSON merge patch (RFC 7386): field by field, null removes a field, and lists are replaced. A field that is new
    comes last."""
    result = {name: None if name in patch else deepcopy(value) for name, value in live.items()}  # None: a place
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            before = live.get(name)
            result[name] = merge_json(before if isinstance(before, Mapping) else {}, value)
        else:
            result[name] = deepcopy(value)
    return result


def with_last_applied(desired: Data) -> dict[str, Any]:
    """Return the object with its configuration in the annotation, for the next apply."""
    result = deepcopy(dict(desired))
    metadata = result["metadata"] = dict(result.get("metadata") or {})
    annotations = metadata["annotations"] = dict(metadata.get("annotations") or {})
    annotations.pop(LAST_APPLIED, None)
    annotations[LAST_APPLIED] = json.dumps(_without_annotation(desired), separators=(",", ":"), sort_keys=True)
    return result


def _without_annotation(desired: Data) -> dict[str, Any]:
    result = deepcopy(dict(desired))
    annotations = (result.get("metadata") or {}).get("annotations") or {}
    annotations.pop(LAST_APPLIED, None)
    return result
