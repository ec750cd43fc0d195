"""Garbage collection: deletion of dependents, and the graph of owners."""

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pinnace.api.core_v1_pb2 import Namespace, Pod
from pinnace.api.meta_v1_pb2 import ObjectMeta, OwnerReference
from pinnace.api.resources import DEPLOYMENTS, NAMESPACES, NODES, PODS, REPLICA_SETS, Object, Resource
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED
from pinnace.client.errors import NotFound
from pinnace.client.informer import Delta
from pinnace.controllers import garbagecollector
from pinnace.controllers.garbagecollector import (
    LATER,
    QUICK,
    DeleteObject,
    DeletionDecision,
    DependentsIndex,
    GarbageCollector,
    KeepObject,
    ObjectLocation,
    OwnerState,
    ReleaseObject,
    decide_action,
    waits_for_dependent,
    without_owners,
)
from pinnace.controllers.informers import CustomInformers
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.builders import make_node, make_pod
from tests.workloads import deleting, make_deployment, make_replica_set, pod_of

STAYS, WAITS, GONE = OwnerState.STAYS, OwnerState.WAITS, OwnerState.GONE


@pytest.mark.parametrize(
    ("owners", "dependents", "expected"),
    [
        ([STAYS], False, KeepObject()),
        ([STAYS, STAYS], True, KeepObject()),
        ([STAYS, GONE], False, ReleaseObject(frozenset({"1"}))),
        ([WAITS, STAYS, GONE], True, ReleaseObject(frozenset({"0", "2"}))),
        ([GONE], False, DeleteObject("Background")),
        ([GONE, GONE], True, DeleteObject("Background")),
        ([WAITS], False, DeleteObject("Background")),
        ([WAITS], True, DeleteObject("Foreground")),
        ([WAITS, GONE], True, DeleteObject("Foreground")),
    ],
)
def test_decision_depends_on_the_owners(owners: list[OwnerState], dependents: bool, expected: DeletionDecision) -> None:
    assert decide_action(ObjectMeta(), {str(i): owner for i, owner in enumerate(owners)}, dependents) == expected


@pytest.mark.parametrize(
    ("finalizers", "policy"),
    [([], "Background"), (["orphan"], "Orphan"), (["foregroundDeletion"], "Foreground"), (["mine"], "Background")],
)
def test_propagation_policy_depends_on_the_finalizers_of_the_object(finalizers: list[str], policy: str) -> None:
    assert decide_action(ObjectMeta(finalizers=finalizers), {"0": GONE}, True) == DeleteObject(policy)


@pytest.mark.parametrize("deleting", [True, False])
@pytest.mark.parametrize("finalizer", ["foregroundDeletion", "orphan"])
@pytest.mark.parametrize("blocks", [True, False])
def test_owner_waits_only_for_blocking_dependents_in_foreground_deletion(deleting: bool, finalizer: str, blocks: bool) -> None:
    owner = ObjectMeta(finalizers=[finalizer])
    if deleting:
        owner.deletionTimestamp.seconds = 1
    expected = deleting and blocks and finalizer == "foregroundDeletion"
    assert waits_for_dependent(owner, OwnerReference(blockOwnerDeletion=blocks)) is expected


def test_only_references_to_given_owners_are_removed() -> None:
    metadata = owned("a", "1", "2", "3").metadata
    without_owners(metadata, {"1", "3"})
    assert [owner_reference.uid for owner_reference in metadata.ownerReferences] == ["2"]


def owned(name: str, *owners: str) -> Pod:
    pod = make_pod(name).uid(f"uid-{name}").build()
    for uid in owners:
        pod.metadata.ownerReferences.add(kind="ReplicaSet", name="rs", uid=uid)
    return pod


def test_dependents_are_indexed_by_each_current_owner() -> None:
    dependents = DependentsIndex()
    first, second = owned("a", "1", "2"), owned("a", "2", "3")
    dependents.apply_deltas(PODS, [Delta(ADDED, first, None), Delta(ADDED, owned("b", "1"), None)])
    assert set(dependents.dependents_of("1")) == {"uid-a", "uid-b"}
    assert dependents.dependents_of("2") == {"uid-a": ObjectLocation(PODS, "default/a")}
    dependents.apply_deltas(PODS, [Delta(MODIFIED, second, first)])
    assert set(dependents.dependents_of("1")) == {"uid-b"} and set(dependents.dependents_of("3")) == {"uid-a"}
    dependents.apply_deltas(PODS, [Delta(DELETED, second, second)])
    assert not dependents.dependents_of("2") and not dependents.dependents_of("3")


