"""Coscheduling: gang scheduling for groups of pods. Either a sufficient number of pods of a group get nodes, or none do.

A group is the set of pods in a namespace with the same label `pod-group.scheduling.sigs.k8s.io/name`. The label
`.../min-available` on each pod sets the sufficient number. All pods of a group need the same priority and profile.

    QueueSort   keeps groups together, ordered by the age of their first pod
    PreFilter   refuses a pod if fewer than the sufficient number of pods exist
    Permit      a pod waits and activates the other pods of its group, until a sufficient number have nodes and all continue
    Unreserve   if a waiting pod loses its node (timeout, preemption or deletion), all waiting pods of the group lose theirs
    PostFilter  if a pod fits on no node, all waiting pods of the group release their nodes

Two groups can each hold nodes that the other needs, and can collide again after both release them. Therefore the first
group that fails gets a *turn*: all other groups release their nodes unless one has a higher priority, and no group of the
same or a lower priority begins until the group with the turn has its nodes or fails again. During the turn, the group
competes only with pods outside groups, and with groups that stay. The groups that did not begin are activated at the end
of the turn, because no event reports it, for example if the group is deleted.

Pods that earlier leaders bound also count. The binds are not one transaction: a pod whose bind fails is retried.

Argument: permitWaitingTimeSeconds (60). Source: https://github.com/kubernetes-sigs/scheduler-plugins, pkg/coscheduling (labels:
kep/2-lightweight-coscheduling). Unlike this plugin, it has no turns, lets a group wait if at most 10 % of its pods are missing,
and ignores an invalid label.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.integers import parse_natural
from pinnace.api.resources import PODS
from pinnace.api.scalars import to_seconds
from pinnace.api.selectors import LabelRequirement, LabelSelector
from pinnace.scheduler.cache.pod_index import Selection
from pinnace.scheduler.framework import (
    SKIP,
    Change,
    ClusterEvent,
    CycleState,
    Dependency,
    Diagnosis,
    Handle,
    NodeTable,
    PodInfo,
    Status,
    Wait,
)
from pinnace.scheduler.framework.profile import MAX_TIMEOUT
from pinnace.scheduler.plugins.helper import check_names, parse_whole_number

NAME = "pod-group.scheduling.sigs.k8s.io/name"
MIN_AVAILABLE = "pod-group.scheduling.sigs.k8s.io/min-available"
_ASSIGNED = "Coscheduling.assigned"


@dataclass(slots=True)
class _Gathering:
    """The pods of one group that wait in Permit, by UID."""

    priority: int
    waiting: list[str] = field(default_factory=list)


class Coscheduling:
    name = "Coscheduling"
    skip_depends_on = Dependency.NODES
    helped_by = Change.POD_PLACED | Change.POD_FREED

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        check_names(args, ("permitWaitingTimeSeconds",))
        self._timeout = parse_whole_number(args, "permitWaitingTimeSeconds", 60, 1, int(MAX_TIMEOUT))
        self._handle = handle
        self._members = handle.index(PODS, _group_counting)
        self._gathering: dict[str, _Gathering] = {}
        self._turn = ""
        """The gathering group that has the turn, or an empty string."""
        self._stood_back: dict[str, None] = {}
        """Groups that did not begin because of the turn, in order."""
        self._given_up: dict[str, set[str]] = {}
        """By group, rejected pods that still hold their nodes."""
        self._leaving: set[str] = set()
        """Pods that release their nodes for the turn."""

    def sort_key(self, pod: PodInfo, since: float) -> tuple[float, float, float]:
        """Return the sort key. `since` is ignored, so that a failed pod keeps the age of its group."""
        group = group_of(pod.raw)
        first = next(iter(self._members.under(group).values()), pod.raw)
        return -pod.priority, to_seconds(first.metadata.creationTimestamp), crc32(group.encode())

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        group = group_of(pod.raw)
        if not group:
            return SKIP
        enough = _sufficient_pods(pod.raw)
        if not enough:
            text = pod.raw.metadata.labels.get(MIN_AVAILABLE, "")
            return Status(f'label {MIN_AVAILABLE}: expected a whole number from 1, got "{text}"')
        there = len(self._members.under(group))
        if there < enough:
            siblings = f"current pods number: {there}, minMember of group: {enough}"
            return Status(f"pre-filter pod {pod.name} cannot find enough sibling pods, {siblings}")
        assigned = int(nodes.pods.count_pods(_group_selection(group)).sum()) - self._count_preempted(group)
        if assigned < enough and self._must_yield(group, pod.priority):
            self._stood_back[group] = None
            return Status(f"PodGroup {group} waits for the end of the turn of PodGroup {self._turn}")
        state[_ASSIGNED] = assigned
        return None

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """Return True if a pod of any group gained or lost its node.

        The event may concern this group or the group with the turn, and pods in one queue group may belong to different
        pod groups. A new pod needs no event, because its own attempt activates the others.
        """
        return event.pod is not None and NAME in event.pod.labels

    def post_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable, diagnosis: Diagnosis) -> Status | None:
        group = group_of(pod.raw)
        if group not in self._gathering or (group == self._turn and self._leaving):
            return None
        others = {name: each for name, each in self._gathering.items() if name != group}
        if others and group != self._turn and all(gathering.priority <= pod.priority for gathering in others.values()):
            for name, other in others.items():
                self._leaving.update(other.waiting)
                self._reject_group(name, f"PodGroup {name} yields to PodGroup {group}")
            self._turn = group
            return Status(f"PodGroup {group} has the turn: it is retried without {', '.join(sorted(others))}.")
        self._reject_group(group, "optimistic rejection in PostFilter")
        return Status(f"PodGroup {group} gets rejected due to Pod {pod.name} is unschedulable even after PostFilter.")

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        return None if group_of(pod.raw) else SKIP

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        group = group_of(pod.raw)
        if group in self._given_up:
            self._given_up[group].discard(pod.uid)
            if not self._given_up[group]:
                del self._given_up[group]
        if group in self._gathering and pod.uid in self._gathering[group].waiting:
            self._reject_group(group, "rejection in Unreserve")
        if pod.uid in self._leaving:
            self._leaving.discard(pod.uid)
            if not self._leaving and self._turn:
                self._activate_group(self._turn)

    def permit(self, state: CycleState, pod: PodInfo, node: str) -> Wait | None:
        group = group_of(pod.raw)
        if not group:
            return None
        if state[_ASSIGNED] + 1 >= _sufficient_pods(pod.raw):
            self._allow_group(group)
            return None
        if group not in self._gathering:
            self._gathering[group] = _Gathering(pod.priority)
            self._activate_group(group)
        self._gathering[group].waiting.append(pod.uid)
        return Wait(self._timeout)

    def _count_preempted(self, group: str) -> int:
        """Return the number of pods of a group that still have nodes but have been rejected, by this plugin or otherwise."""
        gathering = self._gathering.get(group)
        waiting = gathering.waiting if gathering is not None else ()
        return len(self._given_up.get(group, ())) + sum(self._handle.waiting.get(uid) is None for uid in waiting)

    def _must_yield(self, group: str, priority: int) -> bool:
        return self._turn not in ("", group) and priority <= self._gathering[self._turn].priority

    def _activate_group(self, group: str) -> None:
        for uid in self._members.under(group):
            self._handle.activate(uid)

    def _allow_group(self, group: str) -> None:
        for uid in self._end_gathering(group):
            if (waiting := self._handle.waiting.get(uid)) is not None:
                waiting.allow(self.name)

    def _reject_group(self, group: str, reason: str) -> None:
        for uid in self._end_gathering(group):
            if (waiting := self._handle.waiting.get(uid)) is not None:
                self._given_up.setdefault(group, set()).add(uid)
                waiting.reject(self.name, reason)

    def _end_gathering(self, group: str) -> list[str]:
        """End the gathering of the group. Return its waiting pods."""
        if self._turn == group:
            self._turn = ""
            stood_back, self._stood_back = self._stood_back, {}
            for item in stood_back:
                self._activate_group(item)
        gathering = self._gathering.pop(group, None)
        return gathering.waiting if gathering is not None else []


def group_of(pod: Pod) -> str:
    """Return the namespace/name of the pod's group, or an empty string."""
    name = pod.metadata.labels.get(NAME, "")
    return f"{pod.metadata.namespace}/{name}" if name else ""


def _group_counting(pod: Pod) -> str:
    """Return the group of a pod that has a node or can get one, or an empty string."""
    return "" if pod.metadata.HasField("deletionTimestamp") or pod.spec.schedulingGates else group_of(pod)


def _sufficient_pods(pod: Pod) -> int:
    """Return the sufficient number of pods, or 0 if the label is invalid."""
    return parse_natural(pod.metadata.labels.get(MIN_AVAILABLE, "")) or 0


def _group_selection(group: str) -> Selection:
    """Return a selection of the pods of a group."""
    namespace, _, name = group.partition("/")
    return Selection(frozenset((namespace,)), LabelSelector((LabelRequirement(NAME, frozenset((name,))),)), living=True)
