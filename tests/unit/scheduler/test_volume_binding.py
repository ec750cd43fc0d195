"""VolumeBinding: what it refuses, what it sets aside, what it writes."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pinnace.api.meta_v1_pb2 import OwnerReference
from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Resource
from pinnace.scheduler.framework import SKIP, Change, ClusterEvent, CycleState, NodeTable, PodInfo, Status
from pinnace.scheduler.plugins.volume_binding import POLL, VolumeBinding
from tests.builders import make_node, make_pod
from tests.unit.scheduler.pods import cache_of
from tests.unit.scheduler.volume_objects import Stores, claim, pod, refusals, storage_class, volume

REACH = "node(s) didn't match PersistentVolume's node affinity"
BIND = "node(s) didn't find available persistent volumes to bind"
LOST = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
IN_A, IN_B = [("zone", "In", ["a"])], [("zone", "In", ["b"])]
NOT_A = [("zone", "NotIn", ["a"])]
BY_HAND = storage_class("hand")
TERM = {"matchLabelExpressions": [{"key": "zone", "values": ["b"]}]}


def table() -> NodeTable:
    return cache_of(make_node("a").label("zone", "a"), make_node("b").label("zone", "b"), make_node("c")).nodes


def bound_to(name: str, uid: str = "") -> dict[str, Any]:
    return {"claimRef": {"namespace": "ns", "name": name, "uid": uid}}


@pytest.mark.parametrize(
    ("claims", "others", "expected"),
    [
        pytest.param([], [], ["", "", ""], id="no claims"),
        pytest.param([claim("c", volume="v")], [volume("v")], ["", "", ""], id="bound, reachable from everywhere"),
        pytest.param([claim("c", volume="v")], [volume("v", near=IN_A)], ["", REACH, REACH], id="bound, within reach"),
        pytest.param([claim("c", volume="v")], [], [LOST] * 3, id="bound to nothing"),
        pytest.param([claim("c")], [], IMMEDIATE, id="no class"),
        pytest.param([claim("c", storage_class="x")], [], IMMEDIATE, id="no such class"),
        pytest.param(
            [claim("c", storage_class="now")],
            [storage_class("now", volumeBindingMode="Immediate")],
            IMMEDIATE,
            id="immediate",
        ),
        pytest.param([claim("c", storage_class="hand", volumeName="v")], [BY_HAND], IMMEDIATE, id="asked for by name"),
        pytest.param([claim("c", storage_class="hand")], [BY_HAND], [BIND] * 3, id="nothing there"),
        pytest.param(
            [claim("c", storage_class="hand")],
            [BY_HAND, volume("v", storage_class="hand", near=IN_A)],
            ["", BIND, BIND],
            id="one volume",
        ),
        pytest.param(
            [claim("c", storage_class="hand")],
            [BY_HAND, volume("v", storage_class="hand", near=NOT_A), volume("w", storage_class="hand", near=IN_B)],
            [BIND, "", ""],
            id="an affinity that is not simple",
        ),
        pytest.param(
            [claim("c", storage_class="hand", size="2Gi")],
            [
                BY_HAND,
                volume("small", storage_class="hand"),
                volume("classless", size="2Gi"),
                volume("block", storage_class="hand", size="2Gi", volumeMode="Block"),
                volume("many", storage_class="hand", size="2Gi", modes=["ReadOnlyMany"]),
                volume("released", storage_class="hand", size="2Gi", phase="Released"),
                volume("kept", storage_class="hand", size="2Gi", **bound_to("other")),
            ],
            [BIND] * 3,
            id="volumes that will not do",
        ),
        pytest.param(
            [claim("c", storage_class="hand", selector={"matchLabels": {"x": "y"}})],
            [
                BY_HAND,
                volume("v", storage_class="hand", near=IN_A),
                volume("w", storage_class="hand", labels={"x": "y"}, near=IN_B),
            ],
            [BIND, "", BIND],
            id="by labels",
        ),
        pytest.param(
            [claim("c", storage_class="hand")],
            [BY_HAND, volume("v", storage_class="hand"), volume("w", storage_class="hand", near=IN_B, **bound_to("c"))],
            [BIND, "", BIND],
            id="kept for the claim",
        ),
        pytest.param(
            [claim("c", storage_class="hand")],
            [BY_HAND, volume("w", storage_class="hand", **bound_to("c", "of an earlier one"))],
            [BIND] * 3,
            id="kept for a namesake",
        ),
        pytest.param(
            [claim("c", storage_class="hand", volumeAttributesClassName="fast")],
            [
                BY_HAND,
                volume("v", storage_class="hand", near=IN_A),
                volume("w", storage_class="hand", near=IN_B, volumeAttributesClassName="fast"),
            ],
            [BIND, "", BIND],
            id="of a class of attributes",
        ),
        pytest.param(
            [claim("c", storage_class="hand")],
            [BY_HAND, volume("v", storage_class="hand", volumeAttributesClassName="fast", **bound_to("c"))],
            [BIND] * 3,
            id="kept for the claim, of another class of attributes",
        ),
        pytest.param(
            [claim("c", storage_class="hand"), claim("d", storage_class="hand")],
            [BY_HAND, volume("v", storage_class="hand"), volume("w", storage_class="hand", near=IN_B)],
            [BIND, "", BIND],
            id="two claims need two volumes",
        ),
        pytest.param([claim("c", storage_class="made")], [storage_class("made", "d")], ["", "", ""], id="made anywhere"),
        pytest.param(
            [claim("c", storage_class="made")],
            [storage_class("made", "d", allowedTopologies=[TERM])],
            [BIND, "", BIND],
            id="made in some zones",
        ),
        pytest.param(
            [claim("c", storage_class="made", annotations={"volume.kubernetes.io/selected-node": "c"})],
            [storage_class("made", "d"), volume("v", storage_class="made")],
            [BIND, BIND, ""],
            id="being made",
        ),
        pytest.param(
            [claim("c", storage_class="hand"), claim("d", volume="v")],
            [BY_HAND, volume("v", near=IN_A)],
            [BIND, f"{REACH}, {BIND}", f"{REACH}, {BIND}"],
            id="two reasons",
        ),
    ],
)
def test_nodes(claims: Sequence[Any], others: Sequence[Any], expected: list[str] | str) -> None:
    stores = Stores(*claims, *others)
    wanted = pod(*(item.metadata.name for item in claims))
    assert refusals(VolumeBinding(stores), wanted, table()) == expected


def test_claims_that_cannot_be_used() -> None:
    gone, lost = claim("gone"), claim("lost", volume="v")
    gone.metadata.deletionTimestamp.seconds = 1
    lost.status.phase = "Lost"
    plugin = VolumeBinding(Stores(gone, lost))
    assert refusals(plugin, pod("c"), table()) == 'persistentvolumeclaim "c" not found'
    assert refusals(plugin, pod("gone"), table()) == 'persistentvolumeclaim "gone" is being deleted'
    assert refusals(plugin, pod("lost"), table()) == ('persistentvolumeclaim "lost" bound to non-existent persistentvolume "v"')


def test_ephemeral_claims() -> None:
    stores = Stores(volume("v"))
    plugin, wanted = VolumeBinding(stores), pod({"ephemeral": {}})
    assert refusals(plugin, wanted, table()) == (
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "new-v0"'
    )
    own = claim("new-v0", volume="v")
    stores.put(own)
    assert refusals(plugin, wanted, table()) == 'PVC "ns/new-v0" was not created for pod "ns/new" (pod is not owner)'
    own.metadata.ownerReferences.append(OwnerReference(uid="new", controller=True))
    assert refusals(plugin, wanted, table()) == ["", "", ""]


def test_volume_that_is_kept_for_one_of_many_pods_that_are_alike() -> None:
    """They wait as one, and one of them is asked: the ephemeral claim may be another's."""
    kept = volume("v", **bound_to("other-v0"))
    event = ClusterEvent(Change.OBJECT, resource=PERSISTENT_VOLUMES.plural, obj=kept)
    plugin = VolumeBinding(Stores())
    assert plugin.helps(event, pod({"ephemeral": {}}), table())
    assert not plugin.helps(event, pod("mine"), table())


