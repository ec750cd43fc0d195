"""Restore a snapshot: objects become new objects of a cluster, with new UIDs.

    check: kinds served? objects absent? --> definitions, namespaces --> what others need: classes, accounts, volumes, nodes
      --> dependents before their owners: Pods, ReplicaSets, Deployments --> quotas, webhooks, policies --> owner references

Controllers of the cluster run meanwhile. Pods therefore exist before the ReplicaSet that counts them: a controller adopts an
orphan that its selector matches, and creates nothing. At the end every object gets the owners of the snapshot with their new
UIDs. An owner that is not in the snapshot is omitted, because the garbage collector would delete the object.

Status is restored where it is an input, not a result: the resources of nodes, and the end of Pods and Jobs. Addresses and ports
that the old cluster has allocated for services are not restored. A Job keeps its selector by the UID of the old Job
(`manualSelector`), because labels of its Pods have that UID.

Not promised: a restore that is interrupted leaves the objects so far. With `existing=SKIP`, it can be repeated.
"""

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import itemgetter
from typing import Any

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from pinnace.snapshot.api import ApiError, ClusterApi, Kind, Object
from pinnace.snapshot.documents import SnapshotError
from pinnace.snapshot.save import reason_against_object

FIRST = (
    *("CustomResourceDefinition", "Namespace", "PriorityClass", "RuntimeClass", "StorageClass", "CSIDriver", "IngressClass"),
    *("ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "ConfigMap", "Secret"),
    *("PersistentVolume", "PersistentVolumeClaim", "Node", "CSINode", "Service"),
)
"""Kinds that others need, in order."""
LAST = (
    *("PodDisruptionBudget", "HorizontalPodAutoscaler", "LimitRange", "ResourceQuota"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"),
    *("MutatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"),
)
"""Kinds that limit or change later objects. They are created last, in this order."""
DEPENDENTS = len(FIRST)
"""The rank of all other kinds."""
DEFINITION, NAMESPACE = FIRST[:2]
READY_TIMEOUT, BUSY_TIMEOUT = 60.0, 60.0
"""Seconds until a definition is served or a namespace has its account, and for which a busy server is asked again."""
POLL = 0.05
SETTLING = 2.0
"""Seconds between dependents and their owners. The controller of an owner learns of both by different watches, and creates
others if it does not know the dependents yet."""
TRACKING = "batch.kubernetes.io/job-tracking"
"""The finalizer of Pods of a Job, which the Job's controller adds again."""
_BUSY = (429, 503)
_NODE_STATUS = ("capacity", "allocatable", "conditions", "nodeInfo", "addresses", "images")
_FINISHED = ("Succeeded", "Failed")
Key = tuple[str, str, str, str]
"""(group, kind, namespace, name)."""


class Existing(StrEnum):
    """What to do with objects of the snapshot that exist."""

    REFUSE = "refuse"
    """Restore nothing."""
    SKIP = "skip"
    OVERWRITE = "overwrite"


@dataclass(slots=True)
class Restored:
    """The result: numbers by kind, and messages about single objects."""

    created: Counter[str] = field(default_factory=Counter)
    overwritten: Counter[str] = field(default_factory=Counter)
    omitted: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (kind, reason)."""
    failures: list[str] = field(default_factory=list)


def restore_objects(
    api: ClusterApi,
    objects: Sequence[Object],
    existing: Existing = Existing.REFUSE,
    on_object: Callable[[], None] = lambda: None,
) -> Restored:
    """Create the objects. `on_object` is called after each. Raises SnapshotError before anything is written, and
    ApiUnavailable."""
    result = Restored()
    chosen: dict[Key, Object] = {}
    for thing in objects:
        key = key_of(thing)
        if reason := reason_against_object(thing):
            result.omitted[thing["kind"], reason] += 1
        elif key in chosen:
            raise SnapshotError(f"the snapshot has {describe(key)} twice")
        else:
            chosen[key] = thing
    restore = _Restore(api, chosen, existing, result, on_object)
    restore.check()
    restore.run()
    return result


def key_of(thing: Object) -> Key:
    """Return what identifies an object in every cluster."""
    metadata = thing["metadata"]
    return thing["apiVersion"].rpartition("/")[0], thing["kind"], metadata.get("namespace", ""), metadata["name"]


def describe(key: Key) -> str:
    """Return the object as kubectl names it: deployment.apps/web in namespace x."""
    group, kind, namespace, name = key
    return f"{kind.lower()}{'.' if group else ''}{group}/{name}{f' in namespace {namespace}' if namespace else ''}"


def owner_depths(objects: Iterable[Object]) -> dict[str, int]:
    """Return the number of owners above each object, by UID: 0 for a Deployment, 2 for its Pods. Circles end."""
    owners = {
        thing["metadata"].get("uid", ""): [owner["uid"] for owner in thing["metadata"].get("ownerReferences") or []]
        for thing in objects
    }
    depths: dict[str, int] = {}

    def depth(uid: str, below: frozenset[str]) -> int:
        if uid not in depths:
            above = [depth(owner, below | {uid}) + 1 for owner in owners[uid] if owner in owners and owner not in below]
            depths[uid] = max(above, default=0)
        return depths[uid]

    for uid in owners:
        depth(uid, frozenset((uid,)))
    return depths


Rank = tuple[int, int]


def creation_order(objects: Sequence[Object]) -> list[tuple[Rank, Object]]:
    """Return the objects in the order in which they are created. Of objects with different ranks (DEPENDENTS, n), the first may
    be dependents of the others."""
    depths = owner_depths(objects)

    def rank(thing: Object) -> Rank:
        kind = thing["kind"]
        if kind in FIRST:
            return FIRST.index(kind), 0
        if kind in LAST:
            return DEPENDENTS + 1 + LAST.index(kind), 0
        return DEPENDENTS, -depths[thing["metadata"].get("uid", "")]

    return sorted(((rank(thing), thing) for thing in objects), key=itemgetter(0))


def new_object(thing: Object) -> Object:
    """Return the object as it is created: without status, identity, owners, and what another cluster has allocated."""
    made = copy.deepcopy(thing)
    made.pop("status", None)
    metadata: dict[str, Any] = made["metadata"]
    for name in ("uid", "creationTimestamp", "ownerReferences", "resourceVersion", "managedFields", "generation", "selfLink"):
        metadata.pop(name, None)
    spec = made.get("spec") or {}
    match made["kind"]:
        case "Namespace":
            made.pop("spec", None)
        case "ServiceAccount":
            made.pop("secrets", None)
        case "Pod":
            spec.pop("ephemeralContainers", None)
            if TRACKING in (finalizers := metadata.get("finalizers") or []):  # with it, an orphan is released, not adopted
                metadata["finalizers"] = [name for name in finalizers if name != TRACKING]
        case "PersistentVolume":
            for name in ("uid", "resourceVersion"):
                (spec.get("claimRef") or {}).pop(name, None)
        case "Service":
            if spec.get("clusterIP") != "None":
                for name in ("clusterIP", "clusterIPs"):
                    spec.pop(name, None)
            spec.pop("healthCheckNodePort", None)
            for port in spec.get("ports") or []:
                port.pop("nodePort", None)
        case "Job":
            if spec.get("selector"):
                spec["manualSelector"] = True
    return made


def input_status(thing: Object) -> Object | None:
    """Return the part of the status that is an input, or None."""
    status = thing.get("status") or {}
    if thing["kind"] == "Node":
        return {key: status[key] for key in _NODE_STATUS if key in status} or None
    if (thing["kind"] == "Pod" and status.get("phase") in _FINISHED) or (thing["kind"] == "Job" and is_finished_job(status)):
        return dict(status)
    return None


def is_finished_job(status: Object) -> bool:
    conditions = status.get("conditions") or []
    return any(item.get("type") in ("Complete", "Failed") and item.get("status") == "True" for item in conditions)


class _Restore:
    def __init__(
        self,
        api: ClusterApi,
        objects: dict[Key, Object],
        existing: Existing,
        result: Restored,
        on_object: Callable[[], None],
    ) -> None:
        self._api = api
        self._objects = objects
        self._existing = existing
        self._result = result
        self._on_object = on_object
        self._kinds: dict[tuple[str, str], Kind] = {}
        """By (group, kind)."""
        self._present: dict[Key, str] = {}
        """The UIDs of objects of the snapshot that exist."""
        self._uids: dict[str, str] = {}
        """New UIDs by those of the snapshot."""
        self._busy = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, ApiError) and error.code in _BUSY),
            stop=stop_after_delay(BUSY_TIMEOUT), wait=wait_exponential(0.1, max=5), reraise=True,
        )  # fmt: skip

    def check(self) -> None:
        """Raise SnapshotError if the cluster does not serve a kind, or objects exist that must not."""
        self._discover()
        defined = {
            (thing["spec"]["group"], thing["spec"]["names"]["kind"])
            for thing in self._objects.values()
            if thing["kind"] == DEFINITION
        }
        wanted = {key[:2] for key in self._objects}
        if unknown := sorted(wanted - self._kinds.keys() - defined):
            names = [f"{kind} in {group or 'v1'}" for group, kind in unknown]
            raise SnapshotError(f"the cluster does not serve {len(names)} kinds of the snapshot", names)
        for group_kind in sorted(wanted & self._kinds.keys()):
            kind = self._kinds[group_kind]
            for thing in self._api.list_objects(kind):
                if (key := key_of(thing)) in self._objects:
                    self._present[key] = thing["metadata"].get("uid", "")
        if self._present and self._existing is Existing.REFUSE:
            raise SnapshotError(f"{len(self._present)} objects already exist", [describe(key) for key in sorted(self._present)])

    def run(self) -> None:
        made: list[Object] = []
        is_ready, last = False, (0, 0)
        for rank, thing in creation_order(list(self._objects.values())):
            if not is_ready and thing["kind"] not in (DEFINITION, NAMESPACE):
                self._await_definitions_and_namespaces(made)
                is_ready = True
            if rank[0] == last[0] == DEPENDENTS and rank != last:
                time.sleep(SETTLING)
            last = rank
            if self._create(thing):
                made.append(thing)
            self._on_object()
        for thing in made:
            self._set_owners(thing)

    def _discover(self) -> None:
        self._kinds = {(kind.group, kind.kind): kind for kind in self._api.discover_kinds()}

    def _kind_of(self, thing: Object) -> Kind:
        return replace(self._kinds[key_of(thing)[:2]], version=thing["apiVersion"])

    def _create(self, thing: Object) -> bool:
        """Create or replace an object. Return False if it was not written."""
        key, name = key_of(thing), thing["kind"]
        old_uid = thing["metadata"].get("uid", "")
        if key in self._present:
            self._uids[old_uid] = self._present[key]
            if self._existing is Existing.SKIP:
                self._result.omitted[name, "they already exist"] += 1
                return False
        try:
            kind, new = self._kind_of(thing), new_object(thing)
            unsuspend = name == "Job" and input_status(thing) is not None and not new["spec"].get("suspend")
            if unsuspend:
                new["spec"]["suspend"] = True
            namespace = key[2]
            if key in self._present:
                stored = self._busy(self._api.request, "PUT", kind.path(namespace, key[3]), new)
                self._result.overwritten[name] += 1
            else:
                stored = self._busy(self._api.request, "POST", kind.path(namespace), new)
                self._result.created[name] += 1
            self._uids[old_uid] = stored["metadata"].get("uid", "")
            if (status := input_status(thing)) is not None:
                path = kind.path(namespace, key[3], "status")
                self._busy(self._api.request, "PATCH", path, {"status": status}, merge=True)
            if unsuspend:
                path = kind.path(namespace, key[3])
                self._busy(self._api.request, "PATCH", path, {"spec": {"suspend": None}}, merge=True)
        except ApiError as error:
            self._result.failures.append(f"{describe(key)}: {error}")
            return False
        except KeyError as error:
            self._result.failures.append(f"{describe(key)}: the cluster does not serve the kind: {error}")
            return False
        return True

    def _set_owners(self, thing: Object) -> None:
        owners = thing["metadata"].get("ownerReferences") or []
        kept = [{**owner, "uid": self._uids[owner["uid"]]} for owner in owners if owner.get("uid") in self._uids]
        if missing := len(owners) - len(kept):
            self._result.omitted[f"ownerReferences of {thing['kind']}", "the owners are not in the snapshot"] += missing
        if not kept:
            return
        _, _, namespace, name = key = key_of(thing)
        try:
            path = self._kind_of(thing).path(namespace, name)
            self._busy(self._api.request, "PATCH", path, {"metadata": {"ownerReferences": kept}}, merge=True)
        except ApiError as error:
            if error.code != 404:  # its controller may have deleted it
                self._result.failures.append(f"{describe(key)}: the owners: {error}")

    def _await_definitions_and_namespaces(self, made: Sequence[Object]) -> None:
        deadline = time.monotonic() + READY_TIMEOUT
        for thing in made:
            key = key_of(thing)
            kind = self._kind_of(thing)
            account = Kind("v1", "serviceaccounts", "ServiceAccount", True, frozenset())
            while time.monotonic() < deadline:
                try:
                    if thing["kind"] == NAMESPACE:
                        self._busy(self._api.request, "GET", account.path(key[3], "default"))
                        break
                    stored = self._busy(self._api.request, "GET", kind.path("", key[3]))
                    conditions = (stored.get("status") or {}).get("conditions") or []
                    if any(item["type"] == "Established" and item["status"] == "True" for item in conditions):
                        break
                except ApiError as error:
                    if error.code != 404:
                        raise
                time.sleep(POLL)
        wanted = {key[:2] for key in self._objects}
        while True:
            self._discover()
            if wanted <= self._kinds.keys() or time.monotonic() > deadline:
                return
            time.sleep(POLL)