# --- owners that wait for dependents


class LateInformers:
    """Informers that receive a pod only when `wait_for` is called."""

    def __init__(self, late: Pod) -> None:
        self.stores: dict[Any, dict[str, Any]] = {}
        self._late = late
        self._handlers: dict[Any, Any] = {}
        self.custom = CustomInformers(cast(Any, self))

    def store(self, resource: Any) -> dict[str, Any]:
        return self.stores.setdefault(resource, {})

    def add_handler(self, resource: Any, handler: Any) -> None:
        self._handlers[resource] = handler

    async def wait_for(self, revision: int, timeout: float, among: object) -> None:
        metadata = self._late.metadata
        assert revision > int(metadata.resourceVersion)
        self.stores[PODS][f"{metadata.namespace}/{metadata.name}"] = self._late
        self._handlers[PODS]([Delta(ADDED, self._late, None)])


async def test_orphaning_waits_for_late_informers() -> None:
    owner = make_replica_set("web", replicas=1)
    deleting(owner)
    owner.metadata.finalizers.append("orphan")
    owner.metadata.resourceVersion = "9"
    pod = pod_of(owner, "p").build()
    pod.metadata.resourceVersion = "8"
    informers, written = LateInformers(pod), []

    async def update(changed: Any) -> Any:
        written.append((changed.metadata.name, len(changed.metadata.ownerReferences), list(changed.metadata.finalizers)))
        return changed

    client = SimpleNamespace(of=lambda resource: SimpleNamespace(update=update), pods=SimpleNamespace(delete_batch=None))
    shared: Any = SimpleNamespace(client=client, informers=informers, events=None, clock=SYSTEM_CLOCK)
    collector = GarbageCollector(shared)
    informers.stores[REPLICA_SETS]["default/web"] = owner
    await collector.sync("replicasets default/web")
    assert written == [("p", 0, []), ("web", 0, [])]


# --- a collector with a few objects


class World:
    """Applies writes as the API server does, and shows them to the informers at once."""

    def __init__(self) -> None:
        self.stores: dict[Any, dict[str, Any]] = {}
        self.custom = CustomInformers(cast(Any, self))
        self.unseen: dict[str, Any] = {}
        """Objects that the API has and no informer has shown."""
        self.deleted: list[str] = []
        self.asked: list[str] = []
        self._handlers: dict[Any, Any] = {}
        self._changed: dict[str, None] = {}
        self.told: list[tuple[str, str]] = []
        events = SimpleNamespace(event=lambda obj, type_, reason, message: self.told.append((reason, message)))
        shared: Any = SimpleNamespace(informers=self, client=self, events=events, clock=SYSTEM_CLOCK)
        self.pods = SimpleNamespace(delete_batch=None)
        self.collector = GarbageCollector(shared)
        self._keys = {watch.resource: watch.keys for watch in self.collector.watches}

    def put(self, resource: Resource[Any], obj: Object) -> str:
        """Store the object and return its key. A terminating object without finalizers is removed."""
        metadata, store = obj.metadata, self.stores[resource]
        place = f"{metadata.namespace}/{metadata.name}"
        gone = metadata.HasField("deletionTimestamp") and not metadata.finalizers
        kind = DELETED if gone else MODIFIED if place in store else ADDED
        delta = Delta(kind, obj, store.pop(place, None))
        if not gone:
            store[place] = obj
        self._handlers[resource]([delta])
        self._changed |= dict.fromkeys(self._keys[resource](delta))
        return f"{resource.plural} {place}"

    def delete(self, resource: Resource[Any], obj: Object, propagation: str) -> None:
        changed = type(obj)()
        changed.CopyFrom(obj)
        deleting(changed)
        if propagation == "Foreground":
            changed.metadata.finalizers.append("foregroundDeletion")
        self.put(resource, changed)

    async def sync(self, *keys: str) -> None:
        for key in keys:
            await self.collector.sync(key)

    async def settle(self, *, rounds: int = 100) -> list[str]:
        """Sync all changed keys until nothing changes. Return the remaining objects."""
        for _ in range(rounds):
            keys, self._changed = self._changed, {}
            if not keys:
                return sorted(place for store in self.stores.values() for place in store)
            await self.sync(*keys)
        raise AssertionError("the objects do not converge")

    # as informers

    def store(self, resource: Any) -> dict[str, Any]:
        return self.stores.setdefault(resource, {})

    def add_handler(self, resource: Any, handler: Any) -> None:
        self._handlers[resource] = handler

    async def wait_for(self, revision: int, timeout: float, among: object) -> None:
        pass

    # as a client

    def of(self, resource: Resource[Any]) -> Any:
        store = self.stores[resource]

        async def get(name: str, namespace: str) -> Any:
            self.asked.append(f"{resource.plural} {namespace}/{name}")
            result = store.get(f"{namespace}/{name}") or self.unseen.get(f"{namespace}/{name}")
            if result is None:
                raise NotFound(Refusal(Code.NOT_FOUND, "NotFound", f"no {name}"))
            return result

        async def delete(name: str, namespace: str, *, propagation: str, **_: object) -> None:
            self.deleted.append(f"{namespace}/{name}")
            self.delete(resource, store[f"{namespace}/{name}"], propagation)

        async def update(changed: Any) -> None:
            self.put(resource, changed)

        return SimpleNamespace(get=get, delete=delete, update=update)


