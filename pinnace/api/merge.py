"""Merges of JSON forms. `apply` is a client-side three-way merge as in `kubectl apply`.

The last applied configuration is stored in an annotation of the object. The next `apply`

* sets the fields of the new configuration,
* removes fields that are in the last configuration but not in the new one,
* keeps all other fields (defaults, status, and fields of other clients).

Objects are merged field by field, and maps key by key. Lists whose items have an identity (containers by name, mounts by path)
are merged item by item; other lists are replaced. If a union (a volume, a strategy) changes, only the fields of the new
configuration remain. All functions take and return dictionaries, and do not modify their arguments. Patches (pinnace.api.patch)
follow the same rules, except for lists and retained fields.
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
"""The fields that identify the items of a list, by the name of the list: Kubernetes' patchMergeKey and listMapKeys. A node's
taints have neither."""
SETS = frozenset({"finalizers", "podCIDRs"})
"""Lists of scalars that are merged as sets: values of other clients are kept."""
_UNIONS = frozenset({"strategy", "volumes"})
"""Unions whose members have different fields: Kubernetes' retainKeys. The defaults of the old member are invalid for the new
member."""
DEFAULTS = {"protocol": "TCP"}
"""The defaults of absent or empty identity fields."""

Data = Mapping[str, Any]
Key = tuple[str, ...]


def key_of(name: str, item: Any) -> Key | None:
    """Return the identity of an item of the list `name`, or None if its items have no identity."""
    if name not in _IDENTITY or not isinstance(item, Mapping):
        return None
    return tuple(str(item.get(field) or DEFAULTS.get(field)) for field in _IDENTITY[name])


class Merge:
    """Merges field by field. A null removes a field, and lists are replaced. With an empty previous configuration (`last`),
    this is a JSON merge patch (RFC 7386)."""

    def objects(self, last: Data, live: Data, desired: Data) -> dict[str, Any]:
        merged = {
            name: None if name in desired else deepcopy(value)  # a placeholder: the field is merged below
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
        """Return the merged list, or None if the desired list replaces the live list."""
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
    """Return the object to store. `last`: the last applied configuration, or None. A null in `desired` removes the field."""
    return _APPLY.objects(last or {}, live, desired)


def last_applied(live: Data) -> dict[str, Any] | None:
    """Return the last applied configuration of the object, or None if the annotation is missing or invalid."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


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


class _Apply(Merge):
    """Desired list items keep their order; items of other clients keep their position relative to them. A union that changes
    loses all fields that are not desired. An unchanged union keeps its defaults and the fields of other clients."""

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
    """Merge the items of a list. `named` items keep their order. Before each of them, the `kept` items that preceded it in the
    live list are inserted. Each item has its index in the live list; None marks a new item.

    Source: mergeSortedSlice in k8s.io/apimachinery/pkg/util/strategicpatch."""
    merged, rest = list[Any](), deque(kept)
    for place, item in named:
        while place is not None and rest and rest[0][0] < place:
            merged.append(rest.popleft()[1])
        merged.append(item)
    return [*merged, *(item for _, item in rest)]


def by_key(name: str, items: Sequence[Any]) -> dict[Key, Any] | None:
    """Return the items of the list `name` by identity, or None if an item has no identity or two items have the same."""
    found = {key: item for item in items if (key := key_of(name, item)) is not None}
    return found if len(found) == len(items) else None


def _mapping(value: Any) -> Data:
    return value if isinstance(value, Mapping) else {}


def is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
