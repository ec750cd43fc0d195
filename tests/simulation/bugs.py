"""Bugs by name: each takes ONE guard out of the real code, and says which invariants should notice.

    with BUGS["bind-without-fence"].planted(): play(seed)

What the simulation is worth: every one of these is found within 1,000 seeds (`make simulate-bugs`). One that is not means that
the workload, the faults or the checkers are too weak. A bug whose target has moved raises KeyError, or ends runs with an
AttributeError: it must not become a test of nothing.
"""

import asyncio
import runpy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from pinnace.api import fences, wellknown
from pinnace.api.elections_pb2 import Election
from pinnace.api.pods_pb2 import Fence
from pinnace.api.resources import ELECTIONS_PREFIX, PODS
from pinnace.api.verbs_pb2 import DELETED
from pinnace.apiserver.cacher.cacher import Cacher, ResourceCache
from pinnace.apiserver.cacher.event_history import EventHistory
from pinnace.apiserver.cacher.listing import Lister
from pinnace.apiserver.cacher.reflector import Reflector
from pinnace.apiserver.cacher.store import CacheEvent
from pinnace.apiserver.cacher.watcher import WatchDispatcher
from pinnace.apiserver.election.campaign import CampaignSession
from pinnace.apiserver.registry import binding, fencing
from pinnace.apiserver.registry.admission import AdmissionOperation, WriteRequest
from pinnace.apiserver.registry.fencing import FenceVerifier
from pinnace.apiserver.registry.mutation import Mutation, MutationEffect, ObjectVersion
from pinnace.apiserver.registry.store import Store
from pinnace.apiserver.registry.strategies import pods
from pinnace.apiserver.services.sessions import LeaseSession
from pinnace.apiserver.storage.committer import NOT_DONE, Committer, TransactionPipeline, WriteConflict
from pinnace.apiserver.storage.interface import ChangeBatch, Committed, Guard, KeyValue, StorageError, StorageUnavailable, Write
from pinnace.client.election import LocalTerm
from pinnace.client.informer import Informer
from pinnace.client.standby import Standby
from pinnace.kubelet.run_log import LoggedRuntime
from pinnace.runtime.clock import SilenceTimer
from pinnace.scheduler.cache.cache import Cache
from pinnace.verification.chaos.workers import NOBODY
from tests.simulation.workload import FOREIGN


class Surgery(ExitStack):
    """Replaces parts of the product, and puts them back at its end. `replaced`: owner, name and original of each."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced: list[tuple[Any, str, Any]] = []

    def replace(self, owner: Any, name: str, value: Any) -> Any:
        """What it was. Raises KeyError when the owner has no such part of its own."""
        original = vars(owner)[name]
        setattr(owner, name, value)
        self.callback(setattr, owner, name, original)
        self.replaced.append((owner, name, original))
        return original


@dataclass(frozen=True, slots=True)
class Bug:
    name: str
    invariants: tuple[str, ...]
    """Those that should notice; any of them does."""
    what: str
    planted: Callable[[], AbstractContextManager[Surgery]]


BUGS: dict[str, Bug] = {}


def bug(name: str, *invariants: str) -> Callable[[Callable[[Surgery], None]], Callable[[Surgery], None]]:
    """Registers a function that plants a bug; its docstring says which."""

    def register(plant: Callable[[Surgery], None]) -> Callable[[Surgery], None]:
        @contextmanager
        def planted() -> Iterator[Surgery]:
            with Surgery() as surgery:
                plant(surgery)
                yield surgery

        BUGS[name] = Bug(name, invariants, (plant.__doc__ or "").strip(), planted)
        return plant

    return register


def named(name: str, files: Sequence[Path]) -> Bug:
    """The bug with this name, of this module or of one of the Python files. Raises click.UsageError if there is none."""
    for file in files:
        runpy.run_path(str(file))
    if name not in BUGS:
        raise click.UsageError(f'there is no bug "{name}"; there are {", ".join(BUGS)}')
    return BUGS[name]


# --- binding and the fence


def _without_fence(surgery: Surgery) -> None:
    """Whoever binds is taken for the leader, and the bind's transaction does not compare the election's key with the token."""

    async def believed(self: FenceVerifier, fence: Fence, user: Any) -> fencing.FencedTerm:
        return fencing.FencedTerm(fences.format_term(fence), Guard(PODS.prefix, 0), (NOBODY, wellknown.DEFAULT_SCHEDULER))

    surgery.replace(FenceVerifier, "verify", believed)
    original = surgery.replace(binding, "build_bind_mutations", lambda *args: [_unguarded(item) for item in original(*args)])


def _unguarded(mutation: Any) -> Any:
    return mutation._replace(guards=()) if isinstance(mutation, Mutation) else mutation


@bug("bind-without-fence", "I3")
def _bind_without_fence(surgery: Surgery) -> None:
    """A bind does not need the present term."""
    _without_fence(surgery)


@bug("bind-by-the-cache", "I3")
def _bind_by_the_cache(surgery: Surgery) -> None:
    """A bind's transaction does not compare the election's key with the token: the server's cache decides who leads."""
    original = surgery.replace(binding, "build_bind_mutations", lambda *args: [_unguarded(item) for item in original(*args)])


