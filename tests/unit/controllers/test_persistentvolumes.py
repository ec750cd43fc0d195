"""The phases of volumes and claims after the other side has changed."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim
from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Resource, store_key
from pinnace.api.verbs_pb2 import DELETED
from pinnace.apiserver.errors import not_found
from pinnace.client.errors import NotFound
from pinnace.client.informer import Delta
from pinnace.controllers.informers import Index
from pinnace.controllers.persistentvolume import PersistentVolumeController, claim_phase, volume_phase


def volume(phase: str = "Bound", uid: str | None = "u1", name: str = "disk") -> PersistentVolume:
    """`uid`: of the claim in the claimRef; None: no claimRef."""
    made = PersistentVolume()
    made.metadata.name, made.metadata.uid, made.status.phase = name, f"uid-{name}", phase
    if uid is not None:
        made.spec.claimRef.namespace, made.spec.claimRef.name, made.spec.claimRef.uid = "default", "data", uid
    return made


def claim(phase: str = "Bound", uid: str = "u1", volume_name: str = "disk") -> PersistentVolumeClaim:
    made = PersistentVolumeClaim()
    made.metadata.namespace, made.metadata.name, made.metadata.uid = "default", "data", uid
    made.status.phase, made.spec.volumeName = phase, volume_name
    return made


@pytest.mark.parametrize(
    ("phase", "uid", "own", "expected"),
    [
        ("Bound", "u1", claim(), "Bound"),
        ("Available", "u1", claim(), "Bound"),
        ("Available", "u1", claim(volume_name=""), "Available"),
        ("Bound", "u1", None, "Released"),
        ("Bound", "u1", claim(uid="u2"), "Released"),
        ("Released", "u1", claim(uid="u2", volume_name=""), "Released"),
        ("Failed", "u1", None, "Failed"),
        ("Released", None, None, "Available"),
        ("Bound", None, None, "Available"),
        ("Failed", None, None, "Available"),
        ("Released", "", None, "Available"),
        ("Available", "", claim(), "Available"),
    ],
)
def test_phase_of_a_volume(phase: str, uid: str | None, own: PersistentVolumeClaim | None, expected: str) -> None:
    assert volume_phase(volume(phase, uid), own) == expected


@pytest.mark.parametrize(
    ("phase", "own", "expected"),
    [
        ("Bound", volume(), "Bound"),
        ("Bound", None, "Lost"),
        ("Pending", None, "Pending"),
        ("Lost", None, "Lost"),
        ("Lost", volume(), "Bound"),
        ("Lost", volume(uid="u2"), "Lost"),
    ],
)
def test_phase_of_a_claim(phase: str, own: PersistentVolume | None, expected: str) -> None:
    assert claim_phase(claim(phase), own) == expected


class World:
    """The informers of a controller, and the objects of an API server, which may have more claims."""

    def __init__(
        self, volumes: Sequence[PersistentVolume], claims: Sequence[PersistentVolumeClaim], *, late: bool = False
    ) -> None:
        """`late`: the informer does not have the claims yet."""
        self.written: list[tuple[str, str]] = []
        self.reasons: list[str] = []
        self._claims = {store_key(item): item for item in claims}
        known: Sequence[PersistentVolumeClaim] = [] if late else claims
        stores: Mapping[Resource[Any], Mapping[str, Any]] = {
            PERSISTENT_VOLUMES: {store_key(item): item for item in volumes},
            PERSISTENT_VOLUME_CLAIMS: {store_key(item): item for item in known},
        }
        informers = SimpleNamespace(store=stores.__getitem__, index=lambda resource, by: Index(by, stores[resource].values()))
        api = SimpleNamespace(update_status=self._update_status, get=self._get)
        events = SimpleNamespace(event=lambda obj, type_, reason, message: self.reasons.append(reason))
        shared: Any = SimpleNamespace(informers=informers, client=SimpleNamespace(of=lambda resource: api), events=events)
        self.controller = PersistentVolumeController(shared)

    async def _update_status(self, obj: PersistentVolume | PersistentVolumeClaim) -> None:
        self.written.append((obj.metadata.name, obj.status.phase))

    async def _get(self, name: str, namespace: str) -> PersistentVolumeClaim:
        if (result := self._claims.get(f"{namespace}/{name}")) is None:
            raise NotFound(not_found(PERSISTENT_VOLUME_CLAIMS, name))
        return result


async def test_retained_volume_is_released_and_then_available_again() -> None:
    """kubernetes#91847"""
    released = World([volume()], [])
    await released.controller.sync("disk")
    assert released.written == [("disk", "Released")]
    settled = World([volume("Released")], [])
    await settled.controller.sync("disk")
    assert settled.written == []
    freed = World([volume("Released", uid=None)], [])
    await freed.controller.sync("disk")
    assert freed.written == [("disk", "Available")]


async def test_volume_is_not_released_while_the_informer_lacks_its_claim() -> None:
    world = World([volume()], [claim()], late=True)
    await world.controller.sync("disk")
    assert world.written == []


async def test_claim_is_lost_with_its_volume() -> None:
    world = World([], [claim()])
    await world.controller.sync("disk")
    assert (world.written, world.reasons) == ([("data", "Lost")], ["ClaimLost"])


def test_change_of_a_claim_concerns_the_volumes_that_refer_to_it_and_the_one_that_it_names() -> None:
    world = World([volume(), volume(name="other"), volume(name="free", uid=None)], [])
    (watch,) = [item for item in world.controller.watches if item.resource is PERSISTENT_VOLUME_CLAIMS]
    delta: Delta[Any] = Delta(DELETED, claim(volume_name="gone"), None)
    assert set(watch.keys(delta)) == {"disk", "other", "gone"}
