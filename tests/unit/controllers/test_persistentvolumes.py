"""Binding, release, reclaim, expansion and protection of volumes and claims, with stops of the controller after any write."""

import random
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim, Pod
from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES, Resource, store_key
from pinnace.api.storage_v1_pb2 import StorageClass
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED
from pinnace.apiserver import errors
from pinnace.client.errors import Conflict, NotFound
from pinnace.client.informer import Delta
from pinnace.controllers.informers import Index
from pinnace.controllers.persistentvolume import PersistentVolumeController
from pinnace.controllers.pods import ClaimUsers
from pinnace.controllers.volume_binding import plan_volume
from pinnace.controllers.volume_protection import VolumeProtectionController
from tests.clock import FakeClock

PV, PVC = PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS


def volume(
    name: str = "disk", size: str = "10Gi", uid: str | None = None, phase: str = "Available", **spec: Any
) -> PersistentVolume:
    """`uid`: of the claim "data" in the claimRef; None: no claimRef."""
    made = PersistentVolume()
    made.metadata.name, made.metadata.uid, made.status.phase = name, f"uid-{name}", phase
    made.spec.capacity["storage"].string = size
    made.spec.accessModes[:] = spec.pop("modes", ["ReadWriteOnce"])
    made.spec.persistentVolumeReclaimPolicy = spec.pop("policy", "Retain")
    made.spec.storageClassName = spec.pop("storage_class", "")
    made.spec.persistentVolumeSource.hostPath.path = spec.pop("path", "/data")
    if uid is not None:
        made.spec.claimRef.namespace, made.spec.claimRef.name, made.spec.claimRef.uid = "default", "data", uid
    return made


def claim(
    name: str = "data", size: str = "5Gi", phase: str = "Pending", volume_name: str = "", storage_class: str = ""
) -> PersistentVolumeClaim:
    made = PersistentVolumeClaim()
    made.metadata.namespace, made.metadata.name, made.metadata.uid = "default", name, f"uid-{name}"
    made.spec.accessModes[:] = ["ReadWriteOnce"]
    made.spec.resources.requests["storage"].string = size
    made.spec.storageClassName, made.spec.volumeName, made.status.phase = storage_class, volume_name, phase
    return made


def class_named(name: str, provisioner: str = "example.com/disks", **fields: Any) -> StorageClass:
    made = StorageClass(provisioner=provisioner, **fields)
    made.metadata.name = name
    return made


class Stopped(Exception):
    """The controller was killed."""