@bug("bind-for-any-scheduler", "I3")
def _bind_for_any_scheduler(surgery: Surgery) -> None:
    """A leader binds the pods of schedulers that it did not campaign for, as does the leader of any other election."""

    async def of_any(self: FenceVerifier, fence: Fence, user: Any) -> fencing.FencedTerm | None:
        term = await original(self, fence, user)
        return term and term._replace(scheduler_names=(*term.scheduler_names, FOREIGN))

    original = surgery.replace(FenceVerifier, "verify", of_any)


@bug("bind-twice", "I1")
def _bind_twice(surgery: Surgery) -> None:
    """A bind does not look whether the pod has a node already."""

    def blind(mutation: Any) -> Any:
        if not isinstance(mutation, Mutation):
            return mutation

        def step(version: ObjectVersion[Any] | None) -> Any:
            if version is not None and version.obj.spec.nodeName:
                unbound = type(version.obj)()
                unbound.CopyFrom(version.obj)
                unbound.spec.nodeName = ""
                version = version._replace(obj=unbound)
            return mutation.step(version)

        return mutation._replace(step=step)

    original = surgery.replace(binding, "build_bind_mutations", lambda *args: list(map(blind, original(*args))))


@bug("candidate-without-clock-or-fence", "I3")
def _candidate_without_clock_or_fence(surgery: Surgery) -> None:
    """A candidate does not stand down by its clock, and binds are not fenced."""
    surgery.replace(LocalTerm, "is_valid", lambda self, now: True)
    _without_fence(surgery)


# --- elections


@bug("depose-without-compare", "L2")
def _depose_without_compare(surgery: Surgery) -> None:
    """A server deletes the key of a leader that has gone on with another server: it does not compare the mod_revision."""

    async def commit(self: Committer, write: Write) -> int:
        if write.key.startswith(ELECTIONS_PREFIX) and write.value is None:
            while True:
                try:
                    return int(await original(self, write))
                except WriteConflict as conflict:
                    if conflict.current is None:
                        raise
                    write = write._replace(expected=conflict.current.mod_revision)
        return int(await original(self, write))

    original = surgery.replace(Committer, "commit", commit)


@bug("term-ends-in-silence", "L1", "L3")
def _term_ends_in_silence(surgery: Surgery) -> None:
    """A leader whose term has ended by itself keeps the election, and does nothing."""

    async def give_up(self: Standby, problem: str, cause: BaseException | None) -> None:
        return None

    surgery.replace(Standby, "_abandon_leadership", give_up)


@bug("elected-over-a-leader", "I4")
def _elected_over_a_leader(surgery: Surgery) -> None:
    """A candidate that waits takes the key that another has: the token stays, its holder changes."""

    async def consider(self: Any, record: KeyValue) -> None:
        election = Election.FromString(record.value)
        election.holder = self._opening.holder
        with suppress(WriteConflict, StorageError):
            await self._key._committer.commit(Write(record.key, election.SerializeToString(), record.mod_revision))

    surgery.replace(CampaignSession, "_accept_nomination_if_due", consider)


@bug("server-renews-by-itself", "L2", "L1")
def _server_renews_by_itself(surgery: Surgery) -> None:
    """A server keeps sessions alive for peers that are silent, and does not notice that they are."""

    async def keep_alive(self: LeaseSession, answered: Callable[[int], None], expired: Callable[[], None]) -> None:
        latest = 0
        while True:
            await asyncio.sleep(0.1)
            try:
                await self._storage.renew_lease(self.id)
            except StorageError:
                continue
            if self._latest != latest:
                latest = self._latest
                answered(latest)

    surgery.replace(LeaseSession, "keep_alive", keep_alive)
    surgery.replace(SilenceTimer, "has_exceeded_limit", lambda self, now: False)


# --- the committer


