"""The daemon set controller: runs a pod on each node that fits. The decisions for one node are in daemonnodes.py.

    change of a pod or node --marks--> the node in the daemon set's state --sync--> its view, the sum of all views
                                                                                        |
                  status <-- rollout <-- pods to delete and to create <-----------------+

A sync evaluates only the marked nodes. It evaluates all nodes after a change of the daemon set, of its revision, and at the
beginning of a term. The state is a cache of the informers' objects, which the next leader builds again.

The default scheduler binds the pods: each has a required node affinity to the name of its node. A deleted node is not a reason
for a sync, as in Kubernetes: an unscheduled pod for it stays until the daemon set is synced for another reason.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/, and pkg/controller/daemon of Kubernetes 1.36.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from pinnace.api.apps_v1_pb2 import ControllerRevision, DaemonSet, DaemonSetStatus
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.resources import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS, RESOURCE_QUOTAS, store_key
from pinnace.api.selectors import LabelSelector, from_message
from pinnace.api.verbs_pb2 import ADDED, DELETED
from pinnace.client.errors import ApiError, NotFound
from pinnace.client.informer import Delta
from pinnace.client.workqueue import MAX_BACKOFF
from pinnace.controllers.daemonnodes import (
    NO_COUNTS,
    DaemonPlacement,
    NodeCounts,
    NodeView,
    assign_node,
    build_daemon_pod,
    daemon_node_key,
    max_surge,
    max_unavailable,
    target_node,
    view_node,
)
from pinnace.controllers.ownership import ControllerRefManager, controller_key, owner_key
from pinnace.controllers.podcontrol import BURST, PodControl, keys_lacking_quota
from pinnace.controllers.pods import object_namespace
from pinnace.controllers.revisions import REVISION_LABEL, RevisionControl, revisions_beyond_history, sort_revisions
from pinnace.controllers.runtime import (
    ControllerContext,
    PartialSyncError,
    WatchedResource,
    get_controller_of,
    keys_of_controller,
)
from pinnace.controllers.writes import Expectations
from pinnace.runtime.tasks import TimeSlice

FAILED_BACKOFF, MAX_FAILED_BACKOFF = 1.0, 900.0
"""Seconds for which a failed pod of a node is kept after the deletion of the last one: the first time, and at most."""
_ROLES = ("create", "delete", "ended", "replace", "candidate", "finished")
"""The fields of a view by which nodes are listed."""


class ViewDependencies(NamedTuple):
    """What the views of all nodes depend on."""

    uid: str
    generation: int
    hash: str


@dataclass(slots=True)
class DaemonSetState:
    """The state of a daemon set on each node, and the nodes to evaluate again."""

    basis: ViewDependencies | None = None
    placement: DaemonPlacement | None = None
    views: dict[str, NodeView] = field(default_factory=dict)
    totals: NodeCounts = NO_COUNTS
    nodes: dict[str, dict[str, None]] = field(default_factory=lambda: {role: {} for role in _ROLES})
    """Names of nodes by role, in the order in which they got it."""
    marked: set[str] = field(default_factory=set)
    """Nodes to evaluate."""
    has_foreign_pods: bool = True
    """A pod may have to be adopted or released."""
    waiting: list[tuple[float, str]] = field(default_factory=list)
    """A heap of times at which the pods of nodes become available."""

    def set_node_view(self, name: str, view: NodeView | None) -> None:
        """Replace the view of a node. None: the node has no view."""
        if (before := self.views.pop(name, None)) is not None:
            self.totals = self.totals.minus(before.counts)
        for role, names in self.nodes.items():
            if view is not None and getattr(view, role):
                names[name] = None
            else:
                names.pop(name, None)
        if view is not None:
            self.views[name] = view
            self.totals = self.totals.plus(view.counts)
            if view.available_at is not None:
                heapq.heappush(self.waiting, (view.available_at, name))

    def mark_available(self, now: float) -> None:
        """Mark the nodes whose pods have become available."""
        while self.waiting and self.waiting[0][0] <= now:
            self.marked.add(heapq.heappop(self.waiting)[1])

    def views_with_role(self, role: str) -> Iterator[tuple[str, NodeView]]:
        return ((name, self.views[name]) for name in self.nodes[role])


class DaemonSetPlan(NamedTuple):
    delete: list[Pod]
    create: list[str]
    """Names of nodes."""


def plan_pods(state: DaemonSetState, expired: Iterable[Pod]) -> DaemonSetPlan:
    """Plan the changes that do not depend on a rollout. `expired`: pods that have ended and are deleted now."""
    surplus = (pod for _, view in state.views_with_role("delete") for pod in view.delete)
    return DaemonSetPlan([*islice(surplus, BURST), *expired], list(islice(state.nodes["create"], BURST)))


def plan_rollout(daemon_set: DaemonSet, state: DaemonSetState) -> DaemonSetPlan:
    """Plan the next step of a rolling update."""
    counts = state.totals
    if daemon_set.spec.updateStrategy.type != "RollingUpdate":
        return DaemonSetPlan([], [])
    surge = max_surge(daemon_set, counts.desired)
    replace = [(name, view) for name, view in state.views_with_role("replace")]
    if not surge:
        room = max(0, max_unavailable(daemon_set, counts.desired) - counts.unavailable)
        candidates = islice(state.views_with_role("candidate"), room)
        pods = [view.replace or view.candidate for _, view in (*replace, *candidates)]
        return DaemonSetPlan([pod for pod in pods if pod is not None][:BURST], [])
    delete = [view.finished for _, view in state.views_with_role("finished") if view.finished is not None]
    create, misplaced = [name for name, view in replace if view.may_run], [view for _, view in replace if not view.may_run]
    room = max(0, surge - counts.surging)
    for name, view in state.views_with_role("candidate"):
        if not view.may_run:
            misplaced.append(view)
        elif room:
            room -= 1
            create.append(name)
    for view in misplaced[: max(0, counts.serving - counts.desired)]:
        pod = view.replace or view.candidate
        if pod is not None:
            delete.append(pod)
    return DaemonSetPlan(delete[:BURST], create[:BURST])


def calculate_status(daemon_set: DaemonSet, counts: NodeCounts, collisions: int) -> DaemonSetStatus:
    status = DaemonSetStatus(
        currentNumberScheduled=counts.current,
        numberMisscheduled=counts.misscheduled,
        desiredNumberScheduled=counts.desired,
        numberReady=counts.ready,
        observedGeneration=daemon_set.metadata.generation,
        updatedNumberScheduled=counts.updated,
        numberAvailable=counts.available,
        numberUnavailable=counts.desired - counts.available,
        conditions=daemon_set.status.conditions,
    )
    if collisions or daemon_set.status.HasField("collisionCount"):
        status.collisionCount = collisions
    return status


class FailedPodBackoff:
    """Delays the deletion of failed pods of a node, which its kubelet would reject again."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[float, float]] = {}
        """The backoff and the time of the last deletion, by node."""

    def seconds_until_deletion(self, node: str, now: float) -> float:
        """Return the seconds for which the pod is kept, or 0 if it is deleted now, which starts the next backoff."""
        backoff, last = self._nodes.get(node, (0.0, 0.0))
        if now - last < backoff:
            return last + backoff - now
        is_recent = backoff and now - last <= 2 * MAX_FAILED_BACKOFF
        self._nodes[node] = (min(2 * backoff, MAX_FAILED_BACKOFF) if is_recent else FAILED_BACKOFF, now)
        return 0.0


