"""Apply: a three-way merge of an object, as `kubectl apply` does it on the client.

What was applied last is kept with the object, in an annotation. Next time
* what is wanted now is set,
* what was wanted last time and is not wanted now is removed,
* what was never ours (defaults, status, what others have set) stays as it is.

Objects merge field by field, maps key by key. Lists of objects that have an identity (containers by name, mounts by path) merge
item by item; other lists are replaced as a whole. Everything here is a function of dictionaries, and leaves them unchanged.
"""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

LAST_APPLIED = "pinnace.io/last-applied-configuration"

_IDENTITY: Mapping[str, tuple[str, ...]] = {
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "ports": ("containerPort", "port", "protocol"),
    "schedulingGates": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
"""What tells the items of a list apart, by the list's field: Kubernetes' patchMergeKey and listMapKeys."""
_SETS = frozenset({"finalizers", "podCIDRs"})
"""Lists of plain values to which others may add."""
_DEFAULTS = {"protocol": "TCP"}
"""Values of identity fields that are left out."""

Data = Mapping[str, Any]


def apply(last: Data | None, live: Data, desired: Data) -> dict[str, Any]:
    """The object to store. `last`: what was applied before, None if nothing was. A null in `desired` removes the field."""
    return _merge(last or {}, live, desired)


def last_applied(live: Data) -> dict[str, Any] | None:
    """What was applied to the object last; None when nothing was, or when somebody has spoilt the annotation."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def with_last_applied(desired: Data) -> dict[str, Any]:
    """The object with itself in its annotation, for the next apply."""
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


def _merge(last: Data, live: Data, desired: Data) -> dict[str, Any]:
    merged = {name: deepcopy(value) for name, value in live.items() if name in desired or name not in last}
    for name, value in desired.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge_value(name, last.get(name), live.get(name), value)
    return merged


def _merge_value(name: str, last: Any, live: Any, desired: Any) -> Any:
    if isinstance(desired, Mapping):
        return _merge(_mapping(last), _mapping(live), desired)
    if _is_list(desired) and _is_list(live):
        if name in _SETS:
            return [*desired, *(item for item in live if item not in desired and item not in (last or ()))]
        if name in _IDENTITY:
            merged = _merge_items(_IDENTITY[name], last if _is_list(last) else (), live, desired)
            if merged is not None:
                return merged
    return deepcopy(desired)


def _merge_items(identity: tuple[str, ...], last: Any, live: Any, desired: Any) -> list[Any] | None:
    """The wanted items in their order, then those of others. None when the items cannot be told apart."""
    by_key = [_by_key(identity, items) for items in (last, live, desired)]
    if any(len(found) != len(items) for found, items in zip(by_key, (last, live, desired), strict=True)):
        return None
    was, now, wanted = by_key
    merged = [_merge(was.get(key, {}), now.get(key, {}), item) for key, item in wanted.items()]
    return merged + [deepcopy(item) for key, item in now.items() if key not in wanted and key not in was]


def _by_key(identity: tuple[str, ...], items: Sequence[Any]) -> dict[tuple[str, ...], Data]:
    def key(item: Data) -> tuple[str, ...]:
        return tuple(str(item.get(field, _DEFAULTS.get(field))) for field in identity)

    return {key(item): item for item in items if isinstance(item, Mapping)}


def _mapping(value: Any) -> Data:
    return value if isinstance(value, Mapping) else {}


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