class World:
    """An API server whose writes the informers receive at once, and the controllers."""

    def __init__(self, *objects: Any) -> None:
        self.stores: dict[Resource[Any], dict[str, Any]] = {PV: {}, PVC: {}, STORAGE_CLASSES: {}, PODS: {}}
        self.writes_left = -1
        """Number of writes after which the controller stops. Negative: it does not."""
        self.events: list[tuple[str, str]] = []
        self.clock = FakeClock()
        self.rng = random.Random(0)
        """The order of syncs."""
        self._handlers: dict[Resource[Any], list[Any]] = {resource: [] for resource in self.stores}
        self._revision = 0
        for obj in objects:
            self._store(obj)
        self.restart()

    def restart(self) -> None:
        """Start a new controller, which knows nothing but the objects."""
        for handlers in self._handlers.values():
            handlers.clear()
        users = ClaimUsers()
        users.apply_deltas([Delta(ADDED, pod, None) for pod in self.stores[PODS].values()])
        self._handlers[PODS].append(users.apply_deltas)
        informers: Any = SimpleNamespace(
            store=self.stores.__getitem__, index=self._index, claim_users=users, add_handler=self._add_handler
        )
        clients = {resource: self._client_of(resource) for resource in self.stores}
        client = SimpleNamespace(of=clients.__getitem__, pods=clients[PODS])
        events = SimpleNamespace(event=lambda obj, type_, reason, message: self.events.append((reason, message)))
        shared: Any = SimpleNamespace(informers=informers, client=client, events=events, clock=self.clock)
        self.controller = PersistentVolumeController(shared)
        self.protection = VolumeProtectionController(shared)

    def _add_handler(self, resource: Resource[Any], handler: Any) -> None:
        self._handlers[resource].append(handler)

    def _index(self, resource: Resource[Any], by: Any) -> Any:
        index: Any = Index(by, self.stores[resource].values())
        self._handlers[resource].append(index.apply_deltas)
        return index

    def _client_of(self, resource: Resource[Any]) -> Any:
        async def get(name: str, namespace: str = "") -> Any:
            if (found := self.stores[resource].get(f"{namespace}/{name}" if namespace else name)) is None:
                raise NotFound(errors.not_found(resource, name))
            return found

        async def update(obj: Any) -> Any:
            return self._write(resource, obj, status=False)

        async def update_status(obj: Any) -> Any:
            return self._write(resource, obj, status=True)

        async def delete(name: str, uid: str = "", resource_version: str = "") -> None:
            self._count_write()
            self.delete(resource, name)

        async def listing(namespace: str = "") -> Any:
            return SimpleNamespace(items=list(self.stores[resource].values()))

        return SimpleNamespace(get=get, update=update, update_status=update_status, delete=delete, list=listing)

    def _count_write(self) -> None:
        if not self.writes_left:
            raise Stopped
        self.writes_left -= 1

    def _write(self, resource: Resource[Any], obj: Any, *, status: bool) -> Any:
        self._count_write()
        old = self.stores[resource][store_key(obj)]
        if obj.metadata.resourceVersion != old.metadata.resourceVersion:
            raise Conflict(errors.not_found(resource, obj.metadata.name))
        new = type(obj)()
        new.CopyFrom(old if status else obj)
        new.status.CopyFrom(obj.status if status else old.status)
        if new.metadata.HasField("deletionTimestamp") and not new.metadata.finalizers:
            self.delete(resource, store_key(new))
            return new
        return self._store(new)

    def _store(self, obj: Any) -> Any:
        resource = next(item for item in self.stores if isinstance(obj, item.message))
        self._revision += 1
        obj.metadata.resourceVersion = str(self._revision)
        old = self.stores[resource].get(store_key(obj))
        self.stores[resource][store_key(obj)] = obj
        self._deliver(resource, Delta(MODIFIED if old is not None else ADDED, obj, old))
        return obj

    def _deliver(self, resource: Resource[Any], delta: Any) -> None:
        for handler in self._handlers[resource]:
            handler([delta])

    def put(self, obj: Any) -> None:
        self._store(obj)

    def delete(self, resource: Resource[Any], key: str) -> None:
        old = self.stores[resource].pop(key)
        self._revision += 1
        self._deliver(resource, Delta(DELETED, old, old))

    async def settle(self, rounds: int = 6) -> None:
        """Sync all keys until nothing changes."""
        met: Any = SimpleNamespace(wait_until_met=_met, expect_version=_wrote)
        self.controller._expectations = self.protection_expectations = met
        for _ in range(rounds):
            before = self._revision
            for controller in (self.controller, self.protection):
                keys = [*self.stores[PVC], *self.stores[PV]]
                for key in self.rng.sample(keys, len(keys)):
                    await controller.sync(key)
            if self._revision == before:
                return

    def phases(self) -> Mapping[str, str]:
        return {name: item.status.phase for resource in (PV, PVC) for name, item in self.stores[resource].items()}

    def bound_to(self, name: str = "default/data") -> str:
        return str(self.stores[PVC][name].spec.volumeName)


async def _met(key: str) -> None:
    return None


def _wrote(key: str, resource: Any, version: str) -> None:
    return None


# --- binding


@pytest.mark.parametrize(
    ("volumes", "expected"),
    [
        ([volume("large", "20Gi"), volume("small", "6Gi")], "small"),
        ([volume("tiny", "1Gi")], ""),
        ([volume("shared", "5Gi", modes=["ReadWriteOnce", "ReadWriteMany"]), volume("own", "8Gi")], "own"),
        ([volume("classy", storage_class="fast")], ""),
        ([volume("kept", uid="uid-other")], ""),
        ([volume("small", "6Gi"), volume("prebound", "9Gi", uid="")], "prebound"),
        ([volume("readers", modes=["ReadOnlyMany"])], ""),
    ],
)
async def test_claim_gets_the_best_volume_that_satisfies_it(volumes: list[PersistentVolume], expected: str) -> None:
    world = World(claim(), *volumes)
    await world.settle()
    assert world.bound_to() == expected
    if expected:
        bound = world.stores[PVC]["default/data"]
        assert (bound.status.phase, world.phases()[expected]) == ("Bound", "Bound")
        assert bound.status.capacity["storage"].string == world.stores[PV][expected].spec.capacity["storage"].string
        assert world.stores[PV][expected].spec.claimRef.uid == "uid-data"


