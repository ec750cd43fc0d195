"""Nodes.Heartbeat: the fleets whose sessions this server holds. The story of one fleet is in fleet.py."""

import random
from collections.abc import AsyncIterator, Iterable
from functools import partial

from apiserver import errors
from apiserver.auth.authentication import User
from apiserver.auth.authorizer import Authorizer, is_fleet
from apiserver.auth.permissions import HEARTBEAT, Target
from apiserver.cacher.cacher import Cacher
from apiserver.errors import Rejected
from apiserver.services.context import Context
from apiserver.services.fleet import FleetSession
from apiserver.services.nodelease import MAX_NODES, unusable
from apiserver.services.sessions import MAX_HOLDER, Conversation, Conversations, Sign, Timing
from apiserver.storage.committer import Committer
from apiserver.storage.interface import Storage
from pinnace.api.nodes_pb2 import HeartbeatRequest, HeartbeatResponse
from pinnace.api.resources import NODE_LEASE_NAMESPACE
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.tasks import TimeSlice

TIMING = Timing(interval=0.5, silence=3.0, ttl=5)
"""A process that has died is found out by its stream, which breaks at once (see fleet.GRACE). One that is only silent may be
starved as well as stopped: on a machine that is short of processors a beat, and its answer, take seconds."""
AT_ONCE = 500
"""Nodes for which permission is asked together."""


class HeartbeatsService:
    def __init__(
        self,
        storage: Storage,
        committer: Committer,
        cacher: Cacher,
        authorizer: Authorizer,
        *,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
        timing: Timing = TIMING,
    ) -> None:
        self._storage = storage
        self._committer = committer
        self._cacher = cacher
        self._authorizer = authorizer
        self._clock = clock
        self._rng = rng or random.Random()
        self._timing = timing
        self._conversations = Conversations()

    async def heartbeat(self, requests: AsyncIterator[HeartbeatRequest], context: Context) -> AsyncIterator[HeartbeatResponse]:
        conversation = Conversation[HeartbeatRequest, HeartbeatResponse](requests, self._timing, self._clock)
        async for response in self._conversations.hold(conversation, lambda: self._keep(conversation, context.user)):
            yield response

    def drain(self) -> None:
        """The server is stopping: fleets go on elsewhere, and their leases live on."""
        self._conversations.drain()

    async def _keep(self, conversation: Conversation[HeartbeatRequest, HeartbeatResponse], user: User) -> None:
        request = await conversation.hear()
        if isinstance(request, Sign):
            return
        opening = request.open
        if not 0 < len(opening.holder) <= MAX_HOLDER:
            raise Rejected(errors.bad_request(f"open a session with a holder of at most {MAX_HOLDER} characters"))
        if user.fleet is not None and not is_fleet(user, opening.holder):
            raise Rejected(
                errors.forbidden(f'User "{user.name}" cannot hold leases as "{opening.holder}": that is another fleet')
            )

        async def permit(nodes: Iterable[str]) -> None:
            """In pieces: who may not is told so with the first, and between two others have their turns."""
            turn, wanted = TimeSlice(self._clock), list(nodes)
            for start in range(0, len(wanted), AT_ONCE):
                await self._authorizer.check(user, HEARTBEAT, partial(_leases, wanted[start : start + AT_ONCE]))
                await turn.end()

        async def permit_release(nodes: Iterable[str]) -> None:
            """A fleet's holder is a name of its own: what is held in it may be given up, be the node another fleet's by now."""
            if user.fleet is None:
                await permit(nodes)

        if opening.nodes:
            await permit(opening.nodes[:MAX_NODES])  # before the names are looked at, which takes longer
        elif user.fleet is None:  # a session is a lease of etcd's, and not for anybody
            await self._authorizer.check(user, HEARTBEAT, lambda: (Target(NODE_LEASE_NAMESPACE),))
        if problem := unusable(opening.nodes):
            raise Rejected(errors.bad_request(problem))
        await FleetSession(
            conversation,
            opening,
            permit,
            permit_release,
            self._storage,
            self._committer,
            self._cacher,
            self._timing,
            self._clock,
            self._rng,
        ).run()


def _leases(nodes: Iterable[str]) -> list[Target]:
    return [Target(NODE_LEASE_NAMESPACE, node) for node in nodes]