def replica_set(name: str, /, *owners: Object, namespace: str = "default", **said: str) -> Any:
    """A replica set with these owners. `said` overrides fields of its owner references."""
    made = make_replica_set(name, uid=f"uid-{namespace}-{name}")
    made.metadata.namespace = namespace
    for owner in owners:
        truth = {"kind": owner.DESCRIPTOR.name, "name": owner.metadata.name, "apiVersion": "apps/v1", "uid": owner.metadata.uid}
        made.metadata.ownerReferences.add(blockOwnerDeletion=True, **{**truth, **said})
    return made


@pytest.mark.parametrize(
    ("namespace", "said"),
    [("default", {"name": "bogus"}), ("default", {"kind": "ReplicaSet"}), ("other", {})],
    ids=["name", "kind", "namespace"],
)
async def test_wrong_owner_reference_deletes_only_its_own_object(namespace: str, said: dict[str, str]) -> None:
    world, web = World(), make_deployment("web")
    world.put(DEPLOYMENTS, web)
    own = world.put(REPLICA_SETS, replica_set("own", web))
    stranger = world.put(REPLICA_SETS, replica_set("stranger", web, namespace=namespace, **said))
    await world.sync(own, stranger, own)
    assert world.deleted == [f"{namespace}/stranger"]


async def test_deletion_for_an_owner_of_another_namespace_is_reported() -> None:
    world, web = World(), make_deployment("web")
    for name in ("default", "other"):
        world.stores[NAMESPACES][name] = Namespace()
    world.put(DEPLOYMENTS, web)
    for name in ("a", "b"):
        await world.sync(world.put(REPLICA_SETS, replica_set(name, web, namespace="other")))
    await world.sync(world.put(REPLICA_SETS, replica_set("c", make_deployment("gone"))))
    why = (
        "OwnerRefInvalidNamespace",
        'ownerRef [apps/v1/Deployment, namespace: other, name: web, uid: uid-web] does not exist in namespace "other"',
    )
    assert world.told == [why, why]
    assert world.deleted == ["other/a", "other/b", "default/c"]


async def test_cluster_scoped_object_with_a_namespaced_owner_is_reported_and_kept() -> None:
    world, web = World(), make_deployment("web")
    node = make_node("n").build()
    node.metadata.ownerReferences.add(kind="Deployment", apiVersion="apps/v1", name="web", uid=web.metadata.uid)
    world.stores[NODES]["n"] = node
    await world.sync("nodes n")
    assert [reason for reason, _ in world.told] == ["OwnerRefInvalidNamespace"] and not world.deleted


