"""Merges the JSON forms of objects. `apply` is a three-way merge on the client, as in `kubectl apply`.

The last applied configuration is stored in an annotation of the object. The next `apply`

* sets the fields that the new configuration contains,
* removes the fields that the last configuration contained and the new one does not,
* leaves all other fields (defaults, status, fields set by others) unchanged.

Objects merge field by field, maps key by key. Lists of objects that have an identity (containers by name, mounts by path) merge
item by item; other lists are replaced as a whole. When a union (a volume, a strategy) changes, only the fields of the new
configuration remain. All functions take and return dictionaries, and do not modify their arguments. Patches (pinnace.api.patch)
merge by the same rules, except for lists and retained fields.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
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
"""The fields that identify the items of a list, by the name of the list: Kubernetes' patchMergeKey and listMapKeys. (A node's
taints have neither.)"""
SETS = frozenset({"finalizers", "podCIDRs"})
"""Lists of plain values that merge as sets: values that other clients added are kept."""
_UNIONS = frozenset({"strategy", "volumes"})
"""Unions, whose variants have different fields: Kubernetes' retainKeys. The defaults of the old variant are not valid for the
new variant."""
DEFAULTS = {"protocol": "TCP"}
"""The values of identity fields that are absent or empty."""

Data = Mapping[str, Any]
Key = tuple[str, ...]


def key_of(name: str, item: Any) -> Key | None:
    """The identity of an item of the list `name`; None when its items have none."""
    if name not in _IDENTITY or not isinstance(item, Mapping):
        return None
    return tuple(str(item.get(field) or DEFAULTS.get(field)) for field in _IDENTITY[name])


class Merge:
    """Merges field by field. A null removes a field, and lists are replaced as a whole. With an empty previous configuration
    (`last`), this is a JSON merge patch (RFC 7386)."""

    def objects(self, last: Data, live: Data, desired: Data) -> dict[str, Any]:
        merged = {
            name: None if name in desired else deepcopy(value)  # a desired field keeps its position, and is merged below
            for name, value in live.items()
            if name in desired or name not in last
        }
        for name, value in desired.items():
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = self._value(name, last.get(name), live.get(name), value)
        return merged

    def lists(self, name: str, last: Sequence[Any], live: Sequence[Any], desired: Sequence[Any]) -> list[Any] | None:
        """The merged list; None when the desired list replaces the live one."""
        return None

    def _value(self, name: str, last: Any, live: Any, desired: Any) -> Any:
        if isinstance(desired, Mapping):
            return self.objects(_mapping(last), _mapping(live), desired)
        if is_list(desired):
            merged = self.lists(name, last if is_list(last) else (), live if is_list(live) else (), desired)
            if merged is not None:
                return merged
        return deepcopy(desired)


def apply(last: Data | None, live: Data, desired: Data) -> dict[str, Any]:
    """The object to store. `last`: the last applied configuration, None if there is none. A null in `desired` removes the
    field."""
    return _APPLY.objects(last or {}, live, desired)


def last_applied(live: Data) -> dict[str, Any] | None:
    """The last applied configuration of the object; None when it has none, or when the annotation is not valid."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def with_last_applied(desired: Data) -> dict[str, Any]:
    """The object, with its own configuration in the annotation for the next apply."""
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


class _Apply(Merge):
    """Desired items of a list keep their order; items of other clients keep their position relative to them. A union that
    changes loses all fields that are not desired. A union that does not change keeps its defaults and the fields that other
    clients set."""

    def lists(self, name: str, last: Sequence[Any], live: Sequence[Any], desired: Sequence[Any]) -> list[Any] | None:
        if name in SETS:
            kept = [(at, item) for at, item in enumerate(live) if item not in desired and item not in last]
            return in_order(kept, [(live.index(item) if item in live else None, item) for item in desired])
        was, now, wanted = (by_key(name, items) for items in (last, live, desired))
        if was is None or now is None or wanted is None:
            return None
        places = {key: at for at, key in enumerate(now)}
        others = [(places[key], deepcopy(item)) for key, item in now.items() if key not in wanted and key not in was]
        found = [(places.get(key), self._value(name, was.get(key), now.get(key), item)) for key, item in wanted.items()]
        return in_order(others, found)

    def _value(self, name: str, last: Any, live: Any, desired: Any) -> Any:
        merged = super()._value(name, last, live, desired)
        if name in _UNIONS and isinstance(desired, Mapping) and merged != live:
            return {field: value for field, value in merged.items() if field in desired}
        return merged


_APPLY = _Apply()


def in_order(kept: Sequence[tuple[int, Any]], named: Sequence[tuple[int | None, Any]]) -> list[Any]:
    """Merges the items of a list: `named` in that order, and before each of them those of `kept` that preceded it in the live
    list. Each item has its index in the live list, if it is in it.

    Source: mergeSortedSlice in k8s.io/apimachinery/pkg/util/strategicpatch."""
    merged, rest = list[Any](), deque(kept)
    for place, item in named:
        while place is not None and rest and rest[0][0] < place:
            merged.append(rest.popleft()[1])
        merged.append(item)
    return [*merged, *(item for _, item in rest)]


def by_key(name: str, items: Sequence[Any]) -> dict[Key, Any] | None:
    """The items of the list `name` by their identity; None when an item has no identity, or two have the same."""
    found = {key: item for item in items if (key := key_of(name, item)) is not None}
    return found if len(found) == len(items) else None


def _mapping(value: Any) -> Data:
    return value if isinstance(value, Mapping) else {}


def is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
