"""Nodes and pods of a real cluster without its names, for studies.

    name, label, value --HMAC-SHA256 with the seed--> node-1f2e3d4c5b, pod-..., namespace-..., key-..., value-...

Equal texts have equal pseudonyms, wherever they occur: a node's name, its label `kubernetes.io/hostname`, a toleration, and an
affinity that matches them agree. With an equal seed, two imports agree, too. Who knows the seed can check a guess of a name.

Kept: requests and allocatable resources; host ports; priorities; the form of affinities,
tolerations and topology constraints; keys of labels and resources of Kubernetes and of vendors of hardware (KEPT_KEYS); and
values that say nothing of the owner (KEPT_VALUES, numbers, booleans); durations and distances in time; kinds of owners.

Removed: all else. That is images, commands, environment, volumes, annotations, addresses, UIDs, versions of software, and
dates: the first object is created at the beginning of the year 2000.
"""

import hmac
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from pinnace.snapshot.api import Object

KEPT_KEYS = re.compile(r"([\w.-]+\.)?(kubernetes\.io|k8s\.io|pinnace\.io|nvidia\.com|amd\.com|intel\.com)/.*")
"""Label keys that stay as they are. Keys of other domains, and keys without one, are replaced."""
KEPT_VALUES = frozenset(
    {
        *("kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch"),
        *("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type", "pinnace.io/gpu-model"),
        *("nvidia.com/gpu.product", "nvidia.com/gpu.memory", "nvidia.com/gpu.count"),
    }
)
"""Labels whose values stay as they are."""
ROLE, KNOWN_ROLES = "node-role.kubernetes.io", ("control-plane", "master", "worker", "node", "etcd")
"""The label of a node's role, and the roles that stay as they are."""
KEPT_ANNOTATIONS = ("pinnace.io/gpu-index", "pinnace.io/run-seconds")
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
DIGITS = 10
_PLAIN = re.compile(r"-?\d+|true|false|")
_NODE_STATUS = ("capacity", "allocatable")
_CONTAINER = ("restartPolicy",)
_POD_SPEC = (
    "nodeName",
    "priority",
    "preemptionPolicy",
    "overhead",
    "terminationGracePeriodSeconds",
    "hostNetwork",
    "restartPolicy",
)
_SYSTEM_CLASSES = ("system-node-critical", "system-cluster-critical")