@pytest.mark.parametrize("said", ["name", "kind"])
@pytest.mark.parametrize("first", [True, False])
async def test_object_with_one_correct_and_one_wrong_reference_is_kept(said: str, first: bool) -> None:
    world, web = World(), make_deployment("web")
    world.put(DEPLOYMENTS, web)
    own = replica_set("own", web)
    wrong = own.metadata.ownerReferences.add()
    wrong.CopyFrom(own.metadata.ownerReferences[0])
    setattr(wrong, said, "ReplicaSet")
    if first:
        own.metadata.ownerReferences.reverse()
    await world.sync(world.put(REPLICA_SETS, own))
    assert world.deleted == []


@pytest.mark.parametrize("blocks", [(True, False), (False, True)])
async def test_dependent_blocks_its_owner_by_one_of_two_references(blocks: tuple[bool, bool]) -> None:
    world, web = World(), make_deployment("web")
    own = replica_set("own", web, web)
    for reference, each in zip(own.metadata.ownerReferences, blocks, strict=True):
        reference.blockOwnerDeletion = each
    world.put(DEPLOYMENTS, web)
    world.put(REPLICA_SETS, own)
    world.delete(DEPLOYMENTS, web, "Foreground")
    assert await world.settle() == []


async def test_non_blocking_dependent_is_deleted_before_its_owner() -> None:
    """The owner may have a finalizer that waits for its dependents."""
    world, web = World(), replica_set("web")
    web.metadata.finalizers.append("example.com/hold")
    own = replica_set("own", web)
    own.metadata.ownerReferences[0].blockOwnerDeletion = False
    for item in (web, own):
        world.put(REPLICA_SETS, item)
    world.delete(REPLICA_SETS, web, "Foreground")
    assert await world.settle() == ["default/web"]
    assert world.stores[REPLICA_SETS]["default/web"].metadata.finalizers == ["example.com/hold"]


async def test_missing_owner_is_looked_up_once_for_all_dependents() -> None:
    world, gone = World(), make_deployment("gone")
    await world.sync(*[world.put(REPLICA_SETS, replica_set(name, gone)) for name in ("a", "b", "c")])
    assert len(world.deleted) == 3
    assert world.asked == ["deployments default/gone"]


async def test_dependents_of_an_owner_deleted_before_the_informer_saw_it_are_deleted() -> None:
    """A new watch does not report objects that were created and deleted before it."""
    world, web = World(), make_deployment("web")
    own = world.put(REPLICA_SETS, replica_set("own", web))
    world.unseen["default/web"] = web
    again = await world.collector.sync(own)
    assert again is not None and world.deleted == []
    world.unseen.clear()
    assert await world.collector.sync(own) is None
    assert world.deleted == ["default/own"]


async def test_owner_shown_by_an_informer_is_not_looked_up_again() -> None:
    world, web = World(), make_deployment("web")
    own = world.put(REPLICA_SETS, replica_set("own", web))
    world.unseen["default/web"] = web
    assert await world.collector.sync(own) is not None
    world.put(DEPLOYMENTS, web)
    assert await world.collector.sync(own) is None
    assert len(world.asked) == 1


def circle(world: World, *names: str) -> dict[str, Any]:
    """Each object owns the next, and the last owns the first."""
    made = {name: replica_set(name) for name in names}
    for name, before in zip(names, (names[-1], *names), strict=False):
        made[name] = replica_set(name, made[before])
        world.put(REPLICA_SETS, made[name])
    return made


@pytest.mark.parametrize("names", ["a", "ab", "abcd"])
@pytest.mark.parametrize("at_once", [False, True])
async def test_circular_owners_are_deleted(names: str, at_once: bool) -> None:
    world = World()
    made = circle(world, *names)
    for name in names if at_once else names[0]:
        world.delete(REPLICA_SETS, made[name], "Foreground")
    assert await world.settle() == []


async def test_circularly_owned_object_waits_for_its_other_dependents() -> None:
    world = World()
    made = circle(world, "a", "b")
    held = replica_set("held", made["b"])
    held.metadata.finalizers.append("example.com/hold")
    world.put(REPLICA_SETS, held)
    world.delete(REPLICA_SETS, made["a"], "Foreground")
    assert await world.settle() == ["default/b", "default/held"]
    deleting(held)
    del held.metadata.finalizers[:]
    world.put(REPLICA_SETS, held)
    assert await world.settle() == []