def decided(plugin: VolumeBinding, wanted: PodInfo, node: str) -> CycleState:
    """A cycle that ends on this node."""
    state: CycleState = {}
    nodes = table()
    result = refusals(plugin, wanted, nodes, state)
    assert result[nodes.names.index(node)] == ""
    assert plugin.reserve(state, wanted, node) is None
    return state


def test_reserved_volume_is_not_given_twice() -> None:
    stores = Stores(BY_HAND, *(claim(name, storage_class="hand") for name in "cd"))
    stores.put(volume("large", storage_class="hand", size="5Gi", near=IN_A))
    stores.put(volume("small", storage_class="hand", size="2Gi", near=IN_A))
    plugin = VolumeBinding(stores)
    first = decided(plugin, pod("c", name="p"), "a")
    assert plugin._taken == {"small": "ns/c"}
    assert refusals(plugin, pod("c", name="shares it"), table()) == ["", BIND, BIND]
    second = decided(plugin, pod("d", name="q"), "a")
    assert set(plugin._taken) == {"small", "large"}
    plugin.unreserve(first, pod("c"), "a")
    plugin.unreserve(second, pod("d"), "a")
    plugin.unreserve({}, pod("d"), "a")
    assert not plugin._taken


def test_pods_without_work_are_bound_at_once() -> None:
    plugin, state = VolumeBinding(Stores(claim("c", volume="v"), volume("v", near=IN_A))), CycleState()
    assert refusals(plugin, pod("c"), table(), state) == ["", REACH, REACH]
    assert plugin.reserve(state, pod("c"), "a") is SKIP
    assert plugin.pre_flight(state, pod("c"), "a") is SKIP
    assert plugin.pre_flight({}, pod(), "a") is SKIP