class Pseudonyms:
    """Replaces the names of one import. Create it with all names of nodes, namespaces and pods."""

    def __init__(self, seed: str, nodes: Iterable[str] = (), namespaces: Iterable[str] = (), pods: Iterable[str] = ()) -> None:
        self._seed = seed.encode()
        words = (pods, "pod"), (namespaces, "namespace"), (nodes, "node")
        self._words = {name: word for names, word in words for name in names}

    def alias(self, text: str, word: str = "value") -> str:
        """Return the pseudonym of a name. `word`: its beginning, unless it is the name of a node, namespace or pod."""
        digest = hmac.new(self._seed, text.encode(), sha256).hexdigest()[:DIGITS]
        return f"{self._words.get(text, word)}-{digest}"

    def key(self, key: str) -> str:
        """Return a key of a label, taint or topology."""
        domain, _, name = key.rpartition("/")
        if domain == ROLE and name not in KNOWN_ROLES:
            return f"{ROLE}/{self.alias(name, 'role')}"
        return key if KEPT_KEYS.fullmatch(key) else self.alias(key, "key")

    def resources(self, amounts: Mapping[str, Any] | None) -> Object:
        """Return requests, limits or allocatable resources."""
        return {
            name if "/" not in name or KEPT_KEYS.fullmatch(name) else f"example.com/{self.alias(name, 'resource')}": amount
            for name, amount in (amounts or {}).items()
        }

    def value(self, key: str, value: str) -> str:
        """Return a value of the label or taint `key`."""
        return value if key in KEPT_VALUES or _PLAIN.fullmatch(value) else self.alias(value)

    def labels(self, labels: Mapping[str, str] | None) -> dict[str, str]:
        return {self.key(key): self.value(key, value) for key, value in (labels or {}).items()}

    # --- selectors

    def requirements(self, items: Iterable[Mapping[str, Any]] | None) -> list[Object]:
        """Return matchExpressions or matchFields."""
        return [self._requirement(item) for item in items or ()]

    def _requirement(self, item: Mapping[str, Any]) -> Object:
        key = item["key"]
        if key == "metadata.name":
            return {**item, "values": [self.alias(value) for value in item.get("values") or ()]}
        made = {**item, "key": self.key(key)}
        if "values" in item:
            made["values"] = [self.value(key, value) for value in item["values"] or ()]
        return made

    def label_selector(self, selector: Mapping[str, Any] | None) -> Object | None:
        if selector is None:
            return None
        made: Object = {}
        if selector.get("matchLabels"):
            made["matchLabels"] = self.labels(selector["matchLabels"])
        if selector.get("matchExpressions"):
            made["matchExpressions"] = self.requirements(selector["matchExpressions"])
        return made

    def node_term(self, term: Mapping[str, Any]) -> Object:
        return {name: self.requirements(term[name]) for name in ("matchExpressions", "matchFields") if term.get(name)}

    def pod_term(self, term: Mapping[str, Any]) -> Object:
        made: Object = {"topologyKey": self.key(term["topologyKey"])}
        for name in ("labelSelector", "namespaceSelector"):
            if name in term:
                made[name] = self.label_selector(term[name])
        if term.get("namespaces"):
            made["namespaces"] = [self.alias(name) for name in term["namespaces"]]
        for name in ("matchLabelKeys", "mismatchLabelKeys"):
            if term.get(name):
                made[name] = [self.key(key) for key in term[name]]
        return made

    def affinity(self, affinity: Mapping[str, Any]) -> Object:
        required, preferred = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))
        made: Object = {}
        part: Object
        if node := affinity.get("nodeAffinity"):
            made["nodeAffinity"] = part = {}
            if required in node:
                part[required] = {"nodeSelectorTerms": [self.node_term(term) for term in node[required]["nodeSelectorTerms"]]}
            if node.get(preferred):
                part[preferred] = [{**item, "preference": self.node_term(item["preference"])} for item in node[preferred]]
        for name in ("podAffinity", "podAntiAffinity"):
            if pods := affinity.get(name):
                made[name] = part = {}
                if pods.get(required):
                    part[required] = [self.pod_term(term) for term in pods[required]]
                if pods.get(preferred):
                    part[preferred] = [
                        {**item, "podAffinityTerm": self.pod_term(item["podAffinityTerm"])} for item in pods[preferred]
                    ]
        return made

    def tolerations(self, tolerations: Iterable[Mapping[str, Any]]) -> list[Object]:
        made = []
        for toleration in tolerations:
            new, key = dict(toleration), toleration.get("key", "")
            if key:
                new["key"] = self.key(key)
            if toleration.get("value"):
                new["value"] = self.value(key, toleration["value"])
            made.append(new)
        return made


def import_objects(objects: Iterable[Object], seed: str) -> list[Object]:
    """Return the nodes and pods among the objects, with pseudonyms. Other objects are omitted."""
    chosen = [thing for thing in objects if thing["kind"] in ("Node", "Pod")]
    names = Pseudonyms(
        seed,
        [thing["metadata"]["name"] for thing in chosen if thing["kind"] == "Node"],
        {thing["metadata"].get("namespace", "default") for thing in chosen if thing["kind"] == "Pod"},
        [thing["metadata"]["name"] for thing in chosen if thing["kind"] == "Pod"],
    )
    instants = [instant for thing in chosen if thing["kind"] == "Pod" and (instant := _instant(thing["metadata"]))]
    shift = EPOCH - min(instants, default=EPOCH)
    return [_import_node(thing, names) if thing["kind"] == "Node" else _import_pod(thing, names, shift) for thing in chosen]


def _import_node(node: Object, names: Pseudonyms) -> Object:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    taints = [
        {**{key: taint[key] for key in ("effect",) if key in taint}, "key": names.key(taint["key"])}
        | ({"value": names.value(taint["key"], taint["value"])} if taint.get("value") else {})
        for taint in spec.get("taints") or ()
    ]
    made_spec = ({"taints": taints} if taints else {}) | ({"unschedulable": True} if spec.get("unschedulable") else {})
    metadata = {"name": names.alias(node["metadata"]["name"]), "labels": names.labels(node["metadata"].get("labels"))}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": made_spec,
        "status": {key: names.resources(status[key]) for key in _NODE_STATUS if key in status},
    }