async def test_chain_of_owners_waits_for_its_last_dependent() -> None:
    world, a = World(), replica_set("a")
    b = replica_set("b", a)
    c = replica_set("c", b)
    c.metadata.finalizers.append("example.com/hold")
    for item in (a, b, c):
        world.put(REPLICA_SETS, item)
    world.delete(REPLICA_SETS, a, "Foreground")
    assert await world.settle() == ["default/a", "default/b", "default/c"]


async def test_dependents_of_other_namespaces_do_not_block_an_owner() -> None:
    world, web = World(), replica_set("web")
    stranger = replica_set("stranger", web, namespace="other")
    stranger.metadata.finalizers.append("example.com/hold")
    for item in (web, stranger):
        world.put(REPLICA_SETS, item)
    world.delete(REPLICA_SETS, web, "Foreground")
    assert await world.settle() == ["other/stranger"]


# --- circles


def ring(world: World, size: int, *, first: int = 0) -> list[Any]:
    """Replica sets that own each other in a circle."""
    made = [replica_set(f"r{first + number}") for number in range(size)]
    for number, each in enumerate(made):
        owner = made[number - 1].metadata
        each.metadata.ownerReferences.add(
            apiVersion="apps/v1", kind="ReplicaSet", name=owner.name, uid=owner.uid, blockOwnerDeletion=True
        )
        world.put(REPLICA_SETS, each)
    return made


def chain(world: World, size: int) -> list[Any]:
    """Each object is owned by the previous one. The last has a finalizer, so that none can be removed."""
    made = [replica_set("r0")]
    for number in range(1, size):
        made.append(replica_set(f"r{number}", made[-1], kind="ReplicaSet"))
    made[-1].metadata.finalizers.append("example.com/hold")
    for item in made:
        world.put(REPLICA_SETS, item)
    return made


@pytest.mark.parametrize("size", [1, 2, 3, QUICK + 50])
@pytest.mark.parametrize("deleted", ["one", "all"])
async def test_circle_deleted_in_the_foreground_is_removed(size: int, deleted: str) -> None:
    world = World()
    members = ring(world, size)
    for member in members[:1] if deleted == "one" else members:
        world.delete(REPLICA_SETS, member, "Foreground")
    assert await world.settle(rounds=3 * size + 10) == []


async def test_circle_waits_for_a_dependent_outside_of_it() -> None:
    world = World()
    first, *_ = members = ring(world, 3)
    outside = replica_set("outside", first, kind="ReplicaSet")
    outside.metadata.finalizers.append("example.com/hold")
    world.put(REPLICA_SETS, outside)
    for member in members:
        world.delete(REPLICA_SETS, member, "Foreground")
    assert "default/outside" in await world.settle() and "default/r0" in await world.settle()


async def test_member_of_a_large_circle_is_searched_once() -> None:
    """Regression: each of 10,000 members searched all others. This took eight minutes of CPU time, and the controllers lost
    their leadership.
    """
    world = World()
    members = ring(world, 5_000)
    for member in members:
        world.delete(REPLICA_SETS, member, "Foreground")
    stored = world.stores[REPLICA_SETS]
    began = time.process_time()
    for name in [member.metadata.name for member in members]:
        assert not await world.collector._is_blocked(stored[f"default/{name}"])
    assert time.process_time() - began < 2.0, "one search takes about 0.2 s"


async def test_sync_cost_is_bounded_in_a_long_chain() -> None:
    """Long searches run one at a time, with pauses. The other objects are synced again later."""
    world = World()
    members = chain(world, 1_000)
    for member in members:
        world.delete(REPLICA_SETS, member, "Foreground")
    keys = [f"replicasets default/{member.metadata.name}" for member in members]
    began = time.process_time()
    again = [await world.collector.sync(key) for key in keys]
    assert time.process_time() - began < 5.0, "each sync takes about a millisecond"
    assert len(world.stores[REPLICA_SETS]) == 1_000, "the last object blocks all others"
    assert sum(seconds is not None for seconds in again) > 500
    assert max(seconds or 0 for seconds in again) >= LATER


async def test_oversized_ownership_graph_is_deleted_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbagecollector, "MOST", 200)
    world = World()
    members = ring(world, 1_000)
    for member in members:
        world.delete(REPLICA_SETS, member, "Foreground")
    assert not await world.collector._is_blocked(world.stores[REPLICA_SETS]["default/r0"])
