"""The workers that make the load. Each performs one step at a time, of one to three calls; a failed step is recorded, and is
over.

    Owner      has pods of its own: creates, reads, relabels and deletes them, so that a bounded number exists
    Rival      one of several that write the same few objects through different API servers, without coordination
    Adversary  attempts what must be refused: what a deposed leader, a confused leader, or a client with an old copy would do

Every attempt of the adversary is a call in the history, so the checkers judge it. Its `counts` are for people:

    fenced            binds with the token of a deposed leader, refused by the fence
    bound_by_deposed  ... that were carried out: must be none
    not_the_holder    binds with the token of the present leader, without the secret of its session, refused by the fence
    borrowed          ... that were carried out: must be none
    not_its_pods      binds of others' pods by the leader of another election, in its term, refused by the fence
    bound_by_another  ... that were carried out: must be none
    over              binds of its own pods by a leader of another election, after its term, refused by the fence
    bound_afterwards  ... that were carried out: must be none
    bound_once        pods that two bound at once without a fence, to different nodes, and one of them was refused
    bound_twice       ... and neither was: must be none
    kept              pods that ran already, and that a bind could not move
    moved             ... and could: must be none
    stale_refused     second writes on the condition of a version that the first had replaced, refused
    stale_written     ... and carried out: must be none
    status_kept       statuses of running pods, sent by a kubelet that still has them Pending, refused
    rewound           ... and carried out: must be none
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
from pinnace.client.election import Candidate
from pinnace.client.errors import ApiError, Conflict, Fenced, Forbidden, Invalid, NotFound, error_of, from_status
from pinnace.client.resource import delete_request
from pinnace.cluster.spec import ELECTION

LOAD, CONTESTED, HARM = "load", "contested", "harm"
"""Namespaces: of the pods that are scheduled and run, of the objects that only Rivals write, and of the pods by which faults
harm the scheduler."""
NOBODY = "nobody"
"""A scheduler that does not exist: its pods are never bound, unless by hand."""
LABEL = "chaos"
OBJECTS = 4
"""That the Rivals of the steady load fight over."""
PAGE = 80
BATCH = 5


class Worker(Protocol):
    async def step(self) -> None:
        """Raises ApiError."""
        ...


def pod(namespace: str, name: str, *, scheduler: str = "") -> Pod:
    """One that takes room on a node, unless a scheduler is named that does not exist."""
    made = Pod()
    made.metadata.namespace, made.metadata.name = namespace, name
    made.spec.schedulerName = scheduler
    container = made.spec.containers.add(name="app", image="example.com/app:1")
    if not scheduler:
        container.resources.requests["cpu"].string = "100m"
        container.resources.requests["memory"].string = "500Mi"
    return made


class Owner:
    """`room`: so many pods are alive at most, but for those that are being deleted. A pod whose create or delete had no answer
    counts until a delete of it is answered."""

    def __init__(self, name: str, client: Client, room: int, rng: random.Random) -> None:
        self._name = name
        self._pods = client.pods
        self._room = room
        self._random = rng
        self._created = 0
        self._alive: list[str] = []
        self._read: Pod | None = None

    async def step(self) -> None:
        if len(self._alive) < max(self._room / 4, BATCH):
            await self._create_batch()
        elif len(self._alive) > self._room - BATCH:
            await self._delete()
        else:
            (action,) = self._random.choices(self._actions, self._weights)
            await action(self)

    async def _create(self) -> None:
        (name,) = self._names(1)
        await self._pods.create(pod(LOAD, name))

    async def _create_batch(self) -> None:
        await self._pods.create_batch([pod(LOAD, name) for name in self._names(BATCH)])

    async def _delete(self) -> None:
        name = self._take()
        known = self._read if self._read is not None and self._read.metadata.name == name else None
        try:
            await self._pods.delete(name, LOAD, grace=self._grace(), uid=known.metadata.uid if known else "")
        except NotFound:
            pass
        except ApiError:
            self._alive.append(name)  # perhaps: to be deleted again
            raise

    async def _delete_batch(self) -> None:
        requests = [delete_request(self._take(), LOAD, grace=self._grace()) for _ in range(BATCH)]
        left = [request.name for request in requests]
        try:
            items = await self._pods.delete_batch(requests)
            left = [name for name, item in zip(left, items, strict=True) if not _gone(item)]
        finally:
            self._alive.extend(left)

    async def _get(self) -> None:
        self._read = await self._pods.get(self._random.choice(self._alive), LOAD)

    async def _relabel(self) -> None:
        """Reads, changes, and writes on the condition that nobody else has meanwhile."""
        found = await self._pods.get(self._random.choice(self._alive), LOAD)
        self._relabelled(found)
        await self._pods.update(found)

    async def _relabel_blindly(self) -> None:
        """The same from what was read some time ago: mostly stale, since the kubelet writes too."""
        if self._read is not None:
            self._relabelled(self._read)
            await self._pods.update(self._read)

    async def _list(self) -> None:
        """In pages, each from any server."""
        await self._pods.list(LOAD, page_size=PAGE)

    def _names(self, count: int) -> list[str]:
        """New ones, that count as alive from now on."""
        made = [f"{self._name}-{self._created + i}" for i in range(count)]
        self._created += count
        self._alive.extend(made)
        return made

    def _take(self) -> str:
        """One of the older ones, which counts as gone from now on."""
        return self._alive.pop(self._random.randrange(len(self._alive) // 2 + 1))

    def _grace(self) -> int | None:
        return self._random.choice((None, 0, 1))

    def _relabelled(self, found: Pod) -> None:
        found.metadata.labels[LABEL] = str(self._random.randrange(1000))

    _actions: Sequence[Callable[["Owner"], Awaitable[None]]] = (
        _create, _create_batch, _delete, _delete_batch, _get, _relabel, _relabel_blindly, _list,
    )  # fmt: skip
    _weights = (20, 2, 18, 2, 40, 22, 8, 1)


class Rival:
    """`objects`: how many they fight over."""

    def __init__(self, client: Client, rng: random.Random, objects: int = OBJECTS) -> None:
        self._pods = client.pods
        self._random = rng
        self._objects = objects
        self._last: Pod | None = None

    async def step(self) -> None:
        name = f"{CONTESTED}-{self._random.randrange(self._objects)}"
        (action,) = self._random.choices(self._actions, self._weights)
        await action(self, name)

    async def _create(self, name: str) -> None:
        await self._pods.create(pod(CONTESTED, name, scheduler=NOBODY))

    async def _get(self, name: str) -> None:
        self._last = await self._pods.get(name, CONTESTED)

    async def _increment(self, name: str) -> None:
        """A counter that must not lose a count."""
        found = await self._pods.get(name, CONTESTED)
        found.metadata.labels[LABEL] = str(int(found.metadata.labels[LABEL] or 0) + 1)
        self._last = await self._pods.update(found)

    async def _overwrite(self, name: str) -> None:
        """The last write wins: no condition."""
        found = pod(CONTESTED, name, scheduler=NOBODY)
        found.metadata.labels[LABEL] = str(self._random.randrange(1000))
        await self._pods.update(found)

    async def _write_stale(self, name: str) -> None:
        """On the condition of a version that may be long gone, or of a namesake."""
        if self._last is not None:
            self._last.metadata.labels[LABEL] = str(self._random.randrange(1000))
            await self._pods.update(self._last)

    async def _delete(self, name: str) -> None:
        await self._pods.delete(name, CONTESTED)

    async def _delete_known(self, name: str) -> None:
        """On the condition that it still is what was read."""
        if self._last is not None:
            known = self._last.metadata
            await self._pods.delete(known.name, CONTESTED, uid=known.uid, resource_version=known.resourceVersion)

    async def _list(self, name: str) -> None:
        await self._pods.list(CONTESTED, page_size=1)

    _actions: Sequence[Callable[["Rival", str], Awaitable[None]]] = (
        _create, _get, _increment, _overwrite, _write_stale, _delete, _delete_known, _list,
    )  # fmt: skip
    _weights = (20, 20, 30, 6, 6, 6, 6, 10)


def _gone(deletion: BatchItem) -> bool:
    return isinstance(error_of(deletion), NotFound | None)


SEIZED = "seized"
"""The namespace of its pods."""
FIRST_TOKEN = 1
"""etcd's first revision is never a leader's: until one has been deposed this is the old token."""
ANOTHER = "another"
"""The election in which it leads itself, and the scheduler for whose pods."""
ELECTED_WITHIN = 2.0
"""Seconds after which it stops to campaign."""
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


def succeeded(counts: Mapping[str, int]) -> list[str]:
    """Which attempts were carried out, although they must not be."""
    return [f"{counts[name]} attempts of the adversary: {name}" for name in _MUST_BE_NONE if counts.get(name)]


async def bind_under(client: Client, victim: Pod, node: str, fence: Fence | None) -> BatchItem:
    """Sends one bind, and returns its answer. `fence`: any, such as one of another election (`Candidate.fence`); None: by
    hand. Raises ApiError when the whole call is refused: Forbidden without the right to campaign in the election."""
    metadata = victim.metadata
    binding = Binding(
        metadata=ObjectMeta(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid),
        target=ObjectReference(kind="Node", name=node),
    )
    (answer,) = await client.pods.bind_batch([binding], fence)
    return answer


class Adversary:
    """`nodes`: names of nodes that it may bind to. Its pods take no room there but for their number."""

    def __init__(self, client: Client, nodes: Sequence[str], rng: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self._client = client
        self._nodes = nodes
        self._random = rng
        self._numbers = count()
        self._tokens: list[int] = [FIRST_TOKEN]

    async def step(self) -> None:
        actions = (
            self._act_for_a_deposed_leader, self._borrow, self._lead_another, self._bind_twice, self._move,
            self._write_stale, self._rewind,
        )  # fmt: skip
        await self._random.choice(actions)()

    async def act_for(self, deposed: int) -> bool:
        """Binds with the token of a leader that is no more; was it refused by the fence? Raises ApiError."""
        victim = await self._seize()
        answer = await bind_under(self._client, victim, self._node(), Fence(election=ELECTION, token=deposed))
        self._count(answer, "bound_by_deposed", "fenced", Fenced)
        await self._remove(victim)
        return isinstance(error_of(answer), Fenced)

    async def clean_up(self) -> None:
        """Deletes what failed steps have left. Raises ApiError."""
        for left in (await self._client.pods.list(SEIZED)).items:
            await self._remove(left)

    async def _act_for_a_deposed_leader(self) -> None:
        election = await self._client.elections.get(ELECTION)
        if election.token not in self._tokens:
            self._tokens.append(election.token)
        await self.act_for(self._random.choice(self._tokens[:-1]))

    async def _borrow(self) -> None:
        """Every reader of elections knows the token of the present leader."""
        election = await self._client.elections.get(ELECTION)
        victim = await self._seize()
        fence = Fence(election=ELECTION, token=election.token, secret=self._random.choice((b"", self._random.randbytes(32))))
        self._count(await bind_under(self._client, victim, self._node(), fence), "borrowed", "not_the_holder", Fenced)
        await self._remove(victim)

    async def _lead_another(self) -> None:
        """Its own term gives it no right to the pods of others, and none to its own pods once it is over."""
        elected = asyncio.Event()
        candidate = Candidate(
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
            victim, own = await self._seize(), await self._seize(ANOTHER)
            answer = await bind_under(self._client, victim, self._node(), fence)
            self._count(answer, "bound_by_another", "not_its_pods", Forbidden)
            await candidate.resign()
            if await self._leads(fence):  # the resignation was lost: its term lasts until its lease has run out
                return
            answer = await bind_under(self._client, own, self._node(), candidate.fence_of(fence.token))
            self._count(answer, "bound_afterwards", "over", Fenced)
            await self._remove(victim)
            await self._remove(own)
        finally:
            campaign.cancel()
            await asyncio.wait((campaign,))

    async def _leads(self, fence: Fence) -> bool:
        try:
            return (await self._client.elections.get(fence.election)).token == fence.token
        except NotFound:
            return False

    async def _bind_twice(self) -> None:
        victim = await self._seize()
        nodes = self._random.sample(self._nodes, 2)
        answers = await asyncio.gather(
            *(bind_under(self._client, victim, node, None) for node in nodes), return_exceptions=True
        )
        bound = sum(isinstance(answer, BatchItem) and not answer.HasField("error") for answer in answers)
        if bound:
            self.counts["bound_once" if bound == 1 else "bound_twice"] += 1
        await self._remove(victim)

    async def _move(self) -> None:
        """A pod that is bound already, by hand: the adversary may bind without a fence."""
        page = await self._client.pods.list(LOAD, fields=f"spec.nodeName={self._node()}")
        if page.items:
            answer = await bind_under(self._client, self._random.choice(page.items), self._node(), None)
            self._count(answer, "moved", "kept", Conflict)

    async def _write_stale(self) -> None:
        seized = await self._seize()
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

    async def _rewind(self) -> None:
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

    async def _seize(self, scheduler: str = NOBODY) -> Pod:
        """A pod that no scheduler looks at."""
        return await self._client.pods.create(pod(SEIZED, f"{SEIZED}-{next(self._numbers)}", scheduler=scheduler))

    async def _remove(self, victim: Pod) -> None:
        with suppress(NotFound):
            await self._client.pods.delete(victim.metadata.name, SEIZED, grace=0, uid=victim.metadata.uid)

    def _node(self) -> str:
        return self._random.choice(self._nodes)

    def _count(self, answer: BatchItem, done: str, refused: str, reason: type[ApiError]) -> None:
        """What became of a bind that must be refused for this reason; other refusals (etcd is away) say nothing."""
        if not answer.HasField("error"):
            self.counts[done] += 1
        elif isinstance(from_status(answer.error), reason):
            self.counts[refused] += 1
