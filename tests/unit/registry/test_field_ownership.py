"""The stored owners of fields give the same managedFields as if each write computed its fields."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.fieldset import FieldSet
from pinnace.api.json_codec import JsonCache, to_json
from pinnace.api.ownership import (
    MAX_BASE,
    STATUS,
    UPDATE,
    Creator,
    FieldManager,
    OwnedFields,
    Ownership,
    all_fields,
    assigned_paths,
    decode_stored,
    encode_managed_fields,
    exclude_added,
    fields_of_subresource,
    ownable_fields,
    owners_of,
    with_shown_owners,
)
from pinnace.api.resources import LEASES, PODS, Resource
from pinnace.apiserver.registry import managed_fields
from tests.builders import make_pod

MANAGERS = ("kubectl", "controller", "kubelet", "editor")
NAMES = ("a", "b", "c")


def change_main(pod: Any, rng: random.Random) -> None:
    """Change spec or metadata of a pod at random."""
    name = rng.choice(NAMES)
    match rng.randrange(7):
        case 0:
            pod.metadata.labels[name] = str(rng.randrange(3))
        case 1:
            pod.metadata.labels.pop(name, None)
        case 2:
            pod.metadata.annotations[name] = str(rng.randrange(3))
        case 3:
            pod.metadata.annotations.pop(name, None)
        case 4:
            pod.spec.containers[0].image = f"i:{rng.randrange(4)}"
        case 5:
            pod.spec.tolerations.add(key=name, operator="Exists")
        case _:
            if len(pod.spec.containers) > 1:
                del pod.spec.containers[-1]
            else:
                pod.spec.containers.add(name=f"s{rng.randrange(3)}", image="s").ports.add(containerPort=80, protocol="TCP")


def change_status(pod: Any, rng: random.Random) -> None:
    status, name = pod.status, rng.choice(NAMES)
    match rng.randrange(6):
        case 0:
            status.phase = rng.choice(("Pending", "Running", "Failed"))
        case 1:
            status.message = "" if status.message else "long message" * rng.randrange(5)
        case 2:
            present = [condition for condition in status.conditions if condition.type == name]
            (present[0] if present else status.conditions.add(type=name)).status = rng.choice(("True", "False"))
        case 3:
            if status.conditions:
                del status.conditions[rng.randrange(len(status.conditions))]
        case 4:
            status.containerStatuses.add(name=f"s{rng.randrange(99)}", image="i")
        case _:
            status.podIPs.add(ip=f"10.0.0.{rng.randrange(9)}")


def bind(pod: Any) -> None:
    pod.spec.nodeName = "n"
    pod.metadata.annotations["pinnace.io/fence"] = "scheduler/1"


def copied(pod: Any, change: Callable[[Any], None]) -> Any:
    new = Pod()
    new.CopyFrom(pod)
    change(new)
    return new


def fields(owners: Ownership) -> dict[FieldManager, tuple[FieldSet, int]]:
    return {manager: (owned.fields, owned.time) for manager, owned in owners.items() if owned.fields}


def encoded(owners: Ownership) -> list[bytes]:
    return sorted(entry.SerializeToString(deterministic=True) for entry in encode_managed_fields(owners, PODS))


def shown(pod: Any) -> list[bytes]:
    """The entries that a client reads."""
    entries = with_shown_owners(PODS, pod).metadata.managedFields
    return sorted(entry.SerializeToString(deterministic=True) for entry in entries)


def json_of(pod: Any) -> Any:
    """The JSON that a client reads."""
    return json.loads(JsonCache().json(PODS, pod.SerializeToString()))


def created(pod: Any, manager: str, now: int) -> tuple[Any, Ownership]:
    """A pod as a manager creates it, and the owners that a computation at the create gives."""
    new = copied(pod, lambda obj: None)
    new.metadata.ownership = Creator(PODS, manager, "", now)(new)
    (owner,) = decode_stored(new.metadata.ownership).owners
    everything = fields_of_subresource(all_fields(PODS, ownable_fields(PODS, new)), "") - FieldSet(assigned_paths(PODS, owner))
    new.spec.priority, new.spec.preemptionPolicy = 0, "PreemptLowerPriority"
    return new, {FieldManager(manager, UPDATE, "v1"): OwnedFields(everything, now, "v1")}


@pytest.mark.parametrize("seed", range(60))
def test_stored_owners_equal_owners_that_each_write_computes(seed: int) -> None:
    rng = random.Random(seed)
    pod = make_pod("a").req(cpu="1").build()
    for _ in range(rng.randrange(4)):
        change_main(pod, rng)
    pod, expected = created(pod, rng.choice(MANAGERS[:2]), 1)
    writers = MANAGERS[: rng.choice((1, 2, 4))]
    for now in range(2, 14):
        subresource = rng.choice(("", STATUS, STATUS))
        change = change_status if subresource else change_main
        new = copied(pod, lambda obj, change=change: change(obj, rng))
        manager = FieldManager(rng.choice(writers), UPDATE, "v1", subresource)
        expected = managed_fields._updated_owners(PODS, new, pod, expected, manager, now)
        if new != pod:
            managed_fields.track_update(PODS, new, pod, manager, (), now)
        assert fields(owners_of(PODS, new)) == fields(expected), (now, manager)
        assert shown(new) == encoded(owners_of(PODS, new))
        assert json_of(new) == json.loads(to_json(with_shown_owners(PODS, new)))
        pod = new
        if now == 6 and not pod.metadata.annotations:
            pod = copied(pod, bind)
            assert fields(owners_of(PODS, pod)) == fields(expected), "nobody owns what a bind sets"


def test_fields_of_writes_without_manager_have_no_owner() -> None:
    pod, expected = created(make_pod("a").req(cpu="1").build(), "kubectl", 1)
    new = copied(pod, lambda obj: obj.metadata.labels.update(zone="z"))
    new.metadata.ownership = exclude_added(PODS, pod.metadata.ownership, pod, new)
    assert fields(owners_of(PODS, new)) == fields(expected)


def test_lease_renewal_keeps_one_small_owner() -> None:
    """The renewals of 10,000 nodes must not compute fields."""
    resource: Resource[Any] = LEASES
    lease = resource.message()
    lease.spec.holderIdentity = "n"
    lease.spec.renewTime.seconds = 5
    lease.metadata.ownership = Creator(resource, "kubelet", "", 1)(lease)
    size = len(lease.metadata.ownership)
    renewed = resource.message()
    renewed.CopyFrom(lease)
    renewed.spec.renewTime.seconds = 9
    manager = FieldManager("kubelet", UPDATE, resource.api_version)
    assert managed_fields._track_only_manager(resource, renewed, lease, manager, 2)
    assert len(renewed.metadata.ownership) == size
    (entry,) = encode_managed_fields(owners_of(resource, renewed), resource)
    assert entry.fieldsV1.Raw == b'{"f:spec":{"f:holderIdentity":{},"f:renewTime":{}}}' and entry.time.seconds == 2


def test_first_status_write_computes_no_fields() -> None:
    pod, _ = created(make_pod("a").req(cpu="1").build(), "controller", 1)
    pod.status.phase = "Pending"
    new = copied(pod, lambda obj: setattr(obj.status, "hostIP", "10.0.0.1"))
    manager = FieldManager("kubelet", UPDATE, "v1", STATUS)
    assert managed_fields._track_only_manager(PODS, new, pod, manager, 2)
    assert owners_of(PODS, new)[manager].fields == FieldSet([("f:status", "f:hostIP")])
    large = copied(pod, lambda obj: setattr(obj.status, "message", "x" * MAX_BASE))
    assert not managed_fields._track_only_manager(PODS, copied(large, bind), large, manager, 2), "the stored form is bounded"
