"""The workers that generate the load. A worker executes one step of one to three calls at a time. A failed step is recorded and
not retried.

    PodOwner          creates, reads, relabels and deletes its own pods, whose number is bounded
    ContestingWriter  one of several workers that write the same objects through different API servers without coordination
    Adversary         attempts calls that must be refused, as made by a deposed or faulty leader or a client with stale data

Each attempt of the adversary is a call in the history, so the checkers verify it. `counts` summarizes the attempts:

    fenced            binds with the token of a deposed leader that the fence rejected
    bound_by_deposed  the same binds that succeeded: must be zero
    not_the_holder    binds with the current leader's token but without the secret of its session that the fence rejected
    borrowed          the same binds that succeeded: must be zero
    not_its_pods      binds of other schedulers' pods by the leader of another election that the fence rejected
    bound_by_another  the same binds that succeeded: must be zero
    over              binds of its own pods by a leader of another election, after its term, that the fence rejected
    bound_afterwards  the same binds that succeeded: must be zero
    bound_once        pods that two clients bound concurrently without a fence to different nodes, one of which was rejected
    bound_twice       the same pods for which both binds succeeded: must be zero
    kept              running pods that a bind could not move
    moved             running pods that a bind moved: must be zero
    stale_refused     second writes with a resourceVersion that the first write had replaced, which were rejected
    stale_written     the same writes that succeeded: must be zero
    status_kept       Pending statuses of running pods, as sent by a kubelet with stale data, which were rejected
    rewound           the same statuses that were stored: must be zero
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Protocol

from pinnace.api.core_v1_pb2 import Binding, ObjectReference, Pod
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.pods_pb2 import Fence
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.client.client import Client
from pinnace.client.election import LeaderElector
from pinnace.client.errors import ApiError, Conflict, Fenced, Forbidden, Invalid, NotFound, error_of, from_status
from pinnace.client.resource import delete_request
from pinnace.cluster.spec import ELECTION

LOAD, CONTESTED, HARM = "load", "contested", "harm"
"""Namespaces: of the scheduled and running pods, of the objects that only Rivals write, and of the pods with which faults harm
the scheduler."""
NOBODY = "nobody"
"""A scheduler that does not exist. Its pods are only bound manually."""
LABEL = "chaos"
OBJECTS = 4
"""The number of objects that the Rivals of the regular load share."""
PAGE = 80
BATCH = 5
SEIZED = "seized"
"""The namespace of the adversary's pods."""
FIRST_TOKEN = 1
"""The initial old token: etcd's first revision, which is never the token of a leader."""
ANOTHER = "another"
"""The election that the adversary leads, and the scheduler name of its pods."""
ELECTED_WITHIN = 2.0
"""Seconds after which the adversary stops to campaign."""
_MUST_BE_NONE = (
    "bound_by_deposed",
    "borrowed",
    "bound_by_another",
    "bound_afterwards",
    "bound_twice",
    "moved",
    "stale_written",
    "rewound",
)


class LoadWorker(Protocol):
    async def execute_step(self) -> None:
        """Execute a step. Raises ApiError."""
        ...


def build_pod(namespace: str, name: str, *, scheduler: str = "") -> Pod:
    """Return a pod with resource requests, or without requests if `scheduler` is set."""
    made = Pod()
    made.metadata.namespace, made.metadata.name = namespace, name
    made.spec.schedulerName = scheduler
    container = made.spec.containers.add(name="app", image="example.com/app:1")
    if not scheduler:
        container.resources.requests["cpu"].string = "100m"
        container.resources.requests["memory"].string = "500Mi"
    return made