@bug("answer-before-commit", "I5", "I7")
def _answer_before_commit(surgery: Surgery) -> None:
    """A write is answered when it is sent, with the revision that it will probably have."""

    async def send(self: Any, writes: Sequence[Write]) -> Any:
        storage = self._storage

        async def transact(writes: Sequence[Write]) -> Any:
            sending = asyncio.ensure_future(storage.transact(writes))
            sending.add_done_callback(lambda done: done.cancelled() or done.exception())
            return Committed(await storage.current_revision() + 1)

        self._at = 0
        await self.open()
        self._storage = type("Hasty", (), {"transact": staticmethod(transact)})()
        try:
            return await original(self, writes)
        finally:
            self._storage = storage

    original = surgery.replace(TransactionPipeline, "send", send)


@bug("resend-in-doubt", "I7", "I5")
def _resend_in_doubt(surgery: Surgery) -> None:
    """A transaction whose answer was lost goes again, although a copy of it may have arrived, or may yet."""

    async def resolve(self: Any, marker: Write, error: StorageError) -> Any:
        self._at = 0
        return NOT_DONE

    surgery.replace(TransactionPipeline, "_resolve_outcome", resolve)


@bug("door-left-open", "I7", "I5")
def _door_left_open(surgery: Surgery) -> None:
    """The marker is only looked at: what has not happened yet is sent again, and may arrive twice."""

    async def resolve(self: Any, marker: Write, error: StorageError) -> Any:
        state = await self._storage.get(marker.key)
        self._at = state.mod_revision if state else 0
        return Committed(self._at) if state and state.value == marker.value else NOT_DONE

    surgery.replace(TransactionPipeline, "_resolve_outcome", resolve)


@bug("unknown-is-done", "I5", "I7")
def _unknown_is_done(surgery: Surgery) -> None:
    """A transaction whose answer was lost counts as done."""

    async def resolve(self: Any, marker: Write, error: StorageError) -> Any:
        self._at = 0
        return Committed(await self._storage.current_revision())

    surgery.replace(TransactionPipeline, "_resolve_outcome", resolve)


@bug("unknown-is-refused", "I7", "I5")
def _unknown_is_refused(surgery: Surgery) -> None:
    """A transaction whose answer was lost counts as not done."""

    async def resolve(self: Any, marker: Write, error: StorageError) -> Any:
        self._at = 0
        raise StorageUnavailable("no answer")

    surgery.replace(TransactionPipeline, "_resolve_outcome", resolve)


@bug("stale-update", "I7")
def _stale_update(surgery: Surgery) -> None:
    """An update does not compare the resourceVersion that its sender had read: it undoes what others did."""

    def update(self: Store[Any], obj: Any, by: WriteRequest, operation: AdmissionOperation) -> Any:
        if operation is AdmissionOperation.UPDATE:
            blind = type(obj)()
            blind.CopyFrom(obj)
            blind.metadata.resourceVersion = ""
            obj = blind
        return original(self, obj, by, operation)

    original = surgery.replace(Store, "_update_mutation", update)


@bug("update-not-done", "I5")
def _update_not_done(surgery: Surgery) -> None:
    """One update in three is answered with the object as it is, as if there were nothing to change."""

    def judged(
        self: Store[Any], new: Any, present: ObjectVersion[Any], by: WriteRequest, operation: AdmissionOperation, owners: Any
    ) -> Any:
        final = original(self, new, present, by, operation, owners)
        return MutationEffect.NO_OP if operation is AdmissionOperation.UPDATE and present.revision % 3 == 0 else final

    original = surgery.replace(Store, "_validate_and_admit", judged)


@bug("delete-not-done", "I5")
def _delete_not_done(surgery: Surgery) -> None:
    """One delete in three is answered with the object as it is."""

    def deletion(self: Store[Any], *args: Any) -> Any:
        mutation = original(self, *args)

        def step(version: ObjectVersion[Any] | None) -> Any:
            final = mutation.step(version)
            there = version is not None and not version.obj.metadata.HasField("deletionTimestamp")
            return MutationEffect.NO_OP if there and version.revision % 3 == 0 else final

        return mutation._replace(step=step) if isinstance(mutation, Mutation) else mutation

    original = surgery.replace(Store, "_delete_mutation", deletion)


@bug("status-goes-backward", "I10")
def _status_goes_backward(surgery: Surgery) -> None:
    """Whatever a status says is stored: phases may go back."""
    surgery.replace(pods, "validate_pod_status_update", lambda new, old, out: None)


# --- the watch cache


