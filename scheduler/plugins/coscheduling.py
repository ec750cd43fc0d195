"""Coscheduling: of a group of pods as many get nodes as can do their work together, or none.

A group is the pods of a namespace with the same label `pod-group.scheduling.sigs.k8s.io/name`; how many are enough each of them
says by the label `.../min-available`. They should have the same priority and the same profile.

    QueueSort   groups stay together, by the age of their first pod
    PreFilter   fewer exist than are enough: refused, each by itself
    Permit      one has a node: it waits, and those of its group that wait for an event are tried; with enough of them all go on
    Unreserve   one that waited gives its node up (it timed out, was preempted or deleted): so do all that wait
    PostFilter  one fits nowhere: all that wait give their nodes up, rather than hold them in vain

Two groups may each hold what the other one lacks. Were both to give up, they could meet again and again. So the first that
fails has a *turn*: the others give up, unless one has a higher priority, and none of its priority or below begins until it has
its nodes, or fails once more. At that time nobody is in its way but pods that are in no group, and groups that stay. Who stood
back is tried when the turn is over: no event may say so, as when the group is deleted.

Pods that were bound before, by whatever leader, count. Binds are not one transaction: when one fails, that pod is tried again.

Argument: permitWaitingTimeSeconds (60).
Source: https://github.com/kubernetes-sigs/scheduler-plugins, pkg/coscheduling (labels: kep/2-lightweight-coscheduling). There
all groups that fail give up alike, one of which 10 % are lacking goes on waiting, and a label that says no number is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.api.scalars import natural, to_seconds
from pinnace.api.selectors import LabelRequirement, LabelSelector
from scheduler.cache.pod_index import Selection
from scheduler.framework import (
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
from scheduler.framework.profile import MAX_TIMEOUT
from scheduler.plugins.helper import check_names, whole_number

NAME = "pod-group.scheduling.sigs.k8s.io/name"
MIN_AVAILABLE = "pod-group.scheduling.sigs.k8s.io/min-available"
_ASSIGNED = "Coscheduling.assigned"


@dataclass(slots=True)
class _Gathering:
    """The pods of one group that wait in Permit, by uid."""

    priority: int
    waiting: list[str] = field(default_factory=list)


class Coscheduling:
    name = "Coscheduling"
    skip_depends_on = Dependency.NODES
    helped_by = Change.POD_PLACED | Change.POD_FREED

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        check_names(args, ("permitWaitingTimeSeconds",))
        self._timeout = whole_number(args, "permitWaitingTimeSeconds", 60, 1, int(MAX_TIMEOUT))
        self._handle = handle
        self._members = handle.index(PODS, _counts_for)
        self._gathering: dict[str, _Gathering] = {}
        self._turn = ""
        """One of those that gather, or none."""
        self._stood_back: dict[str, None] = {}
        """The groups that did not begin because of the turn, in their order."""
        self._given_up: dict[str, set[str]] = {}
        """By group, the pods that it rejected, and that still hold their nodes."""
        self._leaving: set[str] = set()
        """The pods whose nodes are being given up for the turn."""

    def sort_key(self, pod: PodInfo, since: float) -> tuple[float, float, float]:
        """`since` is not looked at: a pod that has failed is as old as its group."""
        group = group_of(pod.raw)
        first = next(iter(self._members.under(group).values()), pod.raw)
        return -pod.priority, to_seconds(first.metadata.creationTimestamp), crc32(group.encode())

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        group = group_of(pod.raw)
        if not group:
            return SKIP
        enough = _enough(pod.raw)
        if not enough:
            text = pod.raw.metadata.labels.get(MIN_AVAILABLE, "")
            return Status(f'label {MIN_AVAILABLE}: expected a whole number from 1, got "{text}"')
        there = len(self._members.under(group))
        if there < enough:
            siblings = f"current pods number: {there}, minMember of group: {enough}"
            return Status(f"pre-filter pod {pod.name} cannot find enough sibling pods, {siblings}")
        assigned = int(nodes.pods.pods(_selection(group)).sum()) - self._about_to_leave(group)
        if assigned < enough and self._must_stand_back(group, pod.priority):
            self._stood_back[group] = None
            return Status(f"PodGroup {group} stands back until PodGroup {self._turn} has had its turn")
        state[_ASSIGNED] = assigned
        return None

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """A pod of some group got a node, or gave it up: it may be one of this group, or have had its turn. Pods that wait
        together may be of several groups. One that is new needs no event: it is tried, and then has the others tried."""
        return event.pod is not None and NAME in event.pod.labels

    def post_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable, diagnosis: Diagnosis) -> Status | None:
        group = group_of(pod.raw)
        if group not in self._gathering or (group == self._turn and self._leaving):
            return None
        others = {name: each for name, each in self._gathering.items() if name != group}
        if others and group != self._turn and all(each.priority <= pod.priority for each in others.values()):
            for name, other in others.items():
                self._leaving.update(other.waiting)
                self._reject(name, f"PodGroup {name} gives way to PodGroup {group}")
            self._turn = group
            return Status(f"PodGroup {group} has its turn: it is tried again without {', '.join(sorted(others))}.")
        self._reject(group, "optimistic rejection in PostFilter")
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
            self._reject(group, "rejection in Unreserve")
        if pod.uid in self._leaving:
            self._leaving.discard(pod.uid)
            if not self._leaving and self._turn:
                self._activate(self._turn)

    def permit(self, state: CycleState, pod: PodInfo, node: str) -> Wait | None:
        group = group_of(pod.raw)
        if not group:
            return None
        if state[_ASSIGNED] + 1 >= _enough(pod.raw):
            self._let_go(group)
            return None
        if group not in self._gathering:
            self._gathering[group] = _Gathering(pod.priority)
            self._activate(group)
        self._gathering[group].waiting.append(pod.uid)
        return Wait(self._timeout)

    def _about_to_leave(self, group: str) -> int:
        """How many of a group have nodes, and have been rejected: by this plugin, or while they waited by somebody else."""
        gathering = self._gathering.get(group)
        waiting = gathering.waiting if gathering is not None else ()
        return len(self._given_up.get(group, ())) + sum(self._handle.waiting.get(uid) is None for uid in waiting)

    def _must_stand_back(self, group: str, priority: int) -> bool:
        return self._turn not in ("", group) and priority <= self._gathering[self._turn].priority

    def _activate(self, group: str) -> None:
        for uid in self._members.under(group):
            self._handle.activate(uid)

    def _let_go(self, group: str) -> None:
        for uid in self._end(group):
            if (waiting := self._handle.waiting.get(uid)) is not None:
                waiting.allow(self.name)

    def _reject(self, group: str, reason: str) -> None:
        for uid in self._end(group):
            if (waiting := self._handle.waiting.get(uid)) is not None:
                self._given_up.setdefault(group, set()).add(uid)
                waiting.reject(self.name, reason)

    def _end(self, group: str) -> list[str]:
        """The group does not gather any more. Those that wait."""
        if self._turn == group:
            self._turn = ""
            stood_back, self._stood_back = self._stood_back, {}
            for each in stood_back:
                self._activate(each)
        gathering = self._gathering.pop(group, None)
        return gathering.waiting if gathering is not None else []


def group_of(pod: Pod) -> str:
    """namespace/name of the group; empty: the pod is in none."""
    name = pod.metadata.labels.get(NAME, "")
    return f"{pod.metadata.namespace}/{name}" if name else ""


def _counts_for(pod: Pod) -> str:
    """The group of a pod that has a node, or could get one."""
    return "" if pod.metadata.HasField("deletionTimestamp") or pod.spec.schedulingGates else group_of(pod)


def _enough(pod: Pod) -> int:
    """0: the label is wrong."""
    return natural(pod.metadata.labels.get(MIN_AVAILABLE, "")) or 0


def _selection(group: str) -> Selection:
    """The pods of a group that have a node."""
    namespace, _, name = group.partition("/")
    return Selection(frozenset((namespace,)), LabelSelector((LabelRequirement(NAME, frozenset((name,))),)), living=True)