class Writes:
    """The API, as far as it is written to; the stores see it at once."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self.written = asyncio.Event()
        stores.client = self

    def of(self, resource: Resource[Any]) -> "Writes":
        return self

    async def update(self, obj: Any) -> Any:
        """As the API server: a new object, with the status that was there."""
        resource = PERSISTENT_VOLUMES if isinstance(obj, PERSISTENT_VOLUMES.message) else PERSISTENT_VOLUME_CLAIMS
        key = f"{obj.metadata.namespace}/{obj.metadata.name}".lstrip("/")
        stored = resource.message()
        stored.CopyFrom(obj)
        stored.status.CopyFrom(self._stores.objects(resource)[key].status)
        self._stores.put(stored)
        self.written.set()
        again = resource.message()
        again.CopyFrom(stored)
        return again

    async def update_status(self, obj: Any) -> Any:
        self._stores.put(obj)
        return obj


async def test_volume_is_bound() -> None:
    stores = Stores(BY_HAND, claim("c", storage_class="hand"), volume("v", storage_class="hand", size="2Gi", near=IN_A))
    Writes(stores)
    plugin, wanted = VolumeBinding(stores), pod("c")
    state = decided(plugin, wanted, "a")
    assert plugin.pre_flight(state, wanted, "a") is None
    assert await plugin.pre_bind(state, wanted, "a") is None
    bound, owner = stores.objects(PERSISTENT_VOLUME_CLAIMS)["ns/c"], stores.objects(PERSISTENT_VOLUMES)["v"]
    assert (bound.spec.volumeName, bound.status.phase, bound.status.capacity["storage"].string) == ("v", "Bound", "2Gi")
    assert (owner.spec.claimRef.uid, owner.status.phase) == ("uid-c", "Bound")
    assert refusals(plugin, wanted, table()) == ["", REACH, REACH]
    other = claim("d", storage_class="hand")
    stores.put(other)
    assert refusals(plugin, pod("d"), table()) == [BIND] * 3
    assert not plugin._taken


async def test_volume_is_made() -> None:
    stores = Stores(storage_class("made", "d"), claim("c", storage_class="made"))
    api = Writes(stores)
    plugin, wanted = VolumeBinding(stores), pod("c")
    stores.put(wanted.raw)
    state = decided(plugin, wanted, "b")
    assert refusals(plugin, pod("c", name="shares it"), table()) == [BIND, "", BIND]
    task = asyncio.create_task(plugin.pre_bind(state, wanted, "b"))
    async with asyncio.timeout(5):
        await api.written.wait()
    asked = stores.objects(PERSISTENT_VOLUME_CLAIMS)["ns/c"].metadata.annotations
    assert asked["volume.kubernetes.io/selected-node"] == "b"
    stores.put(volume("v"))
    stores.put(claim("c", storage_class="made", volume="v"))
    async with asyncio.timeout(5):
        assert await task is None
    assert refusals(plugin, wanted, table()) == ["", "", ""]


async def asked_for(plugin: VolumeBinding, wanted: PodInfo, stores: Stores) -> tuple[CycleState, asyncio.Task[Status | None]]:
    """A decision for node b, and its PreBind, which has asked for a volume and waits."""
    stores.put(wanted.raw)
    api, state = Writes(stores), decided(plugin, wanted, "b")
    task = asyncio.create_task(plugin.pre_bind(state, wanted, "b"))
    async with asyncio.timeout(5):
        await api.written.wait()
    return state, task


async def test_provisioner_that_gives_up() -> None:
    stores = Stores(storage_class("made", "d"), claim("c", storage_class="made"))
    plugin, wanted = VolumeBinding(stores), pod("c")
    state, task = await asked_for(plugin, wanted, stores)
    async with asyncio.timeout(5):
        await asyncio.sleep(0)
        stores.put(claim("c", storage_class="made"))
        status = await task
    assert status is not None and status.reason == 'provisioning failed for PVC "ns/c"'
    plugin.unreserve(state, wanted, "b")
    assert refusals(plugin, wanted, table()) == ["", "", ""]


@pytest.mark.parametrize("how", ["gone", "another", "going"])
async def test_pod_that_is_gone_waits_for_no_volume(how: str) -> None:
    stores = Stores(storage_class("made", "d"), claim("c", storage_class="made"))
    plugin, wanted = VolumeBinding(stores), pod("c")
    _, task = await asked_for(plugin, wanted, stores)
    if how == "gone":
        stores.remove(wanted.raw)
    else:
        later = make_pod("new", "ns")
        stores.put((later.uid("another") if how == "another" else later.uid("new").terminating()).build())
    async with asyncio.timeout(5):
        status = await task
    assert status is not None and status.reason == 'pod "ns/new" no longer exists'


async def test_volume_that_was_made_out_of_reach() -> None:
    stores = Stores(storage_class("made", "d"), claim("c", storage_class="made"), make_node("b").label("zone", "b").build())
    plugin, wanted = VolumeBinding(stores), pod("c")
    state, task = await asked_for(plugin, wanted, stores)
    async with asyncio.timeout(5):
        stores.put(claim("c", storage_class="made", volume="v"))
        await asyncio.sleep(2 * POLL)
        assert not task.done(), "the informer may hear of the volume later than of the claim"
        stores.put(volume("v", near=IN_A))
        status = await task
    assert status is not None and status.reason == 'pv "v" node affinity doesn\'t match node "b"'
    plugin.unreserve(state, wanted, "b")
    assert refusals(plugin, wanted, table()) == ["", REACH, REACH]


async def test_node_that_is_out_of_reach_by_now() -> None:
    stores = Stores(BY_HAND, claim("c", storage_class="hand"), volume("v", storage_class="hand", near=IN_A))
    plugin, wanted = VolumeBinding(stores), pod("c")
    state = decided(plugin, wanted, "a")
    stores.put(make_node("a").label("zone", "b").build())
    status = await plugin.pre_bind(state, wanted, "a")
    assert status is not None and status.reason == 'pv "v" node affinity doesn\'t match node "a"'
    assert not stores.objects(PERSISTENT_VOLUMES)["v"].spec.HasField("claimRef")