@pytest.mark.parametrize(
    ("own", "objects", "event"),
    [
        (claim(), [], ("FailedBinding", "no persistent volumes available for this claim and no storage class is set")),
        (claim(storage_class="no"), [], ("ProvisioningFailed", 'storageclass.storage.k8s.io "no" not found')),
        (
            claim(storage_class="hand"),
            [class_named("hand", "kubernetes.io/no-provisioner")],
            ("ProvisioningFailed", "no volume plugin matched name: kubernetes.io/no-provisioner"),
        ),
        (
            claim(storage_class="late"),
            [class_named("late", volumeBindingMode="WaitForFirstConsumer"), volume(storage_class="late")],
            ("WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
        ),
        (
            claim(storage_class="ext"),
            [class_named("ext")],
            (
                "ExternalProvisioning",
                "Waiting for a volume to be created either by the external provisioner 'example.com/disks' or manually by the "
                "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
                "correctly registered.",
            ),
        ),
        (
            claim(volume_name="disk", size="50Gi"),
            [volume()],
            ("VolumeMismatch", 'Cannot bind to requested volume "disk": requested PV is too small'),
        ),
        (
            claim(volume_name="disk"),
            [volume(uid="uid-other")],
            ("FailedBinding", 'volume "disk" already bound to a different claim.'),
        ),
    ],
)  # fmt: skip
async def test_claim_without_a_volume_is_pending_with_one_event(
    own: PersistentVolumeClaim, objects: list[Any], event: tuple[str, str]
) -> None:
    world = World(own, *objects)
    await world.settle()
    await world.settle()
    assert world.phases()["default/data"] == "Pending" and world.events == [event]
    if event[0] == "ExternalProvisioning":
        annotations = world.stores[PVC]["default/data"].metadata.annotations
        assert annotations["volume.kubernetes.io/storage-provisioner"] == "example.com/disks"


@pytest.mark.parametrize("seed", range(20))
async def test_each_volume_has_one_claim_after_any_stop(seed: int) -> None:
    """The controller stops after each number of writes, and another one continues. No volume serves two claims, and no claim
    has two volumes."""
    rng = random.Random(seed)
    world = World(*(claim(f"c{index}") for index in range(4)), *(volume(f"v{index}") for index in range(3)))
    world.rng = rng
    for _ in range(60):
        world.writes_left = rng.randint(0, 3)
        try:
            await world.settle()
        except Stopped:
            world.restart()
        owners = [item.spec.claimRef.name for item in world.stores[PV].values() if item.spec.HasField("claimRef")]
        assert len(owners) == len(set(owners))
    world.writes_left = -1
    await world.settle()
    bound = {item.spec.volumeName: item.metadata.uid for item in world.stores[PVC].values() if item.spec.volumeName}
    assert sorted(bound) == ["v0", "v1", "v2"]
    assert all(world.stores[PV][name].spec.claimRef.uid == uid for name, uid in bound.items())
    assert sorted(world.phases().values()) == ["Bound"] * 6 + ["Pending"]


async def test_scheduler_completes_its_binding_undisturbed_and_a_dead_one_is_replaced() -> None:
    late = class_named("late", volumeBindingMode="WaitForFirstConsumer")
    begun = volume(storage_class="late", uid="uid-data")
    begun.metadata.annotations["pv.kubernetes.io/bound-by-controller"] = "yes"
    world = World(late, begun, claim(storage_class="late"))
    await world.settle()
    assert world.phases() == {"disk": "Available", "default/data": "Pending"}
    await world.clock.advance(5.0)
    await world.settle()
    assert world.phases() == {"disk": "Bound", "default/data": "Bound"}


# --- release and reclaim


async def bound_world(**fields: Any) -> World:
    world = World(claim(), volume(**fields))
    await world.settle()
    assert world.phases() == {"disk": "Bound", "default/data": "Bound"}
    world.delete(PVC, "default/data")
    await world.settle()
    return world


async def test_retained_volume_is_released_and_available_again_without_its_claim_ref() -> None:
    """kubernetes#91847"""
    world = await bound_world()
    assert world.phases() == {"disk": "Released"}
    world.put(claim("data"))
    world.stores[PVC]["default/data"].metadata.uid = "uid-new"
    await world.settle()
    assert world.phases() == {"disk": "Released", "default/data": "Pending"}, "its data belongs to the old claim"
    freed = PersistentVolume()
    freed.CopyFrom(world.stores[PV]["disk"])
    freed.spec.ClearField("claimRef")
    world.put(freed)
    await world.settle()
    assert world.bound_to() == "disk"


async def test_released_volume_with_the_policy_delete() -> None:
    assert (await bound_world(policy="Delete", path="/tmp/disk")).phases() == {}
    kept = await bound_world(policy="Delete", path="/data")
    message = "host_path deleter only supports /tmp/.+ but received provided /data"
    assert (kept.phases(), kept.events[-1]) == ({"disk": "Failed"}, ("VolumeFailedDelete", message))
    assert kept.stores[PV]["disk"].status.message == message


def test_released_volume_of_a_provisioner_or_without_a_deleter() -> None:
    released = volume(uid="u1", phase="Released", policy="Delete")
    released.metadata.annotations["pv.kubernetes.io/provisioned-by"] = "example.com/disks"
    assert plan_volume(released, None).phase == "Released" and not plan_volume(released, None).delete
    released.metadata.annotations.clear()
    released.spec.persistentVolumeSource.local.path = "/disk"
    released.spec.persistentVolumeSource.ClearField("hostPath")
    message = 'error getting deleter volume plugin for volume "disk": no deletable volume plugin matched'
    assert plan_volume(released, None).message == message
    released.spec.persistentVolumeReclaimPolicy = "Recycle"
    event = plan_volume(released, None).event
    assert event is not None and event[1:] == ("VolumeFailedRecycle", "No recycler plugin found for the volume!")


async def test_volume_is_not_released_while_the_informer_lacks_its_claim() -> None:
    world = World(claim(), volume())
    await world.settle()
    stored = world.stores[PVC].pop("default/data")

    async def get(name: str, namespace: str) -> PersistentVolumeClaim:
        return stored  # type: ignore[no-any-return]

    world.controller._claims_client.get = get  # type: ignore[method-assign, assignment]
    await world.settle()
    assert world.phases() == {"disk": "Bound"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("volume deleted", "Bound claim has lost its PersistentVolume. Data on the volume is lost!"),
        ("volume of another", "Two claims are bound to the same volume, this one is bound incorrectly"),
    ],
)
async def test_claim_is_lost_with_its_volume(change: str, message: str) -> None:
    world = World(claim(), volume())
    await world.settle()
    world.delete(PV, "disk")
    if change == "volume of another":
        world.put(volume(uid="uid-other", phase="Bound"))
    await world.settle()
    assert (world.phases()["default/data"], world.events[-1][1]) == ("Lost", message)