class PodOwner:
    """Creates, reads, relabels and deletes its own pods. `room`: the maximum number of live pods, excluding pods that are being
    deleted. A pod whose create or delete received no response counts as live until a delete succeeds."""

    def __init__(self, name: str, client: Client, room: int, rng: random.Random) -> None:
        self._name = name
        self._pods = client.pods
        self._room = room
        self._random = rng
        self._created = 0
        self._alive: list[str] = []
        self._read: Pod | None = None

    async def execute_step(self) -> None:
        if len(self._alive) < max(self._room / 4, BATCH):
            await self._create_batch()
        elif len(self._alive) > self._room - BATCH:
            await self._delete()
        else:
            (action,) = self._random.choices(self._actions, self._weights)
            await action(self)

    async def _create(self) -> None:
        (name,) = self._new_names(1)
        await self._pods.create(build_pod(LOAD, name))

    async def _create_batch(self) -> None:
        await self._pods.create_batch([build_pod(LOAD, name) for name in self._new_names(BATCH)])

    async def _delete(self) -> None:
        name = self._take_name()
        known = self._read if self._read is not None and self._read.metadata.name == name else None
        try:
            await self._pods.delete(name, LOAD, grace=self._choose_grace(), uid=known.metadata.uid if known else "")
        except NotFound:
            pass
        except ApiError:
            self._alive.append(name)  # the pod may still exist: delete it again
            raise

    async def _delete_batch(self) -> None:
        requests = [delete_request(self._take_name(), LOAD, grace=self._choose_grace()) for _ in range(BATCH)]
        left = [request.name for request in requests]
        try:
            items = await self._pods.delete_batch(requests)
            left = [name for name, item in zip(left, items, strict=True) if not _is_deleted(item)]
        finally:
            self._alive.extend(left)

    async def _get(self) -> None:
        self._read = await self._pods.get(self._random.choice(self._alive), LOAD)

    async def _update_label(self) -> None:
        """Read a pod, change it, and update it with its resourceVersion."""
        result = await self._pods.get(self._random.choice(self._alive), LOAD)
        self._change_label(result)
        await self._pods.update(result)

    async def _update_stale_labels(self) -> None:
        """Update a pod that was read some time ago. The resourceVersion is usually stale, because the kubelet writes as
        well."""
        if self._read is not None:
            self._change_label(self._read)
            await self._pods.update(self._read)

    async def _list(self) -> None:
        """List the pods in pages, each from a random server."""
        await self._pods.list(LOAD, page_size=PAGE)

    def _new_names(self, count: int) -> list[str]:
        """Return new names, which count as live."""
        made = [f"{self._name}-{self._created + i}" for i in range(count)]
        self._created += count
        self._alive.extend(made)
        return made

    def _take_name(self) -> str:
        """Return one of the older names, which no longer counts as live."""
        return self._alive.pop(self._random.randrange(len(self._alive) // 2 + 1))

    def _choose_grace(self) -> int | None:
        return self._random.choice((None, 0, 1))

    def _change_label(self, found: Pod) -> None:
        found.metadata.labels[LABEL] = str(self._random.randrange(1000))

    _actions: Sequence[Callable[["PodOwner"], Awaitable[None]]] = (
        _create, _create_batch, _delete, _delete_batch, _get, _update_label, _update_stale_labels, _list,
    )  # fmt: skip
    _weights = (20, 2, 18, 2, 40, 22, 8, 1)


class ContestingWriter:
    """Writes objects that several Rivals share. `objects`: the number of shared objects."""

    def __init__(self, client: Client, rng: random.Random, objects: int = OBJECTS) -> None:
        self._pods = client.pods
        self._random = rng
        self._objects = objects
        self._last: Pod | None = None

    async def execute_step(self) -> None:
        name = f"{CONTESTED}-{self._random.randrange(self._objects)}"
        (action,) = self._random.choices(self._actions, self._weights)
        await action(self, name)

    async def _create(self, name: str) -> None:
        await self._pods.create(build_pod(CONTESTED, name, scheduler=NOBODY))

    async def _get(self, name: str) -> None:
        self._last = await self._pods.get(name, CONTESTED)

    async def _increment_counter(self, name: str) -> None:
        """Increment a counter. No increment may be lost."""
        result = await self._pods.get(name, CONTESTED)
        result.metadata.labels[LABEL] = str(int(result.metadata.labels[LABEL] or 0) + 1)
        self._last = await self._pods.update(result)

    async def _overwrite(self, name: str) -> None:
        """Update without a resourceVersion: the last write wins."""
        result = build_pod(CONTESTED, name, scheduler=NOBODY)
        result.metadata.labels[LABEL] = str(self._random.randrange(1000))
        await self._pods.update(result)

    async def _update_stale_version(self, name: str) -> None:
        """Update with the resourceVersion of an earlier version, or of a deleted object with the same name."""
        if self._last is not None:
            self._last.metadata.labels[LABEL] = str(self._random.randrange(1000))
            await self._pods.update(self._last)

    async def _delete(self, name: str) -> None:
        await self._pods.delete(name, CONTESTED)

    async def _delete_with_preconditions(self, name: str) -> None:
        """Delete with the uid and resourceVersion of the last read."""
        if self._last is not None:
            known = self._last.metadata
            await self._pods.delete(known.name, CONTESTED, uid=known.uid, resource_version=known.resourceVersion)

    async def _list(self, name: str) -> None:
        await self._pods.list(CONTESTED, page_size=1)

    _actions: Sequence[Callable[["ContestingWriter", str], Awaitable[None]]] = (
        _create, _get, _increment_counter, _overwrite, _update_stale_version, _delete, _delete_with_preconditions, _list,
    )  # fmt: skip
    _weights = (20, 20, 30, 6, 6, 6, 6, 10)


def _is_deleted(deletion: BatchItem) -> bool:
    return isinstance(error_of(deletion), NotFound | None)


def find_wrongly_succeeded(counts: Mapping[str, int]) -> list[str]:
    """Return the attempts that succeeded although they must be refused."""
    return [f"{counts[name]} forbidden attempts succeeded: {name}" for name in _MUST_BE_NONE if counts.get(name)]


async def bind_with_fence(client: Client, victim: Pod, node: str, fence: Fence | None) -> BatchItem:
    """Send one bind, and return its result. `fence`: any fence, for example of another election, or None for a manual bind.
    Raises ApiError if the call is rejected: Forbidden without permission to campaign in the election."""
    metadata = victim.metadata
    binding = Binding(
        metadata=ObjectMeta(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid),
        target=ObjectReference(kind="Node", name=node),
    )
    (answer,) = await client.pods.bind_batch([binding], fence)
    return answer


class Adversary:
    """Attempts calls that must be refused. `nodes`: names of nodes for its binds. Its pods request no resources."""

    def __init__(self, client: Client, nodes: Sequence[str], rng: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self._client = client
        self._nodes = nodes
        self._random = rng
        self._numbers = count()
        self._tokens: list[int] = [FIRST_TOKEN]

    async def execute_step(self) -> None:
        actions = (
            self._bind_with_deposed_token, self._bind_with_current_token, self._bind_with_other_election, self._bind_twice,
            self._bind_bound_pod, self._update_stale_version, self._bind_with_old_token,
        )  # fmt: skip
        await self._random.choice(actions)()

    async def bind_with_deposed_fence(self, deposed: int) -> bool:
        """Bind with the token of a deposed leader. Return whether the fence rejected it. Raises ApiError."""
        victim = await self._create_unscheduled_pod()
        answer = await bind_with_fence(self._client, victim, self._choose_node(), Fence(election=ELECTION, token=deposed))
        self._count_result(answer, "bound_by_deposed", "fenced", Fenced)
        await self._remove(victim)
        return isinstance(error_of(answer), Fenced)

    async def clean_up(self) -> None:
        """Delete the pods that failed steps have left. Raises ApiError."""
        for left in (await self._client.pods.list(SEIZED)).items:
            await self._remove(left)

    async def _bind_with_deposed_token(self) -> None:
        election = await self._client.elections.get(ELECTION)
        if election.token not in self._tokens:
            self._tokens.append(election.token)
        await self.bind_with_deposed_fence(self._random.choice(self._tokens[:-1]))

    async def _bind_with_current_token(self) -> None:
        """Bind with the token of the current leader, which every reader of elections can obtain."""
        election = await self._client.elections.get(ELECTION)
        victim = await self._create_unscheduled_pod()
        fence = Fence(election=ELECTION, token=election.token, secret=self._random.choice((b"", self._random.randbytes(32))))
        self._count_result(
            await bind_with_fence(self._client, victim, self._choose_node(), fence), "borrowed", "not_the_holder", Fenced
        )
        await self._remove(victim)

    async def _bind_with_other_election(self) -> None:
        """Lead another election. Its fence must not allow binds of other pods, or binds of its own pods after its term."""
        elected = asyncio.Event()
        candidate = LeaderElector(
            self._client.connection,
            ANOTHER,
            "adversary",
            on_elected=lambda token: elected.set(),
            on_lost=lambda reason: None,
            scheduler_names=(ANOTHER,),
        )
        campaign = asyncio.create_task(candidate.run())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(ELECTED_WITHIN):
                    await elected.wait()
            if (fence := candidate.fence) is None:
                return
            victim, own = await self._create_unscheduled_pod(), await self._create_unscheduled_pod(ANOTHER)
            answer = await bind_with_fence(self._client, victim, self._choose_node(), fence)
            self._count_result(answer, "bound_by_another", "not_its_pods", Forbidden)
            await candidate.release()
            if await self._has_fence_of_current_term(fence):  # the resignation was lost: the term lasts until its lease expires
                return
            answer = await bind_with_fence(self._client, own, self._choose_node(), candidate.fence_of(fence.token))
            self._count_result(answer, "bound_afterwards", "over", Fenced)
            await self._remove(victim)
            await self._remove(own)
        finally:
            campaign.cancel()
            await asyncio.wait((campaign,))

    async def _has_fence_of_current_term(self, fence: Fence) -> bool:
        try:
            return (await self._client.elections.get(fence.election)).token == fence.token
        except NotFound:
            return False

    async def _bind_twice(self) -> None:
        victim = await self._create_unscheduled_pod()
        nodes = self._random.sample(self._nodes, 2)
        answers = await asyncio.gather(
            *(bind_with_fence(self._client, victim, node, None) for node in nodes), return_exceptions=True
        )
        bound = sum(isinstance(answer, BatchItem) and not answer.HasField("error") for answer in answers)
        if bound:
            self.counts["bound_once" if bound == 1 else "bound_twice"] += 1
        await self._remove(victim)

    async def _bind_bound_pod(self) -> None:
        """Bind a bound pod manually. The adversary is allowed to bind without a fence."""
        page = await self._client.pods.list(LOAD, fields=f"spec.nodeName={self._choose_node()}")
        if page.items:
            answer = await bind_with_fence(self._client, self._random.choice(page.items), self._choose_node(), None)
            self._count_result(answer, "moved", "kept", Conflict)

    async def _update_stale_version(self) -> None:
        seized = await self._create_unscheduled_pod()
        seized.metadata.labels[LABEL] = "first"
        await self._client.pods.update(seized)
        seized.metadata.labels[LABEL] = "second"
        try:
            await self._client.pods.update(seized)
        except Conflict:
            self.counts["stale_refused"] += 1
        else:
            self.counts["stale_written"] += 1
        await self._remove(seized)

    async def _bind_with_old_token(self) -> None:
        page = await self._client.pods.list(LOAD, fields="status.phase=Running")
        if not page.items:
            return
        past = self._random.choice(page.items)
        past.status.phase = "Pending"
        past.metadata.resourceVersion = ""
        try:
            await self._client.pods.update_status(past)
        except Invalid:
            self.counts["status_kept"] += 1
        else:
            self.counts["rewound"] += 1

    async def _create_unscheduled_pod(self, scheduler: str = NOBODY) -> Pod:
        """Create a pod that no scheduler processes."""
        return await self._client.pods.create(build_pod(SEIZED, f"{SEIZED}-{next(self._numbers)}", scheduler=scheduler))

    async def _remove(self, victim: Pod) -> None:
        with suppress(NotFound):
            await self._client.pods.delete(victim.metadata.name, SEIZED, grace=0, uid=victim.metadata.uid)

    def _choose_node(self) -> str:
        return self._random.choice(self._nodes)

    def _count_result(self, answer: BatchItem, done: str, refused: str, reason: type[ApiError]) -> None:
        """Count the result of a bind that must be rejected with `reason`. Other errors, such as an unavailable etcd, are
        ignored."""
        if not answer.HasField("error"):
            self.counts[done] += 1
        elif isinstance(from_status(answer.error), reason):
            self.counts[refused] += 1