def _import_pod(pod: Object, names: Pseudonyms, shift: timedelta) -> Object:
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    made: Object = {
        "name": names.alias(metadata["name"], "pod"),
        "namespace": names.alias(metadata.get("namespace", "default"), "namespace"),
        "labels": names.labels(metadata.get("labels")),
    }
    if (created := _instant(metadata)) is not None:
        made["creationTimestamp"] = _text(created + shift)
    if kept := {key: value for key, value in (metadata.get("annotations") or {}).items() if key in KEPT_ANNOTATIONS}:
        made["annotations"] = kept
    owners = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    if owners:
        owner = owners[0]
        alias = names.alias(f"{metadata.get('namespace')}/{owner['kind']}/{owner['name']}", "owner")
        made["ownerReferences"] = [
            {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": alias, "uid": alias, "controller": True}
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": made,
        "spec": _import_spec(spec, names),
        "status": _import_status(status, shift),
    }


def _import_spec(spec: Mapping[str, Any], names: Pseudonyms) -> Object:
    made: Object = {key: spec[key] for key in _POD_SPEC if key in spec}
    if "nodeName" in made:
        made["nodeName"] = names.alias(made["nodeName"], "node")
    if name := spec.get("priorityClassName"):
        made["priorityClassName"] = name if name in _SYSTEM_CLASSES else names.alias(name, "class")
    if spec.get("nodeSelector"):
        made["nodeSelector"] = names.labels(spec["nodeSelector"])
    if spec.get("affinity"):
        made["affinity"] = names.affinity(spec["affinity"])
    if spec.get("tolerations"):
        made["tolerations"] = names.tolerations(spec["tolerations"])
    if constraints := spec.get("topologySpreadConstraints"):
        made["topologySpreadConstraints"] = [
            {**item, "topologyKey": names.key(item["topologyKey"])}
            | ({"labelSelector": names.label_selector(item["labelSelector"])} if item.get("labelSelector") else {})
            | ({"matchLabelKeys": [names.key(key) for key in item["matchLabelKeys"]]} if item.get("matchLabelKeys") else {})
            for item in constraints
        ]
    if "overhead" in made:
        made["overhead"] = names.resources(made["overhead"])
    if resources := _import_resources(spec, names):
        made["resources"] = resources
    for name, prefix in (("initContainers", "init"), ("containers", "main")):
        if spec.get(name):
            made[name] = [_import_container(item, f"{prefix}-{number}", names) for number, item in enumerate(spec[name])]
    return made


def _import_resources(holder: Mapping[str, Any], names: Pseudonyms) -> Object:
    """Return the resources of a container, or of a pod as a whole."""
    resources = holder.get("resources") or {}
    return {key: names.resources(resources[key]) for key in ("requests", "limits") if resources.get(key)}


def _import_container(container: Mapping[str, Any], name: str, names: Pseudonyms) -> Object:
    made: Object = {"name": name, "image": "example.com/image:1"}
    made |= {key: container[key] for key in _CONTAINER if key in container}
    if resources := _import_resources(container, names):
        made["resources"] = resources
    ports = [
        {key: port[key] for key in ("containerPort", "hostPort", "protocol") if key in port}
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]
    return made | ({"ports": ports} if ports else {})


def _import_status(status: Mapping[str, Any], shift: timedelta) -> Object:
    made: Object = {"phase": status.get("phase", "Pending")}
    if started := _parse(status.get("startTime")):
        made["startTime"] = _text(started + shift)
    ends = [
        end
        for item in status.get("containerStatuses") or ()
        if (end := _parse(((item.get("state") or {}).get("terminated") or {}).get("finishedAt")))
    ]
    if ends and made["phase"] in ("Succeeded", "Failed"):
        terminated = {"exitCode": 0 if made["phase"] == "Succeeded" else 1, "finishedAt": _text(max(ends) + shift)}
        made["containerStatuses"] = [{"name": "main-0", "image": "", "imageID": "", "state": {"terminated": terminated}}]
    return made


def _instant(metadata: Mapping[str, Any]) -> datetime | None:
    return _parse(metadata.get("creationTimestamp"))


def _parse(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _text(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