@bug("feed-skips-an-event", "I8", "I6", "I7")
def _feed_skips_an_event(surgery: Surgery) -> None:
    """One change in fifty does not reach the watch cache."""

    async def take(self: Reflector, told: ChangeBatch, stall: Any) -> None:
        changes = [change for change in told.changes if change.mod_revision % 50]
        await original(self, ChangeBatch(told.revision, changes), stall)

    original = surgery.replace(Reflector, "_apply_changes", take)


@bug("dispatch-twice", "I8")
def _dispatch_twice(surgery: Surgery) -> None:
    """Now and then an event is told twice."""

    def route(self: WatchDispatcher, event: CacheEvent[Any]) -> None:
        original(self, event)
        if event.revision % 20 == 0:
            original(self, event)

    original = surgery.replace(WatchDispatcher, "add_event", route)


@bug("bookmark-too-early", "I9", "I8")
def _bookmark_too_early(surgery: Surgery) -> None:
    """A bookmark promises what has not been told yet."""

    def bookmark(self: WatchDispatcher, revision: int) -> None:
        original(self, revision + 2)

    original = surgery.replace(WatchDispatcher, "send_bookmarks", bookmark)


@bug("compaction-in-silence", "I8")
def _compaction_in_silence(surgery: Surgery) -> None:
    """When the cache loads anew its watchers are not told that they have missed something."""

    def reset(self: Any, revision: int, items: Any) -> None:
        self._store.reset(revision, items)
        self._log.clear(revision)

    surgery.replace(ResourceCache, "reset", reset)


@bug("resume-before-the-ring", "I8")
def _resume_before_the_ring(surgery: Surgery) -> None:
    """A watch may resume from before the oldest event that is left."""

    def clear(self: EventHistory[Any], floor: int) -> None:
        original(self, floor)
        self.floor = 0

    original = surgery.replace(EventHistory, "clear", clear)


@bug("list-of-two-snapshots", "I12")
def _list_of_two_snapshots(surgery: Surgery) -> None:
    """A later page of a list is cut from the state of now."""
    surgery.replace(Lister, "_page_at", lambda self, revision, query, after: self._page_from_cache(revision, query, after))


@bug("stale-reads", "I7", "I6")
def _stale_reads(surgery: Surgery) -> None:
    """A read is answered from the cache as it is, without asking etcd for its revision first."""

    async def fresh(self: Cacher, timeout: float) -> int:
        await self.wait_for(1, timeout)
        return self.revision

    surgery.replace(Cacher, "wait_until_fresh", fresh)


# --- clients


@bug("informer-resumes-too-late", "I8")
def _informer_resumes_too_late(surgery: Surgery) -> None:
    """An informer whose stream broke goes on a revision later than it was."""

    def tell(self: Any, deltas: Any, revision: int) -> None:
        original(self, deltas, revision)
        self._resume_revision = revision + 1

    original = surgery.replace(Informer, "_notify_handlers", tell)


@bug("informer-drops-deletions", "I8", "L1")
def _informer_drops_deletions(surgery: Surgery) -> None:
    """An informer keeps what was deleted."""

    def apply(self: Any, events: Any) -> Any:
        return original(self, [(kind, obj) for kind, obj in events if kind != DELETED])

    original = surgery.replace(Informer, "_apply_events", apply)


# --- the scheduler


@bug("assumed-pods-take-no-room", "I2")
def _assumed_pods_take_no_room(surgery: Surgery) -> None:
    """A pod that was decided takes room on its node only when the informer tells that it is bound."""
    surgery.replace(Cache, "assume_pod", lambda self, info, node: None)


@bug("assumed-pods-expire", "I2")
def _assumed_pods_expire(surgery: Surgery) -> None:
    """A decision that is not confirmed soon is forgotten by a timer (kubernetes#106361)."""

    def assume(self: Cache, info: Any, node: str) -> None:
        original(self, info, node)
        asyncio.get_running_loop().call_later(0.01, self.forget_pod, info.uid)

    original = surgery.replace(Cache, "assume_pod", assume)


@bug("no-barrier", "I2")
def _no_barrier(surgery: Surgery) -> None:
    """A new leader begins before its informers have seen the binds of its predecessors."""

    async def reached(self: Standby, token: int) -> bool:
        return True

    surgery.replace(Standby, "_wait_at_barrier", reached)


# --- kubelets


@bug("forgotten-pods-run-on", "I13")
def _forgotten_pods_run_on(surgery: Surgery) -> None:
    """What a kubelet forgets is not taken from its runtime."""
    surgery.replace(LoggedRuntime, "remove", lambda self, uid: None)