# --- expansion


@pytest.mark.parametrize(("allowed", "size"), [(True, "20Gi"), (False, "10Gi")])
async def test_claim_grows_if_its_class_allows_it(allowed: bool, size: str) -> None:
    fast = class_named("fast", allowVolumeExpansion=allowed)
    world = World(fast, claim(storage_class="fast"), volume(storage_class="fast"))
    await world.settle()
    larger = PersistentVolumeClaim()
    larger.CopyFrom(world.stores[PVC]["default/data"])
    larger.spec.resources.requests["storage"].string = "20Gi"
    world.put(larger)
    await world.settle()
    assert world.stores[PV]["disk"].spec.capacity["storage"].string == size
    assert world.stores[PVC]["default/data"].status.capacity["storage"].string == size


# --- protection


def pod_with_claim(node: str) -> Pod:
    made = Pod()
    made.metadata.namespace, made.metadata.name, made.metadata.uid, made.spec.nodeName = "default", "p", "uid-p", node
    made.spec.volumes.add(name="data").volumeSource.persistentVolumeClaim.claimName = "data"
    return made


async def test_objects_in_use_stay_until_nothing_uses_them() -> None:
    world = World(claim(), volume(), pod_with_claim("node-0"))
    await world.settle()
    for resource, key in ((PVC, "default/data"), (PV, "disk")):
        deleted = resource.message()
        deleted.CopyFrom(world.stores[resource][key])
        assert [item.rpartition("/")[2] for item in deleted.metadata.finalizers] in (["pvc-protection"], ["pv-protection"])
        deleted.metadata.deletionTimestamp.seconds = 1
        world.put(deleted)
    await world.settle()
    assert world.phases() == {"disk": "Bound", "default/data": "Bound"}
    world.delete(PODS, "default/p")
    await world.settle()
    assert world.phases() == {}


async def test_pod_without_a_node_does_not_protect_its_claim() -> None:
    world = World(claim(), pod_with_claim(""))
    world.stores[PVC]["default/data"].metadata.deletionTimestamp.seconds = 1
    world.stores[PVC]["default/data"].metadata.finalizers.append("kubernetes.io/pvc-protection")
    await world.settle()
    assert world.phases() == {}


def test_changes_wake_the_claims_and_volumes_that_they_concern() -> None:
    world = World(volume(uid="uid-data"), volume("named"), claim(volume_name="named"), claim("small"), claim("large", "50Gi"))
    by_resource = {watch.resource: watch.keys for watch in world.controller.watches}
    own = world.stores[PVC]["default/data"]
    assert set(by_resource[PVC](Delta(DELETED, own, own))) == {"default/data", "disk", "named"}
    free: Any = Delta(ADDED, volume("new"), None)
    assert set(by_resource[PV](free)) == {"new", "default/small"}
    assert set(by_resource[PV](Delta(ADDED, world.stores[PV]["named"], None))) == {"named", "default/data", "default/small"}