def daemon_set_selector(daemon_set: DaemonSet) -> LabelSelector:
    return from_message(daemon_set.spec.selector)


class DaemonSetController:
    name = "daemonset"
    workers = 4
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: ControllerContext) -> None:
        informers = shared.informers
        self._client = shared.client.of(DAEMON_SETS)
        self._events = shared.events
        self._clock = shared.clock
        self._sets = informers.store(DAEMON_SETS)
        self._all_nodes = informers.store(NODES)
        self._neighbours = informers.index(DAEMON_SETS, object_namespace)
        self._selecting = informers.selecting(DAEMON_SETS, daemon_set_selector)
        self._pods = informers.index(PODS, controller_key)
        self._pods_on_node = informers.index(PODS, daemon_node_key)
        self._expectations = Expectations(informers)
        self._claimer = ControllerRefManager(shared, DAEMON_SETS, PODS, self._expectations)
        self._revision_claimer = ControllerRefManager(shared, DAEMON_SETS, CONTROLLER_REVISIONS, self._expectations)
        self._revisions = RevisionControl(shared, DAEMON_SETS, self._expectations, REVISION_LABEL)
        self._control = PodControl(shared, self._expectations)
        self._states: dict[str, DaemonSetState] = {}
        self._backoffs: dict[str, FailedPodBackoff] = {}

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        refused = keys_lacking_quota(
            self._neighbours,
            lambda daemon_set: daemon_set.status.currentNumberScheduled < daemon_set.status.desiredNumberScheduled,
        )
        return (
            WatchedResource(DAEMON_SETS, self._keys_of_daemon_set),
            WatchedResource(PODS, self._keys_of_pod),
            WatchedResource(NODES, self._keys_of_node),
            WatchedResource(RESOURCE_QUOTAS, refused),
        )

    def _keys_of_daemon_set(self, delta: Delta[DaemonSet]) -> Iterable[str]:
        key = store_key(delta.obj)
        if delta.kind == ADDED:  # also at the beginning of a term
            self._states.pop(key, None)
        return (key,)

    def _keys_of_pod(self, delta: Delta[Pod]) -> Iterable[str]:
        """Mark the node of the pod. Return its daemon set, or those that would adopt it."""
        keys = set(keys_of_controller(DAEMON_SETS)(delta))
        for key in keys:
            if (state := self._states.get(key)) is not None:
                state.marked.update(target_node(pod) for pod in (delta.obj, delta.old) if pod is not None)
                if delta.old is not None and delta.old.metadata.labels != delta.obj.metadata.labels:
                    state.has_foreign_pods = True
        metadata = delta.obj.metadata
        if delta.kind != DELETED and get_controller_of(delta.obj) is None:
            for daemon_set in self._selecting.objects_selecting(metadata.namespace, metadata.labels):
                key = store_key(daemon_set)
                keys.add(key)
                if (state := self._states.get(key)) is not None:
                    state.has_foreign_pods = True
        return keys

    def _keys_of_node(self, delta: Delta[Node]) -> Iterable[str]:
        """Mark the node. Return the daemon sets whose decision about it changes."""
        node, old = delta.obj, delta.old
        if delta.kind != DELETED and old is not None and _has_same_labels_and_taints(node, old):
            return ()
        keys = list[str]()
        for key, state in self._states.items():
            state.marked.add(node.metadata.name)
            if delta.kind == DELETED or state.placement is None:
                continue
            decision = state.placement.decide(node)
            if decision != state.placement.decide(old) if old is not None else decision.should_run:
                keys.append(key)
        return keys

    async def sync(self, key: str) -> float | None:
        await self._expectations.wait_until_met(key)
        daemon_set = self._sets.get(key)
        if daemon_set is None or daemon_set.metadata.HasField("deletionTimestamp"):
            self._states.pop(key, None)
            if daemon_set is None:
                self._backoffs.pop(key, None)
                for forgetful in (self._claimer, self._revision_claimer, self._control):
                    forgetful.forget_owner(key)
            return None
        state, selector = self._states.setdefault(key, DaemonSetState()), daemon_set_selector(daemon_set)
        revisions = sort_revisions(await self._revision_claimer.claim_objects(key, daemon_set, selector))
        if state.has_foreign_pods:
            state.has_foreign_pods = False
            try:
                await self._claimer.claim_objects(key, daemon_set, selector)
                await self._expectations.wait_until_met(key)  # the index of pods by node must have the adopted ones
            except BaseException:
                state.has_foreign_pods = True
                raise
        current, collisions = await self._revisions.ensure(
            key, daemon_set, daemon_set.spec.template, revisions, daemon_set.status.collisionCount
        )
        hash_ = current.metadata.labels[REVISION_LABEL]
        await self._evaluate_nodes(daemon_set, hash_, state)
        again = state.waiting[0][0] - self._clock.time() if state.waiting else None
        expired, kept_for = self._find_expired_pods(key, daemon_set, state)
        again = min((wait for wait in (again, kept_for) if wait is not None), default=None)
        failure: ApiError | None = None
        try:
            await self._change_pods(key, daemon_set, hash_, state, expired)
        except ApiError as error:
            failure = error
        await self._write_status(key, daemon_set, calculate_status(daemon_set, state.totals, collisions))
        if failure is not None:
            raise PartialSyncError(failure, again) from failure
        old = [revision for revision in revisions if revision.metadata.name != current.metadata.name]
        await self._delete_surplus_revisions(key, daemon_set, old)
        return again

    async def _evaluate_nodes(self, daemon_set: DaemonSet, hash_: str, state: DaemonSetState) -> None:
        """Evaluate the marked nodes, or all nodes if the daemon set or its revision has changed."""
        metadata, owner = daemon_set.metadata, owner_key(daemon_set)
        basis = ViewDependencies(metadata.uid, metadata.generation, hash_)
        if basis != state.basis:
            state.basis, state.placement = None, DaemonPlacement(daemon_set)
            targets = map(target_node, self._pods.under(owner).values())
            state.marked.update(self._all_nodes, filter(None, targets), state.views)
        assert state.placement is not None
        now, time_slice = self._clock.time(), TimeSlice(self._clock)
        state.mark_available(now)
        while state.marked:
            name = state.marked.pop()
            node, pods = self._all_nodes.get(name), self._pods_on_node.under(f"{owner}/{name}")
            if node is None and not pods:
                state.set_node_view(name, None)
            else:
                decision = state.placement.decide(node) if node is not None else None
                state.set_node_view(name, view_node(daemon_set, hash_, decision, pods.values(), now))
            await time_slice.end()
        state.basis = basis

    def _find_expired_pods(self, key: str, daemon_set: DaemonSet, state: DaemonSetState) -> tuple[list[Pod], float | None]:
        """Return the ended pods to delete now, and the seconds until the next ones. Record events."""
        expired, again = list[Pod](), list[float]()
        for name, view in state.views_with_role("ended"):
            for pod in view.ended:
                where = f"daemon pod {pod.metadata.namespace}/{pod.metadata.name} on node {name}"
                if pod.status.phase == "Succeeded":
                    message = f"Found succeeded {where}, will try to delete it"
                    self._events.event(daemon_set, "Normal", "SucceededDaemonPod", message)
                else:
                    backoff = self._backoffs.setdefault(key, FailedPodBackoff())
                    if wait := backoff.seconds_until_deletion(name, self._clock.time()):
                        again.append(wait)
                        continue
                    message = f"Found failed {where}, will try to kill it"
                    self._events.event(daemon_set, "Warning", "FailedDaemonPod", message)
                expired.append(pod)
        return expired, min(again, default=None)

    async def _change_pods(
        self, key: str, daemon_set: DaemonSet, hash_: str, state: DaemonSetState, expired: Sequence[Pod]
    ) -> None:
        """Delete and create pods. A step of a rollout follows only if nothing else is to be done. Raise ApiError."""
        plan = plan_pods(state, expired)
        if not plan.delete and not plan.create:
            plan = plan_rollout(daemon_set, state)
        if plan.create:
            pod = build_daemon_pod(daemon_set, hash_)
            error = await self._control.create(key, daemon_set, [assign_node(pod, name) for name in plan.create])
            if error is not None:
                raise error
        if plan.delete and (error := await self._control.delete(key, daemon_set, plan.delete)) is not None:
            raise error

    async def _write_status(self, key: str, daemon_set: DaemonSet, status: DaemonSetStatus) -> None:
        if status == daemon_set.status:
            return
        changed = DaemonSet(metadata=daemon_set.metadata, spec=daemon_set.spec, status=status)
        try:
            stored = await self._client.update_status(changed)
        except NotFound:
            return
        self._expectations.expect_version(key, DAEMON_SETS, stored.metadata.resourceVersion)

    async def _delete_surplus_revisions(self, key: str, daemon_set: DaemonSet, old: Sequence[ControllerRevision]) -> None:
        limit = daemon_set.spec.revisionHistoryLimit
        if len(old) <= limit:
            return
        pods: Mapping[str, Pod] = self._pods.under(owner_key(daemon_set))
        hashes = {pod.metadata.labels.get(REVISION_LABEL) for pod in pods.values()}
        live = [revision.metadata.name for revision in old if revision.metadata.labels.get(REVISION_LABEL) in hashes]
        await self._revisions.delete(key, revisions_beyond_history(old, live, max(0, limit - len(live))))


def _has_same_labels_and_taints(node: Node, other: Node) -> bool:
    """Return whether both versions of a node have the same labels and taints."""
    return node.metadata.labels == other.metadata.labels and node.spec.taints == other.spec.taints
