"""Save a cluster: which objects are taken, and which of their fields.

    discovery --> kinds that can be listed and created --> lists --> reasons not to take an object (OMITTED) --> the file

Each kind is read at one revision, and kinds one after the other: a cluster that changes meanwhile is not saved at one moment.
`pinnace backup` saves one revision of all.

Fields that the server or a controller of the old cluster has set are removed (`strip_server_fields`). UIDs and owners stay, so
that a restore can find who owns what.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pinnace.snapshot.api import ApiError, ClusterApi, Kind, Object
from pinnace.snapshot.documents import SnapshotError

DERIVED_KINDS = {
    "events": "events expire",
    "events.events.k8s.io": "events expire",
    "leases.coordination.k8s.io": "leases belong to running components",
    "componentstatuses": "their values are measured",
    "apiservices.apiregistration.k8s.io": "each server has its own",
    "flowschemas.flowcontrol.apiserver.k8s.io": "each server has its own",
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": "each server has its own",
    "ipaddresses.networking.k8s.io": "they are allocated with services",
    "servicecidrs.networking.k8s.io": "each cluster has its own",
    "certificatesigningrequests.certificates.k8s.io": "requests expire",
}
"""Kinds that are not taken, and why."""
_SERVER_FIELDS = ("resourceVersion", "managedFields", "selfLink", "generation", "deletionGracePeriodSeconds")
_MANAGED_BY = ("endpointslice.kubernetes.io/managed-by", "endpoints.kubernetes.io/managed-by")
_SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def _annotations(thing: Object) -> dict[str, str]:
    return thing["metadata"].get("annotations") or {}


def _labels(thing: Object) -> dict[str, str]:
    return thing["metadata"].get("labels") or {}


OMITTED: Sequence[tuple[str, str, Callable[[Object], bool]]] = (
    ("", "they are being deleted", lambda thing: "deletionTimestamp" in thing["metadata"]),
    ("", "each server creates them", lambda thing: "rbac-defaults" in _labels(thing).get("kubernetes.io/bootstrapping", "")),
    ("", "each server creates them", lambda thing: _annotations(thing).get("apf.kubernetes.io/autoupdate-spec") == "true"),
    ("Namespace", "each cluster has them", lambda thing: thing["metadata"]["name"] in _SYSTEM_NAMESPACES),
    ("ServiceAccount", "each namespace has one", lambda thing: thing["metadata"]["name"] == "default"),
    ("ConfigMap", "each namespace has one", lambda thing: thing["metadata"]["name"] == "kube-root-ca.crt"),
    ("Secret", "tokens are valid for one cluster", lambda thing: thing.get("type") == "kubernetes.io/service-account-token"),
    ("Service", "each cluster has it", lambda thing: _key(thing) == ("default", "kubernetes")),
    ("PriorityClass", "each cluster has them", lambda thing: thing["metadata"]["name"].startswith("system-")),
    ("EndpointSlice", "a controller derives them", lambda thing: bool(_labels(thing).get(_MANAGED_BY[0]))),
    ("EndpointSlice", "each cluster has it", lambda thing: _labels(thing).get("kubernetes.io/service-name") == "kubernetes"),
    (
        "Endpoints",
        "a controller derives them",
        lambda thing: (
            _MANAGED_BY[1] in _labels(thing) or "endpoints.kubernetes.io/last-change-trigger-time" in _annotations(thing)
        ),
    ),
    ("Pod", "kubelets create them", lambda thing: "kubernetes.io/config.mirror" in _annotations(thing)),
    ("Endpoints", "each cluster has it", lambda thing: _key(thing) == ("default", "kubernetes")),
)
"""(kind, or "" for all; reason; condition): objects that are not taken."""


def _key(thing: Object) -> tuple[str, str]:
    return thing["metadata"].get("namespace", ""), thing["metadata"]["name"]


@dataclass(frozen=True, slots=True)
class Selection:
    """What to save: all, or `kinds` as kubectl names them, in `namespaces`, with a label `selector`."""

    kinds: Sequence[str] = ()
    namespaces: Sequence[str] = ()
    """Only objects in them, and the namespaces themselves."""
    selector: str = ""


@dataclass(slots=True)
class Summary:
    """What was saved: numbers by kind; and what was not, by (kind, reason)."""

    taken: Counter[str] = field(default_factory=Counter)
    omitted: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The number of objects, or 0 for a kind that was not listed."""


def save_objects(api: ClusterApi, selection: Selection, write: Callable[[Object], None]) -> Summary:
    """Write the selected objects of a cluster. Raises ApiError, ApiUnavailable and SnapshotError."""
    summary = Summary()
    for kind in _select_kinds([kind for kind in api.discover_kinds() if "list" in kind.verbs], selection):
        if reason := _reason_against_kind(kind):
            summary.omitted[kind.full_name, reason] = 0
            continue
        try:
            for thing in _list_selected(api, kind, selection):
                if reason := reason_against_object(thing):
                    summary.omitted[kind.full_name, reason] += 1
                else:
                    write(strip_server_fields(thing))
                    summary.taken[kind.full_name] += 1
        except ApiError as error:
            if error.code not in (403, 404, 405):
                raise
            summary.omitted[kind.full_name, f"the server refuses: {error}"] = 0
    return summary


def _select_kinds(kinds: Sequence[Kind], selection: Selection) -> list[Kind]:
    for name in selection.kinds:
        if not any(kind.is_named(name) for kind in kinds):
            raise SnapshotError(f'the server doesn\'t have a resource type "{name}"')
    chosen = [kind for kind in kinds if not selection.kinds or any(map(kind.is_named, selection.kinds))]
    if selection.namespaces:
        chosen = [kind for kind in chosen if kind.namespaced or kind.kind == "Namespace"]
    return chosen


def _reason_against_kind(kind: Kind) -> str:
    if kind.group == "metrics.k8s.io":
        return "their values are measured"
    if "create" not in kind.verbs:
        return "they cannot be created"
    return DERIVED_KINDS.get(kind.full_name, "")


def _list_selected(api: ClusterApi, kind: Kind, selection: Selection) -> Iterable[Object]:
    if not selection.namespaces:
        yield from api.list_objects(kind, selector=selection.selector)
    elif kind.kind == "Namespace":
        for thing in api.list_objects(kind):
            if thing["metadata"]["name"] in selection.namespaces:
                yield thing
    else:
        for namespace in selection.namespaces:
            yield from api.list_objects(kind, namespace, selection.selector)


def reason_against_object(thing: Object) -> str:
    """Return why the object is not taken, or an empty text."""
    return next((reason for kind, reason, applies in OMITTED if kind in ("", thing["kind"]) and applies(thing)), "")


def strip_server_fields(thing: Object) -> Object:
    """Return the object without the fields that belong to the server that has stored it."""
    metadata: dict[str, Any] = {key: value for key, value in thing["metadata"].items() if key not in _SERVER_FIELDS}
    return {"apiVersion": thing["apiVersion"], "kind": thing["kind"], **thing, "metadata": metadata}
