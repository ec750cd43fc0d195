"""Claims are attached to a node and mounted for a pod before any of its containers starts."""

from pinnace.kubelet.runtime.interface import VolumeProgress
from tests.builders import PodBuilder, make_pod
from tests.unit.kubelet.fakeapi import FakeApi
from tests.unit.kubelet.machine import Machine


def slow(name: str, claim: str = "data") -> PodBuilder:
    """A pod whose volume takes three seconds to attach and one to mount."""
    return make_pod(name).req().claim(claim).declare(attach_seconds="3", mount_seconds="1")


async def test_containers_wait_for_attach_and_mount(api: FakeApi) -> None:
    api.create(slow("a"))
    await api.clock.advance(3.9)
    assert api.phases("a") == ["Pending"]
    assert api.pod("a").status.containerStatuses[0].state.waiting.reason == "ContainerCreating"
    await api.clock.advance(0.1)
    assert api.phases("a") == ["Pending", "Running"]


async def test_attached_volume_is_only_mounted(api: FakeApi) -> None:
    api.create(slow("a"))
    await api.clock.advance(1.0)
    api.create(slow("b"))  # during the attachment
    await api.clock.advance(3.0)
    assert api.phases("a") == api.phases("b") == ["Pending", "Running"]
    api.create(slow("c"))
    await api.clock.advance(1.0)
    assert api.phases("c") == ["Pending", "Running"]
    api.create(slow("d", claim="other"))
    await api.clock.advance(3.9)
    assert api.phases("d") == ["Pending"]


async def test_unused_volume_is_detached(api: FakeApi) -> None:
    api.create(slow("a"))
    api.create(slow("b"))
    await api.clock.advance(4.0)
    api.delete("a", grace=0)
    await api.clock.advance(0.0)
    api.create(slow("c"))
    await api.clock.advance(1.0)
    assert api.phases("c") == ["Pending", "Running"], "b still uses the volume"
    for name in ("b", "c"):
        api.delete(name, grace=0)
    await api.clock.advance(0.0)
    api.create(slow("d"))
    await api.clock.advance(3.9)
    assert api.phases("d") == ["Pending"]


async def test_local_volumes_are_available_at_once(api: FakeApi) -> None:
    pod = api.create(make_pod("a").req().empty_dir("scratch").declare(attach_seconds="3", mount_seconds="1"))
    assert pod.spec.volumes
    await api.clock.advance(0.0)
    assert api.phases("a") == ["Running"]


async def test_restarted_kubelet_waits_for_volumes_of_pods_that_had_not_started(api: FakeApi) -> None:
    api.create(slow("old"))
    await api.clock.advance(4.0)
    api.create(slow("new", claim="other"))
    await api.clock.advance(1.0)
    await api.start_fleet()
    await api.clock.advance(3.9)
    assert (api.phases("old"), api.phases("new")) == (["Pending", "Running"], ["Pending"])
    await api.clock.advance(0.1)
    assert api.phases("new") == ["Pending", "Running"]
    assert api.pod("old").status.containerStatuses[0].restartCount == 0


async def test_container_without_its_objects_is_held_alone(api: FakeApi) -> None:
    """The process runtime reports what a container waits for."""
    pod = api.create(make_pod("a").req().container().claim("data").declare(mount_seconds="60"))
    await api.clock.advance(1.0)
    api.fleet._handle_volume_progress(pod.metadata.uid, VolumeProgress(True, {"c0": 'configmap "m" not found'}))
    await api.clock.advance(1.0)
    first, second = api.pod("a").status.containerStatuses
    assert (first.state.waiting.reason, first.state.waiting.message) == (
        "CreateContainerConfigError",
        'configmap "m" not found',
    )
    assert second.state.HasField("running") and set(api.phases("a")) == {"Pending"}
    api.fleet._handle_volume_progress(pod.metadata.uid, VolumeProgress(True, {}))
    await api.clock.advance(1.0)
    assert [container_status.ready for container_status in api.pod("a").status.containerStatuses] == [True, True]
    assert api.phases("a")[-1] == "Running"


async def test_invalid_annotations_do_not_block_volumes(api: FakeApi) -> None:
    api.create(slow("a"))
    await api.clock.advance(1.0)
    api.annotate("a", "pinnace.io/attach-seconds", "soon")
    await api.start_fleet()
    await api.clock.advance(0.0)
    assert api.phases("a") == ["Pending", "Running"]


async def test_invalid_mount_delay_rejects_the_pod(api: FakeApi) -> None:
    api.create(slow("a").declare(mount_seconds="soon"))
    await api.clock.advance(0.0)
    status = api.pod("a").status
    assert (status.phase, status.reason) == ("Failed", "UnexpectedAdmissionError")
    assert 'annotation pinnace.io/mount-seconds: "soon" is not seconds' in status.message
    api.create(slow("b").declare(mount_seconds="1"))
    await api.clock.advance(3.9)
    assert api.phases("b") == ["Pending"], "the rejected pod left no volume attached"


async def test_pod_deleted_while_its_volumes_attach_never_starts(api: FakeApi) -> None:
    api.create(slow("a"))
    await api.clock.advance(1.0)
    api.delete("a")
    await api.clock.advance(0.0)
    assert api.phases("a")[-1] == "deleted"
    assert "Running" not in api.phases("a")


def test_deadline_can_pass_while_volumes_attach() -> None:
    machine = Machine(make_pod("a").req().deadline(2), volumes=4.0).wait(3.0)
    assert machine.phase == "Failed"
    assert machine.state.reason == "DeadlineExceeded"
    assert not [words for words in machine.log if words.startswith("start")]


def test_init_containers_wait_for_volumes() -> None:
    machine = Machine(make_pod("a").init().req(), volumes=4.0).wait(3.0)
    assert machine.log == []
    assert machine.wait(1.0).log == ["start i0", "start c0"]
