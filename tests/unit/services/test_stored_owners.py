"""Who receives the owners of fields: callers that impersonate users, such as the gateway."""

from pinnace.api import wire
from pinnace.api.core_v1_pb2 import Pod, PodList
from pinnace.api.ownership import Creator, decode_shown
from pinnace.api.resources import PODS
from pinnace.api.verbs_pb2 import GetRequest, ListRequest
from pinnace.apiserver.auth.authentication import MASTERS, User
from tests.builders import make_pod
from tests.unit.auth.matrix import OWN, PEOPLE, Caller, serving

GATEWAY_USER = User("alice", (MASTERS,), impersonator="system:gateway")


async def test_components_receive_objects_without_owners() -> None:
    """The volume of watches must not grow with the owners, which no component reads."""
    async with serving() as assembly:
        for user, shown in ((PEOPLE["scheduler"], False), (GATEWAY_USER, True)):
            data = await assembly.methods["/pinnace.v1.Pods/Get"].call(GetRequest(namespace=OWN, name="thing"), Caller(user))
            assert bool(Pod.FromString(data).metadata.ownership) == shown
            listed = await assembly.methods["/pinnace.v1.Pods/List"].call(ListRequest(namespace=OWN), Caller(user))
            (pod,) = PodList.FromString(listed).items
            assert bool(pod.metadata.ownership) == shown
            assert bool(decode_shown(PODS, pod.SerializeToString()).metadata.managedFields) == shown


def test_owners_are_cut_from_encoded_objects() -> None:
    pod = make_pod("a").label("app", "x").req(cpu="1").build()
    expected = pod.SerializeToString(deterministic=True)
    for manager in ("kubectl", "m" * 128):
        pod.metadata.ownership = Creator(PODS, manager, "", 1.7e9)(pod)
        encoded = pod.SerializeToString(deterministic=True)
        assert wire.without_ownership(encoded) == expected
        pod.metadata.annotations["long"] = "x" * 20_000
        encoded = pod.SerializeToString()
        pod.metadata.ClearField("ownership")
        assert Pod.FromString(wire.without_ownership(encoded)) == pod
        del pod.metadata.annotations["long"]
    assert wire.without_ownership(b"") == b"" and wire.without_ownership(expected) == expected
