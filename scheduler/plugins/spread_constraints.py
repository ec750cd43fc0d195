"""Topology spread constraints, parsed: a pod's own, or the default ones.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pinnace.api import selectors
from pinnace.api.core_v1_pb2 import TopologySpreadConstraint
from pinnace.api.selectors import NOTHING, LabelRequirement
from pinnace.api.wellknown import ZONE_LABEL
from scheduler.cache.pod_index import Selection
from scheduler.framework import PodInfo
from scheduler.plugins.arguments import check_names, fields, items, label_key, whole_number

HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"
HOSTNAME = "kubernetes.io/hostname"
SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(topologyKey=HOSTNAME, maxSkew=3, whenUnsatisfiable=SOFT),
    TopologySpreadConstraint(topologyKey=ZONE_LABEL, maxSkew=5, whenUnsatisfiable=SOFT),
)
_DEFAULT_FIELDS = ("topologyKey", "maxSkew", "whenUnsatisfiable", "minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy")


@dataclass(frozen=True, slots=True)
class Constraint:
    topology_key: str
    max_skew: int
    pods: Selection | None
    """Those that are spread; None: none are counted."""
    min_domains: int
    honors_affinity: bool
    """Nodes that the pod's node affinity does not match do not count."""
    honors_taints: bool
    """Nor do those with taints that it does not tolerate."""


def own_constraints(pod: PodInfo, when: str) -> list[Constraint]:
    known: list[Constraint] | None = pod.parsed.get(("topologySpreadConstraints", when))
    if known is None:
        known = pod.parsed["topologySpreadConstraints", when] = _own_constraints(pod, when)
    return known


def _own_constraints(pod: PodInfo, when: str) -> list[Constraint]:
    labels = pod.raw.metadata.labels
    found = []
    for each in pod.raw.spec.topologySpreadConstraints:
        if each.whenUnsatisfiable == when:
            more = tuple((key, labels[key]) for key in each.matchLabelKeys if key in labels)
            found.append(_parse(each.SerializeToString(deterministic=True), pod.namespace, more))
    return found


def with_pods(constraint: TopologySpreadConstraint, pods: Selection | None) -> Constraint:
    """`pods` stands for the constraint's selector."""
    return Constraint(
        constraint.topologyKey,
        constraint.maxSkew,
        pods,
        constraint.minDomains if constraint.HasField("minDomains") else 1,
        constraint.nodeAffinityPolicy != "Ignore",
        constraint.nodeTaintsPolicy == "Honor",
    )


@lru_cache(maxsize=4096)
def _parse(text: bytes, namespace: str, more: tuple[tuple[str, str], ...]) -> Constraint:
    """`more`: labels that the counted pods must have besides. An empty selector counts no pods, as in Kubernetes."""
    constraint = TopologySpreadConstraint.FromString(text)
    labels = selectors.from_message(constraint.labelSelector) if constraint.HasField("labelSelector") else NOTHING
    labels = labels.and_also(LabelRequirement(key, frozenset((value,))) for key, value in more)
    return with_pods(constraint, Selection(frozenset((namespace,)), labels, living=True) if labels.requirements else None)


def default_constraints(args: Mapping[str, Any]) -> Sequence[TopologySpreadConstraint]:
    """From the plugin's arguments. Raises ValueError."""
    check_names(args, ("defaultingType", "defaultConstraints"))
    kind, listed = args.get("defaultingType", "System"), args.get("defaultConstraints") or []
    if kind not in ("System", "List"):
        raise ValueError(f"defaultingType: expected System or List, got {kind!r}")
    if kind == "System":
        if listed:
            raise ValueError("defaultConstraints: only with defaultingType List")
        return SYSTEM_DEFAULTS
    found = [_default(each, f"defaultConstraints[{index}]") for index, each in enumerate(items(listed, "defaultConstraints"))]
    pairs = [(each.topologyKey, each.whenUnsatisfiable) for each in found]
    for index, pair in enumerate(pairs):
        if pair in pairs[:index]:
            raise ValueError(f"defaultConstraints[{index}]: there is one with {pair[0]} and {pair[1]} already")
    return found


def _default(raw: Any, path: str) -> TopologySpreadConstraint:
    raw = fields(raw, path, _DEFAULT_FIELDS)
    if not isinstance(raw.get("topologyKey"), str) or not raw["topologyKey"]:
        raise ValueError(f"{path}.topologyKey: expected text")
    label_key(raw["topologyKey"], f"{path}.topologyKey")
    if raw.get("whenUnsatisfiable") not in (HARD, SOFT):
        raise ValueError(f"{path}.whenUnsatisfiable: expected {HARD} or {SOFT}, got {raw.get('whenUnsatisfiable')!r}")
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if raw.get(policy, "Honor") not in ("Honor", "Ignore"):
            raise ValueError(f"{path}.{policy}: expected Honor or Ignore, got {raw[policy]!r}")
    for number in ("maxSkew", "minDomains"):
        whole_number(raw, number, 0 if number == "maxSkew" else 1, 1, 1 << 30, f"{path}.")
    return TopologySpreadConstraint(**raw)
